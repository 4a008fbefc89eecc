"""Softmax attention: multi-head, grouped-query or multi-query, over all tokens or a window."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import numpy as np

from mofa_model.blocks.block import (
    ALL,
    Block,
    ContextMessages,
    Core,
    Cut,
    Elementwise,
    Projection,
    SavedTensor,
)
from mofa_model.checks import positive, whole
from mofa_model.errors import BadValue
from mofa_model.records import dataclass
from mofa_model.units import Count, Numeric

QK_NORMS: Final = ("", "head", "whole")
"""Norms of queries and keys."""
GATE_PASSES: Final = 3.0
"""Reads and writes of a tensor that is multiplied with a gate. Source: counted on fused kernels."""
CORE: Final = frozenset({"core_attn", ALL})
"""Modules whose recomputation drops what attention keeps of its scores."""
OUTPUT: Final[Mapping[str, Any]] = {"product_input": True, "offloaded_by": {"attn_proj": 1.0}}
"""How the output of the core is kept: it is the input of the last projection, and fused attention
itself reads it in its backward pass."""
LAST: Final[Mapping[str, Any]] = {**OUTPUT, "readers": frozenset({"o", "out"})}
"""The same where the last projection alone needs it."""


@dataclass(frozen=True, kw_only=True)
class SoftmaxAttention(Block):
    """Multi-head, grouped-query or multi-query attention: they differ in `kv_heads` alone."""

    word: ClassVar = "attention"
    stream_passes: ClassVar = 6.0
    norm_offloaded_with: ClassVar = "qkv_linear"
    residual_offloaded_with: ClassVar = "qkv_linear"  # the norm is fused with the projection

    heads: Numeric
    """Query heads."""
    kv_heads: Numeric
    """Key and value heads: equal to `heads` for MHA, one for MQA."""
    head_dim: Numeric
    """Width of one head."""
    value_dim: Numeric | None = None
    """Width of a head's value; None = that of the head."""
    keys_are_values: bool = False
    """True where keys are the values as well, and are projected once."""
    window: Numeric | None = None
    """Tokens that a token attends to; None = all before it."""
    gated: bool = False
    """True where a gate of the output is projected beside the queries."""
    qk_norm: str = ""
    """Norms of queries and keys: `head` for one over each head, `whole` for one over all; empty for
    none."""
    bias: bool = False
    """True where queries, keys and values have biases."""
    output_bias: bool = False
    """True where the output has one."""
    sinks: bool = False
    """True where each head learns a score that takes part in its softmax."""

    def __post_init__(self) -> None:
        whole(heads=self.heads, kv_heads=self.kv_heads, head_dim=self.head_dim)
        if self.value_dim is not None:
            whole(value_dim=self.value_dim)
        if self.qk_norm not in QK_NORMS:
            raise BadValue(
                "qk_norm", self.qk_norm, f"one of {', '.join(filter(None, QK_NORMS))}, or nothing"
            )
        if self.window is not None:
            positive(window=self.window)
        if np.any(np.asarray(self.heads) % self.kv_heads):
            raise BadValue("kv_heads", self.kv_heads, f"it must divide heads ({self.heads})")

    @property
    def values(self) -> Numeric:
        """Width of a head's value. [1]"""
        return self.head_dim if self.value_dim is None else self.value_dim

    @property
    def name(self) -> str:
        """What tables call this attention."""
        return self.word if self.window is None else f"{self.word} in a window"

    @property
    def heads_text(self) -> str:
        """Query heads over those of keys and values."""
        return f"{self.heads} over {self.kv_heads}"

    def products(self, hidden: Count) -> tuple[Projection, ...]:
        """Queries, keys and values in one, with the gate; and the output: h^2 (2 + 2 k_v/a), Table
        2.
        """
        projected = [
            ("q", self.heads * self.asked * self.head_dim),
            ("k", self.kv_heads * self.head_dim),
        ]
        if not self.keys_are_values:
            projected.append(("v", self.kv_heads * self.values))
        return (
            Projection(
                n=sum(width for _, width in projected),
                k=hidden,
                linears=tuple(projected),
                bias=self.bias,
            ),
            Projection(
                n=hidden,
                k=self.heads * self.values,
                cut=Cut.INPUT,
                bias=self.output_bias,
                linears=(("o", hidden),),
            ),
        )

    @property
    def asked(self) -> int:
        """Projections of each query head: itself, and its gate. [1]"""
        return 2 if self.gated else 1

    def vectors(self, hidden: Count) -> Count:  # noqa: ARG002
        """Parameters in no matrix: norms of queries and keys, and attention sinks. [1]"""
        heads = {"": 0, "head": 2, "whole": self.heads + self.kv_heads}[self.qk_norm]
        return heads * self.head_dim + (self.heads if self.sinks else 0)

    def elementwise(self, hidden: Count) -> tuple[Elementwise, ...]:  # noqa: ARG002
        """Norms of queries and keys, and the gate."""
        tensors = []
        if self.qk_norm:
            tensors.append(
                Elementwise(width=(self.heads + self.kv_heads) * self.head_dim, passes=2.0)
            )
        if self.gated:
            tensors.append(Elementwise(width=self.heads * self.values, passes=GATE_PASSES))
        return tuple(tensors)

    def placement_cost(self, hidden: Count) -> Numeric:
        """Four h x h projections, whatever the heads: that is what nanotron counts. [1]"""
        return 4 * hidden * hidden

    def cores(self) -> tuple[Core, ...]:
        """Scores and weighted values, Table 2 rows QK^T to AV."""
        return (
            Core(
                heads=self.heads, width=self.head_dim + self.values, window=self.window, scored=True
            ),
        )

    def saved_tensors(self, hidden: Count) -> tuple[SavedTensor, ...]:  # noqa: ARG002
        """Scores, queries with keys and values (2 sbh (1 + 2 k_v/a)), and the output (2 sbh), Table
        2.
        """
        output = self.heads * self.values
        return (
            SavedTensor(
                elements=self.heads, dropped_by=CORE, scored=True, offloaded_by={"core_attn": 1.0}
            ),
            SavedTensor(
                elements=self.asked * self.heads * self.head_dim
                + self.kv_heads * (self.head_dim + self.values),
                dropped_by=frozenset({ALL}),
                halved=True,
                offloaded_by={"core_attn": 1.0},
            ),
            *((SavedTensor(elements=output),) if self.gated else ()),
            SavedTensor(elements=output, **(LAST if self.gated else OUTPUT)),
        )

    def context_messages(self) -> ContextMessages:
        """Keys and values go around a ring; an all-to-all moves queries and outputs as well."""
        both = self.head_dim + self.values
        return ContextMessages(
            ring_elements=self.kv_heads * both, all_to_all_elements=self.heads * both
        )

    def split(self) -> tuple[Count, ...]:
        """Heads of queries, and of keys and values, which tensor parallelism has to divide."""
        return (self.heads, self.kv_heads)

    def all_to_all_heads(self) -> Count:
        """Heads of keys and values, which ranks of an all-to-all have to divide."""
        return self.kv_heads
