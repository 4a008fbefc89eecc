"""Answers of the model: from memory, from a job's own object where that still holds, or from a
search in a worker process.

`ModelPool` computes each question once, whoever asks it and however often. Namespaces take turns,
and a question whose asker has changed its mind when its turn comes is dropped: after a start with
thousands of jobs, a new one is answered next, not last. The page asks for an answer in full
(`view`) behind every answer that a job waits for, few at a time. `AnswerSource` gets a job its
answer with as little work as it needs.
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
"""Longest time of one answer; the process of one that takes longer is killed. [s]"""
REST: Final = 600.0
"""A process that nobody asks for so long is ended. The next question starts it again. [s]"""
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
    """What a worker process can be asked, and the results that are kept."""

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
        """`bytes_of` tells questions apart; `work`, `know`, `draw` and `warm` run in worker
        processes.

        Each may have so much `memory` (missing = its part of the container's) [B], and is ended
        when nobody has asked it for `rest` [s].
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
        self.computed = 0
        """Answers that were computed. [1]"""
        self.count: Callable[[], None] = lambda: None
        """Called for each of them."""
        self.remembered = 0
        """Answers that came from memory or from a computation that was asked for already. [1]"""

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

    def known(self, question: Question) -> Answer | None:
        """The answer, where it is remembered."""
        known: Answer | None = self._remembered(self._mark(self._answer, question))
        return known

    async def answer(
        self, question: Question, *, place: str = "", urgent: bool = True, wanted: Wanted = _always
    ) -> Answer:
        """The answer; raises `NoAnswer`, and `Outdated` where it is not `wanted` in its turn."""
        mark = self._mark(self._answer, question)
        if (known := self._remembered(mark)) is None:
            self.remembered += mark in self._requests
            lane = _PEOPLE if urgent else _ROUTINE
            known = await self._ask(mark, self._answer, question, lane, place, wanted)
        found: Answer = known
        return found

    async def unsearched(
        self, question: Question, *, place: str = "", urgent: bool = True, wanted: Wanted = _always
    ) -> Answer:
        """What is known of the answer without a search, likewise."""
        mark, lane = self._mark(self._unsearched, question), _PEOPLE if urgent else _ROUTINE
        found: Answer = await self._ask(mark, self._unsearched, question, lane, place, wanted)
        return found

    async def view(self, question: Question) -> AdviceView | Refusal | None:
        """The answer in full, or None; raises `NoAnswer`, and `Outdated` where too many wait."""
        mark = self._mark(self._view, question)
        pages = sum(request.lane == _PAGE for request in self._requests.values())
        if mark not in self._view.results and mark not in self._requests and pages >= VIEWS:
            raise Outdated
        found: AdviceView | Refusal | None = await self._ask(
            mark, self._view, question, _PAGE, "", _always
        )
        return found

    def _mark(self, work: _Work, question: Question) -> bytes:
        return hashlib.blake2b(self._bytes_of(question), digest_size=16, person=work.name).digest()

    def _remembered(self, mark: bytes) -> Any:
        if mark not in self._answer.results:
            return None
        self.remembered += 1
        return self._answer.results[mark]

    async def _ask(
        self,
        mark: bytes,
        work: _Work,
        question: Question,
        lane: int,
        namespace: str,
        wanted: Wanted,
    ) -> Any:
        """The result; a waiting question moves forward where it has become more urgent."""
        if mark in work.results:
            return work.results[mark]
        request = self._requests.get(mark)
        if request is None:
            future = asyncio.get_running_loop().create_future()
            future.add_done_callback(_retrieve)
            request = _Request(work, question, future, lane, namespace)
            self._requests[mark] = request
            self._waiting.lanes[lane].push(namespace, mark, 0.0)
            self._changed.set()
        elif lane < request.lane:
            if not request.is_started:
                self._waiting.lanes[request.lane].remove(request.namespace, mark)
                self._waiting.lanes[lane].push(request.namespace, mark, 0.0)
            request.lane = lane
        request.wanted.append(wanted)
        self._serve_all()
        return await asyncio.shield(request.future)  # who gives up does not take it from others

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
            mark, _ = taken
            request = self._requests[mark]
            request.is_started = True
            work = request.work
            try:
                if not any(wanted() for wanted in request.wanted):
                    raise Outdated  # noqa: TRY301 - told like every other end
                result = await worker.ask(work.function, request.question)
            except (NoAnswer, Outdated) as error:
                request.future.set_exception(error)
            else:
                request.future.set_result(result)
                if work is self._answer:
                    self.computed += 1
                    self.count()
                work.results[mark] = result
            del self._requests[mark]


def _retrieve(future: asyncio.Future[Any]) -> None:
    """Look at the error: where all who asked have gone, asyncio would log it."""
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
        """The answer that is known already; None where the job has changed and has to wait."""
        return None if self._is_suspect(snapshot) else self._remembered(snapshot)

    async def of(self, snapshot: JobSnapshot, *, urgent: bool, wanted: Wanted) -> Answer:
        """The answer to a job; one whose question outgrew its process says so until it changes."""
        if self._is_suspect(snapshot):
            refused = outgrown(snapshot.question)
            if refused.digest in self._outgrown or is_quarantined(snapshot):
                return refused
        try:
            return await self._of(snapshot, urgent, wanted)
        except Outgrown as error:
            _log.warning("%s: gets no advice until it changes: %s", snapshot.job.key, error)
            refused = outgrown(snapshot.question)
            self._outgrown[refused.digest] = True
            return refused

    async def _of(self, snapshot: JobSnapshot, urgent: bool, wanted: Wanted) -> Answer:
        if (known := self._remembered(snapshot)) is not None:
            return known
        question, place = snapshot.question, snapshot.job.key.namespace
        pool, digest, stood = self._model_pool, snapshot.job.annotations.get(HASH), None
        if digest:
            found = await pool.unsearched(question, place=place, urgent=urgent, wanted=wanted)
            if found.outcome:  # what is unanswered needs no search
                return found
            if found.digest == digest:
                if (held := read_answer(snapshot, found)) is not None:
                    return held
            else:
                stood = await self._stood(snapshot, urgent, wanted)
            if stood is not None and not snapshot.asks_anew:
                return stood
        fresh = await pool.answer(question, place=place, urgent=urgent, wanted=wanted)
        return fresh if stood is None or matters(stood, fresh, self._material) else stood

    def _is_suspect(self, snapshot: JobSnapshot) -> bool:
        """Whether its question may have outgrown its process; a closer look costs more."""
        return bool(self._outgrown) or snapshot.job.annotations.get(PREFIX + "status") in UNANSWERED

    def _remembered(self, snapshot: JobSnapshot) -> Answer | None:
        """The answer from memory, where no other one stands on the job."""
        known = self._model_pool.known(snapshot.question)
        if known is None or snapshot.job.annotations.get(HASH) not in {None, known.digest}:
            return None
        return known

    async def _stood(self, snapshot: JobSnapshot, urgent: bool, wanted: Wanted) -> Answer | None:
        """The answer that stands, where nothing has changed since but what running jobs teach."""
        then, place = as_answered(snapshot.question, snapshot.job), snapshot.job.key.namespace
        if then == snapshot.question:
            return None
        found = await self._model_pool.unsearched(then, place=place, urgent=urgent, wanted=wanted)
        return None if found.outcome else read_answer(snapshot, found)
