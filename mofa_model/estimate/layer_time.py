"""Time of one layer on one device, term by term, Eqs. (7) and (8), and its forward work that the
backward pass does again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.blocks import Layer
from mofa_model.blocks.block import ALL, EACH
from mofa_model.checks import anything
from mofa_model.equations import collectives, compute, overlap, parameters
from mofa_model.estimate.activation_memory import StoredLayer, stored_layers
from mofa_model.estimate.block_time import (
    BlockTime,
    block_times,
    memory_rate,
    stream_time,
    tokens_per_rank,
)
from mofa_model.estimate.terms import LayerTime
from mofa_model.records import dataclass, varied
from mofa_model.spec import Cluster, ComputeConstants, Workload
from mofa_model.strategy import ACTIVATIONS, LAYER_INPUT, ContextMode, Recompute, Sharding, Strategy
from mofa_model.units import Bytes, Ratio, Seconds

_INSIDE_CHUNKS: Final = frozenset({"mlp_act", "moe_act"})
"""Modules that chunks of experts contain."""
_AROUND_CHUNKS: Final = frozenset({"mlp", "moe", EACH, ALL})
"""Modules that contain the chunks."""
_WITHIN: Final[Mapping[str, frozenset[str]]] = {
    "core_attn": frozenset({ALL}),
    "layernorm": frozenset({EACH, ALL}),
    "mla_up_proj": frozenset({EACH, ALL}),
    "mlp": frozenset({"moe", EACH, ALL}),
    "mlp_act": _AROUND_CHUNKS,
    "moe_act": _AROUND_CHUNKS,
    EACH: frozenset({ALL}),
}
"""Modules that contain another whole."""


@dataclass(frozen=True, eq=False)
class LayerWork:
    """Times of one layer's forward work and messages. Recomputation, copies to the host and what
    other micro-batches hide are not in them yet. [s]
    """

    layer: Layer
    block_times: tuple[BlockTime, ...]
    scale: Ratio
    """Factor by which the times of blocks and stream are multiplied. [1]"""
    stream: Seconds
    """Time of norms, of residual additions, and of other work on tensors of the hidden size. [s]"""
    linear: Seconds
    core_time: Seconds
    elementwise: Seconds
    weight_gradients: Seconds
    """Time of the products that make weight gradients. [s]"""
    sent_forward: Seconds
    """Time of the messages between tensor ranks. [s]"""
    sent_backward: Seconds
    tensor: Seconds
    """Time of these messages that compute does not hide. [s]"""
    tensor_backward: Seconds
    ring: Seconds
    """Time of the messages between context ranks. [s]"""
    ring_exposed: Seconds
    """Time of these messages that compute does not hide. [s]"""
    ring_exposed_backward: Seconds
    dispatch: Seconds
    """Time of the messages between expert ranks. [s]"""
    accumulate: Seconds
    """Time to add this micro-batch's gradients to their sum. [s]"""


WORK_FEATURES: Final = ("sequence_parallel", "tensor_overlap")
"""Features of a strategy on which a `LayerWork` depends, beside its shape."""


def layer_works(
    workload: Workload, cluster: Cluster, strategy: Strategy, times_of_blocks: Sequence[BlockTime]
) -> tuple[LayerWork, ...]:
    """Work of every kind of layer, from the times of all blocks of the model."""
    times = {
        id(block): time for block, time in zip(workload.model.blocks, times_of_blocks, strict=True)
    }
    precision = workload.training.precision
    # Half of the messages gather inputs, half scatter sums. Inputs are gathered as narrow as the
    # products read them, sums are not. Source: Transformer Engine, gather_along_first_dim; torchao,
    # Float8ColwiseParallel.
    gather = scatter = _tensor_message(workload, cluster, strategy, precision.activation)
    if strategy.sequence_parallel and precision.gathered != precision.activation:
        gather = _tensor_message(workload, cluster, strategy, precision.gathered)
    return tuple(
        _work(
            workload,
            cluster,
            strategy,
            kind,
            tuple(times[id(block)] for block in kind.blocks),
            gather,
            scatter,
        )
        for kind in workload.model.kinds
    )


def _work(
    workload: Workload,
    cluster: Cluster,
    strategy: Strategy,
    layer: Layer,
    blocks: tuple[BlockTime, ...],
    gather: Seconds,
    scatter: Seconds,
) -> LayerWork:
    """The work of one layer by kind, and the messages of its tensor and context parallelism."""
    s, precision = strategy, workload.training.precision
    c, k = cluster.calibration.compute, cluster.calibration.overlap
    stream = stream_time(workload, cluster, s, layer)
    scale = _scale(workload, c, layer)
    linear = _sum(block.linear for block in blocks) * scale
    core = _sum(block.core_seconds for block in blocks) * scale
    elementwise = (stream + _sum(block.elementwise for block in blocks)) * scale
    elementwise = elementwise + _adapter_time(workload, cluster, s, layer)
    # No gradient is made of a frozen weight.
    trained = 1.0 if workload.training.adapters is None else 0.0
    weight = trained * linear

    # With sequence parallelism the inputs of weight gradients are gathered again.
    halves = 0.5 * _sum(block.gathers for block in blocks)
    sent_forward = halves * (gather + scatter)
    sent_backward = sent_forward + halves * gather * float(s.sequence_parallel)
    tails = (k.tensor_overlapped,) * 2 if s.tensor_overlap else (k.tensor, k.tensor_backward)

    ring = _sum(block.context_seconds for block in blocks)
    # Attention begins when all keys and values are there: nothing runs beside an all-gather.
    beside_ring = 0.0 if s.context_mode is ContextMode.ALL_GATHER else 1.0
    return LayerWork(
        layer=layer,
        block_times=blocks,
        scale=scale,
        stream=stream,
        linear=linear,
        core_time=core,
        elementwise=elementwise,
        weight_gradients=weight,
        sent_forward=sent_forward,
        sent_backward=sent_backward,
        tensor=overlap.tensor_exposed(sent_forward, linear, tails[0]),
        tensor_backward=overlap.tensor_exposed(sent_backward, linear + weight, tails[1]),
        ring=ring,
        ring_exposed=overlap.context_exposed(ring, beside_ring * core, s.cp, k.context),
        ring_exposed_backward=overlap.context_exposed(
            2.0 * ring, beside_ring * (c.attention_backward * core), s.cp, k.context
        ),
        dispatch=_sum(block.all_to_all for block in blocks),
        accumulate=(
            trained
            * _sum(block.parameters for block in blocks)
            * (2.0 * precision.gradient + precision.activation)
            / memory_rate(cluster)
        ),
    )


def layer_times(
    workload: Workload,
    cluster: Cluster,
    strategy: Strategy,
    works: Sequence[LayerWork] | None = None,
    stored_layers: Sequence[StoredLayer] | None = None,
) -> tuple[LayerTime, ...]:
    """Times of every kind of layer, Eqs. (7), (8), (30) and (32); `works` and what is stored
    where they are known.
    """
    if works is None:
        blocks = block_times(workload, cluster, strategy)
        works = layer_works(workload, cluster, strategy, blocks)
    transfers = _host_transfers(workload, cluster, strategy, stored_layers)
    return tuple(
        _layer(cluster, strategy, work, transfer)
        for work, transfer in zip(works, transfers, strict=True)
    )


def _layer(cluster: Cluster, strategy: Strategy, work: LayerWork, transfer: Seconds) -> LayerTime:
    """Times of one layer's forward and backward pass, with the messages that no work hides."""
    s, layer, blocks, scale = strategy, work.layer, work.block_times, work.scale
    c, k = cluster.calibration.compute, cluster.calibration.overlap
    linear, core, elementwise, weight = (
        work.linear,
        work.core_time,
        work.elementwise,
        work.weight_gradients,
    )
    sent_forward, sent_backward = work.sent_forward, work.sent_backward
    tensor, tensor_backward = work.tensor, work.tensor_backward
    ring, context, context_backward = work.ring, work.ring_exposed, work.ring_exposed_backward
    dispatch = work.dispatch
    forward_work, more_passes = linear + elementwise + core, exchanges_again(s, layer)

    # Work that hides other messages, which take this time, hides no exchange of tokens.
    hidden = sent_forward - tensor + ring - context
    hidden_in_both = hidden + sent_backward - tensor_backward + 2.0 * ring - context_backward

    def exposed(recomputed_work: Seconds, more: Ratio) -> Seconds:
        """Exposed time of one pass of the exchange, of 2 + `more` passes, beside all work and the
        recomputed work.
        """
        beside = (
            2.0 * linear
            + weight
            + (1.0 + c.attention_backward) * core
            + 3.0 * elementwise
            - hidden_in_both
        )
        beside = (beside + more * c.recompute_share * recomputed_work) / (
            2.0 + more * c.recompute_share
        )
        tail = k.expert_overlapped if s.expert_overlap else 1.0
        return overlap.expert_exposed(dispatch, beside * float(s.expert_overlap), tail)

    def repeated(expert: Seconds, everything: Seconds) -> Seconds:
        """Forward work done again by a layer that is not recomputed as a whole."""
        modules = {
            "core_attn": core,
            "layernorm": 0.25 * work.stream * scale,
            EACH: linear + elementwise,
            ALL: forward_work,
        } | modules_again(layer, blocks, scale, expert)
        chunks = chunks_again(layer, blocks, scale, expert)
        return recomputed(s, layer, modules, chunks, expert, everything)

    # Passes of one micro-batch run beside those of another: the messages of each pass see their
    # share of all work.
    expert = exposed(repeated(0.0, forward_work) if s.expert_overlap else 0.0, more_passes)
    backward_busy = (
        linear + weight + c.attention_backward * core + 2.0 * elementwise + work.accumulate
    )
    backward_busy = overlap.slowed(
        backward_busy, sent_backward - tensor_backward + dispatch - expert, k.slow_down
    )
    forward_busy = overlap.slowed(linear, sent_forward - tensor + dispatch - expert, k.slow_down)
    forward = forward_busy + core + elementwise + tensor + context + expert
    backward = backward_busy + tensor_backward + context_backward + expert
    recompute = repeated(expert, forward) * c.recompute_share
    # Inputs of recomputed layers are copied in the order of the compute; transformers 5.23 says so
    # of its `offload`.
    apart = 0.0 if LAYER_INPUT in s.offload else 1.0
    waits = overlap.offload_exposed(transfer, apart * backward)
    if s.recompute is Recompute.FULL:
        # A recomputed layer has one more pass of the exchange, and more work for all three to hide
        # behind.
        backward, expert_again = backward + recompute, exposed(forward_work - hidden, 1.0)
        whole = forward_busy + core + elementwise + tensor + context + expert_again
        # Its chunks, which are not computed again apart, hid transfers from the host.
        alone, waits = waits, overlap.offload_exposed(transfer, apart * backward)
        recompute = (
            whole * c.recompute_share + 2.0 * (expert_again - expert) - recompute + (alone - waits)
        )
    return LayerTime(
        linear=forward_busy,
        attention=core,
        elementwise=elementwise,
        tensor=tensor,
        context=context,
        expert=expert,
        offload=overlap.offload_exposed(transfer, apart * forward),
        forward=forward + overlap.offload_exposed(transfer, apart * forward),
        communication=sent_forward + sent_backward + 3.0 * ring + 2.0 * dispatch,
        backward=backward + waits,
        weight=weight,
        recompute=recompute,
    )


def _scale(workload: Workload, c: ComputeConstants, layer: Layer) -> Ratio:
    """Device time of a layer over the ideal one, on a release or beside adapters. [1]"""
    scale = c.layer_scale * (c.expert_scale if layer.routed else 1.0)
    return scale if workload.training.adapters is None else scale * c.frozen_scale


def _tensor_message(workload: Workload, cluster: Cluster, s: Strategy, width: Bytes) -> Seconds:
    """A gather of a layer's inputs among tensor ranks, or a scatter of sums, in elements of such a
    width. [s]
    """
    size = tokens_per_rank(workload, s) * workload.model.hidden * width
    traffic = 2.0 * size * cluster.calibration.links.message_copies
    copies = compute.elementwise_time(traffic, memory_rate(cluster))
    sent = collectives.all_gather_time(cluster, size, s.tp, 1.0)
    return sent + np.where(np.asarray(s.tp) > 1, copies, 0.0)


def _sum(terms: Iterable[Seconds]) -> Seconds:
    return sum(terms, 0.0)


def _adapter_time(workload: Workload, cluster: Cluster, s: Strategy, layer: Layer) -> Seconds:
    """Forward pass of a layer's adapters, which are so narrow that memory traffic decides, and of
    experts that wait for the host. [s]
    """
    adapters, h = workload.training.adapters, workload.model.hidden
    if adapters is None:
        return 0.0
    tokens = tokens_per_rank(workload, s)
    elements = tokens * parameters.adapter_traffic(layer, h, adapters) / s.tp
    visits: Seconds = 0.0
    for exchange in filter(None, (block.exchange() for block in layer.blocks)):
        width = parameters.adapter_traffic(layer, h, adapters, routed=True)
        elements = elements + tokens * exchange.top_k * width / s.tp
        visits = visits + cluster.calibration.host.expert_visit * exchange.count / s.ep
    passes = cluster.calibration.compute.adapter_passes
    traffic = passes * elements * workload.training.precision.activation
    return visits + compute.elementwise_time(traffic, memory_rate(cluster))


def _host_transfers(
    workload: Workload, cluster: Cluster, strategy: Strategy, stored: Sequence[StoredLayer] | None
) -> list[Seconds]:
    """Time in which one layer of each kind sends activations to the host, or takes them
    back. [s]
    """
    if not strategy.offload:
        return [0.0 for _ in workload.model.kinds]
    link = cluster.host.link.bandwidth * cluster.calibration.links.host_link_efficiency
    times = []
    # Sharding changes nothing of a layer's time, so the casts of each product are not counted here.
    plain = varied(strategy, sharding=Sharding.OPTIMIZER)
    for layer in stored or stored_layers(workload, cluster.calibration.memory, plain):
        moved = layer.stored - layer.input if ACTIVATIONS in strategy.offload else layer.offloaded
        if strategy.recompute is Recompute.FULL:  # a recomputed layer keeps its input only
            partly = np.asarray(strategy.recompute_layers) > 0
            layer_input = layer.input if LAYER_INPUT in strategy.offload else 0.0
            moved = np.where(partly, moved, 0.0) + layer_input
        times.append(moved / link)
    return times


def in_chunks(strategy: Strategy, layer: Layer) -> NDArray[np.bool_]:
    """Whether the experts of a layer run in chunks, each of which is computed again. Source:
    MemFine. []

    A layer that is recomputed as a whole does not compute its chunks again apart.
    """
    s = strategy
    chunked = (np.asarray(s.chunks) > 1) & layer.routed
    if s.recompute is Recompute.FULL:
        return chunked & (np.asarray(s.recompute_layers) > 0)
    return chunked


def exchanges_again(strategy: Strategy, layer: Layer) -> Ratio:
    """Passes of the experts' exchange beyond two, in a layer that is not recomputed as a
    whole. [1]
    """
    exchanges = any(
        share.exchange and name in strategy.recompute_modules
        for block in layer.blocks
        for name, share in block.recomputed_work.items()
    )
    selective = strategy.recompute is Recompute.SELECTIVE and exchanges
    return np.where(in_chunks(strategy, layer), 1.0, float(selective))


def modules_again(
    layer: Layer, block_times: Sequence[BlockTime], scale: Ratio, expert: Seconds
) -> dict[str, Seconds]:
    """Forward time of each module that the blocks of a layer have. `expert` is the exposed time of
    an exchange. [s]
    """
    times: dict[str, Seconds] = {}
    for block, time in zip(layer.blocks, block_times, strict=True):
        for name, share in block.recomputed_work.items():
            time_again = (share.linear * time.linear + share.elementwise * time.elementwise) * scale
            times[name] = times.get(name, 0.0) + (
                time_again + expert if share.exchange else time_again
            )
        for name, product in time.recomputed_seconds.items():
            times[name] = times.get(name, 0.0) + product * scale
    return times


def chunks_again(
    layer: Layer, block_times: Sequence[BlockTime], scale: Ratio, expert: Seconds
) -> Seconds:
    """Forward time of the chunks of a layer's experts: dispatch, experts, combine. Source:
    MemFine. [s]
    """
    return (
        sum((block.routed for block in block_times), 0.0) * scale + expert if layer.routed else 0.0
    )


def recomputed(
    strategy: Strategy,
    layer: Layer,
    modules: Mapping[str, Seconds],
    chunks: Seconds,
    expert: Seconds,
    everything: Seconds,
) -> Seconds:
    """Forward time done again by a layer that is not recomputed as a whole, Eqs. (30) and (32). [s]

    Departs from the paper: tensor-parallel collectives inside the recomputed forward are paid again
    as well.
    """
    selected = (
        strategy.recompute_modules & modules.keys()
        if strategy.recompute is Recompute.SELECTIVE
        else set()
    )
    # Modules may contain each other. Work of the inner one is not counted twice.
    names = {name for name in selected if not (selected & _WITHIN.get(name, frozenset()))}
    modules_time = np.minimum(sum((modules[name] for name in sorted(names)), 0.0), everything)
    chunked = in_chunks(strategy, layer)
    if not anything(chunked):
        return modules_time
    modules_and_chunks = sum((modules[name] for name in sorted(names - _INSIDE_CHUNKS)), 0.0)
    if "moe" not in names:
        modules_and_chunks = modules_and_chunks + (expert if names & _AROUND_CHUNKS else chunks)
    return np.where(chunked, np.minimum(modules_and_chunks, everything), modules_time)
