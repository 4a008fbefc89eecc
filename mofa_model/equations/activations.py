"""Activations that one layer keeps for its backward pass, per micro-batch and device: the stored bytes of Table 2.

    residual stream      inputs of the two norms                          shared by tp under sequence parallelism
    norms                their outputs, inputs of QKV and of the FFN      shared by tp under sequence parallelism
    latents              MLA: the two latents before and after their norm shared by tp under sequence parallelism
    projections          Q, K, V and the attention output                 always shared by tp
    scores               row statistics, or every score without fusion    always shared by tp
    FFN                  up (and gate) output, activation output          always shared by tp
    experts              dispatched tokens; up, activation output        spread over ep; shared by etp

`tokens` are those of one micro-batch on one context-parallel rank; `width` is bytes per stored element. Where a term is
shared, its function takes the number of `ranks` that share it. Sum of all for a plain layer with unfused attention and
dropout: sbh (10 + 24/t + 5as/(ht)) of Korthikanti et al. 2022; for LLaMA3-405B 32 sbh/t, Table 2.
"""

from __future__ import annotations

from mofa_model.units import Bytes, Count, Ratio


def layer_input(tokens: Count, hidden: Count, *, width: Bytes, ranks: Count) -> Bytes:
    """Input of a layer, A_in of Eq. (31) and (33): 2 sbh. [B]

    >>> layer_input(8192, 16384, width=2.0, ranks=8)
    33554432.0
    """
    return width * tokens * hidden / ranks


def residual_activation(tokens: Count, hidden: Count, *, width: Bytes, ranks: Count) -> Bytes:
    """Inputs of the two norms of a layer, Table 2. [B]

    >>> residual_activation(8192, 16384, width=2.0, ranks=8)
    67108864.0
    """
    return 2.0 * width * tokens * hidden / ranks


def norm_activation(tokens: Count, hidden: Count, *, width: Bytes, ranks: Count) -> Bytes:
    """Outputs of the two norms: inputs of QKV and of the FFN, Table 2. [B]

    >>> norm_activation(8192, 16384, width=2.0, ranks=8)
    67108864.0
    """
    return 2.0 * width * tokens * hidden / ranks


def mask_activation(tokens: Count, hidden: Count, *, mask: Bytes, ranks: Count) -> Bytes:
    """Masks of the dropouts after attention and after the FFN. Source: Korthikanti et al. 2022, 2 sbh. [B]

    >>> mask_activation(2048, 6144, mask=1.0, ranks=1)
    25165824.0
    """
    return 2.0 * mask * tokens * hidden / ranks


def latent_activation(
    tokens: Count, query_rank: Count, kv_rank: Count, rope: Count, *, width: Bytes, ranks: Count
) -> Bytes:
    """Latents of MLA, before and after their norms, and the shared rotary key. Ours. [B]

    >>> latent_activation(4096, 1536, 512, 64, width=2.0, ranks=1)
    34078720.0
    """
    return width * tokens * (2.0 * (query_rank + kv_rank) + rope) / ranks


def projection_activation(
    tokens: Count, query: Count, key: Count, value: Count, *, width: Bytes, ranks: Count
) -> Bytes:
    """Queries, keys and values, Table 2: 2 sbh (1 + 2 k_v / a) for grouped-query attention. [B]

    `query`, `key` and `value` are the widths of all heads together.

    >>> projection_activation(8192, 16384, 2048, 2048, width=2.0, ranks=8)
    41943040.0
    """
    return width * tokens * (query + key + value) / ranks


def context_activation(tokens: Count, output: Count, *, width: Bytes, ranks: Count) -> Bytes:
    """Output of the attention core, input of its last projection, Table 2: 2 sbh. [B]

    >>> context_activation(8192, 16384, width=2.0, ranks=8)
    33554432.0
    """
    return width * tokens * output / ranks


def score_activation(
    tokens: Count, heads: Count, sequence: Count, *, statistic: Bytes, score: Bytes, ranks: Count
) -> Bytes:
    """Row statistics of fused attention, and `score` bytes per score where it is not fused, Table 2: 4 abs^2. [B]

    Fused attention folds maximum and sum of a row into one fp32 number, `statistic`. An unfused core with dropout keeps
    5 bytes per score: softmax, mask, and the product of both.

    >>> score_activation(2048, 64, 2048, statistic=4.0, score=5.0, ranks=8)
    167837696.0
    """
    return tokens * heads * (statistic + score * sequence) / ranks


def ffn_hidden_activation(tokens: Count, ffn: Count, inputs: Count, *, width: Bytes, ranks: Count) -> Bytes:
    """Output of the first matrices of the FFN, Table 2: 4 sbg gated (`inputs` = 2), 2 sbg plain (1). [B]

    >>> ffn_hidden_activation(8192, 53248, 2, width=2.0, ranks=8)
    218103808.0
    """
    return width * tokens * inputs * ffn / ranks


def ffn_output_activation(tokens: Count, ffn: Count, *, width: Bytes, ranks: Count) -> Bytes:
    """Output of SwiGLU or GELU, input of the down projection, Table 2: 2 sbg. [B]

    >>> ffn_output_activation(8192, 53248, width=2.0, ranks=8)
    109051904.0
    """
    return width * tokens * ffn / ranks


def router_activation(tokens: Count, experts: Count, *, width: Bytes, ranks: Count) -> Bytes:
    """Logits of the router, in fp32, Table 2: 4 sbE. [B]

    >>> router_activation(4096, 256, width=4.0, ranks=1)
    4194304.0
    """
    return width * tokens * experts / ranks


def routed_tokens(
    tokens: Count, top_k: Count, imbalance: Ratio, *, tensor: Count, expert_tensor: Count
) -> Count:
    """Tokens that the fullest device runs through its experts. Ours. [1]

    Each of the `tensor` ranks routes its own share of the tokens to k experts; `expert_tensor` ranks that share an
    expert all see the tokens of all of them. How many devices the experts spread over does not change the mean.

    >>> routed_tokens(4096, 8, 1.25, tensor=1, expert_tensor=1)
    40960.0
    """
    return imbalance * tokens * top_k * expert_tensor / tensor


def dispatch_activation(routed: Count, hidden: Count, *, width: Bytes) -> Bytes:
    """Tokens sorted by expert, as the experts take them. Ours. [B]

    What they hand back is not stored: the router's weights are applied inside the activation function.

    >>> dispatch_activation(40960, 7168, width=2.0)
    587202560.0
    """
    return width * routed * hidden


def head_activation(tokens: Count, hidden: Count, *, width: Bytes, ranks: Count) -> Bytes:
    """Input of the final norm and of the head. Ours. [B]

    >>> head_activation(8192, 16384, width=2.0, ranks=8)
    67108864.0
    """
    return 2.0 * width * tokens * hidden / ranks


def logit_memory(tokens: Count, vocabulary: Count, *, width: Bytes, copies: Count, ranks: Count) -> Bytes:
    """Logits, their fp32 copies and their gradient at the loss, Table 2: 4 sbV. [B]

    >>> logit_memory(8192, 128256, width=4.0, copies=2.0, ranks=8)
    1050673152.0
    """
    return copies * width * tokens * vocabulary / ranks


def head_weight_memory(hidden: Count, vocabulary: Count, *, width: Bytes, ranks: Count) -> Bytes:
    """The head's weight gradient before it is accumulated, and its gathered weights where those are sharded. Ours. [B]

    >>> head_weight_memory(16384, 128256, width=2.0, ranks=8)
    525336576.0
    """
    return width * hidden * vocabulary / ranks
