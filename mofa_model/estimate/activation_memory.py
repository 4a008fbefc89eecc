"""Memory of micro-batches on one device: what layers store, what the backward pass makes anew, the
loss.

Each block states which tensors it stores, which module's recomputation drops one, and which
module's offloaded input takes one to the host (`SavedTensor` in `mofa_model/blocks/block.py`). Of
all this only two things depend on the ZeRO level: the width of the head's gradient, and whether
weights are cast for each product.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import reduce

import numpy as np

from mofa_model.blocks import Block, Cut, Layer, Ranks, Rows, SavedTensor
from mofa_model.blocks.block import ALL, EACH, NOTHING, Projection
from mofa_model.checks import anything
from mofa_model.equations import memory
from mofa_model.estimate.block_time import DistinctRows, block_tokens, distinct_rows, tokens_held
from mofa_model.estimate.expert_load import expert_load, in_chunks_and_whole
from mofa_model.estimate.model_states import (
    dense_weights,
    expert_weights,
    heads_on,
    layers_on,
    outputs,
)
from mofa_model.estimate.terms import Footprint
from mofa_model.placement import Stages, spread
from mofa_model.records import dataclass, varied
from mofa_model.spec import Adapters, Cluster, MemoryConstants, Workload
from mofa_model.spec.tuning import Loss, Task
from mofa_model.strategy import (
    ACTIVATIONS,
    LAYER_INPUT,
    ContextMode,
    Graphs,
    Recompute,
    Sharding,
    Strategy,
)
from mofa_model.units import Bytes, Count, Ratio


@dataclass(frozen=True)
class StoredLayer:
    """Activations of one layer, one micro-batch, one device. [B]"""

    whole: Bytes
    """Tensors that the backward pass of the layer needs at one time, at the tail of the load on
    experts."""
    stored: Bytes
    """Tensors stored until then, Eq. (29)."""
    input: Bytes
    """The layer's input, A_in."""
    gradients: Bytes
    """Gradients that the backward pass makes on its way, at the tail of the load."""
    offloaded: Bytes = 0.0
    """Part of `stored` that offloaded inputs of modules take to the host."""
    surge: Bytes = 0.0
    """Growth of `stored` where the load on experts is that of the tail."""
    gathered: Bytes = 0.0
    """Its input gathered again over tensor-parallel ranks, where the allocator does not get that
    back."""


@dataclass(frozen=True)
class _DeviceTensor:
    """A saved tensor on one device."""

    tensor: SavedTensor
    size: Bytes
    share: Ratio | None
    """Share of it that is stored until the backward pass; None = all."""
    tail: Ratio
    """Its size at the tail of the load over that on the mean."""

    def waiting(self, scale: Ratio | None = None) -> Bytes:
        """Bytes of it that are stored until the backward pass, or of a tensor `scale` times
        its size.
        """
        size = self.size if scale is None else scale * self.size
        return size if self.share is None else self.share * size


def activation_memory(
    workload: Workload,
    cluster: Cluster,
    strategy: Strategy,
    stage_kinds: Stages,
    rows: DistinctRows | None = None,
) -> Footprint:
    """Activations, head and loss on every kind of stage; `rows` where they are known."""
    distinct, position = rows or distinct_rows(workload, cluster, strategy)
    layers = spread(_stored_layers(workload, cluster, distinct), position)
    flight = in_flight(workload, strategy, stage_kinds)
    stored = stored_activations(workload, strategy, stage_kinds, layers, flight)
    head = head_memory(workload, cluster, strategy, stage_kinds)
    return with_loss(workload, cluster, strategy, stored, head)


def _stored_layers(workload: Workload, cluster: Cluster, s: Strategy) -> tuple[StoredLayer, ...]:
    constants = cluster.calibration.memory
    layers = stored_layers(workload, constants, s)
    if anything(s.chunk_layers):
        layers += stored_layers(workload, constants, varied(s, chunks=1))
    return layers


def head_memory(
    workload: Workload, cluster: Cluster, strategy: Strategy, stage_kinds: Stages
) -> Footprint:
    """Head and loss on every kind of stage: their own memory, what of it stays until the last
    backward pass, and gathered inputs that the allocator keeps beside them.

    They depend on degrees, sequence parallelism and ZeRO level.
    """
    constants = cluster.calibration.memory
    heads, gathered = heads_on(strategy, stage_kinds), _gathered_ends(workload, constants, strategy)
    return Footprint(
        logits=heads * (_loss(workload, constants, strategy) + gathered),
        ending=heads * (constants.root_unit * gathered) if anything(constants.root_unit) else 0.0,
        fragmentation=memory.tensor_buffer(
            tokens_held(workload, strategy),
            workload.model.hidden,
            strategy.tp,
            width=workload.training.precision.activation,
            copies=constants.cached_gathers,
        ),
    )


def with_loss(
    workload: Workload,
    cluster: Cluster,
    strategy: Strategy,
    footprint: Footprint,
    head_and_loss: Footprint,
) -> Footprint:
    """Activations with head and loss beside them."""
    constants = cluster.calibration.memory
    logits, staying = head_and_loss.logits, head_and_loss.ending
    again = footprint.backward
    if anything(constants.input_gradients) and _frozen_shards(workload, strategy):
        again = again + constants.input_gradients * footprint.activations
    backward = memory.excess(again, logits - staying)
    # A graph of the whole iteration has a workspace of its own beside that of kernels outside.
    graph = backward + logits if strategy.graphs is Graphs.FULL else 0.0
    return varied(
        footprint,
        backward=backward,
        logits=logits,
        fragmentation=constants.fragmentation * (footprint.activations + backward + logits)
        + head_and_loss.fragmentation,
        graphs=footprint.graphs + graph,
        ending=(1.0 + constants.fragmentation) * (again + staying),
    )


def in_flight(workload: Workload, strategy: Strategy, stage_kinds: Stages) -> Count:
    """Most chunks whose activations every kind of stage holds at one time, Eq. (5). [1]"""
    s = strategy
    return s.schedule.in_flight(
        position=stage_kinds.position,
        microbatches=workload.training.global_batch / s.global_micro_batch,
        stages=s.pp,
        virtual=s.vpp,
    )


def _frozen_shards(workload: Workload, s: Strategy) -> bool:
    """Whether frozen weights are sharded, and layers' inputs are all that waits."""
    sharded = s.sharding is Sharding.WEIGHTS and workload.training.adapters is not None
    return sharded and s.recompute is Recompute.FULL


def recomputed_share(s: Strategy, stage_kinds: Stages) -> Ratio:
    """Share of a stage's layers that are recomputed as a whole. [1]"""
    if s.recompute is not Recompute.FULL:
        return 0.0
    partly = anything(s.recompute_layers)
    return memory.recomputed_share(stage_kinds.layers, s.recompute_layers) if partly else 1.0


def stored_activations(
    workload: Workload,
    strategy: Strategy,
    stage_kinds: Stages,
    stored_layers: tuple[StoredLayer, ...],
    chunks: Count,
) -> Footprint:
    """Activations on every kind of stage, from those of every kind of layer, Eqs. (5), (29), (31),
    (33); `chunks` are in flight.

    `stored_layers` has every kind twice where not all layers of a stage run in chunks: the second
    time with whole experts.
    """
    s, numbers = strategy, layers_on(workload, stage_kinds)
    if len(stored_layers) > len(numbers):
        numbers = in_chunks_and_whole(workload, s, stage_kinds, numbers)
    share = recomputed_share(s, stage_kinds)
    stored: list[Bytes] = []
    backward: list[Bytes] = []
    on_host: list[Bytes] = []
    graphs: Bytes = 0.0
    for layer, number in zip(stored_layers, numbers, strict=True):
        waiting, backward_bytes = _waiting_bytes(layer, s, share), _backward_bytes(layer, s)
        surge = layer.surge
        if anything(surge) and s.recompute is Recompute.FULL:
            surge = (1.0 - share) * surge
        # A chunk in flight holds the layers of one virtual stage.
        if s.offload:
            all_activations = ACTIVATIONS in s.offload
            fetched = waiting if all_activations else _layer_offload(layer, s, share)
            stays = layer.input if all_activations else waiting - fetched
            if all_activations and anything(surge):
                fetched, surge = fetched + surge, 0.0
            on_host.append(memory.host_activation(chunks, number, waiting / s.vpp, stays / s.vpp))
            waiting, backward_bytes = stays, backward_bytes + fetched
        if s.graphs is not Graphs.NONE:
            graphs = graphs + memory.captured_buffers(chunks, number, layer.input / s.vpp)
        stored.append(memory.stored_activation(chunks, number, waiting / s.vpp))
        if anything(surge):
            stored.append(memory.crowded_activation(chunks, number / s.vpp, surge))
        if anything(layer.gathered):
            stored.append(memory.gathered_inputs(chunks, number, layer.gathered / s.vpp))
        backward.append(np.where(np.asarray(number) > 0, backward_bytes, 0.0))
    return Footprint(
        activations=sum(stored[1:], stored[0]),
        backward=reduce(np.maximum, backward),
        graphs=graphs,
        host_activations=sum(on_host[1:], on_host[0]) if on_host else 0.0,
    )


def _waiting_bytes(layer: StoredLayer, s: Strategy, share: Ratio) -> Bytes:
    """Bytes of a layer that wait for its backward pass. [B]"""
    if s.recompute is not Recompute.FULL:
        return layer.stored
    return memory.full_recompute_activation(layer.stored, layer.input, share)


def _backward_bytes(layer: StoredLayer, s: Strategy) -> Bytes:
    """Bytes that the backward pass of a layer adds to those that wait for it. [B]"""
    stored = layer.input if s.recompute is Recompute.FULL else layer.stored + layer.surge
    return memory.backward_activation(layer.whole, stored, layer.gradients)


def _layer_offload(layer: StoredLayer, s: Strategy, share: Ratio) -> Bytes:
    """Bytes of a layer's inputs that go to the host and come back for its backward pass. [B]

    Inputs of modules are offloaded from layers that are not recomputed as a whole, inputs of layers
    from those that are.
    """
    offloaded: Bytes = (1.0 - share) * layer.offloaded
    if LAYER_INPUT in s.offload:
        offloaded = offloaded + share * layer.input
    return offloaded


def _loss(workload: Workload, constants: MemoryConstants, s: Strategy) -> Bytes:
    """Head and loss of the main prediction and of every further one. [B]"""
    tokens, training = tokens_held(workload, s), workload.training
    model, vocabulary, precision = workload.model, outputs(workload), training.precision
    predictions = 1.0 + model.prediction_modules
    head_input = _head_input(workload, constants, s, tokens)
    trained: Bytes = 0.0
    if training.adapters is None:  # a frozen head has no gradient
        width = precision.reduce if s.sharding is Sharding.WEIGHTS else precision.activation
        trained = memory.head_weight_memory(model.hidden, vocabulary, width=width, ranks=s.tp)
    if training.loss is Loss.FUSED:
        fused = memory.fused_loss(
            tokens, model.hidden, narrow=precision.activation, wide=precision.logit, ranks=s.tp
        )
        return predictions * (head_input + fused) + trained
    chunked = training.loss is Loss.CHUNKED
    logits = memory.logit_memory(
        tokens,
        vocabulary,
        width=precision.logit,
        copies=1.0 if chunked else constants.logit_copies,
        ranks=s.tp,
    )
    # The head's backward pass comes next, while all activations of the stage are still there.
    gradients = memory.logit_memory(
        tokens, vocabulary, width=precision.activation, copies=1.0, ranks=s.tp
    )
    if chunked:
        logits = memory.chunked_loss(logits, precision.activation / precision.logit)
        gradients = gradients / memory.LOSS_CHUNKS
    if training.task is Task.DISTILL:  # what the teacher says
        logits = logits + memory.logit_memory(
            tokens, vocabulary, width=precision.activation, copies=1.0, ranks=s.tp
        )
    gradients = gradients + trained
    return predictions * head_input + np.maximum(predictions * logits, gradients)


def _head_input(
    workload: Workload, constants: MemoryConstants, s: Strategy, tokens: Count
) -> Bytes:
    """Bytes that the final norm and the head keep. Under autocast the norm is in the width of the
    weights, and the head has a narrow copy of its input and of its weights. [B]
    """
    hidden, precision, ranks = workload.model.hidden, workload.training.precision, _stream_ranks(s)
    if workload.training.adapters is not None or not under_autocast(workload, constants, s):
        return memory.head_activation(tokens, hidden, width=precision.activation, ranks=ranks)
    wide = memory.head_activation(tokens, hidden, width=precision.logit, ranks=ranks)
    cast = memory.kept_activation(tokens, hidden, width=precision.activation, ranks=ranks)
    weights = memory.head_weight_memory(
        hidden, outputs(workload), width=precision.activation, ranks=s.tp
    )
    return wide + cast + weights


def _gathered_ends(workload: Workload, constants: MemoryConstants, s: Strategy) -> Bytes:
    """Weights of the head, and of an embedding that is in one unit with it, gathered where they are
    sharded. [B]
    """
    if s.sharding is not Sharding.WEIGHTS:
        return 0.0
    vocabulary = outputs(workload)
    if anything(constants.root_unit) and not workload.model.embedding.tied:
        vocabulary = vocabulary + constants.root_unit * workload.model.embedding.vocabulary
    width, hidden = workload.training.precision.gather, workload.model.hidden
    return memory.head_weight_memory(hidden, vocabulary, width=width, ranks=s.tp)


def stored_layers(
    workload: Workload, constants: MemoryConstants, strategy: Strategy
) -> tuple[StoredLayer, ...]:
    """Activations of every kind of layer, Eq. (29)."""
    model = workload.model
    tensors = {
        id(block): _tensors(workload, constants, strategy, block.saved_tensors(model.hidden), block)
        for block in model.blocks
    }
    return tuple(
        _layer(
            workload,
            constants,
            strategy,
            kind,
            [
                *_tensors(workload, constants, strategy, kind.stream(model.hidden), None, kind),
                *(tensor for block in kind.blocks for tensor in tensors[id(block)]),
            ],
        )
        for kind in model.kinds
    )


def _layer(
    workload: Workload,
    constants: MemoryConstants,
    strategy: Strategy,
    layer: Layer,
    tensors: list[_DeviceTensor],
) -> StoredLayer:
    """Memory of one layer's activations for the backward pass, and what is there for a moment."""
    tokens, h = tokens_held(workload, strategy), workload.model.hidden
    precision, scale = workload.training.precision, constants.activation_scale
    width: Bytes = precision.activation
    casts: Bytes = 0.0
    if workload.training.adapters is None and under_autocast(workload, constants, strategy):
        weights = dense_weights(workload, strategy, layer)
        casts = width * (weights + expert_weights(workload, strategy, layer))
        width = precision.logit
    fixed = [part for part in tensors if not part.tensor.routed]
    routed = [part for part in tensors if part.tensor.routed]
    tail_bytes = sum((part.tail * part.size for part in routed), 0.0)
    experts = memory.chunked_activation(tail_bytes, strategy.chunks)
    waiting: Bytes = 0.0
    surge: Bytes = 0.0
    # Row statistics of fused attention are too small to be worth a transfer to the host.
    whole_scores = anything(constants.score > 0)
    offloaded = _modules_offload(
        (part for part in fixed if whole_scores or not part.tensor.scored), strategy
    )
    if routed:
        chunked = np.asarray(strategy.chunks) > 1
        kept_inputs = chunked | ("moe" in _recomputed_modules(strategy))
        waiting = np.where(chunked, 0.0, sum((part.waiting() for part in routed), 0.0)) + np.where(
            kept_inputs, _expert_input(workload, constants, strategy), 0.0
        )
        offloaded = offloaded + np.where(chunked, 0.0, _modules_offload(routed, strategy))
        if any(anything(part.tail > 1.0) for part in routed):
            peak = sum((part.waiting(part.tail - 1.0) for part in routed), 0.0)
            surge = scale * np.where(chunked, 0.0, peak)
    gradients = sum((part.size for part in tensors if part.tensor.gradient_alive), 0.0)
    return StoredLayer(
        whole=scale
        * (sum((part.size for part in fixed if not part.tensor.short_lived), 0.0) + experts)
        + casts,
        stored=scale * (sum((part.waiting() for part in fixed), 0.0) + waiting) + casts,
        input=memory.kept_activation(tokens, h, width=width, ranks=_stream_ranks(strategy)),
        gradients=constants.backward_copies * (gradients + experts)
        + _gathered_keys(workload, strategy, layer),
        offloaded=scale * offloaded,
        surge=surge,
        gathered=constants.gathered_input * (width * tokens * h),
    )


def _expert_input(workload: Workload, constants: MemoryConstants, s: Strategy) -> Bytes:
    """Growth of the experts' input where it is kept whole, because the experts are computed again.
    For matrix products alone a narrow copy is enough. [B]
    """
    narrow = _narrow_share(workload, constants)
    if narrow is None or _recomputed_modules(s) & {"layernorm", EACH, ALL}:
        return 0.0
    elements = tokens_held(workload, s) * workload.model.hidden
    width = (1.0 - narrow) * workload.training.precision.activation
    return memory.kept_activation(elements, 1.0, width=width, ranks=_stream_ranks(s))


def _gathered_keys(workload: Workload, s: Strategy, layer: Layer) -> Bytes:
    """Keys and values of all context-parallel ranks and their gradients, where they are gathered
    for a layer. [B]
    """
    if s.context_mode is not ContextMode.ALL_GATHER:
        return 0.0
    messages = [sent for block in layer.blocks if (sent := block.context_messages()) is not None]
    width = sum(sent.ring_elements / s.tp + (sent.unsplit_elements or 0.0) for sent in messages)
    others = tokens_held(workload, s) * (s.cp - 1.0)
    size: Bytes = 2.0 * workload.training.precision.activation * others * width
    return size


def _tensors(
    workload: Workload,
    constants: MemoryConstants,
    s: Strategy,
    saved: Iterable[SavedTensor],
    block: Block | None,
    layer: Layer | None = None,
) -> list[_DeviceTensor]:
    """Tensors that a block stores on one device, in the order in which they are made. None is the
    residual stream of a `layer`.
    """
    adapters = workload.training.adapters
    if adapters is not None:
        gate = constants.frozen_gate
        alone = under_autocast(workload, constants, s)
        saved = _beside_adapters(workload, adapters, saved, block, layer, gate, casts_alone=alone)
    elif layer is not None and under_autocast(workload, constants, s):
        saved = _with_casts(workload, saved, layer)
    precision = workload.training.precision
    modules, narrow = _recomputed_modules(s), _narrow_share(workload, constants)
    ranks = {
        Ranks.STREAM: _stream_ranks(s),
        Ranks.TENSOR: s.tp,
        Ranks.EXPERT: s.etp,
        Ranks.NOBODY: 1.0,
    }
    masked, unfused = anything(constants.mask > 0), constants.unfused
    if adapters is None and anything(unfused > 0):
        saved = _unfused(saved)
    tokens = tokens_held(workload, s)
    tokens = tokens if block is None else block_tokens(s, block, tokens)
    routed, exchange = tokens, None if block is None else block.exchange()
    tail: Ratio = 1.0
    if exchange is not None:
        load = expert_load(workload, s, exchange)
        routed = memory.routed_tokens(
            tokens, exchange.top_k, load.mean, tensor=s.tp, expert_tensor=s.etp
        )
        tail = load.tail / load.mean
    on_device = []
    for tensor in saved:
        if (tensor.dropout_mask and not masked) or (tensor.unfused and not unfused):
            continue
        if tensor.scored:
            size = memory.score_activation(
                tokens,
                tensor.elements,
                workload.training.sequence,
                statistic=precision.logit,
                score=constants.score,
                ranks=ranks[tensor.ranks],
            )
        else:
            width = constants.mask if tensor.dropout_mask else precision.activation
            if tensor.unfused:
                width = unfused * (precision.logit - width if tensor.upcast else width)
            size = memory.kept_activation(
                routed if tensor.routed else tokens,
                tensor.elements,
                width=precision.logit if tensor.logit_width else width,
                ranks=ranks[tensor.ranks],
            )
        on_device.append(_DeviceTensor(tensor, size, _waiting_share(tensor, modules, narrow), tail))
    return on_device


def _beside_adapters(
    workload: Workload,
    adapters: Adapters,
    saved: Iterable[SavedTensor],
    block: Block | None,
    layer: Layer | None,
    gate: Ratio,
    *,
    casts_alone: bool,
) -> Iterator[SavedTensor]:
    """What is kept beside frozen weights: inputs of linear layers only where an adapter reads them,
    as wide as they are, and what is between the two matrices of each adapter. With
    `casts_alone` each adapter casts its input for itself.
    """
    h, rank = workload.model.hidden, adapters.rank
    if layer is not None:
        yield from _stream_beside_adapters(adapters, saved, layer, h, casts_alone=casts_alone)
        return
    if block is None or block.own_tokens is not None:
        return  # no gradient comes back to an encoder
    for tensor in saved:
        if tensor.readers and not any(map(adapters.beside, tensor.readers)):
            if tensor.gradient_alive:  # a frozen matrix still hands on the gradient of its input
                yield replace(tensor, short_lived=True)
            continue
        if tensor.narrowed_by and workload.training.precision.quantised:
            yield replace(tensor, elements=gate * tensor.elements, narrowed_by=NOTHING)
        else:
            yield replace(tensor, product_input=False) if tensor.product_input else tensor
    for product in block.products(h):
        widths = [width for name, width in product.linears if adapters.beside(name)]
        if not widths:
            continue
        routed = product.rows is Rows.ROUTED
        ranks = Ranks.NOBODY if product.cut is Cut.OUTPUT or routed else Ranks.STREAM
        modules = frozenset({ALL, "moe"} if routed else {ALL})
        elements = len(widths) * rank * (1 if product.times is None else product.times)
        if (
            casts_alone
            and product.cut is Cut.INPUT
            and not routed
            and not _kept_alone(block, product, h)
        ):
            # Attention keeps what it made.
            yield SavedTensor(elements=len(widths) * product.k, dropped_by=modules)
        if adapters.magnitudes:  # what the frozen matrix and the adapter hand on
            elements = elements + 2 * sum(widths)
        yield SavedTensor(elements=elements, ranks=ranks, dropped_by=modules, routed=routed)
        if adapters.dropout:
            dropped = len(widths) * product.k
            yield SavedTensor(elements=dropped, ranks=ranks, dropped_by=modules, routed=routed)
            # A byte of the mask beside the two of each number.
            yield SavedTensor(
                elements=0.5 * dropped, ranks=ranks, dropped_by=modules, routed=routed
            )


def under_autocast(workload: Workload, constants: MemoryConstants, s: Strategy) -> bool:
    """Whether trained weights have the width of the update, and each product casts what it reads.
    Trainers that shard weights or their optimizer cast whole weights first.
    """
    training, precision = workload.training, workload.training.precision
    master = precision.optimizer > training.optimizer.replaced
    narrow = precision.activation < precision.logit
    return bool(constants.autocast and s.sharding is Sharding.NONE and master and narrow)


def _unfused(saved: Iterable[SavedTensor]) -> Iterator[SavedTensor]:
    """Stored tensors under unfused kernels: a gradient takes the place of what its product read."""
    for tensor in saved:
        replaced = tensor.gradient_alive and (tensor.product_input or tensor.unfused)
        yield replace(tensor, gradient_alive=False) if replaced else tensor


def _with_casts(
    workload: Workload, saved: Iterable[SavedTensor], layer: Layer
) -> Iterator[SavedTensor]:
    """What is kept of the residual stream under autocast: norms read and write the width of the
    weights, and each linear layer casts their output for itself.
    """
    stream, read, normed = list(saved), 0, 0
    for block in layer.blocks:
        normed += block.norm_before
        read += max(len(_own_readers(block, workload.model.hidden)), block.norm_before)
    inputs, normal, masks, _, scaled = stream
    yield replace(inputs, logit_width=True)
    yield replace(normal, elements=read / max(normed, 1) * normal.elements)
    yield masks
    yield replace(scaled, logit_width=True)


def _stream_beside_adapters(
    adapters: Adapters,
    saved: Iterable[SavedTensor],
    layer: Layer,
    hidden: Count,
    *,
    casts_alone: bool,
) -> Iterator[SavedTensor]:
    """What is kept of the residual stream beside frozen weights."""
    read, stream = 0, list(saved)
    for block in layer.blocks:
        names = _own_readers(block, hidden) if casts_alone else block.reads_stream(hidden)
        readers = sum(map(adapters.beside, names))
        read += readers if casts_alone else min(readers, 1)
    normed = sum(block.norm_before for block in layer.blocks)
    yield stream[0]
    if read:
        yield replace(stream[1], elements=read / normed * stream[1].elements, product_input=False)
    yield from stream[2:-1]  # no gradient of a norm's weight is made


def _own_readers(block: Block, hidden: Count) -> list[str]:
    """Linear layers that read the norm before a block for every token."""
    readers = block.reads_stream(hidden)
    return [
        name
        for product in block.products(hidden)
        if product.rows is Rows.TOKENS and product.cut is not Cut.INPUT
        for name, _ in product.linears
        if name in readers
    ]


def _kept_alone(block: Block, product: Projection, hidden: Count) -> bool:
    """Whether a block keeps the input of a product for that alone."""
    readers = {name for tensor in block.saved_tensors(hidden) for name in tensor.readers}
    return any(name in readers for name, _ in product.linears)


def _recomputed_modules(s: Strategy) -> frozenset[str]:
    return s.recompute_modules if s.recompute is Recompute.SELECTIVE else NOTHING


def _narrow_share(workload: Workload, constants: MemoryConstants) -> Ratio | None:
    """Width in which inputs of matrix products wait, over their width; None where it is the
    same. [1]
    """
    return constants.low_precision_input if workload.training.precision.quantised else None


def _waiting_share(
    tensor: SavedTensor, modules: frozenset[str], narrow: Ratio | None
) -> Ratio | None:
    """Share of a tensor that is stored until the backward pass; None where that is all of
    it. [1]
    """
    if tensor.short_lived or modules & tensor.dropped_by:
        return 0.0
    share = None
    # DeepSeek-V3 keeps the input of SwiGLU in FP8 as well, where it computes SwiGLU again.
    if narrow is not None and (tensor.product_input or modules & tensor.narrowed_by):
        share = narrow
    if EACH in modules and tensor.halved:
        return 0.5 * (1.0 if share is None else share)
    return share


def _modules_offload(parts: Iterable[_DeviceTensor], strategy: Strategy) -> Bytes:
    """Bytes that offloaded inputs of modules take to the host. [B]"""
    total: Bytes = 0.0
    for part in parts if strategy.offload else ():
        offloaded = sum(part.tensor.offloaded_by.get(name, 0.0) for name in strategy.offload)
        if offloaded:
            total = total + offloaded * (1.0 if part.share is None else part.share) * part.size
    return total


def _stream_ranks(strategy: Strategy) -> Ratio:
    """Ranks that share the residual stream. [1]"""
    return strategy.tp if strategy.sequence_parallel else 1.0
