"""Times in which a job's step series stood still."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf

from mofa_operator.incidents.job_incidents import Standstill
from mofa_operator.incidents.timelines import Point
from mofa_operator.observe.history.looks import Stretch
from mofa_operator.observe.prometheus.client import Prometheus
from mofa_operator.observe.prometheus.promql import Pool, any_of, matcher
from mofa_operator.observe.prometheus.trainers import MOFA, NAMESPACE, Job, Trainer


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


async def edges(
    prometheus: Prometheus, pool: Pool, stretch: Stretch, trainer: Trainer = MOFA
) -> list[Edges]:
    """Stops and new starts of every job in a stretch.

    Whose a series is, its scrape says; one that names a job of another namespace than its target's is not heard. How finely is
    looked, each namespace says for itself, so that what one publishes changes nothing of another; those that say the same share queries.
    """
    trainer = replace(trainer, names=(NAMESPACE, *trainer.names))
    most = await prometheus.query(trainer.most_samples(pool, stretch.span), stretch.end)
    gaps = {s.label(NAMESPACE): 3600 / s.value for s in most.samples if s.value > 0}
    pace = (
        (await prometheus.query(trainer.pace(pool, stretch.span), stretch.end)).samples
        if gaps
        else ()
    )
    times: defaultdict[str, dict[Job, float]] = defaultdict(dict)
    for s in pace:
        if (job := _job(s.labels, trainer)) and s.label(NAMESPACE) in gaps:
            times[s.label(NAMESPACE)][job] = s.value
    alike: defaultdict[tuple[float, float], list[str]] = defaultdict(list)
    for place, known in times.items():
        alike[_grid(max(known.values()), gaps[place])].append(place)
    found: list[Edges] = []
    for (wait, look), places in sorted(alike.items()):
        these = replace(
            pool, matchers=(*pool.matchers, matcher(NAMESPACE, any_of(sorted(places)), "=~"))
        )
        steps = {job: step for place in places for job, step in times[place].items()}
        found += await _edges(prometheus, these, stretch, trainer, (wait, look), gaps, steps)
    return sorted(found, key=lambda one: one.job)


def _grid(longest: float, gap: float) -> tuple[float, float]:
    """For how long a series without a change counts as alive, and how often is looked, by the longest step and the time between samples. [s]"""
    return float(round(max(3 * longest, 2.5 * gap))), max(5.0, float(round(gap / 2)))


async def _edges(
    prometheus: Prometheus,
    pool: Pool,
    stretch: Stretch,
    trainer: Trainer,
    grid: tuple[float, float],
    gaps: Mapping[str, float],
    steps: Mapping[Job, float],
) -> list[Edges]:
    """Those of namespaces that share a grid.

    A series counts as alive at a moment where it changed within `wait` before it. Between the last change and the end of
    that lie `wait` less one sample, which is taken off again; stalls shorter than that are not seen. Either end shows at the
    next sample, and then at the next moment that is looked at, so half of both is taken off as well.
    """
    (wait, look), at = grid, stretch.end
    stop, go = await asyncio.gather(
        prometheus.query(trainer.stops(pool, stretch.span, wait, look), at),
        prometheus.query(trainer.starts(pool, stretch.span, wait, look), at),
    )
    stopped: dict[Job, tuple[Point, ...]] = {}
    resumed: dict[Job, tuple[Point, ...]] = {}
    for answer, ends, known in ((stop, True, stopped), (go, False, resumed)):
        for s in answer.samples:
            gap = gaps.get(s.label(NAMESPACE), 0.0)
            back = (gap + look) / 2 + (wait - gap if ends else 0.0)
            if job := _job(s.labels, trainer):
                known[job] = tuple((t - back, number) for t, number in s.points)
    return [
        Edges(
            job=job,
            stopped=stopped.get(job, ()),
            resumed=resumed.get(job, ()),
            step=steps.get(job, 0.0),
        )
        for job in stopped.keys() | resumed.keys()
    ]


def _job(labels: Mapping[str, str], trainer: Trainer) -> Job | None:
    """Whose a series is; None where its target runs elsewhere."""
    placed, namespace, name = (labels.get(label, "") for label in trainer.names)
    return (namespace, name) if placed in ("", namespace) else None


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
                stopped, last = (
                    (at + step / 2, number) if stopped is None else (stopped, max(last, number))
                )
            elif stopped is not None:
                found[job].append(Standstill(stopped, at, max(0.0, last - number) * step))
                stopped = None
        if stopped is not None:
            found[job].append(Standstill(stopped, inf))
    return found
