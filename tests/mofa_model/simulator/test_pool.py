"""Jobs of one pool: each alone is as the exact model says, and who is served, waits and gives way
can be told by hand.
"""

from __future__ import annotations

import numpy as np
import pytest

from mofa_model.answers.simulate import planned_scenario
from mofa_model.errors import BadValue
from mofa_model.reliability import interval
from mofa_model.reliability.model import Job
from mofa_model.simulator.pool import PoolJob, PoolRun, PoolScenario
from mofa_model.spec.recovery_plans import Replicas, plan_of
from mofa_model.spec.reliability import RecoveryTime, Reliability, paper_classes

DAY, HOUR = 86400.0, 3600.0


def job(nodes: int, rate: float, plan: str = "classes", replicas: int = 1) -> Job:
    return Job(
        nodes=nodes,
        step_time=10.0,
        blocking=(20.0,),
        background=(0.0,),
        reliability=Reliability(classes=paper_classes(rate, float("inf"))),
        plan=plan_of(plan),
        redundancy=Replicas(count=replicas),
    )


def pooled(name: str, of: Job, days: float, **how: float) -> PoolJob:
    best = interval.recommend(of)
    scenario = planned_scenario(of, best.steps, best.every)
    return PoolJob(name=name, scenario=scenario, work=days * DAY, **how)


@pytest.mark.parametrize(
    ("plan", "replicas"), [("classes", 1), ("in-place", 1), ("replica", 8), ("shrink", 8)]
)
def test_a_job_that_never_waits_for_a_node_keeps_what_the_exact_model_says(
    plan: str, replicas: int
) -> None:
    alone = job(64, 0.1, plan, replicas)
    pool = PoolScenario(nodes=100, jobs=(pooled("a", alone, 1e6),), repair=RecoveryTime(mean=HOUR))
    runs = [PoolRun(pool, seed).run(60 * DAY) for seed in range(8)]
    seen = [one.of_jobs[0].kept_time / one.duration for one in runs]
    error = float(np.std(seen, ddof=1)) / len(seen) ** 0.5
    assert abs(np.mean(seen) - interval.recommend(alone).ettr) < 0.003 + 3 * error
    assert all(one.of_jobs[0].lacked == 0 for one in runs)


def test_without_a_spare_a_job_waits_for_each_repair() -> None:
    """A node goes each 1/r of what runs, and its repair takes R: r R / (1 + r R) of the time."""
    alone = job(32, 0.2)
    pool = PoolScenario(
        nodes=32,
        jobs=(pooled("a", alone, 1e6),),
        repair=RecoveryTime(mean=6 * HOUR, law="exponential"),
    )
    runs = [PoolRun(pool, seed).run(200 * DAY) for seed in range(4)]
    busy = 32 * 0.2 * 0.6 / DAY * 6 * HOUR  # six in ten failures take a node
    assert np.mean([one.of_jobs[0].lacked / one.duration for one in runs]) == pytest.approx(
        busy / (1 + busy), abs=0.02
    )


def test_node_time_that_is_kept_lost_broken_and_idle_adds_to_the_pool() -> None:
    jobs = (
        pooled("big", job(24, 0.3), 5),
        pooled("replicas", job(16, 0.3, "replica", 4), 3, arrives=DAY),
        pooled("first", job(16, 0.3), 2, priority=2.0, arrives=2 * DAY),
    )
    for preempts in (False, True):
        pool = PoolScenario(nodes=30, spares=2, jobs=jobs, preempts=preempts)
        for seed in range(6):
            one = PoolRun(pool, seed).run(60 * DAY)
            assert one.held_node_time + one.broken_node_time + one.idle_node_time == pytest.approx(
                30 * one.duration
            )
            assert one.kept_node_time <= one.held_node_time
            for each, given in zip(one.of_jobs, jobs, strict=True):
                assert each.kept_time <= min(given.work, each.held_time)
                assert each.lacked <= each.held_time


def test_who_has_the_higher_priority_starts_first_and_a_smaller_one_passes_who_does_not_fit() -> (
    None
):
    quiet = {"big": job(8, 0.0), "small": job(2, 0.0)}
    jobs = (
        pooled("first", quiet["big"], 1),
        pooled("later", quiet["big"], 1, arrives=HOUR),
        pooled("urgent", quiet["big"], 1, priority=1.0, arrives=2 * HOUR),
        pooled("small", quiet["small"], 0.5, arrives=2 * HOUR),
    )
    one = PoolRun(PoolScenario(nodes=10, jobs=jobs), 1).run(30 * DAY)
    ends = {given.name: each.finished for given, each in zip(jobs, one.of_jobs, strict=True)}
    assert ends["small"] < ends["first"] < ends["urgent"] < ends["later"]
    assert one.of_jobs[3].queued == 0


def test_a_job_that_is_preempted_goes_on_from_its_last_save() -> None:
    low, high = job(8, 0.0), job(8, 0.0)
    jobs = (pooled("low", low, 2), pooled("high", high, 1, priority=1.0, arrives=DAY))
    kept = PoolRun(PoolScenario(nodes=8, jobs=jobs, preempts=True), 1).run(30 * DAY)
    waits = PoolRun(PoolScenario(nodes=8, jobs=jobs), 1).run(30 * DAY)
    assert kept.of_jobs[1].queued == 0 < waits.of_jobs[1].queued
    assert (kept.of_jobs[0].preempted, waits.of_jobs[0].preempted) == (1, 0)
    interval_seconds = 10.0 * jobs[0].scenario.steps
    assert 0 <= kept.of_jobs[0].finished - waits.of_jobs[1].finished < 2 * interval_seconds


def test_no_job_starts_on_spares_and_one_that_never_fits_is_refused() -> None:
    with pytest.raises(BadValue, match="--job"):
        PoolScenario(nodes=10, spares=3, jobs=(pooled("a", job(8, 0.0), 1),))


def test_more_spares_never_let_a_job_wait_longer_for_a_node() -> None:
    alone = job(32, 0.5)
    lacked = [
        np.mean(
            [
                PoolRun(PoolScenario(nodes=32 + spares, jobs=(pooled("a", alone, 1e6),)), seed)
                .run(60 * DAY)
                .of_jobs[0]
                .lacked
                for seed in range(4)
            ]
        )
        for spares in (0, 4, 16)
    ]
    assert lacked[0] > lacked[1] > lacked[2]
