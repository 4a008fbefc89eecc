"""The failure history of a pool: exposure first, then counts, and every doubt said.

Three things must not be mixed up: that nothing failed, that nothing was watched, and that nobody answered. Exposure comes
from the samples that are there, never from the length of the window; a series that does not exist makes its class unknown
and is named in `missing`; a server that does not answer makes no history at all.

Whose exposure: a recovery is seen only where a job runs, so node-days are those with a training pod on the node. Where these
are less than a tenth of the ready node-days, node failures say more: they count as class pod over all ready node-days.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final, TypeAlias

from mofa_model.errors import InputError, SourceUnreachable
from mofa_model.kinds.shape import Body
from mofa_model.manifest.cluster_profile import ClusterProfileSpec, IncidentRules
from mofa_model.manifest.parsing import cluster_profile
from mofa_model.spec.evidence import FailureEvidence
from mofa_model.spec.recovery_classes import RecoveryClass
from mofa_model.units import DAY
from mofa_operator.evidence import PROMETHEUS, Day, date_of
from mofa_operator.incidents.incident import Incident
from mofa_operator.incidents.past import Past, past
from mofa_operator.incidents.timelines import Span, joined, length, merged, overlap
from mofa_operator.observe.history.looks import (
    SETTLED,
    Look,
    Stretch,
    lives,
    look,
    stretches,
    unseen,
)
from mofa_operator.observe.history.node_names import Names, Naming, named, unknown
from mofa_operator.observe.history.stalls import Edges, edges, stalls
from mofa_operator.observe.prometheus.client import Asking, Prometheus, together
from mofa_operator.observe.prometheus.promql import Pool, left_out
from mofa_operator.recent import Recent
from mofa_operator.snapshot import History, NoHistory
from mofa_operator.words import Reason

BUSY: Final = 0.1
"""Share of the ready node-days that training pods must fill for their recoveries to be the evidence. [1]"""
_AT_ONCE: Final = 2
"""Stretches that are asked for at the same time. [1]"""

Known: TypeAlias = Recent[tuple[Look, list[Edges]]]
"""What was found out about stretches that are over; keep one for as long as the operator runs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolPast:
    """The past of a pool, and how it was seen."""

    past: Past
    """What happened."""
    looks: tuple[Look, ...]
    """By stretches of at most a day."""
    warnings: tuple[str, ...]
    """What is doubtful."""


async def history(
    prometheus: Prometheus,
    profile: Body,
    now: float,
    known: Known | None = None,
    names: Names | None = None,
) -> History | NoHistory:
    """The history of a ClusterProfile's pool up to now; it never raises for what a server or a profile may do."""
    try:
        return await asked(prometheus, profile, now, known, names)
    except (SourceUnreachable, InputError) as error:
        return NoHistory(reason=Reason.HISTORY_UNAVAILABLE, message=str(error))


async def asked(
    prometheus: Prometheus,
    profile: Body,
    now: float,
    known: Known | None = None,
    names: Names | None = None,
) -> History | NoHistory:
    """As `history`; raises SourceUnreachable and InputError. `names` are of the API server's nodes."""
    spec, pool = _pool(profile)
    window = float(spec.prometheus.window_seconds)
    found = await pool_past(prometheus, pool, (now - window, now), spec.incidents, known, names)
    return found if isinstance(found, NoHistory) else _concluded(found)


def _pool(profile: Body) -> tuple[ClusterProfileSpec, Pool]:
    """What a profile asks for; its status does not matter here."""
    spec = cluster_profile({key: value for key, value in profile.items() if key != "status"}).spec
    return spec, Pool.of(
        spec.prometheus.matchers,
        spec.node_selector,
        spec.prometheus.node_label or "",
        spec.prometheus.exporter_namespaces,
    )


async def pool_past(
    prometheus: Prometheus,
    pool: Pool,
    window: Span,
    rules: IncidentRules,
    known: Known | None = None,
    names: Names | None = None,
    progress: Callable[[float], None] = lambda _: None,
) -> PoolPast | NoHistory:
    """What happened to a pool in a window [s]; `progress` is told each share that was read."""
    start, now = window
    by_cluster = (await prometheus.query(pool.clusters(), now)).by("cluster")
    others = await left_out(Asking(prometheus, now), pool)
    if not by_cluster:  # no node now, a day ago, a week ago
        return await _nothing(prometheus, pool, now - start, now, seen=False, others=others)
    clusters = sorted(name for (name,) in by_cluster if name)
    if len(clusters) > 1 and not any(one.startswith("cluster=") for one in pool.matchers):
        several = f"the server holds several clusters ({', '.join(clusters[:5])})"
        return NoHistory(
            reason=Reason.HISTORY_UNAVAILABLE,
            message=f"{several}; set spec.prometheus.matchers.cluster",
        )
    names = names or Names()
    naming = await named(prometheus, pool, names, now)
    if isinstance(naming, str):
        return NoHistory(reason=Reason.NODE_NAMES_DIFFER, message=naming)
    wanted = stretches(now, now - start)
    kept = Known() if known is None else known
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one_look(stretch: Stretch) -> tuple[Look, list[Edges]]:
        found = await _look(prometheus, pool, naming, stretch, now, kept, gate)
        progress(1 / len(wanted))
        return found

    both = await together(*(one_look(one) for one in wanted))
    looks = tuple(one for one, _ in both)
    nodes = frozenset().union(*(one.nodes for one in looks))
    if not nodes or not any(one.covered for one in looks):
        return await _nothing(
            prometheus, pool, now - start, now, seen=any(one.covered for one in looks)
        )
    if wrong := unknown(nodes, names):
        return NoHistory(reason=Reason.NODE_NAMES_DIFFER, message=wrong)
    busy: defaultdict[str, list[Span]] = defaultdict(list)
    for one in looks:
        for node, spans in one.busy.items():
            busy[node] += spans
    step = median(one.step for one in looks if one.covered)
    told = past(
        lives(looks),
        merged(one.pods for one in looks),
        {node: joined(spans, 1.0) for node, spans in busy.items()},
        stalls([edge for _, many in both for edge in many]),
        step,
        rules,
    )
    warnings = [*told.warnings, *(text for one in looks for text in one.warnings), *unseen(looks)]
    there = {
        naming.host(one.labels) for one in (await prometheus.query(pool.nodes_at(), now)).samples
    }
    if absent := _absent(nodes, there, told):
        warnings.append(absent)
    warnings = [others, *warnings] if others else warnings
    return PoolPast(past=told, looks=looks, warnings=tuple(dict.fromkeys(warnings)))


async def _look(
    prometheus: Prometheus,
    pool: Pool,
    naming: Naming,
    stretch: Stretch,
    now: float,
    known: Known,
    gate: asyncio.Semaphore,
) -> tuple[Look, list[Edges]]:
    """One stretch; from memory, where it is over and was looked at before."""
    key = (prometheus.address, pool, stretch)
    if key in known:
        return known[key]
    async with gate:
        found = (
            await look(prometheus, pool, naming, stretch),
            await edges(prometheus, pool, stretch),
        )
    if now - stretch.end >= SETTLED and not found[0].warnings:
        known[key] = found
    return found


async def _nothing(
    prometheus: Prometheus, pool: Pool, window: float, now: float, *, seen: bool, others: str = ""
) -> NoHistory:
    """Why nothing is to be seen, and what would help."""
    span = min(window, prometheus.longest)
    if not seen:
        exists = (await prometheus.query(Pool.of({}, {}).covered(span), now)).number()
        hint = others or (
            "spec.prometheus.matchers leave none of it"
            if exists
            else "is kube-state-metrics scraped?"
        )
        why = f"kube_node_status_condition has no data; {hint}"
    elif not pool.labels:
        why = "no node offers GPUs in kube_node_status_allocatable"
    elif (await prometheus.query(pool.labelled_nodes(span), now)).number():
        wanted = ", ".join(f"{label}={value}" for label, value in pool.labels)
        why = f"kube_node_labels knows no node with {wanted}; look at spec.nodeSelector"
    else:
        names = [label for label, _ in pool.labels]
        allow = f"--metric-labels-allowlist=nodes=[{','.join(names)}]"
        why = f"kube_node_labels lacks {', '.join(names)}; start kube-state-metrics with {allow}"
    return NoHistory(reason=Reason.SERIES_MISSING, message=why)


def _absent(nodes: frozenset[str], there: set[str], told: Past) -> str:
    """What is said of nodes that are not there; where nobody is, the exporter is silent, and no node need be gone."""
    if not there - {""}:
        return "kube_node_status_condition is silent just now"
    lost = {one.name for one in told.incidents if one.cause.word == "node-lost"}
    gone = len(nodes - there - lost)
    return f"{gone} nodes of the pool are gone; they are not counted as failures" if gone else ""


def _concluded(found: PoolPast) -> History:
    """The history that a past comes to."""
    told, looks = found.past, found.looks
    window = looks[-1].stretch.end - looks[0].stretch.start
    coverage = min(1.0, length(told.known) / window)
    ready = {node: length(spans) for node, spans in told.exposed.items()}
    busy = {node: length(spans) for node, spans in told.training.items()}
    rests_on_jobs = sum(busy.values()) >= BUSY * sum(ready.values()) > 0
    spans = told.training if rests_on_jobs else told.exposed
    exposure = sum((busy if rests_on_jobs else ready).values()) / DAY
    by_class = _by_class(told, rests_on_jobs=rests_on_jobs)
    times = {
        name: tuple(one.seconds for one in many if one.timed and one.level)
        for name, many in by_class.items()
    }
    failed = Counter(
        name
        for one in told.incidents
        if one.kind != "job" and one.cause.counts
        for name in one.nodes or (one.name,)
    )
    return History(
        classes={name: evidence_of(exposure, many) for name, many in by_class.items()},
        node_days=exposure,
        window=window,
        coverage=coverage,
        by_node=dict(failed),
        node_days_by_node={
            node: seconds / DAY for node, seconds in sorted(ready.items()) if seconds
        },
        missing=tuple(_missing(found, rests_on_jobs=rests_on_jobs)),
        warnings=found.warnings,
        at=looks[-1].stretch.end,
        days=days_of(looks, told, spans, by_class),
        recoveries={name: every for name, every in times.items() if every},
        lost=told.lost,
        phases={name: median(seen) for name, seen in told.phases.items()},
    )


def _by_class(told: Past, *, rests_on_jobs: bool) -> dict[str, list[Incident]]:
    """The failures that count as evidence, by class."""
    if not rests_on_jobs:  # the loss of a node replaces its pods; a domain fails once
        return {
            RecoveryClass.POD.value: [
                one for one in told.incidents if one.kind != "job" and one.cause.counts
            ]
        }
    classes = [RecoveryClass.PROCESS, RecoveryClass.POD, RecoveryClass.JOB]
    if not any(pod.containers for pod in told.pods.values()):
        classes.remove(RecoveryClass.PROCESS)
    return {
        name.value: [
            one
            for one in told.incidents
            if one.kind == "job" and one.cause.counts and one.level is name
        ]
        for name in classes
    }


def _missing(found: PoolPast, *, rests_on_jobs: bool) -> list[str]:
    """Series without which a class is unknown."""
    every = [pod for one in found.looks for pod in one.pods.values()]
    if every and not any(pod.node for pod in every):
        return ["kube_pod_info"]
    if not rests_on_jobs and not found.past.pods:
        return ["kube_pod_labels of training pods"]
    counted = any(pod.containers for pod in found.past.pods.values())
    return [] if counted or not rests_on_jobs else ["kube_pod_container_status_restarts_total"]


# Incidents as evidence, and the history that they make day by day.


def evidence_of(exposure: float, many: Sequence[Incident]) -> FailureEvidence:
    """Incidents of one class over an exposure in node-days."""
    times = [one.seconds for one in many if one.timed and one.level]
    return FailureEvidence(
        node_days=exposure, failures=len(many), recoveries=len(times), recovery_seconds=sum(times)
    )


def days_of(
    looks: Sequence[Look],
    told: Past,
    spans: Mapping[str, Sequence[Span]],
    by_class: Mapping[str, Sequence[Incident]],
) -> tuple[Day, ...]:
    """The history day by day in UTC: exposure as it was, an incident on the day on which it began."""
    stretches_of: defaultdict[str, list[Span]] = defaultdict(list)
    for one in looks:
        stretches_of[date_of(one.stretch.start)].append((one.stretch.start, one.stretch.end))
    covered = {date: length(overlap(told.known, parts)) for date, parts in stretches_of.items()}
    dates = [date for date in sorted(covered) if covered[date]]
    last = dates[-1]
    made = []
    for date in dates:
        exposure = sum(length(overlap(many, stretches_of[date])) for many in spans.values()) / DAY
        classes = {
            name: evidence_of(exposure, [one for one in many if _on(one, covered, last) == date])
            for name, many in by_class.items()
        }
        made.append(Day(date=date, witness=PROMETHEUS, covered=covered[date], classes=classes))
    return tuple(made)


def _on(one: Incident, covered: Mapping[str, float], last: str) -> str:
    """The day of an incident; one that began while nobody looked lies on the last."""
    date = date_of(one.start)
    return date if covered.get(date) else last
