"""Collectives and the optimizer update, once a step on the fullest stage."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mofa_model.checks import anything
from mofa_model.equations import collectives, compute, memory, optimizers, overlap
from mofa_model.estimate.block_time import memory_rate
from mofa_model.estimate.model_states import (
    HeldParameters,
    frozen_width,
    held_parameters,
    update_rule,
)
from mofa_model.placement import Stages
from mofa_model.records import dataclass
from mofa_model.spec import Cluster, Workload
from mofa_model.strategy import Placement, Sharding, Strategy
from mofa_model.units import BytesPerSecond, Count, Ratio, Seconds

TENSORS_PER_LAYER = 6.0
"""Parameter tensors of a layer that are reduced one by one: QKV, output, two or three of the FFN,
norms."""


@dataclass(frozen=True)
class GradientExchange:
    """What a step sends and updates beside the work of its micro-batches."""

    collective: Seconds
    """Gradient and parameter collectives, exposed or not. [s]"""
    per_micro_batch: bool | NDArray[np.bool_]
    """Whether every micro-batch sends gradients, not only the last one."""
    reach: Ratio
    """Share of the compute beside them in which the stack really hides them. [1]"""
    tail: Ratio
    """Share of the collectives that stays exposed, whatever runs beside them. [1]"""
    embedding: Seconds
    """All-reduce of a tied embedding between first and last stage. [s]"""
    optimizer: Seconds
    """The update, Eq. (26) or (28). [s]"""


def gradient_exchange(
    workload: Workload,
    cluster: Cluster,
    strategy: Strategy,
    stage_kinds: Stages,
    micro_batches: Count,
    device_parameters: HeldParameters | None = None,
) -> GradientExchange:
    """Collectives over data-parallel groups and the update, Eq. (13); `device_parameters` where
    they are known.
    """
    s = strategy
    parameters = device_parameters or held_parameters(workload, s, stage_kinds)
    dense = np.max(parameters.ends + parameters.dense, axis=0)
    experts = _fullest(parameters.experts)
    # Beside adapters all other parameters are frozen: they get no gradients.
    frozen = workload.training.adapters is not None
    trained = _fullest(parameters.dense_adapters) if frozen else dense
    trained_experts = _fullest(parameters.expert_adapters) if frozen else experts
    tensors = TENSORS_PER_LAYER * np.max(stage_kinds.layers, axis=0) + 2.0
    ranks, expert_ranks = s.data_ranks, s.expert_data_ranks
    collective = _collective_time(
        workload, cluster, s, dense, trained, tensors, ranks, s.tp, micro_batches
    )
    if workload.model.experts is not None:
        collective = collective + _collective_time(
            workload,
            cluster,
            s,
            experts,
            trained_experts,
            0.0,
            expert_ranks,
            s.ep * s.etp,
            micro_batches,
        )
    overlaps = cluster.calibration.overlap
    per_micro_batch = s.sharding in {Sharding.GRADIENTS, Sharding.WEIGHTS}
    step_reach = overlaps.data_replicated if s.sharding is Sharding.NONE else overlaps.data
    return GradientExchange(
        collective=collective,
        per_micro_batch=per_micro_batch,
        reach=overlaps.gather if per_micro_batch else step_reach,
        tail=overlaps.gather_tail if per_micro_batch else overlaps.data_tail,
        embedding=_tied_embedding_time(workload, cluster, s, ranks),
        optimizer=_update_time(
            workload, cluster, s, stage_kinds, trained, trained_experts, ranks, expert_ranks
        )
        + _cast_time(workload, cluster, trained + trained_experts),
    )


def _fullest(by_stage: Count) -> Count:
    return np.max(by_stage, axis=0) if np.ndim(by_stage) else by_stage


def exposed_time(
    strategy: Strategy, exchange: GradientExchange, slowest: Seconds, micro_batches: Count
) -> Seconds:
    """Part of the collectives that compute does not hide, Eq. (24). [s]

    They run beside all micro-batches where each sends gradients, else beside those that the
    schedule leaves.
    """
    s = strategy
    at_end = s.schedule.overlap_window(microbatches=micro_batches, stages=s.pp, virtual=s.vpp)
    window = slowest * np.where(exchange.per_micro_batch, micro_batches, at_end)
    reach = exchange.reach * float(s.data_overlap)
    return overlap.data_exposed(exchange.collective, window, reach, exchange.tail)


def _collective_time(
    workload: Workload,
    cluster: Cluster,
    s: Strategy,
    parameters: Count,
    trained: Count,
    tensors: Count,
    ranks: Count,
    stride: Count,
    micro_batches: Count,
) -> Seconds:
    """Gradient and parameter collectives of one group in a step. [s]"""
    p, links = workload.training.precision, cluster.calibration.links
    shard = np.where(np.asarray(s.shard) > 0, np.minimum(s.shard, ranks), ranks)
    bandwidth = inner_bandwidth = collectives.ring_bandwidth(cluster, ranks, stride)
    if anything(s.shard):
        inner_bandwidth = collectives.ring_bandwidth(cluster, shard, stride)
    ring, inner_ring = (ranks - 1.0) / ranks, (shard - 1.0) / shard
    gathered = parameters if s.sharding is Sharding.WEIGHTS else trained
    frozen_sharded = workload.training.adapters is not None and s.sharding is Sharding.WEIGHTS
    width = frozen_width(workload.training) if frozen_sharded else p.gather
    reduce, gather = trained * p.reduce, gathered * width
    alone = np.asarray(ranks) <= 1
    if s.sharding is Sharding.NONE:
        factor = 1.0 if cluster.in_network_reduction else 2.0
        time = (
            tensors * ranks * links.tensor_latency_replicated + factor * ring * reduce / bandwidth
        )
        return np.where(alone, 0.0, time)
    latency = tensors * shard * links.tensor_latency
    # Every gradient crosses the whole group once, and parameters come back within the shard group.
    per_micro_batch = s.sharding in {Sharding.GRADIENTS, Sharding.WEIGHTS}
    rounds = _gather_rounds(s, micro_batches) if per_micro_batch else 1.0
    scatter = rounds * inner_ring * reduce / inner_bandwidth
    across = np.where(shard < ranks, 2.0 * (ring - inner_ring) * reduce / bandwidth, 0.0)
    gathers = 2.0 * rounds if s.sharding is Sharding.WEIGHTS else 1.0
    regather = gathers * inner_ring * gather / inner_bandwidth
    fetch: Seconds = 0.0
    if s.host_weights and s.sharding is Sharding.WEIGHTS:
        fetch = memory.weight_fetch_time(parameters, shard, width, gathers, _host_link(cluster))
    return fetch + np.where(alone, 0.0, latency + scatter + across + regather)


def _gather_rounds(s: Strategy, micro_batches: Count) -> Count:
    """How often sharded gradients are reduced and weights gathered in a step. [1]

    Once a micro-batch. Interleaved stages run a chunk for p micro-batches in a row and do it once
    for all of them; the two stages of a V take turns.
    """
    if s.schedule.folded:
        return micro_batches
    return np.where(np.asarray(s.vpp) > 1, np.maximum(1.0, micro_batches / s.pp), micro_batches)


def _tied_embedding_time(
    workload: Workload, cluster: Cluster, s: Strategy, ranks: Count
) -> Seconds:
    model = workload.model
    if not model.embedding.tied or s.schedule.folded or workload.training.adapters is not None:
        return 0.0
    bandwidth = collectives.ring_bandwidth(cluster, s.pp, s.tp * ranks)
    size = model.embedding.vocabulary * model.hidden / s.tp * workload.training.precision.reduce
    return np.where(np.asarray(s.pp) > 1, size / bandwidth, 0.0)


def _update_time(
    workload: Workload,
    cluster: Cluster,
    s: Strategy,
    stages: Stages,
    trained: Count,
    trained_experts: Count,
    ranks: Count,
    expert_ranks: Count,
) -> Seconds:
    """Update of what this rank owns, on the device or in host memory. [s]"""
    c, p = cluster.calibration.compute, workload.training.precision
    sharded = s.sharding is not Sharding.NONE
    shard = np.where(np.asarray(s.shard) > 0, s.shard, ranks)
    shares = np.minimum(shard, ranks) if sharded else 1.0
    expert_shares = np.minimum(shard, expert_ranks) if sharded else 1.0
    if s.optimizer is Placement.HOST:
        rate = cluster.host.optimizer_rate / cluster.gpus_per_node
        weight = 0.0 if s.host_weights and s.sharding is Sharding.WEIGHTS else p.gather
        return compute.host_update_time(
            trained / shares + trained_experts / expert_shares,
            p.gradient,
            weight,
            _host_link(cluster),
            rate,
        )
    bandwidth = cluster.device.memory_bandwidth * c.optimizer_efficiency
    rule = update_rule(workload, s)
    traffic = compute.update_bytes(c.optimizer_traffic, rule.states, rule.replaced)
    time = compute.update_time(trained, shares, traffic, bandwidth) + compute.update_time(
        trained_experts, expert_shares, traffic, bandwidth
    )
    if rule.paged:  # at worst all of them come and go
        states = (trained / shares + trained_experts / expert_shares) * rule.states
        time = time + 2.0 * states / _host_link(cluster)
    if rule.iterations:
        time = time + _newton_schulz_time(workload, cluster, s, stages, shares, expert_shares)
    return time


def _cast_time(workload: Workload, cluster: Cluster, trained: Count) -> Seconds:
    """Weights of an FP8 or FP4 recipe, brought into their format once a step, along rows and along
    columns: half as much again as an input in one pass. [s]
    """
    if not workload.training.precision.quantised:
        return 0.0
    traffic = 1.5 * cluster.calibration.compute.cast_traffic * trained
    return compute.elementwise_time(traffic, memory_rate(cluster))


def _host_link(cluster: Cluster) -> BytesPerSecond:
    """Bandwidth from the host to one device. [B/s]"""
    return cluster.host.link.bandwidth * cluster.calibration.links.host_link_efficiency


def _newton_schulz_time(
    workload: Workload,
    cluster: Cluster,
    s: Strategy,
    stages: Stages,
    shares: Count,
    expert_shares: Count,
) -> Seconds:
    """Newton-Schulz iterations of Muon, and gathering each matrix on the rank that iterates on it.
    [s]

    Shards are gathered over their ranks, slices of tensor parallelism over theirs and back.
    """
    model, rule, adapters = workload.model, update_rule(workload, s), workload.training.adapters
    rate = cluster.device.peak_rate("bf16") * cluster.calibration.compute.gemm_efficiency
    copies = s.expert_data_ranks
    local_experts = 1.0 if model.experts is None else model.experts.count / s.ep
    groups = (
        (False, shares, s.data_ranks, s.tp, s.tp, 1.0),
        (True, expert_shares, copies, s.ep * s.etp, s.etp, local_experts),
    )
    time: Seconds = 0.0
    for routed, sharers, ranks, stride, slices, experts in groups:
        parameters: Count = 0.0
        flops: Count = 0.0
        for layer, layers in zip(model.kinds, stages.held, strict=True):
            for size, side in optimizers.matrices(layer, model.hidden, adapters, routed=routed):
                sliced = layers * (experts * size / slices)
                parameters = parameters + sliced
                flops = flops + optimizers.newton_schulz_flops(sliced, side, rule.iterations)
        if anything(parameters):
            parameters, flops = np.max(parameters, axis=0), np.max(flops, axis=0)
            sharing = collectives.ring_bandwidth(cluster, np.minimum(sharers, ranks), stride)
            across = collectives.ring_bandwidth(cluster, slices, 1.0)
            gather = rule.gather * parameters * (sharers - 1.0) / sharers / sharing
            own = parameters / sharers
            gather = gather + 2.0 * rule.gather * own * (slices - 1.0) / slices / across
            time = time + flops / sharers / rate + gather
    return time
