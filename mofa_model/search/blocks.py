"""Cuts the legal space into blocks of rows, and each block into what its strategies share.

block   up to `BLOCK` shapes of one schedule
state   a ZeRO level with its shard groups and optimizer placements: what stays in memory, what is sent once a step
work    sequence parallelism, recomputation and offload: what a micro-batch does
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import product
from operator import and_
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mofa_model.axes.axis import Axis, Scope
from mofa_model.axes.choices import NO_MODULES, Recomputation, Shard
from mofa_model.axes.feature_rules import shard_group
from mofa_model.axes.rules import Given, Rows
from mofa_model.estimate.exchange import traffic
from mofa_model.estimate.resident import resident
from mofa_model.placement import Stages, stages_of
from mofa_model.schedules import Schedule
from mofa_model.search.axes import OVERLAPS, Axes, within
from mofa_model.search.local import varied
from mofa_model.search.space import DEGREES, Features, Shapes
from mofa_model.strategy import Recompute, Sharding, Strategy
from mofa_model.units import Numeric

Array = NDArray[Any]


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
class ShapeBlock:
    """Rows of one schedule, with what all of their features share."""

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
    allowed: dict[str, Array]
    """Features that each row can have, [values, rows]."""
    stages: Stages
    """What lies where."""
    overlaps: tuple[Overlap, ...]
    """Choices of overlap and graphs."""
    repeated: Array | int
    """Strategies that share a row's memory, one for each choice of overlap, [rows]."""


@dataclass(frozen=True, slots=True)
class ZeroLevel:
    """One ZeRO level, with its shard groups and optimizer placements on a leading axis."""

    level: Strategy
    """The strategy of the level; its shard group and placement say nothing."""
    held: Array
    """Bytes that stay on the device, [states, kinds, rows]. [B]"""
    parked: Array | None
    """Optimizer bytes of a node's devices in its host, [states, kinds, rows]; None where no state has any. [B]"""
    host: Array | None
    """Host memory of a node for them alone, [states, rows]. [B]"""
    collective: Array
    """Collectives, [states, rows]. [s]"""
    optimizer: Array
    """Update, [states, rows]. [s]"""
    embedding: Numeric
    """All-reduce of a tied embedding. [s]"""
    offset: Array
    """Raw index of each state's values, [states, 1]."""
    ok: Array
    """Legal, [states, rows]."""
    replicas: Array
    """Ranks that hold the same shard, [states, rows]."""


@dataclass(frozen=True, slots=True)
class Work:
    """Features of a micro-batch's work."""

    strategy: Strategy
    """The block's layout with them."""
    ok: Array
    """Rows that can have them."""
    offset: int
    """Their part of the raw index."""


def blocks_of(
    axes: Axes, given: Given, shapes: Shapes, features: Features, schedule: Schedule, members: Array
) -> Iterator[tuple[ShapeBlock, Array]]:
    """Some shapes of one schedule, with the position of each row among `members`.

    Numbers of recomputed layers are degrees as well: one block has all of them in a column, instead of a kind of work each.
    """
    every = np.arange(len(members))
    yield _block(axes, given, shapes, features, schedule, members, None), every
    stride = axes.strides()["recompute"]
    some = [(at, again.layers) for at, again in enumerate(axes["recompute"]) if _partial(again)]
    rows = [every[features.allowed["recompute"][at][members]] for at, _ in some]
    chosen = np.concatenate([every[:0], *rows])
    if len(chosen):
        layers = np.repeat([float(n) for _, n in some], [len(r) for r in rows])
        offset = np.repeat([at * stride for at, _ in some], [len(r) for r in rows])
        yield _block(axes, given, shapes, features, schedule, members[chosen], (layers, offset)), chosen


def _partial(again: Recomputation) -> bool:
    """Whether a number of whole layers is computed again, not all."""
    return again.mode is Recompute.FULL and again.layers > 0


def _block(
    axes: Axes,
    given: Given,
    shapes: Shapes,
    features: Features,
    schedule: Schedule,
    members: Array,
    layers: tuple[Array, Array] | None,
) -> ShapeBlock:
    rows = {name: column[members] for name, column in shapes.rows.items()}
    layout = varied(Strategy(), schedule=schedule, **{name: rows[name] for name in DEGREES})
    allowed = {name: ok[:, members] for name, ok in features.allowed.items()}
    idle = {name: mask[members] for name, mask in features.idle.items()}
    overlaps = tuple(_overlaps(axes, allowed, idle))
    repeated = sum((overlap.ok for overlap in overlaps), np.zeros(len(members), dtype=np.int64))
    index = shapes.index[members]
    return ShapeBlock(
        layout=layout,
        rows=rows,
        shapes=index,
        index=index if layers is None else index + layers[1],
        layers=None if layers is None else layers[0],
        allowed=allowed,
        stages=stages_of(given.workload.model, layout, given.cluster.calibration.placement, 1),
        overlaps=overlaps,
        repeated=int(repeated[0]) if np.all(repeated == repeated[0]) else repeated,
    )


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
    stride, own = axes.strides()[axis.name], np.argmax(allowed, axis=0)
    tried = [at for at in range(len(allowed)) if np.any(allowed[at] & ~idle)] or [int(own[0])]
    for at in tried:
        yield (
            axis.chosen(axes[axis.name][at]),
            np.where(idle, at == tried[0], allowed[at]),
            np.where(idle, own, at) * stride,
        )


def states_of(axes: Axes, given: Given, block: ShapeBlock) -> list[ZeroLevel]:
    """Everything of each ZeRO level that does not depend on a micro-batch's work."""
    levels = dict.fromkeys(shard.level for shard in axes["sharding"])
    return [_state(axes, given, block, level) for level in levels]


def _state(axes: Axes, given: Given, block: ShapeBlock, level: Sharding) -> ZeroLevel:
    w, c, stages, m = given.workload, given.cluster, block.stages, block.rows["micro_batches"]
    strides, base = axes.strides(), varied(block.layout, sharding=level)
    rows, offsets, legal, replicas = [], [], [], []
    shards = [(at, shard) for at, shard in enumerate(axes["sharding"]) if shard.level is level]
    others = [_beside(axes, block, axis) for axis in within(Scope.STATE) if axis.name != "sharding"]
    for (at, shard), *more in product(shards, *others):
        group = shard_group(shard, block.rows, c)
        s = varied(base, shard=group, **_fields(more))
        rows.append((resident(w, c, s, stages), traffic(w, c, s, stages, micro_batches=m)))
        offsets.append(at * strides["sharding"] + sum(one.offset for one in more))
        legal.append(reduce(and_, (one.ok for one in more), block.allowed["sharding"][at]))
        replicas.append(_replicas(shard, group, block.rows))
    shape = stages.count.shape
    parks = any(np.any(held.parked) for held, _ in rows)
    parked = _stacked([held.parked * c.gpus_per_node for held, _ in rows], shape) if parks else None
    return ZeroLevel(
        level=base,
        held=_stacked([held.total for held, _ in rows], shape),
        parked=parked,
        host=None if parked is None else np.max(parked, axis=1),
        collective=_stacked([sent.collective for _, sent in rows], shape[1:]),
        optimizer=_stacked([sent.optimizer for _, sent in rows], shape[1:]),
        embedding=rows[0][1].embedding,
        offset=np.array(offsets, dtype=np.int64)[:, None],
        ok=np.stack(legal),
        replicas=np.stack(replicas),
    )


def _stacked(parts: list[Numeric], shape: tuple[int, ...]) -> Array:
    stacked = np.empty((len(parts), *shape))
    for at, part in enumerate(parts):
        stacked[at] = part
    return stacked


def _replicas(shard: Shard, group: Array, rows: Rows) -> Array:
    """Ranks that hold the same shard of most parameters, of which one writes it to a checkpoint. [1]"""
    copies = rows["copies"]
    if shard.level is Sharding.NONE:
        return copies
    return copies / np.where(group > 0, np.minimum(group, copies), copies)


def works_of(axes: Axes, block: ShapeBlock) -> Iterator[Work]:
    """Every kind of work that some row of a block can have."""
    features = [
        _recomputed(axes, block, axis) if axis.name == "recompute" else _beside(axes, block, axis)
        for axis in within(Scope.WORK)
    ]
    for chosen in product(*features):
        ok = reduce(and_, (one.ok for one in chosen))
        if ok.any():
            yield Work(varied(block.layout, **_fields(chosen)), ok, sum(one.offset for one in chosen))


def _recomputed(axes: Axes, block: ShapeBlock, axis: Axis) -> list[_Feature]:
    """What is computed again; numbers of layers are a column of a block of their own."""
    values = _beside(axes, block, axis)
    if block.layers is not None:
        fields = axis.chosen(Recomputation(Recompute.FULL, NO_MODULES, 0)) | {
            "recompute_layers": block.layers
        }
        return [_Feature(fields, np.ones(len(block.index), dtype=bool), 0)]
    return [one for one, again in zip(values, axes[axis.name], strict=True) if not _partial(again)]


@dataclass(frozen=True, slots=True)
class _Feature:
    """A value on an axis of features."""

    fields: dict[str, Any]
    """Fields of `Strategy`."""
    ok: Array
    """Rows that can have it."""
    offset: int
    """Its part of the raw index."""


def _beside(axes: Axes, block: ShapeBlock, axis: Axis) -> list[_Feature]:
    """Every value of an axis of features beside the rows of a block."""
    name, stride = axis.name, axes.strides()[axis.name]
    return [
        _Feature(axis.chosen(value), block.allowed[name][at], at * stride)
        for at, value in enumerate(axes[name])
    ]


def _fields(chosen: Iterable[_Feature]) -> dict[str, Any]:
    return {name: value for one in chosen for name, value in one.fields.items()}
