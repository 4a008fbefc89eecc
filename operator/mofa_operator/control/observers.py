"""What is observed again and again: the history of each pool, running jobs, and what watches show
of nodes and jobs.

Each observer puts what it finds into the store, and queues the objects for which that is new.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Final, NoReturn, TypeAlias

from mofa_model.errors import MofaError
from mofa_model.kinds import KINDS, JobKind
from mofa_model.manifest.cluster_profile import EXPORTERS
from mofa_model.spec.incident_causes import SHORTEST_OUTAGE
from mofa_operator.control.enqueuer import Enqueuer
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
from mofa_operator.observe.history.history import KnownPools, history
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
"""How much the time between two looks varies, so that looks do not bunch. [1]"""
LATELY: Final = 300.0
"""Age from which on what was observed of a job is not exported any more. [s]"""
_LOOKS: Final = 3
"""Looks that may fail before that, where looks are rarer. [1]"""
_YIELD: Final = 200
"""Jobs that are read before others may use the event loop. [1]"""
_PRESET: Final = "mofa"
_NONE: Final[Mapping[str, str]] = {}
_WITNESSED: Final = tuple(kind for kind in KINDS if kind.witness)
"""Kinds whose objects say how their jobs recover."""
_GONE: Final = 10_000
"""Most jobs that are gone whose facts are kept, because the account still has them. [1]"""
_MISSED: Final = 3.0
"""Looks that may be missed before the time counts as not watched. [1]"""
_PATIENCE: Final = 60.0
"""How late a look may always be, since the machine may be busy. [s]"""
_AWAY: Final = 5
"""Looks for which a node may be away without being lost, at most five minutes. [1]"""

Telemetries: TypeAlias = Callable[
    [Iterable[JobSeries], float], Awaitable[Mapping[JobName, Telemetry]]
]
"""Asks Prometheus for what is to be seen of jobs at a moment. [s]"""

_log = logging.getLogger(__name__)


async def repeat(look: Callable[[], Awaitable[None]], interval: float, subject: str) -> NoReturn:
    """Call `look` every so many seconds until cancelled; one that fails is logged. [s]"""
    while True:
        try:
            await look()
        except Exception:  # noqa: BLE001 - one look that fails must not end the others
            _log.exception("the look at %s failed", subject)
        await asyncio.sleep(interval)


class PeriodicQueue:
    """Calls `look` for every included key again and again, until it says that the object is gone.

    A slow look delays only itself, unless all workers are busy with slow ones.
    """

    def __init__(self, look: Callable[[Key], Awaitable[bool]], interval: float) -> None:
        """`look` says whether the object exists; `interval` is the time between two looks. [s]"""
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
            exists = True
            try:
                exists = await self._look(key)
            except Exception:  # noqa: BLE001 - one look that fails must not end the others
                _log.exception("%s: the look at it failed", key)
            finally:
                self._queue.done(key)
            if exists:
                spread = self._random.uniform(1 - _SPREAD, 1 + _SPREAD)
                self._queue.add_after(key, self._interval * spread)
            else:
                self._included.discard(key)


@dataclass(eq=False, kw_only=True)
class HistoryObserver:
    """Asks Prometheus again and again for the history of every profile in its `queue`."""

    prometheus: Prometheus
    store: Store
    enqueuer: Enqueuer
    exporter: Exporter
    settings: PrometheusSettings

    def __post_init__(self) -> None:
        self.queue = PeriodicQueue(self.look, self.settings.interval)
        self._known_pools, self._recent_nodes = KnownPools(), RecentNodes(self.store)
        self._facts: dict[str, dict[str, JobFacts]] = {}
        self._warned: dict[Key, str] = {}

    async def look(self, key: Key) -> bool:
        """Read the history of a profile; False where the profile is gone."""
        profile = self.store.profile(key.name)
        if profile is None:
            self._warned.pop(key, None)
            return False
        answer = await self._history(profile, time.time())
        self.enqueuer.enqueue(self.store.set_history(key.name, answer))
        outcome = answer.reason if isinstance(answer, NoHistory) else "Answered"
        self.exporter.count_history(self.settings.flavour, outcome)
        if isinstance(answer, History):
            self.exporter.success(Loop.HISTORY)
            self._warned.pop(key, None)
        elif self._warned.get(key) != answer.message:
            self._warned[key] = answer.message
            _log.warning("%s: %s: %s", key, answer.reason, answer.message)
        return True

    async def _history(self, profile: LiveProfile, now: float) -> History | NoHistory:
        name = profile.key.name
        try:
            return await history(
                self.prometheus,
                profile.body,
                now,
                self._known_pools,
                self._recent_nodes.known(name, now),
                settled_days(profile),
                partial(self._job_facts, name, now),
                replayed=replay_is_due(profile, now),
            )
        except Exception as error:  # noqa: BLE001 - what Prometheus says must not end the loop
            _log.exception("the history could not be read")
            message = f"{type(error).__name__}: {error}"
            return NoHistory(reason=Reason.HISTORY_UNAVAILABLE, message=message)

    async def _job_facts(self, profile: str, now: float) -> Mapping[str, JobFacts]:
        """Facts of the jobs of a profile, and of its last jobs that are gone."""
        fresh = await facts_of_jobs(self.store, profile, now)
        before = self._facts.get(profile, {}).items()
        gone = [(job, replace(old, wanted=False)) for job, old in before if job not in fresh]
        self._facts[profile] = dict(gone[-_GONE:]) | fresh
        return self._facts[profile]


async def facts_of_jobs(store: Store, profile: str, moment: float) -> dict[str, JobFacts]:
    """Facts of the jobs of a profile at a moment [s], by namespace/name.

    The name is that of the job whose pods are seen, not of the TrainingJob that speaks for it.
    """
    facts: dict[str, JobFacts] = {}
    for key in store.keys(TRAINING_JOB, *KINDS):
        await asyncio.sleep(0)  # a manifest is read, and there may be thousands
        if store.profile_name(key) not in {None, profile}:
            continue
        snapshot = store.snapshot(key, moment)
        if not isinstance(snapshot, JobSnapshot) or snapshot.owned_by is not None:
            continue
        facts[snapshot.job.trains.full_name] = job_facts(snapshot)
    return facts


@dataclass(eq=False, kw_only=True)
class JobObserver:
    """Observes all running jobs together, with a few queries for an exporter.

    It observes TrainingJobs, and other advised jobs for which no TrainingJob speaks. Where
    Prometheus does not answer, what was seen before stands: an outage of the server is not an end
    of the jobs. Without a Prometheus there is still what the objects themselves say.

    `ask` asks Prometheus, None where there is none; `interval` is the time between two looks [s];
    `succeeded` is called after each look.
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
        await repeat(self.look, self.interval, "running jobs")

    async def look(self) -> None:
        """Look at every job once."""
        jobs = {series.job: (job, series) async for job, series in self._watched()}
        moment = time.time()
        telemetry: Mapping[JobName, Telemetry] = {}
        try:
            if jobs and self.ask is not None:
                telemetry = await self.ask([series for _, series in jobs.values()], moment)
        except MofaError as error:
            if str(error) != self._warned:
                _log.warning("running jobs cannot be observed; this is tried again: %s", error)
            self._warned = str(error)
            for listed, _ in jobs.values():
                self._not_seen(listed.key, "", moment)
            return
        self._warned = ""
        keys = {listed.key for listed, _ in jobs.values()}
        self._seen_at = {key: seen for key, seen in self._seen_at.items() if key in keys}
        pools: dict[str, frozenset[str]] = {}
        for profile in self.store.profiles():
            await asyncio.sleep(0)  # a pool that has changed is counted among all nodes
            pools[profile.key.name] = frozenset(self.store.nodes(profile.key.name).names)
        running = []
        for number, (name, (listed, _)) in enumerate(jobs.items()):
            if number % _YIELD == 0:
                await asyncio.sleep(0)
            # An answer may take a while, and the job may have changed meanwhile.
            job = listed if self.ask is None else self.store.live(listed.key)
            if job is not None:
                running.append(job)
                self._set_running(job, telemetry.get(name, Telemetry()), pools, moment)
        self._records.keep(running)
        self.succeeded()

    def _set_running(
        self, job: LiveObject, telemetry: Telemetry, pools: Mapping[str, frozenset[str]], now: float
    ) -> None:
        """Store what was observed of one job."""
        key = job.key
        if telemetry.refused:
            self._not_seen(key, telemetry.refused, now)
            return
        self._seen_at[key] = now
        target = self.store.target(key) if key.kind == TRAINING_JOB else job
        running = self._records.after(job, target, telemetry, now)
        if running is not None and telemetry.gang is not None:
            name = job.spec.profile if isinstance(job, LiveTrainingJob) else ""
            nodes, pool = telemetry.gang.nodes, pools.get(name, frozenset())
            running = replace(running, on_pool=bool(nodes) and nodes <= pool)
            if telemetry.gang.memory_bytes is not None:
                running = replace(
                    running, memory_bytes=telemetry.gang.memory_bytes, whole_device=True
                )
        alive = self._records.alive(job, target, telemetry, running, now)
        self.enqueuer.enqueue(self.store.set_running(key, running, alive))

    def _not_seen(self, key: Key, why: str, now: float) -> None:
        """Store why a job could not be observed, unless it was lately."""
        if now - self._seen_at.get(key, 0.0) > max(LATELY, _LOOKS * self.interval):
            self.enqueuer.enqueue(self.store.set_running(key, None, unseen=why))

    def _lost(self, node: str) -> str:
        """Since when a node is not ready; empty where it is ready or unknown."""
        facts = self.store.node(node)
        return "" if facts is None else facts.lost

    async def _watched(self) -> AsyncIterator[tuple[LiveObject, JobSeries]]:
        """Jobs to observe, each with its series; a series that two jobs claim is the first's."""
        profiles = {profile.key.name: profile for profile in self.store.profiles()}
        names: set[JobName] = set()
        for number, key in enumerate(self.store.keys(TRAINING_JOB) + self.store.keys(*KINDS)):
            if number % _YIELD == 0:
                await asyncio.sleep(0)
            job = self.store.live(key)
            if job is None:
                continue
            if isinstance(job, LiveTrainingJob):
                series, target = watched(job, profiles), self.store.target(key)
            else:
                series, target = self._existing(job), job
            if series is not None and series.job not in names:
                names.add(series.job)
                yield job, series if target is None else replace(series, born=target.created or 0.0)

    def _existing(self, job: LiveObject) -> JobSeries | None:
        """Series of an existing job; None where it is not advised, or a TrainingJob has them."""
        if HASH not in job.annotations or self.store.owner(job.key) is not None:
            return None
        profiles = self.store.possible_profiles(job.key)
        return _series(job.key, profiles[0] if len(profiles) == 1 else None)


def watched(job: LiveTrainingJob, profiles: Mapping[str, LiveProfile]) -> JobSeries | None:
    """Series of a TrainingJob; None where its exporter is unknown or it wants no advice."""
    spec = job.spec
    preset = spec.preset or _PRESET
    if preset not in TRAINERS or spec.mode == "Disabled":
        return None
    return _series(job.key, profiles.get(spec.profile), preset, spec.matchers, spec.target_name)


def _series(
    key: Key,
    profile: LiveProfile | None,
    preset: str = _PRESET,
    job_matchers: Mapping[str, str] = _NONE,
    owner: str = "",
) -> JobSeries:
    """Series of a job; the pool's matchers, which are the administrator's, win."""
    spec = None if profile is None else profile.spec
    pool_matchers = _NONE if spec is None else spec.matchers
    return JobSeries(
        namespace=key.namespace,
        name=key.name,
        preset=preset,
        matchers={**job_matchers, **pool_matchers},
        pool=pool_matchers,
        owner=owner,
        exporters=EXPORTERS if spec is None else spec.exporters,
        tokens_query=None if spec is None else spec.tokens_query or None,
        step_query=None if spec is None else spec.step_query or None,
    )


@dataclass(eq=False, kw_only=True)
class PoolObserver:
    """Observes what the watches alone show of every pool: its nodes, and the objects of jobs.

    `interval` is the time between two looks [s]; `clock` tells seconds of the epoch; `succeeded` is
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
        await repeat(self.look, self.interval, "jobs and nodes")

    async def look(self) -> None:
        """Look at everything once."""
        jobs: list[WatchedJob] = []
        for number, key in enumerate(self.store.keys(*_WITNESSED)):
            if number % _YIELD == 0:
                await asyncio.sleep(0)
            job = self.store.live(key)
            if job is not None and isinstance(key.kind, JobKind):
                jobs.append(watched_job(key.kind, job, self.store.profile_name(key), self.clock()))
        for name, days in self._witness.look(await self._pools(), jobs, self.clock()).items():
            self.enqueuer.enqueue(self.store.set_watched(name, days))
        self.succeeded()

    async def _pools(self) -> dict[str, WatchedPool]:
        pools: dict[str, WatchedPool] = {}
        for profile in self.store.profiles():
            await asyncio.sleep(0)  # a pool that has changed is counted among all nodes
            name = profile.key.name
            nodes = ((node, self.store.node(node)) for node in self.store.nodes(name).names)
            node_facts = {node: facts for node, facts in nodes if facts is not None}
            pools[name] = WatchedPool(profile=profile, node_facts=node_facts)
        return pools
