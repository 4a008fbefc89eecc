"""Which label of the series names the node, and whether the API server knows the names.

kube-state-metrics calls the label `node`; a scrape that has a label of that name renames it to
`exported_node`, and a relabelling may put it elsewhere. So the label is found by its values: it has
as many as there are machines. Series whose names the API server does not know are refused, with
what to change: they would count many nodes as one, or no failure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

from mofa_operator.keys import NODE
from mofa_operator.observe.cluster.store import Store
from mofa_operator.observe.prometheus.client import Prometheus
from mofa_operator.observe.prometheus.promql import AGO, Pool

NODE_LABELS: Final = (
    "exported_node",
    "node",
    "kubernetes_node",
    "nodename",
    "node_name",
    "kubernetes_io_hostname",
    "instance",
)
"""Labels that may name a node, the likeliest first."""
HOST_LABELS: Final = (
    "Hostname",
    "nodename",
    "exported_node",
    "kubernetes_node",
    "node",
    "node_name",
    "instance",
    "host_ip",
)
"""Labels by which a series of an exporter or a pod may show its node, the likeliest first."""
LATELY: Final = 900.0
"""For how long a deleted node counts as known: its series go on until the next scrape. [s]"""
ADDRESS: Final = "internal_ip"
"""Label of kube_node_info that says a node's address."""
_MACHINE: Final = ("provider_id", "system_uuid", ADDRESS)
_REMEDY: Final = (
    "scrape kube-state-metrics with honor_labels: true (honorLabels of a ServiceMonitor), "
    "relabel its label node nowhere, or name its label in spec.prometheus.nodeLabel"
)


@dataclass(frozen=True, slots=True)
class NodeNaming:
    """How the series of one server name nodes."""

    label: str
    """The label of kube-state-metrics' series that names the node."""
    names: frozenset[str] = frozenset()
    """Nodes that the series show."""
    addresses: Mapping[str, str] = field(default_factory=dict)
    """Nodes by address."""

    def with_nodes(self, infos: Iterable[Mapping[str, str]]) -> NodeNaming:
        """This naming, which also knows the nodes that the labels of more series name."""
        named = [info for info in infos if info.get(self.label)]
        addresses = {info[ADDRESS]: info[self.label] for info in named if info.get(ADDRESS)}
        return NodeNaming(
            self.label,
            self.names | {info[self.label] for info in named},
            {**self.addresses, **addresses},
        )

    def host(self, labels: Mapping[str, str]) -> str:
        """The node of a series of an exporter or a pod; empty where no label names one."""
        for label in HOST_LABELS:
            value = labels.get(label, "")
            for name in (value, value.rpartition(":")[0], value.partition(".")[0]):
                if name in self.names:
                    return name
                if name in self.addresses:
                    return self.addresses[name]
        return ""


@dataclass(frozen=True, slots=True)
class KnownNodes:
    """Nodes that the API server has, or had lately; an empty set means unknown."""

    every: frozenset[str] = frozenset()
    pool: frozenset[str] = frozenset()


class RecentNodes:
    """The nodes that the store has, and those that it had lately."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._every: dict[str, float] = {}
        self._pools: dict[str, dict[str, float]] = {}

    def known(self, profile: str, now: float) -> KnownNodes:
        """Nodes that the series of a profile may name; `now` in seconds of the epoch. [s]"""
        pool = self._pools.setdefault(profile, {})
        for last_seen, names in (
            (self._every, [key.name for key in self._store.keys(NODE)]),
            (pool, self._store.nodes(profile).names),
        ):
            last_seen.update(dict.fromkeys(names, now))
            for expired in [name for name, moment in last_seen.items() if now - moment > LATELY]:
                del last_seen[expired]
        return KnownNodes(every=frozenset(self._every), pool=frozenset(pool))


def naming_of(
    series: Sequence[Mapping[str, str]], nodes: AbstractSet[str] = frozenset(), stated: str = ""
) -> NodeNaming | str:
    """Which label names the nodes, judged by series of one node each; a sentence where none does.

    `nodes` are those of the API server, `stated` is the label that the profile states.

    >>> naming_of([{"node": name, "instance": "exporter:1"} for name in "ab"]).label
    'node'
    """
    labels = (
        [stated] if stated else [name for name in NODE_LABELS if any(name in row for row in series)]
    )
    values = {label: {row.get(label, "") for row in series} for label in labels}
    machines = {next((row[key] for key in _MACHINE if row.get(key)), "") for row in series} - {""}
    distinct = [len(values[label] - {""}) for label in labels if label != "instance"]
    least = len(machines) or max(distinct, default=1)
    for label in labels:
        names = values[label]
        if "" not in names and len(names) >= least and (not nodes or names <= nodes):
            return NodeNaming(label).with_nodes(series)
    examples = ", ".join(_example(label, values[label], nodes) for label in labels) or "none"
    what = "names the nodes of the API server" if nodes else "has a value for each node"
    return f"no label of kube_node_status_condition {what}: {examples}"


def _example(label: str, values: set[str], nodes: AbstractSet[str]) -> str:
    first = min(values - nodes or values)
    more = f" and {len(values) - 1} more" if len(values) > 1 else ""
    return f"{label} says {first[:80]!r}{more}"


async def node_labels_at(
    prometheus: Prometheus, pool: Pool, now: float, ago: str = ""
) -> list[Mapping[str, str]]:
    """Labels that may name a node, of the nodes that are there now or some time ago."""
    stated = [pool.label] if pool.label else []
    labels = dict.fromkeys((*NODE_LABELS, *HOST_LABELS, *_MACHINE, *stated))
    return [s.labels for s in (await prometheus.query(pool.nodes_at(labels, ago), now)).samples]


async def node_naming(
    prometheus: Prometheus, pool: Pool, names: KnownNodes, now: float
) -> NodeNaming | str:
    """How the series name nodes now, or a sentence that says what is wrong."""
    series: list[Mapping[str, str]] = []
    for ago in AGO:
        series = series or await node_labels_at(prometheus, pool, now, ago)
    naming = naming_of(series, names.every, pool.label)
    if isinstance(naming, str):
        example = f" (one is {_quoted(min(names.pool or names.every))})" if names.every else ""
        return f"{naming}{example}; {_REMEDY}; several clusters need spec.prometheus.matchers"
    if names.pool and pool.members:
        members = (await prometheus.query(pool.members_by(naming.label), now)).by(naming.label)
        if others := sorted({node for (node,) in members} - names.pool):
            return (
                f"the label {naming.label} of kube_node_labels says {_quoted(others[0])}, "
                "which is no node of this pool in the API server "
                f"(one is {_quoted(min(names.pool))}); {_REMEDY}"
            )
    return naming


def unknown_nodes(nodes: frozenset[str], names: KnownNodes) -> str:
    """A sentence where the API server knows no node of the window; empty where it knows one."""
    if not names.pool or nodes & names.every:
        return ""
    return (
        f"the series name {_quoted(min(nodes))}, and no node of this pool in the API server "
        f"was ever named (one is {_quoted(min(names.pool))}); {_REMEDY}"
    )


def _quoted(name: str) -> str:
    return repr(name[:80]) if name else "nothing"
