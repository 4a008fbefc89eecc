"""Nodes whose failure rate changes with age: what a fresh fleet does before it is old.

A node is replaced by a fresh one when it fails, so its failures are a renewal process; many nodes
together are nearly Poisson, at a rate that moves with the age of the fleet. With infant mortality
(Weibull shape below one) the long-run rate is optimistic for the first months.
"""

from __future__ import annotations

from math import gamma
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mofa_model.checks import positive
from mofa_model.reliability import renewal
from mofa_model.reliability.laws import laplace_of
from mofa_model.spec.reliability import RecoveryTime
from mofa_model.units import Count, Ratio, Seconds

_CELLS = 800


def expected_renewals(
    shape: float, mean: Seconds, duration: Seconds, cells: int = _CELLS
) -> NDArray[Any]:
    """Failures of one fresh Weibull node up to each of `cells` + 1 times. Source: renewal equation,
    midpoint rule. [1]

    `shape` is the Weibull shape [1], `mean` its mean time between failures [s].

    >>> round(float(expected_renewals(1.0, 10.0, 60.0)[-1]), 3)
    6.0
    """
    positive(shape=shape, mean=mean, duration=duration)
    time = np.linspace(0.0, duration, cells + 1)
    failed = -np.expm1(-np.power(time * (gamma(1 + 1 / shape) / mean), shape))
    density = np.diff(failed)
    count = np.zeros(cells + 1)
    for i in range(1, cells + 1):
        before, after = count[:i][::-1], np.append(0.0, count[1:i][::-1])
        count[i] = (failed[i] + np.sum(density[:i] * (before + after)) / 2) / (1 - density[0] / 2)
    return count


def fresh_ettr(
    nodes: Count,
    shape: float,
    mean: Seconds,
    duration: Seconds,
    recovery: RecoveryTime,
    work: Seconds,
    blocking: Seconds,
    background: Seconds = 0.0,
    slowdown: Ratio = 0.0,
) -> Ratio:
    """ETTR of a run of `duration` on fresh nodes: the mean over ages of the exact model; unsaved
    work at the end is lost. Ours. [1]

    >>> law = RecoveryTime(mean=300.0, law="deterministic")
    >>> round(float(fresh_ettr(256, 0.7, 150 * 86400.0, 60 * 86400.0, law, 900.0, 30.0)), 3)
    0.943
    """
    count = expected_renewals(shape, mean, duration)
    rate = nodes * np.diff(count) / (duration / (len(count) - 1))
    ettr = renewal.ettr(rate, laplace_of(recovery, rate), work, blocking, background, slowdown)
    average: Ratio = np.asarray(ettr).mean() - work / (2 * duration)
    return average
