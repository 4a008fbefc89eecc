"""Special functions of the reliability models, with Python and numpy alone: scipy is larger than
the rest of an installation, and its import takes longer than a whole search.

Each is right to a relative 1e-11 or better, which tests check against scipy and exact arithmetic.
Scalars and arrays share the code. The forms are those of NIST's Digital Library of Mathematical
Functions (DLMF). Densities are computed from the distance of their argument to its mean, as by
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
"""Least argument for which seven terms of the series are exact to the last digit. [1]"""
_HALF_LOG_TAU: Final = 0.5 * math.log(2 * math.pi)
_EXACT: Final = 1e-16
_TINY: Final = 1e-300
_FIRST: Final = 1e-20
"""Value below which a series is its first term to the last digit. [1]"""
_FEW: Final = 700
"""Count below which numbers are quicker one by one than as an array. [1]"""
_log_gamma_of_each: Final = np.frompyfunc(math.lgamma, 1, 1)
_TERMS: Final = 100_000
"""Most terms of a series or a fraction; they need a few times the root of the largest parameter.
[1]"""
_VAST: Final = 1e8
"""Shape above which the cube root of a Gamma variable is normal to twelve digits (Wilson and
Hilferty 1931), and a series would be long. [1]"""


def _of_arrays(function: Callable[..., float]) -> Callable[..., Any]:
    """The same function, but of numbers or arrays. []"""
    elementwise = np.frompyfunc(function, function.__code__.co_argcount, 1)

    @wraps(function)
    def called(*arguments: Any) -> Any:
        if all(isinstance(argument, (float, int)) for argument in arguments):
            return function(*map(float, arguments))
        arrays = (np.asarray(argument, dtype=float) for argument in arguments)
        return np.asarray(elementwise(*arrays), dtype=float)[()]

    return called


def log_gamma(x: Numeric) -> Any:
    """Logarithm of the gamma function, fast for large arrays of positive numbers. Source: DLMF
    5.11.1. [1]

    >>> round(float(log_gamma(5.0)), 12) == round(math.log(24.0), 12)
    True
    """
    values = np.asarray(x, dtype=float)
    if values.size < _FEW:
        return np.asarray(_log_gamma_of_each(values), dtype=float)[()]
    is_small = values < _LEAST
    shifted = values + _LEAST * is_small
    inverse = 1.0 / shifted
    square = inverse * inverse
    total: Any = _STIRLING[-1]
    for coefficient in _STIRLING[-2::-1]:
        total = total * square + coefficient
    result = np.asarray(
        total * inverse + (shifted - 0.5) * np.log(shifted) - shifted + _HALF_LOG_TAU
    )
    if np.any(is_small):
        small = values[is_small]
        product = small.copy()
        for factor in range(1, int(_LEAST)):
            product *= small + factor
        result[is_small] -= np.log(product)
    return result[()]


def log_normal_below(z: Numeric) -> Any:
    """Logarithm of the chance that a standard normal variable is below z, fast for large arrays.
    Source: DLMF 7.6.2 and 7.9. [1]

    >>> round(float(log_normal_below(0.0)), 6), round(float(log_normal_below(-40.0)), 3)
    (-0.693147, -804.608)
    """
    values = np.asarray(z, dtype=float)
    inside, outside = np.minimum(np.abs(values), 3.0), np.maximum(np.abs(values), 3.0)
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
    middle = np.log(np.where(values < 0, 0.5 - half, 0.5 + half))
    ends = np.where(values < 0, log_tail, np.log1p(-np.exp(log_tail)))
    return np.where(np.abs(values) <= 3.0, middle, ends)[()]


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
    """Value below which a Gamma variable of unit scale is with a chance. Source: inversion of
    `gamma_below`. [1]

    >>> round(gamma_quantile(2.0, 0.05), 6), round(gamma_quantile(2.0, 0.95), 6)
    (0.355362, 4.743865)
    """
    return _gamma_quantile(shape, chance)


@lru_cache(maxsize=1024)
def _gamma_quantile(shape: float, chance: float) -> float:
    """`gamma_quantile`, cached because an operator asks for the same few shapes. [1]"""
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
    return _inverse(
        lambda x: _gamma(shape, x),
        lambda x: (shape - 1) * math.log(x) - x - math.lgamma(shape),
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
    """Value below which a Beta variable is with a chance. Source: inversion of `beta_below`. [1]

    >>> round(beta_quantile(2.0, 3.0, 0.5), 6)
    0.385728
    """
    if not 0 < chance < 1:
        return 0.0 if chance <= 0 else 1.0
    log_beta = math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    if (first := math.exp((math.log(chance * a) + log_beta) / a)) < _FIRST:
        return first
    return _inverse(
        lambda x: _beta(a, b, x),
        lambda x: (a - 1) * math.log(x) + (b - 1) * math.log1p(-x) - log_beta,
        chance, 1.0, start=a / (a + b),
    )  # fmt: skip


def _stirling_error(x: float) -> float:
    """Logarithm of the gamma function minus Stirling's formula. [1]"""
    if x < _LEAST:
        return math.lgamma(x) - ((x - 0.5) * math.log(x) - x + _HALF_LOG_TAU)
    total, square = 0.0, 1 / (x * x)
    for coefficient in reversed(_STIRLING):
        total = total * square + coefficient
    return total / x


def _mean_log_ratio(mean: float, x: float) -> float:
    """Mean log(x / mean). [1]"""
    apart = (x - mean) / mean
    return mean * (math.log1p(apart) if abs(apart) < 0.5 else math.log(x / mean))


def _gamma(shape: float, x: float) -> tuple[float, float]:
    """Chances that a Gamma variable is below x, and above it. [1, 1]"""
    if x <= 0:
        return 0.0, 1.0
    if shape <= 0:
        return 1.0, 0.0
    if shape > _VAST:
        apart = 3 * math.sqrt(shape) * ((x / shape) ** (1 / 3) - 1 + 1 / (9 * shape))
        return math.erfc(-apart / math.sqrt(2)) / 2, math.erfc(apart / math.sqrt(2)) / 2
    log_front = _mean_log_ratio(shape, x) + (shape - x) - _stirling_error(shape)
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
    """Chances that a Beta variable is below x, and above it. [1, 1]"""
    if x <= 0 or x >= 1:
        return (0.0, 1.0) if x <= 0 else (1.0, 0.0)
    # The fraction converges only left of the mean. The side is tested once: after 1 - x, rounding
    # may put both x and 1 - x on the right.
    if x > (a + 1) / (a + b + 2):
        above = _beta_left_of_mean(b, a, 1 - x)
        return 1 - above, above
    below = _beta_left_of_mean(a, b, x)
    return below, 1 - below


def _beta_left_of_mean(a: float, b: float, x: float) -> float:
    """Chance that a Beta variable is below x, where x lies left of its mean. [1]"""
    both = a + b
    log_front = (
        _mean_log_ratio(a, both * x)
        + _mean_log_ratio(b, both * (1 - x))
        + (_stirling_error(both) - _stirling_error(a) - _stirling_error(b))
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


def _inverse(
    chances: Callable[[float], tuple[float, float]],
    log_density: Callable[[float], float],
    chance: float,
    high: float,
    *,
    start: float,
) -> float:
    """Point below which the chance is this one, by Newton's steps; by halving where a step leaves
    the bracket. `chances` gives the chances below and above a point. [1]
    """
    low, point = 0.0, start
    for _ in range(2_000):
        below, above = chances(point)
        excess = below - chance if chance < 0.5 else (1 - chance) - above
        if excess == 0:
            return point
        low, high = (point, high) if excess < 0 else (low, point)
        middle = math.sqrt(low * high) if low > 0 else high / 4
        rise = min(700.0, -log_density(point))  # exp stays finite
        step = point - excess * math.exp(rise)
        next_point = step if low < step < high else middle
        if abs(next_point - point) <= 1e-15 * point or next_point in {low, high}:
            return next_point
        point = next_point
    return point
