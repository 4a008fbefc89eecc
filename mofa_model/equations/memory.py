"""Device memory of one rank: what stays, what comes and goes, and what recomputation takes away.

    M_peak = M_static + max_i M_dyn(i) + M_0, Eq. (6)
    M_static   weights, gradients and optimizer states, as sharded as the ZeRO level says
               Eq. (4), (25), (27)
    M_dyn(i)   activations of the micro-batches in flight on stage i, less what is recomputed
               Eq. (5), (29), (31)

What one layer keeps for its backward pass, per micro-batch and device, are the stored bytes of
Table 2. What is kept, and who shares it, each block says itself (`mofa_model/blocks/`): `tokens`
are those of one micro-batch on one context-parallel rank, `width` is bytes per stored element, and
`ranks` share a term. The sum for a plain layer with unfused attention and dropout is
sbh (10 + 24/t + 5as/(ht)) of Korthikanti et al. 2022; for LLaMA3-405B 32 sbh/t, Table 2.

Optimizer states, weights and activations may be in host memory.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from mofa_model.units import Bytes, BytesPerSecond, Count, Ratio, Seconds

MOMENTS = 2.0
"""Moments of a parameter that AdamW keeps. [1]"""


def shard_ranks(data: Count, shard: Count) -> Count:
    """Data-parallel ranks that share one copy; 0 asks for all, and a group is never larger than
    there are ranks. Source: hybrid sharded data parallelism. [1]

    >>> int(shard_ranks(64, 0)), int(shard_ranks(64, 8)), int(shard_ranks(4, 8))
    (64, 8, 4)
    """
    return np.where(np.asarray(shard) > 0, np.minimum(shard, data), data)


def expert_data_ranks(data: Count, tensor: Count, expert: Count, expert_tensor: Count) -> Count:
    """Ranks that hold the same experts: those of tp and of data parallelism, less those of ep and
    etp. Ours. [1]

    `data` counts context-parallel ranks as well; where experts spread wider than that, one rank is
    left.

    >>> float(expert_data_ranks(128, 8, 64, 1))
    16.0
    """
    return np.maximum(data * tensor / (expert * expert_tensor), 1.0)


def expert_shard(copies: Count, data: Count, shard: Count) -> Count:
    """Ranks that share one copy of an expert: as many shards of it as there are of the rest; 0 asks
    for all. Ours. [1]

    Source: Megatron-LM, several instances of the distributed optimizer: each has its part of the
    ranks that hold an expert.

    >>> [float(expert_shard(*case)) for case in ((16, 128, 64), (2, 4, 2), (2, 16, 0))]
    [8.0, 1.0, 2.0]
    """
    return np.where(
        np.asarray(shard) > 0, np.maximum(copies * np.minimum(shard, data) / data, 1.0), copies
    )


def state_bytes(width: Bytes, kept: Bytes, replaced: Bytes) -> Bytes:
    """Master weight and optimizer states of a parameter: `width`, which they take under AdamW, with
    `kept`, the states of this optimizer, in the place of AdamW's (`replaced`). Ours. [B]

    >>> state_bytes(12.0, 4.0, 8.0)
    8.0
    """
    return width - replaced + kept


def sharded_bytes(size: Bytes, ranks: Count) -> Bytes:
    """Bytes per parameter of a state that data-parallel ranks share, Eq. (25): beta_o / d. [B]

    >>> sharded_bytes(16.0, 32)
    0.5
    """
    return size / ranks


def gathered_memory(layer_bytes: Count, weight: Bytes, gradient: Bytes) -> Bytes:
    """Buffers of fully sharded data parallelism: the layer at work and the next one gathered, and a
    full gradient. Ours. [B]

    >>> gathered_memory(2e8, 2.0, 4.0)
    1600000000.0
    """
    return layer_bytes * (2.0 * weight + gradient)


def unpacked_matrix(weights: Count, width: Bytes) -> Bytes:
    """A frozen matrix of a few bits in the width of products, for the time of one. Ours. [B]

    >>> unpacked_matrix(8192 * 28672, 2.0)
    469762048.0
    """
    return width * weights


def tensor_buffer(
    tokens: Count, hidden: Count, tensor: Count, *, width: Bytes, copies: Count
) -> Bytes:
    """Full-size copies of a layer's input that tensor-parallel collectives write to; none at t = 1.
    Ours. [B]

    >>> float(tensor_buffer(4096, 2048, 8, width=2.0, copies=2.0))
    33554432.0
    """
    return np.where(np.asarray(tensor) > 1, copies * width * tokens * hidden, 0.0)


def product_workspace(plain: Bytes, grouped: Bytes, routed: Count) -> Bytes:
    """Workspaces of matrix products, and where `routed` is 1 those of the grouped ones of experts
    beside them. Ours. [B]

    Source: cuBLAS and Transformer Engine on Hopper, 32 MiB for each of two handles, for its own,
    and for four grouped streams.

    >>> product_workspace(3.0 * 2**25, 4.0 * 2**25, 1.0) / 2**20
    224.0
    """
    return plain + routed * grouped


def spare_gradients(dense: Count, expert: Count, width: Bytes) -> Bytes:
    """Empty gradients that fused accumulation hands on: one for every shape of matrices, so of one
    layer and one expert. Ours. [B]

    Source: Transformer Engine keeps one for each shape; four layers of LLaMA3-405B on two stages
    take 5.4 GiB more than without.

    >>> spare_gradients(3.19e9, 0.0, 2.0)
    6380000000.0
    """
    return width * (dense + expert)


def repeated_parameters(whole: Count, tensor: Count) -> Count:
    """What each tensor-parallel rank holds above its share of matrices that all of them hold:
    routers, latents. Ours. [1]

    >>> repeated_parameters(2.2e6, 2)
    1100000.0
    """
    return whole * (1.0 - 1.0 / tensor)


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


LOSS_CHUNKS: Final = 8.0
"""Chunks of tokens of a loss in chunks. Source: torchtune, CEWithChunkedOutputLoss. [1]"""


def chunked_loss(logits: Bytes, narrow: Ratio) -> Bytes:
    """Logits where the loss goes over chunks of tokens: all once in the width of activations, and
    two copies of one chunk. Source: torchtune. [B]

    `logits` is one copy of all, and `narrow` is the width of activations over its own.

    >>> chunked_loss(8e9, 0.5)
    6000000000.0
    """
    return logits * (narrow + 2.0 / LOSS_CHUNKS)


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


def stored_activation(in_flight: Count, layers: Count, layer_bytes: Bytes) -> Bytes:
    """Activations of the micro-batches in flight on a stage, Eq. (5): M_dyn = n_inflight l sum A_j.
    [B]

    >>> stored_activation(8, 16, 1e8)
    12800000000.0
    """
    return in_flight * layers * layer_bytes


def excess(after: Bytes, earlier: Bytes) -> Bytes:
    """What a tensor takes above another one that is gone when it comes: the backward pass of a
    layer above the loss, gathered weights of the update above activations. Ours. [B]

    >>> float(excess(5e9, 3e9)), float(excess(1e9, 3e9))
    (2000000000.0, 0.0)
    """
    return np.maximum(after - earlier, 0.0)


def gathered_inputs(in_flight: Count, layers: Count, input_bytes: Bytes) -> Bytes:
    """Gathered inputs of layers that lie in the gaps between what waits: none of the last two in
    flight. Ours. [B]

    Source: reserved memory of nanotron's first rank, 2, 4, 8 and 16 stages: copies of a layer's
    input rise as 1 - 2/n.

    >>> float(gathered_inputs(8, 4, 1e8))
    2400000000.0
    """
    return np.maximum(in_flight - 2.0, 0.0) * layers * input_bytes


def captured_buffers(in_flight: Count, layers: Count, input_bytes: Bytes) -> Bytes:
    """Fixed inputs and outputs of the graphs of layers, one pair for each micro-batch in flight.
    Ours. [B]

    Source: Megatron Bridge on CUDA graphs: a few GB, more than 10 with a pipeline.

    >>> captured_buffers(8, 16, 33.5e6)
    8576000000.0
    """
    return in_flight * layers * (2.0 * input_bytes)


def recomputed_share(layers: Count, recomputed: Count) -> Ratio:
    """Share of a stage's layers under full recomputation; 0 layers asks for all. Ours. [1]

    >>> [float(recomputed_share(*case)) for case in ((16, 4), (16, 0), (2, 4))]
    [0.25, 1.0, 1.0]
    """
    within = np.minimum(recomputed, layers) / np.maximum(layers, 1.0)
    return np.where(np.asarray(recomputed) > 0, within, 1.0)


def full_recompute_activation(layer_bytes: Bytes, layer_input: Bytes, share: Ratio) -> Bytes:
    """Stored activations of a layer where a `share` of the layers keep their input only, Eq. (31).
    [B]

    The equation's other summand, the one layer that is being computed again, is
    `backward_activation`.

    >>> full_recompute_activation(1e8, 1e7, 1.0)
    10000000.0
    """
    return share * layer_input + (1.0 - share) * layer_bytes


def chunked_activation(experts: Bytes, chunks: Count) -> Bytes:
    """Expert activations that live at one time when experts run in chunks and are recomputed.
    Source: MemFine. [B]

    >>> chunked_activation(8e9, 4)
    2000000000.0
    """
    return experts / chunks


def crowded_activation(in_flight: Count, layers: Count, layer_bytes: Bytes) -> Bytes:
    """What stored layers hold above their mean where each has a load of its own, by the root of
    their number. Ours. [B]

    `layer_bytes` is what a layer holds above its mean at the tail. Loads of layers and
    micro-batches are taken as independent.

    >>> float(crowded_activation(8, 2, 1e8))
    400000000.0
    """
    return np.sqrt(in_flight * layers) * layer_bytes


def backward_activation(whole: Bytes, stored: Bytes, gradients: Bytes) -> Bytes:
    """What the backward pass of one layer brings back or makes new: recomputed activations and
    their gradients. Ours. [B]

    >>> backward_activation(1e8, 1e7, 4e7)
    130000000.0
    """
    return whole - stored + gradients


def device_optimizer_bytes(optimizer: Bytes, *, on_host: bool) -> Bytes:
    """Optimizer bytes per parameter on the device, Eq. (27): none where they live in the host. [B]

    >>> device_optimizer_bytes(16.0, on_host=True)
    0.0
    """
    return 0.0 * optimizer if on_host else optimizer


def weight_fetch_time(
    held: Count, shard: Count, width: Bytes, rounds: Count, link: BytesPerSecond
) -> Seconds:
    """Time in which a device fetches its share of the weights from the host, before each gather of
    a step. Ours. [s]

    Source: DeepSpeed, runtime/zero/partition_parameters.py: a share that lives on the host is
    copied to the device, then gathered.

    >>> weight_fetch_time(8e9, 8, 2.0, 4.0, 50e9)
    0.16
    """
    return rounds * (held / shard) * width / link


def host_activation(
    in_flight: Count, layers: Count, layer_bytes: Bytes, layer_input: Bytes
) -> Bytes:
    """Activations that a device parks in its host: n_inflight l (A - A_in), what Eq. (33) takes
    from it. [B]

    >>> host_activation(2, 16, 5.0e8, 1.0e8)
    12800000000.0
    """
    return in_flight * layers * (layer_bytes - layer_input)
