"""Enumerates every legal strategy: tables of shapes, and beside each shape the features it can have.

    shapes_of(axes, given, node)   degrees of every legal shape on a number of nodes, with counts of the rest
    features_of(...)               which value of each feature axis each shape can have, with counts of the rest

A shape is a choice on every axis of `axes.SHAPE`. Partial choices are extended one axis at a time and dropped as soon as
a rule fails; what is dropped counts for all combinations that it stands for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.axes.axis import Axis
from mofa_model.axes.rejection import Rejection
from mofa_model.axes.rules import AxisContext, Mask, Rows
from mofa_model.errors import TooLarge
from mofa_model.placement import stages_of
from mofa_model.search.axes import FEATURES, SHAPE, Axes
from mofa_model.search.bundles import Bundle, Judged, bundles, judged
from mofa_model.search.local import varied
from mofa_model.spec import Cluster
from mofa_model.strategy import DEGREES as ARRAYS
from mofa_model.strategy import Strategy

DEGREES: Final = ("dp", *(name for axis in SHAPE for name in axis.fields if name in ARRAYS))
"""Columns that are degrees of a `Strategy`."""
MOST_SHAPES: Final = 600_000
"""Shapes on one number of nodes: of questions about real models the largest known, DeepSeek-V3 on 90,720 GPUs, has 360,000."""


@dataclass(frozen=True, slots=True)
class Shapes:
    """Legal shapes, one a row."""

    rows: Rows
    """Columns of degrees."""
    index: NDArray[np.int64]
    """Raw index of each shape with the first value on every axis of features."""
    rejected: Counter[Rejection]
    """Raw strategies dropped so far."""
    made: int
    """Rows of all tables on the way. [1]"""
    stuck: tuple[str, Rejection] | None = None
    """Where no shape is left: the axis at which the last ones fell, and the reason of most of them."""


@dataclass(frozen=True, slots=True)
class Features:
    """What each shape can have."""

    allowed: tuple[dict[str, Mask], ...]
    """Of each bundle and axis of features, [values, rows]: True where the value is legal, tried, and not a duplicate."""
    idle: dict[str, Mask]
    """For each axis of features, [rows]: True where all its values say the same."""
    rejected: Counter[Rejection]
    """Raw strategies dropped here."""
    pruned: int
    """Raw strategies left out because another one is proved to be at least as good."""
    legal: NDArray[np.int64]
    """Strategies left of each shape, whose memory and time are to be computed, [rows]."""

    def some(self, axis: str) -> Mask:
        """Values that a shape has in some bundle, [values, rows]."""
        first, *others = (allowed[axis] for allowed in self.allowed)
        return reduce(or_, others, first)


def shapes_of(axes: Axes, given: AxisContext, nodes: int) -> Shapes:
    """Degrees of every legal shape on a number of nodes, at the precision of the question."""
    strides, rejected, made = axes.strides, Counter[Rejection](), 0
    recipe = given.workload.training.precision.name
    start = sum(
        axes[name].index(value) * strides[name]
        for name, value in (("nodes", nodes), ("precision", recipe))
    )
    left = axes.raw // (len(axes["nodes"]) * len(axes["precision"]))
    rows: Rows = {"gpus": np.full(1, float(nodes * given.cluster.gpus_per_node))}
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
        rows |= _columns(axis, values, position, rows, given)
        good = np.ones(len(index), dtype=bool)
        fallen = Counter[Rejection]()
        for reason, rule in axis.rules:
            if reason not in given.lifted:
                bad = good & rule(rows, given)
                fallen[reason] += int(np.count_nonzero(bad))
                good &= ~bad
        rejected += Counter({reason: count * left for reason, count in fallen.items()})
        if not good.any():
            return Shapes({}, index[:0], rejected, made, (axis.name, fallen.most_common(1)[0][0]))
        if not good.all():
            rows = {name: column[good] for name, column in rows.items()}
            index = index[good]
    return Shapes(rows | _derived(rows, given), index, rejected, made)


def _too_many(axes: Axes, nodes: int, shapes: int) -> str:
    """What to do where there are too many shapes, before any of them is made."""
    widest = sorted(SHAPE, key=lambda axis: -len(axes[axis.name]))[:3]
    told = ", ".join(f"{axis.name} has {len(axes[axis.name])}" for axis in widest)
    return (
        f"nodes: on {nodes} there are {shapes:,} layouts to look at, of at most {MOST_SHAPES:,};"
        f" constrain an axis with many values ({told}), for example {widest[0].example}"
    )


def _columns(
    axis: Axis, values: tuple[Any, ...], position: NDArray[Any], rows: Rows, given: AxisContext
) -> Rows:
    """Columns that become known with an axis."""
    if axis.columns is not None:
        return axis.columns(values, position)
    columns: Rows = {axis.name: np.array(values, dtype=float)[position]}
    if axis.name == "pp":
        columns["dp"] = rows["gpus"] / (rows["tp"] * rows["cp"] * columns["pp"])
    if axis.name == "mbs":
        columns["micro_batches"] = given.workload.training.global_batch / (
            rows["dp"] * columns["mbs"]
        )
    return columns


def _derived(rows: Rows, given: AxisContext) -> Rows:
    """Numbers that the rules of features ask for."""
    layout = varied(Strategy(), **{name: rows[name] for name in DEGREES})
    ranks = layout.data_ranks
    experts = given.workload.model.experts is not None
    stages = stages_of(given.workload.model, layout, given.cluster.calibration.placement)
    deepest = np.broadcast_to(np.max(stages.layers, axis=0), np.shape(ranks))
    return {
        "data_ranks": np.asarray(ranks),
        "expert_data_ranks": np.asarray(layout.expert_data_ranks if experts else ranks),
        "deepest_stage": deepest,
    }


def features_of(axes: Axes, given: AxisContext, shapes: Shapes) -> Features:
    """Which value of each axis of features each shape can have, bundle by bundle; counts what is left out."""
    known = judged(axes, given, shapes.rows)
    parts = [_within(axes, given, known, one) for one in bundles(axes, given.framework, known)]
    return Features(
        allowed=tuple(part.allowed for part in parts if part.legal.any()),
        idle={name: one.idle for name, one in known.items()},
        rejected=sum((part.rejected for part in parts), Counter[Rejection]()),
        pruned=sum(part.pruned for part in parts),
        legal=np.sum([part.legal for part in parts], axis=0),
    )


@dataclass(frozen=True, slots=True)
class _Part:
    """The same of one bundle."""

    allowed: dict[str, Mask]
    rejected: Counter[Rejection]
    pruned: int
    legal: NDArray[np.int64]


def _within(axes: Axes, given: AxisContext, judged: Mapping[str, Judged], bundle: Bundle) -> _Part:
    """What a bundle has of the features."""
    size = len(next(iter(judged.values())).idle)
    alive = np.ones(size, dtype=np.int64)
    left = 1
    for axis in FEATURES:
        left *= bundle.size(axis.name, axes[axis.name])
    rejected, pruned = Counter[Rejection](), 0
    allowed: dict[str, Mask] = {}
    idle = {name: one.idle for name, one in judged.items()}
    for axis in FEATURES:
        name, values = axis.name, axes[axis.name]
        left //= bundle.size(name, values)
        ok, before = np.ones((len(values), size), dtype=bool), np.zeros(size, dtype=bool)
        for at, against in enumerate(judged[name].against):
            counted = rejected if bundle.has(name, at) else Counter[Rejection]()
            found = list(against)
            if deciding := bundle.barred.get(name, {}).get(at):
                acting = np.any([~idle[axis] for axis in deciding], axis=0)
                found.append((Rejection.NOT_IN_FRAMEWORK, acting & ~idle[name]))
            for reason, bad in found:
                _count(counted, reason, alive, ok[at] & bad, left)
                ok[at] &= ~bad
            again = idle[name] & before & ok[at]
            _count(counted, Rejection.DUPLICATE, alive, again, left)
            ok[at] &= ~again
            before |= ok[at]
        for at in range(len(values)):
            ok[at] &= bundle.has(name, at)
        if dominated(axis, given.cluster) and True in values and False in values:
            worse = ok[values.index(True)] & ok[values.index(False)]
            pruned += int(alive[worse].sum()) * left
            ok[values.index(False)] &= ~worse
        alive = alive * ok.sum(axis=0)
        allowed[name] = ok
    return _Part(allowed, rejected, pruned, alive)


def dominated(axis: Axis, cluster: Cluster) -> bool:
    """Whether a switch that is on is proved to be never slower than off, so that off is pruned."""
    return axis.never_slower is not None and axis.never_slower(cluster.calibration)


def _count(
    rejected: Counter[Rejection], reason: Rejection, alive: NDArray[np.int64], bad: Mask, left: int
) -> None:
    if dropped := int(alive[bad].sum()):
        rejected[reason] += dropped * left
