"""The whole past of a pool: what its nodes and jobs lived through, and the time in which a failure would have been seen."""

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
    apart,
    moment_of,
    overruled,
)
from mofa_operator.incidents.job_incidents import JobSurroundings, Standstill, job_incidents
from mofa_operator.incidents.node_incidents import domains, node_incidents
from mofa_operator.incidents.timelines import NodeLife, PodLife, Span, joined, overlap, without


@dataclass(frozen=True, kw_only=True, slots=True)
class Past:
    """What was seen, and what follows from it."""

    incidents: tuple[Incident, ...]
    """All of them in order, those that are no failures too."""
    exposed: Mapping[str, Sequence[Span]]
    """When each node was ready, not cordoned and not failing. [s]"""
    training: Mapping[str, Sequence[Span]]
    """When each node had a training pod. [s]"""
    job_seconds: Mapping[str, float]
    """Node-time of each job. [node s]"""
    known: tuple[Span, ...]
    """When anything was looked at. [s]"""
    pods: Mapping[str, PodLife]
    """Pods of training jobs on the pool's nodes, by uid."""
    warnings: tuple[str, ...]
    """Ids of this time that somebody overrules, and that no incident has."""

    @property
    def lost(self) -> dict[str, float]:
        """Node-time in which jobs stood still, by cause; who submits anew has not lost what lies between. [node s]"""
        found: defaultdict[str, float] = defaultdict(float)
        for one in self.incidents:
            if one.kind == "job" and one.stood and one.cause is not RESUBMISSION:
                found[one.cause.word] += one.stood * one.seconds
        return dict(found)

    @property
    def phases(self) -> dict[str, tuple[float, ...]]:
        """Times of each phase of recovery from failures, where it was seen. [s]"""
        failed = [one for one in self.incidents if one.kind == "job" and one.cause.counts]
        every = {
            name: tuple(one.phases[name] for one in failed if name in one.phases) for name in PHASES
        }
        return {name: times for name, times in every.items() if times}


def past(
    lives: Sequence[NodeLife],
    pods: Mapping[str, PodLife],
    busy: Mapping[str, Sequence[Span]],
    stalls: Mapping[str, Sequence[Standstill]],
    step: float,
    rules: IncidentRules,
) -> Past:
    """All incidents, as a profile's rules have them. `busy` is when a node's GPUs worked, `stalls` when a job's steps stood still, `step` the time between samples. [s]"""
    known = lives[0].known
    nodes = {life.name: life for life in lives}
    found = [one for life in lives for one in node_incidents(life, rules)]
    found = domains(found, {name: life.labels for name, life in nodes.items()}, step)
    found = overruled(found, rules.overruled)
    by_node: defaultdict[str, list[Incident]] = defaultdict(list)
    for one in found:
        for name in one.nodes or (one.name,):
            by_node[name].append(one)
    here = {uid: pod for uid, pod in pods.items() if pod.node in nodes}
    around = JobSurroundings(
        lives=nodes,
        incidents=by_node,
        busy=busy,
        stalls=stalls,
        pods=tuple(pods.values()),
        silences=without([(known[0][0], known[-1][1])], known),
        step=step,
    )
    found += overruled(job_incidents(here, around, known[-1][1]), rules.overruled)
    training: defaultdict[str, list[Span]] = defaultdict(list)
    by_job: defaultdict[str, float] = defaultdict(float)
    for pod in here.values():
        ran = overlap([_lived(pod, step)], known)
        training[pod.node] += ran
        by_job[pod.job] += sum(b - a for a, b in ran)
    return Past(
        incidents=tuple(
            sorted(
                (one for one in found if one.start >= known[0][0] - step),
                key=lambda one: (one.start, one.kind, one.name),
            )
        ),
        exposed={
            life.name: life.exposed(
                [(one.start, one.end) for one in by_node[life.name] if one.cause.counts],
                rules.shortest_outage_seconds,
            )
            for life in lives
        },
        training={name: joined(spans) for name, spans in training.items()},
        job_seconds=dict(by_job),
        known=known,
        pods=here,
        warnings=tuple(
            f"{UNMATCHED}{text}"
            for text in rules.overruled
            if known[0][0] <= moment_of(text) < known[-1][1]
            and all(apart(one, text) is None for one in found)
        ),
    )


def _lived(pod: PodLife, step: float) -> Span:
    """From when a pod ran to its end. [s]"""
    start = pod.started if pod.started is not None else pod.created
    return start, max(start, pod.over if pod.over is not None else pod.last + step / 2)
