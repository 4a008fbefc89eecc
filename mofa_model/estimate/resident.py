"""What stays on a device between micro-batches: weights, gradients, optimizer states, buffers. By ZeRO level and placement.

Nothing here depends on recomputation, offloaded activations or sequence parallelism, so a search asks once for all of those.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mofa_model.blocks import Cut, Layer, Rows
from mofa_model.equations import adapters, memory, offload, optimizers
from mofa_model.estimate.blocks import tokens_per_rank
from mofa_model.estimate.saved import update_rule
from mofa_model.placement import Stages
from mofa_model.spec import Cluster, MemoryConstants, Workload
from mofa_model.strategy import Placement, Sharding, Strategy
from mofa_model.units import Bytes, Count


@dataclass(frozen=True, kw_only=True, slots=True)
class Resident:
    """Memory per device that does not come and go with micro-batches; terms broadcast to [K, ...]. [B]"""

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
    update: Bytes
    """Workspace of the optimizer update."""
    parked: Bytes
    """Optimizer states and weights in the host, of one device."""

    @property
    def total(self) -> Bytes:
        """All of it on the device, [K, ...]. [B]"""
        return (
            self.weights
            + self.gradients
            + self.optimizer
            + (self.buffers + self.reserve)
            + self.update
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldParameters:
    """Parameters on one device by who else holds the same, [K, ...]; memory and the exchange of a step count these. [1]"""

    ends: Count
    """Embedding and head: all data-parallel ranks."""
    dense: Count
    """Layers without their experts: all data-parallel ranks."""
    experts: Count
    """Experts: the ranks that hold the same ones."""
    adapters: Count
    """Adapters beside frozen weights: all data-parallel ranks."""
    widest: tuple[Count, Count]
    """One layer of the last kind, without its experts and they alone, [...]."""


@dataclass(frozen=True, slots=True)
class _Group:
    """Parameters that the same data-parallel ranks hold, and their bytes on one device."""

    parameters: Count
    """On one device, [K, ...]."""
    widest: Count
    """Those of the layer that is gathered, of the last kind, [...]."""
    weight: Bytes
    """Bytes per parameter on a device, [...]; as the four below."""
    gradient: Bytes
    optimizer: Bytes
    buffer: Bytes
    update: Bytes
    parked: Bytes
    """Bytes per parameter in the host."""


def resident(workload: Workload, cluster: Cluster, strategy: Strategy, stages: Stages) -> Resident:
    """What stays, on every kind of stage, Eq. (4)."""
    constants, precision = cluster.calibration.memory, workload.training.precision
    groups = _groups(workload, constants, strategy, stages)
    buffers = _added(groups, "buffer") + memory.tensor_buffer(
        tokens_per_rank(workload, strategy),
        workload.model.hidden,
        strategy.tp,
        width=precision.activation,
        copies=constants.gather_copies,
    )
    experts = workload.model.experts
    routed = float(experts is not None)
    buffers = buffers + memory.product_workspace(
        constants.workspace, constants.grouped_workspace, routed
    )
    if np.any(constants.spare_gradient):
        one = 0.0 if experts is None else groups[1].widest * strategy.ep / experts.count
        buffers = buffers + memory.spare_gradients(groups[0].widest, one, constants.spare_gradient)
    if strategy.sharding is Sharding.WEIGHTS:
        widest = sum((group.widest for group in groups[1:]), groups[0].widest)
        buffers = buffers + memory.gathered_memory(widest, precision.gather, precision.reduce)
    return Resident(
        weights=_added(groups, "weight"),
        gradients=_added(groups, "gradient"),
        optimizer=_added(groups, "optimizer"),
        buffers=buffers,
        reserve=constants.buffer,
        update=_added(groups, "update"),
        parked=_added(groups, "parked"),
    )


def _added(groups: list[_Group], name: str) -> Bytes:
    """Bytes of one kind over all groups, [K, ...]. [B]"""
    # Most stacks keep no buckets: the search is spared a pass over all rows.
    terms = [g.parameters * getattr(g, name) for g in groups if np.any(getattr(g, name))]
    return sum(terms[1:], terms[0]) if terms else 0.0


def ends_on(strategy: Strategy, stages: Stages) -> tuple[Count, Count]:
    """Embeddings and heads on a device: where the model enters at both ends, these meet on both outer devices. [1]"""
    if not strategy.schedule.both_ends:
        return stages.embedding, stages.head
    both = np.maximum(stages.embedding, stages.head)
    return both, both


def layers_on(workload: Workload, stages: Stages) -> Sequence[Count]:
    """Layers of each kind on a stage; prediction modules are further layers as the last one, beside the head. [1]"""
    model, held = workload.model, list(stages.held)
    if np.any(model.prediction_modules):
        held[model.last] = held[model.last] + stages.head * model.prediction_modules
    return held


def layer_weights(workload: Workload, strategy: Strategy, layer: Layer) -> tuple[Count, Count]:
    """Matrices of a layer on a device: those that all data-parallel ranks hold, and those of experts. [1]

    Leaves out: norms, biases and other vectors, and what tensor parallelism repeats, of which memory alone takes notice.
    """
    s = strategy
    whole: Count = 0
    inside: Count = 0.0
    for block in layer.blocks:
        exchange = block.exchange()
        routed: Count = 0
        for product in block.products(workload.model.hidden):
            if product.rows is Rows.ROUTED:
                routed = routed + product.weights
            else:
                whole = whole + product.weights
        if exchange is not None:
            inside = inside + routed * (exchange.count / (s.ep * s.etp))
    return whole / s.tp, inside


def held_parameters(workload: Workload, strategy: Strategy, stages: Stages) -> HeldParameters:
    """Parameters on one device of every kind of stage; where the model enters at both ends a device holds two stages."""
    model, s, h = workload.model, strategy, workload.model.hidden
    embedding, head = ends_on(s, stages)
    vocabulary = embedding + head * (1.0 - embedding) if model.embedding.tied else embedding + head
    directions = 2.0 if s.schedule.both_ends else 1.0
    dense: Count = 0.0
    if np.any(model.prediction_modules):
        dense = stages.head * (model.prediction_modules * (2.0 * h * h / s.tp))
    inside: Count = 0.0
    beside: Count = 0.0
    widest: tuple[Count, Count] = (0.0, 0.0)
    for layer, layers in zip(model.kinds, layers_on(workload, stages), strict=True):
        widest = layer_weights(workload, s, layer)
        dense = dense + layers * (directions * widest[0])
        if layer.routed:
            inside = inside + layers * (directions * widest[1])
        if np.any(workload.training.adapter_rank):
            own = adapters.adapter_parameters(layer, h, workload.training.adapter_rank)
            beside = beside + layers * (directions * own / s.tp)
    return HeldParameters(
        ends=vocabulary * (model.embedding.vocabulary * h / s.tp),
        dense=dense,
        experts=inside,
        adapters=beside,
        widest=widest,
    )


def _repeated(workload: Workload, s: Strategy, stages: Stages) -> Count:
    """Parameters on a device of which memory alone takes notice: held whole by every tensor-parallel rank, and the embedding
    again beside prediction modules. [1]
    """
    model, h = workload.model, workload.model.hidden
    found: Count = stages.embedding * (model.embedding.positions * h)
    if np.any(model.prediction_modules) and not model.embedding.tied:
        again = stages.head * (1.0 - stages.embedding) * np.minimum(model.prediction_modules, 1.0)
        found = found + again * (model.embedding.vocabulary * h / s.tp)
    for layer, layers in zip(model.kinds, layers_on(workload, stages), strict=True):
        products = [one for block in layer.blocks for one in block.products(h)]
        whole = [
            one.weights
            for one in products
            if one.cut is Cut.NOTHING and one.rows is not Rows.ROUTED
        ]
        if whole and np.any(np.asarray(s.tp) > 1):
            found = found + layers * memory.repeated_parameters(sum(whole), s.tp)
    return found


def _groups(
    workload: Workload, constants: MemoryConstants, s: Strategy, stages: Stages
) -> list[_Group]:
    """Parameters of a device by the ranks that hold the same: all but the experts, and the experts."""
    held, training, ranks = held_parameters(workload, s, stages), workload.training, s.data_ranks
    frozen = np.any(training.adapter_rank)
    more: list[_Group] = []
    held = replace(held, dense=held.dense + _repeated(workload, s, stages))
    dense, rule = held.ends + held.dense, update_rule(workload, s)
    if rule.outside != rule.states and not frozen:
        states = optimizers.state_bytes(training.precision.optimizer, rule.outside, rule.replaced)
        more.append(_group(workload, constants, s, held.ends, 0.0, ranks, states))
        dense = held.dense
    if frozen:
        more.append(_group(workload, constants, s, held.adapters, 0.0, ranks))
    widest, widest_inside = held.widest
    groups = [_body(workload, constants, s, dense, widest, ranks)]
    if workload.model.experts is not None:
        copies = s.expert_data_ranks
        one = (
            replace(s, shard=memory.expert_shard(copies, ranks, s.shard)) if np.any(s.shard) else s
        )
        groups.append(_body(workload, constants, one, held.experts, widest_inside, copies))
    return [*groups, *more]


def _body(
    workload: Workload,
    constants: MemoryConstants,
    s: Strategy,
    held: Count,
    widest: Count,
    ranks: Count,
) -> _Group:
    """The model's own parameters: trained, or frozen beside adapters."""
    found = _group(workload, constants, s, held, widest, ranks)
    if not np.any(workload.training.adapter_rank):
        return found
    weight: Bytes = workload.training.precision.weight
    if s.sharding is Sharding.WEIGHTS:
        weight = memory.sharded_bytes(weight, memory.shard_ranks(ranks, s.shard))
    weight, parked = _weight_home(s, weight)
    return replace(
        found, weight=weight, gradient=0.0, optimizer=0.0, buffer=0.0, update=0.0, parked=parked
    )


def _weight_home(s: Strategy, share: Bytes) -> tuple[Bytes, Bytes]:
    """Bytes of a share of the weights on the device, and in the host. [B]"""
    away = s.host_weights and s.sharding is Sharding.WEIGHTS
    return (0.0, share) if away else (share, 0.0)


def _group(
    workload: Workload,
    constants: MemoryConstants,
    s: Strategy,
    held: Count,
    widest: Count,
    ranks: Count,
    states: Bytes | None = None,
) -> _Group:
    """What a parameter costs a device at this ZeRO level, Eqs. (4), (25), (27)."""
    precision = workload.training.precision
    if states is None:
        rule = update_rule(workload, s)
        states = optimizers.state_bytes(precision.optimizer, rule.states, rule.replaced)
    d = memory.shard_ranks(ranks, s.shard)
    on_host = s.optimizer is Placement.HOST
    weight: Bytes = precision.weight
    gradient: Bytes = precision.gradient
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
        kept = weight if on_host or s.host_weights else constants.sharded_weight
        weight, buffer = memory.sharded_bytes(kept, d), 0.0
    weight, away = _weight_home(s, weight)
    return _Group(
        parameters=held,
        widest=widest,
        weight=weight,
        gradient=gradient,
        optimizer=offload.device_optimizer_bytes(states, on_host=on_host),
        buffer=np.where(np.asarray(ranks) > 1, buffer, 0.0) if np.any(buffer) else 0.0,
        update=update,
        parked=(parked if on_host else 0.0) + away,
    )
