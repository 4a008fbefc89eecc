"""LLaMA3-405B in Tables 6, 7 and 9: each printed quantity from the paper's equations and few
constants.

Two readings of the pipeline: `effective` reproduces the tables and is no schedule
(`paper_equations.pipeline_time`); `physical` is the schedule that the estimate uses
(`pipeline_time`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mofa_lab.validate import paper_equations as paper
from mofa_lab.validate.record import Record
from mofa_model.blocks import FeedForward, SoftmaxAttention
from mofa_model.equations.parameters import forward_flops_per_token
from mofa_model.schedules import INTERLEAVED, ONE_F_ONE_B, Flow
from mofa_model.schedules.one_f_one_b import exposed_hops
from mofa_model.spec import Transformer
from mofa_model.units import Bytes, Count, FlopPerSecond, Seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class Shared:
    """Constants of what does not depend on the pipeline's reading."""

    node: float
    """Devices of a node."""
    tensor: float
    """Collectives of a layer and micro-batch in a group of a node. [s]"""
    tensor_share: float
    """Bandwidth left by a doubling of the group, Eq. (3). [1]"""
    tensor_pieces: float
    """Pieces that overlap cuts a collective into, Eq. (20)."""
    host_update: float
    """CPU optimizer, per parameter of a device's layers, Eq. (28). [s]"""
    device_update: float
    """Distributed optimizer, likewise and not divided by d, Eq. (26). [s]"""
    data: float
    """Gradient and parameter collectives per parameter at `data_ranks`, Eq. (13). [s]"""
    data_ranks: float
    """Data-parallel size that `data` belongs to."""
    data_growth: float
    """Growth of `data` per doubling. [1]"""
    data_exposed: float
    """Share left with overlap, Eq. (24). [1]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Effective:
    """Constants of the compatibility form, at t = 8."""

    layer: float
    """Compute of one layer, forward and backward. [s]"""
    head: float
    """Compute of the head, forward and backward. [s]"""
    hop: float
    """One pipeline hop. [s]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Physical:
    """Constants of the physical schedule."""

    layer: float
    """Compute of one layer at t = 8. [s]"""
    layer_half: float
    """The same at t = 4. [s]"""
    head: float
    """Compute of the head at t = 8. [s]"""
    hop: float
    """One pipeline hop. [s]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Dense:
    """The paper's dense model with all constants."""

    model: Transformer
    """Shape as the tables compute it."""
    attention: SoftmaxAttention
    """Its attention."""
    feed_forward: FeedForward
    """Its feed-forward part."""
    sequence: Count
    """Tokens in a sequence."""
    micro_batch: Count
    """Sequences in a micro-batch."""
    shared: Shared
    """Collectives and optimizer."""
    effective: Effective
    """Compatibility form."""
    physical: Physical
    """Physical form."""


@dataclass(frozen=True, slots=True)
class DenseColumns:
    """The columns of a row that say how it runs."""

    gpus: int
    batch: int
    t: int
    p: int
    d: int
    v: int
    host_optimizer: bool
    tensor_overlap: bool
    data_overlap: bool

    @property
    def m(self) -> float:
        """Micro-batches."""
        return self.batch / self.d


def layout_of(row: Record, *, virtual: int = 1) -> DenseColumns:
    """The layout of a row of Table 6, 7 or 9."""
    home = row.text("optimizer_implied_by_numbers", row.text("optimizer", "distributed"))
    return DenseColumns(
        gpus=row.size("n_gpus"),
        batch=row.size("gbs"),
        t=row.size("t"),
        p=row.size("p"),
        d=row.size("d"),
        v=row.size("v", virtual),
        host_optimizer=home == "cpu",
        tensor_overlap=row.flag("tp_overlap"),
        data_overlap="(24)" in row.text("oo_printed", "-"),
    )


def achieved(dense: Dense, run: DenseColumns, step: Seconds) -> FlopPerSecond:
    """FLOP/s of a device from a printed step time, Eq. (15). [FLOP/s]"""
    tokens = run.batch * dense.sequence
    forward = tokens * forward_flops_per_token(dense.model, dense.sequence)
    return paper.achieved_rate(forward, run.gpus, step)


def peak(dense: Dense, run: DenseColumns) -> Bytes:
    """Peak memory of the first stage, Eq. (6). [B]"""
    model, attention = dense.model, dense.attention
    return paper.peak_memory(
        layers=model.layers,
        hidden=model.hidden,
        ffn=dense.feed_forward.width,
        heads=attention.heads,
        kv_heads=attention.kv_heads,
        vocabulary=model.embedding.vocabulary,
        sequence=dense.sequence,
        micro_batch=dense.micro_batch,
        tensor=run.t,
        pipeline=run.p,
        data=run.d,
        virtual=run.v,
        host_optimizer=run.host_optimizer,
    )


def parameters(dense: Dense, run: DenseColumns) -> Count:
    """Parameters of a device's layers. [1]"""
    layer = dense.model.kinds[0].matrices(dense.model.hidden)
    return layer * dense.model.layers / (run.t * run.p)


def update(dense: Dense, run: DenseColumns) -> Seconds:
    """Optimizer column, Eqs. (26) and (28). [s]"""
    rate = dense.shared.host_update if run.host_optimizer else dense.shared.device_update
    return parameters(dense, run) * rate


def data(dense: Dense, run: DenseColumns) -> Seconds:
    """Exposed gradient and parameter collectives, Eqs. (13) and (24). [s]"""
    s = dense.shared
    if run.d == 1:
        return 0.0
    whole = paper.data_time(
        parameters(dense, run), s.data, s.data_growth, np.log2(run.d / s.data_ranks)
    )
    return whole * s.data_exposed if run.data_overlap else whole


def tensor(dense: Dense, run: DenseColumns) -> Seconds:
    """Exposed tensor-parallel collectives of a layer and micro-batch, Eqs. (3) and (20). [s]"""
    s = dense.shared
    whole = paper.decayed_time(s.tensor, run.t, s.node, s.tensor_share)
    return paper.tensor_exposed(whole, s.tensor_pieces) if run.tensor_overlap else whole


def effective_pipeline(
    dense: Dense, run: DenseColumns, *, layer: Seconds, head: Seconds, hop: Seconds
) -> Seconds:
    """Pipeline time in compatibility mode; layer and head are of this row's t. [s]"""
    return paper.pipeline_time(
        layer=layer,
        layers=dense.model.layers / (run.p * run.v),
        head=head,
        hop=hop,
        microbatches=run.m,
        stages=run.p,
        virtual=run.v,
        tensor=run.t,
        node=dense.shared.node,
    )


def effective_step(dense: Dense, run: DenseColumns) -> Seconds:
    """Step time in compatibility mode, Eq. (14). [s]"""
    e, wide = dense.effective, dense.shared.node / run.t
    layer = e.layer * wide + tensor(dense, run)
    pipeline = effective_pipeline(dense, run, layer=layer, head=e.head * wide, hop=e.hop)
    return pipeline + data(dense, run) + update(dense, run)


def physical_pipeline(
    dense: Dense, run: DenseColumns, *, layer: Seconds, head: Seconds, hop: Seconds
) -> Seconds:
    """Pipeline time of the schedule itself, the head on the last stage. [s]"""
    stage = dense.model.layers / run.p * layer
    schedule = INTERLEAVED if run.v > 1 else ONE_F_ONE_B
    flow = Flow(
        slowest=stage + head,
        total=run.p * stage + head,
        microbatches=run.m,
        stages=run.p,
        virtual=run.v,
    )
    work = schedule.time(flow)
    # Eq. (23) hides the hops of the steady phase however long they are, as if stages had all the
    # time of the world.
    return work + exposed_hops(
        slowest=np.inf, microbatches=run.m, stages=run.p, virtual=run.v, hop=hop
    )


def physical_step(dense: Dense, run: DenseColumns) -> Seconds:
    """Step time by the physical schedule, Eq. (14). [s]"""
    c, wide = dense.physical, dense.shared.node / run.t
    layer = c.layer * np.power(c.layer_half / c.layer, np.log2(wide)) + tensor(dense, run)
    pipeline = physical_pipeline(dense, run, layer=layer, head=c.head * wide, hop=c.hop)
    return pipeline + data(dense, run) + update(dense, run)
