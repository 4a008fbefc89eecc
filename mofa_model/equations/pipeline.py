"""Time and memory held of the pipeline: Eq. (5), Eqs. (9)-(12), Eq. (23), and their forms for other schedules.

A device needs C = F + I + W for one micro-batch: forward, input gradient, weight gradient, over all its chunks. The closed forms
take aggregates only, the slowest device (max C_i) and the sum over devices, so a search never builds an array of stages.

    equal stages     every form here equals the replay of its order, within the range of hops that its docstring names
    unequal stages   with one ratio F : I : W everywhere, 1F1B is never below the replay, and equal to it (hops apart) when
                     the last stage is a slowest one; other schedules are estimates, and the replay settles them. At p = 8,
                     m = 32 and stages within 20 % of each other the forms are high by 1.4 % (1F1B), 2.6 % (v = 2),
                     0.5 % (ZB-H1) and 2 % (DualPipe) on average, by 7 % at most

The hop is the time from one stage to the next. It delays the receiver only (`blocking=False`, overlapped), or holds the
sender as well (`blocking=True`).
"""

from __future__ import annotations

import numpy as np

from mofa_model.strategy import Schedule
from mofa_model.units import Count, Ratio, Seconds

THIRD = 1 / 3
"""Share of forward, input gradient and weight gradient when all three cost the same."""


def in_flight(
    schedule: Schedule, *, position: Count, microbatches: Count, stages: Count, virtual: Count = 1.0
) -> Count:
    """Most chunks whose activations the stage at a position holds at one time, Eq. (5). [1]

    n = min(m, p - i); with virtual stages min(m v, (v - 1) p + 2 (p - i - 1) + 1), of L / (p v) layers each.
    ZB-H1 holds min(m, p) everywhere, since inputs wait for their weight gradients; DualPipe p + 1 everywhere.

    >>> float(in_flight(Schedule.ONE_F_ONE_B, position=1, microbatches=32, stages=8))
    7.0
    """
    i, m, p, v = position, microbatches, stages, virtual
    if schedule is Schedule.ZERO_BUBBLE:
        return np.minimum(m, p) + 0 * i  # takes the shape of the positions
    if schedule is Schedule.DUALPIPE:
        return p + 1 + 0 * i
    below = p - i - 1
    return np.where(v > 1, np.minimum(m * v, (v - 1) * p + 2 * below + 1), np.minimum(m, below + 1))


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


def pipeline_time(
    schedule: Schedule,
    *,
    slowest: Seconds,
    total: Seconds,
    microbatches: Count,
    stages: Count,
    virtual: Count = 1.0,
    hop: Seconds = 0.0,
    blocking: bool = False,
    forward: Ratio = THIRD,
    weight: Ratio = THIRD,
    pair: Ratio = 1.0,
) -> Seconds:
    """Time of all micro-batches through the pipeline, Eq. (9). [s]

    T_pipe = T_warmup + T_steady + T_cooldown + exposed hops, for 1F1B and, with v > 1, its interleaved form; ZB-H1 and
    DualPipe as derived beside them. `slowest` is max C_i over devices [s], `total` their sum [s], `hop` the time between
    neighbours [s], `forward` and `weight` the shares F / C and W / C, `pair` the share of their sum that an overlapped
    forward and backward takes.

    Departs from the paper: stages may differ, and no half bubble (see `paper_pipeline_time`).

    >>> round(float(pipeline_time(Schedule.ONE_F_ONE_B, slowest=3.0, total=12.0, microbatches=8.0, stages=4.0)), 9)
    33.0
    """
    C, S, m, p, v = slowest, total, microbatches, stages, virtual
    f, w, tau = forward, weight, hop
    if schedule is Schedule.ZERO_BUBBLE:
        return _zero_bubble_time(C, S, m, p, tau, f, w, blocking=blocking)
    if schedule is Schedule.DUALPIPE:
        return _dualpipe_time(C, S, m, p, tau, f, w, pair, blocking=blocking)
    return (
        warmup_time(slowest=C, total=S, virtual=v, forward=f)
        + steady_time(slowest=C, microbatches=m)
        + cooldown_time(slowest=C, total=S, virtual=v, forward=f)
        + exposed_hops(slowest=C, microbatches=m, stages=p, virtual=v, hop=tau, blocking=blocking, forward=f)
    )


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


def _zero_bubble_time(
    C: Seconds, S: Seconds, m: Count, p: Count, tau: Seconds, f: Ratio, w: Ratio, *, blocking: bool
) -> Seconds:
    """Time of ZB-H1, Ours (Qi et al. give the first of three paths, for F = I = W). [s]

    For m > p: m C + (p - 1) max(F + I - W + 4 tau, F + 3 tau, I + 2 tau), and further round trips where 2 tau > W;
    exact up to there, and near it beyond.
    Blocking: each forward and each input gradient carries its hop, which is an upper bound, since the ends send one way.
    """
    others = np.maximum(p - 1, 1)
    mean = (S - C) / others
    F, W = f * mean, w * mean
    I = mean - F - W
    if blocking:
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


def _dualpipe_time(
    C: Seconds,
    S: Seconds,
    m: Count,
    p: Count,
    tau: Seconds,
    f: Ratio,
    w: Ratio,
    x: Ratio,
    *,
    blocking: bool,
) -> Seconds:
    """Time of DualPipe, Ours (DeepSeek-V3 gives the bubble of the case F = I >= W, tau = 0). [s]

    With q = p/2 - 1 and X = x C for a pair: (p + 1) C + (m - p - 1) X on the middle devices, and the bubble
    q (X - I - 2 W + max(I + tau, W)) + max((q + 1) F, q (I + tau)) - F; the published q (X + B - 3 W) when F = I >= W,
    B = I + W. Exact while a pair takes at least as long as either half, and a hop at most half of F, I and W. Blocking: an
    upper bound, as for ZB-H1. It takes m >= 2 p, as the order does.
    """
    mean = (S - C) / np.maximum(p - 1, 1)
    F, W, X = f * mean, w * mean, x * mean
    I = mean - F - W
    single, paired = C, x * C
    if blocking:
        F, I, X, single, paired = F + tau, I + tau, X + 2 * tau, C + 2 * tau, paired + 2 * tau
        tau = 0.0 * tau
    q = p / 2 - 1
    hops = (m + p - 3 - np.floor((m - 4) / p)) * tau
    bubble = q * (X - I - 2 * W + np.maximum(I + tau, W)) + np.maximum((q + 1) * F, q * (I + tau)) - F
    return (p + 1) * single + (m - p - 1) * paired + bubble + hops


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
