"""Enumerates legal strategies: tables of shapes, and the features that each shape can have.

A shape is a choice on every axis of `axes.SHAPE`. Partial choices are extended by one axis at a
time and dropped as soon as a rule fails; a dropped choice counts for all combinations that it
stands for.

Some trainers refuse two features together. One axis of such a pair decides about the other: its
values are sorted by what they rule out. A bundle has the values of one sort on every deciding axis,
and lacks what these rule out. Within a bundle every value goes with every other, so the search
walks each bundle as if no axis depended on another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import cache, partial, reduce
from itertools import product
from operator import or_
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.axes.axis import Axis
from mofa_model.axes.frameworks import Framework
from mofa_model.axes.rejection import Rejection
from mofa_model.axes.rules import AxisContext, Mask, Rows, Violations
from mofa_model.errors import TooLarge
from mofa_model.placement import groups, row_of_each, stages_of
from mofa_model.records import dataclass, varied
from mofa_model.search.axes import FEATURES, SHAPE, Axes
from mofa_model.spec import Cluster
from mofa_model.strategy import DEGREES as ARRAYS
from mofa_model.strategy import Strategy

DEGREES: Final = ("dp", *(name for axis in SHAPE for name in axis.fields if name in ARRAYS))
"""Columns that are degrees of a `Strategy`."""
MOST_SHAPES: Final = 600_000
"""Shapes on one number of nodes: of questions about real models the largest known, DeepSeek-V3 on
90,720 GPUs, has 360,000."""
_WORDS: Final[Mapping[str, tuple[str, Callable[[Any], bool]]]] = {
    word: (axis.name, meant) for axis in FEATURES for word, meant in axis.apart.items()
}
"""Words of `apart` in frameworks.toml: an axis, and which of its values are meant."""


@dataclass(frozen=True)
class Shapes:
    """Legal shapes on one number of nodes, one a row, and the features that each can have."""

    rows: Rows
    """Columns of degrees."""
    index: NDArray[np.int64]
    """Raw index of each shape with the first value on every axis of features."""
    made: int
    """Rows of all tables on the way. [1]"""
    stuck: tuple[str, Rejection] | None = None
    """Where no shape is left: the axis at which the last ones fell, and the reason of most of
    them."""
    sort: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """The sort of each shape: shapes of one sort have the same features, [rows]."""
    idle: Mapping[str, Mask] = field(default_factory=dict)
    """For each axis of features, [sorts]: True where all its values say the same."""
    allowed: Mapping[str, Mask] = field(default_factory=dict)
    """For each axis of features, [bundles, values, sorts]: True where a value is legal, tried, and
    no duplicate."""
    strategies: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Strategies of each shape, whose memory and time are to be computed, [rows]."""
    pruned: int = 0
    """Raw strategies left out because another one is proved to be at least as good."""

    def in_some_bundle(self, axis: str, members: NDArray[np.int64]) -> Mask:
        """Which values of an axis some shapes can have in at least one bundle, [values,
        members].
        """
        legal: Mask = reduce(or_, self.allowed[axis]).take(self.sort[members], axis=-1)
        return legal


def shapes_of(axes: Axes, context: AxisContext, nodes: int, rejected: Counter[Rejection]) -> Shapes:
    """Degrees of every legal shape on a number of nodes; the other shapes are counted."""
    strides, made = axes.strides, 0
    recipe = context.workload.training.precision.name
    start = axes["nodes"].index(nodes) * strides["nodes"]
    start += axes["precision"].index(recipe) * strides["precision"]
    left = axes.raw // (len(axes["nodes"]) * len(axes["precision"]))
    rows: Rows = {"gpus": np.full(1, float(nodes * context.cluster.gpus_per_node))}
    index = np.full(1, start, dtype=np.int64)
    for axis in SHAPE:
        values = axes[axis.name]
        left //= len(values)
        size = len(index)
        if size * len(values) > MOST_SHAPES:
            raise TooLarge(_too_many(axes, nodes, size * len(values)))
        made += size * len(values)
        position = np.tile(np.arange(len(values)), size)
        rows = {name: np.repeat(column, len(values)) for name, column in rows.items()}
        index = np.repeat(index, len(values)) + position * strides[axis.name]
        rows |= _columns(axis, values, position, rows, context)
        good = np.ones(len(index), dtype=bool)
        fallen = Counter[Rejection]()
        # A shape that breaks several rules counts for the first of them.
        for reason, rule in axis.shape_rules:
            if reason not in context.lifted:
                bad = good & rule(rows, context)
                fallen[reason] += int(np.count_nonzero(bad))
                good &= ~bad
        rejected.update({reason: count * left for reason, count in fallen.items()})
        if not good.any():
            return Shapes({}, index[:0], made, (axis.name, fallen.most_common(1)[0][0]))
        if not good.all():
            rows = {name: column[good] for name, column in rows.items()}
            index = index[good]
    return Shapes(rows | _derived(rows, context), index, made)


def _too_many(axes: Axes, nodes: int, shapes: int) -> str:
    """What to do where there are too many shapes, before any of them is made."""
    widest = sorted(SHAPE, key=lambda axis: -len(axes[axis.name]))[:3]
    sizes = ", ".join(f"{axis.name} has {len(axes[axis.name])}" for axis in widest)
    return (
        f"nodes: on {nodes} there are {shapes:,} layouts to look at, of at most {MOST_SHAPES:,};"
        f" constrain an axis with many values ({sizes}), for example {widest[0].example}"
    )


def _columns(
    axis: Axis, values: tuple[Any, ...], position: NDArray[Any], rows: Rows, context: AxisContext
) -> Rows:
    """Columns of the table that an axis adds: its own, and those that follow from it."""
    if axis.columns is not None:
        return axis.columns(values, position)
    columns: Rows = {axis.name: np.array(values, dtype=float)[position]}
    if axis.name == "pp":
        columns["dp"] = rows["gpus"] / (rows["tp"] * rows["cp"] * columns["pp"])
    if axis.name == "mbs":
        batch = context.workload.training.global_batch
        columns["micro_batches"] = batch / (rows["dp"] * columns["mbs"])
    return columns


def _derived(rows: Rows, context: AxisContext) -> Rows:
    """Numbers that the rules of features ask for."""
    layout = varied(Strategy(), **{name: rows[name] for name in DEGREES})
    ranks = np.asarray(layout.data_ranks)
    experts = context.workload.model.experts is not None
    stages = stages_of(context.workload.model, layout, context.cluster.calibration.placement)
    return {
        "data_ranks": ranks,
        "expert_data_ranks": np.asarray(layout.expert_data_ranks) if experts else ranks,
        "deepest_stage": np.broadcast_to(np.max(stages.layers, axis=0), ranks.shape),
    }


def idle_rows(rows: Rows) -> dict[str, Mask]:
    """For each axis of features, the shapes on which none of its values has an effect."""
    nowhere = np.zeros(len(rows["tp"]), dtype=bool)
    return {axis.name: nowhere if axis.idle is None else axis.idle(rows) for axis in FEATURES}


def violations_of(axes: Axes, context: AxisContext, rows: Rows) -> dict[str, list[Violations]]:
    """Reasons against each value of each axis of features; lifted rules are left out."""

    def against(axis: Axis, value: Any) -> Violations:
        reasons = [] if axis.value_rules is None else axis.value_rules(value, rows, context)
        return [(reason, bad) for reason, bad in reasons if reason not in context.lifted]

    return {axis.name: [against(axis, value) for value in axes[axis.name]] for axis in FEATURES}


@dataclass(frozen=True)
class Bundle:
    """A part of the space of features, in which every value goes with every other."""

    only: Mapping[str, frozenset[int]]
    """Positions of the values on the deciding axes; an axis that is missing has all."""
    barred: Mapping[str, Mapping[int, frozenset[str]]]
    """Positions of the values that these rule out, by axis, and the axes that do so."""

    def size(self, axis: str, values: tuple[Any, ...]) -> int:
        """Values of an axis in it. [1]"""
        return len(self.only.get(axis, values))


def bundles_of(
    axes: Axes,
    framework: Framework,
    idle: Mapping[str, Mask],
    violations: Mapping[str, Sequence[Violations]],
) -> tuple[Bundle, ...]:
    """The bundles of a trainer for some shapes; they share no combination and leave none out."""
    deciding: dict[str, dict[frozenset[tuple[str, int]], set[int]]] = {}
    for name in dict.fromkeys(_WORDS[first][0] for first, _ in framework.apart):
        sorts = deciding.setdefault(name, {})
        for at, value in enumerate(axes[name]):
            # A value that no shape can have, or that acts on nothing, rules nothing out.
            acts = not np.all(reduce(or_, (bad for _, bad in violations[name][at]), idle[name]))
            out = _ruled_out(axes, framework, name, value) if acts else frozenset()
            sorts.setdefault(out, set()).add(at)
    bundles = []
    for sorts_of in product(*(sorts.items() for sorts in deciding.values())):
        only = {name: frozenset(own) for name, (_, own) in zip(deciding, sorts_of, strict=True)}
        barred: dict[str, dict[int, frozenset[str]]] = {}
        for name, (out, _) in zip(deciding, sorts_of, strict=True):
            for other, at in out:
                places = barred.setdefault(other, {})
                places[at] = places.get(at, frozenset()) | {name}
        bundles.append(Bundle(only, barred))
    return tuple(bundles)


def _ruled_out(
    axes: Axes, framework: Framework, axis: str, value: Any
) -> frozenset[tuple[str, int]]:
    """Axis and position of every value that does not go with this one."""
    out = set()
    for first, second in framework.apart:
        (own, is_first), (other, is_second) = _WORDS[first], _WORDS[second]
        if own == axis and is_first(value):
            out |= {
                (other, position)
                for position, option in enumerate(axes[other])
                if is_second(option)
            }
    return frozenset(out)


def with_features(
    axes: Axes, context: AxisContext, shapes: Shapes, rejected: Counter[Rejection]
) -> Shapes:
    """The shapes (degrees of parallelism), each with the features, like recompute or offload, that
    it can have. Combinations that a rule forbids are counted in `rejected`.
    """
    every = idle_rows(shapes.rows), violations_of(axes, context, shapes.rows)
    sort = _sorts(*every, len(shapes.index))
    first = row_of_each(sort)
    idle = {name: mask[first] for name, mask in every[0].items()}
    violations = {
        name: [[(reason, _of_each(bad, first)) for reason, bad in value] for value in values]
        for name, values in every[1].items()
    }
    alike = np.bincount(sort)
    total, pruned = np.zeros(len(first), dtype=np.int64), Counter[str]()
    by_bundle = []
    ruling = cache(partial(_AxisRuling, axes, context, idle, violations))
    for bundle in bundles_of(axes, context.framework, idle, violations):
        strategies = alike.copy()
        allowed = _in_bundle(axes, ruling, bundle, strategies, rejected, pruned)
        if strategies.any():
            by_bundle.append(allowed)
        total += strategies
    return replace(
        shapes,
        sort=sort,
        idle=idle,
        allowed={
            axis.name: np.stack([allowed[axis.name] for allowed in by_bundle])
            for axis in FEATURES
            if by_bundle
        },
        strategies=(total // alike)[sort],
        pruned=pruned.total(),
    )


def _sorts(
    idle: Mapping[str, Mask], violations: Mapping[str, Sequence[Violations]], shapes: int
) -> NDArray[np.int64]:
    """The sort of each shape: those of one sort are idle and violated alike, [rows]."""
    against = (bad for values in violations.values() for value in values for _, bad in value)
    masks = {id(mask): mask for mask in (*idle.values(), *against) if np.ndim(mask)}
    differing = [mask for mask in masks.values() if mask.any() and not mask.all()]
    columns: list[NDArray[Any]] = [np.zeros(shapes), *differing]
    return groups(columns)


def _of_each(mask: Mask, rows: NDArray[np.int64]) -> Mask:
    return mask[rows] if np.ndim(mask) else mask


class _AxisRuling:
    """Which values of an axis sorts of shapes can have, and why not the others, in bundles that
    have `only` some of its values, of which other axes' values bar some.
    """

    def __init__(
        self,
        axes: Axes,
        context: AxisContext,
        idle: Mapping[str, Mask],
        violations: Mapping[str, Sequence[Violations]],
        name: str,
        only: frozenset[int] | None,
        barred: tuple[tuple[int, frozenset[str]], ...],
    ) -> None:
        values, out = axes[name], dict(barred)
        ok = np.ones((len(values), len(idle[name])), dtype=bool)
        self.allowed: Mask = ok
        """[values, sorts]"""
        self.fallen: list[tuple[Rejection, Mask]] = []
        """Sorts for which a value is left out, with the reason."""
        self.worse: Mask | None = None
        """Sorts for which a switch that is off is left out, since it is proved no faster."""
        before = np.zeros(len(idle[name]), dtype=bool)
        for at, against in enumerate(violations[name]):
            reasons = [*against]
            if at in out:
                acting = np.any([~idle[other] for other in out[at]], axis=0)
                reasons.append((Rejection.NOT_IN_FRAMEWORK, acting & ~idle[name]))
            own = ok[at]
            for reason, bad in (*reasons, (Rejection.DUPLICATE, idle[name] & before)):
                if (gone := own & bad).any():
                    own ^= gone
                    if only is None or at in only:
                        self.fallen.append((reason, gone))
            before |= own
        if only is not None:
            ok[[at for at in range(len(values)) if at not in only]] = False
        switch = next(axis for axis in FEATURES if axis.name == name)
        if never_slower(switch, context.cluster) and True in values and False in values:
            self.worse = ok[values.index(True)] & ok[values.index(False)]
            ok[values.index(False)] &= ~self.worse


def _in_bundle(
    axes: Axes,
    ruling: Callable[..., _AxisRuling],
    bundle: Bundle,
    strategies: NDArray[np.int64],
    rejected: Counter[Rejection],
    pruned: Counter[str],
) -> dict[str, Mask]:
    """Values that each sort of shapes can have in a bundle, [values, sorts].

    `strategies` has the shapes of each sort, and is multiplied by how many values they can have.
    Bundles that do not differ on an axis share its `ruling`.
    """
    left = 1
    for axis in FEATURES:
        left *= bundle.size(axis.name, axes[axis.name])
    allowed: dict[str, Mask] = {}
    for axis in FEATURES:
        name = axis.name
        left //= bundle.size(name, axes[name])
        rules = ruling(name, bundle.only.get(name), tuple(bundle.barred.get(name, {}).items()))
        for reason, gone in rules.fallen:
            rejected[reason] += int(strategies[gone].sum()) * left
        if rules.worse is not None:
            pruned[name] += int(strategies[rules.worse].sum()) * left
        strategies *= rules.allowed.sum(axis=0)
        allowed[name] = rules.allowed
    return allowed


def never_slower(axis: Axis, cluster: Cluster) -> bool:
    """Whether a switch that is on is proved never slower than off, so that off is pruned."""
    return axis.never_slower is not None and axis.never_slower(cluster.calibration)
