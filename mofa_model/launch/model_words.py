"""How a trainer is told a model: what its script or its recipe says of layers and their blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mofa_model.axes.frameworks import side_by_side
from mofa_model.blocks import (
    Experts,
    FeedForward,
    LatentAttention,
    Layer,
    LinearAttention,
    SoftmaxAttention,
    SparseAttention,
    StateSpace,
)
from mofa_model.errors import BadValue
from mofa_model.launch.megatron import SYMBOLS
from mofa_model.spec import Transformer


def megatron_model(model: Transformer, positions: int = 131072) -> list[str]:
    """What a script of Megatron-LM says of a model; a pattern of unlike layers comes with
    the launch.
    """
    words: dict[str, Any] = {
        "num-layers": len(_symbols(model)) if lists_layers(model) else model.layers,
        "hidden-size": model.hidden,
        "vocab-size": model.embedding.vocabulary,
        "max-position-embeddings": positions,
        "normalization": "RMSNorm",
        "position-embedding-type": "rope",
    }
    flags = ["disable-bias-linear"] + ["untie-embeddings-and-output-weights"] * (
        not model.embedding.tied
    )
    for block in model.blocks:
        values, switches = megatron_block(block)
        words |= values
        flags += switches
    if model.experts is not None:
        first = int(_dense_first(model))
        words |= (
            {}
            if lists_layers(model)
            else {"moe-layer-freq": f"([0]*{first}+[1]*{int(model.layers - first)})"}
        )
        words.setdefault("ffn-hidden-size", model.experts.width)
    words.setdefault("num-attention-heads", words.get("mamba-num-heads"))
    words.setdefault("ffn-hidden-size", 4 * model.hidden)
    if model.prediction_modules:
        words["mtp-num-layers"] = model.prediction_modules
    return _option_words(words, flags)


def megatron_block(block: Any) -> tuple[dict[str, Any], list[str]]:
    """What a script of Megatron-LM says of a block: values and switches."""
    if isinstance(block, SoftmaxAttention):
        words = {"num-attention-heads": block.heads, "kv-channels": block.head_dim}
        if block.kv_heads == block.heads:
            return words, []
        return {**words, "num-query-groups": block.kv_heads}, ["group-query-attention"]
    if isinstance(block, LatentAttention):
        return _latent(block)
    if isinstance(block, LinearAttention):
        return {
            "linear-num-key-heads": block.key_heads,
            "linear-num-value-heads": block.value_heads,
            "linear-key-head-dim": block.key_dim,
            "linear-value-head-dim": block.value_dim,
        }, []
    if isinstance(block, StateSpace):
        words = {"mamba-num-heads": block.heads, "mamba-head-dim": block.head_dim}
        return {**words, "mamba-state-dim": block.state, "mamba-num-groups": block.groups}, []
    if isinstance(block, FeedForward):
        return {"ffn-hidden-size": block.width}, ["swiglu"] * block.gated
    if not isinstance(block, Experts):
        raise BadValue("model", block.variant, "Megatron has no such block")
    words = {
        "num-experts": block.count,
        "moe-router-topk": block.top_k,
        "moe-ffn-hidden-size": block.width,
    }
    if block.shared_width:
        words["moe-shared-expert-intermediate-size"] = block.shared_width
    return words, ["swiglu"] * block.gated


def _latent(block: LatentAttention) -> tuple[dict[str, Any], list[str]]:
    words: dict[str, Any] = {
        "num-attention-heads": block.heads,
        "kv-lora-rank": block.kv_rank,
        "qk-head-dim": block.nope_dim,
    }
    words |= {"qk-pos-emb-head-dim": block.rope_dim, "v-head-dim": block.value_dim}
    words |= {} if block.query_rank is None else {"q-lora-rank": block.query_rank}
    if isinstance(block, SparseAttention):
        words |= {"experimental-attention-variant": "dsa", "dsa-indexer-n-heads": block.index_heads}
        words |= {"dsa-indexer-head-dim": block.index_dim, "dsa-indexer-topk": block.top_k}
    return words, ["multi-latent-attention"]


def bridge_model(model: Transformer, positions: int = 131072) -> list[str]:
    """The model's arguments for Megatron Bridge, which has its own words for mixed kinds
    of layers.
    """
    if not lists_layers(model):
        return megatron_model(model, positions)
    words = megatron_model(model, positions)
    if any(isinstance(block, StateSpace) for block in model.blocks) and not side_by_side(model):
        return [*words, "--hybrid-layer-pattern", _symbols(model)]
    words[words.index("--num-layers") + 1] = str(int(model.layers))
    if side_by_side(model):
        return words
    often = {
        "experimental-attention-variant": "gated_delta_net",
        "linear-attention-freq": len(model.runs[0].layers),
    }
    return [*words, *_option_words(often, [])]


def _option_words(words: Mapping[str, Any], flags: Sequence[str]) -> list[str]:
    shown = {
        name: str(int(value) if isinstance(value, float) else value)
        for name, value in words.items()
    }
    return [f"--{name}" for name in dict.fromkeys(flags)] + [
        word for name, value in shown.items() for word in (f"--{name}", value)
    ]


def lists_layers(model: Transformer) -> bool:
    """Whether Megatron is told the layers of a model one by one."""
    return model.unlike or any(isinstance(block, StateSpace) for block in model.blocks)


def _symbols(model: Transformer) -> str:
    """Blocks of all layers in Megatron's notation."""
    return "".join(SYMBOLS[block.variant] for kind in _order(model) for block in kind.blocks)


def _order(model: Transformer) -> list[Layer]:
    """Layers in order of the network."""
    return [kind for run in model.runs for kind in run.layers * int(run.repeats)]


def _dense_first(model: Transformer) -> int:
    """Layers before the first with experts. [1]"""
    mixed = [any(isinstance(block, Experts) for block in kind.blocks) for kind in _order(model)]
    return mixed.index(True) if True in mixed else len(mixed)


TORCHTITAN: Final = {
    "llama3-8b": ("llama3", "llama3_8b"),
    "llama3-70b": ("llama3", "llama3_70b"),
    "qwen3-0.6b": ("qwen3", "qwen3_0_6b"),
    "qwen3-1.7b": ("qwen3", "qwen3_1_7b"),
    "qwen3-14b": ("qwen3", "qwen3_14b"),
    "qwen3-32b": ("qwen3", "qwen3_32b"),
    "qwen3-30b-a3b": ("qwen3", "qwen3_30b_a3b"),
    "qwen3.5-27b": ("qwen3_5", "qwen35_27b"),
    "qwen3.5-35b-a3b": ("qwen3_5", "qwen35_35b_a3b"),
    "gpt-oss-20b": ("gpt_oss", "gpt_oss_20b"),
    "gpt-oss-120b": ("gpt_oss", "gpt_oss_120b"),
    "deepseek-v2-lite": ("deepseek_v3", "deepseek_v3_16b"),
    "deepseek-v3": ("deepseek_v3", "deepseek_v3_671b"),
}
"""Recipes of torchtitan, by the model that they train. LLaMA3-405B is not among them: its own
recipe converts layers to float8, which is another precision."""


def torchtitan_model(model: Transformer) -> dict[str, Any]:
    """The recipe of torchtitan that trains a model, or the sizes of one that is made of
    its layers.
    """
    if model.name in TORCHTITAN:
        module, recipe = TORCHTITAN[model.name]
        return {"words": ["--module", module, "--config", recipe], "sizes": {}}
    sizes: dict[str, Any] = {"dim": model.hidden, "vocabulary": model.embedding.vocabulary}
    sizes |= {"n_layers": model.layers}
    for block in model.blocks:
        if isinstance(block, LatentAttention):
            sizes |= {
                "n_heads": block.heads,
                "q_lora_rank": block.query_rank or 0,
                "kv_lora_rank": block.kv_rank,
            }
            sizes |= {"qk_nope_head_dim": block.nope_dim, "qk_rope_head_dim": block.rope_dim}
            sizes |= {"v_head_dim": block.value_dim}
        elif isinstance(block, LinearAttention):
            sizes |= {"n_key_heads": block.key_heads, "n_value_heads": block.value_heads}
            sizes |= {"key_head_dim": block.key_dim, "value_head_dim": block.value_dim}
            sizes |= {"full_attention_interval": len(model.runs[0].layers)}
        elif isinstance(block, SoftmaxAttention):
            sizes |= {
                "n_heads": block.heads,
                "n_kv_heads": block.kv_heads,
                "head_dim": block.head_dim,
            }
        elif isinstance(block, FeedForward):
            sizes["hidden_dim"] = block.width
        elif isinstance(block, Experts):
            sizes["mixed"] = {
                "num_experts": block.count,
                "top_k": block.top_k,
                "moe_hidden_dim": block.width,
            }
    sizes["n_dense_layers"] = _dense_first(model)
    return {"words": ["--module", "recipes", "--config", "recipe"], "sizes": _plain(sizes)}


def _plain(sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Sizes as whole numbers."""
    return {
        name: _plain(size) if isinstance(size, Mapping) else int(size)
        for name, size in sizes.items()
    }
