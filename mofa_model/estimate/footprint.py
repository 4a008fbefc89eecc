"""Memory of a layout: every named term on every kind of stage, and on the host of a node.

    footprint(workload, cluster, strategy, stages) -> Footprint     terms of shape [K, ...], K kinds of stages
    footprint(…).peak                                               bytes of the fullest stage
    footprint(…).fits(cluster)                                      True where device and host have room
    overflow(workload, cluster, strategy)                           probability that a run does not fit after all

Where one device holds the stages of two directions (DualPipe), it holds the parameters of both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.equations import routing
from mofa_model.estimate.live import live
from mofa_model.estimate.resident import resident
from mofa_model.estimate.routing import RISK, exchanges, routed_load
from mofa_model.placement import Stages, axes_of, stages_of
from mofa_model.spec import Cluster, Workload
from mofa_model.spec.imbalance import with_imbalance
from mofa_model.strategy import Strategy
from mofa_model.units import Bytes, Ratio

_NEAR: Final = 1e-6
"""How near the load is found that just fits, of itself. [1]"""


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
    """What the backward pass of one layer makes anew, recomputed activations included, above what the loss held before."""
    logits: Bytes
    """Head and loss: input, logits and their copies, gradient of the head's weights."""
    update: Bytes
    """Workspace of the optimizer update."""
    fragmentation: Bytes
    """Reserved by the allocator beyond what is allocated."""
    graphs: Bytes
    """Held by CUDA graphs and shared with nothing else."""
    host: Bytes
    """Host memory of a node, [...]: optimizer states and activations that wait there."""
    usable: Ratio
    """Share of the device memory that the stack can reserve. [1]"""
    last: NDArray[np.intp]
    """Position of the last stage among the kinds, [...]."""

    @property
    def static(self) -> Bytes:
        """What is there between two steps, [K, ...]. [B]"""
        return self.weights + self.gradients + self.optimizer + (self.buffers + self.reserve)

    @property
    def total(self) -> Bytes:
        """Peak of every kind of stage, [K, ...]. [B]"""
        moving = self.activations + self.backward + self.logits + self.fragmentation + self.graphs
        return self.static + self.update + moving

    @property
    def states(self) -> Bytes:
        """Weights, gradients and optimizer states of the stage that has most of them. [B]"""
        states: Bytes = np.max(self.weights + self.gradients + self.optimizer, axis=0)
        return states

    @property
    def activation_peak(self) -> Bytes:
        """Activations of the stage that has most of them, with those that its backward pass makes anew. [B]"""
        peak: Bytes = np.max(self.activations + self.backward, axis=0)
        return peak

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

    @property
    def allocated(self) -> Bytes:
        """Peak of the last stage as its allocator counts it: without what lies beside the allocator or between tensors. [B]"""
        return self._on_last(self.total - self.reserve - self.fragmentation)

    @property
    def static_allocated(self) -> Bytes:
        """The same between two steps, where what the update made is still there. [B]"""
        return self._on_last(self.static + self.update - self.reserve)

    def _on_last(self, term: Bytes) -> Bytes:
        of_last: Bytes = np.take_along_axis(np.asarray(term), np.expand_dims(self.last, 0), axis=0)[
            0
        ]
        return of_last

    def fits(self, cluster: Cluster) -> NDArray[np.bool_] | np.bool_:
        """True where the fullest device and the host have room."""
        room = cluster.device.memory * (self.usable * (1.0 - cluster.reserve))
        return np.less_equal(self.peak, room) & np.less_equal(self.host, host_room(cluster))


def footprint(
    workload: Workload, cluster: Cluster, strategy: Strategy, stages: Stages
) -> Footprint:
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
        graphs=moves.graphs,
        host=host_bytes(cluster, stays.parked, moves.parked),
        usable=cluster.calibration.memory.usable,
        last=np.argmax(stages.position, axis=0),
    )


def overflow(workload: Workload, cluster: Cluster, strategy: Strategy) -> Ratio:
    """Probability that some layer and micro-batch of a run does not fit the device, by its load on experts. Ours. [1]

    Memory rises with the load at the tail, and one just fits; the largest load of the run may be larger.
    """
    w, model = workload, workload.model
    stages = stages_of(
        model, strategy, cluster.calibration.placement, axes_of(w, cluster, strategy)
    )
    sent = None if model.experts is None else model.experts.exchange()

    def fits(spread: Ratio) -> bool:
        there = (
            w if sent is None else replace(w, model=with_imbalance(model, sent.imbalance, spread))
        )
        return bool(footprint(there, cluster, strategy, stages).peak <= room(cluster))

    if sent is None or not sent.spread or not fits(0.0):
        return 0.0 if fits(0.0) else 1.0
    often, mean = exchanges(w, strategy), routed_load(w, strategy, sent).mean
    largest = routing.largest_load(strategy.ep, sent.count, sent.top_k)
    each = routing.tail_load(0.0, 1.0, often, RISK)  # load that the tail gains with the spread
    least, most = 0.0, float((largest - mean) / each)
    if fits(most):
        return 0.0
    while most - least > _NEAR * most:
        half = 0.5 * (least + most)
        least, most = (half, most) if fits(half) else (least, half)
    return float(routing.overflow_probability(mean, sent.spread, often, mean + least * each))


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
