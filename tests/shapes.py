"""Models that tests make: a decoder from few numbers, and presets with some of theirs changed.

decoder("small", layers=4, hidden=2048, attention=SoftmaxAttention(...), ffn=8192, vocabulary=32000)
deeper(model, 16)                        the same with 16 layers: the last run is longer or shorter
changed(model, Experts, imbalance=8.0)   the same with other experts
"""

from dataclasses import replace

import numpy as np

from mofa_model.blocks import Embedding, FeedForward, Layer
from mofa_model.spec import Run, Transformer


def decoder(
    name,
    *,
    layers,
    hidden,
    attention,
    ffn,
    vocabulary,
    gated=True,
    experts=None,
    dense_layers=0,
    **more,
):
    """Layers of attention and a feed-forward part, or experts in all but the
    first `dense_layers`.
    """
    plain = Layer((attention, FeedForward(width=ffn, gated=gated)))
    runs = [Run((plain,), layers)]
    if experts is not None:
        runs = [Run((plain,), dense_layers)] if dense_layers else []
        runs.append(Run((Layer((attention, experts)),), layers - dense_layers))
    return Transformer(
        name=name,
        hidden=hidden,
        runs=tuple(runs),
        embedding=Embedding(vocabulary=vocabulary),
        **more,
    )


def deeper(model, layers):
    """So many layers in all: the last run is longer or shorter, and stands alone where there is no
    room for the others.
    """
    *first, last = model.runs
    left = layers - sum(len(run.layers) * run.repeats for run in first)
    if np.any(np.asarray(left) < len(last.layers)):
        first, left = [], layers
    if np.any(
        np.asarray(left) % len(last.layers)
    ):  # a pattern that does not come out even: its last layer alone
        return replace(model, runs=(*first, Run((last.layers[-1],), left)))
    return replace(model, runs=(*first, replace(last, repeats=left / len(last.layers))))


def changed(model, kind, **changes):
    """Other numbers in every block of a kind."""

    def of(layer):
        return replace(
            layer,
            blocks=tuple(replace(b, **changes) if isinstance(b, kind) else b for b in layer.blocks),
        )

    return replace(
        model, runs=tuple(replace(run, layers=tuple(map(of, run.layers))) for run in model.runs)
    )


def ends(model, **changes):
    """Another embedding."""
    return replace(model, embedding=replace(model.embedding, **changes))
