"""1F1B and its interleaved form: one forward and one backward in turn, Eqs. (5), (9) to (12), (23).

Device i runs the virtual stages i, p + i, 2 p + i, ... With one virtual stage per device this is
1F1B. With more it is interleaved: the pipeline fills in smaller pieces.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import numpy as np

from mofa_model.checks import anything
from mofa_model.equations.compute import THIRD
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
from mofa_model.units import Count, Ratio, Seconds

USUAL: Final = (2, 4, 8)
"""Virtual stages that are tried for every model."""
_MOST: Final = 16
_OF_HOPS: Final = ("slowest", "microbatches", "stages", "virtual", "hop", "blocking", "forward")


def warmup_time(
    *, slowest: Seconds, total: Seconds, virtual: Count, forward: Ratio = THIRD
) -> Seconds:
    """Time until the first micro-batch has filled the pipeline, hops apart, Eq. (10). [s]

    T_warmup = (sum C - max C) F / (C v): with equal stages (p - 1) l F, l the layers of one chunk.
    The embedding is part of C_0.

    >>> warmup_time(slowest=6.0, total=24.0, virtual=2.0)
    3.0
    """
    return (total - slowest) * forward / virtual


def steady_time(*, slowest: Seconds, microbatches: Count) -> Seconds:
    """Time in which the slowest stage computes without a pause, Eq. (11). [s]

    T_steady = m max C: with equal stages m v l (F + G_b), and the head is part of the last C.

    >>> steady_time(slowest=6.0, microbatches=8.0)
    48.0
    """
    return microbatches * slowest


def cooldown_time(
    *, slowest: Seconds, total: Seconds, virtual: Count, forward: Ratio = THIRD
) -> Seconds:
    """Time of the last backward on its way to the first stage, hops apart, Eq. (12). [s]

    T_cooldown = (sum C - max C) (1 - F / C) / v: with equal stages (p - 1) l G_b.

    >>> cooldown_time(slowest=6.0, total=24.0, virtual=2.0, forward=0.5)
    4.5
    """
    return (total - slowest) * (1 - forward) / virtual


def exposed_hops(
    *,
    slowest: Seconds,
    microbatches: Count,
    stages: Count,
    virtual: Count,
    hop: Seconds,
    blocking: bool = False,
    forward: Ratio = THIRD,
) -> Seconds:
    """Time that hops add to 1F1B and its interleaved form, Eq. (23). [s]

    Overlapped, v > 1: 2 (p v - 1) tau, fill and drain only, exact while a hop is no longer than a
    chunk's forward or backward (beyond that a lower bound). v = 1: 2 [(p - 1) + (m - 1) - ceil((m -
    1) / p)] tau for any hop: 1F1B keeps p micro-batches in the air, exactly a round trip without
    hops, so each round trip pays for its 2 (p - 1). Blocking: a middle stage sends 2 m v times, the
    ends less; exact up to tau = min(F, I + W) / v.

    Departs from the paper: its hop in the steady phase is free when overlapped, which no 1F1B order
    can do.

    >>> float(exposed_hops(slowest=3.0, microbatches=8.0, stages=4.0, virtual=1.0, hop=0.5))
    8.0
    >>> float(exposed_hops(slowest=3.0, microbatches=8.0, stages=4.0, virtual=2.0, hop=0.5))
    7.0
    """
    m, p, v, tau = microbatches, stages, virtual, hop
    chunk = slowest / v
    shorter = np.minimum(forward, 1 - forward) * chunk
    if blocking:
        ends = ((2 * v - 1) * m + 2 * p - 3) * tau
        middle = np.maximum(0.0, np.maximum((m - 2) * tau - chunk, (m - 3) * tau - 2 * shorter))
        middle = np.where(v > 1, middle, np.maximum(0.0, (m - 2) * tau))
        return np.where(p > 1, ends + np.where(p > 2, middle, 0.0), 0.0)
    round_trips = 2 * ((p - 1) + (m - 1) - np.ceil((m - 1) / p)) * tau
    late = (m - p) * (v - 1) * np.maximum(0.0, tau - shorter)
    return np.where(p > 1, np.where(v > 1, 2 * (p * v - 1) * tau + late, round_trips), 0.0)


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
        kind, stage, microbatches, wave = np.zeros((4, p, 2 * chunks), dtype=np.intp)
        kind[device, forwards] = POSITION[OperationKind.FORWARD]
        kind[device, backwards] = POSITION[OperationKind.BACKWARD]
        stage[device, forwards] = chunk * p + device
        stage[device, backwards] = (v - 1 - chunk) * p + device
        microbatches[device, forwards] = microbatches[device, backwards] = microbatch
        # Two waves a turn: a forward waits for the device before, and device 0 for the last one's
        # forward of p turns ago; with one backward behind each forward those meet the same.
        later = (1 if v == 1 else 2) * device
        wave[device, forwards] = 2 * turn + later
        wave[device, backwards] = 2 * (every + turn) + later + 1
        return Operations(
            steps=[2 * chunks] * p,
            kind=kind.reshape(1, -1),
            virtual_stage=stage.reshape(1, -1),
            microbatch=microbatches.reshape(1, -1),
            occupied=np.ones((1, kind.size), dtype=bool),
            wave=wave.reshape(-1),
        )

    def in_flight(
        self, *, position: Count, microbatches: Count, stages: Count, virtual: Count = 1.0
    ) -> Count:
        """Most chunks whose activations the stage at a position holds at one time, Eq. (5). [1]

        n = min(m v, (v - 1) p + k (p - 1 - i) + 1), of L / (p v) layers each; k is 2 with virtual
        stages, else 1.

        >>> float(OneFOneB().in_flight(position=1, microbatches=32, stages=8))
        7.0
        """
        i, m, p, v = position, microbatches, stages, virtual
        k = np.where(v > 1, 2.0, 1.0)
        return np.minimum(m * v, k * (p - 1 - i) + ((v - 1) * p + 1))

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
        if not anything(flow.hop):
            return 0.0
        return exposed_hops(**{name: getattr(flow, name) for name in _OF_HOPS})

    def fill(self, flow: Flow) -> Seconds:
        """Warm-up and cool-down without hops, (sum C - max C) / v, Eqs. (10), (12). [s]"""
        return (flow.total - flow.slowest) / flow.virtual


@dataclass(frozen=True)
class Interleaved(OneFOneB):
    """1F1B over virtual stages."""

    value: ClassVar[str] = "interleaved"
    looped: ClassVar[bool] = True

    def possible(self, *, microbatches: Count, stages: Count) -> Any:
        """Whether the micro-batches go in whole groups of p."""
        return np.mod(microbatches, stages) == 0

    def overlap_window(self, *, microbatches: Count, stages: Count, virtual: Count) -> Count:
        """1 + (min(p, m) - 1) (v - 1) / v. Ours.

        A chunk runs p micro-batches in a row, so its gradients leave beside all
        micro-batches of the chunks that come after it, and its parameters arrive beside those of
        the chunks before.

        >>> float(Interleaved().overlap_window(microbatches=16, stages=8, virtual=4))
        6.25
        """
        return 1.0 + (np.minimum(stages, microbatches) - 1.0) * (1.0 - 1.0 / np.asarray(virtual))

    def virtual_stages(self, layers: int) -> tuple[int, ...]:
        """2, 4, 8, and whatever else divides the layers, embedding and head counted or not.

        >>> Interleaved().virtual_stages(61)
        (2, 3, 4, 7, 8, 9)
        """
        even = {v for v in range(2, _MOST + 1) if layers % v == 0 or (layers + 2) % v == 0}
        return tuple(sorted({*USUAL, *even}))


ONE_F_ONE_B = OneFOneB()
INTERLEAVED = Interleaved()
