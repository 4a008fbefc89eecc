"""The size of a pool, for which jobs without a number of nodes are advised; and its low size.

Where a job states no number of nodes, advice is for the size of its pool. Short losses of nodes do
not change that size:

    a node that is away                       counts until it was away for `steady` seconds
    a new node                                counts once it was there for `steady` seconds
    a node first seen at the operator's start counts as in the stored size, for `steady` seconds

Changes that are due within `settle_longest` seconds of each other are taken as one. A pool that is
younger than `steady` seconds, or has no node yet, takes changes at once. The status stores the
size, and since when another number of nodes is ready: that is all that a restarted operator knows
of nodes that were deleted meanwhile.

The status also keeps the sizes of the last hours, each with its end, so that the size of a new job
can rely on them: nothing is written while the size stays. The low quantile weighs each size by how
long it lasted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mofa_model.kinds.shape import at, items
from mofa_operator.decide.status import moment
from mofa_operator.objects import LiveProfile, WrittenPart, seconds
from mofa_operator.settings import LoopSettings
from mofa_operator.snapshot import NodeCount, ProfileSnapshot

HOURS: Final = 6 * 3600.0
"""How far back sizes count. Ours. [s]"""
LOW: Final = 0.1
"""Share of that time in which a pool may have had fewer nodes than the low size. Ours. [1]"""
MOST: Final = 32
"""Sizes that are kept. [1]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolSize:
    """The size of a pool."""

    nodes: int
    """Nodes that advice is for. [1]"""
    since: float | None = None
    """Since when another number of nodes is ready, in seconds of the epoch; None = the same. [s]"""
    requeue_after: float | None = None
    """Time until the size may change. [s]"""


def pool_size(snapshot: ProfileSnapshot, settings: LoopSettings) -> PoolSize:
    """The size of a pool, given the stored one."""
    pool, nodes, now = snapshot.profile, snapshot.node_count, snapshot.now
    old_size, since = stored_size(pool)
    size, wait = _size(snapshot, settings, old_size, since) if old_size else (nodes.ready, None)
    if nodes.ready == size:
        since = None
    elif since is None or size != old_size or nodes.ready != pool.status.ready:
        since = now
    waits = (turn + settings.steady - now for turn in _turns(nodes))
    next_wait = min((wait for wait in waits if wait > 0), default=None)
    return PoolSize(nodes=size, since=since, requeue_after=wait or next_wait)


def stored_size(profile: LiveProfile) -> tuple[int, float | None]:
    """The stored size, 0 where there is none, and since when as many nodes are ready as now.

    Version 0.1.0 stored ready nodes.
    """
    status = profile.status
    size = status.ready if status.steady is None else status.steady
    return int(size or 0), seconds(status.since)


def _size(
    snapshot: ProfileSnapshot, settings: LoopSettings, old_size: int, since: float | None
) -> tuple[int, float | None]:
    """The size, and the time until it can follow the nodes that are ready. [1, s]"""
    pool, nodes, now = snapshot.profile, snapshot.node_count, snapshot.now
    if pool.created is not None and now - pool.created < settings.steady:
        return max(old_size, nodes.ready), None
    low, high = _bounds(nodes, now, settings.steady)
    if low <= old_size <= high:
        return old_size, None
    edited = pool.generation is not None and pool.status.generation != pool.generation
    if old_size > high and not edited:
        unchanged = settings.steady if since is None else since + settings.steady - now
        wait = min(nodes.known_since + settings.steady - now, unchanged)
        if wait > 0:  # some nodes went while nobody looked
            return old_size, wait
    due = sorted(turn + settings.steady - now for turn in _turns(nodes))
    over = [wait for wait in due if wait <= 0]
    soon = [wait for wait in due if over and 0 < wait <= over[0] + settings.settle_longest]
    if soon and not edited:
        return old_size, soon[-1]
    return low if old_size < low else high, None


def _bounds(nodes: NodeCount, now: float, steady: float) -> tuple[int, int]:
    """The least and the largest size that agree with what each node did lately. [1]"""

    def lately(turns: tuple[float, ...]) -> int:
        return sum(now - turn < steady for turn in turns)

    came, gone = lately(nodes.unsure_there), lately(nodes.unsure_away)
    low = nodes.ready - lately(nodes.joined) - came + lately(nodes.away)
    return low, low + came + gone


def _turns(nodes: NodeCount) -> tuple[float, ...]:
    """When nodes came or went, in seconds of the epoch. [s]"""
    return (*nodes.away, *nodes.joined, *nodes.unsure_there, *nodes.unsure_away)


def availability(profile: LiveProfile, size_before: int, size: int, now: float) -> WrittenPart:
    """Status fields: earlier sizes of a pool, and the size that it nearly always had, if smaller.

    `size_before` is the stored size, 0 where there is none; `now` in seconds of the epoch. [s]
    """
    sizes = []
    for row in items(at(profile.body, "status", "nodes", "earlier")):
        nodes, until = row.get("nodes"), seconds(row.get("until"))
        if isinstance(nodes, int) and until is not None and until > now - HOURS:
            sizes.append((nodes, until))
    if size_before and size_before != size:
        sizes.append((size_before, now))
    sizes = sizes[-MOST:]
    if not sizes:
        return {}
    fields: WrittenPart = {
        "earlier": [{"nodes": nodes, "until": moment(until)} for nodes, until in sizes]
    }
    low_size = low_quantile([*sizes, (size, now)], now - HOURS)
    return fields | ({"lately": low_size} if low_size < size else {})


def low_quantile(sizes: list[tuple[int, float]], start: float) -> int:
    """The size that a pool had or exceeded for all but a share LOW of the time since `start` [s].

    >>> low_quantile([(16, 5.0), (14, 6.5), (16, 10.0)], 0.0)
    14
    >>> low_quantile([(16, 9.1), (14, 10.0), (16, 10.0)], 0.0)
    16
    """
    spans, before = list[tuple[int, float]](), start
    for nodes, until in sizes:
        spans.append((nodes, max(0.0, until - before)))
        before = max(before, until)
    time_left = LOW * sum(length for _, length in spans)
    for nodes, length in sorted(spans):
        time_left -= length
        if time_left < 0:
            return nodes
    return sizes[-1][0]
