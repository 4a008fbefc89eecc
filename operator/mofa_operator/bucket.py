"""A token bucket without tokens: the moment at which the next turn is due, and how far ahead of it one may be."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic


class Bucket:
    """Turns at a rate, some of them at once; those who wait are served in the order in which they came."""

    __slots__ = ("_ahead", "_clock", "_due", "_gap", "_shut")

    def __init__(self, rate: float, burst: int, clock: Callable[[], float] = monotonic) -> None:
        """`rate` in the long run [1/s], `burst` turns at once [1]."""
        self._gap = 1.0 / rate
        self._ahead = (burst - 1) * self._gap
        self._clock = clock
        self._due = float("-inf")
        self._shut = float("-inf")

    def reserve(self) -> float:
        """Take the next turn; the answer is how long to wait for it. [s]

        >>> bucket = Bucket(2.0, 1, clock=lambda: 0.0)
        >>> [bucket.reserve() for _ in range(3)]
        [0.0, 0.5, 1.0]
        """
        now = self._clock()
        due = max(self._due, now)
        self._due = due + self._gap
        return max(0.0, due - self._ahead - now, self._shut - now)

    async def take(self) -> None:
        """Wait for the next turn."""
        wait = self.reserve()
        if wait > 0:
            await asyncio.sleep(wait)

    def hold(self, seconds: float) -> None:
        """Nobody's turn for so long: the other side asked for a rest. [s]"""
        self._shut = max(self._shut, self._clock() + seconds)
