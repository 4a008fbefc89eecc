"""A trainer's own settings in a file that a ConfigMap brings into its pods: read as the trainer reads them, or as plain settings."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, Final

from mofa_model.errors import InputError
from mofa_model.kinds import Demand
from mofa_model.launch import Reading, read
from mofa_model.manifest.surroundings import Surroundings
from mofa_model.yaml_text import StreamReader

_MOST: Final = 1000
"""Settings of a file that are read. [1]"""
_DEEPEST: Final = 8
"""Levels of a file that are read. [1]"""


def files_of(demand: Demand, around: Surroundings, namespace: str) -> dict[str, str]:
    """Files that a job's command names and that are here, by path."""
    found = {path: around.text(namespace, *which) for path, which in demand.files.items()}
    return {path: text for path, text in found.items() if text is not None}


def reading_of(files: Mapping[str, str]) -> Reading | None:
    """What a trainer that is known says in its own file; None where none of the files is one."""
    for path in files:
        try:
            return read((path,), lambda name: files[name])
        except (InputError, KeyError):
            continue
    return None


def words_of(files: Mapping[str, str]) -> tuple[str, ...]:
    """Settings of files as words of a command, by the last part of their names.

    >>> words_of({"/etc/run.yaml": "train: {max_seq_length: 4096}"})
    ('--max_seq_length=4096',)
    """
    return tuple(word for path, text in files.items() for word in _words(path, text))


def _words(path: str, text: str) -> list[str]:
    try:
        if path.endswith(".toml"):
            return list(_leaves(tomllib.loads(text)))[:_MOST]
        reader = StreamReader(path)
        return [word for node in reader.documents(text) for word in _leaves(reader.value(node))][
            :_MOST
        ]
    except (InputError, ValueError, RecursionError):
        return []


def _leaves(value: Any, depth: int = 0) -> Iterator[str]:
    if not isinstance(value, Mapping) or depth > _DEEPEST:
        return
    for name, one in value.items():
        if isinstance(one, Mapping):
            yield from _leaves(one, depth + 1)
        elif isinstance(one, str | int | float):
            yield f"--{name}={one}"
