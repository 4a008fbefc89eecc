"""The past of a pool: incidents of its nodes and jobs, and the time in which we would see them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mofa_model.manifest.cluster_profile import IncidentRules
from mofa_model.spec.incident_causes import RESUBMISSION
from mofa_operator.incidents.incident import (
    PHASES,
    UNMATCHED,
    Incident,
    distance,
    moment_of,
    overruled,
)
from mofa_operator.incidents.job_incidents import JobIncidents
from mofa_operator.incidents.node_incidents import domains, node_incidents
from mofa_operator.incidents.timelines import PodTimeline, PoolTimelines, Span, joined, overlap


@dataclass(frozen=True, kw_only=True, slots=True)
class Past:
    """What happened to a pool."""

    incidents: tuple[Incident, ...]
    """All incidents in order, failures or not."""
    exposed: Mapping[str, Sequence[Span]]
    """When each node was ready, not cordoned and not failing."""
    training: Mapping[str, Sequence[Span]]
    """When each node had a training pod."""
    job_seconds: Mapping[str, float]
    """Node-time of each job. [node s]"""
    known: tuple[Span, ...]
    """When any node was sampled."""
    pods: Mapping[str, PodTimeline]
    """Pods of training jobs by uid, on any node."""
    warnings: tuple[str, ...]
    """What is doubtful, in sentences."""

    @property
    def pool_pods(self) -> list[PodTimeline]:
        """Pods on nodes of the pool."""
        return [pod for pod in self.pods.values() if pod.node in self.exposed]

    @property
    def lost(self) -> dict[str, float]:
        """Node-time in which jobs stood still, by cause; a resubmission loses none. [node s]"""
        found: defaultdict[str, float] = defaultdict(float)
        for incident in self.incidents:
            if incident.kind == "job" and incident.stood and incident.cause is not RESUBMISSION:
                found[incident.cause.word] += incident.stood * incident.seconds
        return dict(found)

    @property
    def phases(self) -> dict[str, tuple[float, ...]]:
        """Times of each phase of recovery from failures. [s]"""
        failed = [i for i in self.incidents if i.kind == "job" and i.cause.counts]
        times = {name: tuple(i.phases[name] for i in failed if name in i.phases) for name in PHASES}
        return {name: seen for name, seen in times.items() if seen}


def past(pool: PoolTimelines, rules: IncidentRules) -> Past:
    """The past that the time lines of a pool show, by the rules of its profile."""
    first, until = pool.known[0].start, pool.known[-1].end
    nodes = pool.nodes.values()
    found = [incident for node in nodes for incident in node_incidents(node, rules)]
    found = domains(found, {node.name: node.labels for node in nodes}, pool.step)
    found = overruled(found, rules.overruled)
    by_node: defaultdict[str, list[Incident]] = defaultdict(list)
    for incident in found:
        for name in incident.nodes or (incident.name,):
            by_node[name].append(incident)
    pods = {uid: pod for uid, pod in pool.pods.items() if pod.node in pool.nodes}
    found += overruled(JobIncidents(pool, by_node).of(pods), rules.overruled)
    training: defaultdict[str, list[Span]] = defaultdict(list)
    job_seconds: defaultdict[str, float] = defaultdict(float)
    for pod in pods.values():
        spans = overlap([pod.running(pool.step)], pool.known)
        training[pod.node] += spans
        job_seconds[pod.job] += sum(span.seconds for span in spans)
    return Past(
        incidents=tuple(
            sorted(
                (incident for incident in found if incident.start >= first - pool.step),
                key=lambda incident: (incident.start, incident.kind, incident.name),
            )
        ),
        exposed={
            node.name: node.exposed(
                [Span(i.start, i.end) for i in by_node[node.name] if i.cause.counts],
                rules.shortest_outage_seconds,
            )
            for node in nodes
        },
        training={name: joined(spans) for name, spans in training.items()},
        job_seconds=dict(job_seconds),
        known=pool.known,
        pods=pool.pods,
        warnings=tuple(
            f"{UNMATCHED}{text}"
            for text in rules.overruled
            if first <= moment_of(text) < until
            and all(distance(incident, text) is None for incident in found)
        ),
    )
