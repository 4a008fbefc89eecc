"""Time of collectives: latency and bandwidth per tier, and which tier a group of ranks is on.

A `group` is a number of ranks that lie `stride` apart. Bytes are of the whole tensor on one member,
volumes carry the ring factors (g - 1) / g.
"""

from __future__ import annotations

import numpy as np

from mofa_model.checks import anything
from mofa_model.spec import Cluster
from mofa_model.units import Bytes, BytesPerSecond, Count, Ratio, Seconds


def bandwidth_at_scale(bandwidth: BytesPerSecond, nodes: Count, decay: Ratio) -> BytesPerSecond:
    """Bandwidth that is left when a group spans more nodes, Eq. (3): B(n) = eta(n) B(n_0), eta =
    n^-decay. [B/s]

    The paper's 0.9 per doubling is a decay of 0.152.

    >>> round(float(bandwidth_at_scale(100e9, 2.0, 0.152)) / 1e9, 1)
    90.0
    """
    return bandwidth / np.power(np.maximum(nodes, 1.0), decay)


def ring_bandwidth(cluster: Cluster, group: Count, stride: Count) -> BytesPerSecond:
    """Bandwidth that one member of a group achieves in one direction, Eq. (18): a ring over the
    NICs of a domain's members. [B/s]

    A group inside the scale-up domain uses its links. One that leaves it runs a ring that enters
    and leaves each domain through the NICs of all its members there, so it has min(scale-up,
    members x NIC).

    >>> from mofa_model.spec import Device, Link
    >>> gpu = Device(name="any", peak_bf16=1e15, memory=80e9, memory_bandwidth=3e12)
    >>> fast, slow = Link(bandwidth=450e9), Link(bandwidth=25e9)
    >>> nodes = Cluster(device=gpu, gpus=64, scale_up=fast, scale_out=slow)
    >>> [round(float(ring_bandwidth(nodes, ranks, 1)) / 1e9) for ranks in (8, 16)]
    [315, 149]
    """
    constants, span = cluster.calibration.links, group * stride
    up = cluster.scale_up.bandwidth * constants.scale_up_efficiency
    members = np.minimum(group, np.maximum(1.0, cluster.domain / stride))
    nodes = span / cluster.gpus_per_node
    out = members * (cluster.scale_out.bandwidth * constants.scale_out_efficiency)
    if anything(cluster.spine_nodes):
        beyond = (np.asarray(cluster.spine_nodes) > 0) & (nodes > cluster.spine_nodes)
        out = out / np.where(beyond, cluster.oversubscription, 1.0)
    out = bandwidth_at_scale(out, nodes, constants.scale_decay)
    return np.where(span <= cluster.domain, up, np.minimum(up, out))


def hop_latency(cluster: Cluster, group: Count, stride: Count) -> Seconds:
    """Latency of one hop between members of a group, by the links that it uses. Ours. [s]

    >>> from mofa_model.spec import Device, Link
    >>> gpu = Device(name="any", peak_bf16=1e15, memory=80e9, memory_bandwidth=3e12)
    >>> fast, slow = Link(bandwidth=450e9), Link(bandwidth=25e9, latency=5e-6)
    >>> nodes = Cluster(device=gpu, gpus=64, scale_up=fast, scale_out=slow)
    >>> bool(hop_latency(nodes, 16, 1) > hop_latency(nodes, 8, 1))
    True
    """
    links = cluster.calibration.links
    return np.where(
        group * stride <= cluster.domain,
        cluster.scale_up.latency + links.scale_up_hop,
        cluster.scale_out.latency + links.scale_out_hop,
    )


def all_gather_time(cluster: Cluster, size: Bytes, group: Count, stride: Count) -> Seconds:
    """Ring all-gather of `size` bytes in total, or a reduce-scatter, which is one run backwards:
    Eq. (2) as (g - 1) hops of size / g after a start; inside a domain as measured, where it was;
    nothing for g = 1. [s]

    >>> from mofa_model.spec import Device, Link
    >>> gpu = Device(name="any", peak_bf16=1e15, memory=80e9, memory_bandwidth=3e12)
    >>> fast, slow = Link(bandwidth=450e9), Link(bandwidth=25e9)
    >>> nodes = Cluster(device=gpu, gpus=64, scale_up=fast, scale_out=slow)
    >>> round(float(all_gather_time(nodes, 8e9, 8, 1)) * 1e3, 1)
    22.3
    """
    kernels, start = cluster.calibration.kernels, cluster.calibration.links.collective
    hop, bandwidth = hop_latency(cluster, group, stride), ring_bandwidth(cluster, group, stride)
    time = start + (group - 1.0) * hop + (group - 1.0) / group * size / bandwidth
    if kernels is not None and kernels.gather is not None and anything(group > 1):
        is_inside = np.asarray(group * stride <= cluster.domain)
        time = np.where(is_inside, kernels.gather.seconds(size, group), time)
    return np.where(np.asarray(group) > 1, time, 0.0)


def point_to_point_time(size: Bytes, bandwidth: BytesPerSecond, latency: Seconds) -> Seconds:
    """One pipeline hop, Eq. (2): latency plus bytes over bandwidth. [s]

    >>> round(point_to_point_time(1e8, 50e9, 3e-4) * 1e3, 2)
    2.3
    """
    return latency + size / bandwidth


def nodes_hit(nodes: Count, top_k: Count, limit: Count) -> Count:
    """Distinct nodes that the experts of a token lie on, expected. Source: n (1 - (1 - 1/n)^k) for
    k draws. [1]

    >>> round(float(nodes_hit(8.0, 8, 0)), 2)
    5.25
    """
    n = np.maximum(nodes, 1.0)
    hit = n * (1.0 - np.power(1.0 - 1.0 / n, top_k))
    return np.where(np.asarray(limit) > 0, np.minimum(hit, np.maximum(limit, 1.0)), hit)


def all_to_all_time(
    size: Bytes,
    group: Count,
    copies: Count,
    limit: Count,
    *,
    domains: Count,
    up: BytesPerSecond,
    out: BytesPerSecond,
) -> Seconds:
    """Dispatch or combine of `copies` copies of `size` bytes each over a group of experts. Source:
    DeepSeek-V3's scheme. [s]

    Inside a domain every copy crosses the scale-up link. Between domains a token is sent once to
    each domain that it needs, over the device's own NIC, and spreads inside meanwhile; the slower
    of the two decides.

    >>> round(float(all_to_all_time(1e8, 8, 8, 0, domains=1.0, up=200e9, out=40e9)) * 1e3, 2)
    3.5
    """
    within = copies * size * (group - 1.0) / group / up
    d = np.maximum(domains, 1.0)
    between = nodes_hit(d, copies, limit) * size * (d - 1.0) / d / out
    return np.maximum(within, between)
