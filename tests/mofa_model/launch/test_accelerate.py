"""Configurations of `accelerate launch` as people have them, read as layouts; and what is refused,
by name.
"""

import pytest

from mofa_model.errors import BadFile, BadValue, DoesNotFit
from mofa_model.launch import read, read_layout
from mofa_model.strategy import ContextMode, Placement, Recompute, Sharding

FSDP1 = """\
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
mixed_precision: bf16
num_machines: 2
num_processes: 16
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_sharding_strategy: SHARD_GRAD_OP
  fsdp_offload_params: true
use_cpu: false
"""
HYBRID = """\
distributed_type: FSDP
mixed_precision: bf16
fsdp_config:
  version: 2
  reshard_after_forward: "true"
  activation_checkpointing: true
parallelism_config:
  parallelism_config_dp_replicate_size: 2
  parallelism_config_dp_shard_size: 2
  parallelism_config_tp_size: 2
  parallelism_config_cp_size: 2
"""
OFFLOADED = """\
distributed_type: FSDP
fsdp_config: {fsdp_version: 2, fsdp_offload_params: true, fsdp_reshard_after_forward: true}
"""
INLINE = """\
distributed_type: DEEPSPEED
deepspeed_config: {zero_stage: 3, offload_optimizer_device: cpu}
"""
COMMAND = "accelerate launch --config_file c.yaml --num_processes 16 train.py --per_device_train_batch_size 4"


def layout(text, command=COMMAND, gpus=16, **files):
    return read_layout(command, gpus, open_file={"c.yaml": text, **files}.__getitem__)


def test_fsdp_of_the_first_version_shares_gradients_and_keeps_its_weights_on_the_host():
    found = layout(FSDP1)
    assert (found.sharding, found.optimizer, found.dp, found.mbs) == (
        Sharding.GRADIENTS,
        Placement.HOST,
        16,
        4,
    )
    assert read(COMMAND.split(), {"c.yaml": FSDP1}.get).precision == "bf16"


def test_weights_on_the_host_are_read_where_they_are_shared():
    """`offload_param` acts at stage 3 alone; FSDP moves weights, gradients and states at once."""
    zero3, zero2 = (
        INLINE.replace("cpu}", "cpu, offload_param_device: cpu}"),
        INLINE.replace("zero_stage: 3", "zero_stage: 2"),
    )
    for text, away in (
        (zero3, True),
        (INLINE, False),
        (zero2.replace("cpu}", "cpu, offload_param_device: cpu}"), False),
        (OFFLOADED, True),
    ):
        found = layout(text)
        assert (found.optimizer, found.host_weights) == (Placement.HOST, away)


def test_sizes_of_a_mesh_are_its_degrees_and_its_groups():
    found = layout(HYBRID)
    assert (found.dp, found.tp, found.cp, found.shard) == (4, 2, 2, 4)
    assert (found.sharding, found.context_mode) == (Sharding.WEIGHTS, ContextMode.ALL_GATHER)
    assert found.recompute is Recompute.FULL


def test_a_few_keys_stand_for_a_file_of_deepspeed():
    found = layout(INLINE, f"{COMMAND} --gradient_checkpointing True")
    assert (found.sharding, found.optimizer) == (Sharding.WEIGHTS, Placement.HOST)
    assert found.recompute is Recompute.FULL
    assert layout(INLINE, f"{COMMAND} --gradient_checkpointing False").recompute is Recompute.NONE


def test_options_have_the_last_word_and_stand_without_a_file():
    flags = "--use_fsdp --fsdp_version 2 --fsdp_reshard_after_forward false"
    assert (
        layout(HYBRID, COMMAND.replace("train.py", f"{flags} train.py")).sharding
        is Sharding.GRADIENTS
    )
    alone = f"accelerate launch {flags} --parallelism_config_cp_size 4 --parallelism_config_cp_comm_strategy alltoall t.py"
    found = read_layout(alone, 16)
    assert (found.sharding, found.cp, found.context_mode) == (
        Sharding.GRADIENTS,
        4,
        ContextMode.RING,
    )


def test_a_file_alone_is_a_layout():
    assert read_layout("c.yaml", 16, open_file={"c.yaml": HYBRID}.__getitem__).shard == 4


@pytest.mark.parametrize(
    ("text", "error", "why"),
    [
        ("a: [", BadFile, "is not YAML"),
        ("- 1", BadFile, "not a mapping"),
        ("distributed_type: TPU", BadValue, "distributed_type: 'TPU' cannot be right; one of NO, MULTI_GPU"),
        ("distributed_type: MEGATRON_LM", BadValue, "give the flags of Megatron-LM"),
        ("distributed_type: FSDP\nfsdp_config: {fsdp_sharding_strategy: 4}", BadValue, "HYBRID_SHARD.*dp_replicate_size"),
        ("distributed_type: FSDP\nfsdp_config: {fsdp_version: two}", BadValue, "fsdp_version.*whole number"),
        (HYBRID.replace("tp_size: 2", "tp_size: 3"), DoesNotFit, "tp x pp x cp = 6"),
        (HYBRID + "  parallelism_config_cp_comm_strategy: ring\n", BadValue, "one of allgather, alltoall"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_by_its_name(text, error, why):
    with pytest.raises(error, match=why):
        layout(text)


@pytest.mark.parametrize("command", [COMMAND, "accelerate launch t.py --bf16"])
def test_a_layout_in_a_file_that_stays_closed_is_not_guessed(command):
    with pytest.raises(BadValue, match="name one that can be read"):
        read_layout(command, 16)
