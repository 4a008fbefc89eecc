"""Outages of jobs as incidents: when training stopped and went on, and in which phases.

`job_causes` finds out why. Outages between which nothing was trained are one incident.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from statistics import median
from types import MappingProxyType
from typing import Final

from mofa_model.spec import incident_causes as causes
from mofa_model.spec.recovery_classes import RecoveryClass
from mofa_model.units import HOUR
from mofa_operator.incidents.blame import REPLAY
from mofa_operator.incidents.incident import Incident, JobFacts, of_job
from mofa_operator.incidents.job_causes import (
    AT_ONCE,
    HUNG,
    LOOP,
    OWN_CODES,
    REACTION,
    Deduction,
    JobCauses,
    NeighbourRuns,
)
from mofa_operator.incidents.job_outages import JobOutage, by_job, helper_exits, job_outages
from mofa_operator.incidents.node_incidents import OUTAGES
from mofa_operator.incidents.timelines import PodTimeline, PoolTimelines, Stall

COLLECTIVE: Final = 600.0
"""Usual timeout of a collective, assumed where nothing shows when training stopped. [s]"""
LOADING: Final = 240.0
"""Time from the last container's start to the first step, where the pool shows none. Ours. [s]"""
_OFF: Final = 1.5
"""Training that stopped at most so many times between samples of its steps before its containers
ended, ended with them. Ours. [1]"""


class JobIncidents:
    """Deduces the incidents of jobs from the time lines and the node incidents of a pool."""

    def __init__(
        self,
        pool: PoolTimelines,
        by_node: Mapping[str, Sequence[Incident]],
        facts: Mapping[str, JobFacts] = MappingProxyType({}),
    ) -> None:
        """`by_node` are the incidents of each node."""
        self._pool = pool
        self._facts = facts
        self._causes = JobCauses(pool, by_node)

    def of(self, pod_timelines: Mapping[str, PodTimeline]) -> list[Incident]:
        """Incidents of the jobs of these pods, in order."""
        incidents: list[Incident] = []
        outages: dict[str, list[JobOutage]] = {}
        pods_of = by_job(pod_timelines)
        for job, members in sorted(pods_of.items()):
            helpers = helper_exits(members)
            for _, stop in helpers:
                evidence = f"container {stop.container} alone restarted"
                incidents.append(of_job(job, stop.at, stop.restarted_at, causes.SIDECAR, evidence))
            separate = job_outages(job, members, helpers, self._pool)
            outages[job] = self._joined_without_training(separate)
        # Every job's outages are known before any is explained: jobs that stop together speak for
        # the machines.
        for job, joint in outages.items():
            unexplained = filter(self._causes.is_unexplained, joint)
            self._causes.unexplained[job] = [outage.start for outage in unexplained]
            loops = (outage.running for outage in joint if outage.rounds >= LOOP)
            self._causes.mended[job] = [running for running in loops if running is not None]
        for job, joint in outages.items():
            incidents += self._of_job(joint, self._runs(joint, pods_of[job]))
        incidents.sort(key=lambda incident: (incident.start, incident.name))
        return _with_usual_loading(incidents)

    def _runs(
        self, outages: Sequence[JobOutage], pods: Sequence[PodTimeline]
    ) -> list[NeighbourRuns]:
        """The runs before and after each outage of a job."""
        unexplained = set(self._causes.unexplained[outages[0].job]) if outages else set()
        until = max((pod.last for pod in pods), default=0.0)
        lengths: list[float | None] = []
        afters: list[float] = []
        begun: float | None = None
        for number, outage in enumerate(outages):
            first = max((pod.started or 0.0 for pod in outage.pods_before), default=0.0)
            since = first if begun is None else max(begun, 0.0)
            lengths.append(outage.start - since if 0.0 < since <= outage.start else None)
            begun = outage.running
            end = outages[number + 1].start if number + 1 < len(outages) else until
            afters.append(0.0 if begun is None else max(0.0, end - begun))
        failed = [number for number, outage in enumerate(outages) if outage.start in unexplained]
        elsewhere = _lasted_elsewhere(outages, lengths, afters)
        return [
            NeighbourRuns(
                before=lengths[number],
                after=afters[number],
                again=number + 1 in failed,
                elsewhere=number in elsewhere,
                after_next=lengths[number + 2] if {number + 1, number + 2} <= set(failed) else None,
                lengths_near=tuple(
                    length
                    for other in failed
                    if 0 < abs(other - number) <= LOOP and (length := lengths[other]) is not None
                ),
            )
            for number in range(len(outages))
        ]

    def _of_job(
        self, outages: Sequence[JobOutage], runs: Sequence[NeighbourRuns]
    ) -> list[Incident]:
        """The incidents of one job, in order; an outage that only ends the one before joins it."""
        incidents: list[Incident] = []
        before: JobOutage | None = None
        runs_before: NeighbourRuns | None = None
        last_end = end_before = 0.0
        for outage, neighbour_runs in zip(outages, runs, strict=True):
            earlier = _fault_ids(incidents)
            incident = self._incident(outage, neighbour_runs, last_end, earlier)
            fault = None if incident is None else incident.fault
            if before is not None and (
                (fault is not None and _gave_up(before, outage, fault))
                or (fault is not None and fault.id in earlier and _not_back(outage, fault))
                or _never_mended(incidents, before, outage, incident)
            ):
                incidents.pop()
                before = replace(before, later=(*before.later, *outage.outages))
                last_end, earlier = end_before, _fault_ids(incidents)
                incident = self._incident(before, runs_before or neighbour_runs, last_end, earlier)
                fault = None if incident is None else incident.fault
            else:
                before, runs_before = (None, None) if incident is None else (outage, neighbour_runs)
            if incident is not None:
                incidents.append(incident)
            end_before = last_end
            last_end = max(last_end, outage.running or 0.0, 0.0 if fault is None else fault.start)
        return incidents

    def _joined_without_training(self, outages: Sequence[JobOutage]) -> list[JobOutage]:
        """The outages, with those joined between which the job's steps did not advance."""
        joined: list[JobOutage] = []
        for outage in outages:
            running = joined[-1].running if joined else None
            resumed = None if running is None else self._stall(joined[-1], running).resumed_at
            if resumed is not None and resumed > outage.start + self._pool.sample_spacing:
                joined[-1] = replace(joined[-1], later=(*joined[-1].later, *outage.outages))
            else:
                joined.append(outage)
        return joined

    def _incident(
        self,
        outage: JobOutage,
        neighbour_runs: NeighbourRuns,
        last_end: float,
        earlier_faults: frozenset[str],
    ) -> Incident | None:
        """The incident of an outage; None where nothing shows that the job is to go on, or nothing
        was sampled before. `earlier_faults` are the faults that stopped the job before, by id.
        """
        if outage.has_succeeded:
            start = outage.start
            return of_job(outage.job, start, start, causes.COMPLETED, "its pods succeeded")
        running = outage.running
        # A job whose object waits for no more pods goes on with fewer.
        if running is None and not self._waits(outage):
            running = outage.smaller
        lasts = running is None and self._lasts(outage)
        given_up = None if lasts else outage.given_up(self._pool.sample_spacing)
        if running is None:
            running = self._until if lasts else given_up
        if running is None:
            return None
        stall = self._stall(outage, running)
        if lasts and (stall.resumed_at or inf) < inf:
            return None  # the rest of it trains on
        # A stall that has not ended says when work stopped, and nothing of when it goes on.
        stopped, resumed = stall.stopped_at, None if stall.resumed_at == inf else stall.resumed_at
        if resumed is not None and stall.unsure:
            resumed = max(resumed, running)
        deduction = self._causes.deduction(
            outage, neighbour_runs, stopped, last_end, earlier_faults
        )
        fault = deduction.fault
        unseen = any(gap.start <= outage.start <= gap.end for gap in self._pool.silences)
        if fault is None and not outage.exits and unseen:
            return None  # the cause is unknown, so it is neither exposure nor a failure
        start, redone = self._began(outage, deduction, stall, last_end)
        if stall.lost_seconds is not None and resumed is not None:
            redone = max(0.0, stall.lost_seconds - (resumed - start))
        # The phases of an outage follow each other: old pods go, new ones are made, they run, the
        # job loads, it repeats lost steps. Pods that were only restarted were never made anew.
        new = [pod.created for pod in outage.replacements]
        made = max(new, default=running if lasts else outage.start)
        emptied = [place.start for place in outage.every if place.exit is None]
        drained = min(made, max(emptied, default=made))
        is_seen = stopped is not None or fault is not None
        phases = {
            "detect": outage.start - start if is_seen else None,
            "drain": drained - outage.start if emptied else None,
            "queue": made - drained if emptied else None,
            "start": running - max(made, outage.start) if new or not lasts else None,
            "load": None if resumed is None else resumed - running,
            "redo": redone or None,
        }
        nodes: tuple[str, ...] = ()
        if fault is not None:
            nodes = (fault.name,) if fault.kind == "node" else fault.nodes
        return Incident(
            kind="job",
            name=outage.job,
            start=start,
            end=running if resumed is None else resumed,
            cause=deduction.cause,
            evidence=deduction.evidence,
            nodes=nodes,
            fault=fault,
            recovery_class=outage.level,
            share=float(deduction.cause.counts) if deduction.share is None else deduction.share,
            lasts=lasts,
            timed=not lasts and (resumed is not None or running == given_up),
            phases={name: max(0.0, time) for name, time in phases.items() if time is not None},
            stood=len(outage.nodes - {""}),
        )

    def _began(
        self, outage: JobOutage, deduction: Deduction, stall: Stall, last_end: float
    ) -> tuple[float, float]:
        """When training stopped, and the time of steps that were trained again. [s]"""
        fault, start, stopped = deduction.fault, outage.start, stall.stopped_at
        redone = stall.redone_seconds
        if (
            fault is not None
            and last_end < fault.start <= start <= fault.start + REACTION
            and self._causes.stops(fault)
        ):
            start = fault.start
        if stopped is not None:
            if stopped > outage.start + self._pool.sample_spacing:
                return start, redone
            if outage.start - stopped > _OFF * stall.gap:
                return stopped, redone
            start = min(max(start, stopped - stall.gap / 2), max(stopped, outage.start))
            if redone:  # what publishes the steps ended too: the last steps were never sampled
                redone += min(stall.gap, max(0.0, start - stopped - stall.gap / 2))
            return start, redone
        # all waited, for a link that is still down or for something unknown
        is_same_link = fault is not None and fault.cause is causes.NIC and fault.start <= last_end
        is_timeout = fault is None and deduction.cause is causes.NCCL_TIMEOUT
        waits = (is_same_link or is_timeout) and outage.start - last_end > COLLECTIVE
        return start - COLLECTIVE if waits else start, redone

    @property
    def _until(self) -> float:
        """The last moment that was sampled. [s]"""
        return self._pool.sampled[-1].end

    def _lasts(self, outage: JobOutage) -> bool:
        """Whether a job that is out is to go on: it waits, or its object asks for nodes."""
        return self._facts.get(outage.job, JobFacts()).wanted or self._waits(outage)

    def _waits(self, outage: JobOutage) -> bool:
        """Whether new pods of a job wait, or others still run and no collective has timed out."""
        step = self._pool.sample_spacing
        alive = [
            pod
            for pod in self._pool.pod_timelines.values()
            if pod.job == outage.job and pod.over is None and pod.last > self._until - 3 * step
        ]
        waits = any(pod.started is None and pod.created > outage.start - step for pod in alive)
        return waits or (bool(alive) and self._until - outage.start < HUNG)

    def _stall(self, outage: JobOutage, running: float) -> Stall:
        """When a job trained last before an outage and first after it, by steps or by busy GPUs."""
        start, step = outage.start, self._pool.sample_spacing
        slack = 2 * step + 60.0
        if outage.job in self._pool.stalls:
            stalls = [
                stall
                for stall in self._pool.stalls[outage.job]
                if (stall.stopped_at or 0.0) <= start + slack
                and (stall.resumed_at or 0.0) + stall.unsure >= start
            ]

            def distance(stall: Stall) -> float:
                return abs(start - (stall.stopped_at or 0.0))

            return min(stalls, key=distance, default=Stall())
        busy = self._pool.gpu_busy
        spans = [span for node in outage.nodes for span in busy.get(node, ())]
        ends = [end for begin, end in spans if begin < start]
        if any(end > running for end in ends):
            return Stall()
        if running == self._until and any(end >= running - step for end in ends):
            return Stall(None, running)
        after = outage.nodes | {pod.node for pod in outage.replacements}
        begins = [begin for node in after for begin, _ in busy.get(node, ())]
        stops = (end for end in ends if end <= start + slack)
        resumptions = (begin for begin in begins if begin > start and begin >= running - 2 * step)
        return Stall(max(stops, default=None), min(resumptions, default=None))


def _fault_ids(incidents: Sequence[Incident]) -> frozenset[str]:
    """Ids of the faults that caused incidents of jobs."""
    faults = (incident.fault for incident in incidents)
    return frozenset(fault.id for fault in faults if fault is not None)


def _lasted_elsewhere(
    outages: Sequence[JobOutage], lengths: Sequence[float | None], afters: Sequence[float]
) -> set[int]:
    """Numbers of the outages that a job had again and again on the same nodes, until it went on
    unchanged with another node, and lasted.
    """
    numbers: set[int] = set()
    first = 0
    for number, outage in enumerate(outages):
        if outage.nodes != outages[first].nodes:
            first = number
        longest = max((length for length in lengths[first : number + 1] if length), default=0.0)
        if afters[number] < max(HOUR, 3 * longest):
            continue
        if number - first + 1 >= LOOP and _went_elsewhere(outage):
            numbers.update(range(first, number + 1))
        first = number + 1
    return numbers


def _went_elsewhere(outage: JobOutage) -> bool:
    """Whether the same program went on with a node that it did not have."""
    pairs = [(place.pod, place.next) for place in outage.replaced if place.next is not None]
    unchanged = outage.level is RecoveryClass.POD or any(
        old.attempt.isdigit() and after.attempt.isdigit() and int(after.attempt) > int(old.attempt)
        for old, after in pairs
    )
    return unchanged and any(after.node not in {"", *outage.nodes} for _, after in pairs)


def _gave_up(before: JobOutage, outage: JobOutage, fault: Incident) -> bool:
    """Whether an outage is the end of the one before: the pod on the faulty node is moved, and most
    others, which had waited for it, gave up and started again.
    """
    if not outage.replaced or before.level is not RecoveryClass.PROCESS or before.running is None:
        return False
    moved = {place.pod.node for place in outage.replaced}
    waited = fault.start <= before.start + REACTION and outage.start - before.running <= HUNG
    gave_up = sum(stop.code in OWN_CODES for stop in outage.exits)
    return moved == {fault.name} and waited and 2 * gave_up > len(outage.exits)


def _not_back(outage: JobOutage, fault: Incident) -> bool:
    """Whether a job goes out again while one of its pods is still on a host that is away, so that
    no start in between can have trained.
    """
    return (
        fault.cause in OUTAGES
        and fault.cause is not causes.KUBELET_DOWN
        and outage.start <= fault.end + AT_ONCE
        and any(pod.node == fault.name and pod.created < fault.start for pod in outage.pods_before)
    )


def _never_mended(
    incidents: Sequence[Incident],
    before: JobOutage,
    outage: JobOutage,
    incident: Incident | None,
) -> bool:
    """Whether a loop of crashes lasted until somebody mended the program and made the job anew;
    nothing shows that the last start in the loop trained.
    """
    return (
        incident is not None
        and incident.cause is causes.RESUBMISSION
        and incidents[-1].cause is causes.CRASH_LOOP
        and not incidents[-1].timed
        and before.level is RecoveryClass.PROCESS  # nobody had made it anew yet
        and before.running is not None
        and outage.start - before.running <= REPLAY
    )


def _with_usual_loading(incidents: list[Incident]) -> list[Incident]:
    """The incidents; where no step shows the end, it follows from the median loading time of the
    job, else of the pool.
    """
    loads: defaultdict[str, list[float]] = defaultdict(list)
    for incident in incidents:
        if "load" in incident.phases:
            loads[incident.name].append(incident.phases["load"])
            loads[""].append(incident.phases["load"])
    return [
        incident
        if incident.timed or incident.lasts or incident.recovery_class is None
        else _with_loading(incident, loads.get(incident.name) or loads.get(""))
        for incident in incidents
    ]


def _with_loading(incident: Incident, loads: Sequence[float] | None) -> Incident:
    load = median(loads) if loads else LOADING
    basis = "a prior, for none was ever seen"
    if loads:
        basis = f"the median of {len(loads)} that were seen"
    evidence = f"nobody saw its first step: {load:.0f} s of loading are {basis}"
    return replace(incident, end=incident.end + load, evidence=(*incident.evidence, evidence))
