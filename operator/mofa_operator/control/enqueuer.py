"""What watches, lists and Prometheus bring is stored, and the keys that it concerns are queued.

Changes of nodes wait until they settle, so that a rack of thirty-two that comes up is one change of
its pool.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from mofa_model.kinds import KINDS, Kind
from mofa_model.kinds.shape import Body
from mofa_operator.control.work_queue import WorkQueue
from mofa_operator.decide.release import consents, is_gated, is_suspended
from mofa_operator.keys import ADVISOR_POLICY, NODE, TRAINING_JOB, Key
from mofa_operator.objects import LiveObject, live
from mofa_operator.observe.cluster.store import Store
from mofa_operator.settings import LoopSettings


class Enqueuer:
    """Puts objects into the store, and keys into the queue."""

    def __init__(self, store: Store, queue: WorkQueue, settings: LoopSettings) -> None:
        """Store objects in `store`, and queue the keys that they concern in `queue`."""
        self.listeners: Sequence[Callable[[LiveObject], None]] = ()
        """Called with every object that is put."""
        self._store = store
        self._queue = queue
        self._settle = settings.settle
        self._longest = settings.settle_longest
        self._unsettled: dict[Key, tuple[float, asyncio.TimerHandle]] = {}
        self._linking: asyncio.Handle | None = None
        self._links_urgent = False

    def put(self, kind: Kind, body: Body, *, urgent: bool = True) -> None:
        """Store an object as it now is."""
        keys, job = self._store.put(kind, body), live(kind, body)
        self._queue_all(kind, keys, urgent=urgent or (bool(keys) and self._waits_for_us(job)))
        self._link(urgent=urgent)
        for listener in self.listeners:
            listener(job)

    def _waits_for_us(self, job: LiveObject) -> bool:
        """Whether a job waits for our decision, which only the job itself says after our start."""
        target = self._store.target(job.key) if job.key.kind == TRAINING_JOB else job
        if target is None or target.key.kind not in KINDS:
            return False
        return is_gated(target) or (consents(target) and is_suspended(target))

    def drop(self, key: Key, uid: str | None = None) -> None:
        """Forget an object; with its `uid`, a later object of the same name stays."""
        stored = self._store.live(key)
        if stored is None or uid in {None, stored.uid}:
            keys = self._store.drop(key.kind, key.namespace, key.name)
            self._queue_all(key.kind, keys, urgent=True)
            self._link(urgent=True)

    def _link(self, *, urgent: bool) -> None:
        """Link jobs to their owners and profiles again, a few in each turn of the event loop."""
        if self._store.is_linked:
            return
        self._links_urgent |= urgent
        if self._linking is None:
            self._linking = asyncio.get_running_loop().call_soon(self._link_some)

    def _link_some(self) -> None:
        self._linking = None
        keys = self._store.link_some()
        self._queue_all(None, keys, urgent=self._links_urgent)
        self._links_urgent &= not self._store.is_linked
        self._link(urgent=False)

    def enqueue(self, keys: Iterable[Key]) -> None:
        """Queue objects of which something new is known, as routine: nobody waits for them."""
        for key in keys:
            self._queue.add(key, urgent=False)

    def is_settling(self, key: Key) -> bool:
        """Whether nodes of this profile change just now; it is queued once they have settled."""
        return key in self._unsettled

    def settle(self) -> None:
        """Take all nodes as settled: a full list has been read."""
        for key, (_, timer) in list(self._unsettled.items()):
            timer.cancel()
            self._settled(key)

    def _queue_all(self, kind: Kind | None, keys: Iterable[Key], *, urgent: bool) -> None:
        for key in keys:
            if kind == NODE:
                self._queue_when_settled(key)
            elif key.kind == ADVISOR_POLICY != kind:
                # A policy is told how many jobs it has; they may come by the thousand.
                self._queue.add_after(key, self._longest)
            else:
                self._queue.add(key, urgent=urgent)

    def _queue_when_settled(self, key: Key) -> None:
        loop = asyncio.get_running_loop()
        moment = loop.time()
        since, timer = self._unsettled.get(key, (moment, None))
        if timer is not None:
            timer.cancel()
        due = min(moment + self._settle, since + self._longest)
        self._unsettled[key] = since, loop.call_at(due, self._settled, key)

    def _settled(self, key: Key) -> None:
        del self._unsettled[key]
        self._queue.add(key)
