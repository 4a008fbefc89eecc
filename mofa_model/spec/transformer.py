"""A model: layers in the order of the network with both ends, and how unevenly its router loads
experts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from mofa_model.blocks import Block, Embedding, Experts, Layer
from mofa_model.checks import not_negative, positive, whole
from mofa_model.errors import BadValue
from mofa_model.records import dataclass
from mofa_model.units import Numeric, Ratio


@dataclass(frozen=True)
class Run:
    """Some layers in order, several times: a pattern."""

    layers: tuple[Layer, ...]
    """The pattern."""
    repeats: Numeric = 1
    """How often it comes."""

    def __post_init__(self) -> None:
        positive(repeats=self.repeats)

    @staticmethod
    def of(layer_list: Sequence[Layer]) -> tuple[Run, ...]:
        """Layers as runs: each time, of the layers that are left, the pattern from their start that
        covers most of them, and of such patterns the shortest.

        >>> from mofa_model.blocks import FeedForward
        >>> a, b = (Layer((FeedForward(width=width),)) for width in (1, 2))
        >>> [(len(run.layers), run.repeats) for run in Run.of([a, a, b, a, a, b, a])]
        [(3, 2), (1, 1)]
        """
        runs: list[Run] = []
        left = list(layer_list)
        while left:
            # A single layer is taken only where no pattern repeats.
            covered = {
                size: size * times
                for size in range(1, len(left))
                if (times := _repeats(left, size)) > 1
            }
            size = max(covered, key=lambda size: (covered[size], -size), default=1)
            times = _repeats(left, size)
            runs.append(Run(tuple(left[:size]), times))
            left = left[size * times :]
        return tuple(runs)


@dataclass(frozen=True, kw_only=True)
class Transformer:
    """A decoder: embedding, runs of layers, head."""

    name: str
    """Preset id, or what the user calls it."""
    hidden: Numeric
    """Width of the residual stream."""
    runs: tuple[Run, ...]
    """Layers in the order of the network, without multi-token prediction modules; equal ones are
    one and the same object."""
    embedding: Embedding
    """Both ends."""
    prediction_modules: Numeric = 0
    """Multi-token prediction modules: each one more layer as the last one, and one more pass of the
    head."""

    def __post_init__(self) -> None:
        whole(hidden=self.hidden)
        not_negative(prediction_modules=self.prediction_modules)
        if not self.runs:
            raise BadValue("layers", 0, "give one layer or more")
        distinct: list[Layer] = []

        def shared(layer: Layer) -> Layer:
            for first in distinct:
                if _same(layer, first):
                    return first
            distinct.append(layer)
            return layer

        # Equal layers become one object, so that `kinds` does not have to compare numbers.
        runs = tuple(Run(tuple(map(shared, run.layers)), run.repeats) for run in self.runs)
        object.__setattr__(self, "runs", runs)

    @property
    def layers(self) -> Numeric:
        """Layers, without multi-token prediction modules. [1]"""
        return sum(len(run.layers) * run.repeats for run in self.runs)

    @cached_property
    def kinds(self) -> tuple[Layer, ...]:
        """Layers that differ, in the order in which they first come."""
        return tuple({id(layer): layer for run in self.runs for layer in run.layers}.values())

    def number(self, kind: Layer) -> Numeric:
        """Layers of a kind. [1]"""
        return sum(sum(layer is kind for layer in run.layers) * run.repeats for run in self.runs)

    @property
    def unlike(self) -> bool:
        """Whether layers begin with different blocks, so that their number hides their cost."""
        return len({layer.blocks[0].variant for layer in self.kinds}) > 1

    @cached_property
    def last(self) -> int:
        """Position in `kinds` of the last layer's kind, which prediction modules have too."""
        return [layer is self.runs[-1].layers[-1] for layer in self.kinds].index(True)

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """Every block of every kind of layer; one that is in several is there once."""
        return tuple({id(block): block for layer in self.kinds for block in layer.blocks}.values())

    @cached_property
    def experts(self) -> Experts | None:
        """The first experts of the model; None where it has none."""
        return next((block for block in self.blocks if isinstance(block, Experts)), None)


def _repeats(layers: Sequence[Layer], size: int) -> int:
    """How often the first `size` layers come one after the other. [1]"""
    times = 1
    while layers[times * size : (times + 1) * size] == layers[:size]:
        times += 1
    return times


def _same(first: Any, second: Any) -> bool:
    """Whether two descriptions are equal, whose numbers may be arrays."""
    if first is second:
        return True
    if is_dataclass(first):
        return type(first) is type(second) and all(
            _same(getattr(first, item.name), getattr(second, item.name)) for item in fields(first)
        )
    if isinstance(first, tuple):
        return len(first) == len(second) and all(map(_same, first, second))
    return bool(np.array_equal(first, second))


def with_imbalance(model: Transformer, mean: Ratio, spread: Ratio) -> Transformer:
    """A model whose router is uneven: mean and standard deviation of the load of the fullest rank,
    over the mean of the ranks.
    """

    def unevenly(layer: Layer) -> Layer:
        blocks = (
            replace(block, imbalance=mean, imbalance_spread=spread)
            if isinstance(block, Experts)
            else block
            for block in layer.blocks
        )
        return replace(layer, blocks=tuple(blocks))

    runs = (replace(run, layers=tuple(map(unevenly, run.layers))) for run in model.runs)
    return replace(model, runs=tuple(runs))


def read_imbalance(model: Transformer, text: str, *, field: str) -> Transformer:
    """The model with the expert imbalance that a text states as MEAN or MEAN:SPREAD."""
    first, colon, second = text.partition(":")
    try:
        mean, spread = float(first), float(second) if colon else 0.0
        loaded = with_imbalance(model, mean, spread)
    except ValueError:
        right = (
            "write MEAN or MEAN:SPREAD of the fullest rank's load over the mean, "
            "for example 1.4 or 1.4:0.3; "
            "a mean of at least 1, and a spread only above it"
        )
        raise BadValue(field, text, right) from None
    if model.experts is None and mean != 1:
        raise BadValue(field, text, f"{model.name} has no experts to which it could apply")
    return loaded
