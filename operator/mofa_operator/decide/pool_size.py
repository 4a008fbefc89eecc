"""The number of nodes that advice is for where a job does not state one: a steady size, which short losses do not change.

    a node of the pool that is away           still counts until it was away for `steady` seconds
    a new node                                counts once it was there for `steady` seconds
    a node first seen at the operator's start counts as the stored size says, until `steady` seconds are over

Changes that come close together are taken as one: if more of them are due within `settle_longest` seconds of the first, all wait
for the last. A pool that is younger than `steady` seconds, or that has no node yet, takes changes at once.

The size is stored in the profile's status, with the time since which the present number of nodes is ready. A restarted operator
goes on from there. Of nodes that were deleted while no operator ran, this time is all that is known.
"""

from __future__ import annotations

from dataclasses import dataclass

from mofa_operator.objects import LiveProfile
from mofa_operator.settings import LoopSettings
from mofa_operator.shapes import seconds
from mofa_operator.snapshot import NodeCount, ProfileSnapshot


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolSize:
    """A pool's size."""

    nodes: int
    """Nodes that advice is for. [1]"""
    since: float | None = None
    """Since when as many are ready as are now, in seconds of the epoch; None = that is the size. [s]"""
    again: float | None = None
    """When it may be another one, from now. [s]"""


def pool_size(snapshot: ProfileSnapshot, settings: LoopSettings) -> PoolSize:
    """The size of a pool, given the one that stands."""
    pool, nodes, now = snapshot.profile, snapshot.nodes, snapshot.now
    old, since = _standing(pool)
    size, wait = _size(snapshot, settings, old, since) if old else (nodes.ready, None)
    if nodes.ready == size:
        since = None
    elif since is None or size != old or nodes.ready != pool.status.ready:
        since = now
    due = [at + settings.steady - now for at in _turns(nodes)]
    again = min((one for one in (*due, wait) if one is not None and one > 0), default=None)
    return PoolSize(nodes=size, since=since, again=wait or again)


def _standing(pool: LiveProfile) -> tuple[int, float | None]:
    """The size that stands, 0 where none does, and since when as many are ready as are now; a status of before had ready nodes alone."""
    status = pool.status
    size = status.ready if status.steady is None else status.steady
    return int(size or 0), seconds(status.since)


def _size(
    snapshot: ProfileSnapshot, settings: LoopSettings, old: int, since: float | None
) -> tuple[int, float | None]:
    """The size, and how long it has to wait until it can be the one that is seen. [1, s]"""
    pool, nodes, now = snapshot.profile, snapshot.nodes, snapshot.now
    if pool.made is not None and now - pool.made < settings.steady:
        return max(old, nodes.ready), None
    low, high = _bounds(nodes, now, settings.steady)
    if low <= old <= high:
        return old, None
    edited = pool.generation is not None and pool.status.generation != pool.generation
    if old > high and not edited:
        known = nodes.known + settings.steady - now
        seen = settings.steady if since is None else since + settings.steady - now
        if (left := min(known, seen)) > 0:  # some went while nobody looked
            return old, left
    due = sorted(at + settings.steady - now for at in _turns(nodes))
    over = [one for one in due if one <= 0]
    soon = [one for one in due if over and 0 < one <= over[0] + settings.settle_longest]
    if soon and not edited:
        return old, soon[-1]
    return low if old < low else high, None


def _bounds(nodes: NodeCount, now: float, steady: float) -> tuple[int, int]:
    """Least and most nodes that the size can be, by what each of them did. [1]"""

    def lately(turns: tuple[float, ...]) -> int:
        return sum(now - at < steady for at in turns)

    came, gone = lately(nodes.unsure_there), lately(nodes.unsure_away)
    low = nodes.ready - lately(nodes.joined) - came + lately(nodes.away)
    return low, low + came + gone


def _turns(nodes: NodeCount) -> tuple[float, ...]:
    return (*nodes.away, *nodes.joined, *nodes.unsure_there, *nodes.unsure_away)
