"""What V-shaped schedules share: the model goes down the devices and comes back, two virtual stages each.

Device i runs virtual stages i and 2 p - 1 - i, so the first one holds embedding and head, and at the bottom nothing is sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from mofa_model.schedules.schedule import Flow, Schedule
from mofa_model.units import Count, Seconds


class ChunkTimes(NamedTuple):
    """Times of one virtual stage, of the mean device beside the slowest one; a hop that blocks is part of the work. [s]"""

    forward: Seconds
    input_gradient: Seconds
    weight_gradient: Seconds
    hop: Seconds


@dataclass(frozen=True)
class Folded(Schedule):
    """A schedule of two virtual stages a device, in the shape of a V."""

    folded: ClassVar[bool] = True

    def virtual_stages(self, layers: int) -> tuple[int, ...]:
        """Two, whatever the layers."""
        del layers
        return (2,)


def pieces(flow: Flow) -> tuple[Seconds, ChunkTimes]:
    """Time of a micro-batch on the slowest device, and that of a virtual stage elsewhere; blocking hops included."""
    mean = (flow.total - flow.slowest) / np.maximum(flow.stages - 1, 1) / 2.0
    F, W = flow.forward * mean, flow.weight * mean
    I = mean - F - W
    if not flow.blocking:
        return flow.slowest, ChunkTimes(F, I, W, flow.hop)
    tau = np.where(flow.stages > 1, flow.hop, 0.0)
    return flow.slowest + 4.0 * tau, ChunkTimes(F + tau, I + tau, W, 0.0 * tau)


def way(piece: ChunkTimes, *counts: Count) -> Seconds:
    """Time of a way through the order that has so many forwards, input gradients, weight gradients and hops. [s]"""
    F, I, W, tau = piece
    f, i, w, hops = counts
    return f * F + i * I + w * W + hops * tau
