"""What the time that is not training is lost to; the shares add to one.

Recovery and waiting for nodes are exact (for failures that are not Poisson, at their mean rate). Saves, copies and waits
are the failure-free overhead of the running time. What is left is work done twice, split over the causes by their share
and by how far back each restarts.
"""

from __future__ import annotations

from dataclasses import dataclass

from mofa_model.reliability import model, renewal
from mofa_model.reliability.model import Job
from mofa_model.reliability.recovery import NEVER, laplace_of, mean_of
from mofa_model.reliability.timeline import Tiers, walk


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """Shares of wall time."""

    training: float
    """ETTR: work that stays. [1]"""
    waiting_for_nodes: float
    """Fewer nodes than the job needs. [1]"""
    saving: float
    """Blocked by saves. [1]"""
    waiting_for_copies: float
    """A due save waits for the last copy. [1]"""
    slowed_by_copies: float
    """Steps slowed while a copy is in flight. [1]"""
    recovering: dict[str, float]
    """Recovery, by cause. [1]"""
    redoing: dict[str, float]
    """Work done again, by cause. [1]"""


def budget(job: Job, steps: float, every: tuple[int, ...] = (1,)) -> Budget:
    """Shares of wall time of one job at an interval, Eq. (39) by cause. [1]

    >>> from mofa_model.spec.reliability import Reliability, paper_classes
    >>> job = Job(nodes=2048, step_time=10.0, blocking=(20.0,), background=(0.0,),
    ...           reliability=Reliability(classes=paper_classes(0.005)))
    >>> found = budget(job, 60)
    >>> round(found.training, 3), round(found.saving, 3), round(sum(found.redoing.values()), 3)
    (0.908, 0.031, 0.034)
    """
    there = float(model.available(job))
    training = float(model.ettr(job, steps, every))
    work = steps * float(job.step_time)
    tiers = Tiers(
        work=work,
        every=every,
        blocking=tuple(float(x) for x in job.blocking),
        background=tuple(float(x) for x in job.background),
        slowdown=job.reliability.slowdown,
    )
    recovering, running = _recovery(job)
    line = walk(tiers)
    saving, waiting, slowed = (there * running * part / line.period for part in line.overhead)
    recovering = {name: there * part for name, part in recovering.items()}
    rest = there - training - sum(recovering.values()) - saving - waiting - slowed
    return Budget(
        training=training,
        waiting_for_nodes=1 - there,
        saving=saving,
        waiting_for_copies=waiting,
        slowed_by_copies=slowed,
        recovering=recovering,
        redoing=_split(max(0.0, rest), job, tiers),
    )


def _recovery(job: Job) -> tuple[dict[str, float], float]:
    """Share of time in recovery by cause, and the rest. [1]"""
    rate = float(model.failure_rate(job))
    lost: dict[str, float] = {}
    for source in model.sources(job):
        if job.reliability.failures_during_recovery:
            alone = 1.0
            for recovery in source.recoveries:
                alone *= float(laplace_of(recovery, rate))
            part = source.share * (1 - alone)
        else:
            idle = float(mean_of(source.recoveries)) * rate * source.share
            part = idle * float(renewal.survived_when_idle(rate, model.mean_recovery(job)))
        lost[source.name] = lost.get(source.name, 0.0) + part
    return lost, 1 - sum(lost.values())


def _split(total: float, job: Job, tiers: Tiers) -> dict[str, float]:
    """Work done again, by cause: its failures times half its tier's interval and the copy's lag. [1]"""
    weights: dict[str, float] = {}
    for source in model.sources(job):
        back = tiers.work * tiers.every[source.tier] / 2 + tiers.background[source.tier]
        weights[source.name] = weights.get(source.name, 0.0) + source.share * back
    whole = max(sum(weights.values()), NEVER)
    return {name: total * weight / whole for name, weight in weights.items()}
