"""Kinds of classes that are cheap to import and to use: frozen dataclasses and categories.

`dataclass` is as in the standard library, for classes whose instances never change, at a tenth of
its cost.

The standard library writes and compiles six methods for each such class, and looks at the text of
every annotation three times: a third of a millisecond, and a command imports 160 of them. Here only
`__init__` is compiled, when the first instance is made. `field`, `fields`, `replace` and subclasses
by either decorator work as ever.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

T = TypeVar("T", bound=type)
R = TypeVar("R")

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414 - a name of this module, too
else:

    def dataclass(
        *,
        frozen: bool,
        kw_only: bool = False,
        eq: bool = True,
        repr: bool = True,  # noqa: A002
    ) -> Callable[[T], T]:
        """The decorator; `frozen` has to be said, for the reader, and true."""
        if not frozen:
            raise TypeError("frozen: must be true; dataclasses.dataclass makes the others")

        def decorated(cls: T) -> T:
            cls.__dataclass_fields__ = _fields_of(cls, kw_only)
            cls.__dataclass_params__ = _PARAMETERS
            methods = {"__init__": _Init(cls), "__setattr__": _refuse, "__delattr__": _refuse}
            methods |= {"__repr__": _shown} if repr else {}
            methods |= _compared(cls) if eq else {}
            for name in methods.keys() - vars(cls).keys():
                setattr(cls, name, methods[name])
            return cls

        return decorated


@dataclasses.dataclass(frozen=True, init=False, repr=False, eq=False)
class _Pattern:
    """A frozen class of the standard library: what it remembers of it, ours are given."""

    only: int


_PARAMETERS: Final = vars(_Pattern)["__dataclass_params__"]
_ORDINARY: Final = vars(_Pattern)["__dataclass_fields__"]["only"]._field_type  # noqa: SLF001


def _fields_of(cls: Any, kw_only: bool) -> dict[str, dataclasses.Field[Any]]:
    """The fields of a class, those of the classes below it first, as the standard library keeps them."""
    found: dict[str, dataclasses.Field[Any]] = {}
    for below in cls.__mro__[:0:-1]:
        found |= getattr(below, "__dataclass_fields__", {})
    for name, kind in cls.__annotations__.items():
        if str(kind).startswith(("ClassVar", "typing.ClassVar")):
            continue
        given = vars(cls).get(name, dataclasses.MISSING)
        stated = isinstance(given, dataclasses.Field)
        one: Any = given if stated else dataclasses.field(default=given)
        one.name, one.type, one._field_type = name, kind, _ORDINARY  # noqa: SLF001
        if one.kw_only is dataclasses.MISSING:
            one.kw_only = kw_only
        if one.default is not dataclasses.MISSING:
            setattr(cls, name, one.default)
        elif stated:
            delattr(cls, name)
        found[name] = one
    return found


class _Init:
    """Stands where `__init__` will, until somebody asks for it."""

    def __init__(self, cls: type) -> None:
        self._class: Any = cls

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        self._class.__init__ = compiled = _init_of(self._class)
        return compiled.__get__(instance, owner)


def _init_of(cls: Any) -> Callable[..., None]:
    """The `__init__` of a class, from its fields."""
    known: dict[str, Any] = {"_made": object()}
    places, named, stored = ["self"], ["*"], []
    for one in dataclasses.fields(cls):
        argument = value = one.name
        if one.default_factory is not dataclasses.MISSING:
            known[f"_{one.name}"] = one.default_factory
            argument += "=_made"
            value = f"_{one.name}() if {one.name} is _made else {one.name}"
        elif one.default is not dataclasses.MISSING:
            known[f"_{one.name}"] = one.default
            argument += f"=_{one.name}"
        (named if one.kw_only else places).append(argument)
        stored.append(f"{one.name}={value}")
    arguments = ", ".join(places + named[: len(named) * (len(named) > 1)])
    text = f"def __init__({arguments}):\n self.__dict__.update({', '.join(stored)})"
    text += "\n self.__post_init__()" * hasattr(cls, "__post_init__")
    exec(text, known)  # noqa: S102 - of names of fields only
    init: Callable[..., None] = known["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__annotations__ = {one.name: one.type for one in dataclasses.fields(cls)}
    return init


def _compared(cls: Any) -> dict[str, Any]:
    """Equality and hash of a class, by the fields that count."""
    names = [one.name for one in dataclasses.fields(cls) if one.compare]
    values = attrgetter(*names) if names else type

    def equal(self: Any, other: Any) -> Any:
        return values(self) == values(other) if type(other) is type(self) else NotImplemented

    return {"__eq__": equal, "__hash__": lambda self: hash(values(self))}


def _shown(self: Any) -> str:
    """The fields of an instance, as one would write it."""
    shown = (f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self) if f.repr)
    return f"{self.__class__.__qualname__}({', '.join(shown)})"


def _refuse(_self: object, name: str, *_value: object) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot change field {name!r}")


def varied(record: R, **changes: Any) -> R:
    """A record with other values: as `dataclasses.replace`, for a class that checks nothing or where
    nothing has to be checked again. It must have no cached properties.
    """
    other = object.__new__(type(record))
    vars(other).update(vars(record), **changes)
    return other


class Category(enum.Enum):
    """A choice in words. A member is equal to itself alone, so its place in memory is its hash: the
    one of `Enum` is written in Python, and a search asks for it tens of thousands of times.
    """

    __hash__ = object.__hash__
