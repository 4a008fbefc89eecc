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
    each: bool | NDArray[np.bool_]
    """Whether every micro-batch sends gradients."""
    reach: Ratio
    """Share of the window of compute beside them that the stack really uses. [1]"""
    tail: Ratio
    """Share of the collectives that stays exposed. [1]"""
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
    held = device_parameters or held_parameters(workload, s, stage_kinds)
    dense, experts = np.max(held.ends + held.dense, axis=0), _fullest(held.experts)
    # Beside adapters all other parameters are frozen: they get no gradients.
    frozen = workload.training.adapters is not None
    trained = _fullest(held.dense_adapters) if frozen else dense
    trained_experts = _fullest(held.expert_adapters) if frozen else experts
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
    k = cluster.calibration.overlap
    each = s.sharding in {Sharding.GRADIENTS, Sharding.WEIGHTS}
    at_the_end = k.data_replicated if s.sharding is Sharding.NONE else k.data
    return GradientExchange(
        collective=collective,
        each=each,
        reach=k.gather if each else at_the_end,
        tail=k.gather_tail if each else k.data_tail,
        embedding=_tied_embedding_time(workload, cluster, s, ranks),
        optimizer=_update_time(
            workload, cluster, s, stage_kinds, trained, trained_experts, ranks, expert_ranks
        )
        + _cast_time(workload, cluster, trained + trained_experts),
    )


def _fullest(parameters: Count) -> Count:
    return np.max(parameters, axis=0) if np.ndim(parameters) else parameters


def exposed_time(
    strategy: Strategy, exchange: GradientExchange, slowest: Seconds, micro_batches: Count
) -> Seconds:
    """Part of the collectives that compute does not hide, Eq. (24). [s]

    They run beside all micro-batches where each sends gradients, else beside those that the
    schedule leaves.
    """
    s = strategy
    left = s.schedule.overlap_window(microbatches=micro_batches, stages=s.pp, virtual=s.vpp)
    window = slowest * np.where(exchange.each, micro_batches, left)
    reach = exchange.reach * float(s.data_overlap)
    return overlap.data_exposed(exchange.collective, window, reach, exchange.tail)


def _collective_time(
    workload: Workload,
    cluster: Cluster,
    s: Strategy,
    held: Count,
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
    gathered = held if s.sharding is Sharding.WEIGHTS else trained
    frozen = workload.training.adapters is not None and s.sharding is Sharding.WEIGHTS
    width = frozen_width(workload.training) if frozen else p.gather
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
    each = s.sharding in {Sharding.GRADIENTS, Sharding.WEIGHTS}
    rounds = _rounds(s, micro_batches) if each else 1.0
    scatter = rounds * inner_ring * reduce / inner_bandwidth
    across = np.where(shard < ranks, 2.0 * (ring - inner_ring) * reduce / bandwidth, 0.0)
    gathers = 2.0 * rounds if s.sharding is Sharding.WEIGHTS else 1.0
    back = gathers * inner_ring * gather / inner_bandwidth
    fetched: Seconds = 0.0
    if s.host_weights and s.sharding is Sharding.WEIGHTS:
        fetched = memory.weight_fetch_time(held, shard, width, gathers, _host_link(cluster))
    return fetched + np.where(alone, 0.0, latency + scatter + across + back)


def _rounds(s: Strategy, micro_batches: Count) -> Count:
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
    experts: Count,
    ranks: Count,
    expert_ranks: Count,
) -> Seconds:
    """Update of what this rank owns, on the device or in host memory. [s]"""
    c, p = cluster.calibration.compute, workload.training.precision
    sharded = s.sharding is not Sharding.NONE
    wanted = np.where(np.asarray(s.shard) > 0, s.shard, ranks)
    own = np.minimum(wanted, ranks) if sharded else 1.0
    own_experts = np.minimum(wanted, expert_ranks) if sharded else 1.0
    if s.optimizer is Placement.HOST:
        rate = cluster.host.optimizer_rate / cluster.gpus_per_node
        back = 0.0 if s.host_weights and s.sharding is Sharding.WEIGHTS else p.gather
        return compute.host_update_time(
            trained / own + experts / own_experts, p.gradient, back, _host_link(cluster), rate
        )
    bandwidth = cluster.device.memory_bandwidth * c.optimizer_efficiency
    rule = update_rule(workload, s)
    moved = compute.update_bytes(c.optimizer_traffic, rule.states, rule.replaced)
    time = compute.update_time(trained, own, moved, bandwidth) + compute.update_time(
        experts, own_experts, moved, bandwidth
    )
    if rule.paged:  # at worst all of them come and go
        states = (trained / own + experts / own_experts) * rule.states
        time = time + 2.0 * states / _host_link(cluster)
    if rule.iterations:
        time = time + _newton_schulz_time(workload, cluster, s, stages, own, own_experts)
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
    own: Count,
    own_experts: Count,
) -> Seconds:
    """Newton-Schulz iterations of Muon, and gathering each matrix on the rank that iterates on it.
    [s]

    Shards are gathered over their ranks, slices of tensor parallelism over theirs and back.
    """
    model, rule, adapters = workload.model, update_rule(workload, s), workload.training.adapters
    rate = cluster.device.peak_rate("bf16") * cluster.calibration.compute.gemm_efficiency
    copies = s.expert_data_ranks
    each = 1.0 if model.experts is None else model.experts.count / s.ep
    groups = (
        (False, own, s.data_ranks, s.tp, s.tp, 1.0),
        (True, own_experts, copies, s.ep * s.etp, s.etp, each),
    )
    time: Seconds = 0.0
    for routed, shared, ranks, stride, slices, times in groups:
        held: Count = 0.0
        flops: Count = 0.0
        for layer, layers in zip(model.kinds, stages.held, strict=True):
            for size, side in optimizers.matrices(layer, model.hidden, adapters, routed=routed):
                some = layers * (times * size / slices)
                held = held + some
                flops = flops + optimizers.newton_schulz_flops(some, side, rule.iterations)
        if anything(held):
            held, flops = np.max(held, axis=0), np.max(flops, axis=0)
            sharing = collectives.ring_bandwidth(cluster, np.minimum(shared, ranks), stride)
            across = collectives.ring_bandwidth(cluster, slices, 1.0)
            sent = rule.gather * held * (shared - 1.0) / shared / sharing
            own_part = held / shared
            sent = sent + 2.0 * rule.gather * own_part * (slices - 1.0) / slices / across
            time = time + flops / shared / rate + sent
    return time
