"""What is seen of the device memory of a running job, beside what was predicted of the layout that it runs.

    limits          above which it is worth a look: the upper end of the band, and where allocators begin to retry
    memory_found    the condition: within the band or not, short of memory, or running though it cannot fit

What an allocator reserved is less than all that is in use, so it is held against upper ends alone.


How a running job does, in one word, and until when its next step is due.

    a step      `stuck_steps` times its predicted time, or the observed one where that is longer; at least `stuck_least`
    the first   before that the start: `start_least`, or `STARTS` times the recovery of a whole job that the advice counts
                with where that is longer, for it loads, compiles and warms up as a start does

What is due is held against the moment of the look, never against now: while nobody looks, no step can be missed.


What a running job was seen to do, as it is shown in its status: three digits, seldom written, and only when it matters.

What stands is written anew when a figure moved by `material` or more and `quiet` seconds have passed since the last time;
that time stands beside the figures, so that a restart forgets nothing. Conditions speak of what is written, and so they
do not flicker either.
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
from mofa_operator.decide.status import Condition, State, digits, left, moment, moved, standing
from mofa_operator.decision import Answer
from mofa_operator.objects import LiveTrainingJob, ShownFigures, Written, figure
from mofa_operator.settings import LoopSettings
from mofa_operator.snapshot import Alive, JobSnapshot, Running
from mofa_operator.words import Aspect, Health, Reason

DEVICE, ALLOCATOR = "Device", "Allocator"
"""Who tells the memory: the exporter of the device, or the trainer's allocator, beside which there is more in use."""
_NONE: Final[Mapping[str, float]] = {}


def limits(running: Running | None, answer: Answer) -> Mapping[str, float]:
    """Device memory above which what runs is worth a look; none where nothing is seen that can be. [B]"""
    seen = None if running is None else figure(running.memory_bytes)
    if seen is None or implausible(seen, answer):
        return _NONE
    band = predicted_memory(answer)
    told = {} if band is None else {"prediction": band.upper}
    return told | {"device": PRESSED * answer.room_bytes}


def predicted_memory(answer: Answer) -> Range | None:
    """Peak device memory of the layout that the job is said to run, else of the advised one, with its band. [B]"""
    today = answer.says.current
    return (
        answer.figures.get("memory_bytes") if today is None else today.predicted.memory_bytes.band
    )


def implausible(seen: float, answer: Answer) -> str:
    """Why so much memory in use cannot be; empty where it can. [B]"""
    if seen <= 0:
        return "a device that trains holds something"
    if seen > answer.device_bytes:
        return f"a device has {_gib(answer.device_bytes)}"
    return ""


def memory_found(shown: ShownFigures, answer: Answer) -> Condition:
    """Whether the device memory of a job that runs is what was predicted of it."""
    seen, band = shown.memory_bytes, predicted_memory(answer)
    is_part = shown.memory_source == ALLOCATOR
    is_too_large = band is not None and band.target > answer.room_bytes
    if band is None or (seen is None and not is_too_large):
        word = (
            "there is no prediction"
            if band is None
            else "no series tells the device memory of its pods"
        )
        return _memory("Unknown", Reason.NO_OBSERVATION if seen is None else Reason.OBSERVED, word)
    word = "reserved by its allocator" if is_part else "in use"
    told = "" if seen is None else f"{_gib(seen)} are {word}, "
    told += f"{_gib(band.target)} predicted ({_gib(band.lower)} to {_gib(band.upper)})"
    if seen is not None and (why := implausible(seen, answer)):
        return _memory(
            "False", Reason.IMPLAUSIBLE, f"{told}; that cannot be: {why}; it teaches nothing"
        )
    is_short = seen is not None and seen >= PRESSED * answer.room_bytes
    if is_short:
        told += f"; from {_gib(PRESSED * answer.room_bytes)} on allocators retry, which slows a run before it fails"
    if is_too_large:
        told += f"; by the model it cannot fit in {_gib(answer.room_bytes)}, and it runs: the model is wrong here"
        return _memory("False", Reason.RUNS_ANYWAY, told)
    if is_short:
        return _memory("False", Reason.SHORT_OF_MEMORY, told)
    if (seen is not None and not (is_part or band.lower <= seen)) or (seen or 0.0) > band.upper:
        return _memory("False", Reason.OUTSIDE_BAND, told)
    return _memory("True", Reason.WITHIN_BAND, told)


def _memory(state: State, reason: Reason, message: str) -> Condition:
    return Condition(Aspect.MEMORY_ACCURATE, state, reason, message)


def _gib(value: float) -> str:
    return f"{value / GIB:.1f} GiB"


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


def health(accurate: Condition, memory: Condition) -> str:
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


_FIGURES: Final = (
    "tokens_per_second",
    "step_milliseconds",
    "checkpoint_interval_seconds",
    "ettr",
    "memory_bytes",
    "interruptions",
    "lost",
)
"""Figures whose relative change matters; a step that advances is no news."""
MOST_COUNTED: Final = 10_000_000
"""Most interruptions that a status holds; a tenant may claim any number, and one too large would cost the whole status. [1]"""
MOST_MFU: Final = 0.9
"""Model FLOPs utilisation above which no figure is believed: the best published runs reach 0.6 to 0.7. Ours. [1]"""
FARTHEST: Final = (0.25, 2.0)
"""Observed over predicted throughput below and above which a job teaches nothing; above, it is not believed either. Ours. [1]"""
_WORD: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._/ -]*[A-Za-z0-9])?")


@dataclass(frozen=True, kw_only=True, slots=True)
class ObservedStatus:
    """What is shown of a running job."""

    observed: Written
    """`status.observed`; empty where nothing was ever seen."""
    record: str
    """What the operator notes of the run for itself, written when that is; empty where nothing was ever seen."""
    found: tuple[Condition, Condition]
    """Whether it can be seen, and whether that is what was predicted."""
    memory: Condition
    """Whether its device memory is what was predicted."""
    due: float | None = None
    """Until when the next step is due, where it would be seen; in seconds of the epoch. [s]"""
    again: float | None = None
    """A change waits for its time to be written; look again after this. [s]"""

    @property
    def health(self) -> str:
        """The column HEALTH."""
        return health(self.found[1], self.memory)


def observed_status(
    snapshot: JobSnapshot, answer: Answer, settings: LoopSettings
) -> ObservedStatus:
    """What to show, given what stands."""
    job = snapshot.job
    stands = job.observed if isinstance(job, LiveTrainingJob) else {}
    record = job.record
    step_due = due(snapshot, answer, settings)
    if not snapshot.looked or snapshot.running is None:
        found = _unseen(snapshot, step_due)
        unseen = standing(job, Aspect.MEMORY_ACCURATE) if stands and not snapshot.looked else None
        unseen = unseen or replace(found[1], aspect=Aspect.MEMORY_ACCURATE, state="Unknown")
        return ObservedStatus(
            observed=stands,
            record=record,
            found=found,
            memory=unseen,
            due=_told(snapshot, step_due),
        )
    fresh = _written(snapshot.running, residual(snapshot.running, answer), snapshot.now)
    old = job.status.observed if isinstance(job, LiveTrainingJob) else ShownFigures()
    new = glance(ShownFigures, fresh)
    wait = _wait(old, new, snapshot.now, settings) if stands else 0.0
    shown = fresh if wait == 0 else stands
    available, accurate = _found(new if wait == 0 else old, snapshot, answer)
    return ObservedStatus(
        observed=shown,
        record=snapshot.running.record if wait == 0 else record,
        found=(available, _stuck(snapshot, step_due) or accurate),
        memory=memory_found(new if wait == 0 else old, answer),
        due=_told(snapshot, step_due),
        again=wait or None,
    )


def drifts(
    observed: float,
    predicted: Range,
    *,
    threshold: float = 0.15,
    drifting: bool = False,
) -> bool:
    """Whether an observed throughput contradicts its prediction: outside the band, and off the target by the threshold.

    The residual counts to the percent, as it is shown. What drifts already, drifts until it is off by less than two thirds of
    the threshold or back in the band, so that the verdict does not flicker.

    >>> band = Range(lower=92.0, target=100.0, upper=110.0)
    >>> drifts(85.0, band), drifts(88.0, band), drifts(92.0, band)
    (True, False, False)
    >>> drifts(88.0, band, drifting=True)
    True
    """
    if predicted.lower <= observed <= predicted.upper:
        return False
    return round(abs(observed / predicted.target - 1), 2) >= (
        threshold * 2 / 3 if drifting else threshold
    )


def residual(running: Running | None, answer: Answer) -> float | None:
    """Observed over predicted throughput, minus one; None where nothing is predicted of what runs. [1]"""
    seen, target = seen_tokens(running), predicted_tokens(answer)
    return None if seen is None or not target else seen / target - 1


def seen_tokens(running: Running | None) -> float | None:
    """Observed tokens per second. [1/s]"""
    return None if running is None else figure(running.tokens_per_second)


def doubted(seen: float, answer: Answer) -> str:
    """Why a throughput cannot be that of this job on its devices; empty where it can. [1/s]"""
    tokens, mfu = (
        band.target if (band := answer.figures.get(name)) else 0.0
        for name in ("tokens_per_second", "mfu")
    )
    reached = mfu * seen / tokens if tokens else 0.0
    if reached > MOST_MFU:
        return f"that is an MFU of {100 * reached:.0f} %, and no more than {100 * MOST_MFU:.0f} % is believed"
    target = predicted_tokens(answer)
    if target and seen / target > FARTHEST[1]:
        return f"that is {seen / target:.2g} times the prediction, and no more than {FARTHEST[1]:g} times is believed"
    return ""


def predicted_tokens(answer: Answer) -> float:
    """Predicted tokens per second of the layout that runs; 0 where nothing is predicted. [1/s]"""
    band = _band(answer)
    return 0.0 if band is None else max(0.0, band.target)


def _band(answer: Answer) -> Range | None:
    """Tokens per second of the layout that the job is said to run, else of the advised one; None = nothing is predicted. [1/s]"""
    today = answer.says.current
    return (
        answer.figures.get("tokens_per_second")
        if today is None
        else today.predicted.tokens_per_second.band
    )


def _wait(
    stands: ShownFigures, fresh: ShownFigures, now: float, settings: LoopSettings
) -> float | None:
    """How long a new reading has to wait; None where it says nothing new. [s]"""
    pairs = [(getattr(stands, name), getattr(fresh, name)) for name in _FIGURES]
    pairs.append((_ratio(stands), _ratio(fresh)))
    if not any(moved(before, after, settings.material) for before, after in pairs):
        return None
    return left(stands.time, settings.quiet, now)


def _ratio(figures: ShownFigures) -> float | None:
    """Observed over predicted throughput. [1]"""
    return None if figures.residual is None else 1 + figures.residual


def _told(snapshot: JobSnapshot, step_due: float | None) -> float | None:
    """A step is due where it would be seen."""
    return step_due if snapshot.alive is not None and snapshot.alive.watched else None


def _stuck(snapshot: JobSnapshot, step_due: float | None) -> Condition | None:
    """That a step is overdue; None where it is not, or where it would not be seen."""
    alive = snapshot.alive
    if alive is None or not alive.watched or step_due is None or alive.at <= step_due:
        return None
    if alive.step_at is not None and has_stepped(alive):
        what = f"no step has finished since {moment(alive.step_at)}"
    else:
        what = f"it is there since {moment(alive.since)}, and no step has finished"
    late = f"{what}; one was due by {moment(step_due)}"
    return Condition(Aspect.PREDICTION_ACCURATE, "False", Reason.STUCK, late)


def _unseen(snapshot: JobSnapshot, step_due: float | None) -> tuple[Condition, Condition]:
    """No step advances: it does not run, starts, is stuck, or nobody sees it; or nobody looked, and what was seen, stands.

    The first and the last are said in the same words: that a first look found nothing is no news, and no reason to write.
    """
    alive = snapshot.alive
    if snapshot.looked and alive is not None and step_due is not None:
        visible = Condition(
            Aspect.OBSERVATION_AVAILABLE, "True", Reason.OBSERVED, "a step of it would be seen"
        )
        if (stuck := _stuck(snapshot, step_due)) is not None:
            return visible, stuck
        if alive.at > step_due:
            return _both(
                Reason.NOT_SEEN,
                f"it is there since {moment(alive.since)}, but no series of its trainer is",
                "False",
            )
        if not has_stepped(alive):
            return _both(
                Reason.STARTING,
                f"it is there since {moment(alive.since)}; a first step is due by {moment(step_due)}",
            )
    if snapshot.unseen:
        return _both(Reason.SERIES_REFUSED, snapshot.unseen, "False")
    fresh = _both(Reason.NOT_RUNNING, "it was not seen running")
    job = snapshot.job
    if (snapshot.looked and alive is None) or not (
        isinstance(job, LiveTrainingJob) and job.observed
    ):
        return fresh
    stand = [standing(job, one.aspect) for one in fresh]
    return stand[0] or fresh[0], stand[1] or fresh[1]


def _both(
    reason: Reason, message: str, available: State = "Unknown"
) -> tuple[Condition, Condition]:
    """The same reason of both aspects."""
    return (
        Condition(Aspect.OBSERVATION_AVAILABLE, available, reason, message),
        Condition(Aspect.PREDICTION_ACCURATE, "Unknown", reason, message),
    )


def _found(
    shown: ShownFigures, snapshot: JobSnapshot, answer: Answer
) -> tuple[Condition, Condition]:
    """Whether it can be seen, and whether that is what was predicted."""
    seen, source = shown.tokens_per_second, shown.source
    band = _band(answer)
    if seen is None:
        silent = f"it runs, but {source or 'its source'} shows no tokens per second"
        return (
            Condition(Aspect.OBSERVATION_AVAILABLE, "False", Reason.NO_OBSERVATION, silent),
            Condition(Aspect.PREDICTION_ACCURATE, "Unknown", Reason.NO_OBSERVATION, silent),
        )
    visible = Condition(
        Aspect.OBSERVATION_AVAILABLE, "True", Reason.OBSERVED, f"{source} shows its throughput"
    )
    if band is None:
        return visible, Condition(
            Aspect.PREDICTION_ACCURATE, "Unknown", Reason.OBSERVED, "there is no prediction"
        )
    message = (
        f"{quantity(seen)} tokens/s are seen, {quantity(band.target)} predicted "
        f"({quantity(band.lower)} to {quantity(band.upper)}){_of_today(answer)}"
    )
    if doubt := doubted(seen, answer):
        return visible, Condition(
            Aspect.PREDICTION_ACCURATE,
            "False",
            Reason.IMPLAUSIBLE,
            f"{message}; {doubt}; it teaches nothing",
        )
    stands = standing(snapshot.job, Aspect.PREDICTION_ACCURATE)
    drifting = stands is not None and stands.reason == Reason.DRIFTING
    if drifts(seen, band, drifting=drifting):
        return visible, Condition(Aspect.PREDICTION_ACCURATE, "False", Reason.DRIFTING, message)
    return visible, Condition(Aspect.PREDICTION_ACCURATE, "True", Reason.WITHIN_BAND, message)


def _of_today(answer: Answer) -> str:
    """Of which layout the prediction is, where it is not the advised one."""
    today = answer.says.current
    advised = answer.says.strategy
    return (
        "" if today is None or today.strategy in {"", advised} else " of the layout in spec.current"
    )


def _written(running: Running, off: float | None, now: float) -> Written:
    """A reading as `status.observed`."""
    tokens, step_time = figure(running.tokens_per_second), figure(running.step_seconds)
    interval, ettr, since = (
        figure(running.checkpoint_interval),
        figure(running.ettr),
        figure(running.since),
    )
    memory = figure(running.memory_bytes)
    counts = {
        key: min(count, MOST_COUNTED) for key, count in running.interruptions.items() if count > 0
    }
    told: Written = {
        "source": running.source if _WORD.fullmatch(running.source) else None,
        "tokensPerSecond": None if tokens is None else digits(tokens),
        "stepMilliseconds": None if step_time is None else digits(1000 * step_time),
        "step": running.step if running.step is not None and running.step >= 0 else None,
        "checkpointIntervalSeconds": None if interval is None else round(interval),
        "ettr": None if ettr is None else f"{max(0.0, min(ettr, 1.0)):.3f}",
        "residual": None if off is None else f"{off:.3f}",
        "memoryBytes": None if memory is None else digits(max(0.0, memory)),
        "memorySource": None if memory is None else DEVICE if running.whole_device else ALLOCATOR,
        "interruptions": min(sum(running.interruptions.values()), MOST_COUNTED),
        "interruptionsBy": [
            {"name": name, "cause": cause.capitalize(), "count": count}
            for (name, cause), count in sorted(counts.items())
        ][: 4 * len(RecoveryClass)],
        "lost": [
            {"cause": _camel(cause), "seconds": round(lost)}
            for cause, lost in sorted(running.lost.items())
            if figure(lost) and _camel(cause)
        ][:8],
        "since": None if since is None else moment(since),
        "time": moment(now),
    }
    return {name: value for name, value in told.items() if value is not None}


def _camel(word: str) -> str:
    """A word as reasons are written.

    >>> _camel("lost_steps")
    'LostSteps'
    """
    found = "".join(piece.capitalize() for piece in re.findall(r"[A-Za-z0-9]+", word, re.ASCII))
    return found[:64] if found[:1].isalpha() else ""
