"""Constraints as people write them: each fixes, lists or bounds one axis, or bounds a number that follows from axes.

    tp=8   pp=4,8,16   mbs<=4   vpp=2..8   dp>=64   schedule=1f1b,interleaved   cp-mode=ring
    recompute=none,selective:core_attn,full:2   sharding=distributed,zero3@node   optimizer=device   offload=none   sp=true

`offload=activations` asks for whatever the trainer can offload; names of inputs ask for these.

The words are those of a strategy's text, in its full form or in its short one: every part of a printed strategy is a
constraint that fixes it, `optimizer=zero2-cpu`, `shard=4`, `tp4`, `zero3`, `sp`, `recompute(layernorm mlp_act)`. A number
that is fixed or listed need not be one that the search tries by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
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
from mofa_model.search.axes import EVERY, Axes
from mofa_model.strategy import Strategy
from mofa_model.strategy_text import CALLED, pair_of

_FORM: Final = re.compile(r"\s*([a-z_-]+)\s*(<=|>=|=)\s*(\S.*?)\s*", re.IGNORECASE)
_NEXT: Final = re.compile(r",(?=\s*[a-z_-]+\s*(?:<=|>=|=))", re.IGNORECASE)
"""A comma before another axis, and not before another value of the same one."""
_FIELD: Final = "constraint"
_FAR: Final = 1 << 40


@dataclass(frozen=True, slots=True)
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

    def numbers(self, least: int = 1) -> tuple[int, ...]:
        """The listed values as numbers."""
        return tuple(number(f"{_FIELD}.{self.key}", word, least) for word in self.words)


def parse_constraints(texts: Iterable[str]) -> tuple[Constraint, ...]:
    """Constraints from texts; one text may hold several, as the text of a strategy does.

    >>> [c.key for c in parse_constraints(["tp=4,8,pp=2", "mbs<=4"])]
    ['tp', 'pp', 'mbs']
    """
    return tuple(parse_constraint(one) for text in texts for one in _NEXT.split(text))


def parse_constraint(text: str) -> Constraint:
    """A constraint from its text.

    >>> parse_constraint("mbs<=4").high
    4
    """
    match = _FORM.fullmatch(text)
    if match is None:
        word = pair_of(text.strip())
        if word is None or not word[1]:
            raise BadValue(
                _FIELD,
                text,
                "write it like tp=8, pp=4,8,16 or mbs<=4, or as a printed strategy does",
            )
        key, sign, rest = word[0], "=", word[1]
    else:
        key, sign, rest = (
            match.group(1).lower().replace("_", "-"),
            match.group(2),
            match.group(3).lower(),
        )
    if key not in _KEYS and key not in DERIVED:
        raise UnknownName(_FIELD, key, [*_KEYS, *DERIVED], aliases=CALLED)
    span = re.fullmatch(r"(\d+)\.\.(\d+)", rest)
    if sign == "=" and span is None:
        return Constraint(key, tuple(word.strip() for word in rest.split(",")))
    if key not in DERIVED and not (isinstance(said := _KEYS[key][1], Number) and said.least):
        raise BadValue(f"{_FIELD}.{key}", text, "list its values after an equals sign")
    if span is not None:
        return Constraint(
            key, (), number(f"{_FIELD}.{key}", span[1]), number(f"{_FIELD}.{key}", span[2])
        )
    bound = number(f"{_FIELD}.{key}", rest)
    return Constraint(key, (), high=bound) if sign == "<=" else Constraint(key, (), low=bound)


def constrained(
    axes: Axes, constraints: Iterable[Constraint]
) -> tuple[Axes, Mapping[str, tuple[float, float]]]:
    """The axes that constraints leave, and the bounds of derived numbers."""
    constraints = tuple(constraints)
    named = {
        axis.name
        for axis, said in (_KEYS[c.key] for c in constraints if c.key in _KEYS)
        if isinstance(said, Choice | Switch)
    }
    values = {
        axis.name: tuple(v for v in axes[axis.name] if axis.name in named or not axis.only_named(v))
        for axis in EVERY
    }
    bounds = dict[str, tuple[float, float]]()
    for constraint in constraints:
        if constraint.key in DERIVED:
            name = DERIVED[constraint.key]
            low, high = bounds.get(name, (0.0, float("inf")))
            listed = constraint.numbers() or (constraint.low, constraint.high)
            bounds[name] = (max(low, float(min(listed))), min(high, float(max(listed))))
            continue
        for one in _apart(constraint):
            axis, said = _KEYS[one.key]
            left = _left(axis, said, one, values[axis.name])
            if not left:
                right = f"it leaves no value; there are {', '.join(_shown(v) for v in values[axis.name])}"
                raise BadValue(f"{_FIELD}.{one.key}", ",".join(one.words) or "the range", right)
            values[axis.name] = left
    return Axes(values), bounds


def _apart(c: Constraint) -> tuple[Constraint, ...]:
    """A constraint on one axis each: the optimizer's words of a strategy say its sharding and its place at once."""
    if c.key != "optimizer" or set(c.words) <= set(_PLACES):
        return (c,)
    pairs = [(word.removesuffix(CPU), _PLACES[word.endswith(CPU)]) for word in c.words]
    levels, places = (tuple(dict.fromkeys(some)) for some in zip(*pairs, strict=True))
    for level in levels:
        if level not in {one.value for one in Sharding}:
            words = [*_PLACES, *(one.value for one in Sharding)]
            raise BadValue(
                f"{_FIELD}.optimizer",
                level,
                f"one of {', '.join(words)}, the last four also with {CPU}",
            )
    if len(set(pairs)) < len(levels) * len(places):
        right = "list every level on the device, in host memory, or in both: a list of some of each cannot be searched"
        raise BadValue(f"{_FIELD}.optimizer", ",".join(c.words), right)
    return Constraint("sharding", levels), Constraint("optimizer", places)


def named_by(constraint: Constraint) -> set[str]:
    """Axes that a constraint names."""
    return {_KEYS[one.key][0].name for one in _apart(constraint) if one.key in _KEYS}


def require_words(trainer: Framework, axes: Axes, constraints: Iterable[Constraint]) -> None:
    """Refuse a constraint whose words a trainer cannot be told, by who can; `axes` are those that the constraints leave."""
    for one in [
        part for constraint in constraints if constraint.key in _KEYS for part in _apart(constraint)
    ]:
        axis, said = _KEYS[one.key]
        if not one.words or _can_say(trainer, axis, said, one, axes[axis.name]):
            continue
        others = [
            name
            for name in trainers()
            if _can_say(framework(name), axis, said, one, axes[axis.name])
        ]
        right = f"{trainer.name} has no argument for it; {have(others)}"
        raise BadValue(f"{_FIELD}.{one.key}", ",".join(one.words), right)


def _can_say(
    trainer: Framework, axis: Axis, said: Word, c: Constraint, values: tuple[Any, ...]
) -> bool:
    """Whether a trainer has a value of an axis that some word of a constraint means."""
    wanted = [said.read(f"{_FIELD}.{c.key}", word) for word in c.words]
    named = [v for v in values if any(said.admits(one, axis.chosen(v)) for one in wanted)]
    return any(axis.supported_by(trainer, value) for value in named)


DERIVED: Final = {"dp": "dp", "micro-batches": "micro_batches"}
"""Numbers that follow from axes and can be bounded; a list bounds from its least to its most."""


def _left(axis: Axis, said: Word, c: Constraint, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The values of an axis that a constraint leaves, or that it names beside those that are tried."""
    if not c.words:
        return tuple(v for v in values if c.low <= axis.chosen(v)[said.field] <= c.high)
    if isinstance(said, Number):
        return axis.listed(c.numbers(said.least), values)
    whole, plain = len(axis.fields) == 1, Strategy()
    known = tuple(said.choices) if whole and isinstance(said, Choice) else values
    # Where a value has parts, the one that does nothing goes with any word about one of them.
    kept = dict.fromkeys(v for v in known if v == axis.off and not whole)
    for word in c.words:
        wanted = said.read(f"{_FIELD}.{c.key}", word)
        like = [v for v in known if said.admits(wanted, axis.chosen(v))]
        if not like and said.names(wanted):
            parts = [wanted.get(name, getattr(plain, name)) for name in axis.fields]
            like = [parts[0] if whole else type(values[0])(*parts)]
        kept |= dict.fromkeys(like)
    return tuple(sorted(kept, key=known.index) if kept.keys() <= set(known) else kept)


_PLACES: Final = tuple(one.value for one in Placement)
_KEYS: Final = {word.key: (axis, word) for axis in EVERY for word in axis.keys}
"""Axis and word of each key."""


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
