"""What a step costs with more micro-batches and with more virtual stages."""

from dataclasses import replace

import numpy as np
from bounds import ROUNDING
from drawn import runnable
from hypothesis import given, settings
from hypothesis import strategies as st
from shapes import deeper
from strategies import ROWS, clusters, families, layouts, workloads

from mofa_model.estimate import estimate
from mofa_model.schedules import INTERLEAVED


@settings(max_examples=60)
@given(workloads(), clusters(), families(), st.sampled_from([2, 3, 8]))
def test_more_micro_batches_cost_more(workload, cluster, family, times):
    larger = replace(workload.training, global_batch=times * workload.training.global_batch)
    few = estimate(workload, cluster, family)
    many = estimate(replace(workload, training=larger), cluster, family)
    there = runnable(family, workload)
    assert np.all(np.broadcast_to(many.step_time > few.step_time, ROWS)[there])
    # Not more than so many times as much: what is paid once a step stays.
    assert np.all(
        np.broadcast_to(many.step_time <= times * few.step_time * (1 + ROUNDING), ROWS)[there]
    )


@settings(max_examples=60)
@given(workloads(), clusters(), layouts([INTERLEAVED]))
def test_a_step_falls_with_virtual_stages_when_hops_are_free(workload, cluster, strategy):
    links = replace(cluster.calibration.links, point_latency=0.0, point_efficiency=1e30)
    cluster = replace(
        cluster, calibration=replace(cluster.calibration, links=links, placement="even")
    )
    v = np.array([1.0, 2.0, 4.0])
    model = deeper(workload.model, 8 * int(strategy.pp))
    found = estimate(replace(workload, model=model), cluster, replace(strategy, vpp=v)).step_time
    assert np.all(np.diff(found) <= found[0] * ROUNDING)
    if strategy.pp > 1:
        assert found[2] < found[0]
