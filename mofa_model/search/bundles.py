"""Features that a trainer refuses together: the axes cut into bundles, in each of which every value goes with every other.

One axis of a pair decides about the other. Its values are sorted by what they rule out; a bundle has the values of one kind on
every such axis, and lacks what these rule out. So a search walks each bundle as if nothing depended on anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from itertools import product
from operator import or_
from typing import Any, Final

import numpy as np

from mofa_model.axes.frameworks import Framework
from mofa_model.axes.rejection import Rejection
from mofa_model.axes.rules import AxisContext, Mask, Rows
from mofa_model.search.axes import FEATURES, Axes

_FEATURES: Final[Mapping[str, tuple[str, Callable[[Any], bool]]]] = {
    word: (axis.name, meant) for axis in FEATURES for word, meant in axis.apart.items()
}
"""Words of `apart` in frameworks.toml: an axis, and which of its values are meant."""
_NOTHING: Final = frozenset[tuple[str, int]]()


@dataclass(frozen=True, slots=True)
class Judged:
    """What stands against the values of an axis of features beside some shapes, whatever the bundle."""

    idle: Mask
    """Shapes beside which all its values say the same."""
    against: tuple[tuple[tuple[Rejection, Mask], ...], ...]
    """Reasons against each value, and the shapes that have them; what is lifted is none."""

    def acts(self, at: int) -> bool:
        """Whether some shape can have a value and has something for it to act on."""
        barred = (bad for _, bad in self.against[at])
        return not np.all(reduce(or_, barred, self.idle))


def judged(axes: Axes, given: AxisContext, rows: Rows) -> Mapping[str, Judged]:
    """Every axis of features, asked once for all bundles."""
    nowhere = np.zeros(len(rows["tp"]), dtype=bool)
    return {
        axis.name: Judged(
            idle=nowhere if axis.idle is None else axis.idle(rows),
            against=tuple(
                tuple(
                    one
                    for one in axis.value_rules(value, rows, given)
                    if one[0] not in given.lifted
                )
                if axis.value_rules is not None
                else ()
                for value in axes[axis.name]
            ),
        )
        for axis in FEATURES
    }


@dataclass(frozen=True, slots=True)
class Bundle:
    """A part of the space of features."""

    only: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """Positions of the values on axes that decide; an axis that is missing has all."""
    barred: Mapping[str, Mapping[int, frozenset[str]]] = field(default_factory=dict)
    """Positions of the values that these rule out, on the other axes, and the axes that do so."""

    def has(self, axis: str, at: int) -> bool:
        """Whether a value is in it."""
        return axis not in self.only or at in self.only[axis]

    def size(self, axis: str, values: tuple[Any, ...]) -> int:
        """Values of an axis in it. [1]"""
        return len(self.only.get(axis, values))


def bundles(axes: Axes, framework: Framework, known: Mapping[str, Judged]) -> tuple[Bundle, ...]:
    """The bundles of a trainer for some shapes, which share no combination and leave none out."""
    deciding: dict[str, dict[frozenset[tuple[str, int]], set[int]]] = {}
    for axis in dict.fromkeys(_FEATURES[first][0] for first, _ in framework.apart):
        kinds = deciding.setdefault(axis, {})
        for at, value in enumerate(axes[axis]):
            out = _ruled_out(axes, framework, axis, value)
            kinds.setdefault(out if out and known[axis].acts(at) else _NOTHING, set()).add(at)
    found = []
    for kinds_of in product(*(kinds.items() for kinds in deciding.values())):
        only = {axis: frozenset(mine) for axis, (_, mine) in zip(deciding, kinds_of, strict=True)}
        barred: dict[str, dict[int, frozenset[str]]] = {}
        for axis, (out, _) in zip(deciding, kinds_of, strict=True):
            for other, at in out:
                places = barred.setdefault(other, {})
                places[at] = places.get(at, frozenset()) | {axis}
        found.append(Bundle(only, barred))
    return tuple(found)


def _ruled_out(
    axes: Axes, framework: Framework, axis: str, value: Any
) -> frozenset[tuple[str, int]]:
    """Axis and position of every value that goes with none of this one."""
    out = set()
    for first, second in framework.apart:
        (mine, is_first), (other, is_second) = _FEATURES[first], _FEATURES[second]
        if mine == axis and is_first(value):
            out |= {(other, at) for at, one in enumerate(axes[other]) if is_second(one)}
    return frozenset(out)
