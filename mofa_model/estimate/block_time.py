"""Time of a block of a layer on one device: its matrix products, attention, traffic and messages.
Operators of Table 2.

A product or attention is priced by kernels measured on the device where there are any, else by the
laws in `equations.compute`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.blocks import Block, Core, Cut, Elementwise, Layer, Projection, Rows
from mofa_model.blocks.block import STREAM_PASSES
from mofa_model.equations import collectives, compute, parameters
from mofa_model.estimate.expert_load import all_to_all_time, expert_load
from mofa_model.placement import groups, row_of_each
from mofa_model.records import dataclass, varied
from mofa_model.spec import Cluster, Workload
from mofa_model.strategy import ContextMode, Strategy
from mofa_model.units import Bytes, BytesPerSecond, Count, FlopPerSecond, Seconds

MANY: Final = 256
"""Rows from which looking for equal rows costs less than pricing them all. Ours, measured."""
PRICED_BY: Final = ("tp", "cp", "ep", "etp", "mbs", "chunks", "recompute_layers")
"""Degrees on which the work of one device on a layer or on the head depends. A new one that changes
it stands here too."""
DistinctRows = tuple[Strategy, NDArray[np.int64] | None]
"""Layouts of a family that differ in `PRICED_BY`, and for each layout of the family the index of
the one that it equals there; None where all are kept."""


@dataclass(frozen=True)
class BlockTime:
    """One block, one micro-batch, forward. [s]"""

    linear: Seconds
    core_seconds: Seconds
    """Work of tokens on each other: attention or a recurrence."""
    elementwise: Seconds
    gathers: Count
    """Tensor-parallel all-gathers and reduce-scatters."""
    context_seconds: Seconds
    """Messages of context parallelism."""
    all_to_all: Seconds
    routed: Seconds
    """Share of `linear` and `elementwise` that tokens spend at experts."""
    parameters: Count
    """Parameters on the device, times how often a micro-batch adds up their gradients."""
    recomputed_seconds: Mapping[str, Seconds]
    """Products that a recomputed module runs again, beyond the shares that the block states."""


def tokens_per_rank(workload: Workload, strategy: Strategy) -> Count:
    """Tokens of a micro-batch on one device. [1]"""
    length = workload.training.length(strategy.mbs)
    return strategy.mbs * (length / strategy.cp)


def tokens_held(workload: Workload, strategy: Strategy) -> Count:
    """Tokens of the longest micro-batch on one device. [1]"""
    return strategy.mbs * (workload.training.longest / strategy.cp)


def block_tokens(strategy: Strategy, block: Block, tokens: Count) -> Count:
    """Tokens that a block sees of those of a layer. An image encoder has tokens of its own. [1]"""
    if block.own_tokens is None:
        return tokens
    return strategy.mbs * (block.own_tokens / strategy.cp)


def product_rate(workload: Workload, cluster: Cluster, rows: Rows) -> FlopPerSecond:
    """Rate of large matrix products, Eqs. (1), (17). The head and routers run in bf16 in FP8 and
    FP4 recipes. [FLOP/s]
    """
    device, c, precision = cluster.device, cluster.calibration.compute, workload.training.precision
    if not precision.quantised:
        return device.peak_rate(precision.gemm) * c.gemm_efficiency
    if rows is Rows.SENT:
        return device.peak_rate("bf16") * c.gemm_efficiency
    return device.peak_rate(precision.gemm) * c.low_precision_rate * c.gemm_efficiency


def attention_rate(workload: Workload, cluster: Cluster) -> FlopPerSecond:
    """Rate of fused attention on large shapes, Eqs. (1), (17); never FP8 or FP4. [FLOP/s]"""
    precision = workload.training.precision
    peak = cluster.device.peak_rate("bf16" if precision.quantised else precision.gemm)
    return peak * cluster.calibration.compute.attention_efficiency


def memory_rate(cluster: Cluster) -> BytesPerSecond:
    """Memory bandwidth that elementwise kernels reach, Eqs. (1), (17). [B/s]"""
    return cluster.device.memory_bandwidth * cluster.calibration.compute.memory_efficiency


def distinct_rows(workload: Workload, cluster: Cluster, strategy: Strategy) -> DistinctRows:
    """Rows of a family for which the work of one device is priced: of many with equal `PRICED_BY`,
    one.

    A price may read no other field that has a value for each layout: numpy would say that the
    shapes differ.
    """
    columns = {name: value for name in PRICED_BY if np.ndim(value := getattr(strategy, name))}
    sizes = {np.shape(values) for values in columns.values()}
    if len(sizes) != 1 or min(sizes.pop()) < MANY or workload.axes or cluster.axes:
        return strategy, None
    position = groups(list(columns.values()))
    first = row_of_each(position)
    return varied(strategy, **{name: values[first] for name, values in columns.items()}), position


def block_times(workload: Workload, cluster: Cluster, strategy: Strategy) -> list[BlockTime]:
    """Times of all blocks of the model."""
    return [block_time(workload, cluster, strategy, block) for block in workload.model.blocks]


def stream_time(workload: Workload, cluster: Cluster, strategy: Strategy, layer: Layer) -> Seconds:
    """Norms and residuals of a layer, and work of its blocks on tensors as wide as the residual
    stream. [s]
    """
    tokens, h, t = tokens_per_rank(workload, strategy), workload.model.hidden, strategy.tp
    ranks = t if strategy.sequence_parallel else 1.0
    width = workload.training.precision.activation
    c = cluster.calibration.compute
    passes = c.elementwise_passes * c.stream_scale
    shared = [block.stream_passes for block in layer.blocks if block.stream_passes]
    traffic = tokens * h * width * (STREAM_PASSES * layer.normed / ranks + sum(shared) / t) * passes
    traffic = traffic + _cast_traffic(workload, cluster, tokens * (len(shared) * h))
    return compute.elementwise_time(traffic, memory_rate(cluster))


def block_time(workload: Workload, cluster: Cluster, strategy: Strategy, block: Block) -> BlockTime:
    """Time of a block, from the products, cores and traffic that it states."""
    s, h, layer_tokens = strategy, workload.model.hidden, tokens_per_rank(workload, strategy)
    tokens = block_tokens(s, block, layer_tokens)
    length = workload.training.length(s.mbs)
    sequence = length if block.own_tokens is None else block.own_tokens
    sent_tokens, exchange = tokens / s.tp, block.exchange()
    routed: Count = 0.0  # rows that this rank gets for its experts
    local_experts: Count = 0.0  # experts on this rank
    rows_per_expert: Count = 0.0  # rows of one expert in a chunk
    chunks: Count = 1.0
    if exchange is not None:
        load = expert_load(workload, s, exchange)
        # A rank receives the tokens of its whole expert-tensor group.
        routed = sent_tokens * s.etp * exchange.top_k * load.mean
        local_experts = exchange.count / s.ep
        chunks = load.chunks(s)
        rows_per_expert = routed / local_experts / chunks
    products = block.products(h)
    recomputed: dict[str, Seconds] = {}
    times: dict[Rows, Seconds] = {}
    for product in products:
        rows, ranks = {
            Rows.TOKENS: (tokens if product.seen is None else tokens * product.seen, s.tp),
            Rows.ROUTED: (rows_per_expert, s.etp),
            Rows.SENT: (sent_tokens, s.tp),
        }[product.rows]
        n = product.n / ranks if product.cut is Cut.OUTPUT else product.n
        k = product.k / ranks if product.cut is Cut.INPUT else product.k
        grouped = local_experts if product.rows is Rows.ROUTED else None
        time = product_time(workload, cluster, product.rows, rows, n, k, grouped)
        if product.rows is Rows.ROUTED:
            time = chunks * time
        if product.times is not None:
            time = time * product.times
        times[product.rows] = times[product.rows] + time if product.rows in times else time
        for module in product.recomputed_by:
            recomputed[module] = recomputed.get(module, 0.0) + time
    linear = times.get(Rows.TOKENS, 0.0)
    weights = _weights(products, Rows.TOKENS) / s.tp
    if exchange is not None:
        linear = linear + times[Rows.ROUTED] * local_experts + times[Rows.SENT]
        expert_weights = local_experts * _weights(products, Rows.ROUTED) / s.etp
        weights = weights + _weights(products, Rows.SENT) + chunks * expert_weights
    linear = linear + unpacking_time(workload, cluster, weights)
    tensors = block.elementwise(h)
    moves = [
        compute.elementwise_time(
            _traffic(workload, cluster, s, tensor, tokens, routed), memory_rate(cluster)
        )
        for tensor in tensors
    ]
    sorting = (
        time for tensor, time in zip(tensors, moves, strict=True) if tensor.sorted is not None
    )
    cores = (core_time(workload, cluster, s, core, sequence) for core in block.cores())
    gathers = block.gathers()
    return BlockTime(
        linear=linear,
        core_seconds=sum(cores, 0.0),
        elementwise=sum(moves, 0.0),
        gathers=gathers if block.own_tokens is None else gathers * (tokens / layer_tokens),
        context_seconds=context_time(workload, cluster, s, block),
        all_to_all=0.0
        if exchange is None
        else all_to_all_time(workload, cluster, s, exchange, sent_tokens * load.mean, chunks),
        routed=0.0 if exchange is None else times[Rows.ROUTED] * local_experts + sum(sorting, 0.0),
        parameters=weights,
        recomputed_seconds=recomputed,
    )


def unpacking_time(workload: Workload, cluster: Cluster, weights: Count) -> Seconds:
    """Time in which products bring frozen matrices of a few bits to their width, each pass
    anew. [s]
    """
    adapters = workload.training.adapters
    if adapters is None or adapters.base is None or not adapters.base.unpacked:
        return 0.0
    traffic = weights * (adapters.base.width + workload.training.precision.activation)
    return compute.elementwise_time(traffic, memory_rate(cluster))


def product_time(
    workload: Workload,
    cluster: Cluster,
    rows: Rows,
    m: Count,
    n: Count,
    k: Count,
    together: Count | None = None,
) -> Seconds:
    """One forward matrix product. The products of a rank's experts are launched `together`. [s]"""
    c, kernels = cluster.calibration.compute, cluster.calibration.kernels
    measured = None if kernels is None else kernels.product
    if measured is not None and measured.format == workload.training.precision.gemm:
        if rows is Rows.SENT:
            return measured.wide_seconds(m, n, k) * c.sustained
        return measured.seconds(m, n, k, together) * c.sustained
    shape = c.gemm_shape * c.grouped_penalty if rows is Rows.ROUTED else c.gemm_shape
    return compute.gemm_time(
        m,
        n,
        k,
        rate=product_rate(workload, cluster, rows),
        half_m=c.gemm_half_m * shape,
        half_n=c.gemm_half_n * shape,
        half_k=c.gemm_half_k * shape,
        width=workload.training.precision.activation,
        bandwidth=memory_rate(cluster),
    )


def core_time(
    workload: Workload, cluster: Cluster, s: Strategy, core: Core, sequence: Count
) -> Seconds:
    """Attention or a recurrence over sequences of such a length, one micro-batch, forward. [s]"""
    c, kernels = cluster.calibration.compute, cluster.calibration.kernels
    attended = core.fixed
    if attended is None:
        attended = parameters.over_documents(
            workload.training,
            lambda seen: compute.attended_tokens(seen, c.attention_causal, core.window),
            padded=sequence,
        )
    if core.scored and kernels is not None and kernels.attention is not None:
        # In a ring a rank does as much work for all heads and a part of the tokens.
        heads = core.heads / (s.tp * s.cp)
        time = kernels.attention.seconds(s.mbs, sequence, heads, core.width, attended, core.window)
        time = time * c.attention_pace
    else:
        time = compute.attention_time(
            s.mbs * (sequence / s.cp),
            attended,
            core.heads / s.tp,
            core.width,
            rate=attention_rate(workload, cluster),
            half=c.attention_half,
            score_traffic=c.score_traffic if core.scored else 0.0,
            bandwidth=memory_rate(cluster),
        )
    return time if core.times is None else time * core.times


def _weights(products: Iterable[Projection], rows: Rows) -> Count:
    return sum(product.weights for product in products if product.rows is rows)


def _traffic(
    workload: Workload,
    cluster: Cluster,
    s: Strategy,
    tensor: Elementwise,
    tokens: Count,
    routed: Count,
) -> Bytes:
    c, width = cluster.calibration.compute, workload.training.precision.activation
    if tensor.sorted is None:
        own = tensor.width / s.tp
        traffic = tokens * own * width * tensor.passes * c.elementwise_passes
        return traffic + _cast_traffic(workload, cluster, tokens * (tensor.cast + own))
    own = tensor.width / s.etp
    each = tensor.sorted * c.permute_passes + own * c.elementwise_passes
    traffic = routed * tensor.passes * width * each
    return traffic + _cast_traffic(workload, cluster, routed * (tensor.cast + own))


def _cast_traffic(workload: Workload, cluster: Cluster, elements: Count) -> Bytes:
    """Bytes moved to bring inputs of matrix products into FP8 or FP4; zero in bf16 and fp32. [B]"""
    if not workload.training.precision.quantised:
        return 0.0
    return cluster.calibration.compute.cast_traffic * elements


def context_time(workload: Workload, cluster: Cluster, s: Strategy, block: Block) -> Seconds:
    """Forward messages of context parallelism. [s]

    A ring passes on the keys and values of all other ranks, and an all-gather fetches them at once.
    All-to-all sends queries, keys, values and outputs once. USP (`hierarchical`) does all-to-all
    within inner groups, and passes their keys and values between groups.
    """
    messages = block.context_messages()
    if messages is None:
        return 0.0
    width = workload.training.precision.activation
    tokens = block_tokens(s, block, tokens_per_rank(workload, s))
    ring, beside_ring = messages.ring_elements / s.tp, messages.all_to_all_elements / s.tp
    size: Bytes = tokens * width * ring
    if s.context_mode is ContextMode.ALL_TO_ALL:
        bandwidth = collectives.ring_bandwidth(cluster, s.cp, s.tp)
        return tokens * width * (ring + beside_ring) * (s.cp - 1.0) / s.cp / bandwidth
    outer: Count = s.cp
    inner: Count = 1.0
    exchange: Seconds = 0.0
    if s.context_mode is ContextMode.HIERARCHICAL:
        inner = _inner_ranks(cluster, s, block)
        outer = s.cp / inner
        within = collectives.ring_bandwidth(cluster, inner, s.tp)
        exchange = tokens * width * (ring + beside_ring) * (inner - 1.0) / inner / within
    if messages.unsplit_elements is not None:
        size = size + tokens * width * messages.unsplit_elements
    if messages.state_elements is not None:
        # States are gathered in the width of logits, one for each sequence. Source: LASP-2 (Sun et
        # al. 2025).
        size = size + s.mbs * workload.training.precision.logit * (messages.state_elements / s.tp)
    return exchange + collectives.all_gather_time(cluster, size * outer, outer, s.tp * inner)


def _inner_ranks(cluster: Cluster, s: Strategy, block: Block) -> Count:
    """Ranks of an inner group of USP: those in one scale-up domain that divide the heads. Source:
    Fang and Zhao, 2024. [1]
    """
    fits = np.maximum(1, cluster.domain // np.asarray(s.tp)).astype(int)
    heads = np.maximum(1, np.asarray(block.all_to_all_heads() or s.cp) // np.asarray(s.tp)).astype(
        int
    )
    ranks: Count = np.gcd(np.gcd(np.asarray(s.cp).astype(int), fits), heads).astype(float)
    return ranks
