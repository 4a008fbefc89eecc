"""Whose word counts about nodes, devices and pods of others: by where the scrape says that a target runs, never by what it says itself.

    kube_node_*, node_*, problem_*   their label `namespace` is the target's
    kube_pod_*, kube_job_*           it may be the pod's (honorLabels): so by job and instance, as they have them who run where exporters do
    DCGM_*                           either; a series that names a pod counts where its instance runs there

Where exporters run, the ClusterProfile says; a target that no scrape places is static, and an administrator's. That targets there
are scraped, their series `up` says, which no payload can.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from mofa_operator.observe.answers import QueryResult
from mofa_operator.observe.promql import any_of, duration, matcher
from mofa_operator.observe.queries import GRID, Pool

_NODE_WORDS: Final = (
    "kube_node_status_condition|node_boot_time_seconds|problem_gauge|problem_counter"
)
_TOLD: Final = 3
"""Namespaces that a message names at most. [1]"""


async def heard(
    ask: Callable[[str], Awaitable[QueryResult]], pool: Pool, span: float, apart: Pool | None = None
) -> Pool | None:
    """The pool with who is believed about pods; None where nobody is. `apart` has matchers that pick exporters, where those pick pods."""
    found = (await ask(speaking(apart or pool, span))).samples
    if not found:
        return None
    said = (
        (label, any_of(sorted({one.label(label) for one in found})))
        for label in ("job", "instance")
    )
    return replace(pool, speakers=tuple(matcher(label, values, "=~") for label, values in said))


def speaking(pool: Pool, span: float) -> str:
    """Job and instance of those that speak of pods and run where exporters do: by `up`, or by what they say of nodes."""
    within, by = f"[{duration(span)}]", "group by (job, instance)"
    pods = " or ".join(
        f"{by} (last_over_time({pool.series(metric)}{within}))"
        for metric in ("kube_pod_info", "kube_pod_labels")
    )
    there = f"{by} (last_over_time({pool.series('up', pool.placed())}{within}))"
    nodes = f"{by} (last_over_time({pool.ready}{within}))"
    return f"({pods}) and on (job, instance) ({there} or {nodes})"


def of_devices(pool: Pool, metric: str, key: str, span: float, made: Callable[[str], str]) -> str:
    """What is made of a metric of exporters on the nodes, by `key`, which has the instance, for those that are believed."""
    if not metric.startswith("DCGM_"):
        return made(pool.series(metric))
    there = f"group by (instance) (last_over_time({pool.series('up', pool.placed())}[{duration(span)}]))"
    own = made(pool.series(metric, pool.placed()))
    kept = f"({made(pool.series(metric, pool.placed('!~')))}) and on (instance) ({there})"
    either = (
        f'label_replace({one}, "way", "{way}", "", "")'
        for way, one in (("own", own), ("kept", kept))
    )
    return f"max by ({key}) ({' or '.join(either)})"


async def left_out(ask: Callable[[str], Awaitable[QueryResult]], pool: Pool) -> str:
    """What is said of those that speak of nodes and pods and are not believed; empty where there are none."""
    others = pool.placed("!~")
    words = ",".join([*pool.matchers, matcher("__name__", _NODE_WORDS, "=~"), others])
    pods = f"{pool.series('kube_pod_info', others)} and on (job, instance, namespace) {pool.series('up', others)}"
    look = f"last_over_time({{{words}}}[{duration(2 * GRID)}])"
    found = (await ask(f"group by (namespace) ({look}) or group by (namespace) ({pods})")).samples
    names = sorted({one.label("namespace") for one in found})
    if not names:
        return ""
    said = ", ".join(name[:63] for name in names[:_TOLD]) + (
        " and others" if len(names) > _TOLD else ""
    )
    return f"series of nodes and pods from {said} were left out; who is believed, spec.prometheus.exporterNamespaces says"
