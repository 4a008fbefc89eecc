"""A layout becomes a trainer's own words, and those words become the layout again."""

import argparse
import contextlib
import dataclasses
import json

import pytest
from hybrids import HYBRIDS
from hypothesis import given, settings
from hypothesis import strategies as st
from questions import case
from shapes import decoder

from mofa_model import presets
from mofa_model.axes.frameworks import framework
from mofa_model.blocks import Experts, SoftmaxAttention
from mofa_model.errors import BadFile, BadValue, InputError, UnknownName
from mofa_model.launch import launch, read, read_layout
from mofa_model.launch.answer import LaunchSettings
from mofa_model.launch.megatron import CONTEXT_WORDS, hybrid_pattern
from mofa_model.launch.table import table
from mofa_model.schedules import DUALPIPE, INTERLEAVED, ONE_F_ONE_B
from mofa_model.strategy import (
    ContextMode,
    Graphs,
    Placement,
    Recompute,
    Sharding,
    Strategy,
)

BIG = case()
"""LLaMA3-405B: 126 layers."""
WIDE = SoftmaxAttention(heads=64, kv_heads=64, head_dim=128)
SIZES = dict(layers=126, hidden=8192, attention=WIDE, ffn=8192, vocabulary=32000)
PLAIN = case(decoder("plain", **SIZES))
MIXED = case(decoder("mixed", experts=Experts(count=8, top_k=2, width=2048), **SIZES))
"""Heads for any split; without experts and with them."""


def a_parser_of(trainer):
    """What the trainer's own parser does with flags, made from the argument table."""
    parser = argparse.ArgumentParser(allow_abbrev=False, exit_on_error=False)
    for name, kind in table(trainer).kinds.items():
        if kind.startswith("word:"):
            continue
        choices = table(trainer).choices(name) or None
        if kind == "flag":
            parser.add_argument(f"--{name}", action="store_true")
        elif kind.startswith("words:"):
            parser.add_argument(f"--{name}", nargs="+", choices=choices)
        else:
            parser.add_argument(f"--{name}", type=int if kind == "int" else str, choices=choices)
    return parser


def test_the_published_layout_of_llama_405b_reads_as_megatron_users_write_it():
    strategy = Strategy(tp=8, pp=16, dp=128, sequence_parallel=True, pipeline_overlap=False)
    words = launch(strategy, "megatron", BIG, interval_steps=120).arguments
    assert " ".join(words) == (
        "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 16"
        " --account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split --context-parallel-size 1"
        " --sequence-parallel --micro-batch-size 1 --global-batch-size 2048 --seq-length 8192"
        " --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather --no-overlap-p2p-communication --bf16"
        " --save-interval 120 --async-save --use-persistent-ckpt-worker --async-strategy mcore"
    )


def test_layers_that_no_rule_divides_are_dealt_out_by_a_layout():
    strategy = Strategy(pp=16, dp=128, ep=64, pipeline_overlap=False)
    words = launch(strategy, "megatron", case("deepseek-v3", batch=15360)).arguments
    layout = words[words.index("--pipeline-model-parallel-layout") + 1]
    assert layout == "Et*3|" + "t*4|" * 14 + "t*2mL"
    assert 3 + 14 * 4 + 2 == 61


def test_torchtitan_gets_flags_and_the_word_for_recomputation_comes_last():
    strategy = Strategy(
        tp=8,
        dp=64,
        mbs=2,
        sharding=Sharding.WEIGHTS,
        recompute=Recompute.FULL,
        sequence_parallel=True,
    )
    words = launch(strategy, "torchtitan", case(batch=1024), interval_steps=120).arguments
    assert words[-1] == "activation-checkpoint:full"
    assert "--parallelism.data_parallel_shard_degree 64" in " ".join(words)
    assert "--training.local_batch_size 2 --training.global_batch_size 1024" in " ".join(words)
    assert (
        "--checkpoint.enable --checkpoint.interval 120 --checkpoint.async_mode async"
        in " ".join(words)
    )


def test_nemo_gets_overrides_of_a_recipe():
    strategy = Strategy(
        tp=4,
        pp=8,
        dp=16,
        vpp=2,
        schedule=INTERLEAVED,
        sequence_parallel=True,
        recompute=Recompute.SELECTIVE,
    )
    words = launch(strategy, "nemo", case(precision="fp8-current"), interval_steps=120).arguments
    assert "model.virtual_pipeline_model_parallel_size=2" in words
    assert "model.recompute_modules=[core_attn]" in words
    assert "mixed_precision=bf16_with_fp8_current_scaling_mixed" in words
    assert "checkpoint.save_interval=120" in words


def test_deepspeed_gets_a_configuration_whose_batch_sizes_multiply_up():
    strategy = Strategy(tp=4, dp=64, mbs=2, sharding=Sharding.GRADIENTS, optimizer=Placement.HOST)
    answer = launch(strategy, "deepspeed", BIG, interval_steps=120)
    config = json.loads(answer.files["ds_config.json"])
    assert (
        config["train_micro_batch_size_per_gpu"] * config["gradient_accumulation_steps"] * 64
        == 2048
    )
    assert config["zero_optimization"]["stage"] == 2
    assert config["zero_optimization"]["offload_optimizer"]["device"] == "cpu"
    assert config["tensor_parallel"] == {"autotp_size": 4}
    assert answer.arguments[-4:] == ("--save_strategy", "steps", "--save_steps", "120")


def test_a_launch_can_be_copied_into_a_shell():
    text = launch(Strategy(tp=8, dp=256), "megatron", BIG).text()
    assert text.startswith(
        "# Megatron-LM (megatron-core 0.19.2)\nexport CUDA_DEVICE_MAX_CONNECTIONS=1\n"
    )
    assert "--micro-batch-size 1 \\\n" in text


@pytest.mark.parametrize(
    "trainer, strategy, field",
    [
        ("megatron", Strategy(schedule=DUALPIPE, pp=2), "schedule"),
        ("nemo", Strategy(chunks=4), "chunks"),
        ("torchtitan", Strategy(dp=2), "sharding"),
        (
            "torchtitan",
            Strategy(dp=2, sharding=Sharding.WEIGHTS, optimizer=Placement.HOST),
            "optimizer",
        ),
        ("megatron", Strategy(dp=2, sharding=Sharding.NONE, optimizer=Placement.HOST), "optimizer"),
        ("megatron", Strategy(graphs=Graphs.PARTIAL, recompute=Recompute.FULL), "graphs"),
        ("megatron", Strategy(pp=2, dp=2, sharding=Sharding.WEIGHTS), "sharding"),
        ("deepspeed", Strategy(pp=2), "pp"),
        ("deepspeed", Strategy(dp=4, shard=2, sharding=Sharding.WEIGHTS), "shard"),
        ("deepspeed", Strategy(cp=2), "cp"),
        ("deepspeed", Strategy(offload=frozenset({"layer_input"})), "offload"),
        ("torchtitan", Strategy(sharding=Sharding.NONE, cp=2), "sharding"),
        ("megatron", Strategy(offload=frozenset({"activations"})), "offload"),
        ("megatron", Strategy(tp=2, tensor_overlap=True), "tp-overlap"),
        (
            "megatron",
            Strategy(offload=frozenset({"core_attn"}), recompute=Recompute.FULL),
            "offload",
        ),
        ("nemo", Strategy(pp=2, vpp=4, recompute=Recompute.FULL, recompute_layers=2), "recompute"),
    ],
)
def test_what_a_trainer_cannot_be_told_is_refused_by_name(trainer, strategy, field):
    with pytest.raises(BadValue, match=rf"strategy\.{field}: .*{trainer}"):
        launch(strategy, trainer, BIG)


def test_states_of_other_optimizers_are_shared_and_kept_as_megatron_can():
    muon = case(optimizer="muon")
    assert "--use-distributed-optimizer" in launch(Strategy(dp=2), "megatron", muon).arguments
    for field, strategy in {
        "sharding": Strategy(dp=4, sharding=Sharding.WEIGHTS),
        "optimizer": Strategy(dp=4, optimizer=Placement.HOST),
    }.items():
        launch(strategy, "megatron", BIG)
        with pytest.raises(BadValue, match=rf"strategy\.{field}: .*megatron cannot run it"):
            launch(strategy, "megatron", muon)


@pytest.mark.parametrize("trainer", ["megatron", "torchtitan", "deepspeed", "accelerate"])
def test_what_a_trainer_can_run_names_the_place_where_it_was_read(trainer):
    given = dict(framework(trainer).entry)
    read = given.pop("read")
    assert set(given) - {"about", "aliases", "source", "note"} == set(read)


def test_an_unknown_trainer_is_refused_with_the_known_ones():
    with pytest.raises(UnknownName, match="did you mean megatron"):
        launch(Strategy(), "megatrn", BIG)


def test_a_batch_that_does_not_divide_is_refused():
    with pytest.raises(BadValue, match="it must divide the batch"):
        launch(Strategy(dp=3), "megatron", BIG)


degrees = st.sampled_from([1, 2, 4, 8])


@st.composite
def layouts_of_accelerate(draw):
    """Layouts that one of its engines runs."""
    cp, dp = draw(degrees), draw(degrees)
    modes = [ContextMode.RING, ContextMode.ALL_GATHER, ContextMode.ALL_TO_ALL]
    mode = draw(st.sampled_from(modes)) if cp > 1 else ContextMode.RING
    engine = (
        "deepspeed"
        if mode is ContextMode.ALL_TO_ALL
        else "fsdp"
        if cp > 1
        else draw(st.sampled_from(["deepspeed", "fsdp", "ddp"]))
    )
    whole = draw(st.booleans())
    levels = {
        "ddp": [Sharding.NONE],
        "fsdp": [Sharding.GRADIENTS, Sharding.WEIGHTS],
        "deepspeed": [Sharding.OPTIMIZER, Sharding.GRADIENTS, Sharding.WEIGHTS],
    }
    groups = [cp * n for n in (2, 4) if n < dp] if engine == "fsdp" else []
    level = draw(st.sampled_from(levels[engine]))
    needed = (
        engine == "deepspeed"
        and mode is not ContextMode.ALL_TO_ALL
        and level is not Sharding.OPTIMIZER
    )
    homes = (
        [Placement.HOST]
        if needed
        else list(Placement)
        if engine == "deepspeed"
        else [Placement.DEVICE]
    )
    return Strategy(
        cp=cp,
        dp=dp,
        context_mode=mode,
        mbs=draw(st.sampled_from([1, 2])),
        recompute=Recompute.FULL if whole else Recompute.NONE,
        offload=frozenset({"layer_input"}) if whole and draw(st.booleans()) else frozenset(),
        sharding=level,
        shard=draw(st.sampled_from([0, *groups])),
        optimizer=draw(st.sampled_from(homes)),
    )


@st.composite
def layouts(draw, *, trainer):
    """Layouts that a trainer can be told."""
    tp, pp, cp, dp = draw(degrees), draw(degrees), draw(degrees), draw(degrees)
    megatron = trainer in {"megatron", "nemo"}
    vpp = draw(st.sampled_from([1, 2])) if pp > 1 and trainer != "deepspeed" else 1
    recompute = draw(
        st.sampled_from(
            [Recompute.NONE, Recompute.FULL]
            + ([Recompute.SELECTIVE] if trainer != "deepspeed" else [])
        )
    )
    fields = {
        "tp": tp,
        "pp": 1 if trainer == "deepspeed" else pp,
        "cp": cp,
        "dp": dp,
        "vpp": vpp,
        "mbs": draw(st.sampled_from([1, 2])),
        "schedule": INTERLEAVED if vpp > 1 else ONE_F_ONE_B,
        "recompute": recompute,
    }
    fields["etp"] = draw(st.sampled_from([1, 2])) if megatron and tp > 1 else 1
    holders = tp * fields["cp"] * dp // fields["etp"]
    fields["ep"] = draw(degrees.filter(lambda ep: holders % ep == 0))
    if megatron:
        fields["pipeline_overlap"] = fields["pp"] == 1 or vpp > 1
        levels = [Sharding.NONE, Sharding.OPTIMIZER] if pp > 1 else list(Sharding)
        fields["sharding"] = draw(st.sampled_from(levels))
        fields["sequence_parallel"] = tp > 1
        fields["tensor_overlap"] = tp > 1 and draw(st.booleans())
        fields["data_overlap"] = draw(st.booleans())
        whole = recompute is Recompute.FULL
        chunks = pp == 1 or vpp > 1
        fields["expert_overlap"] = chunks and fields["ep"] > 1 and not whole and draw(st.booleans())
        inputs = ["attn_norm", "qkv_linear", "core_attn", "mlp_norm", "expert_fc1", "moe_act"]
        fields["offload"] = frozenset() if whole else draw(st.frozensets(st.sampled_from(inputs)))
        graphs = [Graphs.NONE]
        if not fields["offload"]:
            sharded = fields["sharding"] in {Sharding.GRADIENTS, Sharding.WEIGHTS}
            graphs += [Graphs.FULL] if whole or sharded else [Graphs.FULL, Graphs.PARTIAL]
        fields["graphs"] = draw(st.sampled_from(graphs))
        if fields["cp"] > 1:
            fields["context_mode"] = draw(st.sampled_from(list(CONTEXT_WORDS)))
        if recompute is Recompute.FULL:
            fields["recompute_layers"] = draw(st.sampled_from([0, 2 * vpp]))
        if fields["sharding"] is not Sharding.NONE:
            fields["optimizer"] = draw(st.sampled_from(list(Placement)))
        ranks = dp * fields["cp"]
        held = ranks * tp // (fields["ep"] * fields["etp"])  # ranks that hold the same experts
        if fields["sharding"] is not Sharding.NONE and ranks > 1 and held == ranks:
            fields["shard"] = draw(st.sampled_from([0, ranks // 2]))
    elif trainer == "torchtitan":
        fields["sharding"] = draw(st.sampled_from([Sharding.GRADIENTS, Sharding.WEIGHTS]))
        fields["sequence_parallel"] = tp > 1
        fields["tensor_overlap"] = tp > 1 and draw(st.booleans())
        fields["recompute_modules"] = frozenset({"per_op"})
    else:
        if tp > 1:
            fields["ep"] = 1  # it has no sequence parallelism
        levels = [
            level
            for level in Sharding
            if fields["ep"] == 1 or fields["cp"] == 1 or level is not Sharding.WEIGHTS
        ]
        fields["sharding"] = draw(st.sampled_from(levels))
        homes = [Placement.DEVICE] if fields["sharding"] is Sharding.NONE else list(Placement)
        fields["optimizer"] = draw(st.sampled_from(homes))
        fields["data_overlap"] = fields["sharding"] in {Sharding.WEIGHTS, Sharding.OPTIMIZER}
        fields["context_mode"] = ContextMode.ALL_TO_ALL
    return Strategy(**fields)


def normal(strategy):
    """The same layout with fields that say nothing set to their default."""
    plain = Strategy()
    changes = {}
    if strategy.recompute is not Recompute.SELECTIVE:
        changes["recompute_modules"] = plain.recompute_modules
    if strategy.cp == 1:
        changes["context_mode"] = plain.context_mode
    if strategy.dp * strategy.cp == 1:
        changes["sharding"] = plain.sharding  # nobody to share with
    return dataclasses.replace(strategy, **changes)


@pytest.mark.parametrize("trainer", ["megatron", "torchtitan", "nemo", "deepspeed", "accelerate"])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_writing_and_reading_a_launch_gives_the_same_layout(trainer, data):
    drawn = layouts_of_accelerate() if trainer == "accelerate" else layouts(trainer=trainer)
    strategy = data.draw(drawn)
    problem = PLAIN if trainer == "deepspeed" and strategy.tp > 1 else MIXED
    answer = launch(strategy, trainer, problem, interval_steps=120)
    reading = read([*answer.starter, *answer.arguments], answer.files.get)
    assert normal(reading.strategy(int(strategy.gpus), layers=126)) == normal(strategy)
    assert reading.interval_steps == 120
    assert reading.global_batch == 2048


@settings(max_examples=60, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("trainer", ["megatron", "torchtitan"])
def test_every_printed_flag_is_one_that_the_trainer_has(trainer, data):
    strategy = data.draw(layouts(trainer=trainer))
    words = [
        w
        for w in launch(strategy, trainer, MIXED).arguments
        if not w.startswith("activation-checkpoint:")
    ]
    _, unknown = a_parser_of(trainer).parse_known_args(words)
    assert unknown == []


def test_layers_of_a_virtual_stage_become_a_number_of_virtual_stages():
    reading = read(
        [
            "--num-layers",
            "96",
            "--pipeline-model-parallel-size",
            "4",
            "--num-layers-per-virtual-pipeline-stage",
            "8",
        ]
    )
    assert reading.strategy(4).vpp == 3


def test_a_torchtitan_file_of_an_earlier_release_is_read(tmp_path):
    text = """
[training]
batch_size = 2
seq_len = 8192
compile = true
[parallelism]
tensor_parallel_degree = 8
data_parallel_shard_degree = -1
[activation_checkpoint]
mode = "full"
[checkpoint]
enable_checkpoint = true
interval = 500
"""
    strategy = read_layout("--job.config_file job.toml", 64, open_file={"job.toml": text}.get)
    assert (strategy.tp, strategy.dp, strategy.mbs, strategy.sharding) == (
        8,
        8,
        2,
        Sharding.WEIGHTS,
    )
    assert strategy.recompute is Recompute.FULL


def test_nemo_two_names_are_read():
    text = "trainer.strategy.tensor_model_parallel_size=4 trainer.strategy.pipeline_model_parallel_size=2 data.micro_batch_size=2"
    strategy = read_layout(text, 16)
    assert (strategy.tp, strategy.pp, strategy.dp, strategy.mbs) == (4, 2, 2, 2)


def test_strategy_text_and_launch_arguments_are_both_a_current_layout():
    assert read_layout("tp=8,pp=2", 32) == Strategy(tp=8, pp=2, dp=2)
    assert read_layout(["--tensor-model-parallel-size=8"], 32).dp == 4


@pytest.mark.parametrize(
    "text, message",
    [
        ("--tensor-model-parallel-size $TP", "shell variables cannot be read"),
        ("--tensor-model-parallel-size 8 --recompute-granularity some", "one of full, selective"),
        ("--lr 3e-4", "write tp=8,pp=4"),
        ("--tensor-model-parallel-size 'oops", "the quotes must match"),
        ("--tensor-model-parallel-size 3", "it must divide the 64 devices"),
    ],
)
def test_a_launch_command_that_cannot_be_read_is_refused_in_one_line(text, message):
    with pytest.raises(InputError, match=message.replace("$", r"\$")) as caught:
        read_layout(text, 64)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["[1]", "{", '{"zero_optimization": {"stage": 7}}', '{"train_batch_size": "x"}']
)
def test_a_broken_deepspeed_file_is_refused(text):
    with pytest.raises((BadFile, BadValue)):
        read(["--deepspeed", "ds.json"], {"ds.json": text}.get)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=200))
def test_any_text_is_a_layout_or_an_input_error(text):
    with contextlib.suppress(InputError):
        assert isinstance(read_layout(text, 64), Strategy)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.sampled_from([f"--{name}" for name in table("megatron").kinds]),
            st.sampled_from([f"--{name}" for name in table("torchtitan").kinds]),
            st.sampled_from([f"{name}=2" for name in table("nemo").kinds]),
            st.sampled_from(["1", "2", "true", "full", "selective", "-1", "p2p"]),
            st.text(max_size=8),
        ),
        max_size=8,
    )
)
def test_any_words_are_a_layout_or_an_input_error(words):
    with contextlib.suppress(InputError):
        assert isinstance(read_layout(words, 64, layers=32), Strategy)


def test_a_model_of_unlike_layers_is_launched_with_its_pattern_and_read_back():
    """Mamba and dense layers in one half, attention in the other; Bridge is told too, but of no
    virtual stages.
    """
    stages = ((("state_space",), ("dense",)), (("attention",), ("experts",)))
    run = LaunchSettings(sequence=8192, global_batch=8, layers=4, stages=stages)
    assert hybrid_pattern(run) == "M-|*E"
    again = dataclasses.replace(run, stages=stages * 2, layers=8, prediction_modules=1)
    assert hybrid_pattern(again) == "M-|*E|M-|*E/E"
    problem, strategy = case(HYBRIDS["nemotron-h-8b"]), Strategy(pp=2, dp=4, pipeline_overlap=False)
    words = launch(strategy, "megatron", problem).arguments
    pattern = words[words.index("--hybrid-layer-pattern") + 1]
    assert pattern.count("|") == 1
    assert len(pattern) == problem.workload.model.layers + 1
    interleaved = Strategy(pp=2, vpp=2, dp=4, schedule=INTERLEAVED)
    assert read(launch(interleaved, "megatron", problem).arguments).layout["vpp"] == 2
    (told,) = [word for word in launch(strategy, "nemo", problem).arguments if "hybrid" in word]
    assert told == f"model.hybrid_layer_pattern='{pattern}'"
    with pytest.raises(
        BadValue, match=r"strategy.schedule: 'interleaved' cannot be right; nemo cannot run"
    ):
        launch(interleaved, "nemo", problem)


def test_a_trainer_without_a_block_refuses_the_model_by_name():
    hybrid = case(HYBRIDS["nemotron-h-8b"]).workload
    framework("megatron").require(hybrid)
    with pytest.raises(
        BadValue, match="framework: 'torchtitan' cannot be right; it has no state space"
    ):
        framework("torchtitan").require(hybrid)
    with pytest.raises(
        BadValue, match=r"it has no kimi delta attention.*hybrid_layer_allocation.py"
    ):
        framework("megatron").require(case(HYBRIDS["kimi-linear"]).workload)
    with pytest.raises(
        BadValue, match=r"no feed-forward block without a gate \(torchtitan 0.3.0, models/common"
    ):
        framework("torchtitan").require(case("gpt3-175b").workload)


def test_attention_beside_a_state_space_is_one_stage_of_bridge_and_no_model_of_megatron():
    """Falcon-H1 hands one input to both; Megatron's symbols stand one behind the other."""
    model = presets.model("falcon-h1-7b")
    with pytest.raises(BadValue, match="no layer with attention beside a state space"):
        framework("megatron").require(case(model).workload)
    framework("nemo").require(case(model).workload)
    problem = case(model)
    assert launch(Strategy(dp=8), "nemo", problem).arguments
    with pytest.raises(BadValue, match=r"strategy.pp: '2' cannot be right; nemo cannot run it"):
        launch(Strategy(pp=2, dp=4, pipeline_overlap=False), "nemo", problem)


def test_a_model_of_state_spaces_alone_is_told_layer_by_layer():
    """Megatron's flags that count layers stand beside no pattern."""
    problem = case(presets.model("mamba2-2.7b"))
    words = launch(Strategy(pp=3, dp=4, pipeline_overlap=False), "megatron", problem).arguments
    pattern = words[words.index("--hybrid-layer-pattern") + 1]
    assert [len(stage) for stage in pattern.split("|")] == [21, 22, 21]
    assert "--account-for-embedding-in-pipeline-split" not in words


def test_torchtitan_runs_unlike_layers_on_one_stage_alone():
    problem = case(HYBRIDS["qwen3-next"])
    layout = Strategy(dp=8, sharding=Sharding.WEIGHTS)
    assert launch(layout, "torchtitan", problem).arguments
    with pytest.raises(
        BadValue, match=r"strategy.pp: '2' cannot be right; torchtitan cannot run it"
    ):
        launch(dataclasses.replace(layout, pp=2, dp=4), "torchtitan", problem)


def test_what_acts_on_nothing_is_neither_said_nor_refused():
    """Overlap of expert exchange, asked for where ep = 1, stands beside stages without
    virtual ones.
    """
    asked = Strategy(
        tp=2, pp=4, dp=8, expert_overlap=True, pipeline_overlap=False, sequence_parallel=True
    )
    said = launch(asked, "megatron", case("mixtral-8x7b", batch=512)).arguments
    assert "--overlap-moe-expert-parallel-comm" not in said


def test_groups_of_shards_run_beside_experts_whose_ranks_divide_by_them():
    """Of 32 ranks 4 hold an expert: 4 copies of the rest are 4 of the experts, 8 are none."""
    problem = case("deepseek-v2-lite", batch=512)
    grouped = Strategy(dp=32, ep=8, shard=8)
    assert "--num-distributed-optimizer-instances 4" in " ".join(
        launch(grouped, "megatron", problem).arguments
    )
    with pytest.raises(
        BadValue, match=r"strategy.shard: '4' cannot be right; megatron cannot run it"
    ):
        launch(dataclasses.replace(grouped, shard=4), "megatron", problem)


def test_context_is_parallel_beside_blocks_alone_that_see_each_other_through_it():
    problem = case(HYBRIDS["nemotron-h-8b"])
    split = Strategy(cp=2, dp=4)
    with pytest.raises(BadValue, match=r"megatron cannot run it"):
        launch(split, "megatron", problem)
    turned = dataclasses.replace(split, context_mode=ContextMode.ALL_TO_ALL)
    assert launch(turned, "megatron", problem).arguments
    for trainer in ("deepspeed", "accelerate"):
        with pytest.raises(BadValue, match=f"{trainer} cannot run it"):
            launch(turned, trainer, problem)
