"""Operators that only move bytes: casts, and the mixing of residual streams."""

from __future__ import annotations

from mofa_model.kernels.surface import Work
from mofa_model.units import Count


def cast(tokens: Count, width: Count) -> Work:
    """BF16 to FP8: two bytes read and one written. Source: counting.

    >>> cast(4096, 4096).moved
    50331648.0
    """
    return Work(at=(tokens, width), moved=3.0 * tokens * width)


def hyper_connection(tokens: Count, width: Count) -> Work:
    """Four residual streams read and mixed, one written, or the reverse. Ours."""
    return Work(at=(tokens, width), moved=2.0 * 5.0 * tokens * width)
