"""Reads the pods of advised jobs that run, where the operator may read pods.

Pods are read when a job begins to run, when it was started anew, and every ten minutes. Only the
words of a layout are kept of them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import Final

from mofa_model.kinds import KINDS, JobKind, Kind
from mofa_model.kinds.shape import Body
from mofa_operator.api import Api
from mofa_operator.api_errors import ApiError, Refused
from mofa_operator.control.enqueuer import Enqueuer
from mofa_operator.control.observers import repeat
from mofa_operator.control.references import References
from mofa_operator.decide.job import HASH
from mofa_operator.keys import TRAINING_JOB, Key
from mofa_operator.objects import LiveObject
from mofa_operator.observe.cluster.store import Store
from mofa_operator.observe.jobs.launches import running, seen_launch

POD: Final = Kind("", "v1", "Pod", "pods")
"""Pods, which are listed job by job and never watched."""
AGAIN: Final = 600.0
"""Time after which the pods of a job that runs are read again. [s]"""
_PAGE: Final = 100
"""Most pods of a job that are read. [1]"""

_log = logging.getLogger(__name__)


@dataclass(eq=False, kw_only=True)
class LaunchObserver:
    """Reads which layouts running jobs have; `interval` is the time between two rounds. [s]"""

    store: Store
    enqueuer: Enqueuer
    api: Api
    interval: float

    def __post_init__(self) -> None:
        self._references = References(self.api, self.store)
        self._seen: dict[Key, tuple[object, float]] = {}
        self._warned = ""

    async def run(self) -> None:
        """Look at all jobs again and again, until cancelled."""
        await repeat(self.look, self.interval, "the pods of jobs")

    async def look(self) -> None:
        """Read the pods of every job once."""
        keys = self.store.keys(TRAINING_JOB, *KINDS)
        self._seen = {key: seen for key, seen in self._seen.items() if key in set(keys)}
        for key in keys:
            await asyncio.sleep(0)
            job = self.store.live(key)
            if job is None or HASH not in job.annotations:
                continue
            target = self.store.target(key) if key.kind == TRAINING_JOB else job
            if target is None or (target is job and self.store.owner(key) is not None):
                continue
            try:
                await self._look(job, target)
            except Refused as error:
                if str(error) != self._warned:
                    _log.warning("pods may not be read, so what jobs run is not seen: %s", error)
                self._warned = str(error)
                return
            except ApiError as error:
                _log.debug("%s: its pods could not be read: %s", key, error)

    async def _look(self, job: LiveObject, target: LiveObject) -> None:
        """Read the pods of one job, where it runs and they were not read lately."""
        kind, moment = target.key.kind, time.time()
        if not isinstance(kind, JobKind):
            return
        observed, selector = kind.observed(target.body, moment), kind.pod_selector(target.body)
        counts = sorted((name, counter.value) for name, counter in observed.counters.items())
        state = (target.uid, counts, observed.ready, target.generation)
        last_state, read_at = self._seen.get(job.key, (None, 0.0))
        if observed.suspended is not None or observed.ended is not None or not selector:
            self._seen.pop(job.key, None)
            if observed.ended is None:
                self.enqueuer.enqueue(self.store.set_launch(job.key, None))
            return
        if state == last_state and moment - read_at < AGAIN:
            return
        pods: list[Body] = []
        async for page, _ in self.api.pages(POD, target.key.namespace, selector, _PAGE):
            pods += page
            break
        if not running(pods):
            return
        if observed.ready is not False:
            self._seen[job.key] = state, moment
        beside = (await self._references.read(job.key)).beside
        self.enqueuer.enqueue(self.store.set_launch(job.key, seen_launch(target, pods, beside)))
