"""The past of a pool: incidents of its nodes and jobs, and the time in which they would be seen."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from mofa_model.manifest.cluster_profile import IncidentRules
from mofa_model.spec.account import NodeTime, OpenIncident
from mofa_operator.incidents.account import account
from mofa_operator.incidents.incident import (
    PHASES,
    UNMATCHED,
    Incident,
    JobFacts,
    moment_of,
    overruled,
    time_apart,
)
from mofa_operator.incidents.job_incidents import JobIncidents
from mofa_operator.incidents.lasting import begun_before, lasting, out_before
from mofa_operator.incidents.node_incidents import node_incidents
from mofa_operator.incidents.shared_incidents import (
    additions,
    configured,
    domains,
    seen_by_observer,
)
from mofa_operator.incidents.timelines import PodTimeline, PoolTimelines, Span, joined, overlap


@dataclass(frozen=True, kw_only=True, slots=True)
class Past:
    """What happened to a pool."""

    incidents: tuple[Incident, ...]
    """All incidents in order, failures or not."""
    exposed: Mapping[str, Sequence[Span]]
    """When each node was ready, not cordoned and not failing."""
    training_spans: Mapping[str, Sequence[Span]]
    """When each node had a training pod."""
    job_seconds: Mapping[str, float]
    """Node-time of each job. [node s]"""
    sampled: tuple[Span, ...]
    """When any node was sampled."""
    pod_timelines: Mapping[str, PodTimeline]
    """Pods of training jobs by uid, on any node."""
    account: tuple[NodeTime, ...]
    """Where the node-time of the pool went, by day, job, state and cause."""
    warnings: tuple[str, ...]
    """What is doubtful, in sentences."""
    cordons: Mapping[str, Sequence[Span]] = field(default_factory=dict)
    """When each node took no new pods."""
    lasting: tuple[OpenIncident, ...] = ()
    """What was not over at `lasting_at`."""

    @property
    def pool_pods(self) -> list[PodTimeline]:
        """Pods on nodes of the pool."""
        return [pod for pod in self.pod_timelines.values() if pod.node in self.exposed]

    @property
    def phases(self) -> dict[str, tuple[float, ...]]:
        """Times of each phase of recovery from failures. [s]"""
        of_jobs = (incident for incident in self.incidents if incident.kind == "job")
        phases = [incident.phases for incident in of_jobs if incident.cause.counts]
        times = {name: tuple(spent[name] for spent in phases if name in spent) for name in PHASES}
        return {name: seconds for name, seconds in times.items() if seconds}


def past(
    timelines: PoolTimelines,
    rules: IncidentRules,
    lasted: Sequence[OpenIncident] = (),
    *,
    accounted: bool = True,
    facts: Mapping[str, JobFacts] = MappingProxyType({}),
    lasting_at: float | None = None,
) -> Past:
    """The past that the time lines of a pool show, by the rules of its profile.

    `lasted` are incidents that had begun before, `facts` what the cluster knows of jobs by name.
    What was not over at `lasting_at` becomes `Past.lasting` [s]. `accounted=False` leaves out the
    account, which takes most of the time.
    """
    timelines = _with_pods(timelines, lasted)
    nodes = timelines.node_timelines
    incidents = _of_nodes(timelines, rules, lasted)
    by_node: defaultdict[str, list[Incident]] = defaultdict(list)
    for incident in incidents:
        for name in incident.nodes or (incident.name,):
            by_node[name].append(incident)
    pods = {uid: pod for uid, pod in timelines.pod_timelines.items() if pod.node in nodes}
    found_jobs = JobIncidents(timelines, by_node, facts).of(pods)
    found_jobs += out_before(found_jobs, lasted, timelines, facts)
    incidents += overruled(found_jobs, rules.overruled)
    training: defaultdict[str, list[Span]] = defaultdict(list)
    job_seconds: defaultdict[str, float] = defaultdict(float)
    for pod in pods.values():
        spans = overlap([pod.running(timelines.sample_spacing)], timelines.sampled)
        training[pod.node] += spans
        job_seconds[pod.job] += sum(span.seconds for span in spans)
    first = timelines.sampled[0].start - timelines.sample_spacing
    in_time = (incident for incident in incidents if incident.start >= first)
    return Past(
        incidents=tuple(
            sorted(in_time, key=lambda incident: (incident.start, incident.kind, incident.name))
        ),
        exposed={
            name: node.exposed(
                [incident.span for incident in by_node[name] if incident.cause.counts],
                rules.shortest_outage_seconds,
            )
            for name, node in nodes.items()
        },
        training_spans={name: joined(spans) for name, spans in training.items()},
        job_seconds=dict(job_seconds),
        sampled=timelines.sampled,
        cordons={name: node.cordons for name, node in nodes.items()},
        lasting=() if lasting_at is None else lasting(incidents, timelines, lasting_at),
        pod_timelines=timelines.pod_timelines,
        account=account(timelines, incidents, rules.checkpoint_seconds, facts) if accounted else (),
        warnings=_unmatched(timelines, rules, incidents),
    )


def _with_pods(timelines: PoolTimelines, lasted: Sequence[OpenIncident]) -> PoolTimelines:
    """The time lines, where each node also has its pods and the taints that are configuration."""
    on_node: defaultdict[str, list[PodTimeline]] = defaultdict(list)
    for pod in timelines.pod_timelines.values():
        on_node[pod.node].append(pod)
    nodes, repairing = (
        timelines.node_timelines,
        {incident.name for incident in lasted if incident.kind == "node"},
    )
    keys, added = configured(nodes, on_node, repairing), additions(nodes)
    with_pods = {
        name: replace(
            node,
            pod_timelines=tuple(on_node.get(name, ())),
            configured=keys(name),
            additions=added,
        )
        for name, node in nodes.items()
    }
    return replace(timelines, node_timelines=with_pods)


def _of_nodes(
    timelines: PoolTimelines, rules: IncidentRules, lasted: Sequence[OpenIncident]
) -> list[Incident]:
    """Incidents of nodes: of each alone, joined where they share a cause, with what had begun
    before, and with the causes that people state.
    """
    nodes, step = timelines.node_timelines, timelines.sample_spacing
    incidents = [incident for node in nodes.values() for incident in node_incidents(node, rules)]
    incidents = seen_by_observer(incidents, nodes, step)
    incidents = domains(incidents, {name: node.labels for name, node in nodes.items()}, step)
    incidents = begun_before(incidents, lasted, timelines)
    return overruled(incidents, rules.overruled)


def _unmatched(
    timelines: PoolTimelines, rules: IncidentRules, incidents: Sequence[Incident]
) -> tuple[str, ...]:
    """A warning for each rule of the sampled time that overrules no incident."""
    first, until = timelines.sampled[0].start, timelines.sampled[-1].end
    return tuple(
        f"{UNMATCHED}{text}"
        for text in rules.overruled
        if first <= moment_of(text) < until
        and all(time_apart(incident, text) is None for incident in incidents)
    )
