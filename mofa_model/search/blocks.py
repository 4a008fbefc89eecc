"""Cuts the legal space into blocks of rows, and says what each row of a block can have.

block   up to `BLOCK` shapes of one schedule; its strategies are its rows beside every state and every work
state   a ZeRO level with its shard groups and optimizer placements: what stays in memory, what is sent once a step
work    sequence parallelism, recomputation and offload: what a micro-batch does

Features that a trainer refuses together are in no bundle together; what a bundle changes is only which rows are legal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mofa_model.axes.axis import Axis
from mofa_model.axes.choices import NO_MODULES, Recomputation
from mofa_model.axes.rules import AxisContext, Rows
from mofa_model.placement import Stages, stages_of
from mofa_model.schedules import Schedule
from mofa_model.search.axes import OVERLAPS, Axes
from mofa_model.search.local import varied
from mofa_model.search.space import DEGREES, Features, Shapes
from mofa_model.strategy import Recompute, Strategy

Array = NDArray[Any]
Allowed = Mapping[str, Array]
"""Of each axis of features the values that each row can have, [values, rows]."""


@dataclass(frozen=True, slots=True)
class Overlap:
    """One value on every axis of overlap, for the rows that are priced with it."""

    flags: dict[str, Any]
    """Fields of `Strategy`."""
    ok: Array
    """[rows]"""
    offset: Array
    """Part of the raw index, [rows]."""


@dataclass(frozen=True, slots=True)
class Company:
    """Bundles of features that have the same choices of overlap and graphs."""

    bundles: tuple[int, ...]
    """Their places in `ShapeBlock.allowed`."""
    overlaps: tuple[Overlap, ...]
    """The choices."""
    repeated: Array | int
    """Strategies that share a row's memory, one for each choice, [rows]."""

    def of(self, rows: NDArray[np.int64]) -> Company:
        """The same for some of the rows."""
        return Company(
            self.bundles,
            tuple(Overlap(one.flags, one.ok[rows], one.offset[rows]) for one in self.overlaps),
            self.repeated if isinstance(self.repeated, int) else self.repeated[rows],
        )


@dataclass(frozen=True, slots=True)
class ShapeBlock:
    """Rows of one schedule, with what all of their features share."""

    members: NDArray[np.int64]
    """The shape of each row, by its place among all."""
    origin: NDArray[np.int64]
    """The row of the same shape in the block without a column of layers."""
    layout: Strategy
    """Degrees and schedule."""
    rows: Rows
    """Columns of degrees."""
    shapes: NDArray[np.int64]
    """Raw index of each row's shape: with the first value on every axis of features."""
    index: NDArray[np.int64]
    """The same with the layers that are computed again, where these are a column."""
    layers: Array | None
    """Layers of a stage that are computed again, [rows]; None = as the kind of work says."""
    stages: Stages
    """What lies where."""
    allowed: tuple[Allowed, ...]
    """Features that each row can have, in each bundle."""
    companies: tuple[Company, ...]
    """The bundles, by their choices of overlap."""

    def of(self, rows: NDArray[np.int64]) -> ShapeBlock:
        """Some of its rows."""
        return ShapeBlock(
            members=self.members[rows],
            origin=self.origin[rows],
            layout=varied(
                self.layout, **{name: getattr(self.layout, name)[rows] for name in DEGREES}
            ),
            rows={name: column[rows] for name, column in self.rows.items()},
            shapes=self.shapes[rows],
            index=self.index[rows],
            layers=None if self.layers is None else self.layers[rows],
            stages=self.stages.of(rows),
            allowed=tuple(
                {name: ok.take(rows, axis=1) for name, ok in bundle.items()}
                for bundle in self.allowed
            ),
            companies=tuple(company.of(rows) for company in self.companies),
        )


def blocks_of(
    axes: Axes,
    given: AxisContext,
    shapes: Shapes,
    features: Features,
    schedule: Schedule,
    members: Array,
) -> tuple[ShapeBlock, ShapeBlock | None]:
    """Some shapes of one schedule; and those that can have a number of recomputed layers, once for each number.

    Such numbers are degrees as well: the second block has all of them in a column, instead of a kind of work each.
    """
    every = np.arange(len(members))
    layout = varied(
        Strategy(), schedule=schedule, **{name: shapes.rows[name][members] for name in DEGREES}
    )
    stages = stages_of(given.workload.model, layout, given.cluster.calibration.placement, 1)
    whole = _block(axes, shapes, features, layout, stages, members)
    some = [at for at, again in enumerate(axes["recompute"]) if _partial(again)]
    can = features.some("recompute")[:, members]
    rows = [every[can[at]] for at in some]
    origin = np.concatenate([every[:0], *rows])
    if not len(origin):
        return whole, None
    at = np.repeat(some, [len(r) for r in rows])
    layout = varied(layout, **{name: getattr(layout, name)[origin] for name in DEGREES})
    again = _block(axes, shapes, features, layout, stages.of(origin), members[origin], (origin, at))
    return whole, again


def _partial(again: Recomputation) -> bool:
    """Whether a number of whole layers is computed again, not all."""
    return again.mode is Recompute.FULL and again.layers > 0


def _block(
    axes: Axes,
    shapes: Shapes,
    features: Features,
    layout: Strategy,
    stages: Stages,
    members: Array,
    layers: tuple[Array, Array] | None = None,
) -> ShapeBlock:
    """`layers` has for each row where it comes from, and the place of what is recomputed; None = as the kind of work says."""
    rows = {name: column[members] for name, column in shapes.rows.items()}
    idle = {name: mask[members] for name, mask in features.idle.items()}
    index, every = shapes.index[members], np.arange(len(members))
    allowed: list[dict[str, Array]] = []
    for bundle in features.allowed:
        can = {name: ok.take(members, axis=1) for name, ok in bundle.items()}
        if layers is not None:  # the one number of a row; others are other rows
            can["recompute"] = can["recompute"][layers[1], every][None]
        allowed.append(can)
    numbers = np.array([float(one.layers) for one in axes["recompute"]])
    return ShapeBlock(
        members=members,
        origin=every if layers is None else layers[0],
        layout=layout,
        rows=rows,
        shapes=index,
        index=index if layers is None else index + layers[1] * axes.strides["recompute"],
        layers=None if layers is None else numbers[layers[1]],
        stages=stages,
        allowed=tuple(allowed),
        companies=tuple(_companies(axes, allowed, idle)),
    )


def _companies(
    axes: Axes, allowed: list[dict[str, Array]], idle: dict[str, Array]
) -> Iterator[Company]:
    """Bundles by their choices of overlap."""
    alike: dict[bytes, list[int]] = {}
    for at, bundle in enumerate(allowed):
        alike.setdefault(b"".join(bundle[axis.name].tobytes() for axis in OVERLAPS), []).append(at)
    for bundles in alike.values():
        overlaps = tuple(_overlaps(axes, allowed[bundles[0]], idle))
        repeated = np.asarray(sum(overlap.ok.astype(np.int64) for overlap in overlaps))
        same = bool((repeated == repeated[0]).all())
        yield Company(tuple(bundles), overlaps, int(repeated[0]) if same else repeated)


def _overlaps(axes: Axes, allowed: dict[str, Array], idle: dict[str, Array]) -> Iterator[Overlap]:
    """Every choice on the axes of overlap."""
    for chosen in product(
        *(list(_choices(axes, axis, allowed[axis.name], idle[axis.name])) for axis in OVERLAPS)
    ):
        yield Overlap(
            {name: value for fields, _, _ in chosen for name, value in fields.items()},
            np.logical_and.reduce([ok for _, ok, _ in chosen]),
            sum((offset for _, _, offset in chosen[1:]), chosen[0][2]),
        )


def _choices(
    axes: Axes, axis: Axis, allowed: Array, idle: Array
) -> Iterator[tuple[dict[str, Any], Array, Array]]:
    """Values of an axis; rows on which it has nothing to act on go with the first of them."""
    stride, own = axes.strides[axis.name], np.argmax(allowed, axis=0)
    tried = [at for at in range(len(allowed)) if np.any(allowed[at] & ~idle)] or [int(own[0])]
    for at in tried:
        yield (
            axis.chosen(axes[axis.name][at]),
            np.where(idle, at == tried[0], allowed[at]),
            np.where(idle, own, at) * stride,
        )


@dataclass(frozen=True, eq=False, slots=True)
class FeatureValue:
    """A value on an axis of features; no two are the same."""

    axis: Axis
    """The axis."""
    at: int
    """Its place in what a bundle allows."""
    value: Any
    """As the axis says it."""
    fields: Mapping[str, Any]
    """Fields of `Strategy`."""
    offset: int
    """Its part of the raw index."""

    def beside(self, allowed: Allowed) -> Array:
        """Rows that can have it in a bundle."""
        rows: Array = allowed[self.axis.name][self.at]
        return rows


def feature_values(axes: Axes, axis: Axis, layers: Array | None = None) -> list[FeatureValue]:
    """Every value of an axis of features; numbers of layers that are computed again are a column of a block of their own."""
    if axis.name == "recompute" and layers is not None:
        again = Recomputation(Recompute.FULL, NO_MODULES, 0)
        return [FeatureValue(axis, 0, again, axis.chosen(again) | {"recompute_layers": layers}, 0)]
    stride = axes.strides[axis.name]
    return [
        FeatureValue(axis, at, value, axis.chosen(value), at * stride)
        for at, value in enumerate(axes[axis.name])
        if axis.name != "recompute" or not _partial(value)
    ]


def fields_of(chosen: Iterable[FeatureValue]) -> dict[str, Any]:
    """Fields of `Strategy` that several values give together."""
    return {name: value for one in chosen for name, value in one.fields.items()}
