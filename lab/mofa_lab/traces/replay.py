"""Runs a graph again: each task starts when all that it waits for is done; nothing else
is assumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mofa_lab.traces.events import Array
from mofa_lab.traces.graph import HOST, Graph, Why
from mofa_lab.traces.operators import CLASSES
from mofa_model.errors import BadValue


@dataclass(frozen=True, kw_only=True, slots=True)
class Replayed:
    """A graph with the times that the replay gave it."""

    graph: Graph
    """What was run."""
    start: Array
    """Start of each task. [s]"""
    end: Array
    """End of each task. [s]"""
    decider: Array
    """The task that each one waited for last; -1 = none."""
    by: Array
    """The edge by which it did; -1 = it was a meeting, or nothing."""

    @property
    def makespan(self) -> float:
        """From the first start to the last end. [s]"""
        return float(self.end.max() - self.start.min())


@dataclass(frozen=True, kw_only=True, slots=True)
class LaneSpan:
    """One lane: measured and replayed time from its first start to its last end. [s]"""

    lane: str
    tasks: int
    measured: float
    replayed: float

    @property
    def error(self) -> float:
        """Replayed over measured, less one. [1]"""
        return self.replayed / self.measured - 1.0 if self.measured > 0 else 0.0


def replay(graph: Graph) -> Replayed:
    """Start and end of every task; a graph with a circle is refused."""
    n = len(graph)
    order = np.argsort(graph.source, kind="stable")
    first = np.searchsorted(graph.source[order], np.arange(n + 1)).tolist()
    target, lag = graph.target[order].tolist(), graph.lag[order].tolist()
    from_start, number = graph.from_start[order].tolist(), order.tolist()
    missing = np.bincount(graph.target, minlength=n).tolist()
    duration, group = graph.duration.tolist(), graph.group.tolist()
    start, end = graph.release.tolist(), [0.0] * n
    decider, by = [-1] * n, [-1] * n
    members = _members(group)
    absent = {meeting: len(who) for meeting, who in members.items()}
    ready = [i for i in range(n) if missing[i] == 0]
    done = 0
    while ready:
        i = ready.pop()
        finished = [i]
        if start[i] == -np.inf:
            start[i] = 0.0
        if group[i] >= 0:
            absent[group[i]] -= 1
            if absent[group[i]]:
                continue
            finished = members[group[i]]
            last = max(finished, key=start.__getitem__)
            for j in finished:
                end[j] = max(start[last] + duration[j], start[j])
                if j != last:
                    decider[j] = last
                    by[j] = -1
        else:
            end[i] = start[i] + duration[i]
        for j in finished:
            done += 1
            for e in range(first[j], first[j + 1]):
                k = target[e]
                at = (start[j] if from_start[e] else end[j]) + lag[e]
                if at > start[k]:
                    start[k], decider[k], by[k] = at, j, number[e]
                missing[k] -= 1
                if not missing[k]:
                    ready.append(k)
    if done < n:
        stuck = next(i for i in range(n) if missing[i] or (group[i] >= 0 and absent[group[i]]))
        what = graph.names[graph.name[stuck]][:60]
        raise BadValue(
            "trace",
            what,
            "its tasks wait for each other in a circle, or for a rank that never comes",
        )
    return Replayed(
        graph=graph,
        start=np.array(start),
        end=np.array(end),
        decider=np.array(decider),
        by=np.array(by),
    )


def _members(group: list[int]) -> dict[int, list[int]]:
    members: dict[int, list[int]] = {}
    for i, meeting in enumerate(group):
        if meeting >= 0:
            members.setdefault(meeting, []).append(i)
    return members


def spans(run: Replayed) -> list[LaneSpan]:
    """Every lane, and the whole as the last one."""
    graph, rows = run.graph, []
    for number, name in enumerate(graph.lanes):
        tasks = np.flatnonzero(graph.lane == number)
        if len(tasks):
            rows.append(_span(name, tasks, run))
    return [*rows, _span("whole", np.arange(len(graph)), run)]


def _span(name: str, tasks: Array, run: Replayed) -> LaneSpan:
    measured = float(run.graph.end[tasks].max() - run.graph.start[tasks].min())
    replayed = float(run.end[tasks].max() - run.start[tasks].min())
    return LaneSpan(lane=name, tasks=len(tasks), measured=measured, replayed=replayed)


def critical_path(run: Replayed) -> Mapping[str, float]:
    """Time on the critical path, by what it was spent on; adds up to the makespan. [s]"""
    graph, spent = run.graph, dict[str, float]()
    i = int(np.argmax(run.end))
    until, low = float(run.end[i]), float(run.start.min())

    def spend(what: str, since: float) -> float:
        time = max(until - max(since, low), 0.0)
        if time > 0:
            spent[what] = spent.get(what, 0.0) + time
        return min(until, since)

    for _ in range(4 * len(graph)):
        kind = int(graph.kind[i])
        until = spend("host calls" if kind == HOST else CLASSES[kind].value, float(run.start[i]))
        source, edge = int(run.decider[i]), int(run.by[i])
        if source < 0:
            break
        if edge < 0:  # the last one to come to a meeting
            until = min(until, float(run.start[source]))
            i = source
            source, edge = int(run.decider[i]), int(run.by[i])
            if source < 0 or edge < 0:
                break
        began = bool(graph.from_start[edge])
        until = spend(
            _WAITING[Why(int(graph.why[edge]))],
            float(run.start[source] if began else run.end[source]),
        )
        i = source
        if began:
            source, edge = int(run.decider[i]), int(run.by[i])
            if source < 0 or edge < 0:
                break
            began = bool(graph.from_start[edge])
            until = spend(_WAITING[Why(int(graph.why[edge]))], float(run.end[source]))
            i = source
    spend("before the first task", low)
    return dict(sorted(spent.items(), key=lambda item: -item[1]))


_WAITING: Mapping[Why, str] = {
    Why.THREAD: "host between calls",
    Why.LAUNCH: "launch latency",
    Why.INFERRED_LAUNCH: "launch latency",
    Why.STREAM: "between kernels",
    Why.EVENT: "waits between streams",
    Why.INFERRED_EVENT: "waits between streams",
    Why.SYNC: "host woken by the device",
    Why.INFERRED_SYNC: "host woken by the device",
    Why.INFERRED_THREAD: "host between threads",
    Why.DELAY: "unexplained delays",
}
