"""What samples show of a pool in a piece of time: its nodes, pods of training jobs, and when both
were sampled.

A window is read in pieces, by days in UTC and today by hours, so that a piece that is over is read
once and kept. A seam between two pieces changes no answer:

    changes at the seam    each piece is read from `OVERLAP` before its start
    silent exporters       a node whose exporters were silent at the seam is read from a day before
    silent server          no seam lies where nothing was sampled
    members of the pool    a node that offered GPUs within a day is one, whatever it offers now
    work of GPUs           it is read from `AROUND` before the piece
    samples not read       nothing changed in them; each time line says what was read
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median
from sys import intern
from typing import Final

from mofa_model.units import DAY, HOUR
from mofa_operator.incidents.timelines import (
    READY,
    SIGNALS,
    NodeTimeline,
    PodTimeline,
    Point,
    PoolTimelines,
    Signal,
    SignalTimeline,
    Span,
    ValueRun,
    joined,
    joined_runs,
    overlap,
)
from mofa_operator.observe.history.node_names import ADDRESS, NodeNaming
from mofa_operator.observe.history.node_series import NodeSeries
from mofa_operator.observe.history.pod_series import read_pods
from mofa_operator.observe.history.stalls import StepEdges, stalls, step_edges
from mofa_operator.observe.prometheus.client import Asking, Prometheus, TooMuch, together
from mofa_operator.observe.prometheus.promql import (
    GRID,
    WHOLE_GPUS,
    Pool,
    any_of,
    by_trusted_exporters,
    duration,
    matcher,
    with_trusted_exporters,
)

SETTLED: Final = HOUR
"""Age from which samples no longer change, because late ones have arrived. [s]"""
AROUND: Final = 3 * HOUR
"""How long before and after a pod ends or begins the work of GPUs is read. [s]"""
NODE_DAYS: Final = 2500.0
"""Most that one query covers; larger pools are read in shorter pieces. A day of so many nodes with
eight GPUs each is 60 million samples at a sample a minute, 5 s of a core of the server. [node d]"""
_FINEST: Final = 60.0
"""Finest grid on which pods and GPUs are read, however often they are sampled. [s]"""
_NAMED: Final = 50
"""Nodes that a query names at most. [1]"""
_LABELLED: Final = 1000
"""Nodes whose labels are read at once: each may have a hundred. [1]"""
_WORKING: Final = 0.02
"""Activity of tensor cores above which a GPU works. [1]"""
_ONE_MISSING: Final = 1.5
"""Longest gap that one late or missing sample explains, in times between samples. [1]"""
_NO_SIGNALS: Final = frozenset[Signal]()
_GPUS: Final = matcher("resource", "(nvidia|amd|intel|habana)_com_.*", "=~")


def window_days(now: float, window: float) -> list[Span]:
    """The window up to now by UTC days; its start moves in steps of a hundredth, so that most
    looks read the same days.

    >>> [round(day.seconds / 86400, 2) for day in window_days(1_700_000_100, 3 * 86400)]
    [0.08, 1.0, 1.0, 0.93]
    """
    step = max(GRID, math.floor(min(window / 100, DAY) / GRID) * GRID)
    return days_of(Span(math.floor((now - window) / step) * step, days_end(now)))


def days_end(now: float) -> float:
    """The last moment that is read, the same for all looks within five minutes. [s]

    >>> days_end(1_700_000_150)
    1700000100
    """
    return math.floor(now / GRID) * GRID


def days_of(stretch: Span) -> list[Span]:
    """A piece of time, day by day in UTC.

    >>> [day.seconds for day in days_of(Span(86000.0, 173000.0))]
    [400.0, 86400.0, 200.0]
    """
    midnights = range(math.floor(stretch.start / DAY) + 1, math.ceil(stretch.end / DAY))
    bounds = [stretch.start, *(float(day * DAY) for day in midnights), stretch.end]
    return [Span(a, b) for a, b in pairwise(bounds)]


async def seams_of(
    prometheus: Prometheus,
    pool: Pool,
    stretches: Sequence[Span],
    now: float,
    kept_until: Callable[[float], float],
) -> list[float]:
    """Where a window is cut into pieces, from its start on: at the ends of its days, and at the
    last hour that is over. [s]

    No cut lies where nothing was sampled, so that a silence is read as a whole. `kept_until` takes
    the start of a piece and returns the end of what is kept of it.
    """
    last = math.floor((now - SETTLED) / HOUR) * HOUR
    cuts = [day.end for day in stretches if day.end < last]

    seams = [stretches[0].start]
    uncached = [cut for cut in cuts if kept_until(cut) == cut]
    answers = await together(*(_is_sampled(prometheus, pool, cut) for cut in uncached))
    silent = {cut for cut, has_samples in zip(uncached, answers, strict=True) if not has_samples}
    seams += [cut for cut in cuts if cut not in silent]
    kept_end = kept_until(seams[-1])
    if last - max(kept_end, seams[-1]) >= HOUR and await _is_sampled(prometheus, pool, last):
        return [*seams, last]
    return [*seams, kept_end] if kept_end > seams[-1] else seams


async def _is_sampled(prometheus: Prometheus, pool: Pool, at: float) -> bool:
    """Whether any node was sampled just before a moment. [s]"""
    return bool((await prometheus.query(f"count({pool.ready})", at)).samples)


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolSamples:
    """What the samples of a piece of time show of a pool."""

    stretch: Span
    sampled: tuple[Span, ...] = ()
    """When the readiness of any node was sampled."""
    sampled_by_node: Mapping[str, tuple[Span, ...]] = field(default_factory=dict)
    """When the readiness of each node of the pool was sampled."""
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Labels of the nodes."""
    gpus: Mapping[str, float] = field(default_factory=dict)
    """GPUs that each node offers at most. [1]"""
    timelines: tuple[SignalTimeline, ...] = ()
    """Time lines of nodes on which something happened."""
    spacing: Mapping[Signal, float] = field(default_factory=dict)
    """Usual time between samples of a signal. [s]"""
    reporting: Mapping[Signal, frozenset[str]] = field(default_factory=dict)
    """Nodes that a signal's exporter reports."""
    pod_timelines: Mapping[str, PodTimeline] = field(default_factory=dict)
    """Pods of training jobs by uid, on any node."""
    gpu_busy: Mapping[str, tuple[Span, ...]] = field(default_factory=dict)
    """When the GPUs of a node worked, where that was asked."""
    edges: tuple[StepEdges, ...] = ()
    """Where the steps of jobs stopped and went on."""
    sample_spacing: float = float(GRID)
    """Time between samples of nodes. [s]"""
    warnings: tuple[str, ...] = ()
    """What the server warned of."""


def shared(newer: PoolSamples, older: PoolSamples) -> PoolSamples:
    """The newer samples, with labels and sets of nodes of the older ones where these are equal.

    This saves memory: the labels of 10,000 nodes are 15 MB, and a window has thirty days.
    """
    return replace(
        newer,
        labels={
            node: older.labels[node] if older.labels.get(node) == labels else labels
            for node, labels in newer.labels.items()
        },
        gpus=older.gpus if older.gpus == newer.gpus else newer.gpus,
        reporting={
            signal: older.reporting[signal] if older.reporting.get(signal) == nodes else nodes
            for signal, nodes in newer.reporting.items()
        },
    )


def merged(older: PoolSamples, newer: PoolSamples) -> PoolSamples:
    """The samples of two successive pieces of time as those of one."""
    longer = max(older, newer, key=lambda piece: piece.stretch.seconds if piece.sampled else -1.0)
    pieces = (older, newer)
    present = _spans_by_node(piece.sampled_by_node for piece in pieces)
    busy = _spans_by_node(piece.gpu_busy for piece in pieces)
    pods = _pods(pieces)
    spacing = {**newer.spacing, **older.spacing}
    newer = shared(newer, older)
    return PoolSamples(
        stretch=Span(older.stretch.start, newer.stretch.end),
        sampled=tuple(joined((*older.sampled, *newer.sampled), 1.0)),
        sampled_by_node={
            node: tuple(joined(spans, longer.sample_spacing)) for node, spans in present.items()
        },
        labels={**older.labels, **newer.labels},
        gpus=older.gpus if older.gpus == newer.gpus else {**older.gpus, **newer.gpus},
        timelines=tuple(_joined_timelines((*older.timelines, *newer.timelines), spacing)),
        spacing=spacing,
        reporting={
            signal: _both(
                older.reporting.get(signal, frozenset()), newer.reporting.get(signal, frozenset())
            )
            for signal in {*older.reporting, *newer.reporting}
        },
        pod_timelines=pods,
        gpu_busy={node: tuple(joined(spans, 1.0)) for node, spans in busy.items()},
        edges=(*older.edges, *newer.edges),
        sample_spacing=longer.sample_spacing,
        warnings=tuple(dict.fromkeys((*older.warnings, *newer.warnings))),
    )


def _both(nodes: frozenset[str], more: frozenset[str]) -> frozenset[str]:
    """The union of two sets of nodes; the larger object itself where it holds the other."""
    return nodes if more <= nodes else nodes | more


def _spans_by_node(parts: Iterable[Mapping[str, Sequence[Span]]]) -> Mapping[str, list[Span]]:
    """The spans of each node in all parts, in order."""
    spans_by_node = defaultdict[str, list[Span]](list)
    for part in parts:
        for node, spans in part.items():
            spans_by_node[node] += spans
    return spans_by_node


def _pods(pieces: Iterable[PoolSamples]) -> dict[str, PodTimeline]:
    """The time line of each pod, by uid, over several pieces of time."""
    pods: dict[str, PodTimeline] = {}
    for piece in pieces:
        for uid, pod in piece.pod_timelines.items():
            pods[uid] = pods[uid].merged(pod) if uid in pods else pod
    return pods


def _joined_timelines(
    timelines: Iterable[SignalTimeline], spacing: Mapping[Signal, float]
) -> Iterator[SignalTimeline]:
    """One time line for each node, signal and part, from the time lines of several pieces."""
    runs = defaultdict[tuple[str, Signal, tuple[str, ...]], list[ValueRun]](list)
    read = defaultdict[tuple[str, Signal, tuple[str, ...]], list[Span]](list)
    for line in timelines:
        runs[line.node, line.signal, line.part] += line.runs
        read[line.node, line.signal, line.part] += line.read
    for (node, signal, part), line_runs in runs.items():
        silence = signal.silence * spacing.get(signal, 60.0)
        spans = tuple(joined(read[node, signal, part]))
        yield SignalTimeline(node, signal, part, joined_runs(line_runs, silence), spans)


def pool_timelines(samples: Sequence[PoolSamples]) -> PoolTimelines:
    """The time line of each node and pod over a window, from the samples of its pieces."""
    gaps: defaultdict[Signal, list[float]] = defaultdict(list)
    signals: dict[str, frozenset[Signal]] = {}
    unions: dict[tuple[frozenset[Signal], Signal], frozenset[Signal]] = {}
    labels: dict[str, Mapping[str, str]] = {}
    offered: dict[str, float] = {}
    for piece in samples:
        for signal, spacing_seen in piece.spacing.items():
            gaps[signal].append(spacing_seen)
        for signal, reporters in piece.reporting.items():
            for node in reporters:  # equal sets of 10,000 nodes are one
                before = signals.get(node, _NO_SIGNALS)
                if signal not in before:
                    signals[node] = unions.setdefault((before, signal), before | {signal})
        labels.update(piece.labels)
        for node, count in piece.gpus.items():
            offered[node] = max(count, offered.get(node, 0.0))
    present = _spans_by_node(piece.sampled_by_node for piece in samples)
    busy = _spans_by_node(piece.gpu_busy for piece in samples)
    step = median(piece.sample_spacing for piece in samples if piece.sampled)
    spacing = {signal: median(values) for signal, values in gaps.items()}
    timelines: defaultdict[str, list[SignalTimeline]] = defaultdict(list)
    lines = (line for piece in samples for line in piece.timelines)
    for line in _joined_timelines(lines, spacing):
        timelines[line.node].append(line)
    sampled = tuple(joined((span for piece in samples for span in piece.sampled), 1.0))
    nodes = {
        node: NodeTimeline(
            name=node,
            timelines=tuple(timelines[node]),
            signals=signals.get(node, _NO_SIGNALS),
            spacing=spacing,
            labels=labels.get(node, {}),
            gpus=offered.get(node, 0.0),
            presence=tuple(joined(present[node], step)),
            sampled=sampled,
        )
        for node in sorted(present)
    }
    return PoolTimelines(
        node_timelines=nodes,
        pod_timelines=_pods(samples),
        gpu_busy={node: joined(spans, 1.0) for node, spans in busy.items()},
        stalls=stalls(edge for piece in samples for edge in piece.edges),
        sampled=sampled,
        sample_spacing=step,
    )


def blind_spots(timelines: PoolTimelines) -> Iterator[str]:
    """A sentence for each kind of failure that no exporter shows, with the number of nodes."""
    for signal in SIGNALS:
        blind = sum(signal not in node.signals for node in timelines.node_timelines.values())
        if signal.alone and blind:
            yield (
                f"{signal.alone} are not seen on {blind} of {len(timelines.node_timelines)} nodes: "
                f"they have no series {signal.metric}"
            )


class StretchReader:
    """Reads pieces of time of a pool; a piece that is too much for the server is read in halves."""

    def __init__(
        self, prometheus: Prometheus, pool: Pool, naming: NodeNaming, nodes: float
    ) -> None:
        """`nodes` is about how many nodes the pool has. [1]"""
        self._prometheus, self._pool, self._naming = prometheus, pool, naming
        self._longest = max(HOUR, DAY * NODE_DAYS / max(1.0, nodes))

    async def read(self, stretch: Span) -> PoolSamples:
        """The samples of a piece of time; raises `TooMuch` where an hour is too much."""
        refused: TooMuch | None = None
        if stretch.seconds <= self._longest:
            try:
                return await read_stretch(self._prometheus, self._pool, self._naming, stretch)
            except TooMuch as error:
                refused = error
                self._longest = min(self._longest, max(HOUR, stretch.seconds / 2))
        seam = await self._seam(stretch)
        if seam is not None:
            older = await self.read(Span(stretch.start, seam))
            return merged(older, await self.read(Span(seam, stretch.end)))
        if refused is not None:
            raise refused
        return await read_stretch(self._prometheus, self._pool, self._naming, stretch)

    async def _seam(self, stretch: Span) -> float | None:
        """The full hour nearest to a piece's middle at which a node was sampled; None for none."""
        middle = (stretch.start + stretch.end) / 2
        hours = range(math.floor(stretch.start / HOUR) + 1, math.ceil(stretch.end / HOUR))
        for hour in sorted(hours, key=lambda hour: abs(hour * HOUR - middle)):
            if await _is_sampled(self._prometheus, self._pool, hour * HOUR):
                return hour * HOUR
        return None


async def read_stretch(
    prometheus: Prometheus, pool: Pool, naming: NodeNaming, stretch: Span
) -> PoolSamples:
    """The samples of a piece of time."""
    samples = await _Queries(prometheus, pool, naming, stretch).read()
    return replace(samples, edges=tuple(await step_edges(prometheus, pool, stretch)))


class _Queries:
    """Reads one piece of time; every query is an instant query at its end."""

    def __init__(self, prometheus: Prometheus, pool: Pool, naming: NodeNaming, day: Span) -> None:
        self._prometheus = prometheus
        self._ask = Asking(prometheus, day.end)
        self._pool, self._naming, self._day = pool, naming, day
        self._within = f"[{duration(day.seconds)}]"

    async def read(self) -> PoolSamples:
        """Ask Prometheus for the pool's nodes, pods and devices in this piece of time."""
        ask, label = self._ask, self._naming.label
        counted = await ask(f"max by ({label}) (count_over_time({self._pool.ready}{self._within}))")
        counts = {intern(s.label(label)): s.value for s in counted.samples}
        del counted  # an answer of 10,000 nodes is not kept for longer than it is read
        sampled = frozenset(counts)
        if not sampled:
            return PoolSamples(stretch=self._day, warnings=tuple(dict.fromkeys(ask.warnings)))
        offer = self._pool.series("kube_node_status_allocatable", WHOLE_GPUS)
        info = f"last_over_time({self._pool.series('kube_node_info')}{self._within})"
        infos, members, offered = await together(
            ask(f"max by ({label}, {ADDRESS}) ({info})"),
            ask(self._members()),
            ask(f"max by ({label}) (max_over_time({offer}{self._within}))"),
        )
        self._naming = self._naming.with_nodes(s.labels for s in infos.samples)
        pool_nodes = {s.label(label) for s in members.samples}
        gpus = {intern(s.label(label)): s.value for s in offered.samples}
        del infos, members, offered
        if not pool_nodes and not self._pool.members:
            pool_nodes = await self._nodes_with_devices() or set(sampled)
        nodes = sampled & pool_nodes
        hourly = await self._most_samples_in_an_hour()
        step = max(5.0, min(float(GRID), HOUR / hourly)) if hourly else float(GRID)
        grid = max(step, _FINEST)
        partly = await self._partly(hourly) if hourly else None
        partly = sampled if partly is None else partly
        throughout = sampled - partly or not partly
        covered = (self._day,) if throughout else await self._covered(grid)
        present = await self._presence(grid, sampled, partly, covered)
        most = max(counts[node] for node in nodes) if nodes else 0.0
        lacking = frozenset(node for node in nodes if counts[node] < most - 3)
        series = await NodeSeries(
            ask, self._pool, self._naming, nodes, self._day.seconds, lacking, most
        ).read()
        present |= {
            node: tuple(overlap(spans, covered))
            for node, spans in self._sampled_spans(series, lacking, step).items()
        }
        trusted = await with_trusted_exporters(ask, self._pool, self._day.seconds)
        pods = (
            {}
            if trusted is None
            else await read_pods(ask, trusted, self._naming, self._day.seconds, grid)
        )
        busy = await self._busy(series, pods, grid)
        return PoolSamples(
            stretch=self._day,
            sampled=covered,
            sampled_by_node={node: present.get(node, ()) for node in nodes},
            gpus={node: count for node, count in gpus.items() if node in nodes},
            labels=await self._labels(sorted(nodes)),
            timelines=tuple(series.timelines),
            spacing=series.spacing,
            reporting=series.reporting,
            pod_timelines=pods,
            gpu_busy=busy,
            sample_spacing=step,
            warnings=tuple(dict.fromkeys(ask.warnings)),
        )

    def _grid(self, step: float) -> str:
        """The range of a subquery over the piece, every `step` seconds, without its start."""
        return f"[{duration(self._day.seconds - 1)}:{duration(step)}]"

    def _members(self) -> str:
        """Nodes of the pool: by the profile's labels, else those that offered GPUs within a day."""
        pool, label = self._pool, self._naming.label
        if pool.members:
            series = pool.series("kube_node_labels", *pool.members)
            return f"count by ({label}) (last_over_time({series}{self._within}))"
        series = pool.series("kube_node_status_allocatable", _GPUS)
        lately = f"(max by ({label}) ({series}))[{duration(DAY)}:{duration(HOUR)}]"
        return (
            f"max by ({label}) (max_over_time({series}{self._within})) > 0 "
            f"or max_over_time({lately}) > 0"
        )

    async def _labels(self, nodes: Sequence[str]) -> dict[str, Mapping[str, str]]:
        """Labels that some nodes share, and not all: only these can name a failure domain."""
        label = self._naming.label
        pairs: dict[str, list[tuple[str, str]]] = {}
        equal_pairs: dict[tuple[str, str], tuple[str, str]] = {}
        for first in range(0, len(nodes), _LABELLED):
            batch = nodes[first : first + _LABELLED]
            selection = [matcher(label, any_of(batch), "=~")] if len(nodes) > _LABELLED else []
            series = self._pool.series("kube_node_labels", *selection)
            for s in (await self._ask(f"last_over_time({series}{self._within})")).samples:
                pairs[s.label(label)] = [
                    equal_pairs.setdefault(pair, pair) for pair in s.labels.items()
                ]
        counts = Counter(pair for node in nodes for pair in pairs.get(node, ()))
        domains = {pair for pair, count in counts.items() if 1 < count < len(nodes)}
        sets: dict[tuple[tuple[str, str], ...], Mapping[str, str]] = {}
        labels = {}
        for node in nodes:
            node_pairs = tuple(pair for pair in pairs.get(node, ()) if pair in domains)
            labels[node] = sets.setdefault(node_pairs, dict(node_pairs))
        return labels

    async def _nodes_with_devices(self) -> set[str]:
        """Nodes on which DCGM's exporter runs, where kube-state-metrics publishes no resources."""
        by = "Hostname, instance, node"
        answer = await self._ask(
            by_trusted_exporters(
                self._pool,
                "DCGM_FI_DEV_XID_ERRORS",
                by,
                self._day.seconds,
                lambda series: f"count by ({by}) (count_over_time({series}{self._within}))",
            )
        )
        return {self._naming.host(s.labels) for s in answer.samples} - {""}

    async def _most_samples_in_an_hour(self) -> float | None:
        """The most samples that one node of the pool gave in an hour; None without samples. [1]"""
        seconds = self._day.seconds
        hour = min(HOUR, seconds)
        most = f"max(count_over_time({self._pool.ready}[{duration(hour)}]))"
        grid = f"[{duration(max(seconds - 1, hour))}:{duration(hour)}]"
        count = (await self._ask(f"max_over_time(({most}){grid})")).number()
        return count * HOUR / hour if count else None

    async def _partly(self, hourly: float) -> frozenset[str] | None:
        """Nodes that lack more than one sample in some hour; None for a piece of broken hours."""
        if self._day.start % HOUR or self._day.end % HOUR:
            return None
        label = self._naming.label
        each = f"(max by ({label}) (count_over_time({self._pool.ready}[{duration(HOUR)}])))"
        grid = self._grid(HOUR)
        hours = round(self._day.seconds / HOUR)
        answer = await self._ask(
            f"min_over_time({each}{grid}) < {hourly - 1:.0f} "
            f"or count_over_time({each}{grid}) < {hours}"
        )
        return frozenset(s.label(label) for s in answer.samples)

    async def _presence(
        self, step: float, nodes: frozenset[str], partly: frozenset[str], covered: tuple[Span, ...]
    ) -> dict[str, tuple[Span, ...]]:
        """When each node was sampled: throughout, except the nodes in `partly`."""
        present: dict[str, tuple[Span, ...]] = dict.fromkeys(nodes - partly, (self._day,))
        if not partly:
            return present
        label = self._naming.label
        selection = [matcher(label, any_of(sorted(partly)), "=~")] if len(partly) <= _NAMED else []
        ready = self._pool.ready_of(*selection)
        first, last = await together(
            self._ask(f"min by ({label}) (min_over_time(timestamp({ready}){self._grid(step)}))"),
            self._ask(f"max by ({label}) (max_over_time(timestamp({ready}){self._grid(step)}))"),
        )
        begins = {s.label(label): s.value for s in first.samples}
        ends = {s.label(label): s.value for s in last.samples}
        for node in partly & begins.keys():
            own = self._to_the_ends(Span(begins[node] - step / 2, ends[node] + step / 2), step)
            present[node] = tuple(overlap([own], covered))
        return present

    def _sampled_spans(
        self, series: NodeSeries, nodes: frozenset[str], step: float
    ) -> dict[str, list[Span]]:
        """When each of some nodes was sampled; a sample counts for half a step on either side."""
        return {
            line.node: joined(
                (Span(run.start - step / 2, run.end + step / 2) for run in line.runs), step
            )
            for line in series.timelines
            if line.signal == READY and line.node in nodes
        }

    async def _covered(self, step: float) -> tuple[Span, ...]:
        """When at least one node was sampled; needed only where none was sampled throughout."""
        recent = f"count_over_time({self._pool.ready}[{duration(max(1.6 * step, 30.0))}])"
        answer = await self._ask(f"(count({recent}) > bool 0){self._grid(step)}")
        moments = sorted(moment for s in answer.samples for moment, _ in s.points)
        covered: list[Span] = []
        for moment in moments:
            if covered and moment - covered[-1].end <= _ONE_MISSING * step:
                covered[-1] = Span(covered[-1].start, moment)
            else:
                covered.append(Span(moment - step / 2, moment))
        return tuple(self._to_the_ends(Span(a, b + step / 2), step) for a, b in covered)

    def _to_the_ends(self, span: Span, step: float) -> Span:
        """The span, extended to the piece's ends where only one sample lacks there."""
        start, end = self._day
        return Span(
            start if span.start - start <= _ONE_MISSING * step else span.start,
            end if end - span.end <= _ONE_MISSING * step else span.end,
        )

    async def _busy(
        self, series: NodeSeries, pods: Mapping[str, PodTimeline], step: float
    ) -> dict[str, tuple[Span, ...]]:
        """When GPUs worked on nodes whose pods came, went or restarted."""
        end, since = self._day.end, self._day.start - AROUND
        changed = {
            pod.node
            for pod in pods.values()
            if max(pod.created, pod.started or 0.0) >= since
            or pod.exits
            or end - pod.last > 2 * step + 60
        } - {""}
        instances = sorted(set().union(*(series.gpu_instances.get(n, ()) for n in changed)))
        if not instances:
            return {}
        selection = matcher("instance", any_of(instances), "=~")
        active = self._pool.series("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", selection)
        by = "Hostname, instance, node"
        work = f"max by ({by}) ({active}) > bool {_WORKING}"
        before = f"max by ({by}) ({active} offset {duration(step)}) > bool {_WORKING}"
        grid = f"[{duration(end - since - 1)}:{duration(step)}]"
        changes = await self._ask(f"(({work}) unless (({work}) == ({before}))){grid}")
        first = await Asking(self._prometheus, since)(work)
        points: defaultdict[str, list[Point]] = defaultdict(list)
        for sample in (*first.samples, *changes.samples):
            if node := self._naming.host(sample.labels):
                points[node] += sample.points
        return {node: tuple(_working(sorted(values), end)) for node, values in points.items()}


def _working(changes: Sequence[Point], end: float) -> Iterator[Span]:
    """Spans that begin at a value other than 0, and end at the next 0 or at `end`."""
    since = None
    for moment, value in changes:
        if value and since is None:
            since = moment
        elif not value and since is not None:
            yield Span(since, moment)
            since = None
    if since is not None:
        yield Span(since, end)
