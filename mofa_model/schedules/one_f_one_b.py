"""1F1B: one forward and one backward in turn, Eqs. (5), (9) to (12), (23); interleaved with v > 1.

Device i runs the virtual stages i, p + i, 2 p + i, ...
"""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np

from mofa_model.equations.pipeline import cooldown_time, exposed_hops, steady_time, warmup_time
from mofa_model.errors import BadValue
from mofa_model.records import dataclass
from mofa_model.schedules.schedule import (
    KINDS,
    POSITION,
    Flow,
    Operation,
    OperationKind,
    Operations,
    Order,
    Schedule,
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
        """Steps of every device, as `operations` has them."""
        every = self.operations(p, m, v)
        rows = (every.kind[0], every.virtual_stage[0], every.microbatch[0])
        steps = [
            (Operation(KINDS[kind], k, j),)
            for kind, k, j in zip(*(row.tolist() for row in rows), strict=True)
        ]
        many = 2 * m * v
        return tuple(tuple(steps[i * many : (i + 1) * many]) for i in range(p))

    def operations(self, p: int, m: int, v: int = 1) -> Operations:
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
        device, turn, chunks = np.arange(p)[:, None], np.arange(m * v), m * v
        chunk, microbatch = turn % (p * v) // p, turn // (p * v) * p + turn % p
        below = p - device - 1
        every = below if v == 1 else (v - 1) * p + 2 * below
        ahead = np.minimum(chunks, every)
        # A forward and a backward in turn, after the forwards ahead and before the backwards left.
        forwards = np.where(turn < ahead, turn, 2 * turn - ahead)
        backwards = np.where(turn < chunks - ahead, ahead + 2 * turn + 1, chunks + turn)
        kind, stage, at, wave = np.zeros((4, p, 2 * chunks), dtype=np.intp)
        kind[device, forwards] = POSITION[OperationKind.FORWARD]
        kind[device, backwards] = POSITION[OperationKind.BACKWARD]
        stage[device, forwards] = chunk * p + device
        stage[device, backwards] = (v - 1 - chunk) * p + device
        at[device, forwards] = at[device, backwards] = microbatch
        # Two waves a turn: a forward waits for the device before, and device 0 for the last one's
        # forward of p turns ago; with one backward behind each forward those meet the same.
        later = (1 if v == 1 else 2) * device
        wave[device, forwards] = 2 * turn + later
        wave[device, backwards] = 2 * (every + turn) + later + 1
        return Operations(
            steps=[2 * chunks] * p,
            kind=kind.reshape(1, -1),
            virtual_stage=stage.reshape(1, -1),
            microbatch=at.reshape(1, -1),
            there=np.ones((1, kind.size), dtype=bool),
            wave=wave.reshape(-1),
        )

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


ONE_F_ONE_B = OneFOneB()
