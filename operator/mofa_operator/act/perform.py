"""A decision as writes: annotations or the ledger first, the status last, then the Events.

The status is the last write because its Ready condition is what people and programs wait for: where it says Recommended,
the annotations stand. Where they are refused, neither the status nor an Event says so: `decide.job.refused` does. (It is
also cheaper: each later write carries the whole object through the API server again, and the status is the larger part.)
Nothing is remembered between writes: after a crash in between, the next decision compares
annotations and status with what should stand, finds the one that is missing, and writes that.

Every write carries the uid, so that an object which came later under the same name is left alone. The status subresource
ignores the uid that it is given (the API server's behaviour, whatever the verb), so there the answer's uid is looked at: a
status that fell upon a successor says so by its hash and generation, and the successor's own decision replaces it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from mofa_model.annotations import PREFIX
from mofa_model.kinds.shape import Body, at, part
from mofa_operator.act.events import EventPoster
from mofa_operator.act.release import Released, let_go
from mofa_operator.api import Api
from mofa_operator.decision import Annotate, Decision, Release
from mofa_operator.keys import OURS, Key, ledger_of
from mofa_operator.objects import Written
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
    decision: Decision, api: Api, events: EventPoster, *, dry_run: bool = False, wrote: Wrote | None = None
) -> Performed:
    """Do what was decided; `Busy` and `Conflict` come out, and then the whole object is looked at again.

    `wrote` is told of each object as soon as the API server has answered, before the watch brings the echo.
    """
    if decision.is_silent:
        return Performed(outcome=SILENT)
    if dry_run:
        return Performed(outcome=DRY, writes=_would(decision))
    account = _Account(wrote)
    for annotate in decision.annotate:
        await _annotate(annotate, api, account)
    refused = bool(account.failures)
    if decision.ledger is not None:
        await _keep_ledger(decision, decision.ledger, api, account)
    is_there = decision.key not in account.gone and not refused
    if decision.status is not None and decision.key.kind in OURS and is_there:
        body = _identity(decision.key, decision.uid) | {"status": decision.status}
        await account.keep("status", decision.key, decision.uid, _apply(api, decision.key, body, status=True))
    if decision.key not in account.gone and not refused:
        tell(decision, events)
    if decision.release is not None and decision.release.key not in account.gone:
        await account.let_go(decision.release, api, events)
    return account.performed(decision.key, refused=refused)


def tell(decision: Decision, events: EventPoster) -> None:
    """Queue the Events of a decision."""
    for note in decision.notes:
        events.post(decision.key, decision.uid, note, note.episode or _digest(decision))


class _Account:
    """What was written, what is gone, what is refused; what may pass (`Busy`, `Conflict`) is not caught."""

    def __init__(self, wrote: Wrote | None) -> None:
        self._wrote = wrote
        self.writes: list[str] = []
        self.failures: list[ApiError] = []
        self.gone: set[Key] = set()
        self.released: Released | None = None

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
    after = await account.keep("annotations", key, wanted.uid, _apply(api, key, body, status=False))
    if after is None:
        return
    left = [name for name in wanted.drop if name in part(after, "metadata", "annotations")]
    if left:
        patch = {"metadata": {"uid": wanted.uid, "annotations": dict.fromkeys(left)}}
        await account.keep("removal", key, wanted.uid, api.merge(key.kind, key.namespace, key.name, patch))


async def _keep_ledger(decision: Decision, status: Written, api: Api, account: _Account) -> None:
    """Apply a profile's ledger: first that it is there and goes with the profile, then what it says."""
    key, profile = ledger_of(decision.key.name), decision.key
    owner = {"apiVersion": profile.kind.api_version, "kind": profile.kind.kind, "name": profile.name}
    body = _identity(key, "", ownerReferences=[{**owner, "uid": decision.uid}])
    made = await account.keep("owner", key, "", _apply(api, key, body, status=False))
    if made is not None:
        body = _identity(key, "") | {"status": status}
        await account.keep("ledger", key, "", _apply(api, key, body, status=True))


def _apply(api: Api, key: Key, body: Body, *, status: bool) -> Awaitable[Body]:
    return api.apply(key.kind, key.namespace, key.name, body, status=status)


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
