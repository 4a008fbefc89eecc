"""Every option that a trainer's own parser has, or key that its configuration has: `options.py
TRAINER` prints them as JSON.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import dataclasses
import inspect
import json
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def flags(parser: argparse.ArgumentParser) -> list[str]:
    """Long options of a parser, without those that other spellings stand for."""
    return [
        max(
            (
                option_string
                for option_string in action.option_strings
                if option_string.startswith("--")
            ),
            key=len,
        )
        for action in parser._actions  # noqa: SLF001
        if any(option_string.startswith("--") for option_string in action.option_strings)
    ]


def fields(made: Any, before: str = "") -> Iterator[str]:
    """Fields of a configuration, with those of the configurations in it."""
    for field in dataclasses.fields(made):
        value = getattr(made, field.name, None)
        if dataclasses.is_dataclass(value) and field.name != "model_spec":
            yield from fields(value, f"{before}{field.name}.")
        elif not field.name.startswith("_"):
            yield f"{before}{field.name}"


def megatron() -> list[str]:
    """Flags of the pretrain scripts."""
    from megatron.training.arguments import add_megatron_arguments

    sys.argv = ["pretrain_gpt.py"]
    return flags(add_megatron_arguments(argparse.ArgumentParser()))


def nemo() -> list[str]:
    """Overrides of a Megatron Bridge recipe."""
    import check_nemo

    sys.meta_path.insert(0, check_nemo.Absent())
    import check_megatron
    import megatron.core.utils as core
    from packaging.version import Version

    core._te_version = Version(check_megatron.TRANSFORMER_ENGINE)  # noqa: SLF001
    sizes = (
        "--num-layers",
        "2",
        "--hidden-size",
        "64",
        "--num-attention-heads",
        "2",
        "--vocab-size",
        "64",
    )
    return list(fields(check_nemo.recipe(list(sizes))))


def torchtitan() -> list[str]:
    """Options of a recipe, and of every kind of activation checkpointing."""
    import torch

    torch._utils._get_available_device_type = lambda: "cpu"  # noqa: SLF001
    from torchtitan.distributed.activation_checkpoint import MemoryBudgetAC
    from torchtitan.models.llama3.config_registry import llama3_8b

    more = fields(MemoryBudgetAC.Config(), "activation_checkpoint.")
    return [*fields(llama3_8b()), *more]


def hugging_face() -> list[str]:
    """Arguments of the trainer of transformers."""
    from transformers import HfArgumentParser, TrainingArguments

    return flags(HfArgumentParser(TrainingArguments))


def accelerate() -> list[str]:
    """Options of `accelerate launch`, and of the trainer that it starts."""
    from accelerate.commands.launch import launch_command_parser

    return [
        *(flag.replace("-", "_").replace("__", "--", 1) for flag in flags(launch_command_parser())),
        *hugging_face(),
    ]


def trl() -> list[str]:
    """Keys of the file of `trl sft`, `trl dpo` and `trl reward`, which are options of these
    commands too.
    """
    from trl.scripts import dpo, reward, sft

    flags_of_scripts = [
        flag for script in (sft, dpo, reward) for flag in flags(script.make_parser())
    ]
    return [flag.removeprefix("--") for flag in flags_of_scripts]


def axolotl() -> list[str]:
    """Keys of its file, with those of the parts that are its own."""
    from own import use

    use("axolotl")
    from axolotl.utils.schemas.config import AxolotlInputConfig

    return [*keys(AxolotlInputConfig, "")]


def llama_factory() -> list[str]:
    """Keys of its file."""
    from own import use

    use("llamafactory")
    from llamafactory.hparams.parser import _TRAIN_ARGS
    from transformers import HfArgumentParser

    return [flag.removeprefix("--") for flag in flags(HfArgumentParser(_TRAIN_ARGS))]


def torchtune() -> list[str]:
    """Keys of the configurations that it brings for fine-tuning, and those that its recipes ask
    for besides.
    """
    from own import use

    use("torchtune")
    import torchtune
    from omegaconf import DictConfig, OmegaConf

    def leaves(part: DictConfig, before: str = "") -> Iterator[str]:
        for name, value in part.items_ex(resolve=False):
            if isinstance(value, DictConfig):
                yield from leaves(value, f"{before}{name}.")
            else:
                yield f"{before}{name}"

    home = Path(torchtune.__file__).parents[1] / "recipes"
    files = [*home.glob("configs/**/*_full*.yaml"), *home.glob("configs/**/*lora*.yaml")]
    asked = [
        node.args[0].value
        for path in home.glob("*_finetune_*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) == "cfg.get"
        and isinstance(node.args[0], ast.Constant)
    ]
    return [*asked, *(leave for path in files for leave in leaves(OmegaConf.load(path)))]


def deepspeed() -> list[str]:
    """Keys of DeepSpeed's configuration, and arguments of the trainer of transformers."""
    from deepspeed.runtime import config
    from deepspeed.runtime.activation_checkpointing import config as again
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig

    asked = [
        node
        for node in ast.walk(ast.parse(inspect.getsource(config)))
        if isinstance(node, ast.Call)
    ]
    named = [call.args[1] for call in asked if getattr(call.func, "id", "") == "get_scalar_param"]
    tops = [
        getattr(config, name.id)
        for name in named
        if isinstance(name, ast.Name) and hasattr(config, name.id)
    ]
    kept = [
        value
        for name, value in vars(again).items()
        if name.startswith("ACT_CHKPT_") and isinstance(value, str)
    ]
    return [
        *tops,
        *(f"activation_checkpointing.{key}" for key in kept if key != "activation_checkpointing"),
        *keys(DeepSpeedZeroConfig, "zero_optimization."),
        *hugging_face(),
    ]


def keys(model: Any, before: str) -> Iterator[str]:
    """Keys of a pydantic model, with those of the models in it."""
    for name, field in model.model_fields.items():
        inner = [
            kind
            for kind in (field.annotation, *typing.get_args(field.annotation))
            if hasattr(kind, "model_fields")
        ]
        for kind in inner:
            yield from keys(kind, f"{before}{field.alias or name}.")
        if not inner:
            yield f"{before}{field.alias or name}"


def main() -> None:
    """Print them."""
    with contextlib.redirect_stdout(sys.stderr):
        names = globals()[sys.argv[1].replace("-", "_")]()
    print(json.dumps(sorted(set(names) - {"--help", "help"})))


if __name__ == "__main__":
    main()
