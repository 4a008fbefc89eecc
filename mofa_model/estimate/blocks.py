"""The halves of a layer on one device: attention, plain feed-forward, experts. Operators of Table 2, priced."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mofa_model.equations import collectives, compute, parameters
from mofa_model.spec import Cluster, Experts, LatentAttention, Workload
from mofa_model.strategy import Strategy
from mofa_model.units import Bytes, BytesPerSecond, Count, FlopPerSecond, Numeric, Ratio, Seconds

GATED_PASSES, PLAIN_PASSES = 3.5, 2.5
"""Reads and writes of an FFN-wide tensor by the activation function. Source: counted on fused kernels."""
REPLICATED_PASSES, SHARDED_PASSES = 10.0, 6.0
"""Reads and writes of a hidden-wide tensor by norms and residuals, and by what tensor parallelism shards."""
PERMUTE_PASSES = 4.0
"""Reads and writes of the routed tokens to sort, un-sort and weigh them."""


@dataclass(frozen=True, slots=True)
class Rates:
    """What the device reaches in this precision."""

    linear: FlopPerSecond
    head: FlopPerSecond
    attention: FlopPerSecond
    memory: BytesPerSecond


def achieved_rates(workload: Workload, cluster: Cluster) -> Rates:
    """Peaks of the data sheet times the constants of the calibration. [FLOP/s, B/s]"""
    device, constants = cluster.device, cluster.calibration.compute
    bf16 = device.peak("bf16")
    gemm = workload.training.precision.gemm
    low = bf16 if gemm == "bf16" else device.peak(gemm) * constants.low_precision_rate
    return Rates(
        linear=low * constants.gemm_efficiency,
        head=bf16 * constants.gemm_efficiency,
        attention=bf16 * constants.attention_efficiency,
        memory=device.memory_bandwidth * constants.memory_efficiency,
    )


def tokens_per_rank(workload: Workload, strategy: Strategy) -> Count:
    """Tokens of a micro-batch on one device. [1]"""
    return strategy.mbs * (workload.training.sequence / strategy.cp)


@dataclass(frozen=True, slots=True)
class HalfLayer:
    """Half a layer on one device: attention or feed-forward; forward times. [s]"""

    linear: Seconds
    core: Seconds
    elementwise: Seconds
    collectives: Count  # tensor-parallel all-gathers and reduce-scatters in the forward pass
    all_to_all: Seconds
    parameters: Count  # on one device
    up_projection: Seconds = 0.0  # the part of `linear` that MLA can recompute


def gemm(
    workload: Workload,
    cluster: Cluster,
    rate: FlopPerSecond,
    m: Count,
    n: Count,
    k: Count,
    penalty: Ratio = 1.0,
) -> Seconds:
    """One matrix product at this device's constants. [s]"""
    c = cluster.calibration.compute
    shape = c.gemm_shape * penalty
    return compute.gemm_time(
        m,
        n,
        k,
        rate=rate,
        half_m=c.gemm_half_m * shape,
        half_n=c.gemm_half_n * shape,
        half_k=c.gemm_half_k * shape,
        width=workload.training.precision.activation,
        bandwidth=cluster.device.memory_bandwidth * c.memory_efficiency,
    )


def attention_part(workload: Workload, cluster: Cluster, strategy: Strategy, rates: Rates) -> HalfLayer:
    """Projections and core of attention, with the norm before them."""
    model, c = workload.model, cluster.calibration.compute
    tokens, t, h = tokens_per_rank(workload, strategy), strategy.tp, model.hidden
    a = model.attention
    window: Numeric = 0.0
    share: Numeric = 1.0
    up: Seconds = 0.0

    def product(n: Count, k: Count) -> Seconds:
        return gemm(workload, cluster, rates.linear, tokens, n, k)

    if isinstance(a, LatentAttention):
        query = a.heads * (a.nope_dim + a.rope_dim) / t
        direct = product(query, h)
        ranked = product(np.maximum(a.query_rank, 1), h) + product(query, np.maximum(a.query_rank, 1))
        up = product(a.heads * (a.nope_dim + a.value_dim) / t, a.kv_rank)
        linear: Seconds = (
            np.where(np.asarray(a.query_rank) > 0, ranked, direct)
            + product(a.kv_rank + a.rope_dim, h)
            + up
            + product(h, a.heads * a.value_dim / t)
        )
        widths: Numeric = a.nope_dim + a.rope_dim + a.value_dim
    else:
        linear = product((a.heads + 2 * a.kv_heads) * a.head_dim / t, h) + product(
            h, a.heads * a.head_dim / t
        )
        widths, window, share = 2 * a.head_dim, a.window, a.windowed_share
    core = compute.attention_time(
        tokens,
        compute.attended_tokens(workload.training.sequence, c.attention_causal, window, share),
        a.heads / t,
        widths,
        rate=rates.attention,
        half=c.attention_half,
        score_traffic=c.score_traffic,
        bandwidth=rates.memory,
    )
    spread = t if strategy.sequence_parallel else 1.0
    width = workload.training.precision.activation
    traffic = tokens * h * width * (REPLICATED_PASSES / spread + SHARDED_PASSES / t) * c.elementwise_passes
    traffic = traffic + _casts(workload, cluster, tokens * h)
    return HalfLayer(
        linear=linear,
        core=core,
        elementwise=compute.elementwise_time(traffic, rates.memory),
        collectives=2.0,
        all_to_all=0.0,
        parameters=parameters.attention_parameters(model) / t,
        up_projection=up,
    )


def ffn_part(
    workload: Workload, cluster: Cluster, strategy: Strategy, rates: Rates, width: Count
) -> HalfLayer:
    """A feed-forward block that every token passes; nothing where its width is zero."""
    model, c = workload.model, cluster.calibration.compute
    tokens, t, h = tokens_per_rank(workload, strategy), strategy.tp, model.hidden
    gates, passes = (2.0, GATED_PASSES) if model.gated else (1.0, PLAIN_PASSES)
    f = np.maximum(width, 1.0) / t
    linear = gemm(workload, cluster, rates.linear, tokens, gates * f, h) + gemm(
        workload, cluster, rates.linear, tokens, h, f
    )
    traffic = tokens * f * workload.training.precision.activation * passes * c.elementwise_passes
    traffic = traffic + _casts(workload, cluster, tokens * (h + f))
    there = np.asarray(width) > 0
    return HalfLayer(
        linear=np.where(there, linear, 0.0),
        core=0.0,
        elementwise=np.where(there, compute.elementwise_time(traffic, rates.memory), 0.0),
        collectives=np.where(there, 2.0, 0.0),
        all_to_all=0.0,
        parameters=(gates + 1.0) * h * width / t,
    )


def expert_part(
    workload: Workload, cluster: Cluster, strategy: Strategy, rates: Rates, e: Experts
) -> HalfLayer:
    """Routed experts beside the shared ones; the fullest rank decides, by `imbalance`."""
    model, c, s = workload.model, cluster.calibration.compute, strategy
    shared = ffn_part(workload, cluster, s, rates, e.shared_width)
    gates = 2.0 if model.gated else 1.0
    h, width = model.hidden, workload.training.precision.activation
    sent = tokens_per_rank(workload, s) / s.tp  # tokens that this rank sends away
    routed = sent * s.etp * e.top_k * e.imbalance  # and that it receives, with its expert-tensor group
    local = e.count / s.ep
    each, f = routed / local, e.width / s.etp
    per_expert = gemm(workload, cluster, rates.linear, each, gates * f, h, c.grouped_penalty) + gemm(
        workload, cluster, rates.linear, each, h, f, c.grouped_penalty
    )
    router = gemm(workload, cluster, rates.head, sent, e.count, h)
    traffic = routed * PERMUTE_PASSES * width * (h * c.permute_passes + f * c.elementwise_passes)
    traffic = traffic + _casts(workload, cluster, routed * (h + f))
    k = cluster.calibration.links
    up = cluster.scale_up.bandwidth * (k.scale_up_efficiency * k.all_to_all_efficiency)
    out = cluster.scale_out.bandwidth * (k.scale_out_efficiency * k.all_to_all_efficiency)
    exchange = collectives.all_to_all_time(
        sent * e.imbalance * h * (workload.training.precision.dispatch + width),
        s.ep,
        e.top_k,
        e.node_limit,
        domains=s.ep * s.etp / cluster.domain,
        up=up,
        out=out,
    )
    return HalfLayer(
        linear=shared.linear + per_expert * local + router,
        core=0.0,
        elementwise=shared.elementwise + compute.elementwise_time(traffic, rates.memory),
        collectives=shared.collectives,
        all_to_all=exchange,
        parameters=shared.parameters + h * e.count + local * parameters.expert_parameters(model) / s.etp,
    )


def _casts(workload: Workload, cluster: Cluster, elements: Count) -> Bytes:
    """Traffic of quantising GEMM inputs; nothing in bf16. [B]"""
    if workload.training.precision.gemm == "bf16":
        return 0.0
    return cluster.calibration.compute.cast_traffic * elements
