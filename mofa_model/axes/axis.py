"""One axis of the strategy: what it fixes, which values it has, how people say them, and when they are legal.

Search, strategy texts, constraints, manifests, sweeps and docs walk over the rows of `strategy.AXES`, which are of this type.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mofa_model.axes.frameworks import ANY, Framework
from mofa_model.axes.rejection import Rejection
from mofa_model.axes.rules import AxisContext, Mask, Rows, Rule, Violations
from mofa_model.axes.tried import Tried
from mofa_model.axes.words import Number, Switch, Word
from mofa_model.spec import Calibration


class Scope(enum.IntEnum):
    """What of a step a value changes. The search asks for each part once for all that share it, in this order."""

    QUESTION = 0
    """Precision and number of nodes: walked one at a time."""
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
    """One row."""

    name: str
    """What the search calls it."""
    scope: Scope
    """What of a step it changes."""
    tried: Tried
    """Its values, the plainest first."""
    only_named: Callable[[Any], bool] = lambda _: False
    """Which of them are searched only where a constraint names some."""
    fields: tuple[str, ...]
    """Fields of `Strategy` that a value fixes; of several, in the order of the value's parts."""
    parts: Callable[..., Any] | None = None
    """What holds the values of several fields."""
    complexity: int
    """Of two strategies with one score the one wins that has the plainer value on the axis where this is highest."""
    words: tuple[Word, ...] = ()
    """Keys of strategy texts."""
    limits: tuple[Word, ...] = ()
    """Keys of constraints and manifests, where those are others."""
    listed: Callable[[tuple[int, ...], tuple[Any, ...]], tuple[Any, ...]] = lambda numbers, _: (
        numbers
    )
    """What a constraint's list of numbers leaves of values, where a number is but a part of one."""
    values: str = ""
    """The values in the table of docs/search.md, where they are no list of words."""
    example: str = ""
    """A constraint, for that table."""
    off: Any = None
    """The value that every trainer has that does not name the axis under `always`."""
    feature: str = ""
    """Key of frameworks.toml that says whether a trainer has the others; empty = every trainer has them."""
    assumed: bool = True
    """Whether a trainer has them that says nothing of it."""
    supported: Callable[[Framework, Any], bool] | None = None
    """Whether a trainer has a value, where one key does not say it."""
    apart: Mapping[str, Callable[[Any], bool]] = field(default_factory=dict)
    """Words of `apart` in frameworks.toml, and which values each means."""
    rules: tuple[tuple[Rejection, Rule], ...] = ()
    """Of an axis of shapes: what rows must not do, from here on known."""
    columns: Callable[[tuple[Any, ...], Any], Rows] | None = None
    """Of an axis of shapes: the columns of positions on it, where a value is no plain number."""
    local: bool = False
    """Of an axis of shapes: whether a layer's work on one device depends on it."""
    stuck: str = ""
    """Of an axis of shapes: what to say where the last shapes fell on it."""
    value_rules: Callable[[Any, Rows, AxisContext], Violations] | None = None
    """Of an axis of features: what stands against a value beside each shape."""
    idle: Callable[[Rows], Mask] | None = None
    """Of an axis of features: rows on which it has nothing to act on, so that all its values say the same."""
    never_slower: Callable[[Calibration], bool] | None = None
    """Of a switch: whether on is proved never slower than off; then off is left out where on is legal."""

    @property
    def keys(self) -> tuple[Word, ...]:
        """Keys of constraints and manifests."""
        return self.limits or self.words

    def chosen(self, value: Any) -> dict[str, Any]:
        """Fields of `Strategy` under a value."""
        return (
            dict(zip(self.fields, value, strict=True))
            if len(self.fields) > 1
            else {self.fields[0]: value}
        )

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
