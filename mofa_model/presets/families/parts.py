"""Parts that many families share: what each means is said by the names of the fields that it
reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from mofa_model.blocks import (
    Block,
    Embedding,
    Experts,
    FeedForward,
    LatentAttention,
    Layer,
    SoftmaxAttention,
    SparseAttention,
)
from mofa_model.presets.families.fields import MOST_LAYERS, Fields
from mofa_model.spec import Run, Transformer

BARE, WEIGHTED, SHIFTED = 0, 1, 2
"""Parameters of a norm, each as wide as the stream: none, a weight, a weight and a bias."""


HIDDEN: Final = ("hidden_size", "n_embd", "d_model", "n_embed")
HEADS: Final = ("num_attention_heads", "n_head", "n_heads", "num_heads")


def called(f: Fields) -> str:
    """What a file calls its model."""
    return str(f.given.get("_name_or_path") or f.given.get("model_type"))[:200]


def hidden_of(f: Fields) -> int:
    """Width of the residual stream."""
    return f.number(*HIDDEN, most=2**20)


def layers_of(f: Fields) -> int:
    """Number of layers."""
    return f.number("num_hidden_layers", "n_layer", "n_layers", "num_layers", most=MOST_LAYERS)


def heads_of(f: Fields) -> int:
    """Query heads."""
    return f.number(*HEADS)


def network(
    f: Fields,
    layer_list: Iterable[Layer],
    *,
    tied: bool = False,
    final: int = WEIGHTED,
    positions: int = 0,
    head_bias: bool = False,
    modules: int = 0,
) -> Transformer:
    """A model of these layers; `tied` is what holds where the file does not say, `final` the
    parameters of the last norm.
    """
    ends = Embedding(
        vocabulary=f.number("vocab_size"),
        tied=f.flag("tie_word_embeddings", default=tied),
        positions=positions,
        norm_vectors=final,
        head_bias=head_bias,
    )
    runs = Run.of(list(layer_list))
    return Transformer(
        name=called(f), hidden=hidden_of(f), runs=runs, embedding=ends, prediction_modules=modules
    )


def alike(
    mixers: Sequence[Block],
    second: Block | Sequence[Block],
    *,
    norms: int = 2,
    vectors: int = WEIGHTED,
) -> list[Layer]:
    """Layers of a mixer and one more block: the same in all, or one for each."""
    seconds = [second] * len(mixers) if isinstance(second, Block) else second
    made: dict[tuple[int, int], Layer] = {}
    for pair in zip(mixers, seconds, strict=True):
        made.setdefault((id(pair[0]), id(pair[1])), Layer(pair, norms=norms, norm_vectors=vectors))
    return [
        made[id(mixer), id(other_block)] for mixer, other_block in zip(mixers, seconds, strict=True)
    ]


def attention(
    f: Fields,
    *,
    kv_heads: int | None = None,
    bias: bool = False,
    output_bias: bool | None = None,
    **more: Any,
) -> SoftmaxAttention:
    """Softmax attention; `output_bias` is as `bias` where it is not said."""
    hidden, heads = hidden_of(f), heads_of(f)
    names = ("head_dim", "attention_head_dim", "kv_channels")
    if f.value(*names) is None and hidden % heads:
        right = f"it must divide {f.name(*HIDDEN)} ({hidden})"
        raise f.bad(right, *HEADS)
    return SoftmaxAttention(
        heads=heads,
        kv_heads=f.number("num_key_value_heads", default=heads) if kv_heads is None else kv_heads,
        head_dim=f.number(*names, default=max(hidden // heads, 1)),
        bias=bias,
        output_bias=bias if output_bias is None else output_bias,
        **more,
    )


def windowed(
    f: Fields,
    block: SoftmaxAttention,
    where: Callable[[int], bool],
    *,
    word: str = "sliding_attention",
) -> list[Block]:
    """The attention of every layer: `where` says which have a window if the file does not list
    them.
    """
    layers = layers_of(f)
    size = f.number("sliding_window", "attention_chunk_size", default=0, least=0)
    listed = f.words("layer_types", layers, (word, "full_attention"))
    if not size:
        return [block] * layers
    narrow = replace(block, window=size)
    return [
        narrow if (where(layer) if listed is None else listed[layer] == word) else block
        for layer in range(layers)
    ]


def upper(f: Fields) -> Callable[[int], bool]:
    """Which layers have a window: those from `max_window_layers` on, if the file uses windows."""
    used = f.flag("use_sliding_window", default=False)
    first = f.number("max_window_layers", default=0, least=0)
    return lambda layer: used and layer >= first


def feed_forward(f: Fields, *names: str, **more: Any) -> FeedForward:
    """The dense part; where the file gives no width it is four times the stream's."""
    width = f.number(
        *(names or ("intermediate_size", "n_inner", "ffn_dim")), default=4 * hidden_of(f)
    )
    return FeedForward(width=width, **more)


def mixture(f: Fields, *, shared_width: int = 0, **more: Any) -> Experts:
    """The experts of a model file; a token may be limited to the experts of a few groups."""
    groups, top_groups = (
        f.number("n_group", "num_expert_group", default=1),
        f.number("topk_group", default=1),
    )
    limit = top_groups if top_groups < groups else 0
    return Experts(shared_width=shared_width or None, node_limit=limit, **more)


def latent(f: Fields, value_dim: int | None = None) -> LatentAttention:
    """Multi-head latent attention; over a few tokens alone where the file has an indexer."""
    f.skip("num_key_value_heads", "head_dim", "qk_head_dim")
    f.only("attention_bias", False)
    ranks: dict[str, Any] = {
        "heads": heads_of(f),
        "query_rank": f.number("q_lora_rank", default=0, least=0) or None,
        "kv_rank": f.number("kv_lora_rank"),
        "nope_dim": f.number("qk_nope_head_dim"),
        "rope_dim": f.number("qk_rope_head_dim", least=0),
        "value_dim": f.number("v_head_dim", default=value_dim),
    }
    if f.value("index_topk") is None:
        return LatentAttention(**ranks)
    return SparseAttention(
        index_heads=f.number("index_n_heads"),
        index_dim=f.number("index_head_dim"),
        top_k=f.number("index_topk"),
        **ranks,
    )


def leading(f: Fields, block: Block, sparse: Block) -> list[Block]:
    """Dense parts in the first layers, experts in all others; or as `mlp_layer_types` lists
    them.
    """
    layers = layers_of(f)
    f.only("moe_layer_freq", 1)
    first = f.number("first_k_dense_replace", default=0, least=0)
    listed = f.words("mlp_layer_types", layers, ("dense", "sparse"))
    words = listed or ["dense"] * min(first, layers) + ["sparse"] * (layers - first)
    return [block if word == "dense" else sparse for word in words]
