"""From one rank's events to its graph: chains of threads and streams, launches, waits; what lacks
is inferred.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

import numpy as np

from mofa_lab.traces.events import Array, EventKind, Events, Trace
from mofa_lab.traces.graph import HOST, EdgeList, Graph, Why
from mofa_lab.traces.host import LAUNCH, WAIT, WHOLE, leaves, matching, outermost
from mofa_lab.traces.operators import classes_of
from mofa_lab.traces.waits import Waits

QUEUE: Final = 30e-6
"""A kernel that starts sooner after its launch found its stream empty. [s]"""
ADJACENT: Final = 8e-6
"""Kernels closer than this follow each other without waiting. [s]"""
LATENCY: Final = 5e-6
"""From launch to start where the trace shows none. [s]"""
PAUSE: Final = 100e-6
"""A thread that does nothing for longer may wait for another one. [s]"""


def graph_of(trace: Trace, rank: int, *, shift: float = 0.0) -> Graph:
    """Graph of one rank; `shift` is added to its clock. [s]"""
    if trace.host_only:
        return _of_operators(trace, rank, shift)
    return _Rank(trace, rank, shift).graph()


def _of_operators(trace: Trace, rank: int, shift: float) -> Graph:
    """The graph of a trace of the CPU alone: operators follow each other on their threads."""
    events, kinds = leaves(trace)
    edges = EdgeList()
    lane, start, end = events.lane.tolist(), events.start.tolist(), events.end.tolist()
    for i in range(1, len(events)):
        if lane[i] == lane[i - 1]:
            edges.add(i - 1, i, start[i] - end[i - 1], Why.THREAD)
    _join_threads(events, edges, None)
    return _graph(trace, rank, shift, events, kinds, edges, events.duration.copy())


class _Rank:
    """Tasks: first the host's calls by thread and start, then kernels by stream and start."""

    def __init__(self, trace: Trace, rank: int, shift: float) -> None:
        self.trace, self.rank, self.shift = trace, rank, shift
        given = trace.of(EventKind.CALL)
        self.calls, holder = outermost(given)
        on_device = np.flatnonzero(trace.events.kind <= EventKind.COPY)
        order = on_device[np.lexsort((trace.events.start[on_device], trace.events.lane[on_device]))]
        self.kernels = trace.events.rows(order)
        self.kinds = classes_of(trace)[order]
        self.n = len(self.calls)
        self.launch, self.launched_by = self._launches(given, holder)
        self.edges = EdgeList()
        self.duration = np.concatenate([self.calls.duration, self.kernels.duration])

    def _launches(self, given: Events, holder: Array) -> tuple[Array, Why]:
        """The call that launched each kernel, -1 where it is not in the trace."""
        kernels = self.kernels
        if np.any(kernels.correlation > 0):
            order = np.argsort(given.correlation, kind="stable")
            correlations = given.correlation[order]
            place = (
                np.minimum(
                    np.searchsorted(correlations, kernels.correlation), len(correlations) - 1
                )
                if len(correlations)
                else None
            )
            if place is None:
                return np.full(len(kernels), -1), Why.LAUNCH
            hit = (correlations[place] == kernels.correlation) & (kernels.correlation > 0)
            return np.where(hit, holder[order][place], -1), Why.LAUNCH
        return self._by_order(), Why.INFERRED_LAUNCH

    def _by_order(self) -> Array:
        """The launch of each kernel without correlation ids: the n-th kernel belongs to the
        n-th launch.
        """
        launch_of_kernel = np.full(len(self.kernels), -1)
        launches = matching(self.trace, LAUNCH)[self.calls.name]
        copying = np.array(["mem" in name.lower() for name in self.trace.names] + [False])[
            self.calls.name
        ]
        for copies in (True, False):
            wanted = np.flatnonzero(launches & (copying == copies))
            wanted = wanted[np.argsort(self.calls.start[wanted], kind="stable")]
            kernels = np.flatnonzero((self.kernels.kind == EventKind.COPY) == copies)
            kernels = kernels[np.argsort(self.kernels.start[kernels], kind="stable")]
            if len(wanted) < len(kernels):
                continue
            free, position = list(wanted), 0
            for kernel in kernels:
                if (
                    position < len(free)
                    and self.calls.start[free[position]] <= self.kernels.start[kernel]
                ):
                    launch_of_kernel[kernel] = free[position]
                    position += 1
        return launch_of_kernel

    def graph(self) -> Graph:
        latency, gap = self._latency(), self._gap()
        waits = Waits(self.trace, self.calls, self.kernels, self.launch)
        waits.host(
            self.edges,
            self.duration,
            self.n,
            matching(self.trace, WAIT),
            matching(self.trace, WHOLE),
        )
        self._threads(waits)
        self._streams(latency, gap, waits)
        events = Events(
            *(
                np.concatenate([getattr(self.calls, f), getattr(self.kernels, f)])
                for f in Events.__slots__
            )
        )
        kinds = np.concatenate([np.full(self.n, HOST, dtype=np.int8), self.kinds])
        return _graph(self.trace, self.rank, self.shift, events, kinds, self.edges, self.duration)

    def _latency(self) -> float:
        """Typical time from launch to start on an empty stream. [s]"""
        has_launch = self.launch >= 0
        took = self.kernels.start[has_launch] - self.calls.start[self.launch[has_launch]]
        short = took[(took > 0) & (took < QUEUE)]
        return float(np.median(short)) if len(short) else LATENCY

    def _gap(self) -> float:
        """Mean time between kernels that follow each other without waiting. [s]"""
        same = self.kernels.lane[1:] == self.kernels.lane[:-1]
        between = (self.kernels.start[1:] - self.kernels.end[:-1])[same]
        short = between[(between >= 0) & (between < ADJACENT)]
        return float(np.mean(short)) if len(short) else 0.0

    def _threads(self, waits: Waits) -> None:
        """Add edges between calls on each host thread; a long pause may wait for a thread or
        a kernel.
        """
        for i in range(1, self.n):
            if self.calls.lane[i] == self.calls.lane[i - 1] and i not in waits.resumed:
                self.edges.add(
                    i - 1, i, float(self.calls.start[i] - self.calls.end[i - 1]), Why.THREAD
                )
        _join_threads(self.calls, self.edges, waits)

    def _streams(self, latency: float, gap: float, waits: Waits) -> None:
        lane, start, end = (
            self.kernels.lane.tolist(),
            self.kernels.start.tolist(),
            self.kernels.end.tolist(),
        )
        launch, called = self.launch.tolist(), self.calls.start.tolist()
        for i in range(len(lane)):
            ready, task = -np.inf, self.n + i
            if launch[i] >= 0:
                lag = min(latency, max(start[i] - called[launch[i]], 0.0))
                self.edges.add(launch[i], task, lag, self.launched_by, from_start=True)
                ready = called[launch[i]] + lag
            for source in waits.recorded(i):
                self.edges.add(self.n + source, task, 0.0, Why.EVENT)
                ready = max(ready, end[source])
            before = i - 1 if i and lane[i] == lane[i - 1] else -1
            if before >= 0:
                ready = max(ready, end[before] + gap)
            lag, why = gap, Why.STREAM
            if start[i] - ready > ADJACENT:
                other = waits.inferred(i)
                if other >= 0:
                    self.edges.add(self.n + other, task, start[i] - end[other], Why.INFERRED_EVENT)
                elif before >= 0:
                    lag, why = start[i] - end[before], Why.DELAY
            if before >= 0:
                self.edges.add(self.n + before, task, min(lag, start[i] - start[before] + gap), why)


def _join_threads(calls: Events, edges: EdgeList, waits: Waits | None) -> None:
    """Add edges to a thread that begins or goes on after a pause, from a thread that was
    busy then.
    """
    if len(np.unique(calls.lane)) < 2:
        return
    order = np.argsort(calls.end, kind="stable")
    finish, lanes = calls.end[order].tolist(), calls.lane[order].tolist()
    start, end, lane = calls.start.tolist(), calls.end.tolist(), calls.lane.tolist()
    for i in range(len(start)):
        follows = i > 0 and lane[i] == lane[i - 1]
        since = end[i - 1] if follows else -np.inf
        if start[i] - since < PAUSE or (waits is not None and i in waits.resumed):
            continue
        at = bisect_right(finish, start[i]) - 1
        while at >= 0 and lanes[at] == lane[i] and finish[at] > since:
            at -= 1
        if (
            at >= 0
            and finish[at] > since + PAUSE / 2
            and lanes[at] != lane[i]
            and start[i] - finish[at] < 10 * PAUSE
        ):
            edges.loosen(i)
            edges.add(int(order[at]), i, start[i] - finish[at], Why.INFERRED_THREAD)


def _graph(
    trace: Trace,
    rank: int,
    shift: float,
    events: Events,
    kinds: Array,
    edges: EdgeList,
    duration: Array,
) -> Graph:
    """The graph of one rank: its events from a common zero of time, and what waits for what."""
    columns = edges.columns()
    start = events.start + shift
    waited_for = np.zeros(len(events), dtype=bool)
    waited_for[columns["target"]] = True
    used = np.unique(events.lane)
    place = np.zeros(len(trace.lanes), dtype=np.int64)
    place[used] = np.arange(len(used))
    lanes = [trace.lanes[i] for i in used]
    return Graph(
        names=trace.names,
        lanes=tuple(
            f"rank {rank} {'stream' if lane.device else 'thread'} {lane.name}" for lane in lanes
        ),
        name=events.name,
        lane=place[events.lane],
        rank=np.full(len(events), rank),
        kind=kinds.astype(np.int8),
        start=start,
        duration=duration,
        end=events.end + shift,
        group=np.full(len(events), -1),
        release=np.where(waited_for, -np.inf, start),
        **columns,
    )
