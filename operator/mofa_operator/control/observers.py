"""What is looked at again and again: the history of each pool, what running jobs do, and what
watches show of nodes and jobs.

Each observer puts what it finds into the store, and the objects for which that is new are queued.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Final, TypeAlias

from mofa_model.errors import MofaError
from mofa_model.kinds import KINDS, JobKind
from mofa_model.manifest.cluster_profile import EXPORTERS
from mofa_model.spec.incident_causes import SHORTEST_OUTAGE
from mofa_operator.control.enqueuer import Enqueuer
from mofa_operator.control.looks import again_and_again
from mofa_operator.control.work_queue import WorkQueue
from mofa_operator.decide.job import HASH
from mofa_operator.decide.ledger import settled_days
from mofa_operator.decide.remedies import replay_is_due
from mofa_operator.incidents.incident import JobFacts
from mofa_operator.keys import TRAINING_JOB, Key
from mofa_operator.metrics.declared import Loop
from mofa_operator.metrics.exporter import Exporter
from mofa_operator.objects import LiveObject, LiveProfile, LiveTrainingJob
from mofa_operator.observe.cluster.store import Store
from mofa_operator.observe.history.history import (
    KnownPools,
    history,
)
from mofa_operator.observe.history.node_names import RecentNodes
from mofa_operator.observe.history.watch import PoolWatch, WatchedJob, WatchedPool, watched_job
from mofa_operator.observe.jobs.saves import job_facts
from mofa_operator.observe.progress.run_records import RunRecords
from mofa_operator.observe.progress.telemetry import JobSeries, Telemetry
from mofa_operator.observe.prometheus.client import Prometheus
from mofa_operator.observe.prometheus.trainers import TRAINERS, JobName
from mofa_operator.settings import PrometheusSettings
from mofa_operator.snapshot import History, JobSnapshot, NoHistory
from mofa_operator.words import Reason

WORKERS: Final = 4
"""Profiles whose history is asked for at the same time. [1]"""
_SPREAD: Final = 0.1
"""By how much the time between two looks varies, so that they do not bunch. [1]"""
LATELY: Final = 300.0
"""Age from which on what was seen of a job is not exported any more. [s]"""
_LOOKS: Final = 3
"""Looks that may fail before, where they are rarer. [1]"""
_YIELD: Final = 200
"""Jobs that are read before others may use the event loop. [1]"""
_PRESET: Final = "mofa"
_NONE: Final[Mapping[str, str]] = {}
_WITNESSED: Final = tuple(kind for kind in KINDS if kind.witness)
"""Kinds whose objects say how their jobs recover."""
_GONE: Final = 10_000
"""Jobs that are gone of which facts are kept, for the account still has them. [1]"""
_MISSED: Final = 3.0
"""Looks that may be missed before nobody looked. [1]"""
_PATIENCE: Final = 60.0
"""Time that a look may be late on a busy machine, however often it is to look. [s]"""
_AWAY: Final = 5
"""Looks for which a node may be away without being lost, at most five minutes. [1]"""

Telemetries: TypeAlias = Callable[
    [Iterable[JobSeries], float], Awaitable[Mapping[JobName, Telemetry]]
]
"""What is to be seen of the jobs at a moment."""

_log = logging.getLogger(__name__)


class PeriodicQueue:
    """Looks at every key that was included, again and again, until `look` says that it is no more.

    A slow look delays itself alone, until as many are slow as there are workers.
    """

    def __init__(self, look: Callable[[Key], Awaitable[bool]], interval: float) -> None:
        """`look` says whether the object is there; `interval` is between two looks. [s]"""
        self._look = look
        self._interval = interval
        self._included: set[Key] = set()
        self._queue = WorkQueue(backoff=interval, longest=interval)
        self._random = Random()  # noqa: S311 - spreads looks, guards nothing

    def include(self, key: Key) -> None:
        """Look at this object too, from now on; the first time at once."""
        if key not in self._included:
            self._included.add(key)
            self._queue.add(key)

    async def run(self) -> None:
        """Look, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(WORKERS):
                group.create_task(self._work())

    @property
    def behind(self) -> float:
        """How long the slowest look has taken or waited so far. [s]"""
        return max(self._queue.longest_in_work[1], self._queue.oldest_age)

    async def _work(self) -> None:
        while (key := await self._queue.take()) is not None:
            there = True
            try:
                there = await self._look(key)
            except Exception:  # noqa: BLE001 - one look that fails must not end the others
                _log.exception("%s: the look at it failed", key)
            finally:
                self._queue.done(key)
            if there:
                spread = self._random.uniform(1 - _SPREAD, 1 + _SPREAD)
                self._queue.add_after(key, self._interval * spread)
            else:
                self._included.discard(key)


def history_queue(
    prometheus: Prometheus,
    store: Store,
    enqueuer: Enqueuer,
    exporter: Exporter,
    settings: PrometheusSettings,
) -> PeriodicQueue:
    """Asks Prometheus again and again for the history of every included profile."""
    known, lately, warned = KnownPools(), RecentNodes(store), dict[Key, str]()
    told: dict[str, dict[str, JobFacts]] = {}

    async def ask(profile: LiveObject) -> History | NoHistory:
        now, name = time.time(), profile.key.name
        settled, due = None, False
        if isinstance(profile, LiveProfile):
            settled, due = settled_days(profile), replay_is_due(profile, now)

        async def facts() -> Mapping[str, JobFacts]:
            fresh = await facts_of_jobs(store, name, now)
            old = told.get(name, {}).items()
            gone = [(job, replace(one, wanted=False)) for job, one in old if job not in fresh]
            told[name] = dict(gone[-_GONE:]) | fresh
            return told[name]

        try:
            return await history(
                prometheus,
                profile.body,
                now,
                known,
                lately.known(name, now),
                settled,
                facts,
                replayed=due,
            )
        except Exception as error:  # noqa: BLE001 - what Prometheus says must not end the loop
            _log.exception("the history could not be read")
            why = f"{type(error).__name__}: {error}"
            return NoHistory(reason=Reason.HISTORY_UNAVAILABLE, message=why)

    async def look(key: Key) -> bool:
        profile = store.live(key)
        if profile is None:
            warned.pop(key, None)
            return False
        answer = await ask(profile)
        enqueuer.enqueue(store.set_history(key.name, answer))
        outcome = answer.reason if isinstance(answer, NoHistory) else "Answered"
        exporter.count_history(settings.flavour, outcome)
        if isinstance(answer, History):
            exporter.success(Loop.HISTORY)
            warned.pop(key, None)
        elif warned.get(key) != answer.message:
            warned[key] = answer.message
            _log.warning("%s: %s: %s", key, answer.reason, answer.message)
        return True

    return PeriodicQueue(look, settings.interval)


async def facts_of_jobs(store: Store, profile: str, now: float) -> dict[str, JobFacts]:
    """What is known of the jobs of a profile, by namespace/name.

    The name is that of the job whose pods are seen, not of the TrainingJob that speaks for it.
    """
    found: dict[str, JobFacts] = {}
    for key in store.keys(TRAINING_JOB, *KINDS):
        await asyncio.sleep(0)  # a manifest is read, and there may be thousands
        if store.named(key) not in {None, profile}:
            continue
        snapshot = store.snapshot(key, now)
        if not isinstance(snapshot, JobSnapshot) or snapshot.owned_by is not None:
            continue
        found[snapshot.job.trains.full_name] = job_facts(snapshot)
    return found


@dataclass(eq=False, kw_only=True)
class JobObserver:
    """Looks at all running jobs together, with a few queries for an exporter.

    Looked at are TrainingJobs, and existing jobs that are advised where no TrainingJob speaks for
    them or bears their name. Where Prometheus does not answer, what was seen before stands: an
    outage of the server is not an end of the jobs. Without a Prometheus there is still what the
    objects say that TrainingJobs are about.

    `ask` asks Prometheus, where there is one; `interval` is the time between two looks [s],
    `succeeded` is called after each.
    """

    store: Store
    enqueuer: Enqueuer
    ask: Telemetries | None
    interval: float
    succeeded: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self._records = RunRecords(self._lost)
        self._seen_at: dict[Key, float] = {}
        self._warned = ""

    async def run(self) -> None:
        """Look, until cancelled."""
        await again_and_again(self.look, self.interval, "running jobs")

    async def look(self) -> None:
        """Look at every job once."""
        jobs = {where.job: (seen, where) async for seen, where in self._watched()}
        now = time.time()
        telemetry: Mapping[JobName, Telemetry] = {}
        try:
            if jobs and self.ask is not None:
                telemetry = await self.ask([where for _, where in jobs.values()], now)
        except MofaError as error:
            if str(error) != self._warned:
                _log.warning("running jobs cannot be observed; this is tried again: %s", error)
            self._warned = str(error)
            for seen, _ in jobs.values():
                self._not_seen(seen.key, "", now)
            return
        self._warned = ""
        keys = {seen.key for seen, _ in jobs.values()}
        self._seen_at = {key: at for key, at in self._seen_at.items() if key in keys}
        pools: dict[str, frozenset[str]] = {}
        for profile in self.store.profiles():
            await asyncio.sleep(0)  # a pool that has changed is counted among all nodes
            pools[profile.key.name] = frozenset(self.store.nodes(profile.key.name).names)
        there = []
        for number, (name, (seen, _)) in enumerate(jobs.items()):
            if number % _YIELD == 0:
                await asyncio.sleep(0)
            # An answer may take a while, and the job may have changed meanwhile.
            job = seen if self.ask is None else self.store.live(seen.key)
            if job is not None:
                there.append(job)
                self._take(job, telemetry.get(name, Telemetry()), pools, now)
        self._records.keep(there)
        self.succeeded()

    def _take(
        self, job: LiveObject, look: Telemetry, pools: Mapping[str, frozenset[str]], now: float
    ) -> None:
        """Store what a look at one job showed."""
        key = job.key
        if look.refused:
            self._not_seen(key, look.refused, now)
            return
        self._seen_at[key] = now
        target = self.store.target(key) if key.kind == TRAINING_JOB else job
        running = self._records.after(job, target, look, now)
        if running is not None and look.gang is not None:
            name = job.spec.profile if isinstance(job, LiveTrainingJob) else ""
            nodes, pool = look.gang.nodes, pools.get(name, frozenset())
            running = replace(running, on_pool=bool(nodes) and nodes <= pool)
            if look.gang.memory_bytes is not None:
                running = replace(running, memory_bytes=look.gang.memory_bytes, whole_device=True)
        alive = self._records.alive(job, target, look, running, now)
        self.enqueuer.enqueue(self.store.set_running(key, running, alive))

    def _not_seen(self, key: Key, why: str, now: float) -> None:
        """Note why a job could not be looked at, unless it was seen lately."""
        if now - self._seen_at.get(key, 0.0) > max(LATELY, _LOOKS * self.interval):
            self.enqueuer.enqueue(self.store.set_running(key, None, unseen=why))

    def _lost(self, node: str) -> str:
        """Since when a node is not ready; empty where it is, or not known."""
        facts = self.store.node(node)
        return "" if facts is None else facts.lost

    async def _watched(self) -> AsyncIterator[tuple[LiveObject, JobSeries]]:
        profiles = {profile.key.name: profile for profile in self.store.profiles()}
        names: set[JobName] = set()
        for number, key in enumerate(self.store.keys(TRAINING_JOB) + self.store.keys(*KINDS)):
            if number % _YIELD == 0:
                await asyncio.sleep(0)
            job = self.store.live(key)
            if job is None:
                continue
            if isinstance(job, LiveTrainingJob):
                where, target = watched(job, profiles), self.store.target(key)
            else:
                where, target = self._existing(job), job
            if where is not None and where.job not in names:
                names.add(where.job)
                yield job, where if target is None else replace(where, born=target.created or 0.0)

    def _existing(self, job: LiveObject) -> JobSeries | None:
        """Series of an existing job; None where it is not advised, or a TrainingJob has them."""
        if HASH not in job.annotations or self.store.owner(job.key) is not None:
            return None
        meant = self.store.means(job.key)
        return _on(job.key, meant[0] if len(meant) == 1 else None)


def watched(job: LiveTrainingJob, profiles: Mapping[str, LiveProfile]) -> JobSeries | None:
    """Series of a TrainingJob; None where its exporter is unknown or it wants no advice."""
    asked = job.spec
    preset = asked.preset or _PRESET
    if preset not in TRAINERS or asked.mode == "Disabled":
        return None
    return _on(job.key, profiles.get(asked.profile), preset, asked.matchers, asked.target_name)


def _on(
    key: Key,
    profile: LiveProfile | None,
    preset: str = _PRESET,
    own: Mapping[str, str] = _NONE,
    owner: str = "",
) -> JobSeries:
    """Series of a job; the pool's matchers, which are the administrator's, come first."""
    series = None if profile is None else profile.spec
    of_pool = _NONE if series is None else series.matchers
    return JobSeries(
        namespace=key.namespace,
        name=key.name,
        preset=preset,
        matchers={**own, **of_pool},
        pool=of_pool,
        owner=owner,
        exporters=EXPORTERS if series is None else series.exporters,
        tokens_query=None if series is None else series.tokens_query or None,
        step_query=None if series is None else series.step_query or None,
    )


@dataclass(eq=False, kw_only=True)
class PoolObserver:
    """Looks at what the watches alone show of every pool: its nodes, and the objects of jobs.

    `interval` is the time between two looks [s], `clock` tells seconds of the epoch, `succeeded` is
    called after each look.
    """

    store: Store
    enqueuer: Enqueuer
    interval: float
    clock: Callable[[], float] = time.time
    succeeded: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self._witness = PoolWatch(
            max(_MISSED * self.interval, _PATIENCE), min(SHORTEST_OUTAGE, _AWAY * self.interval)
        )

    async def run(self) -> None:
        """Look, until cancelled."""
        await again_and_again(self._succeed, self.interval, "jobs and nodes")

    async def _succeed(self) -> None:
        """Look once, and say that it was done."""
        await self.look()
        self.succeeded()

    async def look(self) -> None:
        """Look at everything once."""
        jobs: list[WatchedJob] = []
        for number, key in enumerate(self.store.keys(*_WITNESSED)):
            if number % _YIELD == 0:
                await asyncio.sleep(0)
            job = self.store.live(key)
            if job is not None and isinstance(key.kind, JobKind):
                jobs.append(watched_job(key.kind, job, self.store.named(key), self.clock()))
        for name, days in self._witness.look(await self._pools(), jobs, self.clock()).items():
            self.enqueuer.enqueue(self.store.set_watched(name, days))

    async def _pools(self) -> dict[str, WatchedPool]:
        pools: dict[str, WatchedPool] = {}
        for profile in self.store.profiles():
            await asyncio.sleep(0)  # a pool that has changed is counted among all nodes
            name = profile.key.name
            nodes = ((node, self.store.node(node)) for node in self.store.nodes(name).names)
            known = {node: facts for node, facts in nodes if facts is not None}
            pools[name] = WatchedPool(profile=profile, node_facts=known)
        return pools
