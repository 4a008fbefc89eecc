"""Jobs that wait for us: each queue here has workers of its own, so that no other work delays it.

`GateDeadlines` opens our gates when their time is over, however many jobs wait for an answer.
`AdmissionChecks` answers Workloads that wait for an AdmissionCheck of Kueue that names us.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from mofa_model.kinds import KINDS, WORKLOAD
from mofa_model.kinds.shape import Body
from mofa_operator.act.events import EventPoster
from mofa_operator.act.release import Released, answer_workload, open_gate, write_condition
from mofa_operator.api import Api
from mofa_operator.api_errors import ApiError, Gone, Refused
from mofa_operator.control.answers import ModelPool, Outdated
from mofa_operator.control.enqueuer import Enqueuer
from mofa_operator.control.references import References
from mofa_operator.control.work_queue import WorkQueue
from mofa_operator.control.worker_process import NoAnswer, Outgrown
from mofa_operator.decide.admission import active, answered, is_ours, needs_answer
from mofa_operator.decide.answer import outgrown
from mofa_operator.decide.release import deadline, is_gated, overdue
from mofa_operator.keys import ADMISSION_CHECK, ADVISOR_POLICY, Key, key_of
from mofa_operator.metrics.exporter import Exporter
from mofa_operator.objects import LiveObject
from mofa_operator.observe.cluster.bodies import older, version_of
from mofa_operator.observe.cluster.store import Store, check_snapshot, speaker
from mofa_operator.settings import OperatorSettings
from mofa_operator.snapshot import CheckSnapshot
from mofa_operator.workloads import LiveWorkload

WORKERS: Final = 4
"""Keys of a queue that are handled at the same time. [1]"""
LONGEST: Final = 30.0
"""Longest wait between two tries. [s]"""

_log = logging.getLogger(__name__)


async def _run_workers(
    queue: WorkQueue, handle: Callable[[Key], Awaitable[None]], failure: str
) -> None:
    """Call `handle` for every due key until cancelled; a key that fails is logged as `failure`."""

    async def worker() -> None:
        while (key := await queue.take()) is not None:
            try:
                await handle(key)
            except Gone:
                queue.done(key)
            except (ApiError, NoAnswer, Outdated) as error:
                wait = queue.failed(key)
                _log.warning("%s: %s: %s; again in %.3g s", key, failure, error, wait)
            except Exception:  # noqa: BLE001 - one object must not keep the others waiting
                _log.exception("%s: our fault", key)
                queue.failed(key)
            else:
                queue.done(key)

    async with asyncio.TaskGroup() as group:
        for _ in range(WORKERS):
            group.create_task(worker())


@dataclass(eq=False, kw_only=True)
class GateDeadlines:
    """Jobs that wait at our gate, each queued for the moment when its time is over.

    A job that still waits then is released without launch arguments.
    """

    store: Store
    api: Api
    events: EventPoster
    exporter: Exporter
    settings: OperatorSettings

    def __post_init__(self) -> None:
        self._queue = WorkQueue(backoff=self.settings.loop.backoff, longest=LONGEST)

    def listen(self, job: LiveObject) -> None:
        """Queue an object that was seen, where it waits for us."""
        if job.key.kind in KINDS and is_gated(job):
            wait = deadline(job, self.settings.loop) - time.time()
            self._queue.add_after(job.key, max(wait, 0.0))

    async def run(self) -> None:
        """Release jobs whose time is over, until cancelled."""
        await _run_workers(self._queue, self._handle, "its gate is not open yet")

    async def _handle(self, key: Key) -> None:
        job = self.store.live(key)
        if job is None or not is_gated(job) or self.settings.dry_run:
            return
        release = overdue(job, time.time(), self.settings.loop)
        if release is None:
            self.listen(job)
            return
        released = await open_gate(release, self.api)
        if released.body is not None:
            self.store.wrote(key, released.body)
        if released.failure is not None:
            raise released.failure
        self.events.post(key, release.uid, release.note)
        count_wait(self.exporter, released)
        _log.warning("%s: %s", key, release.note.message if release.note else release.outcome)


def count_wait(exporter: Exporter, released: Released) -> None:
    """Count a gate that was opened, and how long the job had waited at it."""
    release = released.release
    if release.outcome and release.waited is not None:
        exporter.observe_gate(release.waited, release.outcome)


@dataclass(eq=False, kw_only=True)
class AdmissionChecks:
    """AdmissionChecks that name us, which are marked as active, and Workloads that wait for one.

    Only which checks are ours is remembered: a Workload says itself that it waits, also after a
    restart of Kueue or of us.
    """

    store: Store
    enqueuer: Enqueuer
    api: Api
    model_pool: ModelPool
    exporter: Exporter
    settings: OperatorSettings

    def __post_init__(self) -> None:
        self._references = References(self.api, self.store)
        self._queue = WorkQueue(backoff=self.settings.loop.backoff, longest=LONGEST)

    def listen(self, seen: LiveObject) -> None:
        """Queue an object that was seen, where it concerns our checks."""
        if not self.settings.admission_checks:
            return
        if seen.key.kind == ADMISSION_CHECK:
            self._queue.add(seen.key)
            for key in self.store.keys(WORKLOAD):  # they may have come before it
                self._queue.add(key, urgent=False)
        elif seen.key.kind == WORKLOAD and LiveWorkload(seen.key, seen.body).waits_for:
            self._queue.add(seen.key)

    async def run(self) -> None:
        """Answer Workloads that wait for our checks, until cancelled."""
        await _run_workers(self._queue, self._handle, "not answered yet")

    async def _handle(self, key: Key) -> None:
        if not self.settings.dry_run:
            await (self._activate(key) if key.kind == ADMISSION_CHECK else self._answer(key))

    async def _activate(self, key: Key) -> None:
        """Mark a check of ours as active."""
        check = self.store.live(key)
        if check is not None and is_ours(check):
            condition = active(check, time.time())
            if condition is not None:
                self.store.wrote(key, await write_condition(check, condition, self.api))

    async def _answer(self, key: Key) -> None:
        """Answer a Workload that waits for us."""
        snapshot = await self._snapshot(key)
        if snapshot is None:
            return
        question, answer, failure = snapshot.question, None, None
        if question is not None and needs_answer(snapshot, self.settings.loop):
            try:
                answer = await self.model_pool.answer(question, namespace=key.namespace)
            except Outgrown:
                answer = outgrown(question)
            except NoAnswer as error:
                failure = error
        verdict = answered(snapshot, answer, self.settings.loop)
        if verdict.state and await self._has_changed(snapshot):
            self._queue.add(key)
        elif verdict.state:
            self.store.wrote(key, await answer_workload(verdict, snapshot.workload, self.api))
            self.exporter.count_check(verdict.state)
            _log.info("%s: %s (%s)", key, verdict.state, verdict.message)
        elif failure is not None:
            raise failure
        elif verdict.requeue_after is not None:
            self._queue.add_after(key, verdict.requeue_after, urgent=True)

    async def _has_changed(self, snapshot: CheckSnapshot) -> bool:
        """Whether the Workload, its question or its policy changed while the model searched.

        The answer to a Workload is final, so it must not rest on what is outdated.
        """
        key = snapshot.workload.key
        if await self._have_policies_changed(key.namespace):
            return True
        fresh = await self._snapshot(key)
        before = snapshot.question, snapshot.policy
        return fresh is None or (fresh.question, fresh.policy) != before

    async def _have_policies_changed(self, namespace: str) -> bool:
        """Whether the namespace has a policy that its watch has not brought yet; stores it."""
        try:
            listed = [body async for body in self.api.list(ADVISOR_POLICY, namespace)]
        except (Gone, Refused):
            return False
        newer = [body for body in listed if self._is_newer(body)]
        for body in newer:
            self.enqueuer.put(ADVISOR_POLICY, body)
        return bool(newer)

    def _is_newer(self, policy: Body) -> bool:
        stored = self.store.body(key_of(ADVISOR_POLICY, policy))
        return stored is None or older(version_of(stored), version_of(policy))

    async def _snapshot(self, key: Key) -> CheckSnapshot | None:
        """A Workload that has its quota and waits for us; None for any other."""
        body = self.store.body(key)
        if body is None:
            return None
        workload = LiveWorkload(key, body)
        checks = tuple(name for name in workload.waits_for if self._is_ours(name))
        if workload.reserved_at is None or not checks:
            return None
        named = await self._references.read(speaker(self.store, workload))
        return check_snapshot(self.store, workload, checks, time.time(), named)

    def _is_ours(self, name: str) -> bool:
        check = self.store.live(Key(ADMISSION_CHECK, "", name))
        return check is not None and is_ours(check)
