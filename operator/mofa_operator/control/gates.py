"""The bound on waits at our gates, kept beside everything else: no queue of answers, however long, holds a job longer.

Each job that waits for us is noted when it is seen, for the moment when its time is over. Whoever still waits then is let
go without arguments. What the loop has let go before is found open here, and left alone.
"""

from __future__ import annotations

import logging
import time

from mofa_model.kinds import KINDS
from mofa_operator.act.events import EventPoster
from mofa_operator.act.release import Released, let_go
from mofa_operator.api import Api
from mofa_operator.control.hands import LONGEST, hands
from mofa_operator.control.queue import WorkQueue
from mofa_operator.decide.release import deadline, is_gated, overdue
from mofa_operator.keys import Key
from mofa_operator.metrics.exporter import Exporter
from mofa_operator.objects import LiveObject
from mofa_operator.observe.cluster.store import Store
from mofa_operator.settings import OperatorSettings

_log = logging.getLogger(__name__)


class Gates:
    """Jobs that wait for us, by when they must have been let go."""

    def __init__(
        self,
        *,
        store: Store,
        api: Api,
        events: EventPoster,
        exporter: Exporter,
        settings: OperatorSettings,
    ) -> None:
        """Nobody waits yet."""
        self._store = store
        self._api = api
        self._events = events
        self._exporter = exporter
        self._settings = settings
        self._queue = WorkQueue(backoff=settings.loop.backoff, longest=LONGEST)

    def heed(self, seen: LiveObject) -> None:
        """Note an object that was seen, where it waits for us."""
        if seen.key.kind in KINDS and is_gated(seen):
            self._note(seen)

    async def run(self) -> None:
        """Let go whose time is over, until cancelled."""
        await hands(self._queue, self._look, "its gate is not open yet")

    async def _look(self, key: Key) -> None:
        job = self._store.live(key)
        if job is None or not is_gated(job) or self._settings.dry_run:
            return
        release = overdue(job, time.time(), self._settings.loop)
        if release is None:
            self._note(job)
            return
        released = await let_go(release, self._api)
        if released.body is not None:
            self._store.wrote(key, released.body)
        if released.failure is not None:
            raise released.failure
        self._events.post(key, release.uid, release.note)
        observe(self._exporter, released)
        _log.warning("%s: %s", key, release.note.message)

    def _note(self, job: LiveObject) -> None:
        left = deadline(job, self._settings.loop) - time.time()
        self._queue.add_after(job.key, max(left, 0.0))


def observe(exporter: Exporter, released: Released) -> None:
    """Count a wait that is over."""
    release = released.release
    if release.outcome and release.waited is not None:
        exporter.observe_gate(release.waited, release.outcome)
