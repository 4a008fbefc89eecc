"""Whether the series name the nodes that the API server knows: where no label does, what they show is of no node of ours.

Such series count one node for many, or none, and no failure: so they are refused, with what to change.

A node that was deleted goes on in the series until the next scrape, so that what the API server knew lately counts as known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mofa_operator.keys import NODE
from mofa_operator.observe.naming import Naming, naming
from mofa_operator.observe.prometheus import Prometheus
from mofa_operator.observe.queries import AGO, Pool
from mofa_operator.observe.store import Store

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
