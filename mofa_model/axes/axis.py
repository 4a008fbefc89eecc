"""One axis of the strategy: what it fixes, its values, its words, and when they are legal.

Search, strategy texts, constraints, manifests, sweeps and docs walk over the rows of
`strategy.AXES`, which are of this type.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Any, ClassVar, Final, TypeVar

from mofa_model.axes.choices import (
    ACTIVATIONS,
    IN_NODE,
    MODULES,
    NO_MODULES,
    OFFLOADED,
    Placement,
    Recompute,
    Sharding,
)
from mofa_model.axes.frameworks import ANY, Framework
from mofa_model.axes.rejection import Rejection
from mofa_model.axes.rules import AxisContext, Mask, Rows, Rule, Violations
from mofa_model.axes.tried import Tried
from mofa_model.errors import BadValue
from mofa_model.records import dataclass
from mofa_model.schedules import Schedule
from mofa_model.spec import Calibration


class Scope(enum.IntEnum):
    """What of a step a value changes.

    The search computes each part once for all values that share it, in this order.
    """

    QUESTION = 0
    """Precision and number of nodes: one search each."""
    SHAPE = 1
    """Degrees and schedule."""
    STATE = 2
    """What stays in memory, and what is sent and updated once a step."""
    WORK = 3
    """What a micro-batch does on a layer: its time, and the activations that it leaves."""
    LAYER = 4
    """A layer's time alone."""
    PIPELINE = 5
    """The time of all stages together."""
    STEP = 6
    """What a step adds to its pipeline."""


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One row of `AXES`. Scope SHAPE makes an axis of shapes, a later scope one of features."""

    # What it fixes.
    name: str
    """What the search calls it."""
    scope: Scope
    """What of a step it changes."""
    fields: tuple[str, ...]
    """Fields of `Strategy` that a value fixes; of several, in the order of the value's parts."""
    parts: Callable[..., Any] | None = None
    """Makes a value of several fields."""

    # Which values it has.
    tried: Tried
    """Values that the search tries by itself, the plainest first."""
    only_named: Callable[[Any], bool] = lambda _: False
    """Which of them are searched only where a constraint names this axis."""
    complexity: int
    """Breaks ties: the strategy wins that has the plainer value on the axis where this number is
    highest."""

    # How people say them.
    words: tuple[Word, ...] = ()
    """Keys of strategy texts."""
    limits: tuple[Word, ...] = ()
    """Keys of constraints and manifests, where those are others."""
    listed: Callable[[tuple[int, ...], tuple[Any, ...]], tuple[Any, ...]] = lambda numbers, _: (
        numbers
    )
    """The values that a constraint's list of numbers leaves of others, where a number is a part of
    a value."""
    values: str = ""
    """The values in the table of axes, where they are no list of words."""
    example: str = ""
    """A constraint, for that table."""
    stuck: str = ""
    """Of shapes: the reason that an answer gives where no value of this axis is legal."""

    # Which trainers have them.
    off: Any = None
    """The value that trainers have without the feature; a trainer that cannot leave it out has the
    axis under `always`."""
    feature: str = ""
    """Key of frameworks.toml that says whether a trainer has the other values; empty = every
    trainer has them."""
    assumed: bool = True
    """Whether a trainer has them where its entry lacks the key."""
    supported: Callable[[Framework, Any], bool] | None = None
    """Whether a trainer has a value, where one key does not say it."""
    apart: Mapping[str, Callable[[Any], bool]] = field(default_factory=dict)
    """Words of `apart` in frameworks.toml, with the values that each means: features that a trainer
    refuses together."""

    # When they are legal.
    shape_rules: tuple[tuple[Rejection, Rule], ...] = ()
    """Of shapes: rules of the rows of degrees, checked as soon as this axis is known."""
    columns: Callable[[tuple[Any, ...], Any], Rows] | None = None
    """Of shapes: the columns of positions on it, where a value is no plain number."""
    local: bool = False
    """Of shapes: whether a layer's work on one device depends on it."""
    value_rules: Callable[[Any, Rows, AxisContext], Violations] | None = None
    """Of features: what stands against a value beside each shape."""
    idle: Callable[[Rows], Mask] | None = None
    """Of features: rows on which it has nothing to act on, so that all its values say the same."""
    never_slower: Callable[[Calibration], bool] | None = None
    """Of a switch: whether it is proved that on is never slower than off. Then off is left out
    where on is legal."""

    @property
    def keys(self) -> tuple[Word, ...]:
        """Keys of constraints and manifests."""
        return self.limits or self.words

    def chosen(self, value: Any) -> dict[str, Any]:
        """Fields of `Strategy` that a value of the axis sets."""
        if len(self.fields) == 1:
            return {self.fields[0]: value}
        return dict(zip(self.fields, value, strict=True))

    def value_of(self, strategy: Any) -> Any:
        """The value that a strategy has on this axis."""
        fields = [getattr(strategy, name) for name in self.fields]
        return fields[0] if self.parts is None else self.parts(*fields)

    def supported_by(self, trainer: Framework, value: Any) -> bool:
        """Whether a trainer has a value; with none named, some trainer has it."""
        if trainer.name == ANY:
            return True
        if value == self.off:
            return self.name not in trainer.entry.get("always", ())
        if self.supported is not None:
            return self.supported(trainer, value)
        return not self.feature or bool(trainer.entry.get(self.feature, self.assumed))


def degree(name: str, tried: Tried, complexity: int, *, about: str = "", **more: Any) -> Axis:
    """An axis of plain numbers."""
    word = Number(key=name, field=name, about=about)
    return Axis(
        name=name,
        fields=(name,),
        scope=Scope.SHAPE,
        tried=tried,
        complexity=complexity,
        words=(word,),
        off=1,
        **more,
    )


def switch(
    name: str,
    key: str,
    scope: Scope,
    tried: Tried,
    complexity: int,
    *,
    field: str = "",
    about: str = "",
    **more: Any,
) -> Axis:
    """An axis that is on or off."""
    field = field or name
    word = Switch(key=key, field=field, about=about)
    return Axis(
        name=name,
        fields=(field,),
        scope=scope,
        tried=tried,
        complexity=complexity,
        words=(word,),
        off=False,
        **more,
    )


CPU: Final = "-cpu"
"""Ending of an optimizer's word where its states live in host memory."""
SWITCHED_OFF: Final = "no-"
"""Beginning of a switch's word where it is off."""
_Choice = TypeVar("_Choice", bound=enum.Enum | Schedule)


@dataclass(frozen=True, kw_only=True)
class Word(ABC):
    """One key."""

    key: str
    """As texts and constraints say it."""
    field: str
    """The field of `Strategy`; a manifest's field has its name."""
    about: str = ""
    """What a manifest says of it; empty where manifests have no such field."""
    place: ClassVar[int] = 1
    """Numbers come before choices, and switches last."""

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the fields of `Strategy` that `write` reads."""
        return (self.field,)

    @abstractmethod
    def read(self, path: str, word: str) -> dict[str, Any]:
        """Fields of `Strategy` that a word means; `path` is what an error calls it."""

    def admits(self, meant: Mapping[str, Any], chosen: Mapping[str, Any]) -> bool:
        """Whether a value has all that a constraint's word says: its fields are `chosen`, those of
        the word `meant`.
        """
        return meant.items() <= chosen.items()

    def names(self, meant: Mapping[str, Any]) -> bool:
        """Whether this key's text fixes every field of the axis, so that it stands for one value,
        even one that the search does not try; `meant` are the fields that it fixes.
        """
        return len(meant) > 1

    def write(self, strategy: object) -> str:
        """A strategy's value under this key, as text."""
        return str(getattr(strategy, self.field).value)

    def alone(self) -> dict[str, str]:
        """Words of the short form that say it without its key, with the word of the full form."""
        return {}

    def listed(self) -> tuple[str, ...]:
        """Words that a manifest may list; none of a number or a truth."""
        return ()


@dataclass(frozen=True, kw_only=True)
class Number(Word):
    """A whole number."""

    least: int = 1
    """The smallest one; 0 stands for all, so that such numbers have no order."""
    place: ClassVar[int] = 0

    def read(self, path: str, word: str) -> dict[str, Any]:
        """The number."""
        return {self.field: number(path, word, self.least)}

    def write(self, strategy: object) -> str:
        """The number as digits."""
        return str(int(getattr(strategy, self.field)))


@dataclass(frozen=True, kw_only=True)
class Choice(Word):
    """One of some values."""

    choices: Iterable[enum.Enum | Schedule]
    """All of them."""

    def read(self, path: str, word: str) -> dict[str, Any]:
        """The field with the choice that a word names."""
        return {self.field: member(path, word, self.choices)}

    def listed(self) -> tuple[str, ...]:
        """The words of all values."""
        return tuple(choice.value for choice in self.choices)

    def alone(self) -> dict[str, str]:
        """Every word but `none`."""
        return {choice.value: choice.value for choice in self.choices if choice.value != "none"}


@dataclass(frozen=True, kw_only=True)
class Switch(Word):
    """On or off."""

    place: ClassVar[int] = 2

    def read(self, path: str, word: str) -> dict[str, Any]:
        """Whether it is on."""
        if word not in {"true", "false"}:
            raise BadValue(path, word, "true or false")
        return {self.field: word == "true"}

    def write(self, strategy: object) -> str:
        """A switch as manifests write it: true or false."""
        return "true" if getattr(strategy, self.field) else "false"

    def alone(self) -> dict[str, str]:
        """Words of the short form: the key where it is on, `no-` and the key where it is off."""
        return {self.key: "true", SWITCHED_OFF + self.key: "false"}


@dataclass(frozen=True, kw_only=True)
class Recomputed(Choice):
    """none | selective | selective:core_attn+mlp | full | full:4"""

    choices: Iterable[enum.Enum | Schedule] = Recompute

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the fields that recomputation has: mode, modules and layers."""
        return ("recompute", "recompute_modules", "recompute_layers")

    def read(self, path: str, word: str) -> dict[str, Any]:
        """Fields of recomputation from text: a mode, with its modules or layers."""
        mode_word, colon, detail = word.partition(":")
        mode = member(path, mode_word, Recompute)
        if not colon:
            return {"recompute": mode}
        if mode is Recompute.SELECTIVE:
            modules = frozenset(detail.split("+"))
            unknown = modules - set(MODULES)
            if unknown:
                raise BadValue(
                    path, "+".join(sorted(unknown)), f"give modules of {', '.join(MODULES)}"
                )
            return {"recompute": mode, "recompute_modules": modules}
        if mode is Recompute.FULL:
            return {"recompute": mode, "recompute_layers": number(path, detail)}
        raise BadValue(path, word, "write none with nothing after it")

    def write(self, strategy: Any) -> str:
        """Recomputation as text: the mode, with modules or layers where these are not
        the default.
        """
        mode = str(strategy.recompute.value)
        if strategy.recompute is Recompute.SELECTIVE and strategy.recompute_modules != NO_MODULES:
            return f"{mode}:{'+'.join(sorted(strategy.recompute_modules))}"
        if strategy.recompute is Recompute.FULL and strategy.recompute_layers:
            return f"{mode}:{int(strategy.recompute_layers)}"
        return mode

    def alone(self) -> dict[str, str]:
        """None: recomputation is written with its key, since another key has its words too."""
        return {}


@dataclass(frozen=True, kw_only=True)
class Offloaded(Word):
    """none | activations | core_attn+attn_proj"""

    def read(self, path: str, word: str) -> dict[str, Any]:
        """The set of offloaded activations, from text."""
        names = frozenset() if word == "none" else frozenset(word.split("+"))
        if names - set(OFFLOADED):
            raise BadValue(path, word, f"none, or of {', '.join(OFFLOADED)} with + between them")
        return {self.field: names}

    def admits(self, meant: Mapping[str, Any], chosen: Mapping[str, Any]) -> bool:
        """Whether a value meets a constraint; `activations` admits every set that a trainer
        can offload.
        """
        return super().admits(meant, chosen) if self.names(meant) else bool(chosen[self.field])

    def names(self, meant: Mapping[str, Any]) -> bool:
        """Whether inputs are named one by one."""
        return bool(meant[self.field] != {ACTIVATIONS})

    def write(self, strategy: object) -> str:
        """Offloaded parts as text, in alphabetical order."""
        return "+".join(sorted(getattr(strategy, self.field))) or "none"

    def listed(self) -> tuple[str, ...]:
        """The words for no offloading, and for all that the trainer can offload."""
        return ("none", ACTIVATIONS)

    def alone(self) -> dict[str, str]:
        """The word of the short form for offloading all activations."""
        return {self.key: ACTIVATIONS}


@dataclass(frozen=True, kw_only=True)
class Sharded(Choice):
    """zero3 | zero3@node | zero3@all | zero3@8: a level, and the ranks that share one copy"""

    choices: Iterable[enum.Enum | Schedule] = Sharding

    def read(self, path: str, word: str) -> dict[str, Any]:
        """Fields of sharding from text: the ZeRO level, with a number of ranks where one
        is given.
        """
        level, _, group = word.partition("@")
        meant = super().read(path, level)
        if not group:
            return meant
        named = {"node": IN_NODE, "all": 0}
        return meant | {"shard": named[group] if group in named else number(path, group)}


@dataclass(frozen=True, kw_only=True)
class Optimizer(Word):
    """The sharding and the place of the optimizer at once: distributed | zero3-cpu"""

    @property
    def reads(self) -> tuple[str, ...]:
        """Level and place."""
        return ("sharding", "optimizer")

    def read(self, path: str, word: str) -> dict[str, Any]:
        """Level and place."""
        return {
            "sharding": member(path, word.removesuffix(CPU), Sharding),
            "optimizer": Placement.HOST if word.endswith(CPU) else Placement.DEVICE,
        }

    def write(self, strategy: Any) -> str:
        """The optimizer as text: the ZeRO level, with `-cpu` where states are on the host."""
        return f"{strategy.sharding.value}{CPU if strategy.optimizer is Placement.HOST else ''}"

    def alone(self) -> dict[str, str]:
        """Words of the short form: every ZeRO level, on the device and on the host."""
        return {word: word for level in Sharding for word in (level.value, level.value + CPU)}


def number(path: str, word: str, least: int = 1) -> int:
    """A whole number from text, of at least `least`."""
    if not (word.isascii() and word.isdigit() and len(word) <= 9) or int(word) < least:
        raise BadValue(path, word, f"give a whole number of {least} or more")
    return int(word)


def member(path: str, word: str, choices: Iterable[_Choice]) -> _Choice:
    """The choice that a word names."""
    for choice in choices:
        if word == choice.value:
            return choice
    raise BadValue(path, word, f"give one of {', '.join(choice.value for choice in choices)}")
