"""DualPipeV (DeepSeek, 2025): DualPipe cut in half and folded; a device holds one copy of weights.

On p devices it is DualPipe on 2 p with twice the micro-batches, seen from its first half: what
DualPipe's mirrored device does with the other half of the micro-batches, a device does here with
its second virtual stage.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from mofa_model.errors import BadValue
from mofa_model.records import dataclass
from mofa_model.schedules.dualpipe import from_both_ends
from mofa_model.schedules.schedule import Flow, Folded, Order, at_least_one, folded_times
from mofa_model.units import Count, Seconds


@dataclass(frozen=True)
class DualPipeV(Folded):
    """Forwards of one virtual stage paired with backwards of the other."""

    value: ClassVar[str] = "dualpipev"

    def order(self, p: int, m: int, v: int = 2) -> Order:
        """The first half of DualPipe's devices; the other end's micro-batches come back."""
        at_least_one(stages=p, microbatches=m)
        self.own_virtual_stages(v)
        if m < 2 * p:
            raise BadValue("microbatches", m, f"DualPipeV needs at least {2 * p} for {p} stages")
        return tuple(
            tuple(tuple(o._replace(microbatch=o.microbatch % m) for o in step) for step in steps)
            for steps in (from_both_ends(i, 2 * p, 2 * m) for i in range(p))
        )

    def in_flight(
        self, *, position: Count, microbatches: Count, stages: Count, virtual: Count = 2.0
    ) -> Count:
        """Chunks of every device, Source: DeepSeek's DualPipe, README: PP + 1, with PP = 2 p. [1]

        >>> float(DualPipeV().in_flight(position=1, microbatches=32, stages=8))
        17.0
        """
        del microbatches, virtual
        return 2.0 * stages + 1 + 0 * position  # takes the shape of the positions

    def time(self, flow: Flow) -> Seconds:
        """Time of DualPipeV, Ours: DualPipe on 2 p devices, whose halves meet without a hop. [s]

        F, I, W, C = F + I + W and X = x C for a pair are those of one virtual stage, q = p - 1.
        Published is the bubble q (X + B - 3 W), of a middle device, where F = I >= W and B = I + W.
        Exact while a hop takes at most half of F, I and W and a pair half a hop more than its
        backward. Blocking: an upper bound, as for ZBV. It takes m >= 2 p.

        >>> flow = Flow(slowest=3.0, total=12.0, microbatches=8.0, stages=4.0, virtual=2.0)
        >>> round(float(DualPipeV().time(flow)), 9)
        27.0
        """
        slowest, F, I, W, tau = folded_times(flow)
        m, p, q = flow.microbatches, flow.stages, flow.stages - 1
        sent = slowest - flow.slowest
        paired = (flow.pair * flow.slowest + sent) / 2.0
        X = flow.pair * (F + I + W - sent / 2.0) + sent / 2.0
        drain = np.maximum((q + 1) * F, q * (I + 2 * tau))
        drain = np.maximum(
            drain, np.where(np.mod(m - 2, p) == 0, F + (q - 1) * I + 2 * q * tau, 0.0)
        )
        hops = np.where(p > 1, p - 5 + 2 * m - 2 * np.floor((m - 2) / p), 0.0) * tau
        bubble = q * (X - I - 2 * W + np.maximum(I + tau, W)) + drain - F
        return (2 * p + 1) * (slowest / 2.0) + (2 * m - 2 * p - 1) * paired + bubble + hops

    def fill(self, flow: Flow) -> Seconds:
        """Forward time of the other devices, which every step pays. Ours. [s]

        0 where an overlapped pair is faster than its halves, because nothing is proved there.
        """
        return np.where(flow.pair < 1, 0.0, flow.forward * (flow.total - flow.slowest))

    def possible(self, *, microbatches: Count, stages: Count) -> Any:
        """Whether there are at least two micro-batches a stage."""
        return np.asarray(microbatches) >= 2 * np.asarray(stages)


DUALPIPE_V = DualPipeV()
