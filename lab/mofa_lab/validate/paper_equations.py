"""Forms in which the paper's tables hold, where they depart from the physical ones: compatibility and nothing else.

`pipeline.paper_pipeline_time` and `offload.paper_peak_memory` stand beside the physical forms; what else the tables need is
here. Which readings the printed numbers fix, and which only reproduce them, is said with each form. Constants are
parameters: those of the paper are in paper.toml.
"""

from __future__ import annotations

import numpy as np

from mofa_model.units import Count, Flop, FlopPerSecond, Ratio, Seconds


def achieved_rate(forward: Flop, devices: Count, step: Seconds) -> FlopPerSecond:
    """FLOP/s of a device, Eq. (15): 3 F / (N T); recomputation is not counted. [FLOP/s]

    >>> achieved_rate(1e17, 100, 10.0)
    300000000000000.0
    """
    return 3 * forward / (devices * step)


def decayed_time(time: Seconds, group: Count, reference: Count, share: Ratio) -> Seconds:
    """Time of a collective in a larger group, Eq. (3): T(n_0) / eta, eta = share ^ log2(n / n_0). [s]

    `share` is the bandwidth left by each doubling, 0.9 for expert and tensor parallelism. Departs from a ring: no (n - 1) / n.

    >>> float(decayed_time(1.0, 32, 8, 0.5))
    4.0
    """
    return time / np.power(share, np.log2(group / reference))


def tensor_exposed(time: Seconds, pieces: Count) -> Seconds:
    """Exposed tensor-parallel time of a layer whose collectives are cut into pieces that compute covers, Eq. (20): T / n. [s]

    >>> tensor_exposed(7.0e-3, 4)
    0.00175
    """
    return time / pieces


def data_time(parameters: Count, per_parameter: Seconds, growth: Ratio, doublings: Count) -> Seconds:
    """Gradient reduce-scatter and parameter all-gather of a device, Eq. (13): P x time per parameter, growing per doubling. [s]

    Source: 0.2716 ns per parameter at d = 32 and 1.09 per doubling in Table 6. The form of the growth is open.

    >>> float(data_time(6.0e9, 0.25e-9, 2.0, 1))
    3.0
    """
    return parameters * per_parameter * np.power(growth, doublings)


def gradient_overflow(time: Seconds, limit: Seconds, kept: Seconds) -> Seconds:
    """Exposed time where expert gradients no longer fit behind compute, Table 8: X - kept once X > limit. [s]

    Seen in rows with ep = 8, and ep = 16 from 4096 devices on. The jump at the limit is no maximum of hidden and
    visible time: it reproduces rows and is no mechanism.

    >>> float(gradient_overflow(2.0, 1.34, 0.34)), float(gradient_overflow(1.0, 1.34, 0.34))
    (1.66, 0.0)
    """
    return np.where(time > limit, time - kept, 0.0)


def expert_layer_time(base: Seconds, per_expert: Seconds, local_experts: Count) -> Seconds:
    """Compute of a layer with experts, forward and backward, Table 8: a straight line in the experts of a device. [s]

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
    """Parameters on the first stage, outside and inside experts, Table 8: L / p - 1 layers, for slot 0 is the embedding. [1]

    Fixed by the slopes of the optimizer column over ep at p = 4 and 8; shared experts are left out.

    >>> first_rank_parameters(slots=64, stages=8, dense_layers=3, attention=2, dense=5, expert=1, local_experts=10)
    (29.0, 40.0)
    """
    layers = slots / stages - 1
    return layers * attention + dense_layers * dense, (layers - dense_layers) * local_experts * expert
