"""Constants of a stack from the steps of a trace: what kernels, links and the host really reach.

Each finding is a path of `Calibration`, its value, and how far its samples scatter. What a trace
cannot say is not guessed: one shape of attention, for example, gives its efficiency at the half
size that the preset has.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

import numpy as np

from mofa_lab.traces.lines import SMALLEST, fitted_line, half_size, products
from mofa_lab.traces.operators import Class
from mofa_lab.traces.passes import Op, StepPasses
from mofa_lab.traces.prices import Layout, data_inside, hop_inside, prices
from mofa_lab.traces.templates import StepTemplates, Template
from mofa_model.equations import collectives
from mofa_model.estimate.block_time import tokens_per_rank
from mofa_model.schedules.schedule import OperationKind as Work
from mofa_model.spec import Cluster

TAKEN_IN: Final = ("elementwise_passes", "layer_scale", "expert_scale")
"""Factors over a whole layer: what is measured holds them already, so they become one."""
_LARGEST: Final = 1e9
"""Factors beyond this, or below its inverse, are no measurement. [1]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One constant as the traces say it."""

    path: str
    """For example compute.gemm_efficiency."""
    value: float
    """Its value."""
    scatter: float
    """Standard deviation of the logarithm of its samples."""
    samples: int
    """Kernels or collectives that say it."""
    where: str
    """Section of the layers of constants: `device` for what the device alone decides, `stack` for
    the rest.
    """
    what: str
    """How it was found, in a few words."""
    line: bool = False
    """True where sizes differ, so that a fixed part could be told from it."""


def findings(
    steps: Sequence[StepPasses], templates: StepTemplates, layout: Layout
) -> tuple[Finding, ...]:
    """Everything that the traced steps say of the constants."""
    ops = [op for step in steps for p in step.passes for op in p.ops]
    learned = [*_products(ops, layout)]
    learned_layout = replace(layout, cluster=learned_cluster(layout.cluster, learned))
    learned += _layer_rates(templates, learned_layout)
    learned += _links(templates, learned_layout)
    learned += _host(templates, layout)
    learned += _head(templates, learned_layout)
    learned += _update(steps, templates, learned_layout)
    return tuple(f for f in learned if math.isfinite(f.value) and 0.0 <= f.value < _LARGEST)


def learned_cluster(cluster: Cluster, constants: Iterable[Finding]) -> Cluster:
    """A cluster with these constants in the place of its own."""
    calibration = cluster.calibration
    for finding in constants:
        calibration = calibration.stated(finding.path, finding.value)
    return replace(cluster, calibration=calibration)


def _products(ops: list[Op], layout: Layout) -> list[Finding]:
    """Share of the peak of matrix products, and the sizes at which it halves."""
    c, device = layout.cluster.calibration.compute, layout.cluster.device
    peak = float(device.peak_rate(layout.workload.training.precision.gemm))
    seen = products(ops, Class.GEMM)
    learned: list[Finding] = []
    half = float(c.gemm_half_m * c.gemm_shape)
    if seen:
        weight = sum(len(p.seconds) for p in seen)
        fitted = half_size(seen)
        if fitted is not None:
            half = fitted
            learned += [
                _finding(f"compute.gemm_half_{a}", half, [], "slope over shapes", count=weight)
                for a in "mnk"
            ]
            learned.append(
                _finding("compute.gemm_shape", 1.0, [], "taken into the half sizes", count=weight)
            )
        seen = [p for p in seen if min(p.m, p.n, p.k) >= SMALLEST] or seen
        samples = [(1.0 + half * p.narrowness) / (p.inverse_rate * peak) for p in seen]
        learned.append(
            _finding(
                "compute.gemm_efficiency", median(samples), samples, "matrix products by shape"
            )
        )
        grouped = products(ops, Class.GROUPED)
        if grouped and half > 0:
            rate = peak * median(samples)
            penalty = [
                max(p.inverse_rate * rate - 1.0, 0.0) / (half * p.narrowness) for p in grouped
            ]
            learned.append(
                _finding(
                    "compute.grouped_penalty", median(penalty), penalty, "grouped products by shape"
                )
            )
    return learned


def _layer_rates(templates: StepTemplates, layout: Layout) -> list[Finding]:
    """Rates of attention and of elementwise work, from the sums over a layer."""
    bare = replace(layout.cluster.calibration.compute, **dict.fromkeys(TAKEN_IN, 1.0))
    calibration = replace(layout.cluster.calibration, compute=bare)
    layout = replace(layout, cluster=replace(layout.cluster, calibration=calibration))
    c, priced = bare, prices(layout)
    learned = []
    forward = _time(templates.layer[Work.FORWARD], Class.ATTENTION)
    backward = _time(templates.layer[Work.BACKWARD], Class.ATTENTION)
    if forward > 0:
        value = (
            float(c.attention_efficiency) * priced.layer[Work.FORWARD, Class.ATTENTION] / forward
        )
        learned.append(
            _finding("compute.attention_efficiency", value, [], "fused attention, forward", count=1)
        )
        if backward > 0:
            ratio = backward / forward
            learned.append(
                _finding(
                    "compute.attention_backward",
                    ratio,
                    [],
                    "fused attention, backward over forward",
                    count=1,
                )
            )
    moved = {
        work: _time(t, Class.ELEMENTWISE) + _time(t, Class.COPY)
        for work, t in templates.layer.items()
    }
    if min(moved.values()) > 0:
        rates = [
            float(c.memory_efficiency) * priced.layer[work, Class.ELEMENTWISE] / moved[work]
            for work in moved
        ]
        value = float(np.sqrt(rates[0] * rates[1]))
        learned.append(
            _finding("compute.memory_efficiency", value, rates, "elementwise work of a layer")
        )
        learned += [
            _finding(f"compute.{name}", 1.0, [], "taken into what its operators reach", count=1)
            for name in TAKEN_IN
        ]
    return learned


def _time(template: Template, kind: Class) -> float:
    return sum(piece.seconds for piece in template if piece.kind is kind)


def _links(templates: StepTemplates, layout: Layout) -> list[Finding]:
    """Collectives by their sizes: bandwidth and start where sizes differ, bandwidth alone where
    they do not.
    """
    k, s, learned = layout.cluster.calibration.links, layout.strategy, []
    tensor = [p for t in templates.layer.values() for p in t if p.axis == "tensor" and p.size > 0]
    inside = {True: list[tuple[float, float, float]](), False: list[tuple[float, float, float]]()}
    if float(s.tp) > 1:
        near = bool(float(s.tp) <= float(layout.cluster.domain))
        inside[near] += [
            _sample(layout.cluster, p.size, p.seconds, float(s.tp), 1.0) for p in tensor
        ]
    if float(s.dp) > 1:
        members, stride = float(s.data_ranks), float(s.tp)
        sizes = {op.collective.size for op in templates.data if op.collective.size > 0}
        for size in sorted(sizes):
            least = min(op.seconds for op in templates.data if op.collective.size == size)
            sample = _sample(layout.cluster, size, least, members, stride)
            inside[data_inside(layout)].append(sample)
    for near, name, value in (
        (True, "links.scale_up_efficiency", float(k.scale_up_efficiency)),
        (False, "links.scale_out_efficiency", float(k.scale_out_efficiency)),
    ):
        samples = [
            value * ideal / (took - fixed) for ideal, took, fixed in inside[near] if took > fixed
        ]
        line = fitted_line([(ideal, measured) for ideal, measured, _ in inside[near]])
        if line is not None:
            start = line[0] - median([fixed for *_, fixed in inside[near]]) + float(k.collective)
            efficiency = _finding(name, value / line[1], samples, "collectives by size", stack=True)
            learned.append(replace(efficiency, line=True))
            learned.append(
                _finding(
                    "links.collective",
                    max(start, 0.0),
                    [],
                    "the same",
                    count=len(samples),
                    stack=True,
                )
            )
        elif samples:
            learned.append(
                _finding(name, median(samples), samples, "collectives by size", stack=True)
            )
    exchange = [p for t in templates.layer.values() for p in t if p.axis == "expert"]
    priced = prices(replace(layout, cluster=learned_cluster(layout.cluster, learned)))
    if exchange and priced.expert > 0:
        samples = [
            float(k.all_to_all_efficiency) * priced.expert / p.seconds
            for p in exchange
            if p.seconds > 0
        ]
        learned.append(
            _finding(
                "links.all_to_all_efficiency",
                median(samples),
                samples,
                "dispatch and combine",
                stack=True,
            )
        )
    return learned + _points(templates, layout)


def _sample(
    cluster: Cluster, size: float, seconds: float, members: float, stride: float
) -> tuple[float, float, float]:
    """Time of the bytes at the present constants, measured time, and the part that does not depend
    on size. [s]
    """
    start = cluster.calibration.links.collective
    fixed = float(start + (members - 1.0) * collectives.hop_latency(cluster, members, stride))
    bandwidth = float(collectives.ring_bandwidth(cluster, members, stride))
    return (members - 1.0) / members * size / bandwidth, seconds, fixed


def _points(templates: StepTemplates, layout: Layout) -> list[Finding]:
    """Transfers between stages, by the fastest: the others waited for their partner."""
    sized = [op for op in templates.hops if op.collective.size > 0]
    if not sized:
        return []
    k = layout.cluster.calibration.links
    fastest = min(sized, key=lambda op: op.seconds / op.collective.size)
    link = layout.cluster.scale_up if hop_inside(layout) else layout.cluster.scale_out
    fixed = min(float(k.point_latency), 0.5 * fastest.seconds)
    value = fastest.collective.size / (float(link.bandwidth) * (fastest.seconds - fixed))
    return [
        _finding(
            "links.point_latency",
            fixed,
            [],
            "at most half of the fastest hop",
            count=len(sized),
            stack=True,
        ),
        _finding(
            "links.point_efficiency", value, [], "the fastest hop", count=len(sized), stack=True
        ),
    ]


def _host(templates: StepTemplates, layout: Layout) -> list[Finding]:
    """Host time of the launches of a layer, forward and backward."""
    name = "host.layer" if float(layout.strategy.tp) > 1 else "host.layer_unsharded"
    if layout.workload.model.experts is not None:
        name = "host.layer_experts"
    launch = sum(piece.host for t in templates.layer.values() for piece in t)
    return [
        _finding(
            name,
            launch,
            [],
            "launches of a layer",
            count=sum(map(len, templates.layer.values())),
            stack=True,
        )
    ]


def _head(made: StepTemplates, layout: Layout) -> list[Finding]:
    """Constants of head and loss: time of their launches, and traffic of logits."""
    pieces = [p for t in made.last.values() for p in t]
    if not any(p.kind is Class.GEMM for p in pieces):
        return []
    moved = sum(p.seconds for p in pieces if p.kind is Class.ELEMENTWISE)
    w, s, rows = layout.workload, layout.strategy, layout.workload.model.embedding.vocabulary
    accumulate = rows * w.model.hidden / s.tp * (2.0 * w.training.precision.gradient + 2.0)
    reached = learned_cluster(
        layout.cluster, _layer_rates(made, layout)
    ).calibration.compute.memory_efficiency
    traffic = moved * float(layout.cluster.device.memory_bandwidth * reached) - float(accumulate)
    logits = float(tokens_per_rank(w, s)) * float(rows) / float(s.tp)
    host = sum(p.host for p in pieces)
    return [
        _finding(
            "compute.logit_traffic",
            max(traffic, 0.0) / logits,
            [],
            "head and loss",
            count=len(pieces),
        ),
        _finding("host.head", host, [], "launches of head and loss", count=len(pieces), stack=True),
    ]


def overheads(measured: float, rebuilt: float) -> tuple[Finding, ...]:
    """Time of a step that its kernels and launches do not explain [s]; what they do explain needs
    no constant.
    """
    return (
        _finding(
            "host.step",
            max(measured - rebuilt, 0.0),
            [],
            "the step beside its templates",
            count=1,
            stack=True,
        ),
        _finding(
            "host.micro_batch", 0.0, [], "in the launches of layers and head", count=1, stack=True
        ),
    )


def _update(steps: Sequence[StepPasses], templates: StepTemplates, layout: Layout) -> list[Finding]:
    """Constants of the update, on the fullest stage, and of exposed tensor-parallel collectives."""
    c, learned = layout.cluster.calibration.compute, []
    longest = max(templates.update, default=0.0)
    if longest > 0:
        value = float(c.optimizer_efficiency) * prices(layout).update / longest
        learned.append(
            _finding("compute.optimizer_efficiency", value, [], "the update", count=len(steps))
        )
    for work, name in ((Work.FORWARD, "tensor"), (Work.BACKWARD, "tensor_backward")):
        pieces = templates.layer[work]
        sent = [(i, p) for i, p in enumerate(pieces) if p.axis == "tensor"]
        if not sent:
            continue
        total = sum(p.seconds for _, p in sent)
        beside = [sum(q.seconds for q in pieces[i + 1 : i + p.join] if not q.axis) for i, p in sent]
        exposed = sum(max(p.seconds - b, 0.0) for (_, p), b in zip(sent, beside, strict=True))
        learned.append(
            _finding(
                f"overlap.{name}",
                exposed / total,
                [],
                "share that compute waits for",
                count=len(sent),
                stack=True,
            )
        )
    return learned


def _finding(
    path: str,
    value: float,
    samples: Sequence[float],
    what: str,
    *,
    count: int = 0,
    stack: bool = False,
) -> Finding:
    logs = np.log([s for s in samples if s > 0]) if samples else np.zeros(1)
    return Finding(
        path=path,
        value=float(value),
        scatter=float(np.std(logs)) if len(logs) > 1 else 0.0,
        samples=count or len(samples),
        where="stack" if stack else "device",
        what=what,
    )
