"""A job as the simulators take it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mofa_model.errors import BadValue

if TYPE_CHECKING:
    from mofa_model.reliability.laws import FailureSource
    from mofa_model.reliability.model import Job
    from mofa_model.simulator.planned import PlannedScenario
    from mofa_model.simulator.scenario import Cause, Scenario


def planned_scenario(job: Job, steps: int, every: tuple[int, ...]) -> PlannedScenario:
    """The scenario for the simulator of plans: a job under its recovery plan."""
    import math

    from mofa_model.reliability import laws, model
    from mofa_model.reliability.recovery import attempt_time, needs_node, stops_job
    from mofa_model.simulator import planned as events
    from mofa_model.simulator import scenario as drawing
    from mofa_model.spec.recovery_plans import PLANS, Replicas
    from mofa_model.spec.reliability import RecoveryTime

    plan, reliability = job.plan or PLANS["classes"], job.reliability
    layout = job.redundancy or Replicas()
    if reliability.law.kind != "exponential" or not reliability.failures_during_recovery:
        raise BadValue(
            "--law", reliability.law.kind, "nodes fail one by one: leave it out with --recovery"
        )
    nodes, count = int(job.nodes), int(min(float(layout.count), float(job.nodes)))
    copied = plan.peers > 0
    sources = laws.sources_of(replace(reliability, hangs=None))
    small = {domain.name for domain in reliability.domains if domain.nodes <= nodes / count}

    def takes(name: str) -> str:
        if name in {domain.name for domain in reliability.domains}:
            return drawing.DOMAIN if name in small else drawing.JOB
        if stops_job(name):
            return drawing.JOB
        return drawing.NODE if needs_node(name) else drawing.PROCESS

    def cause(source: laws.FailureSource) -> Cause:
        what = takes(source.name)
        deep = copied and what == drawing.JOB
        tier = source.tier + 1 if deep else 0 if copied else source.tier
        return _cause(source, tier=tier, takes=what)

    hangs, state = reliability.hangs, float(layout.state)
    repair = RecoveryTime(mean=reliability.repair, law="exponential")
    return events.PlannedScenario(
        nodes=nodes,
        rate=float(model.failure_rate(job)) / nodes,
        kinds=tuple(map(cause, sources)),
        step_time=float(job.step_time),
        steps=int(steps),
        every=every,
        blocking=(*((state / float(layout.snapshot),) * copied), *map(float, job.blocking)),
        background=(
            *((state / min(plan.peer_bandwidth, float(layout.link)),) * copied),
            *map(float, job.background),
        ),
        slowdown=float(reliability.slowdown),
        whole=plan.whole,
        attempts=plan.attempts,
        attempt=attempt_time(plan, reliability.classes),
        success=plan.success,
        spares=plan.spares,
        takeover=plan.takeover,
        refill=RecoveryTime(mean=plan.refill, law="exponential"),
        sharers=plan.jobs,
        group=plan.peers,
        replicas=count,
        others=plan.others.value,
        stall=plan.stall,
        rejoin=plan.rejoin,
        micro_batches=int(layout.micro_batches)
        if plan.keeps_batch and math.isfinite(float(layout.micro_batches))
        else 0,
        stages=int(layout.stages),
        hang_time=0.0 if hangs is None else min(plan.watchdog, float(hangs.timeout)),
        hang_share=0.0 if hangs is None else float(hangs.share),
        pauses=0.0 if hangs is None else float(hangs.pauses),
        pause=drawing.AT_ONCE if hangs is None else hangs.pause,
        broken=reliability.spares,
        repair=repair,
    )


def scenario_of(job: Job, steps: float, every: tuple[int, ...]) -> Scenario:
    """The scenario for the simulator that describes a job."""
    from mofa_model.reliability import laws, model
    from mofa_model.simulator.scenario import Scenario

    rate, sources = float(model.failure_rate(job)), laws.sources_of(job.reliability)
    return Scenario(
        rate=rate,
        causes=tuple(_cause(source, tier=source.tier) for source in sources),
        work=steps * float(job.step_time),
        every=every,
        blocking=tuple(float(x) for x in job.blocking),
        background=tuple(float(x) for x in job.background),
        slowdown=job.reliability.slowdown,
        law=job.reliability.law,
        during_recovery=job.reliability.failures_during_recovery,
    )


def _cause(source: FailureSource, *, tier: int, takes: str = "") -> Cause:
    """A cause of failures for the simulator, from a source of the closed forms."""
    from mofa_model.simulator.scenario import Cause

    return Cause(
        name=source.name,
        share=source.share,
        recovery_laws=source.recovery_laws,
        tier=tier,
        takes=takes,
    )
