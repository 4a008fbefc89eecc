"""Failures of the next days, where rates move: a mixture of forecasts that is weighed by how well
each said what came.

A forecast forgets with a half-life h and takes counts of a day to have a variance of `batch` times
their mean:

    rate ~ Gamma(a, b)
    a, b <- 2^(-d/h) a, b + failures / batch, exposure / batch    after every span of d days
    failures of the next W days ~ negative binomial, of the mean that this rate has

What is forgotten goes back to the mean of the whole past, with the weight of half a failure. Each
forecast is weighed by the likelihood of all windows of W days, a fortnight at most, that are over,
of which old ones count less. So how fast a fleet's rate moves, and how much its failures cluster,
is learned from the fleet itself.
"""

from __future__ import annotations

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
"""Age at which a window counts half in judging forecasts. [d]"""
JUDGED: Final = 14.0
"""Longest windows by which forecasts are judged: longer ones are too few. [d]"""
_COUNTED: Final = 256
"""Counts whose chances are added up one by one; where more failures may come, the end of the band
is sought by halving. [1]
"""
_NEAR: Final = 0.25
"""By how much a window of whole spans may be shorter than asked. [d]"""


@dataclass(frozen=True, kw_only=True)
class RateForecasts:
    """Forecasts of a rate with all half-lives and spreads, and the weight of each."""

    weight: NDArray[Any]
    shape: NDArray[Any]
    """Gamma shape of its rate. [1]"""
    scale: NDArray[Any]
    """Gamma rate of it. [unit of exposure]"""
    spread: NDArray[Any]
    """Variance of its counts over their mean. [1]"""


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """Failures that are expected of the next days."""

    days: float
    """How far it looks. [d]"""
    lower: int
    """Lower end of the band. [1]"""
    mean: float
    """What is expected. [1]"""
    upper: int
    """Upper end. [1]"""


def mixture(
    lengths: NDArray[Any], exposure: NDArray[Any], failures: NDArray[Any], *, ahead: float
) -> RateForecasts:
    """What spans of time in their order say of the rate in the next `ahead` days [d]. Ours. []

    `lengths` is the length of each span [d], `exposure` what was watched in it, `failures` what was
    seen [1].
    """
    time = np.append(0.0, np.cumsum(lengths))
    watched, seen = (np.append(0.0, np.cumsum(one)) for one in (exposure, failures))
    half_life, spread = (part.ravel() for part in np.meshgrid(HALF_LIVES, SPREADS, indexing="ij"))
    shape, scale = _remembered(lengths, exposure, failures, half_life, spread)
    usual = np.maximum(seen + JEFFREYS, JEFFREYS) / np.maximum(watched, 1e-300)
    faded = np.exp2(-ahead / 2 / half_life)  # by the middle of the days ahead
    shape, scale = shape * faded + JEFFREYS, scale * faded + JEFFREYS / usual[:, None]
    judged = min(ahead, JUDGED)
    end = np.searchsorted(time, time + judged - _NEAR)
    start = np.flatnonzero((end < len(time)) & (watched > 0))
    stop = end[start]
    came, over = ((one[stop] - one[start])[:, None] for one in (seen, watched))
    known = log_chance(came, over, shape[start], scale[start], spread)
    worth = np.exp2((time[stop] - time[-1]) / TRUST) * np.diff(time)[start] / judged
    log = (known * worth[:, None]).sum(axis=0) - np.log(
        spread
    ) / 2  # at first the steadier are believed more
    weight = np.exp(log - log.max())
    return RateForecasts(
        weight=weight / weight.sum(), shape=shape[-1], scale=scale[-1], spread=spread
    )


def present(forecasts: RateForecasts) -> tuple[float, float]:
    """The past as evidence of the rate ahead: failures, and the exposure in which they were; a
    Gamma of like mean and variance. Ours. [1, unit of exposure]

    >>> steady = mixture(np.ones(90), np.full(90, 100.0), np.tile([1, 0, 0], 30), ahead=30.0)
    >>> failures, exposure = present(steady)
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
    """Failures of so many days [d], with so much exposure in them. Ours. [1]

    >>> steady = mixture(np.ones(60), np.full(60, 100.0), np.tile([1, 0, 0, 1], 15), ahead=7.0)
    >>> coming = outlook(steady, 7.0, 700.0)
    >>> coming.lower, round(coming.mean, 1), coming.upper
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


def _chances(of: RateForecasts, exposure: float) -> NDArray[Any]:
    """Probabilities of the counts 0, 1, 2, … up to a number that is hardly ever exceeded. [1]"""
    counts = np.arange(float(_COUNTED))[:, None]
    chances: NDArray[Any] = (
        np.exp(log_chance(counts, exposure, of.shape, of.scale, of.spread)) @ of.weight
    )
    return chances


def _least_count(of: RateForecasts, exposure: float, share: Ratio) -> int:
    """Least count not passed with a chance of `share`, by halving: it may be millions. [1]"""
    size, over = _dispersed(exposure, of.shape, of.scale, of.spread)

    def below(count: int) -> bool:
        return bool(of.weight @ beta_below(size, count + 1.0, 1 / (1 + over)) < share)

    least, most = _COUNTED - 1, 2 * _COUNTED
    while below(most):
        least, most = most, 2 * most
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (middle, most) if below(middle) else (least, middle)
    return most


def _dispersed(exposure: Any, shape: Any, scale: Any, spread: Any) -> tuple[Any, Any]:
    """Size of a negative binomial, and its variance over its mean, less one. [1, 1]"""
    mean = np.maximum(exposure * shape / scale, 1e-9)
    over = np.maximum(spread - 1 + exposure / scale, 1e-6)
    return mean / over, over


def log_chance(count: Any, exposure: Any, shape: Any, scale: Any, spread: Any) -> NDArray[Any]:
    """Log chance of a count: negative binomial with a Gamma rate and a spread. Ours. [1]"""
    size, over = _dispersed(exposure, shape, scale, spread)
    chance: NDArray[Any] = (
        log_gamma(count + size)
        - log_gamma(size)
        - log_gamma(count + 1)
        - (size + count) * np.log1p(over)
        + count * np.log(over)
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
    for at, span in enumerate(lengths):
        kept = np.exp2(-span / half_life)
        shape[at + 1] = shape[at] * kept + failures[at] / spread
        scale[at + 1] = scale[at] * kept + exposure[at] / spread
    return shape, scale
