"""Rounds: something that is looked at again every so often for every object, a few at a time, evenly spread.

History is asked for every ClusterProfile. A round never waits for another: one profile whose queries are slow delays
itself alone, until as many are slow as there are hands.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from random import Random
from typing import Final

from mofa_operator.control.queue import WorkQueue
from mofa_operator.keys import Key

HANDS: Final = 4
"""Objects that are looked at at the same time. [1]"""
_SPREAD: Final = 0.1
"""By how much the time between two looks varies, so that they do not bunch. [1]"""

_log = logging.getLogger(__name__)


class Rounds:
    """Looks at every key that was named, again and again, until `look` says that it is no more."""

    def __init__(self, look: Callable[[Key], Awaitable[bool]], interval: float) -> None:
        """`look` says whether the object is still there; `interval` is the time between two looks. [s]"""
        self._look = look
        self._interval = interval
        self._known: set[Key] = set()
        self._queue = WorkQueue(backoff=interval, longest=interval)
        self._random = Random()  # noqa: S311 - spreads looks, guards nothing

    def include(self, key: Key) -> None:
        """Look at this object too, from now on; the first time at once."""
        if key not in self._known:
            self._known.add(key)
            self._queue.add(key)

    async def run(self) -> None:
        """Look, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(HANDS):
                group.create_task(self._hand())

    @property
    def behind(self) -> float:
        """How long the slowest look has taken or waited so far. [s]"""
        return max(self._queue.longest_in_work[1], self._queue.oldest_age)

    async def _hand(self) -> None:
        while (key := await self._queue.take()) is not None:
            there = True
            try:
                there = await self._look(key)
            except Exception:  # noqa: BLE001 - one look that fails must not end the others
                _log.exception("%s: the look at it failed", key)
            finally:
                self._queue.done(key)
            if there:
                self._queue.add_after(
                    key, self._interval * self._random.uniform(1 - _SPREAD, 1 + _SPREAD)
                )
            else:
                self._known.discard(key)
