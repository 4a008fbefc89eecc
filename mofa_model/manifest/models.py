"""The model of a manifest as a `Transformer`: a preset, an architecture field by field, or a config.json."""

from __future__ import annotations

import json
from dataclasses import replace

from mofa_model import presets
from mofa_model.blocks import (
    Block,
    Embedding,
    Experts,
    FeedForward,
    LatentAttention,
    Layer,
    SoftmaxAttention,
)
from mofa_model.errors import BadValue, InputError, UnknownName
from mofa_model.manifest.architecture import Architecture, ExpertPart, Model
from mofa_model.presets import huggingface
from mofa_model.spec import Run, Transformer


def model_of(given: Model, config: str | None, path: str) -> Transformer:
    """The model that a manifest names; `config` is the text behind configMapRef."""
    if given.preset is not None:
        also = "or describe it by architecture or configMapRef"
        return presets.model(
            presets.resolve("models", given.preset, field=f"{path}.preset", also=also)
        )
    if given.architecture is not None:
        return _shape(given.architecture)
    ref = given.config_map_ref
    if ref is None or config is None:
        name = f"{ref.name}/{ref.key}" if ref is not None else ""
        raise BadValue(
            f"{path}.configMapRef", name, "this ConfigMap is not here: give it in the same stream"
        )
    return read_config(config, f"{path}.configMapRef")


def read_config(text: str, path: str) -> Transformer:
    """A Hugging Face config.json that came as text. Its values are not repeated: who reads the answer may not read the ConfigMap."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: is not JSON: {' '.join(str(error).split())[:120]}") from None
    if not isinstance(document, dict):
        raise InputError(f"{path}: is not a model configuration: it is no JSON object")
    try:
        return huggingface.from_config(document)
    except (BadValue, UnknownName) as error:
        raise InputError(f"{path}: {error.field} there cannot be right; {error.right}") from None


def _shape(given: Architecture) -> Transformer:
    latent, experts = given.latent_attention, given.experts
    mixer: Block
    if latent is not None:
        ranks = latent.model_dump()
        mixer = LatentAttention(
            heads=given.heads, **ranks | {"query_rank": latent.query_rank or None}
        )
    else:
        mixer = SoftmaxAttention(
            heads=given.heads,
            kv_heads=given.kv_heads or given.heads,
            head_dim=given.head_dim or given.hidden_size // given.heads,
        )
    dense = FeedForward(width=given.ffn_size, gated=given.gated)
    sparse = None if experts is None else _experts(experts, gated=given.gated)
    leading = 0 if experts is None else experts.dense_layers
    every = [
        Layer((_windowed(given, mixer, at), dense if sparse is None or at < leading else sparse))
        for at in range(given.layers)
    ]
    return Transformer(
        name="custom",
        hidden=given.hidden_size,
        runs=Run.of(every),
        embedding=Embedding(vocabulary=given.vocabulary_size, tied=given.tied_embeddings),
        prediction_modules=given.prediction_modules,
    )


def _windowed(given: Architecture, mixer: Block, at: int) -> Block:
    """The attention of a layer: windowed layers lie evenly between the others."""
    if not given.window or not isinstance(mixer, SoftmaxAttention):
        return mixer
    wanted = round(given.layers * given.windowed_layers_percent / 100)
    windowed = -(-(at + 1) * wanted // given.layers) > -(-at * wanted // given.layers)
    return replace(mixer, window=given.window) if windowed else mixer


def _experts(given: ExpertPart, *, gated: bool) -> Experts:
    return Experts(
        count=given.count,
        top_k=given.top_k,
        width=given.ffn_size,
        gated=gated,
        shared_width=given.shared_ffn_size or None,
        imbalance=float(given.imbalance),
        node_limit=given.node_limit,
    )
