"""When training of a job stood still, as its step series shows."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf
from typing import Final

from mofa_model.units import DAY
from mofa_operator.incidents.timelines import Point, Span, Stall
from mofa_operator.observe.prometheus.client import Prometheus
from mofa_operator.observe.prometheus.promql import Pool, any_of, matcher
from mofa_operator.observe.prometheus.trainers import MOFA, NAMESPACE, JobName

COARSE: Final = 100.0
"""Time between two samples from which on a stall may lie between them; the steps gained between the
two then show what it cost. Ours. [s]"""
_SHORT: Final = 0.1
"""Lag of the steps that is no stall, as a share of the time between two samples. Ours. [1]"""
_FEW: Final = 3.0
"""Least steps between two samples by which a lag can be measured. Ours. [1]"""
TRAINER: Final = replace(MOFA, names=(NAMESPACE, *MOFA.names))
"""Our own exporter's series, with the namespace in which the scrape places their target."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepEdges:
    """Where the steps of a job stopped and went on in a piece of time."""

    job_name: JobName
    stopped: tuple[Point, ...]
    """When the last steps before a stall were finished, and which. [s, 1]"""
    resumed: tuple[Point, ...]
    """First signs of a new step after a stall, and the step that training went on from. [s, 1]"""
    step_seconds: float
    """Time of a step. [s]"""
    gap: float = 0.0
    """Time between two samples. [s]"""
    lags: tuple[tuple[Point, Point], ...] = ()
    """Pairs of coarse samples between which steps lagged; the first and last sample pair with
    themselves. [s, 1]"""


@dataclass(frozen=True, slots=True, order=True)
class _Grid:
    """How finely the steps of some namespaces are read."""

    wait: float
    """A series without a change for this time stands still. [s]"""
    look: float
    """Time between two moments that are compared. [s]"""


async def step_edges(prometheus: Prometheus, pool: Pool, stretch: Span) -> list[StepEdges]:
    """Stops and new starts of every job in a piece of time.

    A series counts for the namespace in which the scrape places its target, and for no other. Each
    namespace has its own grid, so that what one publishes changes nothing of another; namespaces
    with equal grids share queries.
    """
    end, span = stretch.end, max(stretch.seconds, DAY)  # a pace is that of a day or more
    sample_counts = await prometheus.query(TRAINER.most_samples(pool, span), end)
    gaps = {s.label(NAMESPACE): 3600 / s.value for s in sample_counts.samples if s.value > 0}
    if not gaps:
        return []
    paces = await prometheus.query(TRAINER.pace(pool, span), end)
    step_times: defaultdict[str, dict[JobName, float]] = defaultdict(dict)
    for s in paces.samples:
        if (job := _job(s.labels)) and s.label(NAMESPACE) in gaps:
            step_times[s.label(NAMESPACE)][job] = s.value
    by_grid: defaultdict[_Grid, list[str]] = defaultdict(list)
    for namespace, times in step_times.items():
        gap = gaps[namespace]
        wait = float(round(max(3 * max(times.values()), 2.5 * gap)))
        by_grid[_Grid(wait, max(5.0, float(round(gap / 2))))].append(namespace)
    edges: list[StepEdges] = []
    for grid, namespaces in sorted(by_grid.items()):
        selection = matcher(NAMESPACE, any_of(sorted(namespaces)), "=~")
        grid_pool = replace(pool, matchers=(*pool.matchers, selection))
        steps = {job: time for name in namespaces for job, time in step_times[name].items()}
        gap = min(gaps[name] for name in namespaces)
        if gap >= max(COARSE, _FEW * max(steps.values())):
            edges += await _lags(prometheus, grid_pool, stretch, gap, steps)
        else:
            edges += await _edges(prometheus, grid_pool, stretch, grid, gaps, steps)
    return sorted(edges, key=lambda edge: edge.job_name)


async def _edges(
    prometheus: Prometheus,
    pool: Pool,
    day: Span,
    grid: _Grid,
    gaps: Mapping[str, float],
    steps: Mapping[JobName, float],
) -> list[StepEdges]:
    """Stops and new starts in namespaces that share a grid.

    Between the last change of a series and the moment at which it stands still lie `wait` less one
    sample, which is taken off again; shorter stalls are not seen. Both ends show at the next sample
    and then at the next moment of the grid, so half of each is taken off as well.
    """
    stops, starts = await asyncio.gather(
        prometheus.query(TRAINER.stops(pool, day.seconds, grid.wait, grid.look), day.end),
        prometheus.query(TRAINER.starts(pool, day.seconds, grid.wait, grid.look), day.end),
    )
    stopped: dict[JobName, tuple[Point, ...]] = {}
    resumed: dict[JobName, tuple[Point, ...]] = {}
    for answer, moments in ((stops, stopped), (starts, resumed)):
        for s in answer.samples:
            gap = gaps.get(s.label(NAMESPACE), 0.0)
            late = (gap + grid.look) / 2 + (grid.wait - gap if moments is stopped else 0.0)
            if job := _job(s.labels):
                moments[job] = tuple((moment - late, step) for moment, step in s.points)
    return [
        StepEdges(
            job_name=job,
            stopped=stopped.get(job, ()),
            resumed=resumed.get(job, ()),
            step_seconds=steps.get(job, 0.0),
            gap=gaps.get(job[0], 0.0),
        )
        for job in stopped.keys() | resumed.keys()
    ]


async def _lags(
    prometheus: Prometheus, pool: Pool, day: Span, gap: float, steps: Mapping[JobName, float]
) -> list[StepEdges]:
    """Coarse samples of step numbers, reduced to pairs between which the steps lagged."""
    look, span = float(round(gap / 2)), day.seconds + 2 * gap  # a sample before, for the seam
    values, moments = await asyncio.gather(
        prometheus.query(TRAINER.path(pool, span, look), day.end),
        prometheus.query(TRAINER.sampled(pool, span, look), day.end),
    )
    sampled = {job: dict(s.points) for s in moments.samples if (job := _job(s.labels))}
    edges = []
    for s in values.samples:
        job = _job(s.labels)
        if job is None or job not in steps:
            continue
        times = sampled.get(job, {})
        points = sorted({(times[grid], number) for grid, number in s.points if grid in times})
        if points:
            edges.append(lagging(job, points, day.start, steps[job], gap))
    return edges


def lagging(
    job_name: JobName, points: Sequence[Point], start: float, step: float, gap: float
) -> StepEdges:
    """Where steps lagged between coarse samples; those before `start` are of the piece before."""
    least = max(2 * step, _SHORT * gap)
    lags = ((a, b) for a, b in pairwise(points) if b[0] > start and _lost(a, b, step) > least)
    ends = ((points[0], points[0]), *lags, (points[-1], points[-1]))
    return StepEdges(
        job_name=job_name, stopped=(), resumed=(), step_seconds=step, gap=gap, lags=ends
    )


def _lost(a: Point, b: Point, step: float) -> float:
    """Time between two samples in which no new step was made. [s]"""
    return (b[0] - a[0]) - (b[1] - a[1]) * step


def _job(labels: Mapping[str, str]) -> JobName | None:
    """The job of a series; None where its target runs in another namespace."""
    placed, namespace, name = (labels.get(label, "") for label in TRAINER.names)
    return JobName(namespace, name) if placed in ("", namespace) else None


def stalls(edges: Iterable[StepEdges]) -> dict[str, list[Stall]]:
    """The stalls of each job over all days.

    The first step after a stall is seen half a gap between samples late, so half a gap more was
    trained again than the steps show.
    """
    by_job: defaultdict[str, list[tuple[float, bool, float, float]]] = defaultdict(list)
    coarse: defaultdict[str, list[StepEdges]] = defaultdict(list)
    gaps: defaultdict[str, float] = defaultdict(float)
    for piece in edges:
        job = "/".join(piece.job_name)
        if piece.lags:
            coarse[job].append(piece)
            continue
        gaps[job] = max(gaps[job], piece.gap)
        marks = by_job[job]
        marks += [(moment, False, piece.step_seconds, number) for moment, number in piece.stopped]
        marks += [(moment, True, piece.step_seconds, number) for moment, number in piece.resumed]
    stalls_by_job: dict[str, list[Stall]] = {}
    for job, job_marks in by_job.items():
        stalls_by_job[job] = []
        stopped: float | None = None
        last = 0.0
        for moment, goes_on, step, number in sorted(job_marks):
            if goes_on and stopped is not None:
                lost_again = (last - number) * step + gaps[job] / 2
                stalls_by_job[job].append(Stall(stopped, moment, max(0.0, lost_again), gaps[job]))
                stopped = None
            elif not goes_on and stopped is None:
                stopped, last = moment + step / 2, number
            elif not goes_on:  # a process that starts and ends without a step stops again
                last = max(last, number)
        if stopped is not None:
            stalls_by_job[job].append(Stall(stopped, inf, gap=gaps[job]))
    for job, pieces in coarse.items():
        stalls_by_job.setdefault(job, []).extend(_coarse_stalls(pieces))
    return {
        job: sorted(job_stalls, key=lambda stall: stall.stopped_at or 0.0)
        for job, job_stalls in stalls_by_job.items()
    }


def _coarse_stalls(pieces: Sequence[StepEdges]) -> Iterator[Stall]:
    """The stalls that coarse samples of a job show: from the last sample in time to the first at
    which its steps had fallen back, or no longer lag.
    """
    in_order = sorted(pieces, key=lambda piece: piece.lags[0][0])
    lags = [(lag, piece) for piece in in_order for lag in piece.lags if lag[0] != lag[1]]
    for before, after in pairwise(in_order):  # nothing was sampled for longer, over a seam
        seam = (before.lags[-1][1], after.lags[0][0])
        if seam[1][0] - seam[0][0] > 2 * after.gap:
            lags.append((seam, after))
    chain: list[tuple[Point, Point]] = []
    last = in_order[-1].lags[-1][1]
    for (a, b), piece in sorted(lags, key=lambda lag: lag[0]):
        if chain and chain[-1][1] != a:
            yield _coarse_stall(chain, piece, last)
            chain = []
        chain.append((a, b))
        if b[1] < a[1]:
            yield _coarse_stall(chain, piece, last)
            chain = []
    if chain:
        yield _coarse_stall(chain, in_order[-1], last)


def _coarse_stall(chain: Sequence[tuple[Point, Point]], piece: StepEdges, last: Point) -> Stall:
    """A stall from a chain of coarse samples: its cost is measured, its two ends are estimated."""
    first, (before, after), step = chain[0][0], chain[-1], piece.step_seconds
    top = max(number for pair in chain for _, number in pair)
    stopped = first[0] + (top - first[1]) * step + step / 2 if after[1] < before[1] else first[0]
    if after[1] == before[1] and after == last:
        return Stall(stopped, inf, gap=piece.gap)
    lost = _lost(first, after, step)
    gained = max(0.0, after[1] - before[1]) * step
    resumed = after[0] - gained if gained else (max(before[0], stopped) + after[0]) / 2
    resumed = max(stopped, resumed)
    return Stall(stopped, resumed, max(0.0, lost - (resumed - stopped)), piece.gap, lost)
