"""DualPipe (DeepSeek-V3, 2024, with its published code): micro-batches enter from both ends.

Forwards of one direction are paired with backwards of the other.

Device i runs virtual stage i for the first half of the micro-batches and p - 1 - i for the second
half, which enters at the other end; it holds the weights of both.
"""

from __future__ import annotations

from collections import deque
from typing import Any, ClassVar

import numpy as np

from mofa_model.errors import BadValue
from mofa_model.records import dataclass
from mofa_model.schedules.schedule import (
    Flow,
    Operation,
    OperationKind,
    Order,
    Schedule,
    Step,
    at_least_one,
)
from mofa_model.units import Count, Seconds


@dataclass(frozen=True)
class DualPipe(Schedule):
    """Two streams of micro-batches in opposite directions."""

    value: ClassVar[str] = "dualpipe"
    both_ends: ClassVar[bool] = True

    def order(self, p: int, m: int, v: int = 1) -> Order:
        """The steps of each of p stages for m micro-batches; half of them enter at each end.

        p and m have to be even, with m >= 2 p.
        """
        at_least_one(stages=p, microbatches=m)
        self.own_virtual_stages(v)
        if p % 2:
            raise BadValue("stages", p, "DualPipe needs an even number of stages")
        if m % 2 or m < 2 * p:
            raise BadValue(
                "microbatches", m, f"DualPipe needs an even number, at least {2 * p} for {p} stages"
            )
        return tuple(tuple(from_both_ends(i, p, m)) for i in range(p))

    def in_flight(
        self, *, position: Count, microbatches: Count, stages: Count, virtual: Count = 1.0
    ) -> Count:
        """Chunks that every stage holds, Source: DeepSeek-V3, Table 2: p + 1. [1]

        >>> float(DualPipe().in_flight(position=1, microbatches=32, stages=8))
        9.0
        """
        del microbatches, virtual
        return stages + 1 + 0 * position  # takes the shape of the positions

    def time(self, flow: Flow) -> Seconds:
        """Time of DualPipe, Ours (DeepSeek-V3's bubble is the case F = I >= W, tau = 0). [s]

        With q = p/2 - 1 and X = x C for a pair: (p + 1) C + (m - p - 1) X on the middle devices,
        and the bubble q (X - I - 2 W + max(I + tau, W)) + max((q + 1) F, q (I + tau)) - F; the
        published q (X + B - 3 W) when F = I >= W, B = I + W. Exact while a pair takes at least as
        long as either half, and a hop at most half of F, I and W. Blocking: an upper bound, as for
        ZB-H1. It takes m >= 2 p, as the order does.

        >>> flow = Flow(slowest=3.0, total=12.0, microbatches=8.0, stages=4.0)
        >>> round(float(DualPipe().time(flow)), 9)
        26.0
        """
        C, S, m, p, tau = flow.slowest, flow.total, flow.microbatches, flow.stages, flow.hop
        f, w, x = flow.forward, flow.weight, flow.pair
        mean = (S - C) / np.maximum(p - 1, 1)
        F, W, X = f * mean, w * mean, x * mean
        I = mean - F - W
        single, paired = C, x * C
        if flow.blocking:
            F, I, X, single, paired = F + tau, I + tau, X + 2 * tau, C + 2 * tau, paired + 2 * tau
            tau = 0.0 * tau
        q = p / 2 - 1
        hops = (m + p - 3 - np.floor((m - 4) / p)) * tau
        bubble = (
            q * (X - I - 2 * W + np.maximum(I + tau, W))
            + np.maximum((q + 1) * F, q * (I + tau))
            - F
        )
        return (p + 1) * single + (m - p - 1) * paired + bubble + hops

    def fill(self, flow: Flow) -> Seconds:
        """Forward time of the other devices, going in and out, which every step pays. Ours. [s]

        0 where an overlapped pair is faster than its halves, because nothing is proved there.
        """
        others = (flow.stages - 2) / np.maximum(flow.stages - 1, 1)
        return np.where(flow.pair < 1, 0.0, others * flow.forward * (flow.total - flow.slowest))

    def possible(self, *, microbatches: Count, stages: Count) -> Any:
        """Whether both numbers are even, and there are at least two micro-batches a stage."""
        m, p = microbatches, stages
        return (np.mod(p, 2) == 0) & (np.mod(m, 2) == 0) & (m >= 2 * p)


def from_both_ends(i: int, p: int, m: int) -> list[Step]:
    """The eight phases of the published schedule; direction 0 enters at this device's end."""
    inside = min(i, p - 1 - i)
    outside = p // 2 - 1 - inside
    device = _BothEnds(i, p, m)
    for _ in range(2 * outside):
        device.forward(0)
    for _ in range(inside + 1):
        device.forward(0)
        device.forward(1)
    for _ in range(outside):
        device.input_gradient(1)
        device.weight_gradient()
        device.forward(1)
    for turn in range(m // 2 - p + inside + 1):
        if turn == 0 and outside == 0:
            device.forward(0)
            device.backward(1)
        else:
            device.pair(0, 1)
        device.pair(1, 0)
    for _ in range(outside):
        device.backward(1)
        device.pair(1, 0)
    for turn in range(2 * (inside + 1)):
        split = turn > inside
        (device.input_gradient if split else device.backward)(1 - turn % 2)
    for _ in range(outside):
        device.weight_gradient()
        device.input_gradient(0)
    for _ in range(inside + 1):
        device.weight_gradient()
    return device.steps


class _BothEnds:
    """Steps of one device of DualPipe, with counts of each direction and of split backwards."""

    def __init__(self, i: int, p: int, m: int) -> None:
        entering, leaving = (i, range(m // 2)), (p - 1 - i, range(m // 2, m))
        directions = (entering, leaving) if i < p // 2 else (leaving, entering)
        self.steps: list[Step] = []
        self._virtual_stage = [k for k, _ in directions]
        self._forward = [iter(microbatches) for _, microbatches in directions]
        self._backward = [iter(microbatches) for _, microbatches in directions]
        self._weights_due: deque[tuple[int, int]] = deque()

    def _next_forward(self, d: int) -> Operation:
        return Operation(OperationKind.FORWARD, self._virtual_stage[d], next(self._forward[d]))

    def _next_backward(self, d: int, kind: OperationKind = OperationKind.BACKWARD) -> Operation:
        return Operation(kind, self._virtual_stage[d], next(self._backward[d]))

    def forward(self, d: int) -> None:
        self.steps.append((self._next_forward(d),))

    def backward(self, d: int) -> None:
        self.steps.append((self._next_backward(d),))

    def pair(self, forward: int, backward: int) -> None:
        self.steps.append((self._next_forward(forward), self._next_backward(backward)))

    def input_gradient(self, d: int) -> None:
        operation = self._next_backward(d, OperationKind.INPUT_GRADIENT)
        self._weights_due.append((operation.virtual_stage, operation.microbatch))
        self.steps.append((operation,))

    def weight_gradient(self) -> None:
        self.steps.append((Operation(OperationKind.WEIGHT_GRADIENT, *self._weights_due.popleft()),))


DUALPIPE = DualPipe()
