"""Time of operators on one device: matrix products, attention, elementwise work, the optimizer.

`m`, `n`, `k` are rows (tokens), output width and contracted width; rates are FLOP/s, bandwidths
B/s.
"""

from __future__ import annotations

import numpy as np

from mofa_model.units import (
    Bytes,
    BytesPerSecond,
    Count,
    Flop,
    FlopPerSecond,
    Numeric,
    Ratio,
    Seconds,
)

THIRD = 1 / 3
"""Share of forward, input gradient and weight gradient when all three cost the same."""
HEAD_TOKENS = 4096.0
"""Tokens in the unit of `attention_half`: heads x tokens / 4096."""


def gemm_time(
    m: Count,
    n: Count,
    k: Count,
    *,
    rate: FlopPerSecond,
    half_m: Count,
    half_n: Count,
    half_k: Count,
    width: Bytes,
    bandwidth: BytesPerSecond,
) -> Seconds:
    """Time of an m x k by k x n product, Eq. (1) on the modified roofline of Eq. (19), with a shape
    penalty of ours. [s]

    T = max( 2 m n k / rate (1 + half_m/m + half_n/n + half_k/k), width (m n + n k + m k) /
    bandwidth ). The penalty stands for tiles at the edges and short accumulations; it is fitted on
    operator tables.

    >>> round(float(gemm_time(4096, 4096, 4096, rate=700e12, half_m=150, half_n=150, half_k=150,
    ...                       width=2, bandwidth=2.4e12)) * 1e6, 1)
    217.9
    """
    compute = 2.0 * m * n * k / rate * (1.0 + half_m / m + half_n / n + half_k / k)
    traffic = width * (m * n + k * (n + m)) / bandwidth
    return np.maximum(compute, traffic)


def attended_tokens(sequence: Count, causal: Ratio, window: Count | None) -> Count:
    """Keys that a query meets, averaged over positions. Source: counting; causal halves it. [1]

    A window of w tokens under causal skipping leaves w - w^2 / (2 s).

    >>> float(attended_tokens(8192, 0.5, None)), float(attended_tokens(8192, 0.5, 1024))
    (4096.0, 960.0)
    """
    full = causal * sequence
    if window is None:
        return full
    w = np.minimum(window, sequence)
    return np.minimum(full, w * (1.0 - w / (2.0 * sequence)))


def attention_time(
    tokens: Count,
    attended: Count,
    heads: Count,
    width: Count,
    *,
    rate: FlopPerSecond,
    half: Numeric,
    score_traffic: Bytes,
    bandwidth: BytesPerSecond,
) -> Seconds:
    """Forward time of scores, softmax and weighted values, Eq. (1) for Table 2's rows QK^T to AV.
    [s]

    `heads` are those on the device, `width` is the sum of a head's key and value widths. Small
    grids of heads x tokens do not fill the device (`half`); attention that is not fused also moves
    every score through memory.

    >>> round(float(attention_time(8192, 4096, 16, 256, rate=445e12, half=8.0, score_traffic=0.0,
    ...                            bandwidth=2.4e12)) * 1e3, 3)
    0.772
    """
    fill = 1.0 + half * HEAD_TOKENS / (heads * tokens)
    products = 2.0 * tokens * attended * heads * width / rate * fill
    return products + score_traffic * tokens * attended * heads / bandwidth


def elementwise_time(traffic: Bytes, bandwidth: BytesPerSecond) -> Seconds:
    """Time of work that only moves memory, Eq. (19) at low intensity. [s]

    >>> elementwise_time(2.4e9, 2.4e12)
    0.001
    """
    return traffic / bandwidth


def update_time(
    parameters: Count, ranks: Count, traffic: Bytes, bandwidth: BytesPerSecond
) -> Seconds:
    """Optimizer update on the device, shared by `ranks`, Eq. (26). [s]

    Departs from the paper: its numbers are not divided by d; the update of a shard is.

    >>> update_time(1e9, 10, 30.0, 2e12)
    0.0015
    """
    return parameters / ranks * traffic / bandwidth


def update_bytes(traffic: Bytes, kept: Bytes, replaced: Bytes) -> Bytes:
    """Bytes that an update moves per parameter, from those of AdamW: each state is read and
    written. Ours. [B]

    >>> update_bytes(30.0, 4.0, 8.0)
    22.0
    """
    return traffic + 2.0 * (kept - replaced)


def host_update_time(
    parameters: Count, gradient: Bytes, weight: Bytes, link: BytesPerSecond, processor_rate: Numeric
) -> Seconds:
    """Optimizer update in host memory, Eq. (28): P (beta_1 / B_D2H + beta_2 / B_H2D + 1 / R_cpu).
    [s]

    >>> round(host_update_time(6.44e9, 4.0, 4.0, 32e9, 1.01e10), 2)
    2.25
    """
    return parameters * (gradient / link + weight / link + 1.0 / processor_rate)


def scaling_linearity(
    step: Seconds, devices: Count, work: Count, base: tuple[Seconds, Count, Count]
) -> Ratio:
    """Work per device and second on a cluster over that on another one, Eq. (45). [1]

    The paper compares step times, T_1 / T_2, of clusters whose batch grows with them; `base` is
    time, devices and work of the first. Work is anything that counts what a step does, such as its
    tokens.

    >>> scaling_linearity(12.0, 128.0, 200.0, (10.0, 64.0, 100.0))
    0.8333333333333334
    """
    first, few, done = base
    return (work / devices / step) / (done / few / first)


def model_flops_utilisation(
    flops: Flop, step: Seconds, devices: Count, peak: FlopPerSecond
) -> Ratio:
    """Share of the peak that the model's own FLOPs make of the step, Eq. (15) over N P_peak. [1]

    >>> model_flops_utilisation(4e17, 10.0, 100, 1e15)
    0.4
    """
    return flops / (step * devices * peak)
