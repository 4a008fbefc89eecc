"""The paper's fault model in closed form, Eqs. (40) and (44), as its printed Table 5 fixes it.

Right at small failure load only: trust it while job failures times (recovery + half an interval)
stay below 0.05, never above 0.2. Where the paper's form would fall below zero this module answers
zero.

    t  step time          S  steps          k  interval in steps      c  save time
    M  mean recovery      b  job failures per second                  T_init  initialisation
"""

from __future__ import annotations

import numpy as np

from mofa_model.reliability.laws import NEVER
from mofa_model.units import Count, Numeric, Ratio, Seconds


def ettr(
    rate: Numeric,
    interval: Count,
    step_time: Seconds,
    save: Seconds,
    recovery: Seconds,
    start_share: Ratio = 0.0,
) -> Ratio:
    """Effective training time ratio, Eq. (40): [1 - b (M + k t / 2)] / [1 + c / (k t) + T_init / (S
    t)], at least 0. [1]

    `rate` is the job's failures (b) [1/s]; `start_share` is T_init / (S t) [1].

    Departs from the paper: below zero is zero; the paper's form is negative where recovery and
    rollback outlast the time between failures.

    >>> round(float(ettr(32 * 0.01 / 86400, 37, 27.99, 2.0, 60.0)), 4)
    0.9959
    """
    b, w = rate, interval * step_time
    return np.maximum(0.0, 1 - b * (recovery + w / 2)) / (1 + save / w + start_share)


def interval_real(
    rate: Numeric, step_time: Seconds, save: Seconds, recovery: Seconds, start_per_step: Seconds
) -> Count:
    """Best interval in steps before rounding, Eq. (44): {-c + sqrt(c^2 + 2 c (u / t)(1 - b M) / b)}
    / u. [1]

    `rate` is the job's failures (b) [1/s]; `start_per_step` is T_init / S [s]; u = t + T_init / S.
    At least one step: the form has no answer where recovery alone outlasts the time between
    failures.

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
    """Best interval in whole steps, Eq. (44): the better of rounding down and up, at most `most`.
    [1]

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
