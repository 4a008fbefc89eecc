"""SIGTERM and SIGINT: the process ends in order, and by force where something in it hangs.

A thread that waits for a name server cannot be cancelled, and neither can a library that swallows cancellations; a kubelet
would wait half a minute for either, with the Lease held and nobody at work.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
import threading
from typing import Any, Final, NoReturn

LIMIT: Final = 4.5
"""Longest time from a signal to the end. [s]"""
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

_log = logging.getLogger(__name__)


class Stop:
    """The wish to stop."""

    def __init__(self) -> None:
        """Heed signals from now on: until the loop runs, there is nothing to put in order."""
        self.wish = asyncio.Event()
        for number in _SIGNALS:
            signal.signal(number, _at_once)

    def heed(self) -> None:
        """Let the running loop take the signals; again after each start of kopf, which takes them for itself."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._came)

    def _came(self) -> None:
        if not self.wish.is_set():
            self.wish.set()
            timer = threading.Timer(LIMIT, _by_force, [asyncio.get_running_loop()])
            timer.daemon = True
            timer.start()


def _at_once(*_: Any) -> NoReturn:
    raise SystemExit(0)


def _by_force(loop: asyncio.AbstractEventLoop) -> NoReturn:
    tasks = [] if loop.is_closed() else [task.get_name() for task in asyncio.all_tasks(loop)]
    threads = [one.name for one in threading.enumerate() if not one.daemon]
    left = ", ".join(sorted({*tasks, *threads}))
    _log.error("not stopped within %g s, so it ends by force; what was left: %s", LIMIT, left)
    for child in multiprocessing.active_children():
        child.kill()
    logging.shutdown()
    os._exit(0)
