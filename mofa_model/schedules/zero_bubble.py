"""ZB-H1 (Qi et al., 2024): weight gradients are put off, so that they fill what was the bubble.

Device i runs virtual stage i. Only input gradients wait for each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

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
class ZeroBubble(Schedule):
    """1F1B with weight gradients put off by i micro-batches on device i.

    The activations that wait for them take the room that 1F1B leaves free on device i, so every
    device holds as much as the first one.
    """

    value: ClassVar[str] = "zero-bubble"

    def order(self, p: int, m: int, v: int = 1) -> Order:
        """Forwards, input gradients, and the weight gradients i micro-batches later."""
        at_least_one(stages=p, microbatches=m)
        self.own_virtual_stages(v)
        return tuple(tuple(_steps(i, p, m)) for i in range(p))

    def in_flight(
        self, *, position: Count, microbatches: Count, stages: Count, virtual: Count = 1.0
    ) -> Count:
        """Chunks of every stage, Ours: min(m, p), since inputs wait for their weight gradients. [1]

        >>> float(ZeroBubble().in_flight(position=1, microbatches=32, stages=8))
        8.0
        """
        del virtual
        return np.minimum(microbatches, stages) + 0 * position  # takes the shape of the positions

    def time(self, flow: Flow) -> Seconds:
        """Time of ZB-H1, Ours (Qi et al. give the first of three paths, for F = I = W). [s]

        For m > p: m C + (p - 1) max(F + I - W + 4 tau, F + 3 tau, I + 2 tau), and further round
        trips where 2 tau > W; exact up to there, and near it beyond. Blocking: each forward and
        each input gradient carries its hop, which is an upper bound, since the ends send one way.

        >>> flow = Flow(slowest=3.0, total=12.0, microbatches=8.0, stages=4.0)
        >>> round(float(ZeroBubble().time(flow)), 9)
        27.0
        """
        C, S, m, p, tau = flow.slowest, flow.total, flow.microbatches, flow.stages, flow.hop
        f, w = flow.forward, flow.weight
        others = np.maximum(p - 1, 1)
        mean = (S - C) / others
        F, W = f * mean, w * mean
        I = mean - F - W
        if flow.blocking:
            sends = np.where(p > 1, tau, 0.0)
            C, F, I, tau = C + 2 * sends, F + sends, I + sends, 0.0 * tau
        n, k = p - 1, np.minimum(m - 1, p - 1)
        down = 2 * n + 2 * np.minimum(np.maximum(m - 2, 0), n)
        across = np.where(m > p, 3 * n, m + 2 * p - 5)
        again = np.maximum(0.0, (m - p) - np.ceil((m - 1) / p)) * np.maximum(0.0, 2 * tau - W)
        by_both = n * (F + I) - k * W + down * tau + again
        by_forward = n * F + (n - k) * I + across * tau
        by_input = (n - k) * F + n * I + 2 * n * tau
        bubble = np.maximum(np.maximum(by_both, by_forward), by_input)
        return m * C + np.where(p > 1, bubble, 0.0)

    def fill(self, flow: Flow) -> Seconds:
        """The second of the three paths without hops: the forwards of the others, Ours. [s]"""
        return flow.forward * (flow.total - flow.slowest)


def _steps(i: int, p: int, m: int) -> Iterator[Step]:
    ahead = p - i - 1
    for turn in range(m + p - 1):
        if turn < m:
            yield (Operation(OperationKind.FORWARD, i, turn),)
        if 0 <= turn - ahead < m:
            yield (Operation(OperationKind.INPUT_GRADIENT, i, turn - ahead),)
        if turn - ahead - i >= 0:
            yield (Operation(OperationKind.WEIGHT_GRADIENT, i, turn - ahead - i),)


ZERO_BUBBLE = ZeroBubble()
