"""What one layer stores for its backward pass on one device: everything, and what is left after recomputation.

What is stored, which module's recomputation drops it and which module's offloaded input takes it to the host, each block
says itself (`Kept` in `mofa_model/blocks/block.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from mofa_model.blocks import Block, Kept, Layer, Ranks
from mofa_model.blocks.block import ALL, EACH, NOTHING
from mofa_model.equations import activations, memory
from mofa_model.estimate.blocks import block_tokens, tokens_per_rank
from mofa_model.estimate.routing import routed_load
from mofa_model.spec import MemoryConstants, Workload
from mofa_model.strategy import ContextMode, Recompute, Strategy
from mofa_model.units import Bytes, Count, Ratio


@dataclass(frozen=True, slots=True)
class StoredLayer:
    """One layer, one micro-batch, one device. [B]"""

    whole: Bytes
    """All that the backward pass of the layer needs at one time."""
    kept: Bytes
    """What waits for it, Eq. (29); the same without selective recomputation."""
    input: Bytes
    """The layer's input, A_in."""
    gradients: Bytes
    """Gradients that the backward pass makes on its way."""
    moved: Bytes = 0.0
    """What of `kept` the offloaded inputs of modules take to the host."""
    surge: Bytes = 0.0
    """What comes to `kept` where the load on experts is that of the tail; `whole` and `gradients` are at the tail."""
    gathered: Bytes = 0.0
    """Its input gathered again over tensor-parallel ranks, where the allocator does not get that back."""


def stored_layers(
    workload: Workload, constants: MemoryConstants, strategy: Strategy
) -> tuple[StoredLayer, ...]:
    """Every kind of layer, Eq. (29)."""
    model, sized = workload.model, _sizes(workload, constants, strategy)
    blocks = {id(block): sized(block.kept(model.hidden), block) for block in model.blocks}
    return tuple(
        _layer(
            workload,
            constants,
            strategy,
            kind,
            [
                *sized(kind.stream(model.hidden), None),
                *(part for one in kind.blocks for part in blocks[id(one)]),
            ],
        )
        for kind in model.kinds
    )


@dataclass(frozen=True, slots=True)
class _Part:
    """A stored tensor on one device."""

    kept: Kept
    size: Bytes
    """All of it. [B]"""
    weight: Ratio | None
    """How much of it waits; None = all."""
    tail: Ratio = 1.0
    """Its size at the tail of the load over that on the mean."""


def _layer(
    workload: Workload,
    constants: MemoryConstants,
    strategy: Strategy,
    layer: Layer,
    parts: list[_Part],
) -> StoredLayer:
    """Adds up the parts of a layer."""
    tokens, h = tokens_per_rank(workload, strategy), workload.model.hidden
    width = workload.training.precision.activation
    fixed = [part for part in parts if not part.kept.routed]
    routed = [part for part in parts if part.kept.routed]
    inner = [part for part in parts if part.kept.inner]
    full = sum((part.tail * part.size for part in routed), 0.0)
    running = memory.chunked_activation(full, strategy.chunks)
    waiting: Bytes = 0.0
    surge: Bytes = 0.0
    # Row statistics of fused attention are too small to be worth a way to the host.
    whole_scores = np.any(np.asarray(constants.score) > 0)
    moved = _moved((part for part in fixed if whole_scores or not part.kept.scored), strategy)
    if routed:
        chunked = np.asarray(strategy.chunks) > 1
        waiting = np.where(chunked, 0.0, _waiting(routed)) + np.where(
            chunked | ("moe" in _modules(strategy)),
            _expert_input(workload, constants, strategy),
            0.0,
        )
        moved = moved + np.where(chunked, 0.0, _moved(routed, strategy))
        if any(np.any(part.tail > 1.0) for part in routed):
            peak = _waiting(replace(part, size=(part.tail - 1.0) * part.size) for part in routed)
            surge = constants.activation_scale * np.where(chunked, 0.0, peak)
    return StoredLayer(
        whole=constants.activation_scale * (_sum(fixed) + running),
        kept=constants.activation_scale * (_waiting(fixed) + waiting),
        input=activations.kept_activation(tokens, h, width=width, ranks=_spread(strategy)),
        gradients=constants.backward_copies * (_sum(inner) + running)
        + _gathered_keys(workload, strategy, layer),
        moved=constants.activation_scale * moved,
        surge=surge,
        gathered=constants.gathered_input * (width * tokens * h),
    )


def _expert_input(workload: Workload, constants: MemoryConstants, s: Strategy) -> Bytes:
    """What the input of experts takes more where it is kept to compute them again, not for matrix products alone. [B]"""
    narrow, wide = (
        _narrow(workload, constants),
        tokens_per_rank(workload, s) * workload.model.hidden,
    )
    if narrow is None or _modules(s) & {"layernorm", EACH, ALL}:
        return 0.0
    width = (1.0 - narrow) * workload.training.precision.activation
    return activations.kept_activation(wide, 1.0, width=width, ranks=_spread(s))


def _gathered_keys(workload: Workload, s: Strategy, layer: Layer) -> Bytes:
    """Keys and values of all context-parallel ranks and their gradients, where they are gathered for a layer. [B]"""
    if s.context_mode is not ContextMode.ALL_GATHER:
        return 0.0
    seen = [sight for block in layer.blocks if (sight := block.sight()) is not None]
    wide = sum(sight.ring / s.tp + (sight.shared or 0.0) for sight in seen)
    others = tokens_per_rank(workload, s) * (s.cp - 1.0)
    size: Bytes = 2.0 * workload.training.precision.activation * others * wide
    return size


def _sizes(
    workload: Workload, constants: MemoryConstants, s: Strategy
) -> Callable[[Iterable[Kept], Block | None], list[_Part]]:
    """What makes parts on one device of what a block keeps, or the stream; in the order in which it is made."""
    precision = workload.training.precision
    modules, narrow = _modules(s), _narrow(workload, constants)
    ranks: dict[Ranks, Count] = {
        Ranks.STREAM: _spread(s),
        Ranks.TENSOR: s.tp,
        Ranks.EXPERT: s.etp,
        Ranks.NOBODY: 1.0,
    }
    masked = np.any(np.asarray(constants.mask) > 0)

    def size(one: Kept, tokens: Count, seen: Count) -> Bytes:
        if one.scored:
            return activations.score_activation(
                tokens,
                one.elements,
                workload.training.sequence,
                statistic=precision.logit,
                score=constants.score,
                ranks=ranks[one.ranks],
            )
        width = (
            precision.logit if one.logit else constants.mask if one.masked else precision.activation
        )
        rows = seen if one.routed else tokens
        return activations.kept_activation(rows, one.elements, width=width, ranks=ranks[one.ranks])

    def parts(every: Iterable[Kept], block: Block | None) -> list[_Part]:
        tokens = tokens_per_rank(workload, s) if block is None else block_tokens(workload, s, block)
        seen, exchange = tokens, None if block is None else block.exchange()
        tail: Ratio = 1.0
        if exchange is not None:
            load = routed_load(workload, s, exchange)
            seen = activations.routed_tokens(
                tokens, exchange.top_k, load.mean, tensor=s.tp, expert_tensor=s.etp
            )
            tail = load.tail / load.mean
        return [
            _Part(one, size(one, tokens, seen), _weight(one, modules, narrow), tail)
            for one in every
            if masked or not one.masked
        ]

    return parts


def _modules(s: Strategy) -> frozenset[str]:
    """Modules that are computed again."""
    return s.recompute_modules if s.recompute is Recompute.SELECTIVE else NOTHING


def _narrow(workload: Workload, constants: MemoryConstants) -> Ratio | None:
    """How wide inputs of matrix products wait, of their width; None where they are as wide. [1]"""
    return constants.low_precision_input if workload.training.precision.quantised else None


def _weight(one: Kept, modules: frozenset[str], narrow: Ratio | None) -> Ratio | None:
    """How much of a tensor waits for the backward pass, where that is not all of it. [1]"""
    if modules & one.freed:
        return 0.0
    weight = None
    # DeepSeek-V3 keeps what SwiGLU takes in FP8 as well, where it computes SwiGLU again.
    if narrow is not None and (one.feeds or modules & one.narrowed):
        weight = narrow
    if EACH in modules and one.halved:
        return 0.5 * (1.0 if weight is None else weight)
    return weight


def _sum(parts: Iterable[_Part]) -> Bytes:
    """Bytes of some parts. [B]"""
    return sum((part.size for part in parts), 0.0)


def _waiting(parts: Iterable[_Part]) -> Bytes:
    """The same as far as they wait. [B]"""
    return sum(
        (part.size if part.weight is None else part.weight * part.size for part in parts), 0.0
    )


def _moved(parts: Iterable[_Part], strategy: Strategy) -> Bytes:
    """Bytes that go to the host with the offloaded inputs of modules. [B]"""
    total: Bytes = 0.0
    for part in parts if strategy.offload else ():
        share = sum(part.kept.moved.get(name, 0.0) for name in strategy.offload)
        if share:
            total = total + share * (1.0 if part.weight is None else part.weight) * part.size
    return total


def _spread(strategy: Strategy) -> Count:
    """Ranks that share the residual stream. [1]"""
    return strategy.tp if strategy.sequence_parallel else 1.0
