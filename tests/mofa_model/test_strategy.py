"""A strategy survives being written and read; what cannot be is refused by its key."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mofa_model.errors import InputError
from mofa_model.launch import read_layout
from mofa_model.schedules import INTERLEAVED, ONE_F_ONE_B, SCHEDULES
from mofa_model.strategy import (
    MODULES,
    OFFLOADED,
    ContextMode,
    Graphs,
    Placement,
    Recompute,
    Sharding,
    Strategy,
    format_strategy,
    parse_strategy,
    short_strategy,
)

DESIGN = "tp=8,pp=8,cp=1,ep=1,dp=32,vpp=2,mbs=1,sp=true,recompute=selective,offload=none,optimizer=distributed"

degree = st.integers(1, 10**6)
recompute = st.one_of(
    st.just({"recompute": Recompute.NONE}),
    st.builds(
        lambda modules: {"recompute": Recompute.SELECTIVE, "recompute_modules": modules},
        st.frozensets(st.sampled_from(MODULES), min_size=1),
    ),
    st.builds(
        lambda layers: {"recompute": Recompute.FULL, "recompute_layers": layers},
        st.integers(0, 200),
    ),
)
layouts = st.builds(
    lambda plain, schedule, activations: replace(
        plain, schedule=schedule, **({"vpp": 2} if schedule.folded else {}), **activations
    ),
    st.builds(
        Strategy,
        tp=degree,
        pp=degree,
        cp=degree,
        dp=degree,
        ep=degree,
        etp=degree,
        vpp=degree,
        mbs=degree,
        shard=st.integers(0, 10**6),
        sharding=st.sampled_from(Sharding),
        sequence_parallel=st.booleans(),
        context_mode=st.sampled_from(ContextMode),
        chunks=degree,
        offload=st.frozensets(st.sampled_from(OFFLOADED)),
        optimizer=st.sampled_from(Placement),
        tensor_overlap=st.booleans(),
        data_overlap=st.booleans(),
        pipeline_overlap=st.booleans(),
        expert_overlap=st.booleans(),
        graphs=st.sampled_from(Graphs),
    ),
    st.sampled_from(SCHEDULES),
    recompute,
)


def test_the_text_of_the_design_is_written_letter_for_letter():
    strategy = Strategy(
        tp=8, pp=8, dp=32, vpp=2, sequence_parallel=True, recompute=Recompute.SELECTIVE
    )
    assert format_strategy(strategy) == DESIGN
    assert parse_strategy(DESIGN) == strategy


@given(layouts)
def test_every_layout_survives_being_written_and_read(layout):
    assert parse_strategy(format_strategy(layout)) == layout


@given(layouts)
def test_the_short_form_that_tables_print_is_read_as_the_same_layout(layout):
    assert parse_strategy(short_strategy(layout)) == layout


@given(layouts, st.sampled_from([format_strategy, short_strategy]))
def test_strategy_and_current_take_every_form_that_is_printed(layout, printed):
    taken = int(layout.gpus)
    assert read_layout(printed(layout), taken) == layout


@given(layouts, st.randoms(use_true_random=False))
def test_both_forms_may_be_mixed_wrapped_and_in_any_order(layout, chance):
    parts = [
        part.replace("=", "")
        if part.startswith(("tp=", "pp=", "dp=", "mbs=")) and chance.random() < 0.5
        else part
        for part in format_strategy(layout).split(",")
    ]
    chance.shuffle(parts)
    assert parse_strategy(chance.choice([", ", " ", ",\n", "\n  "]).join(parts)) == layout


@pytest.mark.parametrize(
    "text, fields",
    [
        (
            "tp4 pp4 dp32 mbs2 sp offload zero2-cpu",
            {"dp": 32, "offload": frozenset({"activations"})},
        ),
        ("offload(core_attn attn_proj) sp", {"offload": frozenset({"core_attn", "attn_proj"})}),
        ("tp4 vpp10", {"vpp": 10, "schedule": INTERLEAVED}),
        ("tp4 vpp10 1f1b", {"vpp": 10, "schedule": ONE_F_ONE_B}),
        ("vpp=10", {"vpp": 10, "schedule": ONE_F_ONE_B}),
        ("dp8 shard1 zero3", {"shard": 1, "sharding": Sharding.WEIGHTS}),
        ("tp2 no-dp-overlap tp-overlap", {"data_overlap": False, "tensor_overlap": True}),
        (
            "tp=2, sp, recompute(layernorm mlp_act)",
            {"recompute_modules": frozenset({"layernorm", "mlp_act"})},
        ),
        (
            "recompute:full:4 a2a cp2",
            {"recompute_layers": 4, "context_mode": ContextMode.ALL_TO_ALL},
        ),
    ],
)
def test_words_of_the_short_form_mean_their_fields(text, fields):
    read = parse_strategy(text)
    assert {name: getattr(read, name) for name in fields} == fields


@given(st.permutations(DESIGN.split(",")))
def test_keys_may_come_in_any_order(parts):
    assert parse_strategy(" , ".join(parts)) == parse_strategy(DESIGN)


def test_what_is_left_of_the_devices_is_data_parallel():
    assert parse_strategy("tp=8,pp=4,cp=2", gpus=1024).dp == 16


def test_case_and_underscores_do_not_matter():
    assert parse_strategy("TP=2,EP_overlap=True").expert_overlap


@pytest.mark.parametrize(
    "text, named",
    [
        ("tp=0", "strategy.tp"),
        ("tp=-1", "strategy.tp"),
        ("tp=1.5", "strategy.tp"),
        ("tp=8,tp=4", "strategy.tp"),
        ("tp", "strategy"),
        ("tp=", "strategy"),
        ("ttp=8", "strategy"),
        ("sp=yes", "strategy.sp"),
        ("recompute=some", "strategy.recompute"),
        ("recompute=selective:attn", "strategy.recompute"),
        ("recompute=none:4", "strategy.recompute"),
        ("recompute=full:0", "strategy.recompute"),
        ("offload=disk", "strategy.offload"),
        ("optimizer=adam", "strategy.optimizer"),
        ("schedule=gpipe", "strategy.schedule"),
        ("tp=7", "strategy"),
        ("tp=8,dp=9", "strategy.dp"),
        ("tp8 tp=8", "strategy.tp"),
        ("sp no-sp", "strategy.sp"),
        ("tp4 faster", "strategy"),
        ("recompute(attn)", "strategy.recompute"),
        ("recompute(", "strategy"),
        (",", "strategy"),
        ("", "strategy"),
        (None, "strategy"),
        ("tp=8," * 1000, "strategy"),
    ],
)
def test_what_cannot_be_is_refused_by_its_key(text, named):
    with pytest.raises(InputError) as caught:
        parse_strategy(text, gpus=64)
    assert str(caught.value).startswith(f"{named}:")
    assert "\n" not in str(caught.value)


@given(st.text(max_size=60) | st.text(alphabet="tpcd=,:+18- selectivefull", max_size=60))
def test_any_text_is_either_read_or_refused_as_bad_input(text):
    try:
        strategy = parse_strategy(text)
    except InputError:
        return
    assert parse_strategy(format_strategy(strategy)) == strategy
