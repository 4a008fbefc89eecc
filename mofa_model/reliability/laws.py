"""Laws of the time X between failures of the job, seen through a recovery R that comes first.

The exact model needs two functions of the time t since the job runs again:

    alive(t)   = P(X > R + t)                     the run lasts at least t
    lattice(t) = sum over n >= 0 of alive(t + n T)  how many points of a lattice of period T it passes

For exponential X, and for mixtures of exponentials, both are short sums of exponentials and exact. For any other law
`alive` is read from a Chebyshev series in log t (made once, good to 1e-9) and the lattice sum is taken directly for its
first terms and by Euler-Maclaurin for the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Protocol

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray

from mofa_model.reliability.recovery import FailureSource, nodes_of_sum, survival_of_recovery
from mofa_model.spec.reliability import FailureLaw
from mofa_model.units import Numeric, Ratio, Seconds

_FIRST: Final = np.arange(24.0)
"""Lattice terms taken one by one before Euler-Maclaurin takes over."""
_DEGREE: Final = 160
"""Degree of the Chebyshev series; the laws are smooth in log t."""
_EXACT: Final = 1e-11
"""Coefficients of the series that are smaller than this are left out. [1]"""
_GAUSS: Final = np.polynomial.legendre.leggauss(48)


class Uptime(Protocol):
    """How long the job runs between the end of a recovery and the next failure."""

    def alive(self, t: Seconds) -> Ratio:
        """Chance that it lasts at least t, the recovery survived included. [1]"""

    def lattice(self, t: Seconds, period: Seconds) -> Ratio:
        """Expected number of the times t, t + period, ... that it reaches. [1]"""

    def lattice_of(self, period: float, longest: float) -> Callable[[Seconds], Ratio]:
        """`lattice` at one period, for many times up to `longest`. []"""


@dataclass(frozen=True, slots=True)
class ExponentialRun:
    """X is exponential or a mixture of exponentials: alive(t) = sum of share x exp(-rate t)."""

    terms: tuple[tuple[Ratio, Numeric], ...]
    """Share times survival of the recovery [1], and rate [1/s], of each component."""

    def alive(self, t: Seconds) -> Ratio:
        """Chance that the run lasts at least t. [1]"""
        total: Ratio = 0.0
        for share, rate in self.terms:
            total = total + share * np.exp(-rate * t)
        return total

    def lattice(self, t: Seconds, period: Seconds) -> Ratio:
        """Expected number of lattice times reached: a geometric series per component. [1]"""
        total: Ratio = 0.0
        for share, rate in self.terms:
            total = total + share * np.exp(-rate * t) / -np.expm1(
                -np.maximum(rate * period, 1e-300)
            )
        return total

    def lattice_of(self, period: float, longest: float) -> Callable[[Seconds], Ratio]:  # noqa: ARG002
        """`lattice` at one period. []"""
        return lambda t: self.lattice(t, period)


@dataclass(frozen=True, slots=True)
class GeneralRun:
    """X has any survival function."""

    curve: Callable[[NDArray[Any]], NDArray[Any]]
    """alive(t) on arrays."""
    horizon: Seconds
    """Time that no run outlasts, to double precision. [s]"""

    def alive(self, t: Seconds) -> Ratio:
        """Chance that the run lasts at least t. [1]"""
        return self.curve(np.asarray(t, dtype=float))

    def lattice(self, t: Seconds, period: Seconds) -> Ratio:
        """Expected number of lattice times reached; terms, then Euler-Maclaurin. [1]"""
        t, period = np.broadcast_arrays(np.asarray(t, dtype=float), np.asarray(period, dtype=float))
        direct = np.sum(self.curve(np.add.outer(_FIRST, np.zeros(t.shape)) * period + t), axis=0)
        a = t + len(_FIRST) * period
        step = period / 8
        at, above, below = self.curve(np.stack([a, a + step, a - step]))
        slope = (above - below) / (2 * step)
        total: Ratio = direct + self._tail(a) / period + at / 2 - slope * period / 12
        return total

    def lattice_of(self, period: float, longest: float) -> Callable[[Seconds], Ratio]:
        """`lattice` at one period as a series, for t up to `longest`. []"""
        series = _series(lambda t: np.asarray(self.lattice(t, period)), 1e-3 * period, longest)
        return lambda t: series(np.asarray(t, dtype=float))

    def _tail(self, a: NDArray[Any]) -> NDArray[Any]:
        """Integral of alive from a to the horizon, by Gauss-Legendre in log time. [s]"""
        span = np.log(np.maximum(self.horizon / a, 1.0))
        x = a * np.exp(np.multiply.outer((_GAUSS[0] + 1) / 2, span))
        total: NDArray[Any] = np.tensordot(_GAUSS[1], x * self.curve(x), axes=1) * span / 2
        return total


def components_of(law: FailureLaw, rate: Numeric) -> tuple[tuple[float, Numeric], ...]:
    """Shares and rates of an exponential mixture whose mean is 1 / rate. Source: mixture means add. [1, 1/s]

    `rate` is the job's failures [1/s].

    >>> components_of(FailureLaw(kind="mixture", short_share=0.5, short_mean=0.5), 1.0)
    ((0.5, 2.0), (0.5, 0.6666666666666666))
    """
    p, short = law.short_share, law.short_mean
    if law.kind != "mixture" or p == 0:
        return ((1.0, rate),)
    return ((p, rate / short), (1 - p, rate * (1 - p) / (1 - p * short)))


def weibull_survival(t: Seconds, rate: Numeric, shape: float) -> Ratio:
    """P(X > t) of a Weibull law with mean 1 / rate: exp(-(t Gamma(1 + 1/k) rate)^k). Source: Weibull 1951. [1]

    `rate` is the job's failures [1/s]; `shape` is k [1].

    >>> round(float(weibull_survival(1.0, 1.0, 1.0)), 6)
    0.367879
    """
    from math import gamma

    return np.exp(-np.power(t * gamma(1 + 1 / shape) * rate, shape))


@lru_cache(maxsize=64)  # a search for an interval asks a thousand times for the same job
def run_after(
    sources: tuple[FailureSource, ...], rate: float, law: FailureLaw, *, during_recovery: bool
) -> Uptime:
    """The run that follows a failure by one of `sources`, drawn by their shares. Ours. []

    `rate` is the job's failures from all causes [1/s]; with `during_recovery` false the clock stops while the job
    recovers.
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
    total = sum(source.share for source in sources)
    values, weights = [], []
    for source in sources:
        times, shares = nodes_of_sum(source.recoveries)
        values.append(times)
        weights.append(shares * (source.share / total))
    return np.concatenate(values), np.concatenate(weights)


def _horizon(rate: float, shape: float) -> float:
    """Where a Weibull law with this mean falls below 1e-16. [s]"""
    from math import gamma

    return float(np.power(36.8, 1 / shape) / (rate * gamma(1 + 1 / shape)))


def _series(
    function: Callable[[NDArray[Any]], NDArray[Any]], offset: float, longest: float
) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """A Chebyshev series of `function` in log(t + offset), for t from zero to `longest`; zero beyond."""
    low, high = np.log(offset), np.log(longest + offset)

    def inner(x: NDArray[Any]) -> NDArray[Any]:
        return function(np.maximum(0.0, np.exp(low + (high - low) * (x + 1) / 2) - offset))

    full = np.asarray(chebyshev.chebinterpolate(inner, _DEGREE), dtype=float)  # type: ignore[type-var]
    coefficients = chebyshev.chebtrim(full, _EXACT * float(np.max(np.abs(full))))

    def curve(t: NDArray[Any]) -> NDArray[Any]:
        x = 2 * (np.log(np.minimum(t, longest) + offset) - low) / (high - low) - 1
        value = chebyshev.chebval(np.clip(x, -1.0, 1.0), coefficients)
        return np.where(t <= longest, np.maximum(value, 0.0), 0.0)

    return curve
