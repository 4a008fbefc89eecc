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

from dataclasses import dataclass
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
from mofa_model.schedules import Flow, Schedule
from mofa_model.search.axes import Axes, within
from mofa_model.search.local import LocalShapes, varied
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


@dataclass(frozen=True, slots=True)
class ShapeGroup:
    """Shapes of one schedule, by rising bound."""

    schedule: Schedule
    members: Array
    """Their positions in the table."""
    bounds: Array
    """Step times that they cannot beat. [s]"""
    first: bool
    """Whether these have the lowest bounds of their schedule."""

    def hopeful(self, horizon: float) -> int:
        """How many can still beat a step time, counted from the first."""
        return int(np.searchsorted(self.bounds, horizon, side="right"))


def by_lower_bound(
    axes: Axes, context: AxisContext, shapes: Shapes, local: LocalShapes
) -> list[ShapeGroup]:
    """All shapes in groups of one schedule each; the groups with the lowest bounds come first."""
    groups: list[ShapeGroup] = []
    schedules = [pipeline.schedule for pipeline in axes["pipeline"]]
    for schedule in dict.fromkeys(schedules):
        positions = np.array([other == schedule for other in schedules])
        members = np.flatnonzero(positions[shapes.rows["pipeline"]])
        if not len(members):
            continue
        bounds = lower_bounds(axes, context, shapes, local, schedule, members)
        rising = np.argsort(bounds, kind="stable")
        cuts = [FIRST, *range(FIRST + BLOCK, len(members), BLOCK)]
        pieces = np.split(rising, [cut for cut in cuts if cut < len(members)])
        groups += [
            ShapeGroup(schedule, members[some], bounds[some], at == 0)
            for at, some in enumerate(pieces)
        ]
    return sorted(groups, key=lambda group: float(group.bounds[0]))


def lower_bounds(
    axes: Axes,
    context: AxisContext,
    shapes: Shapes,
    local: LocalShapes,
    schedule: Schedule,
    members: Array,
) -> Array:
    """The bound of every member: the least step time over whatever can make it faster. [s]"""
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
