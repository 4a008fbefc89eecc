"""Annotations to write: what should stand, what should go, and nothing while the inputs hash is equal.

What we wrote stands while the hash is equal, though a fresh answer may differ in what the hash does not cover (the longer a
pool is watched, the narrower are the bands). A value that is not of our hand has to be the answer's: another one is put right.


A job's snapshot and its answer as a decision: annotations, status, at most one Event, figures.

    stance_of(snapshot)      an answer, a removal, or nothing at all
    job(snapshot, answer)    the decision; equal to what stands = silent
    failed(snapshot, why)    the decision where the model itself failed
    refused(snapshot, …)     the decision where the API server does not take the annotations

Deciding twice writes once: whatever was written is what the next decision wants to see.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mofa_model.annotations import PREFIX, RECORD, removal
from mofa_operator.decide.calibration import taught
from mofa_operator.decide.events import news
from mofa_operator.decide.observation import ObservedStatus, limits, observed_status, residual
from mofa_operator.decide.policy import Stance, is_paused, stance_of
from mofa_operator.decide.release import launch_verified, with_release
from mofa_operator.decide.status import (
    Condition,
    conditions,
    joined,
    moment,
    of_generation,
    same,
    sentence,
    standing,
)
from mofa_operator.decision import Annotate, Answer, Decision, JobFigures, Note
from mofa_operator.objects import LiveObject, LiveProfile, LiveTrainingJob, Written, seconds
from mofa_operator.settings import LoopSettings
from mofa_operator.snapshot import JobSnapshot
from mofa_operator.words import OF_JOBS, Aspect, Happened, Reason

HASH, COMPUTED = PREFIX + "inputs-hash", PREFIX + "computed-at"


def computed_at(snapshot: JobSnapshot, digest: str) -> str:
    """When an answer was computed: as it was said before while the hash is equal, in the status or on the job, else now."""
    job, stands = snapshot.job, snapshot.job.annotations
    told = [(stands.get(HASH), stands.get(COMPUTED, ""))]
    if isinstance(job, LiveTrainingJob):
        told.insert(0, (job.status.inputs_hash, job.status.computed_time))
    dated = (at for of, at in told if of == digest and seconds(at) is not None)
    return next(dated, moment(snapshot.now))


def held(job: LiveObject, answer: Answer, computed: str, record: str = "") -> Annotate | None:
    """What to write so that an answer and the record of a run stand on an object; None where both do, the answer whole,
    untouched and with the same hash. A record that is new is written beside the answer that stands.
    """
    stands, hold = job.annotations, {**answer.annotations, COMPUTED: computed}
    if stands.get(HASH) == answer.digest and not _differing(job, hold):
        if stands.get(RECORD, "") == record:
            return None
        hold = {name: stands[name] for name in hold}
    if record:
        hold[RECORD] = record
    stale = tuple(name for name in removal(stands) if name not in hold)
    return Annotate(key=job.key, uid=job.uid, hold=hold, drop=stale)


def overwritten(job: LiveObject, answer: Answer, computed: str) -> Mapping[str, str]:
    """Keys of an answer that stood on an object, whose values somebody changed or took away, and who; none where it is new."""
    differing = _differing(job, {**answer.annotations, COMPUTED: computed})
    stood = job.annotations.get(HASH) == answer.digest or set(differing) == {HASH}
    return differing if stood else {}


def _differing(job: LiveObject, hold: Mapping[str, str]) -> dict[str, str]:
    """Keys that are missing, or have a value that is neither the answer's nor of our hand; and of whose."""
    stands, foreign = job.annotations, job.foreign
    return {
        name: foreign.get(name, "")
        for name, value in hold.items()
        if name not in stands or (name in foreign and stands[name] != value)
    }


def removed(job: LiveObject) -> Annotate | None:
    """What to write so that nothing of ours stands on an object; None where nothing does."""
    gone = tuple(removal(job.annotations))
    return Annotate(key=job.key, uid=job.uid, hold={}, drop=gone) if gone else None


def takes(job: LiveObject) -> bool:
    """Whether a target may be written to: not while it is being deleted, nor while it is paused."""
    return not job.is_going and not is_paused(job)


_VERDICTS: Final = ("Consistent", "HigherThanAssumed", "LowerThanAssumed", "InsufficientData")


def job(snapshot: JobSnapshot, answer: Answer | None, settings: LoopSettings) -> Decision:
    """What to do about a job; `answer` is None where none was needed (`needs_answer`)."""
    return with_release(_job(snapshot, answer, settings), snapshot, answer, settings)


def _job(snapshot: JobSnapshot, answer: Answer | None, settings: LoopSettings) -> Decision:
    """The same without mode Apply."""
    stance, job = stance_of(snapshot), snapshot.job
    if stance in {Stance.DISABLED, Stance.NOT_ASKED}:
        return _cleared(snapshot, stance)
    if stance is not Stance.ADVISE or answer is None:
        return Decision(key=job.key, uid=job.uid, outcome=stance.value)
    seen = observed_status(snapshot, answer, settings)
    computed = computed_at(snapshot, answer.digest)
    ours = isinstance(job, LiveTrainingJob)
    annotate = [held(job, answer, computed, seen.record if ours else "")]
    changed = overwritten(job, answer, computed)
    if snapshot.target is not None and takes(snapshot.target):
        annotate.append(held(snapshot.target, answer, computed))
        changed = {**overwritten(snapshot.target, answer, computed), **changed}
    status = _status(snapshot, answer, seen, computed) if ours else None
    if status is not None and same(job.standing, status):
        status = None
    writes = tuple(one for one in annotate if one is not None)
    return Decision(
        key=job.key,
        uid=job.uid,
        status=status,
        annotate=writes,
        notes=news(snapshot, answer, seen, changed, settings.material)
        if writes or status is not None
        else (),
        figures=_figures(snapshot, answer, seen),
        outcome=answer.reason,
        digest=answer.digest,
        again=seen.again,
        taught=taught(snapshot, answer, settings),
    )


def failed(snapshot: JobSnapshot, why: str) -> Decision:
    """What to do where the model itself failed: what was advised before stands, and Ready says what happened."""
    job, status = snapshot.job, None
    if isinstance(job, LiveTrainingJob) and stance_of(snapshot) is Stance.ADVISE:
        ready = Condition(Aspect.READY, "Unknown", Reason.INTERNAL_ERROR, why)
        others = [
            standing(job, aspect) or Condition(aspect, "Unknown", Reason.INTERNAL_ERROR)
            for aspect in OF_JOBS[1:]
        ]
        launch = standing(job, Aspect.LAUNCH_VERIFIED)
        found = [ready, *others, *([launch] if launch else [])]
        status = job.kept() | {"conditions": conditions(job, found, snapshot.now)}
    return Decision(
        key=job.key,
        uid=job.uid,
        status=None if same(job.kept(), status) else status,
        outcome=Reason.INTERNAL_ERROR.value,
    )


def refused(snapshot: JobSnapshot, answer: Answer, settings: LoopSettings, why: str) -> Decision:
    """What to do where the API server does not take the annotations: the status has the answer, and Ready says why not they."""
    job, status = snapshot.job, None
    seen = observed_status(snapshot, answer, settings)
    figures = _figures(snapshot, answer, seen)
    if isinstance(job, LiveTrainingJob):
        status = _status(snapshot, answer, seen, computed_at(snapshot, answer.digest), why)
        if same(job.standing, status):
            outcome = Reason.ANNOTATIONS_REFUSED.value
            return Decision(key=job.key, uid=job.uid, figures=figures, outcome=outcome)
    note = Note(
        reason=Happened.ANNOTATIONS_REFUSED, message=sentence(why), warning=True, episode=why
    )
    return Decision(
        key=job.key,
        uid=job.uid,
        status=status,
        notes=(note,),
        figures=figures,
        outcome=Reason.ANNOTATIONS_REFUSED.value,
        digest=answer.digest,
    )


def _cleared(snapshot: JobSnapshot, stance: Stance) -> Decision:
    """Nothing of ours may stand: neither on the job nor on its target, and a TrainingJob's status says why."""
    job, status = snapshot.job, None
    gone: list[Annotate | None] = [removed(job)]
    if snapshot.target is not None and takes(snapshot.target):
        gone.append(removed(snapshot.target))
    if isinstance(job, LiveTrainingJob):
        found = [Condition(aspect, "Unknown", Reason.DISABLED) for aspect in OF_JOBS]
        found[0] = Condition(Aspect.READY, "False", Reason.DISABLED, "the mode is Disabled")
        status = of_generation(job, {"conditions": conditions(job, found, snapshot.now)})
    return Decision(
        key=job.key,
        uid=job.uid,
        status=None if same(job.standing, status) else status,
        annotate=tuple(one for one in gone if one is not None),
        outcome=stance.value,
    )


def _status(
    snapshot: JobSnapshot, answer: Answer, seen: ObservedStatus, computed: str, refusal: str = ""
) -> Written:
    """The whole status of an advised TrainingJob; `refusal` says why its annotations do not stand."""
    ready, *others = _found(snapshot, answer)
    if refusal:
        ready = Condition(Aspect.READY, "False", Reason.ANNOTATIONS_REFUSED, refusal)
    status: Written = {
        **answer.status,
        "computedTime": computed,
        "health": seen.health,
        "conditions": conditions(
            snapshot.job,
            [ready, *others, *seen.found, seen.memory, *launch_verified(snapshot, answer)],
            snapshot.now,
        ),
    }
    if "inputs" in answer.status:
        status["inputs"] = _judged(answer.status["inputs"], snapshot.profile)
    if seen.observed:
        status["observed"] = dict(seen.observed)
    return of_generation(snapshot.job, status)


def _judged(inputs: Written, profile: LiveProfile | None) -> Written:
    """The rates that were used, each with what the history says of its assumption."""
    rows = () if profile is None else profile.status.rows
    known = {row.name: row.verdict for row in rows if row.verdict in _VERDICTS}
    rates = [
        {**rate, "verdict": known[rate["name"]]} if rate["name"] in known else rate
        for rate in inputs["failure"]
    ]
    return {**inputs, "failure": rates}


def _found(snapshot: JobSnapshot, answer: Answer) -> list[Condition]:
    """What an answer says of the first four aspects."""
    reason = Reason(answer.reason)
    advised = reason in {Reason.RECOMMENDED, Reason.LOW_CONFIDENCE, Reason.PRIOR_DOMINATED}
    more = (
        () if reason is Reason.LOW_CONFIDENCE else _doubts(answer, reason)
    )  # its explanation begins with them
    why = joined([answer.explanation, *more, _target_caveat(snapshot)])
    if advised:
        sure = reason is Reason.RECOMMENDED
        confidence = Condition(
            Aspect.CONFIDENCE_SUFFICIENT,
            "True" if sure else "False",
            Reason.SUFFICIENT if sure else reason,
            joined(_doubts(answer, reason)) or joined(answer.caveats),
        )
    else:
        confidence = Condition(
            Aspect.CONFIDENCE_SUFFICIENT, "Unknown", reason, "there is no advice"
        )
    valid = {
        Reason.INVALID_INPUT: Condition(Aspect.MODEL_VALID, "False", reason, answer.explanation),
        Reason.PROFILE_MISSING: Condition(
            Aspect.MODEL_VALID, "Unknown", reason, answer.explanation
        ),
    }.get(reason, Condition(Aspect.MODEL_VALID, "True", Reason.UNDERSTOOD, ""))
    return [
        Condition(Aspect.READY, "True" if advised else "False", reason, why),
        valid,
        _history(snapshot.profile),
        confidence,
    ]


def _doubts(answer: Answer, reason: Reason) -> list[str]:
    """Why an advice is worth less than it could be."""
    if reason is Reason.LOW_CONFIDENCE:
        return list(answer.caveats)
    if reason is Reason.PRIOR_DOMINATED:
        return ["failure rates are mostly assumption: little was counted yet"]
    return []


def _history(profile: LiveProfile | None) -> Condition:
    """The profile's own condition: advice rests on the profile as it stands."""
    aspect = Aspect.HISTORY_COMPLETE
    if profile is None:
        return Condition(
            aspect, "Unknown", Reason.PROFILE_MISSING, "the ClusterProfile does not exist"
        )
    unread = Condition(
        aspect,
        "Unknown",
        Reason.HISTORY_UNAVAILABLE,
        "the ClusterProfile's history was not read yet",
    )
    return standing(profile, aspect) or unread


def _target_caveat(snapshot: JobSnapshot) -> str:
    """Why the object that targetRef names is not annotated; empty where it is, or where there is none."""
    job = snapshot.job
    if not isinstance(job, LiveTrainingJob) or not job.names_a_target:
        return ""
    name = f"{job.asked.target_kind} {job.asked.target_name}"
    if job.target is None:
        return f"targetRef: {name} is of no kind that can be annotated"
    if snapshot.owned_by is not None:
        return f"targetRef: TrainingJob {snapshot.owned_by} writes to {name} already"
    if snapshot.target is None:
        return f"targetRef: there is no {name} here"
    return f"targetRef: {name} is paused" if is_paused(snapshot.target) else ""


def _should_train(snapshot: JobSnapshot) -> bool | None:
    """Whether a job is there, and its steps would be seen: time without any is lost then."""
    if not snapshot.looked:
        return None
    return snapshot.running is not None or (snapshot.alive is not None and snapshot.alive.watched)


def _figures(snapshot: JobSnapshot, answer: Answer, seen: ObservedStatus) -> JobFigures:
    """What is exported."""
    job = snapshot.job
    return JobFigures(
        key=job.key,
        profile=answer.profile,
        predicted=answer.figures,
        odds=answer.says.odds,
        strategy=answer.strategy,
        checkpoint_interval=answer.checkpoint_interval,
        objective_ettr=job.objective if isinstance(job, LiveTrainingJob) else None,
        running=snapshot.running,
        residual=residual(snapshot.running, answer),
        memory_limits=limits(snapshot.running, answer),
        step_due=seen.due,
        should_train=_should_train(snapshot),
        health=seen.health,
        target=None if snapshot.target is None else snapshot.target.key,
    )
