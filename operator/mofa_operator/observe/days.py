"""A history day by day: what the stretches and counts of a window say of each day in UTC. Pure.

Exposure of a stretch is spread over its days as they were covered. A failure goes to the day of its moment; one without a
moment goes to the last day, so that the days always add up to the whole.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from mofa_model.spec.evidence import FailureEvidence
from mofa_model.units import DAY
from mofa_operator.evidence import PROMETHEUS, Day, date_of
from mofa_operator.observe.facts import StretchFacts
from mofa_operator.observe.stretches import days as days_of

Timed: TypeAlias = Mapping[str, Sequence[tuple[float, float]]]
"""When recoveries began and how long they took, by class. [s, s]"""


def days(
    found: Sequence[StretchFacts],
    exposures: Sequence[float],
    failed: Mapping[str, Sequence[float | None]],
    recovered: Timed,
) -> tuple[Day, ...]:
    """The days of some stretches; `exposures` is the node-time of each [node s], `failed` the moments of failures by class. [s]"""
    covered: defaultdict[str, float] = defaultdict(float)
    exposed: defaultdict[str, float] = defaultdict(float)
    for one, exposure in zip(found, exposures, strict=True):
        for date, share in shares(one).items():
            covered[date] += share * one.covered
            exposed[date] += share * exposure
    if not covered:
        return ()
    last = max(covered)

    def on(at: float) -> str:
        date = date_of(at)
        return date if date in covered else last

    made = {
        date: dict.fromkeys(failed, FailureEvidence(node_days=exposed[date] / DAY))
        for date in sorted(covered)
    }
    for name, moments in failed.items():
        for at in moments:
            made[last if at is None else on(at)][name] += FailureEvidence(failures=1)
        for at, took in recovered.get(name, ()):
            made[on(at)][name] += FailureEvidence(recoveries=1, recovery_seconds=took)
    return tuple(
        Day(date=date, witness=PROMETHEUS, covered=covered[date], classes=classes)
        for date, classes in made.items()
    )


def shares(one: StretchFacts) -> dict[str, float]:
    """The share that each day has in the covered time of a stretch; none where nothing was covered. [1]"""
    known = one.covered_on or {date_of(part.start): part.span for part in days_of(one.stretch)}
    whole = sum(known.values())
    if not one.covered or not whole:
        return {}
    return {date: seconds / whole for date, seconds in known.items() if seconds}


def node_failures(found: Sequence[StretchFacts]) -> list[float]:
    """A moment, to the day, of each failure of a node. [s]"""
    moments: list[float] = []
    for one in found:
        left = sum(one.failures.values())
        for part in days_of(one.stretch):
            some = min(left, one.failures_on.get(date_of(part.start), 0))
            moments += [part.start] * some
            left -= some
        moments += [max(one.stretch.start, one.stretch.end - 1.0)] * left
    return moments
