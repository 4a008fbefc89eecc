"""Kueue's AdmissionChecks that name us: each is told that we are there, and each Workload that waits for one is answered.

Kept beside the loop of jobs, with hands and a queue of its own: whatever else there is to do, no Workload waits for it. Nothing
is remembered but which checks are ours: what waits says so itself, whoever of Kueue and us was started again.
"""

from __future__ import annotations

import logging
import time

from mofa_model.kinds import WORKLOAD
from mofa_model.kinds.shape import Body
from mofa_operator.act.checks import say, stand_by
from mofa_operator.api import Api
from mofa_operator.control.decider import Decider
from mofa_operator.control.hands import LONGEST, hands
from mofa_operator.control.intake import Intake
from mofa_operator.control.named import NamedObjects
from mofa_operator.control.process import NoAnswer, Outgrown
from mofa_operator.control.queue import WorkQueue
from mofa_operator.decide.admission import active, answered, is_ours, needs_answer
from mofa_operator.decide.answer import outgrown
from mofa_operator.decision import Answer
from mofa_operator.keys import ADMISSION_CHECK, ADVISOR_POLICY, Key, key_of
from mofa_operator.metrics.exporter import Exporter
from mofa_operator.objects import LiveObject
from mofa_operator.observe.cluster.bodies import older, version_of
from mofa_operator.observe.cluster.store import Store, check_snapshot, speaker
from mofa_operator.refusals import Gone, Refused
from mofa_operator.settings import OperatorSettings
from mofa_operator.snapshot import CheckSnapshot
from mofa_operator.workloads import LiveWorkload

_log = logging.getLogger(__name__)


class Checks:
    """Workloads that wait for us."""

    def __init__(
        self,
        *,
        store: Store,
        intake: Intake,
        api: Api,
        decider: Decider,
        exporter: Exporter,
        settings: OperatorSettings,
    ) -> None:
        """Nobody waits yet."""
        self._store = store
        self._intake = intake
        self._api = api
        self._decider = decider
        self._exporter = exporter
        self._settings = settings
        self._named = NamedObjects(api, store)
        self._queue = WorkQueue(backoff=settings.loop.backoff, longest=LONGEST)

    def heed(self, seen: LiveObject) -> None:
        """Note what was seen, where it concerns our checks."""
        if not self._settings.admission_checks:
            return
        if seen.key.kind == ADMISSION_CHECK:
            self._queue.add(seen.key)
            for key in self._store.keys(WORKLOAD):  # they may have come before it
                self._queue.add(key, urgent=False)
        elif seen.key.kind == WORKLOAD and LiveWorkload(seen.key, seen.body).waits_for:
            self._queue.add(seen.key)

    async def run(self) -> None:
        """Answer, until cancelled."""
        await hands(self._queue, self._see, "not answered yet")

    async def _see(self, key: Key) -> None:
        await (self._stand_by(key) if key.kind == ADMISSION_CHECK else self._look(key))

    async def _stand_by(self, key: Key) -> None:
        check = self._store.live(key)
        if check is None or not is_ours(check) or self._settings.dry_run:
            return
        found = active(check, time.time())
        if found is not None:
            self._store.wrote(key, await stand_by(check, found, self._api))

    async def _look(self, key: Key) -> None:
        snapshot = await self._snapshot(key)
        if snapshot is None or self._settings.dry_run:
            return
        answer, failure = None, None
        try:
            if needs_answer(snapshot, self._settings.loop):
                answer = await self._answer(snapshot)
        except NoAnswer as error:
            failure = error
        said = answered(snapshot, answer, self._settings.loop)
        if said.state and await self._changed(key.namespace):
            self._queue.add(key)
        elif said.state:
            self._store.wrote(key, await say(said, snapshot.workload, self._api))
            self._exporter.count_check(said.state)
            _log.info("%s: %s (%s)", key, said.state, said.message)
        elif failure is not None:
            raise failure
        elif said.again is not None:
            self._queue.add_after(key, said.again, urgent=True)

    async def _changed(self, namespace: str) -> bool:
        """Whether policies are newer than they were seen: what is said is final, and their watch may be behind that of jobs."""
        try:
            listed = [one async for one in self._api.list(ADVISOR_POLICY, namespace)]
        except (Gone, Refused):
            return False
        newer = [one for one in listed if self._is_newer(one)]
        for body in newer:
            self._intake.seen(ADVISOR_POLICY, body)
        return bool(newer)

    def _is_newer(self, policy: Body) -> bool:
        known = self._store.body(key_of(ADVISOR_POLICY, policy))
        return known is None or older(version_of(known), version_of(policy))

    async def _snapshot(self, key: Key) -> CheckSnapshot | None:
        """A Workload that there is room for and that waits for us; None for any other."""
        body = self._store.body(key)
        if body is None:
            return None
        workload = LiveWorkload(key, body)
        ours = {one.name for one in self._store.keys(ADMISSION_CHECK) if self._is_ours(one)}
        checks = tuple(name for name in workload.waits_for if name in ours)
        if workload.reserved is None or not checks:
            return None
        read = await self._named.read(speaker(self._store, workload))
        return check_snapshot(self._store, workload, checks, time.time(), read.named)

    def _is_ours(self, key: Key) -> bool:
        check = self._store.live(key)
        return check is not None and is_ours(check)

    async def _answer(self, snapshot: CheckSnapshot) -> Answer | None:
        if (question := snapshot.question) is None:
            return None
        try:
            return await self._decider.answer(question, place=snapshot.workload.key.namespace)
        except Outgrown:
            return outgrown(question)
