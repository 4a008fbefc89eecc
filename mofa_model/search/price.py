"""Prices blocks of strategies: memory first, then time for the columns where something fits.

What strategies share is asked for once, in the pieces that `estimate` is made of; so every figure is the one that
`estimate` gives for that strategy alone, bit for bit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.axes.axis import Scope
from mofa_model.axes.rejection import Rejection
from mofa_model.axes.rules import AxisContext
from mofa_model.estimate.exchange import exposed_time, overlap_window
from mofa_model.estimate.stage import stage_times
from mofa_model.estimate.step import pipeline_times, step_terms
from mofa_model.placement import spread
from mofa_model.search.axes import Axes, within
from mofa_model.search.blocks import Company, ShapeBlock, blocks_of
from mofa_model.search.effort import BESIDE, CELL, STATE, WORK
from mofa_model.search.floor import by_floor
from mofa_model.search.local import Locals, varied
from mofa_model.search.rank import Leaders
from mofa_model.search.room import (
    FitsBeside,
    fitting,
    memory_beside,
    strategies_behind,
    without_room,
)
from mofa_model.search.space import DEGREES, Features, Shapes
from mofa_model.search.states import ZeroLevel, states_of
from mofa_model.search.works import Work, works_of
from mofa_model.spec import Cluster
from mofa_model.strategy import Strategy

_OF_STEP: Final = tuple(name for axis in within(Scope.STEP) for name in axis.fields)
"""Features that change what a step adds to its pipeline."""

Array = NDArray[Any]


def price(
    axes: Axes,
    given: AxisContext,
    shapes: Shapes,
    features: Features,
    leaders: Leaders,
    advance: Callable[[float], None] = lambda _: None,
) -> Counter[Rejection]:
    """Offers every strategy that fits to `leaders`; counts those that do not. `advance` hears of shapes done."""
    rejected = Counter[Rejection]()
    every = Locals(given.workload, given.cluster, shapes.rows, np.arange(len(shapes.index)))
    parts = by_floor(axes, given, shapes, features, every)
    # The first parts find a step time that most of the others cannot beat.
    for phase in ([p for p in parts if p.first], [p for p in parts if not p.first]):
        some = [part.members[: part.hopeful(leaders.horizon)] for part in phase]
        local = every.narrowed(np.concatenate([np.zeros(0, dtype=np.int64), *some]))
        for part in phase:
            count = part.hopeful(leaders.horizon)
            leaders.pruned += int(np.sum(features.legal[part.members[count:]]))
            if count:
                members = part.members[:count]
                whole, again = blocks_of(axes, given, shapes, features, part.schedule, members)
                states = states_of(axes, given, whole)
                rejected += _price_block(axes, given, whole, states, local, leaders)
                if again is not None:
                    states = [state.of(again.origin) for state in states]
                    rejected += _price_block(axes, given, again, states, local, leaders)
            advance(len(part.members))
    return +rejected


def _price_block(
    axes: Axes,
    given: AxisContext,
    block: ShapeBlock,
    states: list[ZeroLevel],
    local: Locals,
    leaders: Leaders,
) -> Counter[Rejection]:
    """Every kind of work of a block beside every state."""
    leaders.effort.spend(len(states) * (STATE + BESIDE * len(block.index)))
    rejected, alive = without_room(axes, given, block, states, leaders)
    if not len(alive):
        return rejected
    if len(alive) < len(block.index):
        block = block.of(alive)
        states = [state.of(alive) for state in states]
    position = local.position[block.members]
    for work in works_of(axes, block):
        leaders.effort.spend(WORK)
        memory = memory_beside(given, block, states, work, local, position)
        for company in block.companies:
            beside = fitting(given, memory, work, company, rejected)
            leaders.searched += sum(strategies_behind(fit.fits, company) for fit in beside)
            if not leaders.searched:
                _remember_leanest(block, work, company, beside, leaders)
            wanted = [
                np.any(f.fits if f.near is None else f.fits | (f.near > 0), axis=0) for f in beside
            ]
            columns = (
                np.flatnonzero(np.logical_or.reduce(wanted))
                if wanted
                else np.zeros(0, dtype=np.int64)
            )
            if len(columns):
                leaders.effort.spend(len(company.overlaps) * (WORK + CELL * len(columns)))
                _time(given, block, company, beside, work, local, position, columns, leaders)
    return rejected


def _remember_leanest(
    block: ShapeBlock, work: Work, company: Company, beside: list[FitsBeside], leaders: Leaders
) -> None:
    """The strategy that needs the least device memory, for the case that none fits."""
    for fit in beside:
        at = np.unravel_index(int(np.argmin(fit.peak)), fit.peak.shape)
        least = float(fit.peak[at])
        if least < leaders.leanest[0]:
            offset = (
                int(fit.state.offset[at[0], 0])
                + work.offset
                + int(company.overlaps[0].offset[at[1]])
            )
            leaders.leanest = (least, int(block.index[at[1]]) + offset)


def _time(
    given: AxisContext,
    block: ShapeBlock,
    company: Company,
    beside: list[FitsBeside],
    work: Work,
    local: Locals,
    position: Array,
    columns: Array,
    leaders: Leaders,
) -> None:
    """Step times of the columns in which something fits, under every choice of overlap."""
    w, c = given.workload, given.cluster
    stages, picked = block.stages, work.strategy
    if len(columns) < len(block.index):
        stages = stages.of(columns)
        degrees = (*DEGREES, "recompute_layers")
        picked = varied(
            picked, **{name: _picked(getattr(picked, name), columns) for name in degrees}
        )
    m, position = block.rows["micro_batches"][columns], position[columns]
    for overlap in company.overlaps:
        s = varied(picked, **overlap.flags)
        stage = stage_times(w, c, s, stages, *spread(local.times(s), position))
        pipeline, hops = pipeline_times(w, c, s, stage, m)
        # What the pipeline alone takes longer than the last of the leaders cannot be among them.
        hopeful = np.flatnonzero(overlap.ok[columns] & (pipeline + hops <= leaders.horizon))
        if len(hopeful):
            here = _Timed(
                columns[hopeful],
                _picked(stage.slowest, hopeful),
                _picked(pipeline, hopeful),
                _picked(hops, hopeful),
                m[hopeful],
                block.shapes[columns[hopeful]],
                block.index[columns[hopeful]] + (work.offset + overlap.offset[columns[hopeful]]),
            )
            of_step = {name: getattr(s, name) for name in _OF_STEP}
            chunks = {name: _picked(getattr(s, name), hopeful) for name in ("pp", "vpp")}
            for fit in beside:
                _step(c, varied(fit.state.level, **of_step, **chunks), fit, here, leaders)


def _step(cluster: Cluster, level: Strategy, fit: FitsBeside, at: _Timed, leaders: Leaders) -> None:
    """Whole steps of every state, for columns whose pipelines are known."""
    state, columns = fit.state, at.columns
    collective = np.take(state.collective, columns, axis=1)
    terms = step_terms(
        cluster,
        slowest=at.slowest,
        micro_batches=at.micro_batches,
        pipeline=at.pipeline,
        hops=at.hops,
        data=exposed_time(
            cluster, level, collective, overlap_window(level, at.slowest, at.micro_batches)
        ),
        embedding=_picked(state.embedding, columns),
        optimizer=np.take(state.optimizer, columns, axis=1),
    )
    step = np.asarray(terms.total)
    fits, peak = np.take(fit.fits, columns, axis=1), np.take(fit.peak, columns, axis=1)
    leaders.offer(step, at.index, at.shapes, state, columns, fits, peak)
    if fit.near is not None:
        leaders.miss(step, at.index, state, np.take(fit.near, columns, axis=1))


@dataclass(frozen=True, slots=True)
class _Timed:
    """Columns whose pipelines are known."""

    columns: Array
    slowest: Array
    pipeline: Array
    hops: Array
    micro_batches: Array
    shapes: NDArray[np.int64]
    index: NDArray[np.int64]


def _picked(value: Any, columns: Array) -> Any:
    return value[columns] if np.ndim(value) else value
