"""Times in which a job's step series stood still, and which incident each belongs to: the recovery times that were seen."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mofa_model.spec.recovery_classes import RecoveryClass
from mofa_operator.observe.facts import Job
from mofa_operator.observe.incidents import Incidents
from mofa_operator.observe.prometheus import Prometheus
from mofa_operator.observe.queries import GANG, Pool
from mofa_operator.observe.stretches import Stretch
from mofa_operator.observe.trainers import MOFA, Trainer


@dataclass(frozen=True, kw_only=True, slots=True)
class Edges:
    """Where a job's steps stopped and went on."""

    job: Job
    """Whose."""
    stopped: tuple[float, ...]
    """Last steps before a stall. [s]"""
    resumed: tuple[float, ...]
    """First signs of a new step after one. [s]"""
    step: float
    """Time of a step. [s]"""


async def edges(prometheus: Prometheus, pool: Pool, stretch: Stretch, trainer: Trainer = MOFA) -> list[Edges]:
    """Stops and new starts of every job in a stretch.

    A series counts as alive at a moment where it changed within `wait` before it. Between the last change and the end of
    that lie `wait` less one sample, which is taken off again; stalls shorter than that are not seen.
    """
    ask, span, at = prometheus.query, stretch.span, stretch.end
    pace, samples = await asyncio.gather(
        ask(trainer.pace(pool, span), at), ask(trainer.most_samples(pool, span), at)
    )
    most = samples.number()
    if not most or not pace.samples:
        return []
    times = {_job(s.labels, trainer): s.value for s in pace.samples}
    gap = 3600 / most
    wait = float(round(max(3 * max(times.values()), 2.5 * gap)))
    look = max(5.0, float(round(gap / 2)))
    stop, go = await asyncio.gather(
        ask(trainer.stops(pool, span, wait, look), at), ask(trainer.starts(pool, span, wait, look), at)
    )
    stopped = {_job(s.labels, trainer): tuple(t - wait + gap for t, _ in s.points) for s in stop.samples}
    resumed = {_job(s.labels, trainer): tuple(t for t, _ in s.points) for s in go.samples}
    return [
        Edges(
            job=job,
            stopped=stopped.get(job, ()),
            resumed=resumed.get(job, ()),
            step=times.get(job, 0.0),
        )
        for job in sorted(stopped.keys() | resumed.keys())
    ]


def _job(labels: Mapping[str, str], trainer: Trainer) -> Job:
    namespace, name = (labels.get(label, "") for label in trainer.names)
    return namespace, name


def timed(found: Incidents, seen: Iterable[Edges]) -> dict[str, tuple[tuple[float, float], ...]]:
    """When a stall near an incident of its job began, and the time to the first sign of a new step, by class. [s, s]

    A failure comes half a step after the last one on average. Process incidents whose times are not known take the stalls
    that are left over, where these are no more than there were incidents.
    """
    stalls = _stalls(seen)
    times: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    moments = [
        (at, job, name)
        for name, every in found.by_class.items()
        for job, at in every
        if at is not None and job in stalls
    ]
    for at, job, name in sorted(moments):
        near = [(abs(at - a), a, b, step) for a, b, step in stalls[job] if a - GANG <= at <= b + GANG]
        if near:
            _, a, b, step = min(near)
            stalls[job].remove((a, b, step))
            times[name].append((a, b - a - step / 2))
    process = found.by_class.get(RecoveryClass.PROCESS, ())
    if all(at is None for _, at in process):
        counted = Counter(job for job, _ in process)
        for job, left in stalls.items():
            if len(left) <= counted[job]:
                times[RecoveryClass.PROCESS.value] += [(a, b - a - step / 2) for a, b, step in left]
    return {name: tuple((at, max(1.0, took)) for at, took in every) for name, every in times.items()}


def _stalls(seen: Iterable[Edges]) -> dict[Job, list[tuple[float, float, float]]]:
    """Stops paired with the next start, over all stretches: stop, start, time of a step."""
    marks: defaultdict[Job, list[tuple[float, bool, float]]] = defaultdict(list)
    for one in seen:
        marks[one.job] += [(at, False, one.step) for at in one.stopped]
        marks[one.job] += [(at, True, one.step) for at in one.resumed]
    found: dict[Job, list[tuple[float, float, float]]] = {}
    for job, every in marks.items():
        found[job] = []
        stopped: tuple[float, float] | None = None
        for at, goes, step in sorted(every):
            if not goes:
                stopped = (at, step)
            elif stopped is not None:
                found[job].append((stopped[0], at, stopped[1]))
                stopped = None
    return found
