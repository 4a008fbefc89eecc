"""The loop: take a key, look at everything, decide, act. Level-triggered: it never asks what happened.

Errors, and what becomes of the key:

    Gone                the object is no more: nothing, its end is news that comes by itself
    Busy, Conflict      again after the wait that the server asks for, or after one that doubles
    Refused, Invalid    permanent until a person acts: said once, again after a wait that doubles (an API server that
                        starts refuses everything for a moment, so that not even these may wait for long at first)
    NoAnswer, others    our fault: said with what there is to say, again after a wait that doubles

Nothing is raised but cancellation, and nothing is retried without a wait.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

from mofa_operator.act.events import EventPoster
from mofa_operator.act.owed import Owed
from mofa_operator.act.perform import WAITS, Performed, perform
from mofa_operator.act.undone import Undone
from mofa_operator.api import Api
from mofa_operator.control.answers import Answers
from mofa_operator.control.decider import Decider, Outdated
from mofa_operator.control.gates import observe
from mofa_operator.control.intake import Intake
from mofa_operator.control.named import NamedObjects
from mofa_operator.control.process import NoAnswer
from mofa_operator.control.queue import WorkQueue
from mofa_operator.control.rounds import Rounds
from mofa_operator.decide.job import failed, job, refused
from mofa_operator.decide.policy import needs_answer, policy
from mofa_operator.decide.pool import profile
from mofa_operator.decision import Answer, Decision, JobFigures
from mofa_operator.keys import CLUSTER_PROFILE, Key
from mofa_operator.metrics.declared import Loop
from mofa_operator.metrics.exporter import Exporter
from mofa_operator.observe.cluster.store import Store
from mofa_operator.refusals import ApiError, Busy, Conflict, Gone
from mofa_operator.settings import OperatorSettings
from mofa_operator.snapshot import JobSnapshot, Named, NoHistory, PolicySnapshot, ProfileSnapshot
from mofa_operator.words import Reason

MISSING_CONFIG: Final = 15.0
"""When a job that names something missing is looked at again; nothing tells when it appears. [s]"""
NO_PROMETHEUS: Final = NoHistory(
    reason=Reason.NOT_CONFIGURED, message="no Prometheus is configured"
)
"""Why there is no history where nobody can be asked for it."""
_REFUSALS: Final = 4
"""Refusals in a row after which a job is told of them: a server that starts refuses for a moment what it allows later. [1]"""
_PATIENCE: Final = 1.0
"""How long a job waits for a profile that nobody has looked at yet, beyond the settling of its nodes. [s]"""

_log = logging.getLogger(__name__)


class Reconciler:
    """Looks at one object after another; as many hands may `run` as should work at the same time."""

    def __init__(
        self,
        *,
        store: Store,
        queue: WorkQueue,
        intake: Intake,
        api: Api,
        events: EventPoster,
        decider: Decider,
        exporter: Exporter,
        histories: Rounds | None,
        settings: OperatorSettings,
    ) -> None:
        """Everything that it works with; `histories` are told of every profile; None where there is no Prometheus."""
        self._store = store
        self._queue = queue
        self._intake = intake
        self._api = api
        self._events = events
        self._answers = Answers(decider, settings.loop.material)
        self._exporter = exporter
        self._histories = histories
        self._settings = settings
        self._named = NamedObjects(api, store)
        self._owed = Owed(events)
        self._undone = Undone(settings.loop.backoff, settings.loop.backoff_longest)
        self._patient: set[Key] = set()
        self._refusals: dict[Key, int] = {}
        self._said: dict[Key, str] = {}
        self._health: dict[Key, str] = {}

    def health_of(self, key: Key) -> str:
        """How a job was last judged to do; empty where it does not run, or was not judged yet."""
        return self._health.get(key, "")

    async def run(self) -> None:
        """One hand: work until the queue is closed."""
        while (key := await self._queue.take()) is not None:
            await self.reconcile(key)

    async def reconcile(self, key: Key) -> None:
        """Look at an object that was taken from the queue, and give it back."""
        try:
            await self._look(key)
        except Gone as error:
            _log.info("%s: gone meanwhile (%s)", key, error)
        except Busy as error:
            return self._wait(key, str(error), least=error.retry_after or 0.0)
        except (ApiError, NoAnswer) as error:
            return self._wait(key, str(error))
        except asyncio.CancelledError:
            self._queue.done(key)
            raise
        except Exception as error:  # noqa: BLE001 - one object must not end the loop
            _log.exception("%s: our fault", key)
            return self._wait(key, f"{type(error).__name__}: {error}")
        self._said.pop(key, None)
        self._exporter.success(Loop.RECONCILE)
        return self._queue.done(key)

    def _wait(self, key: Key, why: str, *, least: float = 0.0) -> None:
        """It comes again; the reason is said when it is a new one."""
        wait = self._queue.failed(key, least)
        known, self._said[key] = self._said.get(key), why
        level = logging.DEBUG if known == why else logging.WARNING
        _log.log(level, "%s: %s; again in %.3g s", key, why, wait)

    async def _look(self, key: Key) -> None:
        if self._intake.is_restless(key):
            return  # it is queued once its nodes have settled
        started = time.perf_counter()
        if key.kind == CLUSTER_PROFILE:
            self._ask_for_history(key)
        snapshot = await self._snapshot(key)
        if snapshot is None:
            self._forget(key)
        elif isinstance(snapshot, ProfileSnapshot):
            self._check(await self._act(profile(snapshot, self._settings.loop), started))
        elif isinstance(snapshot, PolicySnapshot):
            self._check(await self._act(policy(snapshot), started))
        elif not self._waits(snapshot):
            await self._advise(snapshot, started)

    async def _advise(self, snapshot: JobSnapshot, started: float) -> None:
        """Ask the model where an answer is needed, and write it; where the model fails, the job says so."""
        key, answer = snapshot.job.key, None
        now: JobSnapshot | None = snapshot
        since = self._store.unasked.holding(key)

        def current() -> JobSnapshot | None:
            """The job as it stands now, where it still asks the same: an answer may take a while."""
            question = snapshot.question
            named = Named(config_maps=question.config_maps, beside=question.beside)
            found = self._store.snapshot(key, time.time(), named)
            return (
                found
                if isinstance(found, JobSnapshot) and found.question == snapshot.question
                else None
            )

        try:
            if needs_answer(snapshot) and (answer := self._answers.at_hand(snapshot)) is None:
                urgent = self._queue.is_urgent(key)
                answer = await self._answers.of(
                    snapshot, urgent=urgent, wanted=lambda: current() is not None
                )
                now = current()
        except Outdated:
            _log.debug("%s: has changed before its turn came", key)
            now = current()
        except NoAnswer as error:
            if (still := current()) is not None:
                self._check(await self._act(failed(still, str(error)), started))
            raise
        if now is not None:
            decision = job(now, answer, self._settings.loop)
            if answer is not None:
                self._intake.concern(self._store.set_taught(key, answer.profile, decision.taught))
            performed = await self._act(decision, started, answer)
            if performed.outcome != WAITS:
                self._refusals[key] = self._refusals.get(key, 0) + 1 if performed.refused else 0
            if performed.refused and self._refusals[key] >= _REFUSALS and answer is not None:
                why = f"annotations are refused: {performed.failures[0]}"
                await self._act(refused(now, answer, self._settings.loop, why), started)
            self._intake.concern(self._store.unasked.asked(key, since))
            self._check(performed)
        else:
            self._queue.add(key)

    def _ask_for_history(self, key: Key) -> None:
        """The profile is looked at now with what is known, and again once Prometheus has answered."""
        if self._histories is not None:
            self._histories.include(key)
        else:
            self._store.set_history(key.name, NO_PROMETHEUS)

    async def _snapshot(self, key: Key) -> JobSnapshot | ProfileSnapshot | PolicySnapshot | None:
        named, whole = await self._named.read(key)
        if not whole:
            self._queue.add_after(key, MISSING_CONFIG)
        return self._store.snapshot(key, time.time(), named)

    def _waits(self, snapshot: JobSnapshot) -> bool:
        """Whether the job's profile was made so recently that its nodes are not counted yet: then it waits, once.

        Jobs and profiles are applied together; the profile's first status would change every answer a moment later.
        """
        if (
            snapshot.profile is None
            or snapshot.profile.standing
            or snapshot.job.key in self._patient
        ):
            self._patient.discard(snapshot.job.key)
            return False
        self._patient.add(snapshot.job.key)
        wait = self._settings.loop.settle + _PATIENCE
        self._queue.add_after(
            snapshot.job.key, wait, urgent=self._queue.is_urgent(snapshot.job.key)
        )
        return True

    async def _act(
        self, decision: Decision, started: float, answer: Answer | None = None
    ) -> Performed:
        """Do it, but for what somebody undoes again and again: that has to wait."""
        self._exporter.observe_decision(time.perf_counter() - started)
        if decision.figures is None:
            self._exporter.rest(decision.key)
        else:
            self._exporter.show(decision.figures)
        if isinstance(decision.figures, JobFigures):
            told = (decision.figures.key, decision.figures.target)
            self._health |= {key: decision.figures.health for key in told if key is not None}
        clock = asyncio.get_running_loop().time
        if wait := self._undone.wait(decision, clock()):
            self._queue.add_after(decision.key, wait)
            return Performed(outcome=WAITS)
        self._owed.settle(decision)
        try:
            performed = await perform(
                decision,
                self._api,
                self._events,
                standing=self._store.live,
                dry_run=self._settings.dry_run,
                wrote=self._store.wrote,
                tell_first=not self._refusals.get(decision.key),
            )
        except (Busy, Conflict):
            self._owed.remember(decision)
            raise
        if performed.writes:
            if not performed.refused:
                self._undone.wrote(decision, clock())
            _log.info(
                "%s: %s (wrote %s)", decision.key, decision.outcome, ", ".join(performed.writes)
            )
            if answer is not None and not performed.refused:
                kind = decision.key.kind.kind
                self._exporter.count_recommendation(kind, answer.outcome, decision.outcome)
        else:
            _log.debug("%s: %s", decision.key, decision.outcome)
        if performed.released is not None:
            observe(self._exporter, performed.released)
        if decision.again is not None:
            self._queue.add_after(decision.key, decision.again)
        return performed

    def _check(self, performed: Performed) -> None:
        """Writes that were refused for good fail the whole look, after all others were done."""
        for failure in performed.failures:
            raise failure

    def _forget(self, key: Key) -> None:
        self._exporter.forget(key)
        self._owed.forget(key)
        self._undone.forget(key)
        self._patient.discard(key)
        self._refusals.pop(key, None)
        self._said.pop(key, None)
        self._health.pop(key, None)
