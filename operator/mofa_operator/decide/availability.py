"""How many nodes a pool had in the last hours, so that a new job's size can count with them.

The sizes that stood are kept in the status with their ends: nothing is written while the size
stays. The low quantile weighs each size by how long it stood.
"""

from __future__ import annotations

from typing import Final

from mofa_model.kinds.shape import at, items
from mofa_operator.decide.status import moment
from mofa_operator.objects import LiveProfile, Written, seconds

HOURS: Final = 6 * 3600.0
"""How far back it is looked. Ours. [s]"""
LOW: Final = 0.1
"""Share of that time in which a pool may have had fewer nodes than are counted with. Ours. [1]"""
MOST: Final = 32
"""Sizes that are kept. [1]"""


def availability(profile: LiveProfile, old: int, size: int, now: float) -> Written:
    """Status fields: earlier sizes of a pool, and the size that it nearly always had, if smaller.

    `old` is the size that stands in the status, 0 where there is none; `now` in seconds of the
    epoch. [s]
    """
    kept = []
    for row in items(at(profile.body, "status", "nodes", "earlier")):
        nodes, until = row.get("nodes"), seconds(row.get("until"))
        if isinstance(nodes, int) and until is not None and until > now - HOURS:
            kept.append((nodes, until))
    if old and old != size:
        kept.append((old, now))
    kept = kept[-MOST:]
    if not kept:
        return {}
    fields: Written = {
        "earlier": [{"nodes": nodes, "until": moment(until)} for nodes, until in kept]
    }
    low = low_quantile([*kept, (size, now)], now - HOURS)
    return fields | ({"lately": low} if low < size else {})


def low_quantile(stood: list[tuple[int, float]], start: float) -> int:
    """The size that a pool had or exceeded for all but a share LOW of the time since `start` [s].

    >>> low_quantile([(16, 5.0), (14, 6.5), (16, 10.0)], 0.0)
    14
    >>> low_quantile([(16, 9.1), (14, 10.0), (16, 10.0)], 0.0)
    16
    """
    spans, before = list[tuple[int, float]](), start
    for nodes, until in stood:
        spans.append((nodes, max(0.0, until - before)))
        before = max(before, until)
    left = LOW * sum(length for _, length in spans)
    for nodes, length in sorted(spans):
        left -= length
        if left < 0:
            return nodes
    return stood[-1][0]
