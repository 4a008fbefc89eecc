"""Kinds of classes that are cheap to import and to use: frozen dataclasses and categories.

`dataclass` is as in the standard library, for classes whose instances never change, at a tenth of
its cost.

The standard library writes and compiles six methods for each such class, and looks at the text of
every annotation three times: a third of a millisecond, and a command imports 160 of them. Here
fields are looked at when somebody asks for them, and `__init__` alone is compiled, for a class of
which many instances are made. `field`, `fields`, `replace` and subclasses by either decorator work
as ever.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from types import MethodType
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
            stated = {n: one for n, one in vars(cls).items() if isinstance(one, dataclasses.Field)}
            for name, one in stated.items():
                if one.default is dataclasses.MISSING:
                    delattr(cls, name)
                else:
                    setattr(cls, name, one.default)
            late: dict[str, Callable[[Any], Any]] = {}
            late["__dataclass_fields__"] = partial(_fields_of, stated=stated, kw_only=kw_only)
            late |= {"__eq__": _equal_of, "__hash__": _hash_of} if eq else {}
            methods: dict[str, Any] = {name: _Late(cls, name, late[name]) for name in late}
            methods |= {"__init__": _Init(cls), "__setattr__": _refuse, "__delattr__": _refuse}
            methods |= {"__repr__": _shown} if repr else {}
            for name in methods.keys() - vars(cls).keys():
                setattr(cls, name, methods[name])
            cls.__dataclass_params__ = _PARAMETERS
            return cls

        return decorated


@dataclasses.dataclass(frozen=True, init=False, repr=False, eq=False)
class _Pattern:
    """A frozen class of the standard library: what it remembers of it, ours are given."""

    only: int


_PARAMETERS: Final = vars(_Pattern)["__dataclass_params__"]
_ORDINARY: Final = vars(_Pattern)["__dataclass_fields__"]["only"]._field_type  # noqa: SLF001


class _Late:
    """Stands where something of a class will, until somebody asks for it."""

    def __init__(self, cls: type, name: str, make: Callable[[Any], Any]) -> None:
        self._class, self._name, self._make = cls, name, make

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        made = self._make(self._class)
        setattr(self._class, self._name, made)
        return made.__get__(instance, owner) if hasattr(made, "__get__") else made


def _fields_of(
    cls: Any, stated: dict[str, dataclasses.Field[Any]], kw_only: bool
) -> dict[str, dataclasses.Field[Any]]:
    """The fields of a class, those of the classes below it first, as the standard library keeps
    them; `stated` are those of its own that `field` made.
    """
    found: dict[str, dataclasses.Field[Any]] = {}
    for below in cls.__mro__[:0:-1]:
        found |= getattr(below, "__dataclass_fields__", {})
    for name, kind in cls.__annotations__.items():
        if str(kind).startswith(("ClassVar", "typing.ClassVar")):
            continue
        one: Any = stated.get(name)
        if one is None:
            one = dataclasses.field(default=vars(cls).get(name, dataclasses.MISSING))
        one.name, one.type, one._field_type = name, kind, _ORDINARY  # noqa: SLF001
        if one.kw_only is dataclasses.MISSING:
            one.kw_only = kw_only
        found[name] = one
    return found


FEW: Final = 60
"""Instances of a class that are made before its `__init__` is compiled: that takes as long as
making some hundred. [1]"""
_SET: Final = object.__setattr__


class _Init:
    """Stands where `__init__` will, until many instances are made or somebody looks at it."""

    def __init__(self, cls: type) -> None:
        self._class: Any = cls
        self._left = FEW
        self._fill: Callable[..., None] | None = None

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        self._left -= 1
        if instance is None or self._left <= 0:
            self._class.__init__ = compiled = _init_of(self._class)
            return compiled.__get__(instance, owner)
        if self._fill is None:
            self._fill = _fill_of(self._class)
        return MethodType(self._fill, instance)


def _fill_of(cls: Any) -> Callable[..., None]:
    """What the `__init__` of a class does, which itself says what it refuses."""
    none = dataclasses.MISSING
    fields: list[dataclasses.Field[Any]] = list(cls.__dataclass_fields__.values())
    plain = {one.name: one.default for one in fields}
    places = [one.name for one in fields if not one.kw_only]
    factories = [
        (one.name, one.default_factory) for one in fields if one.default_factory is not none
    ]
    needed = {one.name for one in fields if one.default is none and one.default_factory is none}
    many, checked = len(fields), hasattr(cls, "__post_init__")

    def fill(made: Any, /, *given: Any, **named: Any) -> None:
        values = dict(zip(places, given, strict=False)) | named if given else named
        filled = plain | values
        if (
            len(filled) > many
            or len(values) < len(given) + len(named)
            or not values.keys() >= needed
        ):
            _init_of(cls)(made, *given, **named)
        for name, factory in factories:
            if name not in values:
                filled[name] = factory()
        _SET(made, "__dict__", filled)
        if checked:
            made.__post_init__()

    return fill


def _init_of(cls: Any) -> Callable[..., None]:
    """The `__init__` of a class, from its fields."""
    known: dict[str, Any] = {"_made": object(), "_set": _SET}
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
        stored.append(f"{one.name!r}: {value}")
    arguments = ", ".join(places + named[: len(named) * (len(named) > 1)])
    text = f"def __init__({arguments}):\n _set(self, '__dict__', {{{', '.join(stored)}}})"
    text += "\n self.__post_init__()" * hasattr(cls, "__post_init__")
    exec(text, known)  # noqa: S102 - of names of fields only
    init: Callable[..., None] = known["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__annotations__ = {one.name: one.type for one in dataclasses.fields(cls)}
    return init


def _compared(cls: Any) -> Callable[[Any], Any]:
    """The values of an instance that count where it is compared."""
    names = [one.name for one in dataclasses.fields(cls) if one.compare]
    return attrgetter(*names) if names else type


def _equal_of(cls: Any) -> Callable[[Any, Any], Any]:
    values = _compared(cls)

    def equal(self: Any, other: Any) -> Any:
        return values(self) == values(other) if type(other) is type(self) else NotImplemented

    return equal


def _hash_of(cls: Any) -> Callable[[Any], int]:
    values = _compared(cls)
    return lambda self: hash(values(self))


def _shown(self: Any) -> str:
    """The fields of an instance, as one would write it."""
    shown = (f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self) if f.repr)
    return f"{self.__class__.__qualname__}({', '.join(shown)})"


def _refuse(_self: object, name: str, *_value: object) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot change field {name!r}")


def varied(record: R, **changes: Any) -> R:
    """A record with other values: as `dataclasses.replace`, for a class that checks nothing or
    where nothing has to be checked again. It must have no cached properties.
    """
    other = object.__new__(type(record))
    _SET(other, "__dict__", vars(record) | changes)
    return other


class Category(enum.Enum):
    """A choice in words. A member is equal to itself alone, so its place in memory is its hash: the
    one of `Enum` is written in Python, and a search asks for it tens of thousands of times.
    """

    __hash__ = object.__hash__
