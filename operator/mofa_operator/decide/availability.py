"""How many nodes a pool had in the last hours, so that the size of a new job can rely on them.

The status keeps the earlier sizes, each with its end: nothing is written while the size stays. The
low quantile weighs each size by how long it lasted.
"""

from __future__ import annotations

from typing import Final

from mofa_model.kinds.shape import at, items
from mofa_operator.decide.status import moment
from mofa_operator.objects import LiveProfile, Written, seconds

HOURS: Final = 6 * 3600.0
"""How far back sizes count. Ours. [s]"""
LOW: Final = 0.1
"""Share of that time in which a pool may have had fewer nodes than the low size. Ours. [1]"""
MOST: Final = 32
"""Sizes that are kept. [1]"""


def availability(profile: LiveProfile, size_before: int, size: int, now: float) -> Written:
    """Status fields: earlier sizes of a pool, and the size that it nearly always had, if smaller.

    `size_before` is the stored size, 0 where there is none; `now` in seconds of the
    epoch. [s]
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
    fields: Written = {
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
