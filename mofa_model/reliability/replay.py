"""A pool's past under a recovery plan: how long each of its standstills would have been.

The parts of a plan act on a standstill in the same order as on a failure:

    watchdog   the standstill is noticed after at most the watchdog's time
    attempts   containers start again in their pods, where no node is broken
    peers      only the work since the last copy in the memory of peers is lost
    spares     a node that stands by takes the place of a broken one, while any is left
    others     the other replicas go on, or train on the nodes that are left

The past says how long containers and pods took, what was broken, and for how long. The plan says
the rest.
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
"""Time until the kubelet starts a container again: a wait of ten seconds, and the start itself.
Source: Kubernetes, restart policy of pods. [s]"""
TOLERATION: Final = 340.0
"""Time after which a pod leaves a node that does not answer, where only that pod is replaced: 40 s
until the node is not ready, and 300 s that pods tolerate. Source: Kubernetes. [s]"""
AFTER_BOOT: Final = 100.0
"""Time from a host's boot to the first container on it. Ours. [s]"""
_GIVEN_UP: Final = 1800.0
"""Time within which somebody moves a pod off a node on which it does not start. Ours. [s]"""
FEW: Final = 5
"""Fewest standstills of a kind whose own median is taken. [1]"""
_PROGRAM_ENDS: Final = frozenset(
    cause.word
    for cause in (causes.PROCESS_CRASH, causes.NCCL_TIMEOUT, causes.USER_CRASH, causes.OOM_KILLED)
)
"""Causes after which only processes have to start again."""
_BROKEN_BUT_READY: Final = frozenset(
    cause.word for cause in (causes.GPU_FATAL, causes.GPU_LOST, causes.NIC)
)
"""Causes after which a pod stays on its broken node until somebody takes it off."""
UNAVAILABLE: Final = frozenset(
    cause.word
    for cause in causes.CAUSES.values()
    if cause.counts or cause is causes.DRAIN or cause is causes.SCALE_DOWN
)
"""Causes for which a node takes no pods."""
_LOSES_PODS: Final = UNAVAILABLE - {causes.DRAIN.word, causes.HANG.word}
"""Causes after which a broken node loses its pods by itself. After a drain or a hang, all pods of
the job are replaced anyway."""


@dataclass(frozen=True, kw_only=True)
class UsualTimes:
    """Usual times of a pool's own restarts."""

    queue: float
    """Until new pods are made. [s]"""
    start: float
    """Until their containers run. [s]"""
    in_place: float
    """Until containers run again in their pods. [s]"""

    def waited(self, standstill: Standstill) -> float:
        """Time that a standstill waited for a node: what goes beyond twice the usual time of new
        pods. [s]
        """
        time = standstill.queued + standstill.starting
        return 0.0 if standstill.in_place else max(0.0, time - 2 * (self.queue + self.start))


def usual_times(past_standstills: Sequence[Standstill]) -> UsualTimes:
    """Medians of a pool's restarts; the kubelet's own time for restarts in place, where few were
    seen. Ours. []

    >>> usual_times([]).in_place
    12.0
    """
    starts = [stop.starting for stop in past_standstills if stop.starting and not stop.in_place]
    queues = [stop.queued for stop in past_standstills if not stop.in_place]
    restarts = [
        stop.ending + stop.queued + stop.starting for stop in past_standstills if stop.in_place
    ]
    return UsualTimes(
        queue=median(queues) if queues else 0.0,
        start=median(starts) if starts else 0.0,
        in_place=median(restarts) if len(restarts) >= FEW else BACKOFF,
    )


@dataclass(frozen=True, kw_only=True)
class Saved:
    """What a plan would have saved at a standstill."""

    time: float
    """Time that the whole job would have stood still less. [s]"""
    work: float
    """Work that would not have been lost. [s]"""


def replayed(plan: RecoveryPlan, pool_past: PoolPast, replicas: int) -> list[Saved]:
    """Time and work that a recovery plan would have saved at each standstill of a past, where each
    job has so many `replicas`. Ours. [s]

    >>> hung = Standstill(job="a/b", at=0.0, cause="hang", holds=4, unnoticed=1800.0, loading=60.0)
    >>> past = PoolPast(begin=0.0, end=86400.0, account=(), standstills=(hung,), outages=())
    >>> replayed(RecoveryPlan(watchdog=600.0), past, 1)[0].time
    1200.0
    """
    outages: defaultdict[tuple[str, str], list[NodeOutage]] = defaultdict(list)
    for outage in pool_past.outages:
        outages[outage.node, outage.cause].append(outage)
    usual = usual_times(pool_past.standstills)
    spares_ready = [pool_past.begin] * plan.spares  # moments from which each spare stands by
    saved = []
    for standstill in pool_past.standstills:
        planned = replace(standstill, unnoticed=min(standstill.unnoticed, plan.watchdog))
        if plan.whole and standstill.in_place:
            planned = replace(planned, in_place=False, queued=usual.queue, starting=usual.start)
        if plan.attempts and not standstill.in_place:
            planned = _in_place(planned, _nearest(standstill, outages), plan, usual)
        cause = causes.CAUSES.get(standstill.cause, causes.NONE)
        takes_node = cause.counts or cause is causes.DRAIN
        if plan.spares and takes_node and standstill.faulty and not planned.in_place:
            planned = _by_spare(planned, plan, spares_ready)
        work, is_alone = 0.0, len(standstill.faulty) <= 1
        if plan.peers and is_alone:
            work = max(0.0, standstill.lost_work - standstill.trained % PEER_INTERVAL)
        time_stood = planned.seconds
        if plan.others is Others.GO_ON and takes_node and is_alone:
            time_alone = max(0.0, planned.seconds - planned.unnoticed - plan.stall - plan.rejoin)
            time_stood, work = time_stood - time_alone * (1 - 1 / replicas), standstill.lost_work
        elif plan.others is Others.SHRINK and standstill.cause != causes.PREEMPTION.word:
            nodes_left = max(0.0, 1 - max(1, len(standstill.faulty)) / standstill.holds)
            time_stood -= max(0.0, usual.waited(planned) * nodes_left - plan.rejoin)
        saved.append(Saved(time=standstill.seconds - time_stood, work=work))
    return saved


def asks_whose_fault(plan: RecoveryPlan) -> bool:
    """Whether what a plan saves depends on whose fault a standstill was."""
    return plan.others is Others.GO_ON or plan.spares > 0


def _nearest(
    standstill: Standstill, outages: dict[tuple[str, str], list[NodeOutage]]
) -> NodeOutage | None:
    """The outage of a node that most likely made a job stop: the nearest in time; None without
    any.
    """
    candidates = (
        outages.get((standstill.faulty[0], standstill.cause), []) if standstill.faulty else []
    )
    return min(candidates, key=lambda outage: abs(outage.at - standstill.at), default=None)


def _in_place(
    standstill: Standstill, outage: NodeOutage | None, plan: RecoveryPlan, usual: UsualTimes
) -> Standstill:
    """The standstill, had its containers started again in their pods."""
    if standstill.cause in _PROGRAM_ENDS and not standstill.faulty:
        if plan.attempt is None:
            return replace(standstill, in_place=True, queued=0.0, starting=usual.in_place)
        return replace(standstill, in_place=True, queued=0.0, starting=plan.attempt, loading=0.0)
    if not standstill.faulty or standstill.cause not in _LOSES_PODS:
        return standstill
    until = _until_running(standstill, outage, usual.in_place)
    noticed = min(standstill.unnoticed, until)
    return replace(standstill, unnoticed=noticed, ending=0.0, queued=0.0, starting=until - noticed)


def _until_running(standstill: Standstill, outage: NodeOutage | None, restart: float) -> float:
    """Time until all containers run again where pods stay and a node is broken. [s]

    A pod leaves a dead host when it is evicted, and a broken node when somebody cordons that node.
    Where nobody does so within half an hour, every restart lands on the same node.
    """
    if outage is not None and standstill.cause in _BROKEN_BUT_READY:
        in_use = max(0.0, outage.at + outage.in_use - standstill.at)
        if in_use > standstill.unnoticed + _GIVEN_UP:
            return standstill.unnoticed + standstill.ending + restart
        return max(standstill.unnoticed, in_use) + standstill.starting
    if outage is not None and standstill.cause == causes.REBOOT.word:
        return min(TOLERATION + standstill.starting, outage.seconds + AFTER_BOOT)
    return TOLERATION + standstill.starting


def _by_spare(standstill: Standstill, plan: RecoveryPlan, spares_ready: list[float]) -> Standstill:
    """The standstill, had spares taken the place of all broken nodes; unchanged if too few stand
    by.
    """
    needed, noticed = len(standstill.faulty), standstill.at + standstill.unnoticed
    heapq.heapify(spares_ready)
    if needed > sum(moment <= noticed for moment in spares_ready):
        return standstill
    for _ in range(needed):
        heapq.heapreplace(spares_ready, noticed + plan.refill)
    restart = standstill.ending + standstill.queued + standstill.starting + standstill.loading
    takeover = min(plan.takeover, restart)
    return replace(standstill, ending=0.0, queued=0.0, starting=takeover, loading=0.0)
