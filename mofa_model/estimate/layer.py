"""Time of one transformer layer on one device, term by term, Eqs. (7) and (8)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mofa_model.equations import collectives, overlap
from mofa_model.estimate.blocks import (
    HalfLayer,
    Rates,
    achieved_rates,
    attention_part,
    expert_part,
    ffn_part,
    tokens_per_rank,
)
from mofa_model.estimate.stored import stored_layers
from mofa_model.spec import Cluster, LatentAttention, Workload
from mofa_model.strategy import ACTIVATIONS, LAYER_INPUT, ContextMode, Recompute, Strategy
from mofa_model.units import Bytes, Seconds


@dataclass(frozen=True, slots=True)
class LayerTime:
    """One layer and one micro-batch on one device; forward times unless said otherwise. [s]"""

    linear: Seconds
    """Matrix products with weights."""
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


def layer_times(
    workload: Workload, cluster: Cluster, strategy: Strategy
) -> tuple[LayerTime, LayerTime | None]:
    """Times of a layer with a plain FFN and, in a mixture of experts, of one with experts."""
    model, rates = workload.model, achieved_rates(workload, cluster)
    attention = attention_part(workload, cluster, strategy, rates)
    dense = ffn_part(workload, cluster, strategy, rates, model.ffn)
    stored, stored_experts = _offloaded(workload, cluster, strategy)
    plain = _layer(workload, cluster, strategy, rates, attention, dense, stored, experts=False)
    if model.experts is None:
        return plain, None
    routed = expert_part(workload, cluster, strategy, rates, model.experts)
    return plain, _layer(workload, cluster, strategy, rates, attention, routed, stored_experts, experts=True)


def _layer(
    workload: Workload,
    cluster: Cluster,
    strategy: Strategy,
    rates: Rates,
    first: HalfLayer,
    second: HalfLayer,
    moved: Bytes,
    *,
    experts: bool,
) -> LayerTime:
    s, c, k = strategy, cluster.calibration.compute, cluster.calibration.overlap
    precision = workload.training.precision
    scale = c.layer_scale * (c.expert_scale if experts else 1.0)
    linear = (first.linear + second.linear) * scale
    core = first.core * scale
    elementwise = (first.elementwise + second.elementwise) * scale
    gathers = first.collectives + second.collectives

    message = tokens_per_rank(workload, s) * workload.model.hidden * precision.activation
    path = collectives.path_between(cluster, s.tp, 1.0)
    one = collectives.all_gather_time(message, s.tp, path)
    regather = 0.5 * gathers if s.sequence_parallel else 0.0  # inputs of weight gradients are gathered again
    sent_forward, sent_backward = gathers * one, (gathers + regather) * one
    tail = k.tensor_overlapped if s.tensor_overlap else k.tensor
    tensor = overlap.tensor_exposed(sent_forward, linear, tail)
    tail_backward = k.tensor_overlapped if s.tensor_overlap else k.tensor_backward
    tensor_backward = overlap.tensor_exposed(sent_backward, 2.0 * linear, tail_backward)

    ring = _context_message(workload, cluster, s)
    context = overlap.context_exposed(ring, core, s.cp, k.context)
    context_backward = overlap.context_exposed(2.0 * ring, c.attention_backward * core, s.cp, k.context)
    dispatch = second.all_to_all
    expert_tail = k.expert_overlapped if s.expert_overlap else 1.0
    # Forward of one micro-batch runs beside backward of another: each direction's messages see half of both.
    beside = 0.5 * (3.0 * linear + (1.0 + c.attention_backward) * core + 3.0 * elementwise)
    expert = overlap.expert_exposed(dispatch, beside * float(s.expert_overlap), expert_tail)

    accumulate = (
        (first.parameters + second.parameters)
        * (2.0 * precision.gradient + precision.activation)
        / rates.memory
    )
    busy = 2.0 * linear + c.attention_backward * core + 2.0 * elementwise + accumulate
    hidden = sent_backward - tensor_backward + dispatch - expert
    busy = overlap.slowed(busy, hidden, k.slow_down)
    forward_busy = overlap.slowed(linear, sent_forward - tensor + dispatch - expert, k.slow_down)
    again = {
        "core_attn": core,
        "layernorm": 0.25 * first.elementwise * scale,
        "mlp": (second.linear + second.elementwise) * scale,
        "mlp_act": 0.5 * second.elementwise * scale,
        "moe": (second.linear + second.elementwise) * scale + expert if experts else 0.0,
        "moe_act": 0.25 * second.elementwise * scale,
        "mla_up_proj": first.up_projection * scale,
        "per_op": linear + elementwise,
        "all_but_attention_output": linear + elementwise + core,
    }
    forward = forward_busy + core + elementwise + tensor + context + expert
    backward = busy + tensor_backward + context_backward + expert
    recompute = _recomputed(s, again, forward)
    if experts:
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
        weight=linear,
        recompute=recompute * c.recompute_share,
    )


def _offloaded(workload: Workload, cluster: Cluster, strategy: Strategy) -> tuple[Bytes, Bytes]:
    """What one layer sends to the host and takes back, plain and with experts. [B]"""
    kinds = stored_layers(workload, cluster.calibration.memory, strategy) if strategy.offload else ()
    whole = ACTIVATIONS in strategy.offload
    moved = [
        0.0 if layer is None else layer.kept - layer.input if whole else layer.moved for layer in kinds
    ] or [0.0, 0.0]
    if strategy.recompute is Recompute.FULL:  # a recomputed layer keeps its input only
        inputs = [0.0 if layer is None else layer.input for layer in kinds]
        moves = LAYER_INPUT in strategy.offload
        some = np.asarray(strategy.recompute_layers) > 0
        moved = [
            np.where(some, size, 0.0) + (own if moves else 0.0)
            for size, own in zip(moved, inputs or moved, strict=True)
        ]
    return moved[0], moved[1]


def _recomputed(strategy: Strategy, modules: dict[str, Seconds], everything: Seconds) -> Seconds:
    """Forward time that a recomputed layer pays again, Eqs. (30) and (32). [s]

    Departs from the paper: tensor-parallel collectives inside the recomputed forward are paid again as well.
    """
    if strategy.recompute is Recompute.FULL:
        return everything
    if strategy.recompute is Recompute.SELECTIVE:
        # Modules may contain each other; nothing is computed more than once again.
        return np.minimum(
            sum((modules[name] for name in sorted(strategy.recompute_modules)), 0.0), everything
        )
    return 0.0


def _context_message(workload: Workload, cluster: Cluster, strategy: Strategy) -> Seconds:
    """Time of the forward messages of context parallelism. [s]

    A ring passes the keys and values of c - 1 other ranks; all-to-all moves queries, keys, values and outputs once.
    """
    a, s = workload.model.attention, strategy
    width = workload.training.precision.activation
    path = collectives.path_between(cluster, s.cp, s.tp)
    tokens = tokens_per_rank(workload, s)
    if isinstance(a, LatentAttention):
        kv = a.heads * (a.nope_dim + a.rope_dim + a.value_dim) / s.tp
        qo = kv
    else:
        kv, qo = 2 * a.kv_heads * a.head_dim / s.tp, 2 * a.heads * a.head_dim / s.tp
    size: Bytes = tokens * width * kv
    if s.context_mode is ContextMode.ALL_TO_ALL:
        return tokens * width * (kv + qo) * (s.cp - 1.0) / s.cp / path.bandwidth
    return collectives.all_gather_time(size * s.cp, s.cp, path)
