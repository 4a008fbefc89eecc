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
    """The advice that a job was given last."""

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
    """The Event of advice that differs from the last advice."""
    last = _last_advice(snapshot)
    if last.digest == answer.digest:
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
    if not last.strategy:
        is_sure = answer.outcome == Status.RECOMMENDED.value
        return note(Happened.RECOMMENDED if is_sure else Happened.LOW_CONFIDENCE, why)
    change, upgrade = _change(snapshot, last, answer, material), _upgrade(last, answer)
    if change:
        return note(Happened.RECOMMENDATION_CHANGED, joined([upgrade, change, why]))
    stays = f"{upgrade}; what it advises stays: {why}"
    return note(Happened.MODEL_CHANGED, stays) if upgrade else None


def _upgrade(last: _LastAdvice, answer: Answer) -> str:
    """That another version of the model gave the last advice, in words; empty where none did."""
    version = answer.annotations.get(PREFIX + "model-version", "")
    is_same = last.model in {"", version}
    return "" if is_same else f"model {version} answers anew what {last.model} had answered"


def _last_advice(snapshot: JobSnapshot) -> _LastAdvice:
    """The last advice: in the status of a TrainingJob, in the annotations of another job."""
    job = snapshot.job
    if isinstance(job, LiveTrainingJob):
        ready, status = standing(job, Aspect.READY), job.status
        if ready is not None and ready.reason == Reason.ANNOTATIONS_REFUSED:
            return _LastAdvice()  # it has reached nobody yet
        return _LastAdvice(
            digest=status.inputs_hash,
            model=status.model_version,
            strategy=status.strategy,
            interval=status.interval,
        )
    annotations = job.annotations
    return _LastAdvice(
        digest=annotations.get(PREFIX + "inputs-hash", ""),
        model=annotations.get(PREFIX + "model-version", ""),
        strategy=annotations.get(PREFIX + "strategy", ""),
        interval=figure(annotations.get(PREFIX + "checkpoint-interval-seconds")),
    )


def _change(snapshot: JobSnapshot, last: _LastAdvice, answer: Answer, material: float) -> str:
    """What changed in the advice, from what to what; empty where nothing did that matters."""
    strategy = answer.annotations.get(PREFIX + "strategy", "")
    is_of_status = isinstance(snapshot.job, LiveTrainingJob)  # whose interval has an upper end
    interval = answer.says.interval if is_of_status else answer.checkpoint_interval
    words = []
    if last.strategy != strategy:
        words.append(f"strategy from {last.strategy} to {strategy}")
    if moved(last.interval, interval, material):
        old_interval, new_interval = last.interval or 0, interval or 0
        words.append(f"checkpoint interval from {old_interval:.0f} s to {new_interval:.0f} s")
    return ", ".join(words)


def _drift(snapshot: JobSnapshot, observed_status: ObservedStatus) -> Note | None:
    """The Event with which a job begins to differ from its prediction."""
    accurate = observed_status.new_conditions[1]
    old = standing(snapshot.job, Aspect.PREDICTION_ACCURATE)
    if accurate.reason != Reason.DRIFTING or (old is not None and old.reason == Reason.DRIFTING):
        return None
    return Note(
        reason=Happened.PREDICTION_DRIFT,
        message=sentence(accurate.message),
        warning=True,
        episode=moment(snapshot.now),
    )


def _overwritten(changed: Mapping[str, str]) -> Note | None:
    """The Event of annotations of ours that somebody changed; equal changes make one Event."""
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
