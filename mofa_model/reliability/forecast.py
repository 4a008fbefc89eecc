"""Failures of the next days where rates move: a mixture of forecasts, each weighed by how well it
foretold the past.

A forecast forgets with a half-life h, and takes the counts of a day to have `spread` times the
variance of a Poisson law:

    rate ~ Gamma(a, b)
    a, b <- 2^(-d/h) a, b + failures / spread, exposure / spread    after every span of d days
    failures of the next W days ~ negative binomial, with the mean that this rate gives

What is forgotten is replaced by the mean of the whole past, with the weight of half a failure. The
weight of a forecast is the likelihood of all past windows of W days (a fortnight at most), of which
old ones count less. So the fleet itself tells how fast its rate moves and how much its failures
cluster.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.records import dataclass
from mofa_model.reliability.rates import JEFFREYS, LEVEL
from mofa_model.reliability.special import beta_below, log_gamma
from mofa_model.units import Ratio

HALF_LIVES: Final = np.array([14.0, 28.0, 56.0, 112.0, 224.0, np.inf])
"""Half-lives of forecasts; the last forgets nothing. [d]"""
SPREADS: Final = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
"""Variance of counts over their mean. [1]"""
TRUST: Final = 60.0
"""Age at which a window has half the weight in judging forecasts. [d]"""
JUDGED: Final = 14.0
"""Longest window by which forecasts are judged: of longer ones there are too few. [d]"""
_COUNTED: Final = 256
"""Counts whose chances are added up one by one; a band that ends above them is found by halving.
[1]"""
_NEAR: Final = 0.25
"""How much shorter than asked a window of whole spans may be. [d]"""


@dataclass(frozen=True, kw_only=True)
class RateForecasts:
    """Forecasts of a rate with all half-lives and spreads, and the weight of each."""

    weight: NDArray[Any]
    shape: NDArray[Any]
    """Shape of the Gamma law of each forecast's rate. [1]"""
    scale: NDArray[Any]
    """Rate parameter of that law. [unit of exposure]"""
    spread: NDArray[Any]
    """Variance of each forecast's counts over their mean. [1]"""


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """Failures that are expected of the next days."""

    days: float
    """Length of the forecast. [d]"""
    lower: int
    """Lower end of the band. [1]"""
    mean: float
    """Expected failures. [1]"""
    upper: int
    """Upper end of the band. [1]"""


def mixture(
    lengths: NDArray[Any], exposure: NDArray[Any], failures: NDArray[Any], *, ahead: float
) -> RateForecasts:
    """Forecasts of the rate in the next `ahead` days [d], from past spans in order. Ours. []

    `lengths` is the length of each span [d], `exposure` its exposure, `failures` its failures [1].
    """
    time = np.append(0.0, np.cumsum(lengths))
    watched, failed = (np.append(0.0, np.cumsum(counts)) for counts in (exposure, failures))
    half_life, spread = (part.ravel() for part in np.meshgrid(HALF_LIVES, SPREADS, indexing="ij"))
    shape, scale = _remembered(lengths, exposure, failures, half_life, spread)
    usual = np.maximum(failed + JEFFREYS, JEFFREYS) / np.maximum(watched, 1e-300)
    faded = np.exp2(-ahead / 2 / half_life)  # by the middle of the days ahead
    shape, scale = shape * faded + JEFFREYS, scale * faded + JEFFREYS / usual[:, None]
    window = min(ahead, JUDGED)
    end = np.searchsorted(time, time + window - _NEAR)
    start = np.flatnonzero((end < len(time)) & (watched > 0))
    stop = end[start]
    failures_ahead, exposure_ahead = (
        (sums[stop] - sums[start])[:, None] for sums in (failed, watched)
    )
    log_chances = log_chance(failures_ahead, exposure_ahead, shape[start], scale[start], spread)
    worth = np.exp2((time[stop] - time[-1]) / TRUST) * np.diff(time)[start] / window
    # The prior, spread^-1/2, believes steadier forecasts more until windows tell.
    log_weight = (log_chances * worth[:, None]).sum(axis=0) - np.log(spread) / 2
    weight = np.exp(log_weight - log_weight.max())
    return RateForecasts(
        weight=weight / weight.sum(), shape=shape[-1], scale=scale[-1], spread=spread
    )


def present_evidence(forecasts: RateForecasts) -> tuple[float, float]:
    """Failures and exposure that say as much of the rate ahead as the whole past does: they give a
    Gamma law of the same mean and variance. Ours. [1, unit of exposure]

    >>> steady = mixture(np.ones(90), np.full(90, 100.0), np.tile([1, 0, 0], 30), ahead=30.0)
    >>> failures, exposure = present_evidence(steady)
    >>> round(failures), round(failures / exposure, 4)
    (11, 0.0032)
    """
    rate = forecasts.shape / forecasts.scale
    mean = float(forecasts.weight @ rate)
    shape = mean**2 / float(forecasts.weight @ (rate / forecasts.scale + rate**2) - mean**2)
    return max(0.0, shape - JEFFREYS), shape / mean


def outlook(
    forecasts: RateForecasts, ahead: float, exposure: float, level: Ratio = LEVEL
) -> Outlook:
    """Failures of the next `ahead` days [d], in which the exposure is known. Ours. [1]

    >>> steady = mixture(np.ones(60), np.full(60, 100.0), np.tile([1, 0, 0, 1], 15), ahead=7.0)
    >>> week = outlook(steady, 7.0, 700.0)
    >>> week.lower, round(week.mean, 1), week.upper
    (1, 3.5, 7)
    """
    mean = exposure * forecasts.shape / forecasts.scale
    below = np.cumsum(_chances(forecasts, exposure))
    lower, upper = (
        int(np.searchsorted(below, end))
        if end < below[-1]
        else _least_count(forecasts, exposure, end)
        for end in ((1 - level) / 2, (1 + level) / 2)
    )
    return Outlook(days=ahead, lower=lower, mean=float(forecasts.weight @ mean), upper=upper)


def _chances(forecasts: RateForecasts, exposure: float) -> NDArray[Any]:
    """Chances of the counts 0, 1, 2, … below `_COUNTED`. [1]"""
    counts = np.arange(float(_COUNTED))[:, None]
    chances: NDArray[Any] = (
        np.exp(log_chance(counts, exposure, forecasts.shape, forecasts.scale, forecasts.spread))
        @ forecasts.weight
    )
    return chances


def _least_count(forecasts: RateForecasts, exposure: float, share: Ratio) -> int:
    """Least count that is not exceeded with a chance of `share`, by halving: it may be millions.
    [1]
    """
    size, excess = _dispersed(exposure, forecasts.shape, forecasts.scale, forecasts.spread)

    def is_enough(count: int) -> bool:
        return bool(forecasts.weight @ beta_below(size, count + 1.0, 1 / (1 + excess)) >= share)

    enough = 2 * _COUNTED
    while not is_enough(enough):
        enough *= 2
    return bisect_left(range(enough), True, lo=_COUNTED, key=is_enough)


def _dispersed(exposure: Any, shape: Any, scale: Any, spread: Any) -> tuple[Any, Any]:
    """Size of a negative binomial, and its variance over its mean, less one. [1, 1]"""
    mean = np.maximum(exposure * shape / scale, 1e-9)
    excess = np.maximum(spread - 1 + exposure / scale, 1e-6)
    return mean / excess, excess


def log_chance(count: Any, exposure: Any, shape: Any, scale: Any, spread: Any) -> NDArray[Any]:
    """Log chance of a count: negative binomial with a Gamma rate and a spread. Ours. [1]"""
    size, excess = _dispersed(exposure, shape, scale, spread)
    chance: NDArray[Any] = (
        log_gamma(count + size)
        - log_gamma(size)
        - log_gamma(count + 1)
        - (size + count) * np.log1p(excess)
        + count * np.log(excess)
    )
    return chance


def _remembered(
    lengths: NDArray[Any],
    exposure: NDArray[Any],
    failures: NDArray[Any],
    half_life: NDArray[Any],
    spread: NDArray[Any],
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Failures and exposure that each forecast remembers after each span. [1, unit of exposure]"""
    shape, scale = np.zeros((2, len(lengths) + 1, len(half_life)))
    for row, span in enumerate(lengths):
        kept = np.exp2(-span / half_life)
        shape[row + 1] = shape[row] * kept + failures[row] / spread
        scale[row + 1] = scale[row] * kept + exposure[row] / spread
    return shape, scale
