"""Every operator that has surfaces: the work of its calls, and the sizes with which its time grows.

Sizes are those of one call: tokens, heads and widths in elements, messages in bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

import numpy as np

from mofa_model.kernels.surface import CallWork
from mofa_model.records import dataclass
from mofa_model.units import Bytes, Count, Flop

TILE: Final = 128.0
"""Rows of a tile: the last tile of a product is paid whole by some kernels."""


def gemm(m: Count, n: Count, k: Count, *, width: Bytes) -> CallWork:
    """One product; weights are `width` bytes an element already, rows are read, cast and read
    again. Ours.

    >>> gemm(4096, 4096, 4096, width=2.0).flops
    137438953472.0
    """
    cast = 0.0 if width == 2.0 else 2.0 + width
    return CallWork(
        axis_values=(m, n, k),
        flops=2.0 * m * n * k,
        memory_bytes=width * k * (1.0 * m + n) + cast * m * k + 2.0 * m * n,
        output_elements=1.0 * m * n,
        padding=TILE * np.ceil(m / TILE) / m,
    )


def grouped_gemm(
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
    """A layer of experts on one rank: `tokens` of all ranks together, `matrices` 3 where gated,
    else 2. Ours.

    A rank reads all tokens and writes all sums, also of tokens whose experts are elsewhere.

    >>> calls = grouped_gemm(
    ...     4096, 7168, 2048, topk=8, experts=256, tp=1, ep=8, matrices=3, width=1.0
    ... )
    >>> calls.axis_values
    (128.0, 32.0, 7168, 2048.0)
    """
    each, local, inner = 1.0 * tokens * topk / experts, 1.0 * experts / ep, 1.0 * intermediate / tp
    rows = each * local
    return CallWork(
        axis_values=(each, local, hidden, inner),
        flops=2.0 * rows * hidden * inner * matrices,
        memory_bytes=width * local * hidden * inner * matrices
        + rows * (6.0 * hidden + 2.0 * matrices * inner)
        + 4.0 * tokens * hidden,
        output_elements=rows * inner,
    )


LATENT: Final = (192.0, 128.0)
"""Width of keys and of values of DeepSeek's heads."""
_HIDDEN, _QUERY, _LATENT, _ROPE = 7168.0, 1536.0, 512.0, 64.0
_CHOSEN: Final = 2048.0
_INDEXER: Final = 64.0 * 128.0


def causal_attention(
    batch: Count,
    sequence: Count,
    heads: Count,
    kv_heads: Count,
    head_dim: Count,
    *,
    value_dim: Count,
    width: Bytes,
) -> CallWork:
    """The work of attention in which a token sees itself and all earlier tokens. Ours.

    Keys and values are written to a cache at `width` bytes an element. Heads are a coordinate of
    their own, beside batch times heads, because libraries choose kernels by the number of heads.

    >>> causal_attention(1, 8192, 32, 8, 128, value_dim=128, width=2.0).flops / 8192 / 8192
    8192.0
    """
    pairs = 0.5 * sequence * sequence
    work = _attention(batch, sequence, heads, kv_heads, head_dim, value_dim, pairs, 2.0 + width)
    return replace(work, axis_values=(*work.axis_values[:2], 1.0 * heads, work.axis_values[2]))


def window_attention(
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
    """Work of attention in which each token sees the `window` tokens before it. Ours."""
    reach = np.minimum(window, sequence)
    pairs = reach * (sequence - 0.5 * reach)
    work = _attention(batch, sequence, heads, kv_heads, head_dim, value_dim, pairs, 2.0 + width)
    return replace(work, axis_values=(*work.axis_values, window))


def full_attention(batch: Count, sequence: Count, heads: Count, head_dim: Count) -> CallWork:
    """Work of attention in which each token sees all others, as in encoders without a
    cache. Ours.
    """
    work = _attention(
        batch, sequence, heads, heads, head_dim, head_dim, 1.0 * sequence * sequence, 2.0
    )
    return replace(work, axis_values=work.axis_values[:2])


def _attention(
    batch: Count,
    sequence: Count,
    heads: Count,
    kv_heads: Count,
    keys: Count,
    values: Count,
    pairs: Count,
    key_bytes: Bytes,
) -> CallWork:
    """Scores, softmax and weighted values of `pairs` of tokens a head; `key_bytes` of each element
    of a key are read and written.
    """
    grid = 1.0 * batch * heads
    return CallWork(
        axis_values=(sequence, grid, 1.0 * kv_heads / heads),
        flops=2.0 * grid * pairs * (1.0 * keys + values),
        memory_bytes=batch
        * sequence
        * (1.0 * keys + values)
        * (2.0 * heads + key_bytes * kv_heads),
        output_elements=grid * sequence,
    )


def latent_attention(batch: Count, sequence: Count, heads: Count) -> CallWork:
    """Multi-head latent attention without its projections. Source: DeepSeek-V3's shape."""
    keys, values = LATENT
    return CallWork(
        axis_values=(sequence, batch, heads),
        flops=1.0 * batch * heads * sequence * sequence * (keys + values),
        memory_bytes=4.0 * batch * sequence * heads * (keys + values),
        output_elements=1.0 * batch * heads * sequence,
    )


def latent_block(batch: Count, sequence: Count, heads: Count, *, width: Bytes = 2.0) -> CallWork:
    """A whole block of latent attention: projections down and up, attention, projection out.
    Source: DeepSeek-V3's shape.
    """
    inside = latent_attention(batch, sequence, heads)
    return _block(batch, sequence, heads, inside.flops, inside.memory_bytes, width)


def sparse_block(batch: Count, sequence: Count, heads: Count, *, width: Bytes = 2.0) -> CallWork:
    """A whole block of sparse attention: an indexer scores all keys, 2,048 are attended. Source:
    DeepSeek-V3.2's shape.
    """
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
        axis_values=(sequence, batch, heads),
        flops=2.0 * tokens * (whole + of_heads) + flops,
        memory_bytes=width * (whole + of_heads) + moved + 4.0 * tokens * (_HIDDEN + heads * values),
        output_elements=tokens,
    )


def convolution(batch: Count, sequence: Count, channels: Count) -> CallWork:
    """A causal convolution of a few taps over every channel. Ours.

    >>> convolution(1, 4096, 8192).memory_bytes
    134217728.0
    """
    return CallWork(
        axis_values=(sequence, batch, channels), memory_bytes=4.0 * batch * sequence * channels
    )


_CHUNK: Final = 64.0
"""Tokens of a chunk, inside which kernels of linear attention score all pairs. [1]"""


def scan(
    batch: Count, sequence: Count, k_heads: Count, k_dim: Count, v_heads: Count, v_dim: Count
) -> CallWork:
    """The work of a linear-attention layer, like a gated delta rule, in chunks. Ours.

    Scores are computed inside a chunk, and a state of `k_dim` times `v_dim` goes between chunks.
    """
    tokens = 1.0 * batch * sequence
    return CallWork(
        axis_values=(sequence, batch, v_heads),
        flops=tokens * v_heads * (6.0 * k_dim * v_dim + _CHUNK * 4.0 * (k_dim + v_dim)),
        memory_bytes=2.0 * tokens * (2.0 * k_heads * k_dim + 2.0 * v_heads * v_dim),
        output_elements=1.0 * batch * v_heads,
    )


def cast(tokens: Count, width: Count) -> CallWork:
    """BF16 to FP8: two bytes read and one written. Source: counting.

    >>> cast(4096, 4096).memory_bytes
    50331648.0
    """
    return CallWork(axis_values=(tokens, width), memory_bytes=3.0 * tokens * width)


def hyper_connection(tokens: Count, width: Count) -> CallWork:
    """Four residual streams read and mixed, one written, or the reverse. Ours."""
    return CallWork(axis_values=(tokens, width), memory_bytes=2.0 * 5.0 * tokens * width)


def gather(size: Bytes, ranks: Count) -> CallWork:
    """Gather, scatter or all-to-all: of `size` bytes in all, a rank sends all but its own part.
    Source: counting.

    Each part waits at every rank of a ring but its own.

    >>> gather(8e6, 8).link_bytes, gather(8e6, 8).steps
    (7000000.0, 7.0)
    """
    return CallWork(
        axis_values=(size, ranks), link_bytes=size * (1.0 - 1.0 / ranks), steps=ranks - 1.0
    )


def all_reduce(size: Bytes, ranks: Count) -> CallWork:
    """All-reduce: the least is to send the tensor once, where a switch adds up. Source: counting.

    Around a ring it is a scatter and a gather.
    """
    return CallWork(axis_values=(size, ranks), link_bytes=1.0 * size, steps=2.0 * (ranks - 1.0))


def expert_exchange(
    tokens: Count, hidden: Count, topk: Count, ranks: Count, multiprocessors: Count, *, width: Bytes
) -> CallWork:
    """Tokens of a rank to the ranks of their experts, or back: a copy for each rank that is hit.
    Ours.

    `multiprocessors` drive the copies; 0 is as many as the kernel takes.
    """
    hit = ranks * (1.0 - np.power(1.0 - 1.0 / ranks, topk))
    return CallWork(
        axis_values=(1.0 * tokens * hidden, hit, ranks, 1.0 / np.maximum(multiprocessors, 1.0)),
        link_bytes=width * tokens * hidden * hit * (1.0 - 1.0 / ranks),
    )


@dataclass(frozen=True, kw_only=True)
class OperatorKind:
    """A kind of call."""

    work: Callable[..., CallWork]
    """Work of calls of given sizes."""
    slower_with: tuple[str, ...]
    """Sizes with which no surface of it gets faster."""
    halving_axes: int = 0
    """First axes of the table with which its operations grow in step."""
    knots: tuple[int, ...]
    """The most knots along each axis of the table."""
    jump_axes: tuple[int, ...] = ()
    """Axes along which kernels depart from the law in jumps: knots stand where they do, elsewhere
    in even steps."""


_TOKENS: Final = ("batch", "sequence")

OPERATORS: Final[Mapping[str, OperatorKind]] = MappingProxyType(
    {
        "gemm": OperatorKind(
            work=gemm, halving_axes=3, slower_with=("m", "n", "k"), knots=(10, 7, 7)
        ),
        "grouped-gemm": OperatorKind(
            work=grouped_gemm,
            halving_axes=4,
            slower_with=("tokens", "hidden", "intermediate"),
            knots=(8, 4, 2, 3),
        ),
        "causal-attention": OperatorKind(
            work=causal_attention,
            halving_axes=2,
            slower_with=(*_TOKENS, "heads", "kv_heads"),
            knots=(8, 10, 3, 2),
            jump_axes=(2,),
        ),
        "window-attention": OperatorKind(
            work=window_attention,
            halving_axes=2,
            slower_with=(*_TOKENS, "heads", "kv_heads"),
            knots=(8, 7, 3, 2),
        ),
        "full-attention": OperatorKind(
            work=full_attention, halving_axes=2, slower_with=(*_TOKENS, "heads"), knots=(16, 16)
        ),
        "latent-attention": OperatorKind(
            work=latent_attention, halving_axes=3, slower_with=(*_TOKENS, "heads"), knots=(10, 8, 6)
        ),
        "latent-block": OperatorKind(
            work=latent_block, halving_axes=2, slower_with=(*_TOKENS, "heads"), knots=(10, 8, 6)
        ),
        "sparse-block": OperatorKind(
            work=sparse_block, halving_axes=2, slower_with=(*_TOKENS, "heads"), knots=(10, 8, 6)
        ),
        "convolution": OperatorKind(
            work=convolution, slower_with=(*_TOKENS, "channels"), knots=(9, 7, 6)
        ),
        "scan": OperatorKind(
            work=scan, halving_axes=3, slower_with=(*_TOKENS, "v_heads"), knots=(9, 7, 6)
        ),
        "cast": OperatorKind(work=cast, slower_with=("tokens", "width"), knots=(14, 12)),
        "hyper-connection": OperatorKind(
            work=hyper_connection, slower_with=("tokens", "width"), knots=(14, 3)
        ),
        "all-reduce": OperatorKind(work=all_reduce, slower_with=("size", "ranks"), knots=(20, 3)),
        "all-gather": OperatorKind(work=gather, slower_with=("size",), knots=(20, 3)),
        "reduce-scatter": OperatorKind(work=gather, slower_with=("size",), knots=(20, 3)),
        "all-to-all": OperatorKind(work=gather, slower_with=("size",), knots=(20, 3)),
        "dispatch": OperatorKind(
            work=expert_exchange, slower_with=("tokens", "hidden"), knots=(9, 4, 4, 3)
        ),
        "combine": OperatorKind(
            work=expert_exchange, slower_with=("tokens", "hidden"), knots=(9, 4, 4, 3)
        ),
    }
)
"""Operators by name.

A gather among more ranks can be faster at the same size, since each sends a larger share over more
links: so `ranks` is no size with which it grows."""
