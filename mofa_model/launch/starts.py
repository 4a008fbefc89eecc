"""What each trainer's launch says beside its layout.

A trainer that is not here is started with words of people's own.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from mofa_model.launch import axolotl, hub_config, peft
from mofa_model.launch.answer import Launch, LaunchSettings
from mofa_model.launch.model_words import (
    bridge_model,
    lists_layers,
    megatron_model,
    torchtitan_model,
)
from mofa_model.launch.start import STEPS_OF_SMOKE, Start, variables
from mofa_model.spec import Transformer

_TEN: Final = str(STEPS_OF_SMOKE)
_STEPS: Final = ("STEPS", "1000", "optimizer steps")
_RATE: Final = ("LEARNING_RATE", "3e-4")
_CHECKPOINTS: Final = ("CHECKPOINTS", "checkpoints", "folder")
_TOKENIZER: Final = ("TOKENIZER", "", "folder or id of a Hugging Face tokenizer; empty: none")
_OF_TUNER: Final = (
    ("CHECKPOINTS", "out", "folder"),
    ("STEPS", "", "optimizer steps; empty: one epoch"),
)
_SHORT: Final = (("STEPS", _TEN), ("CHECKPOINTS", "smoke"))
"""Variables of ten steps."""
_MOCKED: Final = variables(("DATA", ""), ("TOKENIZER", ""), ("CHECKPOINTS", ""), ("STEPS", _TEN))


def program_text(name: str) -> str:
    """A program that is written beside a launch, because its trainer has none."""
    return Path(__file__).with_name("programs").joinpath(f"{name}.template").read_text("utf-8")


def _megatron(model: Transformer, settings: LaunchSettings, _: Launch) -> Start:
    """How a job of Megatron-LM starts: its program, shell variables and preparations."""
    return Start(
        program="pretrain_hybrid.py" if lists_layers(model) else "pretrain_gpt.py",
        variables=variables(
            (
                "DATA", "",
                "prefixes of .bin and .idx files, as --data-path takes them; empty: mock data",
            ),
            _TOKENIZER,
            ("CHECKPOINTS", "checkpoints", "folder; empty: nothing is saved"),
            _STEPS,
            _RATE,
        ),
        preparations=(
            "data=(--mock-data)",
            ('if [ -n "$DATA" ]; then read -ra paths <<<"$DATA"; '
            'data=(--data-path "${paths[@]}" --split "100,0,0"); fi'),
            "tokenizer=(--tokenizer-type NullTokenizer)",
            ('if [ -n "$TOKENIZER" ]; then '
            'tokenizer=(--tokenizer-type HuggingFaceTokenizer --tokenizer-model "$TOKENIZER"); fi'),
            "saved=()",
            ('if [ -n "$CHECKPOINTS" ]; then '
            'saved=(--save "$CHECKPOINTS" --load "$CHECKPOINTS"); fi'),
        ),
        shape=tuple(megatron_model(model, settings.sequence)),
        options=(
            "--attention-dropout 0",
            "--hidden-dropout 0",
            '--train-iters "$STEPS"',
            '--lr "$LEARNING_RATE"',
            "--eval-iters 0",
            '--eval-interval "$STEPS"',  # 0.19 divides by it, with no default
            "--log-interval 1",
            '"${data[@]}"',
            '"${tokenizer[@]}"',
            '${saved[@]+"${saved[@]}"}',
        ),
        smoke=_MOCKED,
        default_run="Without DATA and TOKENIZER it trains on mock data; "
        "SCRIPT stands in a checkout of Megatron-LM.",
    )  # fmt: skip


def _nemo(model: Transformer, settings: LaunchSettings, _: Launch) -> Start:
    shape = bridge_model(model, settings.sequence)
    return Start(
        program='"$HERE"/pretrain.py',
        variables=variables(
            ("DATA", "", "prefix of .bin and .idx files; empty: mock data"),
            _TOKENIZER,
            _CHECKPOINTS,
            _STEPS,
            _RATE,
        ),
        preparations=(
            "export DATA TOKENIZER",
            "saved=()",
            ('if [ -n "$CHECKPOINTS" ]; then '
            'saved=("checkpoint.save=$CHECKPOINTS" "checkpoint.load=$CHECKPOINTS"); fi'),
        ),
        options=(
            '"train.train_iters=$STEPS"',
            '"optimizer.lr=$LEARNING_RATE"',
            "train.eval_iters=0",
            "logger.log_interval=1",
            '${saved[@]+"${saved[@]}"}',
        ),
        extra_files={
            "pretrain.py": program_text("bridge.py").replace("SHAPE = []", f"SHAPE = {shape!r}")
        },
        smoke=_MOCKED,
        default_run="Without DATA and TOKENIZER it trains on mock data.",
    )  # fmt: skip


def _stages(launch: Launch) -> int:
    """Pipeline stages of a launch of torchtitan. [1]"""
    words = launch.arguments
    return int(words[words.index("--parallelism.pipeline_parallel_degree") + 1])


def _torchtitan(model: Transformer, _settings: LaunchSettings, launch: Launch) -> Start:
    recipe = torchtitan_model(model)
    # torchtitan refuses a head that shares the embedding's weights where there are several stages.
    if recipe["sizes"] and model.embedding.tied and _stages(launch) == 1:
        recipe["sizes"]["tied"] = 1
    files = {} if not recipe["sizes"] else {
        "recipe.py": program_text("torchtitan.py").replace(
            "SIZES: dict[str, Any] = {}", f"SIZES: dict[str, Any] = {json.dumps(recipe['sizes'])}"
        )
    }  # fmt: skip
    saves = "--checkpoint.enable" in launch.arguments
    return Start(
        variables=variables(
            (
                "TOKENIZER", "./tests/assets/tokenizer",
                "folder; this one is in a checkout of torchtitan",
            ),
            ("DATASET", "c4_test", "its small set in a checkout; c4 is fetched"),
            _CHECKPOINTS,
            _STEPS,
        ),
        preparations=('export PYTHONPATH="$HERE${PYTHONPATH:+:$PYTHONPATH}"',) if files else (),
        shape=("--module", "recipe", "--config", "recipe") if files else tuple(recipe["words"]),
        options=(
            '--hf_assets_path "$TOKENIZER"',
            '--dataloader.dataset "$DATASET"',
            '--training.steps "$STEPS"',
            *(['--checkpoint.folder "$CHECKPOINTS"'] if saves else []),
        ),
        extra_files=files,
        smoke=variables(*_SHORT),
        default_run="It runs in a checkout of torchtitan, on the small set of its tests.",
    )  # fmt: skip


def _transformers(model: Transformer, settings: LaunchSettings, _: Launch) -> Start | None:
    """The start of a script for Accelerate or DeepSpeed, which uses transformers' Trainer."""
    config = "" if settings.adapters else hub_config.config_of(model, settings.sequence)
    if settings.adapters or not (config or settings.model):
        return None
    return Start(
        program='"$HERE"/pretrain.py',
        variables=variables(
            (
                "MODEL", '"$HERE/config.json"' if config else settings.model,
                "a config.json, from random weights, or a folder or an id, with its weights",
            ),
            ("DATA", "", "a text file, or JSON lines with text; empty: mock data"),
            ("TOKENIZER", "", "folder or id; empty: none, for mock data"),
            _CHECKPOINTS,
            _STEPS,
            _RATE,
        ),
        options=(
            '--model "$MODEL"',
            '--data "$DATA"',
            '--tokenizer "$TOKENIZER"',
            f"--sequence {settings.sequence}",
            '--output_dir "$CHECKPOINTS"',
            '--max_steps "$STEPS"',
            '--learning_rate "$LEARNING_RATE"',
            "--logging_steps 1",
            "--report_to none",
        ),
        extra_files={
            "pretrain.py": program_text("transformers.py"),
            **({hub_config.FILE: config} if config else {}),
        },
        smoke=variables(("DATA", ""), ("TOKENIZER", ""), *_SHORT),
        without_gpu=("--use_cpu", "True"),
        default_run=(
            "Without DATA it trains on mock data; SCRIPT is transformers' Trainer, or yours."
        ),
    )  # fmt: skip


_FETCHED: Final = "folder or id; its weights are fetched from a hub"


def _tuner(
    options: tuple[str, ...],
    kind: Mapping[str, str] = MappingProxyType({}),
    sets: Mapping[str, str] = MappingProxyType({}),
    without_gpu: tuple[str, ...] = (),
) -> Callable[[Transformer, LaunchSettings, Launch], Start]:
    """The start of a fine-tuner, whose file says all but `options` and the data set of the task.

    `kind` names the rows of the mock data of a task, where they are not named as the task is.
    """

    def start(_: Transformer, settings: LaunchSettings, _launch: Launch) -> Start:
        task = settings.training.task.value if settings.training is not None else "sft"
        mock_command = f'python "$HERE/mock.py" "$HERE/mock" {shlex.quote(kind.get(task, task))}'
        return Start(
            variables=variables(
                ("MODEL", settings.model, _FETCHED),
                ("DATA", "", "empty: the set that the file names"),
                *_OF_TUNER,
            ),
            options=(*options, *([sets[task]] if task in sets else [])),
            options_last=True,
            extra_files={"mock.py": program_text("mock.py")},
            smoke=variables(
                ("MODEL", '"${MODEL:-$HERE/mock/model}"'),
                ("DATA", '"$HERE/mock/data"'),
                ("CHECKPOINTS", "smoke"),
                ("STEPS", _TEN),
            ),
            smoke_preparations=(f'[ -n "${{MODEL-}}" ] && [ -d "$HERE/mock" ] || {mock_command}',),
            without_gpu=without_gpu,
            default_run="They go over the file of the trainer; weights and data come from a hub.",
        )

    return start


def _axolotl_set(kind: str) -> str:
    """An option that puts a folder or an id in place of the data set of the file."""
    data_set = f"[{{'path': '$DATA', 'type': '{kind}', 'split': 'train'}}]"
    return f'${{DATA:+--datasets "{data_set}"}}'


def _torchtune(_: Transformer, _settings: LaunchSettings, _launch: Launch) -> Start:
    """The start of a recipe of torchtune, which needs weights that `tune download` fetched."""
    return Start(
        variables=variables(
            ("DATA", "", "id of a data set with instruction, input and output; empty: the file's"),
            *_OF_TUNER,
        ),
        options=(
            '"output_dir=$CHECKPOINTS"',
            '${STEPS:+"max_steps_per_epoch=$STEPS"}',
            '${DATA:+"dataset.source=$DATA"}',
        ),
        options_last=True,
        smoke=variables(*_SHORT),
        default_run="They go over the file; weights are fetched first, data come from a hub.",
    )


_STARTS: Final[Mapping[str, Callable[[Transformer, LaunchSettings, Launch], Start | None]]] = {
    "megatron": _megatron,
    "nemo": _nemo,
    "torchtitan": _torchtitan,
    "deepspeed": _transformers,
    "accelerate": _transformers,
    "trl": _tuner(
        (
            '--model_name_or_path "$MODEL"', '${DATA:+--dataset_name "$DATA"}',
            '--output_dir "$CHECKPOINTS"', '${STEPS:+--max_steps "$STEPS"}',
            "--logging_steps 1", "--report_to none",
        ),
        without_gpu=("--use_cpu", "True"),
    ),
    "axolotl": _tuner(
        (
            '--base-model "$MODEL"', '--output-dir "$CHECKPOINTS"',
            '${STEPS:+--max-steps "$STEPS"}',
        ),
        kind={"sft": "alpaca", "dpo": "pairs", "reward": "pairs"},
        sets={task: _axolotl_set(data_set["type"]) for task, (data_set,) in axolotl.SETS.items()},
    ),
    "llama-factory": _tuner(
        (
            '"model_name_or_path=$MODEL"', '"output_dir=$CHECKPOINTS"',
            '${STEPS:+"max_steps=$STEPS"}',
            '${DATA:+"dataset_dir=$DATA" dataset=mock}', "logging_steps=1", "report_to=none",
        ),
        kind={task: f"llama-factory-{task}" for task in ("sft", "dpo", "reward")},
        without_gpu=("use_cpu=true",),
    ),
    "torchtune": _torchtune,
}  # fmt: skip


def start_of(model: Transformer, settings: LaunchSettings, launch: Launch) -> Start | None:
    """How to start a launch on made-up data, with the model; None where a person must say more."""
    make = _STARTS.get(launch.trainer)
    if make is None or peft.FILE in launch.files:
        return None
    return make(model, settings, launch)
