"""Changes of a script's text: parts of it replaced, each told with its line."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import NamedTuple, Protocol

from mofa_model.records import dataclass


class TracedWord(Protocol):
    """A word whose characters know where in the script they stand; -1 = nowhere."""

    @property
    def text(self) -> str:
        """The word without its quotes."""

    @property
    def at(self) -> tuple[int, ...]:
        """Position of each character in the script."""

    @property
    def whole(self) -> bool:
        """Whether it stands in the script as it is, in one piece."""

    def slice(self, begin: int, until: int | None = None) -> TracedWord:
        """A part of the word, by positions of its characters."""


class Edit(NamedTuple):
    """A part of a text that is replaced."""

    start: int
    end: int
    text: str
    """What stands there afterwards."""
    name: str = ""
    """The option or variable that it says."""

    def line_number(self, whole: str) -> int:
        """The line of the whole text in which it is, or stands afterwards. [1]"""
        return 1 + whole.count("\n", 0, self.start) + self.text.startswith("\n")


class ScriptChange(NamedTuple):
    """One option that was changed."""

    line_number: int
    """Where it stood, or stands now. [1]"""
    name: str
    before: str
    """What it said; empty = it was not there."""
    after: str
    """What it says; empty = it is gone."""

    def __str__(self) -> str:
        name = self.name
        if not self.before:
            return f"line {self.line_number}: {name} {self.after}".rstrip() + " is new"
        return f"line {self.line_number}: {name} {self.before} is {self.after or 'gone'}"


@dataclass(frozen=True, kw_only=True)
class ChangedScript:
    """A script with another launch."""

    text: str
    changes: tuple[ScriptChange, ...] = ()
    left: tuple[str, ...] = ()
    """What could not be written into it, each in one sentence."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Files that it names now, with their text."""


def applied(text: str, edits: Iterable[Edit]) -> str:
    """A text after edits, which stand in their order and do not overlap.

    >>> applied("a=1 b=2", [Edit(2, 3, "7"), Edit(6, 7, "8")])
    'a=7 b=8'
    """
    pieces, end = list[str](), 0
    for edit in edits:
        pieces += [text[end : edit.start], edit.text]
        end = edit.end
    return "".join([*pieces, text[end:]])


def word_edit(word: TracedWord, value: str, name: str = "") -> Edit:
    """An edit that replaces a word by another value, in quotes where a shell needs them."""
    plain = re.fullmatch(r"[\w.,:/+-]+", value) is not None
    return Edit(word.at[0], word.at[-1] + 1, value if plain else shlex.quote(value), name)
