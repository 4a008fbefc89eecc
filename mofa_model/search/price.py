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
from mofa_model.axes.rules import Given
from mofa_model.axes.verdict import Rejection
from mofa_model.checks import field_names
from mofa_model.estimate.exchange import exposed_time, overlap_window
from mofa_model.estimate.footprint import host_room, room
from mofa_model.estimate.live import waiting, with_loss
from mofa_model.estimate.stage import stage_times
from mofa_model.estimate.step import pipeline_times, step_terms
from mofa_model.placement import Stages, spread
from mofa_model.search.axes import Axes, within
from mofa_model.search.blocks import Company, ShapeBlock, blocks_of
from mofa_model.search.floor import by_floor
from mofa_model.search.local import Locals, varied
from mofa_model.search.rank import Leaders
from mofa_model.search.space import DEGREES, Features, Shapes
from mofa_model.search.states import ZeroLevel, states_of
from mofa_model.search.works import Work, works_of
from mofa_model.spec import Cluster
from mofa_model.strategy import Sharding, Strategy

NEAR: Final = 1.15
"""Strategies that would fit with 15 % more memory are priced as well, to say what more memory would give."""

_OF_STEP: Final = tuple(name for axis in within(Scope.STEP) for name in axis.fields)
"""Features that change what a step adds to its pipeline."""

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class _Fit:
    """What fits of a state beside a kind of work."""

    state: ZeroLevel
    fits: Array
    """[states, rows]"""
    near: Array | None
    """Bytes where it almost fits, else zero, [states, rows]; None where nothing does."""
    peak: Array
    """Bytes on the fullest device, infinite where it is not legal, [states, rows]. [B]"""


def price(
    axes: Axes,
    given: Given,
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
                for block, rows in blocks_of(axes, given, shapes, features, part.schedule, members):
                    rejected += _price_block(
                        axes, given, block, local, local.position[members[rows]], leaders
                    )
            advance(len(part.members))
    return +rejected


def _price_block(
    axes: Axes, given: Given, block: ShapeBlock, local: Locals, position: Array, leaders: Leaders
) -> Counter[Rejection]:
    """Every kind of work of a block beside every state."""
    rejected = Counter[Rejection]()
    states = states_of(axes, given, block)
    for work in works_of(axes, block):
        memory = _memory(given, block, states, work, local, position)
        for company in block.companies:
            fitting = _fitting(given, memory, work, company, rejected)
            leaders.searched += sum(_counted(fit.fits, company) for fit in fitting)
            if not leaders.searched:
                _remember_leanest(block, work, company, fitting, leaders)
            wanted = [np.any(f.fits if f.near is None else f.fits | (f.near > 0), axis=0) for f in fitting]
            columns = np.flatnonzero(np.logical_or.reduce(wanted)) if wanted else np.zeros(0, dtype=np.int64)
            if len(columns):
                _time(given, block, company, fitting, work, local, position, columns, leaders)
    return rejected


@dataclass(frozen=True, slots=True)
class _Memory:
    """What a state needs beside a kind of work."""

    state: ZeroLevel
    peak: Array
    """Bytes on the fullest device, [states, rows]. [B]"""
    host: Array | None
    """Host memory of a node, [states, rows] or [rows]; None where all have room. [B]"""


def _memory(
    given: Given, block: ShapeBlock, states: list[ZeroLevel], work: Work, local: Locals, position: Array
) -> list[_Memory]:
    """Memory of one kind of work beside every state."""
    w, c = given.workload, given.cluster
    stored = waiting(w, work.strategy, block.stages, spread(local.stored(work.strategy), position))
    # A node's host holds what its devices park, states and activations: `host_bytes`, kind by kind.
    parked = np.broadcast_to(stored.parked * c.gpus_per_node, block.stages.count.shape)
    moving: dict[bool, Array] = {}
    found = []
    for state in states:
        whole = state.level.sharding is Sharding.WEIGHTS  # the one level that the loss depends on
        if whole not in moving:
            s = varied(work.strategy, sharding=state.level.sharding)
            moving[whole] = np.asarray(with_loss(w, c, s, block.stages, stored).total)
        found.append(_Memory(state, _largest_sum(state.held, moving[whole]), _host(given, state, parked)))
    return found


def _fitting(
    given: Given, memory: list[_Memory], work: Work, company: Company, rejected: Counter[Rejection]
) -> list[_Fit]:
    """What fits of one kind of work beside every state, in some bundles."""
    bundles = [at for at in company.bundles if at in work.ok]
    limit = room(given.cluster)
    found = []
    for one in memory if bundles else ():
        legal = work.legal(one.state, bundles)
        fits = legal & (one.peak <= limit)
        near = (one.peak <= limit * NEAR) & legal
        near ^= fits  # what fits is near as well
        rejected[Rejection.OUT_OF_MEMORY] += _counted(legal, company) - _counted(fits, company)
        if one.host is not None:
            roomy = one.host <= host_room(given.cluster)
            inside = fits & roomy
            rejected[Rejection.OUT_OF_HOST_MEMORY] += _counted(fits, company) - _counted(inside, company)
            fits, near = inside, near & roomy
        # Where something fits nobody asks for the leanest.
        bare = one.peak if fits.any() else np.where(legal, one.peak, np.inf)
        found.append(_Fit(one.state, fits, np.where(near, one.peak, 0.0) if near.any() else None, bare))
    return found


def _remember_leanest(
    block: ShapeBlock, work: Work, company: Company, fitting: list[_Fit], leaders: Leaders
) -> None:
    """The strategy that needs the least device memory, for the case that none fits."""
    for fit in fitting:
        at = np.unravel_index(int(np.argmin(fit.peak)), fit.peak.shape)
        least = float(fit.peak[at])
        if least < leaders.leanest[0]:
            offset = int(fit.state.offset[at[0], 0]) + work.offset + int(company.overlaps[0].offset[at[1]])
            leaders.leanest = (least, int(block.index[at[1]]) + offset)


def _counted(mask: Array, company: Company) -> int:
    """Strategies behind a mask over rows. [1]"""
    if isinstance(company.repeated, int):
        return int(np.count_nonzero(mask)) * company.repeated
    return int(np.count_nonzero(mask, axis=0) @ company.repeated)


def _host(given: Given, state: ZeroLevel, parked: Array) -> Array | None:
    """Host memory of a node, [states, rows] or [rows]; None where all have room. [B]"""
    memory = host_room(given.cluster)
    if not parked.any():
        return state.host
    alone: Array = np.max(parked, axis=0)
    if state.parked is None or state.host is None:
        return alone
    if float(alone.max()) + float(state.host.max()) <= 0.999 * memory:
        return None
    return _largest_sum(state.parked, parked)


def _largest_sum(held: Array, moving: Array) -> Array:
    """The fullest kind of stage, from [states, kinds, rows] and [kinds, rows]: max over kinds of their sum. [B]"""
    kinds = held.shape[1]
    peak: Array = held[:, 0] + moving[0]
    room_for_sum = np.empty_like(peak)
    for k in range(1, kinds):
        np.add(held[:, k], moving[k], out=room_for_sum)
        np.maximum(peak, room_for_sum, out=peak)
    return peak


def _time(
    given: Given,
    block: ShapeBlock,
    company: Company,
    fitting: list[_Fit],
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
        stages = Stages(*(np.take(getattr(stages, name), columns, axis=-1) for name in field_names(Stages)))
        degrees = (*DEGREES, "recompute_layers")
        picked = varied(picked, **{name: _picked(getattr(picked, name), columns) for name in degrees})
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
            for fit in fitting:
                _step(c, varied(fit.state.level, **of_step, **chunks), fit, here, leaders)


def _step(cluster: Cluster, level: Strategy, fit: _Fit, at: _Timed, leaders: Leaders) -> None:
    """Whole steps of every state, for columns whose pipelines are known."""
    state, columns = fit.state, at.columns
    collective = np.take(state.collective, columns, axis=1)
    terms = step_terms(
        cluster,
        slowest=at.slowest,
        micro_batches=at.micro_batches,
        pipeline=at.pipeline,
        hops=at.hops,
        data=exposed_time(cluster, level, collective, overlap_window(level, at.slowest, at.micro_batches)),
        embedding=_picked(state.embedding, columns),
        optimizer=np.take(state.optimizer, columns, axis=1),
    )
    step = np.asarray(terms.total)
    leaders.offer(step, at.index, at.shapes, state, columns, np.take(fit.fits, columns, axis=1))
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
