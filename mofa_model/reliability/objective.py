"""The end-to-end objective: expected time to finish, with its band, cheap enough for every survivor of a search.

    days = steps x step time / ETTR(strategy, interval)

For one tier and Poisson failures the interval is the exact closed form. For nested tiers each tier gets its own exact
interval for the share of failures that read it, and ETTR is the product of the tiers' own; that orders strategies to
about 0.2 points, and the few that are shown are priced again by `interval.recommend` on the exact model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mofa_model.reliability import model, renewal
from mofa_model.reliability.gamma import gamma_quantile
from mofa_model.reliability.interval import MOST_STEPS, best_steps
from mofa_model.reliability.model import Job
from mofa_model.reliability.rates import LEVEL
from mofa_model.reliability.recovery import NEVER
from mofa_model.spec.reliability import Reliability
from mofa_model.units import Count, Numeric, Range, Ratio, Seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpointing:
    """The best interval of each strategy and what it gives. Arrays over strategies."""

    steps: Count
    """Steps between saves of the nearest tier."""
    ettr: Ratio
    """ETTR at the mean rate. [1]"""


def best_checkpointing(
    nodes: Count,
    step_time: Seconds,
    blocking: tuple[Numeric, ...],
    background: tuple[Numeric, ...],
    reliability: Reliability,
    *,
    most: Count = MOST_STEPS,
) -> Checkpointing:
    """Best interval and ETTR of strategies, arrays throughout. Ours. []

    `nodes`, `step_time` [s] and each entry of `blocking` and `background` [s], one entry a tier, are scalars or arrays.

    >>> from mofa_model.spec.reliability import paper_classes
    >>> found = best_checkpointing(np.array([32, 240]), 27.99, (2.0,), (0.0,), Reliability(classes=paper_classes(0.01)))
    >>> found.steps
    array([37., 14.])
    """
    job = Job(
        nodes=nodes,
        step_time=step_time,
        blocking=blocking,
        background=background,
        reliability=reliability,
    )
    return _best(job, most)


def finish_time(steps: Count, step_time: Seconds, ettr: Ratio, start: Seconds = 0.0) -> Seconds:
    """Expected wall time of a run: S t / ETTR + T_init; infinite where nothing gets done. Eqs. (37), (43). [s]

    >>> float(finish_time(1000, 2.0, 0.8))
    2500.0
    """
    done = np.maximum(ettr, NEVER)
    with np.errstate(over="ignore"):
        return np.where(np.asarray(ettr) > 0, steps * step_time / done, np.inf)[()] + start


def ettr_band(
    job: Job, interval: Count, every: tuple[int, ...] = (1,), *, level: Ratio = LEVEL
) -> Range:
    """ETTR at an interval, with the band that the rate's uncertainty leaves: ETTR falls with the rate. Ours. [1]"""
    low, high = rate_scales(job, level)

    def at(scale: float) -> Ratio:
        return model.ettr(replace(job, rate_scale=job.rate_scale * scale), interval, every)

    return Range.around(at(1.0), at(high), at(low))


def rate_scales(job: Job, level: Ratio = LEVEL) -> tuple[float, float]:
    """Quantiles of the total failure rate over its mean; 1 and 1 for rates taken as known. Ours. [1]

    The sum of the classes' Gamma posteriors is taken as one Gamma of the same mean and variance: exact when all classes
    were watched for the same time. Shares do not depend on the number of nodes unless domains fail too.
    """
    mean = variance = 0.0
    for c in job.reliability.classes:
        mean += c.rate.mean
        variance += 0.0 if c.rate.exactly is not None else c.rate.mean / c.rate.exposure
    mean += sum(d.rate / d.nodes for d in job.reliability.domains)
    if variance == 0:
        return 1.0, 1.0
    shape = mean * mean / variance
    low, high = (gamma_quantile(shape, end) / shape for end in ((1 - level) / 2, (1 + level) / 2))
    return low, high


def _best(job: Job, most: Count) -> Checkpointing:
    rate, eps = model.failure_rate(job), job.reliability.slowdown
    first = _tier_rate(job, 0)
    steps = best_steps(first, job.step_time, job.blocking[0], job.background[0], eps, most=most)
    return Checkpointing(steps=steps + 0.0 * rate, ettr=_at(job, steps))


def _at(job: Job, steps: Count) -> Ratio:
    """ETTR with `steps` for the nearest tier and the other tiers at their own best. [1]

    Weibull failures have no form for arrays of jobs; there they count as Poisson, which is lower by a point or so.
    """
    law = job.reliability.law
    if law.kind == "weibull" and np.ndim(model.failure_rate(job) * steps):
        job = replace(
            job, reliability=replace(job.reliability, law=replace(law, kind="exponential"))
        )
    if len(job.blocking) == 1:
        return model.ettr(job, steps)
    eps, total = job.reliability.slowdown, model.survived(job)
    work = steps * job.step_time
    for tier, (blocking, background) in enumerate(zip(job.blocking, job.background, strict=True)):
        rate = _tier_rate(job, tier)
        if tier:
            work = np.maximum(work, renewal.best_work(rate, blocking, background, eps))
        total = total * renewal.ettr(rate, 1.0, work, blocking, background, eps)
    return total * model.available(job)


def _tier_rate(job: Job, tier: int) -> Numeric:
    """Failures of the job that read a tier; all where there is one tier. [1/s]"""
    share = sum(s.share for s in model.sources(job) if s.tier == tier or len(job.blocking) == 1)
    return model.failure_rate(job) * share
