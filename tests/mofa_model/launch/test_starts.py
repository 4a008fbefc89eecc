"""A launch starts with no word added: model, tokenizer, data, steps and folders are in it, and ten
steps are the same launch.
"""

import ast
import json
import os
import subprocess
from dataclasses import replace
from itertools import pairwise

import pytest
from questions import case

from mofa_model.blocks import Experts, FeedForward, SoftmaxAttention
from mofa_model.equations.parameters import total_parameters
from mofa_model.launch import launch, launch_script, read
from mofa_model.launch.hub_config import config_of
from mofa_model.presets import entries, model
from mofa_model.presets.models import from_config
from mofa_model.spec.tuning import Adapters, Loss
from mofa_model.strategy import Sharding, Strategy

PLAIN = Strategy(tp=2, pp=2, dp=4, pipeline_overlap=False)
SHARDED = Strategy(dp=16, sharding=Sharding.WEIGHTS, data_overlap=True)
WRITTEN = {
    "megatron": ("deepseek-v3", replace(PLAIN, ep=4, dp=16, sequence_parallel=True)),
    "nemo": ("llama3-8b", PLAIN),
    "torchtitan": ("qwen2.5-7b", SHARDED),
    "deepspeed": ("llama3-8b", SHARDED),
    "accelerate": ("mixtral-8x7b", SHARDED),
    "trl": ("qwen2.5-7b", SHARDED),
    "axolotl": ("qwen2.5-7b", SHARDED),
    "llama-factory": ("qwen2.5-7b", replace(SHARDED, sharding=Sharding.NONE)),
    "torchtune": ("llama3-8b", SHARDED),
}
TUNED = {"trl", "axolotl", "llama-factory", "torchtune"}


def asked(trainer):
    """A question of a trainer."""
    name, strategy = WRITTEN[trainer]
    pure = {"precision": "bf16-pure", "optimizer": "adamw-bf16"} if trainer == "torchtune" else {}
    problem = case(name, batch=256, gpus=int(strategy.gpus), **pure)
    if trainer in TUNED:
        loss = Loss.CHUNKED if trainer in {"trl", "torchtune"} else Loss.WHOLE
        training = replace(problem.workload.training, adapters=Adapters(rank=8), loss=loss)
        problem = replace(problem, workload=replace(problem.workload, training=training))
    return problem, strategy


def told(folder, script, environment=None):
    """The words that a script hands to what starts the trainer."""
    for name in ("torchrun", "accelerate", "trl", "tune", "python"):
        lines = '#!/bin/sh\nfor one in "$(basename "$0")" "$@"; do printf "%s\\0" "$one"; done\n'
        (folder / name).write_text("#!/bin/sh\n" if name == "python" else lines)
        (folder / name).chmod(0o755)
    given = {"PATH": f"{folder}:{os.environ['PATH']}", "NODE_RANK": "1", "MASTER_ADDR": "first"}
    run = subprocess.run(
        ["bash", script],
        env=given | (environment or {}),
        capture_output=True,
        text=True,
        check=True,
    )
    return run.stdout.split("\0")[:-1]


@pytest.fixture(scope="module", params=list(WRITTEN))
def written(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    problem, strategy = asked(request.param)
    found = launch(strategy, request.param, problem, interval_steps=100)
    texts = {
        "launch.sh": launch_script(found, 2, int(strategy.gpus) // 2),
        "launch-smoke.sh": found.beside.smoke_script("launch.sh"),
        **found.all_files,
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    return request.param, found, strategy, folder


STEPS = {
    "megatron": ["--train-iters", "{}"], "nemo": ["train.train_iters={}"], "torchtitan": ["--training.steps", "{}"],
    "torchtune": ["max_steps_per_epoch={}"], "axolotl": ["--max-steps", "{}"], "llama-factory": ["max_steps={}"],
}  # fmt: skip


def has(words, some):
    return any(words[at : at + len(some)] == some for at in range(len(words)))


def test_a_launch_has_its_layout_and_every_variable_goes_where_it_belongs(written, tmp_path):
    trainer, found, strategy, folder = written
    words = told(tmp_path, folder / "launch.sh", {"STEPS": "77", "CHECKPOINTS": "kept"})
    steps = [one.format(77) for one in STEPS.get(trainer, ["--max_steps", "{}"])]
    assert has(words, steps), words
    assert any("kept" in one for one in words), words
    layout = [str(folder / one) if one in found.files else one for one in found.arguments]
    assert has(words, layout)
    again = read(words, lambda path: found.files[path.rpartition("/")[2]]).strategy(
        int(strategy.gpus), layers=61
    )
    assert (again.tp, again.pp, again.dp, again.mbs) == (
        strategy.tp,
        strategy.pp,
        strategy.dp,
        strategy.mbs,
    )


def test_ten_steps_are_the_same_launch_on_data_that_is_made_here(written, tmp_path):
    trainer, found, _, folder = written
    words = told(tmp_path, folder / "launch-smoke.sh")
    assert has(words, [one.format(10) for one in STEPS.get(trainer, ["--max_steps", "{}"])]), words
    assert has(words, [str(folder / one) if one in found.files else one for one in found.arguments])
    if trainer in TUNED - {"torchtune"}:
        assert any(str(folder / "mock/model") in one for one in words)
    if trainer == "megatron":
        assert {"--mock-data", "NullTokenizer"} <= {*words}
        assert "--save" not in words
        assert has(words, ["--eval-interval", "10"])
        assert has(words, ["--async-strategy", "mcore"])
    if trainer == "axolotl":
        (row,) = ast.literal_eval(words[words.index("--datasets") + 1])
        assert row == {"path": str(folder / "mock/data"), "type": "alpaca", "split": "train"}


def test_the_shape_of_the_model_is_in_the_launch(written, tmp_path):
    trainer, found, _, folder = written
    words = told(tmp_path, folder / "launch.sh")
    if trainer == "megatron":
        numbers = dict(pairwise(words))
        assert [numbers[one] for one in ("--num-layers", "--num-experts", "--mtp-num-layers")] == [
            "61",
            "256",
            "1",
        ]
        assert read(words).layers == 61
    elif trainer == "torchtitan":
        assert has(words, ["--module", "recipe", "--config", "recipe"])
        assert '"n_layers": 28' in found.all_files["recipe.py"]
        assert '"tied": 1' not in found.all_files["recipe.py"]
        small = launch(SHARDED, trainer, case("llama3.2-1b", batch=256, gpus=16))
        assert '"tied": 1' in small.all_files["recipe.py"]
    elif trainer in {"deepspeed", "accelerate"}:
        read_again = from_config(json.loads(found.all_files["config.json"]))
        assert total_parameters(read_again) == total_parameters(model(WRITTEN[trainer][0]))
        assert has(words, ["--model", str(folder / "config.json")])


def test_every_script_is_one_that_bash_reads_and_every_program_one_that_python_reads(written):
    _, found, _, folder = written
    for name in ("launch.sh", "launch-smoke.sh"):
        subprocess.run(["bash", "-n", folder / name], check=True)
    for name, text in found.all_files.items():
        if name.endswith(".py"):
            compile(text, name, "exec")


def test_models_of_a_family_that_is_known_are_written_as_config_json_with_their_own_parameters():
    kinds = {SoftmaxAttention, FeedForward, Experts}
    counted = 0
    for name in entries.names("models"):
        text = config_of(model(name), 4096)
        if text:
            counted += 1
            again = from_config(json.loads(text))
            assert total_parameters(again) == total_parameters(model(name)), name
            assert again.layers == model(name).layers
            assert kinds & {type(one) for one in again.blocks}
    assert counted >= 48
