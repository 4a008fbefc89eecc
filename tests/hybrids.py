"""Models with blocks that no decoder of equal layers has, as published configurations state them.

HYBRIDS["qwen3-next"]        a model by name; `PUBLISHED` says what its parameters count where that
                             is published
"""

from mofa_model.presets.models import network

HYBRIDS = {
    name: network(name, given)
    for name, given in {
        "qwen3-next": {
            "hidden": 2048,
            "layers": [[12, *[["linear_attention", "experts"]] * 3, ["attention", "experts"]]],
            "linear_attention": {
                "key_heads": 16,
                "value_heads": 32,
                "key_dim": 128,
                "value_dim": 128,
            },
            "attention": {
                "heads": 16,
                "kv_heads": 2,
                "head_dim": 256,
                "gated": True,
                "qk_norm": "head",
            },
            "experts": {
                "count": 512,
                "top_k": 10,
                "width": 512,
                "shared_width": 512,
                "shared_gate": True,
            },
            "embedding": {"vocabulary": 151936},
        },
        "kimi-linear": {
            "hidden": 2304,
            "layers": [
                [1, ["linear_attention", "dense"]],
                [2, ["linear_attention", "experts"]],
                [1, ["latent_attention", "experts"]],
                [5, *[["linear_attention", "experts"]] * 3, ["latent_attention", "experts"]],
                [2, ["linear_attention", "experts"]],
                [1, ["latent_attention", "experts"]],
            ],
            "linear_attention": {
                "key_heads": 32,
                "value_heads": 32,
                "key_dim": 128,
                "value_dim": 128,
                "decay": "channel",
                "gate_rank": 128,
            },
            "latent_attention": {
                "heads": 32,
                "kv_rank": 512,
                "nope_dim": 128,
                "rope_dim": 64,
                "value_dim": 128,
            },
            "dense": {"width": 9216},
            "experts": {
                "count": 256,
                "top_k": 8,
                "width": 1024,
                "shared_width": 1024,
                "router_bias": True,
            },
            "embedding": {"vocabulary": 163840},
        },
        "deepseek-v3.2": {
            "hidden": 7168,
            "layers": [[3, ["sparse_attention", "dense"]], [58, ["sparse_attention", "experts"]]],
            "sparse_attention": {
                "heads": 128,
                "query_rank": 1536,
                "kv_rank": 512,
                "nope_dim": 128,
                "rope_dim": 64,
                "value_dim": 128,
                "index_heads": 64,
                "index_dim": 128,
                "top_k": 2048,
            },
            "dense": {"width": 18432},
            "experts": {
                "count": 256,
                "top_k": 8,
                "width": 2048,
                "shared_width": 2048,
                "node_limit": 4,
            },
            "embedding": {"vocabulary": 129280},
        },
        "mamba2-2.7b": {
            "hidden": 2560,
            "layers": [[64, ["state_space"]]],
            "state_space": {"heads": 80, "head_dim": 64, "state": 128},
            "embedding": {"vocabulary": 50288, "tied": True},
        },
        "mamba-2.8b": {
            "hidden": 2560,
            "layers": [[64, ["selective_scan"]]],
            "selective_scan": {"inner": 5120, "state": 16, "step_rank": 160},
            "embedding": {"vocabulary": 50280, "tied": True},
        },
        "nemotron-h-8b": {
            "hidden": 4096,
            "layers": [
                [3, ["state_space"], ["dense"]],
                [1, ["state_space"], ["attention"], ["dense"]],
                [4, ["state_space"], ["dense"]],
                [1, ["state_space"], ["attention"], ["dense"]],
                [4, ["state_space"], ["dense"]],
                [1, ["state_space"], ["attention"], ["dense"]],
                [4, ["state_space"], ["dense"]],
                [1, ["state_space"], ["attention"], ["dense"]],
                [5, ["state_space"], ["dense"]],
            ],
            "state_space": {"heads": 128, "head_dim": 64, "state": 128, "groups": 8, "chunk": 128},
            "attention": {"heads": 32, "kv_heads": 8, "head_dim": 128},
            "dense": {"width": 21504, "gated": False},
            "embedding": {"vocabulary": 131072},
        },
        "minimax-m1": {
            "hidden": 6144,
            "layers": [[10, *[["linear_attention", "experts"]] * 7, ["attention", "experts"]]],
            "linear_attention": {
                "key_heads": 64,
                "value_heads": 64,
                "key_dim": 128,
                "value_dim": 128,
                "decay": "fixed",
                "delta": False,
                "kernel": 0,
                "whole_norm": True,
                "chunk": 256,
            },
            "attention": {"heads": 64, "kv_heads": 8, "head_dim": 128},
            "experts": {"count": 32, "top_k": 2, "width": 9216},
            "embedding": {"vocabulary": 200064},
        },
        "qwen2.5-vl-7b": {
            "hidden": 3584,
            "layers": [[1, ["encoder"]], [28, ["attention", "dense"]]],
            "encoder": {
                "width": 1280,
                "layers": 32,
                "heads": 16,
                "ffn": 3420,
                "gated": True,
                "inputs": 3 * 2 * 14 * 14,
                "patches": 4096,
                "merged": 4,
                "window": 64,
                "whole_layers": 4,
                "input_bias": False,
                "norm_vectors": 1,
            },
            "attention": {"heads": 28, "kv_heads": 4, "head_dim": 128, "bias": True},
            "dense": {"width": 18944},
            "embedding": {"vocabulary": 152064},
        },
        "shared": {
            "hidden": 4096,
            "layers": [[16, ["attention", "dense"], ["shared_attention", "dense"]]],
            "attention": {"heads": 32, "kv_heads": 8, "head_dim": 128},
            "shared_attention": {"heads": 32, "kv_heads": 8, "head_dim": 128},
            "dense": {"width": 14336},
            "embedding": {"vocabulary": 128256},
        },
    }.items()
}
