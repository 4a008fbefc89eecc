"""How a running job does, in one word, and until when its next step is due.

    a step      `stuck_steps` times its predicted time, or the observed one where that is longer; at least `stuck_least`
    the first   before that the start: `start_least`, or `STARTS` times the recovery of a whole job that the advice counts
                with where that is longer, for it loads, compiles and warms up as a start does

What is due is held against the moment of the look, never against now: while nobody looks, no step can be missed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mofa_model.manifest.failure_history import number
from mofa_model.spec.recovery_classes import RecoveryClass
from mofa_operator.decide.conditions import Found
from mofa_operator.decision import Answer
from mofa_operator.settings import LoopSettings
from mofa_operator.snapshot import Alive, JobSnapshot
from mofa_operator.words import Health, Reason

STARTS: Final = 3.0
"""Mean recoveries of a whole job that its start may last. Ours. [1]"""
_HEALTH: Final[Mapping[str, Health]] = {
    Reason.WITHIN_BAND: Health.HEALTHY,
    Reason.OBSERVED: Health.HEALTHY,
    Reason.NO_OBSERVATION: Health.HEALTHY,
    Reason.DRIFTING: Health.DRIFTING,
    Reason.IMPLAUSIBLE: Health.DRIFTING,
    Reason.STUCK: Health.STUCK,
    Reason.NOT_SEEN: Health.NOT_SEEN,
}


def health(accurate: Found, memory: Found) -> str:
    """The word for what was found of PredictionAccurate; empty where that says nothing of a job that runs.

    Device memory that cannot be takes the word Healthy away: what is seen is then not of this job, or not on these devices.
    """
    word = _HEALTH.get(accurate.reason, "")
    return (
        Health.DRIFTING if word == Health.HEALTHY and memory.reason == Reason.IMPLAUSIBLE else word
    )


def has_stepped(alive: Alive) -> bool:
    """Whether it finished a step since it started."""
    return alive.step_at is not None and alive.step_at >= alive.since


def due(snapshot: JobSnapshot, answer: Answer, settings: LoopSettings) -> float | None:
    """Until when the next step is due, in seconds of the epoch; None where nobody can say. [s]

    Of a trainer that counts no steps only the first is awaited: while it publishes a speed, it trains.
    """
    alive, running = snapshot.alive, snapshot.running
    if alive is None or (running is not None and alive.step_at is None):
        return None
    step = max(settings.stuck_steps * _step_seconds(alive, answer), settings.stuck_least)
    if alive.step_at is not None and has_stepped(alive):
        return alive.step_at + step
    return alive.since + max(settings.start_least, STARTS * _restart(answer)) + step


def _step_seconds(alive: Alive, answer: Answer) -> float:
    """The longest that a step may be expected to take: as advised, as the layout that runs is predicted, as observed. [s]"""
    advised = band.target if (band := answer.figures.get("step_seconds")) else 0.0
    today = (
        None
        if answer.says.current is None
        else answer.says.current.predicted.step_milliseconds.target
    )
    return max(number(advised), number(today) / 1000, number(alive.step_seconds))


def _restart(answer: Answer) -> float:
    """Mean time to recover a whole job, as the advice counts with it; 0 where it does not say. [s]"""
    times = (
        number(one.recovery_seconds) for one in answer.says.rates if one.name == RecoveryClass.JOB
    )
    return max(times, default=0.0)
