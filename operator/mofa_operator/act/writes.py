"""A decision as writes: annotations or the ledger first, then the Events, the status last.

The status comes last because people and programs wait for its Ready condition: where it says
Recommended, the annotations stand. Where the API server refuses them, neither status nor Events are
written, and `decide.job.refused` says so instead.

Nothing is remembered between writes. After a crash in between, the next decision compares
annotations and status with what should stand, and writes what is missing. So Events come before the
last write: the next process posts them again, and an Event of the same name is the same one. An
existing job has annotations alone, so its Events come before them, the first time.

Annotations stand on objects of others, so they are written by server-side apply: keys that we drop
go by themselves, and nobody else's key is touched. They carry the object's uid, so that a later
object of the same name is left alone. A status is ours alone: it is written by a merge patch, for
the version that was seen.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from mofa_model.annotations import PREFIX
from mofa_model.kinds.shape import Body, at, items, part
from mofa_operator.act.events import EventPoster
from mofa_operator.act.release import Released, open_gate
from mofa_operator.api import Api
from mofa_operator.api_errors import ApiError, Gone, Invalid, Refused
from mofa_operator.decision import Decision, Release
from mofa_operator.keys import OURS, Key, ledger_of
from mofa_operator.objects import LiveObject, WrittenPart

SILENT: Final = "Silent"
"""There was nothing to write."""
WRITTEN: Final = "Written"
"""Everything was written."""
DRY: Final = "DryRun"
"""Something would have been written."""
GONE: Final = "Gone"
"""An object was deleted, so nothing is left to do."""
WAITS: Final = "Waits"
"""Somebody keeps undoing the same write; it is done after a while (`act.retries`)."""
REFUSED: Final = "Refused"
"""A write was refused for good; `failures` says which, and why."""
_HASH: Final = PREFIX + "inputs-hash"
Standing: TypeAlias = Callable[[Key], LiveObject | None]
"""An object as it was last seen."""
Wrote: TypeAlias = Callable[[Key, Body], None]
"""Called with an object as it stands after a write of ours."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Performed:
    """What became of a decision."""

    outcome: str
    """Silent, Written, DryRun, Gone, Waits or Refused: the worst that happened."""
    writes: tuple[str, ...] = ()
    """What was written: annotations, removal, owner and ledger, status; in order."""
    failures: tuple[ApiError, ...] = ()
    """Writes that are refused for good; trying again changes nothing."""
    refused: bool = False
    """Whether annotations are among them: then neither status nor Events were written."""
    released: Released | None = None
    """What became of a job that waited."""


async def perform(
    decision: Decision,
    api: Api,
    events: EventPoster,
    *,
    standing: Standing,
    dry_run: bool = False,
    wrote: Wrote | None = None,
    tell_first: bool = True,
) -> Performed:
    """Write a decision; raises `Busy` and `Conflict`, after which the whole object is read again.

    `standing` returns an object as it was last seen; `wrote` is called with each new body, before
    the watch brings it. With `tell_first`, Events of an existing job come before its annotations.
    """
    if decision.is_silent:
        return Performed(outcome=SILENT)
    if dry_run:
        return Performed(outcome=DRY, writes=_planned(decision))
    return await _Writer(decision, api, events, standing, wrote).write(tell_first)


class _Writer:
    """Writes one decision, and records what was written, what is gone and what is refused."""

    def __init__(
        self,
        decision: Decision,
        api: Api,
        events: EventPoster,
        standing: Standing,
        wrote: Wrote | None,
    ) -> None:
        self._decision = decision
        self._api = api
        self._events = events
        self._standing = standing
        self._wrote = wrote
        self._bodies: dict[Key, Body] = {}
        self._writes: list[str] = []
        self._failures: list[ApiError] = []
        self._gone: set[Key] = set()

    async def write(self, tell_first: bool) -> Performed:
        """Write all parts of the decision in order, and return what became of them."""
        decision = self._decision
        key, released = decision.key, None
        posted_first = tell_first and decision.status is None and bool(decision.annotate)
        if posted_first:
            await self._post_events()
        for job_decision in decision.annotate:
            await self._annotate(job_decision)
        refused = bool(self._failures)
        # The ledger before the status: a crash between them leaves a day in both, never in none.
        if decision.ledger is not None:
            await self._write_ledger(decision.ledger)
        if key not in self._gone and not refused:
            if not posted_first:
                await self._post_events()
            if decision.status is not None and key.kind in OURS:
                await self._write_status("status", key, decision.uid, decision.status)
        # A job that waits goes last, when all that was decided about it stands.
        if decision.release is not None and decision.release.key not in self._gone:
            released = await self._release(decision.release)
        outcome = REFUSED if self._failures else GONE if key in self._gone else WRITTEN
        return Performed(
            outcome=outcome,
            writes=tuple(self._writes),
            failures=tuple(self._failures),
            refused=refused,
            released=released,
        )

    async def _post_events(self) -> None:
        decision = self._decision
        for note in decision.notes:
            episode = note.episode or _inputs_hash(decision)
            await self._events.post_at_once(decision.key, decision.uid, note, episode)

    async def _annotate(self, wanted: Decision) -> None:
        """Apply our annotations by server-side apply; remove old keys that somebody else holds."""
        key = wanted.key
        body = _identity(key, wanted.uid, annotations=dict(wanted.hold or {}))
        after = await self._send("annotations", key, wanted.uid, self._apply(key, body))
        if after is None:
            return
        left = [name for name in wanted.drop if name in part(after, "metadata", "annotations")]
        if left:
            patch = {"metadata": {"uid": wanted.uid, "annotations": dict.fromkeys(left)}}
            merged = self._api.merge(key.kind, key.namespace, key.name, patch)
            await self._send("removal", key, wanted.uid, merged)

    async def _write_ledger(self, status: WrittenPart) -> None:
        """Make a profile's ledger, owned by the profile, where there is none; then write it."""
        profile, uid = self._decision.key, self._decision.uid
        key = ledger_of(profile.name)
        owners = items(at(self._body(key), "metadata", "ownerReferences"))
        if uid not in {owner.get("uid") for owner in owners}:
            owner = {
                "apiVersion": profile.kind.api_version,
                "kind": profile.kind.kind,
                "name": profile.name,
                "uid": uid,
            }
            body = _identity(key, "", ownerReferences=[owner])
            if await self._send("owner", key, "", self._apply(key, body)) is None:
                return
        await self._write_status("ledger", key, "", status)

    async def _write_status(self, what: str, key: Key, uid: str, status: WrittenPart) -> None:
        """Write what differs from the stored status, unless the object has changed meanwhile."""
        stored = self._body(key)
        if not stored:
            self._gone.add(key)
            return
        version = {"resourceVersion": at(stored, "metadata", "resourceVersion")}
        patch = {"metadata": version, "status": merge_patch(part(stored, "status"), status)}
        merged = self._api.merge(key.kind, key.namespace, key.name, patch, status=True)
        await self._send(what, key, uid, merged)

    async def _release(self, release: Release) -> Released | None:
        """Release a waiting job; None where it is gone or may not be released."""
        try:
            released = await open_gate(release, self._api)
        except Gone:
            self._gone.add(release.key)
            return None
        self._writes += released.writes
        if released.body is not None and self._wrote is not None:
            self._wrote(release.key, released.body)
        if released.failure is not None:
            self._failures.append(released.failure)
            return None
        self._events.post(release.key, release.uid, released.release.note)
        return released

    def _body(self, key: Key) -> Body:
        """The body of an object as last written here, else as last seen; empty without one."""
        last_seen = self._standing(key)
        return self._bodies.get(key, {} if last_seen is None else last_seen.body)

    def _apply(self, key: Key, body: Body) -> Awaitable[Body]:
        return self._api.apply(key.kind, key.namespace, key.name, body)

    async def _send(self, what: str, key: Key, uid: str, sent: Awaitable[Body]) -> Body | None:
        """Await a write and return the new body; None where it failed or the object is gone."""
        try:
            body = await sent
        except Gone:
            self._gone.add(key)
            return None
        except (Refused, Invalid) as error:
            self._failures.append(error)
            return None
        self._writes.append(what)
        if uid and at(body, "metadata", "uid") != uid:
            self._gone.add(key)
            return None
        self._bodies[key] = body
        if self._wrote is not None:
            self._wrote(key, body)
        return body


def merge_patch(stands: Mapping[str, Any], wanted: Mapping[str, Any]) -> WrittenPart:
    """The merge patch from one mapping to another: null deletes a key, a list is replaced whole.
    Source: RFC 7396.

    >>> merge_patch({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"c": 2, "d": 4}, "e": [5]})
    {'a': None, 'b': {'d': 4}, 'e': [5]}
    """
    patch: WrittenPart = dict.fromkeys(sorted(stands.keys() - wanted.keys()))
    for name, value in wanted.items():
        before = stands.get(name)
        if isinstance(before, dict) and isinstance(value, dict):
            if before != value:
                patch[name] = merge_patch(before, value)
        elif name not in stands or before != value:
            patch[name] = value
    return patch


def _identity(key: Key, uid: str, **metadata: WrittenPart | list[WrittenPart]) -> WrittenPart:
    """The body of an apply: which object, and `metadata` beside its name and uid."""
    place = {"namespace": key.namespace} if key.namespace else {}
    named = {"name": key.name, **place, **({"uid": uid} if uid else {}), **metadata}
    return {"apiVersion": key.kind.api_version, "kind": key.kind.kind, "metadata": named}


def _inputs_hash(decision: Decision) -> str:
    """The inputs hash that the decision rests on; empty where it rests on none."""
    hashes = ((job.hold or {}).get(_HASH, "") for job in decision.annotate)
    return (decision.status or {}).get("inputsHash") or next(filter(None, hashes), "")


def _planned(decision: Decision) -> tuple[str, ...]:
    """The parts of a decision that a dry run would have written."""
    return (
        *("annotations" for _ in decision.annotate),
        *(("ledger",) if decision.ledger is not None else ()),
        *(("status",) if decision.status is not None else ()),
        *(("release",) if decision.release is not None else ()),
    )
