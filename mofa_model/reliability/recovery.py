"""What a recovery plan makes of a job: another job without a plan, for the exact model, and what is
kept beside it.

What stops the whole job is a renewal process, whatever the plan tries first: restarts in place,
spares and peer copies change only which share of failures recovers how, and from where. So these
plans are exact where the model is: Poisson failures are split by chances (thinning), and spares
that are all taken are Erlang's loss, which does not depend on the law of the refill.

Replicas that go on, or a job that shrinks, add replicas that are away. Each of n replicas fails at
the rate l while it is there and is away for A, so it is an alternating renewal process, and they
are independent. All stand still for P after a failure and for G after a return. One replica is

    there, and back for longer than G    p0 = v exp(-l G) / l,   v = l / (1 + l E[A])
    away for longer than P               p1 = v E[(A - P)+]

and training goes on only where each replica is one of both, so with j of n away it is worth

    kept = sum over j of C(n, j) p0^(n-j) p1^j worth(j),    worth(j) = (n - j) / n

which is p0 (p0 + p1)^(n-1): exact for any law of A.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import erfc, exp, isfinite, log, log1p, sqrt
from typing import Final

import numpy as np

from mofa_model.errors import BadValue
from mofa_model.records import dataclass
from mofa_model.reliability import model, renewal
from mofa_model.reliability.interval import MOST_STEPS, Interval, best_ettr, recommend
from mofa_model.reliability.laws import FailureSource, nodes_of_sum, sources_of
from mofa_model.reliability.model import Job
from mofa_model.spec.recovery_classes import RecoveryClass
from mofa_model.spec.recovery_plans import PLANS, Others, RecoveryPlan, Replicas
from mofa_model.spec.reliability import (
    Domain,
    FailureMode,
    FailureRate,
    Hangs,
    RecoveryTime,
    Reliability,
)
from mofa_model.units import Bytes, Count, Ratio, Seconds

_SELDOM: Final = 1e-12
"""A chance that is left out. [1]"""
_NEAR: Final = 0.005
"""Part of its worth by which first order may be wrong, where tiers are nested. [1]"""


@dataclass(frozen=True, kw_only=True)
class RecoveryCost:
    """What a plan costs whether anything fails or not."""

    standing_by: Ratio = 0.0
    """Nodes that stand by, over those of the job. [1]"""
    slower: Ratio = 0.0
    """Relative slowdown of every step. [1]"""
    memory: Bytes = 0.0
    """Main memory of a node that copies take. [B]"""
    traffic: Bytes = 0.0
    """What a node sends to its peers at each save. [B]"""

    @property
    def node_time(self) -> Ratio:
        """Node time for a step over that without a plan. [1]"""
        return (1 + self.standing_by) * (1 + self.slower)


@dataclass(frozen=True, kw_only=True)
class PlannedJob:
    """A job as its plan makes it."""

    job: Job
    """The same job for the exact model: without a plan, its failures as they recover under it."""
    keeps: Ratio
    """Share of its training that replicas which are away, and pauses for them, leave. [1]"""
    upkeep: RecoveryCost


def planned(job: Job) -> PlannedJob:
    """A job under its plan: what stops all of it, and what is kept beside that. Ours. []

    >>> from mofa_model.spec.recovery_plans import plan_of
    >>> from mofa_model.spec.reliability import paper_classes
    >>> job = Job(nodes=1024, step_time=10.0, blocking=(20.0,), background=(0.0,),
    ...           reliability=Reliability(classes=paper_classes()), plan=plan_of("replica"),
    ...           redundancy=Replicas(count=32))
    >>> round(float(planned(job).keeps), 4)
    0.99
    """
    plan, rel, layout = job.plan or PLANS["classes"], job.reliability, _layout(job)
    nodes, upkeep = float(np.max(job.nodes)), cost_of(job)
    rel = replace(rel, hangs=_watched(rel.hangs, plan))
    if plan.whole:
        rel = _restarted(rel)
    if plan.attempts and plan.success:
        rel = replace(rel, classes=tuple(_tried(rel.classes, plan)))
    if plan.spares:
        rate = nodes * float(np.max(job.rate_scale))
        rel = replace(rel, classes=tuple(_replaced(rel, plan, rate)))
    bare = replace(job, plan=None, redundancy=None, reliability=rel)
    if plan.peers:
        bare = _with_peers(bare, plan, layout)
    count = int(min(float(np.max(layout.count)), nodes))
    kept: Ratio = 1.0
    if plan.others is not Others.STOP and count > 1:
        bare, kept, moving = _by_replicas(bare, plan, layout, count)
        # Steps take longer while replicas are away, and saves while all stand still for one.
        bare = replace(
            bare,
            step_time=bare.step_time / kept,
            blocking=tuple(one / moving for one in bare.blocking),
        )
    return PlannedJob(job=_alarmed(bare), keeps=kept, upkeep=upkeep)


def _layout(job: Job) -> Replicas:
    return job.redundancy or Replicas()


def cost_of(job: Job) -> RecoveryCost:
    """What a job's plan costs. Ours. []"""
    plan, layout = job.plan or PLANS["classes"], _layout(job)
    standing_by = plan.spares * layout.unit / (plan.jobs * job.nodes)
    # Its own copy, and that of the node whose state it holds.
    memory, traffic = (2 * layout.state, layout.state) if plan.peers else (0.0, 0.0)
    return RecoveryCost(standing_by=standing_by, slower=plan.slower, memory=memory, traffic=traffic)


@dataclass(frozen=True, kw_only=True)
class PlanOutcome:
    """What one plan gives a job."""

    plan: RecoveryPlan
    advised: Interval
    """Its best interval, and its ETTR there."""
    upkeep: RecoveryCost

    @property
    def worth(self) -> Ratio:
        """Training that stays, over the node time that is paid. [1]"""
        return self.advised.ettr / self.upkeep.node_time


def outcomes(
    job: Job, plans: Iterable[RecoveryPlan], *, most: int = int(MOST_STEPS)
) -> list[PlanOutcome]:
    """Each plan at its best interval on the exact model, the one that is worth most first. Ours. []

    >>> from mofa_model.spec.recovery_plans import choices
    >>> from mofa_model.spec.reliability import paper_classes
    >>> job = Job(nodes=12500, step_time=10.0, blocking=(20.0,), background=(0.0,),
    ...           reliability=Reliability(classes=paper_classes()), redundancy=Replicas(count=64))
    >>> outcomes(job, [one for one in choices() if not one.peers])[0].plan.name
    'in-place+replica'
    """
    found = []
    for plan in plans:
        under = replace(job, plan=plan)
        best = recommend(under, most=most)
        found.append(PlanOutcome(plan=plan, advised=best, upkeep=cost_of(under)))
    return sorted(found, key=lambda one: -float(one.worth))


def best_outcome(job: Job, plans: Iterable[RecoveryPlan], most: int) -> PlanOutcome:
    """The plan that is worth most: all are compared to first order, those near the best one on the
    exact model. Ours. []
    """
    first = [(float(worth_of(job, plan, most)), plan) for plan in plans]
    least = max(worth for worth, _ in first) * (1 - _NEAR)
    return outcomes(job, [plan for worth, plan in first if worth >= least], most=most)[0]


def worth_of(job: Job, plan: RecoveryPlan, most: Count = MOST_STEPS) -> Ratio:
    """ETTR of strategies under a plan, each at its best interval, over the node time that is paid;
    arrays of step and save times, one number of replicas. Ours. [1]
    """
    under = replace(job, plan=plan)
    found: Ratio = best_ettr(under, most) / cost_of(under).node_time
    return found


def is_possible(plan: RecoveryPlan, of_layout: Replicas, nodes: float) -> bool:
    """Whether a layout can have a plan: replicas that go on need others, copies need room."""
    if plan.others is not Others.STOP and min(float(of_layout.count), nodes) < 2:
        return False
    room = 2 * float(np.max(of_layout.state)) <= float(of_layout.host_memory)
    return not plan.peers or (room and nodes >= plan.peers)


def none_stands_by(load: Ratio, spares: int) -> Ratio:
    """Chance that all spares are taken: Erlang's B. Source: Erlang 1917. [1]

    `load` is failures that take a spare times the time until it is refilled [1].

    >>> round(float(none_stands_by(1.0, 2)), 6)
    0.2
    """
    return 1 - model.spares_availability(load, spares - 1) if spares else load * 0.0 + 1.0


def outlasts(recovery_time: RecoveryTime, time: Seconds) -> float:
    """Chance that a random time is longer than another. Source: survival functions. [1]

    >>> round(outlasts(RecoveryTime(mean=300.0, law="exponential"), 300.0), 6)
    0.367879
    """
    mean, time = float(recovery_time.mean), float(time)
    if mean == 0 or not isfinite(time):
        return 0.0
    if recovery_time.law == "exponential":
        return exp(-time / mean)
    if recovery_time.law == "deterministic" or recovery_time.cv == 0:
        return float(mean > time)
    spread = sqrt(log1p(recovery_time.cv * recovery_time.cv))
    return erfc((log(max(time, 1e-300) / mean) + spread * spread / 2) / (spread * sqrt(2))) / 2


def _keeps_pods(name: str) -> bool:
    return name.partition(",")[0] in {one.value for one in RecoveryClass if one.keeps_pods}


def stops_job(name: str) -> bool:
    """Whether failures of a class start the whole job again."""
    return name.partition(",")[0] == RecoveryClass.JOB.value


def needs_node(name: str) -> bool:
    """Whether failures of a class take a node away."""
    return not _keeps_pods(name) and not stops_job(name)


def _scaled(rate: FailureRate, part: float) -> FailureRate:
    """A part of a rate; the parts' posteriors add to the whole's. Source: Poisson thinning."""
    if rate.exactly is not None or part == 0:
        return FailureRate(failures=0.0, exposure=1.0, exactly=rate.mean * part)
    return replace(rate, failures=rate.failures * part)


def _fixed(time: Seconds) -> RecoveryTime:
    return RecoveryTime(mean=float(time), law="deterministic")


def _watched(hangs: Hangs | None, plan: RecoveryPlan) -> Hangs | None:
    """Hangs with a watchdog that ends them sooner."""
    if hangs is None or plan.watchdog >= hangs.timeout:
        return hangs
    return replace(hangs, timeout=plan.watchdog)


def _alarmed(job: Job) -> Job:
    """The job with its false alarms as failures: pauses that outlast the timeout."""
    hangs = job.reliability.hangs
    if hangs is None or not hangs.pauses:
        return job
    longest = max(float(np.max(one)) for one in job.blocking)
    if hangs.timeout <= longest:
        raise BadValue(
            "watchdog", hangs.timeout, f"no save ends before it; give above {longest:g} s"
        )
    alarms = hangs.pauses * outlasts(hangs.pause, hangs.timeout)
    process = [c for c in job.reliability.classes if _keeps_pods(c.name)] or [
        min(job.reliability.classes, key=lambda c: c.recovery.mean)
    ]
    false = replace(
        process[0],
        name="false alarm",
        rate=FailureRate(
            failures=0.0,
            exposure=1.0,
            exactly=alarms / float(np.max(job.nodes)) / max(float(np.max(job.rate_scale)), 1e-300),
        ),
        wait=_fixed(hangs.timeout),
    )
    # Hangs are split off first: a false alarm is no hang.
    classes = tuple(_hung_apart(job.reliability.classes, hangs))
    domains = job.reliability.domains
    if domains and hangs.share:
        hangs = replace(hangs, pauses=0.0)
        raise BadValue("domains", len(domains), "leave them out where pauses are told apart")
    return replace(
        job,
        reliability=replace(job.reliability, classes=(*classes, false), hangs=None),
    )


def _hung_apart(classes: Iterable[FailureMode], hangs: Hangs) -> Iterable[FailureMode]:
    for one in classes:
        if hangs.share < 1:
            yield replace(one, rate=_scaled(one.rate, 1 - hangs.share))
        if hangs.share > 0:
            before = 0.0 if one.wait is None else one.wait.mean
            yield replace(
                one,
                name=f"{one.name}, hung",
                rate=_scaled(one.rate, hangs.share),
                wait=_fixed(hangs.timeout + before),
            )


def _restarted(rel: Reliability) -> Reliability:
    """The job in which every failure is recovered by starting the whole job again."""
    job = next(
        (c for c in rel.classes if stops_job(c.name)),
        max(rel.classes, key=lambda c: c.recovery.mean),
    )
    deepest = max(c.tier for c in rel.classes)
    classes = (
        replace(c, recovery=job.recovery, queues=job.queues, tier=deepest) for c in rel.classes
    )
    return replace(rel, classes=tuple(classes))


def attempt_time(plan: RecoveryPlan, modes: Iterable[FailureMode]) -> float:
    """Time of a restart in place: the plan's, or that of the class whose pods stay. Ours. [s]

    >>> from mofa_model.spec.reliability import paper_classes
    >>> attempt_time(PLANS["in-place"], paper_classes()), attempt_time(PLANS["retry"], ())
    (141.0, 660.0)
    """
    if plan.attempt is not None:
        return plan.attempt
    own = (float(one.recovery.mean) for one in modes if _keeps_pods(one.name))
    return next(own, RecoveryClass.PROCESS.seconds)


def _tried(classes: Iterable[FailureMode], plan: RecoveryPlan) -> Iterable[FailureMode]:
    """Failures split by the restart in place that mends them, and the rest that needs new pods."""
    classes = tuple(classes)
    each = attempt_time(plan, classes)
    for one in classes:
        if not needs_node(one.name):
            yield one
            continue
        left = 1.0
        for number in range(plan.attempts):
            mended = FailureMode(
                name=f"{RecoveryClass.PROCESS.value}, in place of {one.name}",
                rate=_scaled(one.rate, left * plan.success),
                recovery=_fixed(each * (number + 1)),
                tier=0,
            )
            yield mended
            left *= 1 - plan.success
        if left > _SELDOM:
            yield replace(one, rate=_scaled(one.rate, left), wait=_fixed(plan.attempts * each))


def _replaced(rel: Reliability, plan: RecoveryPlan, nodes: float) -> Iterable[FailureMode]:
    """Failures that take a spare, and those that find none and recover as their class does."""
    taking = nodes * sum(c.rate.mean for c in rel.classes if needs_node(c.name))
    none_left = float(none_stands_by(taking * plan.jobs * plan.refill, plan.spares))
    for one in rel.classes:
        if not needs_node(one.name):
            yield one
            continue
        yield replace(
            one,
            name=f"{one.name}, by a spare",
            rate=_scaled(one.rate, 1 - none_left),
            recovery=_fixed(plan.takeover),
            queues=False,
        )
        if none_left > _SELDOM:
            yield replace(one, rate=_scaled(one.rate, none_left))


def _with_peers(job: Job, plan: RecoveryPlan, of_layout: Replicas) -> Job:
    """The job with a tier of copies in the main memory of peers, the nearest one."""
    rel, nodes = job.reliability, float(np.max(job.nodes))
    blocking = of_layout.state / of_layout.snapshot
    background = of_layout.state / min(plan.peer_bandwidth, of_layout.link)
    lost = _pairs(job, plan, float(np.max(blocking)), float(np.max(background)))

    def kept(tier: int, nodes_of_it: float) -> int:
        return 0 if nodes_of_it * plan.peers <= nodes else tier + 1

    classes: list[FailureMode] = []
    for one in rel.classes:
        if stops_job(one.name) or nodes < plan.peers:
            classes.append(replace(one, tier=one.tier + 1))
            continue
        gone = 0.0 if _keeps_pods(one.name) else lost
        classes.append(replace(one, rate=_scaled(one.rate, 1 - gone), tier=0))
        if gone > _SELDOM:
            classes.append(
                replace(
                    one,
                    name=f"{one.name}, two of a group",
                    rate=_scaled(one.rate, gone),
                    tier=one.tier + 1,
                )
            )
    domains: tuple[Domain, ...] = tuple(replace(d, tier=kept(d.tier, d.nodes)) for d in rel.domains)
    return replace(
        job,
        blocking=(blocking, *job.blocking),
        background=(background, *job.background),
        reliability=replace(rel, classes=tuple(classes), domains=domains, tiers=()),
    )


def _pairs(job: Job, plan: RecoveryPlan, blocking: float, background: float) -> float:
    """Chance that a failure hits the group of the one before, before its copies are whole again:
    (1 - exp(-Lam window)) (g - 1) / (N - 1). Ours. [1]
    """
    rate, nodes = float(np.max(model.failure_rate(job))), float(np.max(job.nodes))
    if nodes < 2 or rate == 0:
        return 1.0 if nodes < 2 else 0.0
    between = float(renewal.best_work(rate, blocking, background, job.reliability.slowdown))
    window = float(model.mean_recovery(job)) + between + blocking + background
    return -float(np.expm1(-rate * window)) * (plan.peers - 1) / (nodes - 1)


def _by_replicas(
    job: Job, plan: RecoveryPlan, of_layout: Replicas, count: int
) -> tuple[Job, Ratio, Ratio]:
    """What stops the whole job where replicas fail alone, what is kept of the others, and the share
    of time in which they do not stand still.
    """
    rel, nodes = job.reliability, float(np.max(job.nodes))
    each = nodes / count
    alone = tuple(c for c in rel.classes if not stops_job(c.name))
    small = tuple(d for d in rel.domains if d.nodes <= each)
    if not alone and not small:
        return job, 1.0, 1.0
    sources = sources_of(
        replace(rel, classes=alone or rel.classes[:1], domains=small)
        if alone
        else replace(
            rel,
            classes=(replace(rel.classes[0], rate=_scaled(rel.classes[0].rate, 0)),),
            domains=small,
        )
    )
    total = (sum(c.rate.mean for c in alone) + sum(d.rate / d.nodes for d in small)) * float(
        np.max(job.rate_scale)
    )
    fails = nodes * total / count
    if fails == 0:
        return job, 1.0, 1.0
    stall = plan.stall + (float(np.max(job.step_time)) / 2 if plan.others is Others.GO_ON else 0.0)
    timeout = 0.0 if rel.hangs is None else float(rel.hangs.timeout)
    away = _Away.of(sources, fails, stall, plan.rejoin, timeout)
    none_left = away.there * (1 - away.there) ** (count - 1)
    whole = tuple(c for c in rel.classes if stops_job(c.name))
    large = tuple(d for d in rel.domains if d.nodes > each)
    last = tuple(
        replace(c, name=f"{c.name}, {model.NO_REPLICA}", rate=_scaled(c.rate, none_left))
        for c in alone
    )
    if plan.others is Others.GO_ON:
        moving = (away.p0 + away.p1) ** count
        kept: Ratio = away.p0 * (away.p0 + away.p1) ** (count - 1)
        if plan.keeps_batch:
            kept = away.kept_batch(count, of_layout)
        stopping = (*whole, *last)
        hangs = rel.hangs
    else:
        cut = tuple(
            replace(
                c,
                rate=_scaled(c.rate, 1 - none_left),
                recovery=_fixed(plan.stall),
                queues=False,
                wait=None,
            )
            for c in alone
        )
        present = away.there / (away.there + away.p1)
        moving = exp(-count * away.grows * plan.rejoin)
        kept = present * moving
        stopping = (*cut, *whole, *last)
        large, hangs = rel.domains, rel.hangs
    rel = replace(
        rel,
        classes=tuple(replace(c, rate=_scaled(c.rate, away.there)) for c in stopping),
        domains=large,
        hangs=hangs,
    )
    return replace(job, reliability=rel), kept, moving


@dataclass(frozen=True, kw_only=True)
class _Away:
    """How one replica comes and goes."""

    there: float
    """Share of time that it is there. [1]"""
    p0: float
    """Share of time that it is there, and nobody stands still for its return. [1]"""
    p1: float
    """Share of time that it is away, and nobody stands still for its loss. [1]"""
    grows: float
    """Returns after the others went on without it. [1/s]"""

    @classmethod
    def of(
        cls,
        sources: tuple[FailureSource, ...],
        fails: float,
        stall: float,
        rejoin: float,
        timeout: float,
    ) -> _Away:
        """The law of replicas of which each fails at a rate [1/s]."""
        away, longer, returns = 0.0, 0.0, 0.0
        for source in sources:
            times, weights = nodes_of_sum(source.recovery_laws)
            still = float(stall) + (timeout if source.name.endswith(", hung") else 0.0)
            beyond = float(np.sum(weights * np.maximum(times - still, 0.0)))
            away += source.share * (still + beyond)
            longer += source.share * beyond
            returns += source.share * float(np.sum(weights * (times > still)))
        often = fails / (1 + fails * away)
        return cls(
            there=1 / (1 + fails * away),
            p0=often * exp(-fails * rejoin) / fails,
            p1=often * longer,
            grows=often * returns,
        )

    def kept_batch(self, count: int, of_layout: Replicas) -> Ratio:
        """What is kept where the others do the micro-batches of those that are away. Ours. [1]"""
        micro, stages = of_layout.micro_batches, of_layout.stages
        total: Ratio = 0.0
        chance = self.p0**count
        for gone in range(count):
            left = count - gone
            if np.all(np.isfinite(micro)):
                each = np.ceil(np.asarray(micro, dtype=float) * count / left)
                worth: Ratio = (micro + stages - 1) / (each + stages - 1)
            else:
                worth = left / count
            total = total + chance * worth
            chance *= left / (gone + 1) * self.p1 / self.p0
            if chance < _SELDOM and gone > count * self.p1:
                break
        return total
