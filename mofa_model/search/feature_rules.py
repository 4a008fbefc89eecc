"""The rules of one value on an axis of features, beside every shape: what stands against it, and where it acts on nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.schedules import INTERLEAVED, SCHEDULES
from mofa_model.search.axes import IN_NODE, Recomputation, Shard
from mofa_model.search.rules import Given, Mask, Rows
from mofa_model.search.verdict import Reason
from mofa_model.spec import Cluster
from mofa_model.strategy import Recompute

Found = list[tuple[Reason, Mask]]
"""Reasons against a value on an axis of features, with the rows they hold for."""


def sequence_parallel_bad(value: bool, r: Rows, g: Given) -> Found:
    """What stands against sequence parallelism, or against none."""
    tokens = g.workload.training.sequence / r["cp"]
    if value:
        return [(Reason.NOT_DIVISIBLE, np.mod(tokens, r["tp"]) != 0)]
    mixed = g.workload.model.experts is not None
    return [(Reason.SEQUENCE_PARALLEL_NEEDED, (r["tp"] > 1) & mixed)]


def sharding_bad(value: Shard, r: Rows, g: Given) -> Found:
    """What stands against a ZeRO level and its shard group."""
    found = []
    if not g.framework.shards_in_pipeline(value.level.value):
        found.append((Reason.NOT_IN_FRAMEWORK, r["pp"] > 1))
    if value.group:
        group = shard_group(value, r, g.cluster)
        found.append((Reason.DUPLICATE, (group <= 1) | (group >= np.maximum(r["ranks"], r["copies"]))))
        found.append((Reason.NOT_DIVISIBLE, np.mod(r["ranks"], group) != 0))
        if g.framework.keeps("shard_holds_context"):
            found.append((Reason.NOT_IN_FRAMEWORK, np.mod(group, r["cp"]) != 0))
        if g.framework.keeps("one_shard_group"):
            found.append((Reason.NOT_IN_FRAMEWORK, r["copies"] != r["ranks"]))
    return found


def recompute_bad(value: Recomputation, r: Rows, g: Given) -> Found:
    """What stands against recomputing some layers of a stage: that they are all; and what the trainer cannot say."""
    if value.mode is Recompute.FULL and value.layers:
        found: Found = [(Reason.DUPLICATE, value.layers >= r["deepest"])]
        if g.framework.keeps("recompute_by_chunk"):
            found.append((Reason.NOT_IN_FRAMEWORK, np.mod(value.layers, r["vpp"]) != 0))
        return found
    never = g.framework.given.get("recompute_never", {}).get(g.workload.training.precision.name, ())
    if value.mode is Recompute.SELECTIVE and value.modules & set(never):
        return [(Reason.NOT_IN_FRAMEWORK, np.ones(len(r["tp"]), dtype=bool))]
    return []


def offload_bad(value: frozenset[str], r: Rows, _: Given) -> Found:
    """What stands against offloading activations: no campaign has measured what it costs."""
    return [(Reason.OFFLOAD_UNPROVEN, np.ones(len(r["tp"]), dtype=bool))] if value else []


def experts_bad(value: bool, r: Rows, g: Given) -> Found:
    """What stands against overlapping the exchange of experts: a trainer that needs other chunks to run meanwhile."""
    if not value:
        return []
    bad = np.zeros(len(r["pp"]), dtype=bool)
    if g.framework.keeps("expert_overlap_interleaved"):
        bad |= (r["pp"] > 1) & ~_interleaved(r)
    if g.workload.model.prediction_modules > g.framework.given.get("expert_overlap_predictions", np.inf):
        bad |= True
    return [(Reason.NOT_IN_FRAMEWORK, bad)]


def _interleaved(r: Rows) -> Mask:
    found: Mask = r["schedule"] == SCHEDULES.index(INTERLEAVED)
    return found


def hops_bad(value: bool, r: Rows, g: Given) -> Found:
    """What stands against overlapping pipeline hops, or against not: a trainer that cannot."""
    if not value:
        two = _interleaved(r) & (r["pp"] == 2) & g.framework.keeps("overlap_between_two")
        return [(Reason.NOT_IN_FRAMEWORK, two)]
    blocked = [at for at, schedule in enumerate(SCHEDULES) if not g.framework.overlaps_hops(schedule.value)]
    return [(Reason.NOT_IN_FRAMEWORK, np.isin(r["schedule"], blocked) & (r["pp"] > 1))]


FEATURE_RULES: Final[Mapping[str, Callable[[Any, Rows, Given], Found]]] = {
    "sp": sequence_parallel_bad,
    "sharding": sharding_bad,
    "recompute": recompute_bad,
    "offload": offload_bad,
    "pipeline_overlap": hops_bad,
    "expert_overlap": experts_bad,
}
"""Rules of one value on an axis of features."""

IDLE: Final[Mapping[str, Callable[[Rows], Mask]]] = {
    "sp": lambda r: r["tp"] == 1,
    "sharding": lambda r: np.maximum(r["ranks"], r["copies"]) == 1,
    "tensor_overlap": lambda r: r["tp"] == 1,
    "data_overlap": lambda r: np.maximum(r["ranks"], r["copies"]) == 1,
    "pipeline_overlap": lambda r: r["pp"] == 1,
    "expert_overlap": lambda r: r["ep"] == 1,
}
"""Rows on which an axis of features has nothing to act on, so that all its values say the same."""


def dominated(axis: str, cluster: Cluster) -> bool:
    """Whether overlap is proved to be never slower than none on an axis, so that `none` is pruned.

    Overlap leaves at most the whole communication exposed, and slows compute by less than it hides. Memory is the same.
    """
    k = cluster.calibration.overlap
    gentle = bool(np.all(np.asarray(k.slow_down) <= 2.0))
    return {
        "tensor_overlap": gentle and bool(np.all(np.asarray(k.tensor_overlapped) <= k.tensor)),
        "expert_overlap": gentle and bool(np.all(np.asarray(k.expert_overlapped) <= 1.0)),
        "data_overlap": bool(np.all((np.asarray(k.data_tail) <= 1.0) & (np.asarray(k.gather_tail) <= 1.0))),
        "pipeline_overlap": True,
    }.get(axis, False)


def shard_group(value: Shard, r: Rows, cluster: Cluster) -> NDArray[Any]:
    """Data-parallel ranks that share one copy; 0 = all. [1]"""
    if value.group == IN_NODE:
        return np.floor(cluster.domain / r["tp"])
    return np.full(len(r["tp"]), float(value.group))
