"""Figures that only grow while the operator runs: histograms, and the counters of a job."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from typing import Final, TypeVar

from mofa_model.spec.recovery_classes import RecoveryClass
from mofa_operator.snapshot import Running

_Key = TypeVar("_Key")
FAILURE: Final = "failure"
"""The cause for which every job has a counter from the start."""
RECOVERY_BUCKETS: Final = (15.0, 30.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 3840.0, 7680.0)


class Distribution:
    """A histogram that only grows."""

    __slots__ = ("count", "counts", "edges", "total")

    def __init__(self, edges: tuple[float, ...]) -> None:
        self.edges = edges
        """Upper edges of the buckets, the infinite one left out."""
        self.counts = [0] * (len(edges) + 1)
        """Values by bucket, not cumulated."""
        self.total = 0.0
        """Sum of the values."""
        self.count = 0
        """Number of the values."""

    def add(self, value: float) -> None:
        """Count one value, a finite number."""
        self.counts[bisect_left(self.edges, value)] += 1
        self.total += value
        self.count += 1


class JobCounters:
    """Counters of a job, which never fall, also where their source forgets."""

    __slots__ = ("interruptions", "last_step", "lost", "recent", "recoveries", "stepped_at")

    def __init__(self) -> None:
        self.interruptions: dict[tuple[RecoveryClass, str], float] = {}
        """By class and cause."""
        self.lost: dict[str, float] = {}
        """Time by cause. [s]"""
        self.recoveries: dict[RecoveryClass, Distribution] = {}
        """By class."""
        self.recent: dict[RecoveryClass, tuple[float, ...]] = {}
        """The list of recovery times that was seen last, by class. [s]"""
        self.last_step: int | None = None
        """Last finished step that was seen. [1]"""
        self.stepped_at: float | None = None
        """When that step was first seen. [s]"""

    def add(self, running: Running, now: float) -> None:
        """Count what was seen at `now`; counters start at zero, so that the first failure shows."""
        for level in RecoveryClass:
            self.interruptions.setdefault((level, FAILURE), 0.0)
            self.recoveries.setdefault(level, Distribution(RECOVERY_BUCKETS))
        self.lost.setdefault(FAILURE, 0.0)
        _raise_to(self.interruptions, running.interruptions)
        _raise_to(self.lost, running.lost)
        for level, listed in running.recoveries.items():
            times = tuple(time for time in listed if math.isfinite(time))
            distribution = self.recoveries.setdefault(level, Distribution(RECOVERY_BUCKETS))
            if new := appended(self.recent.get(level, ()), times):
                self.recent[level] = times
                for time in new:
                    distribution.add(time)
        if running.step is not None and running.step != self.last_step:
            self.last_step, self.stepped_at = running.step, now


def appended(before: tuple[float, ...], after: tuple[float, ...]) -> tuple[float, ...]:
    """What was appended to a list that keeps only its last items; nothing where it was cut.

    >>> appended((60.0, 90.0, 60.0), (90.0, 60.0, 60.0, 30.0))
    (60.0, 30.0)
    """
    size = len(after)
    if any(before[start : start + size] == after for start in range(len(before) - size + 1)):
        return ()
    shared = range(min(len(before), size), 0, -1)
    return after[next((count for count in shared if before[-count:] == after[:count]), 0) :]


def _raise_to(totals: dict[_Key, float], observed: Mapping[_Key, float]) -> None:
    """Let every total grow to what was observed."""
    for key, value in observed.items():
        if math.isfinite(value):
            totals[key] = max(totals.get(key, 0.0), value)
