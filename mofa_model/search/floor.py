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
from mofa_model.axes.rules import Given
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


class Floors:
    """Floors of the shapes of one question; what one bundle of features asks of a schedule is known to the next."""

    def __init__(self, axes: Axes, given: Given, shapes: Shapes) -> None:
        self._axes, self._given, self._shapes = axes, given, shapes
        every = np.arange(len(shapes.index))
        self._local = Locals(given.workload, given.cluster, shapes.rows, every)
        self._members = {
            schedule: np.flatnonzero(mine[shapes.rows["pipeline"]])
            for schedule, mine in _by_schedule(axes).items()
        }
        self._times: dict[tuple[Schedule, tuple[Any, ...]], Array] = {}

    def parts(self, features: Features) -> list[ShapeGroup]:
        """All shapes in parts of one schedule each; the parts with the lowest floors come first."""
        parts: list[ShapeGroup] = []
        for schedule, members in self._members.items():
            if not len(members):
                continue
            lowest = self._floors(features, schedule, members)
            rising = np.argsort(lowest, kind="stable")
            cuts = [FIRST, *range(FIRST + BLOCK, len(members), BLOCK)]
            pieces = np.split(rising, [cut for cut in cuts if cut < len(members)])
            parts += [
                ShapeGroup(schedule, members[some], lowest[some], at == 0) for at, some in enumerate(pieces)
            ]
        return sorted(parts, key=lambda part: float(part.floors[0]))

    def _floors(self, features: Features, schedule: Schedule, members: Array) -> Array:
        """The floor of every member, the least over whatever can make it faster. [s]"""
        lowest = np.full(len(members), np.inf)
        for chosen in product(*(self._choices(features, axis, members) for axis in _TIMED)):
            legal = reduce(and_, (ok for _, ok in chosen))
            if np.any(legal):
                time = self._time(
                    schedule, members, {n: v for fields, _ in chosen for n, v in fields.items()}
                )
                lowest = np.minimum(lowest, np.where(legal, time, np.inf))
        return lowest * SLACK

    def _time(self, schedule: Schedule, members: Array, chosen: dict[str, Any]) -> Array:
        """Step time of every member under a choice, less what can only be added. [s]"""
        key = (schedule, tuple(chosen.values()))
        if key not in self._times:
            w, c, rows = self._given.workload, self._given.cluster, self._shapes.rows
            degrees = {name: rows[name][members] for name in DEGREES}
            s = varied(Strategy(), schedule=schedule, **degrees, **chosen)
            stages = stages_of(w.model, s, c.calibration.placement, 1)
            stage = stage_times(w, c, s, stages, *spread(self._local.times(s), self._local.position[members]))
            flow = Flow(
                slowest=stage.slowest,
                total=stage.all_stages,
                microbatches=rows["micro_batches"][members],
                stages=s.pp,
                virtual=s.vpp,
                forward=stage.device_forward,  # what recomputation adds to the host's part takes nothing from it
            )
            self._times[key] = np.asarray(flow.microbatches * stage.slowest + schedule.fill(flow))
        return self._times[key]

    def _choices(self, features: Features, axis: Axis, members: Array) -> list[tuple[dict[str, Any], Any]]:
        """Fields and rows of every value that the least time can have."""
        values = self._axes[axis.name]
        if axis.scope is Scope.WORK:
            legal = features.allowed[axis.name]
            return [(axis.chosen(value), ok[members]) for value, ok in zip(values, legal, strict=True)]
        best = (True,) if dominated(axis, self._given.cluster) and True in values else values
        return [(axis.chosen(value), True) for value in best]


def _by_schedule(axes: Axes) -> dict[Schedule, Array]:
    """Which values of the axis of pipelines are of each schedule."""
    schedules = [pipeline.schedule for pipeline in axes["pipeline"]]
    return {
        schedule: np.array([one == schedule for one in schedules]) for schedule in dict.fromkeys(schedules)
    }
