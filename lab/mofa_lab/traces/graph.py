"""The execution graph: what ran, where, for how long, and what had to be before it.

A task is a call of the host or a kernel. What the host does between two calls is the lag of the
edge between them. Edges say where they are from: read in the trace, or inferred from its times; a
start that nothing explains keeps its measured delay and is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from mofa_lab.traces.events import Array


class Why(IntEnum):
    """Why a task waits for another one."""

    THREAD = 0  # the call before it on its thread, and the host's work between them
    LAUNCH = 1  # the call that launched it
    STREAM = 2  # the kernel before it on its stream
    EVENT = 3  # another stream, as an event record says
    SYNC = 4  # the host waits for the device, by a call
    INFERRED_LAUNCH = 5  # paired by order: the trace has no correlation ids
    INFERRED_EVENT = 6  # another stream: it starts when a kernel there ends
    INFERRED_SYNC = 7  # the host goes on when a kernel ends, without a call that waits
    INFERRED_THREAD = 8  # a thread goes on when another one stops
    DELAY = 9  # nothing in the trace explains it: the delay after the kernel before is kept


INFERRED = frozenset(
    {Why.INFERRED_LAUNCH, Why.INFERRED_EVENT, Why.INFERRED_SYNC, Why.INFERRED_THREAD, Why.DELAY}
)
"""Edges that the trace does not say."""
HOST = -1
"""Class number of a host task."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Graph:
    """Tasks and edges, as arrays of equal length."""

    names: tuple[str, ...]
    """Names of tasks."""
    lanes: tuple[str, ...]
    """Names of lanes, for example `rank 0 stream 7`."""
    name: Array
    """Place in `names`."""
    lane: Array
    """Place in `lanes`."""
    rank: Array
    """Rank."""
    kind: Array
    """Number of the operator class; `HOST` for calls."""
    start: Array
    """As measured; of a rewritten graph, zero. [s]"""
    duration: Array
    """Time it takes once it can start; of a meeting, once all have come. [s]"""
    end: Array
    """As measured; of a rewritten graph, zero. [s]"""
    group: Array
    """Meeting that it takes part in: a collective of several ranks in this graph; -1 = none."""
    release: Array
    """Earliest start whatever else: the first of each thread. [s]"""
    source: Array
    """Of each edge: the task that is waited for."""
    target: Array
    """Of each edge: the task that waits."""
    lag: Array
    """Of each edge: from the source's end (of a launch: start) to the target's earliest
    start. [s]
    """
    from_start: Array
    """Of each edge: True where the lag counts from the source's start."""
    why: Array
    """Of each edge: `Why`."""

    def __len__(self) -> int:
        """Tasks."""
        return len(self.start)

    def counted(self) -> dict[str, int]:
        """Edges by reason."""
        return {why.name.lower(): n for why in Why if (n := int(np.count_nonzero(self.why == why)))}

    @property
    def inferred(self) -> int:
        """Edges that the trace does not say."""
        return int(np.count_nonzero(np.isin(self.why, [int(why) for why in INFERRED])))


class EdgeList:
    """Edges while they are found."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, int, float, bool, int]] = []
        self._loose: set[int] = set()

    def add(
        self, source: int, target: int, lag: float, why: Why, *, from_start: bool = False
    ) -> None:
        """One edge. [s]"""
        self._rows.append((source, target, lag, from_start, int(why)))

    def loosen(self, target: int) -> None:
        """Set the host time before a call to zero: it waited for something else then. [s]"""
        self._loose.add(target)

    def columns(self) -> dict[str, Array]:
        """Fields of a `Graph`."""
        loose = self._loose
        rows = [
            (s, t, 0.0, f, w) if t in loose and w == 0 else (s, t, lag, f, w)
            for s, t, lag, f, w in self._rows
        ]
        columns = list(zip(*rows, strict=True)) or [()] * 5
        types = (np.int64, np.int64, np.float64, np.bool_, np.int8)
        names = ("source", "target", "lag", "from_start", "why")
        return {n: np.array(c, dtype=t) for n, c, t in zip(names, columns, types, strict=True)}


def joined(graphs: Sequence[Graph]) -> Graph:
    """The graphs of several ranks as one, without edges between ranks, which `ranks.meet` adds."""
    names = tuple(dict.fromkeys(name for graph in graphs for name in graph.names))
    place = {name: i for i, name in enumerate(names)}
    parts: dict[str, list[Array]] = {}
    lanes: list[str] = []
    tasks = 0
    for graph in graphs:
        renamed = np.array([place[name] for name in graph.names] + [0])[graph.name]
        own = {"name": renamed, "lane": graph.lane + len(lanes)}
        shifted = {"source": graph.source + tasks, "target": graph.target + tasks}
        for field in (f for f in Graph.__slots__ if f not in {"names", "lanes"}):
            parts.setdefault(field, []).append((own | shifted).get(field, getattr(graph, field)))
        lanes += graph.lanes
        tasks += len(graph)
    return Graph(
        names=names, lanes=tuple(lanes), **{f: np.concatenate(p) for f, p in parts.items()}
    )
