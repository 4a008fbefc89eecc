"""How unevenly a router sends tokens to experts, said of a whole model."""

from __future__ import annotations

from dataclasses import replace

from mofa_model.blocks import Experts, Layer
from mofa_model.errors import BadValue
from mofa_model.spec.transformer import Transformer
from mofa_model.units import Ratio


def with_imbalance(model: Transformer, mean: Ratio, spread: Ratio) -> Transformer:
    """A model whose router loads the fullest rank so: mean and standard deviation over the mean of the ranks."""

    def of(layer: Layer) -> Layer:
        blocks = (
            replace(one, imbalance=mean, imbalance_spread=spread)
            if isinstance(one, Experts)
            else one
            for one in layer.blocks
        )
        return replace(layer, blocks=tuple(blocks))

    runs = (replace(run, layers=tuple(map(of, run.layers))) for run in model.runs)
    return replace(model, runs=tuple(runs))


def read_imbalance(model: Transformer, text: str, *, field: str) -> Transformer:
    """A model with the imbalance of a text: MEAN, or MEAN:SPREAD."""
    first, colon, second = text.partition(":")
    try:
        mean, spread = float(first), float(second) if colon else 0.0
        loaded = with_imbalance(model, mean, spread)
    except ValueError:
        right = (
            "write MEAN or MEAN:SPREAD of the fullest rank's load over the mean, for example 1.4 or 1.4:0.3; "
            "a mean of at least 1, and a spread only above it"
        )
        raise BadValue(field, text, right) from None
    if model.experts is None and mean != 1:
        raise BadValue(field, text, f"{model.name} has no experts to which it could apply")
    return loaded
