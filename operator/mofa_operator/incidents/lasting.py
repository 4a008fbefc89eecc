"""Repairs and outages of jobs that began before the time that is read: the ledger tells of them.

one look ─▶ lasting(…, moment) ─▶ FailureLedger ─▶ begun_before, out_before ─▶ the next look
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from mofa_model.spec import incident_causes as causes
from mofa_model.spec.account import OpenIncident
from mofa_operator.incidents.incident import Incident, JobFacts, of_node
from mofa_operator.incidents.job_incidents import LOADING
from mofa_operator.incidents.job_outages import by_job
from mofa_operator.incidents.timelines import NodeTimeline, PoolTimelines, Span, joined

MOST: Final = 1000
"""Most incidents that are handed on, the latest. [1]"""
_BY_LEDGER: Final = "it had begun before, by the ledger"
_LINGER: Final = 900.0
"""How long before a job was said to be out its pods may have gone. Ours. [s]"""
ONE_START: Final = 600.0
"""Pods that start within this time of a job's first belong to one start. Ours. [s]"""


def lasting(
    incidents: Sequence[Incident], timelines: PoolTimelines, at: float
) -> tuple[OpenIncident, ...]:
    """What had begun before a moment and was not over, with its nodes. [s]"""
    by_name: dict[tuple[str, str], OpenIncident] = {}

    def add(row: OpenIncident) -> None:
        by_name.setdefault((row.kind, row.name), row)

    pods = by_job(timelines.pod_timelines)
    for incident in sorted(
        incidents, key=lambda incident: (not incident.cause.counts, incident.start)
    ):
        since, cause = incident.start, incident.cause
        if not since < at < incident.end or cause in (causes.OBSERVER, causes.FLAP):
            continue
        if incident.kind == "job":
            nodes = {
                pod.node
                for pod in pods.get(incident.name, ())
                if pod.created < since < pod.last + _LINGER
            }
            held = tuple(sorted(nodes - {""})) or incident.nodes
            add(OpenIncident(kind="job", name=incident.name, since=since, cause=cause, nodes=held))
            continue
        for name in incident.nodes or (incident.name,):
            add(OpenIncident(kind="node", name=name, since=since, cause=cause))
    for node in timelines.node_timelines.values():
        for cordon in node.cordons:
            if cordon.start < at < cordon.end:
                add(
                    OpenIncident(
                        kind="node", name=node.name, since=cordon.start, cause=causes.DRAIN
                    )
                )
    latest = sorted(by_name.values(), key=lambda row: -row.since)[:MOST]
    return tuple(sorted(latest, key=lambda row: (row.kind, row.name)))


def begun_before(
    incidents: Sequence[Incident], lasted: Sequence[OpenIncident], timelines: PoolTimelines
) -> list[Incident]:
    """The incidents of nodes, with those that had begun before. These keep their cause, unless the
    samples show a closer one.
    """
    corrected = list(incidents)
    first = timelines.sampled[0].start
    for earlier in lasted:
        node = timelines.node_timelines.get(earlier.name) if earlier.kind == "node" else None
        if node is None:
            continue
        step = 3 * node.sample_spacing
        span = next((span for span in _away(node) if span.start <= first + step), None)
        if span is None or earlier.since > first + step:
            continue
        same = [
            other
            for other in corrected
            if other.kind == "node"
            and other.name == earlier.name
            and other.start <= first + step
            and (other.cause.counts or other.cause is causes.DRAIN)
        ]
        failure = next((other for other in same if other.cause.counts), None)
        cause = earlier.cause
        if failure is not None and cause is causes.KUBELET_DOWN:  # samples now show the boot
            cause = failure.cause
        evidence = () if failure is None else failure.evidence
        end = max([span.end, *(other.end for other in same)])
        corrected = [other for other in corrected if other not in same]
        joint = of_node(earlier.name, earlier.since, end, cause, _BY_LEDGER, *evidence)
        corrected.append(replace(joint, lasts=end >= timelines.sampled[-1].end - step))
    return sorted(corrected, key=lambda incident: (incident.start, incident.name))


def out_before(
    incidents: Sequence[Incident],
    lasted: Sequence[OpenIncident],
    timelines: PoolTimelines,
    facts: Mapping[str, JobFacts],
) -> list[Incident]:
    """Outages of jobs that had begun before: until the job runs, or until now where it waits."""
    outages = []
    first, until = timelines.sampled[0].start, timelines.sampled[-1].end
    pods = by_job(timelines.pod_timelines)
    seen_jobs = {incident.name for incident in incidents if incident.start <= first}
    for earlier in lasted:
        if earlier.kind != "job" or earlier.name in seen_jobs:
            continue
        job_pods = pods.get(earlier.name, [])
        starts = sorted(pod.started for pod in job_pods if pod.started is not None)
        made = max((pod.created for pod in job_pods), default=until)
        if (starts and starts[0] <= first) or earlier.since > first:
            continue
        lasts = not starts
        if lasts and not job_pods and not facts.get(earlier.name, JobFacts()).wanted:
            continue
        running = until
        if starts:
            running = max(start for start in starts if start - starts[0] <= ONE_START)
            made = min(made, *(pod.created for pod in job_pods if pod.started == starts[0]))
        phases = {"queue": max(0.0, made - earlier.since)}
        if job_pods:
            phases["start"] = max(0.0, running - max(made, earlier.since))
        outages.append(
            Incident(
                kind="job",
                name=earlier.name,
                start=earlier.since,
                end=running if lasts else min(until, running + LOADING),
                cause=earlier.cause,
                evidence=(_BY_LEDGER,),
                nodes=earlier.nodes,
                lasts=lasts,
                timed=False,
                phases=phases,
            )
        )
    return outages


def _away(node: NodeTimeline) -> list[Span]:
    """When a node was cordoned or not ready."""
    return joined([*node.cordons, *node.not_ready], 2 * node.sample_spacing)
