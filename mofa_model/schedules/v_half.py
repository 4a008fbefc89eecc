"""V-half: a V that holds half the activations of 1F1B.

Source: Qi et al., Pipeline Parallelism with Controllable Memory, 2024.

Its building block is repeated every six passes, each pass as soon as it can. What the paper does
beyond that, moving passes of the warm-up and the cool-down forward, is left out: the bubble is
about a sixth longer than theirs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
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


@dataclass(frozen=True)
class VHalf(Folded):
    """A building block of passes, repeated so closely that a device holds p/2 + 1 micro-batches."""

    value: ClassVar[str] = "v-half"

    def order(self, p: int, m: int, v: int = 2) -> Order:
        """Passes at the places of the building block; weight gradients where it leaves room."""
        at_least_one(stages=p, microbatches=m)
        self.own_virtual_stages(v)
        if m <= p:
            raise BadValue("microbatches", m, f"V-half needs more than the {p} stages")
        return tuple(tuple(_steps(i, p, m)) for i in range(p))

    def in_flight(
        self, *, position: Count, microbatches: Count, stages: Count, virtual: Count = 2.0
    ) -> Count:
        """Chunks of every device, Source: Qi et al., 2024: two for (p + 2) // 2 micro-batches. [1]

        >>> float(VHalf().in_flight(position=1, microbatches=32, stages=8))
        10.0
        """
        del microbatches, virtual
        return 2.0 * np.floor((stages + 2) / 2) + 0 * position  # takes the shape of the positions

    def time(self, flow: Flow) -> Seconds:
        """Time of V-half, Ours: m max C and the longest of seven ways through its order. [s]

        F, I and W are those of one virtual stage. Exact while 2 |F - I| + 2 tau <= W and a hop
        takes at most half of each; beyond, every micro-batch adds what is missing, which is within
        10 % of the replay. It takes m > p. Blocking: each forward and each input gradient carries
        its hop.

        >>> flow = Flow(slowest=3.0, total=12.0, microbatches=8.0, stages=4.0, virtual=2.0)
        >>> round(float(VHalf().time(flow)), 9)
        30.0
        """
        slowest, *times = folded_times(flow)
        m, p = flow.microbatches, flow.stages
        F, I, W, tau = times
        half, e = np.floor(p / 2), 1 - np.mod(p, 2)
        spare = slowest - 2.0 * (F + I + W)  # of each micro-batch, while the slowest device works
        late_inputs = np.maximum(0.0, 2.0 * (I - F) - W + 2.0 * tau - spare)
        late_forwards = np.maximum(0.0, 2.0 * (F - I) - W + 2.0 * tau - spare)
        inputs = (m - half - 1) * late_inputs
        forwards = (m - 2 - e) * late_forwards
        fewer_forwards = (m - half - 2) * late_forwards
        bubble = longest(
            times,
            (p - 1 + 2 * e, 3 * p - 3, -half, 5 * p - 5 + e, inputs),
            (p - 1, 3 * p - 3 + e, -half, 5 * p - 5 + e, inputs),
            (2 * p - 2 + e, 2 * p - 2 + e, -half, 5 * p - 7 + 3 * e, forwards),
            (2 * p - 1 + e, p - 3, 0, 4 * p - 6 + 2 * e, fewer_forwards),
            (2 * p - 2 + e, p - 1, 0, 4 * p - 6 + 2 * e),
            (p - 1 + 2 * e, 2 * p - 2 - e, 0, 4 * p - 4),
            (p - 1, 2 * p - 2, 0, 4 * p - 4),
        )
        return m * slowest + np.where(p > 1, bubble, 0.0)

    def possible(self, *, microbatches: Count, stages: Count) -> Any:
        """Whether there are more micro-batches than stages."""
        return np.asarray(microbatches) > np.asarray(stages)


def _steps(i: int, p: int, m: int) -> Iterator[Step]:
    """The order of device i: passes have places in time, weight gradients fill the others."""
    down, up, gap = i, 2 * p - 1 - i, 3 if p % 2 == 0 else 0
    block = (
        (2 * i, OperationKind.FORWARD, down),
        (3 * p - i - 2, OperationKind.FORWARD, up),
        (3 * p + gap + 2 * i - 1, OperationKind.INPUT_GRADIENT, up),
        (6 * p + gap - i - 2, OperationKind.INPUT_GRADIENT, down),
    )
    passes = {time + 6 * j: Operation(kind, k, j) for j in range(m) for time, kind, k in block}
    due: deque[Operation] = deque()
    for time in range(min(passes), max(passes) + 1):
        if time in passes:
            operation = passes[time]
            if operation.kind is OperationKind.INPUT_GRADIENT:
                due.append(operation._replace(kind=OperationKind.WEIGHT_GRADIENT))
            yield (operation,)
        elif due:
            yield (due.popleft(),)
    yield from ((operation,) for operation in due)


V_HALF = VHalf()
