"""The machines: device, links, host, the constants measured on them; and a job's part of the nodes.

    places(gpus, per_node, pod)      the nodes that a job needs, and its devices on each
    part_of(cluster, devices, pod)   the machines as a job with a part of each node sees them

Host memory and processors of a node are shared out evenly among its devices. A device keeps its own
NICs and links. Nodes fail as a whole, whatever part of them the job has.
"""

from __future__ import annotations

import math
from dataclasses import field, replace
from functools import cached_property

from mofa_model.checks import LATER, array_axes, field_names, not_negative, positive, share, whole
from mofa_model.errors import BadValue
from mofa_model.records import dataclass
from mofa_model.spec.calibration import Calibration
from mofa_model.units import Bytes, BytesPerSecond, FlopPerSecond, Numeric, Seconds


@dataclass(frozen=True, kw_only=True)
class Device:
    """One accelerator, by its data sheet."""

    name: str
    """Preset id, for example h100-80gb-sxm."""
    peak_bf16: FlopPerSecond
    """Dense BF16 and FP16 peak. [FLOP/s]"""
    peak_fp8: FlopPerSecond = 0.0
    """Dense FP8 peak; 0 = not supported. [FLOP/s]"""
    peak_fp4: FlopPerSecond = 0.0
    """Dense FP4 peak; 0 = not supported. [FLOP/s]"""
    memory: Bytes
    """Device memory that a process can have. [B]"""
    memory_bandwidth: BytesPerSecond
    """HBM bandwidth. [B/s]"""

    def __post_init__(self) -> None:
        positive(
            peak_bf16=self.peak_bf16, memory=self.memory, memory_bandwidth=self.memory_bandwidth
        )
        not_negative(peak_fp8=self.peak_fp8, peak_fp4=self.peak_fp4)

    def peak_rate(self, gemm: str) -> FlopPerSecond:
        """Peak of the matrix units in a format; a format without one is an input error. [FLOP/s]

        fp32 runs as TF32, at half the bf16 rate on every device here (data sheets of A100, H100,
        B200, MI300X).
        """
        peak: FlopPerSecond = {
            "bf16": self.peak_bf16,
            "fp8": self.peak_fp8,
            "fp4": self.peak_fp4,
            "fp32": 0.5 * self.peak_bf16,
        }[gemm]
        try:
            positive(peak=peak)
        except BadValue:
            raise BadValue("precision", gemm, f"{self.name} has no {gemm} matrix units") from None
        return peak


@dataclass(frozen=True, kw_only=True)
class Link:
    """A way out of a device: per device and direction."""

    bandwidth: BytesPerSecond
    """Data-sheet bandwidth of one device's port, one direction. [B/s]"""
    latency: Seconds = 0.0
    """Time of a hop with no payload. [s]"""

    def __post_init__(self) -> None:
        positive(bandwidth=self.bandwidth)
        not_negative(latency=self.latency)


@dataclass(frozen=True, kw_only=True)
class Host:
    """The node around the devices: what offloading can use."""

    memory: Bytes = 1024.0 * 2**30
    """Main memory of a node. [B]"""
    stated: bool = field(default=True, metadata=LATER)
    """Whether somebody said it; else it is that of the usual machine, and refuses nothing."""
    reserve: Numeric = 0.2
    """Share of it that what devices park leaves free. Ours: what is parked is pinned and can never
    be paged out, and beside it live the system and its agents (GKE withholds 3 % of 1 TiB), data
    loaders with the page cache of what they read, and the copy that an asynchronous checkpoint
    writes behind (14 B a parameter: 8 % of 1 TiB for 405B on 64 nodes)."""
    link: Link = field(default_factory=lambda: Link(bandwidth=31e9))
    """PCIe or C2C between one device and the host, one direction. [B/s]"""

    optimizer_rate: Numeric = 8.1e10
    """Parameters that the processors of a node update in a second. [1/s]"""

    def __post_init__(self) -> None:
        positive(host_memory=self.memory, optimizer_rate=self.optimizer_rate)
        share(host_reserve=self.reserve)


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """`gpus` equal devices in nodes, in scale-up domains, on a fabric."""

    device: Device
    """The accelerator."""
    gpus: Numeric
    """Devices in the job."""
    gpus_per_node: Numeric = 8
    """Devices that share a host; also the unit in which failures are counted."""
    domain: Numeric = 8
    """Devices that reach each other over the scale-up link: 8 for HGX, 72 for NVL72."""
    scale_up: Link
    """NVLink and its kin."""
    scale_out: Link
    """The fabric between nodes, as one device's own share of the node's NICs."""
    spine_nodes: Numeric = 0
    """Nodes below one leaf group; 0 = the fabric does not thin out."""
    oversubscription: Numeric = 1.0
    """How much thinner the fabric is above a leaf group, at least 1."""
    in_network_reduction: bool = False
    """True where switches add up all-reduces (SHARP): half the bytes per device."""
    host: Host = field(default_factory=Host)
    """The node around the devices."""
    reserve: Numeric = 0.0
    """Share of device memory to leave free."""
    calibration: Calibration = field(default_factory=Calibration)
    """Constants measured on this device, precision and software stack."""

    def __post_init__(self) -> None:
        whole(gpus=self.gpus, gpus_per_node=self.gpus_per_node, domain=self.domain)
        not_negative(spine_nodes=self.spine_nodes)
        share(reserve=self.reserve)
        positive(oversubscription=self.oversubscription)

    @cached_property
    def axes(self) -> int:
        """1 where some number of it is an array, else 0."""
        return array_axes(*(getattr(self, name) for name in field_names(Cluster)))


def places(gpus: int, per_node: int, gpus_per_pod: int = 0) -> tuple[int, int] | None:
    """The fewest nodes that hold a job in equal parts, and its devices on each; None where no
    number of nodes does.

    `gpus_per_pod` is the number of devices of a pod; 0 = it is unknown, and whole nodes are filled.

    >>> places(64, 8), places(4, 8), places(12, 8)
    ((8, 8), (1, 4), None)
    >>> places(12, 8, gpus_per_pod=4), places(32, 8, gpus_per_pod=4)
    ((3, 4), (4, 8))
    >>> places(24, 8, gpus_per_pod=3)
    (4, 6)
    """
    if gpus <= per_node:
        return 1, gpus
    if not 0 < gpus_per_pod <= per_node:  # a pod that spans nodes has whole ones
        return None if gpus % per_node else (gpus // per_node, per_node)
    pods = gpus // gpus_per_pod
    pods_per_node = max(
        count for count in range(1, per_node // gpus_per_pod + 1) if pods % count == 0
    )
    return pods // pods_per_node, gpus_per_pod * pods_per_node


def part_of(cluster: Cluster, devices: int, gpus_per_pod: int = 0) -> Cluster:
    """The machines as a job sees them that has so many devices of each node, in pods of
    `gpus_per_pod` devices (0 = one pod). []

    Within a node, NVLink does not reach from pod to pod, because NCCL takes two containers for two
    hosts; a rack-wide domain does. Source: NCCL's issues 324, 797 and 1781. That memory and
    processors are shared out evenly is ours.

    >>> gpu = Device(name="any", peak_bf16=1e15, memory=80e9, memory_bandwidth=3e12)
    >>> fast, slow = Link(bandwidth=450e9), Link(bandwidth=25e9)
    >>> nodes = Cluster(device=gpu, gpus=8, scale_up=fast, scale_out=slow)
    >>> half = part_of(nodes, 4)
    >>> half.domain, half.host.memory / nodes.host.memory, part_of(nodes, 8, gpus_per_pod=1).domain
    (4, 0.5, 1)
    """
    node_devices = int(cluster.gpus_per_node)
    if devices == node_devices and (gpus_per_pod == 0 or gpus_per_pod >= node_devices):
        return cluster
    share = devices / node_devices
    if cluster.domain > node_devices:
        domain = max(1, math.floor(cluster.domain * share))
    else:
        domain = min(int(cluster.domain), gpus_per_pod or devices, devices)
    host = replace(
        cluster.host,
        memory=cluster.host.memory * share,
        optimizer_rate=cluster.host.optimizer_rate * share,
    )
    return replace(cluster, gpus_per_node=devices, domain=domain, host=host)
