"""A long window as stretches of time that are short enough for one query, on a grid that stands still.

Seams fall on midnights in UTC, so that a stretch that is over is the same stretch in an hour's time and what was seen in it can
be kept. The start of the window moves in steps of a hundredth of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from mofa_model.units import DAY, HOUR
from mofa_operator.observe.queries import GRID

SETTLED: Final = HOUR
"""Age from which on a stretch does not change any more: late samples have come. [s]"""


@dataclass(frozen=True, slots=True, order=True)
class Stretch:
    """A piece of the past: after `start`, up to and including `end`."""

    start: float
    """In seconds of the epoch. [s]"""
    end: float
    """In seconds of the epoch. [s]"""

    @property
    def span(self) -> float:
        """Its length. [s]"""
        return self.end - self.start


def stretches(now: float, window: float) -> list[Stretch]:
    """The window up to now, in order: a stretch for each day in UTC.

    >>> [round(one.span / 86400, 2) for one in stretches(1_700_000_100, 3 * 86400)]
    [0.08, 1.0, 1.0, 0.92]
    """
    step = max(GRID, math.floor(min(window / 100, DAY) / GRID) * GRID)
    end = math.floor(now / GRID) * GRID
    start = math.floor((now - window) / step) * step
    return days(Stretch(start, end))


def days(stretch: Stretch) -> list[Stretch]:
    """A stretch, day by day in UTC.

    >>> [one.span for one in days(Stretch(86000.0, 173000.0))]
    [400.0, 86400.0, 200.0]
    """
    midnights = range(math.floor(stretch.start / DAY) + 1, math.ceil(stretch.end / DAY))
    seams = [stretch.start, *(float(at * DAY) for at in midnights), stretch.end]
    return [Stretch(a, b) for a, b in pairwise(seams)]
