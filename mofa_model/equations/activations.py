"""Activations that one layer keeps for its backward pass, per micro-batch and device: the stored
bytes of Table 2.

What is kept, and who shares it, each block says itself (`mofa_model/blocks/`): the residual stream
and its norms, latents, projections, scores, both sides of activation functions, sorted tokens of
experts.

`tokens` are those of one micro-batch on one context-parallel rank; `width` is bytes per stored
element. Where a term is shared, its function takes the number of `ranks` that share it. Sum of all
for a plain layer with unfused attention and dropout: sbh (10 + 24/t + 5as/(ht)) of Korthikanti et
al. 2022; for LLaMA3-405B 32 sbh/t, Table 2.
"""

from __future__ import annotations

from typing import Final

from mofa_model.units import Bytes, Count, Ratio


def kept_activation(tokens: Count, elements: Count, *, width: Bytes, ranks: Count) -> Bytes:
    """A stored tensor of so many elements a token, Table 2; of a layer's input, A_in of Eq. (31)
    and (33), 2 sbh. [B]

    >>> kept_activation(8192, 16384, width=2.0, ranks=8)
    33554432.0
    """
    return width * tokens * elements / ranks


def score_activation(
    tokens: Count, heads: Count, sequence: Count, *, statistic: Bytes, score: Bytes, ranks: Count
) -> Bytes:
    """Row statistics of fused attention, and `score` bytes per score where it is not fused, Table
    2: 4 abs^2. [B]

    Fused attention folds maximum and sum of a row into one fp32 number, `statistic`. An unfused
    core with dropout keeps 5 bytes per score: softmax, mask, and the product of both.

    >>> score_activation(2048, 64, 2048, statistic=4.0, score=5.0, ranks=8)
    167837696.0
    """
    return tokens * heads * (statistic + score * sequence) / ranks


def routed_tokens(
    tokens: Count, top_k: Count, imbalance: Ratio, *, tensor: Count, expert_tensor: Count
) -> Count:
    """Tokens that the fullest device runs through its experts. Ours. [1]

    Each of the `tensor` ranks routes its own share of the tokens to k experts; `expert_tensor`
    ranks that share an expert all see the tokens of all of them. How many devices the experts
    spread over does not change the mean.

    >>> routed_tokens(4096, 8, 1.25, tensor=1, expert_tensor=1)
    40960.0
    """
    return imbalance * tokens * top_k * expert_tensor / tensor


def head_activation(tokens: Count, hidden: Count, *, width: Bytes, ranks: Count) -> Bytes:
    """Input of the final norm and of the head. Ours. [B]

    >>> head_activation(8192, 16384, width=2.0, ranks=8)
    67108864.0
    """
    return 2.0 * width * tokens * hidden / ranks


def logit_memory(
    tokens: Count, vocabulary: Count, *, width: Bytes, copies: Count, ranks: Count
) -> Bytes:
    """Logits, their fp32 copies and their gradient at the loss, Table 2: 4 sbV. [B]

    >>> logit_memory(8192, 128256, width=4.0, copies=2.0, ranks=8)
    1050673152.0
    """
    return copies * width * tokens * vocabulary / ranks


CHUNKS: Final = 8.0
"""Chunks of tokens of a loss in chunks. Source: torchtune, CEWithChunkedOutputLoss. [1]"""


def chunked_loss(logits: Bytes, narrow: Ratio) -> Bytes:
    """Logits where the loss goes over chunks of tokens: all once in the width of activations, and two
    copies of one chunk. Source: torchtune. [B]

    `logits` is one copy of all, and `narrow` is the width of activations over its own.

    >>> chunked_loss(8e9, 0.5)
    6000000000.0
    """
    return logits * (narrow + 2.0 / CHUNKS)


def fused_loss(tokens: Count, hidden: Count, *, narrow: Bytes, wide: Bytes, ranks: Count) -> Bytes:
    """What a loss that is fused with its head holds: the gradient of its input, and the logits of a
    chunk. Source: Liger-Kernel, fused_linear_cross_entropy. [B]

    A chunk has as many logits as the input has elements.

    >>> fused_loss(16384, 4096, narrow=2.0, wide=4.0, ranks=1) / 2**20
    512.0
    """
    return tokens * hidden * (2.0 * narrow + wide) / ranks


def head_weight_memory(hidden: Count, vocabulary: Count, *, width: Bytes, ranks: Count) -> Bytes:
    """The head's weight gradient before it is accumulated, and its gathered weights where those are
    sharded. Ours. [B]

    >>> head_weight_memory(16384, 128256, width=2.0, ranks=8)
    525336576.0
    """
    return width * hidden * vocabulary / ranks
