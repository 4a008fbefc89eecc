"""Files of fine-tuners: written whole, read back as the same question at the same price, and taken
by the fine-tuners' own code.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from mofa_model import presets
from mofa_model.axes.frameworks import framework, trainers
from mofa_model.cli import main
from mofa_model.errors import BadValue, InputError
from mofa_model.launch import launch, llama_factory, read, read_layout
from mofa_model.search import SearchCase
from mofa_model.spec import Training, Workload
from mofa_model.spec.tuning import Adapters, Loss, Task
from mofa_model.strategy import Placement, Recompute, Sharding, parse_strategy

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))
import tuners

RECORD = json.loads(tuners.RECORD.read_text(encoding="utf-8"))
PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "trainers.md").read_text(
    encoding="utf-8"
)


def problem(trainer, gpus=8, **given):
    given.setdefault("loss", Loss(framework(trainer).usual("losses", "whole")))
    precision = given.pop("precision", "bf16-pure" if trainer == "torchtune" else "bf16")
    optimizer = presets.optimizer(
        given.pop("optimizer", "adamw-bf16" if trainer == "torchtune" else "adamw")
    )
    training = Training(
        sequence=4096,
        global_batch=64,
        precision=presets.precision(precision, stack=trainer),
        optimizer=optimizer,
        **given,
    )
    workload = Workload(model=presets.model("llama3-8b"), training=training)
    return SearchCase(workload=workload, cluster=presets.cluster("h100", gpus, stack=trainer))


def written(trainer, layout="optimizer=zero3,recompute=full,mbs=2", gpus=8, **given):
    asked = problem(trainer, gpus, **given)
    return launch(parse_strategy(layout, gpus), trainer, asked, interval_steps=100)


QLORA = Adapters(rank=16, targets=frozenset({"q", "v"}), base=presets.base("nf4-double"))


def test_a_file_of_trl_says_the_whole_of_a_fine_tuning():
    found = written("trl", adapters=QLORA)
    assert found.starter == ("trl", "sft")
    assert (
        found.files["trl.yaml"]
        == """\
dataset_name: stanfordnlp/imdb
model_name_or_path: meta-llama/Llama-3.1-8B
output_dir: out
learning_rate: 0.0002
num_train_epochs: 1
dtype: bfloat16
attn_implementation: sdpa
max_length: 4096
packing: true
packing_strategy: wrapped
use_peft: true
lora_r: 16
lora_alpha: 32
lora_dropout: 0.0
lora_target_modules:
- q_proj
- v_proj
load_in_4bit: true
use_bnb_nested_quant: true
bnb_4bit_quant_storage: bfloat16
per_device_train_batch_size: 2
gradient_accumulation_steps: 4
bf16: true
gradient_checkpointing: false
optim: adamw_torch_fused
save_strategy: steps
save_steps: 100
"""
    )
    assert "fsdp_activation_checkpointing: true" in found.files["accelerate.yaml"]


def test_a_file_of_axolotl_has_its_engine_inside():
    text = written("axolotl", adapters=QLORA).files["axolotl.yaml"]
    for line in (
        "base_model: meta-llama/Llama-3.1-8B\n",
        "adapter: qlora\n",
        "lora_r: 16\n",
        "micro_batch_size: 2\n",
        "fsdp_version: 2\n",
        "  reshard_after_forward: true\n",
        "  activation_checkpointing: true\n",
        "  cpu_ram_efficient_loading: false\n",  # rank 0 alone would have the four bits
    ):
        assert line in text
    held = written("axolotl", "optimizer=distributed,mbs=1").files["axolotl.yaml"]
    assert "deepspeed:\n  train_micro_batch_size_per_gpu: 1\n" in held
    assert "    stage: 1\n" in held


def test_a_file_of_llama_factory_holds_deepspeed_or_leaves_it_to_ddp():
    text = written("llama-factory", adapters=QLORA).files["llama-factory.yaml"]
    for line in (
        "stage: sft\n",
        "lora_target: q_proj,v_proj\n",
        "quantization_bit: 4\n",
        "    stage: 3\n",
    ):
        assert line in text
    alone = written("llama-factory", "optimizer=replicated,mbs=2").files["llama-factory.yaml"]
    assert "deepspeed" not in alone
    assert "finetuning_type: full\n" in alone
    assert "disable_gradient_checkpointing: true\n" in alone
    again = written("llama-factory", "optimizer=replicated,mbs=2,recompute=full")
    assert "disable_gradient_checkpointing: false\n" in again.files["llama-factory.yaml"]


def test_llama_factory_computes_again_unless_its_own_switch_is_off():
    """`gradient_checkpointing: false` was written where nothing is computed again; that trainer
    ignores it.
    """
    said = {"model_name_or_path": "m", "finetuning_type": "full", "gradient_checkpointing": False}
    found = [
        llama_factory.read_document({**said, "disable_gradient_checkpointing": is_off})
        for is_off in (True, False)
    ]
    again = [one.strategy(8, layers=32).recompute for one in found]
    assert again == [Recompute.NONE, Recompute.FULL]


def test_a_recipe_of_torchtune_is_that_of_its_devices_and_its_adapters():
    found = written("torchtune", adapters=QLORA)
    assert found.arguments == ("lora_finetune_distributed", "--config", "torchtune.yaml")
    text = found.files["torchtune.yaml"]
    assert "_component_: torchtune.models.llama3_1.lora_llama3_1_8b\n" in text
    assert "quantize_base: true\n" in text
    assert "fsdp_reshard_after_forward: true\n" in text
    alone = written("torchtune", "mbs=2", gpus=1, optimizer="paged-adamw-8bit")
    assert alone.arguments[0] == "full_finetune_single_device"
    assert "bitsandbytes.optim.PagedAdamW8bit" in alone.files["torchtune.yaml"]


def test_a_pair_of_answers_is_two_sequences():
    """A micro-batch of four sequences is two samples of DPO, and 64 are 32."""
    found = written("trl", "optimizer=zero3,mbs=4", adapters=QLORA, task=Task.DPO)
    assert found.starter == ("trl", "dpo")
    assert (
        "per_device_train_batch_size: 2\ngradient_accumulation_steps: 2\n"
        in found.files["trl.yaml"]
    )
    said = read([*found.starter, *found.arguments], found.files.get)
    assert (said.layout["mbs"], said.rounds * said.layout["mbs"] * 8) == (4, 64)
    with pytest.raises(BadValue, match="give an even one: a pair is two sequences"):
        written("trl", "optimizer=zero3,mbs=1", task=Task.DPO)


@pytest.mark.parametrize(
    ("trainer", "given", "why"),
    [
        ("trl", {"task": Task.DISTILL}, "training.task: 'distill' .* trl has no words for it here; it has sft, dpo, reward"),
        ("axolotl", {"adapters": replace(QLORA, base=presets.base("nf4"))}, "training.base: 'nf4' .* nf4-double"),
        ("llama-factory", {"released": True}, "training.released"),
        ("trl", {"precision": "bf16-pure", "optimizer": "adamw-bf16", "adapters": QLORA}, "adapters have a wide copy under trl: give bf16"),
        ("trl", {"optimizer": "adamw-bf16"}, "give adamw-bf16 with bf16-pure, else adamw"),
        ("torchtune", {"precision": "bf16"}, "it has no precision bf16, but bf16-pure"),
        ("torchtune", {"adapters": replace(QLORA, targets=frozenset({"mlp"}))}, "name q, k, v or o too"),
    ],
)  # fmt: skip
def test_what_a_fine_tuner_cannot_be_told_is_refused_by_field(trainer, given, why):
    with pytest.raises(InputError, match=why):
        written(trainer, **given)


PUBLISHED = {
    "trl": (
        "trl sft --config c.yaml --accelerate_config zero3 --use_peft --lora_r 8",
        "model_name_or_path: a/b\nper_device_train_batch_size: 4\nbf16: true\nmax_length: 2048\npacking: true\n",
    ),
    "axolotl": (
        "accelerate launch -m axolotl.cli.train c.yaml",
        ("base_model: a/b\nmicro_batch_size: 4\nadapter: lora\nlora_r: 8\nlora_target_modules: [q_proj, v_proj]\nsequence_len: 2048\n"
        "gradient_checkpointing: true\nbf16: auto\ndeepspeed: deepspeed_configs/zero3_bf16.json\n"),
    ),
    "llama-factory": (
        "llamafactory-cli train c.yaml",
        ("model_name_or_path: a/b\nstage: sft\nfinetuning_type: lora\nlora_target: q_proj,v_proj\ncutoff_len: 2048\nbf16: true\n"
        "per_device_train_batch_size: 4\ndeepspeed: examples/deepspeed/ds_z3_config.json\n"),
    ),
    "torchtune": (
        ("tune run --nproc_per_node 8 lora_finetune_distributed --config llama3_1/8B_lora batch_size=4 "
        "enable_activation_checkpointing=True tokenizer.max_seq_len=2048 model.lora_attn_modules=['q_proj','v_proj'] "
        "model.apply_lora_to_mlp=False"),
        "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("trainer", PUBLISHED)
def test_what_people_write_is_read_as_it_trains(trainer):
    """TRL computes activations again where nobody says so, Axolotl and LLaMA-Factory name files of
    DeepSpeed that they bring.
    """
    command, text = PUBLISHED[trainer]
    found = read(command.split(), lambda _: text)
    assert (found.trainer, found.sequence, found.tuning.rank) == (trainer, 2048, 8)
    assert found.tuning.targets == {"q", "v"}
    layout = found.strategy(8)
    assert (layout.dp, layout.mbs, layout.sharding, layout.recompute) == (
        8,
        4,
        Sharding.WEIGHTS,
        Recompute.FULL,
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("base_model: a/b\ntensor_parallel_size: 2\n", "tensor_parallel_size: 2 .* only 1 has a modelled cost"),
        ("base_model: a/b\nrl: grpo\n", "it trains by reinforcement"),
        ("base_model: a/b\nadapter: lora\nlora_r: 8\nlora_target_modules: [embed_tokens]\n", "'embed_tokens' .* adapters beside it"),
        ("model_name_or_path: a/b\nstage: ppo\n", "stage: 'ppo' cannot be right"),
        ("model_name_or_path: a/b\nstage: sft\nfinetuning_type: freeze\n", "lora or full"),
        ("model_name_or_path: a/b\ndataset_name: c/d\n", "the layout is in Accelerate's file"),
        ("model: {_component_: torchtune.models.llama3_1.llama3_1_8b}\nfsdp_cpu_offload: true\n", "fsdp_cpu_offload"),
    ],
)  # fmt: skip
def test_what_of_a_file_is_not_priced_is_refused(text, why):
    with pytest.raises(InputError, match=why):
        read_layout("c.yaml", 8, open_file=lambda _: text)


def test_an_optimizer_on_the_host_is_deepspeed_s_under_every_fine_tuner_that_has_it():
    for trainer in ("trl", "axolotl", "llama-factory"):
        found = written(trainer, "optimizer=zero2-cpu,mbs=2")
        said = read([*found.starter, *found.arguments], found.files.get).strategy(8)
        assert (said.optimizer, said.sharding) == (Placement.HOST, Sharding.GRADIENTS)


def test_a_fine_tuner_is_asked_where_it_is_named_and_nowhere_else():
    assert {*tuners.TUNERS} & {*trainers()} == {"accelerate"}
    assert {framework(name).engine for name in tuners.TUNERS} == {"accelerate"}
    assert framework("trl").name == "trl"


def test_advise_writes_the_files_of_a_fine_tuner_into_a_folder(tmp_path, capsys):
    job = "advise --model llama3-8b --gpu h100 --gpus 8 --global-batch 64 --seq 4096 --lora 16 --framework trl"
    assert main([*job.split(), "--top", "0", "--save-dir", str(tmp_path / "out")]) == 0
    capsys.readouterr()
    script = (tmp_path / "out" / "launch.sh").read_text()
    assert "exec trl sft \\\n" in script
    assert (tmp_path / "out" / "trl.yaml").read_text().startswith("dataset_name: ")


def drawn(trainer, number, seed):
    """Random questions that are written and read back, each with what is lost on the way."""
    return {tuners.lost_in_words(trainer, *one) for one in tuners.drawn(trainer, number, seed)}


@pytest.mark.parametrize("trainer", tuners.TUNERS)
def test_a_question_that_is_written_is_read_back_at_the_same_price(trainer):
    assert drawn(trainer, 3, "quick") == {""}


@pytest.mark.soak
@pytest.mark.parametrize("trainer", tuners.TUNERS)
def test_the_same_of_two_hundred_more(trainer):
    assert drawn(trainer, 200, "soak") == {""}


@pytest.mark.parametrize("trainer", tuners.TUNERS)
def test_two_hundred_questions_were_taken_by_the_fine_tuner_s_own_code(trainer):
    said = RECORD[trainer]
    assert (said["asked"], said["refused"], said["lost"]) == (200, {}, {})
    methods = said["methods"]
    beside = sum(number for name, number in methods.items() if "beside" in name)
    numbers = f"{methods.get('full', 0)} | {methods['LoRA']} | {beside}"
    assert f"| `{trainer}` | 200, none | {numbers} |" in PAGE


@pytest.mark.parametrize("trainer", tuners.TUNERS)
def test_every_key_that_is_written_was_taken(trainer):
    for adapters in (None, QLORA):
        found = written(trainer, adapters=adapters)
        again = "the launcher says something else than what was taken: run tools/tuners.py"
        assert tuners.keys_of({"files": found.files}) <= {*RECORD[trainer]["keys"]}, again


def test_adapters_of_a_script_under_accelerate_are_pefts_own_file():
    """LoRA beside four bits: PEFT's file, transformers' file of the base, and both are
    read back.
    """
    found = written("accelerate", adapters=QLORA, optimizer="adamw-8bit")
    said = json.loads(found.files["adapter_config.json"])
    assert (said["peft_type"], said["r"], said["lora_alpha"]) == ("LORA", 16, 32)
    assert said["target_modules"] == ["q_proj", "v_proj"]
    assert json.loads(found.files["quantization_config.json"])["bnb_4bit_use_double_quant"] is True
    assert found.arguments[-2:] == ("--optim", "adamw_bnb_8bit")
    assert not any("trainer's own words" in note for note in found.notes)
    tuning = read([*found.starter, "train.py", *found.arguments], found.files.get).tuning
    assert (tuning.rank, tuning.base, tuning.optimizer) == (16, "nf4-double", "adamw-8bit")
    other = written("accelerate", adapters=replace(QLORA, base=presets.base("gptq-int4")))
    assert "adapter_config.json" not in other.files
    assert any("say the adapters" in note for note in other.notes)


def test_four_bits_that_torchtune_cannot_share_are_refused_before_the_launch():
    """Keys of Qwen2.5-0.5B: 896 x 128 weights are 7 units of 16,384, which eight devices
    cannot share.
    """
    asked = problem("torchtune", adapters=QLORA)
    small = replace(asked, workload=replace(asked.workload, model=presets.model("qwen2.5-0.5b")))
    layout = parse_strategy("optimizer=zero3,recompute=full,mbs=2", 8)
    with pytest.raises(BadValue, match="quantised weights do not divide evenly"):
        launch(layout, "torchtune", small)
    assert launch(layout, "torchtune", asked).files
    plain = replace(small, workload=replace(small.workload, training=replace(small.workload.training, adapters=replace(QLORA, base=None))))  # fmt: skip
    assert launch(layout, "torchtune", plain).files


def test_trl_computes_the_loss_in_chunks_and_packs_under_no_ring():
    """TRL 1.16 patches the head of every model that it trains, and SFTTrainer refuses packing
    beside a ring.
    """
    with pytest.raises(BadValue, match="it has no whole loss, but chunked"):
        written("trl", loss=Loss.WHOLE)
    with pytest.raises(BadValue, match="trl has no argument for it"):
        written("trl", "optimizer=zero3,cp=2,cp-mode=ring,mbs=2")
    job = "--model llama3-8b --gpu h100 --gpus 8 --global-batch 64 --seq 4096 --strategy optimizer=zero3,mbs=1"
    assert main(["explain", *job.split(), "--framework", "trl"]) == 0


@pytest.mark.parametrize(
    ("command", "sharding"),
    [
        ("torchrun -m trl.scripts.sft", Sharding.NONE),
        ("accelerate launch --config_file a.yaml trl/scripts/sft.py", Sharding.WEIGHTS),
    ],
)
def test_the_script_of_trl_is_read_whoever_starts_it(command, sharding):
    """Kubeflow's proposal 2839 starts it by torchrun, TRL's own documents by Accelerate."""
    options = "--model_name_or_path=a/b --use_peft --lora_r=8 --per_device_train_batch_size 2 --max_length=2048 --bf16"
    files = {"a.yaml": "distributed_type: FSDP\nfsdp_config: {fsdp_version: 2}\n"}
    found = read([*command.split(), *options.split()], files.__getitem__)
    assert (found.trainer, found.tuning.rank, found.sequence) == ("trl", 8, 2048)
    assert found.tuning.documents == "padded"
    assert (found.strategy(8).sharding, found.layout["mbs"]) == (sharding, 2)
    fsdp = read(
        [
            "accelerate",
            "launch",
            "--use_fsdp",
            "trl/scripts/sft.py",
            "--per_device_train_batch_size",
            "2",
        ]
    )
    assert fsdp.trainer == "accelerate"
