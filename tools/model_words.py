"""How a trainer is told a model, where a validator asks it: what its launch says, or a small model
with the same kinds of blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from mofa_model.blocks import LatentAttention, SoftmaxAttention, StateSpace
from mofa_model.launch.model_words import bridge_model, megatron_model, torchtitan_model
from mofa_model.spec import Transformer


def transformers_model(model: Transformer) -> dict[str, Any]:
    """A small model of transformers with the same kinds of blocks, heads and experts."""
    config: dict[str, Any] = {"model_type": "llama", "intermediate_size": 64, "vocab_size": 64}
    config |= {"num_hidden_layers": 2, "tie_word_embeddings": bool(model.embedding.tied)}
    for block in model.blocks:
        if isinstance(block, SoftmaxAttention):
            config |= {
                "num_attention_heads": int(block.heads),
                "num_key_value_heads": int(block.kv_heads),
            }
            config["head_dim"] = 8
        elif isinstance(block, LatentAttention):
            config |= {
                "num_attention_heads": int(block.heads),
                "num_key_value_heads": int(block.heads),
            }
            config |= {
                "kv_lora_rank": 8,
                "q_lora_rank": 8,
                "qk_nope_head_dim": 8,
                "qk_rope_head_dim": 8,
            }
            config |= {"v_head_dim": 8, "model_type": "deepseek_v3"}
        elif isinstance(block, StateSpace):
            return {
                "model_type": "mamba2",
                "num_hidden_layers": 2,
                "vocab_size": 64,
                "hidden_size": 4 * int(block.heads),
                "expand": 2,
                "head_dim": 8,
                "num_heads": int(block.heads),
                "n_groups": int(block.groups),
                "state_size": 16,
            }
    config["hidden_size"] = 8 * config["num_attention_heads"]
    if model.experts is not None:
        latent = config["model_type"] == "deepseek_v3"
        several = {"n_routed_experts" if latent else "num_local_experts": int(model.experts.count)}
        config |= several | {"num_experts_per_tok": int(model.experts.top_k)}
        few = {
            "first_k_dense_replace": 1,
            "moe_intermediate_size": 8,
            "n_group": 1,
            "topk_group": 1,
        }
        config |= few if latent else {}
        config["model_type"] = "deepseek_v3" if latent else "mixtral"
    return config


MODEL_WORDS: Final[Mapping[str, Callable[[Transformer], Any]]] = {
    "megatron": megatron_model,
    "nemo": bridge_model,
    "torchtitan": torchtitan_model,
    "deepspeed": lambda _: [],  # its model is code
    "accelerate": transformers_model,
}
"""The trainers that are asked, and how they are told a model."""
