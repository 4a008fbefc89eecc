"""The model of a manifest as a `Transformer`: a preset, an architecture field by field, or a config.json."""

from __future__ import annotations

import json

from mofa_model import presets
from mofa_model.errors import BadValue, InputError
from mofa_model.manifest.architecture import Architecture, Model
from mofa_model.presets import huggingface
from mofa_model.spec import Attention, Experts, LatentAttention, Transformer


def model_of(given: Model, config: str | None, path: str) -> Transformer:
    """The model that a manifest names; `config` is the text behind configMapRef."""
    if given.preset is not None:
        also = "or describe it by architecture or configMapRef"
        return presets.model(presets.resolve("models", given.preset, field=f"{path}.preset", also=also))
    if given.architecture is not None:
        return _shape(given.architecture)
    ref = given.config_map_ref
    if ref is None or config is None:
        name = f"{ref.name}/{ref.key}" if ref is not None else ""
        raise BadValue(f"{path}.configMapRef", name, "this ConfigMap is not here: give it in the same stream")
    return read_config(config, f"{path}.configMapRef")


def read_config(text: str, path: str) -> Transformer:
    """A Hugging Face config.json that came as text."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: is not JSON: {' '.join(str(error).split())[:120]}") from None
    if not isinstance(document, dict):
        raise InputError(f"{path}: is not a model configuration: it is no JSON object")
    return huggingface.from_config(document)


def _shape(given: Architecture) -> Transformer:
    latent, experts = given.latent_attention, given.experts
    attention: Attention | LatentAttention
    if latent is not None:
        attention = LatentAttention(heads=given.heads, **latent.model_dump())
    else:
        attention = Attention(
            heads=given.heads,
            kv_heads=given.kv_heads or given.heads,
            head_dim=given.head_dim or given.hidden_size // given.heads,
            window=given.window,
            windowed_share=given.windowed_layers_percent / 100,
        )
    return Transformer(
        name="custom",
        layers=given.layers,
        hidden=given.hidden_size,
        attention=attention,
        ffn=given.ffn_size,
        gated=given.gated,
        vocabulary=given.vocabulary_size,
        tied_embeddings=given.tied_embeddings,
        prediction_modules=given.prediction_modules,
        experts=None
        if experts is None
        else Experts(
            count=experts.count,
            top_k=experts.top_k,
            width=experts.ffn_size,
            shared_width=experts.shared_ffn_size,
            dense_layers=experts.dense_layers,
            imbalance=float(experts.imbalance),
            node_limit=experts.node_limit,
        ),
    )
