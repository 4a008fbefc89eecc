"""A model as a config.json, of which transformers builds it with random weights."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from mofa_model.blocks import Experts, FeedForward, LatentAttention, SoftmaxAttention
from mofa_model.equations.parameters import total_parameters
from mofa_model.errors import MofaError
from mofa_model.presets.models import from_config
from mofa_model.spec import Transformer

FILE: Final = "config.json"
_DENSE: Final = ("llama", "qwen2", "qwen3", "olmo2", "starcoder2")
_MIXED: Final = ("mixtral", "qwen3_moe", "olmoe", "deepseek_v3")
"""Families of config.json. The one in the model's own name is tried first, then these in order."""


def config_of(model: Transformer, sequence: int) -> str:
    """The config.json of a model, up to a sequence [1]; empty where no family here has its layers.

    Which family it is, the reader of such files decides: what it reads has to be the same model.

    >>> from mofa_model.presets import model
    >>> [json.loads(config_of(model(one), 8192))["model_type"] for one in ("llama3-8b", "qwen3-4b")]
    ['llama', 'qwen3']
    """
    for config in _candidates(model, sequence):
        try:
            reread = from_config(config)
        except MofaError:
            continue
        if _same(reread, model):
            return json.dumps(config, indent=2) + "\n"
    return ""


def _same(first: Transformer, second: Transformer) -> bool:
    return (
        total_parameters(first) == total_parameters(second)
        and first.layers == second.layers
        and [type(block) for block in first.blocks] == [type(block) for block in second.blocks]
    )


def _candidates(model: Transformer, sequence: int) -> Iterator[dict[str, Any]]:
    """Contents of config.json that may describe a model: one for each family that has its kinds
    of blocks.
    """
    parts: dict[type, Any] = {type(block): block for block in model.blocks}
    experts = parts.get(Experts)
    attention = parts.get(LatentAttention) or parts.get(SoftmaxAttention)
    if attention is None or {*parts} - {Experts, LatentAttention, SoftmaxAttention, FeedForward}:
        return
    dense = parts.get(FeedForward)
    fields: dict[str, Any] = {
        "hidden_size": model.hidden,
        "num_hidden_layers": model.layers,
        "num_attention_heads": attention.heads,
        "vocab_size": model.embedding.vocabulary,
        "tie_word_embeddings": bool(model.embedding.tied),
        "max_position_embeddings": sequence,
        "hidden_act": "silu" if getattr(dense or experts, "gated", True) else "gelu",
        "intermediate_size": getattr(dense, "width", None) or getattr(experts, "width", None),
        "rms_norm_eps": 1e-5,
        "attention_bias": bool(getattr(attention, "bias", False)),
    }
    if isinstance(attention, LatentAttention):
        fields |= _latent(attention)
    else:
        fields |= {"num_key_value_heads": attention.kv_heads, "head_dim": attention.head_dim}
    if isinstance(experts, Experts):
        fields |= _experts(experts, model)
    kinds = _DENSE if experts is None else _MIXED
    for kind in sorted(
        kinds, key=lambda family: not model.name.startswith(family.partition("_")[0])
    ):
        config = dict(fields)
        if kind == "starcoder2":
            config |= {"use_bias": config.pop("attention_bias"), "sliding_window": None}
        if kind == "qwen2":
            config.pop("attention_bias")
        if kind in {"qwen2", "starcoder2"}:
            config.pop("head_dim", None)
        yield _plain({"model_type": kind, **config, **_NAMES.get(kind, {})})


_NAMES: Final[dict[str, dict[str, Any]]] = {
    "llama": {"architectures": ["LlamaForCausalLM"], "mlp_bias": False},
    "qwen2": {"architectures": ["Qwen2ForCausalLM"]},
    "qwen3": {"architectures": ["Qwen3ForCausalLM"]},
    "olmo2": {"architectures": ["Olmo2ForCausalLM"]},
    "starcoder2": {"architectures": ["Starcoder2ForCausalLM"]},
    "mixtral": {"architectures": ["MixtralForCausalLM"]},
    "qwen3_moe": {"architectures": ["Qwen3MoeForCausalLM"], "decoder_sparse_step": 1},
    "olmoe": {"architectures": ["OlmoeForCausalLM"]},
    "deepseek_v3": {"architectures": ["DeepseekV3ForCausalLM"]},
}


def _latent(block: LatentAttention) -> dict[str, Any]:
    return {
        "num_key_value_heads": block.heads,
        "q_lora_rank": block.query_rank,
        "kv_lora_rank": block.kv_rank,
        "qk_nope_head_dim": block.nope_dim,
        "qk_rope_head_dim": block.rope_dim,
        "v_head_dim": block.value_dim,
    }


def _experts(block: Experts, model: Transformer) -> dict[str, Any]:
    """Experts under the names of all families: each reads its own, and refuses what it does
    not know.
    """
    layers = [layer for run in model.runs for layer in run.layers * int(run.repeats)]
    has_experts = [any(isinstance(block, Experts) for block in layer.blocks) for layer in layers]
    shared = int((block.shared_width or 0) / block.width) if block.width else 0
    return {
        "moe": {
            "mixtral": {"num_local_experts": block.count, "intermediate_size": block.width},
            "qwen3_moe": {"num_experts": block.count, "moe_intermediate_size": block.width},
            "olmoe": {"num_experts": block.count, "intermediate_size": block.width},
            "deepseek_v3": {
                "n_routed_experts": block.count, "moe_intermediate_size": block.width,
                "n_shared_experts": shared, "first_k_dense_replace": has_experts.index(True),
                "n_group": 1, "topk_group": 1,
                "num_nextn_predict_layers": int(model.prediction_modules),
            },
        },
        "num_experts_per_tok": block.top_k,
    }  # fmt: skip


def _plain(config: dict[str, Any]) -> dict[str, Any]:
    """The fields, with those that only the model's family has for experts, and numbers without a
    fraction as whole ones.
    """
    fields = dict(config)
    fields |= fields.pop("moe", {}).get(fields["model_type"], {})

    def value(number: Any) -> Any:
        return (
            int(number)
            if not isinstance(number, bool)
            and hasattr(number, "__int__")
            and float(number).is_integer()
            and not isinstance(number, str)
            else number
        )

    return {name: value(field) for name, field in fields.items()}
