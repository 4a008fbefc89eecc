"""Model, sequence and batch from a launch command or a settings file that is no known trainer's.

`launch` reads the commands of known trainers, layout included. A script of one's own has no layout
that could be read, but its flags often have the names that Hugging Face's trainer made common.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Final

from mofa_model import presets
from mofa_model.errors import InputError
from mofa_model.kinds import Demand
from mofa_model.kinds.shape import whole
from mofa_model.launch import Reading, read
from mofa_model.manifest.surroundings import Surroundings
from mofa_model.yaml_text import StreamReader

_MODEL: Final = (
    "model-name-or-path",
    "pretrained-model-name-or-path",
    "model-name",
    "model-id",
    "base-model",
    "model",
)
_SEQUENCE: Final = (
    "seq-length", "max-seq-length", "max-sequence-length", "sequence-length", "model-max-length",
    "seq-len", "max-length",
    "block-size", "context-length", "cutoff-len",
)  # fmt: skip
_BATCH: Final = ("global-batch-size", "total-batch-size", "global-train-batch-size")
_EACH: Final = ("per-device-train-batch-size", "per-gpu-train-batch-size")
_AGAIN: Final = ("gradient-accumulation-steps",)

_TUNED: Final = re.compile("-(instruct|chat|it|base)$", re.IGNORECASE)
"""Endings of models that were trained on: their weights are others, their architecture is not."""


def facts_of(words: Sequence[str], gpus: int) -> dict[str, int]:
    """Sequence and batch as a TrainingJob has them; a batch per device is times all `gpus` [1].

    >>> facts_of(["train.py", "--max_seq_length=2048", "--per_device_train_batch_size", "4"], 8)
    {'sequenceLength': 2048, 'globalBatchSize': 32}
    """
    sequence = whole(_flag_value(words, _SEQUENCE))
    batch = whole(_flag_value(words, _BATCH))
    if not batch:
        batch = whole(_flag_value(words, _EACH)) * (whole(_flag_value(words, _AGAIN)) or 1) * gpus
    facts = {"sequenceLength": sequence, "globalBatchSize": batch}
    return {name: value for name, value in facts.items() if value}


def model_of(words: Sequence[str], named: str = "") -> str:
    """The preset of the model that a command or the object names; empty where it is unknown.

    >>> model_of(["train.py", "--model_name_or_path", "meta-llama/Llama-2-7b-hf"])
    'llama2-7b'
    """
    return _preset(_flag_value(words, _MODEL)) or _preset(named)


def written_model(words: Sequence[str], named: str = "") -> str:
    """The model that a command or the object names, as it is written; empty where none is named."""
    return _flag_value(words, _MODEL) or named


def _preset(name: str) -> str:
    """A preset by its name, by the place of its weights, or by the last part of that place."""
    plain = name.partition("://")[2] or name
    bare = _TUNED.sub("", plain)
    for candidate in (plain, bare, bare.rpartition("/")[2]):
        try:
            return presets.resolve("models", candidate) if candidate else ""
        except InputError:
            continue
    return ""


def _flag_value(words: Sequence[str], names: Sequence[str]) -> str:
    """The value of the first flag of `names` that a command has, after `=` or as the next word."""
    values: dict[str, str] = {}
    for word, next_word in zip_longest(words, words[1:], fillvalue=""):
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            values.setdefault(name.replace("_", "-"), value if equals else next_word)
    return next((values[name] for name in names if values.get(name)), "")


_MOST: Final = 1000
"""Settings of a file that are read. [1]"""
_DEEPEST: Final = 8
"""Levels of a file that are read. [1]"""


def files_of(demand: Demand, around: Surroundings, namespace: str) -> dict[str, str]:
    """Files that a job's command names and that are here, by path."""
    texts = {path: around.text(namespace, *which) for path, which in demand.files.items()}
    return {path: text for path, text in texts.items() if text is not None}


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
