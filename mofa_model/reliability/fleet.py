"""More that failure data say: class shares, recovery times, lemon nodes, drift."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mofa_model.checks import not_negative, positive
from mofa_model.errors import BadValue
from mofa_model.reliability.rates import LEVEL
from mofa_model.spec.reliability import RecoveryTime
from mofa_model.units import Ratio, Seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassShare:
    """A class's share of failures."""

    mean: Ratio
    """Posterior mean. [1]"""
    low: Ratio
    """Lower end of the credible interval. [1]"""
    high: Ratio
    """Upper end. [1]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class RecoveryPosterior:
    """What observed recoveries say of their mean."""

    mean: Seconds
    """Posterior median of the mean recovery time. [s]"""
    low: Seconds
    """Lower end of the interval. [s]"""
    high: Seconds
    """Upper end. [s]"""
    law: RecoveryTime
    """A lognormal law with the fitted mean and spread."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Dispersion:
    """Whether nodes fail alike."""

    index: Ratio
    """Variance over mean of counts against exposure; 1 when nodes fail alike. [1]"""
    p_value: Ratio
    """Chance of at least this index when nodes fail alike. [1]"""
    worst: tuple[tuple[str, int, Ratio], ...]
    """Nodes by failures: name, failures, chance that any node of the fleet shows as many."""


def class_shares(counts: dict[str, float], level: Ratio = LEVEL) -> dict[str, ClassShare]:
    """Posterior shares of classes, Dirichlet with 1/2 for each. Source: Dirichlet-multinomial conjugacy. [1]

    >>> round(class_shares({"process": 30, "pod": 60, "job": 10})["pod"].mean, 3)
    0.596
    """
    from scipy.special import betaincinv

    not_negative(counts=np.array(list(counts.values()), dtype=float))
    total = sum(counts.values()) + 0.5 * len(counts)
    ends = (1 - level) / 2, (1 + level) / 2

    def one(count: float) -> ClassShare:
        a, b = count + 0.5, total - count - 0.5
        if b <= 0:
            return ClassShare(mean=1.0, low=1.0, high=1.0)
        low, high = (float(betaincinv(a, b, end)) for end in ends)
        return ClassShare(mean=a / total, low=low, high=high)

    return {name: one(count) for name, count in counts.items()}


def recovery_posterior(
    finished: Sequence[float],
    still_open: Sequence[float] = (),
    *,
    assumed: RecoveryTime,
    level: Ratio = LEVEL,
) -> RecoveryPosterior:
    """Posterior of a mean recovery time, lognormal, with recoveries still open at the end right-censored. Ours. [s]

    On a grid of log median and log spread, with an assumed law as a prior worth one observation. Leaving open
    recoveries out would bias the mean low, as the long ones are the open ones.

    >>> law = RecoveryTime(mean=300.0, cv=1.0)
    >>> closed = recovery_posterior([200.0] * 20, assumed=law)
    >>> bool(recovery_posterior([200.0] * 20, [900.0] * 5, assumed=law).mean > closed.mean)
    True
    """
    from scipy.special import log_ndtr

    seen, cut = np.asarray(finished, dtype=float), np.asarray(still_open, dtype=float)
    positive(recovery=np.append(seen, 1.0))
    not_negative(open_recovery=np.append(cut, 0.0))
    spread0 = np.sqrt(np.log1p(max(assumed.cv, 0.1) ** 2))
    center0 = np.log(max(assumed.mean, 1e-9)) - spread0 * spread0 / 2
    logs, opened = np.log(seen), np.log(np.maximum(cut, 1e-9))
    near = np.append(np.append(logs, opened), center0)
    m = np.linspace(near.min() - 3 * spread0, near.max() + 3 * spread0, 241)[:, None]
    s = np.geomspace(0.05, 4.0, 121)[None, :]
    log = -0.5 * ((m - center0) / (2 * spread0)) ** 2 - 0.5 * (np.log(s / spread0) / 0.7) ** 2
    log = log - len(logs) * np.log(s) - 0.5 * (_squares(logs, m)) / (s * s)
    for time in opened:
        log = log + log_ndtr((m - time) / s)
    weight = np.exp(log - log.max())
    means = np.exp(m + s * s / 2).ravel()
    order = np.argsort(means)
    chance = np.cumsum(weight.ravel()[order]) / weight.sum()
    low, middle, high = (
        float(means[order][np.searchsorted(chance, x)])
        for x in ((1 - level) / 2, 0.5, (1 + level) / 2)
    )
    spread = float(np.sum(weight * s) / weight.sum())
    law = RecoveryTime(mean=middle, law="lognormal", cv=float(np.sqrt(np.expm1(spread * spread))))
    return RecoveryPosterior(mean=middle, low=low, high=high, law=law)


def dispersion(failures: dict[str, int], exposure: dict[str, float], show: int = 5) -> Dispersion:
    """Chi-square dispersion of failures over nodes, and the worst nodes. Source: Fisher 1950. [1]

    >>> found = dispersion({"a": 6, "b": 0, "c": 0}, {"a": 10.0, "b": 10.0, "c": 10.0})
    >>> found.index, found.worst[0][0]
    (6.0, 'a')
    """
    from scipy.special import gammainc, gammaincc

    names = sorted(exposure)
    for name in failures:
        if name not in exposure:
            raise BadValue("node", name, "every node with failures needs an exposure")
    k = np.array([failures.get(name, 0) for name in names], dtype=float)
    time = np.array([exposure[name] for name in names], dtype=float)
    positive(exposure=time)
    expected = k.sum() * time / time.sum()
    free = len(names) - 1
    if k.sum() == 0 or free == 0:
        return Dispersion(index=1.0, p_value=1.0, worst=())
    square = float(np.sum((k - expected) ** 2 / expected))
    order = sorted(range(len(names)), key=lambda i: (-k[i], names[i]))[:show]
    worst = tuple(
        (names[i], int(k[i]), float(min(1.0, len(names) * gammainc(k[i], expected[i]))))
        for i in order
        if k[i] > 0
    )
    return Dispersion(
        index=square / free, p_value=float(gammaincc(free / 2, square / 2)), worst=worst
    )


def laplace_trend(times: Sequence[float], duration: Seconds) -> tuple[float, float]:
    """Laplace's trend statistic and its two-sided p-value; above zero failures grow more frequent. Source: Laplace 1773. [1]

    >>> round(laplace_trend([80.0, 90.0, 95.0, 99.0], 100.0)[0], 2)
    2.84
    """
    from math import erfc, sqrt

    positive(duration=duration)
    at = np.asarray(times, dtype=float)
    if not np.all((at >= 0) & (at <= duration)):
        raise BadValue("times", times, "give times of failures within the window")
    if len(at) == 0:
        return 0.0, 1.0
    score = float((at.mean() / duration - 0.5) * sqrt(12 * len(at)))
    return score, erfc(abs(score) / sqrt(2))


def _squares(values: NDArray[Any], center: NDArray[Any]) -> NDArray[Any]:
    """Sum of squared distances of values to each center. [1]"""
    count = len(values)
    if count == 0:
        return np.zeros_like(center)
    mean = values.mean()
    total: NDArray[Any] = np.sum((values - mean) ** 2) + count * (center - mean) ** 2
    return total
