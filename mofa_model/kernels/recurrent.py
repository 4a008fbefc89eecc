"""Linear attention and state spaces: the short convolution before the recurrence, and the recurrence in chunks."""

from __future__ import annotations

from mofa_model.kernels.surface import CallWork
from mofa_model.units import Count


def convolution(batch: Count, sequence: Count, channels: Count) -> CallWork:
    """A causal convolution of a few taps over every channel. Ours.

    >>> convolution(1, 4096, 8192).moved
    134217728.0
    """
    return CallWork(
        at=(sequence, batch, channels),
        moved=4.0 * batch * sequence * channels,
    )


def scan(
    batch: Count, sequence: Count, k_heads: Count, k_dim: Count, v_heads: Count, v_dim: Count
) -> CallWork:
    """A gated delta rule or its kin, in chunks of 64: scores inside, the state between. Ours."""
    tokens = 1.0 * batch * sequence
    return CallWork(
        at=(sequence, batch, v_heads),
        flops=tokens * v_heads * (6.0 * k_dim * v_dim + 64.0 * 4.0 * (k_dim + v_dim)),
        moved=2.0 * tokens * (2.0 * k_heads * k_dim + 2.0 * v_heads * v_dim),
        wide=1.0 * batch * v_heads,
    )
