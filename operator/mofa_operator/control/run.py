"""The operator from start to end: the order in which its parts begin, and in which they stop.

    servers ▶ Lease ▶ fence ▶ first lists ▶ profiles ▶ reconcilers, watches, history, resync ▶ …
    signal ▶ nothing new is taken ▶ writes that have begun are finished ▶ Events ▶ Lease ▶ end

Nothing is decided before everything was listed once, so that an object which is missing from memory
is missing from the cluster too.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
from functools import partial
from typing import Final

from mofa_model import VERSION
from mofa_model.kinds import KINDS, Kind
from mofa_operator.act.events import EventPoster
from mofa_operator.api import Api
from mofa_operator.control.answers import ModelPool
from mofa_operator.control.enqueuer import Enqueuer
from mofa_operator.control.fence import Fence
from mofa_operator.control.gates import AdmissionChecks, GateDeadlines
from mofa_operator.control.handlers import KopfWatch
from mofa_operator.control.health import Probes
from mofa_operator.control.http_server import AccessCheck, Server
from mofa_operator.control.launches import LaunchObserver
from mofa_operator.control.lease import Lease, identity
from mofa_operator.control.observers import HistoryObserver, JobObserver, PoolObserver
from mofa_operator.control.pages import Pages
from mofa_operator.control.reconcile import Reconciler
from mofa_operator.control.resync import Resync
from mofa_operator.control.shutdown import Shutdown, Task, end, race, until_reached
from mofa_operator.control.watches import AnyWatch, Watch, Watches
from mofa_operator.control.work_queue import WorkQueue
from mofa_operator.control.worker_process import NoAnswer
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
"""How long work may go on after a signal; with the other waits it stays below `shutdown.LIMIT`. [s]
"""
_BRIEFLY: Final = 0.3
"""How long watches, Events and other tasks may each take to end. [s]"""
_HANDOVER: Final = 1.0
"""How long giving the Lease back may take; where it fails, nobody acts until it runs out. [s]"""
_WATCHES: Final = 1000
"""Connections for watches: one for each kind and namespace. [1]"""

_log = logging.getLogger(__name__)


def operate(settings: OperatorSettings, shutdown: Shutdown) -> int:
    """Run until a signal comes; the result is the exit code."""
    return asyncio.run(_operate(settings, shutdown))


async def _operate(settings: OperatorSettings, shutdown: Shutdown) -> int:
    """Connect, serve and run the operator until a signal ends it; its exit code."""
    credentials = Credentials.from_environment()  # before signals are taken: a plugin may hang
    shutdown.take_signals()
    try:
        async with contextlib.AsyncExitStack() as stack:
            api = await stack.enter_async_context(Api(credentials, settings.api))
            watching = await stack.enter_async_context(
                Api(credentials, settings.api, connections=_WATCHES)
            )
            watching.served = api.served  # both use the version of a kind that one has found
            prometheus = None
            if settings.prometheus.url is not None:
                prometheus = await stack.enter_async_context(Prometheus(settings.prometheus))
            operator = Operator(settings, api, watching, credentials, prometheus, shutdown)
            stack.push_async_callback(operator.model_pool.stop)
            await stack.enter_async_context(operator.server)
            return await operator.run()
    finally:
        await end(asyncio.all_tasks() - {asyncio.current_task()}, _BRIEFLY)


class Operator:
    """All parts of the operator."""

    def __init__(
        self,
        settings: OperatorSettings,
        api: Api,
        watching: Api,
        credentials: Credentials,
        prometheus: Prometheus | None,
        shutdown: Shutdown,
    ) -> None:
        """Make all parts, without starting them; `watching` is a client for watches alone."""
        loop = settings.loop
        job_kinds = [kind for kind in watched(settings.kinds) if kind in KINDS]
        store = Store(job_kinds, Pools(loop.steady), settings.api)
        most = partial(store.policies.most_workers, settings.api.concurrency)
        queue = WorkQueue(backoff=loop.backoff, longest=loop.backoff_longest, most=most)
        enqueuer = Enqueuer(store, queue, loop)
        exporter = Exporter(most_jobs=settings.serve.most_jobs)
        events = EventPoster(api, grace=_BRIEFLY)
        pool = ModelPool(workers=loop.workers, bytes_of=question_bytes)
        self._settings, self._credentials, self._shutdown = settings, credentials, shutdown
        self._api, self._queue, self._exporter, self._events = api, queue, exporter, events
        self.model_pool = pool
        api.count, pool.count = exporter.count_write, exporter.count_search
        events.count = exporter.count_dropped_events
        exporter.build(VERSION, VERSION)
        self._gates = GateDeadlines(
            store=store, api=api, events=events, exporter=exporter, settings=settings
        )
        self._checks = AdmissionChecks(
            store=store,
            enqueuer=enqueuer,
            api=api,
            model_pool=pool,
            exporter=exporter,
            settings=settings,
        )
        enqueuer.listeners = self._gates.listen, self._checks.listen
        self._fence = Fence(api, exporter, settings.api)
        self._history, ask, interval = None, None, settings.prometheus.interval
        if prometheus is not None:
            self._history = HistoryObserver(
                prometheus=prometheus,
                store=store,
                enqueuer=enqueuer,
                exporter=exporter,
                settings=settings.prometheus,
            ).queue
            ask = TelemetryReader(prometheus.with_own_limit())
        self._job_observer = JobObserver(
            store=store,
            enqueuer=enqueuer,
            ask=ask,
            interval=interval,
            succeeded=partial(exporter.success, Loop.SIGHTINGS),
        )
        self._launches = LaunchObserver(store=store, enqueuer=enqueuer, api=api, interval=interval)
        self._pool_observer = PoolObserver(
            store=store,
            enqueuer=enqueuer,
            interval=interval,
            succeeded=partial(exporter.success, Loop.WITNESS),
        )
        kinds = watched(settings.kinds, checks=settings.admission_checks)
        self._resync = Resync(
            api=api,
            store=store,
            enqueuer=enqueuer,
            exporter=exporter,
            kinds=kinds,
            namespaces=settings.namespace,
            interval=loop.resync,
        )

        def watch(kind: Kind, namespace: str | None) -> AnyWatch:
            if kind not in OURS:
                return Watch(kind, namespace, api=watching, store=store, enqueuer=enqueuer)
            return KopfWatch(
                kind,
                namespace,
                api=watching,
                enqueuer=enqueuer,
                credentials=credentials,
                on_start=shutdown.take_signals,
            )

        namespaces = {True: settings.namespace or (None,), False: (None,)}
        watches = [
            watch(kind, namespace) for kind in kinds for namespace in namespaces[kind.namespaced]
        ]
        self._watches = Watches(watches, store=store, enqueuer=enqueuer, exporter=exporter)
        self._reconciler = Reconciler(
            store=store,
            queue=queue,
            enqueuer=enqueuer,
            api=api,
            events=events,
            model_pool=pool,
            exporter=exporter,
            history=self._history,
            settings=settings,
        )
        self._probes = Probes(
            queue=queue,
            history=self._history,
            resync=self._resync,
            model_pool=pool,
            fence=self._fence,
            settings=settings,
        )
        pages = Pages(
            store=store,
            model_pool=pool,
            api=api,
            health=self._reconciler.health_of,
            prometheus=prometheus,
        )
        page_routes = routes(pages, self._probes.why_empty) if settings.serve.page else ()
        self.server = Server(
            settings.serve,
            exporter=exporter,
            live=self._probes.live,
            ready=self._probes.ready,
            measure=lambda: exporter.queue(len(queue), queue.oldest_age),
            routes=[*runbooks(), *page_routes],
            access=AccessCheck(api) if settings.serve.authenticate else None,
        )

    async def run(self) -> int:
        """Run until a signal, or until a part ends; the result is the exit code."""
        warming = asyncio.create_task(self._warm())
        stopped = asyncio.create_task(self._shutdown.requested.wait())
        try:
            if not self._settings.lease.enabled:
                return await self._lead(stopped)
            # A session of its own, so that renewals wait for no other write.
            async with Api(self._credentials, self._settings.api) as api:
                return await self._elected(Lease(api, self._settings.lease, identity()), stopped)
        finally:
            warming.cancel()
            stopped.cancel()

    async def _elected(self, lease: Lease, stopped: Task) -> int:
        self._probes.standby = lambda: f"standby: {lease.holder_text}"
        self._exporter.lead(False)
        try:
            if await race(stopped, lease.acquire()) is stopped:
                return 0
            self._probes.standby = None
            holding = asyncio.create_task(lease.hold(), name="holding the Lease")
            try:
                return await self._lead(stopped, holding)
            finally:
                await end([holding], _BRIEFLY)
        finally:  # also after a signal that cut the write by which the Lease becomes ours
            await lease.release(_HANDOVER)

    async def _lead(self, stopped: Task, *also: Task) -> int:
        """Work as the leader: prove the fence, list everything, run all parts until one ends."""
        self._exporter.lead(True)
        for work in (self._fence.wait_until_proven, self._resync.fill):
            reached = until_reached(work, self._credentials.access.server)
            if await race(stopped, reached) is stopped:
                return 0
        async with self._events:
            reconcilers = [
                asyncio.create_task(self._reconciler.run())
                for _ in range(self._settings.api.concurrency)
            ]
            parts = {
                "watches": self._watches.run,
                "resync": self._resync.run,
                "gates": self._gates.run,
                "admission checks": self._checks.run,
                "the fence": self._fence.run,
                "job-observer": self._job_observer.run,
                "pool-observer": self._pool_observer.run,
            }
            if self._settings.pods:
                parts["launches"] = self._launches.run
            if self._history is not None:
                parts["history"] = self._history.run
            running = [asyncio.create_task(run(), name=name) for name, run in parts.items()]
            # What was listed is no garbage; a collection that reads it holds the loop for 0.3 s.
            gc.freeze()
            _log.info("the operator has started: %d objects are queued", len(self._queue))
            done, _ = await asyncio.wait(
                {stopped, *also, *running, *reconcilers}, return_when=asyncio.FIRST_COMPLETED
            )
            code = 0 if stopped in done else 1
            for task in done - {stopped}:
                _log.error(
                    "%s has ended: %s",
                    task.get_name(),
                    task.exception() or task.result() or "without a reason",
                )
            await self._finish(reconcilers, running, grace=GRACE if code == 0 else 0.0)
        _log.info("stopped")
        return code

    async def _finish(self, reconcilers: list[Task], parts: list[Task], grace: float) -> None:
        """Stop in order: take no new key, let writes end within `grace` [s], end the rest."""
        self._queue.close()
        await self.model_pool.stop()
        for task in parts:
            task.cancel()
        if grace:
            await asyncio.wait(reconcilers, timeout=grace)
        await end([*reconcilers, *parts], _BRIEFLY)

    async def _warm(self) -> None:
        try:
            await self.model_pool.start()
        except NoAnswer as error:
            if not self._shutdown.requested.is_set():
                _log.error("%s", error)
