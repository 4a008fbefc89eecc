"""What stays in memory and is sent once a step: ZeRO levels with shard groups and placements."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mofa_model.axes.axis import Scope
from mofa_model.axes.rules import AxisContext, shard_group
from mofa_model.estimate.gradient_exchange import gradient_exchange
from mofa_model.estimate.model_states import checkpoint_replicas, checkpoint_size, model_states
from mofa_model.records import dataclass
from mofa_model.search.axes import Axes, within
from mofa_model.search.blocks import FeatureValues, ShapeBlock, combinations, feature_values
from mofa_model.search.local import varied
from mofa_model.search.space import DEGREES
from mofa_model.spec import Workload
from mofa_model.strategy import Sharding, Strategy
from mofa_model.units import Bytes, Numeric

Array = NDArray[Any]


@dataclass(frozen=True)
class OptimizerStates:
    """One ZeRO level, with its shard groups and placements (states) on a leading axis."""

    level: Strategy
    """The strategy of the level; its shard group and placement are not those of the states."""
    held: Array
    """Bytes that stay on the device, [states, kinds, rows]. [B]"""
    parked: Array | None
    """Optimizer bytes of a node's devices in its host, [states, kinds, rows]; None where no state
    has any. [B]"""
    host: Array | None
    """Host memory of a node for them alone, [states, rows]. [B]"""
    collective: Array
    """Time of collectives, [states, rows]. [s]"""
    update: Array
    """Time of the optimizer update, [states, rows]. [s]"""
    embedding: Numeric
    """All-reduce of a tied embedding. [s]"""
    offset: Array
    """Raw index of each state's values, [states, 1]."""
    ok: Array
    """Where a state is legal, [bundles, states, rows]."""
    saved: Array
    """Bytes of a checkpoint, [states, rows]. [B]"""
    replicas: Array
    """Ranks that hold the same shard, [states, rows]."""

    def of(self, rows: NDArray[np.int64]) -> OptimizerStates:
        """The optimizer states of some of the rows."""

        def some(value: Any) -> Any:
            return np.take(value, rows, axis=-1) if np.ndim(value) else value

        degrees = {name: some(getattr(self.level, name)) for name in (*DEGREES, "shard")}
        return OptimizerStates(
            level=varied(self.level, **degrees),
            held=some(self.held),
            parked=None if self.parked is None else some(self.parked),
            host=None if self.host is None else some(self.host),
            collective=some(self.collective),
            update=some(self.update),
            embedding=some(self.embedding),
            offset=self.offset,
            ok=some(self.ok),
            saved=some(self.saved),
            replicas=some(self.replicas),
        )


def optimizer_states(axes: Axes, context: AxisContext, block: ShapeBlock) -> list[OptimizerStates]:
    """The states of every ZeRO level that some row of a block can have."""
    values = [feature_values(axes, block, axis) for axis in within(Scope.STATE)]
    states: dict[Sharding, list[FeatureValues]] = {}
    for state in combinations(*values):
        if state.ok.any():
            states.setdefault(state.fields["sharding"], []).append(state)
    return [_of_level(context, block, level, states[level]) for level in states]


def _of_level(
    context: AxisContext, block: ShapeBlock, level: Sharding, states: list[FeatureValues]
) -> OptimizerStates:
    w, c, stages = context.workload, context.cluster, block.stages
    base = varied(block.layout, sharding=level)
    held, sent, saved, replicas = [], [], [], []
    for state in states:
        group = shard_group(state.fields["shard"], base.tp, c)
        s = varied(base, **{**state.fields, "shard": group})
        held.append(model_states(w, c, s, stages))
        sent.append(gradient_exchange(w, c, s, stages, block.micro_batches))
        saved.append(checkpoint_size(w, s))
        replicas.append(checkpoint_replicas(w, s))
    shape = stages.count.shape
    parked = None
    if any(np.any(some.host_states) for some in held):
        parked = _stacked([some.host_states * c.gpus_per_node for some in held], shape)
    return OptimizerStates(
        level=base,
        held=_stacked([some.total for some in held], shape),
        parked=parked,
        host=None if parked is None else np.max(parked, axis=1),
        collective=_stacked([some.collective for some in sent], shape[1:]),
        update=_stacked([some.optimizer for some in sent], shape[1:]),
        embedding=sent[0].embedding,
        offset=np.array([state.offset for state in states], dtype=np.int64)[:, None],
        ok=np.stack([state.ok for state in states], axis=1),
        saved=_stacked(saved, shape[1:]),
        replicas=_stacked(replicas, shape[1:]),
    )


def _stacked(parts: list[Numeric], shape: tuple[int, ...]) -> Array:
    stacked = np.empty((len(parts), *shape))
    for at, part in enumerate(parts):
        stacked[at] = part
    return stacked


def least_checkpoint(axes: Axes, workload: Workload) -> Bytes:
    """Bytes of the smallest checkpoint that a strategy of these axes has. [B]"""
    # Sharding changes who writes, not what; and its groups are no numbers yet.
    changing = [axis for axis in within(Scope.STATE) if axis.name != "sharding"]
    sizes = []
    for values in product(*(axes[axis.name] for axis in changing)):
        fields: dict[str, Any] = {}
        for axis, value in zip(changing, values, strict=True):
            fields |= axis.chosen(value)
        sizes.append(float(checkpoint_size(workload, Strategy(**fields))))
    return min(sizes)
