"""Answers of the model: from memory, from a job's own object where that still holds, or from a
search in a worker process.

`ModelPool` computes each question once, however often it is asked. Namespaces take turns, and a
question that nobody wants any more when its turn comes is dropped: after a start with thousands of
jobs, a new one is answered next, not last. The page asks for an answer in full (`view`) behind
every answer that a job waits for, few at a time. `AnswerSource` gets a job its answer by the
cheapest of these ways.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from mofa_model.annotations import PREFIX, UNANSWERED
from mofa_model.page import AdviceView
from mofa_operator.control import worker_process
from mofa_operator.control.work_queue import Lanes
from mofa_operator.control.worker_process import NoAnswer, Outgrown, WorkerProcess
from mofa_operator.decide.answer import is_quarantined, outgrown
from mofa_operator.decide.job import HASH
from mofa_operator.decide.stored_answer import as_answered, matters, read_answer
from mofa_operator.decision import Answer
from mofa_operator.lru_cache import LruCache
from mofa_operator.snapshot import JobSnapshot, Question, Refusal

DEADLINE: Final = 60.0
"""Longest time of one answer; its process is killed then. [s]"""
REST: Final = 600.0
"""Time without a question after which a process ends; the next one starts it again. [s]"""
KEPT: Final = 2048
"""Answers that are kept. [1]"""
VIEWS: Final = 16
"""Answers in full that are kept, and pages that may wait for one. [1]"""
_PEOPLE, _ROUTINE, _PAGE = range(3)
"""Lanes of questions, the most urgent first."""

Wanted: TypeAlias = Callable[[], bool]
"""Whether an answer is still wanted when its turn comes."""

_log: Final = logging.getLogger(__name__)


def _always() -> bool:
    return True


class Outdated(Exception):
    """When its turn came, nobody wanted the answer any more."""


@dataclass(frozen=True, slots=True, eq=False)
class _Work:
    """A function of the worker process, and its results that are kept."""

    name: bytes
    function: Callable[[Question], Any]
    results: LruCache[Any]


@dataclass(slots=True, eq=False)
class _Request:
    """A question that waits or is computed."""

    work: _Work
    question: Question
    future: asyncio.Future[Any]
    lane: int
    namespace: str
    is_started: bool = False
    wanted: list[Wanted] = field(default_factory=list)


class ModelPool:
    """Worker processes that answer questions; `await answer(question)`."""

    def __init__(
        self,
        *,
        workers: int = 1,
        deadline: float = DEADLINE,
        memory: int | None = None,
        rest: float = REST,
        kept: int = KEPT,
        bytes_of: Callable[[Question], bytes],
        work: Callable[[Question], Answer] = worker_process.answer,
        know: Callable[[Question], Answer] = worker_process.unsearched,
        draw: Callable[[Question], AdviceView | Refusal | None] = worker_process.view,
        warm: Callable[[], None] = worker_process.warm,
    ) -> None:
        """`bytes_of` tells questions apart; `work`, `know`, `draw`, `warm` run in the processes.

        Each process may have so much `memory` (missing = its part of the container's) [B], and is
        ended when nobody has asked it for `rest` [s].
        """
        memory = worker_process.memory_of(workers) if memory is None else memory
        self._bytes_of = bytes_of
        self._answer = _Work(b"answer", work, LruCache(kept))
        self._unsearched = _Work(b"unsearched", know, LruCache(kept))
        self._view = _Work(b"view", draw, LruCache(VIEWS))
        self._requests: dict[bytes, _Request] = {}
        self._waiting: Lanes[bytes] = Lanes(3)
        self._changed = asyncio.Event()
        self._rest = rest
        self._workers = [WorkerProcess(warm, deadline, memory) for _ in range(workers)]
        self._serving: list[asyncio.Task[None]] = []
        self.count: Callable[[], None] = lambda: None
        """Called for each answer that was searched for."""

    async def start(self) -> None:
        """Start the processes and let them import; answers may be asked for meanwhile."""
        self._serve_all()
        await asyncio.gather(*(worker.start() for worker in self._workers))

    @property
    def is_warm(self) -> bool:
        """Whether a process is ready to answer, or rests."""
        return any(worker.is_warm for worker in self._workers)

    @property
    def is_busy(self) -> bool:
        """Whether an answer is computed or waited for."""
        return bool(self._requests)

    def recall(self, question: Question) -> Answer | None:
        """The answer, where it is remembered."""
        answer: Answer | None = self._answer.results.get(self._digest(self._answer, question))
        return answer

    async def answer(
        self,
        question: Question,
        *,
        namespace: str = "",
        urgent: bool = True,
        wanted: Wanted = _always,
    ) -> Answer:
        """The answer; raises `NoAnswer`, and `Outdated` where it is not `wanted` in its turn."""
        lane = _PEOPLE if urgent else _ROUTINE
        answer: Answer = await self._ask(self._answer, question, lane, namespace, wanted)
        return answer

    async def unsearched(
        self,
        question: Question,
        *,
        namespace: str = "",
        urgent: bool = True,
        wanted: Wanted = _always,
    ) -> Answer:
        """What is known of the answer without a search; raises as `answer` does."""
        lane = _PEOPLE if urgent else _ROUTINE
        answer: Answer = await self._ask(self._unsearched, question, lane, namespace, wanted)
        return answer

    async def view(self, question: Question) -> AdviceView | Refusal | None:
        """The answer in full, or None; raises `NoAnswer`, and `Outdated` where too many wait."""
        digest = self._digest(self._view, question)
        pages = sum(request.lane == _PAGE for request in self._requests.values())
        if digest not in self._view.results and digest not in self._requests and pages >= VIEWS:
            raise Outdated
        view: AdviceView | Refusal | None = await self._ask(
            self._view, question, _PAGE, "", _always
        )
        return view

    def _digest(self, work: _Work, question: Question) -> bytes:
        return hashlib.blake2b(self._bytes_of(question), digest_size=16, person=work.name).digest()

    async def _ask(
        self, work: _Work, question: Question, lane: int, namespace: str, wanted: Wanted
    ) -> Any:
        """The result; a waiting question moves forward where it has become more urgent."""
        digest = self._digest(work, question)
        if digest in work.results:
            return work.results[digest]
        request = self._requests.get(digest)
        if request is None:
            future = asyncio.get_running_loop().create_future()
            future.add_done_callback(_retrieve)
            request = _Request(work, question, future, lane, namespace)
            self._requests[digest] = request
            self._waiting.lanes[lane].push(namespace, digest, 0.0)
            self._changed.set()
        elif lane < request.lane:
            if not request.is_started:
                self._waiting.lanes[request.lane].remove(request.namespace, digest)
                self._waiting.lanes[lane].push(request.namespace, digest, 0.0)
            request.lane = lane
        request.wanted.append(wanted)
        self._serve_all()
        return await asyncio.shield(request.future)  # one asker may give up, others still wait

    def _serve_all(self) -> None:
        self._serving = self._serving or [
            asyncio.create_task(self._serve(worker)) for worker in self._workers
        ]

    async def stop(self) -> None:
        """End the processes, whatever they do; whoever waits is cancelled."""
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        for worker in self._workers:
            worker.stop()
        for request in self._requests.values():
            request.future.cancel()

    async def _serve(self, worker: WorkerProcess) -> None:
        """Let one process answer one question after another."""
        while True:
            while (taken := self._waiting.take()) is None:
                self._changed.clear()
                try:
                    async with asyncio.timeout(self._rest):
                        await self._changed.wait()
                except TimeoutError:
                    worker.rest()
            digest, _ = taken
            request = self._requests[digest]
            request.is_started = True
            work = request.work
            try:
                if not any(wanted() for wanted in request.wanted):
                    raise Outdated  # noqa: TRY301 - reported like every other end
                result = await worker.ask(work.function, request.question)
            except (NoAnswer, Outdated) as error:
                request.future.set_exception(error)
            else:
                request.future.set_result(result)
                if work is self._answer:
                    self.count()
                work.results[digest] = result
            del self._requests[digest]


def _retrieve(future: asyncio.Future[Any]) -> None:
    """Read the error, which asyncio would log where all who asked have gone."""
    if not future.cancelled():
        future.exception()


class AnswerSource:
    """Answers to jobs, each with as little work as it needs."""

    def __init__(self, model_pool: ModelPool, material: float) -> None:
        """`material` is the least relative change of an interval that counts. [1]"""
        self._model_pool = model_pool
        self._material = material
        self._outgrown: LruCache[bool] = LruCache(KEPT)

    def at_hand(self, snapshot: JobSnapshot) -> Answer | None:
        """The answer that is remembered; None where the job has to wait for one."""
        return None if self._is_suspect(snapshot) else self._remembered(snapshot)

    async def of(self, snapshot: JobSnapshot, *, urgent: bool, wanted: Wanted) -> Answer:
        """The answer to a job; until a job changes whose question outgrew its process, that one."""
        if self._is_suspect(snapshot):
            refusal = outgrown(snapshot.question)
            if refusal.digest in self._outgrown or is_quarantined(snapshot):
                return refusal
        try:
            return await self._of(snapshot, urgent, wanted)
        except Outgrown as error:
            _log.warning("%s: gets no advice until it changes: %s", snapshot.job.key, error)
            refusal = outgrown(snapshot.question)
            self._outgrown[refusal.digest] = True
            return refusal

    async def _of(self, snapshot: JobSnapshot, urgent: bool, wanted: Wanted) -> Answer:
        if (remembered := self._remembered(snapshot)) is not None:
            return remembered
        question, namespace = snapshot.question, snapshot.job.key.namespace
        pool, digest, standing = self._model_pool, snapshot.job.annotations.get(HASH), None
        # The hash on the job tells in milliseconds whether its answer still holds; a search takes
        # seconds.
        if digest:
            unsearched = await pool.unsearched(
                question, namespace=namespace, urgent=urgent, wanted=wanted
            )
            if unsearched.outcome:  # a job that cannot be answered needs no search
                return unsearched
            if unsearched.digest == digest:
                if (written := read_answer(snapshot, unsearched)) is not None:
                    return written
            else:
                standing = await self._standing(snapshot, urgent, wanted)
            if standing is not None and not snapshot.asks_anew:
                return standing
        # What running jobs teach moves every answer a little; a change that no one would act on
        # leaves the annotations as they are.
        fresh = await pool.answer(question, namespace=namespace, urgent=urgent, wanted=wanted)
        return fresh if standing is None or matters(standing, fresh, self._material) else standing

    def _is_suspect(self, snapshot: JobSnapshot) -> bool:
        """Whether its question may have outgrown its process: a cheap test before the exact one."""
        return bool(self._outgrown) or snapshot.job.annotations.get(PREFIX + "status") in UNANSWERED

    def _remembered(self, snapshot: JobSnapshot) -> Answer | None:
        """The answer from memory, where no other one stands on the job."""
        answer = self._model_pool.recall(snapshot.question)
        if answer is None or snapshot.job.annotations.get(HASH) not in {None, answer.digest}:
            return None
        return answer

    async def _standing(self, snapshot: JobSnapshot, urgent: bool, wanted: Wanted) -> Answer | None:
        """The answer on the job, where nothing has changed since but what running jobs teach."""
        answered_question = as_answered(snapshot.question, snapshot.job)
        if answered_question == snapshot.question:
            return None
        unsearched = await self._model_pool.unsearched(
            answered_question, namespace=snapshot.job.key.namespace, urgent=urgent, wanted=wanted
        )
        return None if unsearched.outcome else read_answer(snapshot, unsearched)
