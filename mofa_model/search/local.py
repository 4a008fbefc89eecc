"""The work of one device, on the few distinct local shapes that thousands of strategies share.

The time and the activations of a layer depend on the degrees that cut it up and on the features of
its work, not on stages, data parallelism or sharding. Each option of a micro-batch is priced once
and spread over the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.axes.axis import Scope
from mofa_model.axes.rules import Rows
from mofa_model.estimate.activation_memory import StoredLayer, stored_layers
from mofa_model.estimate.block_time import BlockTime, block_times
from mofa_model.estimate.layer_time import WORK, LayerWork, layer_times, layer_works
from mofa_model.estimate.stage_time import head_time
from mofa_model.estimate.terms import LayerTime
from mofa_model.placement import groups, joined, row_of_each
from mofa_model.records import varied
from mofa_model.search.axes import SHAPE, within
from mofa_model.spec import Cluster, Workload
from mofa_model.strategy import DEGREES, ContextMode, Strategy
from mofa_model.units import Seconds

LOCAL: Final = tuple(
    name for axis in SHAPE if axis.local for name in axis.fields if name in DEGREES
)
"""Degrees on which the work of one device on a layer depends."""
_NO_WORK: Final = "graphs"
"""A feature that changes what is launched and held around layers, and nothing of a layer."""
_TIMES: Final = tuple(
    name
    for axis in within(Scope.WORK, Scope.LAYER)
    for name in axis.fields
    if axis.name != _NO_WORK
)
"""Features on which its time depends; of recomputed layers only whether they are some or all."""
_STORED: Final = tuple(
    name
    for axis in within(Scope.WORK)
    for name in axis.fields
    if name not in DEGREES and axis.name != _NO_WORK
)
"""Features on which its activations depend."""
FEW: Final = 16
"""Rows are few where the table has so many times more."""

Array = NDArray[Any]


Times = tuple[tuple[LayerTime, ...], Seconds]
"""Sums of every kind of layer, and time of head with loss. [s]"""


class LocalShapes:
    """The distinct local shapes of some rows; what was priced of them is kept."""

    def __init__(self, workload: Workload, cluster: Cluster, table: Rows, members: Array) -> None:
        self._workload, self._cluster, self._table = workload, cluster, table
        self._some = bool(np.any(table["chunk_layers"]))  # not all layers of a stage run in chunks
        rows = {name: table[name][members] for name in ("mode", *LOCAL)}
        place = groups([rows["mode"], *(rows[name] for name in LOCAL)])
        first = row_of_each(place)
        # `groups` goes by the first column first: one mode stands behind the other.
        self._shapes = [
            varied(Strategy(), **{name: rows[name][some] for name in LOCAL}, context_mode=mode)
            for at, mode in enumerate(ContextMode)
            if len(some := first[rows["mode"][first] == at])
        ]
        """One family for each mode of context parallelism."""
        self.position = np.full(len(table["mode"]), -1)
        """The local shape of every row of the table; -1 for others than the members."""
        self.position[members] = place
        self._priced: dict[Hashable, Any] = {}
        self._known: dict[Hashable, tuple[LayerWork, ...]] = {}

    def narrowed(self, members: Array) -> LocalShapes:
        """Shapes of these rows alone if they are few; for many it pays to price all at once."""
        if not len(members) or FEW * len(members) > len(self.position):
            return self
        return LocalShapes(self._workload, self._cluster, self._table, members)

    def times(self, strategy: Strategy) -> Times:
        """Times of layers and head under the features of a strategy, on every local shape."""
        times: Times = self._on_every_shape(_TIMES, strategy, self._times)
        return times

    def stored(self, strategy: Strategy) -> tuple[StoredLayer, ...]:
        """Activations of layers under the features of a strategy, on every local shape."""
        stored: tuple[StoredLayer, ...] = self._on_every_shape(_STORED, strategy, self._stored)
        return stored

    def _on_every_shape(
        self, names: tuple[str, ...], work: Strategy, price: Callable[[int, Strategy], Any]
    ) -> Any:
        features = {name: getattr(work, name) for name in names}
        if "recompute_layers" in features:
            features["recompute_layers"] = float(np.any(features["recompute_layers"]))
        key = tuple(features.values())
        if key not in self._priced:
            parts = [
                price(mode, varied(shapes, **features)) for mode, shapes in enumerate(self._shapes)
            ]
            self._priced[key] = joined(parts, [len(shapes) for shapes in self._shapes])
        return self._priced[key]

    def _times(self, mode: int, work: Strategy) -> Times:
        w, c = self._workload, self._cluster
        layers = layer_times(w, c, work, self._works(mode, work, whole=False))
        if self._some:
            whole = varied(work, chunks=1)
            layers += layer_times(w, c, whole, self._works(mode, whole, whole=True))
        return tuple(map(_sums, layers)), self._heads[mode]

    def _works(self, mode: int, work: Strategy, *, whole: bool) -> tuple[LayerWork, ...]:
        """Work of layers under the features of a strategy, of all local shapes of a mode."""
        key = mode, whole, *(getattr(work, name) for name in WORK)
        if key not in self._known:
            blocks = (self._whole_blocks if whole else self._blocks)[mode]
            self._known[key] = layer_works(self._workload, self._cluster, work, blocks)
        return self._known[key]

    def _stored(self, _: int, work: Strategy) -> tuple[StoredLayer, ...]:
        constants = self._cluster.calibration.memory
        layers = stored_layers(self._workload, constants, work)
        if self._some:
            layers += stored_layers(self._workload, constants, varied(work, chunks=1))
        return layers

    @cached_property
    def _blocks(self) -> list[list[BlockTime]]:
        return [block_times(self._workload, self._cluster, shapes) for shapes in self._shapes]

    @cached_property
    def _whole_blocks(self) -> list[list[BlockTime]]:
        whole = [varied(shapes, chunks=1) for shapes in self._shapes]
        return [block_times(self._workload, self._cluster, shapes) for shapes in whole]

    @cached_property
    def _heads(self) -> list[Seconds]:
        return [
            sum(head_time(self._workload, self._cluster, shapes).values())
            for shapes in self._shapes
        ]


def _sums(layer: LayerTime) -> LayerTime:
    """A layer's time without its terms: a stage asks for the sums alone."""
    return LayerTime(
        forward=layer.forward,
        backward=layer.backward,
        weight=layer.weight,
        recompute=layer.recompute,
    )
