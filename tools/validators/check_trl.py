"""TRL's own checks, unmodified, on a machine without GPUs: its command, Accelerate's launcher under
it, and its configuration; then what `check_accelerate` asks, with adapters by PEFT on a
small model.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from importlib import import_module
from typing import Any
from unittest import mock

import check_accelerate as base
import torch
from common import begin_fake_groups, serve

FOUND: dict[str, Any] = {}
"""The arguments of the script that the launcher would start."""


def launched(launch: dict[str, Any]) -> dict[str, str]:
    """What `trl` makes of its words: the variables of the processes that it would start."""
    from trl.cli.commands import get_commands
    from trl.cli.commands.base import CommandContext

    nodes = max(1, launch["gpus"] // base.NODE)
    program, task = launch["starter"]
    assert program == "trl"
    words = ["--num_machines", str(nodes), "--num_processes", str(launch["gpus"])]
    if nodes > 1:
        words += ["--machine_rank", "0", "--main_process_ip", "localhost"]
        words += ["--main_process_port", "29511"]
    environment: dict[str, str] = {}

    def run(*_: Any, **given: Any) -> None:
        environment.update(given.get("env") or os.environ)
        raise base.Enough

    argv = [task, *words, *launch["arguments"]]
    command = next(command for command in get_commands() if command.name == task)
    with (
        contextlib.suppress(base.Enough),
        mock.patch("transformers.training_args.is_torch_bf16_gpu_available", return_value=True),
        mock.patch("torch.distributed.run.run", run),
        mock.patch("subprocess.Popen", run),
    ):
        command.run(None, CommandContext(argv=argv))
    FOUND.update(task=task, words=[*launch["arguments"]])
    return {name: value for name, value in environment.items() if base.BEFORE.get(name) != value}


def started(launch: dict[str, Any]) -> None:
    """The script's arguments, its adapters, and the trainer as it prepares a model."""
    from deepspeed import comm
    from peft import get_peft_model
    from transformers import Trainer
    from trl import get_peft_config, get_quantization_config

    comm.comm.cdb = None
    script = import_module(f"trl.scripts.{FOUND['task']}")
    with (
        mock.patch("torch.cuda.is_available", return_value=True),
        mock.patch("torch.cuda.set_device"),
        mock.patch("transformers.training_args.is_torch_bf16_gpu_available", return_value=True),
        mock.patch("deepspeed.comm.init_distributed", begin_fake_groups),
        mock.patch("deepspeed.comm.torch.build_shm_op", return_value=None),
    ):
        parsed = script.make_parser().parse_args_and_config(
            FOUND["words"], return_remaining_strings=True, separate_remaining_strings=True
        )
        args, model_args = parsed[1], parsed[2]
        assert parsed[-2] == [], parsed[-2]  # keys of the file that nobody knows
        quantised = get_quantization_config(model_args)
    model = base.model(launch["model"])
    adapters = get_peft_config(model_args)
    if adapters is not None and quantised is None:
        model = get_peft_model(model, adapters)
    with mock.patch("deepspeed.initialize", base.engine), contextlib.suppress(base.Enough):
        trainer = Trainer(model=model, args=args)
        trainer._prepare_for_training(1, None, None)  # noqa: SLF001


def main() -> None:
    """Answer launches."""
    torch.set_num_threads(1)
    base.launched, base.started = launched, started
    names = ("deepspeed", "transformers.trainer", "trl.scripts.sft", "trl.scripts.dpo", "peft")
    with contextlib.redirect_stdout(sys.stderr):
        for name in names:
            import_module(name)
    base.cpuinfo.get_cpu_info = base.functools.cache(base.cpuinfo.get_cpu_info)
    gc.freeze()  # what stays is not walked over for every launch
    modules = (
        "trl.cli.commands.training",
        "trl.cli.accelerate_config",
        "trl.scripts.utils",
        "trl.scripts.sft",
        "trl.trainer.sft_config",
        "trl.trainer.dpo_config",
        "trl.trainer.reward_config",
        "trl.trainer.model_config",
        "peft.tuners.lora.config",
        "transformers.training_args",
        "accelerate.commands.launch",
    )
    serve(("trl", "peft", "accelerate", "transformers", "deepspeed"), modules, base.validate)


if __name__ == "__main__":
    main()
