"""Memory that stays between micro-batches: weights, gradients, optimizer states, buffers; and what
of it a checkpoint holds.

Nothing here depends on recomputation, offloaded activations or sequence parallelism, so a search
asks once for all of those.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from mofa_model.blocks import Cut, Layer, Rows
from mofa_model.checks import anything
from mofa_model.equations import memory
from mofa_model.equations.parameters import (
    adapter_parameters,
    prediction_parameters,
    total_parameters,
    trained_parameters,
)
from mofa_model.estimate.block_time import tokens_held
from mofa_model.estimate.terms import Footprint
from mofa_model.placement import Stages
from mofa_model.records import dataclass
from mofa_model.reliability.checkpoint import checkpoint_bytes
from mofa_model.spec import Cluster, MemoryConstants, Training, UpdateRule, Workload
from mofa_model.spec.tuning import Task
from mofa_model.strategy import Placement, Sharding, Strategy
from mofa_model.units import Bytes, Count


@dataclass(frozen=True, kw_only=True)
class HeldParameters:
    """Parameters on one device by the ranks that hold the same ones, [K, ...]. [1]"""

    ends: Count
    """Embedding and head: all data-parallel ranks."""
    dense: Count
    """Layers without their experts: all data-parallel ranks."""
    experts: Count
    """Experts: the expert-data-parallel ranks."""
    dense_adapters: Count
    """Adapters beside frozen weights, without those of experts: all data-parallel ranks."""
    expert_adapters: Count
    """Adapters of routed experts: the expert-data-parallel ranks."""
    layer_dense: Count
    """One layer of the last kind without its experts, [...]."""
    layer_experts: Count
    """Experts of one layer of the last kind, [...]."""
    repeated: Count
    """What memory alone counts: positions, and what every tensor-parallel rank holds whole."""


def model_states(
    workload: Workload,
    cluster: Cluster,
    strategy: Strategy,
    stage_kinds: Stages,
    device_parameters: HeldParameters | None = None,
) -> Footprint:
    """Weights, gradients, optimizer states and buffers on every kind of stage, Eq. (4);
    `device_parameters` where they are known.
    """
    constants, precision = cluster.calibration.memory, workload.training.precision
    parameters = device_parameters or held_parameters(workload, strategy, stage_kinds)
    groups = _groups(workload, constants, strategy, parameters)
    buffers = _sum([group.buffers for group in groups]) + memory.tensor_buffer(
        tokens_held(workload, strategy),
        workload.model.hidden,
        strategy.tp,
        width=precision.activation,
        copies=constants.gather_copies,
    )
    experts, frozen = workload.model.experts, workload.training.adapters
    buffers = buffers + memory.product_workspace(
        constants.workspace, constants.grouped_workspace, float(experts is not None)
    )
    dense, expert_parameters = (
        parameters.layer_dense,
        0.0 if experts is None else parameters.layer_experts,
    )
    if frozen is not None and frozen.base is not None and frozen.base.unpacked:
        buffers = buffers + memory.unpacked_matrix(
            _widest_linear(workload, strategy), precision.activation
        )
    if anything(constants.spare_gradient) and frozen is None:
        one_expert = 0.0 if experts is None else expert_parameters * strategy.ep / experts.count
        buffers = buffers + memory.spare_gradients(dense, one_expert, constants.spare_gradient)
    if strategy.sharding is Sharding.WEIGHTS:
        widest = dense if experts is None else dense + expert_parameters
        gathered = precision.gather if frozen is None else frozen_width(workload.training)
        reduced = precision.reduce if frozen is None else 0.0
        buffers = buffers + memory.gathered_memory(widest, gathered, reduced)
    return Footprint(
        weights=_sum([group.weights for group in groups]),
        gradients=_sum([group.gradients for group in groups]),
        optimizer=_sum([group.optimizer for group in groups]),
        buffers=buffers,
        reserve=constants.buffer,
        update=_sum([group.update for group in groups]),
        gather=_sum([group.gather for group in groups]),
        fresh=_sum([group.fresh for group in groups]),
        host_states=_sum([group.host_states for group in groups]),
    )


def _sum(terms: list[Bytes]) -> Bytes:
    # Most stacks keep no buckets: the search is spared a pass over all rows.
    terms = [term for term in terms if np.ndim(term) or term]
    return sum(terms[1:], terms[0]) if terms else 0.0


def embeddings_on(strategy: Strategy, stage_kinds: Stages) -> Count:
    """Embeddings on a device. Where the model enters at both ends, both outer devices have
    one. [1]
    """
    if not strategy.schedule.both_ends:
        return stage_kinds.embedding
    return np.maximum(stage_kinds.embedding, stage_kinds.head)


def heads_on(strategy: Strategy, stage_kinds: Stages) -> Count:
    """Heads on a device. Where the model enters at both ends, both outer devices have one. [1]"""
    if not strategy.schedule.both_ends:
        return stage_kinds.head
    return np.maximum(stage_kinds.embedding, stage_kinds.head)


def outputs(workload: Workload) -> Count:
    """Numbers that the head makes of a token: those of the vocabulary, or one reward. [1]"""
    return 1 if workload.training.task is Task.REWARD else workload.model.embedding.vocabulary


def layers_on(workload: Workload, stage_kinds: Stages) -> Sequence[Count]:
    """Layers of each kind on a stage. Prediction modules count as layers of the last kind, beside
    the head. [1]
    """
    model, layers = workload.model, list(stage_kinds.held)
    if anything(model.prediction_modules):
        layers[model.last] = layers[model.last] + stage_kinds.head * model.prediction_modules
    return layers


def dense_weights(workload: Workload, strategy: Strategy, layer: Layer) -> Count:
    """Parameters of a layer's matrices on a device, without its experts. [1]

    Leaves out norms, biases and other vectors, and what tensor parallelism repeats, which memory
    alone counts.
    """
    whole: Count = sum(
        product.weights
        for block in layer.blocks
        for product in block.products(workload.model.hidden)
        if product.rows is not Rows.ROUTED
    )
    return whole / strategy.tp


def expert_weights(workload: Workload, strategy: Strategy, layer: Layer) -> Count:
    """Parameters of the matrices of a layer's experts on a device. [1]"""
    weights: Count = 0.0
    for block in layer.blocks:
        exchange = block.exchange()
        if exchange is not None:
            products = block.products(workload.model.hidden)
            routed = sum(product.weights for product in products if product.rows is Rows.ROUTED)
            weights = weights + routed * (exchange.count / (strategy.ep * strategy.etp))
    return weights


def _widest_linear(workload: Workload, strategy: Strategy) -> Count:
    """Weights of the largest linear layer on a device. [1]"""
    widest: Count = 0.0
    for block in workload.model.blocks:
        for product in block.products(workload.model.hidden):
            ranks = strategy.etp if product.rows is Rows.ROUTED else strategy.tp
            for _, width in product.linears:
                widest = np.maximum(widest, width * product.k / ranks)
    return widest


def held_parameters(workload: Workload, strategy: Strategy, stage_kinds: Stages) -> HeldParameters:
    """Parameters on one device of every kind of stage.

    Where the model enters at both ends (DualPipe), a device holds the stages of two directions.
    """
    model, s, h = workload.model, strategy, workload.model.hidden
    embedding, head = embeddings_on(s, stage_kinds), heads_on(s, stage_kinds)
    if workload.training.task is Task.REWARD:
        head = 0.0 * head
    vocabulary = embedding + head * (1.0 - embedding) if model.embedding.tied else embedding + head
    directions = 2.0 if s.schedule.both_ends else 1.0
    dense: Count = 0.0
    if anything(model.prediction_modules):
        dense = stage_kinds.head * (model.prediction_modules * (2.0 * h * h / s.tp))
    experts: Count = 0.0
    adapters = workload.training.adapters
    dense_adapters: Count = 0.0
    expert_adapters: Count = 0.0
    layer_dense: Count = 0.0
    layer_experts: Count = 0.0
    for layer, layers in zip(model.kinds, layers_on(workload, stage_kinds), strict=True):
        layer_dense = dense_weights(workload, s, layer)
        layer_experts = expert_weights(workload, s, layer)
        dense = dense + layers * (directions * layer_dense)
        if layer.routed:
            experts = experts + layers * (directions * layer_experts)
        if adapters is not None:
            adapter = adapter_parameters(layer, h, adapters)
            dense_adapters = dense_adapters + layers * (directions * adapter / s.tp)
            for exchange in filter(None, (block.exchange() for block in layer.blocks)):
                adapter = adapter_parameters(layer, h, adapters, routed=True)
                local_experts = exchange.count / (s.ep * s.etp)
                expert_adapters = expert_adapters + layers * (directions * local_experts * adapter)
    return HeldParameters(
        ends=vocabulary * (model.embedding.vocabulary * h / s.tp),
        dense=dense,
        experts=experts,
        dense_adapters=dense_adapters,
        expert_adapters=expert_adapters,
        layer_dense=layer_dense,
        layer_experts=layer_experts,
        repeated=_repeated_parameters(workload, s, stage_kinds),
    )


def _repeated_parameters(workload: Workload, s: Strategy, stages: Stages) -> Count:
    """Parameters that memory alone counts: positions, and what every tensor-parallel rank holds
    whole. [1]
    """
    model, h = workload.model, workload.model.hidden
    repeated: Count = stages.embedding * (model.embedding.positions * h)
    if anything(model.prediction_modules) and not model.embedding.tied:
        # Prediction modules beside the head have the embedding again.
        copies = stages.head * (1.0 - stages.embedding) * np.minimum(model.prediction_modules, 1.0)
        repeated = repeated + copies * (model.embedding.vocabulary * h / s.tp)
    for layer, layers in zip(model.kinds, layers_on(workload, stages), strict=True):
        unsplit = [
            product.weights
            for block in layer.blocks
            for product in block.products(h)
            if product.cut is Cut.NOTHING and product.rows is not Rows.ROUTED
        ]
        if unsplit and anything(s.tp > 1):
            repeated = repeated + layers * memory.repeated_parameters(sum(unsplit), s.tp)
    return repeated


def _groups(
    workload: Workload, constants: MemoryConstants, s: Strategy, device_parameters: HeldParameters
) -> list[Footprint]:
    """Memory by group of ranks that hold the same parameters: all but the experts, the experts, and
    parameters with another update.
    """
    training, ranks = workload.training, s.data_ranks
    frozen = training.adapters is not None
    rule, other_rule = update_rule(workload, s), list[Footprint]()
    decoder = device_parameters.dense + device_parameters.repeated
    dense = device_parameters.ends + decoder
    if rule.outside != rule.states and not frozen:  # Muon leaves embedding and head to AdamW
        states = memory.state_bytes(training.precision.optimizer, rule.outside, rule.replaced)
        other_rule.append(
            _trained_memory(workload, constants, s, device_parameters.ends, ranks, states)
        )
        dense = decoder
    states = memory.state_bytes(training.precision.optimizer, rule.states, rule.replaced)
    parts = [
        (s, device_parameters.dense_adapters if frozen else dense, device_parameters.dense, ranks)
    ]
    if workload.model.experts is not None:
        copies = s.expert_data_ranks
        if anything(s.shard):
            s = replace(s, shard=memory.expert_shard(copies, ranks, s.shard))
        trained = device_parameters.expert_adapters if frozen else device_parameters.experts
        parts.append((s, trained, device_parameters.experts, copies))
    groups = [
        _trained_memory(workload, constants, part, trained, copies, states)
        for part, trained, _, copies in parts
    ]
    if frozen:
        width, ends = frozen_width(training), dense - device_parameters.dense
        groups += [
            _frozen_memory(part, matrices, width, copies) for part, _, matrices, copies in parts
        ]
        groups.append(_frozen_memory(parts[0][0], ends, training.precision.weight, ranks))
    elif training.task is Task.DPO:  # adapters that are switched off leave the model as it was
        groups += [
            _frozen_memory(part, copy, _READ_ONLY, copies) for part, copy, _, copies in parts
        ]
    if training.teacher is not None:
        shared = total_parameters(training.teacher) / (s.tp * s.pp)
        groups.append(_frozen_memory(parts[0][0], shared, _READ_ONLY, ranks))
    return [*groups, *other_rule]


_READ_ONLY: Final = 2.0
"""Width of the weights of a model that is run forward alone: bf16. [B]"""


def frozen_width(training: Training) -> Bytes:
    """Width of the matrices of layers beside adapters. [B]"""
    adapters = training.adapters
    base = None if adapters is None else adapters.base
    return training.precision.frozen if base is None else base.width


def _frozen_memory(s: Strategy, parameters: Count, weight: Bytes, ranks: Count) -> Footprint:
    """Memory of weights beside adapters: they have no gradients and no optimizer states."""
    if s.sharding is Sharding.WEIGHTS:
        weight = memory.sharded_bytes(weight, memory.shard_ranks(ranks, s.shard))
    if _weights_on_host(s):
        return Footprint(host_states=parameters * weight)
    return Footprint(weights=parameters * weight)


def _weights_on_host(s: Strategy) -> bool:
    return s.host_weights and s.sharding is Sharding.WEIGHTS


def _trained_memory(
    workload: Workload,
    constants: MemoryConstants,
    s: Strategy,
    parameters: Count,
    ranks: Count,
    states: Bytes,
) -> Footprint:
    """Memory of trained parameters at a ZeRO level, each with `states` bytes of optimizer, Eqs.
    (4), (25), (27).
    """
    precision = workload.training.precision
    d = memory.shard_ranks(ranks, s.shard)
    on_host = s.optimizer is Placement.HOST or update_rule(workload, s).paged
    weight: Bytes = precision.weight
    gradient: Bytes = precision.gradient
    if workload.training.released:  # gradients that are accumulated have to stay
        accumulates = workload.training.global_batch > s.global_micro_batch
        gradient = np.where(accumulates, gradient, 0.0)
    buffer: Bytes = constants.bucket
    copied = constants.update_copies * update_rule(workload, s).states / memory.MOMENTS
    update: Bytes = 0.0 if on_host else constants.update
    gather: Bytes = 0.0
    host_bytes = states + gradient
    if anything(constants.fresh_gradients) and s.sharding is Sharding.NONE:
        buffer = gradient  # buckets of DDP are no views of gradients unless somebody says so
    if s.sharding is not Sharding.NONE:
        update, copied = memory.sharded_bytes(update, d), memory.sharded_bytes(copied, d)
        states, host_bytes = memory.sharded_bytes(states, d), memory.sharded_bytes(host_bytes, d)
        gather = constants.partition * (1.0 + 1.0 / d)
    if s.sharding in {Sharding.GRADIENTS, Sharding.WEIGHTS}:
        gradient = memory.sharded_bytes(gradient, d)
    if s.sharding is Sharding.WEIGHTS:
        # Gathered layers are buffers of their own; between them only the master weights need to
        # stay.
        kept = weight if on_host or s.host_weights else constants.sharded_weight
        weight, buffer, gather = memory.sharded_bytes(kept, d), 0.0, 0.0
    host_weight: Bytes = 0.0
    if _weights_on_host(s):
        weight, host_weight = 0.0, weight
    shared = np.asarray(ranks) > 1
    buffer = np.where(shared, buffer, 0.0) if anything(buffer) else 0.0
    gather = np.where(shared, gather, 0.0) if anything(gather) else 0.0
    fresh: Bytes = 0.0
    if anything(constants.fresh_gradients):
        lone = workload.training.global_batch <= s.global_micro_batch
        fresh = np.where(lone, constants.fresh_gradients * gradient, 0.0)
    gather = gather + fresh + (0.0 if on_host else copied)
    gradient = gradient - fresh
    return Footprint(
        weights=_total(parameters, weight),
        gradients=_total(parameters, gradient),
        optimizer=_total(parameters, memory.device_optimizer_bytes(states, on_host=on_host)),
        buffers=_total(parameters, buffer),
        update=_total(parameters, update + gather),
        gather=_total(parameters, gather),
        fresh=_total(parameters, fresh),
        host_states=_total(parameters, (host_bytes if on_host else 0.0) + host_weight),
    )


def _total(parameters: Count, each: Bytes) -> Bytes:
    return parameters * each if anything(each) else 0.0


def update_rule(workload: Workload, strategy: Strategy) -> UpdateRule:  # noqa: ARG001
    """The rule that updates the weights. An axis that replaces it does so here: memory, time and
    checkpoints follow.
    """
    return workload.training.optimizer


def checkpoint_size(workload: Workload, strategy: Strategy) -> Bytes:
    """Bytes of a whole checkpoint: weights and optimizer states of what is trained. Ours. [B]"""
    model, training = workload.model, workload.training
    rule = update_rule(workload, strategy)
    states = memory.state_bytes(training.precision.optimizer, rule.states, rule.replaced)
    if training.adapters is not None:  # frozen weights are where they came from
        parameters = trained_parameters(model, training.adapters)
    else:
        parameters = total_parameters(model) + prediction_parameters(model)
    return checkpoint_bytes(float(parameters), training.precision.weight, states)


def checkpoint_replicas(workload: Workload, strategy: Strategy) -> Count:
    """Ranks that hold the same shard of most parameters. One of them writes it to a checkpoint.
    Ours. [1]
    """
    s = strategy
    copies = s.data_ranks if workload.model.experts is None else s.expert_data_ranks
    if s.sharding is Sharding.NONE:
        return copies
    return copies / memory.shard_ranks(copies, s.shard)
