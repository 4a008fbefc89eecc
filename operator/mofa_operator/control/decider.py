"""Answers from worker processes: each question is computed once, whoever asks it and however often.

The page asks here too, for an answer in full (`view`): behind every answer that is waited for, few at a time. Namespaces
take turns. A question that outgrows the memory or the time that one may have is told so, by `Outgrown`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import multiprocessing
import os
import signal
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from mofa_model.page import AdviceView
from mofa_operator.control import worker
from mofa_operator.control.turns import Turns
from mofa_operator.decision import Answer
from mofa_operator.recent import Recent
from mofa_operator.snapshot import Question, Refusal

DEADLINE: Final = 60.0
"""Longest time of one answer; one that takes longer is taken for hung, and its process is killed. [s]"""
KEPT: Final = 2048
"""Answers that are kept. [1]"""
VIEWS: Final = 16
"""Answers in full that are kept, and that may wait: a page more than that is told to come again. [1]"""
_PEOPLE, _ROUTINE, _PAGE = range(3)  # whose turn it is first

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class NoAnswer(Exception):
    """The model did not answer: it failed, hung or crashed. That is our fault, never the question's."""


class Outgrown(NoAnswer):
    """The question killed its process, or needs more memory or time than one may have."""


class Outdated(Exception):
    """When its turn came, nobody wanted the answer any more."""


@dataclass(slots=True, eq=False)
class _Asked:
    """A question that waits or is computed."""

    mark: bytes
    work: Callable[[Question], Any]
    question: Question
    future: asyncio.Future[Any]
    rank: int
    place: str
    started: bool = False
    wanted: list[Callable[[], bool]] = field(default_factory=list)


class Decider:
    """`await answer(question)`: from memory, from a computation that runs already, or from a worker process.

    Questions that people wait for come before the routine, and a question whose asker has changed its mind when its turn
    comes is dropped: after a start with thousands of jobs, a new one is answered next, not last.
    """

    def __init__(
        self,
        *,
        workers: int = 1,
        deadline: float = DEADLINE,
        memory: int | None = None,
        kept: int = KEPT,
        bytes_of: Callable[[Question], bytes],
        work: Callable[[Question], Answer] = worker.answer,
        draw: Callable[[Question], AdviceView | Refusal | None] = worker.view,
        warm: Callable[[], None] = worker.warm,
    ) -> None:
        """`bytes_of` tells questions apart; `work`, `draw` and `warm` run in worker processes.

        Each may have so much `memory`; missing = its part of the container's. [B]
        """
        memory = worker.memory_of(workers) if memory is None else memory
        self._bytes_of = bytes_of
        self._work = work
        self._draw = draw
        self._answers: Recent[Answer] = Recent(kept)
        self._views: Recent[AdviceView | Refusal | None] = Recent(VIEWS)
        self._asked: dict[bytes, _Asked] = {}
        self._pending: Turns[_Asked] = Turns(3)
        self._news = asyncio.Event()
        self._workers = [_Worker(warm, deadline, memory) for _ in range(workers)]
        self._serving: list[asyncio.Task[None]] = []
        self.computed = 0
        """Answers that were computed. [1]"""
        self.remembered = 0
        """Answers that came from memory or from a computation that was asked for already. [1]"""

    async def start(self) -> None:
        """Start the processes and let them import; answers may be asked for meanwhile."""
        await asyncio.gather(*(each.start() for each in self._workers))

    @property
    def is_warm(self) -> bool:
        """Whether a process is ready to answer."""
        return any(each.is_warm for each in self._workers)

    @property
    def is_busy(self) -> bool:
        """Whether an answer is computed or waited for."""
        return bool(self._asked)

    async def answer(
        self,
        question: Question,
        *,
        place: str = "",
        urgent: bool = True,
        wanted: Callable[[], bool] = lambda: True,
    ) -> Answer:
        """The answer to a job of the namespace `place`; raises `NoAnswer`, and `Outdated` where it is not `wanted` any more when its turn comes."""
        mark = self._mark(question, b"answer")
        if mark in self._answers:
            self.remembered += 1
            return self._answers[mark]
        self.remembered += mark in self._asked
        asked = self._ask(mark, self._work, question, _PEOPLE if urgent else _ROUTINE, place)
        asked.wanted.append(wanted)
        found: Answer = await asyncio.shield(
            asked.future
        )  # one who gives up must not take it from the others
        return found

    async def view(self, question: Question) -> AdviceView | Refusal | None:
        """The answer in full, None where there is none; raises `NoAnswer`, and `Outdated` where too many wait already."""
        mark = self._mark(question, b"view")
        if mark in self._views:
            return self._views[mark]
        if mark not in self._asked and sum(one.rank == _PAGE for one in self._asked.values()) >= VIEWS:
            raise Outdated
        asked = self._ask(mark, self._draw, question, _PAGE, "")
        asked.wanted.append(lambda: True)
        found: AdviceView | Refusal | None = await asyncio.shield(asked.future)
        return found

    def _mark(self, question: Question, kind: bytes) -> bytes:
        return hashlib.blake2b(self._bytes_of(question), digest_size=16, person=kind).digest()

    def _ask(
        self, mark: bytes, work: Callable[[Question], Any], question: Question, rank: int, place: str
    ) -> _Asked:
        """A question in its place: the one that is asked already, moved forward where it has become more urgent."""
        asked = self._asked.get(mark)
        if asked is None or rank < asked.rank:
            if asked is None:
                future = asyncio.get_running_loop().create_future()
                future.add_done_callback(_look_at)
                asked = self._asked[mark] = _Asked(mark, work, question, future, rank, place)
            elif not asked.started:
                self._pending.lanes[asked.rank].remove(asked.place, asked)
            asked.rank = rank
            if not asked.started:
                self._pending.lanes[rank].push(asked.place, asked, 0.0)
                self._news.set()
        self._serving = self._serving or [asyncio.create_task(self._serve(each)) for each in self._workers]
        return asked

    async def stop(self) -> None:
        """End the processes, whatever they do; whoever waits is cancelled."""
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        for each in self._workers:
            each.stop()
        for asked in self._asked.values():
            asked.future.cancel()

    async def _serve(self, process: _Worker) -> None:
        """Let one process answer one question after another."""
        while True:
            while (found := self._pending.take()) is None:
                self._news.clear()
                await self._news.wait()
            asked, _ = found
            asked.started = True
            try:
                if not any(wanted() for wanted in asked.wanted):
                    raise Outdated  # noqa: TRY301 - told like every other end
                told = await process.ask(asked.work, asked.question)
            except (NoAnswer, Outdated) as error:
                asked.future.set_exception(error)
            else:
                asked.future.set_result(told)
                self._keep(asked, told)
            del self._asked[asked.mark]

    def _keep(self, asked: _Asked, found: Any) -> None:
        if asked.rank == _PAGE:
            self._views[asked.mark] = found
        else:
            self.computed += 1
            self._answers[asked.mark] = found


class _Worker:
    """One process, in a pool of its own, so that a crash concerns the question that caused it and no other."""

    def __init__(self, warm: Callable[[], None], deadline: float, memory: int | None) -> None:
        self._warm = warm
        self._memory = memory
        self._deadline = deadline
        self._pool: ProcessPoolExecutor | None = None
        self._pid: int | None = None
        self.is_warm = False
        self._starting = asyncio.Lock()
        self._stopped = False

    async def start(self) -> None:
        """Start the process, unless it runs."""
        async with self._starting:
            if self.is_warm or self._stopped:
                return
            others = multiprocessing.active_children()
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(1, context, worker.prepare, (self._memory,))
            warming = asyncio.get_running_loop().run_in_executor(self._pool, self._warm)  # starts the process
            self._pid = next(one.pid for one in multiprocessing.active_children() if one not in others)
            try:
                await asyncio.wait_for(warming, self._deadline)
                self.is_warm = True
            except (BrokenExecutor, TimeoutError) as error:
                self._discard()
                raise NoAnswer(f"the process that computes advice does not start: {error}") from error

    async def ask(self, work: Callable[[Question], _T], question: Question) -> _T:
        """The answer; a process that crashes is replaced, and asked once more."""
        for attempt in (1, 2):
            await self.start()
            try:
                return await asyncio.wait_for(self._call(work, question), self._deadline)
            except BrokenExecutor as error:
                self._discard()
                _log.warning("the process that computes advice has died (attempt %d of 2)", attempt)
                last: Exception = error
            except TimeoutError as error:
                self._discard()
                raise Outgrown(f"no answer within {self._deadline:g} s; its process was killed") from error
            except MemoryError as error:
                self._discard()
                raise Outgrown("it needs more memory than one question may have") from error
            except Exception as error:
                raise NoAnswer(f"the model failed: {type(error).__name__}: {error}") from error
        raise Outgrown("the process that computes advice died twice over this question") from last

    async def _call(self, work: Callable[..., _T], *given: Question) -> _T:
        if self._pool is None:
            raise NoAnswer("the operator is stopping")
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, *given)

    def stop(self) -> None:
        self._stopped = True
        self._discard()

    def _discard(self) -> None:
        """Let go of the pool, and kill its process: it may hang."""
        if self._pool is not None:
            if self._pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._pid, signal.SIGKILL)
            self._pool.shutdown(wait=False, cancel_futures=True)
        self._pool = self._pid = None
        self.is_warm = False


def _look_at(future: asyncio.Future[Any]) -> None:
    """Where all who asked have gone, nobody else would look at the error."""
    if not future.cancelled():
        future.exception()
