"""How many parameters a model has, and how many FLOPs a token costs: Table 2 of the paper, counted for whole models.

    layer = attention + feed-forward + two norms        dense layers have `ffn`, the others experts and a router
    model = layers + embedding + head (unless tied) + final norm

Biases are left out: they are below 0.1 % of every model here. So are learned positions: add `hidden` x the trained
context where a model has them. Multi-token prediction modules are counted apart, as published counts do.

Reported FLOPs follow a convention: `full` counts all s x s attention scores, `causal` the half that is needed; trainers that
count the head twice say so. Recomputation is never a model FLOP.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from mofa_model.errors import BadValue
from mofa_model.spec import LatentAttention, Transformer
from mofa_model.units import Count, Flop, Numeric

CONVENTIONS: Final = ("full", "causal")
"""How attention scores are counted when FLOPs are reported."""


def attention_parameters(model: Transformer) -> Count:
    """Projections of one attention block, Table 2 (h^2 (2 + 2 k_v/a) for MHA and its kin) and DeepSeek-V2 for MLA. [1]

    >>> from mofa_model.presets import model
    >>> attention_parameters(model("llama3-8b"))
    41943040
    """
    h, a = model.hidden, model.attention
    if not isinstance(a, LatentAttention):
        return h * a.head_dim * (2 * a.heads + 2 * a.kv_heads)
    wide = a.heads * (a.nope_dim + a.rope_dim)
    query = np.where(np.asarray(a.query_rank) > 0, a.query_rank * (h + wide), h * wide)
    latent = h * (a.kv_rank + a.rope_dim) + a.kv_rank * a.heads * (a.nope_dim + a.value_dim)
    return query + latent + a.heads * a.value_dim * h


def ffn_parameters(model: Transformer) -> Count:
    """Matrices of one dense feed-forward block, Table 2: 3 h g where gated, else 2 h g. [1]

    >>> from mofa_model.presets import model
    >>> ffn_parameters(model("llama3-8b"))
    176160768
    """
    return _matrices(model) * model.hidden * model.ffn


def expert_parameters(model: Transformer) -> Count:
    """Matrices of one routed expert, Table 2 with g_e for g; none in a dense model. [1]

    >>> from mofa_model.presets import model
    >>> expert_parameters(model("deepseek-v3"))
    44040192
    """
    return 0 if model.experts is None else _matrices(model) * model.hidden * model.experts.width


def shared_expert_parameters(model: Transformer) -> Count:
    """Matrices of the experts that every token of a layer passes, together. Source: DeepSeek-V2. [1]

    >>> from mofa_model.presets import model
    >>> shared_expert_parameters(model("deepseek-v3"))
    44040192
    """
    return 0 if model.experts is None else _matrices(model) * model.hidden * model.experts.shared_width


def router_parameters(model: Transformer) -> Count:
    """Weights of one layer's router, Table 2: h E; none in a dense model. [1]

    >>> from mofa_model.presets import model
    >>> router_parameters(model("mixtral-8x7b"))
    32768
    """
    return 0 if model.experts is None else model.hidden * model.experts.count


def dense_layer_parameters(model: Transformer) -> Count:
    """One layer with a plain feed-forward part, two norms included, Table 2. [1]

    >>> from mofa_model.presets import model
    >>> dense_layer_parameters(model("llama3-8b"))
    218112000
    """
    return attention_parameters(model) + ffn_parameters(model) + 2 * model.hidden


def expert_layer_parameters(model: Transformer, experts: Count) -> Count:
    """One layer with `experts` routed experts counted (all, or the top k), router and norms included, Table 2. [1]

    >>> from mofa_model.presets import model
    >>> int(expert_layer_parameters(model("mixtral-8x7b"), 8))
    1451270144
    """
    beside = attention_parameters(model) + shared_expert_parameters(model) + router_parameters(model)
    return beside + experts * expert_parameters(model) + 2 * model.hidden


def embedding_parameters(model: Transformer) -> Count:
    """Rows of the embedding times its width, V h. Source: Table 2. [1]

    >>> from mofa_model.presets import model
    >>> embedding_parameters(model("llama3-8b"))
    525336576
    """
    return model.vocabulary * model.hidden


def head_parameters(model: Transformer) -> Count:
    """The head's own matrix, V h; none where it is the embedding. Source: Table 2. [1]

    >>> from mofa_model.presets import model
    >>> head_parameters(model("gpt3-175b"))
    0
    """
    return 0 if model.tied_embeddings else embedding_parameters(model)


def total_parameters(model: Transformer) -> Count:
    """All parameters without prediction modules, Table 2 summed over the model. [1]

    >>> from mofa_model.presets import model
    >>> total_parameters(model("llama3-8b"))
    8030261248
    """
    return _counted(model, all_experts=True)


def active_parameters(model: Transformer) -> Count:
    """Parameters that one token meets: of the routed experts only the top k. Source: Table 2. [1]

    >>> from mofa_model.presets import model
    >>> int(active_parameters(model("deepseek-v3")))
    37552157696
    """
    return _counted(model, all_experts=False)


def prediction_parameters(model: Transformer) -> Count:
    """Parameters of the multi-token prediction modules beside embedding and head, which they share: one layer, the
    projection of two streams onto one, and its norms, each. Source: DeepSeek-V3. [1]

    >>> from mofa_model.presets import model
    >>> int(prediction_parameters(model("deepseek-v3")) / 1e6)
    11610
    """
    layer = (
        dense_layer_parameters(model)
        if model.experts is None
        else expert_layer_parameters(model, model.experts.count)
    )
    return model.prediction_modules * (layer + 2 * model.hidden * model.hidden + 3 * model.hidden)


def attention_flops_per_token(
    model: Transformer, sequence: Count, *, convention: str = "full", windowed: bool = False
) -> Flop:
    """Forward FLOPs of scores and values in one layer for one token, Table 2: 4 s a d, half of it where causal. [FLOP]

    In a windowed layer a token sees at most w others: s becomes min(s, w), and causal counting s/2 becomes w - w^2/2s.

    >>> from mofa_model.presets import model
    >>> attention_flops_per_token(model("llama3-8b"), 8192)
    134217728.0
    """
    if convention not in CONVENTIONS:
        raise BadValue("convention", convention, f"one of {', '.join(CONVENTIONS)}")
    a = model.attention
    if isinstance(a, LatentAttention):
        width = a.heads * (a.nope_dim + a.rope_dim + a.value_dim)
        seen = sequence
    else:
        width = a.heads * a.head_dim * 2
        seen = np.minimum(sequence, a.window) if windowed else sequence
    if convention == "causal":
        seen = seen - seen * seen / (2.0 * sequence)
    return 2.0 * seen * width


def forward_flops_per_token(
    model: Transformer,
    sequence: Count,
    *,
    convention: str = "full",
    head_counted_twice: bool = False,
    prediction: bool = False,
) -> Flop:
    """Forward FLOPs of the model for one token, Table 2: two per weight that it meets, attention, and the head. [FLOP]

    `prediction` adds the multi-token prediction modules.

    >>> from mofa_model.presets import model
    >>> round(float(forward_flops_per_token(model("llama3-8b"), 8192)) / 1e9, 3)
    19.304
    """
    dense = attention_parameters(model) + ffn_parameters(model)
    modules = model.prediction_modules if prediction else 0
    last = dense if model.experts is None else _met(model)
    weights = _dense_layers(model) * dense + (model.layers - _dense_layers(model)) * last
    weights = weights + modules * (last + 2 * model.hidden * model.hidden)
    heads = (2 if head_counted_twice else 1) + modules
    core = (model.layers + modules) * _mean_attention(model, sequence, convention)
    return 2.0 * weights + core + 2.0 * heads * model.hidden * model.vocabulary


def training_flops_per_token(
    model: Transformer,
    sequence: Count,
    *,
    convention: str = "full",
    head_counted_twice: bool = False,
    prediction: bool = False,
) -> Flop:
    """FLOPs of forward and backward for one token, Eq. (15): three times forward. [FLOP]

    >>> from mofa_model.presets import model
    >>> round(float(training_flops_per_token(model("gpt3-175b"), 2048)) / 1e12, 3)
    1.076
    """
    return 3.0 * forward_flops_per_token(
        model, sequence, convention=convention, head_counted_twice=head_counted_twice, prediction=prediction
    )


def _matrices(model: Transformer) -> int:
    return 3 if model.gated else 2


def _dense_layers(model: Transformer) -> Numeric:
    return model.layers if model.experts is None else model.experts.dense_layers


def _counted(model: Transformer, *, all_experts: bool) -> Count:
    outside = embedding_parameters(model) + head_parameters(model) + model.hidden
    layers = _dense_layers(model) * dense_layer_parameters(model)
    if model.experts is not None:
        experts = model.experts.count if all_experts else model.experts.top_k
        sparse = model.layers - model.experts.dense_layers
        layers = layers + sparse * expert_layer_parameters(model, experts)
    return layers + outside


def _met(model: Transformer) -> Count:
    """Weights of a layer with experts that one token is multiplied with. [1]"""
    top_k = 0 if model.experts is None else model.experts.top_k
    beside = attention_parameters(model) + shared_expert_parameters(model) + router_parameters(model)
    return beside + top_k * expert_parameters(model)


def _mean_attention(model: Transformer, sequence: Count, convention: str) -> Flop:
    """Attention FLOPs of a layer, windowed and other layers in their shares. [FLOP]"""
    whole = attention_flops_per_token(model, sequence, convention=convention)
    a = model.attention
    if isinstance(a, LatentAttention):
        return whole
    share = np.where(np.asarray(a.window) > 0, a.windowed_share, 0.0)
    narrow = attention_flops_per_token(model, sequence, convention=convention, windowed=True)
    return whole + share * (narrow - whole)
