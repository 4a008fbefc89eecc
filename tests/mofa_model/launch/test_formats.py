"""A file that somebody gives as today's layout is read where its trainer is known, and refused by
name where it is not.

Thirty-eight of 42 published files of other trainers once came back as Accelerate's, with nothing
sharded. The texts here are what such files are told by.
"""

import json

import pytest

from mofa_model.errors import BadFile, BadValue, InputError
from mofa_model.identity.commands import Contents, TextFile
from mofa_model.identity.launch_found import launch_of
from mofa_model.launch import read, read_layout
from mofa_model.strategy import Recompute, Sharding

NANOTRON = """\
general: {project: smollm2}
model: {dtype: bfloat16, model_config: {num_hidden_layers: 24, pretraining_tp: 4}}
optimizer: {zero_stage: 1}
parallelism: {dp: 32, pp: 1, tp: 2, pp_engine: 1f1b, recompute_layer: true, tp_mode: REDUCE_SCATTER, tp_linear_async_communication: true}
tokens: {micro_batch_size: 4, batch_accumulation_per_replica: 2, sequence_length: 2048}
checkpoints: {checkpoint_interval: 2000}
"""
FOUNDRY = """\
variables: {max_seq_len: 4096}
max_seq_len: ${variables.max_seq_len}
global_train_batch_size: 1024
device_train_microbatch_size: 8
precision: amp_bf16
fsdp_config: {sharding_strategy: SHARD_GRAD_OP, activation_checkpointing: true, activation_cpu_offload: false, mixed_precision: PURE}
"""
BRIDGE = """\
model: {tensor_model_parallel_size: 4, pipeline_model_parallel_size: 2, sequence_parallel: true, recompute_modules: [core_attn]}
train: {global_batch_size: 512, micro_batch_size: 2}
ddp: {use_distributed_optimizer: true}
"""
OTHERS = {
    "GPT-NeoX's": "pipe_parallel_size: 4\nmodel_parallel_size: 2\nzero_optimization: {stage: 1}\ntrain_micro_batch_size_per_gpu: 4\n",
    "verl's or OpenRLHF's": "actor_rollout_ref: {actor: {megatron: {tensor_model_parallel_size: 4}}}\n",
    "arguments of the Hugging Face trainer": "model_name_or_path: a/b\nper_device_train_batch_size: 2\nbf16: true\n",
    "NeMo AutoModel's": "step_scheduler: {global_batch_size: 64}\ndistributed: {tp_size: 2}\n",
    "NeMo's of a release": "trainer: {num_nodes: 4}\nexp_manager: {}\nmodel: {tensor_model_parallel_size: 4, pipeline_model_parallel_size: 2}\n",
    "OLMo's": "global_train_batch_size: 512\ndevice_train_microbatch_size: 4\nfsdp: {sharding_strategy: SHARD_GRAD_OP}\n",
    "Levanter's": "trainer: {mp: 'p=f32,c=bfloat16', train_batch_size: 1024, tensor_parallel_axes: [mlp]}\n",
    "MaxText's": "base_config: base.yml\nper_device_batch_size: 1\nremat_policy: full\n",
    "picotron's": "distributed: {tp_size: 2, pp_size: 4, dp_size: 1}\n",
    "a model's config.json": "model_type: llama\nhidden_size: 4096\nnum_hidden_layers: 32\n",
    "a Kubernetes object": "apiVersion: batch/v1\nkind: Job\n---\napiVersion: v1\nkind: Service\n",
    "a list of Hydra's parts": "defaults: [model: llama]\n",
}


def layout(text, name="c.yaml", gpus=64):
    return read_layout(name, gpus, open_file={name: text}.__getitem__)


@pytest.mark.parametrize("whose", OTHERS)
def test_a_file_of_a_trainer_that_is_not_read_is_refused_by_its_name(whose):
    with pytest.raises(BadFile) as refused:
        layout(OTHERS[whose])
    said = str(refused.value)
    assert f"c.yaml: seems to be {whose}" in said
    assert "Accelerate's (distributed_type)" in said
    assert "tp=8,pp=4" in said
    assert "\n" not in said


@pytest.mark.parametrize(
    "name, text",
    [("c.yaml", "a: 1\n"), ("c.json", "{}"), ("c.toml", "[tool.ruff]\n"), ("c.yaml", "- 1\n")],
)
def test_a_file_that_nobody_knows_is_refused(name, text):
    with pytest.raises(
        BadFile, match=r"not a file of settings that is known|not a mapping of settings"
    ):
        layout(text, name)


def test_a_recipe_of_nanotron_is_read_as_it_trains():
    found = layout(NANOTRON)
    assert (found.tp, found.dp, found.mbs, found.sharding) == (2, 32, 4, Sharding.OPTIMIZER)
    assert (found.sequence_parallel, found.tensor_overlap, found.recompute) == (
        True,
        True,
        Recompute.FULL,
    )
    said = read(["c.yaml"], lambda _: NANOTRON)
    assert (
        said.trainer,
        said.global_batch,
        said.sequence,
        said.precision,
        said.interval_steps,
    ) == (
        "nanotron",
        256,
        2048,
        "bf16",
        2000,
    )
    for odd in (
        "pp: 2, tp: 1, pp_engine: afab",
        "pp: 1, tp: 1, context_parallel_size: 2",
        "pp: 1, tp: 1, expert_parallel_size: 8",
    ):
        with pytest.raises(BadValue, match=r"only 1f1b has|only 1 has"):
            layout(f"parallelism: {{dp: 1, {odd}}}\n")


def test_a_recipe_of_llm_foundry_is_read_as_it_trains():
    found = layout(FOUNDRY)
    assert (found.sharding, found.recompute, found.mbs, found.dp) == (
        Sharding.GRADIENTS,
        Recompute.FULL,
        8,
        64,
    )
    said = read(["c.yaml"], lambda _: FOUNDRY)
    assert (said.global_batch, said.sequence, said.unpriced) == (
        1024,
        4096,
        ("fsdp_config.mixed_precision",),
    )
    for told in (
        "cpu_offload: true",
        "sharding_strategy: HYBRID_SHARD",
        "activation_checkpointing_target: [a]",
    ):
        with pytest.raises(BadValue, match="fsdp_config"):
            layout(f"global_train_batch_size: 8\nfsdp_config: {{{told}}}\n")


def test_a_whole_configuration_of_megatron_bridge_is_read_and_a_part_of_one_is_not():
    found = layout(BRIDGE)
    assert (found.tp, found.pp, found.mbs, found.sequence_parallel) == (4, 2, 2, True)
    with pytest.raises(BadValue, match="the file must give it"):
        layout("train: {global_batch_size: 64, micro_batch_size: 1}\ndataset: {seq_length: 2048}\n")


def test_a_key_that_the_trainer_does_not_have_is_refused_where_it_is_on():
    zero = {
        "zero_optimization": {"stage": 3},
        "_comment": "by hand",
        "comms_config": {"verbose": False},
    }
    assert layout(json.dumps(zero), "ds.json").sharding is Sharding.WEIGHTS
    for text, name in (
        (zero | {"sequence_parallel": {"size": 4}}, "ds.json"),
        ({"distributed_type": "FSDP", "tp": 4}, "c.yaml"),
    ):
        for words in (
            name,
            f"--deepspeed {name} train.py"
            if name == "ds.json"
            else f"accelerate launch --config_file {name} t.py",
        ):
            with pytest.raises(BadFile, match="does not know, so it is not read"):
                read_layout(words, 64, open_file=lambda _, text=text: json.dumps(text))


def test_a_degree_that_is_not_read_is_refused():
    """A degree of tensor parallelism that is not read would be priced as data parallelism, so it
    is refused.
    """
    for text, name in (
        ({"zero_optimization": {"stage": 1}, "tensor_parallel": {"tp_size": 2}}, "ds.json"),
        ({"parallelism": {"tensor_parallel_degree": 2, "sequence_parallel_degree": 2}}, "c.yaml"),
    ):
        with pytest.raises(BadValue, match="this degree is not read"):
            layout(json.dumps(text), name)


def test_a_file_of_another_trainer_is_refused_where_a_command_names_it():
    for words in (
        "accelerate launch --config_file c.yaml t.py",
        "deepspeed t.py --deepspeed c.yaml",
    ):
        with pytest.raises(
            InputError, match=r"c.yaml: seems to be axolotl's, but the command names it as"
        ):
            read_layout(words, 8, open_file=lambda _: "base_model: a/b\nmicro_batch_size: 2\n")


def test_a_job_whose_config_map_has_another_trainer_s_recipe_is_not_taken_for_accelerate_s():
    def of(text):
        found = launch_of(
            Contents(files=[TextFile("run.yaml", text, "ConfigMap/run: data.run.yaml")])
        )
        return found and found.reading.trainer

    assert [whose for whose, text in OTHERS.items() if of(text)] == []
    assert of(NANOTRON) == "nanotron"
