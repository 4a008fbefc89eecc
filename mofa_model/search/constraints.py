"""Constraints as people write them: each fixes, lists or bounds one axis, or a derived number.

    tp=8   pp=4,8,16   mbs<=4   vpp=2..8   dp>=64   schedule=1f1b,interleaved   cp-mode=ring
    recompute=none,selective:core_attn,full:2   sharding=distributed,zero3@node   optimizer=device
    offload=none   sp=true

`offload=activations` asks for whatever the trainer can offload; names of inputs ask for these.

The words are those of a strategy's text (`strategy_text`), in its full form or in its short one. So
every part of a printed strategy is a constraint that fixes it: `optimizer=zero2-cpu`, `shard=4`,
`tp4`, `zero3`, `sp`, `recompute(layernorm mlp_act)`. A number that is fixed or listed need not be
one that the search tries by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from mofa_model.axes.axis import Axis
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
from mofa_model.axes.words import CPU, Choice, Number, Switch, Word, number
from mofa_model.errors import BadValue, UnknownName
from mofa_model.records import dataclass
from mofa_model.search.axes import EVERY, Axes
from mofa_model.strategy import Strategy
from mofa_model.strategy_text import CALLED, pair_of

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
    words, known = constraint.words, [level.value for level in Sharding]
    pairs = {(word.removesuffix(CPU), _PLACES[word.endswith(CPU)]): None for word in words}
    levels, places = (tuple(dict.fromkeys(some)) for some in zip(*pairs, strict=True))
    for level in levels:
        if level not in known:
            right = f"one of {', '.join((*_PLACES, *known))}, the last four also with {CPU}"
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
    # Where a value has parts, the one that does nothing goes with any word about one of them.
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
