"""The rules of one value on an axis of features, beside every shape: what stands against it, and where it acts on nothing."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.axes.choices import (
    IN_NODE,
    ContextMode,
    Graphs,
    Placement,
    Recomputation,
    Recompute,
    Shard,
    Sharding,
)
from mofa_model.axes.rules import Found, Given, Mask, Rows, in_mode
from mofa_model.axes.verdict import Rejection
from mofa_model.equations import host, parameters
from mofa_model.schedules import INTERLEAVED, SCHEDULES
from mofa_model.spec import Calibration, Cluster, OverlapConstants

FULL: Final = frozenset({Sharding.GRADIENTS, Sharding.WEIGHTS})
"""Levels that share gradients as well."""
LAUNCH_BOUND: Final = 0.5
"""Launches over the least time of a layer's products from which graphs are tried: below it they gain less than a percent. [1]"""


def sequence_parallel_bad(value: bool, r: Rows, g: Given) -> Found:
    """What stands against sequence parallelism, or against none."""
    tokens = g.workload.training.sequence / r["cp"]
    if value:
        return [(Rejection.NOT_DIVISIBLE, np.mod(tokens, r["tp"]) != 0)]
    mixed = g.workload.model.experts is not None
    return [(Rejection.SEQUENCE_PARALLEL_NEEDED, (r["tp"] > 1) & mixed)]


def sharding_bad(value: Shard, r: Rows, g: Given) -> Found:
    """What stands against a ZeRO level and its shard group."""
    found: Found = []
    if not g.framework.shards_in_pipeline(value.level.value):
        found.append((Rejection.NOT_IN_FRAMEWORK, r["pp"] > 1))
    if value.level in FULL or value.group:
        found += _other_optimizer("sharded_optimizers", r, g)
    if value.level is Sharding.WEIGHTS and g.framework.keeps("folded_experts"):
        found.append((Rejection.NOT_IN_FRAMEWORK, (r["ep"] > 1) & (r["cp"] > 1)))
    for mode, levels in g.framework.given.get("context_sharding", {}).items():
        if value.level.value not in levels:
            found.append((Rejection.NOT_IN_FRAMEWORK, in_mode(r, mode)))
    if value.group:
        found.append((Rejection.NOT_IN_FRAMEWORK, _other_context("group_context", r, g)))
        group = shard_group(value, r, g.cluster)
        found.append(
            (Rejection.DUPLICATE, (group <= 1) | (group >= np.maximum(r["ranks"], r["copies"])))
        )
        found.append((Rejection.NOT_DIVISIBLE, np.mod(r["ranks"], group) != 0))
        if least := g.framework.given.get("shard_contexts"):
            few = (group < least * r["cp"]) & (r["cp"] > 1)
            found.append((Rejection.NOT_IN_FRAMEWORK, (np.mod(group, r["cp"]) != 0) | few))
        if g.framework.keeps("one_shard_group"):
            found.append((Rejection.NOT_IN_FRAMEWORK, r["copies"] != r["ranks"]))
        if g.framework.keeps("expert_groups"):
            groups = r["ranks"] / group
            found.append((Rejection.DUPLICATE, groups <= 1))
            found.append((Rejection.NOT_IN_FRAMEWORK, np.mod(r["copies"], groups) != 0))
    return found


def host_bad(value: Placement, r: Rows, g: Given) -> Found:
    """What stands against states on the host."""
    if value is not Placement.HOST:
        return []
    folded = (r["ep"] > 1) & (r["tp"] > 1) & g.framework.keeps("folded_experts")
    elsewhere = folded | _other_context("host_context", r, g)
    return [(Rejection.NOT_IN_FRAMEWORK, elsewhere), *_other_optimizer("host_optimizers", r, g)]


def _other_context(key: str, r: Rows, g: Given) -> Mask:
    """Rows whose context parallelism runs beside no such thing."""
    known = g.framework.given.get(key)
    beside = [
        in_mode(r, mode.value)
        for mode in ContextMode
        if known is not None and mode.value not in known
    ]
    found: Mask = np.any([np.zeros(len(r["tp"]), dtype=bool), *beside], axis=0)
    return found


def _other_optimizer(key: str, r: Rows, g: Given) -> Found:
    """What stands against states that are shared or kept so: an optimizer for which the trainer cannot."""
    name = g.workload.training.optimizer.name
    known = name in g.framework.given.get(key, (name,))
    return [] if known else [(Rejection.NOT_IN_FRAMEWORK, np.ones(len(r["tp"]), dtype=bool))]


def recompute_bad(value: Recomputation, r: Rows, g: Given) -> Found:
    """What stands against recomputing some layers of a stage: that they are all; and what the trainer cannot say."""
    if value.mode is Recompute.FULL and value.layers:
        found: Found = [(Rejection.DUPLICATE, value.layers >= r["deepest"])]
        if g.framework.keeps("recompute_by_chunk"):
            found.append((Rejection.NOT_IN_FRAMEWORK, np.mod(value.layers, r["vpp"]) != 0))
        return found
    never = g.framework.given.get("recompute_never", {}).get(g.workload.training.precision.name, ())
    if value.mode is Recompute.SELECTIVE and value.modules & set(never):
        return [(Rejection.NOT_IN_FRAMEWORK, np.ones(len(r["tp"]), dtype=bool))]
    return []


def offload_bad(value: frozenset[str], r: Rows, _: Given) -> Found:
    """What stands against offloading activations: no campaign has measured what it costs."""
    return [(Rejection.OFFLOAD_UNPROVEN, np.ones(len(r["tp"]), dtype=bool))] if value else []


def graphs_bad(value: Graphs, r: Rows, g: Given) -> Found:
    """What stands against CUDA graphs: shapes that change from step to step, and a device that is busy enough without."""
    if value is Graphs.NONE:
        return []
    model, training = g.workload.model, g.workload.training
    everywhere = np.ones(len(r["tp"]), dtype=bool)
    found: Found = []
    if training.documents is not None:
        found.append((Rejection.NOT_IN_FRAMEWORK, everywhere))
    if (
        value is Graphs.FULL and model.experts is not None
    ):  # who goes where is known at the last moment
        found.append((Rejection.GRAPHS_UNNEEDED, everywhere))
    c, tp = g.cluster.calibration.host, r["tp"]
    launches = sum(
        run.repeats
        * host.layer_launch_time(
            *c.of_layer(routed=layer.routed),
            tp,
            g.cluster.gpus_per_node,
            c.extra_node,
            c.extra_rank,
        )
        for run in model.runs
        for layer in run.layers
    )
    flops = parameters.training_flops_per_token(model, training.sequence, convention="causal")
    tokens = r["mbs"] * training.sequence / (r["cp"] * tp)
    products = tokens * flops / g.cluster.device.peak(training.precision.gemm)
    return [*found, (Rejection.GRAPHS_UNNEEDED, launches < LAUNCH_BOUND * products)]


def experts_bad(value: bool, r: Rows, g: Given) -> Found:
    """What stands against overlapping the exchange of experts: a trainer that needs other chunks to run meanwhile."""
    if not value:
        return []
    bad = np.zeros(len(r["pp"]), dtype=bool)
    if g.framework.keeps("expert_overlap_interleaved"):
        bad |= (r["pp"] > 1) & ~_interleaved(r)
    if g.workload.model.prediction_modules > g.framework.given.get(
        "expert_overlap_predictions", np.inf
    ):
        bad |= True
    return [(Rejection.NOT_IN_FRAMEWORK, bad)]


def _interleaved(r: Rows) -> Mask:
    found: Mask = r["schedule"] == SCHEDULES.index(INTERLEAVED)
    return found


def hops_bad(value: bool, r: Rows, g: Given) -> Found:
    """What stands against overlapping pipeline hops, or against not: a trainer that cannot."""
    if not value:
        two = _interleaved(r) & (r["pp"] == 2) & g.framework.keeps("overlap_between_two")
        return [(Rejection.NOT_IN_FRAMEWORK, two)]
    blocked = [
        at for at, schedule in enumerate(SCHEDULES) if not g.framework.overlaps_hops(schedule.value)
    ]
    return [(Rejection.NOT_IN_FRAMEWORK, np.isin(r["schedule"], blocked) & (r["pp"] > 1))]


def alone(r: Rows) -> Mask:
    """Rows on which nobody shares anything: one data-parallel rank, of experts too."""
    found: Mask = np.maximum(r["ranks"], r["copies"]) == 1
    return found


def tensor_better(c: Calibration) -> bool:
    """Whether overlap of tensor parallelism is never slower than none.

    Overlap leaves at most the whole communication exposed, and slows compute by less than it hides. Memory is the same.
    """
    k = c.overlap
    return _gentle(k) and bool(np.all(np.asarray(k.tensor_overlapped) <= k.tensor))


def experts_better(c: Calibration) -> bool:
    """The same of the exchange of experts, which must not cost launches either."""
    free = bool(np.all(np.asarray(c.host.expert_overlap) <= 0.0))
    return (
        free and _gentle(c.overlap) and bool(np.all(np.asarray(c.overlap.expert_overlapped) <= 1.0))
    )


def data_better(c: Calibration) -> bool:
    """The same of gradients and parameters, which hide behind no slower compute."""
    k = c.overlap
    return bool(np.all((np.asarray(k.data_tail) <= 1.0) & (np.asarray(k.gather_tail) <= 1.0)))


def _gentle(k: OverlapConstants) -> bool:
    return bool(np.all(np.asarray(k.slow_down) <= 2.0))


def shard_group(value: Shard, r: Rows, cluster: Cluster) -> NDArray[Any]:
    """Data-parallel ranks that share one copy; 0 = all. [1]"""
    if value.group == IN_NODE:
        return np.floor(cluster.domain / r["tp"])
    return np.full(len(r["tp"]), float(value.group))
