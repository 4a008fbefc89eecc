"""What is worth an Event about a job: the first advice, one that differs from the last in what matters, one of another version of
the model, none at all; and what somebody changed of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mofa_model.advice import Status
from mofa_model.annotations import INVALID, PREFIX
from mofa_operator.decide.observation import ObservedStatus
from mofa_operator.decide.status import moment, moved, sentence, standing
from mofa_operator.decision import Answer, Note
from mofa_operator.objects import LiveTrainingJob, figure
from mofa_operator.snapshot import JobSnapshot
from mofa_operator.words import Aspect, Happened, Reason

_NAMED: Final = 4
"""Keys, and whoever changed them, that an Event names. [1]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Told:
    """What was advised before."""

    digest: str
    model: str
    strategy: str
    interval: float | None
    is_of_status: bool = False
    """Whether a status said it, whose interval has an end."""


def news(
    snapshot: JobSnapshot,
    answer: Answer,
    seen: ObservedStatus,
    changed: Mapping[str, str],
    material: float,
) -> tuple[Note, ...]:
    """The Event of a decision, if any; `changed` are keys that somebody overwrote, and who; `material` is the least relative
    change of an interval that counts. [1]
    """
    return _advised(snapshot, answer, material) or _drift(snapshot, seen) or _overwritten(changed)


def _advised(snapshot: JobSnapshot, answer: Answer, material: float) -> tuple[Note, ...]:
    """Advice that is not the last one."""
    before = _told(snapshot)
    if before.digest == answer.digest:
        return ()
    if answer.reason == Reason.PROFILE_MISSING:
        proposal = f"{answer.explanation}; mofa profile --from-cluster proposes one from the labels of the nodes"
        return (Note(reason=Happened.PROFILE_PROPOSED, message=sentence(proposal), warning=True),)
    if answer.outcome == INVALID:
        return (
            Note(reason=Happened.INVALID_INPUT, message=sentence(answer.explanation), warning=True),
        )
    if not answer.strategy:
        note = Note(
            reason=Happened.NO_FEASIBLE_LAYOUT, message=sentence(answer.explanation), warning=True
        )
        return (note,)
    if not before.strategy:
        sure = answer.outcome == Status.RECOMMENDED.value
        first = Happened.RECOMMENDED if sure else Happened.LOW_CONFIDENCE
        return (Note(reason=first, message=sentence(answer.explanation)),)
    change, upgrade = _change(before, answer, material), _upgrade(before, answer)
    if change:
        said = "; ".join(filter(None, (upgrade, change, answer.explanation)))
        return (Note(reason=Happened.RECOMMENDATION_CHANGED, message=sentence(said)),)
    stays = f"{upgrade}; what it advises stays: {answer.explanation}"
    return (Note(reason=Happened.MODEL_CHANGED, message=sentence(stays)),) if upgrade else ()


def _upgrade(before: _Told, answer: Answer) -> str:
    """That another version of the model answered before; empty where it did not."""
    now = answer.annotations.get(PREFIX + "model-version", "")
    return (
        ""
        if before.model in {"", now}
        else f"model {now} answers anew what {before.model} had answered"
    )


def _told(snapshot: JobSnapshot) -> _Told:
    """What was advised before: as the status says of a TrainingJob, as its annotations say of an existing job."""
    job = snapshot.job
    if isinstance(job, LiveTrainingJob):
        ready = standing(job, Aspect.READY)
        if ready is not None and ready.reason == Reason.ANNOTATIONS_REFUSED:
            return _Told(digest="", model="", strategy="", interval=None)  # it was not said yet
        status = job.status
        return _Told(
            digest=status.inputs_hash,
            model=status.model_version,
            strategy=status.strategy,
            interval=status.interval,
            is_of_status=True,
        )
    stands = job.annotations
    return _Told(
        digest=stands.get(PREFIX + "inputs-hash", ""),
        model=stands.get(PREFIX + "model-version", ""),
        strategy=stands.get(PREFIX + "strategy", ""),
        interval=figure(stands.get(PREFIX + "checkpoint-interval-seconds")),
    )


def _change(before: _Told, answer: Answer, material: float) -> str:
    """What differs, from what to what; empty where nothing does that matters."""
    after = answer.annotations.get(PREFIX + "strategy", "")
    interval = answer.says.interval if before.is_of_status else answer.checkpoint_interval
    words = []
    if before.strategy != after:
        words.append(f"strategy from {before.strategy} to {after}")
    if moved(before.interval, interval, material):
        words.append(
            f"checkpoint interval from {before.interval or 0:.0f} s to {interval or 0:.0f} s"
        )
    return ", ".join(words)


def _drift(snapshot: JobSnapshot, seen: ObservedStatus) -> tuple[Note, ...]:
    """A job that begins to differ from its prediction: one Event for each time that it does."""
    accurate = seen.found[1]
    before = standing(snapshot.job, Aspect.PREDICTION_ACCURATE)
    if accurate.reason != Reason.DRIFTING or (
        before is not None and before.reason == Reason.DRIFTING
    ):
        return ()
    note = Note(
        reason=Happened.PREDICTION_DRIFT,
        message=sentence(accurate.message),
        warning=True,
        episode=moment(snapshot.now),
    )
    return (note,)


def _overwritten(changed: Mapping[str, str]) -> tuple[Note, ...]:
    """Values of ours that somebody changed: one Event for equal changes, however often they are made."""
    if not changed:
        return ()
    names = [name.removeprefix(PREFIX) for name in sorted(changed)]
    hands = sorted({hand for hand in changed.values() if hand})
    which = ", ".join(names[:_NAMED]) + (
        f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    )
    by = f" by {', '.join(hands[:_NAMED])}" if hands else ""
    message = f"annotations under {PREFIX} were changed{by}: {which}; what we wrote is put back"
    return (
        Note(reason=Happened.OVERWRITTEN, message=sentence(message), warning=True, episode=message),
    )
