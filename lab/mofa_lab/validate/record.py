"""One JSON object of a case file, read with checks: a wrong field is named with its case, its value
and what is right.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mofa_model.errors import BadFile, BadValue
from mofa_model.files import from_json, read_text

LARGEST = 32 * 2**20
"""A case file beyond this is refused unread: ten times the largest one. [B]"""

MOST = 1e15
"""A number beyond this is a mistake, whatever it counts; products of a few stay finite."""


@dataclass(frozen=True, slots=True)
class Record:
    """A JSON object and the path that leads to it; null and absent are the same."""

    values: Mapping[str, Any]
    """What the object holds."""
    path: str = ""
    """Names of the fields around it, for messages."""

    def _field(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def get(self, name: str) -> Any:
        """The raw value; None where it is null or absent."""
        return self.values.get(name)

    def inner(self, name: str) -> Record:
        """An object inside; an empty one where it is null or absent."""
        value = self.get(name)
        if value is not None and not isinstance(value, Mapping):
            raise BadValue(self._field(name), value, "give an object")
        return Record(value or {}, self._field(name))

    def text(self, name: str, default: str | None = None) -> str:
        """A string."""
        value = self.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, str) or not value:
            raise BadValue(self._field(name), value, "give text")
        return value

    def flag(self, name: str, *, default: bool = False) -> bool:
        """True or false."""
        value = self.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise BadValue(self._field(name), value, "give true or false")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """A finite number of zero or more."""
        value = self.get(name)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise BadValue(self._field(name), value, "give a number")
        if not math.isfinite(value) or not 0 <= value <= MOST:
            raise BadValue(
                self._field(name), value, f"give a finite number between zero and {MOST:g}"
            )
        return value

    def count(self, name: str, default: int | None = None, *, most: float = MOST) -> int:
        """A whole number of zero or more."""
        value = self.number(name, default)
        if value != round(value) or value > most:
            raise BadValue(self._field(name), value, f"give a whole number of at most {most:g}")
        return round(value)

    def size(self, name: str, default: int | None = None, *, most: float = MOST) -> int:
        """A whole number of one or more."""
        value = self.count(name, default, most=most)
        if not value:
            raise BadValue(self._field(name), value, "give a whole number of one or more")
        return value

    def positive(self, name: str) -> float:
        """A finite number above zero."""
        value = self.number(name)
        if not value:
            raise BadValue(self._field(name), value, "give a number above zero")
        return value

    def measured(self, name: str) -> float | None:
        """A measured figure: above zero, or None where nothing was measured."""
        return None if self.get(name) is None else self.positive(name)


def read(
    path: Path | str, *, within: tuple[str, ...] = ("cases", "rows")
) -> tuple[list[Any], Mapping[str, Any]]:
    """The list that a JSON file holds, bare or under one of the names `within`, and what stands
    around it.
    """
    document = from_json(read_text(path, largest=LARGEST), path)
    around: Mapping[str, Any] = document if isinstance(document, dict) else {}
    listed = next((around[name] for name in within if name in around), document)
    if not isinstance(listed, list):
        raise BadFile(path, f"must hold a list, or an object with one under {' or '.join(within)}")
    return listed, around
