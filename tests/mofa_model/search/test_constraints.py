"""Constraints as people write them, and what trainers can run."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mofa_model.axes.choices import IN_NODE, Context, Pipeline, Shard
from mofa_model.axes.rules import AxisContext
from mofa_model.errors import BadValue, UnknownName
from mofa_model.presets import cluster, model, precision
from mofa_model.schedules import INTERLEAVED, ONE_F_ONE_B
from mofa_model.search import (
    SearchCase,
    SearchQuestion,
    framework,
    frameworks,
    parse_constraint,
    parse_constraints,
    search,
)
from mofa_model.search.axes import constrained, known_axes, node_counts
from mofa_model.spec import Training, Workload
from mofa_model.strategy import (
    ContextMode,
    Placement,
    Recompute,
    Sharding,
    Strategy,
    format_strategy,
    short_strategy,
)

TRAINING = Training(sequence=8192, global_batch=512, precision=precision("bf16"))
WORKLOAD = Workload(model=model("llama3-8b"), training=TRAINING)
AXES = known_axes(AxisContext(workload=WORKLOAD, cluster=cluster("h100", 64), nodes=(8,)))


def left(*texts):
    return constrained(AXES, parse_constraints(texts))


def test_several_axes_may_stand_in_one_constraint_as_in_a_strategy_s_text():
    assert left("tp=4,8,pp=2,mbs<=4") == left("tp=4,8", "pp=2", "mbs<=4")


def test_a_list_fixes_an_axis_and_may_name_values_that_are_not_tried_otherwise():
    assert left("mbs=3,5")["mbs"] == (3, 5)
    assert left("pp=4")["pp"] == (4,)


def test_a_bound_keeps_the_values_inside():
    assert left("tp<=4")["tp"] == (1, 2, 4)
    assert left("mbs=4..16")["mbs"] == (4, 8, 16)


def test_composite_axes_are_narrowed_by_each_of_their_parts():
    assert left("vpp=1,7", "schedule=1f1b,interleaved")["pipeline"] == (
        Pipeline(ONE_F_ONE_B, 1),
        Pipeline(INTERLEAVED, 7),
    )
    assert left("cp=1,4", "cp-mode=a2a")["context"] == (
        Context(ContextMode.RING, 1),
        Context(ContextMode.ALL_TO_ALL, 4),
    )
    assert left("sharding=distributed@all,zero3@node")["sharding"] == (
        Shard(Sharding.OPTIMIZER, 0),
        Shard(Sharding.WEIGHTS, IN_NODE),
    )


def test_recomputation_is_fixed_in_the_words_of_a_strategy():
    chosen = left("recompute=selective:core_attn+mlp,full:3")["recompute"]
    assert [(one.mode, one.layers) for one in chosen] == [
        (Recompute.SELECTIVE, 0),
        (Recompute.FULL, 3),
    ]
    assert chosen[0].modules == {"core_attn", "mlp"}


def test_the_optimizer_s_words_of_a_strategy_say_sharding_and_place_at_once():
    zero2 = (Shard(Sharding.GRADIENTS, 0), Shard(Sharding.GRADIENTS, IN_NODE))
    axes = left("optimizer=zero2-cpu")
    assert (axes["sharding"], axes["optimizer"]) == (zero2, (Placement.HOST,))
    axes = left("optimizer=zero2")
    assert (axes["sharding"], axes["optimizer"]) == (zero2, (Placement.DEVICE,))
    axes = left("optimizer=zero2,zero2-cpu")
    assert (axes["sharding"], axes["optimizer"]) == (zero2, tuple(Placement))
    assert left("optimizer=cpu")["sharding"] == AXES["sharding"]
    with pytest.raises(
        BadValue,
        match=r"constraint\.optimizer: 'zero2,zero3-cpu' cannot be right; list every level",
    ):
        left("optimizer=zero2,zero3-cpu")
    with pytest.raises(BadValue, match="one of device, cpu, replicated, distributed, zero2, zero3"):
        left("optimizer=adam")


def test_a_shard_group_is_fixed_beside_the_levels_that_are_left():
    wanted = (Shard(Sharding.WEIGHTS, 4),)
    assert left("zero3", "shard=4")["sharding"] == wanted
    assert left("shard4", "sharding=zero3")["sharding"] == wanted
    assert left("zero3", "shard=0")["sharding"] == (Shard(Sharding.WEIGHTS, 0),)


@given(st.sampled_from([format_strategy, short_strategy]), st.integers(0, AXES.raw - 1))
def test_every_part_of_a_printed_strategy_is_a_constraint_that_leaves_it(printed, index):
    chosen = {
        name: values[index // AXES.strides[name] % len(values)]
        for name, values in AXES.values.items()
    }
    if chosen["sharding"].group == IN_NODE:
        chosen["sharding"] = Shard(chosen["sharding"].level, 2)
    context, pipeline, shard, again = (
        chosen[n] for n in ("context", "pipeline", "sharding", "recompute")
    )
    strategy = Strategy(
        **{name: chosen[name] for name in ("tp", "pp", "mbs", "ep", "etp", "chunks")},
        **{name: chosen[name] for name in AXES.values if name.endswith("_overlap")},
        **{name: chosen[name] for name in ("offload", "optimizer", "graphs", "host_weights")},
        cp=context.size,
        context_mode=context.mode,
        vpp=pipeline.virtual,
        schedule=pipeline.schedule,
        sharding=shard.level,
        shard=shard.group,
        sequence_parallel=chosen["sp"],
        recompute=again.mode,
        recompute_modules=again.modules,
        recompute_layers=again.layers,
    )
    parts = re.findall(r"[^\s,(]+(?:\([^)]*\))?", printed(strategy))
    axes = left(*parts)
    assert {name: value for name, value in chosen.items() if value not in axes[name]} == {}
    assert axes.bounds in ({}, {"dp": (1.0, 1.0)})


@pytest.mark.parametrize(
    "name, sequence, trainer",
    [
        ("llama3-70b", 8192, "any"),
        ("llama3-8b", 4096, "torchtitan"),
        ("mixtral-8x7b", 4096, "megatron"),
    ],
)
@pytest.mark.parametrize("printed", [format_strategy, short_strategy])
def test_an_answer_s_own_words_as_constraints_give_the_same_answer(
    name, sequence, trainer, printed
):
    training = Training(sequence=sequence, global_batch=512, precision=precision("bf16"))
    problem = SearchCase(
        workload=Workload(model=model(name), training=training), cluster=cluster("h100", 64)
    )
    question = SearchQuestion(problems=(problem,), nodes=(8,), framework=framework(trainer))
    best = search(question).best[8][0].strategy
    words = re.findall(r"[^\s,(]+(?:\([^)]*\))?", printed(best))
    again = search(replace(question, constraints=tuple(parse_constraint(word) for word in words)))
    assert again.best[8][0].strategy == best


def test_a_number_that_follows_is_bounded():
    assert left("dp>=8", "dp<=64").bounds == {"dp": (8.0, 64.0)}


@pytest.mark.parametrize(
    "text",
    ["tp", "tp=", "tp=0", "tp=eight", "mbs<=x", "schedule<=1f1b", "offload=maybe", "", "x" * 500],
)
def test_a_constraint_that_cannot_be_is_refused_by_name(text):
    with pytest.raises((BadValue, UnknownName), match="constraint"):
        left(text)


def test_a_constraint_that_leaves_nothing_is_refused_with_what_there_is():
    with pytest.raises(BadValue, match="the search has no such value; its values are"):
        left("mbs>=1000")


def test_every_trainer_is_known_by_its_names_and_shortens_axes():
    whole = AXES.raw
    for name in frameworks():
        shortened = AXES.supported_by(framework(name))
        assert 0 < shortened.raw <= whole
        assert framework(name).entry["source"]
    assert framework("Megatron-Core").name == "megatron"
    with pytest.raises(UnknownName, match="framework"):
        framework("megatro")


def test_deepspeed_shards_gradients_only_without_pipeline():
    training = Training(sequence=2048, global_batch=64, precision=precision("bf16"))
    problem = SearchCase(
        workload=Workload(model=model("llama3-8b"), training=training),
        cluster=cluster("a100", 16, stack="deepspeed"),
    )
    found = search(
        SearchQuestion(
            problems=(problem,), nodes=(2,), framework=framework("deepspeed"), keep=10**6
        )
    )
    strategies = [one.strategy for one in found.best[2]]
    assert {s.sharding for s in strategies if s.pp == 1} == set(Sharding)
    assert {s.sharding for s in strategies if s.pp > 1} <= {Sharding.NONE, Sharding.OPTIMIZER}


@pytest.mark.parametrize(
    "name, gpu, nodes, batch, sequence, text",
    [
        ("llama3.1-405b", "h100", 2048, 2048, 8192, ("tp=8", "pp=16", "cp=1", "dp=128", "mbs=1")),
        (
            "deepseek-v3",
            "h800",
            256,
            15360,
            4096,
            ("tp=1", "pp=16", "ep=64", "schedule=dualpipe", "mbs=1"),
        ),
    ],
)
def test_published_layouts_are_legal_and_fit(name, gpu, nodes, batch, sequence, text):
    training = Training(sequence=sequence, global_batch=batch, precision=precision("bf16"))
    problem = SearchCase(
        workload=Workload(model=model(name), training=training), cluster=cluster(gpu, nodes * 8)
    )
    found = search(
        SearchQuestion(
            problems=(problem,),
            nodes=(nodes,),
            constraints=tuple(parse_constraint(t) for t in text),
            keep=3,
        )
    )
    assert found.searched > 0


def test_node_counts_below_a_maximum_are_powers_of_two_and_three_times_those():
    assert node_counts(100) == (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 100)
