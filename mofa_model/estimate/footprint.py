"""Memory of a layout: every named term on every kind of stage, and on the host of a node.

    footprint(workload, cluster, strategy, stages) -> Footprint     terms of shape [K, ...], K kinds of stages
    footprint(…).peak                                               bytes of the fullest stage
    footprint(…).fits(cluster)                                      True where device and host have room

Where one device holds the stages of two directions (DualPipe), it holds the parameters of both.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from mofa_model.equations import activations, memory, offload, parameters
from mofa_model.equations.pipeline import in_flight
from mofa_model.estimate.stored import StoredLayer, stored_layers, tokens_in_flight
from mofa_model.placement import Stages
from mofa_model.spec import Cluster, MemoryConstants, Workload
from mofa_model.strategy import Placement, Recompute, Schedule, Sharding, Strategy
from mofa_model.units import Bytes, Count, Ratio


@dataclass(frozen=True, kw_only=True, slots=True)
class Footprint:
    """Memory per device; each term broadcasts to kinds of stages [K, ...]. [B]"""

    weights: Bytes
    """Weights, Eq. (4)."""
    gradients: Bytes
    """Accumulated gradients, Eq. (4)."""
    optimizer: Bytes
    """Master weights and moments, Eqs. (25), (27)."""
    buffers: Bytes
    """Buffers of collectives: gradient buckets, gathered parameters, gathered layer inputs."""
    reserve: Bytes
    """What the stack holds before the first layer, M_0 of Eq. (6)."""
    activations: Bytes
    """Activations of the micro-batches in flight, Eqs. (5), (29), (31), (33)."""
    backward: Bytes
    """What the backward pass of one layer makes anew, recomputed activations included."""
    logits: Bytes
    """Head and loss: input, logits and their copies, gradient of the head's weights."""
    update: Bytes
    """Workspace of the optimizer update."""
    fragmentation: Bytes
    """Reserved by the allocator beyond what is allocated."""
    host: Bytes
    """Host memory of a node, [...]: optimizer states and activations that wait there."""
    usable: Ratio
    """Share of the device memory that the stack can reserve. [1]"""

    @property
    def static(self) -> Bytes:
        """What is there between two steps, [K, ...]. [B]"""
        return self.weights + self.gradients + self.optimizer + (self.buffers + self.reserve)

    @property
    def total(self) -> Bytes:
        """Peak of every kind of stage, [K, ...]. [B]"""
        return (
            self.static + self.update + (self.activations + self.backward + self.logits + self.fragmentation)
        )

    @property
    def peak(self) -> Bytes:
        """Peak of the fullest stage, Eq. (6). [B]"""
        peak: Bytes = np.max(self.total, axis=0)
        return peak

    @property
    def first_stage(self) -> Bytes:
        """Peak of rank 0, which some trainers report. [B]"""
        first: Bytes = np.asarray(self.total)[0]
        return first

    @property
    def static_first_stage(self) -> Bytes:
        """What rank 0 still has allocated when a step is over. [B]"""
        first: Bytes = np.asarray(self.static)[0]
        return first

    def fits(self, cluster: Cluster) -> NDArray[np.bool_] | np.bool_:
        """True where the fullest device and the host have room."""
        room = cluster.device.memory * (self.usable * (1.0 - cluster.reserve))
        return np.less_equal(self.peak, room) & np.less_equal(self.host, cluster.host.memory)


@dataclass(frozen=True, slots=True)
class _Group:
    """Parameters that the same data-parallel ranks hold, and their bytes on one device."""

    parameters: Count
    """On one device, [K, ...]."""
    widest: Count
    """Those of the widest layer, [...]."""
    weight: Bytes
    """Bytes per parameter on a device, [...]; as the four below."""
    gradient: Bytes
    optimizer: Bytes
    buffer: Bytes
    update: Bytes
    parked: Bytes
    """Bytes per parameter in the host."""


def footprint(workload: Workload, cluster: Cluster, strategy: Strategy, stages: Stages) -> Footprint:
    """Every memory term of a layout, or of a family of them."""
    constants, precision = cluster.calibration.memory, workload.training.precision
    groups = _groups(workload, constants, strategy, stages)
    stored, backward, parked = _activations(workload, constants, strategy, stages)
    logits = _ends(strategy, stages)[1] * _loss(workload, constants, strategy)
    buffers = _added(groups, "buffer") + memory.tensor_buffer(
        tokens_in_flight(workload, strategy),
        workload.model.hidden,
        strategy.tp,
        width=precision.activation,
        copies=constants.gather_copies,
    )
    if strategy.sharding is Sharding.WEIGHTS:
        widest = sum((group.widest for group in groups[1:]), groups[0].widest)
        buffers = buffers + memory.gathered_memory(widest, precision.gather, precision.reduce)
    host = parked * cluster.gpus_per_node
    if strategy.optimizer is Placement.HOST:
        host = host + _added(groups, "parked") * cluster.gpus_per_node
    return Footprint(
        weights=_added(groups, "weight"),
        gradients=_added(groups, "gradient"),
        optimizer=_added(groups, "optimizer"),
        buffers=buffers,
        reserve=constants.buffer,
        activations=stored,
        backward=backward,
        logits=logits,
        update=_added(groups, "update"),
        fragmentation=constants.fragmentation * (stored + backward + logits),
        host=np.max(host, axis=0) if np.ndim(host) else host,
        usable=constants.usable,
    )


def _added(groups: list[_Group], name: str) -> Bytes:
    """Bytes of one kind over all groups, [K, ...]. [B]"""
    # Most stacks keep no buckets: the search is spared a pass over all rows.
    terms = [g.parameters * getattr(g, name) for g in groups if np.any(getattr(g, name))]
    return sum(terms[1:], terms[0]) if terms else 0.0


def _ends(strategy: Strategy, stages: Stages) -> tuple[Count, Count]:
    """Embeddings and heads on a device: with DualPipe, both ends of the model meet on both outer devices. [1]"""
    if strategy.schedule is not Schedule.DUALPIPE:
        return stages.embedding, stages.head
    both = np.maximum(stages.embedding, stages.head)
    return both, both


def _layers(workload: Workload, stages: Stages) -> tuple[Count, Count]:
    """Layers with a plain FFN and with experts on a stage; prediction modules are further layers beside the head. [1]"""
    more = (
        stages.head * workload.model.prediction_modules if np.any(workload.model.prediction_modules) else 0.0
    )
    if workload.model.experts is None:
        return stages.dense_layers + more, 0.0
    return stages.dense_layers, stages.expert_layers + more


def _groups(workload: Workload, constants: MemoryConstants, s: Strategy, stages: Stages) -> list[_Group]:
    """Parameters of a device by the ranks that hold the same: all but the experts, and the experts."""
    model, h = workload.model, workload.model.hidden
    plain, routed = _layers(workload, stages)
    embedding, head = _ends(s, stages)
    vocabulary = embedding + head * (1.0 - embedding) if model.tied_embeddings else embedding + head
    directions = 2.0 if s.schedule is Schedule.DUALPIPE else 1.0
    attention = parameters.attention_parameters(model)
    dense_layer = (attention + parameters.ffn_parameters(model)) / s.tp
    dense = plain * (directions * dense_layer) + vocabulary * (model.vocabulary * h / s.tp)
    if np.any(model.prediction_modules):
        dense = dense + stages.head * (model.prediction_modules * (2.0 * h * h / s.tp))
    ranks = s.dp * s.cp
    if model.experts is None:
        return [_group(workload, constants, s, dense, dense_layer, ranks)]
    e = model.experts
    around = (
        attention + parameters.shared_expert_parameters(model) + parameters.router_parameters(model)
    ) / s.tp
    inside = parameters.expert_parameters(model) * (e.count / (s.ep * s.etp))
    copies = memory.expert_data_ranks(ranks, s.tp, s.ep, s.etp)
    return [
        _group(workload, constants, s, dense + routed * (directions * around), around, ranks),
        _group(workload, constants, s, routed * (directions * inside), inside, copies),
    ]


def _group(
    workload: Workload, constants: MemoryConstants, s: Strategy, held: Count, widest: Count, ranks: Count
) -> _Group:
    """What a parameter costs a device at this ZeRO level, Eqs. (4), (25), (27)."""
    precision = workload.training.precision
    d = memory.shard_ranks(ranks, s.shard)
    on_host = s.optimizer is Placement.HOST
    weight: Bytes = precision.weight
    gradient: Bytes = precision.gradient
    states: Bytes = precision.optimizer
    buffer: Bytes = constants.bucket
    update: Bytes = 0.0 if on_host else constants.update
    parked = states + gradient
    if s.sharding is not Sharding.NONE:
        update = memory.sharded_bytes(update, d)
        states, parked = memory.sharded_bytes(states, d), memory.sharded_bytes(parked, d)
        buffer = buffer + constants.partition * (1.0 + 1.0 / d)
    if s.sharding in {Sharding.GRADIENTS, Sharding.WEIGHTS}:
        gradient = memory.sharded_bytes(gradient, d)
    if s.sharding is Sharding.WEIGHTS:
        # Gathered layers are buffers of their own; between them only the master weights need to stay.
        weight, buffer = memory.sharded_bytes(weight if on_host else constants.sharded_weight, d), 0.0
    return _Group(
        parameters=held,
        widest=widest,
        weight=weight,
        gradient=gradient,
        optimizer=offload.device_optimizer_bytes(states, on_host=on_host),
        buffer=np.where(np.asarray(ranks) > 1, buffer, 0.0) if np.any(buffer) else 0.0,
        update=update,
        parked=parked,
    )


def _activations(
    workload: Workload, constants: MemoryConstants, s: Strategy, stages: Stages
) -> tuple[Bytes, Bytes, Bytes]:
    """Stored, backward and parked bytes of every kind of stage."""
    micro_batches = workload.training.global_batch / (s.dp * s.mbs)
    chunks = in_flight(
        s.schedule, position=stages.position, microbatches=micro_batches, stages=s.pp, virtual=s.vpp
    )
    share: Ratio = 0.0
    if s.recompute is Recompute.FULL:
        share = (
            memory.recomputed_share(stages.layers, s.recompute_layers) if np.any(s.recompute_layers) else 1.0
        )
    stored: list[Bytes] = []
    backward: list[Bytes] = []
    parked: list[Bytes] = []
    for layer, layers in zip(stored_layers(workload, constants, s), _layers(workload, stages), strict=True):
        if layer is None:
            continue
        kept, again = _kept(layer, s, share)
        # A chunk in flight holds the layers of one virtual stage.
        if s.offload:
            parked.append(offload.host_activation(chunks, layers, kept / s.vpp, layer.input / s.vpp, 1.0))
            kept, again = layer.input, again + kept
        stored.append(memory.stored_activation(chunks, layers, kept / s.vpp))
        backward.append(np.where(np.asarray(layers) > 0, again, 0.0))
    return (
        sum(stored[1:], stored[0]),
        reduce(np.maximum, backward),
        sum(parked[1:], parked[0]) if parked else 0.0,
    )


def _kept(layer: StoredLayer, s: Strategy, share: Ratio) -> tuple[Bytes, Bytes]:
    """Bytes of a layer that wait for its backward pass, and those that the backward pass adds."""
    if s.recompute is not Recompute.FULL:
        return layer.kept, memory.backward_activation(layer.whole, layer.kept, layer.gradients)
    kept = memory.full_recompute_activation(layer.kept, layer.input, share)
    return kept, memory.backward_activation(layer.whole, layer.input, layer.gradients)


def _loss(workload: Workload, constants: MemoryConstants, s: Strategy) -> Bytes:
    """Head and loss of the main prediction and of every further one. [B]"""
    tokens, precision, model = tokens_in_flight(workload, s), workload.training.precision, workload.model
    spread = s.tp if s.sequence_parallel else 1.0
    source = activations.head_activation(tokens, model.hidden, width=precision.activation, ranks=spread)
    logits = activations.logit_memory(
        tokens, model.vocabulary, width=precision.logit, copies=constants.logit_copies, ranks=s.tp
    )
    # The head's backward pass comes first, while all activations of the stage are still there.
    width = precision.gather + precision.reduce if s.sharding is Sharding.WEIGHTS else precision.activation
    weights = activations.head_weight_memory(model.hidden, model.vocabulary, width=width, ranks=s.tp)
    return (1.0 + model.prediction_modules) * (source + logits) + weights
