"""From pods to incidents: how often jobs recovered, by class, each incident once. Pure.

    job       the restart attempt grew; for kinds without attempts, every pod of the job was replaced at once
    pod       within an attempt, a slot got a new pod; slots that did within ten minutes are one incident
    process   containers restarted in their pods; those of a job within ten minutes are one incident, and none of its own
              where a pod or job incident is near: that one made them restart

The classes partition recoveries. A node failure is a cause of a pod or job incident and no fourth class; a pod that was
evicted or preempted made room, and what replaces it is no failure.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from mofa_model.spec.recovery_classes import RecoveryClass
from mofa_operator.observe.facts import Job, Pod, StretchFacts
from mofa_operator.observe.queries import GANG, GRID

Times: TypeAlias = tuple[float | None, ...]
"""When each incident was: within ten minutes for process, to the second for others; None = not known. [s]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Incidents:
    """What happened to the jobs of a pool."""

    by_class: Mapping[str, tuple[tuple[Job, float | None], ...]]
    """Whose each incident was, and when; process is left out where no restarts are to be seen. [(…, s)]"""
    pods: int
    """Pods of training jobs that were on the pool's nodes. [1]"""
    placed: bool
    """Whether it is known which node each pod was on."""


def incidents(stretches: Sequence[StretchFacts], nodes: frozenset[str]) -> Incidents:
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
    classes: tuple[RecoveryClass, ...] = (RecoveryClass.PROCESS, RecoveryClass.POD, RecoveryClass.JOB)
    if here and all(pod.restarts is None for pod in here.values()):
        classes = (RecoveryClass.POD, RecoveryClass.JOB)
    found: dict[str, list[tuple[Job, float | None]]] = {name.value: [] for name in classes}
    for job, pods in sorted(jobs.items()):
        times = _of_job(pods, [] if coarse else restarted[job], start, coarse=coarse)
        for name in classes:
            found[name] += [(job, at) for at in times[name]]
    return Incidents(
        by_class={name: tuple(every) for name, every in found.items()},
        pods=len(here),
        placed=not every or any(pod.node for pod in every.values()),
    )


def merged(stretches: Iterable[StretchFacts]) -> dict[str, Pod]:
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
    pods: list[Pod], restarted: list[float], start: float, *, coarse: bool
) -> dict[RecoveryClass, Times]:
    attempts: defaultdict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        attempts[pod.attempt].append(pod)
    again = _attempts(attempts)
    inside: Times = ()
    for attempt, living in attempts.items():
        replaced, whole = _replaced(living, numbered=attempt.isdigit())
        inside, again = inside + replaced, again + whole
    near = [at for at in (*inside, *again) if at is not None]
    return {
        RecoveryClass.PROCESS: _restarts(pods, restarted, start, near, coarse=coarse),
        RecoveryClass.POD: inside,
        RecoveryClass.JOB: again,
    }


def _attempts(attempts: Mapping[str, list[Pod]]) -> Times:
    """Job incidents: by how much the attempt grew, less what only made room."""
    numbers = sorted(int(attempt) for attempt in attempts if attempt.isdigit())
    found: Times = ()
    for before, after in pairwise(numbers):
        if any(pod.made_room for pod in last_of_slots(attempts[str(before)])):
            continue
        born = [pod.created for pod in attempts[str(after)] if pod.created is not None]
        found += _known([min(born)] if born else [], after - before)
    return found


def _replaced(pods: list[Pod], *, numbered: bool) -> tuple[Times, Times]:
    """Pod incidents of one attempt; and job incidents, where the kind does not number attempts."""
    slots: defaultdict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        slots[pod.slot].append(pod)
    new: list[tuple[float | None, str]] = []
    for slot, living in slots.items():
        living.sort(key=lambda pod: pod.created or 0.0)
        new += [(after.created, slot) for before, after in pairwise(living) if not before.made_room]
    timed = sorted((at, slot) for at, slot in new if at is not None)
    if len(timed) < len(new):  # without times the busiest slot counts, as if all others had only followed it
        return _known([], max(Counter(slot for _, slot in new).values())), ()
    one: list[tuple[float, str]] = []
    every: list[list[tuple[float, str]]] = []
    for at, slot in timed:
        if not one or at - one[-1][0] > GANG:
            one = []
            every.append(one)
        one.append((at, slot))
    whole = [g for g in every if not numbered and len(slots) > 1 and {slot for _, slot in g} == set(slots)]
    parts = [group for group in every if group not in whole]
    return tuple(group[0][0] for group in parts), tuple(group[0][0] for group in whole)


def _restarts(
    pods: list[Pod], restarted: list[float], start: float, near: list[float], *, coarse: bool
) -> Times:
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
    if coarse:
        return _known([], max(slots.values(), default=0))
    runs: list[list[float]] = []
    for at in sorted(restarted):
        if runs and at - runs[-1][-1] <= GANG:
            runs[-1].append(at)
        else:
            runs.append([at])
    own = [run for run in runs if not any(run[0] - 2 * GANG <= at <= run[-1] + GANG for at in near)]
    most = min(sum(slots.values()), len(own) + sum(unseen.values()))
    return _known([run[0] - GRID / 2 for run in own], most)


def _known(moments: Sequence[float], count: int) -> Times:
    """So many incidents, at these moments as far as they are known."""
    return (*moments[:count], *[None] * (count - len(moments)))
