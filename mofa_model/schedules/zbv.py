"""ZBV (Qi et al., 2024, by hand as in PyTorch): a V with weight gradients put off to the end."""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar

import numpy as np

from mofa_model.errors import BadValue
from mofa_model.records import dataclass
from mofa_model.schedules.schedule import (
    Flow,
    Folded,
    Operation,
    OperationKind,
    Order,
    Step,
    at_least_one,
    folded_times,
    longest,
)
from mofa_model.units import Count, Seconds

_F, _I, _W = OperationKind.FORWARD, OperationKind.INPUT_GRADIENT, OperationKind.WEIGHT_GRADIENT


@dataclass(frozen=True)
class ZeroBubbleV(Folded):
    """No device waits once it has begun, where all three kinds of operations take the same time.

    Every backward is split. Weight gradients follow their input gradients at once, except the last
    i of device i.
    """

    value: ClassVar[str] = "zbv"

    def order(self, p: int, m: int, v: int = 2) -> Order:
        """Warm-up, pairs of passes through both virtual stages, and the last gradients."""
        at_least_one(stages=p, microbatches=m)
        self.own_virtual_stages(v)
        if m < 2 * p - 1:
            raise BadValue("microbatches", m, f"ZBV needs at least {2 * p - 1} for {p} stages")
        return tuple(tuple(_steps(i, p, m)) for i in range(p))

    def in_flight(
        self, *, position: Count, microbatches: Count, stages: Count, virtual: Count = 2.0
    ) -> Count:
        """Chunks of every device, Source: Qi et al., 2024, section 6: 2 p, as 1F1B's first. [1]

        >>> float(ZeroBubbleV().in_flight(position=1, microbatches=32, stages=8))
        16.0
        """
        del microbatches, virtual
        return 2.0 * stages + 0 * position  # takes the shape of the positions

    def time(self, flow: Flow) -> Seconds:
        """Time of ZBV, Ours: m max C and the longest of twelve ways; (p - 1) F where F = I = W. [s]

        F, I and W are those of one virtual stage. Exact while a hop takes at most half of each of
        them, and near it beyond. Blocking: each forward and each input gradient carries its hop,
        which is an upper bound. It takes m >= 2 p - 1.

        >>> flow = Flow(slowest=3.0, total=12.0, microbatches=8.0, stages=4.0, virtual=2.0)
        >>> round(float(ZeroBubbleV().time(flow)), 9)
        25.5
        """
        slowest, *times = folded_times(flow)
        n = flow.stages - 1
        bubble = longest(
            times,
            (2 * n - 1, 1 - n, 0, 3 * n - 2),
            (0, n, 0, 5 * n - 2),
            (n - 1, 1, 0, 5 * n - 2),
            (n, 0, -1, 5 * n),
            (0, 1, n - 1, 3 * n),
            (1, 0, n - 1, 3 * n - 2),
            (2 * n, -n, -1, 3 * n),
            (0, 2 * n, -2 * n, 6 * n - 2),
            (n - 1, n + 1, -2 * n, 6 * n - 2),
            (2 * n - 1, 1, -2 * n, 4 * n - 2),
            (n, n, -2 * n - 1, 6 * n),
            (2 * n, 0, -2 * n - 1, 4 * n),
        )
        return flow.microbatches * slowest + np.where(flow.stages > 1, bubble, 0.0)

    def fill(self, flow: Flow) -> Seconds:
        """Mean of three bounds of the bubble: n F - W, n I, I + (n - 1) W; n = p - 1. Ours. [s]"""
        n = flow.stages - 1
        return np.maximum(n - 2, 0) / 6.0 * (flow.total - flow.slowest) / np.maximum(n, 1)

    def possible(self, *, microbatches: Count, stages: Count) -> Any:
        """Whether every virtual stage but one has a micro-batch: with fewer, its order has gaps."""
        return np.asarray(microbatches) >= 2 * np.asarray(stages) - 1


def _steps(i: int, p: int, m: int) -> list[Step]:
    """The order of device i; `down` and `up` are its two virtual stages."""
    down, up = i, 2 * p - 1 - i
    steps: list[Step] = []
    count: Counter[tuple[OperationKind, int]] = Counter()

    def run(*operations: tuple[OperationKind, int]) -> None:
        for kind, k in operations:
            steps.append((Operation(kind, k, count[kind, k]),))
            count[kind, k] += 1

    run(*[(_F, down)] * (2 * (p - i) - 1))
    run(*[(_F, up), (_F, down)] * i)
    run(*[(_F, up), (_I, up), (_W, up)] * (p - i))
    while count[_F, up] < m:
        if count[_F, down] < m:
            run((_F, down))
        run((_I, down), (_W, down), (_F, up), (_I, up), (_W, up))
    run(*[(_I, down), (_I, up)] * i)
    run(*[(_I, down), (_W, down)] * (p - i))
    run(*[(_W, up)] * (m - count[_W, up]), *[(_W, down)] * (m - count[_W, down]))
    return steps


ZBV = ZeroBubbleV()
