"""A question is a frozen dataclass; each of its fields says once how it may be asked.

    class EttrQuestion(UserQuestion):
        level: float = option(real, "--level P", "level of the band", default=0.9)

    class RatesQuestion(UserQuestion):
        level: float = as_in(EttrQuestion, "level", "level of intervals")

From these fields follow the options of the command (`add_options`), the parameters of the Python
function, the form of the page and the reference. Nothing slow is imported here: help and
completion read questions.
"""

from __future__ import annotations

import shlex
from argparse import ArgumentParser, Namespace, _ArgumentGroup
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, field
from numbers import Integral
from numbers import Real as AnyReal
from typing import Any, ClassVar, Final, TypeAlias, TypeVar, dataclass_transform

from mofa_model.errors import BadValue, UnknownName
from mofa_model.records import dataclass

Number: TypeAlias = str | int | float
"""A count or a quantity: 512, "15T", "2 GB/s"; kept as text."""
Names: TypeAlias = str | tuple[str, ...] | list[str]
"""One text, or several."""
Variations: TypeAlias = Names | Mapping[str, Any]
"""What varies: {"gpus": [64, 128]}, "gpus=64..128", or several such texts."""


@dataclass(frozen=True, kw_only=True)
class Option:
    """How a field of a question is asked."""

    name: str
    """The field: a parameter in Python and in the address of a page."""
    reader: Callable[[Any, str], Any]
    """Turns a value into the field's type; the second argument is the field's name in errors."""
    flags: tuple[str, ...]
    """Options of the command, the one that errors name last; FILE is an argument."""
    metavar: str
    """The placeholder of the value in the command's help."""
    text: str
    """What it means, in one sentence without capital and full stop."""
    default: Any
    """The value of a question that does not mention the field; MISSING where each has to."""
    group: str
    """Heading of the command's help under which it stands."""
    choices: tuple[str, ...]
    """The allowed values; empty = any value that the reader takes."""
    bounds: tuple[float, float] | None
    """Least and greatest number."""
    presets: str
    """The kind of presets whose names are values, such as `models`; empty = none."""

    @property
    def flag(self) -> str:
        """The option that errors name."""
        return self.flags[-1]

    @property
    def is_repeated(self) -> bool:
        """Whether the command takes the option several times."""
        return self.reader is names and self.default in ((), MISSING)

    def read(self, value: Any) -> Any:
        """A value in the field's own type; raises BadValue where it cannot be right."""
        if value is None:
            return None
        value = self.reader(value, self.flag)
        if self.choices and value not in self.choices:
            raise UnknownName(self.flag, value, self.choices)
        if self.bounds and not self.bounds[0] <= value <= self.bounds[1]:
            right = "give a number from {:g} to {:g}".format(*self.bounds)
            raise BadValue(self.flag, value, right)
        return value

    def words(self, value: Any) -> list[str]:
        """The words of a command line that give a value."""
        if self.reader is switch:
            return [self.flag]
        values = value if isinstance(value, tuple) else (value,)
        if self.reader in (variations, files):
            return [self.flag, *values]
        flag = [self.flag] if self.flag.startswith("-") else []
        return [word for item in values for word in (*flag, str(item))]


_PARTS: Final = tuple(part for part in Option.__dataclass_fields__ if part != "name")
"""What `option` says of a field, besides its name."""


def option(
    reader: Callable[[Any, str], Any],
    flags: str,
    text: str,
    default: Any = None,
    *,
    group: str | None = None,
    choices: tuple[str, ...] = (),
    bounds: tuple[float, float] | None = None,
    presets: str = "",
    kw_only: bool = True,
) -> Any:
    """A field of a question; `flags` are its options and the placeholder of the value: "--seq S".

    A field without a `group` stands in the group of the field before it.
    """
    *words, last = flags.split(" ")
    is_option = last.startswith("-")
    metadata = {
        "reader": reader,
        "flags": (*words, last) if is_option else tuple(words) or (last,),
        "metavar": "" if is_option else last,
        "text": text,
        "default": default,
        "group": group,
        "choices": choices,
        "bounds": bounds,
        "presets": presets,
    }
    return field(default=default, kw_only=kw_only, metadata=metadata)


def as_in(kind: type[UserQuestion], name: str, text: str = "", **changes: Any) -> Any:
    """A field that another question declares: the same flags, reader, bounds and presets.

    `text` says what the value is for here, and `changes` are the other parts of `option` that
    differ. Without a `group` it stands in the group of the field before it.
    """
    declared = kind.options[name]
    metadata = {part: getattr(declared, part) for part in _PARTS}
    metadata |= {"text": text or declared.text, "group": None, **changes}
    return field(default=metadata["default"], kw_only=True, metadata=metadata)


def argument(
    reader: Callable[[Any, str], Any], metavar: str, text: str, *, default: Any, kw_only: bool
) -> Any:
    """A field that is an argument of the command: a word without an option before it.

    Type checkers take its place in Python's calls from `kw_only=False`, so each field writes it.
    """
    return option(reader, metavar, text, default, group="", kw_only=kw_only)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(argument,))
class UserQuestion:
    """A question; subclasses are frozen dataclasses with fields by `option` and `argument`."""

    __dataclass_fields__: ClassVar[dict[str, Any]]
    options: ClassVar[dict[str, Option]] = {}
    """How each field is asked, by its name."""

    def __init_subclass__(cls) -> None:
        cls.options = {**cls.options}
        group = ""
        for name, value in tuple(vars(cls).items()):
            if isinstance(value, Field):
                metadata = dict(value.metadata)
                group = metadata["group"] = (
                    group if metadata["group"] is None else metadata["group"]
                )
                cls.options[name] = Option(name=name, **metadata)
        dataclass(frozen=True)(cls)

    def __post_init__(self) -> None:
        """Read every field into the type that it is declared with."""
        for name, option in self.options.items():
            object.__setattr__(self, name, option.read(getattr(self, name)))

    def changed_fields(self) -> dict[str, Any]:
        """Fields whose values are not the defaults, by name."""
        values = {name: getattr(self, name) for name in self.options}
        return {
            name: value for name, value in values.items() if value != self.options[name].default
        }

    def command(self, verb: str) -> str:
        """The command line that asks the same."""
        words = ["mofa", verb]
        for name, value in self.changed_fields().items():
            words += self.options[name].words(value)
        return shlex.join(words)


Q = TypeVar("Q", bound=UserQuestion)


def add_options(
    parser: ArgumentParser, kind: type[UserQuestion]
) -> dict[str, ArgumentParser | _ArgumentGroup]:
    """Give a verb the options of a question; the result has the groups of its help, by heading."""
    groups: dict[str, ArgumentParser | _ArgumentGroup] = {"": parser}
    for name, option in kind.options.items():
        if option.group not in groups:
            groups[option.group] = parser.add_argument_group(option.group)
        group = groups[option.group]
        extra: dict[str, Any] = {"help": _help(option), "default": None}
        if option.reader is switch:
            extra |= {"action": "store_true", "default": False}
        elif option.choices:
            extra["choices"] = option.choices
        else:
            extra["metavar"] = option.metavar or option.flag
        if not option.flag.startswith("-"):
            needed, optional = ("+", "*") if option.is_repeated else (None, "?")
            nargs = needed if option.default is MISSING else optional
            group.add_argument(name, nargs=nargs, **extra)
            continue
        if option.is_repeated:
            extra["action"] = "append"
        elif option.reader in (variations, files):
            extra["nargs"] = "+" if option.reader is variations else "*"
        action = group.add_argument(*option.flags, dest=name, **extra)
        action.presets = option.presets  # type: ignore[attr-defined] # completion reads it
    return groups


def _help(option: Option) -> str:
    """What the command's help says of an option."""
    text = f"{option.text}; may be repeated" if option.is_repeated else option.text
    default = option.default
    if default not in (None, (), False, MISSING):
        shown = ",".join(map(str, default)) if isinstance(default, tuple) else default
        text += f" (default: {shown:g})" if isinstance(shown, float) else f" (default: {shown})"
    return text.replace("%", "%%")


def question_of(kind: type[Q], arguments: Namespace) -> Q:
    """The question that a command's options ask."""
    values = {name: getattr(arguments, name, None) for name in kind.options}
    return kind(**{name: value for name, value in values.items() if value is not None})


def text(value: Any, field: str) -> str:
    """A name or a sentence."""
    if not isinstance(value, str) and not hasattr(value, "__fspath__"):
        raise BadValue(field, value, "give text")
    return str(value)


def number(value: Any, field: str) -> str:
    """A number as the text that people would write, so that it is read in one place."""
    if isinstance(value, bool) or not isinstance(value, str | AnyReal):
        raise BadValue(field, value, "give a number, or text with a unit")
    if isinstance(value, str):
        return value
    return str(int(value)) if isinstance(value, Integral) else f"{float(value):.15g}"


def real(value: Any, field: str) -> float:
    """A plain number: 0.005, "0.5%"."""
    from mofa_model import units

    try:
        return units.number(value) if isinstance(value, str) else float(value)
    except (TypeError, ValueError):
        raise BadValue(field, value, "give a number") from None


def whole(value: Any, field: str) -> int:
    """A whole number."""
    from mofa_model import units

    if not isinstance(value, bool | str) and isinstance(value, Integral):
        return int(value)
    return units.count(value if isinstance(value, str) else number(value, field), field=field)


def names(value: Any, field: str) -> tuple[str, ...]:
    """The value of a field as a tuple of texts, from one text or several."""
    if isinstance(value, str) or hasattr(value, "__fspath__"):
        return (str(value),)
    texts = tuple(value) if isinstance(value, Iterable) else (value,)
    if not all(isinstance(text, str) for text in texts):
        raise BadValue(field, value, "give text, or a list of it")
    return texts


def files(value: Any, field: str) -> tuple[str, ...]:
    """Files behind one option; none of them is a value as well: `--slurm` alone asks Slurm."""
    return names(value, field)


def variations(value: Any, field: str) -> tuple[str, ...]:
    """Fields with their values as texts: {"gpus": [64, 128]} is "gpus=64,128"."""
    if not isinstance(value, Mapping):
        return names(value, field)

    def in_words(values: Any) -> str:
        if isinstance(values, str):
            return values
        items = values if isinstance(values, Iterable) else (values,)
        words = (str(item).lower() if isinstance(item, bool) else item for item in items)
        return ",".join(number(word, field) for word in words)

    return tuple(f"{name}={in_words(values)}" for name, values in value.items())


def switch(value: Any, field: str) -> bool:
    """The value of a field that is True or False."""
    if not isinstance(value, bool):
        raise BadValue(field, value, "give True or False")
    return value
