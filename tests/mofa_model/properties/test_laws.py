"""What must hold of every estimate, whatever the constants: more hardware never hurts, nothing is hidden twice."""

from dataclasses import replace

import numpy as np
import pytest
from bounds import pipeline_lower_bound
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from shapes import deeper
from strategies import ROWS, clusters, families, one, workloads

from mofa_model.estimate import estimate
from mofa_model.schedules import DUALPIPE, INTERLEAVED, ONE_F_ONE_B, SCHEDULES
from mofa_model.strategy import Recompute, Sharding

ROUNDING = 1e-12
"""Sums of the same numbers in another order."""
ONE_RATIO = dict.fromkeys(SCHEDULES, 0.01) | {ONE_F_ONE_B: ROUNDING, INTERLEAVED: ROUNDING}
"""Split schedules take one ratio of forward to weight gradient for all stages, and a faster device changes it a little."""


def runnable(family, workload):
    """Rows with as many micro-batches as their schedule asks for: `orders` refuses the others."""
    m = workload.training.global_batch / (family.dp * family.mbs)
    if family.schedule == DUALPIPE:
        return (m % 2 == 0) & (m >= 2 * family.pp)
    if family.schedule.folded:
        return (m == np.floor(m)) & family.schedule.possible(microbatches=m, stages=family.pp)
    return (m == np.floor(m)) & ((family.vpp == 1) | (m % family.pp == 0))


def faster(cluster, part, factor):
    """The same machines with one thing faster."""
    device = cluster.device
    if part == "peak":
        peaks = {name: factor * getattr(device, name) for name in ("peak_bf16", "peak_fp8", "peak_fp4")}
        return replace(cluster, device=replace(device, **peaks))
    if part == "memory":
        return replace(cluster, device=replace(device, memory_bandwidth=factor * device.memory_bandwidth))
    if part == "host":
        bus = replace(cluster.host.link, bandwidth=factor * cluster.host.link.bandwidth)
        rate = factor * cluster.host.optimizer_rate
        return replace(cluster, host=replace(cluster.host, link=bus, optimizer_rate=rate))
    link = getattr(cluster, part)
    return replace(cluster, **{part: replace(link, bandwidth=factor * link.bandwidth)})


@pytest.mark.parametrize("part", ["peak", "memory", "scale_up", "scale_out", "host"])
@settings(max_examples=60)
@given(workloads(), clusters(), families(), st.sampled_from([1.0625, 1.5, 4.0]))
def test_more_bandwidth_and_a_higher_peak_never_slow_a_step(part, workload, cluster, family, factor):
    there = runnable(family, workload)
    before = estimate(workload, cluster, family).step_time
    after = estimate(workload, faster(cluster, part, factor), family).step_time
    assert np.all(np.broadcast_to(after <= before * (1 + ONE_RATIO[family.schedule]), ROWS)[there])


@settings(max_examples=80)
@given(workloads(), clusters(), families())
def test_exposed_communication_never_exceeds_all_of_it(workload, cluster, family):
    found = estimate(workload, cluster, family)
    for layer in found.layers:
        assert np.all(layer.tensor + layer.context + layer.expert <= layer.communication * (1 + ROUNDING))
    assert np.all(found.exchange.exposed <= found.exchange.collective)
    assert np.all(np.asarray(found.exchange.exposed) >= 0)


@settings(max_examples=80)
@given(workloads(), clusters(), families())
def test_switching_an_overlap_on_never_slows_a_step(workload, cluster, family):
    there = runnable(family, workload)
    for name in ("tensor_overlap", "data_overlap", "expert_overlap", "pipeline_overlap"):
        on, off = (
            np.broadcast_to(estimate(workload, cluster, replace(family, **{name: x})).step_time, ROWS)
            for x in (True, False)
        )
        assert np.all((on <= off * (1 + ONE_RATIO[family.schedule]))[there]), name


@settings(max_examples=80)
@given(workloads(), clusters(), families())
def test_the_pipeline_never_beats_its_lower_bound(workload, cluster, family):
    found = estimate(workload, cluster, family)
    bound = pipeline_lower_bound(
        slowest=found.stage.slowest,
        total=found.stage.all_stages,
        microbatches=found.micro_batches,
        stages=family.pp,
        virtual=family.vpp,
        weight=found.stage.weight_share,
    )
    pipeline = np.broadcast_to(found.step.stages + found.step.bubble + found.step.hops, ROWS)
    there = runnable(family, workload)
    assert np.all((pipeline >= np.asarray(bound) * (1 - ROUNDING))[there])


@settings(max_examples=60)
@given(workloads(), clusters(), families(), st.sampled_from([2, 3, 8]))
def test_more_micro_batches_cost_more(workload, cluster, family, times):
    larger = replace(workload.training, global_batch=times * workload.training.global_batch)
    few = estimate(workload, cluster, family)
    many = estimate(replace(workload, training=larger), cluster, family)
    there = runnable(family, workload)
    assert np.all(np.broadcast_to(many.step_time > few.step_time, ROWS)[there])
    # Not more than so many times as much: what is paid once a step stays.
    assert np.all(np.broadcast_to(many.step_time <= times * few.step_time * (1 + ROUNDING), ROWS)[there])


@settings(max_examples=60)
@given(workloads(), clusters(), one([INTERLEAVED]))
def test_a_step_falls_with_virtual_stages_when_hops_are_free(workload, cluster, strategy):
    links = replace(cluster.calibration.links, point_latency=0.0, point_efficiency=1e30)
    cluster = replace(cluster, calibration=replace(cluster.calibration, links=links, placement="even"))
    v = np.array([1.0, 2.0, 4.0])
    model = deeper(workload.model, 8 * int(strategy.pp))
    found = estimate(replace(workload, model=model), cluster, replace(strategy, vpp=v)).step_time
    assert np.all(np.diff(found) <= found[0] * ROUNDING)
    if strategy.pp > 1:
        assert found[2] < found[0]


@settings(max_examples=60)
@given(workloads(), clusters(), families())
def test_memory_never_rises_with_what_shares_it(workload, cluster, family):
    # A stack with buckets fills them as soon as there is anything to reduce: one rank alone has none.
    bare = replace(cluster.calibration.memory, bucket=0.0, partition=0.0)
    cluster = replace(cluster, calibration=replace(cluster.calibration, memory=bare))

    def peak(**changes):
        return estimate(workload, cluster, replace(family, **changes)).memory.peak

    here = peak()
    levels = [peak(sharding=level) for level in (Sharding.NONE, Sharding.OPTIMIZER, Sharding.GRADIENTS)]
    assert np.all(np.diff(np.broadcast_arrays(*levels), axis=0) <= 0)
    assert np.all(peak(dp=2 * family.dp, shard=0.0) <= peak(shard=0.0) * (1 + ROUNDING))
    assert np.all(peak(sequence_parallel=True) <= here * (1 + ROUNDING))
    wide = replace(family, tp=np.maximum(2.0, family.tp), sequence_parallel=True)
    assert np.all(
        estimate(workload, cluster, replace(wide, tp=2 * wide.tp)).memory.peak
        <= estimate(workload, cluster, wide).memory.peak * (1 + ROUNDING)
    )
    assert np.all(
        peak(recompute=Recompute.FULL, recompute_layers=0.0)
        <= peak(recompute=Recompute.NONE) * (1 + ROUNDING)
    )


@settings(max_examples=40)
@given(workloads(), clusters(), families())
def test_recomputing_more_never_makes_a_step_faster(workload, cluster, family):
    none, full = (
        estimate(
            workload, cluster, replace(family, recompute=kind, recompute_layers=0.0, offload=frozenset())
        )
        for kind in (Recompute.NONE, Recompute.FULL)
    )
    near, there = 1 + ONE_RATIO[family.schedule], runnable(family, workload)
    assert np.all((none.step_time <= full.step_time * near)[there])
    assume(family.recompute is Recompute.SELECTIVE)
    some = estimate(workload, cluster, replace(family, offload=frozenset()))
    assert np.all((none.step_time <= some.step_time * near)[there])
