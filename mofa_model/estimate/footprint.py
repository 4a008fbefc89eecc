"""Memory of a layout: every named term on every kind of stage, and on the host of a node.

    footprint(workload, cluster, strategy, stages) -> Footprint     terms of shape [K, ...], K kinds of stages
    footprint(…).peak                                               bytes of the fullest stage
    footprint(…).fits(cluster)                                      True where device and host have room

Where one device holds the stages of two directions (DualPipe), it holds the parameters of both.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mofa_model.estimate.live import live
from mofa_model.estimate.resident import resident
from mofa_model.placement import Stages
from mofa_model.spec import Cluster, Workload
from mofa_model.strategy import Strategy
from mofa_model.units import Bytes, Ratio


@dataclass(frozen=True, kw_only=True, slots=True)
class Footprint:
    """Memory per device; each term broadcasts to kinds of stages [K, ...]. [B]"""

    weights: Bytes
    """Weights, Eq. (4)."""
    gradients: Bytes
    """Accumulated gradients, Eq. (4)."""
    optimizer: Bytes
    """Master weights and moments, Eqs. (25), (27)."""
    buffers: Bytes
    """Buffers of collectives: gradient buckets, gathered parameters, gathered layer inputs."""
    reserve: Bytes
    """What the stack holds before the first layer, M_0 of Eq. (6)."""
    activations: Bytes
    """Activations of the micro-batches in flight, Eqs. (5), (29), (31), (33)."""
    backward: Bytes
    """What the backward pass of one layer makes anew, recomputed activations included."""
    logits: Bytes
    """Head and loss: input, logits and their copies, gradient of the head's weights."""
    update: Bytes
    """Workspace of the optimizer update."""
    fragmentation: Bytes
    """Reserved by the allocator beyond what is allocated."""
    host: Bytes
    """Host memory of a node, [...]: optimizer states and activations that wait there."""
    usable: Ratio
    """Share of the device memory that the stack can reserve. [1]"""

    @property
    def static(self) -> Bytes:
        """What is there between two steps, [K, ...]. [B]"""
        return self.weights + self.gradients + self.optimizer + (self.buffers + self.reserve)

    @property
    def total(self) -> Bytes:
        """Peak of every kind of stage, [K, ...]. [B]"""
        return (
            self.static + self.update + (self.activations + self.backward + self.logits + self.fragmentation)
        )

    @property
    def peak(self) -> Bytes:
        """Peak of the fullest stage, Eq. (6). [B]"""
        peak: Bytes = np.max(self.total, axis=0)
        return peak

    @property
    def first_stage(self) -> Bytes:
        """Peak of rank 0, which some trainers report. [B]"""
        first: Bytes = np.asarray(self.total)[0]
        return first

    @property
    def static_first_stage(self) -> Bytes:
        """What rank 0 still has allocated when a step is over. [B]"""
        first: Bytes = np.asarray(self.static)[0]
        return first

    def fits(self, cluster: Cluster) -> NDArray[np.bool_] | np.bool_:
        """True where the fullest device and the host have room."""
        room = cluster.device.memory * (self.usable * (1.0 - cluster.reserve))
        return np.less_equal(self.peak, room) & np.less_equal(self.host, host_room(cluster))


def footprint(workload: Workload, cluster: Cluster, strategy: Strategy, stages: Stages) -> Footprint:
    """Every memory term of a layout, or of a family of them."""
    stays = resident(workload, cluster, strategy, stages)
    moves = live(workload, cluster, strategy, stages)
    return Footprint(
        weights=stays.weights,
        gradients=stays.gradients,
        optimizer=stays.optimizer,
        buffers=stays.buffers,
        reserve=stays.reserve,
        activations=moves.activations,
        backward=moves.backward,
        logits=moves.logits,
        update=stays.update,
        fragmentation=moves.fragmentation,
        host=host_bytes(cluster, stays.parked, moves.parked),
        usable=cluster.calibration.memory.usable,
    )


def host_bytes(cluster: Cluster, states: Bytes, activations: Bytes) -> Bytes:
    """Host memory of the fullest node, from what one device of each kind of stage parks there. [B]"""
    host = activations * cluster.gpus_per_node + states * cluster.gpus_per_node
    return np.max(host, axis=0) if np.ndim(host) else host


def host_room(cluster: Cluster) -> Bytes:
    """Main memory of a node that its devices may fill. [B]"""
    return cluster.host.memory * (1.0 - cluster.host.reserve)


def room(cluster: Cluster) -> Bytes:
    """Device memory that a strategy may take. [B]"""
    return cluster.device.memory * (cluster.calibration.memory.usable * (1.0 - cluster.reserve))
