"""The past of a Slurm site: the same incidents and account as of a cluster with Prometheus.

Slurm itself says why a job or a node stopped, so causes come from its words: the state of a run,
the reason of a node, and who wrote it. Nodes are given back when a run ends, so the time of a job
between two runs costs no node-time.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from mofa_model.errors import SourceUnreachable
from mofa_model.files import read_text
from mofa_model.manifest.cluster_profile import IncidentRules
from mofa_model.manifest.surroundings import named_profile
from mofa_model.reliability.observed import ObservedFailures
from mofa_model.slurm import NodeEvent, SlurmNode, SlurmRecords, SlurmRun, ask, read
from mofa_model.slurm.slurm_records import AWAY, CLOSED
from mofa_model.spec import incident_causes as causes
from mofa_model.spec.incident_causes import IncidentCause, XidMeaning
from mofa_model.spec.recovery_classes import RecoveryClass
from mofa_model.units import DAY
from mofa_operator.incidents.account import account
from mofa_operator.incidents.incident import Incident, of_node, overruled
from mofa_operator.incidents.past import Past
from mofa_operator.incidents.shared_incidents import domains
from mofa_operator.incidents.timelines import (
    CORDON,
    READY,
    NodeTimeline,
    PodTimeline,
    PoolTimelines,
    SignalTimeline,
    Span,
    ValueRun,
    joined,
    length,
    overlap,
    without,
)
from mofa_operator.observe.history.history import history_of_past, observed_of
from mofa_operator.observe.history.pool_samples import days_of

_LARGEST: Final = 2**29
"""Most bytes of one saved output. [B]"""
_LOOK_BACK: Final = 30 * DAY
"""How far back the Slurm of this machine is asked. [s]"""
_SECOND: Final = 1.0
"""Resolution of Slurm's records. [s]"""
_NEAR: Final = 120.0
"""Longest time from a node's incident to the end of a run that it ended. Ours. [s]"""
_CONTINUED: Final = DAY
"""Longest time between two runs of a name and user of which the second goes on with the work of the
first. Ours. [s]"""
_REASONS: Final[Sequence[tuple[re.Pattern[str], IncidentCause]]] = tuple(
    (re.compile(pattern, re.IGNORECASE), cause)
    for pattern, cause in (
        (r"gres/gpu.*(lower|count)", causes.GPU_LOST),
        (r"(gpu|device).*(lost|missing|fallen|fell|off the bus)", causes.GPU_LOST),
        (r"unexpectedly rebooted", causes.REBOOT),
        (r"\b(ecc|nvlink|nvswitch|dcgm|gpu|hbm|row.?remap|cuda|nvidia)", causes.GPU_FATAL),
        (r"\b(nic|infiniband|ib\d*|mlx\d?|roce|hca)\b", causes.NIC),
        (r"\b(link (is )?down|link flap|port down)\b", causes.NIC),
        (r"kill task failed|prolog|epilog|health.?check", causes.NODE_UNHEALTHY),
        (r"\bnhc\b|low (real)?memory", causes.NODE_UNHEALTHY),
        (r"low (tmpdisk|socket)|batch job complete failure|duplicate jobid", causes.NODE_UNHEALTHY),
        (r"not responding|unreachable|no response", causes.NODE_DOWN),
        (r"panic|power (loss|failure|supply)|psu|crash", causes.NODE_DOWN),
    )
)  # fmt: skip
"""Causes by the reason of a node, mostly in words of slurmctld, slurmd and health checks."""
_SILENT: Final = re.compile("not responding", re.IGNORECASE)
_SAME_END: Final = 10.0
"""Longest time between the ends of a node and of its jobs as slurmctld dates them. Ours. [s]"""
_XID: Final = re.compile(r"\bxid\D{0,3}(\d+)", re.IGNORECASE)
_CRASHES: Final = frozenset({4, 6, 7, 8, 9, 11})
"""Signals of processes that were killed by others or by the machine. [1]"""
_BY_STATE: Final[Mapping[str, IncidentCause]] = {
    "NODE_FAIL": causes.NODE_DOWN,
    "BOOT_FAIL": causes.NODE_DOWN,
    "LAUNCH_FAILED": causes.NODE_UNHEALTHY,
    "PREEMPTED": causes.PREEMPTION,
    "REQUEUED": causes.RESUBMISSION,
    "CANCELLED": causes.CANCELLED,
    "REVOKED": causes.CANCELLED,
    "TIMEOUT": causes.TIME_LIMIT,
    "DEADLINE": causes.TIME_LIMIT,
    "OUT_OF_MEMORY": causes.OOM_KILLED,
}


def slurm_records(files: Sequence[str], start: float, end: float) -> SlurmRecords:
    """Records of saved outputs; without a file, of this machine's Slurm between two moments. [s]"""
    return (
        read([(read_text(path, largest=_LARGEST), path) for path in files])
        if files
        else ask(start, end)
    )


def observed(files: Sequence[str], profile: str | None) -> ObservedFailures:
    """The failures of a Slurm site, by the rules of a profile where one is named."""
    now = time.time()
    rules = IncidentRules() if profile is None else named_profile(profile).spec.incidents
    site_past = slurm_past(slurm_records(files, now - _LOOK_BACK, now), rules)
    whole = site_past.sampled[0]
    return observed_of(replace(history_of_past(site_past, days_of(whole), None), missing=()))


def cause_of(event: NodeEvent, stated: Mapping[str, str]) -> IncidentCause:
    """Why a node was away or closed; `stated` are meanings of XIDs by number.

    >>> cause_of(NodeEvent(node="a", begun=1, states=("DRAIN",), reason="Xid 79"), {}).word
    'gpu-lost'
    >>> cause_of(NodeEvent(node="a", begun=1, states=("DRAIN",), reason="new cables"), {}).word
    'planned-drain'
    """
    if xid := _XID.search(event.reason):
        code = int(xid[1])
        if code == causes.OFF_THE_BUS:
            return causes.GPU_LOST
        meaning = causes.meaning(code, stated)
        return causes.GPU_FATAL if meaning is XidMeaning.HARDWARE else causes.USER_XID
    for pattern, cause in _REASONS:
        if pattern.search(event.reason):
            return cause
    return causes.NODE_DOWN if {*event.states} & AWAY else causes.DRAIN


def slurm_past(
    slurm_site: SlurmRecords,
    rules: IncidentRules,
    window: tuple[float, float] | None = None,
    *,
    partition: str = "",
) -> Past:
    """What happened to the nodes with GPUs of a site; `window` is its start and end. [s]"""
    slurm_site = _dated_back(slurm_site)
    whole = _window(slurm_site) if window is None else Span(*window)
    nodes = _pool(slurm_site, partition)
    if not nodes:
        suffix = f" of partition {partition}" if partition else ""
        raise SourceUnreachable(
            f"Slurm: no node{suffix} is in what was read; give scontrol show node"
        )
    runs = [run for run in slurm_site.runs if {*run.hosts} & nodes.keys() and run.begun]
    if any(node.devices for node in nodes.values()):
        runs = [run for run in runs if run.devices]
    runs = [run for run in runs if run.begun < whole.end and (run.ended or whole.end) > whole.start]
    jobs = _jobs(runs)
    events = _events(slurm_site, nodes, whole)
    incidents = [
        incident for name in nodes for incident in _of_node(name, events[name], whole, rules)
    ]
    incidents = overruled(domains(incidents, {}, _SECOND), rules.overruled)
    by_node: defaultdict[str, list[Incident]] = defaultdict(list)
    for incident in incidents:
        for name in incident.nodes or (incident.name,):
            by_node[name].append(incident)
    pods = _pods(jobs, nodes, whole)
    begins: defaultdict[str, list[float]] = defaultdict(list)
    for run in runs:
        for host in run.hosts:
            begins[host].append(run.begun)
    job_incidents = [
        incident
        for name, job_runs in jobs.items()
        for incident in _of_job(name, job_runs, by_node, begins, whole)
    ]
    incidents += overruled(job_incidents, rules.overruled)
    timelines = PoolTimelines(
        node_timelines={name: _timeline(node, events[name], whole) for name, node in nodes.items()},
        pod_timelines=pods,
        gpu_busy={},
        stalls={},
        sampled=(whole,),
        sample_spacing=_SECOND,
        frees_nodes=True,
    )
    training: defaultdict[str, list[Span]] = defaultdict(list)
    job_seconds: defaultdict[str, float] = defaultdict(float)
    for pod in pods.values():
        spans = overlap([pod.running(_SECOND)], [whole])
        training[pod.node] += spans
        job_seconds[pod.job] += length(spans)
    return Past(
        incidents=tuple(
            sorted(incidents, key=lambda incident: (incident.start, incident.kind, incident.name))
        ),
        exposed={
            name: without(
                [whole],
                [
                    *(
                        Span(incident.start, incident.end)
                        for incident in by_node[name]
                        if incident.cause.counts
                    ),
                    *(Span(event.begun, event.ended or whole.end) for event in events[name]),
                ],
            )
            for name in nodes
        },
        training_spans={name: joined(spans) for name, spans in training.items()},
        job_seconds=dict(job_seconds),
        sampled=(whole,),
        pod_timelines=pods,
        account=account(timelines, incidents, rules.checkpoint_seconds),
        warnings=tuple(_warnings(slurm_site)),
        cordons={
            name: joined(Span(event.begun, event.ended or whole.end) for event in node_events)
            for name, node_events in events.items()
        },
    )


def _dated_back(records: SlurmRecords) -> SlurmRecords:
    """The records, with silent nodes dated back by the time that Slurm waits before it says so."""
    wait = records.silent_seconds
    events = tuple(
        replace(event, begun=event.begun - wait) if _SILENT.search(event.reason) else event
        for event in records.node_events
    )
    silent = [
        (event.node, event.begun) for event in records.node_events if _SILENT.search(event.reason)
    ]
    runs = tuple(
        replace(run, ended=max(run.begun, run.ended - wait))
        if run.state == "NODE_FAIL"
        and any(
            abs(moment - run.ended) <= max(_SAME_END, wait / 4) and node in run.hosts
            for node, moment in silent
        )
        else run
        for run in records.runs
    )
    return replace(records, runs=runs, node_events=events)


def _warnings(records: SlurmRecords) -> Iterable[str]:
    if not records.node_events:
        yield (
            "Slurm's record of its nodes is missing: failures are counted by the jobs that they "
            "ended; give sacctmgr show event as well"
        )
    if not records.runs:
        yield "Slurm's record of its jobs is missing: give what sacct printed as well"


def _window(records: SlurmRecords) -> Span:
    moments = [
        moment for run in records.runs for moment in (run.begun, run.ended, run.submitted) if moment
    ]
    moments += [
        moment for event in records.node_events for moment in (event.begun, event.ended) if moment
    ]
    if not moments:
        raise SourceUnreachable("Slurm: nothing that was read has a time; give what sacct printed")
    return Span(min(moments), max(*moments, min(moments) + _SECOND))


def _pool(records: SlurmRecords, partition: str) -> dict[str, SlurmNode]:
    nodes = {node.name: node for node in records.node_records}
    for run in records.runs:
        for host in run.hosts if run.devices else ():
            nodes.setdefault(
                host, SlurmNode(name=host, devices=run.devices // max(1, len(run.hosts)))
            )
    if partition:
        nodes = {name: node for name, node in nodes.items() if partition in node.partitions}
    with_devices = {name: node for name, node in nodes.items() if node.devices}
    return with_devices or nodes


def _jobs(runs: Sequence[SlurmRun]) -> dict[str, list[SlurmRun]]:
    """Runs by the job that they belong to: one number, or one name and user in succession."""
    runs_by_job: dict[str, list[SlurmRun]] = {}
    job_of_id: dict[str, str] = {}
    for run in sorted(runs, key=lambda run: (run.begun, run.job_id)):
        name = job_of_id.get(run.job_id)
        if name is None:
            unnumbered = f"{run.user or 'nobody'}/{run.name or run.job_id}"
            earlier_runs = runs_by_job.get(unnumbered)
            goes_on = earlier_runs is None or (
                0 < earlier_runs[-1].ended <= run.begun
                and run.begun - earlier_runs[-1].ended < _CONTINUED
            )
            name = job_of_id[run.job_id] = unnumbered if goes_on else f"{unnumbered}-{run.job_id}"
        runs_by_job.setdefault(name, []).append(run)
    return runs_by_job


def _pods(
    jobs: Mapping[str, Sequence[SlurmRun]], nodes: Mapping[str, SlurmNode], whole: Span
) -> dict[str, PodTimeline]:
    """Each run of a Slurm job on a node, as the time line of a pod."""
    return {
        f"{run.job_id}@{run.begun:.0f}/{host}": PodTimeline(
            job=name,
            attempt=str(number),
            slot=str(place),
            node=host,
            created=run.begun,
            started=run.begun,
            last=run.ended or whole.end,
            over=run.ended or None,
            failed=run.state in {"FAILED", "NODE_FAIL"},
            succeeded=run.state == "COMPLETED",
            preempted=run.state == "PREEMPTED",
            out_of_memory=run.state == "OUT_OF_MEMORY",
        )
        for name, runs in jobs.items()
        for number, run in enumerate(runs)
        for place, host in enumerate(run.hosts)
        if host in nodes
    }


def _events(
    records: SlurmRecords, nodes: Mapping[str, SlurmNode], whole: Span
) -> dict[str, list[NodeEvent]]:
    """Events of each node, with its present state where slurmdbd has no event of that."""
    events: dict[str, list[NodeEvent]] = {name: [] for name in nodes}
    for event in records.node_events:
        within = event.begun < whole.end and (event.ended or whole.end) > whole.start
        if event.node in events and within and {*event.states} & (AWAY | CLOSED):
            events[event.node].append(event)
    for name, node in nodes.items():
        is_open = any(not event.ended for event in events[name])
        if not node.usable and node.reason_since and not is_open and node.reason_since < whole.end:
            events[name].append(
                NodeEvent(
                    node=name, begun=node.reason_since, states=node.states, reason=node.reason
                )
            )
    return events


def _of_node(
    name: str, events: Sequence[NodeEvent], whole: Span, rules: IncidentRules
) -> Iterable[Incident]:
    """Incidents of a node; events without a gap are one, with the first cause that counts."""
    groups: list[list[NodeEvent]] = []
    for event in sorted(events, key=lambda event: event.begun):
        if groups and event.begun - (groups[-1][-1].ended or event.begun) <= _SECOND:
            groups[-1].append(event)
        else:
            groups.append([event])
    for group in groups:
        event_causes = [(cause_of(event, rules.xids), event) for event in group]
        cause = next((cause for cause, _ in event_causes if cause.counts), event_causes[0][0])
        evidence = [
            f"{'+'.join(event.states)} in Slurm" + (f": {event.reason}" if event.reason else "")
            for _, event in event_causes
        ]
        end = group[-1].ended or whole.end
        yield replace(
            of_node(name, group[0].begun, end, cause, *evidence), timed=bool(group[-1].ended)
        )


def _of_job(
    name: str,
    runs: Sequence[SlurmRun],
    by_node: Mapping[str, Sequence[Incident]],
    begins: Mapping[str, Sequence[float]],
    whole: Span,
) -> Iterable[Incident]:
    """Interruptions of a Slurm job: each run that ended within `whole` and did not complete, with
    its cause and the fault of a node that explains it.
    """
    for number, run in enumerate(runs):
        if (
            not run.ended
            or run.ended > whole.end
            or run.state in {"COMPLETED", "RUNNING", "SUSPENDED"}
        ):
            continue
        after = runs[number + 1] if number + 1 < len(runs) else None
        fault = _fault(run, by_node, begins)
        cause = _cause(run, fault)
        end = after.begun if after is not None else run.ended + RecoveryClass.JOB.seconds
        evidence = [f"job {run.job_id} ended as {run.state}"]
        if run.exit_signal or run.exit_code:
            evidence.append(
                f"signal {run.exit_signal}" if run.exit_signal else f"exit code {run.exit_code}"
            )
        if fault is not None:
            evidence.append(f"{fault.name}: {fault.evidence[0]}")
        yield Incident(
            kind="job",
            name=name,
            start=run.ended,
            end=max(end, run.ended + _SECOND),
            cause=cause,
            evidence=tuple(evidence),
            nodes=() if fault is None else fault.nodes or (fault.name,),
            fault=fault,
            recovery_class=RecoveryClass.JOB,
            timed=after is not None,
            phases={"queue": after.begun - run.ended} if after is not None else {},
            stood=len(run.hosts),
            share=1.0 if cause.counts else 0.0,
        )


def _fault(
    run: SlurmRun, by_node: Mapping[str, Sequence[Incident]], begins: Mapping[str, Sequence[float]]
) -> Incident | None:
    """The incident of a node that ended a run; not one after which the node began another run."""
    if run.state not in {"NODE_FAIL", "FAILED", "BOOT_FAIL", "LAUNCH_FAILED"}:
        return None
    candidates = [
        incident
        for host in run.hosts
        for incident in by_node.get(host, ())
        if incident.cause.counts
        and incident.start - _NEAR <= run.ended
        and run.begun < incident.end
    ]
    candidates = [
        incident
        for incident in candidates
        if abs(incident.start - run.ended) <= _NEAR
        and not any(run.ended <= begin < incident.start for begin in begins.get(incident.name, ()))
    ]
    return min(candidates, key=lambda incident: abs(incident.start - run.ended), default=None)


def _cause(run: SlurmRun, fault: Incident | None) -> IncidentCause:
    if fault is not None and (run.state != "FAILED" or run.exit_signal):
        return fault.cause
    if (cause := _BY_STATE.get(run.state)) is not None:
        return cause
    killed = run.exit_signal in _CRASHES or run.exit_code - 128 in _CRASHES
    return causes.PROCESS_CRASH if killed else causes.USER_CRASH


def _timeline(node: SlurmNode, events: Sequence[NodeEvent], whole: Span) -> NodeTimeline:
    """A Slurm node and its events, as the time line of a node."""

    def line(closed: Sequence[Span], inside: float) -> tuple[ValueRun, ...]:
        runs = [ValueRun(start, end, inside) for start, end in joined(closed)]
        runs += [ValueRun(start, end, 1.0 - inside) for start, end in without([whole], closed)]
        return tuple(sorted(runs, key=lambda run: run.start))

    spans = {
        is_down: [
            Span(max(event.begun, whole.start), min(event.ended or whole.end, whole.end))
            for event in events
            if bool({*event.states} & AWAY) is is_down
        ]
        for is_down in (True, False)
    }
    return NodeTimeline(
        name=node.name,
        timelines=(
            SignalTimeline(node.name, READY, (), line(spans[True], 0.0)),
            SignalTimeline(node.name, CORDON, (), line(spans[False], 1.0)),
        ),
        signals=frozenset({READY, CORDON}),
        spacing={READY: _SECOND, CORDON: _SECOND},
        labels={"partition": ",".join(node.partitions)},
        presence=(whole,),
        sampled=(whole,),
    )
