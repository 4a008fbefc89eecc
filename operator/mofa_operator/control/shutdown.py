"""The end of the process: SIGTERM and SIGINT end it in order, and by force where something hangs.

Force is needed where a thread waits for a name server, or a library swallows cancellations: the
kubelet would wait half a minute for either, while the Lease is held and nobody works.
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
        """Exit at once on a signal: until the loop runs, there is nothing to put in order."""
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
    running = ", ".join(sorted({*tasks, *threads}))
    _log.error(
        "the operator did not stop within %g s, so it is ended by force; still running: %s",
        LIMIT,
        running,
    )
    for child in multiprocessing.active_children():
        child.kill()
    logging.shutdown()
    os._exit(0)


async def end(tasks: Iterable[Task], within: float) -> None:
    """Cancel tasks again and again, `within` [s] at most: kopf swallows cancellations."""
    loop, running = asyncio.get_running_loop(), {task for task in tasks if not task.done()}
    deadline = loop.time() + within
    while running and loop.time() < deadline:
        for task in running:
            task.cancel()
        _, running = await asyncio.wait(running, timeout=within / 4)


async def race(stopped: Task, work: Coroutine[Any, Any, None]) -> Task:
    """The task that ended first: `work` or `stopped`; raises the error of `work`, or cancels it."""
    task = asyncio.create_task(work)
    await asyncio.wait({stopped, task}, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
        return task
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return stopped


async def until_reached(work: Callable[[], Awaitable[None]], server: str) -> None:
    """Do `work`, again while the API server fails; raises `SourceUnreachable` after a while."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + PATIENCE
    while True:
        try:
            return await work()
        except ApiError as error:
            if loop.time() > deadline:
                raise SourceUnreachable(f"Kubernetes at {server}: {error}") from None
            await asyncio.sleep(1.0)
