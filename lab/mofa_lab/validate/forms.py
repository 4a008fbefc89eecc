"""Forms in which published facts on reliability are told, where the model asks for none of them.

t  step time          S  steps          k  interval in steps      c  save time
M  mean recovery      b  job failures per second                  T_init  initialisation
"""

from __future__ import annotations

from math import comb

import numpy as np

from mofa_model.checks import whole
from mofa_model.errors import BadValue
from mofa_model.reliability.laws import NEVER
from mofa_model.units import Count, Numeric, Ratio, Seconds


def ettr_of_times(effective: Seconds, interrupted: Seconds) -> Ratio:
    """Effective training time ratio of measured times, Eq. (36). [1]

    >>> ettr_of_times(33.0, 23.0)
    0.5892857142857143
    """
    return effective / (effective + interrupted)


def mean_recovery(shares: Numeric, recoveries: Numeric) -> Seconds:
    """Mean time to recover over classes, Eq. (41): sum p_i R_i; arrays run along the last axis. [s]

    >>> round(float(mean_recovery(np.array([0.3, 0.6, 0.1]), np.array([141.0, 262.0, 307.0]))), 1)
    230.2
    """
    mean: Seconds = np.sum(np.asarray(shares) * recoveries, axis=-1)
    return mean


def total_time(
    rate: Numeric,
    steps: Count,
    interval: Count,
    step_time: Seconds,
    save: Seconds,
    recovery: Seconds,
    start: Seconds,
) -> Seconds:
    """Wall time of a run, Eq. (43): [S t + (S / k) c + T_init] / [1 - b (M + k t / 2)]; infinite if
    never done. [s]

    `rate` is the job's failures (b) [1/s].

    >>> round(float(total_time(16 * 0.005 / 86400, 953675, 10, 27.83, 4.19, 134.4121, 0.0)), 1)
    26947190.8
    """
    left = np.asarray(1 - rate * (recovery + interval * step_time / 2))
    busy = steps * step_time + steps / interval * save + start
    total: Seconds = np.where(left > 0, busy / np.where(left > 0, left, 1.0), np.inf)[()]
    return total


def young_interval(save: Seconds, rate: Numeric) -> Seconds:
    """Work between saves to first order, Young 1974: sqrt(2 c / Lam). [s]

    `rate` is the job's failures [1/s].

    >>> round(float(young_interval(30.0, 1 / 9000)), 1)
    734.8
    """
    return np.sqrt(2 * save / np.maximum(rate, NEVER))


def excess_of_wrong_rate(ratio: Ratio) -> Ratio:
    """Relative overhead that Young's interval gains from a rate wrong by `ratio`: (sqrt r + 1 /
    sqrt r) / 2 - 1. Ours. [1]

    >>> round(float(excess_of_wrong_rate(2.0)), 4)
    0.0607
    """
    root = np.sqrt(ratio)
    return (root + 1 / root) / 2 - 1


def first_order_ettr(rate: Numeric, loss: Seconds) -> Ratio:
    """ETTR when each failure costs a mean loss, to first order: 1 - Lam loss, at least 0. Source:
    Kokolis et al. 2025. [1]

    `rate` is the job's failures [1/s].

    >>> round(float(first_order_ettr(1 / 1080, 600.0)), 2)
    0.44
    """
    return np.maximum(0.0, 1 - rate * loss)


def affordable_loss(rate: Numeric, ettr: Ratio) -> Seconds:
    """Mean loss per failure that still leaves an ETTR, to first order: (1 - ETTR) / Lam. Source:
    Kokolis et al. 2025. [s]

    `rate` is the job's failures [1/s].

    >>> round(float(affordable_loss(1 / 11135, 0.9)))
    1113
    """
    return (1 - ettr) / np.maximum(rate, NEVER)


def save_overhead(interval: Count, step_time: Seconds, save: Seconds) -> Ratio:
    """Saves over work, the c / (k t) of Eq. (40). [1]

    >>> round(save_overhead(100, 105.22, 40.0), 6)
    0.003802
    """
    return save / (interval * step_time)


def total_steps(tokens: Count, global_batch: Count, sequence: Count) -> Count:
    """Optimizer steps of a run, the S of Eq. (37): tokens over tokens in a step, rounded up. [1]

    >>> int(total_steps(1e12, 256, 4096))
    953675
    """
    return np.ceil(tokens / (global_batch * sequence))


def chance_of_failure(expected: Numeric) -> Ratio:
    """Chance of at least one failure, 1 - exp(-expected). Source: Poisson. [1]

    >>> round(float(chance_of_failure(2.7)), 3)
    0.933
    """
    chance: Ratio = -np.expm1(-np.asarray(expected))[()]
    return chance


def groups_survive(nodes: int, group: int, killed: int) -> Ratio:
    """Chance that no peer group of g loses all its nodes when k random nodes are lost. Source:
    inclusion-exclusion. [1]

    P = sum over j of (-1)^j C(N/g, j) C(N - j g, k - j g) / C(N, k).

    >>> round(groups_survive(64, 2, 4), 6)
    0.905543
    """
    whole(nodes=nodes, group=group)
    if not 0 <= killed <= nodes:
        raise BadValue("killed", killed, f"give a number of nodes from 0 to {nodes}")
    groups = nodes // group
    ways = sum(
        (-1) ** j * comb(groups, j) * comb(nodes - j * group, killed - j * group)
        for j in range(killed // group + 1)
    )
    chance: float = ways / comb(nodes, killed)
    return chance


def mid_p(failures: Count, expected: Numeric) -> Ratio:
    """Two-sided exact mid-p value of a count against a Poisson mean. Source: Lancaster 1961. [1]

    >>> round(float(mid_p(0, 3.0)), 7)
    0.0497871
    """
    from scipy.stats import poisson

    half = poisson.pmf(failures, expected) / 2
    low, high = poisson.cdf(failures, expected) - half, poisson.sf(failures, expected) + half
    p: Ratio = np.minimum(1.0, 2 * np.minimum(low, high))
    return p


def e_value(failures: Count, expected: Numeric) -> Numeric:
    """Gamma(1, 1) mixture of Poisson likelihood ratios against an expected count. Source: Robbins
    1970. [1]

    >>> round(float(e_value(0, 3.0)), 4)
    5.0214
    """
    from scipy.special import gammaln

    evidence: Numeric = np.exp(
        gammaln(1 + failures) - (1 + failures) * np.log1p(expected) + expected
    )
    return evidence
