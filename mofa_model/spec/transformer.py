"""The shape of a decoder-only transformer, dense or mixture of experts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mofa_model.errors import BadValue
from mofa_model.spec.checks import not_negative, positive, share, whole
from mofa_model.units import Numeric


@dataclass(frozen=True, kw_only=True, slots=True)
class Attention:
    """Multi-head, grouped-query or multi-query attention: they differ in `kv_heads` alone."""

    heads: Numeric
    """Query heads."""
    kv_heads: Numeric
    """Key and value heads: equal to `heads` for MHA, one for MQA."""
    head_dim: Numeric
    """Width of one head."""
    window: Numeric = 0
    """Tokens that a windowed layer attends to; 0 = no window."""
    windowed_share: Numeric = 1.0
    """Share of the layers that are windowed, where there is a window."""

    def __post_init__(self) -> None:
        whole(heads=self.heads, kv_heads=self.kv_heads, head_dim=self.head_dim)
        not_negative(window=self.window)
        share(windowed_share=self.windowed_share)
        if np.any(np.asarray(self.heads) % self.kv_heads):
            raise BadValue("kv_heads", self.kv_heads, f"it must divide heads ({self.heads})")


@dataclass(frozen=True, kw_only=True, slots=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek): keys and values are projected up from a small latent."""

    heads: Numeric
    """Query heads."""
    query_rank: Numeric
    """Width of the query latent; 0 = queries are projected directly."""
    kv_rank: Numeric
    """Width of the key and value latent."""
    nope_dim: Numeric
    """Width of a head's part without rotary position."""
    rope_dim: Numeric
    """Width of a head's rotary part, one key shared by all heads."""
    value_dim: Numeric
    """Width of a head's value."""

    def __post_init__(self) -> None:
        whole(heads=self.heads, kv_rank=self.kv_rank, nope_dim=self.nope_dim, value_dim=self.value_dim)
        not_negative(query_rank=self.query_rank, rope_dim=self.rope_dim)


@dataclass(frozen=True, kw_only=True, slots=True)
class Experts:
    """The mixture-of-experts part of a layer."""

    count: Numeric
    """Routed experts."""
    top_k: Numeric
    """Experts that a token is sent to."""
    width: Numeric
    """FFN width of one expert."""
    shared_width: Numeric = 0
    """FFN width of the experts that every token passes, together."""
    dense_layers: Numeric = 0
    """Leading layers that have a plain FFN instead."""
    imbalance: Numeric = 1.0
    """Load of the fullest rank against the mean, at least 1."""

    node_limit: Numeric = 0
    """Nodes that the experts of one token may lie on; 0 = any (DeepSeek-V3 routes to 4). [1]"""

    def __post_init__(self) -> None:
        whole(experts=self.count, top_k=self.top_k, expert_width=self.width)
        not_negative(
            shared_width=self.shared_width, dense_layers=self.dense_layers, node_limit=self.node_limit
        )
        if np.any(np.asarray(self.top_k) > self.count):
            raise BadValue("top_k", self.top_k, f"it cannot exceed the number of experts ({self.count})")
        if not np.all(np.isfinite(self.imbalance) & (np.asarray(self.imbalance) >= 1)):
            raise BadValue("imbalance", self.imbalance, "give 1 (balanced) or more")


@dataclass(frozen=True, kw_only=True, slots=True)
class Transformer:
    """A decoder: embedding, `layers` equal blocks (the first may be dense), head."""

    name: str
    """Preset id, or what the user calls it."""
    layers: Numeric
    """Transformer blocks, without multi-token prediction modules."""
    hidden: Numeric
    """Width of the residual stream."""
    attention: Attention | LatentAttention
    """How tokens look at each other."""
    ffn: Numeric
    """Width of the dense feed-forward part."""
    gated: bool
    """True for SwiGLU and its kin: three matrices instead of two."""
    vocabulary: Numeric
    """Rows of the embedding, padding included."""
    tied_embeddings: bool = False
    """True where the head is the embedding transposed."""
    experts: Experts | None = None
    """The mixture of experts; None for a dense model."""
    prediction_modules: Numeric = 0
    """Multi-token prediction modules: each one more block and one more pass of the head."""

    def __post_init__(self) -> None:
        whole(layers=self.layers, hidden=self.hidden, ffn=self.ffn, vocabulary=self.vocabulary)
        not_negative(prediction_modules=self.prediction_modules)
        positive(layers=self.layers)
        if self.experts is not None and np.any(np.asarray(self.experts.dense_layers) > self.layers):
            raise BadValue("dense_layers", self.experts.dense_layers, f"at most layers ({self.layers})")
