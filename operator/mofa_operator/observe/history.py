"""The failure history of a pool: exposure first, then counts, and every doubt said.

Three things must not be mixed up: that nothing failed, that nothing was watched, and that nobody answered. Exposure comes
from the samples that are there, never from the length of the window; a series that does not exist makes its class unknown
and is named in `missing`; a server that does not answer makes no history at all.

Whose exposure: a recovery is seen only where a job runs, so node-days are those with a training pod on the node. Where
training pods filled less than a tenth of the ready node-days, node failures say more than they do: these are then counted
as class pod over all ready node-days (the loss of a node replaces its pods), and the other classes stay unknown.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final, TypeAlias

from mofa_model.errors import InputError, SourceUnreachable
from mofa_model.kinds.shape import Body
from mofa_model.manifest.cluster_profile import ClusterProfileSpec
from mofa_model.manifest.parsing import cluster_profile
from mofa_model.spec.evidence import FailureEvidence
from mofa_model.spec.recovery_classes import RecoveryClass
from mofa_model.units import DAY
from mofa_operator.observe.days import days, node_failures
from mofa_operator.observe.facts import StretchFacts, facts, together
from mofa_operator.observe.incidents import Incidents, incidents
from mofa_operator.observe.names import Names, misnamed, unknown
from mofa_operator.observe.prometheus import Prometheus
from mofa_operator.observe.queries import Pool
from mofa_operator.observe.stalls import Edges, edges, timed
from mofa_operator.observe.stretches import SETTLED, Stretch, stretches
from mofa_operator.recent import Recent
from mofa_operator.snapshot import History, NoHistory
from mofa_operator.words import Reason

BUSY: Final = 0.1
"""Share of the ready node-days that training pods must fill for their recoveries to be the evidence. [1]"""
_AT_ONCE: Final = 3
"""Stretches that are asked for at the same time. [1]"""

Known: TypeAlias = Recent[tuple[StretchFacts, list[Edges]]]
"""What was found out about stretches that are over; keep one for as long as the operator runs."""


async def history(
    prometheus: Prometheus, profile: Body, now: float, known: Known | None = None, names: Names | None = None
) -> History | NoHistory:
    """The history of a ClusterProfile's pool up to now; it never raises for what a server or a profile may do."""
    try:
        return await asked(prometheus, profile, now, known, names)
    except (SourceUnreachable, InputError) as error:
        return NoHistory(reason=Reason.HISTORY_UNAVAILABLE, message=str(error))


async def asked(
    prometheus: Prometheus, profile: Body, now: float, known: Known | None = None, names: Names | None = None
) -> History | NoHistory:
    """As `history`; raises SourceUnreachable and InputError. `names` are of the API server's nodes."""
    spec, pool = _pool(profile)
    by_cluster = (await prometheus.query(pool.clusters(), now)).by("cluster")
    if (
        not by_cluster
    ):  # no node now, a day ago, a week ago: what is asked for next would only look like a loss of nodes
        return await _nothing(prometheus, pool, spec, now, seen=False)
    clusters = sorted(name for (name,) in by_cluster if name)
    if len(clusters) > 1 and "cluster" not in spec.prometheus.matchers:
        several = f"the server holds several clusters ({', '.join(clusters[:5])})"
        return NoHistory(
            reason=Reason.HISTORY_UNAVAILABLE, message=f"{several}; set spec.prometheus.matchers.cluster"
        )
    names = names or Names()
    if wrong := await misnamed(prometheus, pool, names, now):
        return NoHistory(reason=Reason.NODE_NAMES_DIFFER, message=wrong)
    window = float(spec.prometheus.window_seconds)
    wanted = stretches(now, window, round(sum(by_cluster.values())), prometheus.longest)
    kept = Known() if known is None else known
    gate = asyncio.Semaphore(_AT_ONCE)
    looks = await together(*(_look(prometheus, pool, one, now, kept, gate) for one in wanted))
    found, stalls = [one for one, _ in looks], [edge for _, many in looks for edge in many]
    nodes = frozenset().union(*(one.nodes for one in found))
    if not nodes or not any(one.covered for one in found):
        return await _nothing(prometheus, pool, spec, now, seen=any(one.covered for one in found))
    if wrong := unknown(nodes, names):
        return NoHistory(reason=Reason.NODE_NAMES_DIFFER, message=wrong)
    there = {node for (node,) in (await prometheus.query(pool.now_present(), now)).by("node")}
    return _concluded(found, stalls, nodes, _absent(nodes, there))


def _pool(profile: Body) -> tuple[ClusterProfileSpec, Pool]:
    """What a profile asks for; its status does not matter here."""
    spec = cluster_profile({key: value for key, value in profile.items() if key != "status"}).spec
    return spec, Pool.of(spec.prometheus.matchers, spec.node_selector)


async def _look(
    prometheus: Prometheus, pool: Pool, stretch: Stretch, now: float, known: Known, gate: asyncio.Semaphore
) -> tuple[StretchFacts, list[Edges]]:
    """One stretch; from memory, where it is over and was looked at before."""
    key = (prometheus.address, pool, stretch)
    if key in known:
        return known[key]
    async with gate:
        found = await facts(prometheus, pool, stretch), await edges(prometheus, pool, stretch)
    if now - stretch.end >= SETTLED and not found[0].warnings:
        known[key] = found
    return found


async def _nothing(
    prometheus: Prometheus, pool: Pool, spec: ClusterProfileSpec, now: float, *, seen: bool
) -> NoHistory:
    """Why nothing is to be seen, and what would help."""
    span = min(float(spec.prometheus.window_seconds), prometheus.longest)
    if not seen:
        exists = (await prometheus.query(Pool.of({}, {}).covered(span), now)).number()
        hint = "spec.prometheus.matchers leave none of it" if exists else "is kube-state-metrics scraped?"
        why = f"kube_node_status_condition has no data; {hint}"
    elif (await prometheus.query(pool.labelled_nodes(span), now)).number():
        wanted = ", ".join(f"{key}={value}" for key, value in sorted(spec.node_selector.items()))
        why = f"kube_node_labels knows no node with {wanted}; look at spec.nodeSelector"
    else:
        allow = f"--metric-labels-allowlist=nodes=[{','.join(pool.labels)}]"
        why = f"kube_node_labels lacks {', '.join(pool.labels)}; start kube-state-metrics with {allow}"
    return NoHistory(reason=Reason.SERIES_MISSING, message=why)


def _absent(nodes: frozenset[str], there: set[str]) -> str:
    """What is said of nodes that are not there; where nobody is, the exporter is silent, and no node need be gone."""
    if not there:
        return "kube_node_status_condition is silent just now"
    gone = len(nodes - there)
    return f"{gone} nodes of the pool are gone; they are not counted as failures" if gone else ""


def _concluded(found: list[StretchFacts], stalls: list[Edges], nodes: frozenset[str], absent: str) -> History:
    """The history from facts; `absent` is what is said of nodes that are not there."""
    ready, failed = Counter[str](), Counter[str]()
    for one in found:
        ready.update(one.ready)
        failed.update(one.failures)
    at_work = [_busy(one, nodes) for one in found]
    busy = sum(at_work)
    window = found[-1].stretch.end - found[0].stretch.start
    coverage = min(1.0, sum(one.covered for one in found) / window)
    jobs = incidents(found, nodes)
    recovered = timed(jobs, stalls)
    rests_on_jobs = busy >= BUSY * sum(ready.values()) > 0
    moments: dict[str, list[float | None]]
    if rests_on_jobs:
        moments = {name: [at for _, at in every] for name, every in jobs.by_class.items()}
    else:  # the loss of a node replaces its pods
        moments, recovered = {RecoveryClass.POD.value: [*node_failures(found)]}, {}
    exposure = (busy if rests_on_jobs else sum(ready.values())) / DAY
    times = {name: tuple(took for _, took in recovered.get(name, ())) for name in moments}
    told = list(dict.fromkeys(text for one in found for text in one.warnings))
    if absent:
        told.append(absent)
    return History(
        classes={
            name: FailureEvidence(
                node_days=exposure,
                failures=len(every),
                recoveries=len(times[name]),
                recovery_seconds=sum(times[name]),
            )
            for name, every in moments.items()
        },
        node_days=exposure,
        window=window,
        coverage=coverage,
        by_node=dict(failed),
        node_days_by_node={node: seconds / DAY for node, seconds in sorted(ready.items()) if seconds},
        missing=tuple(_missing(jobs, rests_on_jobs=rests_on_jobs)),
        warnings=tuple(told),
        at=found[-1].stretch.end,
        days=days(
            found,
            at_work if rests_on_jobs else [sum(one.ready.values()) for one in found],
            moments,
            recovered,
        ),
        recoveries={name: every for name, every in times.items() if every},
    )


def _busy(one: StretchFacts, nodes: frozenset[str]) -> float:
    """Node-time with a training pod on the node. [node s]"""
    on_node = Counter[str]()
    for pod in one.pods.values():
        if pod.node in nodes:
            on_node[pod.node] += pod.seconds  # type: ignore[assignment]
    return sum(min(seconds, one.covered) for seconds in on_node.values())


def _missing(jobs: Incidents, *, rests_on_jobs: bool) -> list[str]:
    """Series without which a class is unknown."""
    if not jobs.placed:
        return ["kube_pod_info"]
    if not rests_on_jobs and not jobs.pods:
        return ["kube_pod_labels of training pods"]
    return [] if RecoveryClass.PROCESS in jobs.by_class else ["kube_pod_container_status_restarts_total"]
