"""A decision as writes: annotations or the ledger first, then the Events, the status last.

The status is the last write because its Ready condition is what people and programs wait for: where it says Recommended,
the annotations stand. Where they are refused, neither the status nor an Event says so: `decide.job.refused` does.
Nothing is remembered between writes: after a crash in between, the next decision compares annotations and status with what
should stand, finds the one that is missing, and writes that. So Events come before the last write, by which the next life goes:
then they are told again, and the second of the same name is none. An existing job has its annotations alone: what is told of
them is told before, the first time.

Annotations are applied, for they stand on objects of others: what we hold no more goes by itself, and nobody else's key is
touched. A status is ours alone: a merge patch says what changes of it, of the version that was seen. That also leaves an object
alone that came later under the same name; annotations carry the uid for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from mofa_model.annotations import PREFIX
from mofa_model.kinds.shape import Body, at, items, part
from mofa_operator.act.events import EventPoster
from mofa_operator.act.release import Released, let_go
from mofa_operator.api import Api
from mofa_operator.decision import Annotate, Decision, Release
from mofa_operator.keys import OURS, Key, ledger_of
from mofa_operator.objects import LiveObject, Written
from mofa_operator.refusals import ApiError, Gone, Invalid, Refused

SILENT: Final = "Silent"
"""There was nothing to write."""
WRITTEN: Final = "Written"
"""Everything was written."""
DRY: Final = "DryRun"
"""Something would have been written."""
GONE: Final = "Gone"
"""An object is no more; there is nothing left to do."""
WAITS: Final = "Waits"
"""Somebody undoes the same write again and again; it is done after a while (`act.undone`)."""
REFUSED: Final = "Refused"
"""A write was refused for good: `failures` say which, and why."""
_HASH: Final = PREFIX + "inputs-hash"
Standing: TypeAlias = Callable[[Key], LiveObject | None]
"""An object as it was last seen."""
Wrote: TypeAlias = Callable[[Key, Body], None]
"""Told of an object as it stands after a write of ours."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Performed:
    """What became of a decision."""

    outcome: str
    """Silent, Written, DryRun, Gone or Refused: the worst of what happened."""
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
    """Do what was decided; `Busy` and `Conflict` come out, and then the whole object is looked at again.

    `standing` says how objects stand as they were last seen; `wrote` is told of each object as soon as the API server has
    answered, before the watch brings the echo. With `tell_first` Events of an existing job come before its annotations.
    """
    if decision.is_silent:
        return Performed(outcome=SILENT)
    if dry_run:
        return Performed(outcome=DRY, writes=_would(decision))
    account = _Account(standing, wrote)
    is_told = tell_first and decision.status is None and bool(decision.annotate)
    if is_told:
        await _tell(decision, events)
    for annotate in decision.annotate:
        await _annotate(annotate, api, account)
    refused = bool(account.failures)
    if decision.ledger is not None:
        await _keep_ledger(decision, decision.ledger, api, account)
    if decision.key not in account.gone and not refused:
        if not is_told:
            await _tell(decision, events)
        if decision.status is not None and decision.key.kind in OURS:
            await _set_status("status", decision.key, decision.uid, decision.status, api, account)
    if decision.release is not None and decision.release.key not in account.gone:
        await account.let_go(decision.release, api, events)
    return account.performed(decision.key, refused=refused)


async def _tell(decision: Decision, events: EventPoster) -> None:
    for note in decision.notes:
        await events.say(decision.key, decision.uid, note, note.episode or _digest(decision))


class _Account:
    """What was written, what is gone, what is refused; what may pass (`Busy`, `Conflict`) is not caught."""

    def __init__(self, standing: Standing, wrote: Wrote | None) -> None:
        self._standing = standing
        self._wrote = wrote
        self._bodies: dict[Key, Body] = {}
        self.writes: list[str] = []
        self.failures: list[ApiError] = []
        self.gone: set[Key] = set()
        self.released: Released | None = None

    def body(self, key: Key) -> Body:
        """An object as the API server last answered, else as it was last seen; empty where there is none."""
        found = self._standing(key)
        return self._bodies.get(key, {} if found is None else found.body)

    async def let_go(self, release: Release, api: Api, events: EventPoster) -> None:
        """Let a job go that waits."""
        try:
            released = await let_go(release, api)
        except Gone:
            self.gone.add(release.key)
            return
        self.writes += released.writes
        if released.body is not None and self._wrote is not None:
            self._wrote(release.key, released.body)
        if released.failure is not None:
            self.failures.append(released.failure)
            return
        self.released = released
        events.post(release.key, release.uid, released.release.note)

    async def keep(self, what: str, key: Key, uid: str, sent: Awaitable[Body]) -> Body | None:
        """The object as it stands after a write; None where it was not written."""
        try:
            body = await sent
        except Gone:
            self.gone.add(key)
            return None
        except (Refused, Invalid) as error:
            self.failures.append(error)
            return None
        self.writes.append(what)
        if uid and at(body, "metadata", "uid") != uid:
            self.gone.add(key)
            return None
        self._bodies[key] = body
        if self._wrote is not None:
            self._wrote(key, body)
        return body

    def performed(self, key: Key, *, refused: bool) -> Performed:
        """The account, closed."""
        outcome = REFUSED if self.failures else GONE if key in self.gone else WRITTEN
        return Performed(
            outcome=outcome,
            writes=tuple(self.writes),
            failures=tuple(self.failures),
            refused=refused,
            released=self.released,
        )


async def _annotate(wanted: Annotate, api: Api, account: _Account) -> None:
    """Apply what we hold, which lets go of what we held before; what still stands then is somebody else's copy."""
    key = wanted.key
    body = _identity(key, wanted.uid, annotations=dict(wanted.hold))
    after = await account.keep("annotations", key, wanted.uid, _apply(api, key, body))
    if after is None:
        return
    left = [name for name in wanted.drop if name in part(after, "metadata", "annotations")]
    if left:
        patch = {"metadata": {"uid": wanted.uid, "annotations": dict.fromkeys(left)}}
        await account.keep(
            "removal", key, wanted.uid, api.merge(key.kind, key.namespace, key.name, patch)
        )


async def _keep_ledger(decision: Decision, status: Written, api: Api, account: _Account) -> None:
    """Write a profile's ledger: that it is there and goes with the profile, where it does not yet, then what it says."""
    key, profile = ledger_of(decision.key.name), decision.key
    if decision.uid not in {
        one.get("uid") for one in items(at(account.body(key), "metadata", "ownerReferences"))
    }:
        owner = {
            "apiVersion": profile.kind.api_version,
            "kind": profile.kind.kind,
            "name": profile.name,
        }
        body = _identity(key, "", ownerReferences=[{**owner, "uid": decision.uid}])
        if await account.keep("owner", key, "", _apply(api, key, body)) is None:
            return
    await _set_status("ledger", key, "", status, api, account)


async def _set_status(
    what: str, key: Key, uid: str, status: Written, api: Api, account: _Account
) -> None:
    """What changes of a status of ours, where the object is the one that was seen."""
    stands = account.body(key)
    if not stands:
        account.gone.add(key)
        return
    version = {"resourceVersion": at(stands, "metadata", "resourceVersion")}
    patch = {"metadata": version, "status": merge_patch(part(stands, "status"), status)}
    await account.keep(
        what, key, uid, api.merge(key.kind, key.namespace, key.name, patch, status=True)
    )


def merge_patch(stands: Mapping[str, Any], wanted: Mapping[str, Any]) -> Written:
    """What makes one mapping into another: a null takes a key away, lists are replaced as a whole. Source: RFC 7396.

    >>> merge_patch({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"c": 2, "d": 4}, "e": [5]})
    {'a': None, 'b': {'d': 4}, 'e': [5]}
    """
    patch: Written = dict.fromkeys(sorted(stands.keys() - wanted.keys()))
    for name, one in wanted.items():
        before = stands.get(name)
        if isinstance(before, dict) and isinstance(one, dict):
            if before != one:
                patch[name] = merge_patch(before, one)
        elif name not in stands or before != one:
            patch[name] = one
    return patch


def _apply(api: Api, key: Key, body: Body) -> Awaitable[Body]:
    return api.apply(key.kind, key.namespace, key.name, body)


def _identity(key: Key, uid: str, **metadata: Written | list[Written]) -> Written:
    """What every apply begins with; `metadata` is what it says beside name and uid."""
    place = {"namespace": key.namespace} if key.namespace else {}
    named = {"name": key.name, **place, **({"uid": uid} if uid else {}), **metadata}
    return {"apiVersion": key.kind.api_version, "kind": key.kind.kind, "metadata": named}


def _digest(decision: Decision) -> str:
    """The inputs hash that the decision rests on; empty where it rests on none."""
    held = (annotate.hold.get(_HASH, "") for annotate in decision.annotate)
    return (decision.status or {}).get("inputsHash") or next(filter(None, held), "")


def _would(decision: Decision) -> tuple[str, ...]:
    """What would be written."""
    annotations = tuple("annotations" for _ in decision.annotate)
    ledger = () if decision.ledger is None else ("ledger",)
    status = () if decision.status is None else ("status",)
    return annotations + ledger + status + (() if decision.release is None else ("release",))
