"""Whose turn it is among things that wait: lanes by urgency, and in each of them namespaces take turns.

So a burst of one namespace, however long, makes another one wait for one thing at most.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

ROUTINE_TURN: Final = 8
"""Every how many turns the routine gets one while people's changes wait. [1]"""

_T = TypeVar("_T", bound=Hashable)


class Turns(Generic[_T]):
    """Lanes in the order of their urgency: what people wait for, the routine, and what comes behind everything else."""

    def __init__(self, lanes: int) -> None:
        """Nothing waits yet."""
        self.lanes = tuple(_Lane[_T]() for _ in range(lanes))
        """The first one is the most urgent."""
        self._turn = 0

    def take(self, is_full: Callable[[str], bool] = lambda _: False) -> tuple[_T, int] | None:
        """What comes next, and its lane; None where nothing waits but of namespaces that have enough."""
        order = [*range(len(self.lanes))]
        if (self._turn + 1) % ROUTINE_TURN == 0:
            order[:2] = reversed(order[:2])
        for number in order:
            found = self.lanes[number].pop(is_full)
            if found is not None:
                self._turn += 1
                return found, number
        return None

    def __len__(self) -> int:
        return sum(map(len, self.lanes))


class _Lane(Generic[_T]):
    """Things in the order in which they came, by namespaces that take turns."""

    def __init__(self) -> None:
        """Nothing waits yet."""
        self._places: OrderedDict[str, OrderedDict[_T, float]] = OrderedDict()
        self._served: str | None = None
        self._length = 0

    def push(self, place: str, thing: _T, since: float) -> None:
        """It goes to the end of its namespace's row."""
        if place not in self._places:
            self._places[place] = OrderedDict()
            if (
                self._served is not None and self._served in self._places
            ):  # it had its turn, so whoever comes now is before it
                self._places.move_to_end(self._served)
        self._places[place][thing] = since
        self._length += 1

    def pop(self, is_full: Callable[[str], bool]) -> _T | None:
        """The oldest thing of the first namespace in turn that has not enough already."""
        place = next((one for one in self._places if not is_full(one)), None)
        if place is None:
            return None
        thing, _ = self._places[place].popitem(last=False)
        self._places.move_to_end(place)
        self._served = place
        self._tidy(place)
        return thing

    def remove(self, place: str, thing: _T) -> float:
        """Take it out; the result is since when it waited. [s]"""
        since = self._places[place].pop(thing)
        self._tidy(place)
        return since

    def _tidy(self, place: str) -> None:
        self._length -= 1
        if not self._places[place]:
            del self._places[place]

    def has(self, place: str, thing: _T) -> bool:
        """Whether it waits here."""
        return thing in self._places.get(place, ())

    def __len__(self) -> int:
        return self._length

    @property
    def oldest(self) -> float:
        """Since when the oldest thing waits. [s]"""
        return min(next(iter(row.values())) for row in self._places.values())
