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
