"""Laws of the two random times of a job: recovery after a failure (R), and the time to the next
failure (X).

When failures are Poisson, a recovery law enters the exact model through E exp(-Lam R). For any
other law of failures it enters through E f(R), which `nodes_of` turns into a short weighted sum.

A law of X enters through two functions of the time t since the job runs again:

    alive(t)   = P(X > R + t)                       the run lasts at least t
    lattice(t) = sum over n >= 0 of alive(t + n T)  how many points of a lattice of period T it hits

For exponential X, and for mixtures of exponentials, both are short sums of exponentials and exact.
For any other law `alive` is read from a Chebyshev series in log t (made once, good to 1e-9). Then
the lattice sum is its first terms, and Euler-Maclaurin for the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mofa_model.records import dataclass
from mofa_model.spec.reliability import FailureLaw, Hangs, RecoveryTime, Reliability
from mofa_model.units import Numeric, Ratio, Seconds

_STEPS: Final = np.linspace(-7.5, 7.5, 65)
"""Trapezoid nodes in standard deviations: for a Gaussian weight the rule is exact to 1e-12."""
_WEIGHTS: Final = np.exp(-0.5 * _STEPS * _STEPS) / np.sum(np.exp(-0.5 * _STEPS * _STEPS))
_LOG_STEPS: Final = np.linspace(-34.0, 4.0, 129)
"""Trapezoid nodes of log(R / mean) for the exponential law, from 1e-15 to 55 means."""
_LOG_WEIGHTS: Final = np.exp(_LOG_STEPS - np.exp(_LOG_STEPS)) / np.sum(
    np.exp(_LOG_STEPS - np.exp(_LOG_STEPS))
)


NEVER: Final = 1e-300
"""Replaces a rate of zero in a divisor. [1/s]"""


@dataclass(frozen=True, kw_only=True)
class FailureSource:
    """One cause of a job's failures: its share, its recovery, the tier from which it restarts."""

    name: str
    share: float
    """Share of the job's failures; it does not depend on the number of nodes. [1]"""
    recovery_laws: tuple[RecoveryTime, ...]
    """Independent parts of the recovery time: the queue, then the recovery."""
    tier: int
    """Nearest tier whose saves survive such a failure."""


def node_rate(reliability: Reliability) -> float:
    """Failure rate of a job over its nodes: lambda of each class, and rate / h of each domain of h
    nodes. Source: Poisson processes add. [1/s per node]
    """
    return sum(
        (domain.rate / domain.nodes for domain in reliability.domains),
        sum(mode.rate.mean for mode in reliability.classes),
    )


@lru_cache(maxsize=64)  # a search asks for the same few at every ETTR
def sources_of(reliability: Reliability) -> tuple[FailureSource, ...]:
    """Causes of failure with their shares; hangs are causes of their own. Source: Poisson processes
    add. []
    """
    total, queue = node_rate(reliability), reliability.queue
    causes = []
    for mode in reliability.classes:
        parts = _stated(queue if mode.queues else None, mode.wait, mode.recovery)
        causes.append((mode.name, mode.rate.mean, parts, mode.tier))
    for domain in reliability.domains:
        parts = _stated(queue, domain.recovery)
        causes.append((domain.name, domain.rate / domain.nodes, parts, domain.tier))
    if (hangs := reliability.hangs) is not None:
        causes = [part for cause in causes for part in _hangs_apart(*cause, hangs)]
    return tuple(
        FailureSource(
            name=name,
            share=rate / total if total > 0 else 1 / len(causes),
            recovery_laws=recoveries,
            tier=tier,
        )
        for name, rate, recoveries, tier in causes
    )


def _stated(*parts: RecoveryTime | None) -> tuple[RecoveryTime, ...]:
    """The parts of a recovery time that are given."""
    return tuple(part for part in parts if part is not None)


def _hangs_apart(
    name: str, rate: float, recoveries: tuple[RecoveryTime, ...], tier: int, hangs: Hangs
) -> list[tuple[str, float, tuple[RecoveryTime, ...], int]]:
    """A cause split in two: failures that end processes, and hangs. Source: Poisson thinning."""
    wait = RecoveryTime(mean=hangs.timeout, law="deterministic")
    ended = (name, (1 - hangs.share) * rate, recoveries, tier)
    hung = (f"{name}, hung", hangs.share * rate, (wait, *recoveries), tier)
    return [*([ended] if hangs.share < 1 else []), *([hung] if hangs.share else [])]


def mean_of(recovery_laws: tuple[RecoveryTime, ...]) -> Seconds:
    """Mean recovery time of a cause, its parts added. Source: linearity. [s]

    >>> mean_of((RecoveryTime(mean=60.0), RecoveryTime(mean=300.0)))
    360.0
    """
    return sum((law.mean for law in recovery_laws), 0.0)


def laplace_of(recovery_law: RecoveryTime, rate: Numeric) -> Ratio:
    """E exp(-s R), the chance that no failure comes while recovering. Source: moment generating
    functions. [1]

    `rate` is s [1/s].

    >>> round(float(laplace_of(RecoveryTime(mean=600.0, law="exponential"), 1 / 600)), 6)
    0.5
    """
    if _is_fixed(recovery_law):
        return np.exp(-rate * recovery_law.mean)
    if recovery_law.law == "exponential":
        return 1 / (1 + rate * recovery_law.mean)
    values, weights = nodes_of(recovery_law)
    total: Ratio = 0.0
    for value, weight in zip(values, weights, strict=True):
        total = total + weight * np.exp(-rate * value)
    return total


def laplace_slope(recovery_law: RecoveryTime, rate: Numeric) -> Seconds:
    """E R exp(-s R), minus the slope of `laplace_of`. Source: moment generating functions. [s]

    >>> round(float(laplace_slope(RecoveryTime(mean=600.0, law="exponential"), 1 / 600)), 6)
    150.0
    """
    values, weights = nodes_of(recovery_law)
    total: Seconds = 0.0
    for value, weight in zip(values, weights, strict=True):
        total = total + weight * value * np.exp(-rate * value)
    return total


def survival_of_recovery(sources: tuple[FailureSource, ...], rate: Numeric) -> Ratio:
    """Chance that a recovery is not itself hit by a failure (phi): E exp(-s R), over causes by
    their share. Ours. [1]

    `rate` is s, the failures that may hit it [1/s].

    >>> law = RecoveryTime(mean=600.0, law="exponential")
    >>> one = FailureSource(name="job", share=1.0, recovery_laws=(law,), tier=0)
    >>> round(float(survival_of_recovery((one,), 1 / 600)), 6)
    0.5
    """
    phi: Ratio = 0.0
    total = sum(source.share for source in sources)
    for source in sources:
        part: Ratio = source.share / total
        for recovery in source.recovery_laws:
            part = part * laplace_of(recovery, rate)
        phi = phi + part
    return phi


def nodes_of(recovery_law: RecoveryTime) -> tuple[NDArray[Any], NDArray[Any]]:
    """Recovery times and weights so that E f(R) = sum of weight x f(time), for smooth f. Source:
    trapezoid rule in log R. [s, 1]

    >>> values, weights = nodes_of(RecoveryTime(mean=600.0, cv=1.5))
    >>> round(float(np.sum(values * weights)), 6)
    600.0
    """
    mean, cv = recovery_law.mean, recovery_law.cv
    if _is_fixed(recovery_law):
        return np.array([mean]), np.array([1.0])
    if recovery_law.law == "exponential":
        return mean * np.exp(_LOG_STEPS), _LOG_WEIGHTS
    sigma = np.sqrt(np.log1p(cv * cv))
    return mean * np.exp(sigma * _STEPS - 0.5 * sigma * sigma), _WEIGHTS


def nodes_of_sum(recovery_laws: tuple[RecoveryTime, ...]) -> tuple[NDArray[Any], NDArray[Any]]:
    """As `nodes_of`, for a sum of independent recovery times. Source: product rule. [s, 1]"""
    values, weights = np.zeros(1), np.ones(1)
    for recovery in recovery_laws:
        times, shares = nodes_of(recovery)
        values = np.add.outer(values, times).ravel()
        weights = np.multiply.outer(weights, shares).ravel()
    return values, weights


def _is_fixed(recovery: RecoveryTime) -> bool:
    spread = recovery.cv > 0 or recovery.law == "exponential"
    return recovery.law == "deterministic" or recovery.mean == 0 or not spread


_FIRST: Final = np.arange(24.0)
"""First terms of a lattice sum, which are added one by one; Euler-Maclaurin gives the rest."""
_DEGREE: Final = 160
"""Degree of the Chebyshev series: enough, because the laws are smooth in log t."""
_EXACT: Final = 1e-11
"""Coefficients of the series are left out where they are smaller, over the largest value. [1]"""
_POINTS: Final = 48
"""Points of the Gauss-Legendre rule. Ours."""


@cache
def _gauss() -> tuple[NDArray[Any], NDArray[Any]]:
    """Nodes and weights of the Gauss-Legendre rule, computed when a law first needs them."""
    nodes, weights = np.polynomial.legendre.leggauss(_POINTS)
    return nodes, weights


@dataclass(frozen=True)
class ExponentialRun:
    """A run whose X is exponential, or a mixture of exponentials: alive(t) = sum of share x
    exp(-rate t).
    """

    terms: tuple[tuple[Ratio, Numeric], ...]
    """Of each component: its share times the chance to survive the recovery, and its rate."""

    def alive(self, t: Seconds) -> Ratio:
        """Chance that the run lasts at least t. [1]"""
        total: Ratio = 0.0
        for share, rate in self.terms:
            total = total + share * np.exp(-rate * t)
        return total

    def lattice(self, t: Seconds, period: Seconds) -> Ratio:
        """How many of the times t, t + period, t + 2 periods, … the run is expected to reach: a
        geometric series for each component. [1]
        """
        total: Ratio = 0.0
        for share, rate in self.terms:
            total = total + share * np.exp(-rate * t) / -np.expm1(
                -np.maximum(rate * period, 1e-300)
            )
        return total

    def lattice_of(
        self,
        period: float,
        longest: float,  # noqa: ARG002
    ) -> Callable[[Seconds], Ratio]:
        """`lattice` at one period, as a function of t. []"""
        return lambda t: self.lattice(t, period)


@dataclass(frozen=True)
class GeneralRun:
    """A run whose X has any survival function."""

    curve: Callable[[NDArray[Any]], NDArray[Any]]
    horizon: Seconds
    """Time after which no run goes on, to double precision. [s]"""

    def alive(self, t: Seconds) -> Ratio:
        """Chance that the run lasts at least t. [1]"""
        return self.curve(np.asarray(t, dtype=float))

    def lattice(self, t: Seconds, period: Seconds) -> Ratio:
        """How many of the times t, t + period, t + 2 periods, … the run is expected to reach: first
        terms one by one, then Euler-Maclaurin. [1]
        """
        t, period = np.broadcast_arrays(np.asarray(t, dtype=float), np.asarray(period, dtype=float))
        direct = np.sum(self.curve(np.add.outer(_FIRST, np.zeros(t.shape)) * period + t), axis=0)
        a = t + len(_FIRST) * period
        step = period / 8
        at, above, below = self.curve(np.stack([a, a + step, a - step]))
        slope = (above - below) / (2 * step)
        total: Ratio = direct + self._tail(a) / period + at / 2 - slope * period / 12
        return total

    def lattice_of(self, period: float, longest: float) -> Callable[[Seconds], Ratio]:
        """`lattice` at one period, as a cheap function of t, for t up to `longest`. []"""
        # The series resolves times from a thousandth of the period on.
        series = _series(lambda t: np.asarray(self.lattice(t, period)), 1e-3 * period, longest)
        return lambda t: series(np.asarray(t, dtype=float))

    def _tail(self, a: NDArray[Any]) -> NDArray[Any]:
        """Integral of alive from a to the horizon, by Gauss-Legendre in log time. [s]"""
        span = np.log(np.maximum(self.horizon / a, 1.0))
        nodes, weights = _gauss()
        x = a * np.exp(np.multiply.outer((nodes + 1) / 2, span))
        total: NDArray[Any] = np.tensordot(weights, x * self.curve(x), axes=1) * span / 2
        return total


Uptime: TypeAlias = ExponentialRun | GeneralRun
"""How long the job runs between the end of a recovery and the next failure."""


def components_of(law: FailureLaw, rate: Numeric) -> tuple[tuple[float, Numeric], ...]:
    """Shares and rates of an exponential mixture whose mean is 1 / rate. Source: mixture means add.
    [1, 1/s]

    `rate` is the job's failures [1/s].

    >>> components_of(FailureLaw(kind="mixture", short_share=0.5, short_mean=0.5), 1.0)
    ((0.5, 2.0), (0.5, 0.6666666666666666))
    """
    p, short = law.short_share, law.short_mean
    if law.kind != "mixture" or p == 0:
        return ((1.0, rate),)
    return ((p, rate / short), (1 - p, rate * (1 - p) / (1 - p * short)))


def weibull_survival(t: Seconds, rate: Numeric, shape: float) -> Ratio:
    """P(X > t) of a Weibull law with mean 1 / rate: exp(-(t Gamma(1 + 1/k) rate)^k). Source:
    Weibull 1951. [1]

    `rate` is the job's failures [1/s]; `shape` is k [1].

    >>> round(float(weibull_survival(1.0, 1.0, 1.0)), 6)
    0.367879
    """
    from math import gamma

    return np.exp(-np.power(t * gamma(1 + 1 / shape) * rate, shape))


@lru_cache(maxsize=64)  # a search for an interval asks for the same job a thousand times
def run_after(
    sources: tuple[FailureSource, ...], rate: float, law: FailureLaw, *, during_recovery: bool
) -> Uptime:
    """The run that follows a failure by one of `sources`, weighed by their shares. Ours. []

    `rate` is the job's failures from all causes [1/s]. Where `during_recovery` is false, nothing
    fails while the job recovers.
    """
    if law.kind != "weibull":
        parts = components_of(law, rate)
        return ExponentialRun(
            tuple(
                (share * (survival_of_recovery(sources, part) if during_recovery else 1.0), part)
                for share, part in parts
            )
        )
    values, weights = _delays(sources) if during_recovery else (np.zeros(1), np.ones(1))
    horizon = _horizon(rate, law.shape)

    def alive(t: NDArray[Any]) -> NDArray[Any]:
        survived = weibull_survival(np.add.outer(t, values), rate, law.shape)
        total: NDArray[Any] = survived @ weights
        return total

    return GeneralRun(_series(alive, 1e-5 / rate, horizon), horizon)


def _delays(sources: tuple[FailureSource, ...]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Recovery times after a failure of any source, and the chance of each. [s], [1]"""
    total = sum(source.share for source in sources)
    values, weights = [], []
    for source in sources:
        times, shares = nodes_of_sum(source.recovery_laws)
        values.append(times)
        weights.append(shares * (source.share / total))
    return np.concatenate(values), np.concatenate(weights)


def _horizon(rate: float, shape: float) -> float:
    """Time after which a Weibull law with mean 1 / rate is below 1e-16 = exp(-36.8). [s]"""
    from math import gamma

    return float(np.power(36.8, 1 / shape) / (rate * gamma(1 + 1 / shape)))


def _series(
    function: Callable[[NDArray[Any]], NDArray[Any]], offset: float, longest: float
) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """A Chebyshev series of `function` in log(t + offset) up to `longest`; zero after it."""
    low, high = np.log(offset), np.log(longest + offset)

    def inner(x: NDArray[Any]) -> NDArray[Any]:
        return function(np.maximum(0.0, np.exp(low + (high - low) * (x + 1) / 2) - offset))

    chebyshev = np.polynomial.chebyshev
    full = np.asarray(
        chebyshev.chebinterpolate(inner, _DEGREE),  # type: ignore[type-var]
        dtype=float,
    )
    coefficients = chebyshev.chebtrim(full, _EXACT * float(np.max(np.abs(full))))

    def curve(t: NDArray[Any]) -> NDArray[Any]:
        x = 2 * (np.log(np.minimum(t, longest) + offset) - low) / (high - low) - 1
        value = chebyshev.chebval(np.clip(x, -1.0, 1.0), coefficients)
        return np.where(t <= longest, np.maximum(value, 0.0), 0.0)

    return curve
