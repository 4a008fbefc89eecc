"""Samples as runs of one value: what a series says between its first and its last sample with that value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Final, Literal, TypeAlias

_MANY: Final = 4
"""Times between samples from which on a quarter of them is no accident. [1]"""
APART: Final = 2.6
"""Times the usual spacing of samples from which on a series was silent between two. [1]"""
Point: TypeAlias = tuple[float, float]
"""A moment and a value. [s, …]"""
Span: TypeAlias = tuple[float, float]
"""From, to. [s]"""


@dataclass(frozen=True, slots=True)
class ValueRun:
    """Samples of one value that follow one another."""

    start: float
    """First of them. [s]"""
    end: float
    """Last of them. [s]"""
    value: float
    """What they say."""


def spacing_of(points: Sequence[Point], least: float = 1.0) -> float:
    """Usual time between two samples; 0 where nobody can say. [s]

    Two servers take turns: of the two times between their samples it is the longer one.

    >>> spacing_of([(0, 1), (20, 1), (120, 1), (140, 1), (240, 1)])
    100
    """
    steps = sorted(b - a for (a, _), (b, _) in pairwise(points) if b - a >= least)
    return steps[len(steps) // 2 if len(steps) < _MANY else 3 * len(steps) // 4] if steps else 0.0


def runs(points: Iterable[Point], spacing: float, apart: float = APART) -> tuple[ValueRun, ...]:
    """Runs in order; a silence of `apart` times the spacing ends one.

    >>> runs([(0, 1), (60, 1), (120, 0), (600, 0)], 60.0)
    (ValueRun(start=0, end=60, value=1), ValueRun(start=120, end=120, value=0), ValueRun(start=600, end=600, value=0))
    """
    found: list[ValueRun] = []
    longest, start, end, held = apart * spacing, 0.0, 0.0, None
    for at, value in sorted(points):
        if value != held or at - end > longest:
            if held is not None:
                found.append(ValueRun(start, end, held))
            start, held = at, value
        end = at
    if held is not None:
        found.append(ValueRun(start, end, held))
    return tuple(found)


def spans(of: Sequence[ValueRun], value: float, spacing: float) -> list[Span]:
    """When a series had a value: from halfway after the sample before to halfway before the next; silences end it there."""
    found: list[Span] = []
    half = spacing / 2
    for number, run in enumerate(of):
        if run.value != value:
            continue
        before, after = (
            of[number - 1] if number else None,
            of[number + 1] if number + 1 < len(of) else None,
        )
        start = max(run.start - half, (before.end + run.start) / 2) if before else run.start - half
        end = min(run.end + half, (after.start + run.end) / 2) if after else run.end + half
        found.append((start, end))
    return joined(found, APART * spacing)


def joined(spans_: Iterable[Span], apart: float = 0.0) -> list[Span]:
    """Spans in order, those that touch or lie at most `apart` from each other as one. [s]

    >>> joined([(5, 9), (0, 2), (1, 3)])
    [(0, 3), (5, 9)]
    """
    found: list[Span] = []
    for start, end in sorted(spans_):
        if found and start - found[-1][1] <= apart:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def without(whole: Iterable[Span], holes: Iterable[Span]) -> list[Span]:
    """What is left of spans.

    >>> without([(0, 10)], [(2, 3), (8, 12)])
    [(0, 2), (3, 8)]
    """
    cut, found = joined(holes), []
    for start, end in joined(whole):
        at = start
        for a, b in cut:
            if b > at and a < end:
                if a > at:
                    found.append((at, a))
                at = max(at, b)
        if at < end:
            found.append((at, end))
    return found


def length(of: Iterable[Span]) -> float:
    """Their time. [s]"""
    return sum(end - start for start, end in of)


def overlap(some: Iterable[Span], others: Iterable[Span]) -> list[Span]:
    """What two sets of spans have in common.

    >>> overlap([(0, 5), (8, 9)], [(3, 8.5)])
    [(3, 5), (8, 8.5)]
    """
    cut = joined(others)
    return [
        (max(a, x), min(b, y)) for a, b in joined(some) for x, y in cut if max(a, x) < min(b, y)
    ]


# Witnesses of what happens to a node: which series each reads, which part of a node it speaks of, and when it is worth a look.
#
# A look at every sample of a fleet is dear, so each witness says by an aggregate on which nodes something happened at all:
#
#     low       a sample was 0, where all is well at 1
#     high      a sample was not 0, where all is well at 0
#     moved     samples differ
#     fresh     a moment that lies in the stretch


@dataclass(frozen=True, kw_only=True, slots=True)
class Witness:
    """One kind of series about nodes."""

    metric: str
    """Its metric."""
    conditions: tuple[tuple[str, str, str], ...] = ()
    """Label, operator and value that its series meet."""
    parts: tuple[str, ...] = ()
    """Labels that tell the parts of a node apart."""
    worth: Literal["low", "high", "moved", "fresh"]
    """When it is worth a look."""
    on_host: bool = False
    """Whether an exporter on the node itself says it, which is silent while the host is down."""
    alone: str = ""
    """What nobody else tells of nodes without its series; empty where others do, or few clusters have them."""

    @property
    def apart(self) -> float:
        """Times the spacing of its samples from which on it was silent: of a host one missing sample may tell. [1]"""
        return 1.6 if self.on_host else APART


READY: Final = Witness(
    metric="kube_node_status_condition",
    conditions=(("condition", "=", "Ready"), ("status", "=", "true")),
    worth="low",
)
CORDON: Final = Witness(metric="kube_node_spec_unschedulable", worth="high")
TAINT: Final = Witness(
    metric="kube_node_spec_taint",
    conditions=(
        ("effect", "=~", "NoSchedule|NoExecute"),
        ("key", "!~", "(node|node-role)[.]kubernetes[.]io/.*|nvidia.com/gpu|amd.com/gpu"),
    ),
    parts=("key",),
    worth="high",
)
ALLOCATABLE: Final = Witness(
    metric="kube_node_status_allocatable",
    conditions=(("resource", "=~", "(nvidia|amd|intel|habana)_com_.*"),),
    parts=("resource",),
    worth="moved",
)
PROBLEM: Final = Witness(
    metric="kube_node_status_condition",
    conditions=(
        ("condition", "!~", "Ready|MemoryPressure|DiskPressure|PIDPressure|NetworkUnavailable|"),
        ("status", "=", "true"),
    ),
    parts=("condition",),
    worth="high",
)
BOOT: Final = Witness(
    metric="node_boot_time_seconds",
    worth="fresh",
    on_host=True,
    alone="reboots that are shorter than the time between two samples",
)
XID: Final = Witness(
    metric="DCGM_FI_DEV_XID_ERRORS",
    parts=("gpu", "UUID"),
    worth="moved",
    on_host=True,
    alone="XIDs of GPUs",
)
REMAP: Final = Witness(
    metric="DCGM_FI_DEV_ROW_REMAP_FAILURE", parts=("gpu", "UUID"), worth="moved", on_host=True
)
DETECTED: Final = Witness(
    metric="problem_gauge", parts=("type", "reason"), worth="high", on_host=True
)
COUNTED: Final = Witness(metric="problem_counter", parts=("reason",), worth="moved", on_host=True)

HEARTBEATS: Final = (XID, COUNTED, DETECTED)
"""Witnesses on the host whose silence tells that it was down, where nobody tells boot times."""
WITNESSES: Final = (READY, CORDON, TAINT, ALLOCATABLE, PROBLEM, BOOT, XID, REMAP, DETECTED, COUNTED)
"""All of them."""


# One node's past, as the witnesses tell it.

NodePart: TypeAlias = tuple[str, ...]
"""Which part of a node a series speaks of: the values of its witness' labels."""


@dataclass(frozen=True, kw_only=True)
class NodeLife:
    """What is known of a node."""

    name: str
    """The node."""
    told: Mapping[Witness, Mapping[NodePart, tuple[ValueRun, ...]]]
    """What each witness says of each part; only stretches of time in which something happened."""
    spacing: Mapping[Witness, float]
    """Usual time between samples of a witness. [s]"""
    labels: Mapping[str, str]
    """Its labels, as far as the series tell them."""
    seen: tuple[Span, ...]
    """When it was there and looked at. [s]"""
    known: tuple[Span, ...]
    """When anything of the pool was looked at. [s]"""

    def parts(self, witness: Witness) -> Iterator[tuple[NodePart, tuple[ValueRun, ...]]]:
        """What a witness says, part by part."""
        yield from sorted(self.told.get(witness, {}).items())

    def on(self, witness: Witness, value: float = 1.0) -> list[Span]:
        """When any part had a value. [s]"""
        gap = self.spacing.get(witness, 0.0)
        return joined(span for _, many in self.parts(witness) for span in spans(many, value, gap))

    @cached_property
    def step(self) -> float:
        """Time between two samples of its conditions. [s]"""
        return self.spacing.get(READY, 60.0) or 60.0

    @cached_property
    def ready(self) -> tuple[ValueRun, ...]:
        """What is said of its readiness."""
        return self.told.get(READY, {}).get((), ())

    @cached_property
    def cordons(self) -> list[Span]:
        """When it took no new pods. [s]"""
        taints = [
            span
            for (key,), many in self.parts(TAINT)
            for span in spans(many, 1.0, self.spacing.get(TAINT, 0.0))
            if not key.startswith(("ToBeDeleted", "DeletionCandidate"))
        ]
        return joined([*self.on(CORDON), *taints], 2 * self.step)

    @cached_property
    def not_ready(self) -> list[Span]:
        """When it was not ready. [s]"""
        return spans(self.ready, 0.0, self.step)

    @property
    def gone(self) -> float | None:
        """When it was deleted; None = it is still there. [s]"""
        last, whole = self.seen[-1][1], self.known[-1][1]
        return last if whole - last > max(600.0, 3 * self.step) else None

    def exposed(self, failing: list[Span], away: float) -> list[Span]:
        """When its failure would have been seen as one: there, ready but for `away`, not cordoned, not failing. [s]"""
        down = [span for span in self.not_ready if span[1] - span[0] >= away]
        return without(self.seen, [*self.cordons, *down, *failing])


# One pod of a training job, from its creation to its end, as kube-state-metrics tells it.


@dataclass(frozen=True, kw_only=True, slots=True)
class Exit:
    """A container that ended and was started again."""

    at: float
    """When it ended, in seconds of the epoch. [s]"""
    again: float
    """When it was started again. [s]"""
    container: str = ""
    """Which."""
    code: int | None = None
    """Its exit code; None = nobody says. [1]"""
    reason: str = ""
    """What the runtime says of it: Error, OOMKilled."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PodLife:
    """A pod, as far as it was seen."""

    job: str
    """Whose: namespace/name."""
    attempt: str = ""
    """Restart attempt of its job; empty for kinds that do not say."""
    slot: str = ""
    """Which place in the job it fills: the same for the pod that replaces it."""
    node: str = ""
    """Its node; empty = not known."""
    created: float = 0.0
    """When it was created. [s]"""
    started: float | None = None
    """When its first container started; None = none did, as far as is known. [s]"""
    last: float = 0.0
    """Last sample of it. [s]"""
    over: float | None = None
    """First sample at which it had ended; None = none. [s]"""
    failed: bool = False
    """Whether it ended in failure."""
    succeeded: bool = False
    """Whether it ended well."""
    evicted: bool = False
    """Whether it was evicted."""
    preempted: bool = False
    """Whether it was preempted."""
    drained: bool = False
    """Whether somebody asked the API server to evict it."""
    out_of_memory: bool = False
    """Whether one of its containers ended for want of memory."""
    exits: tuple[Exit, ...] = ()
    """Containers that ended and were started again, in order."""
    containers: int = 0
    """Containers whose restarts are counted; 0 = nobody counts them. [1]"""
    priority: str = ""
    """Its priority class."""

    def later(self, other: PodLife) -> PodLife:
        """The same pod, after a later look."""
        exits = {(one.container, round(one.at)): one for one in (*self.exits, *other.exits)}
        return replace(
            other,
            node=other.node or self.node,
            created=self.created or other.created,
            started=self.started if self.started is not None else other.started,
            last=max(self.last, other.last),
            over=self.over if self.over is not None else other.over,
            failed=self.failed or other.failed,
            succeeded=self.succeeded or other.succeeded,
            evicted=self.evicted or other.evicted,
            preempted=self.preempted or other.preempted,
            drained=self.drained or other.drained,
            out_of_memory=self.out_of_memory or other.out_of_memory,
            exits=tuple(sorted(exits.values(), key=lambda one: (one.at, one.container))),
            containers=max(self.containers, other.containers),
        )


def merged(looks: Iterable[Mapping[str, PodLife]]) -> dict[str, PodLife]:
    """Pods by uid over several looks."""
    found: dict[str, PodLife] = {}
    for look in looks:
        for uid, pod in look.items():
            found[uid] = found[uid].later(pod) if uid in found else pod
    return found
