"""The trainers' argument names, from the files beside this module, and the two checks that rest on them.

What we print is looked up here first, so that no flag is printed that a trainer does not have; what we read is translated
from the names of earlier releases.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from mofa_model.errors import BadValue


@dataclass(frozen=True, kw_only=True, slots=True)
class Arguments:
    """One trainer's arguments."""

    trainer: str
    """Its id, as `--launch` takes it."""
    release: str
    """Release in which they were read."""
    kinds: Mapping[str, str]
    """Kind by name: flag, int, text, a|b|c, words:a|b or word:a|b."""
    older: Mapping[str, str]
    """Names of earlier releases, with today's; `name=value` where today has a choice in place of a flag."""

    def choices(self, name: str) -> tuple[str, ...]:
        """The words that an argument takes; empty = it takes numbers, any text, or nothing."""
        kind = self.kinds[name]
        return tuple(kind.rpartition(":")[2].split("|")) if "|" in kind or ":" in kind else ()

    def check(self, name: str, *values: object) -> None:
        """Refuse to print what the trainer would not take: that is our fault, never the caller's."""
        kind = self.kinds.get(name)
        if kind is None:
            raise LookupError(f"{self.trainer} has no argument {name}")
        allowed = self.choices(name)
        fits = (
            all(str(value) in allowed for value in values)
            if allowed
            else all(isinstance(value, int) for value in values)
            if kind == "int"
            else True
        )
        if not fits:
            raise LookupError(f"{self.trainer} does not take {name} {values}")

    def today(self, name: str, value: str | None) -> tuple[str, str | None]:
        """A name of any release as today's, with its value."""
        new = self.older.get(name, name)
        new, equals, fixed = new.partition("=")
        return new, fixed if equals else value

    def number(self, name: str, value: str | None) -> int:
        """A whole number that a command gives."""
        if value is None or not (value.isascii() and value.isdigit() and len(value) <= 9) or int(value) < 1:
            raise BadValue(name, value, "give a whole number of one or more (shell variables cannot be read)")
        return int(value)

    def choice(self, name: str, value: str | None) -> str:
        """One of the words that an argument takes."""
        allowed = self.choices(name)
        if value not in allowed:
            raise BadValue(name, value, f"one of {', '.join(allowed)}")
        return str(value)


class Words:
    """The arguments of a launch as they are collected, each one looked up first; `form` writes a name and its values."""

    def __init__(self, known: Arguments, form: Callable[[str, tuple[object, ...]], list[str]]) -> None:
        self.words: list[str] = []
        self._known = known
        self._form = form

    def add(self, name: str, *values: object) -> None:
        """Add one argument."""
        self._known.check(name, *values)
        self.words += self._form(name, values)


@cache
def table(trainer: str) -> Arguments:
    """The arguments of a trainer.

    >>> table("megatron").kinds["tensor-model-parallel-size"]
    'int'
    """
    text = Path(__file__).with_name("arguments").joinpath(f"{trainer}.toml").read_text("utf-8")
    given = tomllib.loads(text)
    return Arguments(
        trainer=trainer, release=given["release"], kinds=given["arguments"], older=given.get("older", {})
    )


def unsupported(trainer: str, field: str, value: object) -> BadValue:
    """The error for a layout that a trainer cannot be told to run."""
    return BadValue(f"strategy.{field}", value, f"{trainer} has no argument for it; constrain {field}")
