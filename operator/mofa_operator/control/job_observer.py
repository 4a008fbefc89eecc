"""What running jobs do: all of them are looked at together, a few queries for an exporter, and put into the store.

TrainingJobs are looked at, and existing jobs that are advised where no TrainingJob speaks for them or bears their name. Where Prometheus does not answer, what was seen before stands: an outage of the server is not an end of the jobs. Without a
Prometheus there is still what the objects say that TrainingJobs are about.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Final, TypeAlias

from mofa_model.errors import MofaError
from mofa_model.kinds import KINDS
from mofa_model.kinds.shape import at, part, text_of
from mofa_operator.control.intake import Intake
from mofa_operator.decide.outputs import HASH
from mofa_operator.keys import CLUSTER_PROFILE, TRAINING_JOB, Key
from mofa_operator.observe.run_records import RunRecords, Telemetry
from mofa_operator.observe.store import Store
from mofa_operator.observe.throughput import Job, Watched
from mofa_operator.observe.trainers import TRAINERS
from mofa_operator.snapshot import Body, JobSnapshot

Asked: TypeAlias = Callable[[Iterable[Watched], float], Awaitable[Mapping[Job, Telemetry]]]
"""What is to be seen of the jobs at a moment."""
_PRESET: Final = "mofa"
_NOTHING: Final[Body] = {}
_AT_ONCE: Final = 200
"""Jobs that are read before others may use the event loop. [1]"""

_log = logging.getLogger(__name__)


class JobObserver:
    """Looks at running jobs again and again."""

    def __init__(self, *, store: Store, intake: Intake, ask: Asked | None, interval: float) -> None:
        """`ask` is what Prometheus is asked with, where there is one; `interval` is the time between two looks. [s]"""
        self._store = store
        self._intake = intake
        self._ask = ask
        self._interval = interval
        self._records = RunRecords(self._lost)
        self._said = ""

    async def run(self) -> None:
        """Look, until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(self._interval)

    async def look(self) -> None:
        """Look at every job once."""
        jobs = {one.job: (key, one) async for key, one in self._watched()}
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
            return
        self._said = ""
        there = []
        for number, (job, (key, _)) in enumerate(jobs.items()):
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
            body = self._store.body(key)
            if body is None:
                continue
            there.append(body)
            target = self._store.target(key) if key.kind == TRAINING_JOB else body
            look = found.get(job, Telemetry())
            running = self._records.after(body, target, look, now)
            alive = self._records.alive(body, target, look, running, now)
            self._intake.concern(self._store.set_running(key, running, alive))
        self._records.keep(there)

    def _lost(self, node: str) -> str:
        """Since when a node is not ready; empty where it is, or not known."""
        facts = self._store.node(node)
        return "" if facts is None else facts.lost

    async def _watched(self) -> AsyncIterator[tuple[Key, Watched]]:
        profiles = {key.name: self._store.body(key) or {} for key in self._store.keys(CLUSTER_PROFILE)}
        seen: set[Job] = set()
        every = self._store.keys(TRAINING_JOB) + self._store.keys(*KINDS)
        for number, key in enumerate(every):
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
            body = self._store.body(key)
            if body is None:
                continue
            look = watched if key.kind == TRAINING_JOB else self._existing
            one = look(key, body, profiles)
            if one is not None and one.job not in seen:
                seen.add(one.job)
                yield key, one

    def _existing(self, key: Key, body: Body, profiles: Mapping[str, Body]) -> Watched | None:
        """Where an existing job is to be seen; None where it is not advised, or a TrainingJob speaks for it."""
        if HASH not in part(body, "metadata", "annotations"):
            return None
        snapshot = self._store.snapshot(key, 0.0)
        if not isinstance(snapshot, JobSnapshot) or snapshot.owned_by is not None:
            return None
        named = [text_of(at(one, "metadata", "name")) for one in snapshot.question.profiles]
        pool = profiles.get(named[0], {}) if len(named) == 1 else {}
        return _on(key, pool)


def watched(key: Key, body: Body, profiles: Mapping[str, Body]) -> Watched | None:
    """Where a job is to be seen; None where no such exporter is known, or nobody asks for advice."""
    spec = part(body, "spec")
    asked = part(spec, "throughput")
    preset = text_of(asked.get("preset")) or _PRESET
    if preset not in TRAINERS or spec.get("mode") == "Disabled":
        return None
    return _on(key, profiles.get(text_of(at(spec, "cluster", "profile")), {}), preset, asked, spec)


def _on(
    key: Key, profile: Body, preset: str = _PRESET, asked: Body = _NOTHING, spec: Body = _NOTHING
) -> Watched:
    """A job on a pool; `asked` is what it says of its own series."""
    of_pool = part(profile, "spec", "prometheus")
    return Watched(
        namespace=key.namespace,
        name=key.name,
        preset=preset,
        matchers={**_texts(asked), **_texts(of_pool)},
        pool=_texts(of_pool),
        owner=text_of(at(spec, "targetRef", "name")),
        tokens_query=text_of(of_pool.get("tokensQuery")) or None,
        step_query=text_of(of_pool.get("stepQuery")) or None,
    )


def _texts(owner: Body) -> dict[str, str]:
    """The matchers of a part; the pool's, which are the administrator's, count more than a job's."""
    return {str(name): str(value) for name, value in part(owner, "matchers").items()}
