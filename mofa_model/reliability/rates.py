"""A failure rate from counts of failures: its Gamma posterior and its intervals.

    failures ~ Poisson(rate x exposure),   rate ~ Gamma(prior)
    =>   rate | data ~ Gamma(prior + failures, prior + exposure)

The default prior is Jeffreys', Gamma(1/2, 0). A rate has the unit of its exposure: node-seconds
give 1/s, node-days give failures per node-day.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from mofa_model.checks import not_negative, positive
from mofa_model.errors import BadValue
from mofa_model.records import dataclass
from mofa_model.reliability.special import gamma_quantile
from mofa_model.units import Count, Numeric, Ratio

LEVEL: Final = 0.9
"""Level of intervals when none is asked for. [1]"""
JEFFREYS: Final = 0.5
"""Failures that Jeffreys' prior is worth; its exposure is zero. [1]"""


@dataclass(frozen=True, kw_only=True)
class Posterior:
    """A Gamma posterior of a rate, with the counts that it came from."""

    failures: Count
    exposure: Numeric
    """Exposure watched. [node s or node d]"""
    shape: Numeric
    """Shape: the failures, and those that the prior is worth. [1]"""
    scale: Numeric
    """Rate parameter: the exposure, and the prior's. [unit of exposure]"""

    @property
    def mean(self) -> Numeric:
        """Posterior mean of the rate. [1 / unit of exposure]"""
        return self.shape / self.scale

    @property
    def prior_weight(self) -> Ratio:
        """Share of the posterior that is the prior's. [1]"""
        return 1 - self.failures / self.shape


def posterior(
    failures: Count,
    exposure: Numeric,
    *,
    prior_failures: Numeric = JEFFREYS,
    prior_exposure: Numeric = 0.0,
) -> Posterior:
    """Posterior of a rate from counts. Source: Gamma-Poisson conjugacy. []

    >>> round(float(posterior(419, 110592.0).mean), 6)
    0.003793
    """
    not_negative(
        failures=failures,
        exposure=exposure,
        prior_failures=prior_failures,
        prior_exposure=prior_exposure,
    )
    scale = np.asarray(exposure + prior_exposure)
    if not np.all(scale > 0):
        raise BadValue(
            "exposure", exposure, "give an exposure above zero, or a prior with a weight above zero"
        )
    shape = np.asarray(failures + prior_failures)
    if not np.all(shape > 0):
        raise BadValue(
            "prior_failures", prior_failures, "with no failures the prior needs a weight above zero"
        )
    return Posterior(failures=failures, exposure=exposure, shape=shape[()], scale=scale[()])


def quantile(posterior: Posterior, chance: Ratio) -> Numeric:
    """Quantile of a posterior. Source: inverse of the incomplete gamma function. [1 / unit of
    exposure]

    >>> round(float(quantile(posterior(5, 1000.0), 0.95)), 6)
    0.009838
    """
    value: Numeric = gamma_quantile(posterior.shape, chance) / posterior.scale
    return value


def credible_interval(posterior: Posterior, level: Ratio = LEVEL) -> tuple[Numeric, Numeric]:
    """Equal-tailed credible interval of a rate. Source: Gamma quantiles. [1 / unit of exposure]

    >>> [round(float(x), 7) for x in credible_interval(posterior(0, 500.0))]
    [3.9e-06, 0.0038415]
    """
    _level(level)
    return quantile(posterior, (1 - level) / 2), quantile(posterior, (1 + level) / 2)


def garwood_interval(
    failures: Count, exposure: Numeric, level: Ratio = LEVEL
) -> tuple[Numeric, Numeric]:
    """Exact confidence interval of a rate, never below its level. Source: Garwood 1936. [1 / unit
    of exposure]

    >>> [round(float(x), 3) for x in garwood_interval(3, 1.0, 0.95)]
    [0.619, 8.767]
    """
    _level(level)
    not_negative(failures=failures)
    positive(exposure=exposure)
    k = np.asarray(failures, dtype=float)
    low = np.where(k > 0, gamma_quantile(np.maximum(k, 1.0), (1 - level) / 2), 0.0)
    high = np.asarray(gamma_quantile(k + 1, (1 + level) / 2))
    return (low / exposure)[()], (high / exposure)[()]


def total_exposure(assumed: Mapping[str, float], exposure: Mapping[str, float]) -> float:
    """Exposure of all classes together: the mean of their own, weighted by their assumed rates.
    Ours. [node d]

    With it, the total of the rates expects as many failures as the rates of all classes do.

    >>> round(total_exposure({"pod": 0.003, "job": 0.001}, {"pod": 100.0, "job": 20.0}), 9)
    80.0
    """
    total_rate = sum(assumed.values())
    days = list(exposure.values())
    if total_rate <= 0 or min(days) == max(days):
        return max(days)
    return sum(rate * exposure[name] for name, rate in assumed.items()) / total_rate


def _level(level: Ratio) -> None:
    if not np.all((np.asarray(level) > 0) & (np.asarray(level) < 1)):
        raise BadValue("level", level, "give a level between 0 and 1, for example 0.9")
