"""Attention that reads the keys and values of an earlier layer: it projects queries and the output
alone.
"""

from __future__ import annotations

from typing import ClassVar

from mofa_model.blocks.block import ALL, Cut, Kept, Projection
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
                n=self.asked * width,
                k=hidden,
                bias=self.bias,
                linears=(("q", self.asked * width),),
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

    def kept(self, hidden: Count) -> tuple[Kept, ...]:  # noqa: ARG002
        """Scores, queries and the output; keys and values are kept where they are made."""
        width = self.heads * self.head_dim
        return (
            Kept(elements=self.heads, freed=CORE, scored=True),
            Kept(
                elements=self.asked * width,
                freed=frozenset({ALL}),
                halved=True,
                moved={"core_attn": 1.0},
            ),
            *((Kept(elements=width),) if self.gated else ()),
            Kept(elements=self.heads * self.values, **(LAST if self.gated else OUTPUT)),
        )
