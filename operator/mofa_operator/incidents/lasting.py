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
    found: dict[tuple[str, str], Lasting] = {}
    for one in sorted(incidents, key=lambda one: (not one.cause.counts, one.start)):
        if not one.start < at < one.end or one.cause in (causes.OBSERVER, causes.FLAP):
            continue
        if one.kind == "job":
            pods = [pod for pod in timelines.pod_timelines.values() if pod.job == one.name]
            nodes = {pod.node for pod in pods if pod.created < one.start < pod.last + _LINGER}
            made = Lasting(
                kind="job",
                name=one.name,
                since=one.start,
                cause=one.cause,
                nodes=tuple(sorted(nodes - {""})) or one.nodes,
            )
            found.setdefault(("job", one.name), made)
            continue
        for name in one.nodes or (one.name,):
            made = Lasting(kind="node", name=name, since=one.start, cause=one.cause)
            found.setdefault(("node", name), made)
    for node in timelines.node_timelines.values():
        for a, b in node.cordons:
            if a < at < b:
                made = Lasting(kind="node", name=node.name, since=a, cause=causes.DRAIN)
                found.setdefault(("node", node.name), made)
    latest = sorted(found.values(), key=lambda one: -one.since)[:MOST]
    return tuple(sorted(latest, key=lambda one: (one.kind, one.name)))


def begun_before(
    incidents: Sequence[Incident], lasted: Sequence[Lasting], timelines: PoolTimelines
) -> list[Incident]:
    """The incidents of nodes, with those that had begun before: their cause is what it was, but
    where what is seen says more.
    """
    found = list(incidents)
    first = timelines.sampled[0].start
    for one in lasted:
        node = timelines.node_timelines.get(one.name) if one.kind == "node" else None
        if node is None:
            continue
        step = 3 * node.sample_spacing
        span = next((span for span in _away(node) if span.start <= first + step), None)
        if span is None or one.since > first + step:
            continue
        same = [
            other
            for other in found
            if other.kind == "node"
            and other.name == one.name
            and other.start <= first + step
            and (other.cause.counts or other.cause is causes.DRAIN)
        ]
        known = next((other for other in same if other.cause.counts), None)
        is_more = known is not None and one.cause is causes.KUBELET_DOWN  # the boot time is told
        cause = known.cause if known is not None and is_more else one.cause
        told = () if known is None else known.evidence
        end = max([span.end, *(other.end for other in same)])
        found = [other for other in found if other not in same]
        made = of_node(one.name, one.since, end, cause, _TOLD, *told)
        found.append(replace(made, lasts=end >= timelines.sampled[-1].end - step))
    return sorted(found, key=lambda one: (one.start, one.name))


def out_before(
    incidents: Sequence[Incident],
    lasted: Sequence[Lasting],
    timelines: PoolTimelines,
    facts: Mapping[str, JobFacts],
) -> list[Incident]:
    """Outages of jobs that had begun before: until they run, or now where they still want to."""
    found = []
    first, until = timelines.sampled[0].start, timelines.sampled[-1].end
    pods = by_job(timelines.pod_timelines)
    for one in lasted:
        if one.kind != "job" or any(i.name == one.name and i.start <= first for i in incidents):
            continue
        mine = pods.get(one.name, [])
        starts = sorted(pod.started for pod in mine if pod.started is not None)
        made = max((pod.created for pod in mine), default=until)
        if (starts and starts[0] <= first) or one.since > first:
            continue
        lasts = not starts
        if lasts and not mine and not facts.get(one.name, JobFacts()).wanted:
            continue
        running = until
        if starts:
            running = max(at for at in starts if at - starts[0] <= _TOGETHER)
            made = min(made, *(pod.created for pod in mine if pod.started == starts[0]))
        phases = {"queue": max(0.0, made - one.since)}
        if mine:
            phases["start"] = max(0.0, running - max(made, one.since))
        found.append(
            Incident(
                kind="job",
                name=one.name,
                start=one.since,
                end=running if lasts else min(until, running + LOADING),
                cause=one.cause,
                evidence=(_TOLD,),
                nodes=one.nodes,
                lasts=lasts,
                timed=False,
                phases=phases,
            )
        )
    return found


def _away(node: NodeTimeline) -> list[Span]:
    """When a node was cordoned or not ready."""
    return joined([*node.cordons, *node.not_ready], 2 * node.sample_spacing)
