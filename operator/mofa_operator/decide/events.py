"""The Event of a decision: new advice, changed advice, drift, or overwritten values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mofa_model.advice import Status
from mofa_model.annotations import PREFIX, QUIET, UNANSWERED
from mofa_operator.decide.observation import ObservedStatus
from mofa_operator.decide.status import joined, moment, moved, sentence, standing
from mofa_operator.decision import Answer, Note
from mofa_operator.objects import LiveTrainingJob, figure
from mofa_operator.snapshot import JobSnapshot
from mofa_operator.words import Aspect, Happened, Reason

_NAMED: Final = 4
"""Most keys, and most who changed them, that an Event names. [1]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class _LastAdvice:
    """The advice that stands."""

    digest: str = ""
    model: str = ""
    strategy: str = ""
    interval: float | None = None


def news(
    snapshot: JobSnapshot,
    answer: Answer,
    observed_status: ObservedStatus,
    changed: Mapping[str, str],
    material: float,
) -> tuple[Note, ...]:
    """The Event of a decision, if any.

    `changed` are keys that somebody overwrote, and who; `material` is the least relative change of
    an interval. [1]
    """
    note = (
        _advised(snapshot, answer, material)
        or _drift(snapshot, observed_status)
        or _overwritten(changed)
    )
    return () if note is None else (note,)


def _advised(snapshot: JobSnapshot, answer: Answer, material: float) -> Note | None:
    """Advice that differs from the last one."""
    before = _last_advice(snapshot)
    if before.digest == answer.digest:
        return None

    def note(reason: Happened, message: str, *, warning: bool = False) -> Note:
        return Note(reason=reason, message=sentence(message), warning=warning)

    why = answer.explanation
    if answer.reason == Reason.PROFILE_MISSING:
        how = "mofa profile --from-cluster proposes one from the labels of the nodes"
        return note(Happened.PROFILE_PROPOSED, f"{why}; {how}", warning=True)
    if answer.outcome in QUIET:
        return None
    if answer.outcome in UNANSWERED:
        return note(Happened.INVALID_INPUT, why, warning=True)
    if not answer.strategy:
        return note(Happened.NO_FEASIBLE_LAYOUT, why, warning=True)
    if not before.strategy:
        is_sure = answer.outcome == Status.RECOMMENDED.value
        return note(Happened.RECOMMENDED if is_sure else Happened.LOW_CONFIDENCE, why)
    change, upgrade = _change(snapshot, before, answer, material), _upgrade(before, answer)
    if change:
        return note(Happened.RECOMMENDATION_CHANGED, joined([upgrade, change, why]))
    stays = f"{upgrade}; what it advises stays: {why}"
    return note(Happened.MODEL_CHANGED, stays) if upgrade else None


def _upgrade(before: _LastAdvice, answer: Answer) -> str:
    """A sentence that an older version of the model gave the last advice; empty where none did."""
    now = answer.annotations.get(PREFIX + "model-version", "")
    is_same = before.model in {"", now}
    return "" if is_same else f"model {now} answers anew what {before.model} had answered"


def _last_advice(snapshot: JobSnapshot) -> _LastAdvice:
    """The last advice: in the status of a TrainingJob, in the annotations of another job."""
    job = snapshot.job
    if isinstance(job, LiveTrainingJob):
        ready, status = standing(job, Aspect.READY), job.status
        if ready is not None and ready.reason == Reason.ANNOTATIONS_REFUSED:
            return _LastAdvice()  # nobody was told yet
        return _LastAdvice(
            digest=status.inputs_hash,
            model=status.model_version,
            strategy=status.strategy,
            interval=status.interval,
        )
    stands = job.annotations
    return _LastAdvice(
        digest=stands.get(PREFIX + "inputs-hash", ""),
        model=stands.get(PREFIX + "model-version", ""),
        strategy=stands.get(PREFIX + "strategy", ""),
        interval=figure(stands.get(PREFIX + "checkpoint-interval-seconds")),
    )


def _change(snapshot: JobSnapshot, before: _LastAdvice, answer: Answer, material: float) -> str:
    """What differs, from what to what; empty where nothing does that matters."""
    after = answer.annotations.get(PREFIX + "strategy", "")
    is_of_status = isinstance(snapshot.job, LiveTrainingJob)  # whose interval has an upper end
    interval = answer.says.interval if is_of_status else answer.checkpoint_interval
    words = []
    if before.strategy != after:
        words.append(f"strategy from {before.strategy} to {after}")
    if moved(before.interval, interval, material):
        stood, now = before.interval or 0, interval or 0
        words.append(f"checkpoint interval from {stood:.0f} s to {now:.0f} s")
    return ", ".join(words)


def _drift(snapshot: JobSnapshot, seen: ObservedStatus) -> Note | None:
    """A job that begins to differ from its prediction: one Event each time."""
    accurate, before = seen.new_conditions[1], standing(snapshot.job, Aspect.PREDICTION_ACCURATE)
    drifted = before is not None and before.reason == Reason.DRIFTING
    if accurate.reason != Reason.DRIFTING or drifted:
        return None
    return Note(
        reason=Happened.PREDICTION_DRIFT,
        message=sentence(accurate.message),
        warning=True,
        episode=moment(snapshot.now),
    )


def _overwritten(changed: Mapping[str, str]) -> Note | None:
    """Values of ours that somebody changed: one Event for equal changes."""
    if not changed:
        return None
    names = [name.removeprefix(PREFIX) for name in sorted(changed)]
    managers = sorted(filter(None, set(changed.values())))
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    by = f" by {', '.join(managers[:_NAMED])}" if managers else ""
    which = ", ".join(names[:_NAMED]) + more
    message = f"annotations under {PREFIX} were changed{by}: {which}; what we wrote is put back"
    return Note(
        reason=Happened.OVERWRITTEN, message=sentence(message), warning=True, episode=message
    )
