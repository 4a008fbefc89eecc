"""Whole launches, as their scripts start them: the words after the trainer's program, without one
that is added here but a switch for kernels that are not installed. Each trainer's own validator
asks; under Accelerate and DeepSpeed the program is the one that is written beside the launch, whose
model is built on the meta device and counted.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

from common import begin_fake_groups, fake_processes, serve


def validate(launch: dict[str, Any]) -> None:
    """Raise what a trainer raises."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in launch["files"].items():
            Path(folder, name).write_text(text, encoding="utf-8")
        words = [word.replace("$HERE", folder) for word in launch["arguments"]]
        before = Path.cwd()
        os.chdir(folder)
        try:
            _TRAINERS[launch["trainer"]]({**launch, "arguments": words}, folder)
        finally:
            os.chdir(before)


def megatron(launch: dict[str, Any], _: str) -> None:
    """Its parser, `validate_args`, groups, stages, schedule."""
    import check_megatron

    check_megatron.ALWAYS = ["--no-rope-fusion"]
    check_megatron.validate({**launch, "model": []})


def nemo(launch: dict[str, Any], folder: str) -> None:
    """The program's configuration with the overrides in it."""
    import check_nemo

    program = module(f"{folder}/pretrain.py")
    with mock.patch.object(check_nemo, "recipe", return_value=program.configuration([])):
        check_nemo.validate({**launch, "model": []})


def torchtitan(launch: dict[str, Any], folder: str) -> None:
    """Its command line with the recipe that lies beside the launch."""
    import check_torchtitan

    sys.modules.pop("recipe", None)
    sys.path.insert(0, folder)
    importlib.invalidate_caches()
    try:
        check_torchtitan.validate({**launch, "model": {"words": [], "sizes": {}}})
    finally:
        sys.path.remove(folder)


def transformers(launch: dict[str, Any], folder: str) -> None:
    """The program's arguments, and the model that it builds, on the meta device."""
    import torch
    from deepspeed import comm
    from transformers import AutoConfig, AutoModelForCausalLM

    comm.comm.cdb = None
    program = module(f"{folder}/pretrain.py")
    os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(launch["gpus"])}
    with fake_processes(launch["gpus"]):
        given = parsed(program, launch)
    config = AutoConfig.for_model(**json.loads(Path(given.model).read_text("utf-8")))
    with torch.device("meta"):
        built = AutoModelForCausalLM.from_config(config)
    count = sum(parameter.numel() for parameter in built.parameters())
    if abs(count - launch["parameters"]) > launch["parameters"] * 1e-6:
        raise ValueError(f"its model has {count} parameters, priced were {launch['parameters']}")


def parsed(program: Any, launch: dict[str, Any]) -> Any:
    """What the program is told, once transformers and DeepSpeed have taken the rest."""
    import torch
    from transformers import HfArgumentParser, TrainingArguments

    with (
        mock.patch("torch.cuda.is_available", return_value=True),
        mock.patch("torch.cuda.set_device"),
        mock.patch("transformers.training_args.is_torch_bf16_gpu_available", return_value=True),
        mock.patch("deepspeed.comm.init_distributed", begin_fake_groups),
        mock.patch("deepspeed.comm.torch.build_shm_op", return_value=None),
        mock.patch.object(TrainingArguments, "device", torch.device("cpu")),
        mock.patch.object(TrainingArguments, "world_size", launch["gpus"]),
    ):
        given, _ = HfArgumentParser((program.Given, TrainingArguments)).parse_args_into_dataclasses(
            launch["arguments"]
        )
    return given


def module(path: str) -> Any:
    """A program as a module, whose main part does not run."""
    spec = importlib.util.spec_from_file_location("program", path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules["program"] = made
    spec.loader.exec_module(made)
    return made


_TRAINERS = {
    "megatron": megatron, "nemo": nemo, "torchtitan": torchtitan, "accelerate": transformers,
    "deepspeed": transformers,
}  # fmt: skip


def main() -> None:
    """Answer launches."""
    import check_megatron
    import check_nemo
    import torch
    from packaging.version import Version

    # As torchtitan's validator has it.
    torch._utils._get_available_device_type = lambda: "cpu"  # noqa: SLF001
    sys.meta_path.insert(0, check_nemo.Absent())
    with contextlib.redirect_stdout(sys.stderr):
        import megatron.core.utils as core

        core._te_version = Version(check_megatron.TRANSFORMER_ENGINE)  # noqa: SLF001
    serve(
        ("megatron-core", "megatron-bridge", "torchtitan", "transformers", "torch"),
        ("megatron.training.arguments", "torchtitan.config.manager", "transformers.hf_argparser"),
        validate,
    )


if __name__ == "__main__":
    main()
