"""Forward work of a layer that its backward pass does again: whole layers, modules, chunks of experts. Eqs. (30), (32)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.blocks import Layer
from mofa_model.blocks.block import ALL, EACH
from mofa_model.estimate.blocks import BlockTime
from mofa_model.strategy import Recompute, Strategy
from mofa_model.units import Ratio, Seconds

_INSIDE: Final = frozenset({"mlp_act", "moe_act"})
"""Modules that chunks of experts contain."""
_AROUND: Final = frozenset({"mlp", "moe", EACH, ALL})
"""Modules that contain the chunks."""
_WITHIN: Final[Mapping[str, frozenset[str]]] = {
    "core_attn": frozenset({ALL}),
    "layernorm": frozenset({EACH, ALL}),
    "mla_up_proj": frozenset({EACH, ALL}),
    "mlp": frozenset({"moe", EACH, ALL}),
    "mlp_act": _AROUND,
    "moe_act": _AROUND,
    EACH: frozenset({ALL}),
}
"""Modules that contain another whole."""


def in_chunks(strategy: Strategy, layer: Layer) -> NDArray[np.bool_]:
    """Whether the experts of a layer run in chunks, each of which is computed again; a layer that is computed again as a whole
    does not do it twice. Source: MemFine. []
    """
    s = strategy
    cut = (np.asarray(s.chunks) > 1) & layer.routed
    return cut & (np.asarray(s.recompute_layers) > 0) if s.recompute is Recompute.FULL else cut


def exchanges_again(strategy: Strategy, layer: Layer) -> Ratio:
    """Passes of the experts' exchange that a layer which is not computed again as a whole adds to its two. [1]"""
    named = any(
        part.exchange and name in strategy.recompute_modules
        for block in layer.blocks
        for name, part in block.again.items()
    )
    selective = strategy.recompute is Recompute.SELECTIVE and named
    return np.where(in_chunks(strategy, layer), 1.0, float(selective))


def modules_again(
    layer: Layer, blocks: Sequence[BlockTime], scale: Ratio, expert: Seconds
) -> dict[str, Seconds]:
    """Forward time of the modules that a layer's blocks have, by name; `expert` is what of an exchange is exposed. [s]"""
    found: dict[str, Seconds] = {}
    for block, time in zip(layer.blocks, blocks, strict=True):
        for name, part in block.again.items():
            own = (part.linear * time.linear + part.elementwise * time.elementwise) * scale
            found[name] = found.get(name, 0.0) + (own + expert if part.exchange else own)
        for name, product in time.again.items():
            found[name] = found.get(name, 0.0) + product * scale
    return found


def chunks_again(
    layer: Layer, blocks: Sequence[BlockTime], scale: Ratio, expert: Seconds
) -> Seconds:
    """Forward time of the chunks of a layer's experts: dispatch, experts, combine. Source: MemFine. [s]"""
    return sum((block.routed for block in blocks), 0.0) * scale + expert if layer.routed else 0.0


def recomputed(
    strategy: Strategy,
    layer: Layer,
    modules: Mapping[str, Seconds],
    chunks: Seconds,
    expert: Seconds,
    everything: Seconds,
) -> Seconds:
    """Forward time that a layer pays again which is not computed again as a whole, Eqs. (30) and (32). [s]

    Departs from the paper: tensor-parallel collectives inside the recomputed forward are paid again as well.
    """
    every = (
        strategy.recompute_modules & modules.keys()
        if strategy.recompute is Recompute.SELECTIVE
        else set()
    )
    # Modules may contain each other; nothing is computed more than once again.
    names = {name for name in every if not (every & _WITHIN.get(name, frozenset()))}
    named = np.minimum(sum((modules[name] for name in sorted(names)), 0.0), everything)
    cut = in_chunks(strategy, layer)
    if not np.any(cut):
        return named
    beside = sum((modules[name] for name in sorted(names - _INSIDE)), 0.0)
    if "moe" not in names:
        beside = beside + (expert if names & _AROUND else chunks)
    return np.where(cut, np.minimum(beside, everything), named)
