"""Our AdmissionCheck of Kueue: what it says of a Workload before its pods are made.

    its job is to get a size first                   nothing, until it has one, or this is over
    nobody asks for advice, or it cannot be given    Ready, and why
    advice                                           Ready, with the advice as annotations of the
                                                     pods, and the profile's node selector if the
                                                     policy says so
    nothing fits, or the objective is out of reach   as the policy says: Ready, Retry or Rejected
    `gate_longest` after there was room              Ready, whatever was decided

The first Retry names no time: then Kueue (0.15, 0.16) gives the room of the Workload to others, and
keeps it where a time is named. Only a later Retry, when nobody else wanted the room, says how long
to wait. Launch arguments are given in mode Apply alone, and only verified ones. A key that the pods
have already is left out, because Kueue refuses a key with two values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mofa_model.annotations import PREFIX, SIZE
from mofa_model.errors import InputError
from mofa_model.kinds import JobKind
from mofa_model.kinds.patches import INTERVAL, NAME, pod_annotations
from mofa_model.kinds.reads import read_by
from mofa_model.kinds.shape import at, items, part, text_of
from mofa_model.manifest.advisor_policy import AdmissionRules
from mofa_model.manifest.parsing import advisor_policy
from mofa_operator.decide.policy import Handling, handling_of, wants_apply
from mofa_operator.decide.release import subject_of, unproven
from mofa_operator.decide.status import NewCondition, conditions, joined, moment, sentence, standing
from mofa_operator.decision import Answer, CheckAnswer, PodUpdate
from mofa_operator.objects import LiveObject, LiveTrainingJob, WrittenPart
from mofa_operator.settings import LoopSettings
from mofa_operator.snapshot import CheckSnapshot, JobSnapshot
from mofa_operator.words import Aspect, Reason
from mofa_operator.workloads import LiveWorkload, asks_for_gpus

READY, RETRY, REJECTED = "Ready", "Retry", "Rejected"
_STATES: Final = {"Admit": READY, "Retry": RETRY, "Reject": REJECTED}
_STRATEGY: Final = PREFIX + "strategy"
_MOST: Final = 8
"""Sets of pods that Kueue takes updates of. [1]"""


def is_ours(check: LiveObject) -> bool:
    """Whether an AdmissionCheck is for us to answer."""
    return at(check.body, "spec", "controllerName") == NAME


def active(check: LiveObject, now: float) -> WrittenPart | None:
    """The new condition of an AdmissionCheck of ours; None where it has it already.

    `now` in seconds of the epoch [s]
    """
    parameters = part(check.body, "spec", "parameters")
    why = (
        f"spec.parameters: {parameters.get('kind')} {parameters.get('name')}: there are none; "
        "what it does stands in AdvisorPolicies, under spec.admission"
    )
    condition = NewCondition(
        Aspect.ACTIVE,
        "False" if parameters else "True",
        Reason.INVALID_INPUT if parameters else Reason.ACTIVE,
        sentence(why) if parameters else "Workloads that wait for it are answered",
    )
    old = standing(check, Aspect.ACTIVE)
    if old is not None and (old.state, old.message) == (condition.state, condition.message):
        return None
    return conditions(check, [condition], now)[0]


def needs_answer(snapshot: CheckSnapshot, settings: LoopSettings) -> bool:
    """Whether the model has to answer a Workload's question; else `answered` gets no answer."""
    return snapshot.question is not None and not _is_late(snapshot, settings) and _advised(snapshot)


def answered(snapshot: CheckSnapshot, answer: Answer | None, settings: LoopSettings) -> CheckAnswer:
    """What to say of a Workload that waits for us."""
    if _is_late(snapshot, settings):
        why = f"the longest wait, {settings.gate_longest:g} s, is over: without advice"
        return _check_answer(snapshot, READY, why)
    if not _advised(snapshot):
        return _unasked(snapshot, settings)
    if _is_unsized(snapshot):
        return _waits(snapshot, settings.backoff)  # with its size it gets another Workload
    if snapshot.question is None:
        why = "there is room for a part of it, to which spec.cluster.nodes cannot be cut"
        return _check_answer(snapshot, READY, why)
    if answer is None:
        return _waits(snapshot, settings.backoff)
    return _judged(snapshot, answer, settings)


def _is_unsized(snapshot: CheckSnapshot) -> bool:
    """Whether its job asks for a size that is to be written, and is not written yet."""
    job = None if snapshot.job is None else subject_of(snapshot.job)
    if job is None or SIZE not in job.annotations or not isinstance(job.key.kind, JobKind):
        return False
    kind = job.key.kind
    return bool(kind.size_rule) and not kind.states_size(part(job.body, "spec"))


def _judged(snapshot: CheckSnapshot, answer: Answer, settings: LoopSettings) -> CheckAnswer:
    """What the policy makes of advice, or of none."""
    try:
        rule = _rule(snapshot)
    except InputError as error:
        return _check_answer(snapshot, READY, f"without advice: {error}")
    if not answer.strategy:
        wait = _settle_time(snapshot, settings)
        if answer.reason == Reason.PROFILE_MISSING and wait > 0:
            return _waits(snapshot, wait)
        state = _STATES[rule.no_layout] if answer.reason == Reason.NO_FEASIBLE_LAYOUT else READY
        why = answer.explanation if state != READY else f"without advice: {answer.explanation}"
        return _check_answer(snapshot, state, why, retry=rule.retry_seconds)
    least, expected = _objective(snapshot, rule), answer.predicted["ettr"].target
    low = "" if least is None or expected >= least else (
        f"an effective training time ratio of {expected:.3f} is expected, and {least:.3f} is the "
        "least"
    )  # fmt: skip
    if low and rule.below_ettr != "Admit":
        return _check_answer(snapshot, _STATES[rule.below_ettr], low, retry=rule.retry_seconds)
    words, why = _pod_texts(snapshot, answer)
    selector = snapshot.selectors.get(answer.profile, {}) if rule.node_selector else {}
    message = joined([f"advised: {answer.annotations.get(_STRATEGY, '')}", low, why])
    return _check_answer(
        snapshot, READY, message, updates=_updates(snapshot.workload, words, selector)
    )


def _rule(snapshot: CheckSnapshot) -> AdmissionRules:
    """What the policy says of admission; its defaults where there is none."""
    policy = snapshot.policy
    return AdmissionRules() if policy is None else advisor_policy(policy).spec.admission


def _objective(snapshot: CheckSnapshot, rule: AdmissionRules) -> float | None:
    """Least effective training time ratio: a TrainingJob's own, else the policy's. [1]"""
    job = snapshot.job and snapshot.job.job
    if isinstance(job, LiveTrainingJob) and job.objective is not None:
        return job.objective
    return None if rule.ettr is None else float(rule.ettr)


def _pod_texts(snapshot: CheckSnapshot, answer: Answer) -> tuple[dict[str, str], str]:
    """Annotations for the pods, and why the launch arguments are not among them."""
    texts = ((name, answer.annotations.get(name)) for name in (_STRATEGY, INTERVAL))
    words = {name: text for name, text in texts if text}
    if snapshot.job is None or not wants_apply(snapshot.job) or not answer.arguments:
        return words, ""
    job = subject_of(snapshot.job)
    try:
        why = "its job is not there" if job is None else unproven(job, answer)
        if why:
            return words, why
        pod_sets = items(at(snapshot.workload.body, "spec", "podSets"))
        read_by((f"podSets {text_of(row.get('name'))}", row.get("template")) for row in pod_sets)
        return words | pod_annotations(answer.arguments, ""), ""
    except InputError as error:
        return words, str(error)


def _updates(
    workload: LiveWorkload, words: Mapping[str, str], selector: Mapping[str, str]
) -> tuple[PodUpdate, ...]:
    """What the pods with GPUs get; all where none says that it has any."""
    asking = [pods for pods in workload.pods if asks_for_gpus(pods)] or list(workload.pods)
    return tuple(
        PodUpdate(
            name=pods.name,
            annotations=_absent(pods.annotations, words),
            node_selector=_absent(pods.spec.node_selector, selector),
        )
        for pods in asking[:_MOST]
    )


def _absent(present: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str]:
    """The wanted keys that are not present, with their values."""
    return {name: value for name, value in wanted.items() if name not in present}


def _advised(snapshot: CheckSnapshot) -> bool:
    return snapshot.job is not None and handling_of(snapshot.job) is Handling.ADVISE


def _unasked(snapshot: CheckSnapshot, settings: LoopSettings) -> CheckAnswer:
    """Nobody asks for an answer; but a job or a policy may come a moment later."""
    job = snapshot.job
    wait = _settle_time(snapshot, settings)
    if wait > 0 and (job is None or handling_of(job) is Handling.NOT_ASKED):
        return _waits(snapshot, wait)
    return _check_answer(snapshot, READY, f"without advice: {_why(job)}")


def _why(job: JobSnapshot | None) -> str:
    if job is None:
        return "its job is not seen"
    stance = handling_of(job)
    return {
        Handling.NOT_ASKED: "nobody asks for it",
        Handling.DISABLED: "its mode is Disabled",
        Handling.PAUSED: "it is paused",
        Handling.UNREAD: "its AdvisorPolicy cannot be read",
    }.get(stance, f"{text_of(job.job.key.kind.kind)} {job.job.key.name} is {stance.value}")


def _is_late(snapshot: CheckSnapshot, settings: LoopSettings) -> bool:
    return snapshot.now >= _since(snapshot) + settings.gate_longest


def _settle_time(snapshot: CheckSnapshot, settings: LoopSettings) -> float:
    """How long objects that were made together with a job may still take to be seen. [s]"""
    return _since(snapshot) + settings.settle - snapshot.now


def _since(snapshot: CheckSnapshot) -> float:
    """Since when there is room for it, in seconds of the epoch. [s]"""
    return snapshot.workload.reserved_at or 0.0


def _waits(snapshot: CheckSnapshot, wait: float) -> CheckAnswer:
    return CheckAnswer(
        key=snapshot.workload.key, checks=snapshot.checks, state="", requeue_after=wait
    )


def _check_answer(
    snapshot: CheckSnapshot,
    state: str,
    why: str,
    *,
    updates: tuple[PodUpdate, ...] = (),
    retry: int | None = None,
) -> CheckAnswer:
    return CheckAnswer(
        key=snapshot.workload.key,
        checks=snapshot.checks,
        state=state,
        message=sentence(why),
        at=moment(snapshot.now),
        updates=updates,
        retry=retry if state == RETRY and snapshot.workload.retries else None,
    )
