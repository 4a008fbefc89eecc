"""The sizes that a job may have which states none, and the one that is chosen.

    least-gpu-hours, soonest, least-gpus    what the annotation `advisor.mofa.dev/size` may say

Nodes, GPUs of each, batch and method lie within the bounds of the namespace's AdvisorPolicy and of
the pool; micro-batch, recomputation and the rest of a layout within its constraints. The choice is
`advice.sizes`, the same for command and operator.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from mofa_model.advice import best_size, sizes_of
from mofa_model.errors import BadValue, InputError
from mofa_model.manifest.advisor_policy import SizeBounds
from mofa_model.manifest.inputs import cluster_of
from mofa_model.manifest.jobs import JobQuestion, request_of
from mofa_model.manifest.parsing import Profile
from mofa_model.search.axes import node_counts

MOST: Final = 48
"""Sizes that are compared at most. [1]"""


def at_every_size(question: JobQuestion) -> tuple[JobQuestion, ...]:
    """The question at every size within its bounds that can be asked; none where it has
    its size.
    """
    bounds = question.size_bounds
    if bounds is None:
        return ()
    spec = question.spec
    batches = bounds.global_batch_sizes or [spec.training.global_batch_size]
    ranks: list[int | None] = [spec.training.adapter_rank]
    if bounds.methods:
        ranks = [None if method == "Full" else bounds.adapter_rank for method in bounds.methods]
    places = list(_places(bounds, question.profile))
    count = len(places) * len(batches) * len(ranks)
    if count > MOST:
        right = f"at most {MOST}; narrow nodes, gpusPerNode, globalBatchSizes or methods"
        raise BadValue("AdvisorPolicy: spec.sizing: sizes", count, right)
    sizes: list[JobQuestion] = []
    refused: InputError | None = None
    for (nodes, gpus), batch, rank in itertools.product(places, batches, ranks):
        cluster = spec.cluster.model_copy(update={"nodes": nodes, "gpus_per_node": gpus})
        training = spec.training.model_copy(
            update={"global_batch_size": batch, "adapter_rank": rank}
        )
        changed = spec.model_copy(update={"cluster": cluster, "training": training})
        sized_question = replace(question, spec=changed, size_bounds=None)
        try:
            request_of(sized_question)
        except InputError as error:  # a batch that no number of devices divides, for example
            refused = error
            continue
        sizes.append(sized_question)
    if not sizes and refused is not None:
        raise refused
    return tuple(sizes)


def at_best_size(question: JobQuestion) -> JobQuestion:
    """The question at the size that is chosen; where none surely fits, at the largest."""
    if question.size_bounds is None:
        return question
    sizes = at_every_size(question)
    answered = sizes_of([request_of(option) for option in sizes], question.size)
    best = best_size(answered, question.size)
    return sizes[-1 if best is None else answered.index(best)]


def _places(bounds: SizeBounds, profile: Profile) -> Iterator[tuple[int, int]]:
    """Nodes and GPUs of each; several nodes only with the most GPUs of one."""
    whole = int(cluster_of(profile.spec, 1).gpus_per_node)
    allowed = sorted(gpus for gpus in bounds.gpus_per_node if gpus <= whole)
    if bounds.gpus_per_node and not allowed:
        right = f"nodes of profile {profile.name} have {whole}"
        raise BadValue("AdvisorPolicy: spec.sizing.gpusPerNode", min(bounds.gpus_per_node), right)
    gpus = allowed or [*(2**power for power in range(8) if 2**power < whole), whole]
    most = min(bounds.max_nodes or usable_nodes(profile), usable_nodes(profile))
    if most < bounds.min_nodes:
        raise InputError(
            f"ClusterProfile {profile.name}: it has {most} nodes for a job of at least "
            f"{bounds.min_nodes} (AdvisorPolicy: spec.sizing.minNodes)"
        )
    for nodes in node_counts(most):
        if nodes >= bounds.min_nodes:
            yield from ((nodes, count) for count in (gpus if nodes == 1 else gpus[-1:]))


def usable_nodes(profile: Profile) -> int:
    """Nodes that a new job can count with: those that the pool had nearly always in the last hours,
    less its spares. [1]
    """
    pool = profile.status.nodes
    if pool is None:
        raise InputError(
            f"ClusterProfile {profile.name}: its status states no nodes, and the policy no "
            "maxNodes; give spec.sizing.maxNodes in the AdvisorPolicy"
        )
    return max(0, pool.reliable - (profile.spec.failures.spare_nodes or 0))
