"""Load of the fullest rank of experts, on the mean and at the tail of a run, and the exchange of
tokens with it.

Time takes the mean, since losses of many micro-batches add up. Memory takes the tail: a run ends at
the first layer and micro-batch that does not fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from mofa_model.blocks import Exchange
from mofa_model.checks import anything
from mofa_model.equations import collectives, routing
from mofa_model.placement import Stages
from mofa_model.records import dataclass
from mofa_model.spec import Cluster, Workload
from mofa_model.strategy import Strategy
from mofa_model.units import Count, Ratio, Seconds

RISK: Final = 0.01
"""Probability that some exchange of a run is fuller than the tail that memory is sized for. Ours.
[1]"""


@dataclass(frozen=True)
class ExpertLoad:
    """Load of the fullest rank over the mean of the ranks. [1]"""

    mean: Ratio
    """Mean over layers and micro-batches."""
    tail: Ratio
    """Load that no exchange of a run exceeds, but for `RISK`."""

    def chunks(self, strategy: Strategy) -> Count:
        """Chunks in which the experts of a layer run at the mean load. [1]"""
        return routing.chunks_run(strategy.chunks, self.mean, self.tail)


def expert_load(workload: Workload, strategy: Strategy, exchange: Exchange) -> ExpertLoad:
    """Load of a layout on its experts. No rank gets more than every token can send."""
    mean, spread = exchange.imbalance, exchange.spread
    if not anything((np.asarray(mean) > 1) | (np.asarray(spread) > 0)):
        return ExpertLoad(mean, mean)
    largest = routing.largest_load(strategy.ep, exchange.count, exchange.top_k)
    mean = np.minimum(mean, largest)
    if not anything(spread):
        return ExpertLoad(mean, mean)
    tail = routing.tail_load(mean, spread, exchanges(workload, strategy), RISK)
    return ExpertLoad(mean, np.maximum(mean, np.minimum(tail, largest)))


def uneven_load(workload: Workload, strategy: Strategy) -> ExpertLoad | None:
    """Load on the first experts of a model. None where it has none, or where they are loaded
    evenly.
    """
    experts = workload.model.experts
    exchange = None if experts is None else experts.exchange()
    if exchange is None or not anything(exchange.imbalance > 1):
        return None
    return expert_load(workload, strategy, exchange)


def exchanges(workload: Workload, strategy: Strategy) -> Count:
    """Exchanges of a run: one for each layer with experts, micro-batch and group of ranks. [1]

    Where no tokens of the run are stated, those of one step.
    """
    t, s, model = workload.training, strategy, workload.model
    steps = np.maximum(1.0, np.ceil(t.tokens / (t.global_batch * t.sequence)))
    layers = sum(model.number(kind) for kind in model.kinds if kind.routed)
    groups = (s.tp * s.cp) / (s.ep * s.etp)
    return np.maximum(1.0, steps * layers * (t.global_batch / s.mbs) * groups)


def in_chunks_and_whole(
    workload: Workload, strategy: Strategy, stage_kinds: Stages, layers: Sequence[Count]
) -> list[Count]:
    """Layers of each kind on a stage that run in chunks or have no experts, then those whose
    experts run whole. [1]
    """
    routed = [kind.routed for kind in workload.model.kinds]
    held = zip(stage_kinds.held, routed, strict=True)
    expert_layers = sum((n for n, routes in held if routes), np.zeros(stage_kinds.count.shape))
    chunk_layers = np.asarray(strategy.chunk_layers)
    part = np.minimum(chunk_layers, expert_layers) / np.maximum(expert_layers, 1.0)
    share = np.where(chunk_layers > 0, part, 1.0)
    chunked = [share * n if routes else n for n, routes in zip(layers, routed, strict=True)]
    whole = [
        (1.0 - share) * n if routes else 0.0 * n for n, routes in zip(layers, routed, strict=True)
    ]
    return chunked + whole


def all_to_all_time(
    workload: Workload,
    cluster: Cluster,
    s: Strategy,
    exchange: Exchange,
    received: Count,
    chunks: Count,
) -> Seconds:
    """Tokens to their experts and back, as the fullest rank gets them. [s]"""
    precision, k = workload.training.precision, cluster.calibration.links
    width = workload.model.hidden if exchange.width is None else exchange.width
    start = k.collective + collectives.hop_latency(cluster, s.ep, s.etp)
    # Every chunk but the first starts once more each way.
    starts = np.where(np.asarray(s.ep) > 1, 2.0 * (chunks - 1.0) * start, 0.0)
    return starts + collectives.all_to_all_time(
        received * width * (precision.dispatch + precision.activation),
        s.ep,
        exchange.top_k,
        exchange.node_limit,
        domains=s.ep * s.etp / cluster.domain,
        up=cluster.scale_up.bandwidth * (k.scale_up_efficiency * k.all_to_all_efficiency),
        out=cluster.scale_out.bandwidth * (k.scale_out_efficiency * k.all_to_all_efficiency),
    )
