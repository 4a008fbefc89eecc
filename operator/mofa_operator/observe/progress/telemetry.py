"""One look at all running jobs: steps in their trainers' series, and pods in kube-state-metrics.

A series counts for a job where the scrape places its target in the job's namespace, whatever the
series' own labels claim. So every query names one namespace, and what another one publishes is not
even read. Where Prometheus scrapes anything in that namespace, the series' target must be up there:
`up` has the target's labels, also where honorLabels lets targets write their own. A job is
contested, and nothing is said of it, where two targets publish values that contradict each other.
Jobs that share queries fail together, and no other job with them; without an answer about pods,
only causes and classes of interruptions are unknown.

A job runs while its last finished step changes; a job whose series stand still or are gone has no
entry. Numbers that an exporter does not publish stay None, never zero.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final, NamedTuple, Protocol, TypeAlias

from mofa_model.errors import MofaError, SourceUnreachable, UnknownName
from mofa_model.manifest.cluster_profile import EXPORTERS
from mofa_model.units import DAY
from mofa_operator.incidents.timelines import Point
from mofa_operator.keys import Key
from mofa_operator.observe.jobs.pods import Gang, gangs
from mofa_operator.observe.prometheus.client import Prometheus, QueryResult, Sample, together
from mofa_operator.observe.prometheus.promql import (
    Pool,
    any_of,
    duration,
    filled,
    matcher,
    selector,
)
from mofa_operator.observe.prometheus.trainers import (
    NAMESPACE,
    RECENT,
    SMOOTHED,
    TRAINERS,
    TRAINING_LABELS,
    JobName,
    TrainerSeries,
)
from mofa_operator.snapshot import SHAPE, Curves, Running

WINDOW: Final = 7 * DAY
"""How far back the observed ETTR looks. [s]"""
MOST_OWN: Final = 32
"""Most jobs of a namespace with matchers of their own, as each costs queries of its own. [1]"""
BACK: Final = 120.0
"""How far a look goes back beyond the last one, because samples arrive late. [s]"""
FINEST: Final = 1.0
"""Least time between two moments at which steps are read. [s]"""
COARSEST: Final = 15.0
"""Greatest time between them; a step that is dated too early seems to precede its interruption. [s]
"""
POINTS: Final = 36_000
"""Most points of an answer with steps; more jobs are read more coarsely, then less far back. [1]"""
_MOST_COUNT: Final = 1e9
"""No sequence and no batch is longer. [1]"""
_OWN_QUERY: Final = "query"
"""Source of figures from an administrator's own queries."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobSeries:
    """A job, and where its series are found."""

    namespace: str
    name: str
    preset: str = "mofa"
    """Which exporter publishes them, a key of `TRAINERS`."""
    matchers: Mapping[str, str] = field(default_factory=dict)
    """Labels that pick its series: its own and those of its profile."""
    pool: Mapping[str, str] = field(default_factory=dict)
    """Labels of its profile alone, which pick series that its trainer does not publish."""
    owner: str = ""
    """Name of the object that has its pods; empty = its own name."""
    born: float = 0.0
    """When that object was made, in seconds of the epoch; 0 = unknown. [s]"""
    exporters: tuple[str, ...] = EXPORTERS
    """Namespaces of trusted exporters of pods and devices."""
    tokens_query: str | None = None
    """The profile's own query for tokens per second; `$namespace` and `$job` stand for the job."""
    step_query: str | None = None
    """The profile's own query for the last finished step."""
    scraped: bool = False
    """Whether Prometheus scrapes targets in its namespace; then only their series count."""

    @property
    def job(self) -> JobName:
        """Its identity."""
        return JobName(self.namespace, self.name)

    @property
    def pods_of(self) -> JobName:
        """Namespace and name of the object that has its pods."""
        return JobName(self.namespace, self.owner or self.name)

    @property
    def has_own_queries(self) -> bool:
        """Whether its profile has queries of its own."""
        return bool(self.tokens_query or self.step_query)

    @property
    def has_own_matchers(self) -> bool:
        """Whether its series are picked by more than its profile's labels."""
        return not self.has_own_queries and self.matchers != self.pool

    @property
    def query_key(self) -> tuple[object, ...]:
        """Equal for jobs that share their queries."""
        own = self.name if self.has_own_queries else ""
        return self.preset, self.namespace, own, tuple(sorted(self.matchers.items()))


class FinishedStep(NamedTuple):
    """A finished step of a job, in the order in which steps were finished."""

    after: float
    """The moment of the sample before; the step was finished after it. [s]"""
    step: int
    sampled_at: float
    """When it was first sampled. [s]"""


Path: TypeAlias = tuple[FinishedStep, ...]
"""Steps of a job, in order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Telemetry:
    """What one look at a job showed; what it did not show is None or empty."""

    running: Running | None = None
    """Its figures, where it runs."""
    finished_steps: Path = ()
    """Its steps since the last look, or from before it."""
    gang: Gang | None = None
    """Its pods."""
    series_since: float | None = None
    """Since when its trainer's series exist, 0 = unknown; None = they do not. [s]"""
    refused: str = ""
    """Why it could not be looked at; empty where it was."""


class TelemetryReader:
    """Looks at running jobs again and again; each look goes back to the one before."""

    def __init__(self, prometheus: Prometheus) -> None:
        """The first look goes back a quarter of an hour."""
        self._prometheus = prometheus
        self._last: float | None = None

    async def __call__(self, jobs: Iterable[JobSeries], now: float) -> dict[JobName, Telemetry]:
        """The telemetry of jobs at a moment, where there is any; raises `SourceUnreachable`. [s]"""
        with_targets = await self._with_targets(list(jobs), now)
        span = RECENT if self._last is None else min(RECENT, now - self._last + BACK)
        groups, refused = grouped(with_targets)
        looks = await together(*(self._look(group, now, span) for group in groups))
        failures = [look for look in looks if isinstance(look, MofaError)]
        away = next((error for error in failures if isinstance(error, SourceUnreachable)), None)
        if away is not None and len(failures) == len(groups):
            raise away
        self._last = now
        telemetry = {job: Telemetry(refused=why) for job, why in refused.items()}
        for group, look in zip(groups, looks, strict=True):
            if isinstance(look, MofaError):
                telemetry |= {job_series.job: Telemetry(refused=str(look)) for job_series in group}
            else:
                telemetry |= look
        for job, gang in (await self._gangs(with_targets, now, span)).items():
            telemetry[job] = replace(telemetry.get(job, Telemetry()), gang=gang)
        return telemetry

    async def _with_targets(self, jobs: list[JobSeries], now: float) -> list[JobSeries]:
        """The jobs, each knowing whether Prometheus scrapes targets in its namespace."""
        names = sorted({job.namespace for job in jobs})
        if not names:
            return jobs
        up = selector("up", [matcher(NAMESPACE, any_of(names), "=~")])
        query = f"group by ({NAMESPACE}) (last_over_time({up}[{duration(RECENT)}]))"
        answer = await self._prometheus.query(query, now)
        scraped = {sample.label(NAMESPACE) for sample in answer.samples}
        return [replace(job, scraped=job.namespace in scraped) for job in jobs]

    async def _look(
        self, group: list[JobSeries], now: float, span: float
    ) -> dict[JobName, Telemetry] | MofaError:
        """The telemetry of jobs that share their queries, or what failed."""
        try:
            figures = await running(self._prometheus, group, now)
            presence = await series_presence(self._prometheus, group, now)
            paths = await finished_steps(self._prometheus, group, now, span)
        except MofaError as error:
            return error
        since = {job: value for job, value in presence.items() if not isinstance(value, str)}
        telemetry = {
            job: Telemetry(
                running=figures.get(job),
                finished_steps=paths.get(job, ()),
                series_since=since.get(job),
            )
            for job in figures.keys() | since.keys() | paths.keys()
        }
        doubts = {job: why for job, why in presence.items() if isinstance(why, str)}
        return telemetry | {job: Telemetry(refused=why) for job, why in doubts.items()}

    async def _gangs(self, jobs: list[JobSeries], now: float, span: float) -> dict[JobName, Gang]:
        """Pods by job; where the answer for all namespaces is too large, each is asked alone."""
        pools: dict[tuple[object, ...], list[JobSeries]] = {}
        for job in jobs:
            pools.setdefault((job.exporters, *sorted(job.pool.items())), []).append(job)
        gangs_by_job: dict[JobName, Gang] = {}
        pending = list(pools.values())
        while pending:
            group = pending.pop()
            first, born = group[0], {job.pods_of: job.born for job in group}
            try:
                answers = await gangs(
                    self._prometheus, first.pool, born, now, lately=span, exporters=first.exporters
                )
            except SourceUnreachable:
                if len(names := {job.namespace for job in group}) > 1:
                    pending += [[job for job in group if job.namespace == name] for name in names]
                continue
            gangs_by_job |= {
                job.job: answers[job.pods_of] for job in group if job.pods_of in answers
            }
        return gangs_by_job


def grouped(series: Iterable[JobSeries]) -> tuple[list[list[JobSeries]], dict[JobName, str]]:
    """Groups of jobs that share their queries, and why other jobs are refused."""
    groups: dict[tuple[object, ...], list[JobSeries]] = {}
    refused: dict[JobName, str] = {}
    own_counts: Counter[str] = Counter()
    for job in sorted(series, key=lambda job: job.job):
        stated = job.matchers.get(NAMESPACE, job.namespace)
        if stated not in (job.namespace, job.pool.get(NAMESPACE)):
            refused[job.job] = (
                f"spec.throughput.matchers.namespace: {stated!r}: "
                "series are read in the job's own namespace only; "
                "leave it out"
            )
            continue
        own_counts[job.namespace] += job.has_own_matchers
        if job.has_own_matchers and own_counts[job.namespace] > MOST_OWN:
            refused[job.job] = (
                f"spec.throughput.matchers: the first {MOST_OWN} jobs of a namespace "
                "may have their own, in the order of "
                "their names; leave them out, and let the exporter name the job"
            )
            continue
        groups.setdefault(job.query_key, []).append(job)
    return list(groups.values()), refused


@dataclass(frozen=True, slots=True)
class _Exporter:
    """The series of jobs that share their queries."""

    jobs: Sequence[JobSeries]

    @property
    def preset(self) -> str:
        return self.jobs[0].preset

    @property
    def trainer(self) -> TrainerSeries:
        return TRAINERS[self.preset]

    @property
    def pool(self) -> Pool:
        """Conditions on the series: labels, and a target that runs in the jobs' namespace."""
        first = self.jobs[0]
        picked = (matcher(name, value) for name, value in sorted(first.matchers.items()))
        scraped = first.namespace if first.scraped else ""
        return Pool(matchers=(matcher(NAMESPACE, first.namespace), *picked), scraped=scraped)

    def points(self, result: QueryResult) -> dict[JobName, tuple[Point, ...]]:
        """The points of each job; of series that name no job, those with the largest last value."""
        if not self.trainer.names:
            samples = sorted(result.samples, key=lambda sample: sample.value)
            return {self.jobs[0].job: samples[-1].points} if samples else {}
        job_names = {series.job for series in self.jobs}
        points_by_job = {self.named(s): s.points for s in result.samples}
        return {job: points for job, points in points_by_job.items() if job in job_names}

    def named(self, sample: Sample) -> JobName:
        """The job that a sample is about."""
        names = self.trainer.names
        return JobName(*map(sample.label, names)) if names else self.jobs[0].job

    def values(self, result: QueryResult) -> dict[JobName, float]:
        """The last value of each of the jobs."""
        return {job: points[-1][1] for job, points in self.points(result).items()}

    def shapes(self, result: QueryResult | None) -> dict[JobName, dict[str, int]]:
        """The sizes of each job's model, from labels; none where its series differ."""
        shapes: dict[JobName, dict[str, int]] = {}
        for sample in () if result is None else result.samples:
            job = JobName(*map(sample.label, self.trainer.names))
            texts = {name: sample.label(name) for name in SHAPE}
            sizes = {name: int(text) for name, text in texts.items() if _SIZE.fullmatch(text)}
            shapes[job] = {} if shapes.get(job, sizes) != sizes else sizes
        return shapes


_SIZE: Final = re.compile("[1-9][0-9]{0,8}")
"""A size of a model, as a label has it."""


def _exporters(jobs: Iterable[JobSeries]) -> list[_Exporter]:
    """Jobs by the queries that they share, without those that have queries of their own.

    Where the series do not name their job, the matchers must pick a single one.
    """
    groups: dict[tuple[object, ...], list[JobSeries]] = {}
    for job in jobs:
        if job.preset not in TRAINERS:
            raise UnknownName("throughput.preset", job.preset, TRAINERS)
        if not job.has_own_queries:
            groups.setdefault(job.query_key, []).append(job)
    return [
        _Exporter(group)
        for group in groups.values()
        if TRAINERS[group[0].preset].names or (len(group) == 1 and group[0].matchers)
    ]


# ------------------------------------------------------------------------------- figures of jobs


async def running(
    prometheus: Prometheus, series: Iterable[JobSeries], now: float, window: float = WINDOW
) -> dict[JobName, Running]:
    """The tokens per second, step time and other figures of each job that advances now."""
    all_jobs = list(series)
    answers = await together(
        *(_figures(prometheus, exporter, now, window) for exporter in _exporters(all_jobs)),
        *(_own_figures(prometheus, job, now) for job in all_jobs if job.has_own_queries),
    )
    return {job: figures for answer in answers for job, figures in answer.items()}


async def _figures(
    prometheus: Prometheus, exporter: _Exporter, now: float, window: float
) -> dict[JobName, Running]:
    """The figures of jobs that share an exporter."""
    trainer, pool = exporter.trainer, exporter.pool
    queries = {
        "steps": trainer.advancing(pool),
        "speed": trainer.speed(pool),
        "pace": trainer.pace(pool, SMOOTHED * 3),
    }
    if trainer.step is not None:
        queries |= {
            "gained": trainer.gained(pool, window),
            "since": trainer.since(pool, window),
            "usual": trainer.pace(pool, window),
        }
    if trainer.checkpoint is not None:
        queries["spacing"] = trainer.steps_between_saves(pool, DAY)
    if trainer.memory is not None:
        queries["memory"] = trainer.reserved_memory(pool)
    stated = {"sequence": trainer.sequence, "batch": trainer.batch, "save": trainer.save}
    for name, series in stated.items():
        if series is not None:
            queries[name] = trainer.stated(pool, series)
    if trainer.shape is not None:
        queries["shape"] = trainer.stated_shape(pool)
    answers = await asyncio.gather(*(prometheus.query(query, now) for query in queries.values()))
    values_by_name = dict(zip(queries, map(exporter.values, answers), strict=True))
    shapes = exporter.shapes(dict(zip(queries, answers, strict=True)).get("shape"))

    def figures(job: JobName) -> Running:
        value = {name: values.get(job) for name, values in values_by_name.items()}
        gained, since, usual = (value.get(name) for name in ("gained", "since", "usual"))
        pace = value["pace"] if (value["pace"] or 0.0) > 0 else None
        spacing = value.get("spacing")
        has_ettr = gained is not None and since is not None and usual
        return Running(
            source=exporter.preset,
            tokens_per_second=value["speed"],
            step_seconds=pace,
            memory_bytes=value.get("memory"),
            checkpoint_interval=None if pace is None or spacing is None else spacing * pace,
            save_seconds=value.get("save"),
            step=round(values_by_name["steps"][job]) if trainer.step is not None else None,
            ettr=ettr(gained or 0.0, usual or 0.0, now - (since or 0.0)) if has_ettr else None,
            since=since,
            sequence_length=_whole(value.get("sequence")),
            global_batch=_whole(value.get("batch")),
            shape=shapes.get(job, {}),
        )

    return {job: figures(job) for job in values_by_name["steps"]}


def _whole(value: float | None) -> int | None:
    """A count of a series; None where it is none."""
    return int(value) if value is not None and 1 <= value < _MOST_COUNT else None


def ettr(steps: float, step_seconds: float, elapsed: float) -> float | None:
    """Observed effective training time ratio: steps times step time over elapsed time. Ours. [1]

    Steps that are trained again count once, so that recoveries lower it. None where less time than
    that of ten steps has passed.

    >>> ettr(900, 2.0, 2000.0)
    0.9
    """
    return min(1.0, steps * step_seconds / elapsed) if elapsed >= 10 * step_seconds else None


async def _own_figures(
    prometheus: Prometheus, job: JobSeries, now: float
) -> dict[JobName, Running]:
    """Figures of a job by its profile's queries: it runs while its steps grow, or without a query
    for steps while it has a speed.
    """
    figures = Running(source=_OWN_QUERY)
    if job.step_query:
        step = await _own_value(prometheus, job, job.step_query, now)
        before = await _own_value(prometheus, job, job.step_query, now - SMOOTHED)
        if step is None or step == before:
            return {}
        figures = replace(figures, step=round(step))
        if before is not None and step > before:
            figures = replace(figures, step_seconds=SMOOTHED / (step - before))
    if job.tokens_query:
        tokens = await _own_value(prometheus, job, job.tokens_query, now)
        figures = replace(figures, tokens_per_second=tokens)
        if not job.step_query and not tokens:
            return {}
    return {job.job: figures}


async def _own_value(prometheus: Prometheus, job: JobSeries, query: str, at: float) -> float | None:
    """The value of a job: of the series that names it, else the largest of those without a name, as
    all ranks publish the same.

    A series that shows where its target runs counts only if that is the job's namespace.
    """
    filled_query = filled(query, {"namespace": job.namespace, "job": job.name})
    samples = [
        sample
        for sample in (await prometheus.query(filled_query, at)).samples
        if sample.label(NAMESPACE) in ("", job.namespace)
    ]
    named = [s.value for s in samples if JobName(*map(s.label, TRAINING_LABELS)) == job.job]
    unnamed = [s.value for s in samples if not s.label(TRAINING_LABELS[1])]
    return max(named or unnamed, default=None)


_LOOK: Final = "look for honorLabels among what is scraped"
_DOUBTS: Final = {
    "speeds": f"contested: two targets say different speeds of this job; {_LOOK}",
    "steps": f"contested: two targets say different steps of this job; {_LOOK}",
    "targets": f"its series come from no target that Prometheus scrapes in this namespace; {_LOOK}",
}
"""Why nothing is said of a job, by the value of the label `doubt`."""


async def series_presence(
    prometheus: Prometheus, series: Iterable[JobSeries], now: float
) -> dict[JobName, float | str]:
    """Jobs whose trainers' series exist, whether or not steps advance, and since when [s]; or why
    the series cannot be believed.
    """
    all_jobs = list(series)

    async def by_exporter(exporter: _Exporter) -> dict[JobName, float | str]:
        trainer, pool = exporter.trainer, exporter.pool
        query = f"{trainer.there(pool)} or {trainer.contested(pool)}"
        samples = (await prometheus.query(query, now)).samples
        sure = QueryResult(samples=tuple(s for s in samples if not s.label("doubt")))
        exporter_jobs = {job.job for job in exporter.jobs}
        reasons = {exporter.named(s): _DOUBTS.get(s.label("doubt"), "") for s in samples}
        doubts = {job: why for job, why in reasons.items() if why and job in exporter_jobs}
        return {**exporter.values(sure), **doubts}

    async def by_own_query(job_series: JobSeries) -> dict[JobName, float | str]:
        query = job_series.step_query or job_series.tokens_query or ""
        value = await _own_value(prometheus, job_series, query, now)
        return {} if value is None else {job_series.job: 0.0}

    answers = await together(
        *(by_exporter(exporter) for exporter in _exporters(all_jobs)),
        *(by_own_query(job) for job in all_jobs if job.has_own_queries),
    )
    return {job: since for answer in answers for job, since in answer.items()}


# ------------------------------------------------------------------- when steps were finished


async def finished_steps(
    prometheus: Prometheus, series: Iterable[JobSeries], now: float, span: float
) -> dict[JobName, Path]:
    """Steps of all jobs whose exporter counts them, in the last `span` seconds.

    A step that a sample shows was finished after the sample before, and is dated by that one. This
    is never too late; and as the last step before an interruption and the first one after it are
    dated equally early, the time between them is right on average.
    """

    async def of_exporter(exporter: _Exporter) -> dict[JobName, Path]:
        trainer, pool = exporter.trainer, exporter.pool
        grid, back = step_grid(span, len(exporter.jobs))
        values, moments = await together(
            prometheus.query(trainer.path(pool, back, grid), now),
            prometheus.query(trainer.sampled(pool, back, grid), now),
        )
        sampled = exporter.points(moments)
        return {
            job: path_of(steps, sampled.get(job, ()))
            for job, steps in exporter.points(values).items()
        }

    counting = [exporter for exporter in _exporters(series) if exporter.trainer.step is not None]
    answers = await together(*(of_exporter(exporter) for exporter in counting))
    return {job: path for answer in answers for job, path in answer.items()}


def step_grid(span: float, job_count: int) -> tuple[float, float]:
    """How far apart the moments are at which steps of jobs are read, and how far back. [s, s]

    >>> step_grid(900.0, 1), step_grid(900.0, 400), step_grid(900.0, 5000), step_grid(180.0, 400)
    ((1.0, 900.0), (10.0, 900.0), (15.0, 108.0), (2.0, 180.0))
    """
    grid = min(COARSEST, max(FINEST, float(round(span * job_count / POINTS))))
    return grid, min(span, max(grid, grid * POINTS / job_count))


def path_of(steps: Sequence[Point], sample_moments: Sequence[Point]) -> Path:
    """The path of a job, from its step at each moment and when that step had been sampled.

    Samples every five seconds, read every two: step 8 was first sampled at 15, and was finished
    after 10.

    >>> read = [(10.0, 7.0), (12.0, 7.0), (14.0, 7.0), (16.0, 8.0), (18.0, 8.0), (20.0, 8.0)]
    >>> steps = (10.0, 10.0, 10.0, 15.0, 15.0, 20.0)
    >>> points = list(zip((10.0, 12.0, 14.0, 16.0, 18.0, 20.0), steps))
    >>> path = path_of(read, points)
    >>> [tuple(step) for step in path]
    [(5.0, 7, 10.0), (10.0, 8, 15.0)]
    """
    moments = dict(sample_moments)
    shown = [(moments.get(moment, moment), round(value)) for moment, value in steps]
    gap = min((b - a for (a, _), (b, _) in pairwise(shown) if b > a), default=0.0)
    path: list[FinishedStep] = []
    last_moment: float | None = None
    for moment, step in shown:
        if not path or path[-1].step != step:
            after = moment - gap if last_moment is None else max(last_moment, moment - 2 * gap)
            path.append(FinishedStep(after, step, moment))
        last_moment = moment
    return tuple(path)


# ------------------------------------------------------------------------- curves for the page

SPAN: Final = 24 * 3600.0
"""How far back the curves of a job go. [s]"""
STEP: Final = 300.0
"""Time between two points of a curve. [s]"""


class Asks(Protocol):
    """Anything that answers queries."""

    async def query(self, promql: str, at: float | None = None) -> QueryResult:
        """The answer to a query at a moment."""


async def curves(prometheus: Asks, key: Key, now: float) -> Curves:
    """The last day of a job."""
    job = {
        "training_namespace": key.namespace,
        "training_job": key.name,
        "training_kind": key.kind.kind,
    }
    predicted = selector("mofa_job_predicted_tokens_per_second", bound="target", **job)
    observed = selector("mofa_job_observed_tokens_per_second", **job)
    grid = f"[{duration(SPAN)}:{duration(STEP)}]"
    answers = await asyncio.gather(
        *(prometheus.query(f"(max({series})){grid}", now) for series in (predicted, observed))
    )
    points = [answer.samples[0].points if answer.samples else () for answer in answers]
    return Curves(predicted=points[0], observed=points[1])
