"""Which label of the series names the node, and which node an exporter stands on.

kube-state-metrics calls it `node`; a scrape that keeps its own label there makes `exported_node` of it, and a relabelling may have
put it into another. So the label is found by what it holds: as many values as there are machines. Exporters on the nodes are known
by the names and addresses of these.
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
"""Labels by which an exporter's or a pod's series may say where it is, the likeliest first."""
_MACHINE: Final = ("provider_id", "system_uuid", "internal_ip")


@dataclass(frozen=True, slots=True)
class Naming:
    """How the series of one server name nodes."""

    label: str
    """Label of kube-state-metrics' series that names the node."""
    names: frozenset[str] = frozenset()
    """All nodes that are known."""
    addresses: Mapping[str, str] = field(default_factory=dict)
    """Nodes by address."""

    def also(self, infos: Iterable[Mapping[str, str]]) -> Naming:
        """With more nodes: those of another time."""
        every = [one for one in infos if one.get(self.label)]
        addresses = {one["internal_ip"]: one[self.label] for one in every if one.get("internal_ip")}
        return Naming(
            self.label,
            self.names | {one[self.label] for one in every},
            {**self.addresses, **addresses},
        )

    def host(self, labels: Mapping[str, str]) -> str:
        """The node that a series of an exporter or a pod is about; empty where none of its labels names one."""
        for label in HOST_LABELS:
            value = labels.get(label, "")
            for said in (value, value.rpartition(":")[0], value.partition(".")[0]):
                if said in self.names:
                    return said
                if said in self.addresses:
                    return self.addresses[said]
        return ""


def naming(
    told: Sequence[Mapping[str, str]], known: AbstractSet[str] = frozenset(), wanted: str = ""
) -> Naming | str:
    """From the labels of series of one node each; a sentence where no label names the nodes.

    `known` are the nodes that there are, where somebody knows; `wanted` is the label that somebody states.

    >>> naming([{"node": "a", "instance": "exporter:1"}, {"node": "b", "instance": "exporter:1"}]).label
    'node'
    """
    labels = (
        [wanted]
        if wanted
        else [label for label in NODE_LABELS if any(label in one for one in told)]
    )
    machines = len(
        {next((one[key] for key in _MACHINE if one.get(key)), "") for one in told} - {""}
    )
    machines = machines or max(
        (
            len({one.get(label, "") for one in told} - {""})
            for label in labels
            if label != "instance"
        ),
        default=1,
    )
    for label in labels:
        values = {one.get(label, "") for one in told}
        if "" not in values and len(values) >= machines and (not known or values <= known):
            return Naming(label).also(told)
    said = ", ".join(_example(label, told, known) for label in labels) or "none"
    what = "names the nodes of the API server" if known else "has a value for each node"
    return f"no label of kube_node_status_condition {what}: {said}"


def _example(label: str, told: Sequence[Mapping[str, str]], known: AbstractSet[str]) -> str:
    values = {one.get(label, "") for one in told}
    strange = sorted(values - known) if known else sorted(values)
    return f"{label} says {strange[0][:80]!r}" + (
        f" and {len(values) - 1} more" if len(values) > 1 else ""
    )


# Whether the series name the nodes that the API server knows: where no label does, what they show is of no node of ours.
#
# Such series count one node for many, or none, and no failure: so they are refused, with what to change.
#
# A node that was deleted goes on in the series until the next scrape, so that what the API server knew lately counts as known.

LATELY: Final = 900.0
"""For how long a node that is gone counts as known: longer than anything looks back for a last sample. [s]"""
_REMEDY: Final = (
    "scrape kube-state-metrics with honor_labels: true (honorLabels of a ServiceMonitor), "
    "relabel its label node nowhere, or name its label in spec.prometheus.nodeLabel"
)


@dataclass(frozen=True, slots=True)
class Names:
    """Names of nodes, as the API server has them now or had them lately; empty sets say nothing."""

    every: frozenset[str] = frozenset()
    """Of the cluster."""
    pool: frozenset[str] = frozenset()
    """Of the profile's pool."""


class Lately:
    """What the store knows of nodes, and what it knew a while ago."""

    def __init__(self, store: Store) -> None:
        """`store` is told of nodes by the API server."""
        self._store = store
        self._every: dict[str, float] = {}
        self._pools: dict[str, dict[str, float]] = {}

    def known(self, profile: str, now: float) -> Names:
        """Names of the nodes that the series of a profile of this name may name; `now` in seconds of the epoch. [s]"""
        pool = self._pools.setdefault(profile, {})
        for seen, names in (
            (self._every, [key.name for key in self._store.keys(NODE)]),
            (pool, self._store.nodes(profile).names),
        ):
            seen.update(dict.fromkeys(names, now))
            for old in [one for one, at in seen.items() if now - at > LATELY]:
                del seen[old]
        return Names(every=frozenset(self._every), pool=frozenset(pool))


async def named(prometheus: Prometheus, pool: Pool, known: Names, now: float) -> Naming | str:
    """How the series name nodes just now, or in one sentence what is wrong with that."""
    told: list[Mapping[str, str]] = []
    for ago in AGO:
        told = told or [
            one.labels for one in (await prometheus.query(pool.nodes_at(ago), now)).samples
        ]
    found = naming(told, known.every, pool.label)
    if isinstance(found, str):
        one = f" (one is {_said(min(known.pool or known.every))})" if known.every else ""
        return f"{found}{one}; {_REMEDY}; several clusters need spec.prometheus.matchers"
    if known.pool and pool.members:
        members = (await prometheus.query(pool.members_named(found.label), now)).by(found.label)
        if others := sorted({node for (node,) in members} - known.pool):
            return (
                f"the label {found.label} of kube_node_labels says {_said(others[0])}, which is no node of this pool in the API "
                f"server (one is {_said(min(known.pool))}); {_REMEDY}"
            )
    return found


def unknown(nodes: frozenset[str], known: Names) -> str:
    """What is wrong where no node of the whole window is one that the API server knows; empty where one is."""
    if not known.pool or nodes & known.every:
        return ""
    return (
        f"the series name {_said(min(nodes))}, and no node of this pool in the API server was ever named "
        f"(one is {_said(min(known.pool))}); {_REMEDY}"
    )


def _said(name: str) -> str:
    return repr(name[:80]) if name else "nothing"
