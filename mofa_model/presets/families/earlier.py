"""Decoders of the years before 2023: layer norms with a bias, two matrices in the dense part, biases."""

from __future__ import annotations

from dataclasses import replace

from mofa_model.presets.families.fields import Fields
from mofa_model.presets.families.parts import (
    BARE,
    SHIFTED,
    WEIGHTED,
    alike,
    attention,
    feed_forward,
    heads_of,
    hidden_of,
    layers_of,
    network,
)
from mofa_model.spec import Transformer


def gpt2(f: Fields) -> Transformer:
    """GPT-2: learned positions."""
    dense = feed_forward(f, gated=False, bias=True)
    layers = alike([attention(f, bias=True)] * layers_of(f), dense, vectors=SHIFTED)
    positions = f.number("n_positions", "max_position_embeddings", default=1024)
    return network(f, layers, tied=True, final=SHIFTED, positions=positions)


def bigcode(f: Fields) -> Transformer:
    """StarCoder: GPT-2 with one head of keys and values."""
    f.skip("num_key_value_heads")
    kv_heads = 1 if f.flag("multi_query", default=True) else heads_of(f)
    dense = feed_forward(f, gated=False, bias=True)
    layers = alike(
        [attention(f, bias=True, kv_heads=kv_heads)] * layers_of(f), dense, vectors=SHIFTED
    )
    positions = f.number("n_positions", "max_position_embeddings", default=1024)
    return network(f, layers, tied=True, final=SHIFTED, positions=positions)


def gpt_neo(f: Fields) -> Transformer:
    """GPT-Neo: learned positions, windows in half of the layers, a bias behind attention alone."""
    layers = layers_of(f)
    kinds = f.value("attention_layers")
    pattern = f.value("attention_types")
    if kinds is None and pattern is not None:
        try:
            kinds = [
                word
                for words, times in pattern
                for _ in range(min(times, layers))
                for word in words
            ]
        except (TypeError, ValueError):
            raise f.bad(
                'pairs of words and a number, for example [[["global", "local"], 12]]',
                "attention_types",
            ) from None
    kinds = kinds if kinds is not None else ["global"] * layers
    if len(kinds) != layers or any(word not in ("global", "local") for word in kinds):
        raise f.bad(
            f"global or local for each of {layers} layers", "attention_layers", "attention_types"
        )
    whole = attention(f, output_bias=True)
    narrow = replace(whole, window=f.number("window_size", default=256))
    mixers = [narrow if word == "local" else whole for word in kinds]
    made = alike(mixers, feed_forward(f, gated=False, bias=True), vectors=SHIFTED)
    positions = f.number("max_position_embeddings", default=2048)
    return network(f, made, tied=True, final=SHIFTED, positions=positions)


def gpt_j(f: Fields) -> Transformer:
    """GPT-J and CodeGen: one norm for both blocks, biases in the dense part and at the head alone."""
    f.skip("n_positions")
    dense = feed_forward(f, gated=False, bias=True)
    layers = alike([attention(f)] * layers_of(f), dense, norms=1, vectors=SHIFTED)
    return network(f, layers, final=SHIFTED, head_bias=True)


def gpt_neox(f: Fields) -> Transformer:
    """GPT-NeoX and Pythia."""
    whole = attention(f, bias=f.flag("attention_bias", default=True))
    layers = alike([whole] * layers_of(f), feed_forward(f, gated=False, bias=True), vectors=SHIFTED)
    return network(f, layers, final=SHIFTED)


def opt(f: Fields) -> Transformer:
    """OPT: learned positions, two more than the longest sequence."""
    hidden = hidden_of(f)
    if f.number("word_embed_proj_dim", default=hidden) != hidden:
        raise f.bad(f"only hidden_size ({hidden}) is modelled", "word_embed_proj_dim")
    bias = f.flag("enable_bias", default=True)
    vectors = SHIFTED if f.flag("layer_norm_elementwise_affine", default=True) else BARE
    last = f.flag("do_layer_norm_before", default=True) and not f.flag(
        "_remove_final_layer_norm", default=False
    )
    layers = alike(
        [attention(f, bias=bias)] * layers_of(f),
        feed_forward(f, gated=False, bias=bias),
        vectors=vectors,
    )
    positions = f.number("max_position_embeddings", default=2048) + 2
    return network(f, layers, tied=True, final=vectors if last else BARE, positions=positions)


def bloom(f: Fields) -> Transformer:
    """BLOOM: a second norm behind the embedding."""
    layers = alike(
        [attention(f, bias=True)] * layers_of(f),
        feed_forward(f, gated=False, bias=True),
        vectors=SHIFTED,
    )
    return network(f, layers, tied=True, final=2 * SHIFTED)


def mpt(f: Fields) -> Transformer:
    """MPT: norms without bias, no biases."""
    inner = f.inside("attn_config")
    inner.only("attn_type", "multihead_attention")
    inner.only("qk_ln", False)
    inner.only("kv_n_heads", heads_of(f))
    inner.skip("alibi_bias_max", "attn_impl", "attn_uses_sequence_id", "prefix_lm", "softmax_scale")
    f.only("no_bias", True)
    f.only("expansion_ratio", 4)
    layers = alike([attention(f)] * layers_of(f), feed_forward(f, gated=False))
    return network(f, layers, tied=True, final=WEIGHTED)


def falcon(f: Fields) -> Transformer:
    """Falcon: keys and values of one head, of several, or of each; one norm a layer in the first generation."""
    new, parallel = (
        f.flag("new_decoder_architecture", default=False),
        f.flag("parallel_attn", default=True),
    )
    heads, bias = heads_of(f), f.flag("bias", default=False)
    few, one = (
        f.number("num_kv_heads", "n_head_kv", default=heads),
        f.flag("multi_query", default=True),
    )
    kv_heads = few if new else 1 if one else heads
    norms = f.number("num_ln_in_parallel_attn", default=2 if new else 1, most=2) if parallel else 2
    dense = feed_forward(f, "ffn_hidden_size", gated=False, bias=bias)
    layers = alike(
        [attention(f, bias=bias, kv_heads=kv_heads)] * layers_of(f),
        dense,
        norms=norms,
        vectors=SHIFTED,
    )
    return network(f, layers, tied=True, final=SHIFTED)
