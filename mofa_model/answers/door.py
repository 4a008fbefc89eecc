"""The door of Python: a question's class is its function's signature, and errors name parameters, not options.

    @asked_by(EttrQuestion)
    def ettr(question): ...          ettr(nodes=32, step="28 s") for people, ettr.of(question) for a verb

A question is frozen and made of what people write: text with units, whole numbers, names. `Reply` is what comes back.
"""

from __future__ import annotations

import inspect
import re
import shlex
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, fields
from typing import Any, Final, Generic, ParamSpec, Protocol, TypeVar, cast

from mofa_model import output
from mofa_model.answers.question import RENAMED, WordedQuestion, option_of, parameter_of
from mofa_model.errors import InputError, Missing, MofaError, UnknownName, lacking
from mofa_model.tables import Table

Words = ParamSpec("Words")
Q = TypeVar("Q")
A = TypeVar("A")

_OPTION: Final = re.compile(r"--([a-z]+(?:-[a-z]+)*)")


class Door(Generic[Words, Q, A]):
    """A question that can be asked: by its words, or as it is."""

    def __init__(self, kind: Callable[Words, Q], answer: Callable[..., A]) -> None:
        """`kind` makes the question, `answer` answers it."""
        self._kind = kind
        self.of = answer
        """The answer to a question that is made already; its errors name options."""
        self.__name__ = answer.__name__
        self.__qualname__ = answer.__name__
        self.__module__ = answer.__module__
        self.__doc__ = answer.__doc__

    @property
    def __signature__(self) -> inspect.Signature:
        """The words of the question, for help and completion."""
        return inspect.signature(self._kind)

    def __call__(self, *args: Words.args, **words: Words.kwargs) -> A:
        """The answer; `InputError` where the question cannot be right."""
        known = [one.name for one in fields(cast("Any", self._kind))]
        with in_python(known):
            for name in words:
                if name not in known:
                    raise UnknownName(f"{self.__name__}()", name, known, aliases=_ALIASES)
            needed = [one.name for one in fields(cast("Any", self._kind)) if one.default is MISSING]
            if absent := [name for name in needed if name not in words]:
                raise InputError(
                    f"{lacking(absent)}; give {'them' if absent[1:] else 'it'} to {self.__name__}()"
                )
            return self.of(self._kind(*args, **words))


_ALIASES: Final = {option.replace("-", "_"): name for option, name in RENAMED.items()}
"""What somebody may write who knows the options."""


def asked_by(kind: Callable[Words, Q]) -> Callable[[Callable[..., A]], Door[Words, Q, A]]:
    """Make a function of a question a door: people call it with the words of that question."""
    return lambda answer: Door(kind, answer)


def question_of(kind: Callable[..., Q], arguments: Namespace) -> Q:
    """The question that options ask: whatever of it they have, by name."""
    named = (one.name for one in fields(cast("Any", kind)))
    given = {name: getattr(arguments, name) for name in named if hasattr(arguments, name)}
    return kind(
        **{name: tuple(one) if isinstance(one, list) else one for name, one in given.items()}
    )


def said_of(question: WordedQuestion) -> dict[str, Any]:
    """What somebody said: fields that are not as they are where nobody says anything."""
    return {
        one.name: getattr(question, one.name)
        for one in fields(question)
        if getattr(question, one.name) != one.default
    }


def command_of(verb: str, question: WordedQuestion) -> str:
    """The command line that asks the same."""
    words = ["mofa", verb]
    for name, value in said_of(question).items():
        several = value if isinstance(value, tuple) else (value,)
        if name == "vary":
            words += ["--vary", *several]
        else:
            words += [word for one in several for word in (option_of(name), str(one))]
    return shlex.join(words)


@contextmanager
def in_python(known: Sequence[str]) -> Iterator[None]:
    """Errors of ours name parameters where the command would name options."""

    def parameter(match: re.Match[str]) -> str:
        name = parameter_of(match[0])
        return next((one for one in (name, f"{name}s") if one in known), match[0])

    try:
        yield
    except MofaError as error:
        if isinstance(error, Missing):
            words = {
                _OPTION.sub(parameter, option): value for option, value in error.examples.items()
            }
            given = ", ".join(f"{name}={value!r}" for name, value in words.items())
            error.args = (f"{lacking([*words])}; for example {given}",)
        error.args = tuple(_OPTION.sub(parameter, str(one)) for one in error.args)
        for name in ("field", "right"):
            if isinstance(said := getattr(error, name, None), str):
                setattr(error, name, _OPTION.sub(parameter, said))
        raise


class Spoken(Protocol):
    """What an answer says."""

    @property
    def tables(self) -> Sequence[Table]:
        """What people read."""

    @property
    def records(self) -> Table:
        """The answer's main table: one row for each thing that was found, in SI."""

    def shown(self) -> Sequence[Any]:
        """Elements of a page: the tables, and pictures where there are some."""


class Reply:
    """What every answer can do: be a table of a data library, be seen in a notebook; `to_dict` is its own."""

    def to_frame(self: Spoken, library: str = "") -> Any:
        """The answer's main table, the same as `-o csv`, as a data frame of `pandas` or `polars`: whichever is installed."""
        for name in (library,) if library else ("pandas", "polars"):
            if name not in {"pandas", "polars"}:
                raise UnknownName("library", name, ("pandas", "polars"))
            if (module := _module(name)) is not None:
                table = self.records
                return module.DataFrame(
                    {
                        column.key: [row[at] for row in table.rows]
                        for at, column in enumerate(table.columns)
                    }
                )
        raise InputError(
            f"to_frame: {library or 'pandas or polars'} is not installed; pip install {library or 'pandas'}"
        )

    def _repr_html_(self: Spoken) -> str:
        """What a notebook shows."""
        from mofa_model.page.notebook import notebook_view

        return notebook_view(self.shown())

    def shown(self: Spoken) -> Sequence[Any]:
        """Elements of a page: the tables, and pictures where there are some."""
        from mofa_model.page.notebook import table_of

        return [table_of(one) for one in self.tables]

    def __repr__(self: Spoken) -> str:
        """The tables as text: what a terminal shows."""
        return output.render("table", self.tables)


def _module(name: str) -> Any:
    """A library, where it is installed."""
    import importlib
    from importlib.util import find_spec

    return importlib.import_module(name) if find_spec(name) else None
