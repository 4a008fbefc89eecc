"""The work queue: each object waits once, is never handled by two workers at a time, and comes
again after a failure.

A key says that an object is due, not why: its worker reads the whole object (level-triggered), so
that a thousand events of one object cost as much as one. A change that a person made goes before
the routine, which still gets every eighth turn. Namespaces take turns, and none has more than its
share in work, so that one with thousands of jobs does not make another wait.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from random import Random
from typing import Final, Generic, TypeVar

from mofa_operator.keys import Key

ROUTINE_TURN: Final = 8
"""The routine gets every so many-th turn while people's changes wait. [1]"""
_DOUBLINGS: Final = 40
"""More doublings of a wait than any ceiling needs. [1]"""

_T = TypeVar("_T", bound=Hashable)


class Lanes(Generic[_T]):
    """Waiting items in lanes: what people wait for first, then the routine, then all others."""

    def __init__(self, lanes: int) -> None:
        """A row for each lane, all empty."""
        self.lanes = tuple(_Lane[_T]() for _ in range(lanes))
        self._turn = 0

    def take(self, is_full: Callable[[str], bool] = lambda _: False) -> tuple[_T, int] | None:
        """The next item and its lane; None where only full namespaces have any."""
        order = [*range(len(self.lanes))]
        if (self._turn + 1) % ROUTINE_TURN == 0:
            order[:2] = reversed(order[:2])
        for number in order:
            item = self.lanes[number].pop(is_full)
            if item is not None:
                self._turn += 1
                return item, number
        return None

    def __len__(self) -> int:
        return sum(map(len, self.lanes))


class _Lane(Generic[_T]):
    """Items in the order in which they came, by namespaces that take turns."""

    def __init__(self) -> None:
        self._rows: OrderedDict[str, OrderedDict[_T, float]] = OrderedDict()
        self._served: str | None = None
        self._length = 0

    def push(self, namespace: str, item: _T, since: float) -> None:
        """Put an item at the end of its namespace's row; it waits since then. [s]"""
        if namespace not in self._rows:
            self._rows[namespace] = OrderedDict()
            if self._served is not None and self._served in self._rows:
                # The namespace served last goes behind the new one.
                self._rows.move_to_end(self._served)
        self._rows[namespace][item] = since
        self._length += 1

    def pop(self, is_full: Callable[[str], bool]) -> _T | None:
        """The oldest item of the first namespace in turn that is not full."""
        namespace = next((name for name in self._rows if not is_full(name)), None)
        if namespace is None:
            return None
        item, _ = self._rows[namespace].popitem(last=False)
        self._rows.move_to_end(namespace)
        self._served = namespace
        self._tidy(namespace)
        return item

    def remove(self, namespace: str, item: _T) -> float:
        """Take an item out; the result is since when it waited. [s]"""
        since = self._rows[namespace].pop(item)
        self._tidy(namespace)
        return since

    def _tidy(self, namespace: str) -> None:
        self._length -= 1
        if not self._rows[namespace]:
            del self._rows[namespace]

    def has(self, namespace: str, item: _T) -> bool:
        """Whether an item waits in this row."""
        return item in self._rows.get(namespace, ())

    def __len__(self) -> int:
        return self._length

    @property
    def oldest(self) -> float:
        """Since when the oldest item waits. [s]"""
        return min(next(iter(row.values())) for row in self._rows.values())


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
        """First and longest wait after a failure [s]; most keys of a namespace in work. [1]"""
        self._most = most
        self._backoff = backoff
        self._longest = longest
        self._random = random or Random()  # noqa: S311 - spreads retries, guards nothing
        self._waiting: Lanes[Key] = Lanes(2)  # people's changes, the routine
        self._changed = asyncio.Event()  # a key came, or one is done
        self._working: Counter[str] = Counter()  # keys in work, by namespace
        self._delayed: dict[Key, asyncio.TimerHandle] = {}
        self._since: dict[Key, float] = {}  # in work
        self._urgent: set[Key] = set()  # in work, and somebody waits for it
        self._again: dict[Key, bool] = {}  # added while in work: urgent or not
        self._failures: dict[Key, int] = {}
        self._closed = False
        self._finished_at = -math.inf

    def add(self, key: Key, *, urgent: bool = True) -> None:
        """Queue a key, at most once, in the urgent or the routine lane.

        A key that is in work is queued again once it is done; a waiting one can become urgent.
        """
        if key in self._since:
            self._again[key] = urgent or self._again.get(key, False)
            return
        urgent_lane, routine_lane = self._waiting.lanes
        if urgent_lane.has(key.namespace, key):
            return
        if not routine_lane.has(key.namespace, key):
            (urgent_lane if urgent else routine_lane).push(key.namespace, key, _now())
            self._changed.set()
        elif urgent:
            urgent_lane.push(key.namespace, key, routine_lane.remove(key.namespace, key))

    def add_after(self, key: Key, delay: float, *, urgent: bool = False) -> None:
        """Queue an object after a delay; of two delays the earlier counts."""
        due = _now() + delay
        timer = self._delayed.get(key)
        if timer is not None:
            if timer.when() <= due:
                return
            timer.cancel()
        self._delayed[key] = asyncio.get_running_loop().call_at(due, self._is_due, key, urgent)

    async def take(self) -> Key | None:
        """The next key, in work until `done` or `failed`; None once the queue is closed."""
        while self._closed or (taken := self._waiting.take(self._is_full)) is None:
            if self._closed:
                return None
            self._changed.clear()
            await self._changed.wait()
        key, lane = taken
        if lane == 0:
            self._urgent.add(key)
        self._working[key.namespace] += 1
        timer = self._delayed.pop(key, None)
        if timer is not None:  # the worker that takes the key sees what the timer was set for
            timer.cancel()
        self._since[key] = _now()
        return key

    def done(self, key: Key) -> None:
        """Take a key out of work and forget its failures."""
        self._failures.pop(key, None)
        self._end(key)

    def failed(self, key: Key, least: float = 0.0) -> float:
        """Queue a failed key again after a wait, which doubles and is the result. [s]"""
        count = self._failures.get(key, 0)
        self._failures[key] = count + 1
        wait = min(self._longest, math.ldexp(self._backoff, min(count, _DOUBLINGS)))
        # Keys that failed together, as while a server is away, do not come back together.
        wait = max(least, wait * self._random.uniform(0.75, 1.0))
        urgent = key in self._urgent
        self._end(key)
        self.add_after(key, wait, urgent=urgent)
        return wait

    def close(self) -> None:
        """Hand out no more keys; those in work may be finished."""
        self._closed = True
        for timer in self._delayed.values():
            timer.cancel()
        self._delayed.clear()
        self._changed.set()

    def __len__(self) -> int:
        """Keys that wait and are due. [1]"""
        return len(self._waiting)

    @property
    def oldest_age(self) -> float:
        """How long the oldest due key has waited; 0 when none does. [s]"""
        return max((_now() - lane.oldest for lane in self._waiting.lanes if len(lane)), default=0.0)

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

    def _is_due(self, key: Key, urgent: bool) -> None:
        self._delayed.pop(key, None)
        self.add(key, urgent=urgent)

    def _is_full(self, namespace: str) -> bool:
        """Whether enough of a namespace is in work; cluster-scoped objects have no limit."""
        return bool(namespace) and self._working[namespace] >= self._most(namespace)

    def _end(self, key: Key) -> None:
        self._finished_at = _now()
        del self._since[key]
        self._working[key.namespace] -= 1
        self._urgent.discard(key)
        self._changed.set()
        again = self._again.pop(key, None)
        if again is not None:
            self.add(key, urgent=again)


def _now() -> float:
    return asyncio.get_running_loop().time()
