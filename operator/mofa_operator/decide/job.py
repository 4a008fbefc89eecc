"""A job's snapshot and its answer to a decision: annotations, status, at most one Event, figures.

    job(snapshot, answer)    the decision; silent where everything stands already
    failed(snapshot, why)    the decision where the model itself failed
    refused(snapshot, …)     the decision where the API server does not take the annotations

Deciding twice writes once. What we wrote stands while the inputs hash is equal, even if a fresh
answer differs in what the hash does not cover: the longer a pool is watched, the narrower are the
bands. A value that somebody else wrote is put back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from mofa_model.annotations import (
    FINISH,
    MEASURED,
    PREFIX,
    RECORD,
    RUNS,
    SEEN,
    UNANSWERED,
    removal,
)
from mofa_model.kinds.shape import part
from mofa_operator.decide.calibration import taught
from mofa_operator.decide.events import news
from mofa_operator.decide.finish import one_line
from mofa_operator.decide.launched import launch_note, measured_annotation, runs_annotation
from mofa_operator.decide.observation import ObservedStatus, limits, observed_status, residual
from mofa_operator.decide.policy import Handling, handling_of, is_paused
from mofa_operator.decide.release import launch_verified, with_release
from mofa_operator.decide.status import (
    NewCondition,
    State,
    conditions,
    joined,
    moment,
    of_generation,
    same,
    sentence,
    standing,
)
from mofa_operator.decision import Answer, Decision, JobFigures, Note
from mofa_operator.objects import LiveObject, LiveProfile, LiveTrainingJob, Written, seconds
from mofa_operator.settings import LoopSettings
from mofa_operator.snapshot import JobSnapshot
from mofa_operator.words import OF_JOBS, Aspect, Happened, Reason

HASH, COMPUTED = PREFIX + "inputs-hash", PREFIX + "computed-at"
_AT_ONCE: Final = 0.5
"""After which time a job is looked at again that asks anew. [s]"""
_VERDICTS: Final = (
    "Consistent",
    "Drifts",
    "HigherThanAssumed",
    "LowerThanAssumed",
    "InsufficientData",
)


def job(snapshot: JobSnapshot, answer: Answer | None, settings: LoopSettings) -> Decision:
    """What to do about a job; `answer` is None where none was needed (`needs_answer`)."""
    return with_release(_job(snapshot, answer, settings), snapshot, answer, settings)


def _job(snapshot: JobSnapshot, answer: Answer | None, settings: LoopSettings) -> Decision:
    """The decision without mode Apply."""
    stance, job = handling_of(snapshot), snapshot.job
    if stance in {Handling.DISABLED, Handling.NOT_ASKED}:
        return _cleared(snapshot, stance)
    if stance is not Handling.ADVISE or answer is None:
        return Decision(key=job.key, uid=job.uid, outcome=stance.value)
    seen = observed_status(snapshot, answer, settings)
    computed = computed_at(snapshot, answer.digest)
    is_ours = isinstance(job, LiveTrainingJob)
    learned = {
        RUNS: runs_annotation(snapshot, answer),
        MEASURED: measured_annotation(snapshot, answer, settings.quiet),
    }
    ends = {FINISH: one_line(part(seen.observed, "finish"))}
    own = {RECORD: seen.record if is_ours else "", **ends}
    made, target = _held(job, answer, computed, own, learned), None
    changed = _overwritten(job, answer, computed)
    if snapshot.target is not None and _takes(snapshot.target):
        target = _held(snapshot.target, answer, computed, ends)
        changed = {**_overwritten(snapshot.target, answer, computed), **changed}
    status = _status(snapshot, answer, seen, computed) if is_ours else None
    if status is not None and same(job.standing, status):
        status = None
    made = replace(made, target_decision=target, status=status)
    return replace(
        made,
        notes=(
            *(() if made.is_silent else news(snapshot, answer, seen, changed, settings.material)),
            *launch_note(snapshot, answer),
        ),
        figures=_figures(snapshot, answer, seen),
        outcome=answer.reason,
        digest=answer.digest,
        # the answer is asked for anew, with what was seen
        requeue_after=seen.requeue_after if _stands(job, learned) else _AT_ONCE,
        taught=taught(snapshot, answer, settings),
    )


def failed(snapshot: JobSnapshot, why: str) -> Decision:
    """What to do where the model failed: earlier advice stands, and Ready says what happened."""
    job, status, error = snapshot.job, None, Reason.INTERNAL_ERROR
    if isinstance(job, LiveTrainingJob) and handling_of(snapshot) is Handling.ADVISE:
        new_conditions = [NewCondition(Aspect.READY, "Unknown", error, why)]
        new_conditions += [
            standing(job, aspect) or NewCondition(aspect, "Unknown", error)
            for aspect in OF_JOBS[1:]
        ]
        launch = standing(job, Aspect.LAUNCH_VERIFIED)
        new_conditions += [launch] if launch else []
        status = job.kept() | {"conditions": conditions(job, new_conditions, snapshot.now)}
    return Decision(
        key=job.key,
        uid=job.uid,
        status=None if same(job.kept(), status) else status,
        outcome=error.value,
    )


def refused(snapshot: JobSnapshot, answer: Answer, settings: LoopSettings, why: str) -> Decision:
    """What to do where annotations are refused: the status has the answer, and Ready says why."""
    job, status, outcome = snapshot.job, None, Reason.ANNOTATIONS_REFUSED.value
    seen = observed_status(snapshot, answer, settings)
    figures = _figures(snapshot, answer, seen)
    if isinstance(job, LiveTrainingJob):
        status = _status(snapshot, answer, seen, computed_at(snapshot, answer.digest), why)
        if same(job.standing, status):
            return Decision(key=job.key, uid=job.uid, figures=figures, outcome=outcome)
    message = sentence(why)
    note = Note(reason=Happened.ANNOTATIONS_REFUSED, message=message, warning=True, episode=why)
    return Decision(
        key=job.key,
        uid=job.uid,
        status=status,
        notes=(note,),
        figures=figures,
        outcome=outcome,
        digest=answer.digest,
    )


def _cleared(snapshot: JobSnapshot, stance: Handling) -> Decision:
    """Remove all annotations of ours from a job and its target; a TrainingJob's status says why."""
    job, status = snapshot.job, None
    made, target = _removed(job), None
    if snapshot.target is not None and _takes(snapshot.target):
        target = _removed(snapshot.target)
    if isinstance(job, LiveTrainingJob):
        new_conditions = [NewCondition(aspect, "Unknown", Reason.DISABLED) for aspect in OF_JOBS]
        new_conditions[0] = NewCondition(
            Aspect.READY, "False", Reason.DISABLED, "the mode is Disabled"
        )
        status = of_generation(job, {"conditions": conditions(job, new_conditions, snapshot.now)})
    return replace(
        made,
        target_decision=target,
        status=None if same(job.standing, status) else status,
        outcome=stance.value,
    )


def computed_at(snapshot: JobSnapshot, digest: str) -> str:
    """When an answer was computed: what the status or the job says for an equal hash, else now."""
    job, stands = snapshot.job, snapshot.job.annotations
    answers = [(stands.get(HASH), stands.get(COMPUTED, ""))]
    if isinstance(job, LiveTrainingJob):
        answers.insert(0, (job.status.inputs_hash, job.status.computed_time))
    dated = (at for of, at in answers if of == digest and seconds(at) is not None)
    return next(dated, moment(snapshot.now))


_NOTHING_LEARNED: Final = dict.fromkeys(SEEN, "")


def _stands(job: LiveObject, texts: Mapping[str, str]) -> bool:
    """Whether annotations stand on a job; an empty text is none."""
    return all(job.annotations.get(name, "") == text for name, text in texts.items())


def _held(
    job: LiveObject,
    answer: Answer,
    computed: str,
    own: Mapping[str, str],
    learned: Mapping[str, str] = _NOTHING_LEARNED,
) -> Decision:
    """The annotations to write; none where they stand whole and untouched.

    What we keep of a run as our `own`, and what was `learned` of it, join what stands.
    """
    more = {**own, **learned}
    stands, hold = job.annotations, {**answer.annotations, COMPUTED: computed}
    if stands.get(HASH) == answer.digest and not _differing(job, hold):
        if _stands(job, more):
            return Decision(key=job.key, uid=job.uid)
        hold = {name: stands[name] for name in hold}
    hold |= {name: text for name, text in more.items() if text}
    stale = tuple(name for name in removal(stands) if name not in hold)
    return Decision(key=job.key, uid=job.uid, hold=hold, drop=stale)


def _overwritten(job: LiveObject, answer: Answer, computed: str) -> Mapping[str, str]:
    """Annotations of the answer that another writer changed or removed, with the writer. Empty
    where the job did not carry this very answer: then its annotations are an older one.
    """
    differing = _differing(job, {**answer.annotations, COMPUTED: computed})
    stood = job.annotations.get(HASH) == answer.digest or set(differing) == {HASH}
    return differing if stood else {}


def _differing(job: LiveObject, hold: Mapping[str, str]) -> dict[str, str]:
    """Annotations that are missing or have another writer's value, with the writer."""
    stands, foreign = job.annotations, job.foreign
    return {
        name: foreign.get(name, "")
        for name, value in hold.items()
        if name not in stands or (name in foreign and stands[name] != value)
    }


def _removed(job: LiveObject) -> Decision:
    """The removal of everything of ours; none where nothing stands."""
    gone = tuple(removal(job.annotations))
    return Decision(key=job.key, uid=job.uid, hold={} if gone else None, drop=gone)


def _takes(job: LiveObject) -> bool:
    """Whether a target may be written to."""
    return not job.is_going and not is_paused(job)


def _status(
    snapshot: JobSnapshot, answer: Answer, seen: ObservedStatus, computed: str, refusal: str = ""
) -> Written:
    """The status of an advised TrainingJob; `refusal` says why its annotations do not stand."""
    ready, *others = _answered(snapshot, answer)
    if refusal:
        ready = NewCondition(Aspect.READY, "False", Reason.ANNOTATIONS_REFUSED, refusal)
    new_conditions = [
        ready,
        *others,
        *seen.new_conditions,
        seen.memory_condition,
        *launch_verified(snapshot, answer),
    ]
    status: Written = {
        **answer.status,
        "computedTime": computed,
        "health": seen.health,
        "conditions": conditions(snapshot.job, new_conditions, snapshot.now),
    }
    if "inputs" in answer.status:
        status["inputs"] = _judged(answer.status["inputs"], snapshot.profile)
    if seen.observed:
        status["observed"] = dict(seen.observed)
    return of_generation(snapshot.job, status)


def _judged(inputs: Written, profile: LiveProfile | None) -> Written:
    """The rates that were used, each with the history's verdict on its assumption."""
    rows = () if profile is None else profile.status.rows
    verdicts = {row.name: row.verdict for row in rows if row.verdict in _VERDICTS}
    rates = [
        {**rate, "verdict": verdicts[rate["name"]]} if rate["name"] in verdicts else rate
        for rate in inputs["failure"]
    ]
    return {**inputs, "failure": rates}


def _answered(snapshot: JobSnapshot, answer: Answer) -> list[NewCondition]:
    """The first four conditions, which an answer decides."""
    reason, doubts = Reason(answer.reason), list[str]()
    if reason is Reason.PRIOR_DOMINATED:
        doubts = ["failure rates are mostly assumption: little was counted yet"]
    is_advised = reason in {Reason.RECOMMENDED, Reason.LOW_CONFIDENCE, Reason.PRIOR_DOMINATED}
    why = joined([answer.explanation, *doubts, _target_caveat(snapshot)])
    state: State = "Unknown"
    enough = reason
    because = "there is no advice"
    if is_advised:
        is_sure = reason is Reason.RECOMMENDED
        state, enough = ("True", Reason.SUFFICIENT) if is_sure else ("False", reason)
        because = joined(doubts) or joined(answer.caveats)
    unanswered = [Reason(status) for status in UNANSWERED]
    valid = {
        **{
            status: NewCondition(Aspect.MODEL_VALID, "False", status, answer.explanation)
            for status in unanswered
        },
        Reason.PROFILE_MISSING: NewCondition(
            Aspect.MODEL_VALID, "Unknown", reason, answer.explanation
        ),
    }.get(reason, NewCondition(Aspect.MODEL_VALID, "True", Reason.UNDERSTOOD, ""))
    return [
        NewCondition(Aspect.READY, "True" if is_advised else "False", reason, why),
        valid,
        _history(snapshot.profile),
        NewCondition(Aspect.CONFIDENCE_SUFFICIENT, state, enough, because),
    ]


def _history(profile: LiveProfile | None) -> NewCondition:
    """Condition HistoryComplete of a job: that of its profile, else unknown with the reason."""
    reason, why = Reason.HISTORY_UNAVAILABLE, "the ClusterProfile's history was not read yet"
    if profile is None:
        reason, why = Reason.PROFILE_MISSING, "the ClusterProfile does not exist"
    stands = None if profile is None else standing(profile, Aspect.HISTORY_COMPLETE)
    return stands or NewCondition(Aspect.HISTORY_COMPLETE, "Unknown", reason, why)


def _target_caveat(snapshot: JobSnapshot) -> str:
    """Why the object that targetRef names is not annotated; empty where it is."""
    job = snapshot.job
    if not isinstance(job, LiveTrainingJob) or not job.names_a_target:
        return ""
    name = f"{job.spec.target_kind} {job.spec.target_name}"
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
    """The figures of a job that metrics export."""
    job = snapshot.job
    return JobFigures(
        key=job.key,
        profile=answer.profile,
        predicted=answer.predicted,
        chances=answer.says.odds,
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
