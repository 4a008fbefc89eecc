"""One kind in one place, watched: a list, then every change from its version on, then a list again where that is too old."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Final, Never, Protocol, TypeAlias

from mofa_model.kinds import Kind
from mofa_operator.api import Api
from mofa_operator.control.intake import Intake
from mofa_operator.keys import Key, key_of
from mofa_operator.observe.cluster.store import Store
from mofa_operator.refusals import Busy, Gone
from mofa_operator.streams import BOOKMARK

Tell: TypeAlias = Callable[[], None]
"""Told that the watch stands."""
_BRIEF: Final = 1.0
"""A connection that the server ends sooner is no watch. [s]"""


class Life(Protocol):
    """What watches one kind in one place, until it cannot."""

    kind: Kind
    place: str | None

    async def live(self, tell: Tell) -> Never:
        """Watch; what ends it is raised: `Gone` without the kind, `Refused` without the right, and whatever else may fail."""


class Watch:
    """A watch of our own; what it has read stays known when it is cut, so that it goes on where it was."""

    def __init__(
        self, kind: Kind, place: str | None, *, api: Api, store: Store, intake: Intake
    ) -> None:
        """`place` is a namespace, None for all."""
        self.kind = kind
        self.place = place
        self._api = api
        self._store = store
        self._intake = intake
        self._version = ""

    async def live(self, tell: Tell) -> Never:
        """List where no version is known, then follow; `Gone` (`Expired` too) forgets the version."""
        try:
            if not self._version:
                self._version = await self._list()
            while True:
                await self._follow(tell)
        except Gone:
            self._version = ""
            raise

    async def _list(self) -> str:
        """Take in everything; what was known before and is not listed is no more. The result is the list's version."""
        left, version = set(known(self._store, self.kind, self.place)), ""
        async for items, version in self._api.pages(self.kind, self.place):  # noqa: B007
            for body in items:
                self._intake.seen(self.kind, body, urgent=False)
                left.discard(key_of(self.kind, body))
        for key in left:
            self._intake.gone(key)
        return version

    async def _follow(self, tell: Tell) -> None:
        """One connection, until the server ends it, as it does every few minutes."""
        loop = asyncio.get_running_loop()
        since = loop.time()
        async with self._api.watch(self.kind, self.place, self._version) as events:
            tell()
            async for what, body in events:
                if what == "DELETED":
                    self._intake.gone(key_of(self.kind, body), body["metadata"].get("uid"))
                elif what != BOOKMARK:
                    said = {"apiVersion": self.kind.api_version, "kind": self.kind.kind}
                    self._intake.seen(self.kind, {**said, **body})
                self._version = body["metadata"].get("resourceVersion") or self._version
        if loop.time() - since < _BRIEF:
            raise Busy("the server ends it at once")


def known(store: Store, kind: Kind, place: str | None) -> Iterator[Key]:
    """Keys of a kind in a place that the store holds."""
    return (key for key in store.keys(kind) if place in {None, key.namespace})
