"""A step time that no strategy of a shape can beat, and the order in which shapes are priced.

Shapes are priced by rising floor, so that good strategies are found at once; a shape whose floor lies above all that is
worth looking at is left out with everything beside it. That loses nothing:

    recomputation and offload only add to a micro-batch's work     their work is left out of the floor
    sharding and placement only add to the step                    traffic and update are left out
    m micro-batches take the slowest device m C; what a schedule fills and drains on top is its own: 1F1B (S - C) / v,
    those that put weight gradients off the forwards of the other devices

with C the slowest device's time for a micro-batch and S the sum over devices. Overlap and graphs are taken at their best.
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
from mofa_model.estimate.stage import stage_times
from mofa_model.placement import spread, stages_of
from mofa_model.schedules import Flow, Schedule
from mofa_model.search.axes import Axes, within
from mofa_model.search.local import Locals, varied
from mofa_model.search.space import DEGREES, Features, Shapes, dominated
from mofa_model.strategy import Strategy

BLOCK: Final = 2048
"""Shapes in a block: with the states of a ZeRO level beside them, the temporaries of an equation stay in the cache."""
FIRST: Final = 512
"""Shapes in the first block of a schedule: enough to find a step time that most others cannot beat."""
SLACK: Final = 1.0 - 1e-9
"""Rounding that a floor may be too high by."""

_ADDED: Final = ("recompute", "offload")
"""Work that is only added to a micro-batch's."""
_TIMED: Final = tuple(axis for axis in within(Scope.WORK, Scope.LAYER) if axis.name not in _ADDED)
"""Features that can make a stage faster."""

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class ShapeGroup:
    """Shapes of one schedule, by rising floor."""

    schedule: Schedule
    """Their schedule."""
    members: Array
    """Their positions."""
    floors: Array
    """Step times that they cannot beat. [s]"""
    first: bool
    """Whether these are the lowest of their schedule."""

    def hopeful(self, horizon: float) -> int:
        """How many can still beat a step time, counted from the first."""
        return int(np.searchsorted(self.floors, horizon, side="right"))


def by_floor(
    axes: Axes, given: AxisContext, shapes: Shapes, features: Features, local: Locals
) -> list[ShapeGroup]:
    """All shapes in parts of one schedule each; the parts with the lowest floors come first."""
    parts: list[ShapeGroup] = []
    for schedule, mine in _by_schedule(axes).items():
        members = np.flatnonzero(mine[shapes.rows["pipeline"]])
        if not len(members):
            continue
        lowest = _floors(axes, given, shapes, features, local, schedule, members)
        rising = np.argsort(lowest, kind="stable")
        cuts = [FIRST, *range(FIRST + BLOCK, len(members), BLOCK)]
        pieces = np.split(rising, [cut for cut in cuts if cut < len(members)])
        parts += [
            ShapeGroup(schedule, members[some], lowest[some], at == 0)
            for at, some in enumerate(pieces)
        ]
    return sorted(parts, key=lambda part: float(part.floors[0]))


def _floors(
    axes: Axes,
    given: AxisContext,
    shapes: Shapes,
    features: Features,
    local: Locals,
    schedule: Schedule,
    members: Array,
) -> Array:
    """The floor of every member, the least over whatever can make it faster. [s]"""
    w, c, rows = given.workload, given.cluster, shapes.rows
    layout = varied(
        Strategy(), schedule=schedule, **{name: rows[name][members] for name in DEGREES}
    )
    stages = stages_of(w.model, layout, c.calibration.placement, 1)
    position = local.position[members]
    lowest = np.full(len(members), np.inf)
    for chosen in product(*(_choices(axes, given, features, axis, members) for axis in _TIMED)):
        some = np.flatnonzero(np.broadcast_to(reduce(and_, (ok for _, ok in chosen)), len(members)))
        if not len(some):
            continue
        flags = {name: value for fields, _ in chosen for name, value in fields.items()}
        s = varied(layout, **{name: getattr(layout, name)[some] for name in DEGREES}, **flags)
        stage = stage_times(w, c, s, stages.of(some), *spread(local.times(s), position[some]))
        flow = Flow(
            slowest=stage.slowest,
            total=stage.all_stages,
            microbatches=rows["micro_batches"][members[some]],
            stages=s.pp,
            virtual=s.vpp,
            forward=stage.device_forward,  # what recomputation adds to the host's part takes nothing from it
        )
        time = np.asarray(flow.microbatches * stage.slowest + schedule.fill(flow))
        lowest[some] = np.minimum(lowest[some], time)
    return lowest * SLACK


def _choices(
    axes: Axes, given: AxisContext, features: Features, axis: Axis, members: Array
) -> list[tuple[dict[str, Any], Any]]:
    """Fields and rows of every value that the least time can have."""
    values = axes[axis.name]
    if axis.scope is Scope.WORK:
        legal = features.some(axis.name)[:, members]
        return [(axis.chosen(value), ok) for value, ok in zip(values, legal, strict=True)]
    best = (True,) if dominated(axis, given.cluster) and True in values else values
    return [(axis.chosen(value), True) for value in best]


def _by_schedule(axes: Axes) -> dict[Schedule, Array]:
    """Which values of the axis of pipelines are of each schedule."""
    schedules = [pipeline.schedule for pipeline in axes["pipeline"]]
    return {
        schedule: np.array([one == schedule for one in schedules])
        for schedule in dict.fromkeys(schedules)
    }
