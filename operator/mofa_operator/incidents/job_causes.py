"""Why jobs went out.

The cause is looked for in this order: what happened to the job's nodes, what somebody decided, how
its containers ended. Where only the last is known, signs for the machines and for the program are
weighed (`blame`).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mofa_model.spec import incident_causes as causes
from mofa_model.spec.incident_causes import SHORTEST_OUTAGE, IncidentCause
from mofa_model.spec.recovery_classes import RecoveryClass
from mofa_model.units import DAY, HOUR
from mofa_operator.incidents.blame import REPLAY, SOON, Signs, alike, infrastructure_share, timed
from mofa_operator.incidents.incident import Incident
from mofa_operator.incidents.job_outages import JobOutage
from mofa_operator.incidents.node_incidents import DELETED
from mofa_operator.incidents.timelines import PoolTimelines, Span, overlap

STALLED: Final = 240.0
"""A process that was idle for longer before its end had waited for something. [s]"""
HUNG: Final = 1800.0
"""Time without work that no timeout of a collective explains. [s]"""
AT_ONCE: Final = 150.0
"""Longest time from a fault to the outage that it surely caused, beside two samples. [s]"""
REACTION: Final = 1500.0
"""Longest time from what happens to a node to the end of what ran there. [s]"""
AHEAD: Final = 900.0
"""How long after an outage the fault that caused it may be dated: its series come late. [s]"""
DRAINING: Final = 480.0
"""Longest time from a cordon to the eviction of what runs there. [s]"""
TOGETHER: Final = 120.0
"""Longest time between the ends of containers or jobs that stop for one reason. Ours. [s]"""
AGAIN: Final = 300.0
"""Longest time that a kubelet waits before it starts a container again. [s]"""
_TAKEN: Final = (-60.0, 300.0)
"""From when to when after the start of an outage another job makes the pods that took its nodes.
Ours. [s]"""
_LAST_OWN: Final = 128
"""A shell adds this to the number of a signal: higher exit codes are signals."""
_EVICTS: Final = 200.0
"""Shortest time until the pods of a kubelet that is away are evicted, by the samples. [s]"""
LOOP: Final = 3
"""So many starts that did not last are a crash loop. [1]"""
OWN_CODES: Final = range(1, _LAST_OWN)
"""Exit codes that a program chooses."""
_ABORTED: Final = 134
"""SIGABRT, with which NCCL's watchdog ends a process."""
_ENDED_IN_TIME: Final = {0, 124}
"""Exit codes of work that is done or whose time is over: 0 of a program, 124 of GNU `timeout`."""
_WEIGHED: Final = (
    *(causes.USER_CRASH, causes.PROCESS_CRASH, causes.NCCL_TIMEOUT),
    causes.HANG,
)
"""Causes that follow only from how containers and pods ended; other signs can overrule them."""
_ASKED_TO_END: Final = (None, 0, 137, 143)
"""Exit codes of containers that were told to end: unknown, success, SIGKILL, SIGTERM."""


@dataclass(frozen=True, slots=True)
class Deduction:
    """Why a job went out, what shows it, and the incident of a node that caused it."""

    cause: IncidentCause
    evidence: tuple[str, ...]
    fault: Incident | None = None
    share: float | None = None
    """The chance that the machines did it, where signs were weighed; None = no doubt. [1]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class NeighbourRuns:
    """The runs of a job before and after an outage. [s]"""

    before: float | None
    """How long it had run; None = unknown."""
    after: float
    """How long it ran afterwards, as far as was seen."""
    again: bool
    """Whether the run after it ended without a fault of a node and without a decision."""
    lengths_near: tuple[float, ...]
    """Lengths of the runs near it that ended unexplained."""
    after_next: float | None
    """Length of the run after the next, where both ended unexplained."""
    elsewhere: bool
    """Whether runs on the same nodes were short until it went on elsewhere, and then lasted."""


class JobCauses:
    """Finds why jobs went out, from the time lines and the node incidents of a pool."""

    def __init__(self, pool: PoolTimelines, by_node: Mapping[str, Sequence[Incident]]) -> None:
        """`by_node` are the incidents of each node."""
        self._pool = pool
        self._by_node = by_node
        self.unexplained: dict[str, Sequence[float]] = {}
        """Starts of each job's outages that ended in failure and that neither a node nor a decision
        explains; filled in once all outages are known. Those of other jobs speak for the machines.
        [s]
        """
        self.mended: dict[str, Sequence[float]] = {}
        """When loops of each job's starts ended; filled in together with `unexplained`. [s]"""

    def is_unexplained(self, outage: JobOutage) -> bool:
        """Whether an outage ended in failure, and neither a node nor a decision explains it."""
        return (
            not outage.has_succeeded
            and self.fault(outage) is None
            and self.decision(outage, outage.start) is None
        )

    def deduction(
        self,
        outage: JobOutage,
        neighbour_runs: NeighbourRuns,
        stopped: float | None,
        last_end: float,
        earlier_faults: frozenset[str],
    ) -> Deduction:
        """Why a job went out.

        `stopped` is when its work stopped, None = unknown; `last_end` is when all incidents before
        were over; `earlier_faults` are the faults that stopped it before, by id. [s]
        """
        by_fault = None
        # A job that a drain moved away was not stopped by what happened to another node later.
        fault = self.fault(outage)
        if fault is not None and self._came_after_a_drain(outage, fault):
            fault = None
        if fault is not None:
            lag = outage.start - fault.start
            word = (fault.deduced or fault.cause).word
            evidence = f"{word} of {fault.name} {max(0.0, lag):.0f} s before"
            by_fault = Deduction(fault.cause, (evidence, *fault.evidence), fault)
            # A fault that came with the outage explains it, whatever was decided: people cordon
            # broken nodes, too. So does one up to REACTION before it, where the job trained when
            # the fault came.
            at_once = lag <= AT_ONCE + 2 * self._pool.sample_spacing
            if at_once or (last_end < fault.start and lag <= REACTION):
                return by_fault
        # A cordon is often the answer to the fault, so a drain gives way to one; a preemption or an
        # eviction does not.
        decided = self.decision(outage, outage.start if stopped is None else stopped)
        if decided is not None and (by_fault is None or decided.cause is not causes.DRAIN):
            return decided
        if by_fault is not None and fault is not None:
            # The fault was charged when it stopped the job before: what moves the job now is its
            # repair.
            repaired = self._repaired(outage, fault, decided) if fault.id in earlier_faults else ""
            if not repaired:
                return by_fault
            evidence = f"{repaired}, whose {fault.cause.word} had stopped it before"
            decision = () if decided is None else decided.evidence
            share = float(fault.cause.counts)
            return Deduction(causes.DRAIN, (evidence, *decision), fault, share)
        exits = outage.exits
        # From here on only the ends of containers and pods speak. The kernel's kill leaves no
        # doubt, so it comes first; a loop of starts comes before the single exits of which it is
        # made.
        if any(place.pod.out_of_memory and not place.pod.exits for place in outage.outages) or any(
            stop.reason == "OOMKilled" for stop in exits
        ):
            return Deduction(causes.OOM_KILLED, ("a container was killed for want of memory",))
        went_on = outage.level is RecoveryClass.PROCESS and neighbour_runs.after >= REPLAY
        if outage.rounds >= LOOP and not (went_on and self._others_did_so(outage)):
            evidence = f"{outage.rounds} starts that did not last"
            return Deduction(causes.CRASH_LOOP, (evidence,))
        idle = None if stopped is None else outage.start - stopped
        if exits and not (outage.replaced and outage.level is RecoveryClass.JOB):
            likely = _by_exits(outage, idle)
        else:
            likely = _by_pods(outage, idle)
        moved = outage.level is RecoveryClass.POD and not any(
            place.pod.failed for place in outage.outages
        )
        # How a process ended does not tell a broken machine from a broken program: signs are
        # weighed.
        if likely.cause not in _WEIGHED or (moved and not exits):
            return likely  # a single pod that was made anew without failing did not cause it
        return self._weighed(outage, neighbour_runs, likely)

    def _weighed(
        self, outage: JobOutage, neighbour_runs: NeighbourRuns, likely: Deduction
    ) -> Deduction:
        """The likely cause, weighed by signs for the machines and for the program."""
        signs = self._signs(outage, neighbour_runs, likely.cause)
        share = infrastructure_share(signs)
        why = (*likely.evidence, f"{share:.1f} infrastructure: {signs.words()}")
        if share < 0.5:
            cause = causes.CRASH_LOOP if signs.alike else causes.USER_CRASH
        elif likely.cause is causes.USER_CRASH:
            cause = causes.NCCL_TIMEOUT if signs.together else causes.PROCESS_CRASH
        else:
            cause = likely.cause
        return Deduction(cause, why, share=share)

    def _signs(
        self, outage: JobOutage, neighbour_runs: NeighbourRuns, likely: IncidentCause
    ) -> Signs:
        """Signs that the machines stopped a job, or that its own program did."""
        exits = outage.exits
        codes = {stop.code for stop in exits}
        first = exits[0].code if exits else None
        waited = likely is causes.NCCL_TIMEOUT or likely is causes.HANG
        is_unchanged = outage.level is not RecoveryClass.JOB or any(
            place.pod.attempt and place.next is not None and place.next.attempt != place.pod.attempt
            for place in outage.replaced
        )
        before = neighbour_runs.before
        after, after_next = neighbour_runs.after, neighbour_runs.after_next
        lengths = () if before is None else neighbour_runs.lengths_near
        is_first_alike = after_next is not None and alike(after, after_next)
        repeats = sum(alike(before or 0.0, other) for other in lengths)
        longest = REPLAY if before is None else min(REPLAY, max(HOUR, 3 * before))
        near = [
            incident
            for node in outage.nodes
            for incident in self._by_node.get(node, ())
            if abs(incident.start - outage.start) <= AHEAD
        ]
        quiet = (causes.FLAP, causes.XID_WARNING, causes.OBSERVER)
        record = any(incident.cause in quiet for incident in near) or any(
            incident.cause.counts and 0 <= outage.start - incident.start <= 2 * DAY
            for node in outage.nodes
            for incident in self._by_node.get(node, ())
            if incident.kind == "node" and node == outage.outages[0].pod.node
        )
        return Signs(
            by_signal=first is not None and first > _LAST_OWN and not waited,
            own_code=first in OWN_CODES and len(codes - {first, None}) > 0 and not waited,
            waited=waited,
            together=not waited
            and len(exits) > 1
            and len(codes) == 1
            and exits[-1].at - exits[0].at < TOGETHER,
            alike=repeats > 0 or is_first_alike,
            looping=repeats >= LOOP - 1,
            timed=sum(timed(before or 0.0, other) for other in lengths) >= LOOP - 1,
            again=neighbour_runs.again and after <= HOUR,
            survived=is_unchanged and after >= longest,
            lasted=before is not None and before > REPLAY,
            sooner=before is not None and before < SOON,
            program_xid=any(incident.cause is causes.USER_XID for incident in near),
            elsewhere=neighbour_runs.elsewhere,
            neighbours=not repeats and not is_first_alike and self._others_did_so(outage),
            node_record=record,
        )

    def _others_did_so(self, outage: JobOutage) -> bool:
        """Whether another job stopped unexplained within two minutes of this one, or starts of both
        failed until both went on at one time.
        """

        def is_near(others: Mapping[str, Sequence[float]], moment: float, apart: float) -> bool:
            return any(
                abs(other - moment) <= apart
                for job, moments in others.items()
                if job != outage.job
                for other in moments
            )

        went_on = outage.running if outage.rounds >= LOOP else None
        return is_near(self.unexplained, outage.start, TOGETHER) or (
            went_on is not None and is_near(self.mended, went_on, AGAIN + TOGETHER)
        )

    def stops(self, fault: Incident) -> bool:
        """Whether a fault of a node stops at once what trains there; while only the kubelet is
        away, containers go on until their pods are evicted.
        """
        if fault.cause is not causes.KUBELET_DOWN:
            return True
        nodes = [
            node
            for name in fault.nodes or (fault.name,)
            if (node := self._pool.node_timelines.get(name)) is not None
        ]
        span = Span(fault.start, min(fault.end, fault.start + SHORTEST_OUTAGE))
        return not all(
            any(signal.on_host for signal in node.signals) and not overlap([span], node.dark or [])
            for node in nodes
        )

    def fault(self, outage: JobOutage) -> Incident | None:
        """The nearest failure of a node that the job ran on; one may be overruled as none."""
        slack = 2 * self._pool.sample_spacing + 60.0
        last = outage.outages[-1].start
        near = [
            incident
            for node in sorted(outage.nodes)
            for incident in self._by_node.get(node, ())
            if (incident.cause.counts or incident.deduced is not None)
            and outage.start <= incident.end + slack
            and (
                incident.start - incident.unsure <= outage.start + slack
                or incident.start <= min(last, outage.start + AHEAD)
            )
            and incident.start - incident.unsure <= outage.start + AHEAD
        ]

        def unlikely(incident: Incident) -> tuple[bool, float]:
            lag = outage.start - incident.start
            return lag < _EVICTS and not self.stops(incident), abs(lag)

        return min(near, key=unlikely, default=None)

    def _cordoned(self, outage: JobOutage, stopped: float) -> tuple[str, float] | None:
        """The node whose cordon ended what ran there, and when it was cordoned: any time before,
        where the node was deleted afterwards. [s]
        """
        was_asked = all(stop.code in _ASKED_TO_END for stop in outage.exits)
        slack = self._pool.sample_spacing
        timelines = self._pool.node_timelines
        for name in sorted(outage.nodes & timelines.keys()) if outage.replaced else ():
            node = timelines[name]
            was_deleted = any(0 <= gone.start - stopped <= DELETED for gone in node.deletions)
            longest = math.inf if was_asked and was_deleted else DRAINING + slack
            for cordon in (*node.cordons, *node.removals):
                if -(slack if was_asked else 0.0) <= stopped - cordon.start <= longest:
                    return name, cordon.start
        return None

    def _pressure(self, outage: JobOutage) -> str:
        """The shortage on a node whose pod ended first, in words; empty where there was none."""
        step = self._pool.sample_spacing
        slack = 2 * step + 60.0
        for pod in outage.first_gone(step):
            node = self._pool.node_timelines.get(pod.node)
            pressure = node and node.pressure(outage.start - slack, outage.start + slack)
            if pressure:
                return f"a pod went while {pod.node} had {pressure}"
        return ""

    def _repaired(self, outage: JobOutage, fault: Incident, decided: Deduction | None) -> str:
        """How the repair of a fault stopped a job, in words; empty = it did not.

        The job left the node in order, or the host was booted. The fault counts where it began; its
        repair is a drain.
        """
        slack = AT_ONCE + 2 * self._pool.sample_spacing
        if fault.mended is not None and abs(outage.start - fault.mended) <= slack:
            return f"{fault.name} was booted"
        faulty = fault.nodes or (fault.name,)
        first_pods = outage.first_gone(self._pool.sample_spacing)
        moved = any(pod.node in faulty and not pod.failed for pod in first_pods)
        return f"moved off {fault.name}" if moved and decided is not None else ""

    def _came_after_a_drain(self, outage: JobOutage, fault: Incident) -> bool:
        """Whether a fault began after the outage, and a cordon of another node explains that."""
        cordoned = self._cordoned(outage, outage.start) if outage.start < fault.start else None
        return cordoned is not None and cordoned[0] not in (fault.name, *fault.nodes)

    def decision(self, outage: JobOutage, stopped: float) -> Deduction | None:
        """A preemption, a drain, an eviction or the job's own limit; None where there was none.

        `stopped` is when work stopped. [s]
        """
        # The surest sign comes first: a pod that says who took it, then times of cordons, then who
        # holds its nodes now.
        pods = [place.pod for place in outage.outages]
        if any(pod.preempted for pod in pods):
            return Deduction(causes.PREEMPTION, ("a pod was preempted",))
        if (cordoned := self._cordoned(outage, stopped)) is not None:
            node, cordoned_at = cordoned
            before = max(0.0, outage.start - cordoned_at)
            return Deduction(causes.DRAIN, (f"{node} was cordoned {before:.0f} s before",))
        if any(pod.drained for pod in pods):
            return Deduction(causes.DRAIN, ("a pod was evicted through the API server",))
        if any(pod.evicted for pod in pods):
            return Deduction(causes.EVICTION, ("a pod was evicted",))
        if pressure := self._pressure(outage):
            return Deduction(causes.EVICTION, (pressure,))
        if not outage.replaced and (code := _of_a_limit(outage)) is not None:
            return Deduction(causes.TIME_LIMIT, (f"all its containers ended with {code}",))
        nodes = outage.nodes
        taken: defaultdict[str, set[str]] = defaultdict(set)
        for pod in self._pool.pod_timelines.values():
            follows = _TAKEN[0] <= pod.created - outage.start <= _TAKEN[1]
            if follows and pod.job != outage.job and pod.node in nodes:
                taken[pod.job].add(pod.node)
        if any(2 * len(by_other) > len(nodes) for by_other in taken.values()):
            return Deduction(causes.PREEMPTION, ("pods of another job took its nodes",))
        return None


def _of_a_limit(outage: JobOutage) -> int | None:
    """The exit code of all containers, where the program ended as intended: in success, after its
    own limit of time, or by `timeout`; None otherwise.
    """
    codes = {stop.code for stop in outage.exits}
    return next(iter(codes)) if len(codes) == 1 and codes <= _ENDED_IN_TIME else None


def _by_exits(outage: JobOutage, idle: float | None) -> Deduction:
    """The cause by exit codes of containers; `idle` is the time without work before. [s]"""
    exits = outage.exits
    first, codes = exits[0], {stop.code for stop in exits}
    if outage.replaced and not any(place.pod.failed for place in outage.replaced):
        return Deduction(causes.EVICTION, ("a pod was removed while its node was well",))
    at_once = len(exits) > 1 and len(codes) == 1 and exits[-1].at - first.at < TOGETHER
    if at_once and (first.code == _ABORTED or (idle is not None and idle > STALLED)):
        evidence = f"all {len(exits)} containers ended with {first.code} at once"
        return Deduction(causes.NCCL_TIMEOUT, (evidence,))
    evidence = f"the first container to end exited with {first.code}"
    by_program = first.code is not None and first.code in OWN_CODES
    return Deduction(causes.USER_CRASH if by_program else causes.PROCESS_CRASH, (evidence,))


def _by_pods(outage: JobOutage, idle: float | None) -> Deduction:
    """The cause by how pods were replaced; `idle` is the time without work before. [s]"""
    if idle is not None and idle > STALLED:
        cause, end = causes.NCCL_TIMEOUT, "ended"
        if idle > HUNG:
            cause, end = causes.HANG, "were replaced"
        return Deduction(cause, (f"no work for {idle / 60:.0f} min, then its pods {end}",))
    failed = any(place.pod.failed for place in outage.outages)
    restarted = any(
        place.next is not None
        and place.pod.attempt.isdigit()
        and place.next.attempt.isdigit()
        and int(place.next.attempt) > int(place.pod.attempt)
        for place in outage.replaced
    )
    if failed:
        return Deduction(causes.PROCESS_CRASH, ("a pod failed, no node did",))
    if restarted or outage.level is not RecoveryClass.JOB:
        return Deduction(causes.PROCESS_CRASH, ("its pods were replaced, no node failed",))
    evidence = "all its pods were deleted and made again, and none had failed"
    return Deduction(causes.RESUBMISSION, (evidence,))
