"""Runs of a given length: scatter of ETTR, lost time, and one run as a timeline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mofa_model.checks import positive, whole
from mofa_model.errors import BadValue
from mofa_model.records import dataclass
from mofa_model.simulator.engine import PHASES, SAVE, SLOWED, WAIT, Fleet, measure_period
from mofa_model.simulator.scenario import Scenario

MOST_EVENTS = 200_000_000
"""Failures over all runs beyond which a simulation would take hours."""
MOST_STRETCHES = 200_000
"""Stretches that a timeline may have."""


@dataclass(frozen=True, kw_only=True)
class Runs:
    """Many runs of one length. Arrays have one entry a run."""

    duration: float
    ettr: NDArray[Any]
    """Work that was not lost, over the length. [1]"""
    failures: NDArray[Any]
    lost: dict[str, float]
    """Mean time lost by cause; with the productive time it adds to the length. [s]"""


@dataclass(frozen=True)
class TimelineStretch:
    """A stretch of a timeline in one phase."""

    start: float
    end: float
    phase: str
    saved: int
    """Boundaries durable or reached at its end, in intervals of work. [1]"""
    failure: str
    """The cause of the failure that ends it, or nothing."""


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
    done = fleet.position + 1 - fleet.left / scenario.work
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
        ettr=done * scenario.work / duration,
        failures=fleet.failures.sum(axis=0),
        lost=lost,
    )


def timeline(scenario: Scenario, *, duration: float, seed: int) -> tuple[TimelineStretch, ...]:
    """One run as stretches of time; neighbours in the same phase are not merged. Ours. []"""
    positive(duration=duration)
    fleet = Fleet(scenario, 1, np.random.default_rng(seed))
    stretches: list[TimelineStretch] = []

    def watch(now: Fleet, step: NDArray[Any], fails: NDArray[Any]) -> None:
        start = float(now.now[0])
        phase = PHASES[now.phase[0]]
        merged = bool(stretches) and stretches[-1].phase == phase and not stretches[-1].failure
        start = stretches.pop().start if merged else start
        stretches.append(
            TimelineStretch(
                start,
                float(now.now[0] + step[0]),
                phase,
                int(now.position[0]),
                "failure" if fails[0] else "",
            )
        )

    while fleet.now[0] < duration:
        failed = fleet.step(watch, stop=duration)
        if len(failed):
            last = stretches.pop()
            cause = scenario.causes[int(fleet.cause[0])].name
            stretches.append(TimelineStretch(last.start, last.end, last.phase, last.saved, cause))
        if len(stretches) > MOST_STRETCHES:
            raise BadValue(
                "duration",
                duration,
                f"a timeline holds at most {MOST_STRETCHES} stretches; shorten it",
            )
    return tuple(stretches)
