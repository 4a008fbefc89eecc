"""What lasts over the begin of the time that is read: repairs and outages of jobs whose beginning
only the ledger knows.

    read once ─▶ lasting(…, moment) ─▶ FailureLedger ─▶ begun_before, out_before ─▶ read from
    there on
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from mofa_model.spec import incident_causes as causes
from mofa_model.spec.account import Lasting
from mofa_operator.incidents.incident import Incident, JobFacts, of_node
from mofa_operator.incidents.job_incidents import LOADING
from mofa_operator.incidents.job_outages import by_job
from mofa_operator.incidents.timelines import NodeTimeline, PoolTimelines, Span, joined

MOST: Final = 1000
"""Incidents that are handed on, those that began last. [1]"""
_TOLD: Final = "it had begun before, by the ledger"
_LINGER: Final = 900.0
"""How long before a job was said to be out its pods may have gone. Ours. [s]"""
_TOGETHER: Final = 600.0
"""Pods that start within this time of the first are of one start. Ours. [s]"""


def lasting(
    incidents: Sequence[Incident], timelines: PoolTimelines, at: float
) -> tuple[Lasting, ...]:
    """What had begun at a moment and was not over, and the nodes of it. [s]"""
    by_name: dict[tuple[str, str], Lasting] = {}
    for incident in sorted(
        incidents, key=lambda incident: (not incident.cause.counts, incident.start)
    ):
        if not incident.start < at < incident.end or incident.cause in (
            causes.OBSERVER,
            causes.FLAP,
        ):
            continue
        if incident.kind == "job":
            pods = [pod for pod in timelines.pod_timelines.values() if pod.job == incident.name]
            nodes = {pod.node for pod in pods if pod.created < incident.start < pod.last + _LINGER}
            made = Lasting(
                kind="job",
                name=incident.name,
                since=incident.start,
                cause=incident.cause,
                nodes=tuple(sorted(nodes - {""})) or incident.nodes,
            )
            by_name.setdefault(("job", incident.name), made)
            continue
        for name in incident.nodes or (incident.name,):
            made = Lasting(kind="node", name=name, since=incident.start, cause=incident.cause)
            by_name.setdefault(("node", name), made)
    for node in timelines.node_timelines.values():
        for a, b in node.cordons:
            if a < at < b:
                made = Lasting(kind="node", name=node.name, since=a, cause=causes.DRAIN)
                by_name.setdefault(("node", node.name), made)
    latest = sorted(by_name.values(), key=lambda lasting: -lasting.since)[:MOST]
    return tuple(sorted(latest, key=lambda lasting: (lasting.kind, lasting.name)))


def begun_before(
    incidents: Sequence[Incident], lasted: Sequence[Lasting], timelines: PoolTimelines
) -> list[Incident]:
    """The incidents of nodes, with those that had begun before: their cause is what it was, but
    where what is seen says more.
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
        is_more = (
            failure is not None and earlier.cause is causes.KUBELET_DOWN
        )  # the boot time is told
        cause = failure.cause if failure is not None and is_more else earlier.cause
        evidence = () if failure is None else failure.evidence
        end = max([span.end, *(other.end for other in same)])
        corrected = [other for other in corrected if other not in same]
        made = of_node(earlier.name, earlier.since, end, cause, _TOLD, *evidence)
        corrected.append(replace(made, lasts=end >= timelines.sampled[-1].end - step))
    return sorted(corrected, key=lambda incident: (incident.start, incident.name))


def out_before(
    incidents: Sequence[Incident],
    lasted: Sequence[Lasting],
    timelines: PoolTimelines,
    facts: Mapping[str, JobFacts],
) -> list[Incident]:
    """Outages of jobs that had begun before: until they run, or now where they still want to."""
    outages = []
    first, until = timelines.sampled[0].start, timelines.sampled[-1].end
    pods = by_job(timelines.pod_timelines)
    for earlier in lasted:
        if earlier.kind != "job" or any(
            i.name == earlier.name and i.start <= first for i in incidents
        ):
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
            running = max(at for at in starts if at - starts[0] <= _TOGETHER)
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
                evidence=(_TOLD,),
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
