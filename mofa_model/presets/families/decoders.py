"""Decoders as a table: for each family, which field of its config.json each part of its layers
reads.

A value of a row is what holds for the whole family, or a reader of fields: `flag`, `number`, or a
function below. A field that no reader asks for is refused, unless it is harmless or off.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from mofa_model.blocks import Block
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
    latent,
    layers_of,
    leading,
    mixture,
    network,
    upper,
    windowed,
)
from mofa_model.spec import Transformer

Read: TypeAlias = Callable[[Fields], Any]
"""What a file says of one part of a model."""
Family: TypeAlias = Callable[[Fields], Transformer]
"""The model that a file of a family describes."""
Window: TypeAlias = Callable[[Fields], Callable[[int], bool]]
"""Which layers have a window, where the file does not list them."""


def _value(f: Fields, value: Any) -> Any:
    """A value of a row: what holds for the family, or what its file says."""
    return value(f) if callable(value) else value


def flag(name: str, *, default: bool = False) -> Read:
    """A field that is true or false."""
    return lambda f: f.flag(name, default=default)


def number(*names: str, **limits: int) -> Read:
    """A field that is a whole number, under the first of its names that the file has."""
    return lambda f: f.number(*names, **limits)


def dense(*names: str, **parts: Any) -> Read:
    """A dense part, whose width stands under one of some names."""
    return lambda f: feed_forward(f, *names, **{key: _value(f, v) for key, v in parts.items()})


def experts(count: str | Read, top_k: str | Read, width: str | Read, **parts: Any) -> Read:
    """Experts: their number, those of a token, and the width of one, each by its field."""
    sizes: dict[str, Any] = {"count": count, "top_k": top_k, "width": width}
    read = {key: number(v) if isinstance(v, str) else v for key, v in sizes.items()} | parts
    return lambda f: mixture(f, **{key: _value(f, value) for key, value in read.items()})


def decoder(
    *,
    bias: bool | Read = False,
    output_bias: bool | Read | None = None,
    qk_norm: str | Read = "",
    kv_heads: Read | None = None,
    sinks: bool = False,
    mixer: Read | None = None,
    window: Window | None = None,
    word: str = "sliding_attention",
    second: Read = feed_forward,
    norms: int | Read = 2,
    vectors: int | Read = WEIGHTED,
    final: int | Read | None = None,
    tied: bool = False,
    positions: int | Read = 0,
    head_bias: bool | Read = False,
    modules: int | Read = 0,
    skip: tuple[str, ...] = (),
    only: Mapping[str, Any] = MappingProxyType({}),
    check: Read | None = None,
) -> Family:
    """A decoder whose layers are a mixer and a second part each.

    The mixer is softmax attention with these biases, norms and windows, unless `mixer` reads
    another. `vectors` are the parameters of a norm, and `final` those of the last one. `skip` are
    fields that change nothing here, `only` those that are modelled with one value, and `check`
    refuses the rest.
    """

    def read(f: Fields) -> Transformer:
        """A model from the fields of its config.json."""
        f.skip(*skip)
        for name, value in only.items():
            f.only(name, value)
        if check is not None:
            check(f)
        if mixer is None:
            whole = attention(
                f,
                kv_heads=_value(f, kv_heads),
                bias=_value(f, bias),
                output_bias=_value(f, output_bias),
                qk_norm=_value(f, qk_norm),
                sinks=sinks,
            )
            layers = layers_of(f)
            mixers = (
                [whole] * layers if window is None else windowed(f, whole, window(f), word=word)
            )
        else:
            mixers = [mixer(f)] * layers_of(f)
        shape = _value(f, vectors)
        layer_list = alike(mixers, second(f), norms=_value(f, norms), vectors=shape)
        return network(
            f,
            layer_list,
            tied=tied,
            final=shape if final is None else _value(f, final),
            positions=_value(f, positions),
            head_bias=_value(f, head_bias),
            modules=_value(f, modules),
        )

    return read


def in_every_layer(_: Fields) -> Callable[[int], bool]:
    """A window, if the file gives one, in every layer."""
    return lambda _: True


def in_every_other(_: Fields) -> Callable[[int], bool]:
    """Windows in the first, third, ... layer."""
    return lambda layer: layer % 2 == 0


def all_but_every(period: int, *names: str) -> Window:
    """Windows in all but every so many-th layer; a file may give another period."""

    def read(f: Fields) -> Callable[[int], bool]:
        every = f.number(*names, default=period) if names else period
        return lambda layer: (layer + 1) % every != 0

    return read


def normed_by(name: str, over: str) -> Read:
    """Norms on queries and keys, over each head or the whole, where a flag asks for them."""
    return lambda f: over if f.flag(name, default=False) else ""


BIAS: Final = flag("attention_bias")
PATTERN: Final = ("sliding_window_pattern", "_sliding_window_pattern")
MLP: Final = dense(bias=flag("mlp_bias"))
UNGATED: Final = dense(gated=False, bias=flag("mlp_bias"))
BIASED: Final = dense(gated=False, bias=True)
"""The dense part before 2023: two matrices, each with a bias."""
POSITIONS: Final = number("n_positions", "max_position_embeddings", default=1024)
MODULES: Final = number("num_nextn_predict_layers", default=0, least=0, most=64)
"""Multi-token prediction modules."""
MIXTRAL: Final = experts("num_local_experts", "num_experts_per_tok", "intermediate_size")
ONE_WAY: Final = {"use_bidirectional_attention": False}


def qwen_parts(f: Fields, *, shared: bool) -> list[Block]:
    """Experts in every so many-th layer, but for those listed as dense; a shared one has a gate of
    its own.
    """
    step = f.number("decoder_sparse_step", default=1)
    listed = f.places("mlp_only_layers", layers_of(f)) or frozenset()
    width = f.number("shared_expert_intermediate_size") if shared else 0
    routed = mixture(
        f,
        count=f.number("num_experts", "num_local_experts"),
        top_k=f.number("num_experts_per_tok"),
        width=f.number("moe_intermediate_size"),
        shared_width=width,
        shared_gate=shared,
    )
    plain = feed_forward(f)
    return [
        plain if layer in listed or (layer + 1) % step else routed for layer in range(layers_of(f))
    ]


def deepseek_parts(f: Fields) -> list[Block]:
    """Experts, with shared ones, behind some leading dense parts."""
    width = f.number("moe_intermediate_size")
    routed = mixture(
        f,
        count=f.number("n_routed_experts", "num_local_experts", "num_experts"),
        top_k=f.number("num_experts_per_tok", "num_experts_per_token"),
        width=width,
        shared_width=width * f.number("n_shared_experts", "num_shared_experts", default=0, least=0),
    )
    return leading(f, feed_forward(f, bias=f.flag("mlp_bias", default=False)), routed)


def _ernie_parts(f: Fields) -> list[Block]:
    """Experts from one layer to another; the bias that balances them is learned."""
    bias, layers = f.flag("use_bias", default=False), layers_of(f)
    width = f.number("moe_intermediate_size")
    routed = mixture(
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
    plain = feed_forward(f, bias=bias)
    sparse = [(layer + 1) % every == 0 and first <= layer <= last for layer in range(layers)]
    if listed is not None:
        sparse = [word == "sparse" for word in listed]
    return [routed if has else plain for has in sparse]


def _hunyuan_experts(f: Fields) -> Block:
    """Numbers of experts may be listed by layer, and must be the same in all."""

    def same(name: str, default: int | None = None) -> int:
        value = f.value(name)
        if not isinstance(value, list):
            return f.number(name, default=default)
        if not value or any(other != value[0] for other in value):
            raise f.bad("only one number, the same in all layers, is modelled", name)
        return Fields({name: value[0]}, f.path).number(name)

    width = same("moe_intermediate_size", default=f.number("intermediate_size"))
    return mixture(
        f,
        count=same("num_experts"),
        top_k=same("moe_topk"),
        width=f.number("intermediate_size"),
        shared_width=width * same("num_shared_expert", default=1),
    )


def _llama4_parts(f: Fields) -> list[Block]:
    """One shared expert beside the others, and dense parts of another width between them."""
    layers, width = layers_of(f), f.number("intermediate_size", default=8192)
    routed = mixture(
        f,
        count=f.number("num_local_experts", default=16),
        top_k=f.number("num_experts_per_tok", default=1),
        width=width,
        shared_width=width,
    )
    step = f.number("interleave_moe_layer_step", default=1)
    listed = f.places("moe_layers", layers)
    plain = feed_forward(f, "intermediate_size_mlp")
    sparse = [
        (layer + 1) % step == 0 if listed is None else layer in listed for layer in range(layers)
    ]
    return [routed if has else plain for has in sparse]


def _dbrx_experts(f: Fields) -> Block:
    """Experts described in an object of their own."""
    inner = f.inside("ffn_config")
    inner.skip("ffn_act_fn", "hidden_size")
    return mixture(
        f,
        count=inner.number("moe_num_experts", default=4),
        top_k=inner.number("moe_top_k", default=1),
        width=inner.number("ffn_hidden_size", default=3584),
    )


def _exaone_windows(f: Fields) -> Callable[[int], bool]:
    """Windows as a pattern of L and G says, never in the last layer."""
    layers, pattern = layers_of(f), f.value("sliding_window_pattern") or 4
    if isinstance(pattern, str):
        if not set(pattern) <= {"L", "G"} or len(pattern) > layers:
            right = "L for a layer with the window, G for one without"
            raise f.bad(right, "sliding_window_pattern")
        kinds = pattern
    else:
        kinds = "L" * (f.number("sliding_window_pattern", default=4, most=layers) - 1) + "G"
    return lambda layer: kinds[layer % len(kinds)] == "L" and layer + 1 != layers


def _opt_vectors(f: Fields) -> int:
    return SHIFTED if f.flag("layer_norm_elementwise_affine", default=True) else BARE


def _opt_final(f: Fields) -> int:
    before = f.flag("do_layer_norm_before", default=True)
    removed = f.flag("_remove_final_layer_norm", default=False)
    return _opt_vectors(f) if before and not removed else BARE


def _opt_check(f: Fields) -> None:
    hidden = hidden_of(f)
    if f.number("word_embed_proj_dim", default=hidden) != hidden:
        raise f.bad(f"only hidden_size ({hidden}) is modelled", "word_embed_proj_dim")


def _mpt_check(f: Fields) -> None:
    inner = f.inside("attn_config")
    inner.only("attn_type", "multihead_attention")
    inner.only("qk_ln", False)
    inner.only("kv_n_heads", heads_of(f))
    inner.skip("alibi_bias_max", "attn_impl", "attn_uses_sequence_id", "prefix_lm", "softmax_scale")


def _falcon_kv_heads(f: Fields) -> int:
    """Keys and values of one head, of several, or of each."""
    several = f.number("num_kv_heads", "n_head_kv", default=heads_of(f))
    single = f.flag("multi_query", default=True)
    if f.flag("new_decoder_architecture", default=False):
        return several
    return 1 if single else heads_of(f)


def _falcon_norms(f: Fields) -> int:
    """One norm a layer in the first generation, where both blocks run beside each other."""
    default = 2 if f.flag("new_decoder_architecture", default=False) else 1
    if not f.flag("parallel_attn", default=True):
        return 2
    return f.number("num_ln_in_parallel_attn", default=default, most=2)


def _minimax_check(f: Fields) -> None:
    if (f.places("attn_type_list", 1, counted_from=1) or frozenset({0})) != frozenset({0}):
        raise f.bad("only 1 for each layer is modelled", "attn_type_list")


def gpt_neo(f: Fields) -> Transformer:
    """GPT-Neo: learned positions, windows in half of the layers, a bias behind attention alone."""
    layers = layers_of(f)
    kinds, pattern = f.value("attention_layers"), f.value("attention_types")
    if kinds is None and pattern is not None:
        try:
            kinds = [
                word
                for words, times in pattern
                for _ in range(min(times, layers))
                for word in words
            ]
        except (TypeError, ValueError):
            right = 'pairs of words and a number, for example [[["global", "local"], 12]]'
            raise f.bad(right, "attention_types") from None
    kinds = kinds if kinds is not None else ["global"] * layers
    if len(kinds) != layers or any(word not in ("global", "local") for word in kinds):
        right = f"global or local for each of {layers} layers"
        raise f.bad(right, "attention_layers", "attention_types")
    whole = attention(f, output_bias=True)
    narrow = replace(whole, window=f.number("window_size", default=256))
    mixers = [narrow if word == "local" else whole for word in kinds]
    made = alike(mixers, feed_forward(f, gated=False, bias=True), vectors=SHIFTED)
    positions = f.number("max_position_embeddings", default=2048)
    return network(f, made, tied=True, final=SHIFTED, positions=positions)


DEEPSEEK: Final = decoder(
    mixer=latent,
    second=deepseek_parts,
    modules=MODULES,
    check=lambda f: f.words("layer_types", layers_of(f), ("full_attention", "indexed_attention")),
)
"""DeepSeek V2, V3 and V3.2, and Kimi K2: latent attention."""
QWEN2: Final = decoder(bias=True, output_bias=False, window=upper)
QWEN3: Final = decoder(bias=BIAS, qk_norm="head", window=upper)
QWEN3_MOE: Final = decoder(
    bias=BIAS, qk_norm="head", second=lambda f: qwen_parts(f, shared=False), window=upper
)
LLAMA: Final = decoder(bias=BIAS, second=MLP, window=in_every_layer, skip=("use_qk_norm",))
"""The file says which biases there are."""
MISTRAL: Final = decoder(window=in_every_layer)
GPT_J: Final = decoder(
    second=BIASED, norms=1, vectors=SHIFTED, head_bias=True, skip=("n_positions",)
)
"""One norm for both blocks, biases in the dense part and at the head alone."""
GEMMA3: Final = decoder(
    bias=BIAS, qk_norm="head", window=all_but_every(6, *PATTERN), norms=4, tied=True, only=ONE_WAY
)
OLMO2: Final = decoder(bias=BIAS, qk_norm="whole", window=all_but_every(4))
GRANITE_MOE: Final = decoder(
    bias=BIAS,
    second=experts(
        "num_local_experts",
        "num_experts_per_tok",
        "intermediate_size",
        shared_width=number("shared_intermediate_size", default=0, least=0),
    ),
)
LLAMA4: Final = decoder(
    bias=BIAS,
    window=all_but_every(4),
    word="chunked_attention",
    second=_llama4_parts,
    skip=("use_qk_norm", "moe_layers"),
)

DECODERS: Final[Mapping[str, Family]] = {
    # Apertus: an activation function that learns two numbers.
    "apertus": decoder(
        bias=BIAS,
        qk_norm="head",
        second=dense(gated=False, learned=2),
        skip=("qk_norm", "mlp_bias"),
        only={"post_norm": False},
    ),
    "arcee": decoder(bias=BIAS, second=UNGATED),
    # BLOOM: a second norm behind the embedding.
    "bloom": decoder(bias=True, second=BIASED, vectors=SHIFTED, final=2 * SHIFTED, tied=True),
    "codegen": GPT_J,
    # Command R: one norm for both blocks of a layer. Command R7B and A: windows, too.
    "cohere": decoder(bias=BIAS, qk_norm=normed_by("use_qk_norm", "whole"), norms=1, tied=True),
    "cohere2": decoder(
        bias=BIAS, window=all_but_every(4, *PATTERN), norms=1, tied=True, skip=("use_qk_norm",)
    ),
    # DBRX: experts and attention are described in objects of their own.
    "dbrx": decoder(
        kv_heads=lambda f: f.inside("attn_config").number("kv_n_heads", default=1),
        second=_dbrx_experts,
        skip=("num_key_value_heads",),
    ),
    "deepseek_v2": DEEPSEEK,
    "deepseek_v3": DEEPSEEK,
    "deepseek_v32": DEEPSEEK,
    "dots1": decoder(bias=BIAS, qk_norm="head", second=deepseek_parts, window=upper),
    "ernie4_5": decoder(bias=flag("use_bias"), second=dense(bias=flag("use_bias")), tied=True),
    "ernie4_5_moe": decoder(bias=flag("use_bias"), second=_ernie_parts, tied=True, modules=MODULES),
    "exaone4": decoder(qk_norm="head", window=_exaone_windows),
    "falcon": decoder(
        bias=flag("bias"),
        kv_heads=_falcon_kv_heads,
        second=dense("ffn_hidden_size", gated=False, bias=flag("bias")),
        norms=_falcon_norms,
        vectors=SHIFTED,
        tied=True,
    ),
    "gemma": decoder(bias=BIAS, tied=True, only=ONE_WAY),
    "gemma2": decoder(bias=BIAS, window=in_every_other, norms=4, tied=True, only=ONE_WAY),
    "gemma3_text": GEMMA3,
    "glm": decoder(bias=BIAS, output_bias=False),
    "glm4": decoder(bias=BIAS, output_bias=False, norms=4),
    "glm4_moe": decoder(
        bias=BIAS,
        output_bias=False,
        qk_norm=normed_by("use_qk_norm", "head"),
        second=deepseek_parts,
        modules=MODULES,
    ),
    "gpt2": decoder(bias=True, second=BIASED, vectors=SHIFTED, tied=True, positions=POSITIONS),
    # StarCoder: GPT-2 with one head of keys and values.
    "gpt_bigcode": decoder(
        bias=True,
        kv_heads=lambda f: 1 if f.flag("multi_query", default=True) else heads_of(f),
        second=BIASED,
        vectors=SHIFTED,
        tied=True,
        positions=POSITIONS,
        skip=("num_key_value_heads",),
    ),
    "gpt_neo": gpt_neo,
    "gpt_neox": decoder(bias=flag("attention_bias", default=True), second=BIASED, vectors=SHIFTED),
    "gpt_oss": decoder(
        bias=flag("attention_bias", default=True),
        sinks=True,
        second=experts(
            number("num_local_experts", "num_experts"),
            number("num_experts_per_tok", "experts_per_token"),
            "intermediate_size",
            bias=True,
            router_bias=True,
        ),
        window=in_every_other,
    ),
    "gptj": GPT_J,
    "granite": LLAMA,
    "granitemoe": GRANITE_MOE,
    "granitemoeshared": GRANITE_MOE,
    "hunyuan_v1_dense": decoder(
        bias=BIAS, qk_norm="head", skip=("use_qk_norm",), only={"use_cla": False}
    ),
    "hunyuan_v1_moe": decoder(
        bias=BIAS,
        qk_norm="head",
        second=_hunyuan_experts,
        skip=("use_qk_norm",),
        only={"use_cla": False},
    ),
    "kimi_k2": DEEPSEEK,
    "llama": LLAMA,
    "llama4_text": LLAMA4,
    "minicpm3": decoder(
        mixer=lambda f: latent(f, value_dim=max(hidden_of(f) // heads_of(f), 1)), second=MLP
    ),
    "minimax_m2": decoder(
        qk_norm="whole",
        second=MIXTRAL,
        modules=number("num_mtp_modules", default=0, least=0, most=64),
        skip=("use_qk_norm", "qk_norm_type", "use_mtp", "mtp_transformer_layers"),
        only={"shared_intermediate_size": 0},
        check=_minimax_check,
    ),
    "mistral": MISTRAL,
    "mixtral": decoder(second=MIXTRAL, window=in_every_layer),
    "mpt": decoder(
        second=dense(gated=False),
        tied=True,
        only={"no_bias": True, "expansion_ratio": 4},
        check=_mpt_check,
    ),
    "nemotron": decoder(bias=BIAS, second=UNGATED, vectors=SHIFTED),
    # OLMo: norms without parameters.
    "olmo": decoder(bias=BIAS, vectors=BARE),
    "olmo2": OLMO2,
    "olmo3": OLMO2,
    "olmoe": decoder(
        bias=BIAS,
        qk_norm="whole",
        second=experts("num_experts", "num_experts_per_tok", "intermediate_size"),
    ),
    # OPT: learned positions, two more than the longest sequence.
    "opt": decoder(
        bias=flag("enable_bias", default=True),
        second=dense(gated=False, bias=flag("enable_bias", default=True)),
        vectors=_opt_vectors,
        final=_opt_final,
        tied=True,
        positions=lambda f: f.number("max_position_embeddings", default=2048) + 2,
        check=_opt_check,
    ),
    "phi": decoder(
        bias=True,
        second=BIASED,
        norms=1,
        vectors=SHIFTED,
        head_bias=True,
        only={"qk_layernorm": False},
    ),
    "phi3": MISTRAL,
    "phimoe": decoder(
        bias=BIAS,
        second=MIXTRAL,
        window=in_every_layer,
        vectors=SHIFTED,
        head_bias=flag("lm_head_bias"),
    ),
    "qwen2": QWEN2,
    "qwen2_5_vl_text": QWEN2,
    "qwen2_moe": decoder(
        bias=flag("qkv_bias", default=True),
        output_bias=False,
        second=lambda f: qwen_parts(f, shared=True),
        window=upper,
    ),
    "qwen3": QWEN3,
    "qwen3_moe": QWEN3_MOE,
    "qwen3_vl_moe_text": QWEN3_MOE,
    "qwen3_vl_text": QWEN3,
    "seed_oss": decoder(
        bias=flag("attention_bias", default=True),
        output_bias=flag("attention_out_bias"),
        second=MLP,
    ),
    "smollm3": decoder(bias=BIAS, second=MLP, window=upper, tied=True),
    # StableLM: one norm for both blocks where they run beside each other.
    "stablelm": decoder(
        bias=flag("use_qkv_bias"),
        output_bias=False,
        qk_norm=normed_by("qk_layernorm", "whole"),
        norms=lambda f: 1 if f.flag("use_parallel_residual", default=False) else 2,
        vectors=SHIFTED,
    ),
    "starcoder2": decoder(
        bias=flag("use_bias", default=True),
        second=dense(gated=False, bias=flag("use_bias", default=True)),
        window=in_every_layer,
        vectors=SHIFTED,
        tied=True,
    ),
}
"""Families by `model_type`."""
