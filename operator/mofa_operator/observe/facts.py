"""What Prometheus says of one stretch of time: nodes and pods as plain facts, nothing concluded from them yet."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias, TypeVar

from mofa_model.errors import SourceUnreachable
from mofa_model.kinds import PodLabels
from mofa_operator.evidence import date_of
from mofa_operator.observe.answers import QueryResult, Sample
from mofa_operator.observe.prometheus import Prometheus
from mofa_operator.observe.queries import FACTS, GANG, GRID, POD_LABELS, UID, Pool
from mofa_operator.observe.stretches import Stretch, days

Job: TypeAlias = tuple[str, str]
"""Namespace and name of a job."""
T = TypeVar("T")
_ROUND: Final = 60
"""Nodes or pods that one closer look names. [1]"""
_FEW: Final = 2000
"""Pods up to which everything about them comes in one answer. [1]"""
_WHOLE: Final = 0.999
"""Share of a stretch for which one node was there, from which on nothing else need be asked. [1]"""


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
    preempted: bool = False
    """Whether it was preempted."""

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
            preempted=self.preempted or other.preempted,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class StretchFacts:
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
    covered_on: Mapping[str, float] = field(default_factory=dict)
    """The covered time by day, where the stretch has several and gaps; else it is spread evenly. [s]"""
    failures_on: Mapping[str, int] = field(default_factory=dict)
    """Failures of nodes by day, where the stretch has several. [1]"""


async def facts(prometheus: Prometheus, pool: Pool, stretch: Stretch) -> StretchFacts:
    """Ask for one stretch."""
    span = stretch.span
    ask = _Asking(prometheus, stretch.end)
    members, present, down, cordoned, pods = await together(
        ask(pool.members_seen(span)),
        ask(pool.present(span)),
        ask(pool.ever_down(span)),
        ask(pool.ever_cordoned(span)),
        ask(pool.pods(span)),
    )
    samples, known = _nodes(members), _nodes(present)
    nodes = frozenset(samples if pool.members else known)
    covered = GRID * max(known.values(), default=0.0)
    if known and covered < span * _WHOLE:
        covered = GRID * ((await ask(pool.covered(span))).number() or 0.0)
    suspects = sorted(nodes.intersection({*_nodes(down), *_nodes(cordoned)}))
    lit, failures = await _closer(ask, pool, span, suspects)
    for seen in (known, lit, failures):
        _check(prometheus, seen, span)
    most = max(samples.values(), default=0.0)
    sampled = covered / most if most else 0.0
    living = await _pods(ask, pool, span, pods, sampled) if pods.samples else {}
    covered_on, failures_on = await _by_day(prometheus, pool, stretch, covered, failures)
    presence = {node: GRID * n for node, n in known.items() if node in nodes}
    return StretchFacts(
        stretch=stretch,
        covered=covered,
        nodes=nodes,
        present=presence,
        ready=presence | {node: GRID * lit.get(node, 0.0) for node in suspects},
        failures={node: round(n) for node, n in failures.items() if n},
        pods=living,
        restarted=await _restarted(ask, pool, span, living),
        sampled=sampled,
        warnings=tuple(dict.fromkeys(ask.warnings)),
        covered_on=covered_on,
        failures_on=failures_on,
    )


async def _by_day(
    prometheus: Prometheus, pool: Pool, stretch: Stretch, covered: float, failures: Mapping[str, float]
) -> tuple[dict[str, float], dict[str, int]]:
    """Covered time, and failures of nodes, by day: asked only of a stretch of several days, and where they may differ."""
    parts = days(stretch)
    if len(parts) == 1:
        return {}, {}
    failed = sorted(node for node, n in failures.items() if n)
    covered_on: dict[str, float] = {}
    failures_on: dict[str, int] = {}
    if 0 < covered < stretch.span * _WHOLE:
        told = await together(*(_Asking(prometheus, one.end)(pool.covered(one.span)) for one in parts))
        for one, answer in zip(parts, told, strict=True):
            covered_on[date_of(one.start)] = GRID * (answer.number() or 0.0)
    if 0 < len(failed) <= _ROUND:
        told = await together(
            *(_Asking(prometheus, one.end)(pool.node_failures(one.span, failed)) for one in parts)
        )
        for one, answer in zip(parts, told, strict=True):
            failures_on[date_of(one.start)] = round(sum(_nodes(answer).values()))
    return covered_on, failures_on


def _check(prometheus: Prometheus, seen: Mapping[str, float], span: float) -> None:
    """A node is seen at most once at each moment; an answer that says otherwise is no count."""
    most = span / GRID + 1
    for node, count in seen.items():
        if not 0 <= count <= most:
            why = f"answers what cannot be: {count:g} times for {node} where {most:.0f} are possible"
            raise SourceUnreachable(f"Prometheus at {prometheus.address}: {why}")


def _nodes(answer: QueryResult) -> dict[str, float]:
    return {node: value for (node,), value in answer.by("node").items()}


class _Asking:
    """Queries at one moment; their warnings come together."""

    def __init__(self, prometheus: Prometheus, at: float) -> None:
        self._prometheus = prometheus
        self._at = at
        self.warnings: list[str] = []

    async def __call__(self, query: str) -> QueryResult:
        answer = await self._prometheus.query(query, self._at)
        self.warnings.extend(answer.warnings)
        return answer


async def together(*asked: Coroutine[Any, Any, T]) -> list[T]:
    """All of them at once; where one fails the others are called off, and the first failure is the answer."""
    tasks = [asyncio.ensure_future(one) for one in asked]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def _closer(
    ask: _Asking, pool: Pool, span: float, suspects: list[str]
) -> tuple[dict[str, float], dict[str, float]]:
    """Moments at which nodes were ready, and their unplanned failures: of the few that were ever down or cordoned."""
    rounds = [suspects[at : at + _ROUND] for at in range(0, len(suspects), _ROUND)]
    ready = await together(*(ask(pool.ready(span, nodes)) for nodes in rounds))
    failed = await together(*(ask(pool.node_failures(span, nodes)) for nodes in rounds))
    return (
        {node: n for answer in ready for node, n in _nodes(answer).items()},
        {node: n for answer in failed for node, n in _nodes(answer).items()},
    )


async def pods_of(prometheus: Prometheus, pool: Pool, at: float, span: float) -> dict[str, Pod]:
    """Pods of training jobs that lived at some time, by uid; how long they lived is left out."""
    ask = _Asking(prometheus, at)
    pods = await ask(pool.pods(span))
    return await _pods(ask, pool, span, pods, 0.0) if pods.samples else {}


async def _pods(ask: _Asking, pool: Pool, span: float, pods: QueryResult, sampled: float) -> dict[str, Pod]:
    """Pods of training jobs, by uid."""
    few = len(pods.samples) <= _FEW  # together the pods are looked up once, apart the answers are smaller
    parts = [FACTS] if few else [(fact,) for fact in FACTS]
    answers = await together(*(ask(pool.pod_facts(span, part)) for part in parts))
    more: defaultdict[tuple[str, ...], dict[str, Sample]] = defaultdict(dict)
    for sample in (sample for answer in answers for sample in answer.samples):
        more[_uid(sample)][sample.label("fact")] = sample
    found: dict[str, Pod] = {}
    for sample in pods.samples:
        uid = _uid(sample)
        known = more[uid]
        value = {fact: one.value for fact, one in known.items()}
        labels = next((one for one in POD_LABELS if sample.label(one.job)), POD_LABELS[0])
        found[uid[2]] = Pod(
            job=(sample.label("namespace"), sample.label(labels.job)),
            attempt=sample.label(labels.attempt),
            slot=_slot(sample, labels),
            node=known["node"].label("node") if "node" in known else "",
            created=value.get("created"),
            first=None if "first" not in value else round(value["first"]),
            restarts=None if "last" not in value else round(value["last"]),
            seconds=max(0.0, sample.value - value.get("finished", 0.0)) * sampled,
            made_room="evicted" in value or "preempted" in value,
            preempted="preempted" in value,
        )
    return found


async def _restarted(
    ask: _Asking, pool: Pool, span: float, pods: Mapping[str, Pod]
) -> dict[Job, tuple[float, ...]]:
    """When containers restarted, by job: of those pods that restarted most of all that were born together.

    The others of a gang say the same.
    """
    grown: defaultdict[tuple[Job, str, int], list[tuple[int, str]]] = defaultdict(list)
    for uid, pod in pods.items():
        if pod.restarts is not None and pod.first is not None and pod.restarts > pod.first:
            grown[pod.job, pod.attempt, round((pod.created or 0) / GANG)].append(
                (pod.first - pod.restarts, uid)
            )
    witnesses = {uid: born[0] for born, many in grown.items() for _, uid in sorted(many)[:_ROUND]}
    uids = sorted(witnesses)
    answers = await together(
        *(ask(pool.restart_moments(span, uids[at : at + _ROUND])) for at in range(0, len(uids), _ROUND))
    )
    found: defaultdict[Job, set[float]] = defaultdict(set)
    for answer in answers:
        for sample in answer.samples:
            found[witnesses[sample.label("uid")]].update(at for at, _ in sample.points)
    return {job: tuple(sorted(moments)) for job, moments in found.items()}


def _uid(sample: Sample) -> tuple[str, ...]:
    return tuple(sample.label(name) for name in UID)


def _slot(sample: Sample, labels: PodLabels) -> str:
    """The place that a pod fills: a JobSet's indices; else its name, which is stable or ends in five random letters."""
    indices = [sample.label(label) for label in labels.slot]
    if indices and all(indices):
        return "/".join(indices)
    stem, _, last = sample.label("pod").rpartition("-")
    return stem if len(last) == 5 and not last.isdigit() else sample.label("pod")
