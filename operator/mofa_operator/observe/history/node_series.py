"""What Prometheus says of the nodes of a pool in a stretch: on which something happened, and every sample about those."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from mofa_operator.incidents.timelines import (
    BOOT,
    HEARTBEATS,
    READY,
    WITNESSES,
    XID,
    NodePart,
    Point,
    ValueRun,
    Witness,
    runs,
    spacing_of,
)
from mofa_operator.observe.history.node_names import HOST_LABELS, Naming
from mofa_operator.observe.prometheus.client import Asking, Sample, together
from mofa_operator.observe.prometheus.promql import (
    GRID,
    Pool,
    any_of,
    duration,
    matcher,
    of_devices,
)

OVERLAP: Final = 900.0
"""How far a look reaches back before its stretch, so that a change at the seam is seen. [s]"""
_ROUND: Final = 8
"""Nodes that one look at every sample names. [1]"""
_USUAL: Final = 60.0
"""Time between samples, where there are too few to tell. [s]"""
_HOST: Final = ", ".join(label for label in HOST_LABELS if label != "host_ip")

Told: TypeAlias = Mapping[str, Mapping[Witness, Mapping[NodePart, tuple[ValueRun, ...]]]]
"""Runs by node, witness and part."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodesRead:
    """What was read of the nodes in one stretch."""

    told: Told
    """What the witnesses say of those on which something happened."""
    spacing: Mapping[Witness, float]
    """Usual time between samples. [s]"""
    exists: Mapping[Witness, frozenset[str]]
    """Nodes about which there are such series."""
    instances: Mapping[str, set[str]]
    """What exporters of GPUs call each node in `instance`."""


async def read_nodes(
    ask: Asking, pool: Pool, named: Naming, nodes: frozenset[str], span: float
) -> NodesRead:
    """Ask every witness; `span` is the length of the stretch. [s]"""
    span += OVERLAP
    metrics = {s.label("metric") for s in (await ask(_exporters(pool, span))).samples}
    asked = [one for one in WITNESSES if not one.on_host or one.metric in metrics]
    answers = await together(*(ask(_worth(pool, named, one, span)) for one in asked))
    exists: dict[Witness, frozenset[str]] = dict.fromkeys(WITNESSES, frozenset())
    worth: dict[Witness, dict[str, set[str]]] = {one: {} for one in WITNESSES}
    called = dict(worth)
    for witness, answer in zip(asked, answers, strict=True):
        told = [
            (node, one) for one in answer.samples if (node := _node(witness, named, one)) in nodes
        ]
        worth[witness] = _called(witness, named, ((node, one) for node, one in told if one.value))
        exists[witness] = frozenset(node for node, _ in told)
        called[witness] = _called(witness, named, told)
    for node in sorted(worth[READY].keys() - exists[BOOT]):
        for witness in HEARTBEATS:
            if node in called[witness]:
                worth[witness][node] = called[witness][node]
    for node in set().union(
        *worth.values()
    ):  # whatever happened, its readiness is part of the story
        worth[READY].setdefault(node, {node})
    found: defaultdict[str, dict[Witness, Mapping[NodePart, tuple[ValueRun, ...]]]] = defaultdict(
        dict
    )
    spacing: dict[Witness, float] = {}
    for witness, wanted in worth.items():
        points = await _points(ask, pool, named, witness, wanted, span)
        steps = sorted(step for many in points.values() if (step := spacing_of(sorted(many), 5.0)))
        if points:
            spacing[witness] = steps[len(steps) // 2] if steps else _USUAL
        for (node, part), many in points.items():
            found[node][witness] = {
                **found[node].get(witness, {}),
                part: runs(many, spacing[witness], witness.apart),
            }
    return NodesRead(told=dict(found), spacing=spacing, exists=exists, instances=called[XID])


async def _points(
    ask: Asking,
    pool: Pool,
    named: Naming,
    witness: Witness,
    wanted: Mapping[str, set[str]],
    span: float,
) -> dict[tuple[str, NodePart], list[Point]]:
    """Every sample of a witness about these nodes."""
    points: defaultdict[tuple[str, NodePart], list[Point]] = defaultdict(list)
    every = sorted(wanted.items())
    for some in (every[at : at + _ROUND] for at in range(0, len(every), _ROUND)):
        called = sorted(set().union(*(values for _, values in some)))
        these = matcher(_key(witness, named), any_of(called), "=~")
        for sample in (await ask(f"{_series(pool, witness, these)}[{duration(span)}]")).samples:
            if (node := _node(witness, named, sample)) in wanted:
                points[node, tuple(sample.label(label) for label in witness.parts)] += sample.points
    return points


def _called(
    witness: Witness, named: Naming, told: Iterable[tuple[str, Sample]]
) -> dict[str, set[str]]:
    """What the series of a witness call each node."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for node, sample in told:
        found[node].add(sample.label(_key(witness, named)))
    return found


def _key(witness: Witness, named: Naming) -> str:
    return "instance" if witness.on_host else named.label


def _node(witness: Witness, named: Naming, sample: Sample) -> str:
    return named.host(sample.labels) if witness.on_host else sample.label(named.label)


def _series(pool: Pool, witness: Witness, *more: str) -> str:
    return pool.series(
        witness.metric, *(matcher(*_turned(one)) for one in witness.conditions), *more
    )


def _turned(condition: tuple[str, str, str]) -> tuple[str, str, str]:
    label, operator, value = condition
    return label, value, operator


def _exporters(pool: Pool, span: float) -> str:
    """Metrics of exporters on the nodes that there are: where one is not installed, nothing more is asked of it."""
    names = matcher(
        "__name__", any_of(sorted({one.metric for one in WITNESSES if one.on_host})), "=~"
    )
    series = "{" + ",".join([*pool.matchers, names]) + "}"
    there = f'label_replace(group by (__name__) ({series}), "metric", "$1", "__name__", "(.+)")'
    return f"max by (metric) (max_over_time(({there})[{duration(span)}:{duration(GRID)}]))"


def _worth(pool: Pool, named: Naming, witness: Witness, span: float) -> str:
    """1 for each node on which the witness may have something to tell, 0 for others."""
    if witness.on_host:
        return of_devices(
            pool, witness.metric, _HOST, span, lambda series: _said(witness, series, _HOST, span)
        )
    return _said(witness, _series(pool, witness), named.label, span)


def _said(witness: Witness, selected: str, key: str, span: float) -> str:
    """The same of selected series, by `key`."""
    series = f"{selected}[{duration(span)}]"
    if witness.worth == "low":
        return f"min by ({key}) (min_over_time({series})) == bool 0"
    high = f"max by ({key}) (max_over_time({series}))"
    if witness.worth == "high":
        return f"{high} != bool 0"
    if witness.worth == "fresh":
        return f"{high} > bool (time() - {span:.0f})"
    moved = f"({high} != bool min by ({key}) (min_over_time({series})))"
    if not witness.parts:
        return moved
    each = f"sum by ({key}, {', '.join(witness.parts)}) (count_over_time({series}))"
    return f"{moved} + on ({key}) (max by ({key}) ({each}) > bool 3 + min by ({key}) ({each}))"
