"""A job that waits is let go, in two steps: its launch arguments, then our gate. The second happens however the first ends.

Both are JSON patches that test what they rest on: this very object, still waiting, with the fields as they were seen. What
has changed meanwhile is a `Conflict`, and the whole object is looked at again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mofa_model.kinds.shape import Body
from mofa_operator.api import Api
from mofa_operator.decision import Note, Release
from mofa_operator.refusals import ApiError, Invalid, Refused
from mofa_operator.words import Happened

UNADVISED = "unadvised"


@dataclass(frozen=True, kw_only=True, slots=True)
class Released:
    """What became of it."""

    release: Release
    """What was meant, with the note and the outcome that came true."""
    writes: tuple[str, ...] = ()
    """arguments, gate; those that were written."""
    body: Body | None = None
    """The object as the API server answered last."""
    failure: ApiError | None = None
    """Why the gate could not be opened: for good, until an administrator acts."""


async def let_go(release: Release, api: Api) -> Released:
    """Do it; `Gone`, `Busy` and `Conflict` come out."""
    key, writes, body = release.key, list[str](), None
    if release.launch:
        try:
            body = await api.patch(key.kind, key.namespace, key.name, release.launch)
            writes.append("arguments")
        except (Refused, Invalid) as error:
            release = _without(release, error)
    if release.free:
        try:
            body = await api.patch(key.kind, key.namespace, key.name, release.free)
            writes.append("gate")
        except (Refused, Invalid) as error:
            return Released(release=release, writes=tuple(writes), body=body, failure=error)
    return Released(release=release, writes=tuple(writes), body=body)


def _without(release: Release, error: ApiError) -> Release:
    """The same without its arguments, which the API server has refused."""
    reason = Happened.GATE_RELEASED if release.free else Happened.APPLY_SKIPPED
    note = Note(reason=reason, message=f"its arguments were refused: {error}", warning=True)
    return replace(release, note=note, outcome=UNADVISED if release.free else "")
