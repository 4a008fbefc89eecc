"""Which values the search tries by itself on an axis. Their order is the order of simplicity."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from mofa_model.axes.choices import (
    IN_NODE,
    NO_MODULES,
    Context,
    ContextMode,
    Pipeline,
    Recomputation,
    Recompute,
    Shard,
    Sharding,
)
from mofa_model.axes.rules import AxisContext
from mofa_model.blocks import LatentAttention
from mofa_model.schedules import SCHEDULES

TENSOR: Final = (1, 2, 4, 8, 16, 32, 64)
CONTEXT: Final = (2, 4, 8, 16, 32, 64)
BATCH: Final = (1, 2, 4, 8, 16, 32)
EXPERT_TENSOR: Final = (1, 2, 4, 8)
CHUNKS: Final = (1, 2, 4, 8)
RECOMPUTED: Final = (1, 2, 3, 4, 6, 8, 12, 16)


Tried = Callable[[AxisContext], tuple[Any, ...]]


def of_all(*values: Any) -> Tried:
    """A rule that tries the same values for every model."""
    return lambda _: values


def of_experts(*values: Any) -> Tried:
    """Values that need experts; the first one alone in a model without."""
    return lambda context: values[:1] if context.workload.model.experts is None else values


def contexts(_: AxisContext) -> tuple[Context, ...]:
    """No context parallelism, and every size in every mode."""
    alone = Context(ContextMode.RING, 1)
    return (alone, *(Context(mode, size) for mode in ContextMode for size in CONTEXT))


def context_sizes(sizes: Sequence[int], contexts: Sequence[Context]) -> tuple[Context, ...]:
    """Values of context parallelism: the listed sizes, each in every mode that is still allowed."""
    modes = dict.fromkeys(value.mode for value in contexts if value.size > 1) or {
        ContextMode.RING: None
    }
    return tuple(
        Context(mode, size)
        for size in sizes
        for mode in ((ContextMode.RING,) if size == 1 else modes)
    )


def stage_counts(context: AxisContext) -> tuple[int, ...]:
    """Every number up to layers + 2 that divides the devices."""
    deepest, per_node = int(context.workload.model.layers) + 2, int(context.cluster.gpus_per_node)
    return tuple(
        p for p in range(1, deepest + 1) if any((n * per_node) % p == 0 for n in context.nodes)
    )


def micro_batches(context: AxisContext) -> tuple[int, ...]:
    """Powers of two, and three times those where they divide the global batch."""
    batch = int(context.workload.training.global_batch)
    thrice = (3 * n for n in BATCH[:-2] if batch % (3 * n) == 0)
    return tuple(sorted({*BATCH, *thrice}))


def pipelines(context: AxisContext) -> tuple[Pipeline, ...]:
    """Every schedule with its numbers of virtual stages."""
    layers = int(context.workload.model.layers)
    return tuple(Pipeline(s, v) for s in SCHEDULES for v in s.virtual_stages(layers))


def virtual_stages(numbers: Sequence[int], pipelines: Sequence[Pipeline]) -> tuple[Pipeline, ...]:
    """Pipelines with the listed numbers of virtual stages.

    One virtual stage keeps the schedules that are left; more go with every schedule that has more.
    """
    plain = tuple(value for value in pipelines if value.virtual == 1 and 1 in numbers)
    more = [Pipeline(s, n) for s in SCHEDULES for n in numbers if n > 1 and (s.looped or s.folded)]
    return plain + tuple(value for value in more if value.schedule.looped or value in pipelines)


def expert_groups(context: AxisContext) -> tuple[int, ...]:
    """The divisors of the experts."""
    return (
        (1,)
        if context.workload.model.experts is None
        else divisors(int(context.workload.model.experts.count))
    )


def shards(_: AxisContext) -> tuple[Shard, ...]:
    """Every level, over all ranks and over those of a scale-up domain."""
    levels = [level for level in Sharding if level is not Sharding.NONE]
    return (
        Shard(Sharding.NONE, 0),
        *(Shard(level, group) for level in levels for group in (0, IN_NODE)),
    )


def shard_groups(groups: Sequence[int], shards: Sequence[Shard]) -> tuple[Shard, ...]:
    """The levels that are left, each over listed numbers of ranks; 0 = all of them."""
    levels = dict.fromkeys(value.level for value in shards if value.level is not Sharding.NONE)
    return tuple(Shard(level, group) for level in levels for group in groups)


def recomputations(context: AxisContext) -> tuple[Recomputation, ...]:
    """No recomputation, the sets of modules that suit the model or trainer, and whole layers."""
    sets = context.framework.module_sets or tuple(map(frozenset, _module_sets(context)))
    return (
        Recomputation(Recompute.NONE, NO_MODULES, 0),
        *(Recomputation(Recompute.SELECTIVE, modules, 0) for modules in sets),
        *(Recomputation(Recompute.FULL, NO_MODULES, n) for n in RECOMPUTED),
        Recomputation(Recompute.FULL, NO_MODULES, 0),
    )


def _module_sets(context: AxisContext) -> list[list[str]]:
    """Sets of modules that suit the model."""
    activation, whole = (
        ("mlp_act", "mlp") if context.workload.model.experts is None else ("moe_act", "moe")
    )
    sets = [["layernorm"], [activation], ["layernorm", activation], [whole], ["layernorm", whole]]
    if any(isinstance(block, LatentAttention) for block in context.workload.model.blocks):
        sets += [["mla_up_proj"], ["layernorm", "mla_up_proj", activation]]
    if np.any(np.asarray(context.cluster.calibration.memory.score) > 0):
        return [["core_attn"], *sets, ["core_attn", "layernorm", activation]]
    return sets


def offloads(context: AxisContext) -> tuple[frozenset[str], ...]:
    """No offloading, and each set of activations that the trainer can offload."""
    experts = context.workload.model.experts is not None
    return (frozenset(), *context.framework.offloads(experts=experts))


def divisors(number: int) -> tuple[int, ...]:
    """All divisors, smallest first.

    >>> divisors(12)
    (1, 2, 3, 4, 6, 12)
    """
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return tuple(sorted({*small, *(number // d for d in small)}))
