"""A block of a layer on one device: its products, its work of tokens on each other, its traffic. Operators of Table 2, priced."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from mofa_model.blocks import Block, Cut, Elementwise, Layer, Projection, Rows
from mofa_model.blocks.layer import STREAM_PASSES
from mofa_model.equations import collectives, compute
from mofa_model.estimate.operators import Rates, achieved_rates, core_time, product_time
from mofa_model.estimate.routing import all_to_all, routed_load
from mofa_model.placement import axes_of, distinct, spread
from mofa_model.spec import Cluster, Workload
from mofa_model.strategy import ContextMode, Strategy
from mofa_model.units import Bytes, Count, Seconds

MANY: Final = 256
"""Rows from which it pays to look which are alike."""
PRICED_BY: Final = ("tp", "cp", "ep", "etp", "mbs", "chunks", "context_mode")
"""All of a strategy that a block's price depends on; an axis that changes it stands here too."""


def tokens_per_rank(workload: Workload, strategy: Strategy) -> Count:
    """Tokens of a micro-batch on one device. [1]"""
    return strategy.mbs * (workload.training.sequence / strategy.cp)


def block_tokens(workload: Workload, strategy: Strategy, block: Block) -> Count:
    """Tokens of a micro-batch that a block sees on one device: those of the layers, or its own. [1]"""
    if block.own_tokens is None:
        return tokens_per_rank(workload, strategy)
    return strategy.mbs * (block.own_tokens / strategy.cp)


@dataclass(frozen=True, slots=True)
class BlockTime:
    """A block on one device; forward times. [s]"""

    linear: Seconds
    core: Seconds
    elementwise: Seconds
    gathers: Count  # tensor-parallel all-gathers and reduce-scatters in the forward pass
    context: Seconds  # messages of context parallelism
    all_to_all: Seconds
    routed: Seconds  # of products and traffic what tokens at experts take
    parameters: Count  # on one device, as often as a micro-batch adds up their gradients
    again: Mapping[
        str, Seconds
    ]  # products that modules of recomputation run again, beyond what the block says


def block_times(workload: Workload, cluster: Cluster, strategy: Strategy) -> list[BlockTime]:
    """All blocks of the model; rows of a family that differ in nothing that a block depends on are priced once."""
    rates = achieved_rates(workload, cluster)
    every = {name: getattr(strategy, name) for name in PRICED_BY}
    mine = {name: value for name, value in every.items() if np.ndim(value)}
    sizes = {np.shape(value) for value in mine.values()}
    once, place = every, None
    if len(sizes) == 1 and min(sizes.pop()) >= MANY and not axes_of(workload, cluster):
        first, place = distinct(list(mine.values()))
        once = every | {name: value[first] for name, value in mine.items()}
    alone = Strategy(**once)
    found = [block_time(workload, cluster, alone, rates, block) for block in workload.model.blocks]
    return found if place is None else [spread(time, place) for time in found]


def stream_time(
    workload: Workload, cluster: Cluster, strategy: Strategy, rates: Rates, layer: Layer
) -> Seconds:
    """Norms and residuals of a layer, and what its blocks do to tensors as wide as the stream. [s]"""
    tokens, h, t = tokens_per_rank(workload, strategy), workload.model.hidden, strategy.tp
    spread = t if strategy.sequence_parallel else 1.0
    width, passes = (
        workload.training.precision.activation,
        cluster.calibration.compute.elementwise_passes,
    )
    shared = [block.stream_passes for block in layer.blocks if block.stream_passes]
    traffic = (
        tokens * h * width * (STREAM_PASSES * layer.normed / spread + sum(shared) / t) * passes
    )
    traffic = traffic + _casts(workload, cluster, tokens * (len(shared) * h))
    return compute.elementwise_time(traffic, rates.memory)


def block_time(
    workload: Workload, cluster: Cluster, strategy: Strategy, rates: Rates, block: Block
) -> BlockTime:
    """Any block on one device, from what it says of itself."""
    s, h, all_tokens = strategy, workload.model.hidden, tokens_per_rank(workload, strategy)
    tokens = block_tokens(workload, s, block)
    sequence = workload.training.sequence if block.own_tokens is None else block.own_tokens
    sent, exchange = tokens / s.tp, block.exchange()  # tokens that this rank sends away
    routed: Count = 0.0
    local: Count = 0.0
    each: Count = 0.0  # rows of an expert in a chunk
    chunks: Count = 1.0
    if exchange is not None:
        load = routed_load(workload, s, exchange)
        routed = (
            sent * s.etp * exchange.top_k * load.mean
        )  # and that it receives, with its expert-tensor group
        local = exchange.count / s.ep
        chunks = load.chunks(s)
        each = routed / local / chunks
    products = block.products(h)
    again: dict[str, Seconds] = {}
    linear: dict[Rows, Seconds] = {}
    for product in products:
        seen, ranks = {
            Rows.TOKENS: (tokens if product.seen is None else tokens * product.seen, s.tp),
            Rows.ROUTED: (each, s.etp),
            Rows.SENT: (sent, s.tp),
        }[product.rows]
        n = product.n / ranks if product.cut is Cut.OUTPUT else product.n
        k = product.k / ranks if product.cut is Cut.INPUT else product.k
        together = local if product.rows is Rows.ROUTED else None
        one = product_time(workload, cluster, rates, product.rows, seen, n, k, together)
        if product.rows is Rows.ROUTED:
            one = chunks * one
        if product.times is not None:
            one = one * product.times
        linear[product.rows] = linear[product.rows] + one if product.rows in linear else one
        for module in product.again:
            again[module] = again.get(module, 0.0) + one
    whole = linear.get(Rows.TOKENS, 0.0)
    held = _weights(products, Rows.TOKENS) / s.tp
    if exchange is not None:
        whole = whole + linear[Rows.ROUTED] * local + linear[Rows.SENT]
        inside = local * _weights(products, Rows.ROUTED) / s.etp
        held = held + _weights(products, Rows.SENT) + chunks * inside
    work = block.elementwise(h)
    moved = [
        compute.elementwise_time(_traffic(workload, cluster, s, one, tokens, routed), rates.memory)
        for one in work
    ]
    at_experts = sum(
        (time for one, time in zip(work, moved, strict=True) if one.sorted is not None), 0.0
    )
    return BlockTime(
        linear=whole,
        core=sum(
            (core_time(workload, cluster, s, rates, core, sequence) for core in block.cores()), 0.0
        ),
        elementwise=sum(moved, 0.0),
        gathers=block.gathers()
        if block.own_tokens is None
        else block.gathers() * (tokens / all_tokens),
        context=_context_message(workload, cluster, s, block),
        all_to_all=0.0
        if exchange is None
        else all_to_all(workload, cluster, s, exchange, sent * load.mean, chunks),
        routed=0.0 if exchange is None else linear[Rows.ROUTED] * local + at_experts,
        parameters=held,
        again=again,
    )


def _weights(products: Iterable[Projection], rows: Rows) -> Count:
    """Parameters of the matrices that some tokens see, each expert's once. [1]"""
    return sum(one.weights for one in products if one.rows is rows)


def _traffic(
    workload: Workload,
    cluster: Cluster,
    s: Strategy,
    one: Elementwise,
    tokens: Count,
    routed: Count,
) -> Bytes:
    """Bytes that work on a tensor moves. [B]"""
    c, width = cluster.calibration.compute, workload.training.precision.activation
    if one.sorted is None:
        own = one.width / s.tp
        traffic = tokens * own * width * one.passes * c.elementwise_passes
        return traffic + _casts(workload, cluster, tokens * (one.cast + own))
    own = one.width / s.etp
    traffic = (
        routed * one.passes * width * (one.sorted * c.permute_passes + own * c.elementwise_passes)
    )
    return traffic + _casts(workload, cluster, routed * (one.cast + own))


def _context_message(workload: Workload, cluster: Cluster, s: Strategy, block: Block) -> Seconds:
    """Time of the forward messages of context parallelism. [s]

    A ring passes the keys and values of c - 1 other ranks, an all-gather fetches them at once; all-to-all moves queries, keys,
    values and outputs once. USP does so within its inner group and passes a ring of what that holds between the groups.
    """
    sight = block.sight()
    if sight is None:
        return 0.0
    width, tokens = workload.training.precision.activation, block_tokens(workload, s, block)
    path = collectives.path_between(cluster, s.cp, s.tp)
    ring, turned = sight.ring / s.tp, sight.turned / s.tp
    size: Bytes = tokens * width * ring
    if s.context_mode is ContextMode.ALL_TO_ALL:
        return tokens * width * (ring + turned) * (s.cp - 1.0) / s.cp / path.bandwidth
    outer: Count = s.cp
    exchange: Seconds = 0.0
    if s.context_mode is ContextMode.HIERARCHICAL:
        inner = _inner_ranks(cluster, s, block)
        outer = s.cp / inner
        within = collectives.path_between(cluster, inner, s.tp)
        exchange = tokens * width * (ring + turned) * (inner - 1.0) / inner / within.bandwidth
        path = collectives.path_between(cluster, outer, s.tp * inner)
    if sight.shared is not None:
        size = size + tokens * width * sight.shared
    if sight.state is not None:
        # States are gathered in the width of logits, one for each sequence. Source: LASP-2 (Sun et al. 2025).
        size = size + s.mbs * workload.training.precision.logit * (sight.state / s.tp)
    return exchange + collectives.all_gather_time(size * outer, outer, path)


def _inner_ranks(cluster: Cluster, s: Strategy, block: Block) -> Count:
    """Ranks of an inner group of USP: as many as share a scale-up domain and divide the heads. Source: Fang and Zhao, 2024. [1]"""
    fits = np.maximum(1, cluster.domain // np.asarray(s.tp)).astype(int)
    heads = np.maximum(1, np.asarray(block.turned_heads() or s.cp) // np.asarray(s.tp)).astype(int)
    ranks: Count = np.gcd(np.gcd(np.asarray(s.cp).astype(int), fits), heads).astype(float)
    return ranks


def _casts(workload: Workload, cluster: Cluster, elements: Count) -> Bytes:
    """Traffic of quantising GEMM inputs; nothing in bf16 and fp32. [B]"""
    if not workload.training.precision.quantised:
        return 0.0
    return cluster.calibration.compute.cast_traffic * elements
