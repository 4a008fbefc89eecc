"""An AdvisorPolicy's snapshot as a decision: its status says whether it was understood, and how many jobs it applies to."""

from __future__ import annotations

from mofa_model.errors import InputError
from mofa_model.kinds.shape import at, items, part, text_of
from mofa_model.manifest.parsing import advisor_policy
from mofa_operator.decide.conditions import Found, conditions
from mofa_operator.decide.reading import generation_of, is_going, same, sentence, uid_of
from mofa_operator.decision import Decision
from mofa_operator.keys import kind_of
from mofa_operator.snapshot import PolicySnapshot
from mofa_operator.words import Aspect, Reason


def policy(snapshot: PolicySnapshot) -> Decision:
    """What to write about a policy."""
    key, body = snapshot.key, snapshot.body
    ready, generation = _ready(snapshot), generation_of(body)
    status = {
        "jobs": snapshot.jobs,
        "conditions": conditions(at(body, "status", "conditions"), [ready], generation, snapshot.now),
    } | ({} if generation is None else {"observedGeneration": generation})
    silent = is_going(body) or same(body.get("status"), status)
    return Decision(key=key, uid=uid_of(body), status=None if silent else status, outcome=str(ready.reason))


def _ready(snapshot: PolicySnapshot) -> Found:
    """Whether it can do what it says."""
    spec = part(snapshot.body, "spec")
    try:
        advisor_policy(snapshot.body)
    except InputError as error:
        return Found(Aspect.READY, "False", Reason.INVALID_INPUT, sentence(str(error)))
    for listed in items(spec.get("kinds")):
        version, kind = text_of(listed.get("apiVersion")), text_of(listed.get("kind"))
        if kind_of(version, kind) is None:
            why = f"spec.kinds: {kind} of {version} is no kind of job that can be advised"
            return Found(Aspect.READY, "False", Reason.INVALID_INPUT, sentence(why))
    if spec.get("mode") == "Disabled":
        return Found(Aspect.READY, "False", Reason.DISABLED, "the mode is Disabled")
    if snapshot.profile_missing:
        why = f"spec.profile: there is no ClusterProfile {spec.get('profile')}; see kubectl get cprof"
        return Found(Aspect.READY, "False", Reason.PROFILE_MISSING, sentence(why))
    return Found(Aspect.READY, "True", Reason.ACTIVE, "jobs that it applies to are advised")
