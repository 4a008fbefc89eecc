"""Time of one layer on one device, term by term, Eqs. (7) and (8)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from mofa_model.blocks import Layer
from mofa_model.blocks.block import ALL, EACH
from mofa_model.equations import adapters, collectives, compute, overlap
from mofa_model.estimate.again import chunks_again, exchanges_again, modules_again, recomputed
from mofa_model.estimate.blocks import BlockTime, block_times, stream_time, tokens_per_rank
from mofa_model.estimate.operators import Rates, achieved_rates
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
        at_work = (
            self.linear
            + self.attention
            + self.elementwise
            + self.tensor
            + self.context
            + self.expert
        )
        return at_work + self.offload


def layer_times(
    workload: Workload,
    cluster: Cluster,
    strategy: Strategy,
    priced: Sequence[BlockTime] | None = None,
) -> tuple[LayerTime, ...]:
    """Times of every kind of layer, Eqs. (7), (8), (30) and (32); `priced` are those of the blocks, where they are known."""
    model, rates = workload.model, achieved_rates(workload, cluster)
    moved = _offloaded(workload, cluster, strategy)
    if priced is None:
        priced = block_times(workload, cluster, strategy)
    times = {id(block): time for block, time in zip(model.blocks, priced, strict=True)}
    return tuple(
        _layer(
            workload,
            cluster,
            strategy,
            rates,
            kind,
            [times[id(block)] for block in kind.blocks],
            size,
        )
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
    s, precision = strategy, workload.training.precision
    c, k = cluster.calibration.compute, cluster.calibration.overlap
    stream = stream_time(workload, cluster, s, rates, layer)
    scale = c.layer_scale * (c.expert_scale if layer.routed else 1.0)
    linear = _sum(block.linear for block in blocks) * scale
    core = _sum(block.core for block in blocks) * scale
    moves = (stream + _sum(block.elementwise for block in blocks)) * scale
    elementwise = moves + _adapters(workload, s, rates, layer)
    trained = (
        0.0 if np.any(workload.training.adapter_rank) else 1.0
    )  # no gradient is made of a frozen weight
    weight = trained * linear

    message = tokens_per_rank(workload, s) * workload.model.hidden * precision.activation
    one = collectives.all_gather_time(message, s.tp, collectives.path_between(cluster, s.tp, 1.0))
    gathers = _sum(block.gathers for block in blocks)
    regather = (
        0.5 * gathers if s.sequence_parallel else 0.0
    )  # inputs of weight gradients are gathered again
    sent_forward, sent_backward = gathers * one, (gathers + regather) * one
    tails = (k.tensor_overlapped,) * 2 if s.tensor_overlap else (k.tensor, k.tensor_backward)
    tensor = overlap.tensor_exposed(sent_forward, linear, tails[0])
    tensor_backward = overlap.tensor_exposed(sent_backward, linear + weight, tails[1])

    ring, dispatch = (
        _sum(block.context for block in blocks),
        _sum(block.all_to_all for block in blocks),
    )
    # Attention begins when all keys and values are there: nothing runs beside an all-gather.
    beside_ring = 0.0 if s.context_mode is ContextMode.ALL_GATHER else 1.0
    context = overlap.context_exposed(ring, beside_ring * core, s.cp, k.context)
    context_backward = overlap.context_exposed(
        2.0 * ring, beside_ring * (c.attention_backward * core), s.cp, k.context
    )

    forward_work, more = linear + elementwise + core, exchanges_again(s, layer)

    covered = sent_forward - tensor + ring - context  # what runs beside other messages, forward
    covered_twice = covered + sent_backward - tensor_backward + 2.0 * ring - context_backward

    def exposed(again: Seconds, more: Ratio) -> Seconds:
        """What is left of one pass of the exchange, of which there are two and `more`, beside all work and what is done again.

        Work that hides other messages hides none of these.
        """
        beside = (
            2.0 * linear
            + weight
            + (1.0 + c.attention_backward) * core
            + 3.0 * elementwise
            - covered_twice
        )
        beside = (beside + more * c.recompute_share * again) / (2.0 + more * c.recompute_share)
        tail = k.expert_overlapped if s.expert_overlap else 1.0
        return overlap.expert_exposed(dispatch, beside * float(s.expert_overlap), tail)

    def again(expert: Seconds, everything: Seconds) -> Seconds:
        """Forward work that a layer does again which does not do it as a whole."""
        modules = {
            "core_attn": core,
            "layernorm": 0.25 * stream * scale,
            EACH: linear + elementwise,
            ALL: forward_work,
        } | modules_again(layer, blocks, scale, expert)
        chunks = chunks_again(layer, blocks, scale, expert)
        return recomputed(s, layer, modules, chunks, expert, everything)

    # Passes of one micro-batch run beside those of another: the messages of each pass see their share of all work.
    expert = exposed(again(0.0, forward_work) if s.expert_overlap else 0.0, more)
    accumulate = (
        trained
        * _sum(block.parameters for block in blocks)
        * (2.0 * precision.gradient + precision.activation)
        / rates.memory
    )
    busy = linear + weight + c.attention_backward * core + 2.0 * elementwise + accumulate
    busy = overlap.slowed(busy, sent_backward - tensor_backward + dispatch - expert, k.slow_down)
    forward_busy = overlap.slowed(linear, sent_forward - tensor + dispatch - expert, k.slow_down)
    forward = forward_busy + core + elementwise + tensor + context + expert
    backward = busy + tensor_backward + context_backward + expert
    recompute = again(expert, forward) * c.recompute_share
    transfer = moved / (
        cluster.host.link.bandwidth * cluster.calibration.links.host_link_efficiency
    )
    # Inputs of recomputed layers are copied in the order of the compute; transformers 5.23 says so of its `offload`.
    apart = 0.0 if LAYER_INPUT in s.offload else 1.0
    waits = overlap.offload_exposed(transfer, apart * backward)
    if s.recompute is Recompute.FULL:
        # A layer that does everything again has a pass of the exchange more, and more work for all three to hide behind.
        backward, left = backward + recompute, exposed(forward_work - covered, 1.0)
        whole = forward_busy + core + elementwise + tensor + context + left
        # Its chunks, which are not computed again apart, hid what comes from the host.
        alone, waits = waits, overlap.offload_exposed(transfer, apart * backward)
        recompute = whole * c.recompute_share + 2.0 * (left - expert) - recompute + (alone - waits)
    return LayerTime(
        linear=forward_busy,
        attention=core,
        elementwise=elementwise,
        tensor=tensor,
        context=context,
        expert=expert,
        offload=overlap.offload_exposed(transfer, apart * forward),
        communication=sent_forward + sent_backward + 3.0 * ring + 2.0 * dispatch,
        backward=backward + waits,
        weight=weight,
        recompute=recompute,
    )


def _sum(terms: Iterable[Seconds]) -> Seconds:
    return sum(terms, 0.0)


def _adapters(workload: Workload, s: Strategy, rates: Rates, layer: Layer) -> Seconds:
    """Passing the adapters of a layer, forward; they are so narrow that memory decides. [s]"""
    if not np.any(workload.training.adapter_rank):
        return 0.0
    elements = (
        tokens_per_rank(workload, s) * adapters.adapter_traffic(layer, workload.model.hidden) / s.tp
    )
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
