"""Prices blocks of strategies: memory first, then time for the columns where something fits.

What strategies share is computed once, in the pieces of which `estimate` is made. So every figure
is the one that `estimate` gives for that strategy alone, bit for bit.

Shapes are priced in the order of a lower bound on their step times, so that good strategies are
found early. A shape whose bound lies above every step time that is worth looking at is left out,
with all its features. That loses nothing:

    recomputation and offload only add to a micro-batch's work; the bound leaves their work out
    sharding and placement only add to the step; the bound leaves traffic and update out
    m micro-batches take the slowest device m C; what a schedule fills and drains on top is its own,
    (S - C) / v for 1F1B, and the others' forwards where weight gradients are put off

with C the slowest device's time for a micro-batch and S the sum over devices. Overlap and graphs
are taken at their best.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import reduce
from itertools import product
from operator import and_
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.axes.axis import Axis, Scope
from mofa_model.axes.rules import AxisContext
from mofa_model.estimate.gradient_exchange import GradientExchange
from mofa_model.estimate.stage_time import StageTime, feature_effects, stage_times
from mofa_model.estimate.step import (
    StepInputs,
    exposed_hops,
    hop_time,
    pipeline_flow,
    step_time,
)
from mofa_model.placement import Stages, joined, picked, stages_of
from mofa_model.records import varied
from mofa_model.schedules import Flow, Schedule
from mofa_model.search.axes import Axes, within
from mofa_model.search.blocks import (
    OptimizerStates,
    Overlaps,
    ShapeBlock,
    block_of,
    by_sequence_parallelism,
    micro_batch_options,
    optimizer_states,
    with_recomputed_layers,
)
from mofa_model.search.local import LocalShapes, layer_times_in
from mofa_model.search.memory_fit import BlockMemory, Fit, with_room
from mofa_model.search.rank import BESIDE, CELL, STATE, WORK, Leaders
from mofa_model.search.space import DEGREES, Shapes, never_slower
from mofa_model.spec import Cluster, Workload
from mofa_model.strategy import Strategy

Array = NDArray[Any]


BLOCK: Final = 2048
"""Shapes in a block: with the states of a ZeRO level beside them, the temporaries of an equation
stay in the cache."""
FIRST: Final = 512
"""Shapes in the first block of a schedule: enough to find a step time that most others cannot
beat."""
TOGETHER: Final = 4096
"""Rows with layers that are recomputed that are priced at once, and columns that wait, over all
options, until their stages are timed."""
AT_ONCE: Final = 512
"""Columns whose steps are priced before the leaders' cut is asked again."""
SLACK: Final = 1.0 - 1e-9
"""Rounding by which a bound may be too high."""

_ADDED: Final = ("recompute", "offload")
"""Features that only add to a micro-batch's work."""
_TIMED: Final = tuple(axis for axis in within(Scope.WORK, Scope.LAYER) if axis.name not in _ADDED)
"""Features that can make a stage faster."""
OF_STEPS: Final = tuple(name for axis in within(Scope.PIPELINE, Scope.STEP) for name in axis.fields)
"""Fields that change what is made of the times of stages."""


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
    local = LocalShapes(context.workload, context.cluster, shapes.rows)
    bounds = lower_bounds(axes, context, shapes, local)
    for group in grouped(axes, shapes, bounds):
        count = int(np.searchsorted(bounds[group], leaders.horizon, side="right"))
        leaders.pruned += int(np.sum(shapes.strategies[group[count:]]))
        if count:
            whole = block_of(axes, context, shapes, group[:count])
            states = optimizer_states(axes, context, whole)
            layered = with_recomputed_layers(axes, shapes, whole)
            if states is not None:
                parts = [whole, *(() if layered is None else _pieces(layered))]
                for part in parts:
                    _price_block(axes, context, part, states, local, bounds, leaders)
        advance(len(group) * share)


def _pieces(block: ShapeBlock) -> Iterator[ShapeBlock]:
    """A block's rows, so many at once that the temporaries of an equation stay small."""
    rows = np.arange(len(block.index))
    for piece in np.split(rows, range(TOGETHER, len(rows), TOGETHER)):
        yield block.of(piece)


def _price_block(
    axes: Axes,
    context: AxisContext,
    block: ShapeBlock,
    states: OptimizerStates,
    local: LocalShapes,
    bounds: Array,
    leaders: Leaders,
) -> None:
    """Price every option of a micro-batch beside every optimizer state, for the rows of a block."""
    levels = len(set(states.levels))
    leaders.effort.spend(levels * (STATE + BESIDE * len(block.index)))
    room = with_room(axes, context, block, states, leaders)
    alive = np.flatnonzero(room[:, block.origin].any(axis=0))
    if not len(alive):
        return
    states = states.only(np.flatnonzero(room.any(axis=1)))
    exchange = states.exchange()
    # Columns of all options wait until TOGETHER of them can be timed in one go.
    waiting: dict[Hashable, list[Fit]] = {}
    for rows, part in by_sequence_parallelism(block, alive):
        beside = states.of(part.origin)
        memory = BlockMemory(context, part, rows, beside, local)
        for option in micro_batch_options(axes, part):
            leaders.effort.spend(WORK)
            every = memory.fits_of(option, leaders.rejected)
            beatable = bounds[part.members] <= leaders.horizon
            for overlaps, fit in zip(part.overlaps, every, strict=True):
                if fit is None:
                    continue
                leaders.searched += overlaps.strategies(fit.fits)
                # Where nothing fits at all, the answer names the strategy that needs least.
                if not leaders.searched:
                    _remember_leanest(beside, overlaps, fit, leaders)
                wanted = fit.fits if fit.near_bytes is None else fit.fits | (fit.near_bytes > 0)
                columns = np.flatnonzero(wanted.any(axis=0))
                if len(columns):
                    leaders.effort.spend(len(overlaps.values) * (WORK + CELL * len(columns)))
                    # What cannot beat the leaders was counted above, and is not timed.
                    columns = columns[beatable[columns]]
                for overlap in overlaps.values if len(columns) else ():
                    apart = tuple(overlap.fields[name] for name in OF_STEPS)
                    choices = waiting.setdefault(apart, [])
                    choices.append(fit.beside(overlap, columns))
                    if sum(len(choice.rows) for choice in choices) >= TOGETHER:
                        _time(context, block, states, exchange, waiting.pop(apart), local, leaders)
    for choices in waiting.values():
        _time(context, block, states, exchange, choices, local, leaders)


def _remember_leanest(
    states: OptimizerStates, overlaps: Overlaps, fit: Fit, leaders: Leaders
) -> None:
    """The strategy that needs the least device memory, for the case that none fits."""
    state, row = np.unravel_index(int(np.argmin(fit.peak)), fit.peak.shape)
    least = float(fit.peak[state, row])
    if least < leaders.leanest_memory:
        offset = states.offset[state, 0] + overlaps.values[0].offset[row]
        leaders.leanest_memory = least
        leaders.leanest_index = int(fit.index[row] + offset)


def _time(
    context: AxisContext,
    block: ShapeBlock,
    states: OptimizerStates,
    exchange: GradientExchange,
    choices: list[Fit],
    local: LocalShapes,
    leaders: Leaders,
) -> None:
    """Write the step times of all options of a block; layouts with the shortest pipelines come
    first.

    What does not depend on the option is computed once.
    """
    w, c = context.workload, context.cluster
    columns = np.concatenate([choice.rows for choice in choices])
    m = block.micro_batches[columns]
    degrees = {name: getattr(block.layout, name)[columns] for name in DEGREES}
    s = varied(choices[0].strategy, **degrees)
    parts = [(choice.strategy, block.members[choice.rows]) for choice in choices]
    stage = stages_timed(w, c, s, block.stage_kinds.of(columns), local, parts)
    flow = pipeline_flow(s, stage, m)
    pipeline = s.schedule.time(flow)
    hops = exposed_hops(s, flow, pipeline, hop_times(w, c, s, parts))
    least = np.asarray(pipeline + hops)
    index = np.concatenate([choice.index for choice in choices])
    fits = np.concatenate([choice.fits for choice in choices], axis=1)
    peak = np.concatenate([choice.peak for choice in choices], axis=1)
    near_parts = (
        np.zeros_like(choice.peak) if choice.near_bytes is None else choice.near_bytes
        for choice in choices
    )
    near = np.concatenate([*near_parts], axis=1)
    rising = np.argsort(least, kind="stable")
    for first in range(0, len(rising), AT_ONCE):
        timed = rising[first : first + AT_ONCE]
        # A pipeline that alone takes longer than the last of the leaders cannot be among them.
        timed = timed[least[timed] <= leaders.horizon]
        if not len(timed):
            return
        shapes, beside = block.shape_indices[columns[timed]], block.origin[columns[timed]]
        inputs = StepInputs(
            workload=w,
            cluster=c,
            strategy=varied(s, **{name: degrees[name][timed] for name in DEGREES}),
            micro_batches=m[timed],
            slowest=picked(stage.slowest, timed),
            pipeline=picked(pipeline, timed),
            hops=picked(hops, timed),
            exchange=_sent(exchange, beside),
        )
        step = np.asarray(step_time(inputs).total)
        fitting, held = fits.take(timed, axis=1), peak.take(timed, axis=1)
        leaders.offer(step, index[timed], shapes, states, beside, fitting, held)
        leaders.miss(step, index[timed], states, near.take(timed, axis=1))


def _sent(exchange: GradientExchange, rows: Array) -> GradientExchange:
    """The gradient exchange of some of the rows."""
    embedding = exchange.embedding
    return varied(
        exchange,
        collective=np.take(exchange.collective, rows, axis=1),
        embedding=np.take(embedding, rows) if np.ndim(embedding) else embedding,
        optimizer=np.take(exchange.optimizer, rows, axis=1),
    )


def stages_timed(
    workload: Workload,
    cluster: Cluster,
    family: Strategy,
    stage_kinds: Stages,
    local: LocalShapes,
    by_work: Sequence[tuple[Strategy, Array]],
) -> StageTime:
    """Times of all stages of a family of layouts, computed at once.

    The family is in parts, one behind the other; layouts of a part do the same work in a
    micro-batch. `by_work` has for each part a strategy with that work, and the part's rows in the
    table of `local`.
    """
    sizes = [len(rows) for _, rows in by_work]
    timed, effects = [], []
    for (strategy, rows), end in zip(by_work, np.cumsum(sizes).tolist(), strict=True):
        timed.append(local.times(strategy, rows))
        by_row = np.ndim(strategy.recompute_layers)
        own = stage_kinds.of(np.arange(end - len(rows), end)) if by_row else stage_kinds
        effects.append(feature_effects(cluster, strategy, own))
    times = np.concatenate(timed, axis=1)
    layers, joint = layer_times_in(times), joined(effects, sizes)
    return stage_times(workload, cluster, family, stage_kinds, layers, times[-1], joint)


def hop_times(
    workload: Workload,
    cluster: Cluster,
    family: Strategy,
    by_work: Sequence[tuple[Strategy, Array]],
) -> Array:
    """A hop between stages, for the parts of a family as in `stages_timed`. [s]"""
    divided = np.repeat(
        [strategy.sequence_parallel for strategy, _ in by_work], [len(rows) for _, rows in by_work]
    )
    whole, shared = (
        hop_time(workload, cluster, varied(family, sequence_parallel=on)) for on in (False, True)
    )
    return np.where(divided, shared, whole)


def lower_bounds(axes: Axes, context: AxisContext, shapes: Shapes, local: LocalShapes) -> Array:
    """The step time that each shape cannot beat. [s]"""
    bounds = np.empty(len(shapes.index))
    for schedule, members in _by_schedule(axes, shapes).items():
        bounds[members] = _of_schedule(axes, context, shapes, local, schedule, members)
    return bounds


def grouped(axes: Axes, shapes: Shapes, bounds: Array) -> list[Array]:
    """Shapes in groups of one schedule, by rising bound. The lowest group of each schedule comes
    first: it finds a step time that most of the others cannot beat.
    """
    first: list[Array] = []
    others: list[Array] = []
    for members in _by_schedule(axes, shapes).values():
        rising = members[np.argsort(bounds[members], kind="stable")]
        cuts = [FIRST, *range(FIRST + BLOCK, len(members), BLOCK)]
        lowest, *more = np.split(rising, [cut for cut in cuts if cut < len(members)])
        first.append(lowest)
        others += more

    def least(members: Array) -> float:
        return float(bounds[members[0]])

    return [*sorted(first, key=least), *sorted(others, key=least)]


def _by_schedule(axes: Axes, shapes: Shapes) -> dict[Schedule, Array]:
    """Indices of the shapes that have each pipeline schedule."""
    schedules = [pipeline.schedule for pipeline in axes["pipeline"]]
    by_schedule = {}
    for schedule in dict.fromkeys(schedules):
        positions = np.array([other == schedule for other in schedules])
        members = np.flatnonzero(positions[shapes.rows["pipeline"]])
        if len(members):
            by_schedule[schedule] = members
    return by_schedule


def _of_schedule(
    axes: Axes,
    context: AxisContext,
    shapes: Shapes,
    local: LocalShapes,
    schedule: Schedule,
    members: Array,
) -> Array:
    """The least step time of some shapes over all features that can make them faster. [s]"""
    w, c, rows = context.workload, context.cluster, shapes.rows
    degrees = {name: rows[name][members] for name in DEGREES}
    layout = varied(Strategy(), schedule=schedule, **degrees)
    kinds = stages_of(w.model, layout, c.calibration.placement, 1)
    lowest = np.full(len(members), np.inf)
    for columns, choices in _by_rows(axes, context, shapes, members):
        alike, stages = members[columns], kinds.of(columns)
        batches = rows["micro_batches"][alike]
        family = varied(layout, **{name: column[columns] for name, column in degrees.items()})
        for features in choices:
            s = varied(family, **features)
            times = local.times(s, alike)
            stage = stage_times(w, c, s, stages, layer_times_in(times), times[-1])
            flow = Flow(
                slowest=stage.slowest,
                total=stage.all_stages,
                microbatches=batches,
                stages=s.pp,
                virtual=s.vpp,
                forward=stage.device_forward,  # recomputation takes nothing from the host's part
            )
            time = np.asarray(batches * stage.slowest + schedule.fill(flow))
            lowest[columns] = np.minimum(lowest[columns], time)
    return lowest * SLACK


def _by_rows(
    axes: Axes, context: AxisContext, shapes: Shapes, members: Array
) -> Iterator[tuple[Array, list[dict[str, Any]]]]:
    """Rows with the features that can make them faster: those that the same rows can have
    stand together.
    """
    alike: dict[bytes, tuple[Array, list[dict[str, Any]]]] = {}
    for chosen in product(*(_values(axes, context, shapes, axis, members) for axis in _TIMED)):
        ok = np.broadcast_to(reduce(and_, (ok for _, ok in chosen)), len(members))
        features = {name: value for fields, _ in chosen for name, value in fields.items()}
        alike.setdefault(ok.tobytes(), (np.flatnonzero(ok), []))[1].append(features)
    return ((rows, choices) for rows, choices in alike.values() if len(rows))


def _values(
    axes: Axes, context: AxisContext, shapes: Shapes, axis: Axis, members: Array
) -> list[tuple[dict[str, Any], Any]]:
    """For every value of features that may be fastest: its fields, and the rows that can
    have it.
    """
    values = axes[axis.name]
    if axis.scope is Scope.WORK:
        legal = shapes.in_some_bundle(axis.name, members)
        return [(axis.chosen(value), ok) for value, ok in zip(values, legal, strict=True)]
    best = (True,) if never_slower(axis, context.cluster) and True in values else values
    return [(axis.chosen(value), True) for value in best]
