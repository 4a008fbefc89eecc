"""Which objects wait to be looked at: each once, never by two at a time, later again after a failure.

A key says that an object should be looked at, not why: whoever takes it looks at everything (level-triggered), so that
a thousand events of one object cost as much as one. A change of a person's goes before the routine; the routine still
gets every eighth turn; and namespaces take turns, so that one with thousands of jobs does not make another wait.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from random import Random
from typing import Final

from mofa_operator.keys import Key

ROUTINE_TURN: Final = 8
"""Every how many turns the routine gets one while people's changes wait. [1]"""
_DOUBLINGS: Final = 40
"""More doublings of a wait than any ceiling needs. [1]"""


class WorkQueue:
    """Keys in two lanes, with delays and backoff; all in one event loop, without threads."""

    def __init__(self, *, backoff: float, longest: float, random: Random | None = None) -> None:
        """First and longest wait after a failure. [s]"""
        self._backoff = backoff
        self._longest = longest
        self._random = random or Random()  # noqa: S311 - spreads retries, guards nothing
        self._lanes = (_Lane(), _Lane())  # people's changes, the routine
        self._ready = asyncio.Semaphore(0)  # one permit for each waiting key
        self._later: dict[Key, asyncio.TimerHandle] = {}
        self._since: dict[Key, float] = {}  # in work
        self._urgent: set[Key] = set()  # in work, and somebody waits for it
        self._again: dict[Key, bool] = {}  # added while in work: urgent or not
        self._failures: dict[Key, int] = {}
        self._turn = 0
        self._closed = False
        self._finished_at = -math.inf

    def add(self, key: Key, *, urgent: bool = True) -> None:
        """Look at the object soon; one that is being looked at is looked at once more afterwards."""
        if key in self._since:
            self._again[key] = urgent or self._again.get(key, False)
        elif key in self._lanes[0]:
            pass
        elif key in self._lanes[1]:
            if urgent:
                self._lanes[0].push(key, self._lanes[1].remove(key))
        else:
            self._lanes[0 if urgent else 1].push(key, _now())
            self._ready.release()

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
        await self._ready.acquire()
        if self._closed:
            self._ready.release()  # wakes the next one who waits
            return None
        key, urgent = self._next()
        if urgent:
            self._urgent.add(key)
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
        self._ready.release()

    def __len__(self) -> int:
        """Keys that wait and are due. [1]"""
        return sum(map(len, self._lanes))

    @property
    def delayed(self) -> int:
        """Keys that wait for their time. [1]"""
        return len(self._later)

    @property
    def oldest_age(self) -> float:
        """How long the oldest due key has waited; 0 when none does. [s]"""
        return max((_now() - lane.oldest for lane in self._lanes if len(lane)), default=0.0)

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

    def _next(self) -> tuple[Key, bool]:
        """The next key, and whether it is urgent."""
        people, routine = self._lanes
        self._turn += 1
        if len(routine) and (not len(people) or self._turn % ROUTINE_TURN == 0):
            return routine.pop(), False
        return people.pop(), True

    def _end(self, key: Key) -> None:
        self._finished_at = _now()
        del self._since[key]
        self._urgent.discard(key)
        again = self._again.pop(key, None)
        if again is not None:
            self.add(key, urgent=again)


class _Lane:
    """Keys in the order in which they came, by namespaces that take turns."""

    def __init__(self) -> None:
        self._places: OrderedDict[str, OrderedDict[Key, float]] = OrderedDict()
        self._length = 0

    def push(self, key: Key, since: float) -> None:
        """The key goes to the end of its namespace's row."""
        self._places.setdefault(key.namespace, OrderedDict())[key] = since
        self._length += 1

    def pop(self) -> Key:
        """The oldest key of the namespace whose turn it is."""
        place, row = next(iter(self._places.items()))
        key, _ = row.popitem(last=False)
        self._places.move_to_end(place)
        self._tidy(place)
        return key

    def remove(self, key: Key) -> float:
        """Take a key out; the result is since when it waited. [s]"""
        since = self._places[key.namespace].pop(key)
        self._tidy(key.namespace)
        return since

    def _tidy(self, place: str) -> None:
        self._length -= 1
        if not self._places[place]:
            del self._places[place]

    def __len__(self) -> int:
        return self._length

    def __contains__(self, key: Key) -> bool:
        return key in self._places.get(key.namespace, ())

    @property
    def oldest(self) -> float:
        """Since when the oldest key waits. [s]"""
        return min(next(iter(row.values())) for row in self._places.values())


def _now() -> float:
    return asyncio.get_running_loop().time()
