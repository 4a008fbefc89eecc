"""Interruptions that pods of running jobs show in kube-state-metrics; the operator may not read the
pods themselves.

    process   a container ended and was started again: dated by its end, to the second
    pod       a slot got a new pod within an attempt: dated by the new pod's creation
    job       the restart attempt grew: dated by the creation of the new attempt's pods

What replaces a preempted or evicted pod has that as its cause. A job's pods are those whose job
label has the name of the object that the TrainingJob is about: its targetRef, else the TrainingJob
itself.

Device memory comes from NVIDIA's DCGM exporter: all that is in use on a device. Where the scrape
keeps the exporter's labels (honorLabels), `namespace` and `pod` are the training pod's, and a
series counts for the namespace that it names. Where it does not, they are the exporter's own, and
the training pod's are `exported_namespace` and `exported_pod`; anybody may publish those, so they
count only from trusted namespaces.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from mofa_model.kinds.kind import ATTEMPTS, Counter, Observation, Sign
from mofa_model.manifest.cluster_profile import EXPORTERS
from mofa_model.spec.recovery_classes import RecoveryClass
from mofa_operator.incidents.job_outages import LANES, is_of_one
from mofa_operator.observe.jobs.interruptions import SECOND
from mofa_operator.observe.prometheus.client import (
    Asking,
    Prometheus,
    QueryResult,
    Sample,
    in_turns,
    together,
)
from mofa_operator.observe.prometheus.promql import (
    POD_FACTS,
    POD_ID,
    Pool,
    any_of,
    duration,
    job_of,
    labels_of,
    matcher,
    pod_slot,
    selector,
    with_trusted_exporters,
)
from mofa_operator.observe.prometheus.trainers import RECENT, JobName

SPAN: Final = 3600.0
"""How far back pods are read, and so how long a pod that is gone stays known. [s]"""
DEVICE_MEMORY: Final = "DCGM_FI_DEV_FB_USED"
"""Memory in use on a device. [MiB]"""
_ONE_ANSWER: Final = 2000
"""Most pods of which all facts are asked in one query. [1]"""
_NAMESPACES: Final = 50
"""Most namespaces that a query names. [1]"""
_KEPT: Final = ("namespace", "pod")
_RENAMED: Final = ("exported_namespace", "exported_pod")
_NONE: Final[Mapping[str, float]] = {}


@dataclass(frozen=True, kw_only=True, slots=True)
class Pod:
    """A pod of a training job."""

    job_name: JobName
    attempt: str
    """Restart attempt of its job; empty for kinds of jobs that count none."""
    slot: str
    """Its place in the job: the pod that replaces it has the same."""
    node: str = ""
    """Its node; empty = unknown."""
    created: float | None = None
    """In seconds of the epoch; None = unknown. [s]"""
    restarts: int | None = None
    """Restarts of the container that has most; None = unknown. [1]"""
    made_room: bool = False
    """Whether it was evicted or preempted."""
    preempted: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Gang:
    """The pods of one job."""

    observation: Observation
    """What they show of interruptions."""
    nodes: frozenset[str]
    """Nodes that they are or were on."""
    since: float | None = None
    """Since when all living pods run; None = some do not, or none lives. [s]"""
    placed: bool = False
    """Whether some live, and all that do have a node: none waits in a queue."""
    memory_bytes: float | None = None
    """Most memory in use on a device of a living pod; None = unknown. [B]"""


async def gangs(
    prometheus: Prometheus,
    matchers: Mapping[str, str],
    born: Mapping[JobName, float],
    now: float,
    *,
    span: float = SPAN,
    lately: float = RECENT,
    exporters: tuple[str, ...] = EXPORTERS,
) -> dict[JobName, Gang]:
    """The pods of each of some jobs; a job without pods has no entry.

    `born` has the jobs, each with the moment of its creation, 0 = unknown [s]: older pods were of a
    deleted job of the same name. Device memory is the most in the last `lately` [s]; `exporters`
    are trusted namespaces.
    """
    namespaces = sorted({namespace for namespace, _ in born})
    conditions = [matcher(name, value) for name, value in sorted(matchers.items())]
    if len(namespaces) <= _NAMESPACES and "namespace" not in matchers:
        conditions.append(matcher("namespace", any_of(namespaces), "=~"))
    others = {name: value for name, value in matchers.items() if name != "namespace"}
    pool = await with_trusted_exporters(
        Asking(prometheus, now),
        Pool(matchers=tuple(conditions), exporters=exporters),
        span,
        Pool.of(others, {}, "", exporters),
    )
    if pool is None:
        return {}
    by_job: defaultdict[JobName, dict[str, Pod]] = defaultdict(dict)
    async for uid, pod in in_turns((await pods_of(prometheus, pool, now, span)).items()):
        if pod.job_name in born and (
            pod.created is None or pod.created > born[pod.job_name] - SECOND
        ):
            by_job[pod.job_name][uid] = pod
    if not by_job:
        return {}
    used = device_memory(matchers, {namespace for namespace, _ in by_job}, exporters, lately)
    queries = (pool.container_ends(span), pool.started(), used)
    ended, started, memory = await together(*(prometheus.query(query, now) for query in queries))
    ends = {pod_id(sample): sample.value async for sample in in_turns(ended.samples)}
    starts = {pod_id(sample): sample.value async for sample in in_turns(started.samples)}
    memory_by_pod = by_pod(memory)
    gangs_by_job: dict[JobName, Gang] = {}
    for job, pods in by_job.items():
        await asyncio.sleep(0)  # other tasks have their turn
        gangs_by_job[job] = gang(pods, ends, starts, memory_by_pod)
    return gangs_by_job


async def pods_of(prometheus: Prometheus, pool: Pool, at: float, span: float) -> dict[str, Pod]:
    """Pods of training jobs that lived in the last `span` seconds, by namespace, name and uid."""
    ask = Asking(prometheus, at)
    pods = (await ask(pool.pods(span))).samples
    if not pods:
        return {}
    # one query finds the pods once; several queries have smaller answers
    parts = [POD_FACTS] if len(pods) <= _ONE_ANSWER else [(fact,) for fact in POD_FACTS]
    answers = await together(*(ask(pool.pod_facts(span, part)) for part in parts))
    facts: defaultdict[str, dict[str, Sample]] = defaultdict(dict)
    async for sample in in_turns(sample for answer in answers for sample in answer.samples):
        facts[pod_id(sample)][sample.label("fact")] = sample
    pods_by_id: dict[str, Pod] = {}
    async for sample in in_turns(pods):
        pod_facts, labels = facts[pod_id(sample)], labels_of(sample)
        pods_by_id[pod_id(sample)] = Pod(
            job_name=JobName(sample.label("namespace"), job_of(sample)),
            attempt=sample.label(labels.attempt),
            slot=pod_slot(sample),
            node=pod_facts["node"].label("node") if "node" in pod_facts else "",
            created=pod_facts["created"].value if "created" in pod_facts else None,
            restarts=round(pod_facts["restarts"].value) if "restarts" in pod_facts else None,
            made_room="evicted" in pod_facts or "preempted" in pod_facts,
            preempted="preempted" in pod_facts,
        )
    return pods_by_id


def pod_id(sample: Sample) -> str:
    """The pod of a series: its namespace, name and uid."""
    return "/".join(map(sample.label, POD_ID))


def gang(
    pods: Mapping[str, Pod],
    ends: Mapping[str, float],
    starts: Mapping[str, float] = _NONE,
    memory_bytes: Mapping[str, float] = _NONE,
) -> Gang:
    """The pods of one job.

    `ends` are when a container last ended [s], `starts` when the containers of living pods last
    started, 0 where none runs [s], both by pod; `memory_bytes` is what devices of pods hold, by
    namespace and name of the pod. [B]
    """
    living = {uid: pod for uid, pod in pods.items() if uid in starts}
    start_times = [starts[uid] for uid in living]
    used = [
        memory_bytes[name] for uid in living if (name := uid.rpartition("/")[0]) in memory_bytes
    ]
    attempts: defaultdict[str, list[Pod]] = defaultdict(list)
    for pod in pods.values():
        attempts[pod.attempt].append(pod)
    signs = {
        Sign(at=ends[uid], recovery_class=RecoveryClass.PROCESS, cause="failure")
        for uid in pods
        if uid in ends
    }
    for members in attempts.values():
        signs.update(_replacements(members))
    signs.update(_new_attempts(attempts))
    return Gang(
        observation=Observation(
            signs=tuple(sorted(signs, key=lambda sign: (sign.at, sign.recovery_class, sign.cause))),
            counters=_counters(pods, attempts, ends),
        ),
        nodes=frozenset(pod.node for pod in pods.values() if pod.node),
        since=max(start_times) if start_times and min(start_times) > 0 else None,
        placed=bool(living) and all(pod.node for pod in living.values()),
        memory_bytes=max(used, default=None),
    )


def _replacements(pods: Iterable[Pod]) -> list[Sign]:
    """A sign of interruption for each pod that took the slot of an earlier pod.

    Pods that have no number and were created together share a slot; each later pod replaces one of
    them, those that made room first.
    """
    slots: defaultdict[str, list[tuple[float, Pod]]] = defaultdict(list)
    for pod in pods:
        if pod.created is not None:
            slots[pod.slot].append((pod.created, pod))
    signs = []
    for slot, members in slots.items():
        members.sort(key=lambda member: member[0])
        first = members[0][0]
        size = 1 if is_of_one(slot) else sum(created - first < LANES for created, _ in members)
        peers = [pod for _, pod in members[:size]]
        for created, pod in members[size:]:
            replaced = peers[0] if size == 1 else next((p for p in peers if p.made_room), None)
            cause = "" if replaced is None else _cause(replaced)
            signs.append(Sign(at=created, recovery_class=RecoveryClass.POD, cause=cause))
            peers.remove(replaced if replaced is not None else peers[0])
            peers.append(pod)
    return signs


def _new_attempts(attempts: Mapping[str, Sequence[Pod]]) -> list[Sign]:
    """A sign for each later attempt: the whole job was made anew."""
    numbers = sorted((int(attempt), attempt) for attempt in attempts if attempt.isdecimal())
    signs = []
    for (_, before), (_, after) in pairwise(numbers):
        created = [pod.created for pod in attempts[after] if pod.created is not None]
        # the last pod of each slot shows how the attempt ended
        last = {pod.slot: pod for pod in sorted(attempts[before], key=lambda p: p.created or 0.0)}
        made_room = next((pod for pod in last.values() if pod.made_room), None)
        if created:
            cause = "" if made_room is None else _cause(made_room)
            signs.append(Sign(at=min(created), recovery_class=RecoveryClass.JOB, cause=cause))
    return signs


def _cause(pod: Pod) -> str:
    """Why a pod is gone; empty where that is unknown."""
    return "preemption" if pod.preempted else "eviction" if pod.made_room else ""


def _counters(
    pods: Mapping[str, Pod], attempts: Mapping[str, Sequence[Pod]], ends: Mapping[str, float]
) -> dict[str, Counter]:
    """Counters of restart attempts, and of restarts of containers whose moment is unknown."""
    counters: dict[str, Counter] = {}
    numbers = [int(attempt) for attempt in attempts if attempt.isdecimal()]
    if numbers:
        counters[ATTEMPTS] = Counter(value=max(numbers), recovery_class=RecoveryClass.JOB)
    untimed = sum(pod.restarts or 0 for uid, pod in pods.items() if uid not in ends)
    if untimed:
        counters["Pod.restarts"] = Counter(
            value=untimed, recovery_class=RecoveryClass.PROCESS, exact=False
        )
    return counters


def device_memory(
    matchers: Mapping[str, str],
    namespaces: Collection[str],
    exporters: Collection[str],
    span: float,
) -> str:
    """Most memory in use on a device of each pod; `exporters` are trusted namespaces."""
    picked = [
        matcher(name, value)
        for name, value in sorted(matchers.items())
        if name not in (*_KEPT, *_RENAMED)
    ]
    own = any_of(sorted(namespaces))
    kept = [*picked, matcher("exported_namespace", ""), matcher("namespace", own, "=~")]
    renamed = [
        *picked,
        matcher("namespace", any_of(exporters), "=~"),
        matcher("exported_namespace", own, "=~"),
    ]
    return " or ".join(
        f"max by ({', '.join(labels)}) "
        f"(max_over_time({selector(DEVICE_MEMORY, conditions)}[{duration(span)}]))"
        for labels, conditions in ((_KEPT, kept), (_RENAMED, renamed))
    )


def by_pod(result: QueryResult) -> dict[str, float]:
    """Device memory by namespace and name of the pod; series with kept labels win. [B]"""
    return {
        "/".join(map(sample.label, labels)): sample.value * 2**20
        for labels in (_RENAMED, _KEPT)
        for sample in result.samples
        if sample.label(labels[0])
    }
