"""A lower bound on the step time of every shape, and the order in which shapes are priced.

Shapes are priced by rising bound, so that good strategies are found at once. A shape whose bound
lies above all that is worth looking at is left out with everything beside it. That loses nothing:

    recomputation and offload only add to a micro-batch's work; the bound leaves their work out
    sharding and placement only add to the step; the bound leaves traffic and update out
    m micro-batches take the slowest device m C; what a schedule fills and drains on top is its own,
    (S - C) / v for 1F1B, and the others' forwards where weight gradients are put off

with C the slowest device's time for a micro-batch and S the sum over devices. Overlap and graphs
are taken at their best.
"""

from __future__ import annotations

from functools import reduce
from itertools import product
from operator import and_
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.axes.axis import Axis, Scope
from mofa_model.axes.rules import AxisContext
from mofa_model.estimate.stage_time import stage_times
from mofa_model.placement import spread, stages_of
from mofa_model.records import varied
from mofa_model.schedules import Flow, Schedule
from mofa_model.search.axes import Axes, within
from mofa_model.search.local import LocalShapes
from mofa_model.search.space import DEGREES, Shapes, never_slower
from mofa_model.strategy import Strategy

BLOCK: Final = 2048
"""Shapes in a block: with the states of a ZeRO level beside them, the temporaries of an equation
stay in the cache."""
FIRST: Final = 512
"""Shapes in the first block of a schedule: enough to find a step time that most others cannot
beat."""
SLACK: Final = 1.0 - 1e-9
"""Rounding by which a bound may be too high."""

_ADDED: Final = ("recompute", "offload")
"""Features that only add to a micro-batch's work."""
_TIMED: Final = tuple(axis for axis in within(Scope.WORK, Scope.LAYER) if axis.name not in _ADDED)
"""Features that can make a stage faster."""

Array = NDArray[Any]


def lower_bounds(axes: Axes, context: AxisContext, shapes: Shapes, local: LocalShapes) -> Array:
    """The step time that each shape cannot beat. [s]"""
    bounds = np.empty(len(shapes.index))
    for schedule, members in _by_schedule(axes, shapes).items():
        bounds[members] = _of_schedule(axes, context, shapes, local, schedule, members)
    return bounds


def grouped(axes: Axes, shapes: Shapes, bounds: Array, *, first: bool) -> list[Array]:
    """Shapes in groups of one schedule, by rising bound; the lowest group of each schedule if
    `first`, else all others.
    """
    groups: list[Array] = []
    for members in _by_schedule(axes, shapes).values():
        rising = members[np.argsort(bounds[members], kind="stable")]
        cuts = [FIRST, *range(FIRST + BLOCK, len(members), BLOCK)]
        lowest, *others = np.split(rising, [cut for cut in cuts if cut < len(members)])
        groups += [lowest] if first else others
    return sorted(groups, key=lambda members: float(bounds[members[0]]))


def _by_schedule(axes: Axes, shapes: Shapes) -> dict[Schedule, Array]:
    """The shapes of each schedule that some shape has."""
    schedules = [pipeline.schedule for pipeline in axes["pipeline"]]
    found = {}
    for schedule in dict.fromkeys(schedules):
        positions = np.array([other == schedule for other in schedules])
        members = np.flatnonzero(positions[shapes.rows["pipeline"]])
        if len(members):
            found[schedule] = members
    return found


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
    stages = stages_of(w.model, layout, c.calibration.placement, 1)
    position = local.position[members]
    lowest = np.full(len(members), np.inf)
    for chosen in product(*(_values(axes, context, shapes, axis, members) for axis in _TIMED)):
        ok = reduce(and_, (ok for _, ok in chosen))
        some = np.flatnonzero(np.broadcast_to(ok, len(members)))
        if not len(some):
            continue
        flags = {name: value for fields, _ in chosen for name, value in fields.items()}
        s = varied(layout, **{name: column[some] for name, column in degrees.items()}, **flags)
        stage = stage_times(w, c, s, stages.of(some), *spread(local.times(s), position[some]))
        flow = Flow(
            slowest=stage.slowest,
            total=stage.all_stages,
            microbatches=rows["micro_batches"][members[some]],
            stages=s.pp,
            virtual=s.vpp,
            forward=stage.device_forward,  # recomputation takes nothing from the host's part
        )
        time = np.asarray(flow.microbatches * stage.slowest + schedule.fill(flow))
        lowest[some] = np.minimum(lowest[some], time)
    return lowest * SLACK


def _values(
    axes: Axes, context: AxisContext, shapes: Shapes, axis: Axis, members: Array
) -> list[tuple[dict[str, Any], Any]]:
    """Fields and rows of every value that the least time can have."""
    values = axes[axis.name]
    if axis.scope is Scope.WORK:
        legal = shapes.in_some_bundle(axis.name)[:, members]
        return [(axis.chosen(value), ok) for value, ok in zip(values, legal, strict=True)]
    best = (True,) if never_slower(axis, context.cluster) and True in values else values
    return [(axis.chosen(value), True) for value in best]
