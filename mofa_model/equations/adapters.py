"""Low-rank adapters (LoRA): frozen weights with two narrow trained matrices beside each linear layer that every token passes.

Routed experts, routers and encoders have none; embedding and head are frozen.
"""

from __future__ import annotations

from mofa_model.blocks import Layer, Rows
from mofa_model.units import Count


def adapter_parameters(layer: Layer, hidden: Count, rank: Count) -> Count:
    """Trained parameters of a layer: rank times inputs and outputs of its linear layers. Source: Hu et al., 2021. [1]

    >>> from mofa_model.presets import model
    >>> llama = model("llama3-8b")
    >>> int(32 * adapter_parameters(llama.kinds[0], llama.hidden, 16))
    41943040
    """
    inputs, outputs = _widths(layer, hidden)
    return rank * (inputs + outputs)


def adapter_traffic(layer: Layer, hidden: Count) -> Count:
    """Elements that adapters move per token of a layer, forward: inputs are read, outputs read and written. Ours. [1]

    >>> from mofa_model.presets import model
    >>> llama = model("llama3-8b")
    >>> int(adapter_traffic(llama.kinds[0], llama.hidden))
    124928
    """
    inputs, outputs = _widths(layer, hidden)
    return inputs + 2 * outputs


def _widths(layer: Layer, hidden: Count) -> tuple[Count, Count]:
    """Inputs and outputs of the linear layers, added up."""
    passed = [
        one
        for block in layer.blocks
        if block.own_tokens is None
        for one in block.products(hidden)
        if one.rows is Rows.TOKENS
    ]
    times = [1 if one.times is None else one.times for one in passed]
    inputs = sum(n * one.parts * one.k for n, one in zip(times, passed, strict=True))
    return inputs, sum(n * one.n for n, one in zip(times, passed, strict=True))
