"""What running jobs do: all of them are looked at together, a few queries for an exporter, and put into the store.

TrainingJobs are looked at, and existing jobs that are advised where no TrainingJob speaks for them or bears their name. Where Prometheus does not answer, what was seen before stands: an outage of the server is not an end of the jobs. Without a
Prometheus there is still what the objects say that TrainingJobs are about.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final, TypeAlias

from mofa_model.errors import MofaError
from mofa_model.kinds import KINDS
from mofa_model.manifest.cluster_profile import EXPORTERS
from mofa_operator.control.intake import Intake
from mofa_operator.decide.job import HASH
from mofa_operator.keys import TRAINING_JOB, Key
from mofa_operator.objects import LiveObject, LiveProfile, LiveTrainingJob
from mofa_operator.observe.cluster.store import Store
from mofa_operator.observe.progress.run_records import RunRecords
from mofa_operator.observe.progress.telemetry import Telemetry, Watched
from mofa_operator.observe.prometheus.trainers import TRAINERS, Job

Asked: TypeAlias = Callable[[Iterable[Watched], float], Awaitable[Mapping[Job, Telemetry]]]
"""What is to be seen of the jobs at a moment."""
_PRESET: Final = "mofa"
_NONE: Final[Mapping[str, str]] = {}
LATELY: Final = 300.0
"""Age at which what was seen of a job is not known any more: its figures are not exported as if they were of now. [s]"""
_LOOKS: Final = 3
"""Looks that may fail before, where they are rarer. [1]"""
_AT_ONCE: Final = 200
"""Jobs that are read before others may use the event loop. [1]"""

_log = logging.getLogger(__name__)


class JobObserver:
    """Looks at running jobs again and again."""

    def __init__(
        self,
        *,
        store: Store,
        intake: Intake,
        ask: Asked | None,
        interval: float,
        succeeded: Callable[[], None] = lambda: None,
    ) -> None:
        """`ask` is what Prometheus is asked with, where there is one; `interval` is the time between two looks. [s]

        `succeeded` is called after each look that could be made.
        """
        self._succeeded = succeeded
        self._store = store
        self._intake = intake
        self._ask = ask
        self._interval = interval
        self._records = RunRecords(self._lost)
        self._seen_at: dict[Key, float] = {}
        self._said = ""

    async def run(self) -> None:
        """Look, until cancelled."""
        while True:
            try:
                await self.look()
            except Exception:  # noqa: BLE001 - one look that fails must not end the others
                _log.exception("the look at running jobs failed")
            await asyncio.sleep(self._interval)

    async def look(self) -> None:
        """Look at every job once."""
        jobs = {one.job: (stood, one) async for stood, one in self._watched()}
        now = time.time()
        try:
            found = (
                await self._ask([one for _, one in jobs.values()], now)
                if jobs and self._ask is not None
                else {}
            )
        except MofaError as error:
            if str(error) != self._said:
                _log.warning("running jobs cannot be seen: %s", error)
            self._said = str(error)
            for stood, _ in jobs.values():
                self._unseen(stood.key, "", now)
            return
        self._said = ""
        known = (stood.key for stood, _ in jobs.values())
        self._seen_at = {key: self._seen_at[key] for key in known if key in self._seen_at}
        members: dict[str, frozenset[str]] = {}
        for profile in self._store.profiles():
            await asyncio.sleep(0)  # a pool that has changed is counted among all nodes
            members[profile.key.name] = frozenset(self._store.nodes(profile.key.name).names)
        there = []
        for number, (job, (stood, _)) in enumerate(jobs.items()):
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
            key = stood.key
            stands = (
                stood if self._ask is None else self._store.live(key)
            )  # an answer may take a while
            if stands is None:
                continue
            there.append(stands)
            target = self._store.target(key) if key.kind == TRAINING_JOB else stands
            look = found.get(job, Telemetry())
            if look.refused:
                self._unseen(key, look.refused, now)
                continue
            self._seen_at[key] = now
            running = self._records.after(stands, target, look, now)
            if running is not None and look.gang is not None:
                asked = stands.asked.profile if isinstance(stands, LiveTrainingJob) else ""
                nodes, pool = look.gang.nodes, members.get(asked, frozenset())
                running = replace(running, on_pool=bool(nodes) and nodes <= pool)
                if look.gang.memory is not None:
                    running = replace(running, memory_bytes=look.gang.memory, whole_device=True)
            alive = self._records.alive(stands, target, look, running, now)
            self._intake.concern(self._store.set_running(key, running, alive))
        self._records.keep(there)
        self._succeeded()

    def _unseen(self, key: Key, why: str, now: float) -> None:
        """Nobody could look at a job: what was seen lately stands, what is older is not known any more."""
        if now - self._seen_at.get(key, 0.0) > max(LATELY, _LOOKS * self._interval):
            self._intake.concern(self._store.set_running(key, None, unseen=why))

    def _lost(self, node: str) -> str:
        """Since when a node is not ready; empty where it is, or not known."""
        facts = self._store.node(node)
        return "" if facts is None else facts.lost

    async def _watched(self) -> AsyncIterator[tuple[LiveObject, Watched]]:
        profiles = {profile.key.name: profile for profile in self._store.profiles()}
        seen: set[Job] = set()
        for number, key in enumerate(self._store.keys(TRAINING_JOB) + self._store.keys(*KINDS)):
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
            stands = self._store.live(key)
            if isinstance(stands, LiveTrainingJob):
                one = watched(stands, profiles)
            else:
                one = None if stands is None else self._existing(stands)
            if stands is not None and one is not None and one.job not in seen:
                seen.add(one.job)
                target = self._store.target(key) if key.kind == TRAINING_JOB else stands
                yield stands, one if target is None else replace(one, born=target.made or 0.0)

    def _existing(self, job: LiveObject) -> Watched | None:
        """Where an existing job is to be seen; None where it is not advised, or a TrainingJob speaks for it."""
        if HASH not in job.annotations or self._store.owner(job.key) is not None:
            return None
        meant = self._store.means(job.key)
        return _on(job.key, meant[0] if len(meant) == 1 else None)


def watched(job: LiveTrainingJob, profiles: Mapping[str, LiveProfile]) -> Watched | None:
    """Where a job is to be seen; None where no such exporter is known, or nobody asks for advice."""
    asked = job.asked
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
) -> Watched:
    """A job on a pool; the pool's matchers, which are the administrator's, count more than its own."""
    series = None if profile is None else profile.asked
    of_pool = _NONE if series is None else series.matchers
    return Watched(
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
