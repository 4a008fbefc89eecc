"""ETTR of a job, by the form that is exact for it; its band, as the failure rate is uncertain; and
what the rest of the time is lost to.

    one tier, Poisson or mixed exponential failures   renewal, closed form, strategies x intervals
    one tier, any other law                           renewal sums, arrays of intervals
    nested tiers, any law                             tiers, one point at a time

A band of the total failure rate is a factor on all of a job's rates (`rate_scale`), and its ends
give those of ETTR.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Final

import numpy as np

from mofa_model.checks import distinct, not_negative, positive
from mofa_model.errors import BadValue
from mofa_model.records import dataclass
from mofa_model.reliability import renewal
from mofa_model.reliability.checkpoint import Tiers, failure_free, walk
from mofa_model.reliability.laws import (
    NEVER,
    FailureSource,
    Uptime,
    components_of,
    laplace_of,
    mean_of,
    node_rate,
    run_after,
    sources_of,
    survival_of_recovery,
)
from mofa_model.reliability.rates import LEVEL
from mofa_model.reliability.special import gamma_quantile
from mofa_model.reliability.tiers import Failure
from mofa_model.reliability.tiers import ettr as tiers_ettr
from mofa_model.spec.reliability import Domain, FailureMode, Reliability
from mofa_model.units import Count, Numeric, Range, Ratio, Seconds

if TYPE_CHECKING:
    from mofa_model.spec.recovery_plans import RecoveryPlan, Replicas

NO_REPLICA: Final = "no replica left"
"""Name of failures that take the last replica of a job."""
_MOST_SPARES = 100_000


def spares_availability(load: Ratio, spares: int) -> Ratio:
    """Share of time that a full set of nodes works: 1 - B(load, spares + 1). Source: Erlang 1917.
    [1]

    `load` is the job's failures times the mean repair time: broken nodes on average [1].

    >>> round(float(spares_availability(256 * 0.0065, 3)), 4)
    0.9378
    """
    not_negative(load=load, spares=spares)
    if spares > _MOST_SPARES:
        raise BadValue("spares", spares, f"at most {_MOST_SPARES}")
    blocked = np.ones_like(np.asarray(load, dtype=float))
    for servers in range(1, spares + 2):
        passed = load * blocked
        blocked = passed / (servers + passed)
    answer: Ratio = (1 - blocked)[()]
    return answer


@dataclass(frozen=True, kw_only=True)
class Job:
    """One job, or an array of jobs: its nodes, its steps, its saves and its failures."""

    nodes: Count
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
    plan: RecoveryPlan | None = None
    """What the job does when something fails; None = as its recovery classes say."""
    redundancy: Replicas | None = None
    """Replicas and state of the job's layout, on which the plan rests."""

    def __post_init__(self) -> None:
        positive(nodes=self.nodes, step_time=self.step_time)
        if not 0 < len(self.blocking) == len(self.background):
            raise BadValue(
                "blocking",
                self.blocking,
                "blocking and background must have one time for each tier",
            )
        for blocking, background in zip(self.blocking, self.background, strict=True):
            not_negative(blocking=blocking, background=background)
        not_negative(rate_scale=self.rate_scale)
        sources: tuple[FailureMode | Domain, ...] = (
            *self.reliability.classes,
            *self.reliability.domains,
        )
        deepest = max(source.tier for source in sources)
        if deepest >= len(self.blocking):
            raise BadValue(
                "tier",
                deepest,
                f"save times are given for {len(self.blocking)} tiers, counted from 0",
            )


def failure_rate(job: Job) -> Numeric:
    """Failures of the job (Lam), Eq. (38) as a rate: N lambda. [1/s]"""
    return job.nodes * (node_rate(job.reliability) * job.rate_scale)


def mean_recovery(job: Job) -> Seconds:
    """Mean recovery time, Eq. (41): sum p_i R_i over all causes, queue included. [s]"""
    sources = sources_of(job.reliability)
    return sum(source.share * mean_of(source.recovery_laws) for source in sources)


def survived(job: Job) -> Ratio:
    """Share of time that is not recovery (phi), failures during recovery included. Ours. [1]"""
    rate = failure_rate(job)
    if not job.reliability.failures_during_recovery:
        return renewal.survived_when_idle(rate, mean_recovery(job))
    return survival_of_recovery(sources_of(job.reliability), rate)


def available(job: Job) -> Ratio:
    """Share of time that enough nodes work; 1 where spares are not limited. [1]"""
    spares = job.reliability.spares
    if spares is None:
        return 1.0
    return spares_availability(failure_rate(job) * job.reliability.repair, spares)


def ettr(job: Job, steps: Count, every: tuple[int, ...] = (1,)) -> Ratio:
    """Exact ETTR of a job that saves every `steps` steps, tier j at each `every[j]`-th save, for
    Eq. (36). [1]

    Waiting for a repaired node is included where spares are limited; initialisation is not (see
    `deadlines.finish_time`).
    """
    if is_planned(job):
        planned = recovery().planned(job)
        unplanned_ettr: Ratio = ettr(planned.job, steps, every) * planned.keeps
        return unplanned_ettr
    if len(job.blocking) == 1:
        return ettr_at(job)(steps)
    return _nested(job, float(steps), every) * available(job)


def is_planned(job: Job) -> bool:
    """Whether a job has a recovery plan, or false alarms of a watchdog: then recovery classes alone
    do not describe its failures.
    """
    hangs = job.reliability.hangs
    return job.plan is not None or (hangs is not None and hangs.pauses > 0)


def recovery() -> ModuleType:
    """The module that prices recovery plans, imported only for jobs that have one."""
    return import_module("mofa_model.reliability.recovery")


def ettr_at(job: Job) -> Callable[[Count], Ratio]:
    """ETTR of a job of one tier as a function of its interval in steps. Ours. [1]"""
    ettr_of_work, share_available = _one_tier(job), available(job)
    return lambda steps: ettr_of_work(steps * job.step_time) * share_available


def one_tier(job: Job, tier: int) -> Job:
    """The job with a single checkpoint tier, which it reads after every failure. Ours. []"""
    reliability = job.reliability
    classes = tuple(replace(mode, tier=0) for mode in reliability.classes)
    domains = tuple(replace(domain, tier=0) for domain in reliability.domains)
    return replace(
        job,
        blocking=(job.blocking[tier],),
        background=(job.background[tier],),
        reliability=replace(
            reliability, tiers=reliability.tiers[tier : tier + 1], classes=classes, domains=domains
        ),
    )


def _one_tier(job: Job) -> Callable[[Seconds], Ratio]:
    """ETTR of a job of one tier as a function of its work between saves. [1]"""
    reliability, rate = job.reliability, failure_rate(job)
    saves = (job.blocking[0], job.background[0], reliability.slowdown)
    if reliability.law.kind == "weibull":
        return lambda work: _any_law(job, float(np.max(rate)), (work, *saves))
    phi = survived(job)
    if reliability.law.kind == "exponential":
        return lambda work: renewal.ettr(rate, phi, work, *saves)

    parts = [
        (
            share * (rate / np.maximum(component_rate, NEVER)),
            component_rate,
            survival_of_recovery(sources_of(job.reliability), component_rate)
            if reliability.failures_during_recovery
            else phi,
        )
        for share, component_rate in components_of(reliability.law, rate)
    ]

    def mixed(work: Seconds) -> Ratio:
        total: Ratio = 0.0
        for weight, component_rate, component_survived in parts:
            total = total + weight * renewal.ettr(component_rate, component_survived, work, *saves)
        return np.where(np.asarray(rate) > 0, total, renewal.ettr(0.0, 1.0, work, *saves))[()]

    return mixed


def _any_law(job: Job, rate: float, saves: tuple[Seconds, Seconds, Seconds, Ratio]) -> Ratio:
    """ETTR of one tier where failures follow any law: sums over the time from restart to failure.
    [1]
    """
    if np.size(job.nodes) > 1 or np.size(job.rate_scale) > 1:
        raise BadValue(
            "nodes", job.nodes, "give one job at a time where failures are not exponential"
        )
    if rate == 0:
        return renewal.ettr(0.0, 1.0, *saves)
    run = _run_after(job, sources_of(job.reliability), rate)
    return renewal.ettr_of_run(run, _cycle(job, rate), *saves)


def _run_after(job: Job, sources: tuple[FailureSource, ...], rate: float) -> Uptime:
    """The run that follows a failure by one of `sources`."""
    rel = job.reliability
    return run_after(sources, rate, rel.law, during_recovery=rel.failures_during_recovery)


def _cycle(job: Job, rate: float) -> float:
    """Mean time from failure to failure. [s]"""
    idle = 0.0 if job.reliability.failures_during_recovery else float(np.max(mean_recovery(job)))
    return 1 / rate + idle


def _tiers_of(job: Job, steps: float, every: tuple[int, ...]) -> Tiers:
    return Tiers(
        work=steps * float(job.step_time),
        every=every,
        blocking=tuple(float(x) for x in job.blocking),
        background=tuple(float(x) for x in job.background),
        slowdown=job.reliability.slowdown,
    )


def _nested(job: Job, steps: float, every: tuple[int, ...]) -> Ratio:
    sources, rate = sources_of(job.reliability), float(failure_rate(job))
    tiers = _tiers_of(job, steps, every)
    if rate == 0:
        return failure_free(tiers)
    failures = []
    for tier in sorted({source.tier for source in sources}):
        readers = tuple(source for source in sources if source.tier == tier)
        share = sum(source.share for source in readers)
        failures.append(Failure(tier=tier, share=share, run=_run_after(job, readers, rate)))
    return tiers_ettr(tiers, tuple(failures), _cycle(job, rate))


def ettr_band(
    job: Job, steps: Count, every: tuple[int, ...] = (1,), *, level: Ratio = LEVEL
) -> Range:
    """ETTR at an interval, with its bounds where the failure rate is uncertain. Ours. [1]"""
    scales = rate_scales(job, level)

    def scaled_ettr(scale: float) -> Ratio:
        return ettr(replace(job, rate_scale=job.rate_scale * scale), steps, every)

    return Range.around(scaled_ettr(1.0), scaled_ettr(scales.upper), scaled_ettr(scales.lower))


def rate_scales(job: Job, level: Ratio = LEVEL) -> Range:
    """Quantiles of the total failure rate over its mean; 1 and 1 for rates that are exactly known.
    Ours. [1]

    The sum of the classes' Gamma posteriors is taken as one Gamma law of the same mean and
    variance, which is exact when all classes were watched for the same time.
    """
    mean = variance = 0.0
    for mode in job.reliability.classes:
        mean += mode.rate.mean
        variance += 0.0 if mode.rate.exactly is not None else mode.rate.mean / mode.rate.exposure
    mean += sum(domain.rate / domain.nodes for domain in job.reliability.domains)
    if variance == 0:
        return Range(lower=1.0, target=1.0, upper=1.0)
    shape = mean * mean / variance
    low, high = (gamma_quantile(shape, end) / shape for end in ((1 - level) / 2, (1 + level) / 2))
    return Range(lower=low, target=1.0, upper=high)


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """ETTR of one interval."""

    steps: int
    """Steps between saves. [1]"""
    seconds: Seconds
    """Work between saves. [s]"""
    ettr: Range
    """ETTR, and its bounds at the ends of the rate's band. [1]"""


def ettr_curve(
    job: Job, steps: int, every: tuple[int, ...], count: int, level: float
) -> list[CurvePoint]:
    """ETTR over `count` intervals from a sixteenth to sixteen times `steps`. Ours. []"""
    intervals = distinct(np.round(np.geomspace(max(1, steps / 16), max(2, steps * 16), count)))
    scales = rate_scales(job, level)

    def values(scale: float) -> list[float]:
        scaled = replace(job, rate_scale=scale)
        if len(every) == 1:
            return [float(x) for x in np.atleast_1d(ettr(scaled, intervals))]
        return [float(ettr(scaled, k, every)) for k in intervals]

    lines = zip(intervals, values(scales.upper), values(1.0), values(scales.lower), strict=True)
    return [
        CurvePoint(
            steps=int(k),
            seconds=float(k * job.step_time),
            ettr=Range(lower=lower, target=middle, upper=upper),
        )
        for k, lower, middle, upper in lines
    ]


def budget(job: Job, steps: float, every: tuple[int, ...] = (1,)) -> dict[str, float]:
    """Shares of all time: training, and what the rest is lost to; they add to one. Eq. (39) by
    cause. [1]

    Recovery and waiting for nodes are exact; failures that are not Poisson count at their mean
    rate. Saves, copies and waits are the failure-free overhead of the running time. What is left is
    work done twice, split over the causes by their share and by how far back each restarts.

    >>> from mofa_model.spec.reliability import Reliability, paper_classes
    >>> job = Job(nodes=2048, step_time=10.0, blocking=(20.0,), background=(0.0,),
    ...           reliability=Reliability(classes=paper_classes(0.005)))
    >>> shares = budget(job, 60)
    >>> round(shares["training"], 3), round(shares["saving"], 3)
    (0.908, 0.031)
    """
    if is_planned(job):
        return _planned_budget(job, steps, every)
    share_available = float(available(job))
    training = float(ettr(job, steps, every))
    tiers = _tiers_of(job, steps, every)
    recovering, running = _recovery(job)
    timeline = walk(tiers)
    saving, waiting, slowed = (
        share_available * running * part / timeline.period for part in timeline.overhead
    )
    recovering = {name: share_available * part for name, part in recovering.items()}
    rest = share_available - training - sum(recovering.values()) - saving - waiting - slowed
    redone = _split(max(0.0, rest), job, tiers)
    return {
        "training": training,
        "waiting for nodes": 1 - share_available,
        "saving": saving,
        "waiting for copies": waiting,
        "slowed by copies": slowed,
        **{f"recovering, {name}": part for name, part in recovering.items()},
        **{f"work redone, {name}": part for name, part in redone.items()},
    }


def _planned_budget(job: Job, steps: float, every: tuple[int, ...]) -> dict[str, float]:
    """The budget of a job under a recovery plan; all failures that take the last replica are one
    cause.
    """
    planned = recovery().planned(job)
    parts = budget(planned.job, steps, every)
    kept = parts["training"] * float(planned.keeps)
    away = {"replicas away": parts["training"] - kept} if planned.keeps < 1 else {}
    shares: dict[str, float] = {"training": kept, **away}
    for name, part in parts.items():
        loss, last = name.partition(", ")[0], name.rpartition(", ")[2]
        merged = f"{loss}, {last}" if last == NO_REPLICA else name
        if name != "training":
            shares[merged] = shares.get(merged, 0.0) + part
    return shares


def _recovery(job: Job) -> tuple[dict[str, float], float]:
    """Share of time in recovery by cause, and the share of all other time. [1]"""
    rate = float(failure_rate(job))
    lost: dict[str, float] = {}
    for source in sources_of(job.reliability):
        if job.reliability.failures_during_recovery:
            undisturbed = 1.0
            for recovery in source.recovery_laws:
                undisturbed *= float(laplace_of(recovery, rate))
            part = source.share * (1 - undisturbed)
        else:
            idle = float(mean_of(source.recovery_laws)) * rate * source.share
            part = idle * float(renewal.survived_when_idle(rate, mean_recovery(job)))
        lost[source.name] = lost.get(source.name, 0.0) + part
    return lost, 1 - sum(lost.values())


def _split(total: float, job: Job, tiers: Tiers) -> dict[str, float]:
    """Share of time of work redone, by cause: proportional to its failures times half its tier's
    interval and the background copy. [1]
    """
    weights: dict[str, float] = {}
    for source in sources_of(job.reliability):
        back = tiers.work * tiers.every[source.tier] / 2 + tiers.background[source.tier]
        weights[source.name] = weights.get(source.name, 0.0) + source.share * back
    weight_sum = max(sum(weights.values()), NEVER)
    return {name: total * weight / weight_sum for name, weight in weights.items()}
