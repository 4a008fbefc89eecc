"""Where the node-time of a pool went: every node-second has one state, and one cause.

    there ─▶ dead ─▶ trains (kept or done again) ─▶ under repair ─▶ a job stands still ─▶ idle

A node-second goes to the first of these that holds, so that the states add up to the capacity. Jobs
on one node share it by the GPUs that their pods ask for.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from heapq import heappop, heappush
from itertools import accumulate, pairwise
from statistics import median_high
from types import MappingProxyType
from typing import Final, Generic, NamedTuple, TypeVar

from mofa_model.spec import incident_causes as causes
from mofa_model.spec.account import DIGITS, NO_JOB, SAVES, START, NodeState, NodeTime
from mofa_model.units import DAY
from mofa_operator.incidents.incident import Incident, JobFacts
from mofa_operator.incidents.job_incidents import LOADING
from mofa_operator.incidents.job_outages import by_job, places
from mofa_operator.incidents.lasting import ONE_START
from mofa_operator.incidents.timelines import (
    NodeTimeline,
    PodTimeline,
    PoolTimelines,
    Span,
    joined,
    overlap,
    without,
)

Item = TypeVar("Item")
_NAMED: Final = 3
"""Most incidents that are named with a sum. [1]"""
USUAL_SAVES: Final = 1800.0
"""Time between two saves of a job where it is not known. Ours. [s]"""
_DEAD: Final = (causes.NODE_DOWN, causes.REBOOT, causes.NODE_LOST, causes.RACK_OUTAGE)
"""Causes during which nothing runs on a node, whatever the API server says of its pods."""
_NO_OUTAGE: Final = (causes.OBSERVER, causes.FLAP)
"""Causes during which a node works although it is said to be away."""
_UNKNOWN: Final = 100
"""From so many possible numbers of saves on, the time since the last one is unknown. [1]"""
_TRAINING: Final = (NodeState.KEPT, NodeState.REDONE)
"""States in which a job trains, whatever becomes of its work."""
_NO_STANDSTILL: Final = (causes.SIDECAR, causes.COMPLETED)


class _Piece(NamedTuple):
    """A piece of one node's time."""

    span: Span
    state: NodeState
    cause: str
    job: str = ""
    incident: Incident | None = None
    estimated: bool = False
    part: float = 1.0
    """Share of the node. [1]"""
    saves: float = 0.0
    """Share of the time in which saves held up training. [1]"""


def account(
    timelines: PoolTimelines,
    incidents: Sequence[Incident],
    saves_every: float | None = None,
    facts: Mapping[str, JobFacts] = MappingProxyType({}),
) -> tuple[NodeTime, ...]:
    """The account of a pool by day, job, state and cause.

    `facts` is what is known of jobs by namespace/name; where it does not say how often a job saves,
    `saves_every` is the time between two saves. [s]
    """
    by_node: defaultdict[str, list[Incident]] = defaultdict(list)
    by_name: defaultdict[str, list[Incident]] = defaultdict(list)
    for incident in incidents:
        if incident.kind == "job":
            by_name[incident.name].append(incident)
        else:
            for name in incident.nodes or (incident.name,):
                by_node[name].append(incident)
    loading = _usual_loading(incidents)
    on_node: defaultdict[str, list[_JobTime]] = defaultdict(list)
    jobs = by_job(timelines.pod_timelines)
    for name, pods in jobs.items():
        job_facts = facts.get(name, JobFacts())
        if job_facts.saves_every is None:
            job_facts = replace(job_facts, saves_every=saves_every)
        job = _JobTime(timelines, name, pods, by_name[name], job_facts, loading)
        for node in job.nodes:
            on_node[node].append(job)
    waiting: defaultdict[str, list[_Piece]] = defaultdict(list)
    for incident in incidents:
        if incident.kind == "job" and incident.lasts and incident.name not in jobs:
            piece = _charged(incident.span, NodeState.QUEUE, incident)  # its pods went long ago
            for name in incident.nodes:
                waiting[name].append(piece)

    def claims(node: str) -> list[_Piece]:
        """The pieces of a node's time that jobs hold; of one node at a time, to save memory."""
        return [*(piece for job in on_node[node] for piece in job.pieces(node)), *waiting[node]]

    pieces = (
        piece
        for node in timelines.node_timelines.values()
        for piece in _of_node(node, by_node[node.name], claims(node.name))
    )
    return _by_day(pieces)


def _charged(
    span: Span, state: NodeState, incident: Incident, *, estimated: bool = False
) -> _Piece:
    """A piece of time that an incident cost a job."""
    return _Piece(span, state, incident.charged.word, incident.name, incident, estimated)


def _usual_loading(incidents: Sequence[Incident]) -> float:
    """Median time from the last container's start to the first step. [s]"""
    timed = (incident.phases for incident in incidents if incident.timed)
    times = [phases["load"] for phases in timed if "load" in phases]
    return median_high(times) if times else LOADING


class _Index(Generic[Item]):
    """Items by their time: those of a moment are found without a look at all of them."""

    def __init__(self, items: Iterable[tuple[Span, Item]]) -> None:
        self._items = sorted(items, key=lambda pair: pair[0])
        self._starts = [span.start for span, _ in self._items]
        self._ends = list(accumulate((span.end for span, _ in self._items), max))

    def near(self, span: Span) -> list[tuple[Span, Item]]:
        """Items whose span overlaps this one, in order of time."""
        first = bisect_right(self._ends, span.start)
        last = bisect_left(self._starts, span.end)
        return [pair for pair in self._items[first:last] if pair[0].end > span.start]


class _JobTime:
    """The time of the nodes of one job."""

    def __init__(
        self,
        timelines: PoolTimelines,
        name: str,
        pods: Sequence[PodTimeline],
        incidents: Sequence[Incident],
        facts: JobFacts,
        loading: float,
    ) -> None:
        self._name, self._facts, self._loading = name, facts, loading
        self._step = timelines.sample_spacing
        self._frees_nodes = timelines.frees_nodes
        self._steps_seen = bool(timelines.stalls.get(name))
        self._places = places(pods)
        self._pods = [
            (pod, span) for place in self._places for pod, span in _spans(place, self._step)
        ]
        self._by_node: defaultdict[str, list[tuple[PodTimeline, Span]]] = defaultdict(list)
        for pod, span in self._pods:
            self._by_node[pod.node].append((pod, span))
        self._part = _parts(timelines.node_timelines, self._pods)
        waits = [pod.started - pod.created for pod in pods if pod.started and pod.created]
        self._usual_start = median_high(waits) if waits else 0.0
        stops = (incident for incident in incidents if incident.cause not in _NO_STANDSTILL)
        self._stops = sorted(
            (stop for stop in stops if stop.end > stop.start), key=lambda stop: stop.start
        )
        held = _held(self._pods)
        standing = joined(stop.span for stop in self._stops)
        self._starts = self._first_starts(standing, held)
        away = joined([*standing, *(span for span, _ in self._starts)])
        self._absent = _Index((span, None) for span in away)
        self._redone = _Index(
            (span, (stop, guessed)) for stop, spans, guessed in self._losses(away) for span in spans
        )
        self._waited_on = [self._nodes_after(stop, held) for stop in self._stops]

    @property
    def nodes(self) -> set[str]:
        """Nodes that the job held, or that waited for it."""
        return set(self._by_node).union(*self._waited_on)

    def pieces(self, node: str) -> Iterator[_Piece]:
        """The job's pieces of a node's time, each with the part of the node's GPUs that it has."""
        for piece in self._of_node(node):
            yield piece._replace(part=self._part.get(node, 1.0))

    def _of_node(self, node: str) -> Iterator[_Piece]:
        """The job's pieces of a node's time, as if it had all of the node's GPUs."""
        saving = _share_of_saves(self._facts)
        job_pods = self._by_node.get(node, ())
        for _, span in job_pods:
            trained = without([span], [hole for hole, _ in self._absent.near(span)])
            redone = self._redone.near(span)
            for redone_span, (stop, guessed) in redone:
                for part in overlap(trained, [redone_span]):
                    yield _charged(part, NodeState.REDONE, stop, estimated=guessed)
            for part in without(trained, [redone_span for redone_span, _ in redone]):
                yield _Piece(part, NodeState.KEPT, "", self._name, saves=saving)
        held = _held(job_pods)
        for stop, nodes in zip(self._stops, self._waited_on, strict=True):
            yield from self._standing(stop, held, waited_on=node in nodes)
        for start, running in self._starts:
            for time, (pod, _) in held.near(start):
                for part in overlap([time], [start]):
                    phases = self._start_phases(pod.created, running, start.end)
                    for piece, state in _cut(part, phases):
                        guessed = state is NodeState.RENDEZVOUS
                        yield _Piece(piece, state, START, self._name, estimated=guessed)

    def _first_starts(
        self, standing: Sequence[Span], held: _Index[tuple[PodTimeline, Span]]
    ) -> list[tuple[Span, float]]:
        """Starts of the job that follow no standstill, each with the moment when its last container
        ran; a start ends with the first step. [s]
        """
        running = joined((span for _, span in self._pods), apart=self._step)
        stood = _Index((span, None) for span in standing)
        starts = []
        for begin, end in running:
            near = held.near(Span(begin - ONE_START, begin + ONE_START))
            runs = [run for _, run in near if abs(run[1].start - begin) < ONE_START]
            made = min((pod.created or begin for pod, _ in runs), default=begin)
            last = max((span.start for _, span in runs), default=begin)
            if made and not stood.near(Span(begin - 1.0, begin + 1.0)):
                starts.append((Span(made, min(last + self._loading, end)), last))
        return starts

    def _losses(self, away: Sequence[Span]) -> list[tuple[Incident, list[Span], bool]]:
        """The time of the work that each standstill lost, and whether it is estimated.

        The steps show it where they are published. Otherwise a run loses what came after its last
        save: what is left of its length, where it is known how often it saves, else half of the
        usual time between saves, and at most half of the run.
        """
        running = joined((span for _, span in self._pods), apart=self._step)
        trained = without(running, away)
        losses = []
        for stop in self._stops:
            before = [span for span in trained if span.start < stop.start]
            # A run that somebody submitted anew, and that loads nothing, lost nothing: it is new
            # work.
            if not before or (stop.cause is causes.RESUBMISSION and self._is_another(stop)):
                continue
            run = min(before[-1].end, stop.start) - before[-1].start
            is_seen = "redo" in stop.phases or (self._steps_seen and stop.timed)
            if is_seen:
                lost = stop.phases.get("redo", 0.0)
            elif self._facts.saves_every is None:
                lost = min(USUAL_SAVES, run) / 2
            else:
                lost = work_lost(run, self._facts.saves_every, self._facts.saves_off)
            spans: list[Span] = []
            # The lost time lies before the stop, and may reach back over earlier stops.
            for span in reversed(before):
                end = min(span.end, stop.start)
                spans.append(Span(max(span.start, end - lost), end))
                lost -= spans[-1].seconds
                if lost <= 0:
                    break
            losses.append((stop, spans, not is_seen))
        return losses

    def _is_another(self, stop: Incident) -> bool:
        """Whether the pods after an interruption are another run: they came late, and nobody says
        that the job saves.
        """
        return self._facts.saves_every is None and stop.phases.get("queue", 0.0) > ONE_START

    def _standing(
        self, stop: Incident, held: _Index[tuple[PodTimeline, Span]], *, waited_on: bool
    ) -> Iterator[_Piece]:
        """The pieces of a node in a standstill: until the job's pod there is gone, and all of it
        where the node is `waited_on`.
        """
        if self._frees_nodes:
            return
        for time, _ in held.near(stop.span):
            for part in overlap([time], [stop.span]):
                yield from self._phased(stop, part)
        if waited_on:
            yield from self._phased(stop, stop.span)

    def _nodes_after(self, stop: Incident, held: _Index[tuple[PodTimeline, Span]]) -> set[str]:
        """Nodes that the job holds after a standstill, or that wait for it."""
        ends = held.near(Span(stop.end - 1.0, stop.end + 1.0))
        nodes = {pod.node for _, (pod, span) in ends if span.start <= stop.end < span.end + 1.0}
        return nodes | self._kept_free(stop) if stop.lasts else nodes

    def _kept_free(self, stop: Incident) -> set[str]:
        """Nodes that wait for a job which is still out: those of its new pods, else those of the
        pods that are not replaced yet.
        """
        last = (place[-1] for place in self._places)
        latest = {pod.node for place in self._places for pod in place[-2:] if pod.node}
        new = {pod.node for pod in last if pod.node and pod.created >= stop.start}
        return new or latest or set(stop.nodes)

    def _phased(self, stop: Incident, part: Span) -> Iterator[_Piece]:
        """A part of a standstill, cut where one state ends and the next begins."""
        for piece, state in _cut(part, self._phases(stop)):
            guessed = state is NodeState.RENDEZVOUS and not (stop.timed or stop.lasts)
            yield _charged(piece, state, stop, estimated=guessed)

    def _phases(self, stop: Incident) -> list[tuple[NodeState, float]]:
        """The states that follow each other in a standstill, each with its end. [s]"""
        spent = stop.phases
        stopped = stop.start + spent.get("detect", 0.0) + spent.get("drain", 0.0)
        made = stopped + spent.get("queue", 0.0)
        running = made + spent.get("start", 0.0)
        if "queue" not in spent:  # its containers start again in the same pods
            return [(NodeState.RESTARTING, running), (NodeState.RENDEZVOUS, stop.end)]
        is_wanted = stop.cause is not causes.RESUBMISSION
        if "start" not in spent:  # no new pod is made yet
            running = made
        return [
            (NodeState.RESTARTING, stopped),
            (NodeState.QUEUE if is_wanted else NodeState.IDLE, made),
            *self._start_phases(made, running, stop.end),
        ]

    def _start_phases(
        self, made: float, running: float, trained: float
    ) -> list[tuple[NodeState, float]]:
        """States from new pods to the first step; time beyond the usual is a wait for a node."""
        usual = min(self._usual_start, max(0.0, running - made))
        return [
            (NodeState.SPARE, running - usual),
            (NodeState.IMAGE, running),
            (NodeState.RENDEZVOUS, trained),
        ]


def _held(pods: Iterable[tuple[PodTimeline, Span]]) -> _Index[tuple[PodTimeline, Span]]:
    """Pods with the time in which each holds its node: from when it is made until it is gone."""
    return _Index(
        (Span(pod.created or span.start, max(span.end, pod.last)), (pod, span))
        for pod, span in pods
    )


def work_lost(ran: float, every: float, off: float = 0.0) -> float:
    """Work since the last save of a run: what is left of the run after whole times between saves.

    These are known to a share `off`, over which the mean is taken; where that makes the number of
    saves unknown, half of the time between two. Ours. [s]

    >>> work_lost(10_000, 3600), round(work_lost(10_000, 3600, 0.05))
    (2800, 2561)
    >>> round(work_lost(1_000_000, 3600, 0.05))
    1805
    """
    low, high = every * (1 - 3**0.5 * off), every * (1 + 3**0.5 * off)
    first, last = math.floor(ran / high), math.floor(ran / low)
    if high <= low or last == first:
        return ran - every * math.floor(ran / every)
    if last - first > _UNKNOWN:
        return every / 2
    total = 0.0
    for saves in range(first, last + 1):  # with so many saves, times from a to b
        a, b = max(low, ran / (saves + 1)), min(high, ran / saves if saves else high)
        total += (b - a) * (ran - saves * (a + b) / 2)
    return total / (high - low)


def _parts(
    nodes: Mapping[str, NodeTimeline], runs: Sequence[tuple[PodTimeline, Span]]
) -> dict[str, float]:
    """The largest share of each node that a job has, by the GPUs that its pods ask for; nodes that
    it has whole, or that are unknown, are left out.
    """
    turns: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for pod, span in runs:
        turns[pod.node] += [(span.start, pod.gpus), (span.end, -pod.gpus)]
    parts = {}
    for name, changes in turns.items():
        held = max(accumulate(gpus for _, gpus in sorted(changes)))
        offered = nodes[name].gpus if name in nodes else 0.0
        if 0 < held < offered:
            parts[name] = held / offered
    return parts


def _share_of_saves(facts: JobFacts) -> float:
    """Share of a job's time in which saves hold up training. [1]"""
    if not facts.saves_every or not facts.save_seconds:
        return 0.0
    return facts.save_seconds / (facts.saves_every + facts.save_seconds)


def _spans(place: Sequence[PodTimeline], step: float) -> Iterator[tuple[PodTimeline, Span]]:
    """When each pod of one place in the job ran, at the latest until its successor was made."""
    for number, pod in enumerate(place):
        span = pod.running(step)
        if number + 1 < len(place):
            end = min(span.end, max(span.start, place[number + 1].created))
            span = Span(span.start, end)
        if pod.node and pod.started is not None and span.seconds > 0:
            yield pod, span


def _cut(part: Span, phases: Sequence[tuple[NodeState, float]]) -> Iterator[tuple[Span, NodeState]]:
    """A span cut where one state ends and the next begins; the last lasts to its end."""
    start = part.start
    for number, (state, until) in enumerate(phases):
        end = part.end if number + 1 == len(phases) else min(until, part.end)
        if end > start:
            yield Span(start, end), state
            start = end


def _of_node(
    node: NodeTimeline, incidents: Sequence[Incident], claims: Sequence[_Piece]
) -> Iterator[_Piece]:
    """The pieces of a node's time, which do not overlap and leave no gap."""
    trains = [piece for piece in claims if piece.state in _TRAINING]
    dead = [
        _Piece(part, NodeState.REPAIR, incident.charged.word, incident=incident)
        for incident in incidents
        if incident.cause in _DEAD
        for part in without(
            [incident.span], [piece.span for piece in trains if piece.span.start > incident.start]
        )
    ]
    broken = [
        _Piece(incident.span, NodeState.REPAIR, incident.charged.word, incident=incident)
        for incident in incidents
        if incident.cause.counts or incident.cause is causes.DRAIN
    ]
    false_alarms = [incident.span for incident in incidents if incident.cause in _NO_OUTAGE]
    away = [span for span in node.not_ready if span.seconds >= causes.SHORTEST_OUTAGE]
    cordoned = [
        _Piece(span, NodeState.REPAIR, causes.DRAIN.word)
        for span in [*node.cordons, *without(away, false_alarms)]
    ]
    waiting = [piece for piece in claims if piece.state not in _TRAINING]
    present = without([Span(node.presence[0].start, node.presence[-1].end)], node.away)
    yield from _first_of([*dead, *trains, *broken, *cordoned, *waiting], present)


def _first_of(ranked: Sequence[_Piece], present: Sequence[Span]) -> Iterator[_Piece]:
    """A node's time cut into pieces: each moment belongs to the first piece of the ranking that
    covers it, or is idle.
    """
    by_start = sorted(range(len(ranked)), key=lambda number: ranked[number].span.start)
    spans = [*(piece.span for piece in ranked), *present]
    moments = sorted({moment for span in spans for moment in span})
    presence = _Index((span, None) for span in present)
    covering: list[int] = []  # a heap of places in the ranking
    begun = 0
    for span in map(Span._make, pairwise(moments)):
        while begun < len(by_start) and ranked[by_start[begun]].span.start <= span.start:
            heappush(covering, by_start[begun])
            begun += 1
        while covering and ranked[covering[0]].span.end <= span.start:
            heappop(covering)
        if not presence.near(span):
            continue
        if covering and ranked[covering[0]].part >= 1.0:
            yield ranked[covering[0]]._replace(span=span)
            continue
        covering = sorted(number for number in covering if ranked[number].span.end > span.start)
        yield from _shared(span, [ranked[number] for number in covering])


def _shared(span: Span, ranked: Iterable[_Piece]) -> Iterator[_Piece]:
    """A span of a node's time, shared among the pieces that cover it; a job gets its part once."""
    left, jobs = 1.0, set[str]()
    for piece in ranked:
        if left <= 0:
            return
        if piece.job and piece.job in jobs:
            continue
        jobs.add(piece.job)
        yield piece._replace(span=span, part=min(left, piece.part))
        left = round(left - piece.part, 6)
    if left > 0:
        yield _Piece(span, NodeState.IDLE, NO_JOB, part=left)


def _by_day(pieces: Iterable[_Piece]) -> tuple[NodeTime, ...]:
    """The pieces summed by day, job, state and cause."""
    rows: defaultdict[tuple[str, str, NodeState, str], _Sum] = defaultdict(_Sum)
    for piece in pieces:
        start, end = piece.span
        while start < end:
            until = min(end, (start // DAY + 1) * DAY)
            date = datetime.fromtimestamp(start, UTC).date().isoformat()
            time = (until - start) / DAY * piece.part
            if piece.saves:
                save = piece._replace(state=NodeState.SAVING, cause=SAVES, estimated=True)
                rows[date, piece.job, save.state, SAVES].add(time * piece.saves, save)
            row = rows[date, piece.job, piece.state, piece.cause]
            row.add(time * (1 - piece.saves), piece)
            start = until
    return tuple(
        NodeTime(
            state=state,
            cause=cause,
            node_days=round(row.time, DIGITS),
            date=date,
            job=job,
            machines=round(row.machines, DIGITS),
            estimated=round(row.estimated, DIGITS),
            incidents=row.costliest(),
        )
        for (date, job, state, cause), row in sorted(rows.items(), key=lambda item: item[0])
    )


class _Sum:
    """The sum of pieces, of which 10,000 nodes have too many to keep them."""

    __slots__ = ("costs", "estimated", "machines", "time")

    def __init__(self) -> None:
        self.time = self.machines = self.estimated = 0.0
        self.costs: dict[str, float] = {}

    def add(self, time: float, piece: _Piece) -> None:
        """Add node-time of a piece to the sum, to its incident, and to what machines are blamed
        for. [node d]
        """
        self.time += time
        self.machines += time * _machines(piece)
        if piece.estimated:
            self.estimated += time
        if piece.incident is not None:
            name = piece.incident.id
            self.costs[name] = self.costs.get(name, 0.0) + time

    def costliest(self) -> tuple[str, ...]:
        """Ids of the incidents that cost most."""
        return tuple(sorted(self.costs, key=lambda name: (-self.costs[name], name))[:_NAMED])


def _machines(piece: _Piece) -> float:
    """The chance that the machines, and not the program, caused a piece of time. [1]"""
    incident = piece.incident
    if incident is None:
        return 0.0
    return incident.share if incident.kind == "job" else float(incident.cause.counts)
