"""The whole step: pipeline, exposed collectives, optimizer, overheads, Eq. (14), with memory beside it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mofa_model.equations import collectives, compute, documents, parameters
from mofa_model.equations.pipeline import bubble_time
from mofa_model.estimate.blocks import tokens_per_rank
from mofa_model.estimate.exchange import ExchangeTime, exchange_time
from mofa_model.estimate.footprint import Footprint, footprint
from mofa_model.estimate.layer import LayerTime, layer_times
from mofa_model.estimate.stage import HeadTime, StageTime, head_time, stage_times
from mofa_model.placement import Stages, axes_of, stages_of
from mofa_model.schedules import Flow
from mofa_model.spec import Cluster, Workload
from mofa_model.strategy import Strategy
from mofa_model.units import Count, Flop, Numeric, Ratio, Seconds


@dataclass(frozen=True, slots=True)
class StepTime:
    """Parts of an optimizer step that add up to it. [s]"""

    stages: Seconds
    """The slowest stage's work over all micro-batches."""
    bubble: Seconds
    """Waiting while the pipeline fills and drains, and for slower stages."""
    hops: Seconds
    """Exposed pipeline hops."""
    data: Seconds
    """Exposed gradient and parameter collectives."""
    embedding: Seconds
    """All-reduce of a tied embedding."""
    optimizer: Seconds
    """The update."""
    overhead: Seconds
    """Host time per step."""
    straggler: Seconds
    """Waiting for the slowest of many nodes."""

    @property
    def total(self) -> Seconds:
        """The step, Eq. (14). [s]"""
        return (
            self.stages
            + self.bubble
            + self.hops
            + self.data
            + self.embedding
            + self.optimizer
            + self.overhead
            + self.straggler
        )


@dataclass(frozen=True, slots=True)
class Estimate:
    """Everything that the model says of a layout; arrays where the strategy is a family."""

    micro_batches: Count
    """Micro-batches of a step on one pipeline."""
    stages: Stages
    """What lies where."""
    layers: tuple[LayerTime, ...]
    """One layer of each kind."""
    head: HeadTime
    """Head and loss."""
    stage: StageTime
    """Stages, one micro-batch."""
    exchange: ExchangeTime
    """Once a step."""
    step: StepTime
    """The step, in parts."""
    memory: Footprint
    """Device and host memory."""

    @property
    def step_time(self) -> Seconds:
        """One optimizer step. [s]"""
        return self.step.total

    @property
    def layer_forward(self) -> Seconds:
        """Forward pass of one layer of the first kind, the longer of launches and device work. [s]"""
        return self.layers[0].forward

    @property
    def layer_backward(self) -> Seconds:
        """Backward pass of one layer of the first kind with what it recomputes. [s]"""
        return self.layers[0].backward + self.layers[0].recompute


def micro_batches(workload: Workload, strategy: Strategy) -> Count:
    """Micro-batches that each pipeline runs in a step: m = B / (d b). [1]"""
    return workload.training.global_batch / strategy.global_micro_batch


def estimate(workload: Workload, cluster: Cluster, strategy: Strategy) -> Estimate:
    """Step time and memory of one layout, or of every layout of a family at once, Eq. (16)."""
    s = strategy
    m = micro_batches(workload, s)
    axes = axes_of(workload, cluster, s)
    stages = stages_of(workload.model, s, cluster.calibration.placement, axes)
    layers = layer_times(workload, cluster, s)
    head = head_time(workload, cluster, s)
    whole = layer_times(workload, cluster, replace(s, chunks=1)) if np.any(s.chunk_layers) else ()
    stage = stage_times(workload, cluster, s, stages, (*layers, *whole), head.total)
    pipeline, hops = pipeline_times(workload, cluster, s, stage, m)
    exchange = exchange_time(workload, cluster, s, stages, micro_batches=m, slowest=stage.slowest)
    step = step_terms(
        cluster,
        slowest=stage.slowest,
        micro_batches=m,
        pipeline=pipeline,
        hops=hops,
        data=exchange.exposed,
        embedding=exchange.embedding,
        optimizer=exchange.optimizer,
    )
    memory = footprint(workload, cluster, s, stages)
    return Estimate(
        micro_batches=m,
        stages=stages,
        layers=layers,
        head=head,
        stage=stage,
        exchange=exchange,
        step=step,
        memory=memory,
    )


def pipeline_times(
    workload: Workload, cluster: Cluster, strategy: Strategy, stage: StageTime, micro_batches: Count
) -> tuple[Seconds, Seconds]:
    """All micro-batches through the pipeline without hops, and what exposed hops add, Eqs. (9), (23). [s]"""
    flow = Flow(
        slowest=stage.slowest,
        total=stage.all_stages,
        microbatches=micro_batches,
        stages=strategy.pp,
        virtual=strategy.vpp,
        forward=stage.forward_share,
        weight=stage.weight_share,
    )
    pipeline, hop = strategy.schedule.time(flow), hop_time(workload, cluster, strategy)
    met = replace(flow, hop=hop, blocking=not strategy.pipeline_overlap)
    return pipeline, strategy.schedule.exposed_hops(pipeline, met)


def step_terms(
    cluster: Cluster,
    *,
    slowest: Seconds,
    micro_batches: Count,
    pipeline: Seconds,
    hops: Seconds,
    data: Seconds,
    embedding: Seconds,
    optimizer: Seconds,
) -> StepTime:
    """The parts of a step, with what the host and the slowest node add, Eq. (14)."""
    overhead = cluster.calibration.host.step
    nodes = np.maximum(cluster.gpus / 8.0, 1.0)
    subtotal = pipeline + hops + data + embedding + optimizer + overhead
    return StepTime(
        stages=micro_batches * slowest,
        bubble=bubble_time(pipeline, slowest=slowest, microbatches=micro_batches),
        hops=hops,
        data=data,
        embedding=embedding,
        optimizer=optimizer,
        overhead=overhead,
        straggler=subtotal * (cluster.calibration.overlap.straggler * np.log2(nodes)),
    )


def hop_time(workload: Workload, cluster: Cluster, s: Strategy) -> Seconds:
    """One activation from a stage to the next. [s]"""
    links, precision = cluster.calibration.links, workload.training.precision
    whole = tokens_per_rank(workload, s) * workload.model.hidden * precision.activation
    divided = 1.0 if s.sequence_parallel else links.point_shared
    size = whole * (1.0 - divided + divided / s.tp)
    inside = s.gpus <= cluster.domain
    bandwidth = (
        np.where(inside, cluster.scale_up.bandwidth, cluster.scale_out.bandwidth)
        * links.point_efficiency
    )
    return collectives.point_to_point_time(size, bandwidth, links.point_latency)


def tokens_per_second(workload: Workload, step: Seconds) -> Numeric:
    """Tokens of the whole job in a second. [1/s]"""
    return workload.training.global_batch * workload.training.sequence / step


def utilisation(workload: Workload, cluster: Cluster, step: Seconds) -> Ratio:
    """Model FLOPs utilisation with full attention counted, Eq. (15): of the peak of the recipe's matrix products. [1]"""
    peak = cluster.device.peak(workload.training.precision.gemm)
    return compute.model_flops_utilisation(_flops(workload, "full"), step, cluster.gpus, peak)


def least_step(workload: Workload, cluster: Cluster) -> Seconds:
    """Step time that no run can beat: the model's own FLOPs under a causal mask, at the peak of all devices. [s]"""
    peak = cluster.device.peak(workload.training.precision.gemm)
    return _flops(workload, "causal") / (cluster.gpus * peak)


def _flops(workload: Workload, convention: str) -> Flop:
    """The model's own FLOPs of a step, attention counted by a convention. [FLOP]"""
    tokens = workload.training.global_batch * workload.training.sequence
    each = documents.over_documents(
        workload.training,
        lambda seen: parameters.training_flops_per_token(
            workload.model, seen, convention=convention
        ),
    )
    if np.any(
        workload.training.adapter_rank
    ):  # no gradient of a weight: two FLOPs less for each that a token meets
        ends = workload.model.embedding.vocabulary * workload.model.hidden
        each = each - 2.0 * (parameters.active_parameters(workload.model) - ends)
    return tokens * each
