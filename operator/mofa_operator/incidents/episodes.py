"""Interruptions of a job: times in which places of it were not filled by a running pod, those that belong together as one.

A place is down from the end of its container or pod until the next one runs. Places that go down while others still are, or
before training can have begun again, are down for the same reason.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from mofa_model.spec.recovery_classes import RecoveryClass
from mofa_operator.incidents.timelines import Exit, PodLife, Span

SETTLED: Final = 400.0
"""Time from when all run until a new end is a new interruption: what fails sooner had not begun to train. [s]"""
AT_ONCE: Final = 120.0
"""Time within which containers of one job end for one reason. [s]"""
ALONE: Final = 900.0
"""A container that restarts while no other of its job does for so long was no part of the training, where none ever ended with
another pod's. [s]"""


@dataclass(frozen=True, slots=True)
class Down:
    """A place that was not filled."""

    start: float
    """[s]"""
    end: float | None
    """When the next container ran; None = none did. [s]"""
    place: int
    """Which."""
    pod: PodLife
    """Who was there."""
    exit: Exit | None = None
    """How its container ended, where it was started again in the same pod."""
    next: PodLife | None = None
    """Who came instead."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Episode:
    """One interruption of a job."""

    job: str
    """Whose."""
    downs: tuple[Down, ...]
    """Places that were not filled, in order."""
    places: int
    """Places of the job. [1]"""
    before: tuple[PodLife, ...]
    """Pods that ran when it began."""
    later: tuple[Down, ...] = ()
    """Places that went down again before it trained."""

    @property
    def start(self) -> float:
        """When the first place went down. [s]"""
        return self.downs[0].start

    @property
    def running(self) -> float | None:
        """When the last container ran again; None = not all did. [s]"""
        last = {one.place: one for one in (*self.downs, *self.later)}
        ends = [one.end for one in last.values()]
        return (
            None
            if any(end is None for end in ends)
            else max(end for end in ends if end is not None)
        )

    @property
    def rounds(self) -> float:
        """How often its places went down, in the middle. [1]"""
        count: defaultdict[int, int] = defaultdict(int)
        for one in (*self.downs, *self.later):
            count[one.place] += 1
        every = sorted(count.values())
        return every[len(every) // 2]

    @property
    def replaced(self) -> list[Down]:
        """Places that got a new pod."""
        return [one for one in (*self.downs, *self.later) if one.next is not None]

    @property
    def exits(self) -> list[Exit]:
        """Containers that ended and were started again, in order."""
        return sorted(
            (one.exit for one in self.downs if one.exit is not None), key=lambda one: one.at
        )

    @property
    def level(self) -> RecoveryClass:
        """What had to be made anew."""
        new = {one.place for one in self.replaced}
        if not new:
            return RecoveryClass.PROCESS
        return RecoveryClass.JOB if len(new) >= self.places else RecoveryClass.POD


def episodes(
    job: str, pods: Sequence[PodLife], until: float, step: float, silences: Sequence[Span]
) -> tuple[list[Episode], list[tuple[PodLife, Exit]]]:
    """Interruptions of a job, and restarts of helpers beside it. `until` is the end of what was seen. [s]"""
    places = _places(pods)
    helpers = _helpers(pods)
    downs = sorted(
        (
            down
            for number, many in enumerate(places)
            for down in _downs(number, many, helpers, until, step, silences)
        ),
        key=lambda one: one.start,
    )
    groups: list[list[Down]] = []
    until_when = 0.0
    for one in downs:
        if groups and one.start <= until_when + SETTLED:
            groups[-1].append(one)
        else:
            groups.append([one])
            until_when = one.start
        until_when = max(until_when, one.end if one.end is not None else one.start)
    return [
        Episode(
            job=job,
            downs=tuple(group),
            places=len(places),
            before=_there(group, pods, step),
        )
        for group in groups
    ], helpers


def _there(group: Sequence[Down], pods: Sequence[PodLife], step: float) -> tuple[PodLife, ...]:
    """Pods that ran when a group of places began to go down."""
    start = group[0].start
    first = {id(one.pod): one.pod for one in group if one.start - start < SETTLED}
    alive = (pod for pod in pods if pod.created < start - 1 and pod.last > start + step)
    return tuple({**first, **{id(pod): pod for pod in alive}}.values())


def _helpers(pods: Sequence[PodLife]) -> list[tuple[PodLife, Exit]]:
    """Restarts of one container of a pod while neither its others nor other pods of the job restarted."""
    if len(pods) < 2:
        return []
    every = [(pod, one) for pod in pods for one in pod.exits]
    ends = [(pod, at) for pod in pods for at in (pod.over, pod.created) if at]
    trains = _together(every)
    return [
        (pod, one)
        for pod, one in every
        if pod.containers > 1
        and not any(
            (
                more.container != one.container
                and abs(more.at - one.at) < ALONE
                and (one.container in trains or not trains)
            )
            or (other is not pod and abs(more.at - one.at) < AT_ONCE)
            for other, more in every
        )
        and not any(abs(at - one.at) < AT_ONCE for other, at in ends if other is not pod)
    ]


def _together(every: Sequence[tuple[PodLife, Exit]]) -> set[str]:
    """Containers that ended in two pods at once: those that train."""
    in_order = sorted(every, key=lambda one: (one[1].container, one[1].at))
    return {
        one.container
        for (pod, one), (other, more) in pairwise(in_order)
        if pod is not other and one.container == more.container and more.at - one.at < AT_ONCE
    }


def _places(pods: Sequence[PodLife]) -> list[list[PodLife]]:
    """Pods by place, in order; where names say no place, one takes that of the one that ended first."""
    by: defaultdict[str, list[PodLife]] = defaultdict(list)
    for pod in sorted(pods, key=lambda pod: pod.created):
        by[pod.slot].append(pod)
    found: list[list[PodLife]] = []
    for slot, many in sorted(by.items()):
        if "/" in slot or len(many) == 1 or slot.rpartition("-")[2].isdigit():
            found.append(many)
            continue
        size = sum(pod.created - many[0].created < 120 for pod in many)
        lanes: list[list[PodLife]] = []
        for pod in many:
            if len(lanes) < size:
                lanes.append([pod])
            else:
                min(lanes, key=lambda lane: lane[-1].over or lane[-1].last).append(pod)
        found += lanes
    return found


def _downs(
    place: int,
    pods: Sequence[PodLife],
    helpers: Sequence[tuple[PodLife, Exit]],
    until: float,
    step: float,
    silences: Sequence[Span],
) -> list[Down]:
    found = []
    for number, pod in enumerate(pods):
        after = pods[number + 1] if number + 1 < len(pods) else None
        alone = [one for helper, one in helpers if helper is pod]
        found += [
            Down(one.at, one.again, place, pod, exit=one) for one in pod.exits if one not in alone
        ]
        if after is not None:
            end = pod.over if pod.over is not None else pod.last + step / 2
            if after.created - end > 3 * step and any(
                a <= end + 3 * step and b >= after.created for a, b in silences
            ):
                end = after.created  # nobody looked when it went
            found.append(Down(min(end, after.created), after.started, place, pod, next=after))
        elif (pod.over is not None or until - pod.last > 3 * step + 60) and pod.last:
            found.append(
                Down(pod.over if pod.over is not None else pod.last + step / 2, None, place, pod)
            )
    return found


def by_job(pods: Mapping[str, PodLife]) -> dict[str, list[PodLife]]:
    """Pods by job."""
    found: defaultdict[str, list[PodLife]] = defaultdict(list)
    for pod in pods.values():
        found[pod.job].append(pod)
    return dict(found)
