"""Everything in a cluster that tells of jobs; and which job a person means by a name."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from mofa_model.errors import BadValue, UnknownName
from mofa_model.kinds import Beside, Kind
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
"""What stands around jobs; before them, so that their questions are whole."""


Told: TypeAlias = Mapping[str, str]
"""Annotations of an answer, without their prefix; empty = there is none."""


@dataclass(frozen=True, kw_only=True)
class ClusterSeen:
    """What was read of a cluster."""

    store: Store
    """The same as the operator has it, for questions."""
    jobs: Mapping[Key, LiveObject]
    """Jobs of every kind, one for each gang of pods: what another job made is left out."""
    node_facts: Mapping[str, NodeFacts]
    """Nodes by name."""
    absent: frozenset[Kind]
    """Kinds that the cluster does not have."""
    refused: Mapping[Kind, str]
    """Kinds that may not be listed, and what the API server said."""
    beside: Mapping[Key, Beside]
    """What jobs name that says how many GPUs they have, of those that do not say it themselves: a
    TrainJob's runtime."""
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
        owner = self.store.owner(key)
        speaking = (
            key if key.kind == TRAINING_JOB else Key(TRAINING_JOB, key.namespace, owner or "")
        )
        training_job = self.jobs.get(speaking)
        return training_job if isinstance(training_job, LiveTrainingJob) else None


async def read_fleet(api: Api, namespace: str = "") -> ClusterSeen:
    """Read it, of all namespaces or of one; what may not be listed is noted and not an error."""
    asked = (*AROUND, *JOBS)
    lists = await asyncio.gather(*(_listed(api, kind, namespace) for kind in asked))
    store, nodes, bodies = Store(), dict[str, NodeFacts](), list[tuple[Kind, Body]]()
    for kind, found in zip(asked, lists, strict=True):
        for body in found if isinstance(found, list) else ():
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
        absent=frozenset(kind for kind, found in zip(asked, lists, strict=True) if found is None),
        refused={
            kind: found for kind, found in zip(asked, lists, strict=True) if isinstance(found, str)
        },
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


async def _beside(api: Api, jobs: Iterable[LiveObject]) -> dict[Key, Beside]:
    """What jobs name, and what that names in turn; each object is read once."""
    read: dict[Key, Body | None] = {}
    found: dict[Key, Beside] = {}
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
            if not (here := [body for key in keys if (body := read.get(key)) is not None]):
                break
            named = Named(beside=(*named.beside, *here))
        if named.beside:
            found[job.key] = Beside(named.beside)
    return found


def _outermost(jobs: Iterable[LiveObject]) -> dict[Key, LiveObject]:
    """The jobs that no job of the list owns: of a TrainJob and its JobSet only the TrainJob."""
    all_jobs = list(jobs)
    uids = {job.uid for job in all_jobs}
    return {job.key: job for job in all_jobs if not job.owners & uids}


def named(key: Key) -> str:
    """A job as kubectl tells it from others of the same short name.

    >>> from mofa_model.kinds import VOLCANO_JOB
    >>> named(Key(VOLCANO_JOB, "ml", "llama"))
    'jobs.batch.volcano.sh/llama'
    """
    return f"{key.kind.resource}/{key.name}"


def job_named(text: str, jobs: Collection[Key], namespace: str) -> Key:
    """The job that NAME or KIND/NAME names; a TrainingJob before what it speaks for."""
    word, slash, name = text.rpartition("/")
    kinds = kinds_of(word) if slash else JOBS
    here = [key for key in jobs if key.namespace == namespace]
    found = sorted(
        (key for key in here if key.name == name and key.kind in kinds),
        key=lambda key: key.kind != TRAINING_JOB,
    )
    if not found:
        elsewhere = sorted(
            {key.namespace for key in jobs if key.name == name and key.kind in kinds}
        )
        if elsewhere:
            raise BadValue("job", text, f"there is none in {namespace}; give -n {elsewhere[0]}")
        also = f"`kubectl mofa top -n {namespace}` lists those of this namespace"
        raise UnknownName("job", text, sorted({key.name for key in here}), also=also)
    if len(found) > 1 and found[0].kind != TRAINING_JOB:
        raise BadValue("job", text, f"it may mean several: give {_either(map(named, found))}")
    return found[0]


def kinds_of(word: str) -> list[Kind]:
    """The kinds that a word means to kubectl: jobset, jobsets, jobsets.jobset.x-k8s.io, tjob."""
    low = word.lower()
    known: dict[Kind, tuple[str, ...]] = {
        kind: (kind.kind.lower(), kind.plural, kind.resource) for kind in JOBS
    }
    known[TRAINING_JOB] = (*known[TRAINING_JOB], "tjob")
    found = [kind for kind, names in known.items() if low in names]
    if not found:
        raise UnknownName("kind", word, [kind.kind.lower() for kind in JOBS])
    return found


def _either(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} or {last}"
