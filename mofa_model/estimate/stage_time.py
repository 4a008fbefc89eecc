"""Time of a pipeline stage per micro-batch: the longer of device work and host launches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import add, mul
from typing import Final

import numpy as np

from mofa_model.blocks import Layer, Rows
from mofa_model.checks import anything
from mofa_model.equations import collectives, compute, host, overlap, parameters, routing
from mofa_model.estimate.activation_memory import recomputed_share
from mofa_model.estimate.block_time import memory_rate, product_time, tokens_per_rank
from mofa_model.estimate.expert_load import expert_load, in_chunks_and_whole
from mofa_model.estimate.model_states import outputs
from mofa_model.estimate.terms import LayerTime
from mofa_model.placement import Stages
from mofa_model.records import dataclass, varied
from mofa_model.spec import Cluster, Workload
from mofa_model.spec.tuning import Task
from mofa_model.strategy import Graphs, Recompute, Strategy
from mofa_model.units import Count, Ratio, Seconds


@dataclass(frozen=True)
class StageTime:
    """Kinds of stages [K, ...], one micro-batch through all virtual stages of a device. [s]"""

    device: Seconds
    """Device work of a stage, forward and backward."""
    launch_time: Seconds
    """Host time of a stage."""
    total: Seconds
    """What a micro-batch takes."""
    slowest: Seconds
    """The largest total."""
    all_stages: Seconds
    """Totals added over all stages."""
    device_forward: Ratio
    """Forward work of the devices, without what the host adds, as a part of the total."""
    forward_share: Ratio
    """Forward part of the total."""
    weight_share: Ratio
    """Part of the total that computes weight gradients."""


@dataclass(frozen=True)
class FeatureEffects:
    """How features change a stage, beside the times of its layers. Where a search prices layouts
    with different features together, it has a column for each.
    """

    launches_left: Ratio
    """Share of launches that graphs leave. [1]"""
    relaunched: Ratio
    """Launches that recomputation makes again, over those of a forward pass. [1]"""
    overlapped: Ratio
    """1 where the exchange of experts is overlapped, else 0. [1]"""
    recomputed_layers: Ratio
    """Share of a stage's layers that are recomputed; of some layers by kinds of stages. [1]"""


def head_time(workload: Workload, cluster: Cluster, strategy: Strategy) -> Mapping[str, Seconds]:
    """Head and loss of a micro-batch, forward and backward, by part: products, traffic of logits,
    exposed collectives, and the sum of gradients. [s]
    """
    model, c, t = workload.model, cluster.calibration.compute, strategy.tp
    tokens, precision = tokens_per_rank(workload, strategy), workload.training.precision
    vocabulary, memory = outputs(workload) / t, memory_rate(cluster)
    size = tokens * model.hidden * precision.activation
    message = collectives.all_gather_time(cluster, size, t, 1.0)
    # A frozen head has no weight gradient: two products in place of three.
    frozen = workload.training.adapters is not None
    product = product_time(workload, cluster, Rows.SENT, tokens, vocabulary, model.hidden)
    added = 0.0 if frozen else vocabulary * model.hidden
    return {
        "linear": (2.0 if frozen else 3.0) * product,
        "logits": compute.elementwise_time(tokens * vocabulary * c.logit_traffic, memory),
        "tensor": 4.0 * message * cluster.calibration.overlap.tensor,
        "accumulate": added * (2.0 * precision.gradient + precision.activation) / memory,
    }


_FORWARD: Final = 1.0 / 3.0
"""Share of a layer's launches that its forward pass has. Ours. [1]"""


def forward_passes(workload: Workload) -> Ratio:
    """Forward passes of other models for each of the one that is trained, in its own. [1]"""
    model, training = workload.model, workload.training
    if training.task is Task.DPO:
        return 1.0
    if training.teacher is None:
        return 0.0
    own, other = (
        parameters.forward_flops_per_token(model_run, training.sequence, convention="causal")
        for model_run in (model, training.teacher)
    )
    return other / own


def _launches_left(cluster: Cluster, strategy: Strategy) -> Ratio:
    """Share of launches that graphs leave. [1]"""
    c = cluster.calibration.host
    return {Graphs.NONE: 1.0, Graphs.PARTIAL: c.graph_partial, Graphs.FULL: c.graph_full}[
        strategy.graphs
    ]


def feature_effects(cluster: Cluster, strategy: Strategy, stage_kinds: Stages) -> FeatureEffects:
    """How a strategy's features change its stages: launches, recomputed layers, overlap."""
    s = strategy
    return FeatureEffects(
        launches_left=_launches_left(cluster, s),
        relaunched={
            Recompute.NONE: 0.0,
            Recompute.SELECTIVE: host.relaunched(s.recompute_modules),
            Recompute.FULL: 1.0,
        }[s.recompute],
        overlapped=float(s.expert_overlap),
        recomputed_layers=1.0
        if s.recompute is not Recompute.FULL
        else recomputed_share(s, stage_kinds),
    )


def layer_launches(
    workload: Workload, cluster: Cluster, strategy: Strategy, effects: FeatureEffects
) -> list[Seconds]:
    """Host time of every kind of layer, forward and backward, for the degrees of a strategy. [s]"""
    c, s, launches_left = cluster.calibration.host, strategy, effects.launches_left
    adapters = workload.training.adapters
    share = host.graph_share(launches_left, effects.relaunched, c.recompute)

    overlapped = effects.overlapped * (np.asarray(s.ep) > 1)
    in_turn = host.overlap_launches(c.expert_overlap * overlapped, launches_left)

    def launches(kind: Layer) -> Seconds:
        extra = sum(block.launches for block in kind.blocks)
        time = host.launch_time(cluster, s.tp, routed=kind.routed)
        time = time * host.launches_with(extra, routed=kind.routed)
        if adapters is not None:
            time = time + c.adapter * parameters.adapted(kind, workload.model.hidden, adapters)
        return time * share * in_turn if kind.routed else time * share

    kinds = [launches(kind) for kind in workload.model.kinds]
    if anything(s.chunks > 1):
        # Launches of experts beside those of a plain layer. Recomputed modules count chunks
        # already.
        expert_launches = launches_left * np.maximum(0.0, c.layer_experts - c.layer)
        whole = np.where(np.equal(effects.relaunched, 1.0), 1.0, 0.0)
        for position, kind in enumerate(workload.model.kinds):
            for exchange in filter(None, (block.exchange() for block in kind.blocks)):
                chunks = expert_load(workload, s, exchange).chunks(s)
                added = routing.chunk_launch_time(expert_launches, chunks, whole, c.recompute)
                kinds[position] = kinds[position] + np.where(np.asarray(s.chunks) > 1, added, 0.0)
    return kinds


def stage_times(
    workload: Workload,
    cluster: Cluster,
    strategy: Strategy,
    stage_kinds: Stages,
    layer_times: Sequence[LayerTime],
    head: Seconds,
    effects: FeatureEffects | None = None,
) -> StageTime:
    """Time of every kind of stage, from the layers, embedding and head that it holds.

    `layer_times` has every kind of layer twice where not all layers of a stage run in chunks: the
    second time with whole experts. With `effects`, `strategy` states degrees and schedule alone.
    """
    s, c, model = strategy, cluster.calibration.host, workload.model
    effects = effects or feature_effects(cluster, s, stage_kinds)
    recomputed, launches = effects.recomputed_layers, layer_launches(workload, cluster, s, effects)
    if len(layer_times) > len(launches):
        launches += layer_launches(workload, cluster, varied(s, chunks=1), effects)
    head_launch = c.head * effects.launches_left
    modules, other_passes = model.prediction_modules, forward_passes(workload)
    runs_others = anything(other_passes)
    kinds, layer_counts = model.kinds, list[Count](stage_kinds.held)
    if len(layer_times) > len(kinds):
        kinds, layer_counts = 2 * kinds, in_chunks_and_whole(workload, s, stage_kinds, layer_counts)
    device: Seconds = 0.0
    forward: Seconds = 0.0
    weight: Seconds = 0.0
    launch: Seconds = 0.0
    for kind, n, layer, launched in zip(kinds, layer_counts, layer_times, launches, strict=True):
        if kind.routed:
            device = device + n * (layer.forward + layer.backward + recomputed * layer.recompute)
        else:
            device = device + (
                n * (layer.forward + layer.backward) + n * recomputed * layer.recompute
            )
        forward_time, launch_time = n * layer.forward, n * launched
        if runs_others:
            device = device + other_passes * forward_time
            forward_time, launch_time = (
                (1.0 + other_passes) * forward_time,
                (1.0 + _FORWARD * other_passes) * launch_time,
            )
        forward, launch = forward + forward_time, launch + launch_time
        weight = weight + n * layer.weight
    last = model.last
    tail = head + modules * (layer_times[last].forward + layer_times[last].backward + head)
    device = device + stage_kinds.head * (tail * (1.0 + other_passes / 3.0))
    forward = forward + stage_kinds.head * (tail / 3.0 * (1.0 + other_passes))
    weight = weight + stage_kinds.head * (tail / 3.0)
    launch = launch + stage_kinds.head * (head_launch + modules * (launches[last] + head_launch))

    total, crosses = overlap.smooth_max(device, launch, c.uneven), s.tp > cluster.gpus_per_node
    if anything(crosses):
        total = host.serialised(device, launch, total, np.where(crosses, c.serial, 0.0))
    total = np.where(stage_kinds.count > 0, total + c.micro_batch, 0.0)
    slowest = _slowest_pair(total, stage_kinds) if s.schedule.both_ends else np.max(total, axis=0)
    all_stages, busy, forward, weight = (
        reduce(add, map(mul, stage_kinds.count, part)) for part in (total, device, forward, weight)
    )
    shortest = host.shortest_pass((forward, busy - forward - weight, weight), all_stages)
    return StageTime(
        device=device,
        launch_time=launch,
        total=total,
        slowest=slowest,
        all_stages=all_stages,
        device_forward=forward / all_stages,
        forward_share=np.maximum(forward, shortest) / all_stages,
        weight_share=np.maximum(weight, shortest) / all_stages,
    )


def _slowest_pair(total: Seconds, stages: Stages) -> Seconds:
    """Slowest device where each holds stages i and p - 1 - i and does half of each for every
    micro-batch. [s]

    Leaves out: pairs inside the pipeline are taken as two of the slower kind.
    """
    ends = stages.embedding + stages.head
    outer = np.max(np.where(stages.embedding > 0, total, 0.0), axis=0)
    outer = 0.5 * (outer + np.max(np.where(stages.head > 0, total, 0.0), axis=0))
    slowest: Seconds = np.maximum(outer, np.max(np.where(ends > 0, 0.0, total), axis=0))
    return slowest
