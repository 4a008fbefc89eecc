"""Every option of a trainer's own parser is read, refused by name, named as not priced, or judged
to say nothing of memory and time.

`python tools/options.py` asks the parsers again; no trainer is needed here.
"""

import json
import sys
from collections import Counter
from pathlib import Path

import pytest

from mofa_model.cli import main
from mofa_model.errors import BadValue
from mofa_model.launch import TRAINERS, read, read_layout
from mofa_model.launch.table import table
from mofa_model.strategy import LAYER_INPUT, Graphs, Recompute

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))
import options

RECORD = json.loads(options.RECORD.read_text(encoding="utf-8"))
MEGATRON = "--tensor-model-parallel-size 2 --num-layers 32"
BRIDGE = "model.tensor_model_parallel_size=2"
TITAN = "--parallelism.tensor_parallel_degree 2"
PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "trainers.md").read_text(
    encoding="utf-8"
)


def test_the_parsers_that_were_asked_are_those_of_trainers_that_are_launched():
    """A new trainer is asked once `tools/options.py` has its parser."""
    assert {*RECORD} <= {*TRAINERS}
    assert len(RECORD) >= 5


@pytest.mark.parametrize("trainer", RECORD)
def test_every_option_of_a_parser_is_read_refused_or_named(trainer):
    said = RECORD[trainer]
    assert said["release"] == table(trainer).release
    made = {option: options.made_of(trainer, option) for option in said["options"]}
    assert [option for option, what in made.items() if not what] == []
    assert [option for option in said["beside"] if options.made_of(trainer, option)] == []
    counted, every = Counter(made.values()), len(made) + len(said["beside"])
    numbers = (
        every,
        counted["read"],
        counted["refused"],
        len(table(trainer).priced_values),
        counted["not priced"],
    )
    assert f"| `{trainer}` | {' | '.join(map(str, numbers))} |" in PAGE


@pytest.mark.parametrize("trainer", RECORD)
def test_what_is_refused_or_has_only_one_price_is_an_option_or_was_one(trainer):
    known = table(trainer)
    bare = {option.removeprefix("--") for option in RECORD[trainer]["options"]}
    names = {
        *bare,
        *RECORD[trainer]["options"],
        *known.kinds,
        "activation_checkpoint.selective_ac_option",
    }
    wholes = {name.rpartition(".")[0] for name in names}
    assert [
        name for name in (*known.refused, *known.priced_values) if name not in names | wholes
    ] == []


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (f"{MEGATRON} --cpu-offloading-num-layers 4", "cpu-offloading-num-layers: '4' cannot be right; its cost is not modelled: say --fine"),
        (f"{MEGATRON} --optimizer-cpu-offload --optimizer-offload-fraction 0.5", "optimizer-offload-fraction: '0.5' .* only 1 or 1.0"),
        (f"{MEGATRON} --recompute-granularity full --recompute-method uniform --recompute-num-layers 4", "recompute num layers: 4 .* say 1"),
        (f"{MEGATRON} --recompute-granularity selective --recompute-modules shared_experts", "recomputed modules: 'shared_experts'"),
        (f"{MEGATRON} --cuda-graph-impl transformer_engine --cuda-graph-scope attn mlp", "cuda graph modules: 'attn mlp' .* capture attn"),
        (f"{MEGATRON} --enable-cuda-graph", "cuda graph modules: 'the whole layer'"),
        (f"{MEGATRON} --decoder-first-pipeline-num-layers 3", "say --pipeline-model-parallel-layout"),
        (f"{MEGATRON} --use-mp-args-from-checkpoint-args", "say the sizes in the command"),
        (f"{BRIDGE} model.cpu_offloading=true", "say model.fine_grained_activation_offloading"),
        (f"{BRIDGE} model.recompute_granularity=full model.recompute_method=uniform model.recompute_num_layers=2", "recompute num layers: 2"),
        (f"{BRIDGE} optimizer.optimizer_offload_fraction=0.3", "only 1 or 1.0 has a modelled cost"),
        (f"{TITAN} activation-checkpoint:memory-budget", "only selective or full or none has a modelled cost"),
        (f"{TITAN} --parallelism.pipeline_parallel_degree 2 --parallelism.pipeline_parallel_schedule GPipe", "'GPipe' .* has a modelled cost"),
    ],
)  # fmt: skip
def test_what_is_only_partly_priced_is_refused_by_its_name(command, why):
    with pytest.raises(BadValue, match=why):
        read_layout(command, 16, layers=32)


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme"}}}, "offload_param.device: 'nvme' .* only cpu or none"),
        ({"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8}}, "zero_hpz_partition_size: 8 .* only 1"),
        ({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "nvme"}}}, "'nvme' .* only cpu or none"),
        ({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "ratio": 0.4}}}, "ratio: 0.4"),
        ({"activation_checkpointing": {"partition_activations": True}}, "partition_activations"),
    ],
)  # fmt: skip
def test_deepspeed_too_refuses_what_is_only_partly_priced(told, why):
    with pytest.raises(BadValue, match=why):
        read(["t.py", "--deepspeed", "c.json"], {"c.json": json.dumps(told)}.get)


def test_every_second_layer_is_half_of_the_layers():
    """transformers checkpoints the layers whose number divides: of 33 layers 17."""
    told = "accelerate launch --multi_gpu t.py --activation_checkpointing --activation_checkpointing_kwargs"
    found = read_layout(f"""{told} '{{"every_n_layers": 2, "offload": true}}'""", 16, layers=33)
    assert (found.recompute, found.recompute_layers, found.offload) == (
        Recompute.FULL,
        17,
        frozenset({LAYER_INPUT}),
    )
    with pytest.raises(BadValue, match="say how many layers the model has"):
        read_layout(f"""{told} '{{"every_n_layers": 2}}'""", 16)
    for keyword, why in (
        ('{"every_n_layers": 0}', "every_n_layers: 0"),
        ('{"policy": 1}', "'policy' .* cost is not modelled"),
    ):
        with pytest.raises(BadValue, match=why):
            read_layout(f"{told} '{keyword}'", 16, layers=33)


def test_older_words_for_graphs_are_read_as_what_they_capture():
    whole = f"{MEGATRON} --cuda-graph-impl local --cuda-graph-scope full_iteration"
    part = f"{MEGATRON} --cuda-graph-impl transformer_engine --cuda-graph-scope attn moe_router moe_preprocess"
    assert [read_layout(one, 16).graphs for one in (whole, part)] == [Graphs.FULL, Graphs.PARTIAL]


def test_what_is_not_priced_is_told_where_somebody_types_it(capsys, tmp_path):
    job = [
        "--model",
        "llama3-8b",
        "--gpu",
        "h100",
        "--gpus",
        "16",
        "--global-batch",
        "64",
        "--seq",
        "4096",
    ]
    assert (
        main(["explain", *job, "--strategy", f"{MEGATRON} --attention-backend fused --lr 1e-4"])
        == 0
    )
    assert capsys.readouterr().err == "--strategy: the cost of attention-backend is not modelled\n"
    file = tmp_path / "c.yaml"
    file.write_text(
        "distributed_type: FSDP\nfsdp_config: {fsdp_version: 2, fsdp_forward_prefetch: true}\n"
    )
    command = f"accelerate launch --config_file {file} t.py --per_device_train_batch_size 1"
    assert main(["explain", *job, "--strategy", command]) == 0
    assert (
        capsys.readouterr().err == "--strategy: the cost of fsdp_forward_prefetch is not modelled\n"
    )
