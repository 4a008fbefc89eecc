"""Prices blocks of strategies: memory first, then time for the columns where something fits.

What strategies share is computed once, in the pieces of which `estimate` is made. So every figure
is the one that `estimate` gives for that strategy alone, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mofa_model.axes.rules import AxisContext
from mofa_model.estimate.stage_time import stage_times
from mofa_model.estimate.step import StepInputs, exposed_hops, pipeline_flow, step_time
from mofa_model.placement import spread
from mofa_model.records import varied
from mofa_model.search.axes import Axes
from mofa_model.search.blocks import (
    FeatureValues,
    Overlaps,
    ShapeBlock,
    block_of,
    micro_batch_options,
    with_recomputed_layers,
)
from mofa_model.search.effort import BESIDE, CELL, STATE, WORK
from mofa_model.search.local import LocalShapes
from mofa_model.search.lower_bound import grouped, lower_bounds
from mofa_model.search.memory_fit import Fit, fits_of, rows_with_room
from mofa_model.search.optimizer_states import OptimizerStates, optimizer_states
from mofa_model.search.rank import Leaders
from mofa_model.search.space import DEGREES, Shapes

Array = NDArray[Any]


def price(
    axes: Axes,
    context: AxisContext,
    shapes: Shapes,
    leaders: Leaders,
    advance: Callable[[float], None],
    share: float,
) -> None:
    """Offer every strategy that fits to `leaders`, and count the others there.

    `advance` is called with the share that is done: `share` for each shape.
    """
    every = np.arange(len(shapes.index))
    all_local = LocalShapes(context.workload, context.cluster, shapes.rows, every)
    bounds = lower_bounds(axes, context, shapes, all_local)
    # The first groups find a step time that most of the others cannot beat.
    for first in (True, False):
        groups = grouped(axes, shapes, bounds, first=first)
        some = [group[bounds[group] <= leaders.horizon] for group in groups]
        local = all_local.narrowed(np.concatenate([every[:0], *some]))
        for group in groups:
            count = int(np.searchsorted(bounds[group], leaders.horizon, side="right"))
            leaders.pruned += int(np.sum(shapes.strategies[group[count:]]))
            if count:
                whole = block_of(axes, context, shapes, group[:count])
                states = optimizer_states(axes, context, whole)
                layered = with_recomputed_layers(axes, shapes, whole)
                if states is not None:
                    _price_block(axes, context, whole, states, local, leaders)
                    if layered is not None:
                        states = states.of(layered.origin)
                        _price_block(axes, context, layered, states, local, leaders)
            advance(len(group) * share)


def _price_block(
    axes: Axes,
    context: AxisContext,
    block: ShapeBlock,
    states: OptimizerStates,
    local: LocalShapes,
    leaders: Leaders,
) -> None:
    """Every option of a micro-batch beside every state."""
    levels = len(set(states.levels))
    leaders.effort.spend(levels * (STATE + BESIDE * len(block.index)))
    alive = rows_with_room(axes, context, block, states, leaders)
    if not len(alive):
        return
    if len(alive) < len(block.index):
        block = block.of(alive)
        states = states.of(alive)
    for option in micro_batch_options(axes, block):
        leaders.effort.spend(WORK)
        every = fits_of(context, block, states, option, local, leaders.rejected)
        for overlaps, fit in zip(block.overlaps, every, strict=True):
            if fit is None:
                continue
            leaders.searched += overlaps.strategies(fit.fits)
            if not leaders.searched:
                _remember_leanest(block, states, option, overlaps, fit, leaders)
            wanted = fit.fits if fit.near_bytes is None else fit.fits | (fit.near_bytes > 0)
            columns = np.flatnonzero(wanted.any(axis=0))
            if len(columns):
                leaders.effort.spend(len(overlaps.values) * (WORK + CELL * len(columns)))
                _time(context, block, states, option, overlaps, fit, local, columns, leaders)


def _remember_leanest(
    block: ShapeBlock,
    states: OptimizerStates,
    option: FeatureValues,
    overlaps: Overlaps,
    fit: Fit,
    leaders: Leaders,
) -> None:
    """The strategy that needs the least device memory, for the case that none fits."""
    state, row = np.unravel_index(int(np.argmin(fit.peak)), fit.peak.shape)
    least = float(fit.peak[state, row])
    if least < leaders.leanest_memory:
        offset = states.offset[state, 0] + option.offset + overlaps.values[0].offset[row]
        leaders.leanest_memory = least
        leaders.leanest_index = int(block.index[row] + offset)


def _time(
    context: AxisContext,
    block: ShapeBlock,
    states: OptimizerStates,
    option: FeatureValues,
    overlaps: Overlaps,
    fit: Fit,
    local: LocalShapes,
    columns: Array,
    leaders: Leaders,
) -> None:
    """Step times of the columns in which something fits, under every choice of overlap."""
    w, c, stages = context.workload, context.cluster, block.stage_kinds
    base = varied(block.layout, **option.fields)
    if len(columns) < len(block.index):
        stages = stages.of(columns)
        degrees = (*DEGREES, "recompute_layers")
        base = varied(base, **{name: _picked(getattr(base, name), columns) for name in degrees})
    m, position = block.micro_batches[columns], local.position[block.members[columns]]
    for overlap in overlaps.values:
        s = varied(base, **overlap.fields)
        stage = stage_times(w, c, s, stages, *spread(local.times(s), position))
        flow = pipeline_flow(s, stage, m)
        pipeline = s.schedule.time(flow)
        hops = exposed_hops(w, c, s, flow, pipeline)
        # A pipeline that alone takes longer than the last of the leaders cannot be among them.
        hopeful = np.flatnonzero(overlap.ok[columns] & (pipeline + hops <= leaders.horizon))
        if not len(hopeful):
            continue
        rows = columns[hopeful]
        index = block.index[rows] + (option.offset + overlap.offset[rows])
        slowest, micro_batches = _picked(stage.slowest, hopeful), m[hopeful]
        pipeline, hops = _picked(pipeline, hopeful), _picked(hops, hopeful)
        inputs = StepInputs(
            workload=w,
            cluster=c,
            strategy=varied(s, **{name: _picked(getattr(s, name), hopeful) for name in DEGREES}),
            micro_batches=micro_batches,
            slowest=slowest,
            pipeline=pipeline,
            hops=hops,
            exchange=states.sent(rows),
        )
        step = np.asarray(step_time(inputs).total)
        fitting, peak = np.take(fit.fits, rows, axis=1), np.take(fit.peak, rows, axis=1)
        leaders.offer(step, index, block.shape_indices[rows], states, rows, fitting, peak)
        if fit.near_bytes is not None:
            leaders.miss(step, index, states, np.take(fit.near_bytes, rows, axis=1))


def _picked(value: Any, columns: Array) -> Any:
    return value[columns] if np.ndim(value) else value
