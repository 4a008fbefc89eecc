"""Files of settings that people name as their layout: whose one is, told by what stands in it, and who reads it.

What is not recognised is refused, and what is another trainer's by its name: a file of which nothing was read would be taken for a
layout in which nothing is sharded. `formats.toml` has the marks by which they are told.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from mofa_model.errors import BadFile, shown
from mofa_model.files import from_json, from_toml
from mofa_model.yaml_text import StreamReader

ENDINGS: Final = (".toml", ".json", ".yaml", ".yml")
"""How names of such files end."""
_WRITTEN: Final = "or write the layout as tp=8,pp=4,…"


@dataclass(frozen=True, kw_only=True, slots=True)
class Format:
    """One kind of file."""

    about: str
    """What it is called."""
    marks: Sequence[Sequence[str]]
    """Alternatives; of each all places must be there."""
    say: str = ""
    """What can be given in its place, where it is not read."""
    reader: str = ""
    """The trainer whose words it has, where it is read."""
    keys: frozenset[str] = frozenset()
    """All keys that it can have at the top; empty where nobody knows."""

    def is_of(self, document: Mapping[str, Any]) -> bool:
        """Whether one of its marks is there."""
        return any(all(_has(document, place) for place in places) for places in self.marks)


def _has(document: Mapping[str, Any], place: str) -> bool:
    inside: Any = document
    for key in place.split("/"):
        if not isinstance(inside, Mapping) or key not in inside:
            return False
        inside = inside[key]
    return True


@cache
def _formats() -> tuple[Format, ...]:
    given = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))["format"]
    return tuple(Format(**{**one, "keys": frozenset(one.get("keys", ()))}) for one in given)


def document_of(text: str, name: str) -> Mapping[str, Any]:
    """The settings of a file in TOML, JSON or YAML, by the end of its name."""
    if name.lower().endswith(".toml"):
        return from_toml(text, name)
    if name.lower().endswith(".json"):
        found = [from_json(text, name)]
    else:
        reader = StreamReader(name)
        found = [reader.value(node) for node in reader.documents(text)]
    if len(found) > 1 and not any(_has(one, "apiVersion") for one in found):
        raise BadFile(name, f"holds {len(found)} documents; give one")
    if not found or not isinstance(found[0], Mapping):
        raise BadFile(name, "is not a mapping of settings")
    return dict(found[0])


def format_of(document: Mapping[str, Any], name: str) -> Format:
    """Whose a file is, of those that are read; every other is refused with what can be given."""
    one = _first(document)
    if one is None:
        keys = ", ".join(str(key) for key in list(document)[:3]) or "nothing"
        raise BadFile(
            name, f"is no file of settings that is known: it begins with {shown(keys)}; {_read()}"
        )
    if not one.reader:
        raise BadFile(
            name, f"seems to be {one.about}, which is not read as a layout: {one.say}; {_read()}"
        )
    _refuse_keys(one, document, name)
    return one


def document_for(reader: str, text: str, name: str) -> Mapping[str, Any]:
    """The settings of a file that a command names as a trainer's own; it may say little, and nothing that is another's."""
    document = document_of(text, name)
    found, wanted = _first(document), next(one for one in _formats() if one.reader == reader)
    if found not in (None, wanted):
        raise BadFile(
            name, f"seems to be {found.about}; where the command names it stands {wanted.about}"
        )
    _refuse_keys(wanted, document, name)
    return document


def _first(document: Mapping[str, Any]) -> Format | None:
    return next((one for one in _formats() if one.is_of(document)), None)


def _refuse_keys(one: Format, document: Mapping[str, Any], name: str) -> None:
    """Refuse what a trainer's file cannot have at its top, where it switches anything on: nobody knows what it says."""
    for key, value in document.items():
        if (
            one.keys
            and key not in one.keys
            and not str(key).startswith(("_", "comment"))
            and not _off(value)
        ):
            who = one.about.removesuffix("'s")
            raise BadFile(
                name,
                f"has {shown(key)}, which {who} does not know, so it is not read; take it out, {_WRITTEN}",
            )


def _off(value: object) -> bool:
    """Whether a value switches nothing on."""
    if isinstance(value, Mapping):
        return all(map(_off, value.values()))
    return value is None or value is False or value in ("", "no", "none", [])


def _read() -> str:
    known = {
        one.about.split(" of ")[0]: one.marks[0][0].replace("/", ".")
        for one in _formats()
        if one.reader
    }
    return f"read are {', '.join(f'{about} ({mark})' for about, mark in known.items())}, {_WRITTEN}"
