"""What stays in memory and is sent once a step, for the rows of a block: every ZeRO level with all its groups and placements."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from itertools import product
from operator import and_
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mofa_model.axes.axis import Scope
from mofa_model.axes.rules import AxisContext, shard_group
from mofa_model.estimate.exchange import traffic
from mofa_model.estimate.resident import resident
from mofa_model.estimate.saved import checkpoint_replicas, checkpoint_size
from mofa_model.search.axes import Axes, within
from mofa_model.search.blocks import ShapeBlock, feature_values, fields_of
from mofa_model.search.local import varied
from mofa_model.search.space import DEGREES
from mofa_model.spec import Workload
from mofa_model.strategy import Sharding, Strategy
from mofa_model.units import Bytes, Numeric

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class ZeroLevel:
    """One ZeRO level, with its shard groups and optimizer placements on a leading axis."""

    level: Strategy
    """The strategy of the level; its shard group and placement say nothing."""
    held: Array
    """Bytes that stay on the device, [states, kinds, rows]. [B]"""
    parked: Array | None
    """Optimizer bytes of a node's devices in its host, [states, kinds, rows]; None where no state has any. [B]"""
    host: Array | None
    """Host memory of a node for them alone, [states, rows]. [B]"""
    collective: Array
    """Collectives, [states, rows]. [s]"""
    optimizer: Array
    """Update, [states, rows]. [s]"""
    embedding: Numeric
    """All-reduce of a tied embedding. [s]"""
    offset: Array
    """Raw index of each state's values, [states, 1]."""
    ok: tuple[Array, ...]
    """Legal, [states, rows], in each bundle."""
    saved: Array
    """Bytes of a checkpoint, [states, rows]. [B]"""
    replicas: Array
    """Ranks that hold the same shard, [states, rows]."""

    def of(self, rows: NDArray[np.int64]) -> ZeroLevel:
        """The same for some of the rows."""

        def some(value: Any) -> Any:
            return np.take(value, rows, axis=-1) if np.ndim(value) else value

        return ZeroLevel(
            level=varied(
                self.level,
                **{name: some(getattr(self.level, name)) for name in (*DEGREES, "shard")},
            ),
            held=some(self.held),
            parked=None if self.parked is None else some(self.parked),
            host=None if self.host is None else some(self.host),
            collective=some(self.collective),
            optimizer=some(self.optimizer),
            embedding=some(self.embedding),
            offset=self.offset,
            ok=tuple(map(some, self.ok)),
            saved=some(self.saved),
            replicas=some(self.replicas),
        )


def states_of(axes: Axes, given: AxisContext, block: ShapeBlock) -> list[ZeroLevel]:
    """Everything of each ZeRO level that does not depend on a micro-batch's work."""
    levels = dict.fromkeys(shard.level for shard in axes["sharding"])
    return [state for level in levels if (state := _state(axes, given, block, level)) is not None]


def _state(axes: Axes, given: AxisContext, block: ShapeBlock, level: Sharding) -> ZeroLevel | None:
    w, c, stages, m = given.workload, given.cluster, block.stages, block.rows["micro_batches"]
    base = varied(block.layout, sharding=level)
    rows, offsets, legal, saved, replicas = [], [], [], [], []
    first, *others = sorted(within(Scope.STATE), key=lambda axis: axis.name != "sharding")
    shards = [one for one in feature_values(axes, first) if one.value.level is level]
    for shard, *more in product(shards, *(feature_values(axes, axis) for axis in others)):
        chosen = (shard, *more)
        ok = [reduce(and_, (one.beside(allowed) for one in chosen)) for allowed in block.allowed]
        if not any(some.any() for some in ok):
            continue
        group = shard_group(shard.value, block.rows, c)
        s = varied(base, shard=group, **fields_of(more))
        rows.append((resident(w, c, s, stages), traffic(w, c, s, stages, micro_batches=m)))
        offsets.append(sum(one.offset for one in chosen))
        legal.append(ok)
        saved.append(checkpoint_size(w, s))
        replicas.append(checkpoint_replicas(w, s))
    if not rows:
        return None
    shape = stages.count.shape
    parks = any(np.any(held.parked) for held, _ in rows)
    parked = _stacked([held.parked * c.gpus_per_node for held, _ in rows], shape) if parks else None
    return ZeroLevel(
        level=base,
        held=_stacked([held.total for held, _ in rows], shape),
        parked=parked,
        host=None if parked is None else np.max(parked, axis=1),
        collective=_stacked([sent.collective for _, sent in rows], shape[1:]),
        optimizer=_stacked([sent.optimizer for _, sent in rows], shape[1:]),
        embedding=rows[0][1].embedding,
        offset=np.array(offsets, dtype=np.int64)[:, None],
        ok=tuple(np.stack(some) for some in zip(*legal, strict=True)),
        saved=_stacked(saved, shape[1:]),
        replicas=_stacked(replicas, shape[1:]),
    )


def least_checkpoint(axes: Axes, workload: Workload) -> Bytes:
    """Bytes of the smallest checkpoint that a strategy of these axes has. [B]"""
    # How states are shared out changes who writes, not what: sharding is left out, its groups are no numbers yet.
    choices = (
        feature_values(axes, axis) for axis in within(Scope.STATE) if axis.name != "sharding"
    )
    chosen = product(*choices)
    return min(float(checkpoint_size(workload, Strategy(**fields_of(values)))) for values in chosen)


def _stacked(parts: list[Numeric], shape: tuple[int, ...]) -> Array:
    stacked = np.empty((len(parts), *shape))
    for at, part in enumerate(parts):
        stacked[at] = part
    return stacked
