"""Sparse attention (DeepSeek-V3.2): latent attention over the tokens that a small indexer scores
best.
"""

from __future__ import annotations

from typing import ClassVar

from mofa_model.blocks.block import ALL, ContextMessages, Core, Cut, Projection, SavedTensor
from mofa_model.blocks.latent import LatentAttention
from mofa_model.blocks.softmax import CORE, OUTPUT
from mofa_model.checks import whole
from mofa_model.errors import BadValue
from mofa_model.records import dataclass
from mofa_model.units import Count, Numeric


@dataclass(frozen=True, kw_only=True)
class SparseAttention(LatentAttention):
    """Latent attention as multi-query attention over the latents of the `top_k` best tokens."""

    word: ClassVar = "sparse_attention"

    index_heads: Numeric
    """Heads of the indexer."""
    index_dim: Numeric
    """Width of one of them; its key is shared by all."""
    top_k: Numeric
    """Tokens that a token attends to."""

    def __post_init__(self) -> None:
        LatentAttention.__post_init__(self)
        whole(index_heads=self.index_heads, index_dim=self.index_dim, sparse_top_k=self.top_k)
        if self.query_rank is None:
            raise BadValue(
                "query_rank", None, "the indexer reads the latent of the queries: give its width"
            )

    @property
    def heads_text(self) -> str:
        """Heads."""
        return f"{self.heads} sparse"

    def products(self, hidden: Count) -> tuple[Projection, ...]:
        """Products of latent attention, and the indexer's three. Source: DeepSeek-V3.2."""
        return (
            *LatentAttention.products(self, hidden),
            Projection(n=self.index_heads * self.index_dim, k=self.query_latent, cut=Cut.NOTHING),
            Projection(n=self.index_dim, k=hidden, cut=Cut.NOTHING),
            Projection(n=self.index_heads, k=hidden, cut=Cut.NOTHING),
        )

    def vectors(self, hidden: Count) -> Count:
        """Norms of the latents, and the norm of the indexer's key with its bias."""
        return LatentAttention.vectors(self, hidden) + 2 * self.index_dim

    def cores(self) -> tuple[Core, ...]:
        """Attention to the best tokens' latents, and the indexer. Source: DeepSeek-V3.2, MQA."""
        return (
            Core(heads=self.heads, width=2 * self.kv_rank + self.rope_dim, window=self.top_k),
            Core(heads=self.index_heads, width=self.index_dim),
        )

    def saved_tensors(self, hidden: Count) -> tuple[SavedTensor, ...]:  # noqa: ARG002
        """Statistics; queries as wide as the latents; the latents; what the indexer reads; output
        before and after its way up.
        """
        queries = self.heads * self.kv_rank
        index = self.index_heads * (self.index_dim + 1) + self.index_dim
        return (
            SavedTensor(elements=self.heads, dropped_by=CORE, scored=True),
            SavedTensor(
                elements=queries + self.heads * (self.nope_dim + self.rope_dim * 2),
                dropped_by=frozenset({"mla_up_proj", ALL}),
                halved=True,
                offloaded_by={"core_attn": 1.0},
            ),
            *self.saved_latents(index_keys=index),
            SavedTensor(elements=queries, dropped_by=frozenset({ALL})),
            SavedTensor(elements=self.heads * self.value_dim, **OUTPUT),
        )

    def context_messages(self) -> ContextMessages:
        """What context parallelism sends: latents and the indexer's keys go around the ring whole;
        queries and outputs are exchanged as wide as the latents.
        """
        return ContextMessages(
            unsplit_elements=self.kv_rank + self.rope_dim + self.index_dim,
            all_to_all_elements=self.heads * (2 * self.kv_rank + self.rope_dim),
        )
