"""What stays in memory and is sent once a step: ZeRO levels with shard groups and placements."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mofa_model.axes.axis import Scope
from mofa_model.axes.rules import AxisContext, shard_group
from mofa_model.checks import anything, field_names
from mofa_model.estimate.gradient_exchange import GradientExchange, Hiding, gradient_exchange
from mofa_model.estimate.model_states import checkpoint_replicas, checkpoint_size, model_states
from mofa_model.records import dataclass, varied
from mofa_model.search.axes import Axes, within
from mofa_model.search.blocks import FeatureValues, ShapeBlock, combinations, feature_values
from mofa_model.spec import Workload
from mofa_model.strategy import Sharding, Strategy
from mofa_model.units import Bytes, Numeric

Array = NDArray[Any]


@dataclass(frozen=True)
class OptimizerStates:
    """Every ZeRO level with its shard groups and placements (states) on a leading axis."""

    levels: tuple[Sharding, ...]
    """The level of each state; those of one level stand together."""
    device_bytes: Array
    """Bytes that stay on the device, [states, kinds, rows]. [B]"""
    reserve: Bytes
    """What of them the stack holds before the first layer. [B]"""
    gather: Array | None
    """Bytes of the update that are gone when activations come, [states, kinds, rows]; None where
    no state has any. [B]"""
    parked: Array | None
    """Optimizer bytes of a node's devices in its host, [states, kinds, rows]; None where no state
    has any. [B]"""
    host: Array | None
    """Host memory of a node for them alone, [states, rows]. [B]"""
    exchange: GradientExchange
    """What they send and compute once a step, [states, rows]; the tied embedding [rows]."""
    offset: Array
    """Raw index of each state's values, [states, 1]."""
    ok: Array
    """Where a state is legal, [bundles, states, rows]."""
    checkpoint_bytes: Array
    """Bytes of a checkpoint, [states, rows]. [B]"""
    replicas: Array
    """Ranks that hold the same shard, [states, rows]."""

    def of(self, rows: NDArray[np.int64]) -> OptimizerStates:
        """The optimizer states of some of the rows."""
        return varied(
            self,
            device_bytes=self.device_bytes.take(rows, axis=-1),
            gather=None if self.gather is None else self.gather.take(rows, axis=-1),
            parked=None if self.parked is None else self.parked.take(rows, axis=-1),
            host=None if self.host is None else self.host.take(rows, axis=-1),
            exchange=self.sent(rows),
            ok=self.ok.take(rows, axis=-1),
            checkpoint_bytes=self.checkpoint_bytes.take(rows, axis=-1),
            replicas=self.replicas.take(rows, axis=-1),
        )

    def sent(self, rows: NDArray[np.int64]) -> GradientExchange:
        """The exchange of some of the rows."""
        every, embedding = self.exchange, self.exchange.embedding
        return varied(
            every,
            collective=np.take(every.collective, rows, axis=1),
            embedding=np.take(embedding, rows) if np.ndim(embedding) else embedding,
            optimizer=np.take(every.optimizer, rows, axis=1),
        )


def optimizer_states(axes: Axes, context: AxisContext, block: ShapeBlock) -> OptimizerStates | None:
    """The states that some row of a block can have; None where it can have none."""
    values = [feature_values(axes, block, axis) for axis in within(Scope.STATE)]
    levels: dict[Sharding, list[FeatureValues]] = {}
    for state in combinations(*values):
        if state.ok.any():
            levels.setdefault(state.fields["sharding"], []).append(state)
    states = [state for some in levels.values() for state in some]
    if not states:
        return None
    w, c, stages = context.workload, context.cluster, block.stage_kinds
    held, sent, saved, replicas = [], [], [], []
    for state in states:
        group = shard_group(state.fields["shard"], block.layout.tp, c)
        s = varied(block.layout, **{**state.fields, "shard": group})
        held.append(model_states(w, c, s, stages))
        sent.append(gradient_exchange(w, c, s, stages, block.micro_batches))
        saved.append(checkpoint_size(w, s))
        replicas.append(checkpoint_replicas(w, s))
    shape = stages.count.shape
    parked = None
    if any(np.any(some.host_states) for some in held):
        parked = _stacked([some.host_states * c.gpus_per_node for some in held], shape)
    gather = None
    if any(anything(some.gather) for some in held):
        gather = _stacked([some.gather for some in held], shape)
    return OptimizerStates(
        levels=tuple(state.fields["sharding"] for state in states),
        device_bytes=_stacked([some.total - some.gather for some in held], shape),
        reserve=c.calibration.memory.buffer,
        gather=gather,
        parked=parked,
        host=None if parked is None else np.max(parked, axis=1),
        exchange=GradientExchange(
            collective=_stacked([some.collective for some in sent], shape[1:]),
            hiding=Hiding(
                *(
                    np.array([getattr(some.hiding, name) for some in sent])[:, None]
                    for name in field_names(Hiding)
                )
            ),
            embedding=sent[0].embedding,
            optimizer=_stacked([some.optimizer for some in sent], shape[1:]),
        ),
        offset=np.array([state.offset for state in states], dtype=np.int64)[:, None],
        ok=np.stack([state.ok for state in states], axis=1),
        checkpoint_bytes=_stacked(saved, shape[1:]),
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
