"""A graph made from scratch: stages that launch kernels on streams, wait, and meet."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from mofa_lab.traces.graph import HOST, EdgeList, Graph, Why
from mofa_lab.traces.operators import CLASSES, Class
from mofa_lab.traces.templates import Template

LATENCY: Final = 5e-6
"""From the end of a launch to the start on an empty stream. Source: the median of published
traces. [s]
"""
GAP: Final = 1.2e-6
"""Between kernels of a stream. Source: the same. [s]"""


class Drawing:
    """Tasks of all stages."""

    def __init__(self, stages: int) -> None:
        self._edges = EdgeList()
        self._rows: list[
            tuple[int, int, int, int, float, int]
        ] = []  # name, lane, rank, kind, duration, group
        self._names: dict[str, int] = {}
        self._lanes: dict[str, int] = {}
        self._meetings: dict[Any, int] = {}
        self._stages = [Stage(self, rank) for rank in range(stages)]

    def stage(self, number: int) -> Stage:
        """One stage."""
        return self._stages[number]

    def task(
        self, name: str, lane: str, rank: int, kind: int, seconds: float, meeting: Any = None
    ) -> int:
        """Add a task; returns its number."""
        group = -1 if meeting is None else self._meetings.setdefault(meeting, len(self._meetings))
        where = self._lanes.setdefault(lane, len(self._lanes))
        self._rows.append(
            (self._names.setdefault(name, len(self._names)), where, rank, kind, seconds, group)
        )
        return len(self._rows) - 1

    def after(self, source: int, target: int, lag: float, why: Why) -> None:
        """Add an edge: the target starts no sooner than `lag` after the source's end. [s]"""
        self._edges.add(source, target, lag, why)

    def graph(self) -> Graph:
        """The graph of all tasks and edges that were added."""
        name, lane, rank, kind, duration, group = (
            np.array(c) for c in zip(*self._rows, strict=True)
        )
        zeros = np.zeros(len(self._rows))
        columns = self._edges.columns()
        waits = np.zeros(len(self._rows), dtype=bool)
        waits[columns["target"]] = True
        return Graph(
            names=tuple(self._names),
            lanes=tuple(self._lanes),
            name=name,
            lane=lane,
            rank=rank,
            kind=kind.astype(np.int8),
            start=zeros,
            duration=duration.astype(np.float64),
            end=zeros,
            group=group,
            release=np.where(waits, -np.inf, 0.0),
            **columns,
        )


class Stage:
    """One host thread and its streams."""

    def __init__(self, drawing: Drawing, rank: int) -> None:
        self._drawing, self._rank = drawing, rank
        self._call = -1
        self._last: dict[str, int] = {}
        self._due: list[int] = []

    def _kernel(
        self,
        stream: str,
        name: str,
        kind: Class,
        seconds: float,
        host: float,
        waits: list[int],
        meeting: Any = None,
    ) -> int:
        """Add a launch on the host and the kernel that it starts; returns the kernel's number."""
        d, rank = self._drawing, self._rank
        call = d.task("launch", f"rank {rank} thread", rank, HOST, host)
        if self._call >= 0:
            d.after(self._call, call, 0.0, Why.THREAD)
        self._call = call
        task = d.task(
            name, f"rank {rank} stream {stream}", rank, CLASSES.index(kind), seconds, meeting
        )
        d.after(call, task, LATENCY, Why.LAUNCH)
        if stream in self._last:
            d.after(self._last[stream], task, GAP, Why.STREAM)
        for source in waits:
            d.after(source, task, GAP, Why.EVENT)
        self._last[stream] = task
        return task

    def compute(self, name: str, kind: Class, seconds: float, host: float) -> None:
        """Add a compute kernel, which waits for the collectives that `join` named."""
        self._kernel("compute", name, kind, seconds, host, self._due)
        self._due = []

    def side(self, stream: str, seconds: float, host: float, kind: Class) -> int:
        """Add a collective on its own stream, which starts after all compute so far."""
        waits = [self._last["compute"]] if "compute" in self._last else []
        return self._kernel(stream, kind.value, kind, seconds, host, waits)

    def join(self, stream: str) -> None:
        """Let the next compute kernel wait for the last task of a stream."""
        if stream in self._last:
            self._due.append(self._last[stream])

    def meet(self, key: Any, seconds: float, host: float, *, receive: bool) -> None:
        """Add one end of a transfer between stages; both ends have one `key`."""
        stream = "receive" if receive else "send"
        waits = [] if receive else [self._last["compute"], *self._due]
        task = self._kernel(stream, Class.POINT.value, Class.POINT, seconds, host, waits, key)
        if receive:
            self._due.append(task)

    def play(self, template: Template, share: float = 1.0) -> None:
        """All pieces of a template; compute waits for collectives where the traced one did."""
        open_joins: list[tuple[int, int]] = []
        for place, piece in enumerate(template):
            if piece.axis:
                task = self.side(piece.axis, piece.seconds * share, piece.host, piece.kind)
                open_joins.append((place + piece.join, task))
                continue
            self._due += [task for at, task in open_joins if at <= place]
            open_joins = [(at, task) for at, task in open_joins if at > place]
            self.compute(piece.name, piece.kind, piece.seconds * share, piece.host)
        self._due += [task for _, task in open_joins]
