"""Decoders of softmax attention and a dense part, with norms by root mean square unless it is said otherwise."""

from __future__ import annotations

from mofa_model.presets.families.fields import Fields
from mofa_model.presets.families.parts import (
    BARE,
    SHIFTED,
    alike,
    attention,
    feed_forward,
    heads_of,
    hidden_of,
    latent,
    layers_of,
    network,
    upper,
    windowed,
)
from mofa_model.spec import Transformer


def llama(f: Fields) -> Transformer:
    """Llama and Granite: the file says which biases there are; a window, if any, is in every layer."""
    f.skip("use_qk_norm")
    whole = attention(f, bias=f.flag("attention_bias", default=False))
    dense = feed_forward(f, bias=f.flag("mlp_bias", default=False))
    return network(f, alike(windowed(f, whole, lambda _: True), dense))


def smollm3(f: Fields) -> Transformer:
    """SmolLM3: Llama with head and embedding in one."""
    whole = attention(f, bias=f.flag("attention_bias", default=False))
    dense = feed_forward(f, bias=f.flag("mlp_bias", default=False))
    return network(f, alike(windowed(f, whole, upper(f)), dense), tied=True)


def mistral(f: Fields) -> Transformer:
    """Mistral and Phi-3: every layer has the window."""
    return network(f, alike(windowed(f, attention(f), lambda _: True), feed_forward(f)))


def qwen2(f: Fields) -> Transformer:
    """Qwen 2 and 2.5: biases on queries, keys and values."""
    whole = attention(f, bias=True, output_bias=False)
    return network(f, alike(windowed(f, whole, upper(f)), feed_forward(f)))


def qwen3(f: Fields) -> Transformer:
    """Qwen 3: a norm on queries and keys of each head."""
    whole = attention(f, bias=f.flag("attention_bias", default=False), qk_norm="head")
    return network(f, alike(windowed(f, whole, upper(f)), feed_forward(f)))


def seed_oss(f: Fields) -> Transformer:
    """Seed-OSS: the bias of the output is a field of its own."""
    whole = attention(
        f,
        bias=f.flag("attention_bias", default=True),
        output_bias=f.flag("attention_out_bias", default=False),
    )
    dense = feed_forward(f, bias=f.flag("mlp_bias", default=False))
    return network(f, alike([whole] * layers_of(f), dense))


def gemma(f: Fields) -> Transformer:
    """Gemma: head and embedding are one."""
    f.only("use_bidirectional_attention", False)
    whole = attention(f, bias=f.flag("attention_bias", default=False))
    return network(f, alike([whole] * layers_of(f), feed_forward(f)), tied=True)


def gemma2(f: Fields) -> Transformer:
    """Gemma 2: norms before and after each block; the first, third, ... layer has the window."""
    f.only("use_bidirectional_attention", False)
    whole = attention(f, bias=f.flag("attention_bias", default=False))
    layers = alike(windowed(f, whole, lambda at: at % 2 == 0), feed_forward(f), norms=4)
    return network(f, layers, tied=True)


def gemma3(f: Fields) -> Transformer:
    """Gemma 3: all but every sixth layer have the window, and queries and keys have norms."""
    f.only("use_bidirectional_attention", False)
    whole = attention(f, bias=f.flag("attention_bias", default=False), qk_norm="head")
    period = f.number("sliding_window_pattern", "_sliding_window_pattern", default=6)
    layers = alike(windowed(f, whole, lambda at: (at + 1) % period != 0), feed_forward(f), norms=4)
    return network(f, layers, tied=True)


def olmo(f: Fields) -> Transformer:
    """OLMo: norms without parameters."""
    whole = attention(f, bias=f.flag("attention_bias", default=False))
    return network(f, alike([whole] * layers_of(f), feed_forward(f), vectors=BARE), final=BARE)


def olmo2(f: Fields) -> Transformer:
    """OLMo 2 and 3: a norm over all queries and one over all keys; of OLMo 3 all but every fourth layer have the window."""
    whole = attention(f, bias=f.flag("attention_bias", default=False), qk_norm="whole")
    return network(f, alike(windowed(f, whole, lambda at: (at + 1) % 4 != 0), feed_forward(f)))


def cohere(f: Fields) -> Transformer:
    """Command R: one norm for both blocks of a layer, and on wish norms on queries and keys."""
    normed = f.flag("use_qk_norm", default=False)
    whole = attention(
        f, bias=f.flag("attention_bias", default=False), qk_norm="whole" if normed else ""
    )
    return network(f, alike([whole] * layers_of(f), feed_forward(f), norms=1), tied=True)


def cohere2(f: Fields) -> Transformer:
    """Command R7B and A: the same with windows in all but every fourth layer."""
    f.skip("use_qk_norm")
    period = f.number("sliding_window_pattern", "_sliding_window_pattern", default=4)
    whole = attention(f, bias=f.flag("attention_bias", default=False))
    layers = alike(windowed(f, whole, lambda at: (at + 1) % period != 0), feed_forward(f), norms=1)
    return network(f, layers, tied=True)


def exaone4(f: Fields) -> Transformer:
    """EXAONE 4: windows as its pattern of L and G says, if there are any."""
    pattern = f.value("sliding_window_pattern") or 4
    if isinstance(pattern, str):
        if not set(pattern) <= {"L", "G"} or len(pattern) > layers_of(f):
            raise f.bad(
                "L for a layer with the window, G for one without", "sliding_window_pattern"
            )
        kinds = pattern
    else:
        kinds = "L" * (f.number("sliding_window_pattern", default=4, most=layers_of(f)) - 1) + "G"
    whole = attention(f, qk_norm="head")
    mixers = windowed(f, whole, lambda at: kinds[at % len(kinds)] == "L" and at + 1 != layers_of(f))
    return network(f, alike(mixers, feed_forward(f)))


def glm(f: Fields) -> Transformer:
    """GLM-4: biases on queries, keys and values where there are any; the models of 2025 have norms after each block, too."""
    whole = attention(f, bias=f.flag("attention_bias", default=False), output_bias=False)
    norms = 4 if f.given.get("model_type") == "glm4" else 2
    return network(f, alike([whole] * layers_of(f), feed_forward(f), norms=norms))


def hunyuan(f: Fields) -> Transformer:
    """Hunyuan: a norm on queries and keys of each head."""
    f.only("use_cla", False)
    f.skip("use_qk_norm")
    whole = attention(f, bias=f.flag("attention_bias", default=False), qk_norm="head")
    return network(f, alike([whole] * layers_of(f), feed_forward(f)))


def ernie(f: Fields) -> Transformer:
    """ERNIE 4.5: biases everywhere or nowhere."""
    bias = f.flag("use_bias", default=False)
    return network(
        f, alike([attention(f, bias=bias)] * layers_of(f), feed_forward(f, bias=bias)), tied=True
    )


def stablelm(f: Fields) -> Transformer:
    """StableLM: layer norms, one for both blocks where they run beside each other."""
    normed = f.flag("qk_layernorm", default=False)
    whole = attention(
        f,
        bias=f.flag("use_qkv_bias", default=False),
        output_bias=False,
        qk_norm="whole" if normed else "",
    )
    norms = 1 if f.flag("use_parallel_residual", default=False) else 2
    layers = alike([whole] * layers_of(f), feed_forward(f), norms=norms, vectors=SHIFTED)
    return network(f, layers, final=SHIFTED)


def ungated(f: Fields) -> Transformer:
    """Arcee: two matrices in the dense part."""
    whole = attention(f, bias=f.flag("attention_bias", default=False))
    dense = feed_forward(f, gated=False, bias=f.flag("mlp_bias", default=False))
    return network(f, alike([whole] * layers_of(f), dense))


def apertus(f: Fields) -> Transformer:
    """Apertus: norms on queries and keys, and an activation function that learns two numbers."""
    f.only("post_norm", False)
    f.skip("qk_norm", "mlp_bias")
    whole = attention(f, bias=f.flag("attention_bias", default=False), qk_norm="head")
    return network(f, alike([whole] * layers_of(f), feed_forward(f, gated=False, learned=2)))


def nemotron(f: Fields) -> Transformer:
    """Nemotron 4 and Minitron: layer norms, two matrices in the dense part."""
    whole = attention(f, bias=f.flag("attention_bias", default=False))
    dense = feed_forward(f, gated=False, bias=f.flag("mlp_bias", default=False))
    return network(f, alike([whole] * layers_of(f), dense, vectors=SHIFTED), final=SHIFTED)


def starcoder2(f: Fields) -> Transformer:
    """StarCoder 2: layer norms, biases everywhere, a window in every layer."""
    bias = f.flag("use_bias", default=True)
    mixers = windowed(f, attention(f, bias=bias), lambda _: True)
    layers = alike(mixers, feed_forward(f, gated=False, bias=bias), vectors=SHIFTED)
    return network(f, layers, tied=True, final=SHIFTED)


def phi(f: Fields) -> Transformer:
    """Phi 1 and 2: one layer norm for both blocks, biases everywhere, also at the head."""
    f.only("qk_layernorm", False)
    whole = attention(f, bias=True)
    dense = feed_forward(f, gated=False, bias=True)
    layers = alike([whole] * layers_of(f), dense, norms=1, vectors=SHIFTED)
    return network(f, layers, final=SHIFTED, head_bias=True)


def minicpm3(f: Fields) -> Transformer:
    """MiniCPM3: latent attention before a dense part."""
    mixer = latent(f, value_dim=max(hidden_of(f) // heads_of(f), 1))
    dense = feed_forward(f, bias=f.flag("mlp_bias", default=False))
    return network(f, alike([mixer] * layers_of(f), dense))
