"""The end of the process: SIGTERM and SIGINT end it in order, and by force where something hangs.

A thread that waits for a name server cannot be cancelled, and neither can a library that swallows
cancellations. A kubelet would wait half a minute for either, with the Lease held and nobody
at work.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Final, NoReturn, TypeAlias

from mofa_model.errors import SourceUnreachable
from mofa_operator.api_errors import ApiError

LIMIT: Final = 4.5
"""Longest time from a signal to the end. [s]"""
PATIENCE: Final = 30.0
"""How long the API server may be silent at the start. [s]"""
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
Task: TypeAlias = asyncio.Task[Any]

_log = logging.getLogger(__name__)


class Shutdown:
    """Whether a signal has asked for the end."""

    def __init__(self) -> None:
        """Take signals from now on: until the loop runs, there is nothing to put in order."""
        self.requested = asyncio.Event()
        for number in _SIGNALS:
            signal.signal(number, _at_once)

    def take_signals(self) -> None:
        """Let the loop take the signals; again after each start of kopf, which takes them too."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._request)

    def _request(self) -> None:
        if not self.requested.is_set():
            self.requested.set()
            timer = threading.Timer(LIMIT, _by_force, [asyncio.get_running_loop()])
            timer.daemon = True
            timer.start()


def _at_once(*_: Any) -> NoReturn:
    raise SystemExit(0)


def _by_force(loop: asyncio.AbstractEventLoop) -> NoReturn:
    """End the process at once: log what still runs, kill child processes, exit."""
    tasks = [] if loop.is_closed() else [task.get_name() for task in asyncio.all_tasks(loop)]
    threads = [thread.name for thread in threading.enumerate() if not thread.daemon]
    left = ", ".join(sorted({*tasks, *threads}))
    _log.error(
        "the operator did not stop within %g s, so it is ended by force; still running: %s",
        LIMIT,
        left,
    )
    for child in multiprocessing.active_children():
        child.kill()
    logging.shutdown()
    os._exit(0)


async def end(tasks: Iterable[Task], within: float) -> None:
    """Cancel tasks until they have ended, or for so long: kopf swallows cancellations. [s]"""
    loop, left = asyncio.get_running_loop(), {task for task in tasks if not task.done()}
    until = loop.time() + within
    while left and loop.time() < until:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=within / 4)


async def first(stopped: Task, work: Coroutine[Any, Any, None]) -> Task:
    """Wait until `work` or `stopped` ends; unfinished work is cancelled, and its error
    is raised.
    """
    task = asyncio.create_task(work)
    await asyncio.wait({stopped, task}, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
        return task
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return stopped


async def until_reached(work: Callable[[], Awaitable[None]], server: str) -> None:
    """Do `work`, again where the API server fails; raises `SourceUnreachable` where it
    stays silent.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + PATIENCE
    while True:
        try:
            return await work()
        except ApiError as error:
            if loop.time() > until:
                raise SourceUnreachable(f"Kubernetes at {server}: {error}") from None
            await asyncio.sleep(1.0)
