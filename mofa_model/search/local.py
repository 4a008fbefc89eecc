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
from mofa_model.estimate.activation_memory import StoredLayer, stored_layers, under_autocast
from mofa_model.estimate.block_time import BlockTime, block_times, context_time
from mofa_model.estimate.layer_time import WORK_FEATURES, LayerWork, layer_times, layer_works
from mofa_model.estimate.stage_time import head_time
from mofa_model.estimate.terms import LayerTime
from mofa_model.placement import groups, joined, picked, row_of_each
from mofa_model.records import varied
from mofa_model.search.axes import SHAPE, within
from mofa_model.spec import Cluster, Workload
from mofa_model.strategy import DEGREES, ContextMode, Sharding, Strategy
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
_STORED: Final = (
    "sharding",
    *(
        name
        for axis in within(Scope.WORK)
        for name in axis.fields
        if name not in DEGREES and axis.name != _NO_WORK
    ),
)
"""Features on which its activations depend; of the level whether each product casts what
it reads.
"""
Array = NDArray[Any]


_SUMS: Final = ("forward", "backward", "weight", "recompute")
"""What of a layer's time a stage asks for."""


def layer_times_in(times: Array) -> list[LayerTime]:
    """Sums of every kind of layer in some columns of times, whose last row is head with
    loss. [s]
    """
    sums = times[:-1]
    kinds = [sums[at : at + len(_SUMS)] for at in range(0, len(sums), len(_SUMS))]
    return [LayerTime(**dict(zip(_SUMS, kind, strict=True))) for kind in kinds]


class LocalShapes:
    """The distinct local shapes of a table's rows; what was priced of them is kept."""

    def __init__(self, workload: Workload, cluster: Cluster, table: Rows) -> None:
        self._workload, self._cluster = workload, cluster
        self._has_chunks = bool(
            np.any(table["chunk_layers"])
        )  # not all layers of a stage run in chunks
        self.position = groups([table["mode"], *(table[name] for name in LOCAL)])
        """The local shape of every row."""
        first = row_of_each(self.position)
        # `groups` goes by the first column first: one mode stands behind the other.
        self._shapes = [
            varied(Strategy(), **{name: table[name][rows] for name in LOCAL}, context_mode=mode)
            for number, mode in enumerate(ContextMode)
            if len(rows := first[table["mode"][first] == number])
        ]
        """One family for each mode of context parallelism: it changes the messages of blocks."""
        self._priced: dict[Hashable, Any] = {}

    def times(self, strategy: Strategy, rows: NDArray[np.int64]) -> Array:
        """Times of layers (`layer_times_in`) and head under the features of a strategy, a column
        for each of some rows of the table. [s]
        """
        times: Array = self._once(_TIMES, strategy, self._times)
        return times.take(self.position[rows], axis=1)

    def stored(self, strategy: Strategy, rows: NDArray[np.int64]) -> tuple[StoredLayer, ...]:
        """Activations of layers under the features of a strategy, for some rows of the
        table. [B]
        """
        memory = self._cluster.calibration.memory
        level = strategy.sharding
        if not under_autocast(self._workload, memory, strategy):
            level = Sharding.OPTIMIZER
        layers = self._once(_STORED, varied(strategy, sharding=level), self._stored)
        places = self.position[rows]
        return tuple(
            varied(layer, **{name: picked(part, places) for name, part in vars(layer).items()})
            for layer in layers
        )

    def _every_stored(self, strategy: Strategy) -> tuple[StoredLayer, ...]:
        plain = varied(strategy, sharding=Sharding.OPTIMIZER)
        stored: tuple[StoredLayer, ...] = self._once(_STORED, plain, self._stored)
        return stored

    def _once(
        self, names: tuple[str, ...], work: Strategy, price: Callable[[dict[str, Any]], Any]
    ) -> Any:
        """The result of `price` for the named features; equal features are priced only once."""
        features = {name: getattr(work, name) for name in names}
        if "recompute_layers" in features:
            features["recompute_layers"] = float(np.any(features["recompute_layers"]))
        key = names, *features.values()
        if key not in self._priced:
            self._priced[key] = price(features)
        return self._priced[key]

    def _times(self, features: dict[str, Any]) -> Array:
        w, c = self._workload, self._cluster
        work = varied(self._every, **features)
        known = self._once(WORK_FEATURES, work, self._works)
        stored, many = self._every_stored(work) if work.offload else None, len(w.model.kinds)
        layers = layer_times(w, c, work, known[:many], stored and stored[:many])
        if self._has_chunks:
            whole = varied(work, chunks=1)
            layers += layer_times(w, c, whole, known[many:], stored and stored[many:])
        rows = [*(getattr(layer, name) for layer in layers for name in _SUMS), self._head]
        return np.stack([np.broadcast_to(row, sum(self._sizes)) for row in rows])

    def _works(self, features: dict[str, Any]) -> tuple[LayerWork, ...]:
        """Work of layers whose experts run in chunks, then of the same layers with
        whole experts.
        """
        w, c, parts = self._workload, self._cluster, []
        for family, blocks, whole_blocks in self._families:
            works = layer_works(w, c, varied(family, **features), blocks)
            if self._has_chunks:
                whole = varied(family, chunks=1, **features)
                works += layer_works(w, c, whole, whole_blocks)
            parts.append(works)
        joint: tuple[LayerWork, ...] = joined(parts, [len(family) for family, *_ in self._families])
        return joint

    def _stored(self, features: dict[str, Any]) -> tuple[StoredLayer, ...]:
        constants, parts = self._cluster.calibration.memory, []
        for family, *_ in self._families:
            work = varied(family, **features)
            layers = stored_layers(self._workload, constants, work)
            if self._has_chunks:
                layers += stored_layers(self._workload, constants, varied(work, chunks=1))
            parts.append(layers)
        sizes = [len(family) for family, *_ in self._families]
        joint: tuple[StoredLayer, ...] = joined(parts, sizes)
        return joint

    @cached_property
    def _every(self) -> Strategy:
        """All local shapes as one family, whatever the modes of context parallelism."""
        return _together(self._shapes)

    @cached_property
    def _families(self) -> list[tuple[Strategy, tuple[BlockTime, ...], tuple[BlockTime, ...]]]:
        """Families with the times of their blocks, and of those with whole experts. All local
        shapes are one where no keys are gathered: then the mode changes nothing but messages
        of blocks.
        """
        gathered = any(shape.context_mode is ContextMode.ALL_GATHER for shape in self._shapes)
        families = [[shape] for shape in self._shapes] if gathered else [self._shapes]
        return [
            (
                _together(family),
                self._blocks(family),
                self._blocks(family, chunks=1) if self._has_chunks else (),
            )
            for family in families
        ]

    def _blocks(self, shapes: list[Strategy], **changed: Any) -> tuple[BlockTime, ...]:
        """Times of blocks under some modes of context parallelism, one mode after the other."""
        w, c, sizes = self._workload, self._cluster, [len(shape) for shape in shapes]
        by_mode = [varied(shape, **changed) for shape in shapes]
        messages = [
            joined([context_time(w, c, shape, block) for shape in by_mode], sizes)
            for block in w.model.blocks
        ]
        every = varied(_together(shapes), **changed)
        times = zip(block_times(w, c, every), messages, strict=True)
        return tuple(varied(time, context_seconds=sent) for time, sent in times)

    @cached_property
    def _sizes(self) -> list[int]:
        """How many local shapes each mode has. [1]"""
        return [len(shapes) for shapes in self._shapes]

    @cached_property
    def _head(self) -> Seconds:
        head: Seconds = sum(head_time(self._workload, self._cluster, self._every).values())
        return head


def _together(shapes: list[Strategy]) -> Strategy:
    """Several families of shapes as one; their modes of context parallelism do not count."""
    degrees = {name: np.concatenate([getattr(shape, name) for shape in shapes]) for name in LOCAL}
    return varied(shapes[0], **degrees)
