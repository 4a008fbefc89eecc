"""Which objects wait to be looked at: each once, never by two at a time, later again after a failure.

A key says that an object should be looked at, not why: whoever takes it looks at everything (level-triggered), so that
a thousand events of one object cost as much as one. A change of a person's goes before the routine; the routine still
gets every eighth turn; namespaces take turns, and none has more than its share in work, so that one with thousands of jobs
does not make another wait.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Final

from mofa_operator.control.turns import Turns
from mofa_operator.keys import Key

_DOUBLINGS: Final = 40
"""More doublings of a wait than any ceiling needs. [1]"""


class WorkQueue:
    """Keys in two lanes, with delays and backoff; all in one event loop, without threads."""

    def __init__(
        self,
        *,
        backoff: float,
        longest: float,
        random: Random | None = None,
        most: Callable[[str], float] = lambda _: math.inf,
    ) -> None:
        """First and longest wait after a failure [s], and most keys of a namespace that are in work at a time. [1]"""
        self._most = most
        self._backoff = backoff
        self._longest = longest
        self._random = random or Random()  # noqa: S311 - spreads retries, guards nothing
        self._turns: Turns[Key] = Turns(2)  # people's changes, the routine
        self._news = asyncio.Event()  # a key came, or one is done
        self._working: Counter[str] = Counter()  # keys in work, by namespace
        self._later: dict[Key, asyncio.TimerHandle] = {}
        self._since: dict[Key, float] = {}  # in work
        self._urgent: set[Key] = set()  # in work, and somebody waits for it
        self._again: dict[Key, bool] = {}  # added while in work: urgent or not
        self._failures: dict[Key, int] = {}
        self._closed = False
        self._finished_at = -math.inf

    def add(self, key: Key, *, urgent: bool = True) -> None:
        """Look at the object soon; one that is being looked at is looked at once more afterwards."""
        if key in self._since:
            self._again[key] = urgent or self._again.get(key, False)
            return
        people, routine = self._turns.lanes
        if people.has(key.namespace, key):
            return
        if not routine.has(key.namespace, key):
            (people if urgent else routine).push(key.namespace, key, _now())
            self._news.set()
        elif urgent:
            people.push(key.namespace, key, routine.remove(key.namespace, key))

    def add_after(self, key: Key, delay: float, *, urgent: bool = False) -> None:
        """Look at the object after a while; of two delays the earlier counts."""
        due = _now() + delay
        timer = self._later.get(key)
        if timer is not None:
            if timer.when() <= due:
                return
            timer.cancel()
        self._later[key] = asyncio.get_running_loop().call_at(due, self._come, key, urgent)

    async def take(self) -> Key | None:
        """The next key, marked as in work until `done` or `failed`; None once the queue is closed."""
        while self._closed or (found := self._turns.take(self._is_full)) is None:
            if self._closed:
                return None
            self._news.clear()
            await self._news.wait()
        key, lane = found
        if lane == 0:
            self._urgent.add(key)
        self._working[key.namespace] += 1
        timer = self._later.pop(key, None)
        if timer is not None:  # whoever looks now sees all that the timer was set for
            timer.cancel()
        self._since[key] = _now()
        return key

    def done(self, key: Key) -> None:
        """It went well: its failures are forgotten."""
        self._failures.pop(key, None)
        self._end(key)

    def failed(self, key: Key, least: float = 0.0) -> float:
        """It went wrong: it comes again after a wait that doubles, at least `least`. The result is the wait. [s]"""
        count = self._failures.get(key, 0)
        self._failures[key] = count + 1
        wait = min(self._longest, math.ldexp(self._backoff, min(count, _DOUBLINGS)))
        wait = max(least, wait * self._random.uniform(0.75, 1.0))
        urgent = key in self._urgent
        self._end(key)
        self.add_after(key, wait, urgent=urgent)
        return wait

    def close(self) -> None:
        """Hand out nothing more; what is in work may be finished."""
        self._closed = True
        for timer in self._later.values():
            timer.cancel()
        self._later.clear()
        self._news.set()

    def __len__(self) -> int:
        """Keys that wait and are due. [1]"""
        return len(self._turns)

    @property
    def delayed(self) -> int:
        """Keys that wait for their time. [1]"""
        return len(self._later)

    @property
    def oldest_age(self) -> float:
        """How long the oldest due key has waited; 0 when none does. [s]"""
        return max((_now() - lane.oldest for lane in self._turns.lanes if len(lane)), default=0.0)

    @property
    def longest_in_work(self) -> tuple[Key | None, float]:
        """The key that has been in work longest, and for how long; (None, 0) when none is. [s]"""
        key = min(self._since, key=self._since.__getitem__, default=None)
        return (None, 0.0) if key is None else (key, _now() - self._since[key])

    def is_urgent(self, key: Key) -> bool:
        """Whether a key in work came from the lane of people's changes."""
        return key in self._urgent

    @property
    def idle_for(self) -> float:
        """How long ago something was finished; infinite when nothing was. [s]"""
        return _now() - self._finished_at

    def _come(self, key: Key, urgent: bool) -> None:
        self._later.pop(key, None)
        self.add(key, urgent=urgent)

    def _is_full(self, namespace: str) -> bool:
        """Whether enough of a namespace is in work already; what belongs to none is never."""
        return bool(namespace) and self._working[namespace] >= self._most(namespace)

    def _end(self, key: Key) -> None:
        self._finished_at = _now()
        del self._since[key]
        self._working[key.namespace] -= 1
        self._urgent.discard(key)
        self._news.set()
        again = self._again.pop(key, None)
        if again is not None:
            self.add(key, urgent=again)


def _now() -> float:
    return asyncio.get_running_loop().time()
