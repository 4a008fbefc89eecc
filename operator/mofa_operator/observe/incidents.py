"""From pods to incidents: how often jobs recovered, by class, each incident once. Pure.

    job       the restart attempt grew; for kinds without attempts, every pod of the job was replaced at once
    pod       within an attempt, a slot got a new pod; slots that did within ten minutes are one incident
    process   containers restarted in their pods; those of a job within ten minutes are one incident, and none of its own
              where a pod or job incident is near: that one made them restart

The classes partition recoveries. A node failure is a cause of a pod or job incident and no fourth class; a pod that was
evicted or preempted made room, and what replaces it is no failure. With each count come two bounds that need no clock: the
lower takes the busiest slot of a job, as if all others had only followed it; the upper takes all slots, as if none had.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from mofa_operator.observe.facts import Facts, Job, Pod
from mofa_operator.observe.queries import GANG, GRID

CLASSES: Final = ("process", "pod", "job")


@dataclass(frozen=True, kw_only=True, slots=True)
class Count:
    """Incidents of one class."""

    failures: int = 0
    """The count. [1]"""
    lower: int = 0
    """At least this many. [1]"""
    upper: int = 0
    """At most this many. [1]"""
    moments: tuple[tuple[Job, float], ...] = ()
    """Whose and when, where that is known: within ten minutes for process, to the second for the others. [(…, s)]"""

    def __add__(self, other: Count) -> Count:
        return Count(
            failures=self.failures + other.failures,
            lower=self.lower + other.lower,
            upper=self.upper + other.upper,
            moments=self.moments + other.moments,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Incidents:
    """What happened to the jobs of a pool."""

    counts: Mapping[str, Count]
    """By class; process is left out where no restarts are to be seen."""
    pods: int
    """Pods of training jobs that were on the pool's nodes. [1]"""
    placed: bool
    """Whether it is known which node each pod was on."""
    by_job: Mapping[Job, Mapping[str, int]] = field(default_factory=dict)
    """Incidents of each job, by class. [1]"""


def incidents(stretches: Sequence[Facts], nodes: frozenset[str]) -> Incidents:
    """Incidents of all jobs that had pods on these nodes."""
    every = merged(stretches)
    here = {uid: pod for uid, pod in every.items() if pod.node in nodes}
    counted = [(one.stretch.start, one.covered) for one in stretches]
    start = next((at for at, seconds in counted if seconds), 0.0) + GRID
    coarse = max((one.sampled for one in stretches), default=0.0) > GRID
    restarted: defaultdict[Job, list[float]] = defaultdict(list)
    for one in stretches:
        for job, moments in one.restarted.items():
            restarted[job].extend(moments)
    jobs: defaultdict[Job, list[Pod]] = defaultdict(list)
    for pod in here.values():
        jobs[pod.job].append(pod)
    seen = not here or any(pod.restarts is not None for pod in here.values())
    total = {name: Count() for name in CLASSES if name != "process" or seen}
    by_job: dict[Job, dict[str, int]] = {}
    for job, pods in sorted(jobs.items()):
        found = _of_job(job, pods, [] if coarse else restarted[job], start, coarse=coarse)
        by_job[job] = {name: count.failures for name, count in found.items()}
        total = {name: total[name] + found[name] for name in total}
    return Incidents(
        counts=total,
        pods=len(here),
        placed=not every or any(pod.node for pod in every.values()),
        by_job=by_job,
    )


def merged(stretches: Iterable[Facts]) -> dict[str, Pod]:
    """Pods by uid over all stretches."""
    found: dict[str, Pod] = {}
    for one in stretches:
        for uid, pod in one.pods.items():
            found[uid] = found[uid].later(pod) if uid in found else pod
    return found


def last_of_slots(pods: Iterable[Pod]) -> list[Pod]:
    """The pods of an attempt that nothing replaced within it: they say how it ended."""
    last: dict[str, Pod] = {}
    for pod in sorted(pods, key=lambda pod: pod.created or 0.0):
        last[pod.slot] = pod
    return list(last.values())


def _of_job(
    job: Job, pods: list[Pod], restarted: list[float], start: float, *, coarse: bool
) -> dict[str, Count]:
    attempts: defaultdict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        attempts[pod.attempt].append(pod)
    again = _attempts(job, attempts)
    inside = Count()
    for attempt, living in attempts.items():
        replaced, whole = _replaced(job, living, numbered=attempt.isdigit())
        inside, again = inside + replaced, again + whole
    near = [at for _, at in (*inside.moments, *again.moments)]
    return {
        "process": _restarts(job, pods, restarted, start, near, coarse=coarse),
        "pod": inside,
        "job": again,
    }


def _attempts(job: Job, attempts: Mapping[str, list[Pod]]) -> Count:
    """Job incidents: by how much the attempt grew, less what only made room."""
    numbers = sorted(int(attempt) for attempt in attempts if attempt.isdigit())
    found = Count()
    for before, after in pairwise(numbers):
        if any(pod.made_room for pod in last_of_slots(attempts[str(before)])):
            continue
        born = [pod.created for pod in attempts[str(after)] if pod.created is not None]
        more = after - before
        found += Count(failures=more, lower=more, upper=more, moments=((job, min(born)),) if born else ())
    return found


def _replaced(job: Job, pods: list[Pod], *, numbered: bool) -> tuple[Count, Count]:
    """Pod incidents of one attempt; and job incidents, where the kind does not number attempts."""
    slots: defaultdict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        slots[pod.slot].append(pod)
    new: list[tuple[float | None, str]] = []
    for slot, living in slots.items():
        living.sort(key=lambda pod: pod.created or 0.0)
        new += [(after.created, slot) for before, after in pairwise(living) if not before.made_room]
    by_slot: defaultdict[str, int] = defaultdict(int)
    for _, slot in new:
        by_slot[slot] += 1
    lower = max(by_slot.values(), default=0)
    timed = sorted((at, slot) for at, slot in new if at is not None)
    if len(timed) < len(new):
        return Count(failures=lower, lower=lower, upper=len(new)), Count()
    one: list[tuple[float, str]] = []
    every: list[list[tuple[float, str]]] = []
    for at, slot in timed:
        if not one or at - one[-1][0] > GANG:
            one = []
            every.append(one)
        one.append((at, slot))
    whole = [g for g in every if not numbered and len(slots) > 1 and {slot for _, slot in g} == set(slots)]
    parts = [group for group in every if group not in whole]
    rest = sum(len(group) for group in parts)
    return (
        Count(
            failures=len(parts),
            lower=max(0, lower - len(whole)),
            upper=rest,
            moments=tuple((job, group[0][0]) for group in parts),
        ),
        Count(
            failures=len(whole),
            lower=len(whole),
            upper=len(whole),
            moments=tuple((job, group[0][0]) for group in whole),
        ),
    )


def _restarts(
    job: Job, pods: list[Pod], restarted: list[float], start: float, near: list[float], *, coarse: bool
) -> Count:
    """Process incidents: restarts of containers, a gang's counted once.

    The counter of a pod that was born in the window counts from zero, else from its first sample. Where samples are too
    far apart to tell restarts by time, the busiest slot's count stands for the job's.
    """
    slots: defaultdict[str, int] = defaultdict(int)
    unseen: defaultdict[str, int] = defaultdict(int)
    for pod in pods:
        if pod.restarts is None or pod.first is None:
            continue
        young = pod.created is not None and pod.created >= start
        slots[pod.slot] += pod.restarts - (0 if young else pod.first)
        if young:
            unseen[pod.attempt] = max(unseen[pod.attempt], pod.first)
    lower, upper = max(slots.values(), default=0), sum(slots.values())
    if coarse:
        return Count(failures=lower, lower=lower, upper=upper)
    runs: list[list[float]] = []
    for at in sorted(restarted):
        if runs and at - runs[-1][-1] <= GANG:
            runs[-1].append(at)
        else:
            runs.append([at])
    own = [run for run in runs if not any(run[0] - 2 * GANG <= at <= run[-1] + GANG for at in near)]
    return Count(
        failures=min(upper, len(own) + sum(unseen.values())),
        lower=min(lower, len(own) + sum(unseen.values())),
        upper=upper,
        moments=tuple((job, run[0] - GRID / 2) for run in own),
    )
