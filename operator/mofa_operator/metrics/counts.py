"""Figures that only grow while the operator runs: histograms, and the counters of a job."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from typing import Final, TypeVar

from mofa_model.spec.recovery_classes import RecoveryClass
from mofa_operator.snapshot import Running

Name = TypeVar("Name")
FAILURE: Final = "failure"
"""The cause that every job has a counter of from the start."""
RECOVERY_BUCKETS: Final = (15.0, 30.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 3840.0, 7680.0)


class Distribution:
    """A histogram that only grows."""

    __slots__ = ("count", "edges", "held", "total")

    def __init__(self, edges: tuple[float, ...]) -> None:
        self.edges = edges
        """Upper edges of the buckets, the infinite one left out."""
        self.held = [0] * (len(edges) + 1)
        """Values by bucket, not cumulated."""
        self.total = 0.0
        """Sum of the values."""
        self.count = 0
        """Number of the values."""

    def add(self, value: float) -> None:
        """Count one value, a finite number."""
        self.held[bisect_left(self.edges, value)] += 1
        self.total += value
        self.count += 1


class Counted:
    """Counters of a job: a source that forgets must not make them fall."""

    __slots__ = ("interruptions", "last_step", "lost", "moved", "recent", "recoveries")

    def __init__(self) -> None:
        self.interruptions: dict[tuple[RecoveryClass, str], float] = {}
        """By class and cause."""
        self.lost: dict[str, float] = {}
        """Seconds by cause."""
        self.recoveries: dict[RecoveryClass, Distribution] = {}
        """By class."""
        self.recent: dict[RecoveryClass, tuple[float, ...]] = {}
        """The last recovery times that were seen, by class."""
        self.last_step: int | None = None
        """Last finished step that was seen."""
        self.moved: float | None = None
        """When it was first seen."""

    def take(self, running: Running, now: float) -> None:
        """Count what was seen at `now`; counters start at zero, so that the first failure shows."""
        for one in RecoveryClass:
            self.interruptions.setdefault((one, FAILURE), 0.0)
            self.recoveries.setdefault(one, Distribution(RECOVERY_BUCKETS))
        self.lost.setdefault(FAILURE, 0.0)
        _raise_to(self.interruptions, running.interruptions)
        _raise_to(self.lost, running.lost)
        for name, times in running.recoveries.items():
            seen = tuple(time for time in times if math.isfinite(time))
            known = self.recoveries.setdefault(name, Distribution(RECOVERY_BUCKETS))
            if new := appended(self.recent.get(name, ()), seen):
                self.recent[name] = seen
                for time in new:
                    known.add(time)
        if running.step is not None and running.step != self.last_step:
            self.last_step, self.moved = running.step, now


def appended(before: tuple[float, ...], after: tuple[float, ...]) -> tuple[float, ...]:
    """What was appended to a list that keeps only its last items; nothing where it was cut.

    >>> appended((60.0, 90.0, 60.0), (90.0, 60.0, 60.0, 30.0))
    (60.0, 30.0)
    """
    size = len(after)
    if any(before[at : at + size] == after for at in range(len(before) - size + 1)):
        return ()
    shared = range(min(len(before), size), 0, -1)
    return after[next((count for count in shared if before[-count:] == after[:count]), 0) :]


def _raise_to(held: dict[Name, float], seen: Mapping[Name, float]) -> None:
    """Let every count grow to what was seen."""
    for key, value in seen.items():
        if math.isfinite(value):
            held[key] = max(held.get(key, 0.0), value)
