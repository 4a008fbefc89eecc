"""Frozen dataclasses and categories that are cheap to import and to use.

`dataclass` works as in the standard library, for classes whose instances never change, at a tenth
of its cost. The standard library writes and compiles six methods for each such class, which takes a
third of a millisecond, and a command imports 160 of them. Here fields are looked at when they are
asked for, and only `__init__` is compiled, and only for a class with many instances. `field`,
`fields`, `replace` and subclasses by either decorator work as ever.
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
            own_fields = {
                n: item for n, item in vars(cls).items() if isinstance(item, dataclasses.Field)
            }
            for name, item in own_fields.items():
                if item.default is dataclasses.MISSING:
                    delattr(cls, name)
                else:
                    setattr(cls, name, item.default)
            on_demand: dict[str, Callable[[Any], Any]] = {}
            on_demand["__dataclass_fields__"] = partial(
                _fields_of, own_fields=own_fields, kw_only=kw_only
            )
            on_demand |= {"__eq__": _equal_of, "__hash__": _hash_of} if eq else {}
            methods: dict[str, Any] = {
                name: _Late(cls, name, on_demand[name]) for name in on_demand
            }
            methods |= {"__init__": _Init(cls), "__setattr__": _refuse, "__delattr__": _refuse}
            methods |= {"__repr__": _shown} if repr else {}
            for name in methods.keys() - vars(cls).keys():
                setattr(cls, name, methods[name])
            cls.__dataclass_params__ = _PARAMETERS
            return cls

        return decorated


@dataclasses.dataclass(frozen=True, init=False, repr=False, eq=False)
class _Pattern:
    """A frozen class of the standard library, whose marks are set on ours too."""

    only: int


_PARAMETERS: Final = vars(_Pattern)["__dataclass_params__"]
_ORDINARY: Final = vars(_Pattern)["__dataclass_fields__"]["only"]._field_type  # noqa: SLF001


class _Late:
    """Stands in for an attribute of a class until it is asked for, and then makes it."""

    def __init__(self, cls: type, name: str, make: Callable[[Any], Any]) -> None:
        self._class, self._name, self._make = cls, name, make

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        made = self._make(self._class)
        setattr(self._class, self._name, made)
        return made.__get__(instance, owner) if hasattr(made, "__get__") else made


def _fields_of(
    cls: Any, own_fields: dict[str, dataclasses.Field[Any]], kw_only: bool
) -> dict[str, dataclasses.Field[Any]]:
    """The fields of a class, those of the classes below it first, as the standard library keeps
    them; `own_fields` are those of its own that `field` made.
    """
    items: dict[str, dataclasses.Field[Any]] = {}
    for base in cls.__mro__[:0:-1]:
        items |= getattr(base, "__dataclass_fields__", {})
    for name, annotation in cls.__annotations__.items():
        if str(annotation).startswith(("ClassVar", "typing.ClassVar")):
            continue
        item: Any = own_fields.get(name)
        if item is None:
            item = dataclasses.field(default=vars(cls).get(name, dataclasses.MISSING))
        item.name, item.type, item._field_type = name, annotation, _ORDINARY  # noqa: SLF001
        if item.kw_only is dataclasses.MISSING:
            item.kw_only = kw_only
        items[name] = item
    return items


FEW: Final = 60
"""Instances of a class that are made before its `__init__` is compiled: that takes as long as
making some hundred. [1]"""
_SET: Final = object.__setattr__


class _Init:
    """Stands in for `__init__` until many instances are made, or somebody looks at it."""

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
    """Fills instances as the `__init__` of a class does. Bad arguments go to the real `__init__`,
    whose error is the usual one.
    """
    missing = dataclasses.MISSING
    fields: list[dataclasses.Field[Any]] = list(cls.__dataclass_fields__.values())
    plain = {item.name: item.default for item in fields}
    positions = [item.name for item in fields if not item.kw_only]
    factories = [
        (item.name, item.default_factory) for item in fields if item.default_factory is not missing
    ]
    required = {
        item.name for item in fields if item.default is missing and item.default_factory is missing
    }
    count, has_post_init = len(fields), hasattr(cls, "__post_init__")

    def fill(made: Any, /, *positional: Any, **named: Any) -> None:
        values = dict(zip(positions, positional, strict=False)) | named if positional else named
        filled = plain | values
        if (
            len(filled) > count
            or len(values) < len(positional) + len(named)
            or not values.keys() >= required
        ):
            _init_of(cls)(made, *positional, **named)
        for name, factory in factories:
            if name not in values:
                filled[name] = factory()
        _SET(made, "__dict__", filled)
        if has_post_init:
            made.__post_init__()

    return fill


def _init_of(cls: Any) -> Callable[..., None]:
    """The `__init__` of a class, from its fields."""
    namespace: dict[str, Any] = {"_made": object(), "_set": _SET}
    arguments, keywords, values = ["self"], ["*"], []
    for item in dataclasses.fields(cls):
        argument = value = item.name
        if item.default_factory is not dataclasses.MISSING:
            namespace[f"_{item.name}"] = item.default_factory
            argument += "=_made"
            value = f"_{item.name}() if {item.name} is _made else {item.name}"
        elif item.default is not dataclasses.MISSING:
            namespace[f"_{item.name}"] = item.default
            argument += f"=_{item.name}"
        (keywords if item.kw_only else arguments).append(argument)
        values.append(f"{item.name!r}: {value}")
    signature = ", ".join(arguments + keywords[: len(keywords) * (len(keywords) > 1)])
    text = f"def __init__({signature}):\n _set(self, '__dict__', {{{', '.join(values)}}})"
    text += "\n self.__post_init__()" * hasattr(cls, "__post_init__")
    exec(text, namespace)  # noqa: S102 - of names of fields only
    init: Callable[..., None] = namespace["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__annotations__ = {item.name: item.type for item in dataclasses.fields(cls)}
    return init


def _compared(cls: Any) -> Callable[[Any], Any]:
    """The values of an instance that count where it is compared."""
    names = [item.name for item in dataclasses.fields(cls) if item.compare]
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
    values = (f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self) if f.repr)
    return f"{self.__class__.__qualname__}({', '.join(values)})"


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
