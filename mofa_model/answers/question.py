"""What people write, as a value: a question is frozen, its fields are text, numbers and names, and each is of its sort.

    Text    a name or a sentence            Number  a whole number or a quantity: 512, "15T", "2 GB/s"; kept as text
    Real    a plain number: 0.005, "0.5%"   Whole   a plain whole number
    Names   one name, or several            bool    yes or no
    Fields  what varies: {"gpus": [64, 128]}, "gpus=64..128", or several such texts

The same classes are asked by the command, by Python and by a page, so each field takes text for a number too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from numbers import Integral
from numbers import Real as AnyReal
from typing import Any, Final, TypeAlias

from mofa_model import units
from mofa_model.errors import BadValue

Text: TypeAlias = str
Number: TypeAlias = str | int | float
Real: TypeAlias = float
Whole: TypeAlias = int
Names: TypeAlias = str | tuple[str, ...] | list[str]
Fields: TypeAlias = str | tuple[str, ...] | list[str] | Mapping[str, Any]

RENAMED: Final[Mapping[str, str]] = {
    "seq": "sequence_length",
    "global-batch": "global_batch_size",
    "lora": "adapter_rank",
    "release": "framework_version",
    "constraint": "constraints",
    "class": "classes",
}
"""Options whose parameter has another name: that of the manifest's field, or that of several."""
_OPTIONS: Final = {parameter: option for option, parameter in RENAMED.items()}


def parameter_of(option: str) -> str:
    """The parameter of an option: a field of a question, of a page's form and of its address.

    >>> parameter_of("--global-batch"), parameter_of("--checkpoint-size")
    ('global_batch_size', 'checkpoint_size')
    """
    name = option.removeprefix("--").replace("_", "-")
    return RENAMED.get(name, name.replace("-", "_"))


def option_of(parameter: str) -> str:
    """The option of a parameter.

    >>> option_of("global_batch_size"), option_of("checkpoint_size")
    ('--global-batch', '--checkpoint-size')
    """
    return f"--{_OPTIONS.get(parameter, parameter.replace('_', '-'))}"


@dataclass(frozen=True, kw_only=True)
class WordedQuestion:
    """Words of somebody who asks; a value that is of another sort than its field is refused here."""

    def __post_init__(self) -> None:
        """Bring every field to its sort."""
        for one in fields(self):
            value = getattr(self, one.name)
            sort = str(one.type).removesuffix(" | None")
            if value is not None and sort in _SORTS:
                object.__setattr__(self, one.name, _SORTS[sort](value, option_of(one.name)))


def _text(value: Any, field: str) -> str:
    if not isinstance(value, str) and not hasattr(value, "__fspath__"):
        raise BadValue(field, value, "give text")
    return str(value)


def _number(value: Any, field: str) -> str:
    """A number as the text that people would write, so that it is read in one place."""
    if isinstance(value, bool) or not isinstance(value, str | AnyReal):
        raise BadValue(field, value, "give a number, or text with a unit")
    if isinstance(value, str):
        return value
    return str(int(value)) if isinstance(value, Integral) else f"{float(value):.15g}"


def _real(value: Any, field: str) -> float:
    try:
        return units.number(value) if isinstance(value, str) else float(value)
    except (TypeError, ValueError):
        raise BadValue(field, value, "give a number") from None


def _whole(value: Any, field: str) -> int:
    if not isinstance(value, bool | str) and isinstance(value, Integral):
        return int(value)
    return units.count(value if isinstance(value, str) else _number(value, field), field=field)


def _names(value: Any, field: str) -> tuple[str, ...]:
    if isinstance(value, str) or hasattr(value, "__fspath__"):
        return (str(value),)
    found = tuple(value) if isinstance(value, Iterable) else (value,)
    if not all(isinstance(one, str) for one in found):
        raise BadValue(field, value, "give text, or a list of it")
    return found


def _fields(value: Any, field: str) -> tuple[str, ...]:
    if not isinstance(value, Mapping):
        return _names(value, field)

    def text(given: Any) -> str:
        if isinstance(given, str):
            return given
        several = given if isinstance(given, Iterable) else (given,)
        words = (str(one).lower() if isinstance(one, bool) else one for one in several)
        return ",".join(_number(one, field) for one in words)

    return tuple(f"{name}={text(given)}" for name, given in value.items())


def _switch(value: Any, field: str) -> bool:
    if not isinstance(value, bool):
        raise BadValue(field, value, "give True or False")
    return value


_SORTS: Final[Mapping[str, Callable[[Any, str], Any]]] = {
    "Text": _text,
    "Number": _number,
    "Real": _real,
    "Whole": _whole,
    "Names": _names,
    "Fields": _fields,
    "bool": _switch,
}
