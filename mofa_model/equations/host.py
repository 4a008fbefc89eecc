"""Time that the host needs to launch a stage's kernels. The largest single effect in measured
data.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Final

import numpy as np

from mofa_model.equations.compute import THIRD
from mofa_model.spec import Cluster
from mofa_model.units import Count, Ratio, Seconds


def layer_launch_time(
    sharded: Seconds,
    unsharded: Seconds,
    tensor_parallel: Count,
    gpus_per_node: Count,
    extra_node: Seconds,
    extra_rank: Seconds,
) -> Seconds:
    """Host time of a layer's forward and backward pass. Ours. [s]

    Launches cost the same whatever the shapes; collectives over more nodes cost more, and some
    releases pay for each rank of the ring (`extra_rank`).

    >>> round(float(layer_launch_time(3.9e-3, 1.5e-3, 16.0, 8, 3.1e-3, 0.0)) * 1e3, 1)
    7.0
    """
    t = tensor_parallel
    nodes = np.maximum(1.0, t / gpus_per_node)
    alone = np.asarray(t) <= 1
    return np.where(alone, unsharded, sharded + extra_node * (nodes - 1.0) + extra_rank * t)


def launch_time(cluster: Cluster, tensor_parallel: Count, *, routed: bool) -> Seconds:
    """Host time of a layer's forward and backward pass; `routed` layers have experts. Ours. [s]

    >>> from mofa_model.spec import Device, Link
    >>> gpu = Device(name="any", peak_bf16=1e15, memory=80e9, memory_bandwidth=3e12)
    >>> fast, slow = Link(bandwidth=450e9), Link(bandwidth=25e9)
    >>> nodes = Cluster(device=gpu, gpus=64, scale_up=fast, scale_out=slow)
    >>> float(launch_time(nodes, 1, routed=True))
    0.009
    """
    c = cluster.calibration.host
    return layer_launch_time(
        c.layer_experts if routed else c.layer,
        c.layer_experts if routed else c.layer_unsharded,
        tensor_parallel,
        cluster.gpus_per_node,
        c.extra_node,
        c.extra_rank,
    )


KERNELS: Final = 12.0
"""Kernels of a plain layer's forward pass; experts add as many. Source: counted, see `RELAUNCHED`.
[1]"""


def launches_with(extra: Count, *, routed: bool) -> Ratio:
    """Launches of a layer with `extra` kernels over those of a plain one. Ours. [1]

    >>> launches_with(12.0, routed=True)
    1.5
    """
    return 1.0 + extra / (2.0 * KERNELS if routed else KERNELS)


RELAUNCHED: Final = {
    "core_attn": 1 / 6,
    "layernorm": 1 / 6,
    "mlp": 1 / 3,
    "mlp_act": 1 / 12,
    "moe": 2 / 3,
    "moe_act": 1 / 12,
    "mla_up_proj": 1 / 6,
    "per_op": 1 / 2,
    "all_but_attention_output": 5 / 6,
}
"""Share of a layer's forward launches that a module makes. Source: counted, of a dozen kernels of a
plain layer: two norms, three products and a rotation around attention (two), two products and an
activation of the MLP, two sums; experts add a dozen."""


def relaunched(modules: Iterable[str]) -> Ratio:
    """Forward launches that recomputed modules make again, over those of the layer; at most all.
    Ours. [1]

    >>> relaunched(["layernorm", "moe_act"])
    0.25
    """
    return min(1.0, sum(RELAUNCHED[module] for module in sorted(modules)))


def graph_share(captured: Ratio, recompute: Ratio, extra: Ratio) -> Ratio:
    """Launches that are left after graphs, with those of recomputed layers added. Ours. [1]

    >>> graph_share(0.15, 1.0, 0.33)
    0.1995
    """
    return captured * (1.0 + extra * recompute)


def overlap_launches(extra: Ratio, captured: Ratio) -> Ratio:
    """Launches of a layer with overlapped expert exchange, over those without overlap. Ours. [1]

    Each part of the layer is launched apart, in turns with the other micro-batch. `captured` is the
    share of launches that graphs leave; only these grow, by `extra`.

    >>> overlap_launches(0.5, 0.6)
    1.3
    """
    return 1.0 + extra * captured


def serialised(device: Seconds, host: Seconds, smooth: Seconds, share: Ratio) -> Seconds:
    """Stage time where collectives across nodes make host and device take turns. Ours. [s]

    `share` of the smaller time is added to the smooth maximum: 0 = they overlap, 1 = they add up.

    >>> float(serialised(3.0, 2.0, 3.0, 1.0))
    5.0
    """
    return smooth + share * np.minimum(device, host)


def shortest_pass(passes: Sequence[Seconds], total: Seconds) -> Seconds:
    """Least time of each of three passes that take `total` together with their waits for launches.
    Ours. [s]

    The shortest passes wait, until they are as long as each other: each has as many launches,
    behind which a long one hides its own. So more launches make no pass shorter.

    >>> round(float(shortest_pass((0.25, 0.55, 0.2), 1.35)), 3)
    0.4
    """
    short, long = reduce(np.minimum, passes), reduce(np.maximum, passes)
    shares = np.minimum(0.5 * (total - long), THIRD * total)
    return np.minimum(total - sum(passes) + short, shares)
