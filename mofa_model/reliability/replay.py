"""A pool's past under a recovery plan: what each of its standstills would have been.

A plan acts on a standstill in the order in which it acts on a failure:

    watchdog   somebody notices after at most its time
    attempts   containers start again in their pods, where no node was broken
    peers      the work that is lost is that since the last copy in the memory of peers
    spares     one that stands by trains in the place of a broken node, if one is left
    others     the other replicas go on, or train on the nodes that are left

The past tells how long containers and pods took, what was broken, and for how long. What it does
not tell is as the plan has it.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import Final

from mofa_model.records import dataclass
from mofa_model.spec import incident_causes as causes
from mofa_model.spec.recovery_plans import Others, RecoveryPlan
from mofa_model.spec.standstills import NodeOutage, PoolPast, Standstill
from mofa_model.units import MINUTE

PEER_INTERVAL: Final = MINUTE
"""Time between copies in the memory of peers. Ours. [s]"""
BACKOFF: Final = 12.0
"""Time until the kubelet starts a container again: ten seconds at first, and the start itself.
Source: Kubernetes, restart policy of pods. [s]"""
TOLERATION: Final = 340.0
"""Time after which a pod leaves a node that does not answer, where only that pod is replaced:
forty seconds until the node is not ready and 300 that pods tolerate. Source: Kubernetes. [s]"""
AFTER_BOOT: Final = 100.0
"""From a host's boot to the first container on it. Ours. [s]"""
_GIVEN_UP: Final = 1800.0
"""Time after which somebody has moved a pod off a node on which it does not start. Ours. [s]"""
FEW: Final = 5
"""Standstills of a kind from which on the pool's own median is taken. [1]"""
_PROGRAM_ENDS: Final = frozenset(
    one.word
    for one in (causes.PROCESS_CRASH, causes.NCCL_TIMEOUT, causes.USER_CRASH, causes.OOM_KILLED)
)
"""Causes after which nothing but processes has to start again."""
_BROKEN_BUT_READY: Final = frozenset(
    one.word for one in (causes.GPU_FATAL, causes.GPU_LOST, causes.NIC)
)
"""Causes after which a pod stays on the node until somebody takes it out."""
UNAVAILABLE: Final = frozenset(
    one.word
    for one in causes.CAUSES.values()
    if one.counts or one is causes.DRAIN or one is causes.SCALE_DOWN
)
"""Causes for which a node takes no pods."""
_LOSES_PODS: Final = UNAVAILABLE - {causes.DRAIN.word, causes.HANG.word}
"""Causes for which a broken node loses its pods by itself. After a drain or a hang somebody
replaces all pods of the job."""


@dataclass(frozen=True, kw_only=True)
class UsualTimes:
    """How long a pool's own restarts take."""

    queue: float
    """Until new pods are made. [s]"""
    start: float
    """Until their containers run. [s]"""
    in_place: float
    """Until containers run again in their pods. [s]"""

    def waited(self, standstill: Standstill) -> float:
        """Time that a standstill waited for a node: longer than new pods usually take. [s]"""
        own = standstill.queued + standstill.starting
        return 0.0 if standstill.in_place else max(0.0, own - 2 * (self.queue + self.start))


def usual_times(past_standstills: Sequence[Standstill]) -> UsualTimes:
    """The medians of a pool's restarts; in place the kubelet's own time, where few were seen. Ours.
    []

    >>> usual_times([]).in_place
    12.0
    """
    starts = [one.starting for one in past_standstills if one.starting and not one.in_place]
    queues = [one.queued for one in past_standstills if not one.in_place]
    own = [one.ending + one.queued + one.starting for one in past_standstills if one.in_place]
    return UsualTimes(
        queue=median(queues) if queues else 0.0,
        start=median(starts) if starts else 0.0,
        in_place=median(own) if len(own) >= FEW else BACKOFF,
    )


@dataclass(frozen=True, kw_only=True)
class Saved:
    """What a plan would have saved of a standstill."""

    time: float
    """Time of the whole job. [s]"""
    work: float
    """Work that would not have been lost. [s]"""


def replayed(plan: RecoveryPlan, pool_past: PoolPast, replicas: int) -> list[Saved]:
    """Time and work that a recovery plan would have saved at each standstill of a past, for jobs
    with so many `replicas`. Ours. [s]

    >>> hung = Standstill(job="a/b", at=0.0, cause="hang", holds=4, unnoticed=1800.0, loading=60.0)
    >>> past = PoolPast(begin=0.0, end=86400.0, account=(), standstills=(hung,), outages=())
    >>> replayed(RecoveryPlan(watchdog=600.0), past, 1)[0].time
    1200.0
    """
    outages: defaultdict[tuple[str, str], list[NodeOutage]] = defaultdict(list)
    for each in pool_past.outages:
        outages[each.node, each.cause].append(each)
    usual = usual_times(pool_past.standstills)
    ready = [pool_past.begin] * plan.spares  # when each spare stands by
    found = []
    for one in pool_past.standstills:
        now = replace(one, unnoticed=min(one.unnoticed, plan.watchdog))
        if plan.whole and one.in_place:
            now = replace(now, in_place=False, queued=usual.queue, starting=usual.start)
        if plan.attempts and not one.in_place:
            now = _in_place(now, _nearest(one, outages), plan, usual)
        if plan.spares and _needs_node(one) and not now.in_place:
            now = _by_spare(now, plan, ready)
        work = 0.0
        if plan.peers and len(one.faulty) <= 1:
            work = max(0.0, one.lost_work - one.trained % PEER_INTERVAL)
        stood = now.seconds
        if plan.others is Others.GO_ON and _is_alone(one):
            gone = max(0.0, now.seconds - now.unnoticed - plan.stall - plan.rejoin)
            stood, work = stood - gone * (1 - 1 / replicas), one.lost_work
        elif plan.others is Others.SHRINK and one.cause != causes.PREEMPTION.word:
            there = max(0.0, 1 - max(1, len(one.faulty)) / one.holds)
            stood -= max(0.0, usual.waited(now) * there - plan.rejoin)
        found.append(Saved(time=one.seconds - stood, work=work))
    return found


def asks_whose_fault(plan: RecoveryPlan) -> bool:
    """Whether what a plan saves depends on whose fault a standstill was."""
    return plan.others is Others.GO_ON or plan.spares > 0


def _needs_node(one: Standstill) -> bool:
    cause = causes.CAUSES.get(one.cause, causes.NONE)
    return bool(one.faulty) and (cause.counts or cause is causes.DRAIN)


def _is_alone(one: Standstill) -> bool:
    cause = causes.CAUSES.get(one.cause, causes.NONE)
    return (cause.counts or cause is causes.DRAIN) and len(one.faulty) <= 1


def _nearest(
    one: Standstill, outages: dict[tuple[str, str], list[NodeOutage]]
) -> NodeOutage | None:
    """The outage of a node that made a job stop: the nearest one before; None without one."""
    near = outages.get((one.faulty[0], one.cause), []) if one.faulty else []
    return min(near, key=lambda each: abs(each.at - one.at), default=None)


def _in_place(
    one: Standstill, outage: NodeOutage | None, plan: RecoveryPlan, usual: UsualTimes
) -> Standstill:
    """A standstill whose containers start again in their pods."""
    if one.cause in _PROGRAM_ENDS and not one.faulty:
        if plan.attempt is None:
            return replace(one, in_place=True, queued=0.0, starting=usual.in_place)
        return replace(one, in_place=True, queued=0.0, starting=plan.attempt, loading=0.0)
    if not one.faulty or one.cause not in _LOSES_PODS:
        return one
    until = _until_running(one, outage, usual.in_place)
    noticed = min(one.unnoticed, until)
    return replace(one, unnoticed=noticed, ending=0.0, queued=0.0, starting=until - noticed)


def _until_running(one: Standstill, outage: NodeOutage | None, again: float) -> float:
    """Time until all containers run again where pods stay and a node is broken. [s]

    A pod leaves a dead host when it is evicted, and a broken node when somebody cordons it; where
    nobody does so within half an hour, any restart lands on that node again.
    """
    if outage is not None and one.cause in _BROKEN_BUT_READY:
        in_use = max(0.0, outage.at + outage.in_use - one.at)
        if in_use > one.unnoticed + _GIVEN_UP:
            return one.unnoticed + one.ending + again
        return max(one.unnoticed, in_use) + one.starting
    if outage is not None and one.cause == causes.REBOOT.word:
        return min(TOLERATION + one.starting, outage.seconds + AFTER_BOOT)
    return TOLERATION + one.starting


def _by_spare(one: Standstill, plan: RecoveryPlan, ready: list[float]) -> Standstill:
    """A standstill in which spares train in the place of all broken nodes, if so many stand by."""
    needed, at = len(one.faulty), one.at + one.unnoticed
    heapq.heapify(ready)
    if needed > sum(when <= at for when in ready):
        return one
    for _ in range(needed):
        heapq.heapreplace(ready, at + plan.refill)
    taken = min(plan.takeover, one.ending + one.queued + one.starting + one.loading)
    return replace(one, ending=0.0, queued=0.0, starting=taken, loading=0.0)
