"""What comes and goes with micro-batches: activations, what the backward pass makes anew, the loss.

Of the optimizer's sharding nothing here depends but the width of the head's gradient.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from mofa_model.equations import activations, memory, offload
from mofa_model.estimate.blocks import tokens_per_rank
from mofa_model.estimate.resident import ends_on, layers_on
from mofa_model.estimate.routing import in_chunks_and_whole
from mofa_model.estimate.stored import StoredLayer, stored_layers
from mofa_model.placement import Stages
from mofa_model.spec import Cluster, MemoryConstants, Workload
from mofa_model.strategy import ACTIVATIONS, LAYER_INPUT, Graphs, Recompute, Sharding, Strategy
from mofa_model.units import Bytes, Ratio


@dataclass(frozen=True, kw_only=True, slots=True)
class Live:
    """Memory per device at the peak of a micro-batch; terms broadcast to [K, ...]. [B]"""

    activations: Bytes
    """Activations of the micro-batches in flight, Eqs. (5), (29), (31), (33)."""
    backward: Bytes
    """What the backward pass of one layer makes anew, recomputed activations included, above what the loss held before."""
    logits: Bytes
    """Head and loss: input, logits and their copies, gradient of the head's weights."""
    fragmentation: Bytes
    """Reserved by the allocator beyond what is allocated."""
    graphs: Bytes
    """Held by CUDA graphs and shared with nothing else."""
    parked: Bytes
    """Activations in the host, of one device."""

    @property
    def total(self) -> Bytes:
        """All of it on the device, [K, ...]. [B]"""
        return self.activations + self.backward + self.logits + self.fragmentation + self.graphs


@dataclass(frozen=True, slots=True)
class Waiting:
    """Activations alone; terms broadcast to [K, ...]. [B]"""

    stored: Bytes
    """Of the micro-batches in flight."""
    backward: Bytes
    """Made anew by the backward pass of one layer."""
    parked: Bytes
    """In the host, of one device."""
    captured: Bytes
    """Fixed inputs and outputs of layers in CUDA graphs."""


def live(workload: Workload, cluster: Cluster, strategy: Strategy, stages: Stages) -> Live:
    """What comes and goes, on every kind of stage."""
    layers = stored_layers(workload, cluster.calibration.memory, strategy)
    if np.any(strategy.chunk_layers):
        layers += stored_layers(workload, cluster.calibration.memory, replace(strategy, chunks=1))
    return with_loss(
        workload, cluster, strategy, stages, waiting(workload, strategy, stages, layers)
    )


def with_loss(
    workload: Workload, cluster: Cluster, strategy: Strategy, stages: Stages, activations: Waiting
) -> Live:
    """Head and loss beside activations."""
    constants = cluster.calibration.memory
    logits = ends_on(strategy, stages)[1] * _loss(workload, constants, strategy)
    backward = memory.beyond_loss(activations.backward, logits)
    cached = memory.tensor_buffer(
        tokens_per_rank(workload, strategy),
        workload.model.hidden,
        strategy.tp,
        width=workload.training.precision.activation,
        copies=constants.cached_gathers,
    )
    return Live(
        activations=activations.stored,
        backward=backward,
        logits=logits,
        fragmentation=constants.fragmentation * (activations.stored + backward + logits) + cached,
        # A graph of the whole iteration has a workspace of its own beside that of what runs outside.
        graphs=activations.captured
        + (backward + logits if strategy.graphs is Graphs.FULL else 0.0),
        parked=activations.parked,
    )


def waiting(
    workload: Workload, strategy: Strategy, stages: Stages, kinds: tuple[StoredLayer, ...]
) -> Waiting:
    """Activations on every kind of stage, from those of every kind of layer, Eqs. (5), (29), (31), (33).

    Behind them `kinds` has the same with whole experts, where not all layers of a stage run in chunks.
    """
    s, held = strategy, layers_on(workload, stages)
    if len(kinds) > len(held):
        held = in_chunks_and_whole(workload, s, stages, held)
    micro_batches = workload.training.global_batch / s.global_micro_batch
    chunks = s.schedule.in_flight(
        position=stages.position, microbatches=micro_batches, stages=s.pp, virtual=s.vpp
    )
    share: Ratio = 0.0
    if s.recompute is Recompute.FULL:
        share = (
            memory.recomputed_share(stages.layers, s.recompute_layers)
            if np.any(s.recompute_layers)
            else 1.0
        )
    stored: list[Bytes] = []
    backward: list[Bytes] = []
    parked: list[Bytes] = []
    captured: Bytes = 0.0
    for layer, layers in zip(kinds, held, strict=True):
        kept, again = _kept(layer, s, share)
        surge = layer.surge if s.recompute is not Recompute.FULL else (1.0 - share) * layer.surge
        # A chunk in flight holds the layers of one virtual stage.
        if s.offload:
            left, back = _offloaded(layer, s, share, kept)
            if ACTIVATIONS in s.offload:
                back, surge = back + surge, 0.0
            parked.append(offload.host_activation(chunks, layers, kept / s.vpp, left / s.vpp, 1.0))
            kept, again = left, again + back
        if s.graphs is not Graphs.NONE:
            captured = captured + memory.captured_buffers(chunks, layers, layer.input / s.vpp)
        stored.append(memory.stored_activation(chunks, layers, kept / s.vpp))
        if np.any(surge):
            stored.append(memory.crowded_activation(chunks, layers / s.vpp, surge))
        if np.any(layer.gathered):
            stored.append(memory.gathered_inputs(chunks, layers, layer.gathered / s.vpp))
        backward.append(np.where(np.asarray(layers) > 0, again, 0.0))
    return Waiting(
        stored=sum(stored[1:], stored[0]),
        backward=reduce(np.maximum, backward),
        parked=sum(parked[1:], parked[0]) if parked else 0.0,
        captured=captured,
    )


def _kept(layer: StoredLayer, s: Strategy, share: Ratio) -> tuple[Bytes, Bytes]:
    """Bytes of a layer that wait for its backward pass, and those that the backward pass adds."""
    if s.recompute is not Recompute.FULL:
        held = layer.kept + layer.surge
        return layer.kept, memory.backward_activation(layer.whole, held, layer.gradients)
    kept = memory.full_recompute_activation(layer.kept, layer.input, share)
    return kept, memory.backward_activation(layer.whole, layer.input, layer.gradients)


def _offloaded(layer: StoredLayer, s: Strategy, share: Ratio, kept: Bytes) -> tuple[Bytes, Bytes]:
    """Bytes of a layer that stay on the device, and those that come back for its backward pass. [B]

    Inputs of modules leave only layers that are not recomputed as a whole; inputs of layers leave only those that are.
    """
    if ACTIVATIONS in s.offload:
        return layer.input, kept
    moved: Bytes = (1.0 - share) * layer.moved
    if LAYER_INPUT in s.offload:
        moved = moved + share * layer.input
    return kept - moved, moved


def _loss(workload: Workload, constants: MemoryConstants, s: Strategy) -> Bytes:
    """Head and loss of the main prediction and of every further one. [B]"""
    tokens, precision, model = (
        tokens_per_rank(workload, s),
        workload.training.precision,
        workload.model,
    )
    spread = s.tp if s.sequence_parallel else 1.0
    source = activations.head_activation(
        tokens, model.hidden, width=precision.activation, ranks=spread
    )
    vocabulary = model.embedding.vocabulary
    logits = activations.logit_memory(
        tokens, vocabulary, width=precision.logit, copies=constants.logit_copies, ranks=s.tp
    )
    # The head's backward pass comes next, while all activations of the stage are still there.
    gradients = activations.logit_memory(
        tokens, vocabulary, width=precision.activation, copies=1.0, ranks=s.tp
    )
    width = precision.reduce if s.sharding is Sharding.WEIGHTS else precision.activation
    gradients = gradients + activations.head_weight_memory(
        model.hidden, vocabulary, width=width, ranks=s.tp
    )
    loss = (1.0 + model.prediction_modules) * source + np.maximum(
        (1.0 + model.prediction_modules) * logits, gradients
    )
    if s.sharding is not Sharding.WEIGHTS:
        return loss
    return loss + activations.head_weight_memory(
        model.hidden, vocabulary, width=precision.gather, ranks=s.tp
    )
