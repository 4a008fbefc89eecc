"""Decoders with a mixture of experts."""

from __future__ import annotations

from mofa_model.blocks import Block
from mofa_model.presets.families.fields import Fields
from mofa_model.presets.families.parts import (
    SHIFTED,
    alike,
    attention,
    feed_forward,
    latent,
    layers_of,
    leading,
    mixture,
    network,
    upper,
    windowed,
)
from mofa_model.spec import Transformer


def mixtral(f: Fields) -> Transformer:
    """Mixtral: experts in every layer, of the width that others give their dense part."""
    experts = mixture(
        f,
        count=f.number("num_local_experts"),
        top_k=f.number("num_experts_per_tok"),
        width=f.number("intermediate_size"),
    )
    return network(f, alike(windowed(f, attention(f), lambda _: True), experts))


def phimoe(f: Fields) -> Transformer:
    """Phi-3.5 MoE: Mixtral with layer norms and biases."""
    experts = mixture(
        f,
        count=f.number("num_local_experts"),
        top_k=f.number("num_experts_per_tok"),
        width=f.number("intermediate_size"),
    )
    whole = attention(f, bias=f.flag("attention_bias", default=False))
    layers = alike(windowed(f, whole, lambda _: True), experts, vectors=SHIFTED)
    return network(f, layers, final=SHIFTED, head_bias=f.flag("lm_head_bias", default=False))


def gpt_oss(f: Fields) -> Transformer:
    """GPT-OSS: biases everywhere, sinks, windows in the first, third, ... layer."""
    experts = mixture(
        f,
        count=f.number("num_local_experts", "num_experts"),
        top_k=f.number("num_experts_per_tok", "experts_per_token"),
        width=f.number("intermediate_size"),
        bias=True,
        router_bias=True,
    )
    whole = attention(f, bias=f.flag("attention_bias", default=True), sinks=True)
    return network(f, alike(windowed(f, whole, lambda at: at % 2 == 0), experts))


def qwen_moe(f: Fields) -> Transformer:
    """Qwen MoE: experts in every layer, or every so many, but for those that are listed as dense."""
    second = f.given.get("model_type") == "qwen2_moe"
    biased = f.flag("qkv_bias" if second else "attention_bias", default=second)
    whole = attention(
        f, bias=biased, output_bias=False if second else None, qk_norm="" if second else "head"
    )
    seconds = qwen_parts(f, shared=second)
    return network(f, alike(windowed(f, whole, upper(f)), seconds))


def qwen_parts(f: Fields, *, shared: bool) -> list[Block]:
    """The part behind the mixer of every layer; a `shared` expert has a gate of its own."""
    step = f.number("decoder_sparse_step", default=1)
    listed = f.places("mlp_only_layers", layers_of(f)) or frozenset()
    width = f.number("shared_expert_intermediate_size") if shared else 0
    experts = mixture(
        f,
        count=f.number("num_experts", "num_local_experts"),
        top_k=f.number("num_experts_per_tok"),
        width=f.number("moe_intermediate_size"),
        shared_width=width,
        shared_gate=shared,
    )
    dense = feed_forward(f)
    return [dense if at in listed or (at + 1) % step else experts for at in range(layers_of(f))]


def olmoe(f: Fields) -> Transformer:
    """OLMoE: norms over all queries and all keys."""
    experts = mixture(
        f,
        count=f.number("num_experts"),
        top_k=f.number("num_experts_per_tok"),
        width=f.number("intermediate_size"),
    )
    whole = attention(f, bias=f.flag("attention_bias", default=False), qk_norm="whole")
    return network(f, alike([whole] * layers_of(f), experts))


def granite_moe(f: Fields) -> Transformer:
    """Granite MoE, with a shared expert or without."""
    experts = mixture(
        f,
        count=f.number("num_local_experts"),
        top_k=f.number("num_experts_per_tok"),
        width=f.number("intermediate_size"),
        shared_width=f.number("shared_intermediate_size", default=0, least=0),
    )
    whole = attention(f, bias=f.flag("attention_bias", default=False))
    return network(f, alike([whole] * layers_of(f), experts))


def deepseek_parts(f: Fields) -> list[Block]:
    """Experts behind some leading dense parts, with shared ones."""
    width = f.number("moe_intermediate_size")
    experts = mixture(
        f,
        count=f.number("n_routed_experts", "num_local_experts", "num_experts"),
        top_k=f.number("num_experts_per_tok", "num_experts_per_token"),
        width=width,
        shared_width=width * f.number("n_shared_experts", "num_shared_experts", default=0, least=0),
    )
    return leading(f, feed_forward(f, bias=f.flag("mlp_bias", default=False)), experts)


def modules_of(f: Fields) -> int:
    """Multi-token prediction modules."""
    return f.number("num_nextn_predict_layers", default=0, least=0, most=64)


def deepseek(f: Fields) -> Transformer:
    """DeepSeek V2, V3 and V3.2, and Kimi K2: latent attention."""
    f.words("layer_types", layers_of(f), ("full_attention", "indexed_attention"))
    layers = alike([latent(f)] * layers_of(f), deepseek_parts(f))
    return network(f, layers, modules=modules_of(f))


def glm4_moe(f: Fields) -> Transformer:
    """GLM-4.5 and 4.6."""
    whole = attention(
        f,
        bias=f.flag("attention_bias", default=False),
        output_bias=False,
        qk_norm="head" if f.flag("use_qk_norm", default=False) else "",
    )
    layers = alike([whole] * layers_of(f), deepseek_parts(f))
    return network(f, layers, modules=modules_of(f))


def dots(f: Fields) -> Transformer:
    """dots.llm1: norms on queries and keys."""
    whole = attention(f, bias=f.flag("attention_bias", default=False), qk_norm="head")
    mixers = windowed(f, whole, upper(f))
    return network(f, alike(mixers, deepseek_parts(f)))


def ernie_moe(f: Fields) -> Transformer:
    """ERNIE 4.5 MoE: experts from one layer to another; the bias that balances them is learned."""
    bias, layers = f.flag("use_bias", default=False), layers_of(f)
    width = f.number("moe_intermediate_size")
    experts = mixture(
        f,
        count=f.number("moe_num_experts"),
        top_k=f.number("moe_k"),
        width=width,
        shared_width=width * f.number("moe_num_shared_experts", default=0, least=0),
        bias=bias,
        router_bias=True,
    )
    first = f.number("moe_layer_start_index", default=1, least=0)
    last = f.number("moe_layer_end_index", default=-1, least=-1)
    every = f.number("moe_layer_interval", default=1)
    last = layers - 1 if last == -1 else last
    listed = f.words("mlp_layer_types", layers, ("dense", "sparse"))
    dense = feed_forward(f, bias=bias)
    sparse = [(at + 1) % every == 0 and first <= at <= last for at in range(layers)]
    if listed is not None:
        sparse = [word == "sparse" for word in listed]
    seconds = [experts if one else dense for one in sparse]
    return network(
        f, alike([attention(f, bias=bias)] * layers, seconds), tied=True, modules=modules_of(f)
    )


def hunyuan_moe(f: Fields) -> Transformer:
    """Hunyuan MoE: numbers of experts may be listed by layer, and must be the same in all."""
    f.only("use_cla", False)
    f.skip("use_qk_norm")
    width = _same_in_all(f, "moe_intermediate_size", default=f.number("intermediate_size"))
    experts = mixture(
        f,
        count=_same_in_all(f, "num_experts"),
        top_k=_same_in_all(f, "moe_topk"),
        width=f.number("intermediate_size"),
        shared_width=width * _same_in_all(f, "num_shared_expert", default=1),
    )
    whole = attention(f, bias=f.flag("attention_bias", default=False), qk_norm="head")
    return network(f, alike([whole] * layers_of(f), experts))


def _same_in_all(f: Fields, name: str, default: int | None = None) -> int:
    value = f.value(name)
    if isinstance(value, list):
        if not value or any(one != value[0] for one in value):
            raise f.bad("only one number, the same in all layers, is modelled", name)
        return Fields({name: value[0]}, f.path).number(name)
    return f.number(name, default=default)


def minimax_m2(f: Fields) -> Transformer:
    """MiniMax M2: norms over all queries and all keys."""
    f.skip("use_qk_norm", "qk_norm_type", "use_mtp", "mtp_transformer_layers")
    f.only("shared_intermediate_size", 0)
    layers = layers_of(f)
    if (f.places("attn_type_list", 1, first=1) or frozenset({0})) != frozenset({0}):
        raise f.bad("only 1 for each layer is modelled", "attn_type_list")
    experts = mixture(
        f,
        count=f.number("num_local_experts"),
        top_k=f.number("num_experts_per_tok"),
        width=f.number("intermediate_size"),
    )
    modules = f.number("num_mtp_modules", default=0, least=0, most=64)
    return network(f, alike([attention(f, qk_norm="whole")] * layers, experts), modules=modules)


def llama4(f: Fields) -> Transformer:
    """Llama 4: one shared expert beside the others, dense parts of another width between them, windows in three of four layers."""
    f.skip("use_qk_norm", "moe_layers")
    layers, width = layers_of(f), f.number("intermediate_size", default=8192)
    experts = mixture(
        f,
        count=f.number("num_local_experts", default=16),
        top_k=f.number("num_experts_per_tok", default=1),
        width=width,
        shared_width=width,
    )
    step = f.number("interleave_moe_layer_step", default=1)
    listed = f.places("moe_layers", layers)
    dense = feed_forward(f, "intermediate_size_mlp")
    whole = attention(f, bias=f.flag("attention_bias", default=False))
    sparse = [(at + 1) % step == 0 if listed is None else at in listed for at in range(layers)]
    mixers = windowed(f, whole, lambda at: (at + 1) % 4 != 0, word="chunked_attention")
    return network(f, alike(mixers, [experts if one else dense for one in sparse]))


def dbrx(f: Fields) -> Transformer:
    """DBRX: experts and attention are described in objects of their own."""
    inner, routed = f.inside("attn_config"), f.inside("ffn_config")
    f.skip("num_key_value_heads")
    routed.skip("ffn_act_fn", "hidden_size")
    experts = mixture(
        f,
        count=routed.number("moe_num_experts", default=4),
        top_k=routed.number("moe_top_k", default=1),
        width=routed.number("ffn_hidden_size", default=3584),
    )
    whole = attention(f, kv_heads=inner.number("kv_n_heads", default=1))
    return network(f, alike([whole] * layers_of(f), experts))
