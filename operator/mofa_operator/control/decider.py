"""Answers from worker processes: each question is computed once, whoever asks it and however often."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import multiprocessing
import os
import signal
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from typing import Final, TypeVar

from mofa_operator.control import worker
from mofa_operator.decision import Answer
from mofa_operator.snapshot import Question

DEADLINE: Final = 60.0
"""Longest time of one answer; one that takes longer is taken for hung, and its process is killed. [s]"""
KEPT: Final = 2048
"""Answers that are kept. [1]"""

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class NoAnswer(Exception):
    """The model did not answer: it failed, hung or crashed. That is our fault, never the question's."""


class Outdated(Exception):
    """When its turn came, nobody wanted the answer any more."""


@dataclass(slots=True, eq=False)
class _Asked:
    """A question that waits or is computed."""

    mark: bytes
    question: Question
    future: asyncio.Future[Answer]
    urgent: bool = False
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
        kept: int = KEPT,
        bytes_of: Callable[[Question], bytes],
        work: Callable[[Question], Answer] = worker.answer,
        warm: Callable[[], None] = worker.warm,
    ) -> None:
        """`bytes_of` tells questions apart; `work` and `warm` run in the worker process."""
        self._kept = kept
        self._bytes_of = bytes_of
        self._memory: OrderedDict[bytes, Answer] = OrderedDict()
        self._asked: dict[bytes, _Asked] = {}
        self._pending: asyncio.PriorityQueue[tuple[bool, int, _Asked]] = asyncio.PriorityQueue()
        self._number = count()
        self._workers = [_Worker(work, warm, deadline) for _ in range(workers)]
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
        self, question: Question, *, urgent: bool = True, wanted: Callable[[], bool] = lambda: True
    ) -> Answer:
        """The answer; raises `NoAnswer`, and `Outdated` where it is not `wanted` any more when its turn comes."""
        mark = hashlib.blake2b(self._bytes_of(question), digest_size=16).digest()
        if mark in self._memory:
            self.remembered += 1
            self._memory.move_to_end(mark)
            return self._memory[mark]
        asked = self._asked.get(mark)
        if asked is None:
            asked = _Asked(mark, question, asyncio.get_running_loop().create_future(), urgent)
            asked.future.add_done_callback(_look_at)
            self._asked[mark] = asked
            self._pending.put_nowait((not urgent, next(self._number), asked))
        else:
            self.remembered += 1
            if urgent and not asked.urgent:
                asked.urgent = True
                self._pending.put_nowait((False, next(self._number), asked))  # its old place counts no more
        asked.wanted.append(wanted)
        self._serving = self._serving or [asyncio.create_task(self._serve(each)) for each in self._workers]
        return await asyncio.shield(asked.future)  # one who gives up must not take it from the others

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
            _, _, asked = await self._pending.get()
            if asked.started:
                continue
            asked.started = True
            try:
                if not any(wanted() for wanted in asked.wanted):
                    raise Outdated  # noqa: TRY301 - told like every other end
                found = await process.ask(asked.question)
            except (NoAnswer, Outdated) as error:
                asked.future.set_exception(error)
            else:
                asked.future.set_result(found)
                self._keep(asked.mark, found)
            del self._asked[asked.mark]

    def _keep(self, mark: bytes, found: Answer) -> None:
        self.computed += 1
        self._memory[mark] = found
        while len(self._memory) > self._kept:
            self._memory.popitem(last=False)


class _Worker:
    """One process, in a pool of its own, so that a crash concerns the question that caused it and no other."""

    def __init__(self, work: Callable[[Question], Answer], warm: Callable[[], None], deadline: float) -> None:
        self._work = work
        self._warm = warm
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
            self._pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), worker.prepare)
            try:
                self._pid = await asyncio.wait_for(self._call(os.getpid), self._deadline)
                await asyncio.wait_for(self._call(self._warm), self._deadline)
                self.is_warm = True
            except (BrokenExecutor, TimeoutError) as error:
                self._discard()
                raise NoAnswer(f"the process that computes advice does not start: {error}") from error

    async def ask(self, question: Question) -> Answer:
        """The answer; a process that crashes is replaced, and asked once more."""
        for attempt in (1, 2):
            await self.start()
            try:
                return await asyncio.wait_for(self._call(self._work, question), self._deadline)
            except BrokenExecutor as error:
                self._discard()
                _log.warning("the process that computes advice has died (attempt %d of 2)", attempt)
                last: Exception = error
            except TimeoutError as error:
                self._discard()
                raise NoAnswer(f"no answer within {self._deadline:g} s; its process was killed") from error
            except Exception as error:
                raise NoAnswer(f"the model failed: {type(error).__name__}: {error}") from error
        raise NoAnswer("the process that computes advice died twice over this question") from last

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


def _look_at(future: asyncio.Future[Answer]) -> None:
    """Where all who asked have gone, nobody else would look at the error."""
    if not future.cancelled():
        future.exception()
