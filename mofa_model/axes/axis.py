"""One axis of the strategy: what it fixes, its values, its words, and when they are legal.

Search, strategy texts, constraints, manifests, sweeps and docs walk over the rows of
`strategy.AXES`, which are of this type.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from mofa_model.axes.frameworks import ANY, Framework
from mofa_model.axes.rejection import Rejection
from mofa_model.axes.rules import AxisContext, Mask, Rows, Rule, Violations
from mofa_model.axes.tried import Tried
from mofa_model.axes.words import Number, Switch, Word
from mofa_model.records import dataclass
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
    """Of shapes: what an answer says where no value of this axis is legal."""

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
    """Of a switch: whether on is proved never slower than off; then off is left out where on is
    legal."""

    @property
    def keys(self) -> tuple[Word, ...]:
        """Keys of constraints and manifests."""
        return self.limits or self.words

    def chosen(self, value: Any) -> dict[str, Any]:
        """Fields of `Strategy` under a value."""
        if len(self.fields) == 1:
            return {self.fields[0]: value}
        return dict(zip(self.fields, value, strict=True))

    def value_of(self, strategy: Any) -> Any:
        """The value that a strategy has."""
        fields = [getattr(strategy, name) for name in self.fields]
        return fields[0] if self.parts is None else self.parts(*fields)

    def supported_by(self, trainer: Framework, value: Any) -> bool:
        """Whether a trainer has a value; with none named, some trainer has it."""
        if trainer.name == ANY:
            return True
        if value == self.off:
            return self.name not in trainer.given.get("always", ())
        if self.supported is not None:
            return self.supported(trainer, value)
        return not self.feature or bool(trainer.given.get(self.feature, self.assumed))


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
