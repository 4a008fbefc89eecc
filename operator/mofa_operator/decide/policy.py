"""An AdvisorPolicy's snapshot as a decision: its status says whether it was understood, and how many jobs it applies to."""

from __future__ import annotations

from mofa_model.errors import InputError
from mofa_model.manifest.parsing import advisor_policy
from mofa_operator.decide.conditions import Found, conditions, of_generation
from mofa_operator.decide.reading import same, sentence
from mofa_operator.decision import Decision
from mofa_operator.keys import kind_of
from mofa_operator.snapshot import PolicySnapshot
from mofa_operator.words import Aspect, Reason


def policy(snapshot: PolicySnapshot) -> Decision:
    """What to write about a policy."""
    stands, ready = snapshot.policy, _ready(snapshot)
    told = {"jobs": snapshot.jobs, "conditions": conditions(stands, [ready], snapshot.now)}
    status = of_generation(stands, told)
    silent = stands.is_going or same(stands.standing, status)
    return Decision(
        key=stands.key, uid=stands.uid, status=None if silent else status, outcome=str(ready.reason)
    )


def _ready(snapshot: PolicySnapshot) -> Found:
    """Whether it can do what it says."""
    try:
        spec = advisor_policy(snapshot.policy.body).spec
    except InputError as error:
        return Found(Aspect.READY, "False", Reason.INVALID_INPUT, sentence(str(error)))
    for listed in spec.kinds:
        if kind_of(listed.api_version, listed.kind) is None:
            why = f"spec.kinds: {listed.kind} of {listed.api_version} is no kind of job that can be advised; list one of docs/reference/kinds.md, or Workload of kueue.x-k8s.io/v1beta2"
            return Found(Aspect.READY, "False", Reason.INVALID_INPUT, sentence(why))
    if spec.mode == "Disabled":
        return Found(Aspect.READY, "False", Reason.DISABLED, "the mode is Disabled")
    if snapshot.profile_missing:
        why = f"spec.profile: there is no ClusterProfile {spec.profile}; see kubectl get cprof"
        return Found(Aspect.READY, "False", Reason.PROFILE_MISSING, sentence(why))
    return Found(Aspect.READY, "True", Reason.ACTIVE, "jobs that it applies to are advised")
