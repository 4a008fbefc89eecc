"""ETTR of a job from its reliability, by the form that is exact for it.

    one tier, Poisson or mixed exponential failures   renewal, closed form, arrays of strategies and intervals
    one tier, any other law                           renewal sums, arrays of intervals
    nested tiers, any law                             tiers, one point at a time

The job's rates can be scaled, so that a quantile of the total rate gives the same quantile of ETTR.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from mofa_model.checks import not_negative, positive
from mofa_model.errors import BadValue
from mofa_model.reliability import renewal
from mofa_model.reliability.availability import spares_availability
from mofa_model.reliability.laws import components_of, run_after
from mofa_model.reliability.recovery import (
    NEVER,
    FailureSource,
    mean_of,
    node_rate,
    sources_of,
    survival_of_recovery,
)
from mofa_model.reliability.tiers import Failure
from mofa_model.reliability.tiers import ettr as tiers_ettr
from mofa_model.reliability.timeline import Tiers, failure_free
from mofa_model.spec.reliability import Reliability
from mofa_model.units import Count, Numeric, Ratio, Seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One job or an array of them: what runs where, and what its saves cost."""

    nodes: Count
    """Nodes of the job."""
    step_time: Seconds
    """Time of a step without failures. [s]"""
    blocking: tuple[Numeric, ...]
    """Blocking part of a save, by tier. [s]"""
    background: tuple[Numeric, ...]
    """Background copy of a save, by tier. [s]"""
    reliability: Reliability
    """How the machines fail and come back."""
    rate_scale: Ratio = 1.0
    """Factor on all failure rates. [1]"""

    def __post_init__(self) -> None:
        positive(nodes=self.nodes, step_time=self.step_time)
        if not 0 < len(self.blocking) == len(self.background):
            raise BadValue(
                "blocking", self.blocking, "give blocking and background times for each tier"
            )
        for blocking, background in zip(self.blocking, self.background, strict=True):
            not_negative(blocking=blocking, background=background)
        not_negative(rate_scale=self.rate_scale)
        read = [c.tier for c in self.reliability.classes] + [
            d.tier for d in self.reliability.domains
        ]
        deepest = max(read)
        if deepest >= len(self.blocking):
            raise BadValue(
                "tier",
                deepest,
                f"save times are given for {len(self.blocking)} tiers, counted from 0",
            )


def sources(job: Job) -> tuple[FailureSource, ...]:
    """The causes of failure of a job. []"""
    return sources_of(job.reliability)


def failure_rate(job: Job) -> Numeric:
    """Failures of the job (Lam), Eq. (38) as a rate: N lambda. [1/s]"""
    return job.nodes * (node_rate(job.reliability) * job.rate_scale)


def mean_recovery(job: Job) -> Seconds:
    """Mean recovery time, Eq. (41): sum p_i R_i over all causes, queue included. [s]"""
    return sum(part.share * mean_of(part.recoveries) for part in sources(job))


def survived(job: Job) -> Ratio:
    """Share of time that is not recovery (phi), failures while recovering as the reliability says. Ours. [1]"""
    rate = failure_rate(job)
    if not job.reliability.failures_during_recovery:
        return renewal.survived_when_idle(rate, mean_recovery(job))
    return survival_of_recovery(sources(job), rate)


def available(job: Job) -> Ratio:
    """Share of time that enough nodes work, given the spares; 1 where spares are not limited. [1]"""
    spares = job.reliability.spares
    if spares is None:
        return 1.0
    return spares_availability(failure_rate(job) * job.reliability.repair, spares)


def ettr(job: Job, steps: Count, every: tuple[int, ...] = (1,)) -> Ratio:
    """Exact ETTR of a job that saves every `steps` steps, tier j at each `every[j]`-th save, for Eq. (36). [1]

    Waiting for a repaired node is included where spares are limited; initialisation is not (see `objective`).
    """
    if len(job.blocking) == 1:
        return ettr_at(job)(steps)
    return _nested(job, float(steps), every) * available(job)


def ettr_at(job: Job) -> Callable[[Count], Ratio]:
    """ETTR of a job of one tier over its interval in steps; what no interval changes is worked out once. Ours. [1]"""
    of_work, there = _one_tier(job), available(job)
    return lambda steps: of_work(steps * job.step_time) * there


def one_tier(job: Job, tier: int) -> Job:
    """The same job with one tier only, which every cause then reads. Ours. []"""
    rel = job.reliability
    classes = tuple(replace(c, tier=0) for c in rel.classes)
    domains = tuple(replace(d, tier=0) for d in rel.domains)
    return replace(
        job,
        blocking=(job.blocking[tier],),
        background=(job.background[tier],),
        reliability=replace(
            rel, tiers=rel.tiers[tier : tier + 1], classes=classes, domains=domains
        ),
    )


def _one_tier(job: Job) -> Callable[[Seconds], Ratio]:
    rel, rate = job.reliability, failure_rate(job)
    saves = (job.blocking[0], job.background[0], rel.slowdown)
    if rel.law.kind == "weibull":
        return lambda work: _any_law(job, float(np.max(rate)), (work, *saves))
    phi = survived(job)
    if rel.law.kind == "exponential":
        return lambda work: renewal.ettr(rate, phi, work, *saves)

    parts = [
        (
            share * (rate / np.maximum(part, NEVER)),
            part,
            survival_of_recovery(sources(job), part) if rel.failures_during_recovery else phi,
        )
        for share, part in components_of(rel.law, rate)
    ]

    def mixed(work: Seconds) -> Ratio:
        total: Ratio = 0.0
        for weight, part, left in parts:
            total = total + weight * renewal.ettr(part, left, work, *saves)
        return np.where(np.asarray(rate) > 0, total, renewal.ettr(0.0, 1.0, work, *saves))[()]

    return mixed


def _any_law(job: Job, rate: float, saves: tuple[Seconds, Seconds, Seconds, Ratio]) -> Ratio:
    rel = job.reliability
    if np.size(job.nodes) > 1 or np.size(job.rate_scale) > 1:
        raise BadValue(
            "nodes",
            job.nodes,
            "failures that are not exponential are modelled for one job at a time",
        )
    if rate == 0:
        return renewal.ettr(0.0, 1.0, *saves)
    work, blocking, background, slowdown = saves
    run = run_after(sources(job), rate, rel.law, during_recovery=rel.failures_during_recovery)
    return renewal.ettr_of_run(run, _cycle(job, rate), work, blocking, background, slowdown)


def _cycle(job: Job, rate: float) -> float:
    """Mean time from failure to failure. [s]"""
    idle = 0.0 if job.reliability.failures_during_recovery else float(np.max(mean_recovery(job)))
    return 1 / rate + idle


def _nested(job: Job, steps: float, every: tuple[int, ...]) -> Ratio:
    rel, rate = job.reliability, float(failure_rate(job))
    tiers = Tiers(
        work=steps * float(job.step_time),
        every=every,
        blocking=tuple(float(x) for x in job.blocking),
        background=tuple(float(x) for x in job.background),
        slowdown=rel.slowdown,
    )
    if rate == 0:
        return failure_free(tiers)
    failures = []
    for tier in sorted({source.tier for source in sources(job)}):
        mine = tuple(source for source in sources(job) if source.tier == tier)
        part = sum(source.share for source in mine)
        run = run_after(mine, rate, rel.law, during_recovery=rel.failures_during_recovery)
        failures.append(Failure(tier=tier, share=part, run=run))
    return tiers_ettr(tiers, tuple(failures), _cycle(job, rate))
