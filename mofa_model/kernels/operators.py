"""Every operator that has surfaces, by name: what its calls do, and with which sizes its time grows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from mofa_model.kernels import attention, gemm, movement, recurrent, transfers
from mofa_model.kernels.surface import CallWork


@dataclass(frozen=True, kw_only=True, slots=True)
class OperatorKind:
    """A kind of call."""

    work: Callable[..., CallWork]
    """What calls of given sizes do."""
    grows: tuple[str, ...]
    """Sizes with which no surface of it gets faster."""
    halved: int = 0
    """First axes of the table with which its operations grow in step."""
    knots: tuple[int, ...]
    """The most knots along each axis of the table."""
    sought: tuple[int, ...] = ()
    """Axes along which kernels depart from the law in jumps: knots stand where they do, elsewhere in even steps."""


_TOKENS: Final = ("batch", "sequence")

OPERATORS: Final[Mapping[str, OperatorKind]] = MappingProxyType(
    {
        "gemm": OperatorKind(work=gemm.gemm, halved=3, grows=("m", "n", "k"), knots=(10, 7, 7)),
        "grouped-gemm": OperatorKind(
            work=gemm.grouped,
            halved=4,
            grows=("tokens", "hidden", "intermediate"),
            knots=(8, 4, 2, 3),
        ),
        "causal-attention": OperatorKind(
            work=attention.causal,
            halved=2,
            grows=(*_TOKENS, "heads", "kv_heads"),
            knots=(8, 10, 3, 2),
            sought=(2,),
        ),
        "window-attention": OperatorKind(
            work=attention.windowed,
            halved=2,
            grows=(*_TOKENS, "heads", "kv_heads"),
            knots=(8, 7, 3, 2),
        ),
        "full-attention": OperatorKind(
            work=attention.full, halved=2, grows=(*_TOKENS, "heads"), knots=(16, 16)
        ),
        "latent-attention": OperatorKind(
            work=attention.latent, halved=3, grows=(*_TOKENS, "heads"), knots=(10, 8, 6)
        ),
        "latent-block": OperatorKind(
            work=attention.latent_block, halved=2, grows=(*_TOKENS, "heads"), knots=(10, 8, 6)
        ),
        "sparse-block": OperatorKind(
            work=attention.sparse_block, halved=2, grows=(*_TOKENS, "heads"), knots=(10, 8, 6)
        ),
        "convolution": OperatorKind(
            work=recurrent.convolution, grows=(*_TOKENS, "channels"), knots=(9, 7, 6)
        ),
        "scan": OperatorKind(
            work=recurrent.scan, halved=3, grows=(*_TOKENS, "v_heads"), knots=(9, 7, 6)
        ),
        "cast": OperatorKind(work=movement.cast, grows=("tokens", "width"), knots=(14, 12)),
        "hyper-connection": OperatorKind(
            work=movement.hyper_connection, grows=("tokens", "width"), knots=(14, 3)
        ),
        "all-reduce": OperatorKind(
            work=transfers.all_reduce, grows=("size", "ranks"), knots=(20, 3)
        ),
        "all-gather": OperatorKind(work=transfers.share, grows=("size",), knots=(20, 3)),
        "reduce-scatter": OperatorKind(work=transfers.share, grows=("size",), knots=(20, 3)),
        "all-to-all": OperatorKind(work=transfers.share, grows=("size",), knots=(20, 3)),
        "dispatch": OperatorKind(
            work=transfers.exchange, grows=("tokens", "hidden"), knots=(9, 4, 4, 3)
        ),
        "combine": OperatorKind(
            work=transfers.exchange, grows=("tokens", "hidden"), knots=(9, 4, 4, 3)
        ),
    }
)
"""Operators by name. A gather among more ranks can be faster at the same size: each sends a larger share, over more links."""
