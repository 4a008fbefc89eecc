"""Which jobs are advised: by mode, annotations, and AdvisorPolicy of the namespace."""

from __future__ import annotations

from enum import Enum

from mofa_model.annotations import PREFIX
from mofa_model.errors import InputError
from mofa_model.manifest import jobs
from mofa_model.manifest.advisor_policy import AdvisorPolicySpec
from mofa_model.manifest.documents import Item
from mofa_model.manifest.parsing import Object, advisor_policy
from mofa_model.manifest.surroundings import Surroundings
from mofa_operator.decide.status import NewCondition, conditions, of_generation, same, sentence
from mofa_operator.decision import Decision
from mofa_operator.keys import kind_of
from mofa_operator.objects import LiveObject, LiveTrainingJob
from mofa_operator.snapshot import JobSnapshot, PolicySnapshot
from mofa_operator.words import Aspect, Reason

_PAUSED = PREFIX + "paused"


class Handling(Enum):
    """How the operator handles a job; the values are outcomes in its log."""

    ADVISE = ""
    """It is answered."""
    DISABLED = Reason.DISABLED.value
    """Its mode is Disabled: everything of ours is removed."""
    NOT_ASKED = "NotAsked"
    """Nobody opted it in: everything of ours is removed."""
    PAUSED = Reason.PAUSED.value
    """It stays as it is."""
    OWNED = "Owned"
    """It is left alone: a TrainingJob names it and writes to it, or another job that is advised
    made it."""
    GOING = "Going"
    """It is being deleted."""
    UNREAD = "Unread"
    """A policy that might opt it in cannot be read, so it stays as it is."""


def handling_of(snapshot: JobSnapshot) -> Handling:
    """How the operator handles a job."""
    job = snapshot.job
    if job.is_going:
        return Handling.GOING
    if snapshot.owned_by is not None and not isinstance(job, LiveTrainingJob):
        return Handling.OWNED
    if is_paused(job):
        return Handling.PAUSED
    if isinstance(job, LiveTrainingJob):
        return Handling.DISABLED if job.spec.mode == "Disabled" else Handling.ADVISE
    return _existing(snapshot)


def needs_answer(snapshot: JobSnapshot) -> bool:
    """Whether a job is answered; for the others `decide.job` gets None as answer."""
    return handling_of(snapshot) is Handling.ADVISE


def is_paused(job: LiveObject) -> bool:
    """Whether an object has the annotation that pauses the operator."""
    return job.annotations.get(_PAUSED, "").lower() == "true"


def wants_apply(snapshot: JobSnapshot) -> bool:
    """Whether the object, a policy, or the TrainingJob asks for mode Apply."""
    if handling_of(snapshot) is not Handling.ADVISE:
        return False
    if isinstance(snapshot.job, LiveTrainingJob):
        return snapshot.job.spec.mode == "Apply"
    try:
        return _mode(snapshot, _policies(snapshot) or []) == "Apply"
    except InputError:
        return False


def raises_restarts(snapshot: JobSnapshot) -> bool:
    """Whether an AdvisorPolicy lets the operator raise a job's limit of restarts; never for a
    TrainingJob.
    """
    if isinstance(snapshot.job, LiveTrainingJob):
        return False
    around = Surroundings(profiles={}, policies=_policies(snapshot) or [])
    applied = jobs.policy_of(Item(snapshot.question.job, None), around)
    return applied is not None and applied.spec.restarts == "Raise"


def _existing(snapshot: JobSnapshot) -> Handling:
    """How a job of another kind is handled: by its annotations, else by its namespace's policy."""
    annotations, policies = snapshot.job.annotations, _policies(snapshot)
    asks = any(PREFIX + key in annotations for key in ("mode", "model", "config-ref", "size"))
    if policies is None and not asks:
        return Handling.UNREAD
    try:
        mode = _mode(snapshot, policies or [])
    except InputError:
        return Handling.ADVISE  # the answer says what is wrong with it
    if mode is None:
        return Handling.NOT_ASKED
    return Handling.DISABLED if mode == "Disabled" else Handling.ADVISE


def _policies(snapshot: JobSnapshot) -> list[Object[AdvisorPolicySpec]] | None:
    """The policies of its namespace; None where one cannot be read."""
    try:
        return [advisor_policy(policy) for policy in snapshot.question.policies]
    except InputError:
        return None


def _mode(snapshot: JobSnapshot, policies: list[Object[AdvisorPolicySpec]]) -> str | None:
    item = Item(snapshot.question.job, None)
    opted_in = frozenset({item.namespace} if snapshot.question.opted_in else ())
    return jobs.mode_of(item, Surroundings(profiles={}, policies=policies, opted_in=opted_in))


def policy(snapshot: PolicySnapshot) -> Decision:
    """The decision about a policy: its status."""
    live, ready = snapshot.policy, _ready(snapshot)
    rows = conditions(live, [ready], snapshot.now)
    status = of_generation(live, {"jobs": snapshot.job_count, "conditions": rows})
    is_same = live.is_going or same(live.standing, status)
    return Decision(
        key=live.key, uid=live.uid, status=None if is_same else status, outcome=str(ready.reason)
    )


def _ready(snapshot: PolicySnapshot) -> NewCondition:
    """The condition Ready of a policy."""
    try:
        spec = advisor_policy(snapshot.policy.body).spec
    except InputError as error:
        return NewCondition(Aspect.READY, "False", Reason.INVALID_INPUT, sentence(str(error)))
    for listed in spec.kinds:
        if kind_of(listed.api_version, listed.kind) is None:
            why = (
                f"spec.kinds: {listed.kind} of {listed.api_version} is no kind of job that can be "
                "advised; list one of docs/reference/kinds.md, "
                "or Workload of kueue.x-k8s.io/v1beta2"
            )
            return NewCondition(Aspect.READY, "False", Reason.INVALID_INPUT, sentence(why))
    if spec.mode == "Disabled":
        return NewCondition(Aspect.READY, "False", Reason.DISABLED, "the mode is Disabled")
    if snapshot.profile_missing:
        why = f"spec.profile: there is no ClusterProfile {spec.profile}; see kubectl get cprof"
        return NewCondition(Aspect.READY, "False", Reason.PROFILE_MISSING, sentence(why))
    return NewCondition(Aspect.READY, "True", Reason.ACTIVE, "jobs that it applies to are advised")
