"""What Prometheus says of one stretch of time: nodes and pods as plain facts, nothing concluded from them yet."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from mofa_operator.observe.answers import Answer, Sample
from mofa_operator.observe.prometheus import Prometheus
from mofa_operator.observe.queries import ATTEMPT, GRID, JOB_LABELS, SLOT_LABELS, UID, Pool
from mofa_operator.observe.stretches import Stretch

Job: TypeAlias = tuple[str, str]
"""Namespace and name of a job."""
_ROUNDS: Final = 60
"""Nodes that one closer look names. [1]"""


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
    seconds: float = 0.0
    """Time for which it was there and had not ended. [s]"""
    made_room: bool = False
    """Whether it was evicted or preempted."""

    def later(self, other: Pod) -> Pod:
        """The same pod, after a later look."""
        return replace(
            other,
            first=self.first if self.first is not None else other.first,
            restarts=other.restarts if other.restarts is not None else self.restarts,
            created=other.created if other.created is not None else self.created,
            node=other.node or self.node,
            seconds=self.seconds + other.seconds,
            made_room=self.made_room or other.made_room,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """One stretch of time."""

    stretch: Stretch
    """Which."""
    covered: float
    """Time for which the condition of any node was known. [s]"""
    nodes: frozenset[str]
    """Nodes that belonged to the pool."""
    present: Mapping[str, float]
    """Time for which each node's condition was known. [s]"""
    ready: Mapping[str, float]
    """Time for which each was ready and not cordoned. [s]"""
    failures: Mapping[str, int]
    """How often each went down unplanned; nodes that did not are left out. [1]"""
    pods: Mapping[str, Pod]
    """Pods of training jobs by uid, on any node."""
    restarted: Mapping[Job, tuple[float, ...]]
    """Points of the grid just after containers restarted. [s]"""
    sampled: float
    """Time between samples of pods. [s]"""
    warnings: tuple[str, ...] = ()
    """What the server warned of."""


async def facts(prometheus: Prometheus, pool: Pool, stretch: Stretch) -> Facts:
    """Ask for one stretch."""
    span = stretch.span
    ask = _Asking(prometheus, stretch.end)
    covered, members, present, ready, down, samples, pods = await _all(
        ask(pool.covered(span)),
        ask(pool.member_nodes(span)),
        ask(pool.present(span)),
        ask(pool.ready(span)),
        ask(pool.ever_down(span)),
        ask(pool.node_samples(span)),
        ask(pool.pods(span)),
    )
    nodes = frozenset(node for (node,) in (members if pool.members else present).by("node"))
    seconds = (covered.number() or 0.0) * GRID
    suspects = sorted(nodes.intersection(node for (node,) in down.by("node")))
    failures = await _failures(ask, pool, span, suspects)
    count = samples.number() or 0.0
    sampled = seconds / count if count else 0.0
    living = await _pods(ask, pool, span, pods, sampled) if pods.samples else {}
    grown = any(pod.restarts and pod.restarts != pod.first for pod in living.values())
    moments = (await ask(pool.restart_moments(span))).samples if grown else ()
    return Facts(
        stretch=stretch,
        covered=seconds,
        nodes=nodes,
        present={node: GRID * n for (node,), n in present.by("node").items() if node in nodes},
        ready={node: GRID * n for (node,), n in ready.by("node").items() if node in nodes},
        failures=failures,
        pods=living,
        restarted={_job(sample): tuple(at for at, _ in sample.points) for sample in moments},
        sampled=sampled,
        warnings=tuple(dict.fromkeys(ask.warnings)),
    )


class _Asking:
    """Queries at one moment; their warnings come together."""

    def __init__(self, prometheus: Prometheus, at: float) -> None:
        self._prometheus = prometheus
        self._at = at
        self.warnings: list[str] = []

    async def __call__(self, query: str) -> Answer:
        answer = await self._prometheus.query(query, self._at)
        self.warnings.extend(answer.warnings)
        return answer


async def _all(*asked: Coroutine[Any, Any, Answer]) -> list[Answer]:
    """All of them at once; where one fails the others are called off, and the first failure is the answer."""
    tasks = [asyncio.ensure_future(one) for one in asked]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def _failures(ask: _Asking, pool: Pool, span: float, suspects: list[str]) -> dict[str, int]:
    """Unplanned failures of nodes that were down at all."""
    rounds = [suspects[at : at + _ROUNDS] for at in range(0, len(suspects), _ROUNDS)]
    answers = await _all(*(ask(pool.node_failures(span, nodes)) for nodes in rounds))
    return {node: round(n) for answer in answers for (node,), n in answer.by("node").items() if n}


async def _pods(ask: _Asking, pool: Pool, span: float, pods: Answer, sampled: float) -> dict[str, Pod]:
    """Pods of training jobs, by uid."""
    info, created, seen, finished, room, most, first = await _all(
        ask(pool.pod_nodes(span)),
        ask(pool.pods_created(span)),
        ask(pool.pods_seen(span)),
        ask(pool.pods_finished(span)),
        ask(pool.pods_made_room(span)),
        ask(pool.most_restarts(span)),
        ask(pool.first_restarts(span)),
    )
    at = {(s.label("namespace"), s.label("pod"), s.label("uid")): s.label("node") for s in info.samples}
    born, low, high = created.by(*UID), first.by(*UID), most.by(*UID)
    there, over, gone = seen.by(*UID), finished.by(*UID), room.by(*UID)
    found: dict[str, Pod] = {}
    for sample in pods.samples:
        uid = (sample.label("namespace"), sample.label("pod"), sample.label("uid"))
        found[uid[2] or "/".join(uid)] = Pod(
            job=_job(sample),
            attempt=sample.label(ATTEMPT),
            slot=_slot(sample),
            node=at.get(uid, ""),
            created=born.get(uid),
            first=None if uid not in low else round(low[uid]),
            restarts=None if uid not in high else round(high[uid]),
            seconds=max(0.0, there.get(uid, 0.0) - over.get(uid, 0.0)) * sampled,
            made_room=uid in gone,
        )
    return found


def _job(sample: Sample) -> Job:
    """The job of a pod, or of its restarts."""
    name = next((sample.label(label) for label in JOB_LABELS if sample.label(label)), "")
    return sample.label("namespace"), name


def _slot(sample: Sample) -> str:
    """The place that a pod fills: a JobSet's indices; else its name, which is stable or ends in five random letters."""
    indices = [sample.label(label) for label in SLOT_LABELS]
    if all(indices):
        return "/".join(indices)
    stem, _, last = sample.label("pod").rpartition("-")
    return stem if len(last) == 5 and not last.isdigit() else sample.label("pod")
