"""Nodes of a pool that came or went only lately: when each did, and whether it belonged to the pool before.

A node belongs to its pool once it was there for the whole patience. It belongs no longer once it was away for the whole patience.
Between the two it keeps what it was. Of a node in the first list nobody knows what it was; its condition says since when it is so.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Turn:
    """The last turn of a node."""

    there: bool
    """Whether it came or went."""
    since: float
    """When, in seconds of the epoch. [s]"""
    belonged: bool | None
    """Whether it belonged to the pool before; None = nobody knows."""


class Attendance:
    """Turns of the nodes of one pool that are not older than the patience; of all others what is seen is what holds."""

    def __init__(self, patience: float, clock: Callable[[], float] = time.time) -> None:
        """`patience` is how long a node must be as it is. [s]"""
        self._patience = patience
        self._clock = clock
        self._turns: dict[str, Turn] = {}

    def listed(self, node: str, *, there: bool, since: float) -> None:
        """A node is seen for the first time, with others that were there before us; `since` is how long it says to be so. [s]"""
        now = self._clock()
        if now - since < self._patience:
            self._turns[node] = Turn(there=there, since=min(since, now), belonged=None)

    def turned(self, node: str, *, there: bool, known: float) -> None:
        """A node came, or went; `known` is since when none can have done so unseen. [s]

        What comes soon after that may have gone before it.
        """
        now = self._clock()
        self._turns = {
            name: one
            for name, one in self._turns.items()
            if name == node or self._is_open(one, now)
        }
        last = self._turns.get(node)
        if last is None or not self._is_open(last, now):
            belonged = None if there and now - known < self._patience else not there
            self._turns[node] = Turn(there=there, since=now, belonged=belonged)
        elif last.there == there:
            return
        elif last.belonged is there:
            del self._turns[node]  # it is again as it was
        else:
            self._turns[node] = Turn(there=there, since=now, belonged=last.belonged)

    def times(self) -> dict[str, Any]:
        """Since when nodes are as they are, as `NodeCount` has it. [s]"""
        found: dict[tuple[bool, bool | None], list[float]] = {}
        for one in self._turns.values():
            found.setdefault((one.there, one.belonged), []).append(one.since)

        def of(there: bool, belonged: bool | None) -> tuple[float, ...]:
            return tuple(sorted(found.get((there, belonged), ())))

        return {
            "away": of(False, True),
            "joined": of(True, False),
            "unsure_there": of(True, None),
            "unsure_away": of(False, None),
        }

    def _is_open(self, one: Turn, now: float) -> bool:
        """Whether it did not last yet."""
        return now - one.since < self._patience
