"""Memory of a layout on every kind of stage and on the host of a node, and the risk that a run does
not fit after all.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from mofa_model.checks import anything, array_axes
from mofa_model.equations import routing
from mofa_model.estimate.activation_memory import activation_memory
from mofa_model.estimate.expert_load import RISK, exchanges, expert_load
from mofa_model.estimate.model_states import model_states
from mofa_model.estimate.terms import Footprint, device_memory_limit, terms_of
from mofa_model.placement import Stages, stages_of
from mofa_model.records import varied
from mofa_model.spec import Cluster, Workload
from mofa_model.spec.transformer import with_imbalance
from mofa_model.strategy import Strategy
from mofa_model.units import Bytes, Ratio

_PRECISION: Final = 1e-6
"""Relative precision to which the load that just fits is found. [1]"""


def footprint(
    workload: Workload, cluster: Cluster, strategy: Strategy, stage_kinds: Stages
) -> Footprint:
    """Every memory term of a layout, or of a family of them."""
    states = model_states(workload, cluster, strategy, stage_kinds)
    moving = activation_memory(workload, cluster, strategy, stage_kinds)
    held = {
        item.name: getattr(states, item.name)
        for item in terms_of(Footprint)
        if item.metadata.get("states")
    }
    if anything(states.gather):
        above = varied(moving, gather=states.gather, fresh=states.fresh).above
        fresh = np.minimum(states.fresh, above)
        held["gradients"] = states.gradients + fresh
        held["update"] = states.update - states.gather + (above - fresh)
    return varied(
        moving,
        **held,
        gather=states.gather,
        fresh=states.fresh,
        host_states=states.host_states,
        host=host_bytes(cluster, states.host_states, moving.host_activations),
        last=np.argmax(stage_kinds.position, axis=0),
    )


def host_bytes(cluster: Cluster, kept: Bytes, activations: Bytes) -> Bytes:
    """Host memory of the fullest node, from what one device of each kind of stage keeps there.
    [B]
    """
    host = activations * cluster.gpus_per_node + kept * cluster.gpus_per_node
    return np.max(host, axis=0) if np.ndim(host) else host


def overflow(workload: Workload, cluster: Cluster, strategy: Strategy) -> Ratio:
    """Probability that some layer and micro-batch of a run does not fit the device, by its load on
    experts. Ours. [1]

    Memory rises with the load at the tail. Bisection finds the load that just fits; the answer is
    the probability that the largest load of the run exceeds it.
    """
    model = workload.model
    stages = stages_of(
        model,
        strategy,
        cluster.calibration.placement,
        max(workload.axes, cluster.axes, array_axes(strategy)),
    )
    exchange = None if model.experts is None else model.experts.exchange()

    def fits(spread: Ratio) -> bool:
        loaded = workload
        if exchange is not None:
            loaded = replace(workload, model=with_imbalance(model, exchange.imbalance, spread))
        peak = footprint(loaded, cluster, strategy, stages).peak
        return bool(peak <= device_memory_limit(cluster))

    if exchange is None or not exchange.spread or not fits(0.0):
        return 0.0 if fits(0.0) else 1.0
    often, mean = exchanges(workload, strategy), expert_load(workload, strategy, exchange).mean
    largest = routing.largest_load(strategy.ep, exchange.count, exchange.top_k)
    each = routing.tail_load(0.0, 1.0, often, RISK)  # load that the tail gains with the spread
    least, most = 0.0, float((largest - mean) / each)
    if fits(most):
        return 0.0
    while most - least > _PRECISION * most:
        half = 0.5 * (least + most)
        least, most = (half, most) if fits(half) else (least, half)
    return float(routing.overflow_probability(mean, exchange.spread, often, mean + least * each))
