"""Forward attention: causal, in a window, full (encoders), latent, and whole latent and sparse blocks."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from mofa_model.kernels.surface import CallWork
from mofa_model.units import Bytes, Count, Flop

LATENT: Final = (192.0, 128.0)
"""Width of keys and of values of DeepSeek's heads."""
_HIDDEN, _QUERY, _LATENT, _ROPE = 7168.0, 1536.0, 512.0, 64.0
_CHOSEN: Final = 2048.0
_INDEXER: Final = 64.0 * 128.0


def causal(
    batch: Count,
    sequence: Count,
    heads: Count,
    kv_heads: Count,
    head_dim: Count,
    *,
    value_dim: Count,
    width: Bytes,
) -> CallWork:
    """Each token sees those before it; keys and values are written to a cache, `width` bytes an element. Ours.

    Heads are an axis beside the product of batch and heads: libraries choose their kernels by them.

    >>> causal(1, 8192, 32, 8, 128, value_dim=128, width=2.0).flops / 8192 / 8192
    8192.0
    """
    pairs = 0.5 * sequence * sequence
    work = _attention(batch, sequence, heads, kv_heads, head_dim, value_dim, pairs, 2.0 + width)
    return replace(work, at=(*work.at[:2], 1.0 * heads, work.at[2]))


def windowed(
    batch: Count,
    sequence: Count,
    heads: Count,
    kv_heads: Count,
    head_dim: Count,
    window: Count,
    *,
    value_dim: Count,
    width: Bytes,
) -> CallWork:
    """Each token sees `window` before it. Ours."""
    reach = np.minimum(window, sequence)
    pairs = reach * (sequence - 0.5 * reach)
    work = _attention(batch, sequence, heads, kv_heads, head_dim, value_dim, pairs, 2.0 + width)
    return replace(work, at=(*work.at, window))


def full(batch: Count, sequence: Count, heads: Count, head_dim: Count) -> CallWork:
    """Each token sees all: encoders, which keep no cache. Ours."""
    work = _attention(
        batch, sequence, heads, heads, head_dim, head_dim, 1.0 * sequence * sequence, 2.0
    )
    return replace(work, at=work.at[:2])


def _attention(
    batch: Count,
    sequence: Count,
    heads: Count,
    kv_heads: Count,
    keys: Count,
    values: Count,
    pairs: Count,
    kept: Bytes,
) -> CallWork:
    """Scores, softmax and weighted values of `pairs` of tokens a head; `kept` bytes of a key are read and written."""
    grid = 1.0 * batch * heads
    return CallWork(
        at=(sequence, grid, 1.0 * kv_heads / heads),
        flops=2.0 * grid * pairs * (1.0 * keys + values),
        moved=batch * sequence * (1.0 * keys + values) * (2.0 * heads + kept * kv_heads),
        wide=grid * sequence,
    )


def latent(batch: Count, sequence: Count, heads: Count) -> CallWork:
    """Multi-head latent attention without its projections. Source: DeepSeek-V3's shape."""
    keys, values = LATENT
    return CallWork(
        at=(sequence, batch, heads),
        flops=1.0 * batch * heads * sequence * sequence * (keys + values),
        moved=4.0 * batch * sequence * heads * (keys + values),
        wide=1.0 * batch * heads * sequence,
    )


def latent_block(batch: Count, sequence: Count, heads: Count, *, width: Bytes = 2.0) -> CallWork:
    """A whole block of latent attention: projections down and up, attention, projection out. Source: DeepSeek-V3's shape."""
    inside = latent(batch, sequence, heads)
    return _block(batch, sequence, heads, inside.flops, inside.moved, width)


def sparse_block(batch: Count, sequence: Count, heads: Count, *, width: Bytes = 2.0) -> CallWork:
    """A whole block of sparse attention: an indexer scores all keys, 2,048 are attended. Source: DeepSeek-V3.2's shape."""
    tokens = 1.0 * batch * sequence
    chosen = np.minimum(_CHOSEN, sequence)
    pairs = chosen * (1.0 - chosen / (2.0 * sequence)) * tokens
    flops = 2.0 * pairs * heads * (2.0 * _LATENT + _ROPE) + tokens * sequence * _INDEXER
    return _block(
        batch, sequence, heads, flops, 4.0 * tokens * heads * (2.0 * _LATENT + _ROPE), width
    )


def _block(
    batch: Count, sequence: Count, heads: Count, flops: Flop, moved: Bytes, width: Bytes
) -> CallWork:
    tokens = 1.0 * batch * sequence
    keys, values = LATENT
    whole = _HIDDEN * (_QUERY + _LATENT + _ROPE)
    of_heads = heads * (_QUERY * keys + _LATENT * 2.0 * values + values * _HIDDEN)
    return CallWork(
        at=(sequence, batch, heads),
        flops=2.0 * tokens * (whole + of_heads) + flops,
        moved=width * (whole + of_heads) + moved + 4.0 * tokens * (_HIDDEN + heads * values),
        wide=tokens,
    )
