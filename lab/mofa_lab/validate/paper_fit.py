"""The constants of the paper's tables: shipped with their source, or fitted anew from rows.

Every column is linear in its constants (the growth of data parallelism is so in logarithms), so
constants are least squares: of relative errors where the whole step is judged, of seconds where the
column is. A fit asks each form for its slopes and knows nothing of what is inside. What the rows do
not determine keeps its shipped value.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from mofa_lab.validate import paper_dense as dense_table
from mofa_lab.validate import paper_mixture as mixture_table
from mofa_lab.validate.paper_dense import Dense, Effective, Physical, Shared
from mofa_lab.validate.paper_mixture import Constants, Mixture
from mofa_lab.validate.record import Record
from mofa_model.blocks import Experts, FeedForward, SoftmaxAttention
from mofa_model.presets import entries
from mofa_model.presets.models import network
from mofa_model.spec import Transformer
from mofa_model.units import Seconds


@cache
def published() -> Mapping[str, Any]:
    """Models and constants of the paper's tables: paper.toml."""
    return tomllib.loads(
        resources.files("mofa_lab.validate").joinpath("paper.toml").read_text(encoding="utf-8")
    )


@cache
def shipped_dense() -> Dense:
    """LLaMA3-405B with the constants of paper.toml."""
    given = published()["dense"]
    training = given["training"]
    return Dense(
        model=_network(given["model"]),
        attention=SoftmaxAttention(**given["model"]["attention"]),
        feed_forward=FeedForward(**given["model"]["dense"]),
        sequence=training["sequence"],
        micro_batch=training["micro_batch"],
        shared=Shared(**entries.facts(given["shared"])),
        effective=Effective(**entries.facts(given["effective"])),
        physical=Physical(**entries.facts(given["physical"])),
    )


@cache
def shipped_mixture() -> Mixture:
    """DeepSeek-V3 with the constants of paper.toml."""
    given = published()["mixture"]
    return Mixture(
        model=_network(given["model"]),
        experts=Experts(**given["model"]["experts"]),
        constants=Constants(**entries.facts(given["constants"])),
    )


def _network(given: Mapping[str, Any]) -> Transformer:
    shape = entries.facts(given)
    return network(shape.pop("name"), shape)


def fit_dense(dense: Dense, rows: Sequence[Record]) -> Dense:
    """The constants that rows of Table 6 give: its columns, and for both pipelines rows with v >=
    2 alone.
    """
    runs = [(row, dense_table.layout_of(row)) for row in rows]
    hopping = [(row, run) for row, run in runs if run.v > 1]
    shared = replace(dense.shared, **_shared(dense, runs, hopping))
    effective = replace(dense.effective, **_effective(dense, hopping))
    physical = replace(dense.physical, **_physical(dense, hopping))
    return replace(dense, shared=shared, effective=effective, physical=physical)


def fit_mixture(mixture: Mixture, rows: Sequence[Record]) -> Mixture:
    """The constants that rows of Table 8 give; shape of the data-parallel rule and hops stay
    as shipped.
    """
    c = mixture.constants
    runs = [(row, mixture_table.layout_of(row)) for row in rows]
    experts = mixture.experts.count

    def compute(
        run: mixture_table.MixtureColumns, layer: float, layer_per_expert: float, head: float
    ) -> Seconds:
        return mixture_table.pipeline(
            mixture, run, layer=layer + layer_per_expert * experts / run.ep, head=head
        )

    whole = {
        name: _solved(
            {name: getattr(c, name)},
            [_scale(mixture, run, name, form) for _, run in runs],
            [row.number(column) for row, _ in runs],
            relative=False,
        )[name]
        for name, column, form in (
            ("exchange", "ep_s", mixture_table.exchange),
            ("update", "opt_s", mixture_table.update),
        )
    }
    linear = {name: getattr(c, name) for name in ("layer", "layer_per_expert", "head")}
    split = _solved(
        linear,
        [_slopes(compute, run, linear) for _, run in runs],
        [row.number("compute_s") for row, _ in runs],
    )
    covered = [(row, run) for row, run in runs if not mixture_table.overflow(mixture, run)]
    shares: list[list[float]] = []
    for _, run in covered:
        outside, inside = mixture_table.parameters(mixture, run)
        scale = mixture_table.data_scale(c, run)
        shares.append([float(outside) * scale, float(inside) * scale * (run.edp > 1)])
    rule = _solved(
        {"data_dense": c.data_dense, "data_expert": c.data_expert},
        shares,
        [row.number("dp_s") for row, _ in covered],
    )
    return replace(mixture, constants=replace(c, **whole, **split, **rule))


def _scale(
    mixture: Mixture, run: mixture_table.MixtureColumns, name: str, form: Callable[..., Any]
) -> list[float]:
    """The value of a term where its constant is 1; the term is proportional to that constant."""
    value = getattr(mixture.constants, name)
    return [float(form(mixture, run)) / value]


def _shared(dense: Dense, runs: Any, hopping: Any) -> dict[str, float]:
    """Constants of the columns that both pipelines share: updates, tensor and data parallelism."""
    s = dense.shared
    constants: dict[str, float] = {}
    for name, on_host in (("host_update", True), ("device_update", False)):
        chosen = [(row, run) for row, run in runs if run.host_optimizer == on_host]
        constants |= _solved(
            {name: getattr(s, name)},
            [[float(dense_table.parameters(dense, run))] for _, run in chosen],
            [row.number("opt_s") for row, _ in chosen],
        )
    unit = replace(dense, shared=replace(s, tensor=1.0))
    constants |= _solved(
        {"tensor": s.tensor},
        [[_passed(dense, run) * float(dense_table.tensor(unit, run))] for _, run in hopping],
        [row.number("tp_s") for row, _ in hopping],
    )
    sharing = [(row, run) for row, run in runs if run.d > 1]
    logs = _solved(
        {name: float(np.log(getattr(s, name))) for name in ("data", "data_growth", "data_exposed")},
        [
            [1.0, float(np.log2(run.d / s.data_ranks)), float(run.data_overlap)]
            for _, run in sharing
        ],
        [
            float(np.log(row.number("dp_s") / dense_table.parameters(dense, run)))
            for row, run in sharing
        ],
        relative=False,
    )
    return constants | {name: float(np.exp(value)) for name, value in logs.items()}


def _passed(dense: Dense, run: dense_table.DenseColumns) -> float:
    """Layers that the critical path passes in compatibility mode."""
    return float(dense_table.effective_pipeline(dense, run, layer=1.0, head=0.0, hop=0.0))


def _effective(dense: Dense, runs: Any) -> dict[str, float]:
    """Layer and head from the compute column; the hop from both columns that hold a part of it."""
    e, node = dense.effective, dense.shared.node

    def pipeline(run: dense_table.DenseColumns, layer: float, head: float, hop: float) -> Seconds:
        wide = node / run.t
        return dense_table.effective_pipeline(
            dense, run, layer=layer * wide, head=head * wide, hop=hop
        )

    shipped = {"layer": e.layer, "head": e.head, "hop": e.hop}
    slopes = [_slopes(pipeline, run, shipped) for _, run in runs]
    # One of the columns holds a small part of the hops: its own hop constant is added to that of
    # the other.
    computed = _solved(
        {**shipped, "hop": 0.0}, slopes, [row.number("compute_s") for row, _ in runs]
    )
    hop = _solved(
        {"hop": e.hop}, [[s[2]] for s in slopes], [row.number("pp_s") for row, _ in runs]
    )["hop"]
    return {**computed, "hop": computed["hop"] + hop} if runs else {}


def _physical(dense: Dense, runs: Any) -> dict[str, float]:
    """Layers at t = 8 and 4 and the head from the compute column, the hop from the PP column."""
    c, node = dense.physical, dense.shared.node

    def pipeline(
        run: dense_table.DenseColumns, layer: float, layer_half: float, head: float
    ) -> Seconds:
        layer_time = layer if run.t == node else layer_half
        return dense_table.physical_pipeline(
            dense, run, layer=layer_time, head=head * node / run.t, hop=0.0
        )

    def hops(run: dense_table.DenseColumns, hop: float) -> Seconds:
        return dense_table.physical_pipeline(dense, run, layer=c.layer, head=0.0, hop=hop)

    linear = {"layer": c.layer, "layer_half": c.layer_half, "head": c.head}
    near = [(row, run) for row, run in runs if run.t in {node, node / 2}]
    computed = _solved(
        linear,
        [_slopes(pipeline, run, linear) for _, run in near],
        [row.number("compute_s") for row, _ in near],
    )
    alone = {"hop": c.hop}
    return computed | _solved(
        alone,
        [_slopes(hops, run, alone) for _, run in runs],
        [row.number("pp_s") for row, _ in runs],
    )


def _slopes(form: Callable[..., Any], run: Any, at: Mapping[str, float]) -> list[float]:
    """Slope of a linear term in each of its constants."""
    predicted = float(form(run, **at))
    return [
        (float(form(run, **{**at, name: value * 2})) - predicted) / value
        for name, value in at.items()
    ]


def _solved(
    shipped: Mapping[str, float],
    slopes: Sequence[Sequence[float]],
    printed: Sequence[float],
    *,
    relative: bool = True,
) -> dict[str, float]:
    """Constants with the least squares of errors; directions that no row sees stay as shipped."""
    start = np.array(list(shipped.values()))
    if not printed:
        return dict(shipped)
    matrix, values = np.array(slopes, dtype=float), np.array(printed, dtype=float)
    weight = 1 / values if relative else np.ones_like(values)
    sizes = np.where(start == 0, 1.0, np.abs(start))
    moved, *_ = np.linalg.lstsq(
        matrix * weight[:, None] * sizes, (values - matrix @ start) * weight, rcond=1e-9
    )
    return dict(zip(shipped, (start + moved * sizes).tolist(), strict=True))
