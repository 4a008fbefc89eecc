"""Full lists: once before anything is decided, then regularly, to find what a watch has missed.

A list may be older than what the watch has brought meanwhile. So where an object differs, the watch
is given a moment, and then the object is read alone, which is newer than any list.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final

from mofa_model.kinds import Kind
from mofa_model.kinds.shape import Body
from mofa_operator.api import Api
from mofa_operator.api_errors import ApiError, Busy, Gone, Refused
from mofa_operator.control.enqueuer import Enqueuer
from mofa_operator.keys import CLUSTER_PROFILE, JOBS, NEEDED, NODE, OURS, Key, key_of
from mofa_operator.metrics.declared import Loop
from mofa_operator.metrics.exporter import Exporter
from mofa_operator.observe.cluster.store import Store

GRACE: Final = 3.0
"""How long a watch may lag behind a list. [s]"""
_SOON: Final = 5.0
"""When kinds of ours that the cluster does not have yet are looked for again. [s]"""

_log = logging.getLogger(__name__)


@dataclass(eq=False, kw_only=True)
class Resync:
    """Lists every kind that we read.

    `kinds` stand in the order in which they are needed; `namespaces` are empty for all; `interval`
    is the time between two lists. [s]
    """

    api: Api
    store: Store
    enqueuer: Enqueuer
    exporter: Exporter
    kinds: Sequence[Kind]
    namespaces: Sequence[str]
    interval: float

    def __post_init__(self) -> None:
        self.absent: set[Kind] = set()
        """Kinds that the cluster does not have."""
        self.refused: dict[Kind, Refused] = {}
        """Kinds that we may not list, and what the API server said."""
        self._filled: set[Kind] = set()
        self.is_filled = False
        """Whether every kind was listed once."""

    async def fill(self) -> None:
        """List every kind once; raises `ApiError` where that fails; the next call goes on there.

        Profiles are urgent: jobs are answered from their status. Without nodes or our own kinds
        nothing may be decided, because an object that was not listed would count as missing.
        """
        for kind in self.kinds:
            if kind in self._filled:
                continue
            try:
                async for body in self._listed(kind):
                    self.enqueuer.put(kind, body, urgent=kind == CLUSTER_PROFILE)
            except Busy as error:  # as while a conversion webhook is away; its watch goes on trying
                if kind in NEEDED:
                    raise
                _warn(kind, f"they cannot be listed ({error})", is_loud=True)
            if kind in self.refused and kind in NEEDED:
                raise self.refused[kind]
            self._filled.add(kind)
        self.store.listed()
        self.enqueuer.settle()
        self.is_filled = True

    async def run(self) -> None:
        """List all watched objects again and again, to find changes that the watches missed."""
        while True:
            missing = any(kind in self.absent for kind in OURS)
            await asyncio.sleep(min(_SOON, self.interval) if missing else self.interval)
            await self.once()

    async def once(self) -> int:
        """Compare every kind with the store; the result is how many changes were missed. [1]"""
        missed, complete = 0, True
        for kind in self.kinds:
            try:
                missed += await self._compare(kind)
            except ApiError as error:
                complete = False
                _log.warning("resync of %s: %s; again in %g s", kind.plural, error, self.interval)
                if isinstance(error, Busy) and kind in NEEDED:  # a foreign kind may fail alone
                    break
        if missed:
            self.exporter.count_differences(missed)
            _log.warning(
                "resync: %d objects had changed, and their watches had not reported it", missed
            )
        if complete:
            self.exporter.success(Loop.RESYNC)
        self.enqueuer.enqueue(key for key in self.store.keys(*JOBS) if self.store.names_others(key))
        return missed

    async def _compare(self, kind: Kind) -> int:
        unlisted, suspects = set(self.store.keys(kind)), set()
        async for body in self._listed(kind):
            key = key_of(kind, body)
            unlisted.discard(key)
            if self.store.differs(kind, body):
                suspects.add(key)
        suspects |= unlisted
        if not suspects or kind in self.refused:
            return 0
        await asyncio.sleep(GRACE)
        return sum([await self._read(key) for key in suspects])

    async def _read(self, key: Key) -> bool:
        """Read one object alone, newer than any list; whether it differs from the stored one."""
        before = self.store.body(key)
        body = await self.api.get(key.kind, key.namespace, key.name)
        if self.store.body(key) != before:
            return False  # the watch has brought it meanwhile
        if body is None:
            differs = before is not None or key.kind == NODE
            self.enqueuer.drop(key)
        elif differs := self.store.differs(key.kind, body):
            self.enqueuer.put(key.kind, body)
        return differs

    async def _listed(self, kind: Kind) -> AsyncIterator[Body]:
        places = (self.namespaces or (None,)) if kind.namespaced else (None,)
        try:
            for place in places:
                async for body in self.api.list(kind, place):
                    yield body
        except Gone:
            if kind not in self.absent:
                self.absent.add(kind)
                _warn(kind, "the cluster does not have them", is_loud=kind in NEEDED)
        except Refused as error:
            if kind not in self.refused:
                _warn(kind, f"we may not list them ({error})", is_loud=True)
            self.refused[kind] = error
        else:
            self.absent.discard(kind)
            self.refused.pop(kind, None)


def _warn(kind: Kind, why: str, *, is_loud: bool) -> None:
    level = logging.WARNING if is_loud else logging.INFO
    _log.log(level, "%s.%s are not looked at: %s", kind.plural, kind.group or "v1", why)
