"""Memory of a block of strategies: which states and rows have room, and which strategies of a
row fit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from functools import reduce
from itertools import pairwise
from operator import or_
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.axes.rejection import Rejection
from mofa_model.axes.rules import AxisContext
from mofa_model.checks import anything
from mofa_model.estimate.activation_memory import (
    head_memory,
    in_flight,
    stored_activations,
    under_autocast,
    with_loss,
)
from mofa_model.estimate.terms import Footprint, device_memory_limit, host_memory_limit
from mofa_model.records import dataclass, varied
from mofa_model.search.axes import Axes
from mofa_model.search.blocks import (
    FeatureValues,
    OptimizerStates,
    Overlaps,
    ShapeBlock,
    numbers_of_options,
)
from mofa_model.search.local import LocalShapes
from mofa_model.search.rank import Leaders
from mofa_model.strategy import Sharding, Strategy
from mofa_model.units import Bytes

NEAR: Final = 1.15
"""Strategies that would fit with 15 % more memory are priced as well, to say what more memory would
give."""

Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True, eq=False)
class Fit:
    """Which states fit beside an option of a micro-batch, for some rows of a block."""

    rows: Array
    """Positions of the rows in the block."""
    strategy: Strategy
    """The layouts of the rows with the option, without their states."""
    index: Array
    """Raw index of each row with the option, without its state."""
    fits: Array
    """[states, rows]"""
    near_bytes: Array | None
    """Bytes where it almost fits, else zero, [states, rows]; None where nothing does. [B]"""
    peak: Array
    """Bytes on the fullest device, infinite where it is not legal, [states, rows]. [B]"""

    def beside(self, overlap: FeatureValues, wanted: Array) -> Fit:
        """The same beside a choice of overlap too, for the `wanted` rows that can have it."""
        wanted = wanted[overlap.ok[wanted]]
        features = dict(overlap.fields)
        if np.ndim(layers := self.strategy.recompute_layers):
            features["recompute_layers"] = np.asarray(layers)[wanted]
        near = self.near_bytes
        return Fit(
            rows=self.rows[wanted],
            strategy=varied(self.strategy, **features),
            index=self.index[wanted] + overlap.offset[wanted],
            fits=self.fits.take(wanted, axis=1),
            near_bytes=None if near is None else near.take(wanted, axis=1),
            peak=self.peak.take(wanted, axis=1),
        )


def with_room(
    axes: Axes,
    context: AxisContext,
    block: ShapeBlock,
    states: OptimizerStates,
    leaders: Leaders,
) -> Array:
    """Where a state has room beside some row for what stays in memory, and a row beside some state,
    [states, rows]; strategies of the others are counted.

    `states` are those of the rows from which the block's rows come.
    """
    held = states.device_bytes if states.gather is None else states.device_bytes + states.gather
    least: Array = np.where(reduce(or_, states.ok), np.max(held, axis=1), np.inf)
    full: Array = least > device_memory_limit(context.cluster) * context.memory_share * NEAR
    if not leaders.searched:  # where nothing fits, the answer names the leanest strategy
        full &= least >= leaders.leanest_memory
    kept, alive = (np.logical_not(np.all(full, axis=axis)) for axis in (1, 0))
    room: Array = np.outer(kept, alive)
    left: Array = ~room
    rows = np.flatnonzero(left[:, block.origin].any(axis=0))
    if len(rows):
        options, origin = numbers_of_options(axes, block)[:, rows], block.origin[rows]
        for overlaps in block.overlaps:
            repeated = overlaps.repeated
            repeated = repeated if isinstance(repeated, int) else repeated[rows]
            for at in overlaps.bundles:
                beside = np.count_nonzero(states.ok[at] & left, axis=0)[origin]
                leaders.rejected[Rejection.OUT_OF_MEMORY] += int(
                    np.sum(beside * options[at] * repeated)
                )
    return room


class BlockMemory:
    """Memory of the strategies of a block. Options of one micro-batch share chunks in flight, head
    and loss, which are computed once.
    """

    def __init__(
        self,
        context: AxisContext,
        block: ShapeBlock,
        rows: Array,
        states: OptimizerStates,
        local: LocalShapes,
    ) -> None:
        """`block` has these `rows` of a larger one."""
        self._context, self._block, self._states, self._local = context, block, states, local
        self._rows = rows
        self._chunks = in_flight(context.workload, block.layout, block.stage_kinds)
        self._heads: dict[Hashable, Footprint] = {}
        # Of activations and loss nothing depends on the level, but on whether weights are sharded,
        # and on whether each product casts them.
        like = [self._like(level) for level in states.levels]
        ends = [at for at in range(1, len(like)) if like[at] is not like[at - 1]]
        self._parts = [
            (slice(first, last), like[first]) for first, last in pairwise([0, *ends, len(like)])
        ]
        """States that stand together, with the level that says what beside them depends on it."""

    def _like(self, level: Sharding) -> Sharding:
        """The level of sharding to price activations and loss for: levels with equal ones are
        priced once.
        """
        context = self._context
        plain = varied(self._block.layout, sharding=level)
        constants = context.cluster.calibration.memory
        if level is Sharding.WEIGHTS or under_autocast(context.workload, constants, plain):
            return level
        return Sharding.OPTIMIZER

    def fits_of(self, option: FeatureValues, rejected: Counter[Rejection]) -> list[Fit | None]:
        """For each of the block's overlaps, which states fit beside an option, None where it is
        legal beside none; counts the others.
        """
        context, block, states = self._context, self._block, self._states
        w, c = context.workload, context.cluster
        s = varied(block.layout, **option.fields)
        # Activations, with and without casts for each product.
        activations: dict[bool, Footprint] = {}
        peak = np.empty((len(states.levels), len(block.index)))
        for alike, level in self._parts:
            leveled = varied(s, sharding=level)
            if (casts := level is Sharding.NONE) not in activations:
                stored = self._local.stored(leveled, block.members)
                activations[casts] = stored_activations(
                    w, leveled, block.stage_kinds, stored, self._chunks
                )
            loss = with_loss(w, c, leveled, activations[casts], self._head(leveled))
            moving = np.asarray(loss.total)
            if states.gather is not None:
                moving = np.maximum(states.gather[alike], moving)
            if states.fresh is not None:
                moving = np.maximum(states.fresh[alike] + loss.ending, moving)
            _largest_sum(states.device_bytes[alike], moving, peak[alike])
        host = _host_bytes(context, block, states, self._parked(activations))
        index, fits = block.index + option.offset, list[Fit | None]()
        has_rows = np.any(option.ok, axis=1).tolist()
        for overlaps in block.overlaps:
            bundles = [at for at in overlaps.bundles if has_rows[at]]
            legal = [states.ok[at] & option.ok[at] for at in bundles]
            fits.append(
                self._fit(s, index, reduce(or_, legal), peak, host, overlaps, rejected)
                if legal
                else None
            )
        return fits

    def _parked(self, activations: dict[bool, Footprint]) -> Bytes:
        """Activations that a node's devices park in its host, [kinds, rows], or [states, kinds,
        rows] where they differ between states: `host_bytes`, kind by kind. [B]
        """
        each = self._context.cluster.gpus_per_node
        footprints = activations.values()
        if len(footprints) == 1 or not any(anything(f.host_activations) for f in footprints):
            return next(iter(footprints)).host_activations * each
        shape = self._block.stage_kinds.count.shape
        return each * np.stack(
            [
                np.broadcast_to(activations[level is Sharding.NONE].host_activations, shape)
                for alike, level in self._parts
                for _ in range(alike.start, alike.stop)
            ]
        )

    def _fit(
        self,
        strategy: Strategy,
        index: Array,
        legal: Array,
        peak: Array,
        host: Array | None,
        overlaps: Overlaps,
        rejected: Counter[Rejection],
    ) -> Fit:
        """What fits of a strategy with an option, by its memory; counts what does not."""
        cluster = self._context.cluster
        limit = device_memory_limit(cluster) * self._context.memory_share
        fits = legal & (peak <= limit)
        near = (peak <= limit * NEAR) & legal
        near ^= fits  # what fits is near as well
        left = overlaps.strategies(fits)
        rejected[Rejection.OUT_OF_MEMORY] += overlaps.strategies(legal) - left
        if host is not None:
            roomy = host <= host_memory_limit(cluster)
            fits, near = fits & roomy, near & roomy
            rejected[Rejection.OUT_OF_HOST_MEMORY] += left - overlaps.strategies(fits)
        return Fit(
            rows=self._rows,
            strategy=strategy,
            index=index,
            fits=fits,
            near_bytes=np.where(near, peak, 0.0) if near.any() else None,
            # Where something fits nobody asks for the leanest.
            peak=peak if fits.any() else np.where(legal, peak, np.inf),
        )

    def _head(self, s: Strategy) -> Footprint:
        key = s.sharding, s.sequence_parallel
        if key not in self._heads:
            context, kinds = self._context, self._block.stage_kinds
            self._heads[key] = head_memory(context.workload, context.cluster, s, kinds)
        return self._heads[key]


def _host_bytes(
    context: AxisContext, block: ShapeBlock, states: OptimizerStates, parked: Bytes
) -> Array | None:
    """Host memory of a node, [states, rows] or [rows]; None where all have room. [B]"""
    memory = host_memory_limit(context.cluster)
    if not anything(parked):
        return states.host
    shape = block.stage_kinds.count.shape
    beside: Array = np.asarray(parked) if np.ndim(parked) > 2 else np.broadcast_to(parked, shape)
    activations: Array = np.max(beside, axis=-2)
    if states.parked is None or states.host is None:
        return activations
    # Both at their largest, and what the sum of all of a node's devices is rounded by.
    if float(activations.max()) + float(states.host.max()) <= 0.999 * memory:
        return None
    host = np.empty_like(states.host)
    _largest_sum(states.parked, beside, host)
    return host


def _largest_sum(held: Array, moving: Array, peak: Array) -> None:
    """Write the maximum over kinds of stages of the sum, from [states, kinds, rows] and such an
    array or [kinds, rows]. [B]
    """
    np.add(held[:, 0], moving[..., 0, :], out=peak)
    room_for_sum = np.empty_like(peak)
    for k in range(1, held.shape[1]):
        np.add(held[:, k], moving[..., k, :], out=room_for_sum)
        np.maximum(peak, room_for_sum, out=peak)
