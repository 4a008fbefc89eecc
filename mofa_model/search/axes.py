"""The values on every axis of one search, and the constraints by which people fix, list or bound
them.

Each combination of values is a raw strategy and has an index. A constraint is about one axis, or
about a number that follows from axes:

    tp=8   pp=4,8,16   mbs<=4   vpp=2..8   dp>=64   schedule=1f1b,interleaved   cp-mode=ring
    recompute=none,selective:core_attn,full:2   sharding=distributed,zero3@node   optimizer=device
    offload=none   sp=true

`offload=activations` asks for whatever the trainer can offload; names of inputs ask for these.

The words are those of a strategy's text (`strategy`), in its full form or in its short one. So
every part of a printed strategy is a constraint that fixes it: `optimizer=zero2-cpu`, `shard=4`,
`tp4`, `zero3`, `sp`, `recompute(layernorm mlp_act)`. A number that is fixed or listed need not be
one that the search tries by itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import field, replace
from functools import cached_property
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.axes.axis import CPU, Axis, Choice, Number, Scope, Switch, Word, number
from mofa_model.axes.choices import (
    IN_NODE,
    Context,
    Pipeline,
    Placement,
    Recomputation,
    Shard,
    Sharding,
)
from mofa_model.axes.frameworks import Framework, framework, have, trainers
from mofa_model.axes.rules import AxisContext
from mofa_model.errors import BadValue, UnknownName
from mofa_model.records import dataclass
from mofa_model.strategy import AXES, CALLED, Strategy, pair_of

QUESTION: Final = (
    Axis(
        name="precision", fields=("precision",), scope=Scope.QUESTION, complexity=20,
        tried=lambda context: context.precisions,
        values="the recipes that were given", example="--precision bf16,fp8-current",
    ),
    Axis(
        name="nodes", fields=("nodes",), scope=Scope.QUESTION, complexity=1,
        tried=lambda context: context.nodes,
        limits=(Number(key="nodes", field="nodes"),),
        values="the number that was given; below a maximum: powers of two, three times those, "
        "and the maximum",
        example="--nodes`, `--max-nodes",
    ),
)  # fmt: skip
"""Axes of the question, which are no part of a strategy."""
EVERY: Final = tuple(sorted((*QUESTION, *AXES), key=lambda axis: -axis.complexity))
"""All axes, the most complex first: so ties go to the plainer strategy."""
SHAPE: Final = tuple(axis for axis in AXES if axis.scope is Scope.SHAPE)
"""Axes that fix degrees and schedule; enumerated first, in this order."""
FEATURES: Final = tuple(axis for axis in AXES if axis.scope > Scope.SHAPE)
"""Axes of features, each beside every shape."""
OVERLAPS: Final = tuple(
    sorted((axis for axis in AXES if axis.scope > Scope.WORK), key=lambda axis: axis.scope)
)
"""Features that change times alone: those of a layer first, those of the whole step last."""


def within(*scopes: Scope) -> tuple[Axis, ...]:
    """The axes that change some parts of a step."""
    return tuple(axis for axis in AXES if axis.scope in scopes)


@dataclass(frozen=True)
class Axes:
    """Names and values, the most complex axis first."""

    values: Mapping[str, tuple[Any, ...]]
    """Values of each axis, the plainest first."""
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Least and most of numbers that follow from axes: `dp`, `micro_batches`."""

    @property
    def raw(self) -> int:
        """Combinations of all values."""
        return prod(len(v) for v in self.values.values())

    def __getitem__(self, name: str) -> tuple[Any, ...]:
        return self.values[name]

    @cached_property
    def strides(self) -> Mapping[str, int]:
        """Weight of each axis in the raw index of a combination; the last axis has 1."""
        strides, left = {}, self.raw
        for name, values in self.values.items():
            left //= len(values)
            strides[name] = left
        return strides

    def fields_of(self, index: NDArray[np.int64]) -> list[dict[str, Any]]:
        """Fields of `Strategy` of each combination, by raw indices."""
        columns: dict[str, list[Any]] = {}
        for axis in AXES:
            values = [axis.chosen(value) for value in self[axis.name]]
            places = (index // self.strides[axis.name] % len(values)).tolist()
            for name in axis.fields:
                column = [fields[name] for fields in values]
                columns[name] = [column[place] for place in places]
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def where(self, kept: Callable[[Axis, Any], bool]) -> Axes:
        """The axes with only the values for which `kept` is true."""
        values = {
            axis.name: tuple(value for value in self[axis.name] if kept(axis, value))
            for axis in EVERY
        }
        return replace(self, values=values)

    def supported_by(self, trainer: Framework, built: Collection[str] = ()) -> Axes:
        """The axes with values that a trainer supports; all values of the axes in `built`."""
        return self.where(
            lambda axis, value: axis.name in built or axis.supported_by(trainer, value)
        )

    def known(self, has: Callable[[Axis, Any], bool], keys: Collection[str] = ()) -> Axes:
        """Axes with values of measured runs; all values where a constraint names the axis."""
        asked = {axis.name for axis in EVERY if any(word.key in keys for word in axis.keys)}
        return self.where(
            lambda axis, value: axis in QUESTION or axis.name in asked or has(axis, value)
        )


def known_axes(context: AxisContext) -> Axes:
    """Every value that the search tries by itself, or where a constraint names it."""
    return Axes({axis.name: axis.tried(context) for axis in EVERY})


def node_counts(most: int) -> tuple[int, ...]:
    """Node counts that are tried: powers of two, three times those, and the maximum itself.

    >>> node_counts(10)
    (1, 2, 3, 4, 6, 8, 10)
    """
    powers = [2**e for e in range(most.bit_length())]
    return tuple(sorted({n for p in powers for n in (p, 3 * p) if n <= most} | {most}))


DERIVED: Final = {"dp": "dp", "micro-batches": "micro_batches"}
"""Numbers that follow from axes and can be bounded; a list bounds from its least to its most."""
_KEYS: Final = {word.key: (axis, word) for axis in EVERY for word in axis.keys}
"""Axis and word of each key."""
_PLACES: Final = tuple(place.value for place in Placement)
_COMPARISON: Final = r"(?i)\s*([a-z_-]+)\s*(<=|>=|=)\s*(\S.*?)\s*"
_NEXT: Final = r"(?i),(?=\s*[a-z_-]+\s*(?:<=|>=|=))"
"""A comma before another axis, and not before another value of the same one."""
_FIELD: Final = "constraint"
_FAR: Final = 1 << 40


@dataclass(frozen=True)
class Constraint:
    """One constraint, read."""

    key: str
    """What it is about."""
    words: tuple[str, ...]
    """Values that are listed; empty where a range is given."""
    low: int = 0
    """Least, where a range is given."""
    high: int = _FAR
    """Most, where a range is given."""

    @property
    def field(self) -> str:
        """What an error calls it."""
        return f"{_FIELD}.{self.key}"

    def numbers(self, least: int = 1) -> tuple[int, ...]:
        """The listed values as numbers."""
        return tuple(number(self.field, word, least) for word in self.words)


def parse_constraints(texts: Iterable[str]) -> tuple[Constraint, ...]:
    """Constraints from texts; one text may hold several, as the text of a strategy does.

    >>> [c.key for c in parse_constraints(["tp=4,8,pp=2", "mbs<=4"])]
    ['tp', 'pp', 'mbs']
    """
    return tuple(parse_constraint(part) for text in texts for part in re.split(_NEXT, text))


def parse_constraint(text: str) -> Constraint:
    """A constraint from its text.

    >>> parse_constraint("mbs<=4").high
    4
    """
    if match := re.fullmatch(_COMPARISON, text):
        key, sign, value = match[1].lower().replace("_", "-"), match[2], match[3].lower()
    else:
        pair = pair_of(text.strip())
        if pair is None or not pair[1]:
            right = "write it like tp=8, pp=4,8,16 or mbs<=4, or as a printed strategy does"
            raise BadValue(_FIELD, text, right)
        key, sign, value = pair[0], "=", pair[1]
    if key not in _KEYS and key not in DERIVED:
        raise UnknownName(_FIELD, key, [*_KEYS, *DERIVED], aliases=CALLED)
    field, span = f"{_FIELD}.{key}", re.fullmatch(r"(\d+)\.\.(\d+)", value)
    if sign == "=" and span is None:
        return Constraint(key, tuple(word.strip() for word in value.split(",")))
    word = None if key in DERIVED else _KEYS[key][1]
    if word is not None and not (isinstance(word, Number) and word.least):
        raise BadValue(
            field, text, f"{key} has no smallest or largest value; write {key}=VALUE[,VALUE…]"
        )
    if span is not None:
        return Constraint(key, (), number(field, span[1]), number(field, span[2]))
    bound = number(field, value)
    return Constraint(key, (), high=bound) if sign == "<=" else Constraint(key, (), low=bound)


def constrained(axes: Axes, constraints: Iterable[Constraint]) -> Axes:
    """The values that constraints leave, and the bounds of derived numbers."""
    constraints = tuple(constraints)
    named = {
        axis.name
        for axis, word in (_KEYS[limit.key] for limit in constraints if limit.key in _KEYS)
        if isinstance(word, Choice | Switch)
    }
    axes = axes.where(lambda axis, value: axis.name in named or not axis.only_named(value))
    values = dict(axes.values)
    bounds = dict[str, tuple[float, float]]()
    for constraint in constraints:
        if constraint.key in DERIVED:
            name = DERIVED[constraint.key]
            low, high = bounds.get(name, (0.0, float("inf")))
            listed = constraint.numbers() or (constraint.low, constraint.high)
            bounds[name] = (max(low, float(min(listed))), min(high, float(max(listed))))
        for limit in _of_one_axis([constraint]):
            axis, word = _KEYS[limit.key]
            left = _left(axis, word, limit, values[axis.name])
            if not left:
                there = ", ".join(_shown(value) for value in values[axis.name])
                words = ",".join(limit.words) or "the range"
                raise BadValue(
                    limit.field, words, f"the search has no such value; its values are {there}"
                )
            values[axis.name] = left
    return Axes(values, bounds)


def named_keys(constraints: Iterable[Constraint]) -> set[str]:
    """Keys that constraints name. `optimizer=zero3` says a sharding and a place, so it names both.

    >>> sorted(named_keys(parse_constraints(("optimizer=zero3", "dp<=8"))))
    ['dp', 'optimizer', 'sharding']
    """
    constraints = tuple(constraints)
    return {limit.key for limit in (*constraints, *_of_one_axis(constraints))}


def _of_one_axis(constraints: Iterable[Constraint]) -> list[Constraint]:
    """Constraints on one axis each.

    A strategy's word for the optimizer says its sharding and its place at once, so it is split.
    """
    separate: list[Constraint] = []
    for limit in constraints:
        if limit.key == "optimizer" and not set(limit.words) <= set(_PLACES):
            separate += _sharding_and_place(limit)
        elif limit.key in _KEYS:
            separate.append(limit)
    return separate


def _sharding_and_place(constraint: Constraint) -> list[Constraint]:
    """A constraint on `optimizer` as one on the level of sharding and one on the place of
    its states.
    """
    words, all_levels = constraint.words, [level.value for level in Sharding]
    pairs = {(word.removesuffix(CPU), _PLACES[word.endswith(CPU)]): None for word in words}
    levels, places = (tuple(dict.fromkeys(words)) for words in zip(*pairs, strict=True))
    for level in levels:
        if level not in all_levels:
            right = f"one of {', '.join((*_PLACES, *all_levels))}, the last four also with {CPU}"
            raise BadValue(constraint.field, level, right)
    if len(pairs) < len(levels) * len(places):
        right = (
            "list every level on the device, in host memory, or in both: "
            "a list of some of each cannot be searched"
        )
        raise BadValue(constraint.field, ",".join(words), right)
    return [Constraint("sharding", levels), Constraint("optimizer", places)]


def require_words(
    trainer: Framework, axes: Axes, constraints: Iterable[Constraint], built: Iterable[str] = ()
) -> None:
    """Refuse a constraint for which the trainer has no argument, and say which trainers have one.

    `axes` are those that the constraints leave; `built` are axes that somebody builds.
    """
    for limit in _of_one_axis(constraints):
        axis, word = _KEYS[limit.key]
        if axis.name in built or not limit.words:
            continue
        wanted = [word.read(limit.field, text) for text in limit.words]
        named = [
            value
            for value in axes[axis.name]
            if any(word.admits(fields, axis.chosen(value)) for fields in wanted)
        ]
        if any(axis.supported_by(trainer, value) for value in named):
            continue
        others = [
            name
            for name in trainers()
            if any(axis.supported_by(framework(name), value) for value in named)
        ]
        right = f"{trainer.name} has no argument for it; {have(others)}"
        raise BadValue(limit.field, ",".join(limit.words), right)


def _left(axis: Axis, word: Word, c: Constraint, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The values of an axis that a constraint leaves, or names beside those that are tried."""
    if not c.words:
        return tuple(v for v in values if c.low <= axis.chosen(v)[word.field] <= c.high)
    if isinstance(word, Number):
        return axis.listed(c.numbers(word.least), values)
    whole, plain = len(axis.fields) == 1, Strategy()
    known = tuple(word.choices) if whole and isinstance(word, Choice) else values
    # A word may name one part of a value with several. The value that is off as a whole stays
    # allowed beside it: it has no such part that could be wrong.
    kept = dict.fromkeys(v for v in known if v == axis.off and not whole)
    for text in c.words:
        wanted = word.read(c.field, text)
        like = [v for v in known if word.admits(wanted, axis.chosen(v))]
        if not like and word.names(wanted):
            parts = [wanted.get(name, getattr(plain, name)) for name in axis.fields]
            like = [parts[0] if whole else type(values[0])(*parts)]
        kept |= dict.fromkeys(like)
    return tuple(sorted(kept, key=known.index) if kept.keys() <= set(known) else kept)


def _shown(value: Any) -> str:
    """A value of an axis as a person would write it."""
    if isinstance(value, Context):
        return str(value.size)
    if isinstance(value, Pipeline):
        return value.schedule.value + (f":{value.virtual}" if value.virtual > 1 else "")
    if isinstance(value, Shard):
        return value.level.value + {0: "", IN_NODE: "@node"}.get(value.group, f"@{value.group}")
    if isinstance(value, Recomputation):
        return value.mode.value
    if isinstance(value, frozenset):
        return "+".join(sorted(value)) or "none"
    return str(getattr(value, "value", value)).lower()
