"""A job that has a part of its nodes: how its devices lie, and what of the machines is its own.

    places(gpus, per_node, pod)      the nodes that a job needs, and its devices on each
    part_of(cluster, devices, pod)   the machines as such a job sees them
    part_of_storage(given, share)    checkpoint storage as such a job sees it

What the devices of a node share is shared out evenly: host memory, processors, the node's way to checkpoint storage. A
device keeps its own NICs and links. The nodes fail as whole ones do, whatever part of them the job has.
"""

from __future__ import annotations

import math
from dataclasses import replace

from mofa_model.spec.cluster import Cluster
from mofa_model.spec.reliability import Reliability
from mofa_model.units import Ratio


def places(gpus: int, per_node: int, pod: int = 0) -> tuple[int, int] | None:
    """The fewest nodes that hold a job in equal parts, and its devices on each; None where no number does.

    `pod` is how many devices come together: 0 = nothing is known of that, and then whole nodes are filled.

    >>> places(64, 8), places(4, 8), places(12, 8), places(12, 8, pod=4), places(32, 8, pod=4), places(24, 8, pod=3)
    ((8, 8), (1, 4), None, (3, 4), (4, 8), (4, 6))
    """
    if gpus <= per_node:
        return 1, gpus
    if not 0 < pod <= per_node:  # one pod over several nodes is nobody's, but its nodes are whole
        return None if gpus % per_node else (gpus // per_node, per_node)
    pods = gpus // pod
    together = max(count for count in range(1, per_node // pod + 1) if pods % count == 0)
    return pods // together, pod * together


def part_of(cluster: Cluster, devices: int, pod: int = 0) -> Cluster:
    """The machines of a job that has so many devices of each node, in pods of so many (0 = one pod). []

    NVLink does not reach from pod to pod of a node: NCCL takes two containers for two hosts. A rack-wide domain does.
    Source: NCCL's issues 324, 797 and 1781; memory and processors are shared out evenly, which is ours.

    >>> from mofa_model.spec import Device, Link
    >>> gpu = Device(name="any", peak_bf16=1e15, memory=80e9, memory_bandwidth=3e12)
    >>> nodes = Cluster(device=gpu, gpus=8, scale_up=Link(bandwidth=450e9), scale_out=Link(bandwidth=25e9))
    >>> half = part_of(nodes, 4)
    >>> half.domain, half.host.memory / nodes.host.memory, part_of(nodes, 8, pod=1).domain
    (4, 0.5, 1)
    """
    whole = int(cluster.gpus_per_node)
    if devices == whole and (pod == 0 or pod >= whole):
        return cluster
    share = devices / whole
    if cluster.domain > whole:
        domain = max(1, math.floor(cluster.domain * share))
    else:
        domain = min(int(cluster.domain), pod or devices, devices)
    host = replace(
        cluster.host,
        memory=cluster.host.memory * share,
        optimizer_rate=cluster.host.optimizer_rate * share,
    )
    return replace(cluster, gpus_per_node=devices, domain=domain, host=host)


def part_of_storage(given: Reliability, share: Ratio) -> Reliability:
    """Checkpoint storage of a job that has a share of each node's devices: its share of what a node can write. Ours. []"""
    if float(share) == 1.0:
        return given
    tiers = (
        replace(
            tier,
            node_bandwidth=tier.node_bandwidth * share,
            snapshot_bandwidth=tier.snapshot_bandwidth * share,
        )
        for tier in given.tiers
    )
    return replace(given, tiers=tuple(tiers))
