"""What one layer stores for its backward pass on one device: everything, and what is left after recomputation.

A layer is a table of named parts. A module that selective recomputation can name is a set of parts that it drops, and a
module whose inputs can be offloaded is a set of parts that it moves; a new module is one more line of `DROPPED` or `MOVED`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from mofa_model.equations import activations, memory
from mofa_model.estimate.blocks import tokens_per_rank
from mofa_model.spec import Experts, LatentAttention, MemoryConstants, Workload
from mofa_model.strategy import Recompute, Strategy
from mofa_model.units import Bytes, Count, Ratio

DROPPED: Final = {
    "core_attn": frozenset({"scores"}),
    "layernorm": frozenset({"norms"}),
    "mlp": frozenset({"hidden", "output"}),
    "mlp_act": frozenset({"output"}),
    "moe": frozenset(
        {"router", "dispatch", "expert_hidden", "expert_output", "shared_hidden", "shared_output"}
    ),
    "moe_act": frozenset({"expert_output", "shared_output"}),
    "mla_up_proj": frozenset({"up_projections"}),
    # Every second matrix product is computed again, and all that is cheap: half of two equal products is dropped.
    "per_op": frozenset({"norms", "output", "expert_output", "shared_output", "half"}),
    "all_but_attention_output": frozenset(
        {"norms", "masks", "scores", "latents", "projections", "up_projections", "hidden", "output"}
        | {"router", "dispatch", "expert_hidden", "expert_output", "shared_hidden", "shared_output"}
    ),
}
"""Parts of a layer that a module's recomputation drops."""
MOVED: Final = {
    "attn_norm": frozenset({"first_residual"}),
    "qkv_linear": frozenset({"first_norm", "latents"}),
    "core_attn": frozenset({"projections", "up_projections"}),
    "attn_proj": frozenset({"context"}),
    "mlp_norm": frozenset({"second_residual"}),
    "expert_fc1": frozenset({"dispatch"}),
    "moe_act": frozenset({"expert_hidden"}),
}
"""Parts of a layer that the offload of a module's input moves. Source: `off_interface` around the modules of megatron-core
0.19 (transformer_layer, attention, multi_latent_attention, moe/experts). What its linear layers fuse is in `_moved_parts`.
Leaves out: tensors of less than 2^20 elements, which stay on the device there."""
SIDES: Final = {
    "first_residual": "residual",
    "second_residual": "residual",
    "first_norm": "norms",
    "second_norm": "norms",
}
"""Halves of the parts that both sides of a layer have, attention and feed-forward."""
HALVED: Final = frozenset({"projections", "up_projections", "hidden", "expert_hidden", "shared_hidden"})
"""Parts of which `per_op` keeps half."""
ROUTED: Final = ("dispatch", "expert_hidden", "expert_output")
"""Parts that grow with the tokens an expert gets, and that MemFine runs in chunks."""
GEMM_INPUTS: Final = frozenset({"norms", "context", "output", "dispatch", "expert_output", "shared_output"})
"""Parts that are inputs of linear layers."""
FEEDS: Final = {"output": "hidden", "expert_output": "expert_hidden", "shared_output": "shared_hidden"}
"""Outputs of the activation function and its inputs."""
WHOLE: Final[Mapping[str, Ratio]] = {}
"""Nothing is dropped or narrowed."""
INNER: Final = ("hidden", "output", "shared_hidden", "shared_output")
"""Parts whose gradients are alive together in the backward pass, beside those of the routed ones."""


@dataclass(frozen=True, slots=True)
class StoredLayer:
    """One layer, one micro-batch, one device. [B]"""

    whole: Bytes
    """All that the backward pass of the layer needs at one time."""
    kept: Bytes
    """What waits for it, Eq. (29); the same without selective recomputation."""
    input: Bytes
    """The layer's input, A_in."""
    gradients: Bytes
    """Gradients that the backward pass makes on its way."""
    moved: Bytes = 0.0
    """What of `kept` the offloaded inputs of modules take to the host."""


def stored_layers(
    workload: Workload, constants: MemoryConstants, strategy: Strategy
) -> tuple[StoredLayer, StoredLayer | None]:
    """A layer with a plain FFN and, in a mixture of experts, one with experts."""
    attention = _attention_parts(workload, constants, strategy)
    model, experts = workload.model, workload.model.experts
    plain = _layer(workload, constants, strategy, attention | _ffn_parts(workload, strategy, model.ffn))
    if experts is None:
        return plain, None
    return plain, _layer(
        workload, constants, strategy, attention | _expert_parts(workload, strategy, experts)
    )


def _moved_parts(workload: Workload, strategy: Strategy, *, experts: bool) -> dict[str, Ratio]:
    """Shares of a layer's parts that the offloaded inputs of modules take to the host. [1]

    A norm that is fused with the linear layer behind it has no input of its own: that of attention without latents goes with
    `qkv_linear`, and that of a plain feed-forward block stays on the device with all that the block keeps.
    """
    latent = isinstance(workload.model.attention, LatentAttention)
    named = strategy.offload & MOVED.keys()
    moved = frozenset[str]().union(*(MOVED[module] for module in named))
    if not latent:
        fused = {"first_residual"}
        moved = moved | fused if "qkv_linear" in named else moved - fused
    if not experts:
        moved -= {"second_residual"}
    shares: dict[str, Ratio] = {name: 1.0 for name in moved if name not in SIDES}
    for side in moved & SIDES.keys():
        shares[SIDES[side]] = shares.get(SIDES[side], 0.0) + 0.5
    return shares


def _layer(
    workload: Workload, constants: MemoryConstants, strategy: Strategy, parts: dict[str, Bytes]
) -> StoredLayer:
    """Adds up the parts of a layer."""
    tokens, h = tokens_per_rank(workload, strategy), workload.model.hidden
    width = workload.training.precision.activation
    dropped: frozenset[str] = frozenset()
    if strategy.recompute is Recompute.SELECTIVE:
        dropped = dropped.union(*(DROPPED[module] for module in strategy.recompute_modules))
    weights = _weights(workload, constants, dropped)
    fixed = [name for name in parts if name not in ROUTED]
    routed = [name for name in parts if name in ROUTED]
    inner = [name for name in parts if name in INNER]
    running = memory.chunked_activation(_sum(parts, routed), strategy.chunks)
    shares = _moved_parts(workload, strategy, experts=bool(routed)) if strategy.offload else {}
    taken = {name: share * weights.get(name, 1.0) for name, share in shares.items()}
    waiting: Bytes = 0.0
    moved = _sum(parts, (name for name in fixed if name in taken), taken)
    if routed:
        chunked = np.asarray(strategy.chunks) > 1
        waiting = np.where(chunked, 0.0, _sum(parts, routed, weights))
        moved = moved + np.where(chunked, 0.0, _sum(parts, (name for name in routed if name in taken), taken))
    gathered = constants.gathered_input * (width * tokens * h)
    return StoredLayer(
        whole=constants.activation_scale * (_sum(parts, fixed) + running) + gathered,
        kept=constants.activation_scale * (_sum(parts, fixed, weights) + waiting) + gathered,
        input=activations.layer_input(tokens, h, width=width, ranks=_spread(strategy)),
        gradients=constants.backward_copies * (_sum(parts, inner) + running),
        moved=constants.activation_scale * moved,
    )


def _weights(workload: Workload, constants: MemoryConstants, dropped: frozenset[str]) -> dict[str, Ratio]:
    """How much of a part is kept, where that is not all of it."""
    weights: dict[str, Ratio] = {}
    if workload.training.precision.gemm != "bf16":
        weights = dict.fromkeys(GEMM_INPUTS, constants.low_precision_input)
        # DeepSeek-V3 keeps what SwiGLU takes in FP8 as well, where it computes SwiGLU again.
        weights |= {FEEDS[name]: constants.low_precision_input for name in dropped & FEEDS.keys()}
    if "half" in dropped:
        weights |= {name: 0.5 * weights.get(name, 1.0) for name in HALVED}
    return weights | dict.fromkeys(dropped, 0.0)


def _sum(parts: dict[str, Bytes], names: Iterable[str], weights: Mapping[str, Ratio] = WHOLE) -> Bytes:
    """Bytes of the named parts, each as far as it is kept. [B]"""
    total: Bytes = 0.0
    for name in names:
        weight = weights.get(name)
        total = total + (parts[name] if weight is None else weight * parts[name])
    return total


def _spread(strategy: Strategy) -> Count:
    """Ranks that share the residual stream. [1]"""
    return strategy.tp if strategy.sequence_parallel else 1.0


def _attention_parts(workload: Workload, constants: MemoryConstants, strategy: Strategy) -> dict[str, Bytes]:
    """Norms and attention; also the residual stream of the feed-forward half."""
    model, a, t, spread = workload.model, workload.model.attention, strategy.tp, _spread(strategy)
    tokens, width = tokens_per_rank(workload, strategy), workload.training.precision.activation
    parts = {
        "residual": activations.residual_activation(tokens, model.hidden, width=width, ranks=spread),
        "norms": activations.norm_activation(tokens, model.hidden, width=width, ranks=spread),
        "scores": activations.score_activation(
            tokens,
            a.heads,
            workload.training.sequence,
            statistic=workload.training.precision.logit,
            score=constants.score,
            ranks=t,
        ),
    }
    if np.any(np.asarray(constants.mask) > 0):
        parts["masks"] = activations.mask_activation(tokens, model.hidden, mask=constants.mask, ranks=spread)
    if isinstance(a, LatentAttention):
        query, value = a.heads * (a.nope_dim + a.rope_dim), a.heads * a.value_dim
        parts["up_projections"] = activations.projection_activation(
            tokens, query, query, value, width=width, ranks=t
        )
        parts["latents"] = activations.latent_activation(
            tokens, a.query_rank, a.kv_rank, a.rope_dim, width=width, ranks=spread
        )
    else:
        value, key = a.heads * a.head_dim, a.kv_heads * a.head_dim
        parts["projections"] = activations.projection_activation(
            tokens, value, key, key, width=width, ranks=t
        )
    parts["context"] = activations.context_activation(tokens, value, width=width, ranks=t)
    return parts


def _ffn_parts(workload: Workload, strategy: Strategy, ffn: Count, prefix: str = "") -> dict[str, Bytes]:
    """A feed-forward block that every token passes."""
    tokens, width = tokens_per_rank(workload, strategy), workload.training.precision.activation
    inputs = 2.0 if workload.model.gated else 1.0
    return {
        f"{prefix}hidden": activations.ffn_hidden_activation(
            tokens, ffn, inputs, width=width, ranks=strategy.tp
        ),
        f"{prefix}output": activations.ffn_output_activation(tokens, ffn, width=width, ranks=strategy.tp),
    }


def _expert_parts(workload: Workload, strategy: Strategy, experts: Experts) -> dict[str, Bytes]:
    """Router, routed experts of the fullest device, and shared experts."""
    width, tokens, s = workload.training.precision.activation, tokens_per_rank(workload, strategy), strategy
    inputs = 2.0 if workload.model.gated else 1.0
    routed = activations.routed_tokens(
        tokens, experts.top_k, experts.imbalance, tensor=s.tp, expert_tensor=s.etp
    )
    return {
        "router": activations.router_activation(
            tokens, experts.count, width=workload.training.precision.logit, ranks=s.tp
        ),
        "dispatch": activations.dispatch_activation(routed, workload.model.hidden, width=width),
        "expert_hidden": activations.ffn_hidden_activation(
            routed, experts.width, inputs, width=width, ranks=s.etp
        ),
        "expert_output": activations.ffn_output_activation(routed, experts.width, width=width, ranks=s.etp),
        **_ffn_parts(workload, s, experts.shared_width, "shared_"),
    }
