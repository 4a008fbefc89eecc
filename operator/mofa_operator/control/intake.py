"""Where news come in: the store is told, and the objects that are concerned are queued.

Changes of nodes wait until they settle: a rack that comes up is one change of a pool's size, not thirty-two.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from mofa_model.kinds import KINDS, Kind
from mofa_model.kinds.shape import Body
from mofa_operator.control.queue import WorkQueue
from mofa_operator.decide.release import consents, is_gated, is_suspended
from mofa_operator.keys import ADVISOR_POLICY, NODE, TRAINING_JOB, Key
from mofa_operator.objects import LiveObject, live
from mofa_operator.observe.cluster.store import Store
from mofa_operator.settings import LoopSettings


class Intake:
    """News from watches, full lists, Prometheus and our own writes."""

    def __init__(self, store: Store, queue: WorkQueue, settings: LoopSettings) -> None:
        """Nothing has come yet."""
        self.heed: Sequence[Callable[[LiveObject], None]] = ()
        """Who is told of every object that is seen."""
        self._store = store
        self._queue = queue
        self._settle = settings.settle
        self._longest = settings.settle_longest
        """Also how long a policy waits to be told how many jobs it has: they may come by the thousand."""
        self._restless: dict[Key, tuple[float, asyncio.TimerHandle]] = {}

    def seen(self, kind: Kind, body: Body, *, urgent: bool = True) -> None:
        """An object is there, as it now is."""
        keys, stands = self._store.put(kind, body), live(kind, body)
        self._pass_on(kind, keys, urgent=urgent or (bool(keys) and self._awaits(stands)))
        for heed in self.heed:
            heed(stands)

    def _awaits(self, stands: LiveObject) -> bool:
        """Whether a job stands still until we have looked at it; a full list at the start shows it, no event does."""
        job = self._store.target(stands.key) if stands.key.kind == TRAINING_JOB else stands
        if job is None or job.key.kind not in KINDS:
            return False
        return is_gated(job) or (consents(job) and is_suspended(job))

    def gone(self, key: Key, uid: str | None = None) -> None:
        """An object is no more; with its `uid`, one that came after it under the same name stays."""
        held = self._store.live(key)
        if held is None or uid in {None, held.uid}:
            self._pass_on(
                key.kind, self._store.drop(key.kind, key.namespace, key.name), urgent=True
            )

    def concern(self, keys: Iterable[Key], *, urgent: bool = False) -> None:
        """Something was learned that concerns these objects."""
        for key in keys:
            self._queue.add(key, urgent=urgent)

    def is_restless(self, key: Key) -> bool:
        """Whether nodes of this profile change just now; it is queued once they have settled."""
        return key in self._restless

    def settle(self) -> None:
        """Take all nodes as settled: a full list has been read."""
        for key, (_, timer) in list(self._restless.items()):
            timer.cancel()
            self._settled(key)

    def _pass_on(self, kind: Kind, keys: Iterable[Key], *, urgent: bool) -> None:
        for key in keys:
            if kind == NODE:
                self._stir(key)
            elif key.kind == ADVISOR_POLICY != kind:
                self._queue.add_after(key, self._longest)
            else:
                self._queue.add(key, urgent=urgent)

    def _stir(self, key: Key) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        since, timer = self._restless.get(key, (now, None))
        if timer is not None:
            timer.cancel()
        due = min(now + self._settle, since + self._longest)
        self._restless[key] = since, loop.call_at(due, self._settled, key)

    def _settled(self, key: Key) -> None:
        del self._restless[key]
        self._queue.add(key)
