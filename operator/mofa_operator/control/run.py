"""The operator from start to end: in which order its parts begin, and in which they stop.

    servers ▶ Lease ▶ fence ▶ first lists ▶ profiles ▶ hands, watches, history, resync ▶ …
    signal ▶ nothing new is taken ▶ writes that have begun are finished ▶ Events ▶ Lease ▶ end

Nothing is decided before everything was listed once: what is missing from memory must be missing from the cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from functools import partial
from typing import Any, Final

from mofa_model import VERSION
from mofa_model.kinds import KINDS
from mofa_operator.act.events import EventPoster
from mofa_operator.api import Api
from mofa_operator.control.admission import Admission
from mofa_operator.control.checks import Checks
from mofa_operator.control.decider import Decider
from mofa_operator.control.fence import Fence
from mofa_operator.control.gates import Gates
from mofa_operator.control.handlers import KopfWatch
from mofa_operator.control.health import Probes
from mofa_operator.control.histories import rounds
from mofa_operator.control.intake import Intake
from mofa_operator.control.job_observer import JobObserver
from mofa_operator.control.lease import Lease, identity
from mofa_operator.control.pages import Pages
from mofa_operator.control.pool_observer import PoolObserver
from mofa_operator.control.process import NoAnswer
from mofa_operator.control.queue import WorkQueue
from mofa_operator.control.reconcile import Reconciler
from mofa_operator.control.resync import Resync
from mofa_operator.control.serve import Server
from mofa_operator.control.stop import Stop
from mofa_operator.control.tasks import Task, end, first, reached
from mofa_operator.control.watches import Watch, Watches
from mofa_operator.credentials import Credentials
from mofa_operator.keys import OURS, watched
from mofa_operator.metrics.declared import Loop
from mofa_operator.metrics.exporter import Exporter
from mofa_operator.observe.cluster.questions import question_bytes
from mofa_operator.observe.cluster.store import Store
from mofa_operator.observe.nodes import Pools
from mofa_operator.observe.progress.telemetry import TelemetryReader
from mofa_operator.observe.prometheus.client import Prometheus
from mofa_operator.page.server import routes, runbooks
from mofa_operator.settings import OperatorSettings

GRACE: Final = 1.0
"""How long what is in work may take after a signal; with what follows it stays below `stop.LIMIT`. [s]"""
_BRIEFLY: Final = 0.3
"""How long everything else may take then, one after another: watches, Events, the Lease, what is left. [s]"""
_WATCHES: Final = 1000
"""Connections for watches: one for each kind and namespace. [1]"""

_log = logging.getLogger(__name__)


def operate(settings: OperatorSettings, stop: Stop) -> int:
    """Run until a signal comes; the result is the exit code."""
    return asyncio.run(_operate(settings, stop))


async def _operate(settings: OperatorSettings, stop: Stop) -> int:
    credentials = Credentials.from_environment()  # a plugin may hang here
    stop.heed()
    try:
        async with contextlib.AsyncExitStack() as stack:
            api = await stack.enter_async_context(Api(credentials, settings.api))
            watching = await stack.enter_async_context(
                Api(credentials, settings.api, connections=_WATCHES)
            )
            watching.served = api.served  # what one finds the other writes to
            prometheus = await _prometheus(stack, settings)
            operator = Operator(settings, api, watching, credentials, prometheus, stop)
            stack.push_async_callback(operator.decider.stop)
            await stack.enter_async_context(operator.server)
            return await operator.run()
    finally:
        await end(asyncio.all_tasks() - {asyncio.current_task()}, _BRIEFLY)


async def _prometheus(
    stack: contextlib.AsyncExitStack, settings: OperatorSettings
) -> Prometheus | None:
    if settings.prometheus.url is None:
        return None
    return await stack.enter_async_context(Prometheus(settings.prometheus))


class Operator:
    """All parts, put together."""

    def __init__(
        self,
        settings: OperatorSettings,
        api: Api,
        watching: Api,
        credentials: Credentials,
        prometheus: Prometheus | None,
        stop: Stop,
    ) -> None:
        """Nothing runs yet; `watching` has connections for watches alone, which keep them."""
        self._settings = settings
        self._api = api
        self._credentials = credentials
        self._stop = stop
        known = [kind for kind in watched(settings.kinds) if kind in KINDS]
        self._store = Store(known, Pools(settings.loop.steady))
        loop, most = settings.loop, partial(self._store.policies.most, settings.api.concurrency)
        self._queue = WorkQueue(backoff=loop.backoff, longest=loop.backoff_longest, most=most)
        self._intake = Intake(self._store, self._queue, loop)
        self._exporter = Exporter(most_jobs=settings.serve.most_jobs)
        api.count = self._exporter.count_write
        self._exporter.build(VERSION, VERSION)
        self._measured = (0, 0.0)
        self._exporter.queue(lambda: self._measured)
        self._events = EventPoster(api, grace=_BRIEFLY)
        self._gates = Gates(
            store=self._store,
            api=api,
            events=self._events,
            exporter=self._exporter,
            settings=settings,
        )
        self.decider = Decider(workers=settings.loop.workers, bytes_of=question_bytes)
        self.decider.count = self._exporter.count_search
        self._checks = Checks(
            store=self._store,
            intake=self._intake,
            api=api,
            decider=self.decider,
            exporter=self._exporter,
            settings=settings,
        )
        self._intake.heed = self._gates.heed, self._checks.heed
        self._fence = Fence(api, self._exporter, settings.api)
        self._rounds = (
            None
            if prometheus is None
            else rounds(prometheus, self._store, self._intake, self._exporter, settings.prometheus)
        )
        self._job_observer = JobObserver(
            store=self._store,
            intake=self._intake,
            ask=None if prometheus is None else TelemetryReader(prometheus.beside()),
            interval=settings.prometheus.interval,
            succeeded=partial(self._exporter.success, Loop.SIGHTINGS),
        )
        self._pool_observer = PoolObserver(
            store=self._store,
            intake=self._intake,
            interval=settings.prometheus.interval,
            succeeded=partial(self._exporter.success, Loop.WITNESS),
        )
        kinds = watched(settings.kinds, checks=settings.admission_checks)
        self._resync = Resync(
            api=api,
            store=self._store,
            intake=self._intake,
            exporter=self._exporter,
            kinds=kinds,
            namespaces=settings.namespace,
            interval=settings.loop.resync,
        )
        self._watches = Watches(
            [
                KopfWatch(
                    kind,
                    place,
                    api=watching,
                    intake=self._intake,
                    credentials=credentials,
                    on_start=stop.heed,
                )
                if kind in OURS
                else Watch(kind, place, api=watching, store=self._store, intake=self._intake)
                for kind in kinds
                for place in ((settings.namespace or (None,)) if kind.namespaced else (None,))
            ],
            store=self._store,
            intake=self._intake,
            exporter=self._exporter,
        )
        self._reconciler = Reconciler(
            store=self._store,
            queue=self._queue,
            intake=self._intake,
            api=api,
            events=self._events,
            decider=self.decider,
            exporter=self._exporter,
            histories=self._rounds,
            settings=settings,
        )
        self._health = Probes(
            queue=self._queue,
            histories=self._rounds,
            resync=self._resync,
            decider=self.decider,
            fence=self._fence,
            settings=settings,
        )
        pages = Pages(
            store=self._store,
            decider=self.decider,
            api=api,
            health=self._reconciler.health_of,
            prometheus=prometheus,
        )
        self.server = Server(
            settings.serve,
            exporter=self._exporter,
            live=self._health.live,
            ready=self._health.ready,
            measure=self._measure,
            routes=[
                *runbooks(),
                *(routes(pages.source, self._health.away) if settings.serve.page else ()),
            ],
            admission=Admission(api) if settings.serve.authenticate else None,
        )

    async def run(self) -> int:
        """Until a signal, or until something that must run does not; the result is the exit code."""
        warming = asyncio.create_task(self._warm())
        stopped = asyncio.create_task(self._stop.wish.wait())
        try:
            if not self._settings.lease.enabled:
                return await self._lead(stopped)
            async with Api(
                self._credentials, self._settings.api
            ) as api:  # renewals wait for no other write
                return await self._elected(Lease(api, self._settings.lease, identity()), stopped)
        finally:
            warming.cancel()
            stopped.cancel()

    async def _elected(self, lease: Lease, stopped: asyncio.Task[Any]) -> int:
        self._health.standby = lambda: f"standby: {lease.who}"
        self._exporter.lead(False)
        if await first(stopped, lease.acquire()) is stopped:
            return 0
        self._health.standby = None
        holding = asyncio.create_task(lease.hold(), name="holding the Lease")
        try:
            return await self._lead(stopped, holding)
        finally:
            holding.cancel()
            await lease.release(_BRIEFLY)

    async def _lead(self, stopped: asyncio.Task[Any], *also: asyncio.Task[Any]) -> int:
        self._exporter.lead(True)
        for work in (self._fence.stands, self._resync.fill):
            if await first(stopped, reached(work, self._credentials.access.server)) is stopped:
                return 0
        async with self._events:
            hands = [
                asyncio.create_task(self._reconciler.run())
                for _ in range(self._settings.api.concurrency)
            ]
            parts = [
                asyncio.create_task(self._watches.run(), name="watches"),
                asyncio.create_task(self._resync.run(), name="resync"),
                asyncio.create_task(self._gates.run(), name="gates"),
                asyncio.create_task(self._checks.run(), name="admission checks"),
                asyncio.create_task(self._fence.run(), name="the fence"),
                asyncio.create_task(self._job_observer.run(), name="job-observer"),
                asyncio.create_task(self._pool_observer.run(), name="pool-observer"),
            ]
            if self._rounds is not None:
                parts.append(asyncio.create_task(self._rounds.run(), name="history"))
            _log.info("at work: %d objects to look at", len(self._queue))
            done, _ = await asyncio.wait(
                {stopped, *also, *parts, *hands}, return_when=asyncio.FIRST_COMPLETED
            )
            code = 0 if stopped in done else 1
            for task in done - {stopped}:
                _log.error(
                    "%s has ended: %s",
                    task.get_name(),
                    task.exception() or task.result() or "without a reason",
                )
            await self._finish(hands, parts, grace=GRACE if code == 0 else 0.0)
        _log.info("stopped")
        return code

    async def _finish(self, hands: list[Task], parts: list[Task], grace: float) -> None:
        """Take nothing more, give up what is still computed and seen, let writes end, then stop the rest."""
        self._queue.close()
        await self.decider.stop()
        for task in parts:
            task.cancel()
        if grace:
            await asyncio.wait(hands, timeout=grace)
        await end([*hands, *parts], _BRIEFLY)

    async def _warm(self) -> None:
        try:
            await self.decider.start()
        except NoAnswer as error:
            if not self._stop.wish.is_set():
                _log.error("%s", error)

    def _measure(self) -> None:
        self._measured = len(self._queue), self._queue.oldest_age
