"""Samples as runs of one value: what a series says between its first and its last sample with that value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, TypeAlias

_MANY: Final = 4
"""Times between samples from which on a quarter of them is no accident. [1]"""
APART: Final = 2.6
"""Times the usual spacing of samples from which on a series was silent between two. [1]"""
Point: TypeAlias = tuple[float, float]
"""A moment and a value. [s, …]"""
Span: TypeAlias = tuple[float, float]
"""From, to. [s]"""


@dataclass(frozen=True, slots=True)
class ValueRun:
    """Samples of one value that follow one another."""

    start: float
    """First of them. [s]"""
    end: float
    """Last of them. [s]"""
    value: float
    """What they say."""


def spacing_of(points: Sequence[Point], least: float = 1.0) -> float:
    """Usual time between two samples; 0 where nobody can say. [s]

    Two servers take turns: of the two times between their samples it is the longer one.

    >>> spacing_of([(0, 1), (20, 1), (120, 1), (140, 1), (240, 1)])
    100
    """
    steps = sorted(b - a for (a, _), (b, _) in pairwise(points) if b - a >= least)
    return steps[len(steps) // 2 if len(steps) < _MANY else 3 * len(steps) // 4] if steps else 0.0


def runs(points: Iterable[Point], spacing: float, apart: float = APART) -> tuple[ValueRun, ...]:
    """Runs in order; a silence of `apart` times the spacing ends one.

    >>> runs([(0, 1), (60, 1), (120, 0), (600, 0)], 60.0)
    (ValueRun(start=0, end=60, value=1), ValueRun(start=120, end=120, value=0), ValueRun(start=600, end=600, value=0))
    """
    found: list[ValueRun] = []
    longest, start, end, held = apart * spacing, 0.0, 0.0, None
    for at, value in sorted(points):
        if value != held or at - end > longest:
            if held is not None:
                found.append(ValueRun(start, end, held))
            start, held = at, value
        end = at
    if held is not None:
        found.append(ValueRun(start, end, held))
    return tuple(found)


def spans(of: Sequence[ValueRun], value: float, spacing: float) -> list[Span]:
    """When a series had a value: from halfway after the sample before to halfway before the next; silences end it there."""
    found: list[Span] = []
    half = spacing / 2
    for number, run in enumerate(of):
        if run.value != value:
            continue
        before, after = (
            of[number - 1] if number else None,
            of[number + 1] if number + 1 < len(of) else None,
        )
        start = max(run.start - half, (before.end + run.start) / 2) if before else run.start - half
        end = min(run.end + half, (after.start + run.end) / 2) if after else run.end + half
        found.append((start, end))
    return joined(found, APART * spacing)


def joined(spans_: Iterable[Span], apart: float = 0.0) -> list[Span]:
    """Spans in order, those that touch or lie at most `apart` from each other as one. [s]

    >>> joined([(5, 9), (0, 2), (1, 3)])
    [(0, 3), (5, 9)]
    """
    found: list[Span] = []
    for start, end in sorted(spans_):
        if found and start - found[-1][1] <= apart:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def without(whole: Iterable[Span], holes: Iterable[Span]) -> list[Span]:
    """What is left of spans.

    >>> without([(0, 10)], [(2, 3), (8, 12)])
    [(0, 2), (3, 8)]
    """
    cut, found = joined(holes), []
    for start, end in joined(whole):
        at = start
        for a, b in cut:
            if b > at and a < end:
                if a > at:
                    found.append((at, a))
                at = max(at, b)
        if at < end:
            found.append((at, end))
    return found


def length(of: Iterable[Span]) -> float:
    """Their time. [s]"""
    return sum(end - start for start, end in of)


def overlap(some: Iterable[Span], others: Iterable[Span]) -> list[Span]:
    """What two sets of spans have in common.

    >>> overlap([(0, 5), (8, 9)], [(3, 8.5)])
    [(3, 5), (8, 8.5)]
    """
    cut = joined(others)
    return [
        (max(a, x), min(b, y)) for a, b in joined(some) for x, y in cut if max(a, x) < min(b, y)
    ]
