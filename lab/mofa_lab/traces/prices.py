"""What the analytical model says of each class of operator in one layer: templates are rescaled by
ratios of these.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mofa_lab.traces.operators import Class
from mofa_model.blocks import Block, Rows
from mofa_model.equations import collectives, parameters
from mofa_model.estimate.block_time import (
    block_time,
    memory_rate,
    product_time,
    stream_time,
    tokens_per_rank,
)
from mofa_model.estimate.model_states import expert_weights
from mofa_model.schedules.schedule import OperationKind as Work
from mofa_model.spec import Cluster, Workload
from mofa_model.strategy import Sharding, Strategy


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """One way to run one model on one cluster."""

    workload: Workload
    """Model and training."""
    cluster: Cluster
    """Machines and their constants."""
    strategy: Strategy
    """Layout."""

    @property
    def micro_batches(self) -> int:
        """Micro-batches of a step on one pipeline. [1]"""
        s = self.strategy
        return max(
            1, round(float(self.workload.training.global_batch) / float(s.global_micro_batch))
        )

    @property
    def depth(self) -> int:
        """Virtual stages. [1]"""
        return int(self.strategy.pp) * int(self.strategy.vpp)

    @property
    def chunk(self) -> int:
        """Layers of a virtual stage. [1]"""
        return max(1, int(self.workload.model.layers) // self.depth)


@dataclass(frozen=True, kw_only=True, slots=True)
class Prices:
    """Times on one device. [s]"""

    layer: dict[tuple[Work, Class], float]
    """Operators of a layer, by pass and class."""
    head: dict[Class, float]
    """Head and loss."""
    embedding: float
    """Embedding."""
    tensor: float
    """One tensor-parallel collective."""
    tensor_count: int
    """How many a layer has in its forward pass."""
    expert: float
    """One dispatch or combine."""
    hop: float
    """One transfer between stages."""
    reduce: float
    """Gradients of one layer over the data-parallel group."""
    reduce_outer: float
    """Gradients of embedding or head."""
    gather: float
    """Parameters of a stage, gathered again."""
    update: float
    """Optimizer of the fullest stage."""


def prices(layout: Layout) -> Prices:
    """Everything that a rewrite scales by."""
    w, s = layout.workload, layout.strategy
    # A trace teaches the constants of laws, so it is read by laws.
    c = replace(layout.cluster, calibration=replace(layout.cluster.calibration, kernels=None))
    model, precision, k = w.model, w.training.precision, c.calibration.compute
    memory, tokens = memory_rate(c), tokens_per_rank(w, s)
    kind = model.kinds[0]
    blocks = [block_time(w, c, s, block) for block in kind.blocks]
    routed = float(expert_weights(w, s, kind))
    linear = [
        sum(b.linear for b, of in zip(blocks, kind.blocks, strict=True) if _grouped(of) is g)
        for g in (False, True)
    ]
    core = sum(block.core_seconds for block in blocks)
    moved = stream_time(w, c, s, kind) + sum(block.elementwise for block in blocks)
    held = float(sum(block.parameters for block in blocks))
    accumulate = held * (2.0 * precision.gradient + 2.0) / memory
    layer = {
        (Work.FORWARD, Class.GEMM): linear[0],
        (Work.BACKWARD, Class.GEMM): 2.0 * linear[0],
        (Work.FORWARD, Class.GROUPED): linear[1],
        (Work.BACKWARD, Class.GROUPED): 2.0 * linear[1],
        (Work.FORWARD, Class.ATTENTION): core,
        (Work.BACKWARD, Class.ATTENTION): k.attention_backward * core,
        (Work.FORWARD, Class.ELEMENTWISE): moved,
        (Work.BACKWARD, Class.ELEMENTWISE): 2.0 * moved + accumulate,
    }
    outer = float(model.embedding.vocabulary * model.hidden / s.tp)
    layers = float(model.layers) / float(s.pp)
    ends = (2.0 if float(s.pp) == 1.0 else 1.0) * outer
    copies = float(s.expert_data_ranks)
    shared = s.sharding is not Sharding.NONE
    owned = ((held - routed) * layers + ends) / (float(s.data_ranks) if shared else 1.0)
    owned += routed * layers / (copies if shared else 1.0)
    return Prices(
        layer={key: float(value) for key, value in layer.items()},
        head={
            Class.GEMM: float(
                product_time(
                    w, c, Rows.SENT, tokens, model.embedding.vocabulary / s.tp, model.hidden
                )
            ),
            Class.ELEMENTWISE: float(tokens * (model.embedding.vocabulary / s.tp) / memory),
        },
        embedding=float(tokens * model.hidden / s.tp / memory),
        tensor=float(
            collectives.all_gather_time(c, tokens * model.hidden * precision.activation, s.tp, 1.0)
        ),
        tensor_count=int(float(sum(block.gathers for block in blocks))),
        expert=float(sum(block.all_to_all for block in blocks)) / 2.0,
        hop=hop_time(layout),
        reduce=_data(
            layout, (held - routed) * float(precision.reduce), routed * float(precision.reduce)
        ),
        reduce_outer=data_time(layout, outer * float(precision.reduce)),
        gather=_data(
            layout,
            ((held - routed) * layers + ends) * float(precision.gather),
            routed * layers * float(precision.gather),
        ),
        update=owned
        * float(k.optimizer_traffic / (c.device.memory_bandwidth * k.optimizer_efficiency)),
    )


def hop_time(layout: Layout, size: float | None = None) -> float:
    """One transfer between stages. [s]"""
    w, c, s, k = layout.workload, layout.cluster, layout.strategy, layout.cluster.calibration.links
    spread = s.tp if s.sequence_parallel else 1.0
    message = tokens_per_rank(w, s) * w.model.hidden * w.training.precision.activation / spread
    link = c.scale_up if hop_inside(layout) else c.scale_out
    bandwidth = link.bandwidth * k.point_efficiency
    return float(
        collectives.point_to_point_time(
            message if size is None else size, bandwidth, k.point_latency
        )
    )


def hop_inside(layout: Layout) -> bool:
    """True where neighbouring stages stand in one domain."""
    return bool(float(layout.strategy.gpus) <= float(layout.cluster.domain))


def data_time(layout: Layout, size: float) -> float:
    """A reduce-scatter or all-gather of `size` bytes [B] over the data-parallel group. [s]"""
    s = layout.strategy
    return float(collectives.all_gather_time(layout.cluster, size, s.data_ranks, s.tp))


def _grouped(block: Block) -> bool:
    """Whether a block's products are counted as grouped ones: it sends tokens to experts."""
    return block.exchange() is not None


def _data(layout: Layout, dense: float, routed: float) -> float:
    """Time to exchange gradients of dense weights among all data-parallel ranks, and of expert
    weights among ranks with the same experts; sizes in [B]. [s]
    """
    s = layout.strategy
    copies = float(s.dp * s.cp * s.tp / (s.ep * s.etp))
    time = data_time(layout, dense)
    if routed <= 0 or copies <= 1:
        return time
    stride = s.ep * s.etp
    return time + float(collectives.all_gather_time(layout.cluster, routed, copies, stride))


def data_inside(layout: Layout) -> bool:
    """True where the data-parallel group stands in one domain."""
    s = layout.strategy
    return bool(float(s.dp * s.cp * s.tp) <= float(layout.cluster.domain))


def model_parameters(layout: Layout) -> float:
    """Parameters of the model. [1]"""
    return float(parameters.total_parameters(layout.workload.model))
