"""Lines through measured times: matrix products by shape, messages by size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

import numpy as np

from mofa_lab.traces.operators import Class
from mofa_lab.traces.passes import Op

SMALLEST: Final = 256
"""A product that is narrower in some direction moves memory rather than computes. [1]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Product:
    """Matrix products of one shape: groups m x k by k x n, and their times."""

    groups: int
    m: int
    n: int
    k: int
    seconds: tuple[float, ...]

    @property
    def inverse_rate(self) -> float:
        """Median time per FLOP. [s/FLOP]"""
        return median(self.seconds) / (2.0 * self.groups * self.m * self.n * self.k)

    @property
    def narrowness(self) -> float:
        """1/m + 1/n + 1/k: what the half sizes multiply. [1]"""
        return 1.0 / self.m + 1.0 / self.n + 1.0 / self.k


def products(ops: Iterable[Op], kind: Class) -> list[Product]:
    """Matrix products that say their shapes, by shape."""
    times: dict[tuple[int, int, int, int], list[float]] = {}
    for op in ops:
        shape = _shape(op.dims) if op.kind is kind else None
        if shape is not None and op.seconds > 0:
            times.setdefault(shape, []).append(op.seconds)
    return [
        Product(groups=g, m=m, n=n, k=k, seconds=tuple(t))
        for (g, m, n, k), t in sorted(times.items())
    ]


def _shape(dims: Any) -> tuple[int, int, int, int] | None:
    """Groups, m, n, k of two operands' shapes; None where they are not those of a product."""
    matrices = [
        d
        for d in dims or []
        if isinstance(d, list) and len(d) in {2, 3} and all(isinstance(n, int) for n in d)
    ]
    if len(matrices) < 2:
        return None
    left, other = matrices[-2:] if len(matrices) > 2 else matrices
    groups = left[0] if len(left) == 3 else 1
    m, k, k2, n = left[-2], left[-1], other[-2], other[-1]
    return (groups, m, n, k) if k == k2 and min(groups, m, n, k) > 0 else None


def half_size(seen: Sequence[Product]) -> float | None:
    """Half size of matrix products: 1 / rate = a + a half (1/m + 1/n + 1/k), by least squares of
    relative errors. [1]

    None where the shapes do not differ enough to say. A fixed start cannot be told from it, since
    models have few widths, and is taken into it.
    """
    large = [p for p in seen if min(p.m, p.n, p.k) >= SMALLEST]
    narrow = np.array([p.narrowness for p in large])
    if len(large) < 3 or np.ptp(narrow) < 0.3 * narrow.mean():
        return None
    rates = np.array([p.inverse_rate for p in large])
    matrix = np.stack([1.0 / rates, narrow / rates], axis=1)
    (level, slope), *_ = np.linalg.lstsq(matrix, np.ones(len(large)), rcond=None)
    return float(slope / level) if level > 0 and slope >= 0 else None


def fitted_line(points: Sequence[tuple[float, float]]) -> tuple[float, float] | None:
    """Level and slope of measured [s] over ideal times [s], by relative errors; None where the
    ideal ones are too alike.

    >>> [round(n, 6) for n in fitted_line([(1.0, 2.5), (2.0, 4.5), (8.0, 16.5)])]
    [0.5, 2.0]
    """
    x, y = np.array([p[0] for p in points]), np.array([p[1] for p in points])
    if len(points) < 2 or x.min() <= 0 or x.max() < 1.5 * x.min():
        return None
    (level, slope), *_ = np.linalg.lstsq(
        np.stack([1.0 / y, x / y], axis=1), np.ones(len(points)), rcond=None
    )
    return (float(level), float(slope)) if level >= 0 and slope > 0 else None
