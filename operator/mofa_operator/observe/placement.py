"""Which jobs the watch sees, what each says of itself, and on which pool's nodes it runs. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from mofa_model.errors import InputError
from mofa_model.kinds import demand_of
from mofa_model.kinds.kind import JobKind
from mofa_model.kinds.observation import Observation
from mofa_model.spec.part import places
from mofa_model.spec.recovery_classes import RecoveryClass
from mofa_operator.objects import LiveObject, LiveProfile
from mofa_operator.observe.nodes import NodeFacts


@dataclass(frozen=True, kw_only=True)
class WatchedPool:
    """A ClusterProfile's nodes."""

    profile: LiveProfile
    """The ClusterProfile."""
    nodes: Mapping[str, NodeFacts]
    """Its nodes."""

    @cached_property
    def gpus_per_node(self) -> int:
        """GPUs that most of its nodes offer; 0 where none offers any. [1]"""
        sizes = Counter(facts.gpus for facts in self.nodes.values() if facts.gpus)
        return sizes.most_common(1)[0][0] if sizes else 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Told:
    """What a job's object says."""

    uid: str
    """Which object."""
    observation: Observation
    """What happens to it."""
    shows: frozenset[RecoveryClass]
    """Recovery classes that its kind's object can show."""
    gpus: int
    """GPUs of its pods; 0 = not known. [1]"""
    pod: int = 0
    """GPUs of one of them; 0 = not known, or not all have as many. [1]"""
    selector: Mapping[str, str] = field(default_factory=dict)
    """Labels of nodes that its pods ask for."""
    named: str | None = None
    """The profile that it, its policy or a TrainingJob names."""
    owners: frozenset[str] = frozenset()
    """Objects that made it, by uid."""


def told(kind: JobKind, job: LiveObject, named: str | None, now: float) -> Told:
    """What the object of a job of a kind says at a moment. `now` in seconds of the epoch. [s]"""
    try:
        demand = demand_of(job.body)
        gpus, pod, selector = demand.gpus, demand.pod, demand.selector
    except InputError:
        gpus, pod, selector = 0, 0, {}
    return Told(
        uid=job.uid,
        observation=kind.observed(job.body, now),
        shows=kind.shown(job.body),
        gpus=gpus,
        pod=pod,
        selector=selector,
        named=named,
        owners=job.owners,
    )


def innermost(jobs: Iterable[Told]) -> list[Told]:
    """Jobs without those that made others of them: a TrainJob and its JobSet are one job, which the JobSet shows better."""
    every = list(jobs)
    made = {uid for one in every for uid in one.owners}
    by_uid = {one.uid: one for one in every}
    found: list[Told] = []
    for one in every:
        if one.uid in made:
            continue
        named = one.named or next(
            (by_uid[uid].named for uid in sorted(one.owners) if uid in by_uid), None
        )
        found.append(one if named == one.named else replace(one, named=named))
    return found


def place(job: Told, pools: Mapping[str, WatchedPool]) -> tuple[str, float] | None:
    """The pool on whose nodes a job runs, and on how many; None where that is not known.

    It is the one that is named, else the only one, else the only one whose nodes its pods select; a job whose pods ask for
    other nodes is of no pool. A node counts as a whole one, whatever part of it the job has: it is lost as a whole.
    """
    fitting = [
        name
        for name, pool in pools.items()
        if pool.profile.asked.node_selector.items() <= job.selector.items()
    ]
    candidates = [job.named] if job.named else list(pools) if len(pools) == 1 else fitting
    if len(candidates) != 1 or (pool := pools.get(candidates[0])) is None or not job.gpus:
        return None
    if any(
        job.selector.get(label, value) != value
        for label, value in pool.profile.asked.node_selector.items()
    ):
        return None
    if not pool.gpus_per_node:
        return None
    found = places(job.gpus, pool.gpus_per_node, job.pod)
    return candidates[0], float(found[0]) if found else job.gpus / pool.gpus_per_node
