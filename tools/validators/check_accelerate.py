"""Accelerate's own checks, unmodified, on a machine without GPUs: its launcher and the
configuration file, the variables that it sets, and under these the trainer of transformers as far
as a small model is sharded by FSDP2, wrapped by DDP or handed to DeepSpeed.

Process groups are PyTorch's fake ones. Stubbed are the question whether there is a GPU, and what
DeepSpeed does after its configuration.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import sys
from importlib import import_module
from typing import Any
from unittest import mock

import cpuinfo
import torch
from common import begin_fake_groups, fake_processes, files_of, serve
from torch.distributed.tensor.debug import _clear_sharding_prop_cache

BEFORE = dict(os.environ)
NODE = 8
"""GPUs of a node."""


class Enough(Exception):
    """All is asked that is asked before work begins."""


def validate(launch: dict[str, Any]) -> None:
    """Raise what Accelerate, transformers or DeepSpeed raises."""
    from accelerate.state import AcceleratorState, GradientState
    from deepspeed.runtime.sequence_parallel import parallel_state_sp

    with files_of(launch):
        try:
            variables = launched(launch)
            os.environ |= {
                **variables,
                "RANK": "0",
                "LOCAL_RANK": "0",
                "WORLD_SIZE": str(launch["gpus"]),
            }
            os.environ |= {"ACCELERATE_TORCH_DEVICE": "cpu", "ACCELERATE_BYPASS_DEVICE_MAP": "true"}
            with fake_processes(launch["gpus"]):
                started(launch)
        finally:
            os.environ.clear()
            os.environ |= BEFORE
            AcceleratorState._reset_state(reset_partial_state=True)  # noqa: SLF001
            GradientState._reset_state()  # noqa: SLF001
            parallel_state_sp._SEQUENCE_PARALLEL_GROUP = None  # noqa: SLF001
            parallel_state_sp._SEQUENCE_DATA_PARALLEL_GROUP = None  # noqa: SLF001
            _clear_sharding_prop_cache()  # it holds groups by the names that they had


def launched(launch: dict[str, Any]) -> dict[str, str]:
    """What `accelerate launch` makes of its words: the variables of the processes that it
    would start.
    """
    from accelerate.commands.launch import launch_command, launch_command_parser

    nodes = max(1, launch["gpus"] // NODE)
    program, command, *words = launch["starter"]
    assert (program, command) == ("accelerate", "launch")
    words += ["--num_machines", str(nodes), "--num_processes", str(launch["gpus"])]
    if nodes > 1:
        words += [
            "--machine_rank",
            "0",
            "--main_process_ip",
            "localhost",
            "--main_process_port",
            "29511",
        ]
    args = launch_command_parser().parse_args([*words, "train.py", *launch["arguments"]])
    environment: dict[str, str] = {}

    def run(*_: Any, **given: Any) -> None:
        environment.update(given.get("env") or os.environ)
        raise Enough

    with (
        contextlib.suppress(Enough),
        mock.patch("torch.distributed.run.run", run),
        mock.patch("subprocess.Popen", run),
    ):
        launch_command(args)
    assert args.training_script_args == launch["arguments"]
    return {name: value for name, value in environment.items() if BEFORE.get(name) != value}


def started(launch: dict[str, Any]) -> None:
    """The trainer as it prepares a model."""
    from deepspeed import comm
    from transformers import HfArgumentParser, Trainer, TrainingArguments

    comm.comm.cdb = None
    parser = HfArgumentParser(TrainingArguments)
    words = ["--output_dir", "out", "--report_to", "none", *launch["arguments"]]
    with (
        mock.patch("torch.cuda.is_available", return_value=True),
        mock.patch("torch.cuda.set_device"),
        mock.patch("transformers.training_args.is_torch_bf16_gpu_available", return_value=True),
        mock.patch("deepspeed.comm.init_distributed", begin_fake_groups),
        mock.patch(
            "deepspeed.comm.torch.build_shm_op", return_value=None
        ),  # compiles, for every launch
    ):
        (args,) = parser.parse_args_into_dataclasses(words)
    with mock.patch("deepspeed.initialize", engine), contextlib.suppress(Enough):
        trainer = Trainer(model=model(launch["model"]), args=args)
        trainer._prepare_for_training(1, None, None)  # noqa: SLF001


def engine(*, config_params: dict[str, Any], mpu: Any = None, **_: Any) -> None:
    """Stands where DeepSpeed begins: its configuration, batch sizes included."""
    from deepspeed.runtime.config import DeepSpeedConfig

    DeepSpeedConfig(config_params, mpu)
    raise Enough


def model(config: dict[str, Any]) -> Any:
    """A small model with the heads and experts of the one that is asked about."""
    from transformers import AutoConfig, AutoModelForCausalLM

    return AutoModelForCausalLM.from_config(AutoConfig.for_model(**config))


def main() -> None:
    """Answer launches."""
    torch.set_num_threads(1)
    with contextlib.redirect_stdout(sys.stderr):
        for name in ("deepspeed", "transformers.models.deepseek_v3", "transformers.trainer"):
            import_module(name)
    cpuinfo.get_cpu_info = functools.cache(cpuinfo.get_cpu_info)  # DeepSpeed asks for every launch
    gc.freeze()  # what stays is not walked over for every launch
    modules = (
        "accelerate.commands.launch",
        "accelerate.commands.config.config_args",
        "accelerate.utils.launch",
        "accelerate.utils.dataclasses",
        "accelerate.utils.fsdp_utils",
        "accelerate.parallelism_config",
        "accelerate.state",
        "accelerate.accelerator",
        "transformers.training_args",
        "transformers.trainer",
        "deepspeed.runtime.config",
    )
    serve(("accelerate", "transformers", "deepspeed", "torch"), modules, validate)


if __name__ == "__main__":
    main()
