"""Looks at neighbouring stretches as the whole past of each node and pod."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from statistics import median

from mofa_operator.incidents.node_life import NodeLife, NodePart
from mofa_operator.incidents.runs import ValueRun, joined
from mofa_operator.incidents.witnesses import WITNESSES, Witness
from mofa_operator.observe.looks import Look


def lives(looks: Sequence[Look]) -> list[NodeLife]:
    """The nodes of a pool."""
    told: defaultdict[str, defaultdict[Witness, defaultdict[NodePart, list[ValueRun]]]] = (
        defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    )
    spacings: defaultdict[Witness, list[float]] = defaultdict(list)
    for one in looks:
        for witness, gap in one.read.spacing.items():
            spacings[witness].append(gap)
        for node, by_witness in one.read.told.items():
            for witness, parts in by_witness.items():
                for part, many in parts.items():
                    told[node][witness][part] += many
        for witness, there in one.read.exists.items():
            for node in there:
                told[node][witness]
    spacing = {witness: median(gaps) for witness, gaps in spacings.items()}
    nodes = sorted(frozenset().union(*(one.nodes for one in looks)))
    known = tuple(joined((span for one in looks for span in one.covered), 1.0))
    return [
        NodeLife(
            name=node,
            told={
                witness: {
                    part: _one(many, witness.apart * spacing.get(witness, 60.0))
                    for part, many in parts.items()
                }
                for witness, parts in told[node].items()
            },
            spacing=spacing,
            labels=next((one.labels[node] for one in reversed(looks) if node in one.labels), {}),
            seen=tuple(joined((span for one in looks for span in one.present.get(node, ())), 1.0)),
            known=known,
        )
        for node in nodes
    ]


def unseen(looks: Sequence[Look]) -> Iterator[str]:
    """What cannot be seen for want of an exporter, and on how many nodes."""
    nodes = frozenset[str]().union(*(one.nodes for one in looks))
    for witness in WITNESSES:
        there = frozenset[str]().union(*(one.read.exists.get(witness, ()) for one in looks))
        if witness.alone and (without := len(nodes - there)):
            yield f"{witness.alone} are not seen on {without} of {len(nodes)} nodes: they have no series {witness.metric}"


def _one(many: Iterable[ValueRun], apart: float) -> tuple[ValueRun, ...]:
    """Runs of several looks as one past; what two looks saw is told once, and a silence of `apart` ends one. [s]"""
    found: list[ValueRun] = []
    for run in sorted(many, key=lambda run: (run.start, run.end)):
        last = found[-1] if found else None
        if last is None or run.start > last.end:
            if last is not None and last.value == run.value and run.start - last.end <= apart:
                found[-1] = ValueRun(last.start, run.end, run.value)
            else:
                found.append(run)
        elif run.end > last.end:
            if run.value == last.value:
                found[-1] = ValueRun(last.start, run.end, run.value)
            else:
                found.append(ValueRun(last.end, run.end, run.value))
    return tuple(found)
