"""The reconciler takes a key, reads the whole object, decides and acts. It is level-triggered: what
happened to the object does not matter, only how it stands.

Errors, and what becomes of the key:

    Gone                the object is no more: nothing, its watch says so
    Busy, Conflict      tried again after the wait that the server asks for, or one that doubles
    Refused, Invalid    permanent until a person acts: said once, tried again after a wait that
                        doubles (it begins short: an API server that starts refuses everything)
    NoAnswer, others    our fault: logged with its reason, tried again after a wait that doubles

Only cancellation is raised, and nothing is tried again without a wait.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import Final

from mofa_operator.act.events import EventPoster
from mofa_operator.act.retries import RewriteBackoff, UnconfirmedReleases
from mofa_operator.act.writes import WAITS, Performed, perform
from mofa_operator.api import Api
from mofa_operator.api_errors import ApiError, Busy, Conflict, Gone
from mofa_operator.control.answers import AnswerSource, ModelPool, Outdated
from mofa_operator.control.enqueuer import Enqueuer
from mofa_operator.control.gates import count_wait
from mofa_operator.control.observers import PeriodicQueue
from mofa_operator.control.references import References
from mofa_operator.control.work_queue import WorkQueue
from mofa_operator.control.worker_process import NoAnswer
from mofa_operator.decide.job import failed, job, refused
from mofa_operator.decide.policy import needs_answer, policy
from mofa_operator.decide.pool import profile
from mofa_operator.decision import Answer, Decision, JobFigures
from mofa_operator.keys import CLUSTER_PROFILE, Key
from mofa_operator.metrics.declared import Loop
from mofa_operator.metrics.exporter import Exporter
from mofa_operator.observe.cluster.store import Store
from mofa_operator.settings import OperatorSettings
from mofa_operator.snapshot import JobSnapshot, Named, NoHistory, PolicySnapshot, ProfileSnapshot
from mofa_operator.words import Reason

MISSING_CONFIG: Final = 15.0
"""When a job that names a missing object is looked at again: no watch says that it appears. [s]"""
NO_PROMETHEUS: Final = NoHistory(
    reason=Reason.NOT_CONFIGURED, message="no Prometheus is configured"
)
"""Why a profile has no history without a Prometheus."""
_REFUSALS: Final = 4
"""Refusals in a row until a job says so: a server that starts refuses everything. [1]"""
_PATIENCE: Final = 1.0
"""How long a job waits for a new profile, beyond the settling of its nodes. [s]"""

_log = logging.getLogger(__name__)


@dataclass(eq=False, kw_only=True)
class Reconciler:
    """Handles one object after another; `run` may be started several times, for several at once.

    `history` is asked for every profile; None where there is no Prometheus.
    """

    store: Store
    queue: WorkQueue
    enqueuer: Enqueuer
    api: Api
    events: EventPoster
    model_pool: ModelPool
    exporter: Exporter
    history: PeriodicQueue | None
    settings: OperatorSettings

    def __post_init__(self) -> None:
        self._answers = AnswerSource(self.model_pool, self.settings.loop.material)
        self._references = References(self.api, self.store)
        self._unconfirmed = UnconfirmedReleases(self.events)
        self._rewrites = RewriteBackoff(
            self.settings.loop.backoff, self.settings.loop.backoff_longest
        )
        self._waited: set[Key] = set()
        self._refusals: dict[Key, int] = {}
        self._warned: dict[Key, str] = {}
        self._health: dict[Key, str] = {}

    def health_of(self, key: Key) -> str:
        """How a job was last judged to do; empty where it does not run, or was not judged yet."""
        return self._health.get(key, "")

    async def run(self) -> None:
        """Work until the queue is closed."""
        while (key := await self.queue.take()) is not None:
            await self.reconcile(key)
            await asyncio.sleep(0)  # where nothing was awaited, others get their turn here

    async def reconcile(self, key: Key) -> None:
        """Look at an object that was taken from the queue, and give it back."""
        try:
            await self._look(key)
        except Gone as error:
            _log.info("%s: gone meanwhile (%s)", key, error)
        except Busy as error:
            return self._retry_later(key, str(error), least=error.retry_after or 0.0)
        except (ApiError, NoAnswer) as error:
            return self._retry_later(key, str(error))
        except asyncio.CancelledError:
            self.queue.done(key)
            raise
        except Exception as error:  # noqa: BLE001 - one object must not end the loop
            _log.exception("%s: our fault", key)
            return self._retry_later(key, f"{type(error).__name__}: {error}")
        self._warned.pop(key, None)
        self.exporter.success(Loop.RECONCILE)
        return self.queue.done(key)

    def _retry_later(self, key: Key, why: str, *, least: float = 0.0) -> None:
        """Queue a key again after a wait and log why; a new reason is logged as a warning."""
        wait = self.queue.failed(key, least)
        level = logging.DEBUG if self._warned.get(key) == why else logging.WARNING
        self._warned[key] = why
        _log.log(level, "%s: %s; again in %.3g s", key, why, wait)

    async def _look(self, key: Key) -> None:
        if self.enqueuer.is_settling(key):
            return  # it is queued once its nodes have settled
        started = time.perf_counter()
        if key.kind == CLUSTER_PROFILE:
            self._ask_for_history(key)
        snapshot = await self._snapshot(key)
        if snapshot is None:
            self._forget(key)
        elif isinstance(snapshot, ProfileSnapshot):
            _check(await self._act(profile(snapshot, self.settings.loop), started))
        elif isinstance(snapshot, PolicySnapshot):
            _check(await self._act(policy(snapshot), started))
        elif not self._waits(snapshot):
            await self._advise(snapshot, started)

    async def _advise(self, snapshot: JobSnapshot, started: float) -> None:
        """Ask the model where an answer is needed, and write it, or that the model failed."""
        key, answer = snapshot.job.key, None
        latest: JobSnapshot | None = snapshot
        # Rounds of now: one that begins during the search asks this job once more.
        since = self.store.pending.rounds_of(key)

        def is_wanted() -> bool:
            """Whether the job still asks the same, by all that was read of what it names."""
            named = Named(config_maps=snapshot.question.config_maps, beside=snapshot.beside)
            return (
                _asks_the_same(self.store.snapshot(key, time.time(), named), snapshot) is not None
            )

        async def current() -> JobSnapshot | None:
            """The job as it stands now, where it still asks the same. What it names is read again:
            the job that it advises may have come meanwhile, and that names its runtime.
            """
            return _asks_the_same(await self._snapshot(key), snapshot)

        # A search takes seconds, and the job may change meanwhile: what is written follows the job
        # as it stands afterwards.
        try:
            if needs_answer(snapshot) and (answer := self._answers.at_hand(snapshot)) is None:
                urgent = self.queue.is_urgent(key)
                answer = await self._answers.of(snapshot, urgent=urgent, wanted=is_wanted)
                latest = await current()
        except Outdated:
            _log.debug("%s: has changed before its turn came", key)
            latest = await current()
        except NoAnswer as error:
            if (latest := await current()) is not None:
                _check(await self._act(failed(latest, str(error)), started))
            raise
        if latest is not None:
            decision = job(latest, answer, self.settings.loop)
            if answer is not None:
                self.enqueuer.enqueue(self.store.set_taught(key, answer.profile, decision.taught))
            performed = await self._act(decision, started, answer)
            if latest.launch is not None and performed.outcome != WAITS and not performed.refused:
                self.store.note_launch_event(key)
            if performed.outcome != WAITS:
                self._refusals[key] = self._refusals.get(key, 0) + 1 if performed.refused else 0
            # Without annotations the status must not say Recommended; it says who refuses them.
            if performed.refused and self._refusals[key] >= _REFUSALS and answer is not None:
                why = f"annotations are refused: {performed.failures[0]}"
                await self._act(refused(latest, answer, self.settings.loop, why), started)
            self.enqueuer.enqueue(self.store.pending.finish(key, since))
            _check(performed)
        else:
            # It asks something else by now.
            self.queue.add(key)

    def _ask_for_history(self, key: Key) -> None:
        """Ask Prometheus; the profile is looked at now, and again with the answer."""
        if self.history is not None:
            self.history.include(key)
        else:
            self.store.set_history(key.name, NO_PROMETHEUS)

    async def _snapshot(self, key: Key) -> JobSnapshot | ProfileSnapshot | PolicySnapshot | None:
        named = await self._references.read(key)
        if not named.is_whole:
            self.queue.add_after(key, MISSING_CONFIG)
        return self.store.snapshot(key, time.time(), named)

    def _waits(self, snapshot: JobSnapshot) -> bool:
        """Whether the job waits, once, because the nodes of its new profile are not counted yet.

        Jobs and profiles are often applied together, and the profile's first status would change
        every answer a moment later.
        """
        key, profile = snapshot.job.key, snapshot.profile
        if profile is None or profile.standing or key in self._waited:
            self._waited.discard(key)
            return False
        self._waited.add(key)
        wait = self.settings.loop.settle + _PATIENCE
        self.queue.add_after(key, wait, urgent=self.queue.is_urgent(key))
        return True

    async def _act(
        self, decision: Decision, started: float, answer: Answer | None = None
    ) -> Performed:
        """Show and write a decision; a write that somebody keeps undoing has to wait."""
        self.exporter.observe_decision(time.perf_counter() - started)
        if decision.figures is None:
            self.exporter.rest(decision.key)
        else:
            self.exporter.show(decision.figures)
        if isinstance(decision.figures, JobFigures):
            keys = (decision.figures.key, decision.figures.target)
            self._health |= {key: decision.figures.health for key in keys if key is not None}
        clock = asyncio.get_running_loop().time
        if wait := self._rewrites.wait(decision, clock()):
            self.queue.add_after(decision.key, wait)
            return Performed(outcome=WAITS)
        self._unconfirmed.settle(decision)
        try:
            performed = await perform(
                decision,
                self.api,
                self.events,
                standing=self.store.live,
                dry_run=self.settings.dry_run,
                wrote=self.store.wrote,
                tell_first=not self._refusals.get(decision.key),
            )
        except (Busy, Conflict):
            self._unconfirmed.remember(decision)
            raise
        if performed.writes:
            if not performed.refused:
                self._rewrites.wrote(decision, clock())
            _log.info(
                "%s: %s (wrote %s)", decision.key, decision.outcome, ", ".join(performed.writes)
            )
            if answer is not None and not performed.refused:
                kind = decision.key.kind.kind
                self.exporter.count_recommendation(kind, answer.outcome, decision.outcome)
        else:
            _log.debug("%s: %s", decision.key, decision.outcome)
        if performed.released is not None:
            count_wait(self.exporter, performed.released)
        if decision.requeue_after is not None:
            self.queue.add_after(decision.key, decision.requeue_after)
        return performed

    def _forget(self, key: Key) -> None:
        self.exporter.forget(key)
        self._unconfirmed.forget(key)
        self._rewrites.forget(key)
        self._waited.discard(key)
        self._refusals.pop(key, None)
        self._warned.pop(key, None)
        self._health.pop(key, None)


def _asks_the_same(
    fresh: JobSnapshot | ProfileSnapshot | PolicySnapshot | None, asked: JobSnapshot
) -> JobSnapshot | None:
    """A job as it stands, where it asks the question that was asked of it; None otherwise."""
    if isinstance(fresh, JobSnapshot) and fresh.question == asked.question:
        return fresh
    return None


def _check(performed: Performed) -> None:
    """Raise the first write that was refused for good: after all others, the look has failed."""
    if performed.failures:
        raise performed.failures[0]
