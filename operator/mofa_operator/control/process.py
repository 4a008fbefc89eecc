"""A process that computes answers, in a pool of its own, so that a crash concerns the question that caused it and no other."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import os
import signal
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from typing import Final, TypeVar

from mofa_operator.control import worker
from mofa_operator.snapshot import Question

_T = TypeVar("_T")
_log: Final = logging.getLogger(__name__)


class NoAnswer(Exception):
    """The model did not answer: it failed, hung or crashed. That is our fault, never the question's."""


class Outgrown(NoAnswer):
    """The question killed its process, or needs more memory or time than one may have."""


class WorkerProcess:
    """The process; another one where it has died."""

    def __init__(self, warm: Callable[[], None], deadline: float, memory: int | None) -> None:
        """`warm` runs in it before all else; one answer may take `deadline` [s] and `memory` [B]."""
        self._warm = warm
        self._memory = memory
        self._deadline = deadline
        self._pool: ProcessPoolExecutor | None = None
        self._pid: int | None = None
        self.is_warm = False
        """Whether it is ready to answer."""
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
            warming = asyncio.get_running_loop().run_in_executor(
                self._pool, self._warm
            )  # starts the process
            self._pid = next(
                one.pid for one in multiprocessing.active_children() if one not in others
            )
            try:
                await asyncio.wait_for(warming, self._deadline)
                self.is_warm = True
            except (BrokenExecutor, TimeoutError) as error:
                if (
                    self._is_over()
                ):  # we ended it: the operator leaves, and that is no fault of this process
                    return
                self._discard()
                raise NoAnswer(
                    f"the process that computes advice does not start: {error}"
                ) from error

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
                raise Outgrown(
                    f"no answer within {self._deadline:g} s; its process was killed"
                ) from error
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

    def _is_over(self) -> bool:
        """Whether it was ended meanwhile."""
        return self._stopped

    def stop(self) -> None:
        """End it, whatever it does."""
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
