"""What the check of assumptions promises, simulated: false verdicts in a year, and how long a
changed rate takes to be found.

Pools fail by recovery class as the paper assumes, five times in a thousand node-days: each for
itself, in events of several at one instant, or at a rate that moves from week to week around the
assumed one. Somebody looks every hour and sees whole days and the part of today that is over, as
the operator does; every class and the total are judged, in both directions. Beside them stand years
of a real fleet, judged once a day at the mean rate of that year, which is right by its making.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_lab.validate.fleets import daily_counts
from mofa_model.reliability.assumption import (
    ALARM,
    MEMORY,
    YEAR,
    event_dispersion,
    evidence_after_spans,
    evidence_against,
    evidence_gains,
    needed_evidence,
    slow_dispersion,
    verdict_evidence,
)
from mofa_model.spec.recovery_classes import RecoveryClass
from mofa_model.spec.reliability import PAPER_RATE

BEFORE: Final = 60
"""Days as assumed before the rate changes. [d]"""
_AFTER: Final = {0.5: 5.0, 2.0: 4.0}
"""Days after the change for which is waited, over those of a mean delay at the best. [1]"""
_LEAST_AFTER: Final = 300
"""Days after the change for which is waited at least where rates move, and a third of them where
they do not. [d]
"""
_APART: Final = 30
"""Days between the beginnings of a fleet's years. [d]"""
_AT_ONCE: Final = 100
"""Pools that are simulated together. [1]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Promise:
    """What looking every hour at many pools of one size comes to."""

    nodes: int
    """Nodes of each pool. [1]"""
    batch: int
    """Failures of one event. [1]"""
    wander: float
    """Standard deviation of a week's rate over its mean. [1]"""
    false_verdicts: float
    """Share of pools with a verdict in a year that the assumption is wrong. [1]"""
    false_alerts: float
    """Share with one that says the rate is higher, which is an alert. [1]"""
    said_to_drift: float
    """Share with any verdict; where the rate moves, that it drifts is true. [1]"""
    doubled_median: float | None
    """Time until any verdict names a doubled rate, the median. [d]"""
    doubled_p90: float | None
    """What nine of ten pools need for it; None if longer than was waited. [d]"""
    wrong_median: float | None
    """Time until the assumption is called wrong, the median. [d]"""
    wrong_p90: float | None
    """What nine of ten pools need for that. [d]"""
    halved_median: float | None
    """Time until any verdict names a halved rate, the median. [d]"""
    halved_p90: float | None
    """What nine of ten pools need for that. [d]"""


def promise(
    nodes: int,
    batch: int = 1,
    wander: float = 0.0,
    *,
    pools: int = 200,
    looks: int = 24,
    seed: int = 1,
) -> Promise:
    """Simulate pools of one size, `looks` times a day. Ours. []"""
    generator = np.random.default_rng(seed)
    days = int(YEAR)
    moved, wrong = _first(nodes, batch, wander, np.ones(days), pools, looks, generator)
    delays = {}
    for ratio, times in _AFTER.items():
        # A known change is found after log(20 years in days) / information per day, in the mean.
        wait = (
            batch
            * np.log(YEAR / ALARM)
            / (PAPER_RATE * nodes * (ratio * np.log(ratio) - ratio + 1))
        )
        waited = max(int(np.ceil(times * wait)), _LEAST_AFTER if wander else _LEAST_AFTER // 3)
        rate = np.append(np.ones(BEFORE), np.full(waited, ratio))
        way = int(ratio < 1)
        for name, alarms in zip(
            ("any", "wrong"),
            _first(nodes, batch, wander, rate, pools, looks, generator),
            strict=True,
        ):
            after = alarms[:, way][alarms[:, way] >= BEFORE] - BEFORE
            delays[ratio, name] = [_quantile(after, share) for share in (0.5, 0.9)]
    return Promise(
        nodes=nodes,
        batch=batch,
        wander=wander,
        false_verdicts=float(np.mean(np.isfinite(wrong).any(axis=1))),
        false_alerts=float(np.mean(np.isfinite(wrong[:, 0]))),
        said_to_drift=float(np.mean(np.isfinite(moved).any(axis=1))),
        doubled_median=delays[2.0, "any"][0],
        doubled_p90=delays[2.0, "any"][1],
        wrong_median=delays[2.0, "wrong"][0],
        wrong_p90=delays[2.0, "wrong"][1],
        halved_median=delays[0.5, "any"][0],
        halved_p90=delays[0.5, "any"][1],
    )


def _quantile(delays: NDArray[Any], share: float) -> float | None:
    """Days within which a share of all pools has a verdict; None if longer than was
    simulated. [d]
    """
    quantile = float(np.quantile(delays, share, method="higher"))
    return quantile if np.isfinite(quantile) else None


@dataclass(frozen=True, kw_only=True, slots=True)
class FleetYears:
    """Years of a real fleet, each judged at its own mean rate."""

    fleet: str
    """Name of the fleet."""
    years: int
    """Stretches of 365 days of each system, which begin a month apart. [1]"""
    false_verdicts: float
    """Share in which some day says that the assumption is wrong. [1]"""
    said_to_drift: float
    """Share in which some day says that the rate drifts, which it does. [1]"""


def fleet_years(folder: str) -> list[FleetYears]:
    """Verdicts on years of real fleets, looked at once a day. Ours. []"""
    histories = []
    for fleet, systems in daily_counts(folder).items():
        years = [
            counts[start : start + int(YEAR)]
            for counts in systems
            for start in range(0, len(counts) - int(YEAR) + 1, _APART)
        ]
        if years:
            over = np.array([_over(year) for year in years])
            histories.append(
                FleetYears(
                    fleet=fleet,
                    years=len(years),
                    false_verdicts=float(over[:, 1].mean()),
                    said_to_drift=float(over[:, 0].mean()),
                )
            )
    return histories


def _over(failures: NDArray[Any]) -> list[bool]:
    """Whether a year at its own mean is said to drift on some day, and whether its mean is
    called wrong.
    """
    days, expected = np.ones(len(failures)), np.full(len(failures), failures.mean())
    return [
        bool((against >= 0).any()) for against in evidence_against(days, expected, failures, ALARM)
    ]


def _first(
    nodes: int,
    batch: int,
    wander: float,
    rate: NDArray[Any],
    pools: int,
    looks: int,
    generator: np.random.Generator,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """When each simulated pool has its first verdict, by direction: that the rate moved, and that
    the assumption is wrong; infinite for never. Pools come in parts that fit into memory. [d]
    """
    parts = [
        _first_in_part(nodes, batch, wander, rate, min(_AT_ONCE, pools - done), looks, generator)
        for done in range(0, pools, _AT_ONCE)
    ]
    moved, wrong = (np.concatenate(days) for days in zip(*parts, strict=True))
    return moved, wrong


def _first_in_part(
    nodes: int,
    batch: int,
    wander: float,
    rate: NDArray[Any],
    pools: int,
    looks: int,
    generator: np.random.Generator,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Simulate pools day by day; returns the days that `_first` tells of them. [d]"""
    by_class = (
        np.array([level.share for level in RecoveryClass if level.share]) * PAPER_RATE * nodes
    )
    week = np.ones((len(rate), pools))
    if wander:
        weeks = generator.gamma(wander**-2, wander**2, (-(-len(rate) // 7), pools))
        week = np.repeat(weeks, 7, axis=0)[: len(rate)]
    events = generator.poisson(
        (rate[:, None] * week)[:, None, :, None] * by_class / (batch * looks),
        (len(rate), looks, pools, len(by_class)),
    )
    seen = np.cumsum(batch * events, axis=1)
    seen = np.concatenate(
        [seen, seen.sum(axis=-1, keepdims=True)], axis=-1
    )  # hours of today, and the total
    expected = np.append(by_class, by_class.sum())
    shares = np.append(np.full(len(by_class), 0.5 / len(by_class)), 0.5)
    needed = np.array([needed_evidence(ALARM * share) for share in shares])[:, None]
    days, today = np.ones(len(rate)), seen[:, -1]
    whole = np.broadcast_to(expected, today.shape)
    evidence = evidence_after_spans(days, whole, today, most=float(needed.max()) + MEMORY)
    event = event_dispersion(days, whole, today)
    slow = slow_dispersion(days, whole, today)
    before = [np.concatenate([np.full_like(logs[:1], -np.inf), logs[:-1]]) for logs in evidence]
    yesterday = [np.concatenate([by_day[:1], by_day[:-1]]) for by_day in (event, slow)]
    first = [np.full((pools, len(needed), 2), np.inf) for _ in range(2)]
    for hour in range(looks):
        part = (hour + 1) / looks
        now = [
            np.logaddexp(until, np.log(part)) + gains
            for until, gains in zip(
                before, evidence_gains(expected * part, seen[:, hour]), strict=True
            )
        ]
        night_before = (event, slow) if hour == looks - 1 else yesterday
        for number, against in enumerate(verdict_evidence(*now, *night_before)):
            is_over = against >= needed
            at = np.where(is_over.any(axis=0), is_over.argmax(axis=0) + part, np.inf)
            first[number] = np.minimum(first[number], at)
    return first[0].min(axis=1), first[1].min(axis=1)
