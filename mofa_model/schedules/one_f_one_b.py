"""1F1B: one forward and one backward in turn, Eqs. (5), (9) to (12), (23); interleaved with v > 1.

Device i runs the virtual stages i, p + i, 2 p + i, ...
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import ClassVar, Final

import numpy as np

from mofa_model.equations.pipeline import cooldown_time, exposed_hops, steady_time, warmup_time
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

_OF_HOPS: Final = ("slowest", "microbatches", "stages", "virtual", "hop", "blocking", "forward")


@dataclass(frozen=True)
class OneFOneB(Schedule):
    """Forwards that fill the stages below, one forward and one backward in turn, then backwards.

    With virtual stages it is the interleaved order, under whichever of the two names.
    """

    value: ClassVar[str] = "1f1b"

    def order(self, p: int, m: int, v: int = 1) -> Order:
        """Megatron's order: micro-batches go in groups of p through one chunk after the other.

        With v > 1 a device starts with (v - 1) p + 2 (p - i - 1) forwards, p - i - 1 more than are
        needed to fill the pipeline, which is what hides the hops later. m must be a multiple of p
        when v > 1, as Megatron asks.
        """
        at_least_one(stages=p, microbatches=m, virtual_stages=v)
        if v > 1 and m % p:
            raise BadValue(
                "microbatches", m, f"with virtual stages write a multiple of the {p} stages"
            )
        return tuple(tuple(_alternating(i, p, m, v)) for i in range(p))

    def in_flight(
        self, *, position: Count, microbatches: Count, stages: Count, virtual: Count = 1.0
    ) -> Count:
        """Most chunks whose activations the stage at a position holds at one time, Eq. (5). [1]

        n = min(m, p - i); with virtual stages min(m v, (v - 1) p + 2 (p - i - 1) + 1), of L / (p v)
        layers each.

        >>> float(OneFOneB().in_flight(position=1, microbatches=32, stages=8))
        7.0
        """
        i, m, p, v = position, microbatches, stages, virtual
        below = p - i - 1
        return np.where(
            v > 1, np.minimum(m * v, (v - 1) * p + 2 * below + 1), np.minimum(m, below + 1)
        )

    def time(self, flow: Flow) -> Seconds:
        """Warm-up, steady phase, cool-down and exposed hops, Eq. (9). [s]

        Departs from the paper: stages may differ, and no half bubble (the reading of the paper's
        tables).

        >>> flow = Flow(slowest=3.0, total=12.0, microbatches=8.0, stages=4.0)
        >>> round(float(OneFOneB().time(flow)), 9)
        33.0
        """
        slowest, total, virtual, forward = flow.slowest, flow.total, flow.virtual, flow.forward
        return (
            warmup_time(slowest=slowest, total=total, virtual=virtual, forward=forward)
            + steady_time(slowest=slowest, microbatches=flow.microbatches)
            + cooldown_time(slowest=slowest, total=total, virtual=virtual, forward=forward)
            + self.exposed_hops(0.0, flow)
        )

    def exposed_hops(self, pipeline: Seconds, flow: Flow) -> Seconds:
        """The term of Eq. (9) itself, without the rounding of a difference. [s]"""
        del pipeline
        return exposed_hops(**{name: getattr(flow, name) for name in _OF_HOPS})

    def fill(self, flow: Flow) -> Seconds:
        """Warm-up and cool-down without hops, (sum C - max C) / v, Eqs. (10), (12). [s]"""
        return (flow.total - flow.slowest) / flow.virtual


def _alternating(i: int, p: int, m: int, v: int) -> Iterator[Step]:
    groups = [range(first, min(first + p, m)) for first in range(0, m, p)]
    forward, backward = OperationKind.FORWARD, OperationKind.BACKWARD
    forwards = [
        (Operation(forward, c * p + i, j),) for group in groups for c in range(v) for j in group
    ]
    backwards = [
        (Operation(backward, c * p + i, j),)
        for group in groups
        for c in reversed(range(v))
        for j in group
    ]
    ahead = min(m * v, p - i - 1 if v == 1 else (v - 1) * p + 2 * (p - i - 1))
    return chain(
        forwards[:ahead],
        chain.from_iterable(zip(forwards[ahead:], backwards, strict=False)),  # backwards are more
        backwards[m * v - ahead :],
    )


ONE_F_ONE_B = OneFOneB()
