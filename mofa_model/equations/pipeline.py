"""Parts of the pipeline's time: Eqs. (10)-(12) and (23).

A device needs C = F + I + W for one micro-batch: forward, input gradient, weight gradient, over all
its chunks. What depends on the schedule stands in `mofa_model/schedules`.
"""

from __future__ import annotations

import numpy as np

from mofa_model.units import Count, Ratio, Seconds

THIRD = 1 / 3
"""Share of forward, input gradient and weight gradient when all three cost the same."""


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


def bubble_time(pipeline: Seconds, *, slowest: Seconds, microbatches: Count) -> Seconds:
    """Time that the slowest stage does not compute, hops included, Ours. [s]

    T_pipe - m max C; below zero where DualPipe's overlapped pairs gain more than the bubble costs.

    >>> bubble_time(33.0, slowest=3.0, microbatches=8.0)
    9.0
    """
    return pipeline - microbatches * slowest
