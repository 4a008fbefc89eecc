"""Decoders whose layers with a window have attention of another shape than the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mofa_model.blocks import Block, Layer
from mofa_model.presets.families.fields import Fields
from mofa_model.presets.families.parts import attention, feed_forward, layers_of, mixture, network
from mofa_model.spec import Transformer


def _windows(f: Fields, default: list[bool]) -> list[bool]:
    """Which layers have a window: `default` says it where the file lists none."""
    listed = f.words("layer_types", len(default), ("sliding_attention", "full_attention"))
    return default if listed is None else [word == "sliding_attention" for word in listed]


def gemma4(f: Fields) -> Transformer:
    """Gemma 4: all but every sixth layer have a window, the others wider heads, whose keys may be their values; experts stand
    beside the dense part, each behind a norm of its own.
    """
    f.only("use_bidirectional_attention", "vision")  # of tokens of an image alone
    f.only("num_kv_shared_layers", 0)
    f.skip("vocab_size_per_layer_input", "use_double_wide_mlp")  # they act beside those two alone
    if f.number("hidden_size_per_layer_input", default=256, least=0):
        raise f.bad(
            "only 0 is modelled: embeddings of each layer are not", "hidden_size_per_layer_input"
        )
    layers, shared = layers_of(f), f.flag("attention_k_eq_v", default=False)
    narrow = _windows(f, [(at + 1) % 6 != 0 for at in range(layers)])
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
        one: Layer((far if not one else near, *parts), norms=4 * len(parts))
        for one in (False, True)
    }
    return network(f, [made[one] for one in narrow], tied=True)


def _of_whole_layers(f: Fields, narrow: list[bool]) -> tuple[int, int]:
    """Width of a head and heads of keys in the layers without a window; 0 heads where the file does not say."""
    given = f.value("per_layer_config")
    f.skip("global_head_dim", "num_global_key_value_heads")
    if given is None:
        return f.number("global_head_dim", default=512), f.number(
            "num_global_key_value_heads", default=0, least=0
        )
    right = "the same head_dim and num_key_value_heads for each layer without a window, and nothing for the others"
    wide = [at for at, one in enumerate(narrow) if not one]
    if not isinstance(given, Mapping) or not all(str(at).isdecimal() for at in given):
        raise f.bad(right, "per_layer_config")
    different = {str(one) for one in given.values()}
    first = next(iter(given.values()), None)
    if (
        sorted(int(at) for at in given) != wide
        or len(different) > 1
        or not isinstance(first, Mapping)
    ):
        raise f.bad(right, "per_layer_config")
    one = Fields(first, f"{f.path}.per_layer_config")
    f.inner.append(one)
    return one.number("head_dim"), one.number("num_key_value_heads", default=0, least=0)


def mimo_v2(f: Fields) -> Transformer:
    """MiMo-V2-Flash: values are narrower than keys; layers with a window have twice the heads of keys, and sinks."""
    layers = layers_of(f)
    f.skip(
        "sliding_window",
        "attention_chunk_size",
        "hybrid_block_size",
        "attention_value_scale",
        "swa_rope_theta",
    )
    pattern = f.places_of("hybrid_layer_pattern", layers)
    default = [at > 0 and (at + 1) % 6 != 0 for at in range(layers)]
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
    listed, told = (
        f.words("mlp_layer_types", layers, ("dense", "sparse")),
        f.places_of("moe_layer_freq", layers),
    )
    sparse = [at > 0 for at in range(layers)] if told is None else told
    sparse = sparse if listed is None else [word == "sparse" for word in listed]
    dense = feed_forward(f)
    made = {
        (one, routed): Layer((near if one else whole, experts if routed else dense))
        for one in (False, True)
        for routed in (False, True)
    }
    return network(f, [made[pair] for pair in zip(narrow, sparse, strict=True)])
