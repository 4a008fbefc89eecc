"""Jobs that wait for us: our gate is opened, and Workloads that wait for our AdmissionCheck are
answered.

A job is released in two steps: its launch arguments, then our gate. The second happens however the
first ends. Both are JSON patches that test what they rest on: this very object, still waiting, with
the fields as they were seen. Where that has changed meanwhile, the result is a `Conflict`, and the
whole object is read again.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace

from mofa_model.kinds import JobKind
from mofa_model.kinds.shape import Body, at, items, text_of
from mofa_operator.api import Api
from mofa_operator.api_errors import ApiError, Gone, Invalid, Refused
from mofa_operator.decision import CheckAnswer, Note, PodUpdate, Release
from mofa_operator.objects import LiveObject, WrittenPart
from mofa_operator.words import Happened
from mofa_operator.workloads import LiveWorkload

UNADVISED = "unadvised"


@dataclass(frozen=True, kw_only=True, slots=True)
class Released:
    """What became of a release."""

    release: Release
    """The release, with the note and the outcome that came true."""
    writes: tuple[str, ...] = ()
    """Which of arguments and gate were written."""
    body: Body | None = None
    """The object as the API server returned it last."""
    failure: ApiError | None = None
    """Why the gate could not be opened, until an administrator acts."""


async def open_gate(release: Release, api: Api) -> Released:
    """Write the release of a waiting job; raises `Gone`, `Busy` and `Conflict`."""
    key, writes, body = release.key, list[str](), None
    if release.child is not None and not release.launch:
        await _renew(release, body, api)
    if release.launch:
        try:
            if release.child is not None and (child := await _child(release, api)) is not None:
                uid = text_of(at(child, "metadata", "uid"))
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
    """Delete what a controller made of the job at another size, so that it is made anew."""
    key, kind = release.key, release.key.kind
    child = await _child(release, api)
    if child is None or release.child is None or not isinstance(kind, JobKind):
        return
    job = body or await api.get(kind, key.namespace, key.name)
    if job is not None and kind.outdated(job, child):
        uid = text_of(at(child, "metadata", "uid"))
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


async def answer_workload(check_answer: CheckAnswer, workload: LiveWorkload, api: Api) -> Body:
    """Answer a Workload as it was seen; `Conflict` where it has changed meanwhile."""
    entry: WrittenPart = {
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


async def write_condition(check: LiveObject, condition: WrittenPart, api: Api) -> Body:
    """Write our condition of an AdmissionCheck beside those of others."""
    conditions = items(at(check.body, "status", "conditions"))
    others = [other for other in conditions if other.get("type") != condition["type"]]
    return await _merge_status(check, {"conditions": [*others, condition]}, api)


async def _merge_status(seen: LiveObject, status: WrittenPart, api: Api) -> Body:
    """Write a part of a status, if nobody has written meanwhile.

    Not by server-side apply: Kueue converts between versions of its API, and a field that only one
    of them declares makes the API server refuse every apply.
    """
    key, version = seen.key, at(seen.body, "metadata", "resourceVersion")
    body = {"metadata": {"resourceVersion": version}, "status": status}
    return await api.merge(key.kind, key.namespace, key.name, body, status=True)


def _of_kueue(check: Body) -> WrittenPart:
    """Fields of a check that Kueue counts by, which stay as they are."""
    return {name: check[name] for name in ("name", "retryCount") if name in check}


def _update(update: PodUpdate) -> WrittenPart:
    parts = {"annotations": dict(update.annotations), "nodeSelector": dict(update.node_selector)}
    return {"name": update.name, **{name: part for name, part in parts.items() if part}}
