"""DeepSeek-V3 in Table 8: each printed quantity from the paper's equations and few constants."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mofa_lab.validate import paper_equations as paper
from mofa_lab.validate.record import Record
from mofa_model.blocks import Experts
from mofa_model.spec import Transformer
from mofa_model.units import Count, Seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class Constants:
    """Constants of Table 8."""

    slots: float
    """Layers with embedding and head, as they are dealt to stages."""
    layer: float
    """Compute of a layer without its experts' share, forward and backward. [s]"""
    layer_per_expert: float
    """What each expert on the device adds to it. [s]"""
    head: float
    """Compute of the heads per micro-batch. [s]"""
    pipeline: float
    """Hops of a step: one constant in every row. [s]"""
    exchange: float
    """All-to-all of a layer and micro-batch at `exchange_ranks`, Eq. (22). [s]"""
    exchange_share: float
    """Bandwidth left by a doubling of the group, Eq. (3). [1]"""
    exchange_ranks: float
    """Expert-parallel size that `exchange` belongs to."""
    update: float
    """CPU optimizer per parameter of the first rank, Eq. (28). [s]"""
    data_dense: float
    """Collectives per parameter outside experts, at `data_devices`. [s]"""
    data_expert: float
    """Collectives per parameter of experts that have replicas. [s]"""
    data_growth: float
    """Growth of both per doubling of the devices. [1]"""
    data_devices: float
    """Devices that they belong to."""
    data_inside: float
    """Share left where all replicas are in one supernode. [1]"""
    overflow: float
    """Time per expert parameter that overlap has to cover. [s]"""
    overflow_limit: float
    """What it can cover. [s]"""
    overflow_kept: float
    """What is still covered beyond that. [s]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Mixture:
    """The paper's mixture of experts with its constants."""

    model: Transformer
    """Shape as the table computes it."""
    experts: Experts
    """Its experts."""
    constants: Constants
    """What was fitted."""


@dataclass(frozen=True, slots=True)
class MixtureColumns:
    """The columns of a row that say how it runs."""

    gpus: int
    supernode: int
    batch: int
    ep: int
    edp: int
    p: int
    v: int

    @property
    def m(self) -> float:
        """Micro-batches."""
        return self.batch / (self.ep * self.edp)


def layout_of(row: Record) -> MixtureColumns:
    """The layout of a row of Table 8."""
    return MixtureColumns(
        gpus=row.size("n_gpus"),
        supernode=row.size("supernode"),
        batch=row.size("gbs"),
        ep=row.size("ep"),
        edp=row.size("edp"),
        p=row.size("p"),
        v=row.size("v", 1),
    )


def exchange(mixture: Mixture, run: MixtureColumns) -> Seconds:
    """All-to-all of a step on one pipeline stage, Eqs. (3) and (22): the time of one layer, for
    each of the stage's layers and each micro-batch. The bubble is not in it. [s]
    """
    c = mixture.constants
    layer_time = paper.decayed_time(c.exchange, run.ep, c.exchange_ranks, c.exchange_share)
    layers_of_stage = c.slots / run.p
    return run.m * layers_of_stage * layer_time


def parameters(mixture: Mixture, run: MixtureColumns) -> tuple[Count, Count]:
    """Parameters of the first rank outside and inside experts, without the embedding. [1]"""
    h, experts, plain = mixture.model.hidden, mixture.experts, mixture.model.kinds[0]
    attention, dense = plain.blocks
    return paper.first_rank_parameters(
        slots=mixture.constants.slots,
        stages=run.p,
        dense_layers=mixture.model.number(plain),
        attention=attention.matrices(h),
        dense=dense.matrices(h),
        expert=(experts.matrices(h) - experts.count * h) / experts.count,
        local_experts=experts.count / run.ep,
    )


def update(mixture: Mixture, run: MixtureColumns) -> Seconds:
    """Optimizer column, Eq. (28), on the rank that holds the embedding. [s]"""
    outside, inside = parameters(mixture, run)
    return mixture.constants.update * (
        outside + inside + mixture.model.embedding.rows(mixture.model.hidden)
    )


def pipeline(mixture: Mixture, run: MixtureColumns, *, layer: Seconds, head: Seconds) -> Seconds:
    """Compute column, Eq. (9) in compatibility mode with stages counted as such. [s]"""
    return paper.pipeline_time(
        layer=layer,
        layers=mixture.constants.slots / (run.p * run.v),
        head=head,
        hop=0.0,
        microbatches=run.m,
        stages=run.p,
        virtual=run.v,
        tensor=1.0,
        node=1.0,
    )


def compute(mixture: Mixture, run: MixtureColumns) -> Seconds:
    """Compute column. [s]"""
    c = mixture.constants
    layer = paper.expert_layer_time(c.layer, c.layer_per_expert, mixture.experts.count / run.ep)
    return pipeline(mixture, run, layer=layer, head=c.head)


def data_scale(constants: Constants, run: MixtureColumns) -> float:
    """How collectives grow with the devices, and what is left of them inside one supernode. [1]"""
    grown = np.power(constants.data_growth, np.log2(run.gpus / constants.data_devices))
    return float(grown) * (constants.data_inside if run.ep * run.edp <= run.supernode else 1.0)


def overflow(mixture: Mixture, run: MixtureColumns) -> Seconds:
    """Gradient collectives of experts that overlap fails to cover. [s]"""
    c = mixture.constants
    _, inside = parameters(mixture, run)
    doublings = np.log2(run.gpus / c.data_devices)
    whole = paper.data_time(inside, c.overflow, c.data_growth, doublings)
    return paper.gradient_overflow(whole, c.overflow_limit, c.overflow_kept)


def data(mixture: Mixture, run: MixtureColumns) -> Seconds:
    """Exposed gradient and parameter collectives, Eqs. (13) and (24). [s]"""
    c = mixture.constants
    outside, inside = parameters(mixture, run)
    replicated = inside if run.edp > 1 else 0.0
    shared = (outside * c.data_dense + replicated * c.data_expert) * data_scale(c, run)
    return shared + overflow(mixture, run)


def step(mixture: Mixture, run: MixtureColumns) -> Seconds:
    """Step time in compatibility mode, Eq. (14). [s]"""
    c = mixture.constants
    return (
        compute(mixture, run)
        + exchange(mixture, run)
        + c.pipeline
        + data(mixture, run)
        + update(mixture, run)
    )
