"""What the search leaves out loses nothing: idle features, overlap, floors and cuts, each against
what is left out.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from machines import overlapping_for_nothing

from mofa_model.estimate import estimate
from mofa_model.presets import cluster, model, precision
from mofa_model.schedules import DUALPIPE, INTERLEAVED, SCHEDULES, Flow
from mofa_model.search import SearchCase, SearchQuestion, framework, parse_constraint, search
from mofa_model.spec import Training, Workload
from mofa_model.strategy import Recompute, Sharding, Strategy

MODELS = ("llama3-8b", "mixtral-8x7b", "deepseek-v2-lite")
FEW = tuple(parse_constraint(text) for text in ("recompute=none,full:1", "offload=none", "mbs<=2"))
OVERLAPS = ("tensor_overlap", "data_overlap", "pipeline_overlap", "expert_overlap")


def problem(name="llama3-8b", gpus=64, batch=256, stack="megatron-core"):
    training = Training(sequence=4096, global_batch=batch, precision=precision("bf16"))
    return SearchCase(
        workload=Workload(model=model(name), training=training),
        cluster=cluster("h100", gpus, stack=stack),
    )


layouts = st.fixed_dictionaries(
    {
        "tp": st.sampled_from([1, 2, 4]),
        "pp": st.sampled_from([1, 2, 4]),
        "cp": st.sampled_from([1, 2]),
        "ep": st.sampled_from([1, 2, 4]),
        "mbs": st.sampled_from([1, 2]),
        "sequence_parallel": st.booleans(),
        "sharding": st.sampled_from(list(Sharding)),
        "recompute": st.sampled_from(list(Recompute)),
        "offload": st.sampled_from(
            [frozenset(), frozenset({"activations"}), frozenset({"core_attn", "moe_act"})]
        ),
    }
)


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(MODELS), degrees=layouts, axis=st.sampled_from(OVERLAPS))
def test_overlap_is_never_slower_and_never_takes_memory(name, degrees, axis):
    p = problem(name)
    degrees["dp"] = 64 // (degrees["tp"] * degrees["pp"] * degrees["cp"])
    if axis == "expert_overlap" and p.workload.model.experts is None:
        degrees["ep"] = 1
    machines = overlapping_for_nothing(p.cluster) if axis == "expert_overlap" else p.cluster
    with_overlap = estimate(p.workload, machines, Strategy(**degrees, **{axis: True}))
    without = estimate(p.workload, machines, Strategy(**degrees, **{axis: False}))
    assert with_overlap.step_time <= without.step_time * (1 + 1e-12)
    assert with_overlap.footprint.peak == without.footprint.peak


@settings(max_examples=40, deadline=None)
@given(name=st.sampled_from(MODELS), degrees=layouts)
def test_a_feature_with_nothing_to_act_on_changes_nothing(name, degrees):
    p = problem(name)
    alone = {
        **degrees,
        "tp": 1,
        "pp": 1,
        "ep": 1,
        "dp": 64 // degrees["cp"],
        "sequence_parallel": False,
    }
    base = estimate(p.workload, p.cluster, Strategy(**alone))
    for axis in ("tensor_overlap", "pipeline_overlap", "expert_overlap"):
        for value in (True, False):
            other = estimate(p.workload, p.cluster, Strategy(**alone, **{axis: value}))
            assert other.step_time == base.step_time
            assert other.footprint.peak == base.footprint.peak


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from(MODELS),
    degrees=layouts,
    schedule=st.sampled_from(SCHEDULES),
)
def test_recomputation_and_offload_only_add_time(name, degrees, schedule):
    """What a floor leaves out is never below zero: m C and what a schedule fills bound every
    strategy of a shape.
    """
    p = problem(name)
    degrees["dp"] = 64 // (degrees["tp"] * degrees["pp"] * degrees["cp"])
    assume(schedule is not DUALPIPE or degrees["pp"] % 2 == 0)
    virtual = 2 if schedule == INTERLEAVED or schedule.folded else 1
    s = Strategy(**degrees, schedule=schedule, vpp=virtual)
    lean = estimate(
        p.workload, p.cluster, replace(s, recompute=Recompute.NONE, offload=frozenset())
    )
    floor = lean.micro_batches * lean.stage_time.slowest + schedule.fill(
        Flow(
            slowest=lean.stage_time.slowest,
            total=lean.stage_time.all_stages,
            microbatches=lean.micro_batches,
            stages=s.pp,
            virtual=virtual,
            forward=lean.stage_time.device_forward,
        )
    )
    assert estimate(p.workload, p.cluster, s).step_time >= floor * (1 - 1e-9)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("trainer", ["any", "megatron"])
def test_floors_and_cuts_keep_the_best(name, trainer):
    few = tuple(
        parse_constraint(text)
        for text in ("recompute=none,full:1", "cp=1", "chunks=1", "offload=none", "mbs<=4")
    )
    question = SearchQuestion(
        problems=(problem(name, gpus=16, batch=64),),
        nodes=(2,),
        framework=framework(trainer),
        constraints=few,
        keep=10,
    )
    quick, whole = search(question), search(replace(question, keep=10**6))
    assert quick.best[2] == whole.best[2][:10]
    assert quick.searched < whole.searched
    assert quick.searched + quick.pruned + sum(quick.rejected.values()) == quick.raw == whole.raw


@pytest.mark.parametrize("stack", ["nanotron", "megatron-core", "accelerate"])
def test_a_candidate_holds_what_the_estimate_says_and_as_much_of_it_is_counted(stack):
    """nanotron gathers updated weights, and accelerate frees gradients: both are gone when
    activations come.
    """
    question = SearchQuestion(
        problems=(problem(gpus=16, batch=64, stack=stack),), nodes=(2,), constraints=FEW, keep=40
    )
    for one in search(question).best[2]:
        c = one.problem.cluster
        held = estimate(one.problem.workload, replace(c, gpus=16), one.strategy).footprint
        assert one.memory_bytes == pytest.approx(float(held.peak), rel=1e-9)
        assert one.counted_memory == pytest.approx(float(held.counted_memory), rel=1e-9)
        assert one.estimated == pytest.approx(float(held.estimated), abs=1e-9)


def test_of_one_shape_only_the_best_is_kept():
    question = SearchQuestion(
        problems=(problem(gpus=8, batch=64),), nodes=(1,), constraints=FEW, keep=10**6
    )
    every = search(question).best[1]
    apart = search(replace(question, apart=True)).best[1]
    shapes = [
        (s.tp, s.pp, s.cp, s.context_mode, s.mbs, s.vpp, s.schedule)
        for s in (one.strategy for one in apart)
    ]
    assert len(set(shapes)) == len(shapes)
    first = {}
    for one in every:
        s = one.strategy
        first.setdefault((s.tp, s.pp, s.cp, s.context_mode, s.mbs, s.vpp, s.schedule), one)
    assert list(apart) == list(first.values())


def test_a_score_with_a_bound_ranks_as_if_all_were_scored():
    """Odd replicas cost more: the order is not that of step times, and the cut must not
    lose any.
    """

    def uneven(_problem, _nodes):
        return lambda step, _saved, replicas: step * (1.0 + 0.2 * (replicas > 1))

    question = SearchQuestion(
        problems=(problem(gpus=16, batch=64),), nodes=(2,), constraints=FEW, keep=12, score=uneven
    )
    quick, whole = search(question), search(replace(question, keep=10**6))
    assert quick.best[2] == whole.best[2][:12]
    assert [one.step_seconds for one in whole.best[2]] != sorted(
        one.step_seconds for one in whole.best[2]
    )


def test_several_precisions_and_node_counts_are_one_space():
    p = problem(gpus=8, batch=64)
    training = replace(p.workload.training, precision=precision("fp8-delayed"))
    eight = SearchCase(
        workload=replace(p.workload, training=training),
        cluster=cluster("h100", 8, precision="fp8-delayed", stack="megatron-core"),
    )
    question = SearchQuestion(
        problems=(p, eight), nodes=(1, 2), constraints=(parse_constraint("cp=1"),), keep=5
    )
    both = search(question)
    alone = [
        search(replace(question, problems=(one,), nodes=(n,))) for one in (p, eight) for n in (1, 2)
    ]
    assert both.raw == both.searched + both.pruned + sum(both.rejected.values())
    best = min(one.step_seconds for found in alone for some in found.best.values() for one in some)
    assert min(one.step_seconds for some in both.best.values() for one in some) == best
