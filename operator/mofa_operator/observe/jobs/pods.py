"""Pods of running jobs, as they are just now and were a little while ago: one cheap look, made every minute."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, TypeAlias

from mofa_model.kinds import PodLabels
from mofa_model.kinds.kind import ATTEMPTS, Counter, Observation, Sign
from mofa_model.manifest.cluster_profile import EXPORTERS
from mofa_model.spec.recovery_classes import RecoveryClass
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
    FACTS,
    POD_LABELS,
    UID,
    Pool,
    any_of,
    duration,
    heard,
    matcher,
    selector,
)
from mofa_operator.observe.prometheus.trainers import RECENT, Job

_FEW: Final = 2000
"""Pods up to which everything about them comes in one answer. [1]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pod:
    """A pod of a training job, as far as it was seen."""

    job: Job
    """Whose."""
    attempt: str
    """Restart attempt of its job; empty for kinds that do not say."""
    slot: str
    """Which place in the job it fills: the same for the pod that replaces it."""
    node: str = ""
    """Its node; empty = not known."""
    created: float | None = None
    """When it was created, in seconds of the epoch. [s]"""
    first: int | None = None
    """Restarts at its first sample; None = not known. [1]"""
    restarts: int | None = None
    """Restarts at its last sample. [1]"""
    made_room: bool = False
    """Whether it was evicted or preempted."""
    preempted: bool = False
    """Whether it was preempted."""


async def pods_of(prometheus: Prometheus, pool: Pool, at: float, span: float) -> dict[str, Pod]:
    """Pods of training jobs that lived at some time, by namespace, name and uid: a uid alone is but a label, and anybody's."""
    ask = Asking(prometheus, at)
    pods = await ask(pool.pods(span))
    return await _pods(ask, pool, span, pods) if pods.samples else {}


async def _pods(ask: Asking, pool: Pool, span: float, pods: QueryResult) -> dict[str, Pod]:
    """The same, given which they are."""
    few = (
        len(pods.samples) <= _FEW
    )  # together the pods are looked up once, apart the answers are smaller
    parts = [FACTS] if few else [(fact,) for fact in FACTS]
    answers = await together(*(ask(pool.pod_facts(span, part)) for part in parts))
    more: defaultdict[str, dict[str, Sample]] = defaultdict(dict)
    async for sample in in_turns(sample for answer in answers for sample in answer.samples):
        more[named(sample)][sample.label("fact")] = sample
    found: dict[str, Pod] = {}
    async for sample in in_turns(pods.samples):
        pod = named(sample)
        known = more[pod]
        value = {fact: one.value for fact, one in known.items()}
        labels = next((one for one in POD_LABELS if sample.label(one.job)), POD_LABELS[0])
        found[pod] = Pod(
            job=(sample.label("namespace"), sample.label(labels.job)),
            attempt=sample.label(labels.attempt),
            slot=_slot(sample, labels),
            node=known["node"].label("node") if "node" in known else "",
            created=value.get("created"),
            first=None if "first" not in value else round(value["first"]),
            restarts=None if "last" not in value else round(value["last"]),
            made_room="evicted" in value or "preempted" in value,
            preempted="preempted" in value,
        )
    return found


def last_of_slots(pods: Iterable[Pod]) -> list[Pod]:
    """The pods of an attempt that nothing replaced within it: they say how it ended."""
    last: dict[str, Pod] = {}
    for pod in sorted(pods, key=lambda pod: pod.created or 0.0):
        last[pod.slot] = pod
    return list(last.values())


def named(sample: Sample) -> str:
    """Which pod a series is of."""
    return "/".join(sample.label(name) for name in UID)


def _slot(sample: Sample, labels: PodLabels) -> str:
    """The place that a pod fills: a JobSet's indices; else its name, which is stable or ends in five random letters."""
    indices = [sample.label(label) for label in labels.slot]
    if indices and all(indices):
        return "/".join(indices)
    stem, _, last = sample.label("pod").rpartition("-")
    return stem if len(last) == 5 and not last.isdigit() else sample.label("pod")


# What the pods of running jobs say of their interruptions, through kube-state-metrics: the operator may not read pods.
#
#     process   a container ended and was started again; when, kube-state-metrics knows to the second
#     pod       a slot got a new pod within an attempt; made when the new pod was created
#     job       the restart attempt grew, and the pods of the new attempt were created
#
# A pod that was preempted or evicted gives its cause to what replaces it. A job's pods are those whose job label bears the
# name of the object that the TrainingJob is about: its targetRef, else the TrainingJob itself.

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


# Device memory that pods use, as NVIDIA's DCGM exporter says it: of every device, in MiB, all that is not free on it.
#
# Whose a series is, its scrape says. Where it keeps the exporter's labels (honorLabels), `namespace` and `pod` are the training pod's,
# and a series counts for the namespace that it names, as those of trainers do. Where it does not, these are the exporter's own, and
# the training pod's are `exported_namespace` and `exported_pod`. Those anybody may publish, so they count only from namespaces in
# which the profile says that exporters run.

SERIES: Final = "DCGM_FI_DEV_FB_USED"
"""Memory in use on a device. [MiB]"""
_MIB: Final = 2**20


def device_memory(
    matchers: Mapping[str, str],
    namespaces: Collection[str],
    exporters: Collection[str],
    span: float,
) -> str:
    """Most memory in use on a device of each pod; `exporters` are namespaces of exporters whose labels a scrape may not keep."""
    known = (*_KEPT, *_RENAMED)
    picked = [matcher(name, value) for name, value in sorted(matchers.items()) if name not in known]
    spaces = any_of(sorted(namespaces))
    own = [*picked, matcher("exported_namespace", ""), matcher("namespace", spaces, "=~")]
    told = [
        *picked,
        matcher("namespace", any_of(exporters), "=~"),
        matcher("exported_namespace", spaces, "=~"),
    ]
    return " or ".join(
        f"max by ({', '.join(names)}) (max_over_time({selector(SERIES, some)}[{duration(span)}]))"
        for names, some in ((_KEPT, own), (_RENAMED, told))
    )


def by_pod(answer: QueryResult) -> dict[str, float]:
    """What that answers, by namespace and name of the pod; of two that say something the one whose labels were kept. [B]"""
    found: dict[str, float] = {}
    for names in (_RENAMED, _KEPT):
        told = {
            "/".join(map(one.label, names)): one.value * _MIB
            for one in answer.samples
            if one.label(names[0])
        }
        found |= told
    return found


_KEPT: Final = ("namespace", "pod")
_RENAMED: Final = ("exported_namespace", "exported_pod")
