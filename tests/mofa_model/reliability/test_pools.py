"""Spares, domains, checkpoint costs, the objective, deadlines, the budget of lost time."""

from dataclasses import replace

import numpy as np
import pytest

from mofa_model.errors import BadValue
from mofa_model.reliability import checkpoint, deadlines, model
from mofa_model.reliability.deadlines import finish_time
from mofa_model.reliability.interval import best_ettr, nearest_steps, recommend
from mofa_model.reliability.model import Job, ettr_band
from mofa_model.spec.reliability import (
    CheckpointTier,
    Domain,
    FailureRate,
    RecoveryTime,
    Reliability,
    paper_classes,
)


@pytest.mark.parametrize("spares, share", [(0, 0.07), (8, 0.59), (16, 0.93), (24, 0.9986)])
def test_spares_of_2048_nodes_at_0_0065_with_a_day_of_repair(spares, share):
    assert model.spares_availability(2048 * 0.0065, spares) == pytest.approx(share, abs=2e-3)


def test_a_rack_that_fails_adds_to_the_rate_and_reads_its_own_tier(tiered_job):
    job = tiered_job(nodes=2048)
    rack = Domain(name="rack", nodes=16, rate=1e-7, recovery=RecoveryTime(mean=3600.0), tier=2)
    both = replace(job, reliability=replace(job.reliability, domains=(rack,)))
    assert model.failure_rate(both) == pytest.approx(model.failure_rate(job) + 128 * 1e-7)
    assert model.ettr(both, 6, (1, 5, 60)) < model.ettr(job, 6, (1, 5, 60))
    assert model.failure_rate(job) == pytest.approx(2048 * 0.005 / 86400)


def test_a_queue_delays_pods_and_jobs_but_not_processes(plain_job):
    waiting = RecoveryTime(mean=1200.0, cv=3.0)
    classes = paper_classes(0.005)
    queued = tuple(replace(c, queues=c.name != "process") for c in classes)
    job = plain_job(1e-4)
    with_queue = replace(job, reliability=Reliability(classes=queued, queue=waiting))
    assert model.mean_recovery(with_queue) == pytest.approx(230.2 + 0.7 * 1200)


def test_save_times_follow_from_bytes_and_bandwidths():
    # 405e9 parameters x 14 B = 5.67 TB; 2,048 ranks write 2.77 GB each, 22.1 GB a node
    total = checkpoint.checkpoint_bytes(405e9, 2.0, 12.0)
    node = checkpoint.bytes_per_node(total, 2048, 8)
    slow = CheckpointTier(
        name="remote", node_bandwidth=2e9, total_bandwidth=2e11, asynchronous=False
    )
    assert checkpoint.blocking_time(slow, total, node) == pytest.approx(5.67e12 / 2e11)
    assert checkpoint.background_time(slow, total, node) == 0.0
    fast = replace(slow, asynchronous=True, snapshot_bandwidth=1e11, total_bandwidth=2e12)
    assert checkpoint.blocking_time(fast, total, node) == pytest.approx(0.2215, abs=0.01)
    assert checkpoint.background_time(fast, total, node) == pytest.approx(11.07, abs=0.01)
    with pytest.raises(BadValue, match="bandwidth"):
        replace(slow, node_bandwidth=0.0)


def test_a_hundred_strategies_at_once_are_those_one_by_one():
    generator = np.random.default_rng(1)
    nodes, step = generator.integers(8, 4096, 100).astype(float), generator.uniform(1, 40, 100)
    save, copy = generator.uniform(0, 60, 100), generator.uniform(0, 300, 100)
    reliability = Reliability(classes=paper_classes(), slowdown=0.02)
    many = Job(
        nodes=nodes, step_time=step, blocking=(save,), background=(copy,), reliability=reliability
    )
    for i in range(100):
        one = replace(
            many, nodes=nodes[i], step_time=step[i], blocking=(save[i],), background=(copy[i],)
        )
        assert nearest_steps(one) == nearest_steps(many)[i]
        assert best_ettr(one) == best_ettr(many)[i]


def test_nested_tiers_are_ranked_to_a_fraction_of_a_point(tiered_job):
    for nodes in (8, 256, 2048):
        job = tiered_job(nodes=nodes)
        assert best_ettr(job) == pytest.approx(recommend(job).ettr, abs=2e-3)


def test_the_objective_is_steps_over_ettr():
    assert finish_time(1e5, 10.0, 0.8, 500.0) == pytest.approx(1.25e6 + 500.0)
    assert finish_time(100, 2.0, 0.0) == np.inf


def test_a_known_rate_leaves_no_band(tiered_job):
    job = tiered_job(blocking=(20.0,), background=(0.0,))
    known = tuple(
        replace(c, rate=FailureRate(failures=0.0, exposure=1.0, exactly=c.rate.mean))
        for c in job.reliability.classes
    )
    sure = ettr_band(replace(job, reliability=replace(job.reliability, classes=known)), 60)
    assert sure.lower == sure.target == sure.upper
    wide = ettr_band(job, 60)
    assert wide.target == pytest.approx(sure.target)
    assert wide.lower < wide.target < wide.upper
    scales = model.rate_scales(job)
    assert scales.upper / scales.lower == pytest.approx(13.3, abs=0.1)


def test_lost_time_and_training_add_to_all_time(tiered_job):
    for spares in (None, 12):
        job = tiered_job(spares=spares)
        found = model.budget(job, 6, (1, 5, 60))
        assert all(part >= 0 for part in found.values())
        assert sum(found.values()) == pytest.approx(1)


def test_nodes_for_a_deadline_are_enough_and_one_less_is_not():
    job = model.Job(
        nodes=256,
        step_time=30.0,
        blocking=(2.0,),
        background=(0.0,),
        reliability=Reliability(classes=paper_classes(0.005)),
    )
    limit = 20 * 86400.0
    nodes = deadlines.nodes_for(job, 1e5, limit)

    def time(n):
        return deadlines.run_time(replace(job, nodes=n, step_time=30.0 * 256 / n), 1e5)

    assert time(nodes) <= limit < time(nodes - 1)
    assert deadlines.nodes_for(job, 1e5, 60.0) is None


def test_spares_for_a_deadline(tiered_job):
    job = tiered_job(blocking=(20.0,), background=(0.0,), rate=0.0065, spares=4)
    limit = 65 * 86400.0
    spares = deadlines.spares_for_deadline(job, 5e5, limit)
    some = [
        replace(job, reliability=replace(job.reliability, spares=n)) for n in (spares, spares - 1)
    ]
    assert deadlines.run_time(some[0], 5e5) <= limit < deadlines.run_time(some[1], 5e5)
    assert deadlines.spares_for_deadline(job, 5e5, 86400.0) is None
