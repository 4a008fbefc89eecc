"""What our AdmissionChecks say, written where Kueue reads it: in the status of the Workload, and of the AdmissionCheck."""

from __future__ import annotations

from mofa_model.kinds.shape import Body, at, items
from mofa_operator.api import Api
from mofa_operator.decision import CheckAnswer, PodUpdate
from mofa_operator.objects import LiveObject, Written
from mofa_operator.workloads import LiveWorkload


async def say(answer: CheckAnswer, workload: LiveWorkload, api: Api) -> Body:
    """Say it of a Workload as it was seen; `Conflict` where it has changed meanwhile."""
    entry: Written = {
        "state": answer.state,
        "message": answer.message,
        "lastTransitionTime": answer.at,
    }
    if answer.updates:
        entry["podSetUpdates"] = [_update(one) for one in answer.updates]
    if answer.retry is not None:
        entry["requeueAfterSeconds"] = answer.retry
    stand = items(at(workload.body, "status", "admissionChecks"))
    every = [
        {**_kueues(one), **entry} if one.get("name") in answer.checks else one for one in stand
    ]
    return await _merge(workload, {"admissionChecks": every}, api)


async def stand_by(check: LiveObject, found: Written, api: Api) -> Body:
    """Say whether an AdmissionCheck is answered, beside what others say of it."""
    stand = items(at(check.body, "status", "conditions"))
    others = [one for one in stand if one.get("type") != found["type"]]
    return await _merge(check, {"conditions": [*others, found]}, api)


async def _merge(stands: LiveObject, status: Written, api: Api) -> Body:
    """Write a part of a status, if nobody has written meanwhile.

    Not by server-side apply: Kueue converts between versions of its API, and a field that only one of them declares makes the
    API server refuse every apply.
    """
    key = stands.key
    version = at(stands.body, "metadata", "resourceVersion")
    body = {"metadata": {"resourceVersion": version}, "status": status}
    return await api.merge(key.kind, key.namespace, key.name, body, status=True)


def _kueues(stands: Body) -> Written:
    """What Kueue counts of a check, which stays as it is."""
    return {name: stands[name] for name in ("name", "retryCount") if name in stands}


def _update(one: PodUpdate) -> Written:
    made = {"annotations": dict(one.annotations), "nodeSelector": dict(one.node_selector)}
    return {"name": one.name, **{key: value for key, value in made.items() if value}}
