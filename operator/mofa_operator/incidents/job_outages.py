"""Outages of a job: times in which places of it had no running pod.

A place is out from the end of its container or pod until the next one runs. Places that go out
while others are out, or before training can have begun again, have one cause: they are one outage.
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
"""A container that ends sooner after all ran is of the same outage: no training had begun. [s]"""
WAITED: Final = 900.0
"""Longest time until the other places give up on one that went out: one and a half timeouts of a
collective. [s]"""
AT_ONCE: Final = 120.0
"""Time within which containers of one job end for one reason. [s]"""
ALONE: Final = 900.0
"""A container that restarts and is alone in that for so long is a helper of the training. [s]"""
LEFT_EMPTY: Final = 1800.0
"""Where a place is filled so much later than others that went out with it, nobody waited for it.
Ours. [s]"""
LANES: Final = 120.0
"""Pods of one name that are made within this time run side by side. [s]"""


@dataclass(frozen=True, slots=True)
class PlaceOutage:
    """One place of a job without a running pod."""

    start: float
    end: float | None
    """When the next container ran; None = none did. [s]"""
    place: int
    pod: PodTimeline
    """The pod that had run there."""
    exit: ContainerExit | None = None
    """How its container ended, where that was started again in the same pod."""
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
    def every(self) -> tuple[PlaceOutage, ...]:
        """Its outages of places, also the later ones."""
        return (*self.outages, *self.later)

    @property
    def start(self) -> float:
        """When the first place went out. [s]"""
        return self.outages[0].start

    def first_gone(self, sample_spacing: float) -> list[PodTimeline]:
        """Pods that went first, as far as samples show it. [s]"""
        until = self.start + sample_spacing
        return [place.pod for place in self.outages if place.exit is None and place.start <= until]

    @property
    def has_succeeded(self) -> bool:
        """Whether it is the end of work: its pods ended, and all in success."""
        ended = [place.pod for place in self.outages if place.exit is None]
        return bool(ended) and all(pod.succeeded for pod in ended)

    @property
    def running(self) -> float | None:
        """When the last container ran again; None = not all did. [s]"""
        ends = [place.end for place in self._last.values() if place.end is not None]
        return max(ends) if len(ends) == len(self._last) else None

    @property
    def smaller(self) -> float | None:
        """When a job ran again with fewer places: all had gone out, and some got no new pod. [s]"""
        ends = [place.end for place in self._last.values() if place.end is not None]
        waits = any(place.end is None and place.next for place in self._last.values())
        return max(ends, default=None) if len(self._last) == self.places and not waits else None

    @property
    def _last(self) -> dict[int, PlaceOutage]:
        """The last outage of each place."""
        return {outage.place: outage for outage in self.every}

    def given_up(self, sample_spacing: float) -> float | None:
        """When the last of its new pods that never ran was gone; None = it had none. [s]"""
        unstarted = (pod for pod in self.replacements if pod.started is None)
        return max((pod.ended(sample_spacing) for pod in unstarted), default=None)

    @property
    def rounds(self) -> int:
        """How often a place lost its pod, in the median over places. [1]"""
        counts = Counter(outage.place for outage in self.every)
        return sorted(counts.values())[len(counts) // 2]

    @property
    def replacements(self) -> list[PodTimeline]:
        """Pods that took the place of others."""
        return [outage.next for outage in self.every if outage.next is not None]

    @property
    def replaced(self) -> list[PlaceOutage]:
        """Outages of places that got a new pod."""
        return [outage for outage in self.every if outage.next is not None]

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
        emptied = {outage.place for outage in self.every if outage.exit is None}
        if not emptied:
            return RecoveryClass.PROCESS
        filled = min(self.places, len(self.pods_before))  # some places may have been empty before
        return RecoveryClass.JOB if len(emptied) >= filled else RecoveryClass.POD


class HelperExit(NamedTuple):
    """A restart of a helper container, during which the training went on."""

    pod: PodTimeline
    exit: ContainerExit


def job_outages(
    job: str,
    pod_timelines: Sequence[PodTimeline],
    helpers: Sequence[HelperExit],
    timelines: PoolTimelines,
) -> list[JobOutage]:
    """Outages of a job, in order; restarts of helpers are not among them."""
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
    """An outage of a place; as one that nobody ended where others that went out with it were filled
    long before: then the job went on with fewer places.
    """
    if outage.next is None:
        return outage
    until = outage.next.created - LEFT_EMPTY
    is_left = until > outage.start and any(
        other.next is not None
        and other.next.created < until
        and abs(other.start - outage.start) < AT_ONCE
        for other in outages
    )
    return replace(outage, end=None, next=None) if is_left else outage


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
    turns = [(pod, time) for pod in pod_timelines for time in (pod.over, pod.created) if time]
    training = _training_containers(exits)

    def is_helper(pod: PodTimeline, stop: ContainerExit) -> bool:
        if pod.containers < 2:
            return False
        may_train = not training or stop.container in training
        for other, other_stop in exits:
            distance = abs(other_stop.at - stop.at)
            if other_stop.container != stop.container and distance < ALONE and may_train:
                return False
            if other is not pod and distance < AT_ONCE:
                return False
        return not any(abs(at - stop.at) < AT_ONCE for other, at in turns if other is not pod)

    return [helper for helper in exits if is_helper(*helper)]


def _training_containers(exits: Sequence[HelperExit]) -> set[str]:
    """Names of containers that train: each ended in two pods at once, as ranks of a program do."""
    in_order = sorted(exits, key=lambda helper: (helper.exit.container, helper.exit.at))
    return {
        first.exit.container
        for first, second in pairwise(in_order)
        if first.pod is not second.pod
        and first.exit.container == second.exit.container
        and second.exit.at - first.exit.at < AT_ONCE
    }


def is_of_one(slot: str) -> bool:
    """Whether a slot has one pod at a time, because its name has an index or a number.

    >>> is_of_one("llama-worker-3"), is_of_one("tune-gpu-worker")
    (True, False)
    """
    return "/" in slot or slot.rpartition("-")[2].isdigit()


def places(pod_timelines: Sequence[PodTimeline]) -> list[list[PodTimeline]]:
    """The pods of each place of a job, in order. Where names show no place, a new pod takes that of
    the pod that ended first.
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
    """Outages of a place: containers that restarted, and pods that ended or were replaced."""
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
            latest = end + slack_of_silence(step)
            if after.created - end > 3 * step and any(
                silence.start <= latest and silence.end >= after.created
                for silence in pool.silences
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
