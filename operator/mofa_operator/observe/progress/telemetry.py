"""What running jobs do: tokens per second, steps and observed ETTR, for all jobs of a namespace and exporter in one query each.

Whose a series is, its scrape says: the label `namespace` of its target has to be the job's, whatever its own labels claim. So
every query names one namespace, and what another one publishes, or how much, is not even seen.

A job runs while its last finished step changes; one whose series stand still, or are gone, has no entry. Numbers that an
exporter does not publish stay None, never zero.
ETTR is steps gained x median time of a step / time since the job was first seen. Steps that are redone after a recovery
count once, so its cost shows. A lower bound where the window begins before the job.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final, Protocol, TypeAlias

from mofa_model.errors import MofaError, SourceUnreachable, UnknownName
from mofa_model.manifest.cluster_profile import EXPORTERS
from mofa_model.units import DAY
from mofa_operator.keys import Key
from mofa_operator.observe.jobs.pods import Gang, gangs
from mofa_operator.observe.prometheus.client import Prometheus, QueryResult, Sample, together
from mofa_operator.observe.prometheus.promql import Pool, duration, filled, matcher, selector
from mofa_operator.observe.prometheus.trainers import NAMESPACE, RECENT, SMOOTHED, TRAINERS, Job
from mofa_operator.snapshot import Running

WINDOW: Final = 7 * DAY
"""How far back the observed ETTR looks. [s]"""
MOST_OWN: Final = 32
"""Jobs of one namespace that are looked at by matchers of their own: each costs queries of its own. [1]"""
_QUERY: Final = "query"
"""Source of what an administrator's own queries say."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Watched:
    """A job that is looked at, and where."""

    namespace: str
    """Its namespace."""
    name: str
    """Its name."""
    preset: str = "mofa"
    """Which exporter."""
    matchers: Mapping[str, str] = field(default_factory=dict)
    """Labels that pick its series: of its own, and of its profile."""
    pool: Mapping[str, str] = field(default_factory=dict)
    """Those of its profile alone, which pick what is not the trainer's."""
    owner: str = ""
    """Name of the object whose pods are its own; empty = its own name."""
    born: float = 0.0
    """When the object was made whose pods are its own, in seconds of the epoch; 0 = not known. [s]"""
    exporters: tuple[str, ...] = EXPORTERS
    """Namespaces of those who are believed about pods and devices."""
    tokens_query: str | None = None
    """The profile's own query for tokens per second; `$namespace` and `$job` stand for the job."""
    step_query: str | None = None
    """The profile's own query for the last finished step."""

    @property
    def job(self) -> Job:
        """Its identity."""
        return self.namespace, self.name

    @property
    def gang(self) -> Job:
        """Whose its pods are."""
        return self.namespace, self.owner or self.name

    @property
    def has_own_queries(self) -> bool:
        """Whether its profile says itself how it is looked at."""
        return bool(self.tokens_query or self.step_query)

    @property
    def has_own_matchers(self) -> bool:
        """Whether it is picked by more than its profile says."""
        return not self.has_own_queries and self.matchers != self.pool

    @property
    def together_with(self) -> tuple[object, ...]:
        """Equal for jobs that share their queries."""
        own = self.name if self.has_own_queries else ""
        return self.preset, self.namespace, own, tuple(sorted(self.matchers.items()))


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainerExporter:
    """An exporter as some jobs have it."""

    preset: str
    """Its name."""
    pool: Pool
    """What picks its series."""
    jobs: tuple[Watched, ...]
    """Whose they are."""

    @property
    def wanted(self) -> set[Job]:
        """Identities of the jobs."""
        return {job.job for job in self.jobs}

    def job_of(self, sample: Sample) -> Job:
        """Whose a series is."""
        names = TRAINERS[self.preset].names
        return (sample.label(names[0]), sample.label(names[1])) if names else self.jobs[0].job


def sorted_out(jobs: Iterable[Watched]) -> tuple[list[list[Watched]], dict[Job, str]]:
    """Jobs that share their queries, and why others are not looked at at all."""
    groups: dict[tuple[object, ...], list[Watched]] = {}
    refused: dict[Job, str] = {}
    own: Counter[str] = Counter()
    for job in sorted(jobs, key=lambda one: one.job):
        named = job.matchers.get(NAMESPACE, job.namespace)
        if named not in (job.namespace, job.pool.get(NAMESPACE)):
            refused[job.job] = (
                f"spec.throughput.matchers.namespace: {named!r}: series are read in the job's own namespace only; leave it out"
            )
            continue
        own[job.namespace] += job.has_own_matchers
        if job.has_own_matchers and own[job.namespace] > MOST_OWN:
            refused[job.job] = (
                f"spec.throughput.matchers: the first {MOST_OWN} jobs of a namespace may have their own, in the order of their "
                "names; leave them out, and let the exporter name the job"
            )
            continue
        groups.setdefault(job.together_with, []).append(job)
    return list(groups.values()), refused


async def running(
    prometheus: Prometheus, jobs: Iterable[Watched], now: float, window: float = WINDOW
) -> dict[Job, Running]:
    """What those of the jobs do that run."""
    every = list(jobs)
    answers = await together(
        *(_of_exporter(prometheus, one, now, window) for one in exporters(every)),
        *(_of_queries(prometheus, job, now) for job in every if job.has_own_queries),
    )
    return {job: one for answer in answers for job, one in answer.items()}


async def present(prometheus: Prometheus, jobs: Iterable[Watched], now: float) -> dict[Job, float]:
    """Jobs whose trainers' series are there, whether or not steps advance: since when, 0 where that is not said. [s]"""
    every = list(jobs)
    answers = await together(
        *(_there(prometheus, one, now) for one in exporters(every)),
        *(_answered(prometheus, job, now) for job in every if job.has_own_queries),
    )
    return {job: since for answer in answers for job, since in answer.items()}


async def _there(prometheus: Prometheus, exporter: TrainerExporter, now: float) -> dict[Job, float]:
    answer = await prometheus.query(TRAINERS[exporter.preset].there(exporter.pool), now)
    return {
        job: since for job, since in _by_job(answer, exporter).items() if job in exporter.wanted
    }


async def _answered(prometheus: Prometheus, job: Watched, now: float) -> dict[Job, float]:
    """The same of a job that the profile's own queries look at."""
    query = filled(
        job.step_query or job.tokens_query or "", {"namespace": job.namespace, "job": job.name}
    )
    return {} if _one(await prometheus.query(query, now), job) is None else {job.job: 0.0}


def exporters(jobs: Iterable[Watched]) -> list[TrainerExporter]:
    """Jobs by exporter, namespace and matchers; where its series do not name jobs, the matchers must name one. Jobs with own queries left out."""
    groups: dict[tuple[object, ...], list[Watched]] = {}
    for job in jobs:
        if job.preset not in TRAINERS:
            raise UnknownName("throughput.preset", job.preset, TRAINERS)
        if not job.has_own_queries:
            groups.setdefault(job.together_with, []).append(job)
    return [
        TrainerExporter(
            preset=many[0].preset,
            pool=Pool(matchers=_attested(many[0]), members=(), labels=()),
            jobs=tuple(many),
        )
        for many in groups.values()
        if TRAINERS[many[0].preset].names or (len(many) == 1 and many[0].matchers)
    ]


def _attested(job: Watched) -> tuple[str, ...]:
    """Conditions that a job's series meet: those that pick them, and that their target runs in its namespace."""
    picked = (matcher(name, value) for name, value in sorted(job.matchers.items()))
    return (matcher(NAMESPACE, job.namespace), *picked)


async def _of_exporter(
    prometheus: Prometheus, exporter: TrainerExporter, now: float, window: float
) -> dict[Job, Running]:
    """Jobs of one exporter."""
    trainer, pool = TRAINERS[exporter.preset], exporter.pool
    asked = {
        "steps": trainer.advancing(pool),
        "speed": trainer.speed(pool),
        "pace": trainer.pace(pool, SMOOTHED * 3),
    }
    if trainer.step is not None:
        asked |= {
            "gained": trainer.gained(pool, window),
            "since": trainer.since(pool, window),
            "usual": trainer.pace(pool, window),
        }
    if trainer.checkpoint is not None:
        asked["spacing"] = trainer.spacing(pool, DAY)
    if trainer.memory is not None:
        asked["memory"] = trainer.reserved(pool)
    answers = await asyncio.gather(*(prometheus.query(query, now) for query in asked.values()))
    known = {name: _by_job(answer, exporter) for name, answer in zip(asked, answers, strict=True)}
    return {
        job: _running(exporter.preset, job, known, now, counts_steps=trainer.step is not None)
        for job in known["steps"].keys() & exporter.wanted
    }


def _by_job(answer: QueryResult, exporter: TrainerExporter) -> dict[Job, float]:
    if not TRAINERS[exporter.preset].names:
        largest = max((sample.value for sample in answer.samples), default=None)
        return {} if largest is None else {exporter.jobs[0].job: largest}
    return {exporter.job_of(sample): sample.value for sample in answer.samples}


def _running(
    preset: str,
    job: Job,
    known: Mapping[str, Mapping[Job, float]],
    now: float,
    *,
    counts_steps: bool,
) -> Running:
    """One job; what was not answered stays None."""

    def of(name: str) -> float | None:
        return known.get(name, {}).get(job)

    gained, since, usual = of("gained"), of("since"), of("usual")
    pace, spacing = _above_zero(of("pace")), of("spacing")
    return Running(
        source=preset,
        tokens_per_second=of("speed"),
        step_seconds=pace,
        memory_bytes=of("memory"),
        checkpoint_interval=None if pace is None or spacing is None else spacing * pace,
        step=round(known["steps"][job]) if counts_steps else None,
        ettr=None
        if gained is None or since is None or not usual
        else ettr(gained, usual, now - since),
        since=since,
    )


def ettr(steps: float, step_seconds: float, elapsed: float) -> float | None:
    """Observed effective training time ratio: steps gained times the time of one, over the time elapsed; at most 1. Ours. [1]

    None where less than ten steps' time has passed: that says nothing yet.

    >>> ettr(900, 2.0, 2000.0)
    0.9
    """
    return min(1.0, steps * step_seconds / elapsed) if elapsed >= 10 * step_seconds else None


async def _of_queries(prometheus: Prometheus, job: Watched, now: float) -> dict[Job, Running]:
    """A job that the profile's own queries look at: it runs while its steps grow, or, without steps, has a speed."""
    names = {"namespace": job.namespace, "job": job.name}
    found = Running(source=_QUERY)
    if job.step_query:
        step = _one(await prometheus.query(filled(job.step_query, names), now), job)
        before = _one(await prometheus.query(filled(job.step_query, names), now - SMOOTHED), job)
        if step is None or step == before:
            return {}
        found = replace(found, step=round(step))
        if before is not None and step > before:
            found = replace(found, step_seconds=SMOOTHED / (step - before))
    if job.tokens_query:
        found = replace(
            found,
            tokens_per_second=_one(
                await prometheus.query(filled(job.tokens_query, names), now), job
            ),
        )
        if not job.step_query and not found.tokens_per_second:
            return {}
    return {job.job: found}


def _one(answer: QueryResult, job: Watched) -> float | None:
    """The value of a job: the series that names it, else the largest, as every rank may publish the same.

    A series that still says where its target runs counts only from the job's namespace.
    """
    its = [one for one in answer.samples if one.label(NAMESPACE) in ("", job.namespace)]
    named = [
        one.value
        for one in its
        if (one.label("training_namespace"), one.label("training_job")) == job.job
    ]
    return max(named or [one.value for one in its if not one.label("training_job")], default=None)


def _above_zero(value: float | None) -> float | None:
    return value if value is not None and value > 0 else None


# Which step running jobs finished when, since they were last looked at: the moments that recovery times are made of.
#
# A step that a sample shows was finished after the sample before it. That moment is taken: it is never later than the truth,
# and as the last step before an interruption and the first one after it are early alike, the time between them is right on
# average. What is asked for is a grid; of it only the moments at which the step changed are kept.

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
    answers = await together(*(_steps_of_exporter(prometheus, one, now, span) for one in asked))
    return {job: path for answer in answers for job, path in answer.items()}


async def _steps_of_exporter(
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


# One look at all jobs that run: what their trainers' series say, step by step, and what kube-state-metrics says of their pods.
#
# Jobs that share queries fail together, and nobody else with them. Pods are asked for last, and a server that cannot say
# anything of them only leaves causes and classes open.


@dataclass(frozen=True, kw_only=True, slots=True)
class Telemetry:
    """What one look at a job brought; what it did not is None or empty."""

    running: Running | None = None
    """What its series say, where it runs."""
    path: Path = ()
    """Its steps since the last look, or from before it."""
    gang: Gang | None = None
    """What its pods say."""
    there: float | None = None
    """Since when its trainer's series are there, 0 where that is not said; None = they are not. [s]"""
    refused: str = ""
    """Why nobody could look at it; empty where somebody did."""


BACK: Final = 120.0
"""How far every look goes back at least, beyond the time since the last one: samples come late. [s]"""


class TelemetryReader:
    """Looks again and again; each goes back to the one before."""

    def __init__(self, prometheus: Prometheus) -> None:
        """Nothing was looked at yet: the first look goes back a quarter of an hour."""
        self._prometheus = prometheus
        self._last: float | None = None

    async def __call__(self, jobs: Iterable[Watched], now: float) -> dict[Job, Telemetry]:
        """What there is to see; a job of which nothing is seen has no entry. Raises `SourceUnreachable`."""
        every = list(jobs)
        span = RECENT if self._last is None else min(RECENT, now - self._last + BACK)
        groups, refused = sorted_out(every)
        looks = await together(*(self._look(group, now, span) for group in groups))
        failures = [failure for _, failure in looks if failure is not None]
        away = next((one for one in failures if isinstance(one, SourceUnreachable)), None)
        if away is not None and len(failures) == len(groups):
            raise away
        self._last = now
        found = {job: Telemetry(refused=why) for job, why in refused.items()}
        found |= {job: one for look, _ in looks for job, one in look.items()}
        for job, gang in (await self._pods(every, now, span)).items():
            found[job] = replace(found.get(job, Telemetry()), gang=gang)
        return found

    async def _look(
        self, group: list[Watched], now: float, span: float
    ) -> tuple[dict[Job, Telemetry], MofaError | None]:
        """What the series of jobs say that share their queries; and what failed, if anything did."""
        try:
            told = await running(self._prometheus, group, now)
            there = await present(self._prometheus, group, now)
            walked = await paths(self._prometheus, group, now, span)
        except MofaError as error:
            return {one.job: Telemetry(refused=str(error)) for one in group}, error
        seen = told.keys() | there.keys() | walked.keys()
        return {
            job: Telemetry(running=told.get(job), path=walked.get(job, ()), there=there.get(job))
            for job in seen
        }, None

    async def _pods(self, jobs: list[Watched], now: float, span: float) -> dict[Job, Gang]:
        """Pods by job; where too much comes of several namespaces, each is asked for alone."""
        pools: dict[tuple[object, ...], list[Watched]] = {}
        for one in jobs:
            pools.setdefault((one.exporters, *sorted(one.pool.items())), []).append(one)
        found: dict[Job, Gang] = {}
        asked = list(pools.values())
        while asked:
            many = asked.pop()
            pool, wanted = many[0], {one.gang: one.born for one in many}
            try:
                seen = await gangs(
                    self._prometheus, pool.pool, wanted, now, lately=span, exporters=pool.exporters
                )
            except SourceUnreachable:
                if len(places := {one.namespace for one in many}) > 1:
                    asked += [[one for one in many if one.namespace == place] for place in places]
                continue
            found |= {one.job: seen[one.gang] for one in many if one.gang in seen}
        return found


# What a job was predicted to do and what it did, over time: our own series, as Prometheus keeps them.

SPAN: Final = 24 * 3600.0
"""How far back is looked. [s]"""
STEP: Final = 300.0
"""Time between two points. [s]"""

Points = tuple[tuple[float, float], ...]


class Asks(Protocol):
    """Whoever answers queries."""

    async def query(self, promql: str, at: float | None = None) -> QueryResult:
        """What a query answers at a moment."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Curves:
    """Tokens a second of one job; points are moments of the epoch and values."""

    predicted: Points = ()
    """Of the advised layout. [(s, 1/s)]"""
    observed: Points = ()
    """Of the whole job. [(s, 1/s)]"""


async def curves(prometheus: Asks, key: Key, now: float) -> Curves:
    """The last day of a job."""
    job = {
        "training_namespace": key.namespace,
        "training_job": key.name,
        "training_kind": key.kind.kind,
    }
    grid = f"[{duration(SPAN)}:{duration(STEP)}]"
    predicted, observed = await asyncio.gather(
        *(
            prometheus.query(f"(max({series})){grid}", now)
            for series in (
                selector("mofa_job_predicted_tokens_per_second", bound="target", **job),
                selector("mofa_job_observed_tokens_per_second", **job),
            )
        )
    )
    return Curves(predicted=_first_points(predicted), observed=_first_points(observed))


def _first_points(found: QueryResult) -> Points:
    return found.samples[0].points if found.samples else ()
