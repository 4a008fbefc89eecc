"""The exact model of one checkpoint tier: a renewal reward process whose cycles end at failures.

After a failure the job recovers (R), then saves are durable at a, a + u, a + 2u, ... of running
time, each worth the work w between saves; whatever the failure finds unsaved is lost. So ETTR = w
E[durable saves before a failure] / E[X]. Failures may come at any time: in steps, in saves, in
copies, in recovery.

    Lam  job failures per second       w    work between saves, k t   phi  E exp(-Lam R), see `laws`
    c    blocking part of a save       d    background copy           eps  slowdown while copying
    u    time between durable saves      a    from running again to the first durable save

One copy is in flight at a time: a save that is due while the last copy runs waits for it. Only
`np.exp` and `np.expm1` are in the hot form, so a hundred thousand pairs of strategy and interval
cost little more than the paper's form.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from mofa_model.checks import anything
from mofa_model.reliability.laws import NEVER, Uptime
from mofa_model.units import Numeric, Ratio, Seconds

_SLOWEST: Final = 1e-250
"""A rate that stands for zero: Lam w / (1 - exp(-Lam u)) is w / u there to the last digit. [1/s]"""
RARE: Final = 1e-6
"""Failures between two saves below which the moments of `deviation` cancel. [1]"""


def time_between_saves(
    work: Seconds, blocking: Seconds, background: Seconds = 0.0, slowdown: Ratio = 0.0
) -> Seconds:
    """Time between durable saves (u): c + w + d eps / (1 + eps), or c + d where the copy outlasts
    the work. Ours. [s]

    >>> float(time_between_saves(60.0, 1.0, 150.0, 0.05))
    151.0
    """
    w, c, d, eps = work, blocking, background, slowdown
    return c + (np.maximum(w + d * (eps / (1 + eps)), d) if anything(d) else w)


def ettr(
    rate: Numeric,
    survived: Ratio,
    work: Seconds,
    blocking: Seconds,
    background: Seconds = 0.0,
    slowdown: Ratio = 0.0,
) -> Ratio:
    """Exact ETTR under Poisson failures: Lam phi w exp(-Lam (w + c + d)) / (1 - exp(-Lam u)). Ours.
    [1]

    `rate` is Lam [1/s], `survived` is phi [1], then w, c, d [s] and eps [1]. No failures: w / u.

    >>> round(float(ettr(9e-5, 0.963, 300.0, 2.0, 120.0, 0.02)), 4)
    0.9264
    """
    less = -np.maximum(rate, _SLOWEST)
    between = less * time_between_saves(work, blocking, background, slowdown)
    # Without a copy the first save comes as soon as every other.
    first = less * (work + (blocking + background)) if anything(background) else between
    ratio: Ratio = np.exp(first)
    ratio *= (survived * less) * work
    ratio /= np.expm1(between)
    return ratio


def survived_when_idle(rate: Numeric, mean_recovery: Seconds) -> Ratio:
    """`survived` (phi) of `ettr` if failures come only while running: 1 / (1 + Lam E[R]). Ours. [1]

    >>> survived_when_idle(1 / 900, 900.0)
    0.5
    """
    return 1 / (1 + rate * mean_recovery)


def ettr_of_run(
    run: Uptime,
    cycle: Seconds,
    work: Seconds,
    blocking: Seconds,
    background: Seconds = 0.0,
    slowdown: Ratio = 0.0,
) -> Ratio:
    """Exact ETTR for any i.i.d. time between failures: (w / E[cycle]) sum over n of P(X > R + a + n
    u). Ours. [1]

    `cycle` is the mean time from failure to failure [s].
    """
    u = time_between_saves(work, blocking, background, slowdown)
    return work / cycle * run.lattice(work + blocking + background, u)


def best_work(
    rate: Numeric, blocking: Seconds, background: Seconds = 0.0, slowdown: Ratio = 0.0
) -> Seconds:
    """Work between saves with the greatest ETTR under Poisson failures, exact: Lam w = 1 +
    W0(-exp(-1 - Lam c')). Ours. [s]

    c' = c + d eps / (1 + eps), what a period loses. Where that w would wait for the copy, the best
    is to save just as the copy ends, w = d / (1 + eps), but never beyond 1 / Lam. Recovery does not
    enter: the (1 - b M) of Eq. (44) is an artefact of linearising.

    >>> round(float(best_work(1 / 9000, 30.0)))
    715
    """
    lam = np.maximum(rate, NEVER)
    d, eps = background, slowdown
    loss = blocking + d * (eps / (1 + eps))
    free = one_plus_lambert(lam * loss) / lam
    return np.maximum(free, np.minimum(d / (1 + eps), 1 / lam))


def one_plus_lambert(x: Ratio) -> Ratio:
    """Y = 1 + W0(-exp(-1 - x)), the root in [0, 1) of -log(1 - y) - y = x. Source: Lambert 1758,
    Euler 1783. [1]

    A fixed number of Newton steps in v = -log(1 - y), from above, where the function is convex, so
    it cannot overshoot; a series where x is too small for the difference.

    >>> round(float(one_plus_lambert(0.5)), 6)
    0.69829
    """
    x = np.asarray(x, dtype=float)
    root = np.sqrt(2 * x)
    v = root + x
    for _ in range(8):
        gone = -np.expm1(-v)
        v = v - np.where(gone > 0, (v - gone - x) / np.where(gone > 0, gone, 1.0), 0.0)
    series = root * (1 - root / 3 + root * root / 36)
    y: Ratio = np.where(x < 1e-8, series, -np.expm1(-v))[()]
    return y


def deviation(
    rate: Numeric,
    survived: Ratio,
    survived_slope: Seconds,
    work: Seconds,
    blocking: Seconds,
    background: Seconds,
    slowdown: Ratio,
    duration: Seconds,
) -> Ratio:
    """Standard deviation of the ETTR of a run of `duration`, to leading order: sqrt(Var(n w - ETTR
    X) / (E[X] T)). Ours. [1]

    `survived_slope` is E R exp(-Lam R) [s]. Renewal reward central limit; n, the durable saves of a
    cycle, and X are dependent, and all three moments are geometric sums. Where failures are so rare
    that their difference would be lost to rounding, its limit: what is lost of a period is uniform,
    Var = w^2 / 12 (less than a millionth of the ETTR).

    >>> from math import exp
    >>> phi = exp(-9e-5 * 420)
    >>> round(float(deviation(9e-5, phi, 420 * phi, 600.0, 20.0, 0.0, 0.0, 7 * 86400.0)), 4)
    0.0084
    """
    w, a = work, work + blocking + background
    u = time_between_saves(work, blocking, background, slowdown)
    lam = np.maximum(rate, RARE / u)
    q, first = np.exp(-lam * u), np.exp(-lam * a)
    gap = -np.expm1(-np.maximum(lam * u, NEVER))
    saves = survived * first / gap
    twice = saves * (1 + q) / gap
    together = (
        survived * (a + 1 / lam) + survived_slope
    ) * first / gap + survived * first * u * q / (gap * gap)
    e = lam * w * saves
    variance = w * w * twice - 2 * e * w * together + 2 * e * e / (lam * lam)
    spread: Ratio = np.sqrt(np.maximum(variance, 0.0) * lam / duration)
    return np.where(
        np.asarray(rate) * u > RARE, spread, w * np.sqrt(np.asarray(rate) / (12 * duration))
    )[()]
