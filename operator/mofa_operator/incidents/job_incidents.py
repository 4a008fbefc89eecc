"""Outages of jobs as incidents: when training stopped and went on, in which phases, and why.

The cause is looked for in this order: what happened to its nodes, what somebody decided, how its
containers ended.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from statistics import median
from types import MappingProxyType
from typing import Final

from mofa_model.spec import incident_causes as causes
from mofa_model.spec.incident_causes import SHORTEST_OUTAGE, IncidentCause
from mofa_model.spec.recovery_classes import RecoveryClass
from mofa_model.units import DAY, HOUR
from mofa_operator.incidents.blame import REPLAY, SOON, Signs, alike, infrastructure_share, timed
from mofa_operator.incidents.incident import Incident, JobFacts
from mofa_operator.incidents.job_outages import JobOutage, by_job, helper_exits, job_outages
from mofa_operator.incidents.node_incidents import OUTAGES
from mofa_operator.incidents.timelines import PodTimeline, PoolTimelines, Span, Stall, overlap

COLLECTIVE: Final = 600.0
"""Usual timeout of a collective, taken where nothing shows when training stopped. [s]"""
LOADING: Final = 240.0
"""Time from the last container's start to the first step, where the pool shows none. Ours. [s]"""
STALLED: Final = 240.0
"""Idle time before the end of a process from which on it waited for something. [s]"""
HUNG: Final = 1800.0
"""Time without work that no timeout of a collective explains. [s]"""
AT_ONCE: Final = 150.0
"""Longest time from a fault to the outage that it surely caused, beside two samples. [s]"""
REACTION: Final = 1500.0
"""Longest time from what happens to a node to the end of what ran there. [s]"""
AHEAD: Final = 900.0
"""How long after an outage a fault may be dated that caused it: its series lag behind. [s]"""
DRAINING: Final = 480.0
"""Longest time from a cordon to the eviction of what runs there. [s]"""
_EVICTS: Final = 200.0
"""Shortest time from when a kubelet is away until its pods are evicted, as far as samples tell. [s]
"""
_OFF: Final = 1.5
"""Times between samples of steps by which the end of training may be off: what ends nearer to the
end of its containers ended with them. Ours. [1]"""
_LOOP: Final = 3
"""Starts that did not last from which on it is a crash loop. [1]"""
_OWN: Final = range(1, 128)
"""Exit codes that a program chooses; higher ones are signals."""
_ABORTED: Final = 134
"""SIGABRT, with which NCCL's watchdog ends a process."""
_ENDED_IN_TIME: Final = {0, 124}
"""Exit codes of a program that ended by itself, and of GNU `timeout`."""
_WEIGHED: Final = (
    *(causes.USER_CRASH, causes.PROCESS_CRASH, causes.NCCL_TIMEOUT),
    causes.HANG,
)
"""Causes by how containers and pods ended, which other signs can overturn."""
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
class _Run:
    """What lies around an outage: the runs of the job before and after. [s]"""

    before: float | None
    """How long it had run; None = unknown."""
    after: float
    """How long it ran afterwards, as far as was seen."""
    again: bool
    """Whether the run after ended with no fault of a node and by nobody's decision."""
    others: tuple[float, ...]
    """Lengths of the runs next to it that ended so."""
    later: float | None
    """Length of the run after the next, where both ended so."""
    elsewhere: bool
    """Whether short runs on the same nodes ended when it went on elsewhere, and then lasted."""


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
        self._by_node = by_node
        self._facts = facts
        self._starts: dict[str, list[float]] = {}

    def of(self, pod_timelines: Mapping[str, PodTimeline]) -> list[Incident]:
        """Incidents of the jobs of these pods, in order."""
        incidents: list[Incident] = []
        outages: dict[str, list[JobOutage]] = {}
        for job, members in sorted(by_job(pod_timelines).items()):
            helpers = helper_exits(members)
            incidents += [
                Incident(
                    kind="job",
                    name=job,
                    start=helper.exit.at,
                    end=helper.exit.restarted_at,
                    cause=causes.SIDECAR,
                    evidence=(f"container {helper.exit.container} alone restarted",),
                )
                for helper in helpers
            ]
            every = job_outages(job, members, helpers, self._pool)
            outages[job] = self._joined_without_training(every)
        self._starts = {
            job: [one.start for one in every if self._unexplained(one)]
            for job, every in outages.items()
        }
        for job, every in outages.items():
            members = [pod for pod in pod_timelines.values() if pod.job == job]
            incidents += self._of_job(every, self._runs(every, members))
        return _with_usual_loading(sorted(incidents, key=lambda i: (i.start, i.name)))

    def _unexplained(self, outage: JobOutage) -> bool:
        """Whether an outage ended in failure, and neither a node nor a decision explains it."""
        ended = [place.pod for place in outage.outages if place.exit is None]
        if ended and all(pod.succeeded for pod in ended):
            return False
        return self._fault(outage) is None and self._decision(outage, outage.start) is None

    def _runs(self, outages: Sequence[JobOutage], pods: Sequence[PodTimeline]) -> list[_Run]:
        """The runs around each outage of a job."""
        own = set(self._starts[outages[0].job]) if outages else set()
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
        ended = [number for number, outage in enumerate(outages) if outage.start in own]
        elsewhere = _lasted_elsewhere(outages, lengths, afters)
        return [
            _Run(
                before=lengths[number],
                after=afters[number],
                again=number + 1 in ended,
                elsewhere=number in elsewhere,
                later=lengths[number + 2] if {number + 1, number + 2} <= set(ended) else None,
                others=tuple(
                    length
                    for other in ended
                    if 0 < abs(other - number) <= _LOOP and (length := lengths[other]) is not None
                ),
            )
            for number in range(len(outages))
        ]

    def _of_job(self, outages: Sequence[JobOutage], runs: Sequence[_Run]) -> list[Incident]:
        """Incidents of one job; `last` is until when everything before was over."""
        incidents: list[Incident] = []
        before: JobOutage | None = None
        last = earlier = 0.0
        run_before = None
        for outage, run in zip(outages, runs, strict=True):
            known = frozenset(one.fault.id for one in incidents if one.fault is not None)
            incident = self._incident(outage, run, last, known)
            fault = None if incident is None else incident.fault
            if before is not None and (
                (fault is not None and _gave_up(before, outage, fault))
                or (fault is not None and fault.id in known and _not_back(outage, fault))
                or _never_mended(incidents, before, outage, incident)
            ):
                incidents.pop()
                last, before = earlier, replace(before, later=(*before.later, *outage.outages))
                known = frozenset(one.fault.id for one in incidents if one.fault is not None)
                incident = self._incident(before, run_before or run, last, known)
                fault = None if incident is None else incident.fault
            else:
                before, run_before = (None, None) if incident is None else (outage, run)
            if incident is not None:
                incidents.append(incident)
            earlier = last
            last = max(last, outage.running or 0.0, 0.0 if fault is None else fault.start)
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
        self, outage: JobOutage, run: _Run, last: float, known: frozenset[str]
    ) -> Incident | None:
        """The incident of an outage; None where nothing says that the job wants to go on, or
        nothing was sampled before. `known` are the faults that stopped the job before, by id.
        """
        ended = [place.pod for place in outage.outages if place.exit is None]
        if ended and all(pod.succeeded for pod in ended):
            return Incident(
                kind="job",
                name=outage.job,
                start=outage.start,
                end=outage.start,
                cause=causes.COMPLETED,
                evidence=("its pods succeeded",),
            )
        running = outage.running
        lasts = running is None
        if running is None:
            if not self._lasts(outage):
                return None
            running = self._until
        stall = self._stall(outage, running)
        if lasts and (stall.resumed_at or inf) < inf:
            return None  # the rest of it trains on
        stopped, resumed = stall.stopped_at, None if stall.resumed_at == inf else stall.resumed_at
        if resumed is not None and stall.unsure:
            resumed = max(resumed, running)
        deduction = self._deduction(outage, run, stopped, last, known)
        fault = deduction.fault
        unseen = any(a <= outage.start <= b for a, b in self._pool.silences)
        if fault is None and not outage.exits and unseen:
            return None  # the cause is unknown, so it is neither exposure nor a failure
        start, redone = self._began(outage, deduction, stall, last)
        if stall.lost_seconds is not None and resumed is not None:
            redone = max(0.0, stall.lost_seconds - (resumed - start))
        new = [pod.created for pod in outage.replacements]
        made = max(new, default=running if lasts else outage.start)
        gone = [one for one in (*outage.outages, *outage.later) if one.exit is None]
        left = min(made, max((place.start for place in gone), default=made))
        seen = stopped is not None or fault is not None
        phases = {
            "detect": outage.start - start if seen else None,
            "drain": left - outage.start if gone else None,
            "queue": made - left if gone else None,
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
            timed=resumed is not None and not lasts,
            phases={name: max(0.0, time) for name, time in phases.items() if time is not None},
            stood=len(outage.nodes - {""}),
        )

    def _began(
        self, outage: JobOutage, deduction: Deduction, stall: Stall, last: float
    ) -> tuple[float, float]:
        """When training stopped, and the time of steps that were trained again. [s]"""
        fault, start, stopped = deduction.fault, outage.start, stall.stopped_at
        redone = stall.redone_seconds
        if (
            fault is not None
            and last < fault.start <= start <= fault.start + REACTION
            and self._stops(fault)
        ):
            start = fault.start
        if stopped is not None:
            if stopped > outage.start + self._pool.sample_spacing:
                return start, redone
            if outage.start - stopped > _OFF * stall.gap:
                return stopped, redone
            start = min(max(start, stopped - stall.gap / 2), max(stopped, outage.start))
            if redone:  # it ended with what told its steps: the last ones were told to nobody
                redone += min(stall.gap, max(0.0, start - stopped - stall.gap / 2))
            return start, redone
        again = fault is not None and fault.cause is causes.NIC and fault.start <= last
        waited = fault is None and deduction.cause is causes.NCCL_TIMEOUT
        if (again or waited) and outage.start - last > COLLECTIVE:
            start -= (
                COLLECTIVE  # all waited, for a link that is still down or for nobody knows what
            )
        return start, redone

    @property
    def _until(self) -> float:
        """The last moment that was sampled. [s]"""
        return self._pool.sampled[-1].end

    def _stops(self, fault: Incident) -> bool:
        """Whether a fault of a node stops what trains there when it begins.

        Where only the kubelet is away, containers go on until their pods are evicted.
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

    def _lasts(self, outage: JobOutage) -> bool:
        """Whether a job that is out wants to go on: new pods of it wait, the rest of it has not
        waited for longer than for a collective, or its object is there and asks for nodes.
        """
        if self._facts.get(outage.job, JobFacts()).wanted:
            return True
        step = self._pool.sample_spacing
        here = [
            pod
            for pod in self._pool.pod_timelines.values()
            if pod.job == outage.job and pod.over is None and pod.last > self._until - 3 * step
        ]
        waits = any(pod.started is None and pod.created > outage.start - step for pod in here)
        return waits or (bool(here) and self._until - outage.start < HUNG)

    def _stall(self, outage: JobOutage, running: float) -> Stall:
        """When the job trained last before an outage and first after, by steps, else GPUs."""
        start, step = outage.start, self._pool.sample_spacing
        slack = 2 * step + 60.0
        if outage.job in self._pool.stalls:
            near = [
                stall
                for stall in self._pool.stalls[outage.job]
                if (stall.stopped_at or 0.0) <= start + slack
                and (stall.resumed_at or 0.0) + stall.unsure >= start
            ]
            return min(near, key=lambda s: abs(start - (s.stopped_at or 0.0)), default=Stall())
        busy = self._pool.gpu_busy
        spans = [span for node in outage.nodes for span in busy.get(node, ())]
        if any(a < start and b > running for a, b in spans):
            return Stall()
        if running == self._until and any(a < start and b >= running - step for a, b in spans):
            return Stall(None, running)
        after = outage.nodes | {pod.node for pod in outage.replacements}
        begins = [a for node in after for a, _ in busy.get(node, ())]
        return Stall(
            max((b for a, b in spans if a < start and b <= start + slack), default=None),
            min((a for a in begins if a > start and a >= running - 2 * step), default=None),
        )

    def _deduction(
        self,
        outage: JobOutage,
        run: _Run,
        stopped: float | None,
        last: float,
        known: frozenset[str],
    ) -> Deduction:
        """Why a job went out; `stopped` is when its work stopped, None = unknown. [s]"""
        by_fault = decided = None
        fault = self._fault(outage)
        if fault is not None and self._came_after_a_drain(outage, fault):
            fault = None
        if fault is not None:
            lag = outage.start - fault.start
            word = (fault.deduced or fault.cause).word
            evidence = f"{word} of {fault.name} {max(0.0, lag):.0f} s before"
            by_fault = Deduction(fault.cause, (evidence, *fault.evidence), fault)
            at_once = lag <= AT_ONCE + 2 * self._pool.sample_spacing
            if at_once or (last < fault.start and lag <= REACTION):
                return by_fault
        decided = self._decision(outage, outage.start if stopped is None else stopped)
        if decided is not None and (by_fault is None or decided.cause is not causes.DRAIN):
            return decided
        if by_fault is not None and fault is not None:
            repaired = self._repaired(outage, fault, decided) if fault.id in known else ""
            if not repaired:
                return by_fault
            evidence = f"{repaired}, whose {fault.cause.word} had stopped it before"
            more = () if decided is None else decided.evidence
            share = float(fault.cause.counts)
            return Deduction(causes.DRAIN, (evidence, *more), fault, share)
        exits = outage.exits
        if any(place.pod.out_of_memory and not place.pod.exits for place in outage.outages) or any(
            stop.reason == "OOMKilled" for stop in exits
        ):
            return Deduction(causes.OOM_KILLED, ("a container was killed for want of memory",))
        went_on = outage.level is RecoveryClass.PROCESS and run.after >= REPLAY
        if outage.rounds >= _LOOP and not (went_on and self._others_stopped(outage)):
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
        if likely.cause not in _WEIGHED or (moved and not exits):
            return likely  # a pod that is made anew alone had no say in it
        return self._weighed(outage, run, likely)

    def _weighed(self, outage: JobOutage, run: _Run, likely: Deduction) -> Deduction:
        """Whose fault it was, by signs for the machines and for the program."""
        signs = self._signs(outage, run, likely.cause)
        share = infrastructure_share(signs)
        why = (*likely.evidence, f"{share:.1f} infrastructure: {signs.words()}")
        if share < 0.5:
            cause = causes.CRASH_LOOP if signs.alike else causes.USER_CRASH
        elif likely.cause is causes.USER_CRASH:
            cause = causes.NCCL_TIMEOUT if signs.together else causes.PROCESS_CRASH
        else:
            cause = likely.cause
        return Deduction(cause, why, share=share)

    def _signs(self, outage: JobOutage, run: _Run, likely: IncidentCause) -> Signs:
        """What speaks for the machines or for the program."""
        exits = outage.exits
        codes = {stop.code for stop in exits}
        first = exits[0].code if exits else None
        waited = likely is causes.NCCL_TIMEOUT or likely is causes.HANG
        same = outage.level is not RecoveryClass.JOB or any(
            place.pod.attempt and place.next is not None and place.next.attempt != place.pod.attempt
            for place in outage.replaced
        )
        before = run.before
        leads = run.later is not None and alike(run.after, run.later)
        repeats = 0 if before is None else sum(alike(before, other) for other in run.others)
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
            by_signal=first is not None and first > 128 and not waited,
            own_code=first in _OWN and len(codes - {first, None}) > 0 and not waited,
            waited=waited,
            together=not waited
            and len(exits) > 1
            and len(codes) == 1
            and exits[-1].at - exits[0].at < 120,
            alike=repeats > 0 or leads,
            looping=repeats >= _LOOP - 1,
            timed=before is not None
            and sum(timed(before, other) for other in run.others) >= _LOOP - 1,
            again=run.again and run.after <= HOUR,
            survived=same
            and run.after >= (REPLAY if before is None else min(REPLAY, max(HOUR, 3 * before))),
            lasted=before is not None and before > REPLAY,
            sooner=before is not None and before < SOON,
            program_xid=any(incident.cause is causes.USER_XID for incident in near),
            elsewhere=run.elsewhere,
            neighbours=not repeats and not leads and self._others_stopped(outage),
            node_record=record,
        )

    def _others_stopped(self, outage: JobOutage) -> bool:
        """Whether another job stopped within two minutes of this one, and neither a node nor a person stopped it."""
        return any(
            abs(at - outage.start) <= 120
            for job, starts in self._starts.items()
            if job != outage.job
            for at in starts
        )

    def _fault(self, outage: JobOutage) -> Incident | None:
        """The nearest incident of a node that the job ran on, also one overruled as no failure."""
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
            return lag < _EVICTS and not self._stops(incident), abs(lag)

        return min(near, key=unlikely, default=None)

    def _cordoned(self, outage: JobOutage, stopped: float) -> tuple[str, float] | None:
        """The node whose cordon ended what ran there, and when it was cordoned. [s]"""
        asked = all(stop.code in _ASKED_TO_END for stop in outage.exits)
        slack = self._pool.sample_spacing
        known = self._pool.node_timelines
        for node in sorted(outage.nodes & known.keys()) if outage.replaced else ():
            for cordon in known[node].cordons:
                if -(slack if asked else 0.0) <= stopped - cordon.start <= DRAINING + slack:
                    return node, cordon.start
        return None

    def _pressure(self, outage: JobOutage) -> str:
        """Whether a node ran short from which a pod went first, in words; empty = none did."""
        step = self._pool.sample_spacing
        slack = 2 * step + 60.0
        for pod in outage.first_gone(step):
            host = self._pool.node_timelines.get(pod.node)
            short = host and host.pressure(outage.start - slack, outage.start + slack)
            if short:
                return f"a pod went while {pod.node} had {short}"
        return ""

    def _repaired(self, outage: JobOutage, fault: Incident, decided: Deduction | None) -> str:
        """How a repair stopped a job, in words; empty = it did not.

        A job left a node in order, or its host was booted: the fault is counted where it began, and
        that somebody repairs it is a drain.
        """
        slack = AT_ONCE + 2 * self._pool.sample_spacing
        if fault.mended is not None and abs(outage.start - fault.mended) <= slack:
            return f"{fault.name} was booted"
        faulty = fault.nodes or (fault.name,)
        gone = outage.first_gone(self._pool.sample_spacing)
        moved = any(pod.node in faulty and not pod.failed for pod in gone)
        return f"moved off {fault.name}" if moved and decided is not None else ""

    def _came_after_a_drain(self, outage: JobOutage, fault: Incident) -> bool:
        """Whether a fault began only after the outage, which a cordon of another node explains."""
        cordoned = self._cordoned(outage, outage.start) if outage.start < fault.start else None
        return cordoned is not None and cordoned[0] not in (fault.name, *fault.nodes)

    def _decision(self, outage: JobOutage, stopped: float) -> Deduction | None:
        """A preemption, drain, eviction or a limit of its own; `stopped` is when work stopped. [s]"""
        gone = [place.pod for place in outage.outages]
        nodes = outage.nodes
        if any(pod.preempted for pod in gone):
            return Deduction(causes.PREEMPTION, ("a pod was preempted",))
        if (cordoned := self._cordoned(outage, stopped)) is not None:
            node, at = cordoned
            before = max(0.0, outage.start - at)
            return Deduction(causes.DRAIN, (f"{node} was cordoned {before:.0f} s before",))
        if any(pod.drained for pod in gone):
            return Deduction(causes.DRAIN, ("a pod was evicted through the API server",))
        if any(pod.evicted for pod in gone):
            return Deduction(causes.EVICTION, ("a pod was evicted",))
        if short := self._pressure(outage):
            return Deduction(causes.EVICTION, (short,))
        if not outage.replaced and (code := _of_a_limit(outage)) is not None:
            return Deduction(causes.TIME_LIMIT, (f"all its containers ended with {code}",))
        taken: defaultdict[str, set[str]] = defaultdict(set)
        for pod in self._pool.pod_timelines.values():
            follows = -60 <= pod.created - outage.start <= 300
            if follows and pod.job != outage.job and pod.node in nodes:
                taken[pod.job].add(pod.node)
        if any(2 * len(by_other) > len(nodes) for by_other in taken.values()):
            return Deduction(causes.PREEMPTION, ("pods of another job took its nodes",))
        return None


def _lasted_elsewhere(
    outages: Sequence[JobOutage], lengths: Sequence[float | None], afters: Sequence[float]
) -> set[int]:
    """Outages of a job that came again and again on the same nodes, until it went on unchanged with
    another node, and lasted.
    """
    found: set[int] = set()
    first = 0
    for number, outage in enumerate(outages):
        if outage.nodes != outages[first].nodes:
            first = number
        longest = max((length for length in lengths[first : number + 1] if length), default=0.0)
        if afters[number] < max(HOUR, 3 * longest):
            continue
        if number - first + 1 >= _LOOP and _went_elsewhere(outage):
            found.update(range(first, number + 1))
        first = number + 1
    return found


def _went_elsewhere(outage: JobOutage) -> bool:
    """Whether the same program went on with a node that it did not have."""
    new = [(one.pod, one.next) for one in outage.replaced if one.next is not None]
    unchanged = outage.level is RecoveryClass.POD or any(
        old.attempt.isdigit() and after.attempt.isdigit() and int(after.attempt) > int(old.attempt)
        for old, after in new
    )
    return unchanged and any(after.node not in {"", *outage.nodes} for _, after in new)


def _gave_up(before: JobOutage, outage: JobOutage, fault: Incident) -> bool:
    """Whether an outage is the end of the one before.

    The pod on the faulty node is moved; most others waited for it, gave up and started again.
    """
    if not outage.replaced or before.level is not RecoveryClass.PROCESS or before.running is None:
        return False
    moved = {place.pod.node for place in outage.replaced}
    waited = fault.start <= before.start + REACTION and outage.start - before.running <= HUNG
    gave_up = sum(stop.code in _OWN for stop in outage.exits)
    return moved == {fault.name} and waited and 2 * gave_up > len(outage.exits)


def _not_back(outage: JobOutage, fault: Incident) -> bool:
    """Whether a job goes out again while its pod on a host that is away is still there: without it
    no start before can have trained.
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
    """Whether a loop of crashes lasted until somebody made the job anew: nothing shows that the last
    start in it trained, and who mends a program starts it again.
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


def _of_a_limit(outage: JobOutage) -> int | None:
    """The exit code of all containers, where the program ended as it was told to: in success, after
    its own limit of time, or by `timeout`; None where they did not.
    """
    codes = {stop.code for stop in outage.exits}
    return next(iter(codes)) if len(codes) == 1 and codes <= _ENDED_IN_TIME else None


def _by_exits(outage: JobOutage, idle: float | None) -> Deduction:
    """The cause by exit codes of containers; `idle` is the time without work before. [s]"""
    exits = outage.exits
    first, codes = exits[0], {stop.code for stop in exits}
    if outage.replaced and not any(place.pod.failed for place in outage.replaced):
        return Deduction(causes.EVICTION, ("a pod was removed while its node was well",))
    at_once = len(exits) > 1 and len(codes) == 1 and exits[-1].at - first.at < 120
    if at_once and (first.code == _ABORTED or (idle is not None and idle > STALLED)):
        evidence = f"all {len(exits)} containers ended with {first.code} at once"
        return Deduction(causes.NCCL_TIMEOUT, (evidence,))
    own = first.code is not None and first.code in _OWN
    evidence = f"the first container to end exited with {first.code}"
    return Deduction(causes.USER_CRASH if own else causes.PROCESS_CRASH, (evidence,))


def _by_pods(outage: JobOutage, idle: float | None) -> Deduction:
    """The cause by how pods were replaced; `idle` is the time without work before. [s]"""
    if idle is not None and idle > STALLED:
        hung = idle > HUNG
        evidence = f"no work for {idle / 60:.0f} min, then its pods "
        evidence += "were replaced" if hung else "ended"
        return Deduction(causes.HANG if hung else causes.NCCL_TIMEOUT, (evidence,))
    failed = any(place.pod.failed for place in outage.outages)
    restarted = any(
        place.next is not None
        and place.pod.attempt.isdigit()
        and place.next.attempt.isdigit()
        and int(place.next.attempt) > int(place.pod.attempt)
        for place in outage.replaced
    )
    if failed or restarted or outage.level is not RecoveryClass.JOB:
        evidence = (
            "a pod failed, no node did" if failed else "its pods were replaced, no node failed"
        )
        return Deduction(causes.PROCESS_CRASH, (evidence,))
    evidence = "all its pods were deleted and made again, and none had failed"
    return Deduction(causes.RESUBMISSION, (evidence,))


def _with_usual_loading(incidents: list[Incident]) -> list[Incident]:
    """Incidents whose end no step shows, ended by the median load time of the job or pool."""
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


def _with_loading(incident: Incident, seen: Sequence[float] | None) -> Incident:
    load = median(seen) if seen else LOADING
    basis = (
        f"the median of {len(seen)} that were seen" if seen else "a prior, for none was ever seen"
    )
    evidence = f"nobody saw its first step: {load:.0f} s of loading are {basis}"
    return replace(incident, end=incident.end + load, evidence=(*incident.evidence, evidence))
