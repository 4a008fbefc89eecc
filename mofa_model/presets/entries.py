"""The preset files as tables: parsed once when asked for, entries found by id or alias whatever the case."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any, Final

from mofa_model.errors import BadFile, UnknownName

KINDS: Final = ("models", "devices", "fabrics", "precisions", "stacks")
"""Kinds of preset, each a file of that name."""

Entry = Mapping[str, Any]
"""One preset as it stands in its file."""

_ABOUT: Final = ("aliases", "source", "note", "derived", "from_memory")
"""Keys that say something about an entry; the others are its facts."""


@cache
def table(kind: str) -> Mapping[str, Entry]:
    """All entries of a file, by id."""
    text = resources.files("mofa_model.presets").joinpath(f"{kind}.toml").read_text(encoding="utf-8")
    try:
        return MappingProxyType(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise BadFile(f"{kind}.toml", str(error)) from None


@cache
def _ids(kind: str) -> Mapping[str, str]:
    """Every name that finds an entry, in lower case, with the entry's id."""
    aliases = {
        alias.lower(): name for name, entry in table(kind).items() for alias in entry.get("aliases", ())
    }
    return MappingProxyType(aliases | {name: name for name in table(kind)})


def names(kind: str) -> tuple[str, ...]:
    """The ids of a kind, in the order of the file.

    >>> names("precisions")[0]
    'bf16'
    """
    if kind not in KINDS:
        raise UnknownName("presets", kind, KINDS)
    return tuple(table(kind))


def resolve(kind: str, name: object, *, field: str = "") -> str:
    """The id of the entry that a name or alias means; `field` is what an error calls it.

    >>> resolve("models", "Llama3-405B")
    'llama3.1-405b'
    """
    names(kind)
    found = _ids(kind).get(name.strip().lower()) if isinstance(name, str) else None
    if found is None:
        raise UnknownName(field or kind.removesuffix("s"), name, _ids(kind))
    return found


def entry(kind: str, name: object) -> Entry:
    """The entry that a name or alias means."""
    return table(kind)[resolve(kind, name)]


def facts(given: Entry) -> dict[str, Any]:
    """An entry without what is said about it."""
    return {key: value for key, value in given.items() if key not in _ABOUT}


def sources(kind: str, name: object) -> dict[str, Any]:
    """Where an entry's numbers come from: source, note, and what is derived or from memory.

    >>> sources("models", "bloom")["source"]
    'bigscience tr11-176B slurm script'
    """
    given = entry(kind, name)
    return {key: given[key] for key in _ABOUT if key in given and key != "aliases"}
