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
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from mofa_model.errors import UnknownName
from mofa_model.manifest.exporters import EXPORTERS
from mofa_model.units import DAY
from mofa_operator.observe.answers import QueryResult, Sample
from mofa_operator.observe.asking import together
from mofa_operator.observe.prometheus import Prometheus
from mofa_operator.observe.promql import filled, matcher
from mofa_operator.observe.queries import Pool
from mofa_operator.observe.trainers import SMOOTHED, TRAINERS
from mofa_operator.snapshot import Running

Job: TypeAlias = tuple[str, str]
"""Namespace and name of a job."""
WINDOW: Final = 7 * DAY
"""How far back the observed ETTR looks. [s]"""
MOST_OWN: Final = 32
"""Jobs of one namespace that are looked at by matchers of their own: each costs queries of its own. [1]"""
NAMESPACE: Final = "namespace"
"""Label in which a scrape says where its target runs."""
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
