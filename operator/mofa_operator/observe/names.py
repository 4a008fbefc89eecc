"""Whether the series name the nodes that the API server knows: where they do not, what they show is of no node of ours.

A scrape may put a label `node` of its own (the machine on which the exporter runs) in the place of the exporter's, which then is
called `exported_node`; a relabelling may leave the name in `instance` or `kubernetes_node`, or write it in another form. Such
series count one node for many, or none, and no failure: so they are refused, with what to change.

A node that was deleted goes on in the series until the next scrape, so that what the API server knew lately counts as known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mofa_operator.keys import NODE
from mofa_operator.observe.prometheus import Prometheus
from mofa_operator.observe.queries import EXPORTED, Pool
from mofa_operator.observe.store import Store

LATELY: Final = 900.0
"""For how long a node that is gone counts as known: longer than anything looks back for a last sample. [s]"""
_REMEDY: Final = (
    "scrape kube-state-metrics with honor_labels: true (honorLabels of a ServiceMonitor), "
    "and relabel its label node nowhere"
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


async def misnamed(prometheus: Prometheus, pool: Pool, known: Names, now: float) -> str:
    """What is wrong with the names of nodes in the series just now; empty where nothing is."""
    told = (await prometheus.query(pool.named(), now)).by("node", EXPORTED)
    if wrong := sorted((exported, node) for node, exported in told if exported not in {"", node}):
        name, node = wrong[0]
        return (
            f"the label node of kube_node_status_condition says {_said(node)} where {EXPORTED} says {_said(name)}: "
            f"the scrape puts its own label in the place of the exporter's; {_REMEDY}"
        )
    names = {node for node, _ in told}
    if strange := sorted(names - known.every if known.every else names & {""}):
        return await _strange(prometheus, pool, known, strange[0], now)
    if known.pool and pool.members:
        members = (await prometheus.query(pool.members_named(), now)).by("node")
        if others := sorted({node for (node,) in members} - known.pool):
            return (
                f"the label node of kube_node_labels says {_said(others[0])}, which is no node of this pool in the API server "
                f"(one is {_said(min(known.pool))}); {_REMEDY}"
            )
    return ""


def unknown(nodes: frozenset[str], known: Names) -> str:
    """What is wrong where no node of the whole window is one that the API server knows; empty where one is."""
    if not known.pool or nodes & known.every:
        return ""
    return (
        f"the label node says {_said(min(nodes))}, and no node of this pool in the API server was ever named "
        f"(one is {_said(min(known.pool))}); {_REMEDY}"
    )


async def _strange(prometheus: Prometheus, pool: Pool, known: Names, node: str, now: float) -> str:
    """What is wrong with a node that the API server does not know, and where its name may be."""
    series = (await prometheus.query(pool.some_named(node), now)).samples
    others = sorted(
        (label, value)
        for one in series
        for label, value in one.labels.items()
        if label != "node" and value in known.every
    )
    where = f"; a name of one stands in label {others[0][0]} ({_said(others[0][1])})" if others else ""
    several = "" if others else ", and where the server holds several clusters set spec.prometheus.matchers"
    one = f" (one is {_said(min(known.pool or known.every))})" if known.every else ""
    return (
        f"the label node of kube_node_status_condition says {_said(node)}, which is no node of the API server"
        f"{one}{where}; {_REMEDY}{several}"
    )


def _said(name: str) -> str:
    return repr(name[:80]) if name else "nothing"
