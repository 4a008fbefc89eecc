"""Decoders whose layers differ: state spaces or linear attention, or attention of two shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from mofa_model.blocks import (
    Block,
    Experts,
    FeedForward,
    Layer,
    LinearAttention,
    SelectiveScan,
    StateSpace,
)
from mofa_model.presets.families.decoders import deepseek_parts, qwen_parts
from mofa_model.presets.families.fields import Fields
from mofa_model.presets.families.parts import (
    alike,
    attention,
    feed_forward,
    heads_of,
    hidden_of,
    latent,
    layers_of,
    mixture,
    network,
)
from mofa_model.spec import Transformer

FULL: Final = ("full_attention", "attention")
OTHER: Final = ("linear_attention", "mamba")


def full_layers(f: Fields, where: Callable[[int], bool]) -> list[bool]:
    """Which layers have softmax attention: `where` says it if the file does not list them."""
    layers = layers_of(f)
    listed = f.words("layer_types", layers, (*OTHER, *FULL))
    return [where(layer) if listed is None else listed[layer] in FULL for layer in range(layers)]


def state_space(f: Fields, *, norm: bool = True) -> StateSpace:
    """Mamba-2, with the field names of hybrid models."""
    f.skip("mamba_expand", "mamba_d_ssm")
    heads = f.number("mamba_n_heads")
    inner = f.number("mamba_expand", default=2) * hidden_of(f)
    f.only("mamba_proj_bias", False)
    head_dim = (
        f.number("mamba_d_head", default=max(inner // heads, 1))
        if f.value("mamba_d_head") != "auto"
        else inner // heads
    )
    if f.value("mamba_d_ssm") is not None and f.number("mamba_d_ssm") != heads * head_dim:
        raise f.bad(
            f"only {heads * head_dim} is modelled: the number of heads times their width",
            "mamba_d_ssm",
        )
    return StateSpace(
        heads=heads,
        head_dim=head_dim,
        state=f.number("mamba_d_state"),
        groups=f.number("mamba_n_groups", default=1),
        kernel=f.number("mamba_d_conv", default=4),
        chunk=f.number("mamba_chunk_size", default=256),
        kernel_bias=f.flag("mamba_conv_bias", default=True),
        norm=norm,
    )


def qwen3_next(f: Fields) -> Transformer:
    """Qwen3-Next and 3.5: gated DeltaNet, and gated attention in every fourth layer; experts, or a
    dense part where there are none.
    """
    f.skip(
        "use_sliding_window", "mamba_ssm_dtype", "mtp_use_dedicated_embeddings", "output_gate_type"
    )
    f.only("attn_output_gate", True)
    period = f.number("full_attention_interval", default=4)
    whole = attention(f, bias=f.flag("attention_bias", default=False), gated=True, qk_norm="head")
    linear = LinearAttention(
        key_heads=f.number("linear_num_key_heads"),
        value_heads=f.number("linear_num_value_heads"),
        key_dim=f.number("linear_key_head_dim"),
        value_dim=f.number("linear_value_head_dim"),
        kernel=f.number("linear_conv_kernel_dim", default=4),
    )
    full = full_layers(f, lambda layer: (layer + 1) % period == 0)
    routed = f.value("num_experts") is not None
    second = qwen_parts(f, shared=True) if routed else feed_forward(f)
    modules = f.number("mtp_num_hidden_layers", default=0, least=0, most=64)
    return network(
        f, alike([whole if is_full else linear for is_full in full], second), modules=modules
    )


def kimi_linear(f: Fields) -> Transformer:
    """Kimi Linear: Kimi Delta Attention, and latent attention in the layers that the file lists,
    counted from one.
    """
    inner, layers = f.inside("linear_attn_config"), layers_of(f)
    inner.skip("kda_layers")
    listed = inner.places("full_attn_layers", layers, counted_from=1)
    full = full_layers(
        f, lambda layer: layer in listed if listed is not None else (layer + 1) % 4 == 0
    )
    heads = inner.number("num_heads", default=f.number("linear_num_heads", default=heads_of(f)))
    width = inner.number("head_dim", default=f.number("linear_head_dim", default=128))
    linear = LinearAttention(
        key_heads=heads,
        value_heads=heads,
        key_dim=width,
        value_dim=width,
        decay="channel",
        gate_rank=width,
        kernel=inner.number(
            "short_conv_kernel_size", default=f.number("linear_conv_kernel_dim", default=4)
        ),
    )
    whole = latent(f)
    mixers: list[Block] = [whole if is_full else linear for is_full in full]
    f.only("num_nextn_predict_layers", 0)
    return network(f, alike(mixers, deepseek_parts(f)))


def minimax(f: Fields) -> Transformer:
    """MiniMax-01: lightning attention, and softmax attention in the layers that the file lists."""
    f.only("sliding_window")
    f.only("shared_intermediate_size", 0)
    whole = attention(f)
    linear = LinearAttention(
        key_heads=whole.heads,
        value_heads=whole.heads,
        key_dim=whole.head_dim,
        value_dim=whole.head_dim,
        decay="fixed",
        delta=False,
        kernel=0,
        whole_norm=True,
        chunk=f.number("block_size", default=256),
    )
    experts = mixture(
        f,
        count=f.number("num_local_experts"),
        top_k=f.number("num_experts_per_tok"),
        width=f.number("intermediate_size"),
    )
    full = full_layers(f, lambda layer: layer % 2 == 0)
    return network(f, alike([whole if is_full else linear for is_full in full], experts))


def granite_hybrid(f: Fields) -> Transformer:
    """Granite 4: Mamba-2 and attention, before experts with a shared one, or before the shared one
    alone.
    """
    full = full_layers(f, lambda _: False)
    whole, scan = attention(f, bias=f.flag("attention_bias", default=False)), state_space(f)
    shared, count = (
        f.number("shared_intermediate_size"),
        f.number("num_local_experts", default=0, least=0),
    )
    top_k, width = (
        f.number("num_experts_per_tok", default=0, least=0),
        f.number("intermediate_size"),
    )
    second: Block = FeedForward(width=shared)
    if count:
        second = mixture(f, count=count, top_k=top_k, width=width, shared_width=shared)
    return network(f, alike([whole if is_full else scan for is_full in full], second))


def bamba(f: Fields) -> Transformer:
    """Bamba: Mamba-2, and attention in the layers that the file lists."""
    listed = f.places("attn_layer_indices", layers_of(f)) or frozenset()
    whole, scan = attention(f, bias=f.flag("attention_bias", default=False)), state_space(f)
    dense = feed_forward(f, bias=f.flag("mlp_bias", default=False))
    full = full_layers(f, lambda layer: layer in listed)
    return network(f, alike([whole if is_full else scan for is_full in full], dense))


def falcon_h1(f: Fields) -> Transformer:
    """Falcon-H1: Mamba-2 and attention beside each other in every layer, behind one norm."""
    f.only("projectors_bias", False)
    f.only("mamba_use_mlp", True)
    scan = state_space(f, norm=f.flag("mamba_rms_norm", default=False))
    whole = attention(f, bias=f.flag("attention_bias", default=False))
    dense = feed_forward(f, bias=f.flag("mlp_bias", default=False))
    return network(f, [Layer((scan, whole, dense), norms=2)] * layers_of(f))


def jamba(f: Fields) -> Transformer:
    """Jamba: Mamba with norms inside, attention and experts each in every so many layers."""
    f.only("sliding_window")
    layers, hidden = layers_of(f), hidden_of(f)
    f.only("mamba_proj_bias", False)
    f.only("mamba_conv_bias", True)
    period, offset = (
        f.number("attn_layer_period", default=8),
        f.number("attn_layer_offset", default=4, least=0),
    )
    every, first = (
        f.number("expert_layer_period", default=2),
        f.number("expert_layer_offset", default=1, least=0),
    )
    scan = SelectiveScan(
        inner=f.number("mamba_expand", default=2) * hidden,
        state=f.number("mamba_d_state", default=16),
        step_rank=_step_rank(f, "mamba_dt_rank"),
        kernel=f.number("mamba_d_conv", default=4),
        norms=True,
    )
    whole, dense = attention(f), feed_forward(f)
    count, top_k = f.number("num_experts", default=16), f.number("num_experts_per_tok", default=2)
    experts = mixture(f, count=count, top_k=top_k, width=dense.width) if count > 1 else dense
    mixers = [whole if layer % period == offset else scan for layer in range(layers)]
    return network(
        f, alike(mixers, [experts if layer % every == first else dense for layer in range(layers)])
    )


def mamba(f: Fields) -> Transformer:
    """Mamba and Falcon Mamba: one block a layer."""
    f.only("use_bias", False)
    f.only("use_conv_bias", True)
    inner = f.number("intermediate_size", default=f.number("expand", default=2) * hidden_of(f))
    scan = SelectiveScan(
        inner=inner,
        state=f.number("state_size", default=16),
        step_rank=_step_rank(f, "time_step_rank"),
        kernel=f.number("conv_kernel", default=4),
    )
    return network(f, [Layer((scan,), norms=1)] * layers_of(f), tied=True)


def _step_rank(f: Fields, name: str) -> int:
    return -(-hidden_of(f) // 16) if f.value(name) in (None, "auto") else f.number(name)


def mamba2(f: Fields) -> Transformer:
    """Mamba-2: one block a layer."""
    f.skip("expand", "time_step_rank")
    scan = StateSpace(
        heads=f.number("num_heads"),
        head_dim=f.number("head_dim", default=64),
        state=f.number("state_size", default=128),
        groups=f.number("n_groups", default=1),
        kernel=f.number("conv_kernel", default=4),
        chunk=f.number("chunk_size", default=256),
        bias=f.flag("use_bias", default=False),
        kernel_bias=f.flag("use_conv_bias", default=True),
    )
    return network(f, [Layer((scan,), norms=1)] * layers_of(f))


EXPERTS: Final = (
    "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size",
    "moe_shared_expert_intermediate_size", "n_shared_experts",
    "moe_latent_size", "n_group", "topk_group",
)  # fmt: skip
"""Fields of Nemotron 3's experts, which files of models without experts have, too."""
KINDS: Final = {
    "M": "M", "-": "-", "*": "*", "E": "E",
    "mamba": "M", "linear_attention": "M", "mlp": "-",
    "attention": "*", "full_attention": "*", "moe": "E",
}  # fmt: skip
"""Layers of Nemotron-H by the signs of its pattern, and by the words of its list."""


def nemotron_h(f: Fields) -> Transformer:
    """Nemotron-H and Nemotron 3: one block a layer, as a pattern of signs or a list of words
    says.
    """
    f.skip(
        *EXPERTS,
        "num_hidden_layers",
        "expand",
        "sliding_window",
        "mtp_layers_block_type",
        "mtp_hybrid_override_pattern",
    )
    f.only("num_nextn_predict_layers", 0)
    f.only("use_bias", False)
    names = ("hybrid_override_pattern", "layers_block_type")
    pattern = f.value(*names)
    if not (
        isinstance(pattern, str | list)
        and 0 < len(pattern) <= 1024
        and all(isinstance(word, str) and word in KINDS for word in pattern)
    ):
        raise f.bad("a sign or a word for each layer: M mamba, - mlp, * attention, E moe", *names)
    scan = StateSpace(
        heads=f.number("mamba_num_heads"),
        head_dim=f.number("mamba_head_dim"),
        state=f.number("ssm_state_size"),
        groups=f.number("n_groups", default=8),
        kernel=f.number("conv_kernel", default=4),
        chunk=f.number("chunk_size", default=128),
        bias=f.flag("mamba_proj_bias", default=False),
        kernel_bias=f.flag("use_conv_bias", default=True),
    )
    blocks = {
        "M": scan,
        "*": attention(f, bias=f.flag("attention_bias", default=False)),
        "-": feed_forward(f, gated=False, bias=f.flag("mlp_bias", default=False)),
        "E": _nemotron_experts(f) if any(KINDS[word] == "E" for word in pattern) else None,
    }
    made = {sign: Layer((block,), norms=1) for sign, block in blocks.items() if block is not None}
    return network(f, [made[KINDS[word]] for word in pattern])


def _nemotron_experts(f: Fields) -> Experts:
    return mixture(
        f,
        count=f.number("n_routed_experts"),
        top_k=f.number("num_experts_per_tok"),
        width=f.number("moe_intermediate_size"),
        shared_width=f.number("moe_shared_expert_intermediate_size")
        * min(f.number("n_shared_experts", default=1, least=0), 1),
        latent=f.number("moe_latent_size", default=0, least=0) or None,
        gated=False,
    )


def _windows(f: Fields, default: list[bool]) -> list[bool]:
    """Which layers have a window: `default` says it where the file lists none."""
    listed = f.words("layer_types", len(default), ("sliding_attention", "full_attention"))
    return default if listed is None else [word == "sliding_attention" for word in listed]


def gemma4(f: Fields) -> Transformer:
    """Gemma 4: all but every sixth layer have a window, the others wider heads, whose keys may be
    their values; experts stand beside the dense part, each behind a norm of its own.
    """
    f.only("use_bidirectional_attention", "vision")  # of tokens of an image alone
    f.only("num_kv_shared_layers", 0)
    f.skip("vocab_size_per_layer_input", "use_double_wide_mlp")  # they act beside those two alone
    if f.number("hidden_size_per_layer_input", default=256, least=0):
        raise f.bad(
            "only 0 is modelled: embeddings of each layer are not", "hidden_size_per_layer_input"
        )
    layers, shared = layers_of(f), f.flag("attention_k_eq_v", default=False)
    narrow = _windows(f, [(layer + 1) % 6 != 0 for layer in range(layers)])
    narrow[-1] = False
    near = attention(
        f,
        bias=f.flag("attention_bias", default=False),
        qk_norm="head",
        window=f.number("sliding_window", default=512),
    )
    dim, kv_heads = _of_whole_layers(f, narrow)
    far = replace(
        near,
        window=None,
        head_dim=dim,
        kv_heads=kv_heads if shared and kv_heads else near.kv_heads,
        keys_are_values=shared,
    )
    parts: tuple[Block, ...] = (feed_forward(f),)
    f.skip("num_experts", "top_k_experts", "moe_intermediate_size")
    if f.flag("enable_moe_block", default=False):
        experts = mixture(
            f,
            count=f.number("num_experts"),
            top_k=f.number("top_k_experts"),
            width=f.number("moe_intermediate_size"),
            router_bias=True,  # a factor of each expert
        )
        parts = (*parts, experts)
    # Experts bring three norms, and their router one that it has by itself.
    made = {
        is_narrow: Layer((near if is_narrow else far, *parts), norms=4 * len(parts))
        for is_narrow in (False, True)
    }
    return network(f, [made[is_narrow] for is_narrow in narrow], tied=True)


def _of_whole_layers(f: Fields, narrow: list[bool]) -> tuple[int, int]:
    """Width of a head and heads of keys in the layers without a window; 0 heads where the file does
    not say.
    """
    configs = f.value("per_layer_config")
    f.skip("global_head_dim", "num_global_key_value_heads")
    if configs is None:
        return f.number("global_head_dim", default=512), f.number(
            "num_global_key_value_heads", default=0, least=0
        )
    right = (
        "the same head_dim and num_key_value_heads for each layer without a window, "
        "and nothing for the others"
    )
    wide = [layer for layer, is_narrow in enumerate(narrow) if not is_narrow]
    if not isinstance(configs, Mapping) or not all(str(layer).isdecimal() for layer in configs):
        raise f.bad(right, "per_layer_config")
    different = {str(config) for config in configs.values()}
    first = next(iter(configs.values()), None)
    if (
        sorted(int(layer) for layer in configs) != wide
        or len(different) > 1
        or not isinstance(first, Mapping)
    ):
        raise f.bad(right, "per_layer_config")
    config = Fields(first, f"{f.path}.per_layer_config")
    f.nested.append(config)
    return config.number("head_dim"), config.number("num_key_value_heads", default=0, least=0)


def mimo_v2(f: Fields) -> Transformer:
    """MiMo-V2-Flash: values are narrower than keys; layers with a window have twice the heads of
    keys, and sinks.
    """
    layers = layers_of(f)
    f.skip(
        "sliding_window",
        "attention_chunk_size",
        "hybrid_block_size",
        "attention_value_scale",
        "swa_rope_theta",
    )
    pattern = f.places_of("hybrid_layer_pattern", layers)
    default = [layer > 0 and (layer + 1) % 6 != 0 for layer in range(layers)]
    narrow = _windows(f, default if pattern is None else pattern)
    f.only("add_swa_attention_sink_bias", True)
    f.only("add_full_attention_sink_bias", False)
    f.only("n_shared_experts", 0)
    values = f.number("v_head_dim", default=128)
    kv = f.number("num_key_value_heads")
    whole = attention(
        f,
        kv_heads=kv,
        bias=f.flag("attention_bias", default=False),
        output_bias=False,
        value_dim=values,
    )
    f.only("swa_num_attention_heads", whole.heads)
    f.only("swa_head_dim", whole.head_dim)
    f.only("swa_v_head_dim", values)
    # The window is the tokens before, and the token itself.
    window = (
        f.number("sliding_window", default=129)
        if f.value("sliding_window_size") is None
        else f.number("sliding_window_size") + 1
    )
    kv_heads = f.number("swa_num_key_value_heads", default=2 * kv)
    near = replace(whole, window=window, kv_heads=kv_heads, sinks=True)
    experts = mixture(
        f,
        count=f.number("n_routed_experts", "num_local_experts"),
        top_k=f.number("num_experts_per_tok"),
        width=f.number("moe_intermediate_size"),
    )
    listed, listed_sparse = (
        f.words("mlp_layer_types", layers, ("dense", "sparse")),
        f.places_of("moe_layer_freq", layers),
    )
    sparse = [layer > 0 for layer in range(layers)] if listed_sparse is None else listed_sparse
    sparse = sparse if listed is None else [word == "sparse" for word in listed]
    dense = feed_forward(f)
    made = {
        (is_narrow, routed): Layer((near if is_narrow else whole, experts if routed else dense))
        for is_narrow in (False, True)
        for routed in (False, True)
    }
    return network(f, [made[pair] for pair in zip(narrow, sparse, strict=True)])
