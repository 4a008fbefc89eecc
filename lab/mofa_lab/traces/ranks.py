"""Traces of several ranks as one: clocks aligned, collectives that meet joined.

Members of a collective end together. That aligns the clocks of hosts, and it makes a meeting of the
members: none goes on before the last one has come. Members find each other by group, class and
order; without NCCL's metadata by ends that coincide, which is counted as inferred.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from mofa_lab.traces.build import graph_of
from mofa_lab.traces.collectives import Collective, collective_of
from mofa_lab.traces.events import Array, Trace
from mofa_lab.traces.graph import Graph, joined
from mofa_lab.traces.operators import CLASSES, COMMUNICATION, Class
from mofa_model.errors import InputError

TOGETHER: Final = 20e-6
"""Ends of one collective on several ranks differ by less, once clocks are aligned. [s]"""

Key = tuple[int, str, tuple[int, ...], int]


@dataclass(frozen=True, kw_only=True, slots=True)
class RankGraph:
    """Several ranks of one job in one graph."""

    graph: Graph
    """All tasks and meetings."""
    shifts: tuple[float, ...]
    """What was added to each rank's clock. [s]"""
    meetings: int
    """Collectives whose members found each other."""
    inferred: int
    """Those of them that did so by coinciding ends."""


def job_of(traces: Sequence[Trace]) -> RankGraph:
    """One graph of all ranks; one rank alone has no meetings."""
    numbers = _numbered(traces)
    first = min(trace.epoch for trace in traces)
    shifts = [trace.epoch - first for trace in traces]
    graphs = [
        graph_of(trace, rank, shift=s)
        for trace, rank, s in zip(traces, numbers, shifts, strict=True)
    ]
    if len(traces) == 1:
        return RankGraph(graph=graphs[0], shifts=(0.0,), meetings=0, inferred=0)
    by_rank = [_collectives(trace, graph) for trace, graph in zip(traces, graphs, strict=True)]
    members = _by_name(graphs, by_rank)
    offsets = _offsets(graphs, members)
    graphs = [_moved(graph, by) for graph, by in zip(graphs, offsets, strict=True)]
    begin = np.cumsum([0, *(len(graph) for graph in graphs)])
    meetings = [
        [int(begin[r]) + task for r, task in who] for who in members.values() if len(who) > 1
    ]
    together = [] if members else _by_end(graphs, begin)
    graph = meet(joined(graphs), [*meetings, *together])
    shifted = tuple(s + o for s, o in zip(shifts, offsets, strict=True))
    return RankGraph(
        graph=graph, shifts=shifted, meetings=len(meetings) + len(together), inferred=len(together)
    )


def meet(graph: Graph, meetings: Iterable[Sequence[int]]) -> Graph:
    """The graph with meetings: a member's duration becomes what is left once the last one has
    come. [s]
    """
    group, duration = graph.group.copy(), graph.duration.copy()
    for number, tasks in enumerate(meetings):
        members = list(tasks)
        last = float(graph.start[members].max())
        group[members] = number
        duration[members] = np.maximum(graph.end[members] - last, 0.0)
    return replace(graph, group=group, duration=duration)


def _numbered(traces: Sequence[Trace]) -> list[int]:
    """Traces by rank: the rank that a file says, or the order given where ranks lack or repeat."""
    ranks = [trace.rank for trace in traces]
    if len(set(ranks)) == len(ranks):
        return ranks
    if any(ranks) and any(trace.world > 1 for trace in traces):
        twice = next(rank for rank in ranks if ranks.count(rank) > 1)
        paths = [trace.path for trace in traces if trace.rank == twice]
        raise InputError(
            f"{paths[1]}: is of rank {twice}, as {paths[0]} is; give one file for each rank"
        )
    return list(range(len(traces)))


def _collectives(trace: Trace, graph: Graph) -> dict[int, Collective]:
    """Details of the communicating tasks of a rank's graph, by the number of the task."""
    rows = trace.events.detail
    if trace.host_only:
        return {int(i): Collective() for i in np.flatnonzero(_talking(graph))}
    on_device = np.flatnonzero(trace.events.kind <= 1)
    order = on_device[np.lexsort((trace.events.start[on_device], trace.events.lane[on_device]))]
    first = len(graph) - len(order)
    parsed = {int(d): collective_of(trace.details[d]) for d in np.unique(rows[order])}
    return {
        int(i): parsed[int(rows[order[i - first]])]
        for i in np.flatnonzero(_talking(graph))
        if i >= first
    }


def _talking(graph: Graph) -> Array:
    wanted = [CLASSES.index(kind) for kind in CLASSES if kind in COMMUNICATION]
    mask: Array = np.isin(graph.kind, wanted)
    return mask


def _by_name(
    graphs: Sequence[Graph], by_rank: Sequence[dict[int, Collective]]
) -> dict[Key, list[tuple[int, int]]]:
    """Members of each collective that says its group, as (place of the rank, task)."""
    members: dict[Key, list[tuple[int, int]]] = {}
    ranks = {int(graph.rank[0]): r for r, graph in enumerate(graphs) if len(graph)}
    point = CLASSES.index(Class.POINT)
    for r, (graph, collectives) in enumerate(zip(graphs, by_rank, strict=True)):
        seen: dict[tuple[int, str, tuple[int, ...]], int] = {}
        own = int(graph.rank[0]) if len(graph) else 0
        host = (
            bool(collectives)
            and not any(collective.group or collective.ranks for collective in collectives.values())
            and _on_host(graph)
        )
        for task in sorted(collectives, key=lambda t: float(graph.start[t])):
            collective, kind = collectives[task], int(graph.kind[task])
            group = collective.ranks
            if kind == point and collective.peer >= 0:
                group = (own, collective.peer) if collective.sends else (collective.peer, own)
            if not group and not collective.group and not host:
                continue
            key = (kind, collective.group, group)
            seen[key] = seen.get(key, -1) + 1
            number = collective.number if collective.number >= 0 else seen[key]
            if group and sum(rank in ranks for rank in group) < 2:
                continue
            members.setdefault((*key, number), []).append((r, task))
    return {key: who for key, who in members.items() if len({r for r, _ in who}) == len(who)}


def _on_host(graph: Graph) -> bool:
    return not any(" stream " in lane for lane in graph.lanes)


def _offsets(graphs: Sequence[Graph], members: dict[Key, list[tuple[int, int]]]) -> list[float]:
    """What to add to each clock so that members of collectives end together; the first rank keeps
    its own. [s]
    """
    pairs: dict[tuple[int, int], list[float]] = {}
    for who in members.values():
        r, task = who[0]
        for other, other_task in who[1:]:
            pairs.setdefault((r, other), []).append(
                float(graphs[r].end[task] - graphs[other].end[other_task])
            )
    offsets = {0: 0.0}
    medians = {pair: float(np.median(apart)) for pair, apart in pairs.items()}
    for _ in range(len(graphs)):
        for (rank, other), apart in medians.items():
            if rank in offsets and other not in offsets:
                offsets[other] = offsets[rank] + apart
            elif other in offsets and rank not in offsets:
                offsets[rank] = offsets[other] - apart
    return [offsets.get(r, 0.0) for r in range(len(graphs))]


def _moved(graph: Graph, by: float) -> Graph:
    return replace(graph, start=graph.start + by, end=graph.end + by, release=graph.release + by)


def _by_end(graphs: Sequence[Graph], begin: Array) -> list[list[int]]:
    """Collectives of one class that end at the same time on several ranks."""
    rows = [
        (int(graph.kind[t]), float(graph.end[t]), r, int(begin[r]) + int(t))
        for r, graph in enumerate(graphs)
        for t in np.flatnonzero(_talking(graph))
    ]
    groups: list[list[int]] = []
    present: set[int] = set()
    last = (-1, -np.inf)
    for kind, end, r, task in sorted(rows):
        if kind != last[0] or end - last[1] > TOGETHER or r in present:
            groups.append([])
            present = set()
            last = (kind, end)
        groups[-1].append(task)
        present.add(r)
    return [members for members in groups if len(members) > 1]
