"""Recovery times by class: means, Laplace transforms, and the quadrature that every other law needs.

A recovery law enters the exact model in two ways: through E exp(-Lam R) when failures are Poisson, and through
E f(R) for any other law of failures, which `nodes_of` turns into a short weighted sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.spec.reliability import Hangs, RecoveryTime, Reliability
from mofa_model.units import Numeric, Ratio, Seconds

_STEPS: Final = np.linspace(-7.5, 7.5, 65)
"""Trapezoid nodes in standard deviations: for a Gaussian weight the rule is exact to 1e-12."""
_WEIGHTS: Final = np.exp(-0.5 * _STEPS * _STEPS) / np.sum(np.exp(-0.5 * _STEPS * _STEPS))
_LOG_STEPS: Final = np.linspace(-34.0, 4.0, 129)
"""Trapezoid nodes of log(R / mean) for the exponential law, from 1e-15 to 55 means."""
_LOG_WEIGHTS: Final = np.exp(_LOG_STEPS - np.exp(_LOG_STEPS)) / np.sum(
    np.exp(_LOG_STEPS - np.exp(_LOG_STEPS))
)


NEVER: Final = 1e-300
"""Stands for a rate of zero where one divides by it. [1/s]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class FailureSource:
    """One cause of failures of the job: its share, its recovery, the tier it restores from."""

    name: str
    """Recovery class or domain."""
    share: float
    """Share of the job's failures; it does not depend on the number of nodes. [1]"""
    recoveries: tuple[RecoveryTime, ...]
    """Independent parts of the recovery time: the queue, then the recovery."""
    tier: int
    """Nearest tier that survives."""


def node_rate(reliability: Reliability) -> float:
    """Failures of a job per node: lambda of each class, 1 / h of each domain's. Source: Poisson processes add. [1/s per node]"""
    return sum(
        (d.rate / d.nodes for d in reliability.domains),
        sum(c.rate.mean for c in reliability.classes),
    )


@lru_cache(maxsize=64)  # each ETTR of a search asks anew
def sources_of(reliability: Reliability) -> tuple[FailureSource, ...]:
    """The causes of failure of a job, with their shares; those that hang apart. Source: Poisson processes add. []"""
    total, queue = node_rate(reliability), () if reliability.queue is None else (reliability.queue,)
    causes = [
        (c.name, c.rate.mean, (*(queue if c.queues else ()), c.recovery), c.tier)
        for c in reliability.classes
    ]
    causes += [
        (d.name, d.rate / d.nodes, (*queue, d.recovery), d.tier) for d in reliability.domains
    ]
    if (hangs := reliability.hangs) is not None:
        causes = [one for cause in causes for one in _noticed(*cause, hangs)]
    return tuple(
        FailureSource(
            name=name,
            share=rate / total if total > 0 else 1 / len(causes),
            recoveries=recoveries,
            tier=tier,
        )
        for name, rate, recoveries, tier in causes
    )


def _noticed(
    name: str, rate: float, recoveries: tuple[RecoveryTime, ...], tier: int, hangs: Hangs
) -> list[tuple[str, float, tuple[RecoveryTime, ...], int]]:
    """A cause as two: failures that end processes at once, and those for which a timeout does. Source: Poisson thinning."""
    wait = RecoveryTime(mean=hangs.timeout, law="deterministic")
    two = [
        (name, (1 - hangs.share) * rate, recoveries, tier),
        (f"{name}, hung", hangs.share * rate, (wait, *recoveries), tier),
    ]
    return [one for one, part in zip(two, (1 - hangs.share, hangs.share), strict=True) if part]


def mean_of(recoveries: tuple[RecoveryTime, ...]) -> Seconds:
    """Mean recovery time of a cause, its parts added. Source: linearity. [s]

    >>> mean_of((RecoveryTime(mean=60.0), RecoveryTime(mean=300.0)))
    360.0
    """
    return sum((r.mean for r in recoveries), 0.0)


def laplace_of(recovery: RecoveryTime, rate: Numeric) -> Ratio:
    """E exp(-s R), the chance that no failure comes while recovering. Source: moment generating functions. [1]

    `rate` is s [1/s].

    >>> round(float(laplace_of(RecoveryTime(mean=600.0, law="exponential"), 1 / 600)), 6)
    0.5
    """
    if _is_fixed(recovery):
        return np.exp(-rate * recovery.mean)
    if recovery.law == "exponential":
        return 1 / (1 + rate * recovery.mean)
    values, weights = nodes_of(recovery)
    total: Ratio = 0.0
    for value, weight in zip(values, weights, strict=True):
        total = total + weight * np.exp(-rate * value)
    return total


def laplace_slope(recovery: RecoveryTime, rate: Numeric) -> Seconds:
    """E R exp(-s R), minus the slope of `laplace_of`. Source: moment generating functions. [s]

    >>> round(float(laplace_slope(RecoveryTime(mean=600.0, law="exponential"), 1 / 600)), 6)
    150.0
    """
    values, weights = nodes_of(recovery)
    total: Seconds = 0.0
    for value, weight in zip(values, weights, strict=True):
        total = total + weight * value * np.exp(-rate * value)
    return total


def survival_of_recovery(sources: tuple[FailureSource, ...], rate: Numeric) -> Ratio:
    """Chance that a recovery is not itself hit by a failure (phi): E exp(-s R), over causes by their share. Ours. [1]

    `rate` is s, the failures that may hit it [1/s].

    >>> one = FailureSource(name="job", share=1.0, recoveries=(RecoveryTime(mean=600.0, law="exponential"),), tier=0)
    >>> round(float(survival_of_recovery((one,), 1 / 600)), 6)
    0.5
    """
    phi: Ratio = 0.0
    total = sum(source.share for source in sources)
    for source in sources:
        part: Ratio = source.share / total
        for recovery in source.recoveries:
            part = part * laplace_of(recovery, rate)
        phi = phi + part
    return phi


def nodes_of(recovery: RecoveryTime) -> tuple[NDArray[Any], NDArray[Any]]:
    """Times and weights with E f(R) = sum of weight x f(time), for smooth f. Source: trapezoid in log R. [s, 1]

    >>> values, weights = nodes_of(RecoveryTime(mean=600.0, cv=1.5))
    >>> round(float(np.sum(values * weights)), 6)
    600.0
    """
    mean, cv = recovery.mean, recovery.cv
    if _is_fixed(recovery):
        return np.array([mean]), np.array([1.0])
    if recovery.law == "exponential":
        return mean * np.exp(_LOG_STEPS), _LOG_WEIGHTS
    sigma = np.sqrt(np.log1p(cv * cv))
    return mean * np.exp(sigma * _STEPS - 0.5 * sigma * sigma), _WEIGHTS


def nodes_of_sum(recoveries: tuple[RecoveryTime, ...]) -> tuple[NDArray[Any], NDArray[Any]]:
    """As `nodes_of`, for the sum of independent parts. Source: product rule. [s, 1]"""
    values, weights = np.zeros(1), np.ones(1)
    for recovery in recoveries:
        more, shares = nodes_of(recovery)
        values = np.add.outer(values, more).ravel()
        weights = np.multiply.outer(weights, shares).ravel()
    return values, weights


def _is_fixed(recovery: RecoveryTime) -> bool:
    spread = recovery.cv > 0 or recovery.law == "exponential"
    return recovery.law == "deterministic" or recovery.mean == 0 or not spread
