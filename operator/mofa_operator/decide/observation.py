"""What a running job does, compared with its prediction: figures, conditions, and its health.

Figures have three digits and are seldom written: when one has moved by `material` and `quiet`
seconds have passed. The time of the last write is stored with them, so that a restart changes
nothing. Conditions are about the written figures, so that they do not flicker.

The moment at which a step is due counts from the last look, so that none is missed meanwhile:

    a step          after `stuck_steps` times its predicted or observed time, whichever is longer,
                    and after `stuck_least` at least
    the first step  that long after the start, which may last `start_least`, or `STARTS` mean
                    recoveries of a whole job,
                    because a start loads, compiles and warms up as a recovery does
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from mofa_model.advice.candidates import PRESSED
from mofa_model.kinds.shape import glance
from mofa_model.manifest.advised import quantity
from mofa_model.manifest.failure_history import number
from mofa_model.spec.recovery_classes import RecoveryClass
from mofa_model.units import GIB, Range
from mofa_operator.decide.forecasts import finish
from mofa_operator.decide.status import (
    NewCondition,
    State,
    digits,
    moment,
    moved,
    standing,
    time_left,
)
from mofa_operator.decision import Answer
from mofa_operator.objects import LiveTrainingJob, ObservedFigures, WrittenPart, figure
from mofa_operator.settings import LoopSettings
from mofa_operator.snapshot import Alive, JobSnapshot, Running
from mofa_operator.words import Aspect, Health, Reason

DEVICE, ALLOCATOR = "Device", "Allocator"
"""Source of the memory figure: the exporter of the device, or the trainer's allocator, which knows
of a part of it only."""
STARTS: Final = 3.0
"""Mean recoveries of a whole job that its start may last. Ours. [1]"""
MOST_COUNTED: Final = 10_000_000
"""Most interruptions that a status holds. With more, which a tenant may claim, the API server would
refuse the whole status. [1]"""
MOST_MFU: Final = 0.9
"""No figure above this model FLOPs utilisation is believed: the best published runs reach 0.6 to
0.7. Ours. [1]"""
FARTHEST: Final = (0.25, 2.0)
"""A job outside these ratios of observed to predicted throughput teaches nothing; above, it is not
believed. Ours. [1]"""
_FIGURES: Final = (
    "tokens_per_second", "step_milliseconds", "checkpoint_interval_seconds", "ettr",
    "memory_bytes", "interruptions", "lost",
)  # fmt: skip
"""Figures whose change is worth a write; the number of the step alone is not."""
_WORD: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._/ -]*[A-Za-z0-9])?")
_HEALTH: Final[Mapping[str, Health]] = {
    Reason.WITHIN_BAND: Health.HEALTHY,
    Reason.OBSERVED: Health.HEALTHY,
    Reason.NO_OBSERVATION: Health.HEALTHY,
    Reason.DRIFTING: Health.DRIFTING,
    Reason.IMPLAUSIBLE: Health.DRIFTING,
    Reason.STUCK: Health.STUCK,
    Reason.NOT_SEEN: Health.NOT_SEEN,
}
_NONE: Final[Mapping[str, float]] = {}


@dataclass(frozen=True, kw_only=True, slots=True)
class ObservedStatus:
    """What a status shows of a running job."""

    observed: WrittenPart
    """`status.observed`; empty where nothing was ever seen."""
    record: str
    """The operator's own record of the run, written together with `observed`."""
    new_conditions: tuple[NewCondition, NewCondition]
    """The conditions ObservationAvailable and PredictionAccurate."""
    memory_condition: NewCondition
    """The condition MemoryAccurate."""
    due: float | None = None
    """When the next step is due, if it would be seen; in seconds of the epoch. [s]"""
    requeue_after: float | None = None
    """Time until a change may be written. [s]"""

    @property
    def health(self) -> str:
        """The column HEALTH.

        An impossible figure of memory is one of other devices, and so the job is not Healthy.
        """
        word = _HEALTH.get(self.new_conditions[1].reason, "")
        is_doubtful = word == Health.HEALTHY and self.memory_condition.reason == Reason.IMPLAUSIBLE
        return Health.DRIFTING if is_doubtful else word


def observed_status(
    snapshot: JobSnapshot, answer: Answer, settings: LoopSettings
) -> ObservedStatus:
    """What to show of a running job: figures, conditions, and when to look again."""
    job, running = snapshot.job, snapshot.running
    old_status = job.observed if isinstance(job, LiveTrainingJob) else {}
    step_due = due(snapshot, answer, settings)
    is_watched = snapshot.alive is not None and snapshot.alive.watched
    shown_due = step_due if is_watched else None
    if not snapshot.looked or running is None:
        unseen = _unseen(snapshot, step_due)
        memory = replace(unseen[1], aspect=Aspect.MEMORY_ACCURATE, state="Unknown")
        if old_status and not snapshot.looked:
            memory = standing(job, memory.aspect) or memory
        return ObservedStatus(
            observed=old_status,
            record=job.record,
            new_conditions=unseen,
            memory_condition=memory,
            due=shown_due,
        )
    new_status = _written(running, residual(running, answer), snapshot.now)
    old_figures = job.status.observed if isinstance(job, LiveTrainingJob) else ObservedFigures()
    new_figures = glance(ObservedFigures, new_status)
    wait = _wait(old_figures, new_figures, snapshot.now, settings) if old_status else 0.0
    is_written = wait == 0
    shown = new_figures if is_written else old_figures
    available, accurate = _running(shown, snapshot, answer)
    return ObservedStatus(
        observed=new_status | finish(snapshot, answer, running) if is_written else old_status,
        record=running.record if is_written else job.record,
        new_conditions=(available, _stuck(snapshot, step_due) or accurate),
        memory_condition=memory_found(shown, answer),
        due=shown_due,
        requeue_after=wait or None,
    )


def residual(running: Running | None, answer: Answer) -> float | None:
    """Observed over predicted throughput, minus one; None where nothing is predicted. [1]"""
    observed, target = seen_tokens(running), predicted_tokens(answer)
    return None if observed is None or not target else observed / target - 1


def seen_tokens(running: Running | None) -> float | None:
    """Observed tokens per second. [1/s]"""
    return None if running is None else figure(running.tokens_per_second)


def predicted_tokens(answer: Answer) -> float:
    """Predicted tokens per second of the layout that runs; 0 where nothing is predicted. [1/s]"""
    band = _predictions(answer).get("tokens_per_second")
    return 0.0 if band is None else max(0.0, band.target)


def predicted_memory(answer: Answer) -> Range | None:
    """Peak device memory of the layout in spec.current, else of the advised one. [B]"""
    return _predictions(answer).get("memory_bytes")


def _predictions(answer: Answer) -> Mapping[str, Range]:
    """Predictions of the layout in spec.current, else of the advised one."""
    today = answer.says.current
    return answer.predicted if today is None else today.predicted


def doubted(observed: float, answer: Answer) -> str:
    """Why a throughput cannot be that of this job on its devices; empty where it can. [1/s]"""
    tokens, mfu = answer.predicted.get("tokens_per_second"), answer.predicted.get("mfu")
    reached = mfu.target * observed / tokens.target if tokens and mfu and tokens.target else 0.0
    if reached > MOST_MFU:
        return (
            f"that is an MFU of {100 * reached:.0f} %, and no more than {100 * MOST_MFU:.0f} % is "
            "believed"
        )
    target = predicted_tokens(answer)
    if target and observed / target > FARTHEST[1]:
        return (
            f"that is {observed / target:.2g} times the prediction, and no more than "
            f"{FARTHEST[1]:g} times is believed"
        )
    return ""


def implausible(observed: float, answer: Answer) -> str:
    """Why so much memory in use cannot be; empty where it can. [B]"""
    if observed <= 0:
        return "a device that trains holds something"
    return f"a device has {_gib(answer.device_bytes)}" if observed > answer.device_bytes else ""


def limits(running: Running | None, answer: Answer) -> Mapping[str, float]:
    """Limits of device memory: the upper end of the prediction, and where allocators retry. [B]"""
    observed = None if running is None else figure(running.memory_bytes)
    if observed is None or implausible(observed, answer):
        return _NONE
    band = predicted_memory(answer)
    predicted = {} if band is None else {"prediction": band.upper}
    return predicted | {"device": PRESSED * answer.room_bytes}


DRIFT: Final = 0.15
"""Share by which a job is off its prediction from which on it drifts. Ours. [1]"""


def drifts(observed: float, predicted: Range, *, drifting: bool = False) -> bool:
    """Whether an observed throughput is outside its band and off the target by `DRIFT`.

    The residual is taken to the percent, as it is shown. A job that drifts goes on to drift until
    it is back in the band, or off by less than two thirds of `DRIFT`: so the verdict does not
    flicker.

    >>> band = Range(lower=92.0, target=100.0, upper=110.0)
    >>> drifts(85.0, band), drifts(88.0, band), drifts(92.0, band)
    (True, False, False)
    >>> drifts(88.0, band, drifting=True)
    True
    """
    if predicted.lower <= observed <= predicted.upper:
        return False
    deviation = round(abs(observed / predicted.target - 1), 2)
    return deviation >= (DRIFT * 2 / 3 if drifting else DRIFT)


def due(snapshot: JobSnapshot, answer: Answer, settings: LoopSettings) -> float | None:
    """When the next step is due, in seconds of the epoch; None where that cannot be said. [s]

    Of a trainer that counts no steps only the first is waited for: while it publishes a speed, it
    trains.
    """
    alive, running = snapshot.alive, snapshot.running
    if alive is None or (running is not None and alive.step_at is None):
        return None
    step = max(settings.stuck_steps * _step_seconds(alive, answer), settings.stuck_least)
    if alive.step_at is not None and _has_stepped(alive):
        return alive.step_at + step
    of_job = (rate for rate in answer.says.rates if rate.name == RecoveryClass.JOB)
    recoveries = (number(rate.recovery_seconds) for rate in of_job)
    start = max(settings.start_least, STARTS * max(recoveries, default=0.0))
    return alive.since + start + step


def _has_stepped(alive: Alive) -> bool:
    """Whether a job finished a step since it started."""
    return alive.step_at is not None and alive.step_at >= alive.since


def _step_seconds(alive: Alive, answer: Answer) -> float:
    """The longest time of a step: predicted of the advice, of today's layout, or observed. [s]"""
    bands = (figures.get("step_seconds") for figures in (answer.predicted, _predictions(answer)))
    targets = [0.0 if band is None else band.target for band in bands]
    return max(*map(number, targets), number(alive.step_seconds))


def memory_found(figures: ObservedFigures, answer: Answer) -> NewCondition:
    """The condition MemoryAccurate of a job that runs."""

    def condition(state: State, reason: Reason, message: str) -> NewCondition:
        return NewCondition(Aspect.MEMORY_ACCURATE, state, reason, message)

    observed, band, room = figures.memory_bytes, predicted_memory(answer), answer.room_bytes
    is_part = figures.memory_source == ALLOCATOR  # then it may be below the band
    is_too_large = band is not None and band.target > room
    if band is None or (observed is None and not is_too_large):
        reason = Reason.NO_OBSERVATION if observed is None else Reason.OBSERVED
        unseen = "no series tells the device memory of its pods"
        return condition("Unknown", reason, "there is no prediction" if band is None else unseen)
    message = f"{_gib(band.target)} predicted ({_gib(band.lower)} to {_gib(band.upper)})"
    if observed is not None:
        use = "reserved by its allocator" if is_part else "in use"
        message = f"{_gib(observed)} are {use}, {message}"
        if why := implausible(observed, answer):
            message += f"; that cannot be: {why}; it teaches nothing"
            return condition("False", Reason.IMPLAUSIBLE, message)
    is_short = observed is not None and observed >= PRESSED * room
    if is_short:
        message += (
            f"; from {_gib(PRESSED * room)} on allocators retry, which slows a run before it fails"
        )
    if is_too_large:
        message += (
            f"; by the model it cannot fit in {_gib(room)}, and it runs: the model is wrong here"
        )
        return condition("False", Reason.RUNS_ANYWAY, message)
    if is_short:
        return condition("False", Reason.SHORT_OF_MEMORY, message)
    lower = 0.0 if is_part else band.lower
    if observed is not None and not lower <= observed <= band.upper:
        return condition("False", Reason.OUTSIDE_BAND, message)
    return condition("True", Reason.WITHIN_BAND, message)


def _gib(value: float) -> str:
    return f"{value / GIB:.1f} GiB"


def _wait(
    old_figures: ObservedFigures, new_figures: ObservedFigures, now: float, settings: LoopSettings
) -> float | None:
    """How long new figures wait until they are written; None where they say nothing new. [s]"""

    def ratio(observed: ObservedFigures) -> float | None:
        return None if observed.residual is None else 1 + observed.residual

    pairs = [(getattr(old_figures, name), getattr(new_figures, name)) for name in _FIGURES]
    pairs.append((ratio(old_figures), ratio(new_figures)))
    if not any(moved(before, after, settings.material) for before, after in pairs):
        return None
    return time_left(old_figures.time, settings.quiet, now)


def _stuck(snapshot: JobSnapshot, step_due: float | None) -> NewCondition | None:
    """The condition of a job whose step is overdue and would be seen."""
    alive = snapshot.alive
    if alive is None or not alive.watched or step_due is None or alive.at <= step_due:
        return None
    what = f"it is there since {moment(alive.since)}, and no step has finished"
    if alive.step_at is not None and _has_stepped(alive):
        what = f"no step has finished since {moment(alive.step_at)}"
    message = f"{what}; one was due by {moment(step_due)}"
    return NewCondition(Aspect.PREDICTION_ACCURATE, "False", Reason.STUCK, message)


def _unseen(snapshot: JobSnapshot, step_due: float | None) -> tuple[NewCondition, NewCondition]:
    """The conditions where no step advances, or nobody looked.

    A first look that finds nothing gives the same conditions as no look, and so causes no write.
    """
    alive, job = snapshot.alive, snapshot.job
    if snapshot.looked and alive is not None and step_due is not None:
        there = f"it is there since {moment(alive.since)}"
        if (stuck := _stuck(snapshot, step_due)) is not None:
            return _available("True", Reason.OBSERVED, "a step of it would be seen"), stuck
        if alive.at > step_due:
            return _both(Reason.NOT_SEEN, f"{there}, but no series of its trainer is", "False")
        if not _has_stepped(alive):
            return _both(Reason.STARTING, f"{there}; a first step is due by {moment(step_due)}")
    if snapshot.unseen:
        return _both(Reason.SERIES_REFUSED, snapshot.unseen, "False")
    not_running = _both(Reason.NOT_RUNNING, "it was not seen running")
    was_seen = isinstance(job, LiveTrainingJob) and bool(job.observed)
    if (snapshot.looked and alive is None) or not was_seen:
        return not_running
    available, accurate = not_running
    return standing(job, available.aspect) or available, standing(job, accurate.aspect) or accurate


def _running(
    shown: ObservedFigures, snapshot: JobSnapshot, answer: Answer
) -> tuple[NewCondition, NewCondition]:
    """The conditions of a job that runs."""
    observed, source, band = (
        shown.tokens_per_second,
        shown.source,
        _predictions(answer).get("tokens_per_second"),
    )
    if observed is None:
        silent = f"it runs, but {source or 'its source'} shows no tokens per second"
        return _both(Reason.NO_OBSERVATION, silent, "False")
    visible = _available("True", Reason.OBSERVED, f"{source} shows its throughput")

    def accurate(state: State, reason: Reason, message: str) -> tuple[NewCondition, NewCondition]:
        return visible, NewCondition(Aspect.PREDICTION_ACCURATE, state, reason, message)

    if band is None:
        return accurate("Unknown", Reason.OBSERVED, "there is no prediction")
    today = answer.says.current
    is_other = today is not None and today.strategy not in {"", answer.says.strategy}
    message = (
        f"{quantity(observed)} tokens/s are seen, {quantity(band.target)} predicted "
        f"({quantity(band.lower)} to {quantity(band.upper)})"
        f"{' of the layout in spec.current' if is_other else ''}"
    )
    if doubt := doubted(observed, answer):
        return accurate("False", Reason.IMPLAUSIBLE, f"{message}; {doubt}; it teaches nothing")
    condition = standing(snapshot.job, Aspect.PREDICTION_ACCURATE)
    drifting = condition is not None and condition.reason == Reason.DRIFTING
    if drifts(observed, band, drifting=drifting):
        return accurate("False", Reason.DRIFTING, message)
    return accurate("True", Reason.WITHIN_BAND, message)


def _available(state: State, reason: Reason, message: str) -> NewCondition:
    return NewCondition(Aspect.OBSERVATION_AVAILABLE, state, reason, message)


def _both(
    reason: Reason, message: str, available: State = "Unknown"
) -> tuple[NewCondition, NewCondition]:
    """The conditions ObservationAvailable and PredictionAccurate, both with one reason."""
    unknown = NewCondition(Aspect.PREDICTION_ACCURATE, "Unknown", reason, message)
    return _available(available, reason, message), unknown


def _written(running: Running, residual: float | None, now: float) -> WrittenPart:
    """What was observed of a job, as `status.observed`."""
    tokens, step_time = figure(running.tokens_per_second), figure(running.step_seconds)
    interval, ettr = figure(running.checkpoint_interval), figure(running.ettr)
    since, memory = figure(running.since), figure(running.memory_bytes)
    source = DEVICE if running.whole_device else ALLOCATOR
    counts = sorted(item for item in running.interruptions.items() if item[1] > 0)
    status: WrittenPart = {
        "source": running.source if _WORD.fullmatch(running.source) else None,
        "tokensPerSecond": None if tokens is None else digits(tokens),
        "stepMilliseconds": None if step_time is None else digits(1000 * step_time),
        "step": running.step if running.step is not None and running.step >= 0 else None,
        "checkpointIntervalSeconds": None if interval is None else round(interval),
        "ettr": None if ettr is None else f"{max(0.0, min(ettr, 1.0)):.3f}",
        "residual": None if residual is None else f"{residual:.3f}",
        "memoryBytes": None if memory is None else digits(max(0.0, memory)),
        "memorySource": None if memory is None else source,
        "interruptions": min(sum(running.interruptions.values()), MOST_COUNTED),
        "interruptionsBy": [
            {"name": name, "cause": cause.capitalize(), "count": min(count, MOST_COUNTED)}
            for (name, cause), count in counts
        ][: 4 * len(RecoveryClass)],
        "lost": [
            {"cause": _camel(cause), "seconds": round(seconds)}
            for cause, seconds in sorted(running.lost.items())
            if figure(seconds) and _camel(cause)
        ][:8],
        "since": None if since is None else moment(since),
        "time": moment(now),
    }
    return {name: value for name, value in status.items() if value is not None}


def _camel(word: str) -> str:
    """A word in CamelCase, as Kubernetes writes reasons.

    >>> _camel("lost_steps")
    'LostSteps'
    """
    camel = "".join(piece.capitalize() for piece in re.findall(r"[A-Za-z0-9]+", word, re.ASCII))
    return camel[:64] if camel[:1].isalpha() else ""
