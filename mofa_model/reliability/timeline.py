"""When the saves of nested tiers become durable, from any restart until the next failure: no chance in it.

Positions count intervals of work. Tier j saves at multiples of `every[j]`; each divides the next, so at a multiple of the
last one all tiers save together, all copies start together, and from there the timeline repeats itself.

At a boundary training waits until the last copy of each due tier is done, blocks for the saves, and goes on while the
copies run; steps are slower while any copy is in flight. After a restart no copy is in flight.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mofa_model.checks import not_negative, positive, whole
from mofa_model.errors import BadValue

LONGEST_PERIOD = 1200
"""Intervals between saves of the last tier that are still walked one by one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tiers:
    """Nested checkpoint tiers of one strategy, nearest first; save times are given."""

    work: float
    """Work between the boundaries at which some tier may save. [s]"""
    every: tuple[int, ...]
    """Boundaries between saves of each tier; each divides the next. [1]"""
    blocking: tuple[float, ...]
    """Blocking part of each tier's save. [s]"""
    background: tuple[float, ...]
    """Time until a save is durable, after training went on. [s]"""
    slowdown: float = 0.0
    """Relative slowdown of steps while a copy is in flight (eps). [1]"""

    def __post_init__(self) -> None:
        if not 0 < len(self.every) == len(self.blocking) == len(self.background):
            raise BadValue("tiers", self.every, "give every, blocking and background for each tier")
        positive(work=self.work)
        whole(every=np.array(self.every))
        not_negative(
            blocking=np.array(self.blocking),
            background=np.array(self.background),
            slowdown=self.slowdown,
        )
        for low, high in pairwise(self.every):
            if high % low:
                raise BadValue(
                    "every", self.every, "each tier's number must divide the next tier's"
                )
        if self.every[-1] > LONGEST_PERIOD:
            raise BadValue(
                "every", self.every, f"at most {LONGEST_PERIOD} intervals between saves of a tier"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class Timeline:
    """Times since a restart; one row for each boundary b that a restart can be at, counted in one period."""

    ends: NDArray[Any]
    """[b, p]: end of the saves at boundary p, for p = 0 ... 2 x period; NaN up to b. [s]"""
    period: float
    """Time of one period without failures, copies in flight. [s]"""
    overhead: tuple[float, float, float]
    """Of one period: blocked by saves, waiting for copies, slowed by copies. [s]"""


def walk(tiers: Tiers) -> Timeline:
    """Times at which the saves of each boundary end, from every restart, without a failure. Ours. [s]

    >>> two = Tiers(work=60.0, every=(1, 2), blocking=(1.0, 5.0), background=(0.0, 10.0))
    >>> walk(two).ends[0, 1:3], walk(two).period
    (array([ 61., 127.]), 127.0)
    """
    n, w, eps = tiers.every[-1], tiers.work, tiers.slowdown
    starts = np.append(np.arange(n), 0)
    now = np.zeros(n + 1)
    copied = np.full((len(tiers.every), n + 1), -np.inf)
    copied[:, n] = tiers.background
    ends = np.full((n + 1, n + 1), np.nan)
    spent = np.zeros(3)
    for p in range(1, n + 1):
        busy = np.maximum(np.max(copied, axis=0) - now, 0.0)
        slow = np.minimum(busy * (eps / (1 + eps)), eps * w)
        worked = now + w + slow
        due = [j for j, every in enumerate(tiers.every) if p % every == 0]
        ready = np.maximum(worked, np.max(copied[due], axis=0)) if due else worked
        block = sum(tiers.blocking[j] for j in due)
        now = np.where(starts < p, ready + block, now)
        ends[:, p] = np.where(starts < p, now, np.nan)
        for j in due:
            copied[j] = np.where(starts < p, now + tiers.background[j], copied[j])
        spent += (block, ready[n] - worked[n], slow[n])
    first, steady = ends[:n], ends[n]
    again = first[:, n:] + steady[1:]
    return Timeline(
        ends=np.concatenate([first, again], axis=1),
        period=float(steady[n]),
        overhead=(float(spent[0]), float(spent[1]), float(spent[2])),
    )


def failure_free(tiers: Tiers) -> float:
    """ETTR when nothing fails: work over time of one period. Ours. [1]

    >>> round(failure_free(Tiers(work=60.0, every=(1, 2), blocking=(1.0, 5.0), background=(0.0, 10.0))), 4)
    0.9449
    """
    return tiers.work * tiers.every[-1] / walk(tiers).period


def lag(tiers: Tiers, tier: int, boundary: int) -> float:
    """Time from the end of the saves at a boundary until one that serves `tier` is durable. Ours. [s]

    A copy on a farther tier serves as well, when it is due there and sooner done.
    """
    due = (
        tiers.background[j] for j in range(tier, len(tiers.every)) if boundary % tiers.every[j] == 0
    )
    return min(due)
