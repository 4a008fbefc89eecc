"""Everything in a cluster that tells of jobs; and which job a person means by a name."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from mofa_model.errors import BadValue, UnknownName
from mofa_model.kinds import Kind, ReferencedObjects
from mofa_model.kinds.shape import Body
from mofa_operator.api import Api
from mofa_operator.api_errors import Gone, Refused
from mofa_operator.keys import (
    ADVISOR_POLICY,
    CLUSTER_PROFILE,
    CONFIG_MAP,
    FAILURE_LEDGER,
    JOBS,
    NAMESPACE,
    NODE,
    TRAINING_JOB,
    Key,
    key_of,
)
from mofa_operator.objects import LiveObject, LiveTrainingJob, live
from mofa_operator.observe.cluster.relations import Dependencies, objects_named
from mofa_operator.observe.cluster.store import Store
from mofa_operator.observe.nodes import NodeFacts, facts_of
from mofa_operator.snapshot import Named

_HOPS: Final = 3
"""From a job to its runtime, from its pods to a claim's template, from that to a class. [1]"""
AROUND: Final = (NODE, FAILURE_LEDGER, CLUSTER_PROFILE, ADVISOR_POLICY, NAMESPACE)
"""Kinds that a job's question depends on. They are put into the store before the jobs."""
AnswerTexts: TypeAlias = Mapping[str, str]
"""The annotations of an answer, by name without prefix; empty = there is no answer."""


@dataclass(frozen=True, kw_only=True)
class ClusterSeen:
    """What was read of a cluster."""

    store: Store
    """The objects, in the form in which the operator makes questions of them."""
    jobs: Mapping[Key, LiveObject]
    """Jobs of every kind, without those that another job made."""
    node_facts: Mapping[str, NodeFacts]
    """Nodes by name."""
    absent: frozenset[Kind]
    """Kinds that the cluster does not have."""
    refused: Mapping[Kind, str]
    """Kinds that this account may not list, each with the message of the API server."""
    beside: Mapping[Key, ReferencedObjects]
    """Objects that a job names and that say how many GPUs it has, such as a TrainJob's runtime."""
    now: float
    """When it was read, in seconds of the epoch. [s]"""

    def speaks(self, key: Key) -> bool:
        """Whether a key is a TrainingJob whose `targetRef` names a job that is there."""
        job = self.jobs.get(key)
        return (
            isinstance(job, LiveTrainingJob) and job.target is not None and job.target in self.jobs
        )

    def speaker(self, key: Key) -> LiveTrainingJob | None:
        """The TrainingJob that asks for a job: itself, or the one whose targetRef names it."""
        if key.kind != TRAINING_JOB:
            key = Key(TRAINING_JOB, key.namespace, self.store.owner(key) or "")
        training_job = self.jobs.get(key)
        return training_job if isinstance(training_job, LiveTrainingJob) else None


async def read_fleet(api: Api, namespace: str = "") -> ClusterSeen:
    """Read all namespaces of a cluster, or one; a kind that may not be listed is no error."""
    kinds = (*AROUND, *JOBS)
    listings = await asyncio.gather(*(_listed(api, kind, namespace) for kind in kinds))
    by_kind = dict(zip(kinds, listings, strict=True))
    store, nodes, bodies = Store(), dict[str, NodeFacts](), list[tuple[Kind, Body]]()
    for kind, listing in by_kind.items():
        for body in listing if isinstance(listing, list) else ():
            store.put(kind, body)
            if kind == NODE:
                nodes[key_of(kind, body).name] = facts_of(body)
            elif kind in JOBS:
                bodies.append((kind, body))
    store.link_all()
    jobs = _outermost(live(kind, body) for kind, body in bodies)
    return ClusterSeen(
        store=store,
        jobs=jobs,
        beside=await _beside(api, jobs.values()),
        node_facts=nodes,
        absent=frozenset(kind for kind, listing in by_kind.items() if listing is None),
        refused={kind: listing for kind, listing in by_kind.items() if isinstance(listing, str)},
        now=time.time(),
    )


async def _listed(api: Api, kind: Kind, namespace: str) -> list[Body] | str | None:
    """Objects of a kind; None where there is no such kind, a text where we may not."""
    try:
        return [body async for body in api.list(kind, namespace if kind.namespaced else None)]
    except Gone:
        return None
    except Refused as error:
        return str(error)


async def _beside(api: Api, jobs: Iterable[LiveObject]) -> dict[Key, ReferencedObjects]:
    """The objects that jobs name, and those that these name in turn; each is read once."""
    read: dict[Key, Body | None] = {}
    by_job: dict[Key, ReferencedObjects] = {}
    for job in jobs:
        named = Named()
        for _ in range(_HOPS):
            keys = [
                key
                for key in objects_named(job.key, Dependencies(asks=False), job.body, named)
                if key.kind != CONFIG_MAP
            ]
            for key in keys:
                if key not in read:
                    with contextlib.suppress(Refused):
                        read[key] = await api.get(key.kind, key.namespace, key.name)
            if not (new_bodies := [body for key in keys if (body := read.get(key)) is not None]):
                break
            named = Named(beside=(*named.beside, *new_bodies))
        if named.beside:
            by_job[job.key] = ReferencedObjects(named.beside)
    return by_job


def _outermost(jobs: Iterable[LiveObject]) -> dict[Key, LiveObject]:
    """The jobs that no job of the list owns: of a TrainJob and its JobSet only the TrainJob."""
    all_jobs = list(jobs)
    uids = {job.uid for job in all_jobs}
    return {job.key: job for job in all_jobs if not job.owners & uids}


def named(key: Key) -> str:
    """A job as kubectl names it, with the resource of its kind.

    >>> from mofa_model.kinds import VOLCANO_JOB
    >>> named(Key(VOLCANO_JOB, "ml", "llama"))
    'jobs.batch.volcano.sh/llama'
    """
    return f"{key.kind.resource}/{key.name}"


def job_named(text: str, jobs: Collection[Key], namespace: str) -> Key:
    """The job that NAME or KIND/NAME names; a TrainingJob before the job of its targetRef."""
    word, slash, name = text.rpartition("/")
    kinds = kinds_of(word) if slash else JOBS
    local = [key for key in jobs if key.namespace == namespace]
    namesakes = [key for key in jobs if key.name == name and key.kind in kinds]
    candidates = sorted(
        (key for key in namesakes if key.namespace == namespace),
        key=lambda key: key.kind != TRAINING_JOB,
    )
    if not candidates and namesakes:
        other = min(key.namespace for key in namesakes)
        raise BadValue("job", text, f"there is none in {namespace}; give -n {other}")
    if not candidates:
        also = f"`kubectl mofa top -n {namespace}` lists those of this namespace"
        raise UnknownName("job", text, sorted({key.name for key in local}), also=also)
    if len(candidates) > 1 and candidates[0].kind != TRAINING_JOB:
        *first, last = map(named, candidates)
        right = f"it may mean several: give {', '.join(first)} or {last}"
        raise BadValue("job", text, right)
    return candidates[0]


def kinds_of(word: str) -> list[Kind]:
    """The kinds that a word means to kubectl: jobset, jobsets, jobsets.jobset.x-k8s.io, tjob."""
    names_by_kind: dict[Kind, tuple[str, ...]] = {
        kind: (kind.kind.lower(), kind.plural, kind.resource) for kind in JOBS
    }
    names_by_kind[TRAINING_JOB] = (*names_by_kind[TRAINING_JOB], "tjob")
    kinds = [kind for kind, names in names_by_kind.items() if word.lower() in names]
    if not kinds:
        raise UnknownName("kind", word, [kind.kind.lower() for kind in JOBS])
    return kinds
