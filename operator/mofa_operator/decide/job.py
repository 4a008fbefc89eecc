"""What to write about a job, by its answer: annotations, status, at most one Event, figures.

    job(snapshot, answer)    the decision; it writes nothing where everything stands already
    failed(snapshot, why)    the decision where the model itself failed
    refused(snapshot, …)     the decision where the API server does not take the annotations

An equal decision is written once. What we wrote stays while the inputs hash is equal, even where a
new answer differs in what the hash does not cover: bands get narrower the longer a pool is watched.
A value that somebody else wrote is put back.
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
from mofa_operator.decide.forecasts import one_line
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
from mofa_operator.objects import LiveObject, LiveProfile, LiveTrainingJob, WrittenPart, seconds
from mofa_operator.settings import LoopSettings
from mofa_operator.snapshot import JobSnapshot
from mofa_operator.words import OF_JOBS, Aspect, Happened, Reason

HASH, COMPUTED = PREFIX + "inputs-hash", PREFIX + "computed-at"
_AT_ONCE: Final = 0.5
"""Time until the next look at a job whose question has changed by what was seen of it. [s]"""
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
    observation = observed_status(snapshot, answer, settings)
    computed = computed_at(snapshot, answer.digest)
    is_ours = isinstance(job, LiveTrainingJob)
    learned = {
        RUNS: runs_annotation(snapshot, answer),
        MEASURED: measured_annotation(snapshot, answer, settings.quiet),
    }
    ends = {FINISH: one_line(part(observation.observed, "finish"))}
    run_record = {RECORD: observation.record if is_ours else "", **ends}
    decision, target = _annotated(job, answer, computed, run_record, learned), None
    changed = _overwritten(job, answer, computed)
    if snapshot.target is not None and _takes(snapshot.target):
        target = _annotated(snapshot.target, answer, computed, ends)
        changed = {**_overwritten(snapshot.target, answer, computed), **changed}
    status = _status(snapshot, answer, observation, computed) if is_ours else None
    if status is not None and same(job.standing, status):
        status = None
    decision = replace(decision, target_decision=target, status=status)
    notes = launch_note(snapshot, answer)
    if not decision.is_silent:
        notes = (*news(snapshot, answer, observation, changed, settings.material), *notes)
    return replace(
        decision,
        notes=notes,
        figures=_figures(snapshot, answer, observation),
        outcome=answer.reason,
        digest=answer.digest,
        requeue_after=observation.requeue_after if _stands(job, learned) else _AT_ONCE,
        taught=taught(snapshot, answer, settings),
    )


def failed(snapshot: JobSnapshot, why: str) -> Decision:
    """The decision where the model failed: earlier advice stays, and Ready says what happened."""
    job, status, error = snapshot.job, None, Reason.INTERNAL_ERROR
    if isinstance(job, LiveTrainingJob) and handling_of(snapshot) is Handling.ADVISE:
        new_conditions = [NewCondition(Aspect.READY, "Unknown", error, why)]
        others = (NewCondition(aspect, "Unknown", error) for aspect in OF_JOBS[1:])
        new_conditions += (standing(job, other.aspect) or other for other in others)
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
    """The decision where annotations are refused: the status has the answer, and Ready says why."""
    job, status, outcome = snapshot.job, None, Reason.ANNOTATIONS_REFUSED.value
    observation = observed_status(snapshot, answer, settings)
    figures = _figures(snapshot, answer, observation)
    if isinstance(job, LiveTrainingJob):
        status = _status(snapshot, answer, observation, computed_at(snapshot, answer.digest), why)
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
    decision, target = _removed(job), None
    if snapshot.target is not None and _takes(snapshot.target):
        target = _removed(snapshot.target)
    if isinstance(job, LiveTrainingJob):
        new_conditions = [NewCondition(aspect, "Unknown", Reason.DISABLED) for aspect in OF_JOBS]
        new_conditions[0] = NewCondition(
            Aspect.READY, "False", Reason.DISABLED, "the mode is Disabled"
        )
        status = of_generation(job, {"conditions": conditions(job, new_conditions, snapshot.now)})
    return replace(
        decision,
        target_decision=target,
        status=None if same(job.standing, status) else status,
        outcome=stance.value,
    )


def computed_at(snapshot: JobSnapshot, digest: str) -> str:
    """When an answer was computed: what the status or the job says of an equal hash, else now."""
    job, annotations = snapshot.job, snapshot.job.annotations
    stored = [(annotations.get(HASH), annotations.get(COMPUTED, ""))]
    if isinstance(job, LiveTrainingJob):
        stored.insert(0, (job.status.inputs_hash, job.status.computed_time))
    times = (time for hash_, time in stored if hash_ == digest and seconds(time) is not None)
    return next(times, moment(snapshot.now))


_NOTHING_LEARNED: Final = dict.fromkeys(SEEN, "")


def _stands(job: LiveObject, texts: Mapping[str, str]) -> bool:
    """Whether a job has these annotations; an empty text means that it has none."""
    return all(job.annotations.get(name, "") == text for name, text in texts.items())


def _annotated(
    job: LiveObject,
    answer: Answer,
    computed: str,
    run_record: Mapping[str, str],
    learned: Mapping[str, str] = _NOTHING_LEARNED,
) -> Decision:
    """The annotations to write; none where they stand complete and nobody changed them.

    With those of the answer stand our `run_record`, and what was `learned` of the run.
    """
    run_texts = {**run_record, **learned}
    annotations, wanted = job.annotations, {**answer.annotations, COMPUTED: computed}
    if annotations.get(HASH) == answer.digest and not _differing(job, wanted):
        if _stands(job, run_texts):
            return Decision(key=job.key, uid=job.uid)
        wanted = {name: annotations[name] for name in wanted}
    wanted |= {name: text for name, text in run_texts.items() if text}
    stale = tuple(name for name in removal(annotations) if name not in wanted)
    return Decision(key=job.key, uid=job.uid, hold=wanted, drop=stale)


def _overwritten(job: LiveObject, answer: Answer, computed: str) -> Mapping[str, str]:
    """Annotations of this answer that another writer changed or removed, with the writer; empty
    where the job has those of an older answer.
    """
    differing = _differing(job, {**answer.annotations, COMPUTED: computed})
    is_same_answer = job.annotations.get(HASH) == answer.digest or set(differing) == {HASH}
    return differing if is_same_answer else {}


def _differing(job: LiveObject, wanted: Mapping[str, str]) -> dict[str, str]:
    """Annotations that are missing or have another writer's value, with the writer."""
    annotations, foreign = job.annotations, job.foreign
    return {
        name: foreign.get(name, "")
        for name, value in wanted.items()
        if name not in annotations or (name in foreign and annotations[name] != value)
    }


def _removed(job: LiveObject) -> Decision:
    """The removal of all our annotations; no write where there are none."""
    names = tuple(removal(job.annotations))
    return Decision(key=job.key, uid=job.uid, hold={} if names else None, drop=names)


def _takes(job: LiveObject) -> bool:
    """Whether a target may be written to."""
    return not job.is_going and not is_paused(job)


def _status(
    snapshot: JobSnapshot,
    answer: Answer,
    observation: ObservedStatus,
    computed: str,
    refusal: str = "",
) -> WrittenPart:
    """The status of an advised TrainingJob; `refusal` says why its annotations do not stand."""
    ready, *others = _answered(snapshot, answer)
    if refusal:
        ready = NewCondition(Aspect.READY, "False", Reason.ANNOTATIONS_REFUSED, refusal)
    new_conditions = [
        ready,
        *others,
        *observation.new_conditions,
        observation.memory_condition,
        *launch_verified(snapshot, answer),
    ]
    status: WrittenPart = {
        **answer.status,
        "computedTime": computed,
        "health": observation.health,
        "conditions": conditions(snapshot.job, new_conditions, snapshot.now),
    }
    if "inputs" in answer.status:
        status["inputs"] = _judged(answer.status["inputs"], snapshot.profile)
    if observation.observed:
        status["observed"] = dict(observation.observed)
    return of_generation(snapshot.job, status)


def _judged(inputs: WrittenPart, profile: LiveProfile | None) -> WrittenPart:
    """The rates that were used, each with the history's verdict on its assumption."""
    rows = () if profile is None else profile.status.rows
    verdicts = {row.name: row.verdict for row in rows if row.verdict in _VERDICTS}
    rates = [
        {**rate, "verdict": verdicts[rate["name"]]} if rate["name"] in verdicts else rate
        for rate in inputs["failure"]
    ]
    return {**inputs, "failure": rates}


def _answered(snapshot: JobSnapshot, answer: Answer) -> list[NewCondition]:
    """The first four conditions of a job, which follow from its answer."""
    reason, doubts = Reason(answer.reason), list[str]()
    if reason is Reason.PRIOR_DOMINATED:
        doubts = ["failure rates are mostly assumption: little was counted yet"]
    is_advised = reason in {Reason.RECOMMENDED, Reason.LOW_CONFIDENCE, Reason.PRIOR_DOMINATED}
    why = joined([answer.explanation, *doubts, _target_caveat(snapshot)])
    sure = NewCondition(Aspect.CONFIDENCE_SUFFICIENT, "Unknown", reason, "there is no advice")
    if is_advised:
        is_sure = reason is Reason.RECOMMENDED
        state: State = "True" if is_sure else "False"
        caveats = joined(doubts) or joined(answer.caveats)
        sure = replace(
            sure, state=state, reason=Reason.SUFFICIENT if is_sure else reason, message=caveats
        )
    valid = NewCondition(Aspect.MODEL_VALID, "True", Reason.UNDERSTOOD)
    if reason in UNANSWERED:
        valid = NewCondition(Aspect.MODEL_VALID, "False", reason, answer.explanation)
    elif reason is Reason.PROFILE_MISSING:
        valid = NewCondition(Aspect.MODEL_VALID, "Unknown", reason, answer.explanation)
    return [
        NewCondition(Aspect.READY, "True" if is_advised else "False", reason, why),
        valid,
        _history(snapshot.profile),
        sure,
    ]


def _history(profile: LiveProfile | None) -> NewCondition:
    """The condition HistoryComplete of a job: that of its profile, else unknown with a reason."""
    reason, why = Reason.HISTORY_UNAVAILABLE, "the ClusterProfile's history was not read yet"
    if profile is None:
        reason, why = Reason.PROFILE_MISSING, "the ClusterProfile does not exist"
    unknown = NewCondition(Aspect.HISTORY_COMPLETE, "Unknown", reason, why)
    return unknown if profile is None else standing(profile, unknown.aspect) or unknown


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
    """Whether a job is there and its steps would be seen, so that time without any is lost; None
    where nobody looked.
    """
    if not snapshot.looked:
        return None
    return snapshot.running is not None or (snapshot.alive is not None and snapshot.alive.watched)


def _figures(snapshot: JobSnapshot, answer: Answer, observation: ObservedStatus) -> JobFigures:
    """The figures of a job for the metrics."""
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
        step_due=observation.due,
        should_train=_should_train(snapshot),
        health=observation.health,
        target=None if snapshot.target is None else snapshot.target.key,
    )
