"""What the pods of running jobs say of their interruptions, through kube-state-metrics: the operator may not read pods.

    process   a container ended and was started again; when, kube-state-metrics knows to the second
    pod       a slot got a new pod within an attempt; made when the new pod was created
    job       the restart attempt grew, and the pods of the new attempt were created

A pod that was preempted or evicted gives its cause to what replaces it. A job's pods are those whose job label bears the
name of the object that the TrainingJob is about: its targetRef, else the TrainingJob itself.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, TypeAlias

from mofa_model.kinds.observation import ATTEMPTS, Counter, Observation, Sign
from mofa_model.manifest.exporters import EXPORTERS
from mofa_model.spec.recovery_classes import RecoveryClass
from mofa_operator.observe.asking import Asking, in_turns, together
from mofa_operator.observe.device_memory import by_pod, device_memory
from mofa_operator.observe.exporters import heard
from mofa_operator.observe.gang_pods import Pod, last_of_slots, named, pods_of
from mofa_operator.observe.interruptions import SECOND
from mofa_operator.observe.prometheus import Prometheus
from mofa_operator.observe.promql import any_of, matcher
from mofa_operator.observe.queries import Pool
from mofa_operator.observe.throughput import Job
from mofa_operator.observe.trainers import RECENT

SPAN: Final = 3600.0
"""How far back pods are looked at: one that is gone stays known for so long. [s]"""
_NAMESPACES: Final = 50
"""Namespaces up to which a query names them. [1]"""

Ends: TypeAlias = Mapping[str, float]
"""When a container of a pod last ended, by pod. [s]"""
Starts: TypeAlias = Mapping[str, float]
"""When the containers of a living pod last started, by pod; 0 where none runs. [s]"""
_NOTHING: Final[Starts] = {}


@dataclass(frozen=True, kw_only=True, slots=True)
class Gang:
    """What is known of the pods of one job."""

    observation: Observation
    """What they say."""
    nodes: frozenset[str]
    """Nodes that they are or were on."""
    since: float | None = None
    """Since when all that live run; None = some do not, or none lives. [s]"""
    placed: bool = False
    """Whether some live, and all that do have a node: none of them waits for room."""
    memory: float | None = None
    """Most device memory in use on a device of those that live; None = nobody says. [B]"""


async def gangs(
    prometheus: Prometheus,
    matchers: Mapping[str, str],
    jobs: Mapping[Job, float],
    now: float,
    *,
    span: float = SPAN,
    lately: float = RECENT,
    exporters: tuple[str, ...] = EXPORTERS,
) -> dict[Job, Gang]:
    """The pods of these jobs, given when each was made, 0 where that is not known; a job without any has no entry. [s]

    Pods that are older than their job were those of another job of the same name, which was deleted. Device memory is that of
    `lately`; `exporters` are namespaces of those who are believed.
    """
    wanted = jobs
    spaces = sorted({namespace for namespace, _ in wanted})
    labels = [matcher(name, value) for name, value in sorted(matchers.items())]
    if len(spaces) <= _NAMESPACES and "namespace" not in matchers:
        labels.append(matcher("namespace", any_of(spaces), "=~"))
    picked = Pool(matchers=tuple(labels), members=(), labels=(), exporters=exporters)
    every = Pool.of(
        {name: value for name, value in matchers.items() if name != "namespace"}, {}, "", exporters
    )
    pool = await heard(Asking(prometheus, now), picked, span, every)
    if pool is None:
        return {}
    by_job: defaultdict[Job, dict[str, Pod]] = defaultdict(dict)
    async for uid, pod in in_turns((await pods_of(prometheus, pool, now, span)).items()):
        if pod.job in wanted and (pod.created is None or pod.created > wanted[pod.job] - SECOND):
            by_job[pod.job][uid] = pod
    if not by_job:
        return {}
    held = device_memory(matchers, {place for place, _ in by_job}, exporters, lately)
    queries = (pool.container_ends(span), pool.started(), held)
    ended, started, used = await together(*(prometheus.query(one, now) for one in queries))
    ends = {named(sample): sample.value async for sample in in_turns(ended.samples)}
    starts = {named(sample): sample.value async for sample in in_turns(started.samples)}
    memory = by_pod(used)
    found: dict[Job, Gang] = {}
    for job, many in by_job.items():
        await asyncio.sleep(0)
        found[job] = gang(many, ends, starts, memory)
    return found


def gang(
    pods: Mapping[str, Pod],
    ends: Ends,
    starts: Starts = _NOTHING,
    memory: Mapping[str, float] = _NOTHING,
) -> Gang:
    """What the pods of one job say; `memory` is what devices of pods hold, by namespace and name of the pod. [B]"""
    held = [
        memory[name] for uid in pods if uid in starts and (name := uid.rpartition("/")[0]) in memory
    ]
    begun = [starts[uid] for uid in pods if uid in starts]
    attempts: defaultdict[str, list[Pod]] = defaultdict(list)
    for pod in pods.values():
        attempts[pod.attempt].append(pod)
    signs = [
        Sign(at=ends[uid], level=RecoveryClass.PROCESS, cause="failure")
        for uid in pods
        if uid in ends
    ]
    for living in attempts.values():
        signs += _replaced(living)
    signs += _again(attempts)
    return Gang(
        observation=Observation(
            signs=tuple(sorted(set(signs), key=lambda sign: (sign.at, sign.level, sign.cause))),
            counters=_counters(pods, attempts, ends),
        ),
        nodes=frozenset(pod.node for pod in pods.values() if pod.node),
        since=max(begun) if begun and min(begun) > 0 else None,
        placed=bool(begun) and all(pod.node for uid, pod in pods.items() if uid in starts),
        memory=max(held, default=None),
    )


def _replaced(pods: Sequence[Pod]) -> list[Sign]:
    """Slots of one attempt that got a new pod."""
    slots: defaultdict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        if pod.created is not None:
            slots[pod.slot].append(pod)
    return [
        Sign(at=after.created, level=RecoveryClass.POD, cause=_cause(before))
        for living in slots.values()
        for before, after in pairwise(sorted(living, key=lambda pod: pod.created or 0.0))
        if after.created is not None
    ]


def _again(attempts: Mapping[str, Sequence[Pod]]) -> list[Sign]:
    """Attempts after others: the whole job was made anew."""
    numbers = sorted((int(attempt), attempt) for attempt in attempts if attempt.isdecimal())
    signs = []
    for (_, before), (_, after) in pairwise(numbers):
        born = [pod.created for pod in attempts[after] if pod.created is not None]
        gone = next((pod for pod in last_of_slots(attempts[before]) if pod.made_room), None)
        if born:
            signs.append(
                Sign(
                    at=min(born),
                    level=RecoveryClass.JOB,
                    cause="" if gone is None else _cause(gone),
                )
            )
    return signs


def _cause(before: Pod) -> str:
    """Why a pod went; empty where that is not said."""
    return "preemption" if before.preempted else "eviction" if before.made_room else ""


def _counters(
    pods: Mapping[str, Pod], attempts: Mapping[str, Sequence[Pod]], ends: Ends
) -> dict[str, Counter]:
    """The restart attempt, and restarts of containers where nobody says when they were."""
    found: dict[str, Counter] = {}
    numbers = [int(attempt) for attempt in attempts if attempt.isdecimal()]
    if numbers:
        found[ATTEMPTS] = Counter(value=max(numbers), level=RecoveryClass.JOB)
    untimed = [pod.restarts or 0 for uid, pod in pods.items() if uid not in ends]
    if any(untimed):
        found["Pod.restarts"] = Counter(
            value=sum(untimed), level=RecoveryClass.PROCESS, exact=False
        )
    return found
