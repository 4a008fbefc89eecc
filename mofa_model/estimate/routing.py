"""How full the fullest rank of experts is, on the mean and once in a run; and in how many chunks it runs.

Time takes the mean, since what many micro-batches lose adds up. Memory takes the tail: a run ends at the first layer and
micro-batch that does not fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from mofa_model.blocks import Exchange
from mofa_model.equations import collectives, routing
from mofa_model.placement import Stages
from mofa_model.spec import Cluster, Workload
from mofa_model.strategy import Strategy
from mofa_model.units import Count, Ratio, Seconds

RISK: Final = 0.01
"""Probability with which some exchange of a run is fuller than memory is sized for. Ours. [1]"""


@dataclass(frozen=True, slots=True)
class RoutedLoad:
    """Load of the fullest rank over the mean of the ranks. [1]"""

    mean: Ratio
    """On the mean over layers and micro-batches."""
    tail: Ratio
    """At most, but for a risk."""

    def chunks(self, strategy: Strategy) -> Count:
        """Chunks in which the experts of a layer run on the mean. [1]"""
        return routing.chunks_run(strategy.chunks, self.mean, self.tail)


def routed_load(workload: Workload, strategy: Strategy, exchange: Exchange) -> RoutedLoad:
    """Load on the experts of a layout; no rank gets more than every token can send."""
    mean, spread = exchange.imbalance, exchange.spread
    if not np.any((np.asarray(mean) > 1) | (np.asarray(spread) > 0)):
        return RoutedLoad(mean, mean)
    largest = routing.largest_load(strategy.ep, exchange.count, exchange.top_k)
    mean = np.minimum(mean, largest)
    if not np.any(spread):
        return RoutedLoad(mean, mean)
    tail = routing.tail_load(mean, spread, exchanges(workload, strategy), RISK)
    return RoutedLoad(mean, np.maximum(mean, np.minimum(tail, largest)))


def fullest_rank(workload: Workload, strategy: Strategy) -> RoutedLoad | None:
    """The same of a model's first experts; None where they are loaded evenly or there are none."""
    sent = None if workload.model.experts is None else workload.model.experts.exchange()
    return (
        None
        if sent is None or not np.any(sent.imbalance > 1)
        else routed_load(workload, strategy, sent)
    )


def exchanges(workload: Workload, strategy: Strategy) -> Count:
    """Exchanges of a run, one for each layer with experts, micro-batch and group of ranks; of a step where no tokens are stated. [1]"""
    t, s, model = workload.training, strategy, workload.model
    steps = np.maximum(1.0, np.ceil(t.tokens / (t.global_batch * t.sequence)))
    layers = sum(model.number(kind) for kind in model.kinds if kind.routed)
    groups = (s.tp * s.cp) / (s.ep * s.etp)
    return np.maximum(1.0, steps * layers * (t.global_batch / s.mbs) * groups)


def in_chunks_and_whole(
    workload: Workload, strategy: Strategy, stages: Stages, layers: Sequence[Count]
) -> list[Count]:
    """Layers of each kind on a stage whose experts run in chunks, or that have none; then those whose experts run whole. [1]"""
    routed = [kind.routed for kind in workload.model.kinds]
    sent = sum(
        (held for held, has in zip(stages.held, routed, strict=True) if has),
        np.zeros(stages.count.shape),
    )
    wanted = np.asarray(strategy.chunk_layers)
    share = np.where(wanted > 0, np.minimum(wanted, sent) / np.maximum(sent, 1.0), 1.0)
    cut = [share * n if has else n for n, has in zip(layers, routed, strict=True)]
    return cut + [
        (1.0 - share) * n if has else 0.0 * n for n, has in zip(layers, routed, strict=True)
    ]


def all_to_all(
    workload: Workload,
    cluster: Cluster,
    s: Strategy,
    exchange: Exchange,
    received: Count,
    chunks: Count,
) -> Seconds:
    """Tokens to their experts and back, as the fullest rank gets them; every chunk but the first starts once more each way. [s]"""
    precision, k = workload.training.precision, cluster.calibration.links
    width = workload.model.hidden if exchange.width is None else exchange.width
    path = collectives.path_between(cluster, s.ep, s.etp)
    starts = np.where(np.asarray(s.ep) > 1, 2.0 * (chunks - 1.0) * (path.start + path.hop), 0.0)
    return starts + collectives.all_to_all_time(
        received * width * (precision.dispatch + precision.activation),
        s.ep,
        exchange.top_k,
        exchange.node_limit,
        domains=s.ep * s.etp / cluster.domain,
        up=cluster.scale_up.bandwidth * (k.scale_up_efficiency * k.all_to_all_efficiency),
        out=cluster.scale_out.bandwidth * (k.scale_out_efficiency * k.all_to_all_efficiency),
    )
