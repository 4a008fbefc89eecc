"""LLaMA-Factory's own checks, unmodified, on a machine without GPUs: its file as its launcher
parses it in every process, and its adapters on a small model. Process groups are PyTorch's fake
ones; stubbed is the question whether there is a GPU.
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

from common import begin_fake_groups, fake_processes, files_of, serve
from own import use

BEFORE = dict(os.environ)


def validate(launch: dict[str, Any]) -> None:
    """Raise what LLaMA-Factory, transformers or DeepSpeed raises."""
    from accelerate.state import AcceleratorState, GradientState

    (name,) = launch["arguments"]
    with files_of(launch):
        os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(launch["gpus"])}
        os.environ |= {"ACCELERATE_TORCH_DEVICE": "cpu", "ACCELERATE_BYPASS_DEVICE_MAP": "true"}
        try:
            with fake_processes(launch["gpus"]):
                parsed(name, launch)
        finally:
            os.environ.clear()
            os.environ |= BEFORE
            AcceleratorState._reset_state(reset_partial_state=True)  # noqa: SLF001
            GradientState._reset_state()  # noqa: SLF001


def parsed(name: str, launch: dict[str, Any]) -> None:
    """The arguments, and the model with its adapters."""
    from deepspeed import comm
    from llamafactory.hparams import get_train_args, read_args
    from llamafactory.model.adapter import init_adapter
    from transformers import AutoConfig, AutoModelForCausalLM

    comm.comm.cdb = None
    with (
        mock.patch("sys.argv", ["launcher.py", name]),
        mock.patch("torch.cuda.is_available", return_value=True),
        mock.patch("torch.cuda.set_device"),
        mock.patch("transformers.training_args.is_torch_bf16_gpu_available", return_value=True),
        mock.patch("llamafactory.hparams.parser.is_torch_bf16_gpu_available", return_value=True),
        mock.patch("deepspeed.comm.init_distributed", begin_fake_groups),
        mock.patch("deepspeed.comm.torch.build_shm_op", return_value=None),
    ):
        model_args, _, _, tuning, _ = get_train_args(read_args())
    if model_args.quantization_bit is None:
        config = AutoConfig.for_model(**launch["model"])
        small = AutoModelForCausalLM.from_config(config)
        init_adapter(config, small, model_args, tuning, is_trainable=True)


def main() -> None:
    """Answer launches."""
    use("llamafactory")
    import cpuinfo
    import torch

    torch.set_num_threads(1)
    with contextlib.redirect_stdout(sys.stderr):
        for name in ("deepspeed", "llamafactory.hparams.parser", "llamafactory.model.adapter"):
            import_module(name)
    cpuinfo.get_cpu_info = functools.cache(cpuinfo.get_cpu_info)  # DeepSpeed asks for every launch
    gc.freeze()
    parts = ("parser", "model_args", "data_args", "training_args", "finetuning_args")
    modules = (*(f"llamafactory.hparams.{part}" for part in parts), "llamafactory.model.adapter")
    serve(
        ("llamafactory", "transformers", "accelerate", "peft", "trl", "deepspeed"),
        (*modules, "transformers.training_args", "deepspeed.runtime.config"),
        validate,
    )


if __name__ == "__main__":
    main()
