"""An answer, and the Python function that gives it.

    @asked_by(EttrQuestion)
    def ettr(question): ...     ettr(nodes=32, step="28 s") for people, ettr.of(question) for a verb

Errors of the function name parameters where those of the command name options.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypeVar

from mofa_model import output
from mofa_model.answers.options import UserQuestion
from mofa_model.errors import InputError, Missing, MofaError, UnknownName, lacking
from mofa_model.tables import Table

Words = ParamSpec("Words")
A = TypeVar("A")

_OPTION: Final = r"--[a-z]+(?:-[a-z]+)*"


class Door(Generic[Words, A]):
    """A function that takes the fields of a question; its `of` takes the question itself."""

    def __init__(self, kind: Callable[Words, UserQuestion], answer: Callable[..., A]) -> None:
        """`kind` makes the question, `answer` answers it."""
        self._kind: Any = kind
        self.of = answer
        """The same function for a question as an object; its errors name options."""
        self.__name__ = self.__qualname__ = answer.__name__
        self.__module__ = answer.__module__
        self.__doc__ = answer.__doc__

    @property
    def __signature__(self) -> inspect.Signature:
        """The parameters, for help and completion."""
        signature = inspect.signature(self._kind.__init__)
        return signature.replace(parameters=[*signature.parameters.values()][1:])

    def __call__(self, *args: Words.args, **words: Words.kwargs) -> A:
        """The answer; raises `InputError` where a field has a wrong value."""
        kind: type[UserQuestion] = self._kind
        parameters = parameters_of(kind)
        with in_python(parameters):
            if unknown := next((name for name in words if name not in kind.options), None):
                aliases = {
                    flag.lstrip("-").replace("-", "_"): name for flag, name in parameters.items()
                }
                raise UnknownName(f"{self.__name__}()", unknown, kind.options, aliases=aliases)
            return self.of(self._kind(*args, **words))


def asked_by(
    kind: Callable[Words, UserQuestion],
) -> Callable[[Callable[..., A]], Door[Words, A]]:
    """Turn a function of a question into one that takes the question's fields."""
    return lambda answer: Door(kind, answer)


def parameters_of(kind: type[UserQuestion]) -> dict[str, str]:
    """The parameter of Python that each option of a question sets."""
    return {flag: option.name for option in kind.options.values() for flag in option.flags}


@contextmanager
def in_python(parameters: Mapping[str, str]) -> Iterator[None]:
    """Inside this context, errors name parameters of Python instead of the command's options."""

    def renamed(text: str) -> str:
        return re.sub(_OPTION, lambda match: parameters.get(match[0], match[0]), text)

    try:
        yield
    except MofaError as error:
        if isinstance(error, Missing):
            examples = {renamed(flag): value for flag, value in error.examples.items()}
            arguments = ", ".join(f"{name}={value!r}" for name, value in examples.items())
            error.args = (f"{lacking([*examples])}; for example {arguments}",)
        error.args = tuple(renamed(str(word)) for word in error.args)
        for name in ("field", "right"):
            if isinstance(words := getattr(error, name, None), str):
                setattr(error, name, renamed(words))
        raise


class UserAnswer:
    """What every answer can do: print itself, be plain data or a data frame, show in a notebook."""

    if TYPE_CHECKING:  # each answer has these, as a property or as a field

        @property
        def tables(self) -> Sequence[Table]:
            """The answer as tables, for people."""

        @property
        def records(self) -> Table:
            """The main table: one row for each layout, machine or point of the answer, in SI."""

        @property
        def document(self) -> Any:
            """The whole answer as plain data, for programs."""

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain data, the same as `-o json`."""
        data: dict[str, Any] = output.as_data(self.document)
        return data

    def to_frame(self, library: str = "") -> Any:
        """The main table, the same as `-o csv`, as a data frame of `pandas` or `polars`."""
        libraries = ("pandas", "polars")
        if library and library not in libraries:
            raise UnknownName("library", library, libraries)
        for name in (library,) if library else libraries:
            if find_spec(name):
                table = self.records
                cells = {
                    column.key: [row[number] for row in table.rows]
                    for number, column in enumerate(table.columns)
                }
                return import_module(name).DataFrame(cells)
        raise InputError(
            f"to_frame: {library or 'pandas or polars'} is not installed; "
            f"pip install {library or 'pandas'}"
        )

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from mofa_model.page.what_if import notebook_view

        return notebook_view(self.shown())

    def shown(self) -> Sequence[Any]:
        """Elements of a page: the tables, and pictures where there are some."""
        from mofa_model.page.what_if import table_of

        return [table_of(table) for table in self.tables]

    def __repr__(self) -> str:
        """The tables as text: what a terminal shows."""
        return output.render("table", self.tables)
