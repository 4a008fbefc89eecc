"""Attention that reads the keys and values of an earlier layer: it projects queries and the output
alone.
"""

from __future__ import annotations

from typing import ClassVar

from mofa_model.blocks.block import ALL, Cut, Projection, SavedTensor
from mofa_model.blocks.softmax import CORE, LAST, OUTPUT, SoftmaxAttention
from mofa_model.records import dataclass
from mofa_model.units import Count


@dataclass(frozen=True, kw_only=True)
class SharedAttention(SoftmaxAttention):
    """Softmax attention over another layer's keys and values; `kv_heads` says how many these are.

    Leaves out: keys and values on their way to another pipeline stage. Context parallelism passes
    them on again.
    """

    word: ClassVar = "shared_attention"

    def products(self, hidden: Count) -> tuple[Projection, ...]:
        """Queries with their gate, and the output. Source: cross-layer attention (Brandon et al.
        2024).
        """
        width = self.heads * self.head_dim
        return (
            Projection(
                n=self.asked * width, k=hidden, bias=self.bias, linears=(("q", self.asked * width),)
            ),
            Projection(
                n=hidden,
                k=self.heads * self.values,
                cut=Cut.INPUT,
                bias=self.output_bias,
                linears=(("o", hidden),),
            ),
        )

    def vectors(self, hidden: Count) -> Count:  # noqa: ARG002
        """Parameters in no matrix: norms of queries, and attention sinks. [1]"""
        heads = {"": 0, "head": 1, "whole": self.heads}[self.qk_norm]
        return heads * self.head_dim + (self.heads if self.sinks else 0)

    def saved_tensors(self, hidden: Count) -> tuple[SavedTensor, ...]:  # noqa: ARG002
        """Scores, queries and the output; keys and values are kept where they are made."""
        width = self.heads * self.head_dim
        return (
            SavedTensor(elements=self.heads, dropped_by=CORE, scored=True),
            SavedTensor(
                elements=self.asked * width,
                dropped_by=frozenset({ALL}),
                halved=True,
                offloaded_by={"core_attn": 1.0},
            ),
            *((SavedTensor(elements=width),) if self.gated else ()),
            SavedTensor(elements=self.heads * self.values, **(LAST if self.gated else OUTPUT)),
        )
