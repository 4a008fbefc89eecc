"""Saves of a checkpoint: how long each takes, and when the saves of nested tiers become durable.

Sizes come from the memory terms of the estimate; here they are plain numbers or arrays of
strategies. All replicas of a shard hold the same bytes, so only one of them writes. A save takes as
long as its slowest writer.

The timeline is what happens from a restart until the next failure; nothing in it is random.
Positions count intervals of work. Tier j saves at multiples of `every[j]`. Each of these numbers
divides the next, so at a multiple of the last one all tiers save together, all copies start
together, and the timeline repeats itself. At a boundary training waits until the last copy of each
due tier is done, blocks for the saves, and goes on while the copies run. Steps are slower while any
copy is in flight. After a restart no copy is in flight.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mofa_model.checks import not_negative, positive, whole
from mofa_model.errors import BadValue
from mofa_model.records import dataclass
from mofa_model.spec.reliability import CheckpointTier
from mofa_model.units import Bytes, BytesPerSecond, Count, Seconds


def checkpoint_bytes(parameters: Count, weight: Bytes, optimizer: Bytes) -> Bytes:
    """Size of a whole checkpoint: weights and optimizer states, no gradients. Ours. [B]

    `weight` and `optimizer` are bytes per parameter [B]; a master copy of the weights counts in
    `optimizer`.

    >>> checkpoint_bytes(405e9, 2.0, 12.0) / 1e12
    5.67
    """
    return parameters * (weight + optimizer)


def bytes_per_node(total: Bytes, writers: Count, gpus_per_node: Count) -> Bytes:
    """Bytes that the busiest node writes, where `writers` ranks hold equal distinct shards. Ours.
    [B]

    Ranks that write fill nodes one by one, so the busiest node has as many as fit.

    >>> float(bytes_per_node(5.67e12, 2048, 8)) / 1e9
    22.1484375
    """
    return total / writers * np.minimum(gpus_per_node, writers)


def interval_within(limit: Seconds, start: Seconds, save: Seconds, interval: Seconds) -> Seconds:
    """The longest interval, at most the best one, whose last save ends just at the time limit.
    Ours. [s]

    Work after the last save is lost at the limit. `start` is the time until the first step, `save`
    the time until a checkpoint is safe.

    >>> float(interval_within(86400, 307, 60, 1800))
    1792.3541666666667
    """
    worked = limit - start - save
    return worked / np.ceil(worked / interval) if worked > 0 else interval


def write_time(
    total: Bytes,
    per_node: Bytes,
    node_bandwidth: BytesPerSecond,
    total_bandwidth: BytesPerSecond,
    latency: Seconds,
) -> Seconds:
    """Time until all shards are written, by the busiest node or by the shared storage, whichever is
    slower. Ours. [s]

    >>> float(write_time(5.67e12, 22e9, 5e9, 1e12, 1.0))
    6.67
    """
    return latency + np.maximum(per_node / node_bandwidth, total / total_bandwidth)


def blocking_time(checkpoint_tier: CheckpointTier, total: Bytes, per_node: Bytes) -> Seconds:
    """Time that training waits for a save to a tier: its stall, and then the write of a synchronous
    save, or the copy to host memory of an asynchronous one. Ours. [s]

    >>> remote = CheckpointTier(
    ...     name="remote", node_bandwidth=2e9, total_bandwidth=2e11, snapshot_bandwidth=1e11
    ... )
    >>> round(float(blocking_time(remote, 5.67e12, 22e9)), 2)
    0.22
    >>> round(float(background_time(remote, 5.67e12, 22e9)), 2)
    28.35
    """
    written = _written(checkpoint_tier, total, per_node)
    if not checkpoint_tier.asynchronous:
        return checkpoint_tier.stall + written
    return checkpoint_tier.stall + per_node / checkpoint_tier.snapshot_bandwidth + written * 0.0


def background_time(checkpoint_tier: CheckpointTier, total: Bytes, per_node: Bytes) -> Seconds:
    """Time that an asynchronous save writes while training goes on; zero for a synchronous one.
    Ours. [s]
    """
    written = _written(checkpoint_tier, total, per_node)
    return written if checkpoint_tier.asynchronous else written * 0.0


def _written(tier: CheckpointTier, total: Bytes, per_node: Bytes) -> Seconds:
    return write_time(total, per_node, tier.node_bandwidth, tier.total_bandwidth, tier.latency)


LONGEST_PERIOD = 1200
"""Most intervals between saves of the last tier, since `walk` goes through them one by one. [1]"""


@dataclass(frozen=True, kw_only=True)
class Tiers:
    """Nested checkpoint tiers of one strategy, nearest first; save times are given."""

    work: float
    """Work between the boundaries at which some tier may save. [s]"""
    every: tuple[int, ...]
    """Boundaries between saves of each tier; each divides the next. [1]"""
    blocking: tuple[float, ...]
    """Blocking part of each tier's save. [s]"""
    background: tuple[float, ...]
    """Time from the end of the blocking part until the save is durable. [s]"""
    slowdown: float = 0.0
    """Relative slowdown of steps while a copy is in flight (eps). [1]"""

    def __post_init__(self) -> None:
        if not 0 < len(self.every) == len(self.blocking) == len(self.background):
            raise BadValue(
                "tiers",
                self.every,
                "every, blocking and background must have one value for each tier",
            )
        positive(work=self.work)
        whole(every=np.array(self.every))
        not_negative(
            blocking=np.array(self.blocking),
            background=np.array(self.background),
            slowdown=self.slowdown,
        )
        for low, high in pairwise(self.every):
            if high % low:
                raise BadValue(
                    "every", self.every, "each tier's number must divide the next tier's"
                )
        if self.every[-1] > LONGEST_PERIOD:
            raise BadValue(
                "every", self.every, f"at most {LONGEST_PERIOD} intervals between saves of a tier"
            )


@dataclass(frozen=True, kw_only=True)
class SaveTimeline:
    """Times since a restart; row b is for a restart at boundary b of a period."""

    ends: NDArray[Any]
    """[b, p]: end of the saves at boundary p, for p = 0 ... 2 periods; NaN up to b. [s]"""
    period: float
    """Time of one period without failures, where copies of the period before are in flight. [s]"""
    overhead: tuple[float, float, float]
    """Parts of one period: blocked by saves, waiting for copies, slowed by copies. [s]"""


def walk(tiers: Tiers) -> SaveTimeline:
    """The timeline from a restart at each boundary, without a failure. Ours. [s]

    >>> two = Tiers(work=60.0, every=(1, 2), blocking=(1.0, 5.0), background=(0.0, 10.0))
    >>> walk(two).ends[0, 1:3], walk(two).period
    (array([ 61., 127.]), 127.0)
    """
    n, w, eps = tiers.every[-1], tiers.work, tiers.slowdown
    starts = np.append(np.arange(n), 0)
    time = np.zeros(n + 1)
    copied = np.full((len(tiers.every), n + 1), -np.inf)
    copied[:, n] = tiers.background
    ends = np.full((n + 1, n + 1), np.nan)
    spent = np.zeros(3)
    for position in range(1, n + 1):
        busy = np.maximum(np.max(copied, axis=0) - time, 0.0)
        slow = np.minimum(busy * (eps / (1 + eps)), eps * w)
        worked = time + w + slow
        due = [tier for tier, every in enumerate(tiers.every) if position % every == 0]
        begin = np.maximum(worked, np.max(copied[due], axis=0)) if due else worked
        block = sum(tiers.blocking[tier] for tier in due)
        time = np.where(starts < position, begin + block, time)
        ends[:, position] = np.where(starts < position, time, np.nan)
        for tier in due:
            copied[tier] = np.where(starts < position, time + tiers.background[tier], copied[tier])
        spent += (block, begin[n] - worked[n], slow[n])
    first, steady = ends[:n], ends[n]
    again = first[:, n:] + steady[1:]
    return SaveTimeline(
        ends=np.concatenate([first, again], axis=1),
        period=float(steady[n]),
        overhead=(float(spent[0]), float(spent[1]), float(spent[2])),
    )


def failure_free(tiers: Tiers) -> float:
    """ETTR where nothing fails: work over time of one period. Ours. [1]

    >>> times = Tiers(work=60.0, every=(1, 2), blocking=(1.0, 5.0), background=(0.0, 10.0))
    >>> round(failure_free(times), 4)
    0.9449
    """
    return tiers.work * tiers.every[-1] / walk(tiers).period


def lag(tiers: Tiers, tier: int, boundary: int) -> float:
    """Time from the end of the saves at a boundary until a failure that reads `tier` can restart
    there. Ours. [s]

    A copy on a farther tier serves as well, where it is due and done sooner.
    """
    due = (
        tiers.background[farther]
        for farther in range(tier, len(tiers.every))
        if boundary % tiers.every[farther] == 0
    )
    return min(due)
