"""The terms of an estimate: of a layer's time and of memory, each with its equation and its
meaning.

A term is a field that says of itself what tables and JSON print beside its value. The terms of a
step stand in `step`.
"""

from __future__ import annotations

from dataclasses import MISSING, Field, field, fields
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mofa_model.checks import anything
from mofa_model.equations.memory import excess
from mofa_model.records import dataclass
from mofa_model.spec import Cluster
from mofa_model.units import Bytes, Count, Ratio, Seconds


def term(equation: str, meaning: str, *, default: Any = MISSING, **more: Any) -> Any:
    """A dataclass field that is a term, with its equation and meaning for tables."""
    return field(default=default, metadata={"equation": equation, "meaning": meaning, **more})


def terms_of(record: type) -> tuple[Field[Any], ...]:
    """The terms of a record, in the order in which tables print them."""
    return tuple(item for item in fields(record) if "meaning" in item.metadata)


@dataclass(frozen=True, kw_only=True)
class LayerTime:
    """One layer and one micro-batch on one device. Terms are forward times unless they say
    otherwise. [s]

    A search states the four sums alone, which are all that a stage needs.
    """

    linear: Seconds = term("(1) (19)", "matrix products with weights", default=0.0)
    attention: Seconds = term("(1)", "scores, softmax, weighted values", default=0.0)
    elementwise: Seconds = term("(19)", "norms, residuals, activations, routing", default=0.0)
    tensor: Seconds = term("(20)", "exposed tensor-parallel collectives", default=0.0)
    context: Seconds = term("(21)", "exposed context-parallel messages", default=0.0)
    expert: Seconds = term("(22)", "exposed dispatch and combine", default=0.0)
    offload: Seconds = term("(34)", "exposed way of activations to the host", default=0.0)
    forward: Seconds = term("(7)", "the whole forward pass")
    backward: Seconds = term("(8) (35)", "the whole backward pass")
    recompute: Seconds = term("(30) (32)", "forward work done again")
    communication: Seconds = term("(2) (3)", "all collectives, exposed or not", default=0.0)
    weight: Seconds
    """Part of the backward pass that computes weight gradients, which some schedules postpone."""

    @property
    def sums(self) -> LayerTime:
        """The four sums alone. [s]"""
        return LayerTime(
            forward=self.forward,
            backward=self.backward,
            recompute=self.recompute,
            weight=self.weight,
        )


@dataclass(frozen=True, kw_only=True)
class Footprint:
    """Memory per device. Terms broadcast to kinds of stages [K, ...]. [B]

    `model_states` makes the terms marked `states`, and `activation_memory` the others.
    """

    weights: Bytes = term("(4)", "weights", default=0.0, states=True)
    gradients: Bytes = term("(4)", "accumulated gradients", default=0.0, states=True)
    optimizer: Bytes = term("(25) (27)", "master weights and moments", default=0.0, states=True)
    buffers: Bytes = term(
        "ours",
        "buckets, gathered parameters and inputs, workspaces of products",
        default=0.0,
        states=True,
    )
    reserve: Bytes = term(
        "(6)", "what the stack holds before the first layer", default=0.0, states=True
    )
    activations: Bytes = term("(5) (29) (31) (33)", "micro-batches in flight", default=0.0)
    backward: Bytes = term(
        "(31)", "what the backward pass of a layer makes anew above the loss", default=0.0
    )
    logits: Bytes = term("Table 2", "head and loss", default=0.0)
    update: Bytes = term(
        "ours", "what the optimizer's update takes beyond activations", default=0.0, states=True
    )
    fragmentation: Bytes = term("ours", "reserved beyond what is allocated", default=0.0)
    graphs: Bytes = term("ours", "held by CUDA graphs", default=0.0)
    host_states: Bytes = 0.0
    """Weights and optimizer states of one device in the host."""
    host_activations: Bytes = 0.0
    """Activations of one device in the host."""
    host: Bytes = 0.0
    """Host memory of the fullest node, [...]."""
    gather: Bytes = 0.0
    """Memory that is held only while no activations are: gathered weights, temporaries of the
    update and fresh gradients. `update` and `gradients` count the part of it that exceeds the
    activations; while these are not known, `update` counts all of it. [K, ...]"""
    fresh: Bytes = 0.0
    """Gradients that grow as activations are freed; the last backward pass holds them all.
    [K, ...]"""
    ending: Bytes = 0.0
    """What the last backward pass needs beside the fresh gradients. [K, ...]"""
    position: Count = 0.0
    """Index of each kind's first stage: the last of the kinds has the largest, [K, ...]. [1]"""

    @property
    def static(self) -> Bytes:
        """Memory that is held the whole time, [K, ...]. [B]"""
        return self.weights + self.gradients + self.optimizer + (self.buffers + self.reserve)

    @property
    def moving(self) -> Bytes:
        """Memory of micro-batches, which is gone between two steps, [K, ...]. [B]"""
        moving: Bytes = reduce(add, [getattr(self, name) for name in _MOVING])
        return moving

    @property
    def total(self) -> Bytes:
        """Peak of every kind of stage, [K, ...]. [B]"""
        moving = self.moving
        total: Bytes = self.static + self.update
        # A search asks for the states of thousands of rows alone: it is spared a pass over them.
        return total + moving if np.ndim(moving) or moving else total

    @property
    def above(self) -> Bytes:
        """The part of what is held while no activations are that exceeds them, [K, ...]. [B]"""
        if not anything(self.gather):
            return 0.0
        return excess(np.maximum(self.gather, self.fresh + self.ending), self.moving)

    @property
    def states(self) -> Bytes:
        """Weights, gradients and optimizer states of the stage that has most of them. [B]"""
        states: Bytes = np.max(self.weights + self.gradients + self.optimizer, axis=0)
        return states

    @property
    def counted_memory(self) -> Bytes:
        """Memory that is counted, not estimated: states, buffers and update of the stage with most.
        [B]
        """
        counted: Bytes = np.max(self.static - self.reserve + self.update - self.above, axis=0)
        return counted

    @property
    def estimated(self) -> Ratio:
        """Share of the fullest stage's memory that is estimated, not counted. [1]"""
        share: Ratio = np.maximum(1.0 - self.counted_memory / self.peak, 0.0)
        return share

    @property
    def activation_peak(self) -> Bytes:
        """The largest activation memory of any stage, recomputed activations included. [B]"""
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
        """Memory that rank 0 still has allocated when a step is over. [B]"""
        first: Bytes = np.asarray(self.static + self.gather)[0]
        return first

    @property
    def allocated(self) -> Bytes:
        """Peak of the last stage as its allocator counts it: without the reserve and fragmentation.
        [B]
        """
        return self._on_last(self.total - self.reserve - self.fragmentation)

    @property
    def static_allocated(self) -> Bytes:
        """What the last stage's allocator counts between two steps, with the update. [B]"""
        return self._on_last(self.static + self.update - self.above + self.gather - self.reserve)

    def _on_last(self, memory: Bytes) -> Bytes:
        position = np.expand_dims(np.argmax(self.position, axis=0), 0)
        last_stage: Bytes = np.take_along_axis(np.asarray(memory), position, axis=0)[0]
        return last_stage

    def fits(self, cluster: Cluster) -> NDArray[np.bool_] | np.bool_:
        """True where device memory suffices, and host memory too if it is stated."""
        device_fits = np.less_equal(self.peak, device_memory_limit(cluster))
        if not cluster.host.stated:
            return device_fits
        return device_fits & np.less_equal(self.host, host_memory_limit(cluster))


_MOVING = tuple(item.name for item in terms_of(Footprint) if not item.metadata.get("states"))


def device_memory_limit(cluster: Cluster) -> Bytes:
    """Device memory that a strategy may take. [B]"""
    return cluster.device.memory * (cluster.calibration.memory.usable * (1.0 - cluster.reserve))


def host_memory_limit(cluster: Cluster) -> Bytes:
    """Main memory of a node that its devices may fill. [B]"""
    return cluster.host.memory * (1.0 - cluster.host.reserve)
