"""The preset files as tables: parsed once when asked for, entries found by id or alias whatever the case."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from mofa_model.errors import BadFile, BadValue, UnknownName

KINDS: Final = ("models", "devices", "fabrics", "precisions", "optimizers", "stacks")
"""Kinds of preset, each a file of that name."""

Entry = Mapping[str, Any]
"""One preset as it stands in its file."""

_ABOUT: Final = ("aliases", "kernels", "source", "note", "derived", "from_memory")
"""Keys that say something about an entry; the others are its facts."""


@cache
def table(kind: str) -> Mapping[str, Entry]:
    """All entries of a file, by id."""
    text = Path(__file__).with_name(f"{kind}.toml").read_text(encoding="utf-8")
    try:
        return MappingProxyType(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise BadFile(f"{kind}.toml", str(error)) from None


@cache
def _ids(kind: str) -> Mapping[str, tuple[str, ...]]:
    """Every name, in lower case, with the ids of the entries that it may mean: an alias can be that of several."""
    found: dict[str, tuple[str, ...]] = {}
    for name, entry in table(kind).items():
        for alias in entry.get("aliases", ()):
            found[alias.lower()] = (*found.get(alias.lower(), ()), name)
    return MappingProxyType(found | {name: (name,) for name in table(kind)})


def names(kind: str) -> tuple[str, ...]:
    """The ids of a kind, in the order of the file.

    >>> names("precisions")[0]
    'bf16'
    """
    if kind not in KINDS:
        raise UnknownName("presets", kind, KINDS)
    return tuple(table(kind))


def meanings(kind: str, name: object) -> tuple[str, ...]:
    """The ids that a name or alias may mean.

    >>> meanings("precisions", "FP8")[:2], meanings("precisions", "fp7")
    (('fp8-delayed', 'fp8-current'), ())
    """
    names(kind)
    return _ids(kind).get(name.strip().lower(), ()) if isinstance(name, str) else ()


def resolve(kind: str, name: object, *, field: str = "", also: str = "") -> str:
    """The id of the entry that a name or alias means; `field` is what an error calls it, `also` what it offers beside names.

    >>> resolve("models", "Llama3-405B")
    'llama3.1-405b'
    """
    found, field = meanings(kind, name), field or kind.removesuffix("s")
    if len(found) > 1:
        raise BadValue(field, name, f"it may mean several: give {', '.join(found[:-1])} or {found[-1]}")
    if not found:
        aliases = {alias: ids[0] for alias, ids in _ids(kind).items()}
        more = ("`mofa presets " + kind + "` lists them all", also)
        raise UnknownName(field, name, names(kind), aliases=aliases, also=", ".join(filter(None, more)))
    return found[0]


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
