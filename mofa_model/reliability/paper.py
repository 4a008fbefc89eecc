"""The paper's fault model, Eqs. (36)-(44), as its printed totals of Table 5 fix it (8 digits agree).

Right at small failure load only: trust it while job failures times (recovery + half an interval) stay below 0.05, never
above 0.2. Where the paper's form would fall below zero this module answers zero effective time and an infinite total.

    t  step time          S  steps          k  interval in steps      c  save time
    M  mean recovery      b  job failures per second                  T_init  initialisation
"""

from __future__ import annotations

import numpy as np

from mofa_model.reliability.recovery import NEVER
from mofa_model.units import Count, Numeric, Ratio, Seconds


def effective_time(steps: Count, step_time: Seconds) -> Seconds:
    """Time that steps alone would need, Eq. (37): S t. [s]

    >>> effective_time(953675, 27.83)
    26540775.25
    """
    return steps * step_time


def ettr_of_times(effective: Seconds, interrupted: Seconds) -> Ratio:
    """Effective training time ratio of measured times, Eq. (36). [1]

    >>> ettr_of_times(33.0, 23.0)
    0.5892857142857143
    """
    return effective / (effective + interrupted)


def expected_failures(nodes: Count, rate: Numeric, total: Seconds) -> Count:
    """Failures in a run, Eq. (38): N lambda T, in total wall time. [1]

    `rate` is per node and second [1/s].

    >>> round(expected_failures(2048, 0.005 / 86400, 54 * 86400.0))
    553
    """
    return nodes * rate * total


def mean_recovery(shares: Numeric, recoveries: Numeric) -> Seconds:
    """Mean time to recover over classes, Eq. (41): sum p_i R_i; arrays run along the last axis. [s]

    >>> round(float(mean_recovery(np.array([0.3, 0.6, 0.1]), np.array([141.0, 262.0, 307.0]))), 1)
    230.2
    """
    mean: Seconds = np.sum(np.asarray(shares) * recoveries, axis=-1)
    return mean


def interrupted_time(
    failures: Count,
    recovery: Seconds,
    steps: Count,
    interval: Count,
    step_time: Seconds,
    save: Seconds,
    start: Seconds,
) -> Seconds:
    """Time lost in a run, Eq. (39): T_init + N_f (M + k t / 2) + (S / k) c. [s]

    >>> interrupted_time(10.0, 60.0, 1000, 100, 2.0, 3.0, 0.0)
    1630.0
    """
    return start + failures * (recovery + interval * step_time / 2) + steps / interval * save


def ettr(
    rate: Numeric,
    interval: Count,
    step_time: Seconds,
    save: Seconds,
    recovery: Seconds,
    start_share: Ratio = 0.0,
) -> Ratio:
    """Effective training time ratio, Eq. (40): [1 - b (M + k t / 2)] / [1 + c / (k t) + T_init / (S t)], at least 0. [1]

    `rate` is the job's failures (b) [1/s]; `start_share` is T_init / (S t) [1].

    Departs from the paper: below zero is zero; the paper's form is negative where recovery and rollback outlast the
    time between failures.

    >>> round(float(ettr(32 * 0.01 / 86400, 37, 27.99, 2.0, 60.0)), 4)
    0.9959
    """
    b, w = rate, interval * step_time
    return np.maximum(0.0, 1 - b * (recovery + w / 2)) / (1 + save / w + start_share)


def total_time(
    rate: Numeric,
    steps: Count,
    interval: Count,
    step_time: Seconds,
    save: Seconds,
    recovery: Seconds,
    start: Seconds,
) -> Seconds:
    """Wall time of a run, Eq. (43): [S t + (S / k) c + T_init] / [1 - b (M + k t / 2)]; infinite if never done. [s]

    `rate` is the job's failures (b) [1/s].

    >>> round(float(total_time(16 * 0.005 / 86400, 953675, 10, 27.83, 4.19, 134.4121, 0.0)), 1)
    26947190.8
    """
    left = np.asarray(1 - rate * (recovery + interval * step_time / 2))
    busy = steps * step_time + steps / interval * save + start
    total: Seconds = np.where(left > 0, busy / np.where(left > 0, left, 1.0), np.inf)[()]
    return total


def interval_real(
    rate: Numeric, step_time: Seconds, save: Seconds, recovery: Seconds, start_per_step: Seconds
) -> Count:
    """Best interval in steps before rounding, Eq. (44): {-c + sqrt(c^2 + 2 c (u / t)(1 - b M) / b)} / u. [1]

    `rate` is the job's failures (b) [1/s]; `start_per_step` is T_init / S [s]; u = t + T_init / S. At least one step:
    the form has no answer where recovery alone outlasts the time between failures.

    >>> round(float(interval_real(32 * 0.01 / 86400, 27.99, 2.0, 60.0, 0.0)), 3)
    37.053
    """
    b, c, t = rate, save, step_time
    u = t + start_per_step
    load = np.maximum(0.0, 1 - b * recovery) / np.maximum(b, NEVER)
    return np.maximum(1.0, (np.sqrt(c * c + 2 * c * (u / t) * load) - c) / u)


def best_interval(
    rate: Numeric,
    step_time: Seconds,
    save: Seconds,
    recovery: Seconds,
    *,
    most: Count,
    start_per_step: Seconds = 0.0,
) -> Count:
    """Best interval in whole steps, Eq. (44): the better of rounding down and up, at most `most`. [1]

    >>> float(best_interval(32 * 0.01 / 86400, 27.99, 2.0, 60.0, most=1e6))
    37.0
    """
    real = np.minimum(most, interval_real(rate, step_time, save, recovery, start_per_step))
    down = np.floor(real)
    up = np.minimum(most, np.ceil(real))
    share = start_per_step / step_time
    better = ettr(rate, up, step_time, save, recovery, share) > ettr(
        rate, down, step_time, save, recovery, share
    )
    steps: Count = np.where(better, up, down)[()]
    return steps


def young_interval(save: Seconds, rate: Numeric) -> Seconds:
    """Work between saves to first order, Young 1974: sqrt(2 c / Lam). [s]

    `rate` is the job's failures [1/s].

    >>> round(float(young_interval(30.0, 1 / 9000)), 1)
    734.8
    """
    return np.sqrt(2 * save / np.maximum(rate, NEVER))


def daly_interval(save: Seconds, rate: Numeric) -> Seconds:
    """Work between saves to higher order, Daly 2006: sqrt(2 c M)[1 + sqrt(x) / 3 + x / 9] - c, x = c / 2M; M if c >= 2M. [s]

    `rate` is the job's failures, 1 / M [1/s].

    >>> round(float(daly_interval(30.0, 1 / 1064)), 1)
    233.1
    """
    x = save * rate / 2
    long = young_interval(save, rate) * (1 + np.sqrt(x) / 3 + x / 9) - save
    work: Seconds = np.where(x < 1, long, 1 / np.maximum(rate, NEVER))[()]
    return work


def excess_of_wrong_rate(ratio: Ratio) -> Ratio:
    """Relative overhead that Young's interval gains from a rate wrong by `ratio`: (sqrt r + 1 / sqrt r) / 2 - 1. Ours. [1]

    >>> round(float(excess_of_wrong_rate(2.0)), 4)
    0.0607
    """
    root = np.sqrt(ratio)
    return (root + 1 / root) / 2 - 1


def first_order_ettr(rate: Numeric, loss: Seconds) -> Ratio:
    """ETTR when each failure costs a mean loss, to first order: 1 - Lam loss, at least 0. Source: Kokolis et al. 2025. [1]

    `rate` is the job's failures [1/s].

    >>> round(float(first_order_ettr(1 / 1080, 600.0)), 2)
    0.44
    """
    return np.maximum(0.0, 1 - rate * loss)


def affordable_loss(rate: Numeric, ettr: Ratio) -> Seconds:
    """Mean loss per failure that still leaves an ETTR, to first order: (1 - ETTR) / Lam. Source: Kokolis et al. 2025. [s]

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
