"""The trainers' argument names, from the files beside this module, and the two checks that rest on them.

What we print is looked up here first, so that no flag is printed that a trainer does not have; what we read is translated
from the names of earlier releases.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
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
    refused: Mapping[str, str]
    """What is not priced as it is, with what to say instead."""
    only: Mapping[str, Sequence[str]]
    """The values that are priced, of what has others too."""
    unpriced: Sequence[str]
    """Patterns of what changes memory or time and no field of a strategy says."""

    def not_priced(self, given: Mapping[str, object]) -> tuple[str, ...]:
        """What a command says beside its strategy that changes memory or time; what stands in the place of it is refused.

        >>> table("megatron").not_priced({"attention-backend": "fused", "lr": "1e-4"})
        ('attention-backend',)
        """
        for name, value in given.items():
            said = str(value).lower()
            if name in self.refused and said not in {"false", "null"}:
                raise BadValue(name, value, f"it is not priced: {self.refused[name]}")
            allowed = self.only.get(name)
            if allowed is not None and said not in {word.lower() for word in allowed}:
                raise BadValue(name, value, f"only {' or '.join(allowed)} is priced")
        return tuple(name for name in given if self.is_unpriced(name))

    def is_unpriced(self, name: str) -> bool:
        """Whether a name is of what changes memory or time and is not read."""
        known = name in self.kinds or name in self.only or name in self.refused
        return not known and any(fnmatchcase(name, pattern) for pattern in self.unpriced)

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
        if (
            value is None
            or not (value.isascii() and value.isdigit() and len(value) <= 9)
            or int(value) < 1
        ):
            raise BadValue(
                name, value, "give a whole number of one or more (shell variables cannot be read)"
            )
        return int(value)

    def choice(self, name: str, value: str | None) -> str:
        """One of the words that an argument takes."""
        allowed = self.choices(name)
        if value not in allowed:
            raise BadValue(name, value, f"one of {', '.join(allowed)}")
        return str(value)


class Words:
    """The arguments of a launch as they are collected, each one looked up first; `form` writes a name and its values."""

    def __init__(
        self, known: Arguments, form: Callable[[str, tuple[object, ...]], list[str]]
    ) -> None:
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
        trainer=trainer,
        release=given["release"],
        kinds=given["arguments"],
        older=given.get("older", {}),
        refused=given["refused"],
        only=given["only"],
        unpriced=given["unpriced"]["names"],
    )


def unsupported(trainer: str, field: str, value: object) -> BadValue:
    """The error for a layout that a trainer cannot be told to run."""
    return BadValue(
        f"strategy.{field}", value, f"{trainer} has no argument for it; constrain {field}"
    )
