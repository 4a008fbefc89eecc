"""Time of one layer on one device, term by term, Eqs. (7) and (8)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from mofa_model.blocks import Layer
from mofa_model.blocks.block import ALL, EACH
from mofa_model.equations import adapters, collectives, compute, overlap
from mofa_model.estimate.blocks import (
    BlockTime,
    Rates,
    achieved_rates,
    block_time,
    stream_time,
    tokens_per_rank,
)
from mofa_model.estimate.stored import stored_layers
from mofa_model.spec import Cluster, Workload
from mofa_model.strategy import ACTIVATIONS, LAYER_INPUT, ContextMode, Recompute, Strategy
from mofa_model.units import Bytes, Ratio, Seconds


@dataclass(frozen=True, slots=True)
class LayerTime:
    """One layer and one micro-batch on one device; forward times unless said otherwise. [s]"""

    linear: Seconds
    """Projection products with weights."""
    attention: Seconds
    """Scores, softmax and weighted values."""
    elementwise: Seconds
    """Norms, residuals, activation functions, casts, routing."""
    tensor: Seconds
    """Exposed tensor-parallel collectives."""
    context: Seconds
    """Exposed context-parallel messages."""
    expert: Seconds
    """Exposed dispatch and combine."""
    offload: Seconds
    """Exposed way of activations to the host, Eq. (34)."""
    communication: Seconds
    """All collectives, exposed or not, forward and backward."""
    backward: Seconds
    """The whole backward pass, without recomputation."""
    weight: Seconds
    """Its part that computes weight gradients, which some schedules postpone."""
    recompute: Seconds
    """Forward work done again in the backward pass."""

    @property
    def forward(self) -> Seconds:
        """The whole forward pass, Eq. (7). [s]"""
        at_work = self.linear + self.attention + self.elementwise + self.tensor + self.context + self.expert
        return at_work + self.offload


def layer_times(workload: Workload, cluster: Cluster, strategy: Strategy) -> tuple[LayerTime, ...]:
    """Times of every kind of layer, Eqs. (7), (8), (30) and (32)."""
    model, rates = workload.model, achieved_rates(workload, cluster)
    moved = _offloaded(workload, cluster, strategy)
    times = {id(block): block_time(workload, cluster, strategy, rates, block) for block in model.blocks}
    return tuple(
        _layer(workload, cluster, strategy, rates, kind, [times[id(block)] for block in kind.blocks], size)
        for kind, size in zip(model.kinds, moved, strict=True)
    )


def _layer(
    workload: Workload,
    cluster: Cluster,
    strategy: Strategy,
    rates: Rates,
    layer: Layer,
    blocks: Sequence[BlockTime],
    moved: Bytes,
) -> LayerTime:
    s, c, k = strategy, cluster.calibration.compute, cluster.calibration.overlap
    precision = workload.training.precision
    stream = stream_time(workload, cluster, s, rates, layer)
    scale = c.layer_scale * (c.expert_scale if layer.routed else 1.0)
    linear = _sum(block.linear for block in blocks) * scale
    core = _sum(block.core for block in blocks) * scale
    elementwise = (stream + _sum(block.elementwise for block in blocks)) * scale
    elementwise = elementwise + _adapters(workload, s, rates, layer)
    trained = 0.0 if np.any(workload.training.adapter_rank) else 1.0  # no gradient is made of a frozen weight
    weight = trained * linear
    gathers = _sum(block.gathers for block in blocks)

    message = tokens_per_rank(workload, s) * workload.model.hidden * precision.activation
    path = collectives.path_between(cluster, s.tp, 1.0)
    one = collectives.all_gather_time(message, s.tp, path)
    regather = 0.5 * gathers if s.sequence_parallel else 0.0  # inputs of weight gradients are gathered again
    sent_forward, sent_backward = gathers * one, (gathers + regather) * one
    tail = k.tensor_overlapped if s.tensor_overlap else k.tensor
    tensor = overlap.tensor_exposed(sent_forward, linear, tail)
    tail_backward = k.tensor_overlapped if s.tensor_overlap else k.tensor_backward
    tensor_backward = overlap.tensor_exposed(sent_backward, linear + weight, tail_backward)

    ring = _sum(block.context for block in blocks)
    # Attention begins when all keys and values are there: nothing runs beside an all-gather.
    beside_ring = 0.0 if s.context_mode is ContextMode.ALL_GATHER else 1.0
    context = overlap.context_exposed(ring, beside_ring * core, s.cp, k.context)
    context_backward = overlap.context_exposed(
        2.0 * ring, beside_ring * (c.attention_backward * core), s.cp, k.context
    )
    dispatch = _sum(block.all_to_all for block in blocks)
    expert_tail = k.expert_overlapped if s.expert_overlap else 1.0
    # Forward of one micro-batch runs beside backward of another: each direction's messages see half of both.
    beside = 0.5 * (2.0 * linear + weight + (1.0 + c.attention_backward) * core + 3.0 * elementwise)
    expert = overlap.expert_exposed(dispatch, beside * float(s.expert_overlap), expert_tail)

    accumulate = (
        trained
        * _sum(block.parameters for block in blocks)
        * (2.0 * precision.gradient + precision.activation)
        / rates.memory
    )
    busy = linear + weight + c.attention_backward * core + 2.0 * elementwise + accumulate
    hidden = sent_backward - tensor_backward + dispatch - expert
    busy = overlap.slowed(busy, hidden, k.slow_down)
    forward_busy = overlap.slowed(linear, sent_forward - tensor + dispatch - expert, k.slow_down)
    again = {
        "core_attn": core,
        "layernorm": 0.25 * stream * scale,
        EACH: linear + elementwise,
        ALL: linear + elementwise + core,
    } | _modules(layer, blocks, scale, expert)
    forward = forward_busy + core + elementwise + tensor + context + expert
    backward = busy + tensor_backward + context_backward + expert
    recompute = _recomputed(s, again, forward)
    if layer.routed:
        # MemFine computes every chunk of the experts again, whatever else is recomputed; a layer that is recomputed as a
        # whole does so anyway. Leaves out: where only some layers are, these pay for their chunks twice.
        chunked = np.where(np.asarray(s.chunks) > 1, again["moe"], 0.0)
        if s.recompute is not Recompute.FULL:
            recompute = np.maximum(recompute, chunked)
        else:
            some = np.asarray(s.recompute_layers) > 0
            backward = backward + np.where(some, chunked, 0.0) * c.recompute_share
    transfer = moved / (cluster.host.link.bandwidth * cluster.calibration.links.host_link_efficiency)
    # Inputs of recomputed layers are copied in the order of the compute; transformers 5.23 says so of its `offload`.
    apart = 0.0 if LAYER_INPUT in s.offload else 1.0
    return LayerTime(
        linear=forward_busy,
        attention=core,
        elementwise=elementwise,
        tensor=tensor,
        context=context,
        expert=expert,
        offload=overlap.offload_exposed(transfer, apart * forward),
        communication=sent_forward + sent_backward + 3.0 * ring + 2.0 * dispatch,
        backward=backward + overlap.offload_exposed(transfer, apart * backward),
        weight=weight,
        recompute=recompute * c.recompute_share,
    )


def _sum(terms: Iterable[Seconds]) -> Seconds:
    return sum(terms, 0.0)


def _modules(layer: Layer, blocks: Sequence[BlockTime], scale: Ratio, expert: Seconds) -> dict[str, Seconds]:
    """Forward time of the modules that a layer's blocks have, by name. [s]"""
    found: dict[str, Seconds] = {}
    for block, time in zip(layer.blocks, blocks, strict=True):
        for name, part in block.again.items():
            own = (part.linear * time.linear + part.elementwise * time.elementwise) * scale
            found[name] = found.get(name, 0.0) + (own + expert if part.exchange else own)
        for name, product in time.again.items():
            found[name] = found.get(name, 0.0) + product * scale
    return found


def _adapters(workload: Workload, s: Strategy, rates: Rates, layer: Layer) -> Seconds:
    """Passing the adapters of a layer, forward; they are so narrow that memory decides. [s]"""
    if not np.any(workload.training.adapter_rank):
        return 0.0
    elements = tokens_per_rank(workload, s) * adapters.adapter_traffic(layer, workload.model.hidden) / s.tp
    return compute.elementwise_time(elements * workload.training.precision.activation, rates.memory)


def _offloaded(workload: Workload, cluster: Cluster, strategy: Strategy) -> list[Bytes]:
    """What one layer of each kind sends to the host and takes back. [B]"""
    if not strategy.offload:
        return [0.0 for _ in workload.model.kinds]
    whole = ACTIVATIONS in strategy.offload
    found = []
    for layer in stored_layers(workload, cluster.calibration.memory, strategy):
        moved = layer.kept - layer.input if whole else layer.moved
        if strategy.recompute is Recompute.FULL:  # a recomputed layer keeps its input only
            some = np.asarray(strategy.recompute_layers) > 0
            own = layer.input if LAYER_INPUT in strategy.offload else 0.0
            moved = np.where(some, moved, 0.0) + own
        found.append(moved)
    return found


def _recomputed(strategy: Strategy, modules: dict[str, Seconds], everything: Seconds) -> Seconds:
    """Forward time that a recomputed layer pays again, Eqs. (30) and (32). [s]

    Departs from the paper: tensor-parallel collectives inside the recomputed forward are paid again as well.
    """
    if strategy.recompute is Recompute.FULL:
        return everything
    if strategy.recompute is Recompute.SELECTIVE:
        # Modules may contain each other; nothing is computed more than once again.
        named = sorted(strategy.recompute_modules & modules.keys())
        return np.minimum(_sum(modules[name] for name in named), everything)
    return 0.0
