"""What a micro-batch does, for the rows of a block: sequence parallelism, recomputation, offload, graphs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import product
from operator import and_, or_
from typing import Any

from numpy.typing import NDArray

from mofa_model.axes.axis import Scope
from mofa_model.search.axes import Axes, within
from mofa_model.search.blocks import FeatureValue, ShapeBlock, feature_values, fields_of
from mofa_model.search.local import varied
from mofa_model.search.states import ZeroLevel
from mofa_model.strategy import Strategy

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Work:
    """Features of a micro-batch's work."""

    strategy: Strategy
    """The block's layout with them."""
    offset: int
    """Their part of the raw index."""
    ok: Mapping[int, Array]
    """Rows that can have them, by bundle."""

    def legal(self, state: ZeroLevel, bundles: Iterable[int]) -> Array:
        """Rows that can have the work beside each state in some of the bundles, [states, rows]."""
        first, *others = (state.ok[at] & self.ok[at] for at in bundles)
        return reduce(or_, others, first)


def works_of(axes: Axes, block: ShapeBlock) -> Iterator[Work]:
    """Every kind of work that some row of a block can have."""
    features = [feature_values(axes, axis, block.layers) for axis in within(Scope.WORK)]
    found: dict[tuple[FeatureValue, ...], dict[int, Array]] = {}
    for at, allowed in enumerate(block.allowed):
        live = [[one for one in some if one.beside(allowed).any()] for some in features]
        for chosen in product(*live):
            ok = reduce(and_, (one.beside(allowed) for one in chosen))
            if ok.any():
                found.setdefault(chosen, {})[at] = ok
    for chosen, can in found.items():
        yield Work(
            varied(block.layout, **fields_of(chosen)), sum(one.offset for one in chosen), can
        )
