"""What communication costs when it runs beside compute.

Every form reduces to one idea: of a communication, the part that compute covers is hidden, except a
tail that cannot be (the first chunk in, the last chunk out). Exposed time never exceeds the
communication itself.
"""

from __future__ import annotations

import numpy as np

from mofa_model.units import Count, Ratio, Seconds

_TINY = float(np.finfo(float).tiny)


def exposed(comm: Seconds, cover: Seconds, tail: Ratio) -> Seconds:
    """Part of `comm` that `cover` seconds of compute cannot hide, at least the tail. Ours. [s]

    The closed form of the sums of Eq. (20) to Eq. (24): with n equal chunks of work M,
    C/n + (n - 1) max(M/n, C/n) + M/n - M = max(C/n, C - (n - 1) M/n), so the tail is 1/n and the
    cover (n - 1) M/n. Other tails stand for unequal chunks and for what a stack cannot hide.

    >>> float(exposed(2.0, 10.0, 0.25)), float(exposed(2.0, 0.5, 0.25))
    (0.5, 1.5)
    """
    return np.maximum(tail * comm, comm - cover)


def tensor_exposed(comm: Seconds, gemm: Seconds, tail: Ratio) -> Seconds:
    """Tensor-parallel communication left beside GEMMs cut in n = 1 / tail chunks, Eq. (20). [s]

    T_c,1 + sum_{i=2..n} max(T_c,i, T_m,i-1) + T_m,n: one chunk is exposed, and what the other
    chunks' GEMMs do not cover.

    >>> float(tensor_exposed(2.0, 10.0, 0.25))
    0.5
    """
    return exposed(comm, np.maximum(0.0, 1.0 - tail) * gemm, tail)


def context_exposed(comm: Seconds, attention: Seconds, ranks: Count, tail: Ratio) -> Seconds:
    """Ring attention's messages left beside the attention of the other blocks, Eq. (21). [s]

    c - 1 of the c blocks are computed while the next one travels.

    >>> float(context_exposed(2.0, 4.0, 4, 0.0))
    0.0
    """
    return exposed(comm, attention * (ranks - 1.0) / ranks, tail)


def expert_exposed(comm: Seconds, compute: Seconds, tail: Ratio) -> Seconds:
    """All-to-all left beside expert and attention compute of the other micro-batch or chunk, Eq.
    (22). [s]

    >>> float(expert_exposed(3.0, 1.0, 0.4))
    2.0
    """
    return exposed(comm, compute, tail)


def offload_exposed(transfer: Seconds, compute: Seconds) -> Seconds:
    """Part of an activation's transfer to the host, or back, that the compute of the next layer
    does not hide, Eqs. (34), (35). [s]

    F' = T_F,1 + sum_j max(T_D2H,j-1, T_F,j), with equal layers: what is left of each transfer
    beside a layer.

    >>> float(offload_exposed(0.025, 0.019)) == 0.025 - 0.019
    True
    """
    return exposed(transfer, compute, 0.0)


def data_exposed(comm: Seconds, window: Seconds, reach: Ratio, tail: Ratio) -> Seconds:
    """Gradient and parameter collectives left beside a window of compute, Eq. (24). [s]

    `reach` is the share of the window that the stack really uses: 0 for none.

    >>> float(data_exposed(2.0, 3.0, 0.5, 0.1))
    0.5
    """
    return np.where(np.asarray(reach) > 0, exposed(comm, reach * window, tail), comm)


def slowed(compute: Seconds, hidden: Seconds, coefficient: Ratio) -> Seconds:
    """Compute that shares the device with `hidden` seconds of communication, the gamma of Eq. (20)
    to Eq. (24). [s]

    >>> float(slowed(10.0, 2.0, 1.1))
    10.2
    """
    return compute + (coefficient - 1.0) * np.minimum(hidden, compute)


def smooth_max(device: Seconds, host: Seconds, uneven: Ratio = 1.0) -> Seconds:
    """Device work fed by a host that launches it: M + u ((G^4 + H^4)^(1/4) - M), M the larger.
    Ours. [s]

    With kernels g_i and launches h_i the time is sum(max(g_i, h_i)): at most G + H, and above
    max(G, H), since some kernels of a layer wait for launches while others do not. This form lies
    between them too; where kernels are more alike, `uneven` is less than one. The power of four
    needs only multiplications and square roots, which are exact under rescaling.

    >>> round(float(smooth_max(1.0, 1.0)), 4), float(smooth_max(1.0, 0.0))
    (1.1892, 1.0)
    >>> float(smooth_max(1.0, 1.0, uneven=0.0))
    1.0
    """
    larger: Seconds = np.maximum(device, host)
    ratio = np.minimum(device, host) / np.maximum(larger, _TINY)
    r2 = ratio * ratio
    r4 = r2 * r2
    fourth_root: Ratio = np.sqrt(np.sqrt(1.0 + r4))
    return larger * (1.0 + uneven * (fourth_root - 1.0))
