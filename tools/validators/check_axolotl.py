"""Axolotl's own checks, unmodified, on a machine without GPUs: its file as its command loads it,
with the schema and all validators.

Stubbed are the questions what GPU there is, whether flash attention is installed, and what the hub
says of the model.
"""

from __future__ import annotations

import contextlib
import os
import sys
from importlib import import_module
from typing import Any
from unittest import mock

from common import files_of, serve
from own import use

os.environ |= {"AXOLOTL_DO_NOT_TRACK": "1", "DO_NOT_TRACK": "1"}
BEFORE = dict(os.environ)
GPU = {"bf16": True, "fp8": True, "tf32": True, "compute_capability": "sm_90"}


def validate(launch: dict[str, Any]) -> None:
    """Raise what Axolotl raises."""
    from accelerate.state import AcceleratorState
    from axolotl.cli.config import load_cfg
    from axolotl.utils import distributed
    from transformers import AutoConfig

    (name,) = launch["arguments"]
    with files_of(launch):
        os.environ["WORLD_SIZE"] = str(launch["gpus"])
        small = AutoConfig.for_model(**launch["model"])
        capabilities = (GPU | {"n_gpu": launch["gpus"]}, {"torch_version": "2.10.0"})
        try:
            with (
                mock.patch("axolotl.cli.config.gpu_capabilities", return_value=capabilities),
                mock.patch("axolotl.utils.config.load_model_config", return_value=small),
                mock.patch("torch.cuda.is_available", return_value=True),
                mock.patch("torch.cuda.is_bf16_supported", return_value=True),
                mock.patch("torch.cuda.device_count", return_value=8),
                mock.patch("torch.cuda.current_device", return_value=0),
                mock.patch("axolotl.utils.config.log_gpu_memory_usage"),
                mock.patch("torch.cuda.can_device_access_peer", return_value=True),
                mock.patch("transformers.utils.is_flash_attn_2_available", return_value=True),
            ):
                load_cfg(name)
        finally:
            AcceleratorState._reset_state(reset_partial_state=True)  # noqa: SLF001
            distributed.distributed_state = None  # each launch is a process of its own
            os.environ.clear()
            os.environ |= BEFORE


def main() -> None:
    """Answer launches."""
    use("axolotl")
    with contextlib.redirect_stdout(sys.stderr):
        import_module("axolotl.cli.config")
    schemas = ("config", "fsdp", "peft", "training", "validation", "datasets", "model")
    modules = (
        "axolotl.cli.config",
        "axolotl.utils.config",
        *(f"axolotl.utils.schemas.{schema}" for schema in schemas),
    )
    serve(("axolotl", "transformers", "accelerate", "peft", "trl"), modules, validate)


if __name__ == "__main__":
    main()
