"""Forms in which the paper's tables hold, where they depart from the physical ones: compatibility
and nothing else.

Which readings the printed numbers fix, and which only reproduce them, is said with each form.
Constants are parameters: those of the paper are in paper.toml.
"""

from __future__ import annotations

import numpy as np

from mofa_model.equations.memory import sharded_bytes
from mofa_model.units import GIB, Bytes, Count, Flop, FlopPerSecond, Numeric, Ratio, Seconds

RESERVE = 8.0 * GIB
"""M_0 of Eq. (6), from the numbers of Tables 6 and 7; the text does not state it. [B]"""
LAYER = 31.25
"""Stored bytes of a layer per sbh/t, from the same numbers. [B]"""


def achieved_rate(forward: Flop, devices: Count, step: Seconds) -> FlopPerSecond:
    """FLOP/s of a device, Eq. (15): 3 F / (N T); recomputation is not counted. [FLOP/s]

    >>> achieved_rate(1e17, 100, 10.0)
    300000000000000.0
    """
    return 3 * forward / (devices * step)


def decayed_time(time: Seconds, group: Count, reference: Count, share: Ratio) -> Seconds:
    """Time of a collective in a larger group, Eq. (3): T(n_0) / eta, eta = share ^ log2(n / n_0).
    [s]

    `share` is the bandwidth left by each doubling, 0.9 for expert and tensor parallelism. Departs
    from a ring: no (n - 1) / n.

    >>> float(decayed_time(1.0, 32, 8, 0.5))
    4.0
    """
    return time / np.power(share, np.log2(group / reference))


def tensor_exposed(time: Seconds, pieces: Count) -> Seconds:
    """Exposed tensor-parallel time of a layer whose collectives are cut into pieces that compute
    covers, Eq. (20): T / n. [s]

    >>> tensor_exposed(7.0e-3, 4)
    0.00175
    """
    return time / pieces


def data_time(
    parameters: Count, per_parameter: Seconds, growth: Ratio, doublings: Count
) -> Seconds:
    """Gradient reduce-scatter and parameter all-gather of a device, Eq. (13): P x time per
    parameter, growing per doubling. [s]

    Source: 0.2716 ns per parameter at d = 32 and 1.09 per doubling in Table 6. The form of the
    growth is open.

    >>> float(data_time(6.0e9, 0.25e-9, 2.0, 1))
    3.0
    """
    return parameters * per_parameter * np.power(growth, doublings)


def gradient_overflow(time: Seconds, limit: Seconds, kept: Seconds) -> Seconds:
    """Exposed time where expert gradients no longer fit behind compute, Table 8: X - kept once X >
    limit. [s]

    Seen in rows with ep = 8, and ep = 16 from 4096 devices on. The jump at the limit is no maximum
    of hidden and visible time: it reproduces rows and is no mechanism.

    >>> float(gradient_overflow(2.0, 1.34, 0.34)), float(gradient_overflow(1.0, 1.34, 0.34))
    (1.66, 0.0)
    """
    return np.where(time > limit, time - kept, 0.0)


def expert_layer_time(base: Seconds, per_expert: Seconds, local_experts: Count) -> Seconds:
    """Compute of a layer with experts, forward and backward, Table 8: a straight line in the
    experts of a device. [s]

    >>> expert_layer_time(0.08, 0.0002, 32)
    0.0864
    """
    return base + per_expert * local_experts


def first_rank_parameters(
    *,
    slots: Count,
    stages: Count,
    dense_layers: Count,
    attention: Count,
    dense: Count,
    expert: Count,
    local_experts: Count,
) -> tuple[Count, Count]:
    """Parameters on the first stage, outside and inside experts, Table 8: L / p - 1 layers, for
    slot 0 is the embedding. [1]

    Fixed by the slopes of the optimizer column over ep at p = 4 and 8; shared experts are left out.

    >>> first_rank_parameters(
    ...     slots=64, stages=8, dense_layers=3, attention=2, dense=5, expert=1, local_experts=10
    ... )
    (29.0, 40.0)
    """
    layers = slots / stages - 1
    return layers * attention + dense_layers * dense, (
        layers - dense_layers
    ) * local_experts * expert


def pipeline_time(
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

    T_pipe = [m v + (P_n - 1) / 2] l (F + G_b) + m T_head + H tau (8 / t), P_n = max(1, p t / 8), H
    = 2 P_n v for v >= 2, 2 m for v = 1: `layer` is F + G_b of one layer [s], `layers` l of one
    chunk, `head` forward and backward of the head [s], `node` the devices of a node.

    Departs from any schedule: half of the ideal bubble, and stages counted in nodes. It reproduces
    published rows and nothing else; with v = 1 it can be faster than 1F1B without communication.

    >>> float(
    ...     pipeline_time(
    ...         layer=0.06, layers=8.0, head=0.02, hop=0.1, microbatches=16.0, stages=8.0,
    ...         virtual=2.0, tensor=8.0,
    ...     )
    ... )
    20.56
    """
    l, m, p, v, t = layers, microbatches, stages, virtual, tensor
    P_n = np.maximum(1.0, p * t / node)
    H = np.where(v >= 2, 2 * P_n * v, 2 * m)
    return (m * v + (P_n - 1) / 2) * l * layer + m * head + H * hop * (node / t)


def peak_memory(
    *,
    layers: Count,
    hidden: Count,
    ffn: Count,
    heads: Count,
    kv_heads: Count,
    vocabulary: Count,
    sequence: Count,
    micro_batch: Count,
    tensor: Count,
    pipeline: Count,
    data: Count,
    virtual: Count,
    host_optimizer: Numeric,
) -> Bytes:
    """Peak of the first stage as Tables 6 and 7 print it: Eq. (4), (25) or (27), (33) and (6) with
    2 + 2 + 16/d B. [B]

    The tables hold offloaded runs of LLaMA3-405B alone. It differs from our estimate in three
    places: resident inputs count virtual stages instead of micro-batches in flight, a layer is
    31.25 sbh/t instead of the 32 sbh/t of Table 2, and M_0 is one constant.

    Row 1 of Table 6, LLaMA3-405B on 64 devices:

    >>> peak = peak_memory(
    ...     layers=128, hidden=16384, ffn=53248, heads=128, kv_heads=16, vocabulary=128000,
    ...     sequence=8192, micro_batch=1, tensor=8, pipeline=8, data=1, virtual=2,
    ...     host_optimizer=True,
    ... )
    >>> round(float(peak) / GIB, 2)
    34.46
    """
    s, b, h, t, p = sequence, micro_batch, hidden, tensor, pipeline
    layer = 2.0 * h * h * (1.0 + kv_heads / heads) + 3.0 * h * ffn
    parameters = layer * layers / p / t + vocabulary * h / t
    optimizer = np.where(host_optimizer, 0.0, sharded_bytes(16.0, data))
    unit = s * b * h / t
    static = parameters * (2.0 + 2.0 + optimizer)
    dynamic = LAYER * unit + virtual * (layers / p) * (2.0 * unit)
    return static + dynamic + RESERVE
