"""Cuts the legal space into blocks of rows, and says which features each row of a block can have.

A block is up to `price.BLOCK` shapes of one schedule. Its strategies are its rows beside every
optimizer state (ZeRO level with shard group and placement: what stays in memory and is sent once a
step), every option of a micro-batch (sequence parallelism, recomputation, offload, graphs) and
every choice of overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from functools import cache, partial, reduce
from itertools import product
from operator import add, and_, mul
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mofa_model.axes.axis import Axis, Scope
from mofa_model.axes.choices import NO_MODULES, Recomputation
from mofa_model.axes.rules import AxisContext, shard_group
from mofa_model.checks import anything
from mofa_model.estimate.gradient_exchange import GradientExchange, gradient_exchange
from mofa_model.estimate.model_states import (
    checkpoint_replicas,
    checkpoint_size,
    held_parameters,
    model_states,
)
from mofa_model.placement import Stages, groups, row_of_each, stages_of
from mofa_model.records import dataclass, varied
from mofa_model.search.axes import OVERLAPS, Axes, within
from mofa_model.search.space import DEGREES, Shapes
from mofa_model.spec import Workload
from mofa_model.strategy import Recompute, Sharding, Strategy
from mofa_model.units import Bytes, Numeric

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class FeatureValues:
    """Values on some axes of features, and the rows that can have them."""

    fields: Mapping[str, Any]
    """Fields of `Strategy`."""
    offset: Any
    """Their part of the raw index: one number, or one for each row."""
    ok: Array
    """[bundles, rows], or a column for each sort of rows; of overlaps, which bundles share,
    [rows]."""


def combinations(*values: list[FeatureValues]) -> Iterator[FeatureValues]:
    """Every combination of values, one of each list, for the rows that can have all of it."""
    for chosen in product(*values):
        yield FeatureValues(
            {name: value for choice in chosen for name, value in choice.fields.items()},
            reduce(add, (choice.offset for choice in chosen)),
            reduce(and_, (choice.ok for choice in chosen)),
        )


@dataclass(frozen=True)
class Overlaps:
    """The choices of overlap that some bundles of features share."""

    bundles: tuple[int, ...]
    """Positions of the bundles."""
    values: tuple[FeatureValues, ...]
    """What can be chosen."""
    repeated: Array | int
    """Strategies of a row that share its memory: one for each choice, [rows]."""

    def of(self, rows: NDArray[np.int64]) -> Overlaps:
        """The overlaps of some of the rows."""
        return Overlaps(
            self.bundles,
            tuple(
                FeatureValues(value.fields, value.offset[rows], value.ok[rows])
                for value in self.values
            ),
            self.repeated if isinstance(self.repeated, int) else self.repeated[rows],
        )

    def strategies(self, mask: Array) -> int:
        """How many strategies a mask of states and rows stands for. [1]"""
        if isinstance(self.repeated, int):
            return int(np.count_nonzero(mask)) * self.repeated
        return int(np.count_nonzero(mask, axis=0) @ self.repeated)


@dataclass(frozen=True)
class ShapeBlock:
    """Rows of one schedule, with what all of their features share."""

    members: NDArray[np.int64]
    """The shape of each row, by its position in the table."""
    origin: NDArray[np.int64]
    """The row of the same shape in the block without a column of layers."""
    layout: Strategy
    micro_batches: Array
    shape_indices: NDArray[np.int64]
    """Raw index of each row's shape: with the first value on every axis of features."""
    index: NDArray[np.int64]
    """The same with the layers that are recomputed, where these are a column."""
    layers: Array | None
    """Layers of a stage that are recomputed, [rows]; None = as the option of a micro-batch says."""
    stage_kinds: Stages
    sort: NDArray[np.int64]
    """The sort of each row, [rows]."""
    features: Mapping[str, Array]
    """For each axis of features the values that each sort can have, [bundles, values, sorts]; with
    `layers` of recomputation only whether these are legal, [bundles, 1, sorts]."""
    overlaps: tuple[Overlaps, ...]
    """Choices of overlap, for all bundles."""

    def of(self, rows: NDArray[np.int64]) -> ShapeBlock:
        """The block with some of its rows alone."""
        degrees = {name: getattr(self.layout, name)[rows] for name in DEGREES}
        return ShapeBlock(
            members=self.members[rows],
            origin=self.origin[rows],
            layout=varied(self.layout, **degrees),
            micro_batches=self.micro_batches[rows],
            shape_indices=self.shape_indices[rows],
            index=self.index[rows],
            layers=None if self.layers is None else self.layers[rows],
            stage_kinds=self.stage_kinds.of(rows),
            sort=self.sort[rows],
            features=self.features,
            overlaps=tuple(overlap.of(rows) for overlap in self.overlaps),
        )


def block_of(axes: Axes, context: AxisContext, shapes: Shapes, members: Array) -> ShapeBlock:
    """A block of some shapes that have one schedule."""
    schedule = axes["pipeline"][int(shapes.rows["pipeline"][members[0]])].schedule
    degrees = {name: shapes.rows[name][members] for name in DEGREES}
    layout = varied(Strategy(), schedule=schedule, **degrees)
    model, placement = context.workload.model, context.cluster.calibration.placement
    sort = groups([shapes.sort[members]])
    kept = shapes.sort[members][row_of_each(sort)]
    return ShapeBlock(
        members=members,
        origin=np.arange(len(members)),
        layout=layout,
        micro_batches=shapes.rows["micro_batches"][members],
        shape_indices=shapes.index[members],
        index=shapes.index[members],
        layers=None,
        stage_kinds=stages_of(model, layout, placement, 1),
        sort=sort,
        features={name: legal[..., kept] for name, legal in shapes.allowed.items()},
        overlaps=tuple(overlap.of(sort) for overlap in _overlaps(axes, shapes, kept)),
    )


def by_sequence_parallelism(
    block: ShapeBlock, rows: NDArray[np.int64]
) -> Iterator[tuple[NDArray[np.int64], ShapeBlock]]:
    """The rows that can have sequence parallelism on, and those that can have it off, each as a
    block that has this value alone.

    Few rows can have both, so options of a micro-batch are not priced where they are not legal.
    """
    name = "sp"
    legal, sort = block.features[name], block.sort[rows]
    for at in range(legal.shape[1]):
        possible = rows[legal[:, at].any(axis=0).take(sort)]
        if len(possible):
            alone = np.zeros_like(legal)
            alone[:, at] = legal[:, at]
            yield possible, varied(block, features={**block.features, name: alone}).of(possible)


def with_recomputed_layers(axes: Axes, shapes: Shapes, block: ShapeBlock) -> ShapeBlock | None:
    """Rows of a block that can recompute some layers, once for each number; None without any.

    Such numbers are degrees as well: all of them stand in one column, which is cheaper than an
    option for each.
    """
    numbers = [at for at, value in enumerate(axes["recompute"]) if _some_layers(value)]
    can = reduce(np.logical_or, block.features["recompute"])
    rows = [np.flatnonzero(can[at].take(block.sort)) for at in numbers]
    origin = np.concatenate([np.zeros(0, dtype=np.int64), *rows])
    if not len(origin):
        return None
    at = np.repeat(numbers, [len(row) for row in rows])
    # Rows of one sort and one number are of one sort.
    sort = groups([block.sort[origin], at])
    kept = row_of_each(sort)
    of_block, number = block.sort[origin[kept]], at[kept]
    features = {name: legal[..., of_block] for name, legal in block.features.items()}
    legal = block.features["recompute"][:, number, of_block][:, None]
    degrees = {name: getattr(block.layout, name)[origin] for name in DEGREES}
    layers = np.array([float(value.layers) for value in axes["recompute"]])
    shape_sort = shapes.sort[block.members[origin[kept]]]
    return ShapeBlock(
        members=block.members[origin],
        origin=origin,
        layout=varied(block.layout, **degrees),
        micro_batches=block.micro_batches[origin],
        shape_indices=block.shape_indices[origin],
        index=block.shape_indices[origin] + at * axes.strides["recompute"],
        layers=layers[at],
        stage_kinds=block.stage_kinds.of(origin),
        sort=sort,
        features=features | {"recompute": legal},
        overlaps=tuple(overlap.of(sort) for overlap in _overlaps(axes, shapes, shape_sort)),
    )


def _some_layers(value: Recomputation) -> bool:
    """Whether a number of whole layers is recomputed, not all."""
    return value.mode is Recompute.FULL and value.layers > 0


def _overlaps(axes: Axes, shapes: Shapes, sort: NDArray[np.int64]) -> Iterator[Overlaps]:
    """Bundles with their choices of overlap for some sorts of shapes, a row for each sort; bundles
    with the same ones together.
    """
    allowed = {axis.name: shapes.allowed[axis.name].take(sort, axis=-1) for axis in OVERLAPS}
    alike: dict[bytes, list[int]] = {}
    for at in range(len(shapes.allowed["recompute"])):
        key = b"".join(allowed[axis.name][at].tobytes() for axis in OVERLAPS)
        alike.setdefault(key, []).append(at)
    for bundles in alike.values():
        values = [
            _overlap_values(
                axes, axis, allowed[axis.name][bundles[0]], shapes.idle[axis.name][sort]
            )
            for axis in OVERLAPS
        ]
        choices = tuple(combinations(*values))
        repeated = np.asarray(sum(choice.ok.astype(np.int64) for choice in choices))
        same = bool((repeated == repeated[0]).all())
        yield Overlaps(tuple(bundles), choices, int(repeated[0]) if same else repeated)


def _overlap_values(axes: Axes, axis: Axis, allowed: Array, idle: Array) -> list[FeatureValues]:
    """Values of an axis of overlap; rows where it has nothing to act on go with the first."""
    stride, own = axes.strides[axis.name], np.argmax(allowed, axis=0)
    tried = [at for at in range(len(allowed)) if np.any(allowed[at] & ~idle)] or [int(own[0])]
    return [
        FeatureValues(
            axis.chosen(axes[axis.name][at]),
            np.where(idle, own, at) * stride,
            np.where(idle, at == tried[0], allowed[at]),
        )
        for at in tried
    ]


def feature_values(axes: Axes, block: ShapeBlock, axis: Axis) -> list[FeatureValues]:
    """The values of an axis of features that some row of a block can have, by sort."""
    allowed, stride = block.features[axis.name], axes.strides[axis.name]
    if axis.name == "recompute" and block.layers is not None:
        full = axis.chosen(Recomputation(Recompute.FULL, NO_MODULES, 0))
        values = [FeatureValues(full | {"recompute_layers": block.layers}, 0, allowed[:, 0])]
    else:
        values = [
            FeatureValues(axis.chosen(value), at * stride, allowed[:, at])
            for at, value in enumerate(axes[axis.name])
            if axis.name != "recompute" or not _some_layers(value)
        ]
    return [value for value in values if value.ok.any()]


def micro_batch_options(axes: Axes, block: ShapeBlock) -> Iterator[FeatureValues]:
    """What a micro-batch can do, for every option that some row of a block can have."""
    return _by_row(block, combinations(*_of_work(axes, block)))


def numbers_of_options(axes: Axes, block: ShapeBlock) -> Array:
    """How many options of a micro-batch each row can have, [bundles, rows]. [1]"""
    none = np.zeros_like(block.features["recompute"][:, 0], dtype=np.int64)
    numbers = (sum((value.ok for value in values), none) for values in _of_work(axes, block))
    by_sort: Array = reduce(mul, numbers)
    return by_sort.take(block.sort, axis=-1)


def _of_work(axes: Axes, block: ShapeBlock) -> list[list[FeatureValues]]:
    return [feature_values(axes, block, axis) for axis in within(Scope.WORK)]


def _by_row(block: ShapeBlock, values: Iterable[FeatureValues]) -> Iterator[FeatureValues]:
    """The values that some row can have, with the rows that can have them."""
    for value in values:
        ok = value.ok.take(block.sort, axis=-1)
        if ok.any():
            yield varied(value, ok=ok)


@dataclass(frozen=True)
class OptimizerStates:
    """Optimizer states in every way that the search may hold them.

    A way is a ZeRO level, the size of its shard groups, and a place: device or host. The first axis
    of the arrays, called states, has one entry for each way.
    """

    levels: tuple[Sharding, ...]
    """The level of each state; those of one level stand together."""
    device_bytes: Array
    """Bytes that stay on the device, [states, kinds, rows]. [B]"""
    reserve: Bytes
    """What of them the stack holds before the first layer. [B]"""
    gather: Array | None
    """Bytes that are there only while activations are not, [states, kinds, rows]; None where no
    state has any. [B]"""
    fresh: Array | None
    """Gradients that come as activations go, [states, kinds, rows]; None where no state has any.
    [B]"""
    parked: Array | None
    """Optimizer bytes of a node's devices in its host, [states, kinds, rows]; None where no state
    has any. [B]"""
    host: Array | None
    """Host memory of a node for them alone, [states, rows]. [B]"""
    sends: tuple[Callable[[], GradientExchange], ...]
    """What each sends and computes once a step, which is found for states with room alone."""
    offset: Array
    """Raw index of each state's values, [states, 1]."""
    ok: Array
    """Where a state is legal, [bundles, states, rows]."""
    checkpoint_bytes: Array
    """Bytes of a checkpoint, [states, rows]. [B]"""
    replicas: Array
    """Ranks that hold the same shard, [states, rows]."""

    def of(self, rows: NDArray[np.int64]) -> OptimizerStates:
        """The optimizer states of some of the rows, without what they send."""
        return varied(
            self,
            device_bytes=self.device_bytes.take(rows, axis=-1),
            gather=None if self.gather is None else self.gather.take(rows, axis=-1),
            fresh=None if self.fresh is None else self.fresh.take(rows, axis=-1),
            parked=None if self.parked is None else self.parked.take(rows, axis=-1),
            host=None if self.host is None else self.host.take(rows, axis=-1),
            sends=(),
            ok=self.ok.take(rows, axis=-1),
            checkpoint_bytes=self.checkpoint_bytes.take(rows, axis=-1),
            replicas=self.replicas.take(rows, axis=-1),
        )

    def only(self, kept: NDArray[np.int64]) -> OptimizerStates:
        """Some of these optimizer states."""
        return varied(
            self,
            levels=tuple(self.levels[at] for at in kept),
            device_bytes=self.device_bytes[kept],
            gather=None if self.gather is None else self.gather[kept],
            fresh=None if self.fresh is None else self.fresh[kept],
            parked=None if self.parked is None else self.parked[kept],
            host=None if self.host is None else self.host[kept],
            sends=tuple(self.sends[at] for at in kept),
            offset=self.offset[kept],
            ok=self.ok[:, kept],
            checkpoint_bytes=self.checkpoint_bytes[kept],
            replicas=self.replicas[kept],
        )

    def exchange(self) -> GradientExchange:
        """What they send and compute once a step, [states, rows]; the tied embedding [rows]."""
        exchanges, shape = [send() for send in self.sends], self.replicas.shape[1:]
        return GradientExchange(
            collective=_stacked([exchange.collective for exchange in exchanges], shape),
            per_micro_batch=np.array([exchange.per_micro_batch for exchange in exchanges])[:, None],
            reach=np.array([exchange.reach for exchange in exchanges])[:, None],
            tail=np.array([exchange.tail for exchange in exchanges])[:, None],
            embedding=exchanges[0].embedding,
            optimizer=_stacked([exchange.optimizer for exchange in exchanges], shape),
        )


def optimizer_states(axes: Axes, context: AxisContext, block: ShapeBlock) -> OptimizerStates | None:
    """The states that some row of a block can have; None where it can have none."""
    values = [feature_values(axes, block, axis) for axis in within(Scope.STATE)]
    levels: dict[Sharding, list[FeatureValues]] = {}
    for state in _by_row(block, combinations(*values)):
        levels.setdefault(state.fields["sharding"], []).append(state)
    # States of one level stand together, because `memory_fit` prices each level as one slice.
    states = [state for level in levels.values() for state in level]
    if not states:
        return None
    w, c, stages = context.workload, context.cluster, block.stage_kinds
    held, sends, saved, replicas = [], [], [], []
    parameters = held_parameters(w, block.layout, stages)  # however they are sharded
    sizes: dict[Hashable, Bytes] = {}
    for state in states:
        group = shard_group(state.fields["shard"], block.layout.tp, c)
        s = varied(block.layout, **{**state.fields, "shard": group})
        held.append(model_states(w, c, s, stages, parameters))
        exchange = partial(gradient_exchange, w, c, s, stages, block.micro_batches, parameters)
        sends.append(cache(exchange))
        # Sharding changes who writes, not what.
        saved_as = tuple(v for name, v in state.fields.items() if name not in {"sharding", "shard"})
        if saved_as not in sizes:
            sizes[saved_as] = checkpoint_size(w, s)
        saved.append(sizes[saved_as])
        replicas.append(checkpoint_replicas(w, s))
    shape = stages.count.shape
    parked = None
    if any(np.any(memory.host_states) for memory in held):
        parked = _stacked([memory.host_states * c.gpus_per_node for memory in held], shape)
    gather = None
    if any(anything(memory.gather) for memory in held):
        gather = _stacked([memory.gather for memory in held], shape)
    fresh = None
    if any(anything(memory.fresh) for memory in held):
        fresh = _stacked([memory.fresh for memory in held], shape)
    return OptimizerStates(
        levels=tuple(state.fields["sharding"] for state in states),
        device_bytes=_stacked([memory.total - memory.gather for memory in held], shape),
        reserve=c.calibration.memory.buffer,
        gather=gather,
        fresh=fresh,
        parked=parked,
        host=None if parked is None else np.max(parked, axis=1),
        sends=tuple(sends),
        offset=np.array([state.offset for state in states], dtype=np.int64)[:, None],
        ok=np.stack([state.ok for state in states], axis=1),
        checkpoint_bytes=_stacked(saved, shape[1:]),
        replicas=_stacked(replicas, shape[1:]),
    )


def _stacked(parts: list[Numeric], shape: tuple[int, ...]) -> Array:
    stacked = np.empty((len(parts), *shape))
    for at, part in enumerate(parts):
        stacked[at] = part
    return stacked


def least_checkpoint(axes: Axes, workload: Workload) -> Bytes:
    """Bytes of the smallest checkpoint that a strategy of these axes has. [B]"""
    # Sharding changes who writes, not what; and its groups are no numbers yet.
    changing = [axis for axis in within(Scope.STATE) if axis.name != "sharding"]
    sizes = []
    for values in product(*(axes[axis.name] for axis in changing)):
        fields: dict[str, Any] = {}
        for axis, value in zip(changing, values, strict=True):
            fields |= axis.chosen(value)
        sizes.append(float(checkpoint_size(workload, Strategy(**fields))))
    return min(sizes)
