"""Matrix products: y = x W^T of m rows, n outputs and k contracted, with the cast of the rows to a narrow format in the time."""

from __future__ import annotations

from typing import Final

import numpy as np

from mofa_model.kernels.surface import CallWork
from mofa_model.units import Bytes, Count

TILE: Final = 128.0
"""Rows of a tile: the last tile of a product is paid whole by some kernels."""


def gemm(m: Count, n: Count, k: Count, *, width: Bytes) -> CallWork:
    """One product; weights are `width` bytes an element already, rows are read, cast and read again. Ours.

    >>> gemm(4096, 4096, 4096, width=2.0).flops
    137438953472.0
    """
    cast = 0.0 if width == 2.0 else 2.0 + width
    return CallWork(
        at=(m, n, k),
        flops=2.0 * m * n * k,
        moved=width * k * (1.0 * m + n) + cast * m * k + 2.0 * m * n,
        wide=1.0 * m * n,
        padded=TILE * np.ceil(m / TILE) / m,
    )


def grouped(
    tokens: Count,
    hidden: Count,
    intermediate: Count,
    *,
    topk: Count,
    experts: Count,
    tp: Count,
    ep: Count,
    matrices: Count,
    width: Bytes,
) -> CallWork:
    """A layer of experts on one rank: `tokens` of all ranks together, `matrices` 3 where gated, else 2. Ours.

    A rank reads all tokens and writes all sums, also of tokens whose experts are elsewhere.

    >>> grouped(4096, 7168, 2048, topk=8, experts=256, tp=1, ep=8, matrices=3, width=1.0).at
    (128.0, 32.0, 7168, 2048.0)
    """
    each, local, inner = 1.0 * tokens * topk / experts, 1.0 * experts / ep, 1.0 * intermediate / tp
    rows = each * local
    return CallWork(
        at=(each, local, hidden, inner),
        flops=2.0 * rows * hidden * inner * matrices,
        moved=width * local * hidden * inner * matrices
        + rows * (6.0 * hidden + 2.0 * matrices * inner)
        + 4.0 * tokens * hidden,
        wide=rows * inner,
    )
