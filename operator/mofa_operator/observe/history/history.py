"""The failure history of a pool: exposure, counts of failures, and what is doubtful about them.

No failure, no samples and no answer are different. Exposure comes from samples, never from the
length of the window. A series that does not exist leaves its class unknown and is named in
`missing`. A server that does not answer gives no history at all.

A recovery is seen only where a job runs, so exposure is the node-days with a training pod. Where
these are less than a tenth of the ready node-days, failures of nodes are better evidence: they
count as class pod over all ready node-days.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from itertools import pairwise
from statistics import median
from typing import Final, TypeAlias

from mofa_model import VERSION
from mofa_model.answers.what_would_help import past_of
from mofa_model.errors import InputError, SourceUnreachable
from mofa_model.kinds.shape import Body
from mofa_model.manifest.cluster_profile import ClusterProfileSpec, IncidentRules
from mofa_model.manifest.inputs import gpus_of_node
from mofa_model.manifest.parsing import cluster_profile
from mofa_model.reliability.observed import ObservedFailures
from mofa_model.reliability.remedies import (
    INTERVALS,
    RemedySettings,
    WhatWouldHelp,
    what_would_help,
)
from mofa_model.spec.account import NodeTime, OpenIncident
from mofa_model.spec.evidence import DatedEvidence, FailureEvidence
from mofa_model.spec.incident_causes import NODE_LOST, InterruptionClass
from mofa_model.spec.recovery_classes import RecoveryClass
from mofa_model.units import DAY, HOUR
from mofa_operator.evidence import PROMETHEUS, Day, SettledDays, date_of
from mofa_operator.incidents.document import past_document
from mofa_operator.incidents.incident import Incident, JobFacts
from mofa_operator.incidents.past import Past, past
from mofa_operator.incidents.timelines import Span, length, overlap
from mofa_operator.lru_cache import LruCache
from mofa_operator.observe.history.node_names import (
    KnownNodes,
    NodeNaming,
    node_labels_at,
    node_naming,
    unknown_nodes,
)
from mofa_operator.observe.history.pool_samples import (
    NODE_DAYS,
    PoolSamples,
    StretchReader,
    blind_spots,
    days_end,
    days_of,
    merged,
    pool_timelines,
    seams_of,
    shared,
    window_days,
)
from mofa_operator.observe.prometheus.client import Asking, Prometheus, together
from mofa_operator.observe.prometheus.promql import Pool, untrusted
from mofa_operator.snapshot import COVERED, History, NoHistory
from mofa_operator.words import Reason

BUSY: Final = 0.1
"""Share of ready node-days with training pods from which on recoveries are the evidence. [1]"""
BEFORE: Final = 6 * HOUR
"""How long after its end a day is settled, and how long before the first day that the ledger lacks
reading begins. What began earlier is over, or is a repair, which the ledger names. Ours. [s]"""
_AT_ONCE: Final = 2
"""Pieces of time that are read at once, where a day of the pool fits in one piece. [1]"""
ACCOUNTED: Final = HOUR
"""Age at which an account is made anew; the ledger that shows it is written no more often. [s]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownAccount:
    """The last account of a pool, and what it was made from."""

    at: float
    """[s]"""
    rules: IncidentRules
    account: tuple[NodeTime, ...]
    facts: Mapping[str, JobFacts]
    """What was known of jobs, by namespace/name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownPools:
    """What looks at pools keep for the next looks, as long as the operator runs."""

    samples: LruCache[PoolSamples] = field(default_factory=LruCache)
    """Pieces of time that are over, by server, pool and start; the last one, by server and pool.
    """
    accounts: dict[tuple[str, Pool], KnownAccount] = field(default_factory=dict)
    """The last account, by server and pool."""
    left_out: dict[tuple[object, str], SettledDays | None] = field(default_factory=dict)
    """The days that the looks at a profile leave out, by its uid and rules."""


AskFacts: TypeAlias = Callable[[], Awaitable[Mapping[str, JobFacts]]]
"""Asks the cluster what it knows of jobs, by namespace/name."""


async def history(
    prometheus: Prometheus,
    profile: Body,
    now: float,
    known_pools: KnownPools | None = None,
    known_nodes: KnownNodes | None = None,
    settled: SettledDays | None = None,
    ask_facts: AskFacts | None = None,
    *,
    replayed: bool = False,
) -> History | NoHistory:
    """The history of a ClusterProfile's pool up to now; never raises for a server or a profile."""
    try:
        return await read_history(
            prometheus,
            profile,
            now,
            known_pools,
            known_nodes,
            settled,
            ask_facts,
            replayed=replayed,
        )
    except (SourceUnreachable, InputError) as error:
        return NoHistory(reason=Reason.HISTORY_UNAVAILABLE, message=str(error))


async def read_history(
    prometheus: Prometheus,
    profile: Body,
    now: float,
    known_pools: KnownPools | None = None,
    known_nodes: KnownNodes | None = None,
    settled: SettledDays | None = None,
    ask_facts: AskFacts | None = None,
    *,
    replayed: bool = False,
) -> History | NoHistory:
    """As `history`, but raises SourceUnreachable and InputError.

    `known_nodes` are those of the API server. Days that the ledger holds (`settled`) are not read,
    except their last `BEFORE`, which shows what began just before. With `replayed` all days are
    read, and the history says what would have helped.
    """
    known_pools = known_pools or KnownPools()
    spec = cluster_profile({key: value for key, value in profile.items() if key != "status"}).spec
    pool = Pool.of(
        spec.prometheus.matchers,
        spec.node_selector,
        spec.prometheus.node_label or "",
        spec.prometheus.exporter_namespaces,
    )
    window = float(spec.prometheus.window_seconds)
    days, counted_by = window_days(now, window), _counted_by(spec)
    settled = _left_out(
        known_pools.left_out,
        (profile.get("metadata", {}).get("uid"), counted_by),
        settled,
        days[0].start,
        replayed=replayed,
    )
    start = days[0].start if settled is None else settled.until - BEFORE
    past_of_pool = await pool_past(
        prometheus,
        pool,
        Span(start, now),
        spec.incidents,
        known_pools,
        known_nodes,
        lasted=() if settled is None else settled.lasting,
        ask_facts=ask_facts,
        lasting_at=_next_begin(days),
    )
    if isinstance(past_of_pool, NoHistory):
        return past_of_pool
    pool_history = replace(history_of_past(past_of_pool, days, settled), counted_by=counted_by)
    if not replayed:
        return pool_history
    account = known_pools.accounts.get((prometheus.address, pool))
    facts = {} if account is None else account.facts
    helps = await asyncio.to_thread(_what_would_help, past_of_pool, facts, gpus_of_node(spec))
    return replace(pool_history, helps=helps)


def _left_out(
    left_out: dict[tuple[object, str], SettledDays | None],
    key: tuple[object, str],
    settled: SettledDays | None,
    start: float,
    *,
    replayed: bool,
) -> SettledDays | None:
    """Days of the ledger that are not read again from Prometheus, in a window that begins at
    `start`; None where every day is read. [s]

    These are the days that the ledger (`settled`) held at the first reading under `key`; days that
    were read since are in memory. A replay of remedies (`replayed`) reads every day, and so does
    each later reading.
    """
    if replayed:
        left_out[key] = None
    days = left_out.setdefault(key, settled)
    if days is None or days.counted_by != key[1] or days.until - BEFORE <= start:
        return None
    return days


def _what_would_help(
    past_of_pool: Past, facts: Mapping[str, JobFacts], gpus_per_node: int
) -> WhatWouldHelp:
    """Which changes would have helped a pool in its own past, as `mofa rates --what-would-help`
    says. This takes a core for some seconds at most.
    """
    first, until = past_of_pool.sampled[0].start, past_of_pool.sampled[-1].end
    saves = [job.save_seconds for job in facts.values() if job.save_seconds]
    settings = RemedySettings(
        gpus_per_node=gpus_per_node,
        save=median(saves) if saves else None,
        intervals=INTERVALS if saves else (),  # their cost is not known
    )
    document = past_document(past_of_pool, first, until)
    return what_would_help(past_of(document, "its account"), settings)


def _next_begin(days: Sequence[Span]) -> float | None:
    """Where reading begins once all settled days are in the ledger; None without such a day. [s]"""
    settled = [day.end for day in days if days[-1].end - day.end >= BEFORE]
    return settled[-1] - BEFORE if settled else None


def _counted_by(spec: ClusterProfileSpec) -> str:
    """How days are counted, as one word: our version, the ledger's, and a checksum of the profile's
    rules. Days that were counted in another way are counted again.
    """
    parts = (spec.node_selector, spec.prometheus.model_dump(), spec.incidents.model_dump())
    text = json.dumps(parts, default=str, sort_keys=True)
    return f"{VERSION}-2-{sha256(text.encode()).hexdigest()[:16]}"


async def pool_past(
    prometheus: Prometheus,
    pool: Pool,
    stretch: Span,
    rules: IncidentRules,
    known_pools: KnownPools | None = None,
    known_nodes: KnownNodes | None = None,
    progress: Callable[[float], None] = lambda _: None,
    lasted: Sequence[OpenIncident] = (),
    ask_facts: AskFacts | None = None,
    lasting_at: float | None = None,
) -> Past | NoHistory:
    """What happened to a pool in a window.

    `progress` is called with each share that was read. `lasted` had begun before the window; what
    was not over at `lasting_at` becomes `Past.lasting` [s]. An account is made again after
    `ACCOUNTED`, and facts of jobs are asked for only then.
    """
    now = stretch.end
    by_cluster = (await prometheus.query(pool.clusters(), now)).by("cluster")
    left_out = await untrusted(Asking(prometheus, now), pool)
    if not by_cluster:  # no node now, a day ago or a week ago
        return await _no_history(prometheus, pool, stretch, seen=False, left_out=left_out)
    clusters = sorted(name for (name,) in by_cluster if name)
    if len(clusters) > 1 and not any(matcher.startswith("cluster=") for matcher in pool.matchers):
        several = f"the server holds several clusters ({', '.join(clusters[:5])})"
        message = f"{several}; set spec.prometheus.matchers.cluster"
        return NoHistory(reason=Reason.HISTORY_UNAVAILABLE, message=message)
    known_nodes = known_nodes or KnownNodes()
    naming = await node_naming(prometheus, pool, known_nodes, now)
    if isinstance(naming, str):
        return NoHistory(reason=Reason.NODE_NAMES_DIFFER, message=naming)
    node_count = sum(by_cluster.values())
    spans = days_of(Span(stretch.start, days_end(now)))
    known_pools = known_pools or KnownPools()
    cache = known_pools.samples
    pieces = await _samples(prometheus, pool, naming, node_count, spans, cache, now, progress)
    names = frozenset().union(*(piece.sampled_by_node for piece in pieces))
    covered = any(piece.sampled for piece in pieces)
    if not names or not covered:
        return await _no_history(prometheus, pool, stretch, seen=covered)
    if unknown := unknown_nodes(names, known_nodes):
        return NoHistory(reason=Reason.NODE_NAMES_DIFFER, message=unknown)
    timelines = pool_timelines(pieces)
    judge = partial(past, timelines, rules, lasted, lasting_at=lasting_at)
    account = known_pools.accounts.get((prometheus.address, pool))
    if account is not None and account.rules == rules and 0 <= now - account.at < ACCOUNTED:
        past_of_pool = judge(accounted=False, facts=account.facts)
        past_of_pool = replace(past_of_pool, account=account.account)
    else:  # seconds of a core, so others go on meanwhile
        facts = {} if ask_facts is None else await ask_facts()
        past_of_pool = await asyncio.to_thread(judge, facts=facts)
        known_pools.accounts[prometheus.address, pool] = KnownAccount(
            at=now, rules=rules, account=past_of_pool.account, facts=facts
        )
    nodes_now = {naming.host(labels) for labels in await node_labels_at(prometheus, pool, now)}
    warnings = [
        left_out,
        *past_of_pool.warnings,
        *(text for piece in pieces for text in piece.warnings),
        *blind_spots(timelines),
        _no_exposure_warning(names, past_of_pool),
        _gone_nodes_warning(names, nodes_now - {""}, past_of_pool),
    ]
    return replace(past_of_pool, warnings=tuple(dict.fromkeys(text for text in warnings if text)))


async def _samples(
    prometheus: Prometheus,
    pool: Pool,
    naming: NodeNaming,
    nodes: float,
    stretches: Sequence[Span],
    cache: LruCache[PoolSamples],
    now: float,
    progress: Callable[[float], None],
) -> list[PoolSamples]:
    """All samples of a window: pieces that are kept, and pieces that are new or not over."""
    gate = asyncio.Semaphore(_AT_ONCE if nodes <= NODE_DAYS else 1)
    reader = StretchReader(prometheus, pool, naming, nodes)
    whole = stretches[-1].end - stretches[0].start
    newest = cache.get((prometheus.address, pool))

    async def read(piece: Span) -> PoolSamples:
        nonlocal newest
        async with gate:
            samples = await reader.read(piece)
        progress(piece.seconds / whole)
        if samples.sampled_by_node:
            newest = samples if newest is None else shared(samples, newest)
            return newest
        return samples

    async def over(start: float, end: float) -> PoolSamples:
        """The samples of a piece that is over; only what follows its kept beginning is read."""
        key = (prometheus.address, pool, start)
        kept_piece = cache.get(key)
        if kept_piece is not None and kept_piece.stretch.end >= end:
            progress(kept_piece.stretch.seconds / whole)
            return kept_piece
        samples = await read(Span(kept_until(start), end))
        whole_piece = samples if kept_piece is None else merged(kept_piece, samples)
        if not samples.warnings:
            cache[key] = whole_piece
        return whole_piece

    def kept_until(start: float) -> float:
        kept_piece = cache.get((prometheus.address, pool, start))
        return start if kept_piece is None else kept_piece.stretch.end

    async def last(piece: Span) -> PoolSamples:
        """The samples of the piece up to now, which is read again once its end moves."""
        key = (prometheus.address, pool)
        kept_piece = cache.get(key)
        if kept_piece is not None and kept_piece.stretch == piece:
            progress(piece.seconds / whole)
            return kept_piece
        samples = await read(piece)
        if not samples.warnings:
            cache[key] = samples
        return samples

    seams = await seams_of(prometheus, pool, stretches, now, kept_until)
    pieces = [over(start, end) for start, end in pairwise(seams)]
    return await together(*pieces, last(Span(seams[-1], stretches[-1].end)))


async def _no_history(
    prometheus: Prometheus, pool: Pool, stretch: Span, *, seen: bool, left_out: str = ""
) -> NoHistory:
    """Why there is no history, and what to change; `seen` is whether any node was sampled."""
    span, now = min(stretch.seconds, prometheus.longest), stretch.end
    if not seen:
        exists = (await prometheus.query(Pool.of({}, {}).covered(span), now)).number()
        hint = left_out or (
            "spec.prometheus.matchers leave none of it"
            if exists
            else "is kube-state-metrics scraped?"
        )
        why = f"kube_node_status_condition has no data; {hint}"
    elif not pool.labels:
        why = "no node offers GPUs in kube_node_status_allocatable"
    elif (await prometheus.query(pool.labelled_nodes(span), now)).number():
        selector = ", ".join(f"{label}={value}" for label, value in pool.labels)
        why = f"kube_node_labels knows no node with {selector}; look at spec.nodeSelector"
    else:
        labels = [label for label, _ in pool.labels]
        allow = f"--metric-labels-allowlist=nodes=[{','.join(labels)}]"
        why = f"kube_node_labels lacks {', '.join(labels)}; start kube-state-metrics with {allow}"
    return NoHistory(reason=Reason.SERIES_MISSING, message=why)


def _no_exposure_warning(nodes: frozenset[str], past_of_pool: Past) -> str:
    """A warning where no time of any node counts as exposure; empty where some does."""
    if any(map(length, past_of_pool.exposed.values())):
        return ""
    return (
        f"none of {len(nodes)} nodes was ever ready and free of cordons: nothing that happens to "
        "them is counted; look at their taints and at kube_node_spec_unschedulable"
    )


def _gone_nodes_warning(nodes: frozenset[str], nodes_now: set[str], past_of_pool: Past) -> str:
    """A warning about nodes that are no longer sampled and did not fail; empty for none.

    Where no node is sampled, the exporter is silent, and the warning says that instead.
    """
    if not nodes_now:
        return "kube_node_status_condition is silent just now"
    lost = {incident.name for incident in past_of_pool.incidents if incident.cause is NODE_LOST}
    gone = len(nodes - nodes_now - lost)
    return f"{gone} nodes of the pool are gone; they are not counted as failures" if gone else ""


def history_of_past(
    past_of_pool: Past, day_spans: Sequence[Span], settled: SettledDays | None
) -> History:
    """Failures and exposure in a pool's past; days that the ledger holds are left out."""
    window = day_spans[-1].end - day_spans[0].start
    ready = {node: length(spans) for node, spans in past_of_pool.exposed.items()}
    busy = sum(map(length, past_of_pool.training_spans.values()))
    whole = sum(ready.values()) + (DAY * settled.node_days if settled is not None else 0.0)
    rests_on_jobs = (busy > 0 and busy >= BUSY * whole) or (settled is not None and settled.by_jobs)
    since = day_spans[0].start if settled is None else settled.until
    exposed = past_of_pool.training_spans if rests_on_jobs else past_of_pool.exposed
    exposure = (busy if rests_on_jobs else sum(ready.values())) / DAY
    fault = InterruptionClass.FAULT
    interruptions = [
        incident
        for incident in past_of_pool.incidents
        if incident.cause.interrupts
        and (incident.cause.counts or incident.cause.by is not fault)
        and (settled is None or incident.start >= since)
    ]
    of_nodes = [
        incident
        for incident in interruptions
        if incident.kind != "job" and incident.cause.by is fault
    ]
    counts_restarts = any(pod.containers for pod in past_of_pool.pool_pods)
    if rests_on_jobs:
        by_class = {
            level.value: [i for i in interruptions if i.kind == "job" and i.recovery_class is level]
            for level in (RecoveryClass.PROCESS, RecoveryClass.POD, RecoveryClass.JOB)
            if counts_restarts or level is not RecoveryClass.PROCESS
        }
    else:  # a lost node costs its pods, so its class is pod; a domain fails once
        by_class = {RecoveryClass.POD.value: of_nodes}
    missing: tuple[str, ...] = ()
    if past_of_pool.pod_timelines and not any(
        pod.node for pod in past_of_pool.pod_timelines.values()
    ):
        missing = ("kube_pod_info",)
    elif not rests_on_jobs and not past_of_pool.pool_pods:
        missing = ("kube_pod_labels of training pods",)
    elif rests_on_jobs and not counts_restarts:
        missing = ("kube_pod_container_status_restarts_total",)
    recoveries = {name: _recoveries(incidents) for name, incidents in by_class.items()}
    return History(
        classes={name: _evidence(exposure, incidents) for name, incidents in by_class.items()},
        node_days=exposure,
        window=window,
        coverage=min(1.0, length(past_of_pool.sampled) / window),
        by_node=dict(Counter(name for i in of_nodes for name in i.nodes or (i.name,))),
        node_days_by_node={
            node: seconds / DAY for node, seconds in sorted(ready.items()) if seconds
        },
        missing=missing,
        warnings=past_of_pool.warnings,
        at=day_spans[-1].end,
        days=_by_day(
            past_of_pool, [day for day in day_spans if day.start >= since], exposed, by_class
        ),
        recoveries={name: times for name, times in recoveries.items() if times},
        phases={name: median(times) for name, times in past_of_pool.phases.items()},
        lasting=past_of_pool.lasting,
    )


def _recoveries(incidents: Sequence[Incident]) -> tuple[float, ...]:
    """Recovery times of the interruptions of which the end was seen. [s]"""
    return tuple(i.seconds for i in incidents if i.timed and i.recovery_class)


def _evidence(exposure: float, incidents: Sequence[Incident]) -> FailureEvidence:
    """Evidence of one recovery class: its incidents over an exposure in node-days."""
    times = _recoveries(incidents)
    faults = sum(incident.cause.by is InterruptionClass.FAULT for incident in incidents)
    return FailureEvidence(
        node_days=exposure,
        failures=faults,
        others=len(incidents) - faults,
        recoveries=len(times),
        recovery_seconds=sum(times),
    )


def _by_day(
    past_of_pool: Past,
    days: Sequence[Span],
    exposed: Mapping[str, Sequence[Span]],
    by_class: Mapping[str, Sequence[Incident]],
) -> tuple[Day, ...]:
    """The history by UTC days; an incident counts on the day it began, or the last sampled one."""
    covered = {date_of(day.start): length(overlap(past_of_pool.sampled, [day])) for day in days}
    last = max((date for date, seconds in covered.items() if seconds), default="")

    def counted(incident: Incident) -> str:
        date = date_of(incident.start)
        return date if covered.get(date) else last

    history_days = []
    for day in days:
        date = date_of(day.start)
        if not covered[date]:
            continue
        exposure = sum(length(overlap(spans, [day])) for spans in exposed.values()) / DAY
        classes = {
            name: _evidence(exposure, [i for i in incidents if counted(i) == date])
            for name, incidents in by_class.items()
        }
        history_days.append(
            Day(
                date=date,
                witness=PROMETHEUS,
                covered=covered[date],
                classes=classes,
                account=tuple(entry for entry in past_of_pool.account if entry.date == date),
                settled=days[-1].end - day.end >= BEFORE,
            )
        )
    return tuple(history_days)


def observed_of(pool_history: History) -> ObservedFailures:
    """The history in the form from which assumed rates are checked."""
    exposed = {node: days for node, days in pool_history.node_days_by_node.items() if days > 0}
    return ObservedFailures(
        classes=pool_history.classes,
        past=tuple(
            DatedEvidence(date=day.date, days=day.covered / DAY, classes=day.classes)
            for day in pool_history.days
        ),
        possible=pool_history.node_days / pool_history.coverage
        if pool_history.coverage > 0
        else None,
        by_node={node: count for node, count in pool_history.by_node.items() if node in exposed},
        node_days_by_node=exposed,
        recoveries=dict(pool_history.recoveries),
        notes=tuple(_notes(pool_history)),
    )


def _notes(pool_history: History) -> Iterator[str]:
    """Sentences about what a history lacks, and what follows from that."""
    for series in pool_history.missing:
        classes = ", ".join(pool_history.classes)
        yield f"There is no series {series}: only class {classes} can be counted."
    if round(100 * pool_history.coverage) < COVERED:
        yield "Part of the window has no data; only what was seen counts as exposure."
    elif not sum(evidence.failures for evidence in pool_history.classes.values()):
        yield "No failure was seen: the rate comes from the assumption, and from that exposure."
    yield from (f"{warning}." for warning in pool_history.warnings)
