"""Times in which a job's step series stood still."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf

from mofa_operator.incidents.job_causes import Standstill
from mofa_operator.incidents.runs import Point
from mofa_operator.observe.prometheus import Prometheus
from mofa_operator.observe.queries import Pool
from mofa_operator.observe.stretches import Stretch
from mofa_operator.observe.throughput import Job
from mofa_operator.observe.trainers import MOFA, Trainer


@dataclass(frozen=True, kw_only=True, slots=True)
class Edges:
    """Where a job's steps stopped and went on."""

    job: Job
    """Whose."""
    stopped: tuple[Point, ...]
    """When the last steps before a stall were finished, and which. [s, 1]"""
    resumed: tuple[Point, ...]
    """First signs of a new step after one, and the step that it went on from. [s, 1]"""
    step: float
    """Time of a step. [s]"""


async def edges(prometheus: Prometheus, pool: Pool, stretch: Stretch, trainer: Trainer = MOFA) -> list[Edges]:
    """Stops and new starts of every job in a stretch.

    A series counts as alive at a moment where it changed within `wait` before it. Between the last change and the end of
    that lie `wait` less one sample, which is taken off again; stalls shorter than that are not seen. Either end shows at the
    next sample, and then at the next moment that is looked at, so half of both is taken off as well.
    """
    ask, span, at = prometheus.query, stretch.span, stretch.end
    most = (await ask(trainer.most_samples(pool, span), at)).number()
    pace = (await ask(trainer.pace(pool, span), at)).samples if most else ()
    if not most or not pace:
        return []
    times = {_job(s.labels, trainer): s.value for s in pace}
    gap = 3600 / most
    wait = float(round(max(3 * max(times.values()), 2.5 * gap)))
    look = max(5.0, float(round(gap / 2)))
    stop, go = await asyncio.gather(
        ask(trainer.stops(pool, span, wait, look), at), ask(trainer.starts(pool, span, wait, look), at)
    )
    late = (gap + look) / 2
    stopped = {
        _job(s.labels, trainer): tuple((t - wait + gap - late, n) for t, n in s.points) for s in stop.samples
    }
    resumed = {_job(s.labels, trainer): tuple((t - late, n) for t, n in s.points) for s in go.samples}
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


def stalls(seen: Iterable[Edges]) -> dict[str, list[Standstill]]:
    """When each job's steps stood still, over all stretches."""
    marks: defaultdict[str, list[tuple[float, bool, float, float]]] = defaultdict(list)
    for one in seen:
        job = "/".join(one.job)
        marks[job] += [(at, False, one.step, number) for at, number in one.stopped]
        marks[job] += [(at, True, one.step, number) for at, number in one.resumed]
    found: dict[str, list[Standstill]] = {}
    for job, every in marks.items():
        found[job] = []
        stopped: float | None = None
        last = 0.0
        for at, goes, step, number in sorted(every):
            if not goes:  # a process that comes and goes without a step stops more than once
                stopped, last = (at + step / 2, number) if stopped is None else (stopped, max(last, number))
            elif stopped is not None:
                found[job].append(Standstill(stopped, at, max(0.0, last - number) * step))
                stopped = None
        if stopped is not None:
            found[job].append(Standstill(stopped, inf))
    return found
