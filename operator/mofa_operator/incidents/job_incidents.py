"""Interruptions of jobs as incidents: when training stopped and went on, in which phases, and why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from statistics import median
from typing import Final

from mofa_model.spec import incident_causes as causes
from mofa_model.spec.incident_causes import IncidentCause
from mofa_model.spec.recovery_classes import RecoveryClass
from mofa_operator.incidents.episodes import Episode, by_job, episodes
from mofa_operator.incidents.incident import Incident
from mofa_operator.incidents.timelines import NodeLife, PodLife, Span

COLLECTIVE: Final = 600.0
"""Usual timeout of a collective, where nobody sees when training stopped. [s]"""
LOADING: Final = 240.0
"""Time from the last container's start to the first step, where nobody saw it of any job of the pool: a prior. Ours. [s]"""


def job_incidents(
    pods: Mapping[str, PodLife], around: JobSurroundings, until: float
) -> list[Incident]:
    """Incidents of all jobs, in order."""
    found: list[Incident] = []
    for job, many in sorted(by_job(pods).items()):
        every, helpers = episodes(job, many, until, around.step, around.silences)
        found += [
            Incident(
                kind="job",
                name=job,
                start=one.at,
                end=one.again,
                cause=causes.SIDECAR,
                evidence=(f"container {one.container} alone restarted",),
            )
            for _, one in helpers
        ]
        before: Episode | None = None
        last = earlier = 0.0
        for episode in _until_trained(every, around):
            one, blamed = _incident(episode, around, last)
            if before is not None and blamed is not None and gave_up(before, episode, blamed):
                found.pop()
                last, before = earlier, replace(before, later=(*before.later, *episode.downs))
                one, blamed = _incident(before, around, last)
            else:
                before = None if one is None else episode
            found += [] if one is None else [one]
            earlier = last
            last = max(last, episode.running or 0.0, 0.0 if blamed is None else blamed.start)
    return _timed(sorted(found, key=lambda one: (one.start, one.name)))


def _until_trained(every: Sequence[Episode], around: JobSurroundings) -> list[Episode]:
    """Interruptions of a job as one where it is known that it did not train between them."""
    found: list[Episode] = []
    for one in every:
        running = found[-1].running if found else None
        begun = None if running is None else _training(found[-1], around, running)[1]
        if begun is not None and begun > one.start + around.step:
            found[-1] = replace(found[-1], later=(*found[-1].later, *one.downs))
        else:
            found.append(one)
    return found


def _incident(
    one: Episode, around: JobSurroundings, last: float
) -> tuple[Incident | None, Incident | None]:
    """An interruption as an incident, and the incident of a node that is to blame. `last` is until when all before was over. [s]"""
    running = one.running
    ended = [down.pod for down in one.downs if down.exit is None]
    if ended and all(pod.succeeded for pod in ended):
        done = Incident(
            kind="job",
            name=one.job,
            start=one.start,
            end=one.start,
            cause=causes.COMPLETED,
            evidence=("its pods succeeded",),
        )
        return done, None
    if running is None:
        return None, None
    stopped, begun, redone = _training(one, around, running)
    begun = None if begun == inf else begun
    stall = one.start - stopped if stopped is not None else None
    cause, said, blamed = cause_of(one, around, stall, last)
    start = one.start
    if blamed is None and not one.exits and any(a <= start <= b for a, b in around.silences):
        return None, None  # nobody looked, so nobody knows why: neither exposure nor count
    if blamed is not None and last < blamed.start <= start <= blamed.start + REACTION:
        start = blamed.start
    if stopped is not None and stopped <= one.start + around.step:
        start = stopped
    elif cause is causes.NCCL_TIMEOUT and stopped is None and blamed is None:
        start -= COLLECTIVE
    end = begun if begun is not None else running
    made = max(
        (down.next.created for down in one.replaced if down.next is not None), default=one.start
    )
    left = min(made, max((down.start for down in one.replaced), default=made))
    phases = {
        "detect": one.start - start if stopped is not None or blamed is not None else None,
        "drain": left - one.start if one.replaced else None,
        "queue": made - left if one.replaced else None,
        "start": running - max(made, one.start),
        "load": None if begun is None else begun - running,
        "redo": redone or None,
    }
    found = Incident(
        kind="job",
        name=one.job,
        start=start,
        end=end,
        cause=cause,
        evidence=said,
        level=one.level,
        timed=begun is not None,
        phases={name: max(0.0, time) for name, time in phases.items() if time is not None},
        stood=len({pod.node for pod in one.before if pod.node}),
        nodes=(blamed.name,)
        if blamed is not None and blamed.kind == "node"
        else blamed.nodes
        if blamed is not None
        else (),
    )
    return found, blamed


def _timed(found: list[Incident]) -> list[Incident]:
    """Incidents whose first step nobody saw last as long after their last start as is usual for the job, else in the pool."""
    loads: defaultdict[str, list[float]] = defaultdict(list)
    for one in found:
        for whose in (one.name, "") if "load" in one.phases else ():
            loads[whose].append(one.phases["load"])
    return [
        one
        if one.timed or one.level is None
        else _as_usual(one, loads.get(one.name) or loads.get(""))
        for one in found
    ]


def _as_usual(one: Incident, seen: Sequence[float] | None) -> Incident:
    load = median(seen) if seen else LOADING
    known = (
        f"the median of {len(seen)} that were seen" if seen else "a prior, for none was ever seen"
    )
    said = f"nobody saw its first step: {load:.0f} s of loading are {known}"
    return replace(one, end=one.end + load, evidence=(*one.evidence, said))


def _training(
    one: Episode, around: JobSurroundings, running: float
) -> tuple[float | None, float | None, float]:
    """When the job last trained before, and when it did again after, infinite for not yet; None where nobody saw it. Then the
    time of the steps that it did again. [s]
    """
    slack = 2 * around.step + 60.0
    if one.job in around.stalls:
        near = [
            stall
            for stall in around.stalls[one.job]
            if stall.stopped <= one.start + slack and stall.resumed >= one.start
        ]
        if not near:
            return None, None, 0.0
        found = min(near, key=lambda stall: abs(one.start - stall.stopped))
        return found.stopped, found.resumed, found.redone
    nodes = {pod.node for pod in one.before}
    after = nodes | {down.next.node for down in one.replaced if down.next is not None}
    spans = [span for node in nodes for span in around.busy.get(node, ())]
    if any(a < one.start and b > running for a, b in spans):
        return None, None, 0.0
    ends = [b for a, b in spans if a < one.start and b <= one.start + slack]
    begins = [
        a
        for node in after
        for a, _ in around.busy.get(node, ())
        if a > one.start and a >= running - 2 * around.step
    ]
    return max(ends, default=None), min(begins, default=None), 0.0


# Why a job was interrupted: what happened to its nodes first, then what somebody decided, then how its containers ended.

STALLED: Final = 240.0
"""Time without work before the end of a process from which on it waited for something. [s]"""
HUNG: Final = 1800.0
"""Time without work that no timeout of a collective explains. [s]"""
REACTION: Final = 1500.0
"""Longest time from what happens to a node to the end of what ran there. [s]"""
DRAINING: Final = 480.0
"""Longest time from a cordon to the eviction of what runs there. [s]"""
_LOOP: Final = 3
_OWN: Final = range(1, 128)
"""Exit codes that a program chooses; higher ones are signals."""
_ABORTED: Final = 134
_TOLD: Final = (None, 0, 137, 143)
"""How containers end that are told to. [1]"""


@dataclass(frozen=True, slots=True)
class Standstill:
    """A time in which the steps of a job stood still."""

    stopped: float
    """From half a step after the last one. [s]"""
    resumed: float
    """To the first sign of a new one; infinite for none yet. [s]"""
    redone: float = 0.0
    """Time of the steps that were finished before it and after it. [s]"""


@dataclass(frozen=True, kw_only=True)
class JobSurroundings:
    """What is known around jobs."""

    lives: Mapping[str, NodeLife]
    """Nodes by name."""
    incidents: Mapping[str, Sequence[Incident]]
    """What happened to each node."""
    busy: Mapping[str, Sequence[Span]]
    """When GPUs of a node were at work, where that is known. [s]"""
    stalls: Mapping[str, Sequence[Standstill]]
    """When a job's steps stood still, where they are known."""
    pods: Sequence[PodLife]
    """All pods."""
    silences: Sequence[Span]
    """When nobody looked. [s]"""
    step: float
    """Time between samples. [s]"""


def cause_of(
    one: Episode, around: JobSurroundings, stall: float | None, last: float
) -> tuple[IncidentCause, tuple[str, ...], Incident | None]:
    """Why, what shows it, and the incident of a node that is to blame."""
    fault, lag = _fault(one, around)
    if fault is not None and (
        lag <= 150.0 + 2 * around.step or (last < fault.start and lag <= REACTION)
    ):
        return (
            fault.cause,
            (f"{_deduced(fault)} of {fault.name} {max(0.0, lag):.0f} s before", *fault.evidence),
            fault,
        )
    room = _room(one, around, one.start - (stall or 0.0))
    if room is not None and (fault is None or room[0] is not causes.DRAIN):
        return *room, None
    if fault is not None:
        return (
            fault.cause,
            (f"{_deduced(fault)} of {fault.name} {lag:.0f} s before", *fault.evidence),
            fault,
        )
    exits = one.exits
    if any(down.pod.out_of_memory and not down.pod.exits for down in one.downs) or any(
        x.reason == "OOMKilled" for x in exits
    ):
        return causes.OOM_KILLED, ("a container was killed for want of memory",), None
    if one.rounds >= _LOOP:
        return causes.CRASH_LOOP, (f"{one.rounds:.0f} starts that did not last",), None
    if exits and not (one.replaced and one.level is RecoveryClass.JOB):
        return *_by_exits(one, stall), None
    return *_by_pods(one, stall), None


def gave_up(before: Episode, one: Episode, fault: Incident) -> bool:
    """Whether an interruption is the end of the one before: the pod on the node with the fault is moved, and most others, which had
    waited for it since, give up by themselves and start again.
    """
    if not one.replaced or before.level is not RecoveryClass.PROCESS or before.running is None:
        return False
    moved = {down.pod.node for down in one.replaced}
    waited = fault.start <= before.start + REACTION and one.start - before.running <= HUNG
    return (
        moved == {fault.name}
        and waited
        and 2 * sum(x.code in _OWN for x in one.exits) > len(one.exits)
    )


def _deduced(one: Incident) -> str:
    return (one.deduced or one.cause).word


def _by_exits(one: Episode, stall: float | None) -> tuple[IncidentCause, tuple[str, ...]]:
    """By how containers ended that were started again in their pods."""
    exits = one.exits
    first, codes = exits[0], {x.code for x in exits}
    if one.replaced and not any(down.pod.failed for down in one.replaced):
        return causes.EVICTION, ("a pod was removed while its node was well",)
    if (
        len(exits) > 1
        and len(codes) == 1
        and exits[-1].at - first.at < 120
        and (first.code == _ABORTED or (stall is not None and stall > STALLED))
    ):
        return causes.NCCL_TIMEOUT, (
            f"all {len(exits)} containers ended with {first.code} at once",
        )
    if first.code is not None and first.code in _OWN:
        return causes.USER_CRASH, (f"the first container to end exited with {first.code}",)
    return causes.PROCESS_CRASH, (f"the first container to end exited with {first.code}",)


def _by_pods(one: Episode, stall: float | None) -> tuple[IncidentCause, tuple[str, ...]]:
    """By how pods were replaced."""
    if stall is not None and stall > HUNG:
        return causes.HANG, (f"no work for {stall / 60:.0f} min, then its pods were replaced",)
    if stall is not None and stall > STALLED:
        return causes.NCCL_TIMEOUT, (f"no work for {stall / 60:.0f} min, then its pods ended",)
    failed = any(down.pod.failed for down in one.downs)
    grew = any(
        down.next is not None
        and down.pod.attempt.isdigit()
        and down.next.attempt.isdigit()
        and int(down.next.attempt) > int(down.pod.attempt)
        for down in one.replaced
    )
    if failed or grew or one.level is not RecoveryClass.JOB:
        return causes.PROCESS_CRASH, (
            "a pod failed, no node did" if failed else "its pods were replaced, no node failed",
        )
    return causes.RESUBMISSION, ("all its pods were deleted and made again, and none had failed",)


def _fault(one: Episode, around: JobSurroundings) -> tuple[Incident | None, float]:
    """A failure of a node that the job ran on, or what somebody said was none, and how long before it was. [s]"""
    slack = 2 * around.step + 60.0
    found: list[tuple[Incident, float]] = []
    last = one.downs[-1].start
    for node in sorted({pod.node for pod in one.before}):
        for i in around.incidents.get(node, ()):
            lag = one.start - i.start
            if (
                (i.cause.counts or i.deduced is not None)
                and (-slack <= lag or i.start <= last)
                and one.start <= i.end + slack
                and lag >= -900
            ):
                found.append((i, lag))
    return min(found, key=lambda one: abs(one[1]), default=(None, 0.0))


def _room(
    one: Episode, around: JobSurroundings, stopped: float
) -> tuple[IncidentCause, tuple[str, ...]] | None:
    """What somebody decided; `stopped` is when work stopped. [s]"""
    gone = [down.pod for down in one.downs]
    if any(pod.preempted for pod in gone):
        return causes.PREEMPTION, ("a pod was preempted",)
    slack = around.step if all(x.code in _TOLD for x in one.exits) else 0.0
    for node in sorted({pod.node for pod in one.before}) if one.replaced else ():
        for a, _ in around.lives[node].cordons if node in around.lives else ():
            if -slack <= stopped - a <= DRAINING + around.step:
                return causes.DRAIN, (
                    f"{node} was cordoned {max(0.0, one.start - a):.0f} s before",
                )
    if any(pod.drained for pod in gone):
        return causes.DRAIN, ("a pod was evicted through the API server",)
    if any(pod.evicted for pod in gone):
        return causes.EVICTION, ("a pod was evicted",)
    nodes = {pod.node for pod in one.before}
    others: defaultdict[str, set[str]] = defaultdict(set)
    for pod in around.pods:
        if pod.job != one.job and pod.node in nodes and -60 <= pod.created - one.start <= 300:
            others[pod.job].add(pod.node)
    if any(2 * len(taken) > len(nodes) for taken in others.values()):
        return causes.PREEMPTION, ("pods of another job took its nodes",)
    return None
