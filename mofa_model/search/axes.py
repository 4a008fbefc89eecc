"""The values on every axis of one search. Each combination is a raw strategy and has an index."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import field, replace
from functools import cached_property
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.axes.axis import Axis, Scope
from mofa_model.axes.frameworks import Framework
from mofa_model.axes.rules import AxisContext
from mofa_model.axes.words import Number
from mofa_model.records import dataclass
from mofa_model.strategy import AXES

QUESTION: Final = (
    Axis(
        name="precision", fields=("precision",), scope=Scope.QUESTION, complexity=20,
        tried=lambda context: context.precisions,
        values="the recipes that were given", example="--precision bf16,fp8-current",
    ),
    Axis(
        name="nodes", fields=("nodes",), scope=Scope.QUESTION, complexity=1,
        tried=lambda context: context.nodes,
        limits=(Number(key="nodes", field="nodes"),),
        values="the number that was given; below a maximum: powers of two, three times those, "
        "and the maximum",
        example="--nodes`, `--max-nodes",
    ),
)  # fmt: skip
"""Axes of the question, which are no part of a strategy."""
EVERY: Final = tuple(sorted((*QUESTION, *AXES), key=lambda axis: -axis.complexity))
"""All axes, the most complex first: so ties go to the plainer strategy."""
SHAPE: Final = tuple(axis for axis in AXES if axis.scope is Scope.SHAPE)
"""Axes that fix degrees and schedule; enumerated first, in this order."""
FEATURES: Final = tuple(axis for axis in AXES if axis.scope > Scope.SHAPE)
"""Axes of features, each beside every shape."""
OVERLAPS: Final = tuple(
    sorted((axis for axis in AXES if axis.scope > Scope.WORK), key=lambda axis: axis.scope)
)
"""Features that change times alone: those of a layer first, those of the whole step last."""


def within(*scopes: Scope) -> tuple[Axis, ...]:
    """The axes that change some parts of a step."""
    return tuple(axis for axis in AXES if axis.scope in scopes)


@dataclass(frozen=True)
class Axes:
    """Names and values, the most complex axis first."""

    values: Mapping[str, tuple[Any, ...]]
    """Values of each axis, the plainest first."""
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Least and most of numbers that follow from axes: `dp`, `micro_batches`."""

    @property
    def raw(self) -> int:
        """Combinations of all values."""
        return prod(len(v) for v in self.values.values())

    def __getitem__(self, name: str) -> tuple[Any, ...]:
        return self.values[name]

    @cached_property
    def strides(self) -> Mapping[str, int]:
        """Weight of each axis in the raw index of a combination; the last axis has 1."""
        strides, left = {}, self.raw
        for name, values in self.values.items():
            left //= len(values)
            strides[name] = left
        return strides

    def fields_of(self, index: NDArray[np.int64]) -> list[dict[str, Any]]:
        """Fields of `Strategy` of each combination, by raw indices."""
        columns: dict[str, list[Any]] = {}
        for axis in AXES:
            values = [axis.chosen(value) for value in self[axis.name]]
            places = (index // self.strides[axis.name] % len(values)).tolist()
            for name in axis.fields:
                of_value = [fields[name] for fields in values]
                columns[name] = [of_value[at] for at in places]
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def where(self, kept: Callable[[Axis, Any], bool]) -> Axes:
        """The axes with only the values for which `kept` is true."""
        values = {
            axis.name: tuple(value for value in self[axis.name] if kept(axis, value))
            for axis in EVERY
        }
        return replace(self, values=values)

    def supported_by(self, trainer: Framework, built: Collection[str] = ()) -> Axes:
        """The axes with values that a trainer supports; all values of the axes in `built`."""
        return self.where(
            lambda axis, value: axis.name in built or axis.supported_by(trainer, value)
        )

    def known(self, has: Callable[[Axis, Any], bool], keys: Collection[str] = ()) -> Axes:
        """Axes with values of measured runs; all values where a constraint names the axis."""
        asked = {axis.name for axis in EVERY if any(word.key in keys for word in axis.keys)}
        return self.where(
            lambda axis, value: axis in QUESTION or axis.name in asked or has(axis, value)
        )


def known_axes(context: AxisContext) -> Axes:
    """Every value that the search tries by itself, or where a constraint names it."""
    return Axes({axis.name: axis.tried(context) for axis in EVERY})


def node_counts(most: int) -> tuple[int, ...]:
    """Node counts that are tried: powers of two, three times those, and the maximum itself.

    >>> node_counts(10)
    (1, 2, 3, 4, 6, 8, 10)
    """
    powers = [2**e for e in range(most.bit_length())]
    return tuple(sorted({n for p in powers for n in (p, 3 * p) if n <= most} | {most}))
