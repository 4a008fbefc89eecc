"""A job under a recovery plan, as the exact model prices it: another job without a plan, and the
share of its training that is kept.

The stops of the whole job are a renewal process, whatever the plan tries first: restarts in place,
spares and peer copies change only which share of failures recovers how, and from where. So such
plans are exact where the model is. Poisson failures are split by chances (thinning); the chance
that all spares are taken is Erlang's loss, which does not depend on the law of the refill.

Where other replicas go on, or a job shrinks, some replicas are away. Each of n replicas fails at
the rate l while it is there and is then away for A. That is an alternating renewal process, and the
replicas are independent. All stand still for P after a failure and for G after a return. Shares of
time in which one replica is
    there, and back for longer than G    p0 = v exp(-l G) / l,   v = l / (1 + l E[A])
    away for longer than P               p1 = v E[(A - P)+]

and training goes on only while each replica is one of both. With j of n away it is worth

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
from mofa_model.reliability.laws import FailureSource, node_rate, nodes_of_sum, sources_of
from mofa_model.reliability.model import Job
from mofa_model.spec.recovery_classes import RecoveryClass
from mofa_model.spec.recovery_plans import PLANS, Others, RecoveryPlan, Replicas
from mofa_model.spec.reliability import FailureMode, FailureRate, Hangs, RecoveryTime, Reliability
from mofa_model.units import Bytes, Count, Ratio, Seconds

_SELDOM: Final = 1e-12
"""Chance below which a case is left out. [1]"""
_NEAR: Final = 0.005
"""Most error of a plan's worth to first order, over that worth, where tiers are nested. [1]"""


@dataclass(frozen=True, kw_only=True)
class RecoveryCost:
    """Costs of a plan that are paid whether anything fails or not."""

    standing_by: Ratio = 0.0
    """Nodes that stand by, over those of the job. [1]"""
    slower: Ratio = 0.0
    """Relative slowdown of every step. [1]"""
    memory: Bytes = 0.0
    """Main memory of a node that copies take. [B]"""
    traffic: Bytes = 0.0
    """Bytes that a node sends to its peers at each save. [B]"""

    @property
    def node_time(self) -> Ratio:
        """Node time of a step, over that of a step without a plan. [1]"""
        return (1 + self.standing_by) * (1 + self.slower)


@dataclass(frozen=True, kw_only=True)
class PlannedJob:
    """A job under its plan, in the terms of the exact model."""

    job: Job
    """The same job without a plan; its failures recover as they do under the plan."""
    keeps: Ratio
    """Share of its training that is kept while replicas are away or all wait for one. [1]"""
    upkeep: RecoveryCost


def planned(job: Job) -> PlannedJob:
    """A job under its plan, for the exact model. Ours. []

    >>> from mofa_model.spec.recovery_plans import plan_of
    >>> from mofa_model.spec.reliability import paper_classes
    >>> job = Job(nodes=1024, step_time=10.0, blocking=(20.0,), background=(0.0,),
    ...           reliability=Reliability(classes=paper_classes()), plan=plan_of("replica"),
    ...           redundancy=Replicas(count=32))
    >>> round(float(planned(job).keeps), 4)
    0.99
    """
    plan, layout = job.plan or PLANS["classes"], job.redundancy or Replicas()
    reliability, nodes, upkeep = job.reliability, float(np.max(job.nodes)), cost_of(job)
    hangs = reliability.hangs
    if hangs is not None and plan.watchdog < hangs.timeout:
        reliability = replace(reliability, hangs=replace(hangs, timeout=plan.watchdog))
    if plan.whole:
        reliability = _restarted(reliability)
    if plan.attempts and plan.success:
        classes = tuple(_restarted_in_place(reliability.classes, plan))
        reliability = replace(reliability, classes=classes)
    if plan.spares:
        rate = nodes * float(np.max(job.rate_scale))
        reliability = replace(reliability, classes=tuple(_replaced(reliability, plan, rate)))
    unplanned = replace(job, plan=None, redundancy=None, reliability=reliability)
    if plan.peers:
        unplanned = _with_peers(unplanned, plan, layout)
    count = int(min(float(np.max(layout.count)), nodes))
    kept: Ratio = 1.0
    if plan.others is not Others.STOP and count > 1:
        unplanned, kept, moving = _by_replicas(unplanned, plan, layout, count)
        # Steps take longer while replicas are away, and saves while all stand still for one.
        unplanned = replace(
            unplanned,
            step_time=unplanned.step_time / kept,
            blocking=tuple(blocking / moving for blocking in unplanned.blocking),
        )
    return PlannedJob(job=_alarmed(unplanned), keeps=kept, upkeep=upkeep)


def cost_of(job: Job) -> RecoveryCost:
    """Costs of a job's plan. Ours. []"""
    plan, layout = job.plan or PLANS["classes"], job.redundancy or Replicas()
    standing_by = plan.spares * layout.unit / (plan.jobs * job.nodes)
    # Each node holds a copy of its own state, and one of a peer's.
    memory, traffic = (2 * layout.state, layout.state) if plan.peers else (0.0, 0.0)
    return RecoveryCost(standing_by=standing_by, slower=plan.slower, memory=memory, traffic=traffic)


@dataclass(frozen=True, kw_only=True)
class PlanOutcome:
    """A job under one plan: its best interval, its ETTR and its costs."""

    plan: RecoveryPlan
    advised: Interval
    """Its best interval, and its ETTR there."""
    upkeep: RecoveryCost

    @property
    def worth(self) -> Ratio:
        """ETTR over the node time that is paid. [1]"""
        return self.advised.ettr / self.upkeep.node_time


def outcomes(
    job: Job, plans: Iterable[RecoveryPlan], *, most: int = int(MOST_STEPS)
) -> list[PlanOutcome]:
    """Each plan at its best interval on the exact model; the plan of most worth comes first. Ours.
    []

    >>> from mofa_model.spec.recovery_plans import choices
    >>> from mofa_model.spec.reliability import paper_classes
    >>> job = Job(nodes=12500, step_time=10.0, blocking=(20.0,), background=(0.0,),
    ...           reliability=Reliability(classes=paper_classes()), redundancy=Replicas(count=64))
    >>> outcomes(job, [plan for plan in choices() if not plan.peers])[0].plan.name
    'in-place+replica'
    """
    results = []
    for plan in plans:
        planned_job = replace(job, plan=plan)
        interval = recommend(planned_job, most=most)
        results.append(PlanOutcome(plan=plan, advised=interval, upkeep=cost_of(planned_job)))
    return sorted(results, key=lambda outcome: -float(outcome.worth))


def best_outcome(job: Job, plans: Iterable[RecoveryPlan], most: int) -> PlanOutcome:
    """The plan of most worth: all are compared to first order, then those near the best one on the
    exact model. Ours. []
    """
    by_worth = [(float(worth_of(job, plan, most)), plan) for plan in plans]
    least = max(worth for worth, _ in by_worth) * (1 - _NEAR)
    return outcomes(job, [plan for worth, plan in by_worth if worth >= least], most=most)[0]


def worth_of(job: Job, plan: RecoveryPlan, most: Count = MOST_STEPS) -> Ratio:
    """ETTR over the node time that is paid, to first order, of strategies under a plan, each at its
    best interval. `job` holds arrays of step and save times, and one number of replicas. Ours. [1]
    """
    planned_job = replace(job, plan=plan)
    worth: Ratio = best_ettr(planned_job, most) / cost_of(planned_job).node_time
    return worth


def is_possible(plan: RecoveryPlan, of_layout: Replicas, nodes: float) -> bool:
    """Whether a plan is possible in a layout: replicas that go on need a second one, and copies in
    the memory of peers need room there.
    """
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
    return name.partition(",")[0] in {
        recovery_class.value for recovery_class in RecoveryClass if recovery_class.keeps_pods
    }


def stops_job(name: str) -> bool:
    """Whether failures of a class start the whole job again."""
    return name.partition(",")[0] == RecoveryClass.JOB.value


def needs_node(name: str) -> bool:
    """Whether failures of a class take a node away."""
    return not _keeps_pods(name) and not stops_job(name)


def _fixed(time: Seconds) -> RecoveryTime:
    return RecoveryTime(mean=float(time), law="deterministic")


def _alarmed(job: Job) -> Job:
    """The job with false alarms as one more class of failures: pauses that outlast the watchdog."""
    hangs = job.reliability.hangs
    if hangs is None or not hangs.pauses:
        return job
    longest = max(float(np.max(blocking)) for blocking in job.blocking)
    if hangs.timeout <= longest:
        raise BadValue(
            "watchdog", hangs.timeout, f"no save ends before it; give above {longest:g} s"
        )
    alarms = hangs.pauses * outlasts(hangs.pause, hangs.timeout)
    process = next(
        (mode for mode in job.reliability.classes if _keeps_pods(mode.name)),
        min(job.reliability.classes, key=lambda mode: mode.recovery.mean),
    )
    false_alarm = replace(
        process,
        name="false alarm",
        rate=FailureRate(
            failures=0.0,
            exposure=1.0,
            exactly=alarms / float(np.max(job.nodes)) / max(float(np.max(job.rate_scale)), 1e-300),
        ),
        wait=_fixed(hangs.timeout),
    )
    if (domains := job.reliability.domains) and hangs.share:
        raise BadValue("domains", len(domains), "leave them out where pauses are told apart")
    # Hangs are split off before the false alarm joins the classes, because it is no hang.
    classes = (*_hung_apart(job.reliability.classes, hangs), false_alarm)
    return replace(job, reliability=replace(job.reliability, classes=classes, hangs=None))


def _hung_apart(classes: Iterable[FailureMode], hangs: Hangs) -> Iterable[FailureMode]:
    """Each class split in two: failures that end processes, and hangs. Source: Poisson thinning."""
    for mode in classes:
        if hangs.share < 1:
            yield replace(mode, rate=mode.rate.scaled(1 - hangs.share))
        if hangs.share > 0:
            before = 0.0 if mode.wait is None else mode.wait.mean
            yield replace(
                mode,
                name=f"{mode.name}, hung",
                rate=mode.rate.scaled(hangs.share),
                wait=_fixed(hangs.timeout + before),
            )


def _restarted(reliability: Reliability) -> Reliability:
    """The reliability of a job that every failure starts again as a whole."""
    restart = next(
        (mode for mode in reliability.classes if stops_job(mode.name)),
        max(reliability.classes, key=lambda mode: mode.recovery.mean),
    )
    deepest = max(mode.tier for mode in reliability.classes)
    classes = (
        replace(mode, recovery=restart.recovery, queues=restart.queues, tier=deepest)
        for mode in reliability.classes
    )
    return replace(reliability, classes=tuple(classes))


def attempt_time(plan: RecoveryPlan, modes: Iterable[FailureMode]) -> float:
    """Time of a restart in place: the plan's, or else the recovery time of the class whose pods
    stay. Ours. [s]

    >>> from mofa_model.spec.reliability import paper_classes
    >>> attempt_time(PLANS["in-place"], paper_classes()), attempt_time(PLANS["retry"], ())
    (141.0, 660.0)
    """
    if plan.attempt is not None:
        return plan.attempt
    times = (float(mode.recovery.mean) for mode in modes if _keeps_pods(mode.name))
    return next(times, RecoveryClass.PROCESS.seconds)


def _restarted_in_place(
    classes: Iterable[FailureMode], plan: RecoveryPlan
) -> Iterable[FailureMode]:
    """Failures split by the restart in place that mends them; the rest needs new pods."""
    classes = tuple(classes)
    attempt = attempt_time(plan, classes)
    for mode in classes:
        if not needs_node(mode.name):
            yield mode
            continue
        share_left = 1.0
        for number in range(plan.attempts):
            mended = FailureMode(
                name=f"{RecoveryClass.PROCESS.value}, in place of {mode.name}",
                rate=mode.rate.scaled(share_left * plan.success),
                recovery=_fixed(attempt * (number + 1)),
                tier=0,
            )
            yield mended
            share_left *= 1 - plan.success
        if share_left > _SELDOM:
            yield replace(
                mode, rate=mode.rate.scaled(share_left), wait=_fixed(plan.attempts * attempt)
            )


def _replaced(reliability: Reliability, plan: RecoveryPlan, nodes: float) -> Iterable[FailureMode]:
    """Failures whose node a spare replaces, and those that find none and recover as their class."""
    taking = nodes * sum(mode.rate.mean for mode in reliability.classes if needs_node(mode.name))
    none_left = float(none_stands_by(taking * plan.jobs * plan.refill, plan.spares))
    for mode in reliability.classes:
        if not needs_node(mode.name):
            yield mode
            continue
        yield replace(
            mode,
            name=f"{mode.name}, by a spare",
            rate=mode.rate.scaled(1 - none_left),
            recovery=_fixed(plan.takeover),
            queues=False,
        )
        if none_left > _SELDOM:
            yield replace(mode, rate=mode.rate.scaled(none_left))


def _with_peers(job: Job, plan: RecoveryPlan, of_layout: Replicas) -> Job:
    """The job with copies in the main memory of peers as its new nearest tier."""
    reliability, nodes = job.reliability, float(np.max(job.nodes))
    blocking = of_layout.state / of_layout.snapshot
    background = of_layout.state / min(plan.peer_bandwidth, of_layout.link)
    pair_chance = _pair_chance(job, plan, float(np.max(blocking)), float(np.max(background)))

    classes: list[FailureMode] = []
    for mode in reliability.classes:
        if stops_job(mode.name) or nodes < plan.peers:
            classes.append(replace(mode, tier=mode.tier + 1))
            continue
        share_lost = 0.0 if _keeps_pods(mode.name) else pair_chance
        classes.append(replace(mode, rate=mode.rate.scaled(1 - share_lost), tier=0))
        if share_lost > _SELDOM:
            classes.append(
                replace(
                    mode,
                    name=f"{mode.name}, two of a peer group",
                    rate=mode.rate.scaled(share_lost),
                    tier=mode.tier + 1,
                )
            )
    domains = tuple(
        replace(domain, tier=0 if domain.nodes * plan.peers <= nodes else domain.tier + 1)
        for domain in reliability.domains
    )
    return replace(
        job,
        blocking=(blocking, *job.blocking),
        background=(background, *job.background),
        reliability=replace(reliability, classes=tuple(classes), domains=domains, tiers=()),
    )


def _pair_chance(job: Job, plan: RecoveryPlan, blocking: float, background: float) -> float:
    """Chance that a failure hits the same group of peers as the failure before it, while that
    group's copies are not complete again: (1 - exp(-Lam window)) (g - 1) / (N - 1). Ours. [1]
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
    """The job with the failures that stop all of it, where replicas fail alone; the share of its
    training that is kept; and the share of time in which nobody stands still for a replica.
    """
    reliability, nodes = job.reliability, float(np.max(job.nodes))
    replica_nodes = nodes / count
    replica_modes = tuple(mode for mode in reliability.classes if not stops_job(mode.name))
    small_domains = tuple(domain for domain in reliability.domains if domain.nodes <= replica_nodes)
    if not replica_modes and not small_domains:
        return job, 1.0, 1.0
    # A reliability has at least one class, if need be one that never fails.
    never = replace(reliability.classes[0], rate=reliability.classes[0].rate.scaled(0))
    of_replica = replace(reliability, classes=replica_modes or (never,), domains=small_domains)
    replica_rate = nodes * (node_rate(of_replica) * float(np.max(job.rate_scale))) / count
    if replica_rate == 0:
        return job, 1.0, 1.0
    stall = plan.stall + (float(np.max(job.step_time)) / 2 if plan.others is Others.GO_ON else 0.0)
    timeout = 0.0 if reliability.hangs is None else float(reliability.hangs.timeout)
    away = _Away.of(sources_of(of_replica), replica_rate, stall, plan.rejoin, timeout)
    none_left = away.present * (1 - away.present) ** (count - 1)
    job_modes = tuple(mode for mode in reliability.classes if stops_job(mode.name))
    last_replica = tuple(
        replace(mode, name=f"{mode.name}, {model.NO_REPLICA}", rate=mode.rate.scaled(none_left))
        for mode in replica_modes
    )
    if plan.others is Others.GO_ON:
        moving = (away.p0 + away.p1) ** count
        kept: Ratio = away.p0 * (away.p0 + away.p1) ** (count - 1)
        if plan.keeps_batch:
            kept = away.kept_batch(count, of_layout)
        stopping = (*job_modes, *last_replica)
        domains = tuple(domain for domain in reliability.domains if domain.nodes > replica_nodes)
    else:
        shrinking = tuple(
            replace(
                mode,
                rate=mode.rate.scaled(1 - none_left),
                recovery=_fixed(plan.stall),
                queues=False,
                wait=None,
            )
            for mode in replica_modes
        )
        moving = exp(-count * away.returns * plan.rejoin)
        kept = away.present / (away.present + away.p1) * moving
        stopping = (*shrinking, *job_modes, *last_replica)
        domains = reliability.domains
    reliability = replace(
        reliability,
        classes=tuple(replace(mode, rate=mode.rate.scaled(away.present)) for mode in stopping),
        domains=domains,
    )
    return replace(job, reliability=reliability), kept, moving


@dataclass(frozen=True, kw_only=True)
class _Away:
    """How often one replica is there, and how often it is away."""

    present: float
    """Share of time that it is there. [1]"""
    p0: float
    """Share of time that it is there, and nobody stands still for its return. [1]"""
    p1: float
    """Share of time that it is away, and nobody stands still for its loss. [1]"""
    returns: float
    """Rate of returns after the others went on without it. [1/s]"""

    @classmethod
    def of(
        cls,
        sources: tuple[FailureSource, ...],
        rate_while_present: float,
        stall: float,
        rejoin: float,
        timeout: float,
    ) -> _Away:
        """The shares of replicas, each of which fails at a rate [1/s]."""
        away, away_alone, returns = 0.0, 0.0, 0.0
        for source in sources:
            times, weights = nodes_of_sum(source.recovery_laws)
            standing = float(stall) + (timeout if source.name.endswith(", hung") else 0.0)
            beyond = float(np.sum(weights * np.maximum(times - standing, 0.0)))
            away += source.share * (standing + beyond)
            away_alone += source.share * beyond
            returns += source.share * float(np.sum(weights * (times > standing)))
        failure_rate = rate_while_present / (1 + rate_while_present * away)
        return cls(
            present=1 / (1 + rate_while_present * away),
            p0=failure_rate * exp(-rate_while_present * rejoin) / rate_while_present,
            p1=failure_rate * away_alone,
            returns=failure_rate * returns,
        )

    def kept_batch(self, count: int, of_layout: Replicas) -> Ratio:
        """Share of training that is kept where the other replicas take over the micro-batches of
        those that are away. Ours. [1]
        """
        micro, stages = of_layout.micro_batches, of_layout.stages
        total: Ratio = 0.0
        chance = self.p0**count
        for missing in range(count):
            left = count - missing
            if np.all(np.isfinite(micro)):
                micro_each = np.ceil(np.asarray(micro, dtype=float) * count / left)
                worth: Ratio = (micro + stages - 1) / (micro_each + stages - 1)
            else:
                worth = left / count
            total = total + chance * worth
            chance *= left / (missing + 1) * self.p1 / self.p0
            if chance < _SELDOM and missing > count * self.p1:
                break
        return total
