"""What counts say about a rate: posterior, intervals, and whether an assumed rate still stands.

    failures ~ Poisson(rate x exposure),   rate ~ Gamma(prior)   =>   rate | data ~ Gamma(prior + failures, prior + exposure)

The default prior is Jeffreys', Gamma(1/2, 0). Rates are in the unit of the exposure: give node-seconds for 1/s, node-days
for failures per node-day. scipy's special functions are imported where they are used.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from mofa_model.checks import not_negative, positive
from mofa_model.errors import BadValue
from mofa_model.units import Count, Numeric, Ratio

LEVEL: Final = 0.9
"""Level of intervals when none is asked for. [1]"""
ALARM: Final = 0.05
"""Chance of a false alarm when none is asked for. [1]"""
ENOUGH: Final = 1.0
"""Expected events under the assumption below which silence says nothing. [1]"""
JEFFREYS: Final = 0.5
"""Failures that Jeffreys' prior is worth; its exposure is zero. [1]"""


class Verdict(StrEnum):
    """What data say of an assumed rate."""

    CONSISTENT = "Consistent"
    HIGHER = "HigherThanAssumed"
    LOWER = "LowerThanAssumed"
    INSUFFICIENT = "InsufficientData"


@dataclass(frozen=True, kw_only=True, slots=True)
class Posterior:
    """A Gamma posterior of a rate, with what it came from."""

    failures: Count
    """Failures seen. [1]"""
    exposure: Numeric
    """Exposure watched. [node s or node d]"""
    shape: Numeric
    """Gamma shape: failures and the prior's weight. [1]"""
    scale: Numeric
    """Gamma rate: exposure and the prior's. [unit of exposure]"""

    @property
    def mean(self) -> Numeric:
        """Posterior mean of the rate. [1 / unit of exposure]"""
        return self.shape / self.scale

    @property
    def prior_weight(self) -> Ratio:
        """Share of the posterior that is the prior's. [1]"""
        return 1 - self.failures / self.shape


def posterior(
    failures: Count, exposure: Numeric, *, prior_failures: Numeric = JEFFREYS, prior_exposure: Numeric = 0.0
) -> Posterior:
    """Posterior of a rate from counts. Source: Gamma-Poisson conjugacy. []

    >>> round(float(posterior(419, 110592.0).mean), 6)
    0.003793
    """
    not_negative(
        failures=failures, exposure=exposure, prior_failures=prior_failures, prior_exposure=prior_exposure
    )
    scale = np.asarray(exposure + prior_exposure)
    if not np.all(scale > 0):
        raise BadValue("exposure", exposure, "give an exposure above zero, or a prior with some")
    shape = np.asarray(failures + prior_failures)
    if not np.all(shape > 0):
        raise BadValue(
            "prior_failures", prior_failures, "with no failures the prior needs a weight above zero"
        )
    return Posterior(failures=failures, exposure=exposure, shape=shape[()], scale=scale[()])


def quantile(of: Posterior, chance: Ratio) -> Numeric:
    """Quantile of a posterior. Source: inverse of the incomplete gamma function. [1 / unit of exposure]

    >>> round(float(quantile(posterior(5, 1000.0), 0.95)), 6)
    0.009838
    """
    from scipy.special import gammaincinv

    value: Numeric = gammaincinv(of.shape, chance) / of.scale
    return value


def credible_interval(of: Posterior, level: Ratio = LEVEL) -> tuple[Numeric, Numeric]:
    """Equal-tailed credible interval of a rate. Source: Gamma quantiles. [1 / unit of exposure]

    >>> [round(float(x), 7) for x in credible_interval(posterior(0, 500.0))]
    [3.9e-06, 0.0038415]
    """
    _level(level)
    return quantile(of, (1 - level) / 2), quantile(of, (1 + level) / 2)


def garwood_interval(failures: Count, exposure: Numeric, level: Ratio = LEVEL) -> tuple[Numeric, Numeric]:
    """Exact confidence interval of a rate, never below its level. Source: Garwood 1936. [1 / unit of exposure]

    >>> [round(float(x), 3) for x in garwood_interval(3, 1.0, 0.95)]
    [0.619, 8.767]
    """
    from scipy.special import gammaincinv

    _level(level)
    not_negative(failures=failures)
    positive(exposure=exposure)
    k = np.asarray(failures, dtype=float)
    low = np.where(k > 0, gammaincinv(np.maximum(k, 1.0), (1 - level) / 2), 0.0)
    return (low / exposure)[()], (gammaincinv(k + 1, (1 + level) / 2) / exposure)[()]


def mid_p(failures: Count, expected: Numeric) -> Ratio:
    """Two-sided exact mid-p value of a count against a Poisson mean. Source: Lancaster 1961. [1]

    >>> round(float(mid_p(0, 3.0)), 7)
    0.0497871
    """
    low, high = _tails(failures, expected)
    p: Ratio = np.minimum(1.0, 2 * np.minimum(low, high))
    return p


def e_value(failures: Count, expected: Numeric, prior: float = 1.0) -> Numeric:
    """Evidence against an assumed rate that may be looked at all the time: Gamma(s, s) mixture of Poisson ratios. Source: Robbins 1970. [1]

    e = s^s / Gamma(s) x Gamma(s + k) / (s + mu)^(s + k) x exp(mu); the chance that it ever passes 1 / alpha is at most
    alpha while the assumption holds. At most 1e300.

    >>> round(float(e_value(0, 3.0)), 4)
    5.0214
    """
    from scipy.special import gammaln

    not_negative(failures=failures, expected=expected)
    k, mu, s = failures, expected, prior
    log = s * np.log(s) - gammaln(s) + gammaln(s + k) - (s + k) * np.log(s + mu) + mu
    evidence: Numeric = np.exp(np.clip(log, -690.0, 690.0))
    return evidence


def verdict(failures: float, expected: float, *, alarm: Ratio = ALARM) -> Verdict:
    """A single look at counts: does the assumed rate stand? Exact mid-p test; little data is said so. Source: Lancaster 1961. []

    >>> verdict(419, 0.005 * 110592).value
    'LowerThanAssumed'
    """
    not_negative(failures=failures, expected=expected)
    if expected == 0:
        return Verdict.HIGHER if failures > 0 else Verdict.INSUFFICIENT
    if float(mid_p(failures, expected)) < alarm:
        return Verdict.HIGHER if failures > expected else Verdict.LOWER
    return Verdict.CONSISTENT if expected >= ENOUGH else Verdict.INSUFFICIENT


def live_verdict(failures: float, expected: float, *, alarm: Ratio = ALARM) -> Verdict:
    """As `verdict`, for a panel that looks all the time: by the e-value, whose alarms stay rare however often one looks. []

    Source: Ville 1939.

    >>> live_verdict(30, 10.0).value
    'HigherThanAssumed'
    """
    not_negative(failures=failures, expected=expected)
    if expected == 0:
        return Verdict.HIGHER if failures > 0 else Verdict.INSUFFICIENT
    if float(e_value(failures, expected)) >= 1 / alarm:
        return Verdict.HIGHER if failures > expected else Verdict.LOWER
    return Verdict.CONSISTENT if expected >= ENOUGH else Verdict.INSUFFICIENT


def _tails(failures: Count, expected: Numeric) -> tuple[Ratio, Ratio]:
    """P(X < k) + P(X = k) / 2, and the same above. [1]"""
    from scipy.special import gammainc, gammaincc

    not_negative(failures=failures, expected=expected)
    k, mu = np.asarray(failures, dtype=float), np.asarray(expected, dtype=float)
    some = np.maximum(k, 1.0)
    below, at_most = np.where(k > 0, gammaincc(some, mu), 0.0), gammaincc(k + 1, mu)
    above, at_least = gammainc(k + 1, mu), np.where(k > 0, gammainc(some, mu), 1.0)
    return (below + at_most) / 2, (above + at_least) / 2


def _level(level: Ratio) -> None:
    if not np.all((np.asarray(level) > 0) & (np.asarray(level) < 1)):
        raise BadValue("level", level, "give a level between 0 and 1, for example 0.9")
