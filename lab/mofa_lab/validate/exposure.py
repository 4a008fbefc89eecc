"""Exposure and failures from scraped samples: what was really watched.

A sample says at a time whether a node was up and when it booted. Between two samples of a node:

    both up, same boot time                              survived: count the time, whatever the gap
    both up, new boot time, gap within staleness         a failure at the boot: count the time to
                                                         the boot
    both up, new boot time, longer gap                   one failure somewhere in the gap:
                                                         interval-censored
    up, then down                                        a failure: count at most one scrape
    up, then drained                                     planned: no failure, count at most one
                                                         scrape
    down, drained, in repair, not yet joined             not exposure

Dropping long gaps would drop the failures that killed the exporter; counting nodes x days would
count time when nothing could fail (immortal time). Name a node by its serial number, not by a name
that moves with replacement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np

from mofa_model.checks import positive
from mofa_model.errors import BadValue
from mofa_model.units import Seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class ScrapeSample:
    """One scrape of one node."""

    time: Seconds
    """When. [s]"""
    up: bool
    """Whether the node was healthy and in service."""
    boot: Seconds
    """When it booted, or its process started. [s]"""
    serving: bool = True
    """Whether it could fail a job: not drained, not in repair."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Exposure:
    """What samples amount to."""

    seconds: Seconds = 0.0
    """Time watched while a failure would have been seen. [s]"""
    failures: int = 0
    """Failures whose time is known to a scrape. [1]"""
    gaps: tuple[Seconds, ...] = ()
    """Lengths of gaps in which a failure lies at an unknown time. [s]"""
    window: Seconds = 0.0
    """Time from the first to the last sample. [s]"""

    @property
    def coverage(self) -> float:
        """Exposure over the window. [1]"""
        return float(self.seconds / self.window) if self.window > 0 else 0.0

    def __add__(self, other: Exposure) -> Exposure:
        return Exposure(
            seconds=self.seconds + other.seconds,
            failures=self.failures + other.failures,
            gaps=self.gaps + other.gaps,
            window=self.window + other.window,
        )


_TOLERANCE: Final = 2.0
"""Boot times are computed from uptimes and jitter by a second or so. [s]"""


def exposure_of(
    samples: Sequence[ScrapeSample],
    *,
    scrape: Seconds,
    stale: Seconds,
    jitter: Seconds = _TOLERANCE,
) -> Exposure:
    """Exposure, failures and censored gaps of one node's samples in order of time. Ours. [s]

    `scrape` is the interval of samples [s], `stale` the longest gap that still tells when a failure
    was [s], `jitter` by how much a boot time may differ and still be the same [s].

    >>> up = [ScrapeSample(time=60.0 * i, up=True, boot=-1000.0) for i in range(3)]
    >>> exposure_of(up, scrape=60.0, stale=300.0).seconds
    120.0
    """
    positive(scrape=scrape, stale=stale)
    total = Exposure()
    for before, after in pairwise(samples):
        gap = float(after.time - before.time)
        if gap < 0:
            raise BadValue("samples", after.time, "samples of a node must be in order of time")
        total += _between(before, after, gap, scrape, stale, jitter)
    return total


def _between(
    before: ScrapeSample, after: ScrapeSample, gap: float, scrape: Any, stale: Any, jitter: Any
) -> Exposure:
    if not (before.up and before.serving):
        return Exposure(window=gap)
    if not after.serving:
        return Exposure(seconds=min(gap, float(scrape)) / 2, window=gap)
    rebooted = after.boot > before.boot + jitter
    if not rebooted and after.up:
        return Exposure(seconds=gap, window=gap)
    if gap > stale:
        return Exposure(gaps=(gap,), window=gap)
    if after.up:
        lived = float(np.clip(after.boot - before.time, 0.0, gap))
        return Exposure(seconds=lived, failures=1, window=gap)
    return Exposure(seconds=min(gap, float(scrape)) / 2, failures=1, window=gap)
