"""The model that a TrainingJob names: a preset, its architecture field by field, or where its config.json is."""

from __future__ import annotations

from pydantic import Field

from mofa_model.manifest.fields import (
    AtLeastOne,
    Count,
    Key,
    Layers,
    Name,
    Part,
    Percent,
    Rule,
    Word,
    Zero,
)


class Latent(Part):
    """Multi-head latent attention, in place of kvHeads and headDim."""

    query_rank: Zero = 0
    """Width of the query latent; 0 = queries are projected directly."""
    kv_rank: Count
    """Width of the key and value latent."""
    nope_dim: Count
    """Width of a head's part without rotary position."""
    rope_dim: Zero = 0
    """Width of a head's rotary part."""
    value_dim: Count
    """Width of a head's value."""


class ExpertPart(Part):
    """The mixture of experts."""

    rules = (
        Rule("self.topK <= self.count", "topK must not exceed count", lambda e: e.top_k <= e.count),
    )

    count: Count
    """Routed experts."""
    top_k: Count
    """Experts that a token is sent to."""
    ffn_size: Count
    """FFN width of one expert."""
    shared_ffn_size: Zero = 0
    """FFN width of the experts that every token passes, together."""
    dense_layers: Zero = 0
    """Leading layers that have a plain FFN instead."""
    imbalance: AtLeastOne = "1"
    """Load of the fullest rank against the mean, at least 1."""
    node_limit: Zero = 0
    """Nodes that the experts of one token may lie on; 0 = any."""


class Architecture(Part):
    """The shape of a decoder."""

    rules = (
        Rule(
            "!has(self.latentAttention) || !(has(self.kvHeads) || has(self.headDim))",
            "latentAttention has no kvHeads and no headDim",
            lambda a: a.latent_attention is None or (a.kv_heads is None and a.head_dim is None),
        ),
        Rule(
            "!has(self.kvHeads) || self.heads % self.kvHeads == 0",
            "kvHeads must divide heads",
            lambda a: a.kv_heads is None or a.heads % a.kv_heads == 0,
        ),
        Rule(
            "!has(self.experts) || self.experts.denseLayers <= self.layers",
            "experts.denseLayers must not exceed layers",
            lambda a: a.experts is None or a.experts.dense_layers <= a.layers,
        ),
    )

    layers: Layers
    """Transformer blocks."""
    hidden_size: Count
    """Width of the residual stream."""
    heads: Count
    """Query heads."""
    kv_heads: Count | None = None
    """Key and value heads; as many as heads where it is missing."""
    head_dim: Count | None = None
    """Width of one head; hiddenSize / heads where it is missing."""
    window: Zero = 0
    """Tokens that a windowed layer attends to; 0 = no window."""
    windowed_layers_percent: Percent = 100
    """Share of the layers that are windowed, where there is a window."""
    latent_attention: Latent | None = None
    """Multi-head latent attention."""
    ffn_size: Count
    """Width of the dense feed-forward part."""
    gated: bool = True
    """True for SwiGLU and its kin: three matrices instead of two."""
    vocabulary_size: Count
    """Rows of the embedding, padding included."""
    tied_embeddings: bool = False
    """True where the head is the embedding transposed."""
    experts: ExpertPart | None = None
    """The mixture of experts; missing for a dense model."""
    prediction_modules: Zero = 0
    """Multi-token prediction modules."""


class ConfigMapRef(Part):
    """A key of a ConfigMap in the same namespace."""

    name: Name
    """The ConfigMap."""
    key: Key = "config.json"
    """Its key: a Hugging Face config.json."""


class Model(Part):
    """The model: one of a preset, its architecture, or a reference to its config.json."""

    rules = (
        Rule(
            "(has(self.preset) ? 1 : 0) + (has(self.architecture) ? 1 : 0) + (has(self.configMapRef) ? 1 : 0) == 1",
            "give exactly one of preset, architecture and configMapRef",
            lambda m: sum(x is not None for x in (m.preset, m.architecture, m.config_map_ref)) == 1,
        ),
    )

    preset: Word | None = Field(default=None, examples=["llama3-405b"])
    """Id or alias of a model preset: `mofa presets models` lists them."""
    architecture: Architecture | None = None
    """The model's shape, field by field."""
    config_map_ref: ConfigMapRef | None = None
    """Where a Hugging Face config.json is."""
