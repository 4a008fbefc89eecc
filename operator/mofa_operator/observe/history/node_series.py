"""Samples of nodes, read one by one only where aggregates show that something happened."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from mofa_model.units import DAY
from mofa_operator.incidents.timelines import (
    BOOT,
    COUNTED,
    HEARTBEATS,
    READY,
    SIGNALS,
    TAINT,
    XID,
    Point,
    Signal,
    SignalTimeline,
    Span,
    ValueRun,
    spacing_of,
    value_runs,
)
from mofa_operator.observe.history.node_names import HOST_LABELS, NodeNaming
from mofa_operator.observe.prometheus.client import Asking, Sample, together
from mofa_operator.observe.prometheus.promql import (
    Pool,
    any_of,
    by_trusted_exporters,
    duration,
    matcher,
)

OVERLAP: Final = 900.0
"""How long before its start a piece is read, so that a change at its seam is seen. [s]"""
_SILENT: Final = 50
"""Most nodes whose exporters count as silent at a seam; of more, the exporter is new. [1]"""
_AT_ONCE: Final = 8
"""Most nodes that one query reads sample by sample. [1]"""
_USUAL: Final = 60.0
"""Assumed time between samples where too few are there to measure it. [s]"""
_HOST: Final = ", ".join(label for label in HOST_LABELS if label != "host_ip")
NamesByNode: TypeAlias = dict[str, tuple[str, ...]]
"""The names that the series of a signal give to each node."""


class NodeSeries:
    """What the signals say of some nodes in a piece of time; `read` fills it."""

    def __init__(
        self,
        ask: Asking,
        pool: Pool,
        naming: NodeNaming,
        nodes: frozenset[str],
        seconds: float,
        lacking: frozenset[str] = frozenset(),
        most: float = 0.0,
    ) -> None:
        """`seconds` is the length of the time that is read, and `most` the most samples of a series
        in it; the nodes in `lacking` were not there throughout.
        """
        self._most, self._day = most, seconds
        self._ask, self._pool, self._naming = ask, pool, naming
        self._nodes = {name: name for name in nodes}
        self._alike: NamesByNode = {}  # so that equal names of 10,000 nodes are one object
        self._lacking = lacking
        self._seconds = seconds + OVERLAP
        self.timelines: list[SignalTimeline] = []
        self.spacing: dict[Signal, float] = {}
        self.reporting: dict[Signal, frozenset[str]] = {}
        self.gpu_instances: NamesByNode = {}

    async def read(self) -> NodeSeries:
        """Read the samples of all signals into this object, and return it."""
        names: dict[Signal, NamesByNode] = {}
        needed: dict[Signal, NamesByNode] = {}
        everywhere = frozenset(self._nodes)

        async def ask(signal: Signal) -> None:
            samples = (await self._ask(self._needs_reading(signal))).samples
            node_names = self._names(signal, samples)
            if signal.on_host:  # others call a node by its name
                names[signal] = node_names
            needed[signal] = self._names(signal, (s for s in samples if s.value))
            same = len(node_names) == len(everywhere)
            self.reporting[signal] = everywhere if same else frozenset(node_names)

        await together(*map(ask, SIGNALS))
        # exporters on the host show whether the host was down, or only whoever watches it
        for node in sorted(needed[READY]):
            for signal in (BOOT,) if node in self.reporting[BOOT] else HEARTBEATS:
                if node in names[signal]:
                    needed[signal][node] = names[signal][node]
        for node in needed[COUNTED]:  # the code that a GPU holds shows whether it was counted again
            if node in names[XID]:
                needed[XID][node] = names[XID][node]
        for node in self._lacking.union(*needed.values()):
            needed[READY].setdefault(node, (node,))
        silent = await self._silent_at_seam(names)
        for signal in SIGNALS:
            names_read = needed[signal]
            silent_names = {
                n: names[signal][n] for n in silent if signal.on_host and n in names[signal]
            }
            await self._read(signal, {n: v for n, v in names_read.items() if n not in silent_names})
            await self._read(signal, silent_names, self._seconds + DAY)
        await self._add_constant_runs(TAINT)
        self.gpu_instances = names[XID]
        return self

    async def _silent_at_seam(self, names: Mapping[Signal, NamesByNode]) -> set[str]:
        """Nodes whose exporters published nothing just before the piece, only longer ago."""
        signal = next((candidate for candidate in (BOOT, *HEARTBEATS) if names[candidate]), None)
        if signal is None:
            return set()
        before = f"[{duration(OVERLAP)}] offset {duration(self._day)}"
        query = f"max by ({_HOST}) (count_over_time({self._series(signal)}{before}))"
        names_before = self._names(signal, (await self._ask(query)).samples)
        silent = names[signal].keys() - names_before.keys()
        return silent if len(silent) <= _SILENT else set()

    async def _read(
        self, signal: Signal, wanted: Mapping[str, tuple[str, ...]], seconds: float | None = None
    ) -> None:
        """Read every sample of a signal about the `wanted` nodes, `seconds` back. [s]"""
        back = self._seconds if seconds is None else seconds
        points: defaultdict[tuple[str, tuple[str, ...]], list[Point]] = defaultdict(list)
        nodes = sorted(wanted)
        for batch in (nodes[first : first + _AT_ONCE] for first in range(0, len(nodes), _AT_ONCE)):
            values = sorted(set().union(*(wanted[node] for node in batch)))
            selection = matcher(self._key(signal), any_of(values), "=~")
            query = f"{self._series(signal, selection)}[{duration(back)}]"
            for sample in (await self._ask(query)).samples:
                if (node := self._node(signal, sample)) in wanted:
                    points[node, tuple(map(sample.label, signal.parts))] += sample.points
        if not points:
            return
        gaps = sorted(
            gap for samples in points.values() if (gap := spacing_of(sorted(samples), 5.0))
        )
        usual = gaps[len(gaps) // 2] if gaps else self.spacing.get(signal, _USUAL)
        self.spacing[signal] = spacing = usual
        read = (Span(self._ask.at - back, self._ask.at),)
        self.timelines += [
            SignalTimeline(node, signal, part, value_runs(samples, spacing, signal.silence), read)
            for (node, part), samples in points.items()
        ]

    async def _add_constant_runs(self, signal: Signal) -> None:
        """Add a run of 1 for each series that was not read, because it was 1 throughout."""
        read_parts = {(line.node, line.part) for line in self.timelines if line.signal == signal}
        end = self._ask.at
        by = ", ".join((self._key(signal), *signal.parts))
        answer = await self._ask(f"max by ({by}) ({self._series(signal)} == 1)")
        runs = (ValueRun(end - self._seconds, end, 1.0),)
        read = (Span(end - self._seconds, end),)
        for sample in answer.samples:
            node, part = self._node(signal, sample), tuple(map(sample.label, signal.parts))
            if node in self._nodes and (node, part) not in read_parts:
                self.timelines.append(SignalTimeline(node, signal, part, runs, read))

    def _names(self, signal: Signal, samples: Iterable[Sample]) -> NamesByNode:
        names_by_node: NamesByNode = {}
        key, equal_names = self._key(signal), self._alike
        for sample in samples:
            node = self._nodes.get(self._node(signal, sample))
            if node is not None:
                names, series_name = names_by_node.get(node, ()), sample.label(key)
                if series_name not in names:
                    extended = (*names, series_name)
                    names_by_node[node] = equal_names.setdefault("\n".join(extended), extended)
        return names_by_node

    def _key(self, signal: Signal) -> str:
        return "instance" if signal.on_host else self._naming.label

    def _node(self, signal: Signal, sample: Sample) -> str:
        naming = self._naming
        return naming.host(sample.labels) if signal.on_host else sample.label(naming.label)

    def _series(self, signal: Signal, *more: str) -> str:
        return self._pool.series(signal.metric, *signal.conditions, *more)

    def _needs_reading(self, signal: Signal) -> str:
        """A query that gives 1 for each node whose samples of a signal must be read, else 0."""
        if not signal.on_host:
            return self._aggregate(signal, self._series(signal), self._naming.label)
        return by_trusted_exporters(
            self._pool,
            signal.metric,
            _HOST,
            self._seconds,
            lambda series: self._aggregate(signal, series, _HOST),
        )

    def _aggregate(self, signal: Signal, selected: str, key: str) -> str:
        """A query above 0 for each `key` whose samples must be read, else 0. It compares the
        smallest, the largest and the number of the samples, as the signal's `read_when` says.
        """
        series = f"{selected}[{duration(self._seconds)}]"
        low = f"min by ({key}) (min_over_time({series}))"
        high = f"max by ({key}) (max_over_time({series}))"
        if signal.read_when == "low":
            return f"{low} == bool 0"
        if signal.read_when == "high":
            return f"{high} != bool 0"
        if signal.read_when == "rose":
            each = f"{key}, {', '.join(signal.parts)}"
            least = f"min by ({each}) (min_over_time({series}))"
            within = f"{selected}[{duration(self._day)}]"
            lacks = f"max by ({each}) (count_over_time({within})) < bool {self._most - 3:.0f}"
            highest = f"max by ({each}) (max_over_time({series}))"
            return f"max by ({key}) ({highest} * (({least} == bool 0) + ({lacks})))"
        if signal.read_when == "recent":
            return f"{high} > bool (time() - {self._seconds:.0f})"
        changed = f"({high} != bool {low})"
        if not signal.parts:
            return changed
        # a part whose series has fewer samples than that of another part came or went
        each = f"sum by ({key}, {', '.join(signal.parts)}) (count_over_time({series}))"
        most, least = f"max by ({key}) ({each})", f"min by ({key}) ({each})"
        return f"{changed} + on ({key}) ({most} > bool 3 + {least})"
