"""Recipes of torchtitan for models of which it has none, made of its own layers as its own recipes are.

`check_torchtitan` says the sizes of the model before the recipe is asked for: `--module recipes --config recipe`.
"""

# ruff: noqa: SLF001 - its own recipes are made of these
from __future__ import annotations

import dataclasses
from typing import Any

SIZES: dict[str, Any] = {}
"""Sizes of the model that `recipe` makes."""


def recipe() -> Any:
    """What torchtitan trains LLaMA3-8B by, with another model."""
    from torchtitan.models.llama3 import config_registry, model_registry

    if (
        SIZES["dim"] == 16384 and SIZES["n_layers"] == 126
    ):  # LLaMA3-405B without the float8 layers of its own recipe
        spec = model_registry("405B")
    else:
        spec = dataclasses.replace(model_registry("8B"), model=model(SIZES))
    return dataclasses.replace(config_registry.llama3_8b(), model_spec=spec)


def model(given: dict[str, Any]) -> Any:
    """A decoder of torchtitan's own layers, by what they are made of."""
    from torchtitan.models import qwen3
    from torchtitan.models.common import Embedding, Linear

    sizes = dict(given)
    dim, words = sizes["dim"], sizes.pop("vocabulary")
    ends = {
        "vocab_size": words, "dim": dim, "norm": qwen3._qwen3_norm(dim),
        "tok_embeddings": Embedding.Config(num_embeddings=words, embedding_dim=dim, param_init=qwen3._EMBEDDING_INIT),
        "lm_head": Linear.Config(in_features=dim, out_features=words, param_init=qwen3._LINEAR_INIT),
    }  # fmt: skip
    if "kv_lora_rank" in sizes:
        return latent(sizes, ends)
    if "n_key_heads" in sizes:
        return delta(sizes, ends)
    return qwen3.Qwen3Model.Config(layers=plain(sizes), **ends)


def plain(sizes: dict[str, Any]) -> list[Any]:
    """Attention, and dense blocks before experts."""
    from torchtitan.models import qwen3
    from torchtitan.models.common import CosSinRoPE

    mixed, width = sizes.pop("mixed", {}), sizes.pop("hidden_dim", None)
    depth, first = sizes.pop("n_layers"), sizes.pop("n_dense_layers")
    rope = CosSinRoPE.Config(dim=sizes["head_dim"], max_seq_len=131072)
    shared = {**sizes, "attn_backend": "flex", "rope": rope}
    layers = qwen3._build_qwen3_layers(n_layers=first, hidden_dim=width, **shared) if first else []
    if depth > first:
        more = {**shared, **mixed, "moe_comm_backend": "standard"}
        layers += qwen3._build_qwen3_moe_layers(n_layers=depth - first, **more)
    return layers


def latent(sizes: dict[str, Any], ends: dict[str, Any]) -> Any:
    """Latent attention, and dense blocks before experts."""
    from torchtitan.models import deepseek_v3
    from torchtitan.models.common import ComplexRoPE

    mixed = sizes.pop("mixed")
    dense = sizes.pop("hidden_dim", mixed["moe_hidden_dim"])
    layers = deepseek_v3._build_dsv3_layers(
        **sizes, dense_hidden_dim=dense, router_top_k=mixed.pop("top_k"), **mixed,
        num_shared_experts=1, mscale=1.0, router_score_func="sigmoid", attn_backend="flex", moe_comm_backend="standard",
        non_blocking_capacity_factor=None, rope=ComplexRoPE.Config(dim=sizes["qk_rope_head_dim"], max_seq_len=131072),
    )  # fmt: skip
    return deepseek_v3.DeepSeekV3Model.Config(layers=layers, mtp_layers=[], **ends)


def delta(sizes: dict[str, Any], ends: dict[str, Any]) -> Any:
    """Gated delta nets between layers of attention; the tower of images is that of the recipe."""
    from torchtitan.models import qwen3_5

    del sizes["n_dense_layers"]
    mixed = sizes.pop("mixed", {})
    like = qwen3_5.qwen3_5_configs["35B-A3B" if mixed else "27B"](attn_backend="flex")
    build = qwen3_5._build_qwen35_moe_layers if mixed else qwen3_5._build_qwen35_layers
    rope = next(one.attention.rope for one in like.layers if one.attention is not None)
    more = {**mixed, "shared_expert_hidden_dim": mixed["moe_hidden_dim"]} if mixed else {}
    layers = build(**sizes, **more, rope=rope, rotary_dim=rope.dim, attn_backend="flex")
    return dataclasses.replace(like, layers=layers, **{**ends, "norm": like.norm})
