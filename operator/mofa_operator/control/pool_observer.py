"""What the watch alone sees of every pool: nodes and the objects of jobs are looked at again and again, and put into the store."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from mofa_model.kinds import KINDS, JobKind
from mofa_model.spec.incident_causes import SHORTEST_OUTAGE
from mofa_operator.control.intake import Intake
from mofa_operator.observe.cluster.store import Store
from mofa_operator.observe.history.watch import PoolWatch, WatchedJob, WatchedPool, watched_job

_AT_ONCE: Final = 200
"""Jobs that are read before others may use the event loop. [1]"""
_WITNESSED: Final = tuple(kind for kind in KINDS if kind.witness)
"""Kinds whose objects say how their jobs recover."""
_FEW: Final = 3.0
"""Looks that may be missed before nobody looked. [1]"""
_PATIENCE: Final = 60.0
"""Time that a look may be late on a busy machine, however often it is to look. [s]"""

_AWAY: Final = 5
"""Looks for which a node may be away without being lost, where that is less than the usual five minutes. [1]"""

_log = logging.getLogger(__name__)


class PoolObserver:
    """Looks at pools and jobs, as often as at history."""

    def __init__(
        self,
        *,
        store: Store,
        intake: Intake,
        interval: float,
        clock: Callable[[], float] = time.time,
        succeeded: Callable[[], None] = lambda: None,
    ) -> None:
        """`interval` is the time between two looks [s], `clock` tells seconds of the epoch, `succeeded` is called after each. [s]"""
        self._succeeded = succeeded
        self._clock = clock
        self._store = store
        self._intake = intake
        self._interval = interval
        self._witness = PoolWatch(
            max(_FEW * interval, _PATIENCE), min(SHORTEST_OUTAGE, _AWAY * interval)
        )

    async def run(self) -> None:
        """Look, until cancelled."""
        while True:
            try:
                await self.look()
                self._succeeded()
            except Exception:  # noqa: BLE001 - one look that fails must not end the others
                _log.exception("the look at jobs and nodes failed")
            await asyncio.sleep(self._interval)

    async def look(self) -> None:
        """Look at everything once."""
        jobs: list[WatchedJob] = []
        for number, key in enumerate(self._store.keys(*_WITNESSED)):
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
            job = self._store.live(key)
            if job is not None and isinstance(key.kind, JobKind):
                jobs.append(watched_job(key.kind, job, self._store.named(key), self._clock()))
        for name, days in self._witness.look(await self._pools(), jobs, self._clock()).items():
            self._intake.concern(self._store.set_watched(name, days))

    async def _pools(self) -> dict[str, WatchedPool]:
        found: dict[str, WatchedPool] = {}
        for profile in self._store.profiles():
            await asyncio.sleep(0)  # a pool that has changed is counted among all nodes
            name = profile.key.name
            nodes = ((node, self._store.node(node)) for node in self._store.nodes(name).names)
            known = {node: facts for node, facts in nodes if facts is not None}
            found[name] = WatchedPool(profile=profile, nodes=known)
        return found
