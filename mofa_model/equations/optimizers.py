"""Products on whole matrices, by which Muon makes an update orthogonal."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mofa_model.blocks import Layer, Rows
from mofa_model.spec import Adapters
from mofa_model.units import Count, Flop


def newton_schulz_flops(parameters: Count, side: Count, iterations: Count) -> Flop:
    """Products that make the update of matrices orthogonal. Source: Jordan et al., Muon, 2024: at
    most 6 T n m^2. [FLOP]

    Each iteration is X X^T, its square and a product with X: 4 n m^2 + 2 m^3 for n >= m, at most 6
    m on each of n m parameters; `side` is the shorter side m.

    >>> newton_schulz_flops(16384 * 16384, 16384, 5) == 5 * 6 * 16384**3
    True
    """
    return 6.0 * iterations * side * parameters


def matrices(
    layer: Layer, hidden: Count, adapters: Adapters | None, *, routed: bool
) -> Iterator[tuple[Count, Count]]:
    """Parameters of a layer's trained matrices, an expert's once, with their shorter side; of
    adapters their rank. Ours. [1]

    >>> from mofa_model.presets import model
    >>> llama = model("llama3-8b")
    >>> found = matrices(llama.kinds[0], llama.hidden, None, routed=False)
    >>> [(int(size), int(side)) for size, side in found]
    [(25165824, 2048), (16777216, 4096), (117440512, 4096), (58720256, 4096)]
    """
    for block in layer.blocks:
        for product in block.products(hidden):
            if (product.rows is Rows.ROUTED) is not routed or product.rows is Rows.SENT:
                continue
            if adapters is None:
                yield product.weights, np.minimum(product.n / product.branches, product.k)
                continue
            times = 1 if product.times is None else product.times
            widths = [product.k + width for name, width in product.linears if adapters.beside(name)]
            if widths:
                yield adapters.rank * times * sum(widths), np.minimum(adapters.rank, product.k)
