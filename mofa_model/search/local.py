"""What one device does, on the distinct local shapes: thousands of strategies share a few hundred of them.

The time and the activations of a layer depend on the degrees that cut it up and on the features of its work, not on
stages, data parallelism or sharding. Each kind of work is asked for once and spread over the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from mofa_model.axes.axis import Scope
from mofa_model.axes.rules import Rows
from mofa_model.checks import field_names
from mofa_model.estimate.blocks import BlockTime, block_times
from mofa_model.estimate.layer import LayerTime, layer_times
from mofa_model.estimate.stage import head_time
from mofa_model.estimate.stored import StoredLayer, stored_layers
from mofa_model.placement import distinct
from mofa_model.search.axes import SHAPE, within
from mofa_model.spec import Cluster, Workload
from mofa_model.strategy import DEGREES, ContextMode, Strategy
from mofa_model.units import Seconds

LOCAL: Final = tuple(
    name for axis in SHAPE if axis.local for name in axis.fields if name in DEGREES
)
"""Degrees that the work of one device on a layer depends on."""
_TIMES: Final = tuple(name for axis in within(Scope.WORK, Scope.LAYER) for name in axis.fields)
"""Features that its time depends on; of the layers that are recomputed only whether some or all are."""
_STORED: Final = tuple(
    name for axis in within(Scope.WORK) for name in axis.fields if name not in DEGREES
)
"""Features that its activations depend on."""

FEW: Final = 16
"""Rows are few where there are so many times more."""

Array = NDArray[Any]
_Terms = TypeVar("_Terms")


@dataclass(frozen=True, slots=True)
class LayerSums:
    """A layer's time as a stage asks for it. [s]"""

    forward: Seconds
    backward: Seconds
    weight: Seconds
    recompute: Seconds


Times = tuple[tuple[LayerSums, ...], Seconds]
"""Layers of every kind, and head with loss. [s]"""
Stored = tuple[StoredLayer, ...]


class Locals:
    """The distinct local shapes of some rows, and what was asked of them."""

    def __init__(self, workload: Workload, cluster: Cluster, table: Rows, members: Array) -> None:
        self._workload, self._cluster = workload, cluster
        self._some = bool(np.any(table["chunk_layers"]))  # not all layers of a stage run in chunks
        rows = {name: table[name][members] for name in ("mode", *LOCAL)}
        first, place = distinct([rows["mode"], *(rows[name] for name in LOCAL)])
        # `distinct` goes by the first column first: one mode stands behind the other.
        parts = [(first[rows["mode"][first] == at], mode) for at, mode in enumerate(ContextMode)]
        self._kinds = tuple(
            LocalShapes(
                workload,
                cluster,
                _shape({name: rows[name][some] for name in LOCAL}, mode),
                some.size,
            )
            for some, mode in parts
            if some.size
        )
        self.position = np.full(len(table["mode"]), -1)
        """The place of every row of the table among what is answered; -1 for others than the members."""
        self.position[members] = place
        self._asked: dict[Hashable, Any] = {}
        self._table = table

    def narrowed(self, members: Array) -> Locals:
        """The same for few of the rows; for many it pays to ask for all, once."""
        if not len(members) or FEW * len(members) > len(self.position):
            return self
        return Locals(self._workload, self._cluster, self._table, members)

    def times(self, work: Strategy) -> Times:
        """Times of layers and head under a kind of work, on every local shape."""
        return self._ask(_TIMES, work, self._times)

    def stored(self, work: Strategy) -> Stored:
        """Activations of layers under a kind of work, on every local shape."""
        return self._ask(_STORED, work, self._stored)

    def _ask(
        self,
        names: tuple[str, ...],
        work: Strategy,
        answer: Callable[[LocalShapes, Strategy], _Terms],
    ) -> _Terms:
        features = {name: getattr(work, name) for name in names}
        if "recompute_layers" in features:
            features["recompute_layers"] = float(np.any(features["recompute_layers"]))
        key = tuple(features.values())
        if key not in self._asked:
            self._asked[key] = _joined(
                [answer(kind, varied(kind.shapes, **features)) for kind in self._kinds],
                [kind.size for kind in self._kinds],
            )
        found: _Terms = self._asked[key]
        return found

    def _times(self, kind: LocalShapes, work: Strategy) -> Times:
        layers = layer_times(self._workload, self._cluster, work, kind.blocks)
        if self._some:
            layers += layer_times(self._workload, self._cluster, varied(work, chunks=1), kind.whole)
        return tuple(map(_sums, layers)), kind.head

    def _stored(self, _: LocalShapes, work: Strategy) -> Stored:
        constants = self._cluster.calibration.memory
        layers = stored_layers(self._workload, constants, work)
        if self._some:
            layers += stored_layers(self._workload, constants, varied(work, chunks=1))
        return layers


@dataclass(frozen=True)
class LocalShapes:
    """Local shapes of one mode of context parallelism, and what of their price no feature changes."""

    workload: Workload
    cluster: Cluster
    shapes: Strategy
    size: int

    @cached_property
    def blocks(self) -> list[BlockTime]:
        """Times of the blocks."""
        return block_times(self.workload, self.cluster, self.shapes)

    @cached_property
    def whole(self) -> list[BlockTime]:
        """The same where experts do not run in chunks."""
        return block_times(self.workload, self.cluster, varied(self.shapes, chunks=1))

    @cached_property
    def head(self) -> Seconds:
        """Time of head and loss. [s]"""
        return head_time(self.workload, self.cluster, self.shapes).total


def _shape(degrees: dict[str, Any], mode: ContextMode) -> Strategy:
    return Strategy(**degrees, context_mode=mode)


def _sums(layer: LayerTime) -> LayerSums:
    return LayerSums(layer.forward, layer.backward, layer.weight, layer.recompute)


def _joined(parts: list[Any], sizes: list[int]) -> Any:
    """Answers for several lists of shapes, one after the other."""
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], float | np.ndarray):
        whole = [np.broadcast_to(part, size) for part, size in zip(parts, sizes, strict=True)]
        return np.concatenate(whole)
    if isinstance(parts[0], tuple):
        return tuple(_joined(list(group), sizes) for group in zip(*parts, strict=True))
    found = {}
    for item in fields(parts[0]):
        values = [getattr(part, item.name) for part in parts]
        whole = [np.broadcast_to(value, size) for value, size in zip(values, sizes, strict=True)]
        found[item.name] = np.concatenate(whole)
    return type(parts[0])(**found)


def varied(strategy: Strategy, **changes: Any) -> Strategy:
    """A strategy with other values that are known to be right: as `replace`, without checking every row again."""
    other, put = object.__new__(Strategy), object.__setattr__
    for name in field_names(Strategy):
        put(other, name, changes[name] if name in changes else getattr(strategy, name))
    return other
