"""What a checkpoint costs: bytes of the strategy over bandwidths of the storage.

Sizes come from the memory terms of the estimate; here they are plain numbers or arrays of strategies. All replicas of a
shard hold the same bytes, so one of them writes; the slowest writer decides.
"""

from __future__ import annotations

import numpy as np

from mofa_model.spec.reliability import CheckpointTier
from mofa_model.units import Bytes, BytesPerSecond, Count, Numeric, Seconds


def checkpoint_bytes(parameters: Count, weight: Bytes, optimizer: Bytes) -> Bytes:
    """Size of a whole checkpoint: weights and optimizer states, no gradients. Ours. [B]

    `weight` and `optimizer` are bytes per parameter [B]; a master copy of the weights counts in `optimizer`.

    >>> checkpoint_bytes(405e9, 2.0, 12.0) / 1e12
    5.67
    """
    return parameters * (weight + optimizer)


def bytes_per_node(total: Bytes, writers: Count, gpus_per_node: Count) -> Bytes:
    """What the busiest node writes, when `writers` ranks hold equal distinct shards. Ours. [B]

    Ranks that write are packed in nodes as they are placed: at most all of a node's.

    >>> float(bytes_per_node(5.67e12, 2048, 8)) / 1e9
    22.1484375
    """
    return total / writers * np.minimum(gpus_per_node, writers)


def write_time(
    total: Bytes,
    per_node: Bytes,
    node_bandwidth: BytesPerSecond,
    total_bandwidth: BytesPerSecond,
    latency: Seconds,
) -> Seconds:
    """Time until all shards are written: the busiest node or the shared storage, whichever is slower. Ours. [s]

    >>> float(write_time(5.67e12, 22e9, 5e9, 1e12, 1.0))
    6.67
    """
    return latency + np.maximum(per_node / node_bandwidth, total / total_bandwidth)


def save_times(tier: CheckpointTier, total: Bytes, per_node: Bytes) -> tuple[Numeric, Numeric]:
    """Blocking and background time of a save to a tier. Ours. [s]

    A synchronous save blocks for the write. An asynchronous one blocks for the copy to host memory and writes behind.
    Both wait for the stall.

    >>> remote = CheckpointTier(name="remote", node_bandwidth=2e9, total_bandwidth=2e11, snapshot_bandwidth=1e11)
    >>> [round(float(x), 2) for x in save_times(remote, 5.67e12, 22e9)]
    [0.22, 28.35]
    """
    written = write_time(total, per_node, tier.node_bandwidth, tier.total_bandwidth, tier.latency)
    if not tier.asynchronous:
        return tier.stall + written, written * 0.0
    return tier.stall + per_node / tier.snapshot_bandwidth + written * 0.0, written
