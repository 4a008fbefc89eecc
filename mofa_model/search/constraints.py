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
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from mofa_model.axes.choices import (
    ACTIVATIONS,
    IN_NODE,
    Context,
    ContextMode,
    Pipeline,
    Placement,
    Recomputation,
    Recompute,
    Shard,
    Sharding,
)
from mofa_model.axes.words import CPU, Choice, Number, Switch, Word, member
from mofa_model.errors import BadValue, UnknownName
from mofa_model.schedules import SCHEDULES
from mofa_model.search.axes import EVERY, Axes
from mofa_model.strategy_text import pair_of, parse_strategy

_FORM: Final = re.compile(r"\s*([a-z_-]+)\s*(<=|>=|=)\s*(\S.*?)\s*", re.IGNORECASE)
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

    def admits(self, number: int) -> bool:
        """Whether a number is inside."""
        return number in self.numbers() if self.words else self.low <= number <= self.high

    def numbers(self) -> tuple[int, ...]:
        """The listed values as numbers."""
        return tuple(_whole(self.key, word) for word in self.words)


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
                _FIELD, text, "write it like tp=8, pp=4,8,16 or mbs<=4, or as a printed strategy does"
            )
        key, sign, rest = word[0], "=", word[1]
    else:
        key, sign, rest = match.group(1).lower().replace("_", "-"), match.group(2), match.group(3).lower()
    if key not in _KEYS and key not in DERIVED:
        raise UnknownName(_FIELD, key, [*_KEYS, *DERIVED])
    span = re.fullmatch(r"(\d+)\.\.(\d+)", rest)
    if sign == "=" and span is None:
        return Constraint(key, tuple(word.strip() for word in rest.split(",")))
    if key not in DERIVED and not (isinstance(said := _KEYS[key][1], Number) and said.least):
        raise BadValue(f"{_FIELD}.{key}", text, "list its values after an equals sign")
    if span is not None:
        return Constraint(key, (), _whole(key, span.group(1)), _whole(key, span.group(2)))
    bound = _whole(key, rest)
    return Constraint(key, (), high=bound) if sign == "<=" else Constraint(key, (), low=bound)


def constrained(
    axes: Axes, constraints: Iterable[Constraint]
) -> tuple[Axes, Mapping[str, tuple[float, float]]]:
    """The axes that constraints leave, and the bounds of derived numbers."""
    values, bounds = dict(axes.values), dict[str, tuple[float, float]]()
    for constraint in constraints:
        if constraint.key in DERIVED:
            name = DERIVED[constraint.key]
            low, high = bounds.get(name, (0.0, float("inf")))
            listed = constraint.numbers() or (constraint.low, constraint.high)
            bounds[name] = (max(low, float(min(listed))), min(high, float(max(listed))))
            continue
        for one in _apart(constraint):
            axis, said = _KEYS[one.key]
            narrow: _Narrow = _NARROW.get(one.key) or partial(_kept, said)
            left = narrow(one, values[axis])
            if not left:
                right = f"it leaves no value; there are {', '.join(_shown(v) for v in values[axis])}"
                raise BadValue(f"{_FIELD}.{one.key}", ",".join(one.words) or "the range", right)
            values[axis] = left
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
                f"{_FIELD}.optimizer", level, f"one of {', '.join(words)}, the last four also with {CPU}"
            )
    if len(set(pairs)) < len(levels) * len(places):
        right = "list every level on the device, in host memory, or in both: a list of some of each cannot be searched"
        raise BadValue(f"{_FIELD}.optimizer", ",".join(c.words), right)
    return Constraint("sharding", levels), Constraint("optimizer", places)


_Narrow = Callable[[Constraint, tuple[Any, ...]], tuple[Any, ...]]

DERIVED: Final = {"dp": "dp", "micro-batches": "micro_batches"}
"""Numbers that follow from axes and can be bounded; a list bounds from its least to its most."""


def _sizes(c: Constraint, values: tuple[Any, ...]) -> tuple[Any, ...]:
    if not c.words:
        return tuple(v for v in values if c.admits(v.size))
    modes = dict.fromkeys(v.mode for v in values if v.size > 1) or {ContextMode.RING: None}
    return tuple(
        Context(mode, size) for size in c.numbers() for mode in ((ContextMode.RING,) if size == 1 else modes)
    )


def _virtual(c: Constraint, values: tuple[Any, ...]) -> tuple[Any, ...]:
    if not c.words:
        return tuple(v for v in values if c.admits(v.virtual))
    plain = tuple(v for v in values if v.virtual == 1 and 1 in c.numbers())
    more = [n for n in c.numbers() if n > 1]
    return plain + tuple(
        Pipeline(s, n) for s in SCHEDULES for n in more if s.looped or (s.folded and Pipeline(s, n) in values)
    )


def _shards(c: Constraint, values: tuple[Any, ...]) -> tuple[Any, ...]:
    found = []
    for word in c.words:
        level, _, group = word.partition("@")
        chosen = _member(c, level, Sharding)
        if group:
            number = IN_NODE if group == "node" else 0 if group == "all" else _whole(c.key, group)
            found.append(Shard(chosen, number))
        else:
            found += [v for v in values if v.level is chosen]
    return tuple(found)


def _shared(c: Constraint, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The levels that are left, each over so many ranks; 0 = all of them."""
    groups = [0 if word == "0" else _whole(c.key, word) for word in c.words]
    levels = dict.fromkeys(v.level for v in values if v.level is not Sharding.NONE)
    return tuple(Shard(level, group) for level in levels for group in groups)


def _recomputed(c: Constraint, values: tuple[Any, ...]) -> tuple[Any, ...]:
    found: list[Any] = []
    for word in c.words:
        if ":" not in word:
            mode = _member(c, word, Recompute)
            found += [v for v in values if v.mode is mode]
            continue
        s = parse_strategy(f"recompute={word}", field=_FIELD)
        found.append(Recomputation(s.recompute, s.recompute_modules, int(s.recompute_layers)))
    return tuple(found)


def _with(attribute: str, kind: Any) -> _Narrow:
    def narrow(c: Constraint, values: tuple[Any, ...]) -> tuple[Any, ...]:
        wanted = [_member(c, word, kind) for word in c.words]
        return tuple(v for v in values if getattr(v, attribute) in wanted)

    return narrow


def _modes(c: Constraint, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """No context parallelism, and the sizes that are left in every mode that is named, tried by itself or not."""
    wanted = [_member(c, word, ContextMode) for word in c.words]
    sizes = dict.fromkeys(v.size for v in values if v.size > 1)
    plain = [v for v in values if v.size == 1]
    return tuple(plain + [Context(mode, size) for mode in ContextMode if mode in wanted for size in sizes])


def _offloaded(c: Constraint, values: tuple[Any, ...]) -> tuple[Any, ...]:
    found: list[Any] = []
    for word in c.words:
        if word == ACTIVATIONS:
            found += [v for v in values if v]
        else:
            found.append(parse_strategy(f"offload={word}", field=_FIELD).offload)
    return tuple(dict.fromkeys(found))


def _kept(word: Word, c: Constraint, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The values of a plain axis that a constraint leaves, or that it names beside those that are tried."""
    if isinstance(word, Switch):
        for said in c.words:
            if said not in _TRUTHS:
                raise BadValue(f"{_FIELD}.{c.key}", said, f"one of {', '.join(_TRUTHS)}")
        return tuple(v for v in values if v in [_TRUTHS[said] for said in c.words])
    if isinstance(word, Choice):
        named = [_member(c, said, word.choices) for said in c.words]
        return tuple(v for v in word.choices if v in named)
    return c.numbers() if c.words else tuple(v for v in values if c.admits(v))


_PLACES: Final = tuple(one.value for one in Placement)
_TRUTHS: Final = {"true": True, "false": False}
_KEYS: Final = {word.key: (axis.name, word) for axis in EVERY for word in axis.keys}
"""Axis and word of each key."""
_NARROW: Final[Mapping[str, _Narrow]] = {
    "cp": _sizes,
    "cp-mode": _modes,
    "vpp": _virtual,
    "schedule": _with("schedule", SCHEDULES),
    "sharding": _shards,
    "shard": _shared,
    "recompute": _recomputed,
    "offload": _offloaded,
}
"""How keys narrow an axis whose values are no plain numbers, choices or truths."""


def _member(c: Constraint, word: str, kind: Any) -> Any:
    return member(f"{_FIELD}.{c.key}", word, kind)


def _whole(key: str, word: str) -> int:
    if not (word.isascii() and word.isdigit() and 0 < len(word) <= 9) or int(word) < 1:
        raise BadValue(f"{_FIELD}.{key}", word, "give whole numbers of one or more")
    return int(word)


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
