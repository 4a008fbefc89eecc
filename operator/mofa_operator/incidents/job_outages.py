"""Outages of a job: times in which a place had no running pod; those that belong together are one.

A place is out from the end of its container or pod until the next one runs. Places that go out
while others still are, or before training can have begun again, have the same cause.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, NamedTuple

from mofa_model.spec.recovery_classes import RecoveryClass
from mofa_operator.incidents.timelines import (
    ContainerExit,
    PodTimeline,
    PoolTimelines,
    Stall,
    slack_of_silence,
)

SETTLED: Final = 400.0
"""Run time of all containers after which an end is a new outage: before, no training began. [s]"""
WAITED: Final = 900.0
"""Longest time after which places that still ran give up on one that went out: the timeout of a
collective, and half of it more. [s]"""
AT_ONCE: Final = 120.0
"""Time within which containers of one job end for one reason. [s]"""
ALONE: Final = 900.0
"""A container that restarts alone for this time is a helper beside the training. [s]"""
LEFT_EMPTY: Final = 1800.0
"""A place that is filled so much later than others that went out with it was not waited for. Ours.
[s]"""
LANES: Final = 120.0
"""Pods of one name that are made within this time stand side by side. [s]"""


@dataclass(frozen=True, slots=True)
class PlaceOutage:
    """One place of a job without a running pod."""

    start: float
    end: float | None
    """When the next container ran; None = none did. [s]"""
    place: int
    pod: PodTimeline
    """The pod that was there."""
    exit: ContainerExit | None = None
    """How its container ended, where it was started again in the same pod."""
    next: PodTimeline | None = None
    """The pod that replaced it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobOutage:
    """One outage of a job."""

    job: str
    outages: tuple[PlaceOutage, ...]
    """Its places that went out, in order."""
    places: int
    """Places of the job. [1]"""
    pods_before: tuple[PodTimeline, ...]
    """Pods that ran when it began."""
    later: tuple[PlaceOutage, ...] = ()
    """Places that went out again before the job trained."""

    @property
    def start(self) -> float:
        """When the first place went out. [s]"""
        return self.outages[0].start

    def first_gone(self, sample_spacing: float) -> list[PodTimeline]:
        """Pods that went first, as far as samples tell: a pod's last sample is late. [s]"""
        until = self.start + sample_spacing
        return [
            outage.pod for outage in self.outages if outage.exit is None and outage.start <= until
        ]

    @property
    def running(self) -> float | None:
        """When the last container ran again; None = not all did. [s]"""
        ends = [outage.end for outage in self._last.values()]
        seen = [end for end in ends if end is not None]
        return max(seen) if len(seen) == len(ends) else None

    @property
    def smaller(self) -> float | None:
        """When a job ran again with fewer places than before: all had gone, and some got no new
        pod. [s]
        """
        back = [outage.end for outage in self._last.values() if outage.end is not None]
        waits = any(
            outage.end is None and outage.next is not None for outage in self._last.values()
        )
        return max(back, default=None) if len(self._last) == self.places and not waits else None

    @property
    def _last(self) -> dict[int, PlaceOutage]:
        """The last outage of each place."""
        return {outage.place: outage for outage in (*self.outages, *self.later)}

    def given_up(self, sample_spacing: float) -> float | None:
        """When the last of its new pods that never ran was gone; None = it had none. [s]"""
        new = [outage.next for outage in self.replaced if outage.next is not None]
        return max((pod.ended(sample_spacing) for pod in new if pod.started is None), default=None)

    @property
    def rounds(self) -> int:
        """How often a place lost its pod, in the median over places. [1]"""
        counts = Counter(outage.place for outage in (*self.outages, *self.later))
        return sorted(counts.values())[len(counts) // 2]

    @property
    def replacements(self) -> list[PodTimeline]:
        """Pods that took the place of others."""
        every = (*self.outages, *self.later)
        return [outage.next for outage in every if outage.next is not None]

    @property
    def replaced(self) -> list[PlaceOutage]:
        """Outages of places that got a new pod."""
        return [outage for outage in (*self.outages, *self.later) if outage.next is not None]

    @property
    def nodes(self) -> set[str]:
        """Nodes that the job ran on before the outage."""
        return {pod.node for pod in self.pods_before}

    @property
    def exits(self) -> list[ContainerExit]:
        """Containers that ended and were started again, in order."""
        exits = [outage.exit for outage in self.outages if outage.exit is not None]
        return sorted(exits, key=lambda stop: stop.at)

    @property
    def level(self) -> RecoveryClass:
        """Recovery class by what was replaced: no pod, some pods, or all pods of the job."""
        new = {outage.place for outage in (*self.outages, *self.later) if outage.exit is None}
        if not new:
            return RecoveryClass.PROCESS
        whole = min(self.places, len(self.pods_before))  # some places may have been left empty
        return RecoveryClass.JOB if len(new) >= whole else RecoveryClass.POD


class HelperExit(NamedTuple):
    """A helper container, which restarted while the training went on."""

    pod: PodTimeline
    exit: ContainerExit


def job_outages(
    job: str,
    pod_timelines: Sequence[PodTimeline],
    helpers: Sequence[HelperExit],
    timelines: PoolTimelines,
) -> list[JobOutage]:
    """Outages of a job, in order; restarts of helpers are none."""
    by_place = places(pod_timelines)
    outages = [
        outage
        for number, successive in enumerate(by_place)
        for outage in _place_outages(number, successive, helpers, timelines)
    ]
    outages = [_left_empty(outage, outages) for outage in outages]
    stalls = timelines.stalls.get(job, ())
    groups: list[list[PlaceOutage]] = []
    all_running = 0.0
    for outage in sorted(outages, key=lambda outage: outage.start):
        gave_up = (
            bool(groups)
            and outage.start <= groups[-1][0].start + WAITED
            and all(outage.place != member.place for member in groups[-1])
        )
        soon = outage.start <= all_running + SETTLED
        if groups and (
            gave_up or (soon and not _trained_between(groups[-1][0].start, outage.start, stalls))
        ):
            groups[-1].append(outage)
        else:
            groups.append([outage])
            all_running = outage.start
        all_running = max(all_running, outage.start if outage.end is None else outage.end)
    return [
        JobOutage(
            job=job,
            outages=tuple(group),
            places=len(by_place),
            pods_before=_pods_before(group, pod_timelines, timelines.sample_spacing),
        )
        for group in groups
    ]


def _left_empty(outage: PlaceOutage, outages: Sequence[PlaceOutage]) -> PlaceOutage:
    """An outage of a place; where others that went out with it were made anew long before, nobody
    replaced it: the job was smaller then.
    """
    if outage.next is None:
        return outage
    filled = outage.next.created - LEFT_EMPTY
    smaller = filled > outage.start and any(
        other.next is not None
        and other.next.created < filled
        and abs(other.start - outage.start) < AT_ONCE
        for other in outages
    )
    return replace(outage, end=None, next=None) if smaller else outage


def _trained_between(first: float, start: float, stalls: Sequence[Stall]) -> bool:
    """Whether steps went on between two moments, and stopped again. [s]"""
    return any(
        first <= before.resumed_at
        and before.resumed_at + before.unsure <= after.stopped_at <= start
        for before, after in pairwise(stalls)
        if before.resumed_at is not None and after.stopped_at is not None
    )


def _pods_before(
    group: Sequence[PlaceOutage], pods: Sequence[PodTimeline], step: float
) -> tuple[PodTimeline, ...]:
    """Pods that ran when a group of places began to go out."""
    start = group[0].start
    first = {id(outage.pod): outage.pod for outage in group if outage.start - start < SETTLED}
    alive = (pod for pod in pods if pod.created < start - 1 and pod.last > start + step)
    return tuple({**first, **{id(pod): pod for pod in alive}}.values())


def helper_exits(pod_timelines: Sequence[PodTimeline]) -> list[HelperExit]:
    """Restarts of one container while nothing else of its pod or job restarted."""
    if len(pod_timelines) < 2:
        return []
    exits = [HelperExit(pod, stop) for pod in pod_timelines for stop in pod.exits]
    ends = [(pod, at) for pod in pod_timelines for at in (pod.over, pod.created) if at]
    training = _training_containers(exits)

    def is_helper(pod: PodTimeline, container_exit: ContainerExit) -> bool:
        if pod.containers < 2:
            return False
        for other, more in exits:
            away = abs(more.at - container_exit.at)
            may_train = not training or container_exit.container in training
            if more.container != container_exit.container and away < ALONE and may_train:
                return False
            if other is not pod and away < AT_ONCE:
                return False
        return not any(
            abs(at - container_exit.at) < AT_ONCE for other, at in ends if other is not pod
        )

    return [helper for helper in exits if is_helper(*helper)]


def _training_containers(exits: Sequence[HelperExit]) -> set[str]:
    """Names of containers that train: each ended in two pods at once, as ranks of one
    program do.
    """
    in_order = sorted(exits, key=lambda helper: (helper.exit.container, helper.exit.at))
    return {
        a.exit.container
        for a, b in pairwise(in_order)
        if a.pod is not b.pod
        and a.exit.container == b.exit.container
        and b.exit.at - a.exit.at < AT_ONCE
    }


def is_of_one(slot: str) -> bool:
    """Whether one pod at a time fills a slot, because an index or a number names it.

    >>> is_of_one("llama-worker-3"), is_of_one("tune-gpu-worker")
    (True, False)
    """
    return "/" in slot or slot.rpartition("-")[2].isdigit()


def places(pod_timelines: Sequence[PodTimeline]) -> list[list[PodTimeline]]:
    """Pods by the place that they fill in their job, in order. Where their names tell no place, a
    new pod fills that of the pod that ended first.
    """
    by_slot: defaultdict[str, list[PodTimeline]] = defaultdict(list)
    for pod in sorted(pod_timelines, key=lambda pod: pod.created):
        by_slot[pod.slot].append(pod)
    by_place: list[list[PodTimeline]] = []
    for slot, members in sorted(by_slot.items()):
        if len(members) == 1 or is_of_one(slot):
            by_place.append(members)
            continue
        size = sum(pod.created - members[0].created < LANES for pod in members)
        lanes: list[list[PodTimeline]] = []
        for pod in members:
            if len(lanes) < size:
                lanes.append([pod])
            else:
                min(lanes, key=lambda lane: lane[-1].over or lane[-1].last).append(pod)
        by_place += lanes
    return by_place


def _place_outages(
    place: int,
    pods: Sequence[PodTimeline],
    helpers: Sequence[HelperExit],
    pool: PoolTimelines,
) -> list[PlaceOutage]:
    """Outages of one place in a job: containers that restarted, and pods that ended or
    were replaced.
    """
    outages, step, until = [], pool.sample_spacing, pool.sampled[-1].end
    for number, pod in enumerate(pods):
        after = pods[number + 1] if number + 1 < len(pods) else None
        ignored = [helper.exit for helper in helpers if helper.pod is pod]
        outages += [
            PlaceOutage(stop.at, stop.restarted_at, place, pod, exit=stop)
            for stop in pod.exits
            if stop not in ignored
        ]
        end = pod.ended(step)
        if after is not None:
            near = end + slack_of_silence(step)
            if after.created - end > 3 * step and any(
                a <= near and b >= after.created for a, b in pool.silences
            ):
                end = after.created  # nothing was sampled when it went
            start = min(end, after.created)
            outages.append(PlaceOutage(start, after.started, place, pod, next=after))
        elif (pod.over is not None or until - pod.last > 3 * step + 60) and pod.last:
            outages.append(PlaceOutage(end, None, place, pod))
    return outages


def by_job(pod_timelines: Mapping[str, PodTimeline]) -> dict[str, list[PodTimeline]]:
    """Pods by job."""
    pods: defaultdict[str, list[PodTimeline]] = defaultdict(list)
    for pod in pod_timelines.values():
        pods[pod.job].append(pod)
    return dict(pods)
