"""Jobs that wait for us: a job at our gate is let go, and a Workload that waits for our
AdmissionCheck is answered.

A job is let go in two steps: its launch arguments, then our gate. The second happens however the
first ends. Both are JSON patches that test what they rest on: this very object, still waiting, with
the fields as they were seen. What has changed meanwhile is a `Conflict`, and the whole object is
looked at again.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace

from mofa_model.kinds import JobKind
from mofa_model.kinds.shape import Body, at, items, text_of
from mofa_operator.api import Api
from mofa_operator.api_errors import ApiError, Gone, Invalid, Refused
from mofa_operator.decision import CheckAnswer, Note, PodUpdate, Release
from mofa_operator.objects import LiveObject, Written
from mofa_operator.words import Happened
from mofa_operator.workloads import LiveWorkload

UNADVISED = "unadvised"


@dataclass(frozen=True, kw_only=True, slots=True)
class Released:
    """What became of a release."""

    release: Release
    """What was meant, with the note and the outcome that came true."""
    writes: tuple[str, ...] = ()
    """arguments, gate; those that were written."""
    body: Body | None = None
    """The object as the API server answered last."""
    failure: ApiError | None = None
    """Why the gate could not be opened: for good, until an administrator acts."""


async def let_go(release: Release, api: Api) -> Released:
    """Write the release of a waiting job; raises `Gone`, `Busy` and `Conflict`."""
    key, writes, body = release.key, list[str](), None
    if release.child is not None and not release.launch:
        await _renew(release, body, api)
    if release.launch:
        try:
            if release.child is not None and (made := await _child(release, api)) is not None:
                uid = text_of(at(made, "metadata", "uid"))
                await api.delete(release.child, key.namespace, key.name, uid, rehearsal=True)
            body = await api.patch(key.kind, key.namespace, key.name, release.launch)
            writes.append("arguments")
            await _renew(release, body, api)
        except (Refused, Invalid) as error:
            release = _without_arguments(release, error)
    if release.free:
        try:
            body = await api.patch(key.kind, key.namespace, key.name, release.free)
            writes.append("gate")
        except (Refused, Invalid) as error:
            return Released(release=release, writes=tuple(writes), body=body, failure=error)
    return Released(release=release, writes=tuple(writes), body=body)


async def _child(release: Release, api: Api) -> Body | None:
    """The object that the job's controller made for it; None where there is none yet."""
    if release.child is None:
        return None
    return await api.get(release.child, release.key.namespace, release.key.name)


async def _renew(release: Release, body: Body | None, api: Api) -> None:
    """Delete what was made of a job with another size, so that its controller makes it anew."""
    key, kind = release.key, release.key.kind
    made = await _child(release, api)
    if made is None or release.child is None or not isinstance(kind, JobKind):
        return
    job = body or await api.get(kind, key.namespace, key.name)
    if job is not None and kind.outdated(job, made):
        uid = text_of(at(made, "metadata", "uid"))
        with contextlib.suppress(Gone):
            await api.delete(release.child, key.namespace, key.name, uid)


def _without_arguments(release: Release, error: ApiError) -> Release:
    reason = Happened.GATE_RELEASED if release.free else Happened.APPLY_SKIPPED
    note = Note(
        reason=reason,
        message=f"the API server refused the job's new launch arguments: {error}",
        warning=True,
    )
    return replace(release, note=note, outcome=UNADVISED if release.free else "")


async def say(check_answer: CheckAnswer, workload: LiveWorkload, api: Api) -> Body:
    """Answer a Workload as it was seen; `Conflict` where it has changed meanwhile."""
    entry: Written = {
        "state": check_answer.state,
        "message": check_answer.message,
        "lastTransitionTime": check_answer.at,
    }
    if check_answer.updates:
        entry["podSetUpdates"] = [_update(update) for update in check_answer.updates]
    if check_answer.retry is not None:
        entry["requeueAfterSeconds"] = check_answer.retry
    checks = [
        {**_of_kueue(check), **entry} if check.get("name") in check_answer.checks else check
        for check in items(at(workload.body, "status", "admissionChecks"))
    ]
    return await _merge_status(workload, {"admissionChecks": checks}, api)


async def stand_by(check: LiveObject, condition: Written, api: Api) -> Body:
    """Say whether an AdmissionCheck is answered, beside what others say of it."""
    conditions = items(at(check.body, "status", "conditions"))
    others = [other for other in conditions if other.get("type") != condition["type"]]
    return await _merge_status(check, {"conditions": [*others, condition]}, api)


async def _merge_status(seen: LiveObject, status: Written, api: Api) -> Body:
    """Write a part of a status, if nobody has written meanwhile.

    Not by server-side apply: Kueue converts between versions of its API, and a field that only one
    of them declares makes the API server refuse every apply.
    """
    key, version = seen.key, at(seen.body, "metadata", "resourceVersion")
    body = {"metadata": {"resourceVersion": version}, "status": status}
    return await api.merge(key.kind, key.namespace, key.name, body, status=True)


def _of_kueue(check: Body) -> Written:
    """What Kueue counts of a check, which stays as it is."""
    return {name: check[name] for name in ("name", "retryCount") if name in check}


def _update(update: PodUpdate) -> Written:
    parts = {
        "annotations": dict(update.annotations),
        "nodeSelector": dict(update.node_selector),
    }
    return {"name": update.name, **{name: part for name, part in parts.items() if part}}
