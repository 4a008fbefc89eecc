"""Quantiles of a Gamma law without scipy, whose import takes longer than a whole search."""

from __future__ import annotations

import math
from typing import Final

from mofa_model.units import Ratio

_TERMS: Final = 100_000
_EXACT: Final = 1e-15


def gamma_share(shape: float, x: float) -> Ratio:
    """Probability that a Gamma variable of unit scale is at most x, P(shape, x). Source: series and continued fraction of
    the incomplete gamma function (Abramowitz and Stegun 6.5.29, 6.5.31). [1]

    >>> round(gamma_share(1.0, 1.0), 12) == round(1 - math.exp(-1.0), 12)
    True
    """
    if x <= 0:
        return 0.0
    front = math.exp(shape * math.log(x) - x - math.lgamma(shape))
    if x < shape + 1:
        term = total = 1 / shape
        for n in range(1, _TERMS):
            term *= x / (shape + n)
            total += term
            if term < total * _EXACT:
                break
        return min(1.0, front * total)
    b = x + 1 - shape
    c, d = 1e300, 1 / b
    fraction = d
    for n in range(1, _TERMS):
        a = -n * (n - shape)
        b += 2
        d = 1 / (a * d + b)
        c = b + a / c
        fraction *= c * d
        if abs(c * d - 1) < _EXACT:
            break
    return max(0.0, 1 - front * fraction)


def gamma_quantile(shape: float, probability: Ratio) -> float:
    """Where a Gamma variable of unit scale stays below with a probability: bisection on `gamma_share`. Source: inversion. [1]

    >>> round(gamma_quantile(2.0, 0.05), 6), round(gamma_quantile(2.0, 0.95), 6)
    (0.355362, 4.743865)
    """
    low, high = 0.0, max(1.0, 2 * shape)
    while gamma_share(shape, high) < probability:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        if middle in {low, high}:
            break
        low, high = (middle, high) if gamma_share(shape, middle) < probability else (low, middle)
    return (low + high) / 2
