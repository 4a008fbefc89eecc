"""Runs of a given length: scatter of their ETTR, time lost by cause, and one run as a timeline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mofa_model.checks import positive, whole
from mofa_model.errors import BadValue
from mofa_model.records import dataclass
from mofa_model.simulator.engine import PHASES, SAVE, SLOWED, WAIT, Fleet, measure_period
from mofa_model.simulator.scenario import Scenario

MOST_EVENTS = 200_000_000
"""Most failures over all runs: with more, a simulation would take hours. [1]"""
MOST_STRETCHES = 200_000
"""Most stretches of a timeline. [1]"""


@dataclass(frozen=True, kw_only=True)
class Runs:
    """Many runs of one length. Arrays have one entry a run."""

    duration: float
    ettr: NDArray[Any]
    """Work that was kept, over the length of the run. [1]"""
    failures: NDArray[Any]
    lost: dict[str, float]
    """Mean time lost by cause; these and the productive time add to the length of a run. [s]"""


@dataclass(frozen=True)
class TimelineStretch:
    """A stretch of a timeline in one phase."""

    start: float
    end: float
    phase: str
    saved: int
    """Position of the run, in intervals of work. [1]"""
    failure: str
    """Cause of the failure that ends the stretch; empty without one."""


def simulate_runs(
    scenario: Scenario,
    *,
    duration: float,
    count: int,
    seed: int,
    progress: Callable[[float], None] | None = None,
) -> Runs:
    """Simulate `count` runs of `duration` from a fresh start. Ours. []"""
    positive(duration=duration)
    whole(runs=count)
    if scenario.rate * duration * count > MOST_EVENTS:
        raise BadValue(
            "duration",
            duration,
            f"at most {MOST_EVENTS} failures in all; shorten the runs or simulate fewer",
        )
    fleet = Fleet(scenario, count, np.random.default_rng(seed), skip=measure_period(scenario))
    while bool(np.any(fleet.now < duration)):
        fleet.step(stop=duration)
        if progress is not None:
            progress(float(np.mean(fleet.now)) / duration)
    intervals_done = fleet.position + 1 - fleet.work_left / scenario.work
    lost = {
        PHASES[WAIT]: float(np.mean(fleet.spent[WAIT])),
        PHASES[SAVE]: float(np.mean(fleet.spent[SAVE])),
    }
    lost["slowed by copies"] = float(np.mean(fleet.spent[SLOWED]))
    for index, cause in enumerate(scenario.causes):
        lost[f"recovering, {cause.name}"] = float(np.mean(fleet.recovered[index]))
        lost[f"work redone, {cause.name}"] = float(np.mean(fleet.redone[index]))
    return Runs(
        duration=duration,
        ettr=intervals_done * scenario.work / duration,
        failures=fleet.failures.sum(axis=0),
        lost=lost,
    )


def timeline(scenario: Scenario, *, duration: float, seed: int) -> tuple[TimelineStretch, ...]:
    """One run as stretches of time, each in one phase. Ours. []"""
    positive(duration=duration)
    fleet = Fleet(scenario, 1, np.random.default_rng(seed))
    stretches: list[TimelineStretch] = []

    def watch(fleet: Fleet, step: NDArray[Any], fails: NDArray[Any]) -> None:
        start, phase = float(fleet.now[0]), PHASES[fleet.phase[0]]
        if stretches and stretches[-1].phase == phase and not stretches[-1].failure:
            start = stretches.pop().start
        stretches.append(
            TimelineStretch(
                start,
                float(fleet.now[0] + step[0]),
                phase,
                int(fleet.position[0]),
                "failure" if fails[0] else "",
            )
        )

    while fleet.now[0] < duration:
        failed = fleet.step(watch, stop=duration)
        if len(failed):
            cause = scenario.causes[int(fleet.cause[0])].name
            stretches[-1] = replace(stretches[-1], failure=cause)
        if len(stretches) > MOST_STRETCHES:
            raise BadValue(
                "duration",
                duration,
                f"a timeline holds at most {MOST_STRETCHES} stretches; shorten it",
            )
    return tuple(stretches)
