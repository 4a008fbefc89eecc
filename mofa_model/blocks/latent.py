"""Multi-head latent attention (DeepSeek-V2): keys and values are projected up from a
small latent.
"""

from __future__ import annotations

from typing import ClassVar

from mofa_model.blocks.block import (
    ALL,
    Block,
    ContextMessages,
    Core,
    Cut,
    Projection,
    Ranks,
    SavedTensor,
)
from mofa_model.blocks.softmax import CORE, OUTPUT
from mofa_model.checks import not_negative, whole
from mofa_model.records import dataclass
from mofa_model.units import Count, Numeric


@dataclass(frozen=True, kw_only=True)
class LatentAttention(Block):
    """Multi-head latent attention."""

    word: ClassVar = "latent_attention"
    stream_passes: ClassVar = 6.0
    norm_offloaded_with: ClassVar = "qkv_linear"
    residual_offloaded_with: ClassVar = "attn_norm"

    heads: Numeric
    """Query heads."""
    query_rank: Numeric | None = None
    """Width of the query latent; None = queries are projected directly."""
    kv_rank: Numeric
    """Width of the key and value latent."""
    nope_dim: Numeric
    """Width of a head's part without rotary position."""
    rope_dim: Numeric
    """Width of a head's rotary part, one key shared by all heads."""
    value_dim: Numeric
    """Width of a head's value."""

    def __post_init__(self) -> None:
        whole(
            heads=self.heads, kv_rank=self.kv_rank, nope_dim=self.nope_dim, value_dim=self.value_dim
        )
        not_negative(rope_dim=self.rope_dim)
        if self.query_rank is not None:
            whole(query_rank=self.query_rank)

    @property
    def heads_text(self) -> str:
        """Heads."""
        return f"{self.heads} latent"

    @property
    def launches(self) -> Count:
        """Kernels of the forward pass beyond those of plain attention: two for each latent (its
        product and its norm), and four for the way out of the latents and for putting heads
        together. Source: counted of Megatron-Core. [1]
        """
        latents = 1.0 if self.query_rank is None else 2.0
        return 4.0 + 2.0 * latents

    @property
    def query_latent(self) -> Numeric:
        """Width of the query latent; zero where there is none. [1]"""
        return 0 if self.query_rank is None else self.query_rank

    def products(self, hidden: Count) -> tuple[Projection, ...]:
        """Queries through their latent, the latent of keys and values, its way up, and the output.
        Source: DeepSeek-V2.
        """
        queries = self.heads * (self.nope_dim + self.rope_dim)
        query_products = (
            (Projection(n=queries, k=hidden, linears=(("q", queries),)),)
            if self.query_rank is None
            else (
                Projection(
                    n=self.query_rank,
                    k=hidden,
                    cut=Cut.NOTHING,
                    linears=(("q_a", self.query_rank),),
                ),
                Projection(n=queries, k=self.query_rank, linears=(("q_b", queries),)),
            )
        )
        down, up = self.kv_rank + self.rope_dim, self.heads * (self.nope_dim + self.value_dim)
        return (
            *query_products,
            Projection(n=down, k=hidden, cut=Cut.NOTHING, linears=(("kv_a", down),)),
            Projection(
                n=up,
                k=self.kv_rank,
                linears=(("kv_b", up),),
                recomputed_by=frozenset({"mla_up_proj"}),
            ),
            Projection(
                n=hidden, k=self.heads * self.value_dim, cut=Cut.INPUT, linears=(("o", hidden),)
            ),
        )

    def vectors(self, hidden: Count) -> Count:  # noqa: ARG002
        """Parameters in no matrix: norms of the latents. [1]"""
        return self.query_latent + self.kv_rank

    def cores(self) -> tuple[Core, ...]:
        """Scores and weighted values of all heads, keys and values at full width."""
        return (
            Core(
                heads=self.heads, width=self.nope_dim + self.rope_dim + self.value_dim, scored=True
            ),
        )

    def saved_tensors(self, hidden: Count) -> tuple[SavedTensor, ...]:  # noqa: ARG002
        """Scores; outputs of the up projections; the latents before and after their norm, with the
        shared rotary key; the output. Ours.
        """
        queries = self.heads * (self.nope_dim + self.rope_dim)
        values = self.heads * self.value_dim
        return (
            SavedTensor(
                elements=self.heads, dropped_by=CORE, scored=True, offloaded_by={"core_attn": 1.0}
            ),
            SavedTensor(
                elements=2 * queries + values,
                dropped_by=frozenset({"mla_up_proj", ALL}),
                halved=True,
                offloaded_by={"core_attn": 1.0},
            ),
            *self.saved_latents(),
            SavedTensor(elements=values, **OUTPUT),
        )

    def saved_latents(self, index_keys: Count = 0.0) -> tuple[SavedTensor, ...]:
        """The latents before their norm with the shared rotary key and `index_keys`, and
        after it.
        """
        latents = self.query_latent + self.kv_rank
        return (
            SavedTensor(
                elements=latents + self.rope_dim + index_keys,
                ranks=Ranks.STREAM,
                dropped_by=frozenset({ALL}),
                offloaded_by={"qkv_linear": 1.0},
            ),
            SavedTensor(
                elements=latents,
                ranks=Ranks.STREAM,
                dropped_by=frozenset({ALL}),
                readers=frozenset({"q_b", "kv_b"}),
                offloaded_by={"qkv_linear": 1.0},
            ),
        )

    def context_messages(self) -> ContextMessages:
        """Keys and values of all heads go around a ring; an all-to-all moves as much again."""
        width = self.heads * (self.nope_dim + self.rope_dim + self.value_dim)
        return ContextMessages(ring_elements=width, all_to_all_elements=width)

    def split(self) -> tuple[Count, ...]:
        """Heads, which tensor parallelism has to divide."""
        return (self.heads,)

    def all_to_all_heads(self) -> Count:
        """Heads, which ranks of an all-to-all have to divide."""
        return self.heads
