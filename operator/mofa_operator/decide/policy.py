"""Which jobs are advised: by their mode, their annotations and the AdvisorPolicy of their namespace."""

from __future__ import annotations

from enum import Enum

from mofa_model.annotations import PREFIX
from mofa_model.errors import InputError
from mofa_model.manifest import jobs
from mofa_model.manifest.documents import Item
from mofa_model.manifest.parsing import advisor_policy
from mofa_model.manifest.surroundings import Surroundings
from mofa_operator.decide.status import Condition, conditions, of_generation, same, sentence
from mofa_operator.decision import Decision
from mofa_operator.keys import kind_of
from mofa_operator.objects import LiveObject, LiveTrainingJob
from mofa_operator.snapshot import JobSnapshot, PolicySnapshot
from mofa_operator.words import Aspect, Reason

_PAUSED = PREFIX + "paused"


class Stance(Enum):
    """What a job wants of us."""

    ADVISE = ""
    """An answer."""
    DISABLED = Reason.DISABLED.value
    """Its mode is Disabled: nothing of ours may stand on it."""
    NOT_ASKED = "NotAsked"
    """Nobody opted it in: nothing of ours may stand on it."""
    PAUSED = Reason.PAUSED.value
    """What stands, stands."""
    OWNED = "Owned"
    """A TrainingJob names it, and writes there; or a job of another kind made it, and is advised itself."""
    GOING = "Going"
    """It is being deleted."""
    UNREAD = "Unread"
    """A policy that might opt it in cannot be read; what stands, stands."""


def stance_of(snapshot: JobSnapshot) -> Stance:
    """What a job wants of us."""
    job = snapshot.job
    if job.is_going:
        return Stance.GOING
    if snapshot.owned_by is not None and not isinstance(job, LiveTrainingJob):
        return Stance.OWNED
    if is_paused(job):
        return Stance.PAUSED
    if isinstance(job, LiveTrainingJob):
        return Stance.DISABLED if job.asked.mode == "Disabled" else Stance.ADVISE
    return _existing(snapshot)


def needs_answer(snapshot: JobSnapshot) -> bool:
    """Whether the question of a job has to be answered at all; for the others `decide.job` takes None."""
    return stance_of(snapshot) is Stance.ADVISE


def is_paused(job: LiveObject) -> bool:
    """Whether an object is to stay as it is."""
    return job.annotations.get(_PAUSED, "").lower() == "true"


def _existing(snapshot: JobSnapshot) -> Stance:
    """As `mofa annotate` sees it: its own annotations, then the policy of its namespace."""
    item = Item(snapshot.question.job, None)
    own = any(PREFIX + key in item.annotations for key in ("mode", "model", "config-ref"))
    try:
        policies = [advisor_policy(policy) for policy in snapshot.question.policies]
    except InputError:
        policies = []
        if not own:
            return Stance.UNREAD
    try:
        mode = jobs.mode_of(item, Surroundings(profiles={}, policies=policies))
    except InputError:
        return Stance.ADVISE  # the answer says what is wrong with it
    if mode is None:
        return Stance.NOT_ASKED
    return Stance.DISABLED if mode == "Disabled" else Stance.ADVISE


def policy(snapshot: PolicySnapshot) -> Decision:
    """What to write about a policy."""
    stands, ready = snapshot.policy, _ready(snapshot)
    told = {"jobs": snapshot.jobs, "conditions": conditions(stands, [ready], snapshot.now)}
    status = of_generation(stands, told)
    silent = stands.is_going or same(stands.standing, status)
    return Decision(
        key=stands.key, uid=stands.uid, status=None if silent else status, outcome=str(ready.reason)
    )


def _ready(snapshot: PolicySnapshot) -> Condition:
    """Whether it can do what it says."""
    try:
        spec = advisor_policy(snapshot.policy.body).spec
    except InputError as error:
        return Condition(Aspect.READY, "False", Reason.INVALID_INPUT, sentence(str(error)))
    for listed in spec.kinds:
        if kind_of(listed.api_version, listed.kind) is None:
            why = f"spec.kinds: {listed.kind} of {listed.api_version} is no kind of job that can be advised; list one of docs/reference/kinds.md, or Workload of kueue.x-k8s.io/v1beta2"
            return Condition(Aspect.READY, "False", Reason.INVALID_INPUT, sentence(why))
    if spec.mode == "Disabled":
        return Condition(Aspect.READY, "False", Reason.DISABLED, "the mode is Disabled")
    if snapshot.profile_missing:
        why = f"spec.profile: there is no ClusterProfile {spec.profile}; see kubectl get cprof"
        return Condition(Aspect.READY, "False", Reason.PROFILE_MISSING, sentence(why))
    return Condition(Aspect.READY, "True", Reason.ACTIVE, "jobs that it applies to are advised")
