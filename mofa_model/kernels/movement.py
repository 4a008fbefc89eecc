"""Operators that only move bytes: casts, and the mixing of residual streams."""

from __future__ import annotations

from mofa_model.kernels.surface import CallWork
from mofa_model.units import Count


def cast(tokens: Count, width: Count) -> CallWork:
    """BF16 to FP8: two bytes read and one written. Source: counting.

    >>> cast(4096, 4096).moved
    50331648.0
    """
    return CallWork(at=(tokens, width), moved=3.0 * tokens * width)


def hyper_connection(tokens: Count, width: Count) -> CallWork:
    """Four residual streams read and mixed, one written, or the reverse. Ours."""
    return CallWork(at=(tokens, width), moved=2.0 * 5.0 * tokens * width)
