"""Time lines of nodes and pods: what Prometheus has of each, from the first sample to the last."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypeVar

T = TypeVar("T")
_MANY: Final = 4
"""From so many gaps between samples on, the upper quartile is taken instead of the median. [1]"""
SILENCE: Final = 2.6
"""A series was silent between two samples that are so many usual spacings apart. [1]"""
HOST_SILENCE: Final = 1.6
"""The same for exporters on a node: one missing sample may mean that the host was down. [1]"""
_ABSENT: Final = 600.0
"""A node whose object was last seen so long before the last sample of any is deleted. Ours. [s]"""
_BY_AUTOSCALER: Final = ("ToBeDeleted", "DeletionCandidate")
"""Prefixes of the cluster autoscaler's taints: the first is on nodes that it drains, the second on
nodes that it may drain later."""
Point: TypeAlias = tuple[float, float]
"""A moment and a value. [s, …]"""


class Span(NamedTuple):
    """A piece of time, in seconds of the epoch."""

    start: float
    end: float

    @property
    def seconds(self) -> float:
        """Its length. [s]"""
        return self.end - self.start


def joined(spans: Iterable[Span], apart: float = 0.0) -> list[Span]:
    """Spans in order; those that touch, or lie at most `apart` from each other [s], become one.

    >>> [tuple(span) for span in joined([Span(5, 9), Span(0, 2), Span(1, 3)])]
    [(0, 3), (5, 9)]
    """
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start - merged[-1].end <= apart:
            merged[-1] = Span(merged[-1].start, max(end, merged[-1].end))
        else:
            merged.append(Span(start, end))
    return merged


def without(stretch: Iterable[Span], holes: Iterable[Span]) -> list[Span]:
    """What is left of spans after the holes are cut out.

    >>> [tuple(span) for span in without([Span(0, 10)], [Span(2, 3), Span(8, 12)])]
    [(0, 2), (3, 8)]
    """
    cuts, remaining = joined(holes), []
    for span in joined(stretch):
        start = span.start
        for hole in cuts:
            if hole.end > start and hole.start < span.end:
                if hole.start > start:
                    remaining.append(Span(start, hole.start))
                start = max(start, hole.end)
        if start < span.end:
            remaining.append(Span(start, span.end))
    return remaining


def gaps_in(spans: Sequence[Span]) -> list[Span]:
    """The times between spans, which are in order.

    >>> [tuple(span) for span in gaps_in([Span(0, 2), Span(3, 8), Span(8, 12)])]
    [(2, 3)]
    """
    return without([Span(spans[0].start, spans[-1].end)], spans)


def overlap(spans: Iterable[Span], other_spans: Iterable[Span]) -> list[Span]:
    """The time that two sets of spans share.

    >>> [tuple(span) for span in overlap([Span(0, 5), Span(8, 9)], [Span(3, 8.5)])]
    [(3, 5), (8, 8.5)]
    """
    others = joined(other_spans)
    return [
        Span(max(span.start, other.start), min(span.end, other.end))
        for span in joined(spans)
        for other in others
        if max(span.start, other.start) < min(span.end, other.end)
    ]


def length(spans: Iterable[Span]) -> float:
    """The time of all spans together. [s]"""
    return sum(end - start for start, end in spans)


@dataclass(frozen=True, slots=True)
class ValueRun:
    """Consecutive samples of one value: the moments of the first and the last, and the value."""

    start: float
    end: float
    value: float


def spacing_of(points: Sequence[Point], least: float = 1.0) -> float:
    """Usual time between two samples; 0 where there are too few. [s]

    Where two Prometheus servers scrape in turns, short and long gaps alternate; the long one is the
    spacing.

    >>> spacing_of([(0, 1), (20, 1), (120, 1), (140, 1), (240, 1)])
    100
    """
    gaps = sorted(b - a for (a, _), (b, _) in pairwise(points) if b - a >= least)
    return gaps[len(gaps) // 2 if len(gaps) < _MANY else 3 * len(gaps) // 4] if gaps else 0.0


def slack_of_silence(spacing: float) -> float:
    """Possible error of the ends of a silence of all nodes, which are read minute by minute. [s]

    >>> slack_of_silence(15.0), slack_of_silence(300.0)
    (180.0, 900.0)
    """
    return max(180.0, 3 * spacing)


def value_runs(
    points: Iterable[Point], spacing: float, silence: float = SILENCE
) -> tuple[ValueRun, ...]:
    """Samples as runs of one value, in order; `silence` spacings without a sample end a run.

    >>> runs = value_runs([(0, 1), (60, 1), (120, 0), (600, 0)], 60.0)
    >>> [(run.start, run.end, run.value) for run in runs]
    [(0, 60, 1), (120, 120, 0), (600, 600, 0)]
    """
    runs: list[ValueRun] = []
    for moment, value in sorted(points):
        last = runs[-1] if runs else None
        if last is not None and value == last.value and moment - last.end <= silence * spacing:
            runs[-1] = ValueRun(last.start, moment, value)
        else:
            runs.append(ValueRun(moment, moment, value))
    return tuple(runs)


def joined_runs(runs: Iterable[ValueRun], silence: float) -> tuple[ValueRun, ...]:
    """Runs of several queries as one time line, where each sample counts once; a `silence` ends a
    run. [s]
    """
    merged: list[ValueRun] = []
    for run in sorted(runs, key=lambda run: (run.start, run.end)):
        last = merged[-1] if merged else None
        if last is None or run.start > last.end:
            if last is not None and last.value == run.value and run.start - last.end <= silence:
                merged[-1] = ValueRun(last.start, run.end, run.value)
            else:
                merged.append(run)
        elif run.end > last.end:
            if run.value == last.value:
                merged[-1] = ValueRun(last.start, run.end, run.value)
            else:
                merged.append(ValueRun(last.end, run.end, run.value))
    return tuple(merged)


def spans_of(runs: Sequence[ValueRun], value: float, spacing: float) -> list[Span]:
    """When a series had a value.

    The value lasts from halfway between the sample before and its first to halfway between its last
    and the next, and at most half a spacing beyond either.
    """
    stretches: list[Span] = []
    half = spacing / 2
    for number, run in enumerate(runs):
        if run.value != value:
            continue
        start, end = run.start - half, run.end + half
        if number:
            start = max(start, (runs[number - 1].end + run.start) / 2)
        if number + 1 < len(runs):
            end = min(end, (runs[number + 1].start + run.end) / 2)
        stretches.append(Span(start, end))
    return joined(stretches, SILENCE * spacing)


@dataclass(frozen=True, kw_only=True, slots=True)
class Signal:
    """One kind of series about nodes.

    To read every sample of a fleet costs too much. `read_when` says which sum over the time shows
    that a node's samples are needed:

        low      a sample was 0, and 1 is the healthy value
        high     a sample was not 0, and 0 is the healthy value
        rose     a sample was 1, and not all were
        changed  samples differ
        recent   the value is a moment in the time that is read
    """

    metric: str
    conditions: tuple[str, ...] = ()
    """Matchers that its series meet, as PromQL."""
    parts: tuple[str, ...] = ()
    """Labels that tell the parts of a node apart."""
    read_when: Literal["low", "high", "rose", "changed", "recent"]
    on_host: bool = False
    """Whether an exporter on the node publishes it, which is silent while the host is down."""
    alone: str = ""
    """What cannot be seen without this series; empty where another shows it too."""

    @property
    def silence(self) -> float:
        """It was silent after so many usual spacings without a sample. [1]"""
        return HOST_SILENCE if self.on_host else SILENCE


READY: Final = Signal(
    metric="kube_node_status_condition",
    conditions=('condition="Ready"', 'status="true"'),
    read_when="low",
)
CORDON: Final = Signal(metric="kube_node_spec_unschedulable", read_when="high")
TAINT: Final = Signal(
    metric="kube_node_spec_taint",
    conditions=(
        'effect=~"NoSchedule|NoExecute"',
        'key!~"(node|node-role)[.]kubernetes[.]io/.*|nvidia.com/gpu|amd.com/gpu"',
    ),
    parts=("key",),
    read_when="rose",
)
ALLOCATABLE: Final = Signal(
    metric="kube_node_status_allocatable",
    conditions=('resource=~"(nvidia|amd|intel|habana)_com_.*"',),
    parts=("resource",),
    read_when="changed",
)
PROBLEM: Final = Signal(
    metric="kube_node_status_condition",
    conditions=(
        'condition!~"Ready|MemoryPressure|DiskPressure|PIDPressure|NetworkUnavailable|"',
        'status="true"',
    ),
    parts=("condition",),
    read_when="rose",
)
PRESSURE: Final = Signal(
    metric="kube_node_status_condition",
    conditions=('condition=~"(Memory|Disk|PID)Pressure"', 'status="true"'),
    parts=("condition",),
    read_when="rose",
)
"""A kubelet runs short and evicts pods. It says so for minutes, while a pod's own reason may never
be sampled."""
BOOT: Final = Signal(
    metric="node_boot_time_seconds",
    read_when="recent",
    on_host=True,
    alone="reboots that are shorter than the time between two samples",
)
XID: Final = Signal(
    metric="DCGM_FI_DEV_XID_ERRORS",
    parts=("gpu", "UUID"),
    read_when="changed",
    on_host=True,
    alone="XIDs of GPUs",
)
XID_COUNT: Final = Signal(
    metric="DCGM_EXP_XID_ERRORS_COUNT",
    parts=("xid", "gpu", "UUID"),
    read_when="high",
    on_host=True,
)
"""XIDs in the last minutes, by number: dcgm-exporter publishes a series once an XID was seen."""
REMAP: Final = Signal(
    metric="DCGM_FI_DEV_ROW_REMAP_FAILURE",
    parts=("gpu", "UUID"),
    read_when="changed",
    on_host=True,
)
DETECTED: Final = Signal(
    metric="problem_gauge", parts=("type", "reason"), read_when="high", on_host=True
)
COUNTED: Final = Signal(
    metric="problem_counter", parts=("reason",), read_when="changed", on_host=True
)
HEARTBEATS: Final = (XID, COUNTED, DETECTED)
"""Signals whose silence shows that the host was down, where no boot time is published."""
SIGNALS: Final = (
    *(READY, CORDON, TAINT, ALLOCATABLE, PROBLEM, PRESSURE, BOOT),
    *(XID, XID_COUNT, REMAP, DETECTED, COUNTED),
)


@dataclass(frozen=True, slots=True)
class SignalTimeline:
    """The samples of one signal about one part of a node, where anything happened."""

    node: str
    signal: Signal
    part: tuple[str, ...]
    """Values of the signal's `parts` labels."""
    runs: tuple[ValueRun, ...]
    read: tuple[Span, ...] = ()
    """When its samples were read; at all other times nothing changed. Empty = all were read."""

    def held(self) -> list[ValueRun]:
        """Its runs; two of one value become one where no sample between them was read."""
        held_runs: list[ValueRun] = []
        for run in self.runs:
            last = held_runs[-1] if held_runs else None
            if last is not None and last.value == run.value and self.unread(last.end, run.start):
                held_runs[-1] = ValueRun(last.start, run.end, run.value)
            else:
                held_runs.append(run)
        return held_runs

    def unread(self, start: float, end: float) -> bool:
        """Whether samples between two moments were not all read. [s]"""
        return bool(self.read) and not any(
            span.start <= start and end <= span.end for span in self.read
        )

    def read_until(self, at: float, last: float) -> float:
        """Until when all its samples were read from a moment on; `last` where all were read. [s]"""
        if not self.read:
            return last
        return max((span.end for span in self.read if span.start <= at <= span.end), default=at)

    def begins_read(self, at: float, slack: float) -> bool:
        """Whether reading began just before a moment, so that what was before is unknown. [s]"""
        return any(span.start <= at <= span.start + slack for span in self.read)


class _kept(cached_property[T]):  # noqa: N801 - a decorator
    """As `cached_property`, but of a node where nothing happened nothing is kept: it is computed at
    once, and most of 10,000 nodes are such, which saves memory.
    """

    def __get__(self, node: Any, owner: Any = None) -> Any:
        if node is not None and not node.timelines and len(node.presence) == 1:
            return self.func(node)
        return super().__get__(node, owner)


@dataclass(frozen=True, kw_only=True)
class NodeTimeline:
    """Everything that is known of one node."""

    name: str
    timelines: tuple[SignalTimeline, ...]
    signals: frozenset[Signal] = frozenset()
    """Signals that are published of the node, also where nothing happened."""
    spacing: Mapping[Signal, float]
    """Usual time between samples of a signal. [s]"""
    labels: Mapping[str, str]
    """Its labels, as kube-state-metrics publishes them."""
    presence: tuple[Span, ...]
    """When the node was there and sampled."""
    sampled: tuple[Span, ...]
    """When any node of the pool was sampled."""
    pod_timelines: tuple[PodTimeline, ...] = ()
    """Training pods on it."""
    gpus: float = 0.0
    """GPUs that it offers at most; 0 = unknown. [1]"""
    configured: frozenset[str] = frozenset()
    """Keys of taints that are configuration and no cordon; an empty text means unschedulable."""
    additions: tuple[float, ...] = ()
    """When nodes joined its pool while none was missing. [s]"""

    def of(self, signal: Signal) -> list[SignalTimeline]:
        """Time lines of a signal, one for each part of the node."""
        return sorted(
            (line for line in self.timelines if line.signal == signal), key=lambda line: line.part
        )

    def gap(self, signal: Signal) -> float:
        """Usual time between samples of a signal; that of readiness where too few are there. [s]"""
        return self.spacing.get(signal, self.sample_spacing)

    @property
    def sample_spacing(self) -> float:
        """Time between two samples of its readiness. [s]"""
        return self.spacing.get(READY, 60.0) or 60.0

    @_kept
    def ready(self) -> tuple[ValueRun, ...]:
        """Runs of its readiness."""
        return next((line.runs for line in self.of(READY)), ())

    @_kept
    def cordons(self) -> list[Span]:
        """When the node took no new pods, without what is configuration."""
        # the cluster autoscaler taints a node that it removes: that is no repair
        return self._closed(
            lambda key: not key.startswith(_BY_AUTOSCALER) and key not in self.configured
        )

    @_kept
    def removals(self) -> list[Span]:
        """When the cluster autoscaler evicted what ran on the node, to delete it."""
        return self._closed(lambda key: key.startswith(_BY_AUTOSCALER[0]))

    def _closed(self, is_meant: Callable[[str], bool]) -> list[Span]:
        """Times of the cordons and taints whose key `is_meant`; that of unschedulable is empty."""
        spans = [
            span
            for signal in (CORDON, TAINT)
            for line in self.of(signal)
            if is_meant("".join(line.part))
            for span in spans_of(line.runs, 1.0, self.spacing.get(signal, 0.0))
        ]
        return joined(spans, 2 * self.sample_spacing)

    def pressure(self, start: float, end: float) -> str:
        """The condition by which its kubelet was short of something in a time; empty = none. [s]"""
        spacing = self.spacing.get(PRESSURE, self.sample_spacing)
        return next(
            (
                "".join(line.part)
                for line in self.of(PRESSURE)
                if overlap(spans_of(line.runs, 1.0, spacing), [Span(start, end)])
            ),
            "",
        )

    @_kept
    def not_ready(self) -> list[Span]:
        """When it was not ready."""
        return spans_of(self.ready, 0.0, self.sample_spacing)

    @_kept
    def away(self) -> list[Span]:
        """When the node had no Node object for a while, and then one again."""
        if len(self.presence) == 1:
            return []
        step = self.sample_spacing
        silences = gaps_in(self.sampled)
        unsure = [Span(span.start - 3 * step, span.end + 3 * step) for span in silences]
        gaps = without(gaps_in(self.presence), unsure)
        return [span for span in gaps if span.seconds > SILENCE * step]

    @_kept
    def dark(self) -> list[Span] | None:
        """When exporters on the host were silent; None where none of them was read."""
        signal = next((signal for signal in (BOOT, *HEARTBEATS) if self.of(signal)), None)
        if signal is None:
            return None
        least = max(100.0, signal.silence * self.gap(signal))
        silences: list[Span] = []
        for line in self.of(signal):
            gaps = (Span(run.end, after.start) for run, after in pairwise(line.runs))
            silences += (gap for gap in gaps if gap.seconds > least and not line.unread(*gap))
            last = line.runs[-1].end
            until = line.read_until(last, self.sampled[-1].end)
            silences += [Span(last, until)] if until - last > least else []
        return joined(silences)

    @property
    def gone(self) -> float | None:
        """When it was deleted; None = it is still there. [s]"""
        last, until = self.presence[-1].end, self.sampled[-1].end
        return last if until - last > max(_ABSENT, 3 * self.sample_spacing) else None

    @property
    def deletions(self) -> list[Span]:
        """Times from each deletion of its object until it was made again; of no length if never."""
        return [*self.away, *([] if self.gone is None else [Span(self.gone, self.gone)])]

    @property
    def joins(self) -> list[float]:
        """When its object was made, if that was seen. [s]"""
        first, since = self.presence[0].start, self.sampled[0].start
        is_late = first > since + 3 * self.sample_spacing
        return [*([first] if is_late else []), *(span.end for span in self.away)]

    def exposed(self, failing: list[Span], shortest_outage: float) -> list[Span]:
        """When a failure would count: while ready, neither cordoned nor failing. Times in [s]."""
        down = [span for span in self.not_ready if span.seconds >= shortest_outage]
        return without(self.presence, [*self.cordons, *down, *failing])


@dataclass(frozen=True, kw_only=True, slots=True)
class ContainerExit:
    """A container that ended and was started again; moments in seconds of the epoch."""

    at: float
    restarted_at: float
    """When it was started again. [s]"""
    container: str = ""
    code: int | None = None
    """Its exit code; None = unknown."""
    reason: str = ""
    """The runtime's word for it: Error, OOMKilled."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PodTimeline:
    """One pod of a training job, as kube-state-metrics shows it; moments in epoch seconds."""

    job: str
    """Its job: namespace/name."""
    attempt: str = ""
    """Restart attempt of its job; empty for kinds of jobs that count none."""
    slot: str = ""
    """Its place in the job, which the pod that replaces it takes."""
    node: str = ""
    """Its node; empty = unknown."""
    created: float = 0.0
    started: float | None = None
    """When its first container started; None = none did, as far as is known. [s]"""
    last: float = 0.0
    """Its last sample. [s]"""
    over: float | None = None
    """The first sample at which it had ended; None = it has not. [s]"""
    failed: bool = False
    succeeded: bool = False
    evicted: bool = False
    shut_down: bool = False
    """Whether its kubelet ended it because the host was shutting down in order."""
    preempted: bool = False
    drained: bool = False
    """Whether somebody evicted it through the API server."""
    out_of_memory: bool = False
    exits: tuple[ContainerExit, ...] = ()
    """Containers that were started again, in order."""
    containers: int = 0
    """Containers whose restarts are counted. [1]"""
    gpus: float = 0.0
    """GPUs that it asks for; 0 = unknown. [1]"""

    def merged(self, other: PodTimeline) -> PodTimeline:
        """The time line of the pod, with what a later query has of it."""
        exits = {(stop.container, round(stop.at)): stop for stop in (*self.exits, *other.exits)}
        flags = (
            *("failed", "succeeded", "evicted", "shut_down"),
            *("preempted", "drained", "out_of_memory"),
        )
        return replace(
            other,
            node=other.node or self.node,
            created=self.created or other.created,
            started=self.started if self.started is not None else other.started,
            last=max(self.last, other.last),
            over=self.over if self.over is not None else other.over,
            exits=tuple(sorted(exits.values(), key=lambda stop: (stop.at, stop.container))),
            containers=max(self.containers, other.containers),
            gpus=max(self.gpus, other.gpus),
            **{flag: getattr(self, flag) or getattr(other, flag) for flag in flags},
        )

    def running(self, sample_spacing: float) -> Span:
        """From its start to its end; `sample_spacing` is the time between samples. [s]"""
        start = self.started if self.started is not None else self.created
        return Span(start, max(start, self.ended(sample_spacing)))

    def ended(self, sample_spacing: float) -> float:
        """When it ended: half a spacing after its last sample, where no sample says it. [s]"""
        return self.over if self.over is not None else self.last + sample_spacing / 2


@dataclass(frozen=True, slots=True)
class Stall:
    """A time in which a job made no new steps."""

    stopped_at: float | None = None
    """Half a step after the last one; None = unknown. [s]"""
    resumed_at: float | None = None
    """The first sign of a new step; infinite = there was none yet, None = unknown. [s]"""
    redone_seconds: float = 0.0
    """Time of the steps that were trained again. [s]"""
    gap: float = 0.0
    """Time between two samples of the steps, by which both ends may be off. [s]"""
    lost_seconds: float | None = None
    """Time in which no new step was made, whether it stood or repeated steps; None = it follows
    from the other fields. [s]"""

    @property
    def unsure(self) -> float:
        """How much later than `resumed_at` the job may have gone on. [s]"""
        return 0.0 if self.lost_seconds is None else self.gap / 2


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolTimelines:
    """Everything that is known of the nodes and jobs of a pool."""

    node_timelines: Mapping[str, NodeTimeline]
    pod_timelines: Mapping[str, PodTimeline]
    """Pods of training jobs by uid, on any node."""
    gpu_busy: Mapping[str, Sequence[Span]]
    """When the GPUs of a node worked, where that was read."""
    stalls: Mapping[str, Sequence[Stall]]
    """When the steps of a job stood still, where they are published."""
    sampled: tuple[Span, ...]
    """When any node was sampled."""
    sample_spacing: float
    """Time between samples. [s]"""
    frees_nodes: bool = False
    """Whether a job that stands still has given its nodes back, as under Slurm."""

    @property
    def silences(self) -> list[Span]:
        """When no node was sampled."""
        return gaps_in(self.sampled)
