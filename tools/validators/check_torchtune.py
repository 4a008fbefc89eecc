"""torchtune's own checks, unmodified, on a machine without GPUs: its command, `tune validate`, what
a recipe refuses when it begins, and the model that it builds, on the meta device and shared over
PyTorch's fake process groups.

The device of the file is the CPU's here, because the recipe asks for the one that the file names.
"""

from __future__ import annotations

import contextlib
import os
import sys
from functools import cache, partial
from importlib import import_module, util
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

from common import fake_processes, files_of, serve
from own import use

BEFORE = dict(os.environ)
NODE = 8


def validate(launch: dict[str, Any]) -> None:
    """Raise what torchtune raises."""
    from omegaconf import OmegaConf
    from torchtune import config
    from torchtune._cli.tune import TuneCLIParser

    gpus = launch["gpus"]
    words = ["--nnodes", str(max(1, gpus // NODE)), "--nproc-per-node", str(min(gpus, NODE))]
    with files_of(launch):
        os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(gpus)}
        try:
            # Words that are no option of torchrun stay the recipe's.
            with (
                fake_processes(gpus),
                mock.patch("sys.argv", [*launch["starter"], *words, *launch["arguments"]]),
            ):
                args = TuneCLIParser().parse_args()
                assert args.recipe == launch["arguments"][0], args.recipe
                assert args.recipe_args == launch["arguments"][1:], args.recipe_args
                cfg = OmegaConf.load(launch["arguments"][-1])
                config.validate(cfg)
                cfg.device, cfg.log_peak_memory_stats = "cpu", False
                begun(args.recipe, cfg)
                shared(cfg, gpus)
        finally:
            os.environ.clear()
            os.environ |= BEFORE


def begun(name: str, cfg: Any) -> None:
    """What a recipe reads of its file and refuses before it loads anything."""
    module = recipe(name)
    (kind,) = (
        member
        for label, member in vars(module).items()
        if isinstance(member, type) and label.endswith(("RecipeDistributed", "RecipeSingleDevice"))
    )
    with mock.patch.object(module, "init_process_group", create=True):  # it is there already
        kind(cfg)


@cache
def recipe(name: str) -> ModuleType:
    """A recipe, which is a script and in no package."""
    import torchtune

    path = Path(torchtune.__file__).parents[1] / "recipes" / f"{name}.py"
    spec = util.spec_from_file_location(f"recipe_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shared(cfg: Any, gpus: int) -> None:
    """The model with its adapters and its loss, and its weights over all devices."""
    import torch
    from torchtune import config, training
    from torchtune.modules.peft import get_adapter_params, set_trainable_params

    with training.set_default_dtype(torch.bfloat16), torch.device("meta"):
        model = config.instantiate(cfg.model)
    if "lora" in cfg.model._component_:
        set_trainable_params(model, get_adapter_params(model))
    if cfg.enable_activation_checkpointing:
        from torchtune.modules import TransformerSelfAttentionLayer

        training.set_activation_checkpointing(
            model, auto_wrap_policy={TransformerSelfAttentionLayer}
        )
    assert config.instantiate(cfg.loss).ignore_index == -100
    if gpus > 1 and len(model.layers) <= 32:
        training.shard_model(
            model=model,
            shard_conditions=[partial(training.get_shard_conditions, names_to_match=None)],
            cpu_offload=False,
            reshard_after_forward=cfg.fsdp_reshard_after_forward,
        )
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if cfg.optimizer._component_.startswith("torch."):
        config.instantiate(cfg.optimizer, trained)


def main() -> None:
    """Answer launches."""
    use("torchtune")
    import torch

    torch.set_num_threads(1)
    with contextlib.redirect_stdout(sys.stderr):
        for name in ("torchtune.config", "torchtune.training", "torchtune.datasets"):
            import_module(name)
    modules = (
        "torchtune._cli.run",
        "torchtune.config._validate",
        "torchtune.training._distributed",
        "torchtune.modules.peft.lora",
        "torchtune.models.llama3_1._model_builders",
        "torchtune.training.checkpointing._checkpointer",
    )
    serve(("torchtune", "torchao", "torch"), modules, validate)


if __name__ == "__main__":
    main()
