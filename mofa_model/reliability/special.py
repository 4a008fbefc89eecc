"""Special functions of the reliability models, on Python and numpy alone: scipy would weigh more
than the rest of an installation, and its import takes longer than a whole search.

Each is right to 1e-11 of its value or better, which tests hold against scipy and exact arithmetic.
Scalars and arrays share the code. Source of the forms: NIST's Digital Library of Mathematical
Functions (DLMF). Densities are worked out from how far their argument lies from its mean, as by
Loader 2000, which loses no digits where the parameters are large.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache, wraps
from typing import Any, Final

import numpy as np

from mofa_model.units import Numeric

_STIRLING: Final = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)
"""Coefficients of Stirling's series. DLMF 5.11.1."""
_LEAST: Final = 10.0
"""From here on seven terms of the series are exact to the last digit. [1]"""
_HALF_LOG_TAU: Final = 0.5 * math.log(2 * math.pi)
_EXACT: Final = 1e-16
_TINY: Final = 1e-300
_FIRST: Final = 1e-20
"""Below it the first term of a series is all of it. [1]"""
_FEW: Final = 700
"""Below this many numbers each is quicker by itself than all of them as an array. [1]"""
_log_gamma_of_each: Final = np.frompyfunc(math.lgamma, 1, 1)
_TERMS: Final = 100_000
"""Most terms of a series or a fraction: some times the root of the largest parameter. [1]"""
_VAST: Final = 1e8
"""Shape from which the cube root of a Gamma variable is normal to twelve digits (Wilson and
Hilferty 1931), and a series would be long. [1]
"""


def _of_arrays(function: Callable[..., float]) -> Callable[..., Any]:
    """A function of numbers that takes arrays, too. []"""
    of_each = np.frompyfunc(function, function.__code__.co_argcount, 1)

    @wraps(function)
    def called(*given: Any) -> Any:
        if all(isinstance(one, (float, int)) for one in given):
            return function(*map(float, given))
        return np.asarray(of_each(*(np.asarray(one, dtype=float) for one in given)), dtype=float)[()]  # fmt: skip

    return called


def log_gamma(x: Numeric) -> Any:
    """Logarithm of the gamma function of positive numbers, quick for many. Source: DLMF 5.11.1. [1]

    >>> round(float(log_gamma(5.0)), 12) == round(math.log(24.0), 12)
    True
    """
    given = np.asarray(x, dtype=float)
    if given.size < _FEW:
        return np.asarray(_log_gamma_of_each(given), dtype=float)[()]
    is_small = given < _LEAST
    shifted = given + _LEAST * is_small
    inverse = 1.0 / shifted
    square = inverse * inverse
    total: Any = _STIRLING[-1]
    for coefficient in _STIRLING[-2::-1]:
        total = total * square + coefficient
    result = np.asarray(
        total * inverse + (shifted - 0.5) * np.log(shifted) - shifted + _HALF_LOG_TAU
    )
    if np.any(is_small):
        small = given[is_small]
        product = small.copy()
        for more in range(1, int(_LEAST)):
            product *= small + more
        result[is_small] -= np.log(product)
    return result[()]


def log_normal_below(z: Numeric) -> Any:
    """Logarithm of the chance that normal variables stay below z, quick for many. Source: DLMF
    7.6.2 and 7.9. [1]

    >>> round(float(log_normal_below(0.0)), 6), round(float(log_normal_below(-40.0)), 3)
    (-0.693147, -804.608)
    """
    at = np.asarray(z, dtype=float)
    inside, outside = np.minimum(np.abs(at), 3.0), np.maximum(np.abs(at), 3.0)
    term = half = inside
    # Up to 3 the series has all digits after 40 terms, beyond it the fraction after 60.
    for odd in range(3, 81, 2):
        term = term * inside * inside / odd
        half = half + term
    half = half * np.exp(-0.5 * inside * inside - _HALF_LOG_TAU)
    tail = outside
    for step in range(60, 0, -1):
        tail = outside + step / tail
    log_tail = -0.5 * outside * outside - _HALF_LOG_TAU - np.log(tail)
    middle = np.log(np.where(at < 0, 0.5 - half, 0.5 + half))
    ends = np.where(at < 0, log_tail, np.log1p(-np.exp(log_tail)))
    return np.where(np.abs(at) <= 3.0, middle, ends)[()]


@_of_arrays
def gamma_below(shape: float, x: float) -> float:
    """Chance that a Gamma variable of unit scale stays below x: the regularised incomplete gamma
    function. Source: DLMF 8.11.4. [1]

    >>> round(gamma_below(1.0, 1.0), 12) == round(1 - math.exp(-1.0), 12)
    True
    """
    return _gamma(shape, x)[0]


@_of_arrays
def gamma_above(shape: float, x: float) -> float:
    """Chance that a Gamma variable of unit scale passes x. Source: DLMF 8.9.2. [1]

    >>> round(gamma_above(3.0, 3.0), 6)
    0.42319
    """
    return _gamma(shape, x)[1]


@_of_arrays
def gamma_quantile(shape: float, chance: float) -> float:
    """Where a Gamma variable of unit scale stays below with a chance. Source: inversion of
    `gamma_below`. [1]

    >>> round(gamma_quantile(2.0, 0.05), 6), round(gamma_quantile(2.0, 0.95), 6)
    (0.355362, 4.743865)
    """
    return _where_gamma_is_below(shape, chance)


@lru_cache(maxsize=1024)
def _where_gamma_is_below(shape: float, chance: float) -> float:
    """`gamma_quantile`, kept in a cache: an operator asks for the same few shapes again and
    again. [1]
    """
    if not 0 < chance < 1:
        return 0.0 if chance <= 0 else math.inf
    if shape > _VAST:
        from statistics import NormalDist

        normal = NormalDist().inv_cdf(chance)
        return float(shape * (1 - 1 / (9 * shape) + normal / (3 * math.sqrt(shape))) ** 3)
    if (first := math.exp((math.log(chance) + math.lgamma(shape + 1)) / shape)) < _FIRST:
        return first
    high = max(1.0, 2 * shape)
    while _gamma(shape, high)[0] < chance:
        high *= 2
    return _where(
        lambda at: _gamma(shape, at),
        lambda at: (shape - 1) * math.log(at) - at - math.lgamma(shape),
        chance, high, start=shape,
    )  # fmt: skip


@_of_arrays
def beta_below(a: float, b: float, x: float) -> float:
    """Chance that a Beta variable stays below x: the regularised incomplete beta function. Source:
    DLMF 8.17.22. [1]

    >>> round(beta_below(2.0, 3.0, 0.4), 6)
    0.5248
    """
    return _beta(a, b, x)[0]


@_of_arrays
def beta_quantile(a: float, b: float, chance: float) -> float:
    """Where a Beta variable stays below with a chance. Source: inversion of `beta_below`. [1]

    >>> round(beta_quantile(2.0, 3.0, 0.5), 6)
    0.385728
    """
    if not 0 < chance < 1:
        return 0.0 if chance <= 0 else 1.0
    of_both = math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    if (first := math.exp((math.log(chance * a) + of_both) / a)) < _FIRST:
        return first
    return _where(
        lambda at: _beta(a, b, at),
        lambda at: (a - 1) * math.log(at) + (b - 1) * math.log1p(-at) - of_both,
        chance, 1.0, start=a / (a + b),
    )  # fmt: skip


def _left(x: float) -> float:
    """Logarithm of the gamma function minus Stirling's formula. [1]"""
    if x < _LEAST:
        return math.lgamma(x) - ((x - 0.5) * math.log(x) - x + _HALF_LOG_TAU)
    total, square = 0.0, 1 / (x * x)
    for coefficient in reversed(_STIRLING):
        total = total * square + coefficient
    return total / x


def _weighed(mean: float, x: float) -> float:
    """Mean log(x / mean). [1]"""
    apart = (x - mean) / mean
    return mean * (math.log1p(apart) if abs(apart) < 0.5 else math.log(x / mean))


def _gamma(shape: float, x: float) -> tuple[float, float]:
    """Chances of a Gamma variable to stay below x, and to pass it. [1, 1]"""
    if x <= 0:
        return 0.0, 1.0
    if shape <= 0:
        return 1.0, 0.0
    if shape > _VAST:
        apart = 3 * math.sqrt(shape) * ((x / shape) ** (1 / 3) - 1 + 1 / (9 * shape))
        return math.erfc(-apart / math.sqrt(2)) / 2, math.erfc(apart / math.sqrt(2)) / 2
    log_front = _weighed(shape, x) + (shape - x) - _left(shape)
    front = math.exp(log_front) * math.sqrt(shape / (2 * math.pi))
    if x < shape + 1:
        term = total = 1 / shape
        for n in range(1, _TERMS):
            term *= x / (shape + n)
            total += term
            if term < total * _EXACT:
                break
        below = min(1.0, front * total)
        return below, 1 - below
    steps = ((-n * (n - shape), x + 1 - shape + 2 * n) for n in range(1, _TERMS))
    above = front * _fraction(x + 1 - shape, steps)
    return max(0.0, 1 - above), above


def _beta(a: float, b: float, x: float) -> tuple[float, float]:
    """Chances of a Beta variable to stay below x, and to pass it. [1, 1]"""
    if x <= 0 or x >= 1:
        return (0.0, 1.0) if x <= 0 else (1.0, 0.0)
    # The fraction converges on the left of the mean; which side that is, is asked once: rounding
    # may put both on the right.
    if x > (a + 1) / (a + b + 2):
        above = _beta_left_of_mean(b, a, 1 - x)
        return 1 - above, above
    below = _beta_left_of_mean(a, b, x)
    return below, 1 - below


def _beta_left_of_mean(a: float, b: float, x: float) -> float:
    """Chance of a Beta variable to stay below x. [1]"""
    both = a + b
    log_front = (
        _weighed(a, both * x) + _weighed(b, both * (1 - x)) + (_left(both) - _left(a) - _left(b))
    )
    front = math.exp(log_front) * math.sqrt(a * b / (2 * math.pi * both))

    def steps() -> Iterator[tuple[float, float]]:
        for m in range(_TERMS):
            yield -(a + m) * (both + m) * x / ((a + 2 * m) * (a + 2 * m + 1)), 1.0
            yield (m + 1) * (b - m - 1) * x / ((a + 2 * m + 1) * (a + 2 * m + 2)), 1.0

    return min(1.0, front / a * _fraction(1.0, steps()))


def _fraction(first: float, steps: Iterator[tuple[float, float]]) -> float:
    """1 / (first + numerator / (denominator + …)). Source: Lentz, DLMF 3.10(iii). [1]"""
    c, d = 1 / _TINY, 1 / (first or _TINY)
    result = d
    for numerator, denominator in steps:
        d = 1 / ((numerator * d + denominator) or _TINY)
        c = (denominator + numerator / c) or _TINY
        result *= c * d
        if abs(c * d - 1) < 4 * _EXACT:
            break
    return result


def _where(
    chances: Callable[[float], tuple[float, float]],
    log_density: Callable[[float], float],
    chance: float,
    high: float,
    *,
    start: float,
) -> float:
    """Where the first of two chances is this one: Newton's steps, halving where they leave what is
    known. [1]
    """
    low, at = 0.0, start
    for _ in range(2_000):
        below, above = chances(at)
        apart = below - chance if chance < 0.5 else (1 - chance) - above
        if apart == 0:
            return at
        low, high = (at, high) if apart < 0 else (low, at)
        middle = math.sqrt(low * high) if low > 0 else high / 4
        rise = min(700.0, -log_density(at))  # exp stays finite
        step = at - apart * math.exp(rise)
        after = step if low < step < high else middle
        if abs(after - at) <= 1e-15 * at or after in {low, high}:
            return after
        at = after
    return at
