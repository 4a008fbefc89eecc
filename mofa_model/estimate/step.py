"""The estimate of a layout: the time of a step (pipeline, exposed collectives, optimizer,
overheads), Eq. (14), and the memory of each device and host, with the risk that a run does not fit
after all.

The terms of a step are the fields of `StepTime`. Each states its equation, its meaning in a table,
its name in a sentence, and the function that computes it; tables, JSON, reasons and search follow
from that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property, reduce
from operator import add
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.checks import anything, array_axes
from mofa_model.equations import collectives, compute, parameters, routing
from mofa_model.estimate.activation_memory import activation_memory
from mofa_model.estimate.block_time import DistinctRows, distinct_rows, tokens_per_rank
from mofa_model.estimate.expert_load import RISK, exchanges, expert_load
from mofa_model.estimate.gradient_exchange import GradientExchange, exposed_time, gradient_exchange
from mofa_model.estimate.layer_time import layer_times
from mofa_model.estimate.model_states import HeldParameters, held_parameters, model_states
from mofa_model.estimate.stage_time import StageTime, head_time, stage_times
from mofa_model.estimate.terms import Footprint, LayerTime, device_memory_limit, term, terms_of
from mofa_model.placement import Stages, spread, stages_of
from mofa_model.records import dataclass, varied
from mofa_model.schedules import Flow
from mofa_model.schedules.schedule import bubble_time
from mofa_model.spec import Cluster, Workload
from mofa_model.spec.transformer import with_imbalance
from mofa_model.strategy import Strategy
from mofa_model.units import Bytes, Count, Flop, Numeric, Ratio, Seconds

_PRECISION: Final = 1e-6
"""Relative precision to which the load that just fits is found. [1]"""


@dataclass(frozen=True, kw_only=True)
class StepInputs:
    """What the terms of a step are computed from; arrays where the strategy is a family."""

    workload: Workload
    cluster: Cluster
    strategy: Strategy
    """In a search its sharding and placement of the optimizer are the defaults: what follows from
    the real ones is in `exchange`."""
    micro_batches: Count
    slowest: Seconds
    """One micro-batch on the slowest stage. [s]"""
    pipeline: Seconds
    """All micro-batches through the pipeline, without hops. [s]"""
    hops: Seconds
    """Exposed hops of the pipeline. [s]"""
    exchange: GradientExchange


def _exposed_exchange(step: StepInputs) -> Seconds:
    return exposed_time(step.strategy, step.exchange, step.slowest, step.micro_batches)


def _longest_documents(step: StepInputs) -> Seconds:
    """What the data-parallel rank with most work takes above the mean: ranks meet in every
    micro-batch where each sends gradients, else once a step.

    Leaves out: waits of pipeline stages for each other.
    """
    training, s = step.workload.training, step.strategy
    if training.documents is None:
        return 0.0
    from mofa_model.equations import documents

    spread, room = documents.variation(training, s.mbs)
    m = step.micro_batches
    meetings = np.where(step.exchange.per_micro_batch, m, np.sqrt(m))
    waits = np.minimum(spread * meetings * documents.largest_of(s.dp), m * room)
    return step.slowest * waits * documents.share_of(step.workload)


@dataclass(frozen=True)
class StepTime:
    """Terms of an optimizer step, which add up to it in this order, Eq. (14). [s]"""

    stages: Seconds = term(
        "(7) (8) (11)",
        "work of the slowest stage, all micro-batches",
        called="work of the slowest stage",
    )
    bubble: Seconds = term(
        "(10) (12)", "fill and drain of the pipeline, slower stages", called="pipeline bubble"
    )
    # Terms with `seconds` come once a step, after the pipeline.
    hops: Seconds = term(
        "(23)", "exposed pipeline hops", called="pipeline hops", seconds=lambda step: step.hops
    )
    data: Seconds = term(
        "(13) (24)",
        "exposed gradient and parameter traffic",
        called="gradient and parameter traffic",
        seconds=_exposed_exchange,
    )
    embedding: Seconds = term(
        "(13)",
        "all-reduce of a tied embedding",
        called="tied embedding",
        seconds=lambda step: step.exchange.embedding,
    )
    optimizer: Seconds = term(
        "(26) (28)", "the update", called="optimizer", seconds=lambda step: step.exchange.optimizer
    )
    waits: Seconds = term(
        "ours",
        "waiting for the rank with the longest documents",
        called="unlike documents",
        seconds=_longest_documents,
    )
    overhead: Seconds = term(
        "ours",
        "host time of a step",
        called="host time",
        seconds=lambda step: step.cluster.calibration.host.step,
    )
    # The slowest node delays all terms above.
    straggler: Seconds = term("ours", "waiting for the slowest of many nodes", called="stragglers")

    @property
    def total(self) -> Seconds:
        """The step, Eq. (14). [s]"""
        total: Seconds = reduce(add, [getattr(self, name) for name in STEP_NAMES])
        return total

    def terms(self) -> dict[str, float]:
        """Every term of the step of one layout. [s]"""
        return {name: float(getattr(self, name)) for name in STEP_NAMES}


STEP_NAMES: Final[Mapping[str, str]] = {
    item.name: item.metadata["called"] for item in terms_of(StepTime)
}
"""Terms of a step as a sentence names them."""
_ONCE_A_STEP: Final = {
    item.name: item.metadata["seconds"] for item in terms_of(StepTime) if "seconds" in item.metadata
}


def step_time(step_inputs: StepInputs) -> StepTime:
    """The terms of a step, with what the slowest of many nodes adds to all of them, Eq. (14)."""
    once = {name: seconds(step_inputs) for name, seconds in _ONCE_A_STEP.items()}
    nodes = np.maximum(step_inputs.cluster.gpus / 8.0, 1.0)
    growth = step_inputs.cluster.calibration.overlap.straggler * np.log2(nodes)
    return StepTime(
        stages=step_inputs.micro_batches * step_inputs.slowest,
        bubble=bubble_time(
            step_inputs.pipeline,
            slowest=step_inputs.slowest,
            microbatches=step_inputs.micro_batches,
        ),
        **once,
        straggler=reduce(add, once.values(), step_inputs.pipeline) * growth,
    )


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Time and memory of a layout; arrays where the strategy is a family."""

    stage_kinds: Stages
    """Layers, embedding and head of every kind of stage."""
    device_parameters: HeldParameters
    """Parameters on one device of every kind of stage."""
    distinct: Strategy
    """Layouts for which layers and head are priced: of many that are equal there, one."""
    position: NDArray[np.int64] | None
    """For each layout of the family, the index of the one in `distinct` that it equals; None = they
    are the same layouts."""
    distinct_layers: tuple[LayerTime, ...]
    """One layer of each kind, for the distinct layouts."""
    distinct_head: Mapping[str, Seconds]
    """Head and loss by part, for the distinct layouts. [s]"""
    stage_time: StageTime
    step_inputs: StepInputs
    step_terms: StepTime

    @cached_property
    def footprint(self) -> Footprint:
        """Memory, term by term; the price of time alone does not ask for it."""
        inputs = self.step_inputs
        return footprint(
            inputs.workload,
            inputs.cluster,
            inputs.strategy,
            self.stage_kinds,
            self.device_parameters,
            (self.distinct, self.position),
        )

    @cached_property
    def layer_times(self) -> tuple[LayerTime, ...]:
        """One layer of each kind, of every layout."""
        return spread(self.distinct_layers, self.position)

    @cached_property
    def head_time(self) -> Mapping[str, Seconds]:
        """Head and loss of every layout, by part. [s]"""
        return spread(self.distinct_head, self.position)

    @property
    def micro_batches(self) -> Count:
        """Micro-batches of a step on one pipeline. [1]"""
        return self.step_inputs.micro_batches

    @property
    def step_time(self) -> Seconds:
        """One optimizer step. [s]"""
        return self.step_terms.total

    @property
    def layer_forward(self) -> Seconds:
        """Forward pass of one layer of the first kind. [s]"""
        return self.layer_times[0].forward

    @property
    def layer_backward(self) -> Seconds:
        """Backward pass of one layer of the first kind with its recomputation. [s]"""
        return self.layer_times[0].backward + self.layer_times[0].recompute


def micro_batches(workload: Workload, strategy: Strategy) -> Count:
    """Micro-batches that each pipeline runs in a step: m = B / (d b). [1]"""
    return workload.training.global_batch / strategy.global_micro_batch


def estimate(workload: Workload, cluster: Cluster, strategy: Strategy) -> Estimate:
    """Step time and memory of one layout, or of every layout of a family at once, Eq. (16)."""
    s = strategy
    axes = max(workload.axes, cluster.axes, array_axes(s))
    stages = stages_of(workload.model, s, cluster.calibration.placement, axes)
    distinct, position = distinct_rows(workload, cluster, s)
    layers, head = _layers(workload, cluster, distinct), head_time(workload, cluster, distinct)
    sums = tuple(layer.sums for layer in layers)
    spread_sums, whole_head = spread((sums, sum(head.values())), position)
    stage = stage_times(workload, cluster, s, stages, spread_sums, whole_head)
    parameters = held_parameters(workload, s, stages)
    inputs = inputs_of(workload, cluster, s, stages, stage, parameters)
    return Estimate(
        stage_kinds=stages,
        device_parameters=parameters,
        distinct=distinct,
        position=position,
        distinct_layers=layers[: len(workload.model.kinds)],
        distinct_head=head,
        stage_time=stage,
        step_inputs=inputs,
        step_terms=step_time(inputs),
    )


def inputs_of(
    workload: Workload,
    cluster: Cluster,
    s: Strategy,
    stage_kinds: Stages,
    stage: StageTime,
    device_parameters: HeldParameters,
) -> StepInputs:
    """The inputs of a step's terms, from the times of its stages."""
    m = micro_batches(workload, s)
    flow = pipeline_flow(s, stage, m)
    pipeline = s.schedule.time(flow)
    return StepInputs(
        workload=workload,
        cluster=cluster,
        strategy=s,
        micro_batches=m,
        slowest=stage.slowest,
        pipeline=pipeline,
        hops=exposed_hops(s, flow, pipeline, hop_time(workload, cluster, s)),
        exchange=gradient_exchange(workload, cluster, s, stage_kinds, m, device_parameters),
    )


def _layers(workload: Workload, cluster: Cluster, s: Strategy) -> tuple[LayerTime, ...]:
    """A layer of each kind; then the same with whole experts, where not all run in chunks."""
    layers = layer_times(workload, cluster, s)
    if anything(s.chunk_layers):
        layers += layer_times(workload, cluster, varied(s, chunks=1))
    return layers


def pipeline_flow(strategy: Strategy, stage: StageTime, micro_batches: Count) -> Flow:
    """All micro-batches through the pipeline without hops, as a schedule prices them, Eq. (9)."""
    return Flow(
        slowest=stage.slowest,
        total=stage.all_stages,
        microbatches=micro_batches,
        stages=strategy.pp,
        virtual=strategy.vpp,
        forward=stage.forward_share,
        weight=stage.weight_share,
    )


def exposed_hops(strategy: Strategy, flow: Flow, pipeline: Seconds, hop: Seconds) -> Seconds:
    """Exposed hops of `hop` seconds, of a flow that takes `pipeline` without them, Eq. (23). [s]"""
    with_hops = varied(flow, hop=hop, blocking=not strategy.pipeline_overlap)
    return strategy.schedule.exposed_hops(pipeline, with_hops)


def hop_time(workload: Workload, cluster: Cluster, s: Strategy) -> Seconds:
    """One activation from a stage to the next. [s]"""
    links, precision = cluster.calibration.links, workload.training.precision
    activation = tokens_per_rank(workload, s) * workload.model.hidden * precision.activation
    split_share = 1.0 if s.sequence_parallel else links.point_shared
    size = activation * (1.0 - split_share + split_share / s.tp)
    inside = s.gpus <= cluster.domain
    bandwidth = (
        np.where(inside, cluster.scale_up.bandwidth, cluster.scale_out.bandwidth)
        * links.point_efficiency
    )
    return collectives.point_to_point_time(size, bandwidth, links.point_latency)


def tokens_per_second(workload: Workload, step: Seconds) -> Numeric:
    """Tokens of the whole job in a second, without padding. [1/s]"""
    return workload.training.step_tokens / step


def utilisation(workload: Workload, cluster: Cluster, step: Seconds) -> Ratio:
    """Model FLOPs utilisation with full attention counted, Eq. (15): of the peak of the recipe's
    matrix products. [1]
    """
    peak = cluster.device.peak_rate(workload.training.precision.gemm)
    return compute.model_flops_utilisation(_flops(workload, "full"), step, cluster.gpus, peak)


def least_step(workload: Workload, cluster: Cluster) -> Seconds:
    """Step time that no run can beat: the model's own FLOPs under a causal mask, at the peak of all
    devices. [s]
    """
    peak = cluster.device.peak_rate(workload.training.precision.gemm)
    return _flops(workload, "causal") / (cluster.gpus * peak)


def _flops(workload: Workload, convention: str) -> Flop:
    """The model's own FLOPs of a step, attention counted by a convention. [FLOP]"""
    tokens = workload.training.step_tokens
    each = parameters.over_documents(
        workload.training,
        lambda seen: parameters.training_flops_per_token(
            workload.model, seen, convention=convention
        ),
    )
    if workload.training.adapters is not None:
        # No gradient of a weight: two FLOPs less for each that a token meets.
        ends = workload.model.embedding.vocabulary * workload.model.hidden
        each = each - 2.0 * (parameters.active_parameters(workload.model) - ends)
    return tokens * each


def footprint(
    workload: Workload,
    cluster: Cluster,
    strategy: Strategy,
    stage_kinds: Stages,
    device_parameters: HeldParameters | None = None,
    rows: DistinctRows | None = None,
) -> Footprint:
    """Every memory term of a layout, or of a family of them; `device_parameters` and `rows` where
    they are known.
    """
    states = model_states(workload, cluster, strategy, stage_kinds, device_parameters)
    moving = activation_memory(workload, cluster, strategy, stage_kinds, rows)
    terms = {
        item.name: getattr(states, item.name)
        for item in terms_of(Footprint)
        if item.metadata.get("states")
    }
    if anything(states.gather):
        above = varied(moving, gather=states.gather, fresh=states.fresh).above
        fresh = np.minimum(states.fresh, above)
        terms["gradients"] = states.gradients + fresh
        terms["update"] = states.update - states.gather + (above - fresh)
    return varied(
        moving,
        **terms,
        gather=states.gather,
        fresh=states.fresh,
        host_states=states.host_states,
        host=host_bytes(cluster, states.host_states, moving.host_activations),
        position=stage_kinds.position,
    )


def host_bytes(cluster: Cluster, state_bytes: Bytes, activations: Bytes) -> Bytes:
    """Host memory of the fullest node, from what one device of each kind of stage keeps
    there. [B]
    """
    node_bytes = activations * cluster.gpus_per_node
    if anything(state_bytes):
        node_bytes = node_bytes + state_bytes * cluster.gpus_per_node
    return np.max(node_bytes, axis=0) if np.ndim(node_bytes) else node_bytes


def overflow(workload: Workload, cluster: Cluster, strategy: Strategy) -> Ratio:
    """Probability that some layer and micro-batch of a run does not fit the device, by its load on
    experts. Ours. [1]

    Memory rises with the load at the tail. Bisection finds the load that just fits; the answer is
    the probability that the largest load of the run exceeds it.
    """
    model = workload.model
    stages = stages_of(
        model,
        strategy,
        cluster.calibration.placement,
        max(workload.axes, cluster.axes, array_axes(strategy)),
    )
    exchange = None if model.experts is None else model.experts.exchange()

    def fits(spread: Ratio) -> bool:
        loaded = workload
        if exchange is not None:
            loaded = replace(workload, model=with_imbalance(model, exchange.imbalance, spread))
        peak = footprint(loaded, cluster, strategy, stages).peak
        return bool(peak <= device_memory_limit(cluster))

    if exchange is None or not exchange.spread or not fits(0.0):
        return 0.0 if fits(0.0) else 1.0
    count, mean = exchanges(workload, strategy), expert_load(workload, strategy, exchange).mean
    largest = routing.largest_load(strategy.ep, exchange.count, exchange.top_k)
    slope = routing.tail_load(0.0, 1.0, count, RISK)
    least, most = 0.0, float((largest - mean) / slope)
    if fits(most):
        return 0.0
    while most - least > _PRECISION * most:
        middle = 0.5 * (least + most)
        least, most = (middle, most) if fits(middle) else (least, middle)
    return float(routing.overflow_probability(mean, exchange.spread, count, mean + least * slope))
