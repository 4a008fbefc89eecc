"""Parts that many families share: what each means is said by the names of the fields that it reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from mofa_model.blocks import Block, Embedding, Experts, FeedForward, LatentAttention, Layer, SoftmaxAttention
from mofa_model.presets.families.fields import MOST_LAYERS, Fields
from mofa_model.spec import Transformer, runs_of

BARE, WEIGHTED, SHIFTED = 0, 1, 2
"""Parameters of a norm, each as wide as what it norms: none, a weight, a weight and a bias."""


def hidden_of(f: Fields) -> int:
    """Width of the residual stream."""
    return f.number("hidden_size", "n_embd", "d_model", "n_embed", most=2**20)


def layers_of(f: Fields) -> int:
    """Number of layers."""
    return f.number("num_hidden_layers", "n_layer", "n_layers", "num_layers", most=MOST_LAYERS)


def heads_of(f: Fields) -> int:
    """Query heads."""
    return f.number("num_attention_heads", "n_head", "n_heads", "num_heads")


def network(
    f: Fields,
    layers: Iterable[Layer],
    *,
    tied: bool = False,
    final: int = WEIGHTED,
    positions: int = 0,
    head_bias: bool = False,
    modules: int = 0,
) -> Transformer:
    """A model of these layers; `tied` is what holds where the file does not say, `final` the parameters of the last norm."""
    ends = Embedding(
        vocabulary=f.number("vocab_size"),
        tied=f.flag("tie_word_embeddings", default=tied),
        positions=positions,
        norm_vectors=final,
        head_bias=head_bias,
    )
    name = str(f.given.get("_name_or_path") or f.given.get("model_type"))[:200]
    runs = runs_of(list(layers))
    return Transformer(name=name, hidden=hidden_of(f), runs=runs, embedding=ends, prediction_modules=modules)


def alike(
    mixers: Sequence[Block], second: Block | Sequence[Block], *, norms: int = 2, vectors: int = WEIGHTED
) -> list[Layer]:
    """Layers of a mixer and one more block: the same in all, or one for each."""
    seconds = [second] * len(mixers) if isinstance(second, Block) else second
    made: dict[tuple[int, int], Layer] = {}
    for pair in zip(mixers, seconds, strict=True):
        made.setdefault((id(pair[0]), id(pair[1])), Layer(pair, norms=norms, norm_vectors=vectors))
    return [made[id(one), id(other)] for one, other in zip(mixers, seconds, strict=True)]


def attention(
    f: Fields,
    *,
    kv_heads: int | None = None,
    bias: bool = False,
    out_bias: bool | None = None,
    qk_norm: str = "",
    qk_vectors: int = WEIGHTED,
    sinks: bool = False,
) -> SoftmaxAttention:
    """Softmax attention; `out_bias` is that of the others where it is not said, `qk_norm` one for each `head` or all the `width`."""
    hidden, heads = hidden_of(f), heads_of(f)
    given = f.value("head_dim", "attention_head_dim", "kv_channels")
    if given is None and hidden % heads:
        raise f.bad(
            f"it must divide {f.name('hidden_size', 'n_embd', 'd_model', 'n_embed')} ({hidden})",
            "num_attention_heads",
            "n_head",
            "n_heads",
            "num_heads",
        )
    width = f.number("head_dim", "attention_head_dim", "kv_channels", default=max(hidden // heads, 1))
    kv = f.number("num_key_value_heads", default=heads) if kv_heads is None else kv_heads
    normed = {"": 0, "head": 2 * width, "width": (heads + kv) * width}[qk_norm]
    shifts = (heads + 2 * kv) * width * bias + hidden * (bias if out_bias is None else out_bias)
    beside = shifts + normed * qk_vectors + heads * sinks
    return SoftmaxAttention(heads=heads, kv_heads=kv, head_dim=width, beside=beside)


def windowed(
    f: Fields, whole: SoftmaxAttention, where: Callable[[int], bool], *, word: str = "sliding_attention"
) -> list[Block]:
    """The attention of every layer: `where` says which have a window if the file does not list them."""
    layers = layers_of(f)
    size = f.number("sliding_window", "attention_chunk_size", default=0, least=0)
    listed = f.words("layer_types", layers, (word, "full_attention"))
    if not size:
        return [whole] * layers
    narrow = SoftmaxAttention(
        heads=whole.heads, kv_heads=whole.kv_heads, head_dim=whole.head_dim, beside=whole.beside, window=size
    )
    return [
        narrow if (where(at) if listed is None else listed[at] == word) else whole for at in range(layers)
    ]


def upper(f: Fields) -> Callable[[int], bool]:
    """Windows from a layer on, where they are used: a file that does not say so has none."""
    used = f.flag("use_sliding_window", default=False)
    first = f.number("max_window_layers", default=0, least=0)
    return lambda at: used and at >= first


def feed_forward(
    f: Fields, *names: str, gated: bool = True, bias: bool = False, beside: int = 0
) -> FeedForward:
    """The dense part; where the file gives no width it is four times the stream's."""
    hidden = hidden_of(f)
    width = f.number(*(names or ("intermediate_size", "n_inner", "ffn_dim")), default=4 * hidden)
    return FeedForward(width=width, gated=gated, beside=beside + bias * ((1 + gated) * width + hidden))


def mixture(
    f: Fields,
    *,
    count: int,
    top_k: int,
    width: int,
    shared_width: int = 0,
    gated: bool = True,
    bias: bool = False,
    beside: int = 0,
) -> Experts:
    """Experts, of which a token may be restricted to some groups; `bias` is that of each expert."""
    groups = f.number("n_group", "num_expert_group", default=1)
    top_groups = f.number("topk_group", default=1)
    shifts = bias * count * ((1 + gated) * width + hidden_of(f))
    return Experts(
        count=count,
        top_k=top_k,
        width=width,
        gated=gated,
        shared_width=shared_width or None,
        node_limit=top_groups if top_groups < groups else 0,
        beside=beside + shifts,
    )


def latent(f: Fields, value_dim: int | None = None) -> LatentAttention:
    """Multi-head latent attention, with the norms of its latents."""
    query, kv = f.number("q_lora_rank", default=0, least=0), f.number("kv_lora_rank")
    rope, hidden = f.number("qk_rope_head_dim", least=0), hidden_of(f)
    f.skip("num_key_value_heads", "head_dim", "qk_head_dim")
    shifts = f.flag("attention_bias", default=False) * (query + kv + rope + hidden)
    return LatentAttention(
        heads=heads_of(f),
        query_rank=query or None,
        kv_rank=kv,
        nope_dim=f.number("qk_nope_head_dim"),
        rope_dim=rope,
        value_dim=f.number("v_head_dim", default=value_dim),
        beside=query + kv + shifts,
    )


def leading(f: Fields, dense: Block, sparse: Block) -> list[Block]:
    """Dense parts in the first layers, experts in all others; or as `mlp_layer_types` lists them."""
    layers = layers_of(f)
    f.only("moe_layer_freq", 1)
    first = f.number("first_k_dense_replace", default=0, least=0)
    listed = f.words("mlp_layer_types", layers, ("dense", "sparse"))
    words = listed or ["dense"] * min(first, layers) + ["sparse"] * (layers - first)
    return [dense if word == "dense" else sparse for word in words]
