"""Which step running jobs finished when, since they were last looked at: the moments that recovery times are made of.

A step that a sample shows was finished after the sample before it. That moment is taken: it is never later than the truth,
and as the last step before an interruption and the first one after it are early alike, the time between them is right on
average. What is asked for is a grid; of it only the moments at which the step changed are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, TypeAlias

from mofa_operator.observe.answers import QueryResult
from mofa_operator.observe.asking import together
from mofa_operator.observe.prometheus import Prometheus
from mofa_operator.observe.throughput import Job, TrainerExporter, Watched, exporters
from mofa_operator.observe.trainers import TRAINERS

Point: TypeAlias = tuple[float, float]
"""A moment and a value. [s]"""
Path: TypeAlias = tuple[tuple[float, int, float], ...]
"""After when a step was finished, which, and the sample that first showed it; in order. [(s, 1, s)]"""
FINEST: Final = 1.0
"""Least distance of two points of the grid. [s]"""
COARSEST: Final = 15.0
"""Greatest one: steps that are dated too coarsely would seem to come before what interrupted them. [s]"""
POINTS: Final = 36_000
"""Points of the grid over all jobs of an exporter, so that answers do not grow: first the grid is coarser, then the time shorter. [1]"""


async def paths(
    prometheus: Prometheus, jobs: Iterable[Watched], now: float, span: float
) -> dict[Job, Path]:
    """Steps of all jobs whose exporter counts them, in the last `span` seconds."""
    asked = [one for one in exporters(jobs) if TRAINERS[one.preset].step is not None]
    answers = await together(*(_of_exporter(prometheus, one, now, span) for one in asked))
    return {job: path for answer in answers for job, path in answer.items()}


async def _of_exporter(
    prometheus: Prometheus, exporter: TrainerExporter, now: float, span: float
) -> dict[Job, Path]:
    trainer, pool = TRAINERS[exporter.preset], exporter.pool
    look, span = grid(span, len(exporter.jobs))
    values, moments = await together(
        prometheus.query(trainer.path(pool, span, look), now),
        prometheus.query(trainer.sampled(pool, span, look), now),
    )
    steps, sampled = _points(values, exporter), _points(moments, exporter)
    return {
        job: path_of(steps[job], sampled.get(job, ())) for job in steps.keys() & exporter.wanted
    }


def grid(span: float, jobs: int) -> tuple[float, float]:
    """Distance of the points of the grid, and how far back it goes. [s] [s]

    >>> grid(900.0, 1), grid(900.0, 400), grid(900.0, 5000), grid(180.0, 400)
    ((1.0, 900.0), (10.0, 900.0), (15.0, 108.0), (2.0, 180.0))
    """
    look = min(COARSEST, max(FINEST, float(round(span * jobs / POINTS))))
    return look, min(span, max(look, look * POINTS / jobs))


def _points(answer: QueryResult, exporter: TrainerExporter) -> dict[Job, tuple[Point, ...]]:
    return {exporter.job_of(sample): sample.points for sample in answer.samples}


def path_of(steps: Sequence[Point], sampled: Sequence[Point]) -> Path:
    """Steps as they were looked at, and when what was seen then had been sampled, as a path.

    Samples every five seconds, looked at every two: step 8 was first seen at 15, and was finished after 10.

    >>> seen = [(10.0, 7.0), (12.0, 7.0), (14.0, 7.0), (16.0, 8.0), (18.0, 8.0), (20.0, 8.0)]
    >>> path_of(seen, [(10.0, 10.0), (12.0, 10.0), (14.0, 10.0), (16.0, 15.0), (18.0, 15.0), (20.0, 20.0)])
    ((5.0, 7, 10.0), (10.0, 8, 15.0))
    """
    moments = dict(sampled)
    shown = [(moments.get(at, at), round(value)) for at, value in steps]
    gap = min((b - a for (a, _), (b, _) in pairwise(shown) if b > a), default=0.0)
    path: list[tuple[float, int, float]] = []
    before: float | None = None
    for at, step in shown:
        if not path or path[-1][1] != step:
            path.append((at - gap if before is None else max(before, at - 2 * gap), step, at))
        before = at
    return tuple(path)
