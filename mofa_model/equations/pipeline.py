"""Parts of the pipeline's time: Eqs. (10)-(12) and (23), bounds, and the reading of Eq. (9) that the paper's tables hold.

A device needs C = F + I + W for one micro-batch: forward, input gradient, weight gradient, over all its chunks. What depends on
the schedule stands in `mofa_model/schedules`.
"""

from __future__ import annotations

import numpy as np

from mofa_model.units import Count, Ratio, Seconds

THIRD = 1 / 3
"""Share of forward, input gradient and weight gradient when all three cost the same."""


def warmup_time(*, slowest: Seconds, total: Seconds, virtual: Count, forward: Ratio = THIRD) -> Seconds:
    """Time until the first micro-batch has filled the pipeline, hops apart, Eq. (10). [s]

    T_warmup = (sum C - max C) F / (C v): with equal stages (p - 1) l F, l the layers of one chunk. The embedding is part of C_0.

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


def cooldown_time(*, slowest: Seconds, total: Seconds, virtual: Count, forward: Ratio = THIRD) -> Seconds:
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

    Overlapped, v > 1: 2 (p v - 1) tau, fill and drain only, exact while a hop is no longer than a chunk's forward or
    backward (beyond that a lower bound). v = 1: 2 [(p - 1) + (m - 1) - ceil((m - 1) / p)] tau for any hop: 1F1B keeps p
    micro-batches in the air, exactly a round trip without hops, so each round trip pays for its 2 (p - 1). Blocking: a
    middle stage sends 2 m v times, the ends less; exact up to tau = min(F, I + W) / v.

    Departs from the paper: its hop in the steady phase is free when overlapped, which no 1F1B order can do.

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


def pipeline_lower_bound(
    *,
    slowest: Seconds,
    total: Seconds,
    microbatches: Count,
    stages: Count,
    virtual: Count = 1.0,
    hop: Seconds = 0.0,
    weight: Ratio = THIRD,
    pair: Ratio = 1.0,
) -> Seconds:
    """Time that no order of work can beat, Ours. [s]

    The larger of the slowest device's work, m max C (`pair` of it if all overlap), and one micro-batch down and up alone:
    sum C - sum W and 2 (p v - 1) hops, none on a single device. A pair takes at least as long as its longer half.

    >>> float(pipeline_lower_bound(slowest=3.0, total=12.0, microbatches=8.0, stages=4.0))
    24.0
    """
    down_and_up = total * (1 - weight) + np.where(stages > 1, 2 * (stages * virtual - 1), 0.0) * hop
    return np.maximum(microbatches * slowest * np.minimum(pair, 1.0), down_and_up)


def paper_pipeline_time(
    *,
    layer: Seconds,
    layers: Count,
    head: Seconds,
    hop: Seconds,
    microbatches: Count,
    stages: Count,
    virtual: Count,
    tensor: Count,
    node: Count = 8.0,
) -> Seconds:
    """Pipeline time as the paper's tables have it, Eq. (9) in compatibility mode. [s]

    T_pipe = [m v + (P_n - 1) / 2] l (F + G_b) + m T_head + H tau (8 / t), P_n = max(1, p t / 8), H = 2 P_n v for v >= 2,
    2 m for v = 1: `layer` is F + G_b of one layer [s], `layers` l of one chunk, `head` forward and backward of the head [s],
    `node` the devices of a node.

    Departs from any schedule: half of the ideal bubble, and stages counted in nodes. It reproduces published rows and nothing else;
    with v = 1 it can be faster than 1F1B without communication.

    >>> float(paper_pipeline_time(layer=0.06, layers=8.0, head=0.02, hop=0.1, microbatches=16.0, stages=8.0, virtual=2.0, tensor=8.0))
    20.56
    """
    l, m, p, v, t = layers, microbatches, stages, virtual, tensor
    P_n = np.maximum(1.0, p * t / node)
    H = np.where(v >= 2, 2 * P_n * v, 2 * m)
    return (m * v + (P_n - 1) / 2) * l * layer + m * head + H * hop * (node / t)
