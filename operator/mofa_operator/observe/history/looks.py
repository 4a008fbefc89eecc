"""A long window as stretches of time that are short enough for one query, on a grid that stands still.

Seams fall on midnights in UTC, so that a stretch that is over is the same stretch in an hour's time and what was seen in it can
be kept. The start of the window moves in steps of a hundredth of it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Final

from mofa_model.units import DAY, HOUR
from mofa_operator.incidents.timelines import (
    WITNESSES,
    NodeLife,
    NodePart,
    PodLife,
    Span,
    ValueRun,
    Witness,
    joined,
)
from mofa_operator.observe.history.node_names import Naming
from mofa_operator.observe.history.node_series import NodesRead, read_nodes
from mofa_operator.observe.history.pod_series import read_pods
from mofa_operator.observe.prometheus.client import Asking, Prometheus, together
from mofa_operator.observe.prometheus.promql import (
    GRID,
    Pool,
    any_of,
    duration,
    heard,
    matcher,
    of_devices,
)

SETTLED: Final = HOUR
"""Age from which on a stretch does not change any more: late samples have come. [s]"""


@dataclass(frozen=True, slots=True, order=True)
class Stretch:
    """A piece of the past: after `start`, up to and including `end`."""

    start: float
    """In seconds of the epoch. [s]"""
    end: float
    """In seconds of the epoch. [s]"""

    @property
    def span(self) -> float:
        """Its length. [s]"""
        return self.end - self.start


def stretches(now: float, window: float) -> list[Stretch]:
    """The window up to now, in order: a stretch for each day in UTC.

    >>> [round(one.span / 86400, 2) for one in stretches(1_700_000_100, 3 * 86400)]
    [0.08, 1.0, 1.0, 0.92]
    """
    step = max(GRID, math.floor(min(window / 100, DAY) / GRID) * GRID)
    end = math.floor(now / GRID) * GRID
    start = math.floor((now - window) / step) * step
    return days(Stretch(start, end))


def days(stretch: Stretch) -> list[Stretch]:
    """A stretch, day by day in UTC.

    >>> [one.span for one in days(Stretch(86000.0, 173000.0))]
    [400.0, 86400.0, 200.0]
    """
    midnights = range(math.floor(stretch.start / DAY) + 1, math.ceil(stretch.end / DAY))
    seams = [stretch.start, *(float(at * DAY) for at in midnights), stretch.end]
    return [Stretch(a, b) for a, b in pairwise(seams)]


# A look at one stretch of time: what Prometheus says of the pool's nodes and pods, nothing concluded from it yet.

_FINEST: Final = 60.0
"""Finest grid on which pods and GPUs are looked at, however often they are sampled. [s]"""
_FEW: Final = 50
"""Nodes that a query names at most. [1]"""
_READY: Final = (matcher("condition", "Ready"), matcher("status", "true"))
_GPUS: Final = matcher("resource", "(nvidia|amd|intel|habana)_com_.*", "=~")


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """One stretch of time."""

    stretch: Stretch
    """Which."""
    nodes: frozenset[str]
    """Nodes that belonged to the pool."""
    covered: tuple[Span, ...]
    """When the condition of any node was known. [s]"""
    present: Mapping[str, tuple[Span, ...]]
    """When each node's was. [s]"""
    labels: Mapping[str, Mapping[str, str]]
    """Labels of the nodes."""
    read: NodesRead
    """What the witnesses say of the nodes."""
    pods: Mapping[str, PodLife]
    """Pods of training jobs by uid, on any node."""
    busy: Mapping[str, tuple[Span, ...]]
    """When the GPUs of a node were at work, where that was asked. [s]"""
    step: float
    """Time between samples of nodes. [s]"""
    warnings: tuple[str, ...]
    """What the server warned of."""


async def look(prometheus: Prometheus, pool: Pool, named: Naming, stretch: Stretch) -> Look:
    """Ask for one stretch."""
    ask, span = Asking(prometheus, stretch.end), stretch.span
    ready = pool.series("kube_node_status_condition", *_READY)
    within = f"[{duration(span)}]"
    counted = await ask(f"max by ({named.label}) (count_over_time({ready}{within}))")
    counts = {s.label(named.label): s.value for s in counted.samples}
    if not counts:
        return _nothing(stretch, ask)
    infos, members, labels = await together(
        ask(f"last_over_time({pool.series('kube_node_info')}{within})"),
        ask(_members(pool, named, within)),
        ask(f"last_over_time({pool.series('kube_node_labels')}{within})"),
    )
    named = named.also(s.labels for s in infos.samples)
    known = {s.label(named.label) for s in members.samples}
    if not known and not pool.members:
        known = {
            node
            for node in (
                named.host(s.labels)
                for s in (
                    await ask(
                        of_devices(
                            pool,
                            "DCGM_FI_DEV_XID_ERRORS",
                            "Hostname, instance, node",
                            span,
                            lambda series: (
                                f"count by (Hostname, instance, node) (count_over_time({series}{within}))"
                            ),
                        )
                    )
                ).samples
            )
            if node
        }
        known = known or set(counts)
    nodes = frozenset(known & set(counts))
    hourly = await _hourly(ask, ready, span)
    step = max(5.0, min(float(GRID), HOUR / hourly)) if hourly else float(GRID)
    grid = max(step, _FINEST)
    partly = await _partly(ask, named, ready, stretch, hourly) if hourly else None
    covered, present = await _presence(
        ask,
        pool,
        named,
        stretch,
        grid,
        frozenset(counts),
        frozenset(counts) if partly is None else partly,
    )
    read = await read_nodes(ask, pool, named, nodes, span)
    pods = (
        await read_pods(ask, believed, named, span, grid)
        if (believed := await heard(ask, pool, span))
        else {}
    )
    busy = await _busy(ask, pool, named, read, pods, stretch, grid)
    return Look(
        stretch=stretch,
        nodes=nodes,
        covered=covered,
        present={node: present.get(node, ()) for node in nodes},
        labels={
            s.label(named.label): s.labels for s in labels.samples if s.label(named.label) in nodes
        },
        read=read,
        pods=pods,
        busy=busy,
        step=step,
        warnings=tuple(dict.fromkeys(ask.warnings)),
    )


def _nothing(stretch: Stretch, ask: Asking) -> Look:
    """A stretch in which the condition of no node was known."""
    return Look(
        stretch=stretch,
        nodes=frozenset(),
        covered=(),
        present={},
        labels={},
        read=NodesRead(told={}, spacing={}, exists={}, instances={}),
        pods={},
        busy={},
        step=float(GRID),
        warnings=tuple(dict.fromkeys(ask.warnings)),
    )


def _members(pool: Pool, named: Naming, within: str) -> str:
    if pool.members:
        return f"count by ({named.label}) (last_over_time({pool.series('kube_node_labels', *pool.members)}{within}))"
    return f"max by ({named.label}) (max_over_time({pool.series('kube_node_status_allocatable', _GPUS)}{within})) > 0"


async def _hourly(ask: Asking, ready: str, span: float) -> float | None:
    """Most samples of a node in an hour. [1]"""
    hour = min(HOUR, span)
    most = f"max(count_over_time({ready}[{duration(hour)}]))"
    count = (
        await ask(f"max_over_time(({most})[{duration(max(span - 1, hour))}:{duration(hour)}])")
    ).number()
    return count * HOUR / hour if count else None


async def _partly(
    ask: Asking, named: Naming, ready: str, stretch: Stretch, hourly: float
) -> frozenset[str] | None:
    """Nodes that lack more than one sample in some hour; nothing where the stretch is not of whole hours."""
    if stretch.start % HOUR or stretch.end % HOUR:
        return None
    by = named.label
    each = f"(max by ({by}) (count_over_time({ready}[{duration(HOUR)}])))"
    grid = f"[{duration(stretch.span - 1)}:{duration(HOUR)}]"
    hours = round(stretch.span / HOUR)
    answer = await ask(
        f"min_over_time({each}{grid}) < {hourly - 1:.0f} or count_over_time({each}{grid}) < {hours}"
    )
    return frozenset(s.label(by) for s in answer.samples)


async def _presence(
    ask: Asking,
    pool: Pool,
    named: Naming,
    stretch: Stretch,
    step: float,
    nodes: frozenset[str],
    partly: frozenset[str],
) -> tuple[tuple[Span, ...], dict[str, tuple[Span, ...]]]:
    """When the pool and each node were looked at: the whole stretch, but for those that were there `partly`.

    `step` is the time between two looks. [s]
    """
    throughout = (stretch.start, stretch.end)
    present: dict[str, tuple[Span, ...]] = dict.fromkeys(nodes - partly, (throughout,))
    if not partly:
        return (throughout,), present
    these = [matcher(named.label, any_of(sorted(partly)), "=~")] if len(partly) <= _FEW else []
    ready = pool.series("kube_node_status_condition", *_READY, *these)
    grid = f"[{duration(stretch.span - 1)}:{duration(step)}]"
    by = named.label
    first, last = await together(
        ask(f"min by ({by}) (min_over_time(timestamp({ready}){grid}))"),
        ask(f"max by ({by}) (max_over_time(timestamp({ready}){grid}))"),
    )
    begun = {s.label(by): s.value for s in first.samples}
    ended = {s.label(by): s.value for s in last.samples}
    spans = (throughout,) if present else await _covered(ask, pool, stretch, step)
    for node in partly & begun.keys():
        a, b = _to_the_seams((begun[node] - step / 2, ended[node] + step / 2), stretch, step)
        present[node] = tuple((max(a, x), min(b, y)) for x, y in spans if min(b, y) > max(a, x))
    return spans, present


async def _covered(ask: Asking, pool: Pool, stretch: Stretch, step: float) -> tuple[Span, ...]:
    """When the condition of any node was known, where no node's was throughout."""
    ready = pool.series("kube_node_status_condition", *_READY)
    within = f"[{duration(stretch.span - 1)}:{duration(step)}]"
    known = f"(count(count_over_time({ready}[{duration(max(1.6 * step, 30.0))}])) > bool 0)"
    times = sorted(t for s in (await ask(f"{known}{within}")).samples for t, _ in s.points)
    covered: list[Span] = []
    for t in times:
        if covered and t - covered[-1][1] <= 1.5 * step:
            covered[-1] = (covered[-1][0], t)
        else:
            covered.append((t - step / 2, t))
    return tuple(_to_the_seams((a, b + step / 2), stretch, step) for a, b in covered)


def _to_the_seams(span: Span, stretch: Stretch, step: float) -> Span:
    """A span that reaches to where a stretch begins or ends, where only the time between two samples lies between. [s]"""
    a, b = span
    return (
        stretch.start if a - stretch.start <= 1.5 * step else a,
        stretch.end if stretch.end - b <= 1.5 * step else b,
    )


async def _busy(
    ask: Asking,
    pool: Pool,
    named: Naming,
    read: NodesRead,
    pods: Mapping[str, PodLife],
    stretch: Stretch,
    step: float,
) -> dict[str, tuple[Span, ...]]:
    """When GPUs were at work on nodes whose pods came, went or restarted."""
    stirred = {
        pod.node
        for pod in pods.values()
        if pod.node
        and (
            pod.created >= stretch.start
            or any(x.at >= stretch.start for x in pod.exits)
            or stretch.end - pod.last > 2 * step + 60
        )
    }
    instances = sorted(set().union(*(read.instances.get(node, frozenset()) for node in stirred)))
    if not instances:
        return {}
    these = matcher("instance", any_of(instances), "=~")
    by = "Hostname, instance, node"
    work = f"max by ({by}) ({pool.series('DCGM_FI_PROF_PIPE_TENSOR_ACTIVE', these)}) > bool 0.02"
    before = f"max by ({by}) ({pool.series('DCGM_FI_PROF_PIPE_TENSOR_ACTIVE', these)} offset {duration(step)}) > bool 0.02"
    answer = await ask(
        f"(({work}) unless (({work}) == ({before})))[{duration(stretch.span - 1)}:{duration(step)}]"
    )
    first = await Asking(ask.prometheus, stretch.start)(work)
    found: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for sample in (*first.samples, *answer.samples):
        if node := named.host(sample.labels):
            found[node] += sample.points
    busy = {}
    for node, points in found.items():
        spans: list[Span] = []
        on = None
        for t, value in sorted(points):
            if value and on is None:
                on = t
            elif not value and on is not None:
                spans.append((on, t))
                on = None
        if on is not None:
            spans.append((on, stretch.end))
        busy[node] = tuple(spans)
    return busy


# Looks at neighbouring stretches as the whole past of each node and pod.


def lives(looks: Sequence[Look]) -> list[NodeLife]:
    """The nodes of a pool."""
    told: defaultdict[str, defaultdict[Witness, defaultdict[NodePart, list[ValueRun]]]] = (
        defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    )
    spacings: defaultdict[Witness, list[float]] = defaultdict(list)
    for one in looks:
        for witness, gap in one.read.spacing.items():
            spacings[witness].append(gap)
        for node, by_witness in one.read.told.items():
            for witness, parts in by_witness.items():
                for part, many in parts.items():
                    told[node][witness][part] += many
        for witness, there in one.read.exists.items():
            for node in there:
                told[node][witness]
    spacing = {witness: median(gaps) for witness, gaps in spacings.items()}
    nodes = sorted(frozenset().union(*(one.nodes for one in looks)))
    known = tuple(joined((span for one in looks for span in one.covered), 1.0))
    return [
        NodeLife(
            name=node,
            told={
                witness: {
                    part: _one(many, witness.apart * spacing.get(witness, 60.0))
                    for part, many in parts.items()
                }
                for witness, parts in told[node].items()
            },
            spacing=spacing,
            labels=next((one.labels[node] for one in reversed(looks) if node in one.labels), {}),
            seen=tuple(joined((span for one in looks for span in one.present.get(node, ())), 1.0)),
            known=known,
        )
        for node in nodes
    ]


def unseen(looks: Sequence[Look]) -> Iterator[str]:
    """What cannot be seen for want of an exporter, and on how many nodes."""
    nodes = frozenset[str]().union(*(one.nodes for one in looks))
    for witness in WITNESSES:
        there = frozenset[str]().union(*(one.read.exists.get(witness, ()) for one in looks))
        if witness.alone and (without := len(nodes - there)):
            yield f"{witness.alone} are not seen on {without} of {len(nodes)} nodes: they have no series {witness.metric}"


def _one(many: Iterable[ValueRun], apart: float) -> tuple[ValueRun, ...]:
    """Runs of several looks as one past; what two looks saw is told once, and a silence of `apart` ends one. [s]"""
    found: list[ValueRun] = []
    for run in sorted(many, key=lambda run: (run.start, run.end)):
        last = found[-1] if found else None
        if last is None or run.start > last.end:
            if last is not None and last.value == run.value and run.start - last.end <= apart:
                found[-1] = ValueRun(last.start, run.end, run.value)
            else:
                found.append(run)
        elif run.end > last.end:
            if run.value == last.value:
                found[-1] = ValueRun(last.start, run.end, run.value)
            else:
                found.append(ValueRun(last.end, run.end, run.value))
    return tuple(found)
