"""The process that computes advice, so that no question blocks or crashes the event loop.

The upper half of this module runs in that process, and imports neither kopf nor a network client.
The lower half starts the process, asks it one question at a time, and ends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import multiprocessing
import os
import resource
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from mofa_model.cli import SELDOM
from mofa_operator.decision import Answer
from mofa_operator.snapshot import Question, Refusal

if TYPE_CHECKING:
    from mofa_model.page import AdviceView  # imports numpy, which `prepare` must come before

_NICENESS: Final = 2
"""Niceness of the process, so that the event loop goes first. [1]"""
_CGROUPS: Final = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
"""Files with a container's limit of memory, in version 2 and 1 of control groups."""
SHARE: Final = 0.75
"""Share of the container's memory for the processes that compute. [1]"""
LEAST: Final = 512 * 2**20
"""Least address space of a process: what its imports need, and some to work. [B]"""
_THREADS: Final = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")

_T = TypeVar("_T")
_log: Final = logging.getLogger(__name__)


def memory_of(processes: int, limits: Sequence[Path] = _CGROUPS) -> int | None:
    """Address space of each process, by the container's limit; None without one. [B]"""
    for file in limits:
        with contextlib.suppress(OSError, ValueError):  # no such file, or "max"
            return max(LEAST, int(SHARE * int(file.read_text()) / processes))
    return None


def prepare(memory_bytes: int | None = None) -> None:
    """Set the process up before heavy imports; a question fails above `memory_bytes`. [B]"""
    if memory_bytes is not None:
        hard_limit = resource.getrlimit(resource.RLIMIT_AS)[1]  # which cannot be raised
        if hard_limit != resource.RLIM_INFINITY:
            memory_bytes = min(memory_bytes, hard_limit)
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    for variable in _THREADS:
        os.environ[variable] = "1"
    gc.set_threshold(SELDOM)
    # Ctrl-C reaches the whole process group; the parent says when to stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICENESS)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Exit when the parent has died: a worker waits on a pipe that it holds open itself."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(0)


def warm() -> None:
    """Import and read what every answer needs."""
    from mofa_operator.decide.answer import warm as warm_answers

    warm_answers()
    gc.freeze()  # what was imported and read is no garbage


def answer(question: Question) -> Answer:
    """The model's answer."""
    from mofa_operator.decide.answer import answer as compute_answer

    return compute_answer(question)


def unsearched(question: Question) -> Answer:
    """The answer without the search of layouts: its hash and what is known before searching."""
    from mofa_operator.decide.answer import unsearched as compute_unsearched

    return compute_unsearched(question)


def view(question: Question) -> AdviceView | Refusal | None:
    """The answer in full, for the page."""
    from mofa_operator.decide.answer import view as compute_view

    return compute_view(question)


class NoAnswer(Exception):
    """The model did not answer: it failed, hung or crashed, by a fault of ours."""


class Outgrown(NoAnswer):
    """The question killed its process, or needs more memory or time than one may have."""


class WorkerProcess:
    """A process in an executor of its own, so that a crash concerns one question."""

    def __init__(self, warm: Callable[[], None], deadline: float, memory: int | None) -> None:
        """`warm` runs in it first; one answer may take `deadline` [s] and `memory` [B]."""
        self._warm = warm
        self._memory = memory
        self._deadline = deadline
        self._executor: ProcessPoolExecutor | None = None
        self._pid: int | None = None
        self.is_warm = False
        """Whether it is ready to answer, or rests and can be started again."""
        self._starting = asyncio.Lock()
        self._stopped = False

    async def start(self) -> None:
        """Start the process, unless it runs."""
        async with self._starting:
            if (self.is_warm and self._executor is not None) or self._stopped:
                return
            others = multiprocessing.active_children()
            context = multiprocessing.get_context("spawn")
            self._executor = ProcessPoolExecutor(1, context, prepare, (self._memory,))
            # The first work starts the process.
            warming = asyncio.get_running_loop().run_in_executor(self._executor, self._warm)
            children = multiprocessing.active_children()
            self._pid = next(child.pid for child in children if child not in others)
            try:
                async with asyncio.timeout(self._deadline):
                    await warming
                self.is_warm = True
            except (BrokenExecutor, TimeoutError) as error:
                if self._is_stopped():  # `stop` ended it
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
                # Not `wait_for`: in Python 3.11 it loses a cancellation that comes with the result.
                async with asyncio.timeout(self._deadline):
                    return await self._call(work, question)
            except BrokenExecutor as error:
                self._discard()
                _log.warning("the process that computes advice has died (attempt %d of 2)", attempt)
                crash: Exception = error
            except TimeoutError as error:
                self._discard()
                raise Outgrown(
                    f"no answer within {self._deadline:g} s, so its process was killed"
                ) from error
            except MemoryError as error:
                self._discard()
                raise Outgrown("it needs more memory than one question may have") from error
            except Exception as error:
                raise NoAnswer(f"the model failed: {type(error).__name__}: {error}") from error
        raise Outgrown("the process that computes advice died twice over this question") from crash

    async def _call(self, work: Callable[[Question], _T], question: Question) -> _T:
        if self._executor is None:
            raise NoAnswer("the operator is stopping")
        return await asyncio.get_running_loop().run_in_executor(self._executor, work, question)

    def _is_stopped(self) -> bool:
        """Whether `stop` was called; a method, because mypy takes an attribute for unchanged."""
        return self._stopped

    def rest(self) -> None:
        """End the idle process, to free its memory; the next question starts it again."""
        if self.is_warm:
            self._discard()
            self.is_warm = True

    def stop(self) -> None:
        """End the process, whatever it does."""
        self._stopped = True
        self._discard()

    def _discard(self) -> None:
        """Drop the executor and kill its process, which may hang."""
        if self._executor is not None:
            if self._pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._pid, signal.SIGKILL)
            self._executor.shutdown(wait=False, cancel_futures=True)
        self._executor = self._pid = None
        self.is_warm = False
