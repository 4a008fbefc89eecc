"""Accelerate's and PEFT's own checks, unmodified, on a machine without GPUs: what
`check_accelerate` asks, with the adapters and the format of the frozen weights by the files that
PEFT and transformers read.
"""

from __future__ import annotations

import contextlib
import gc
import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import check_accelerate as base
import torch
from common import serve

BUILT = base.model


def adapted(launch: dict[str, Any]) -> Any:
    """A small model with the adapters of the files that lie here."""
    from peft import LoraConfig, get_peft_model
    from transformers import BitsAndBytesConfig

    adapters, narrow = LoraConfig.from_pretrained("."), Path("quantization_config.json")
    if narrow.exists():  # no weight is quantised without a GPU
        written = json.loads(narrow.read_text(encoding="utf-8"))
        kept = BitsAndBytesConfig.from_dict(written).to_dict()
        assert all(kept[name] == value for name, value in written.items()), kept
        return BUILT(launch)
    return get_peft_model(BUILT(launch), adapters)


def main() -> None:
    """Answer launches."""
    torch.set_num_threads(1)
    base.model = adapted
    with contextlib.redirect_stdout(sys.stderr):
        for name in ("deepspeed", "transformers.trainer", "peft"):
            import_module(name)
    base.cpuinfo.get_cpu_info = base.functools.cache(base.cpuinfo.get_cpu_info)
    gc.freeze()  # what stays is not walked over for every launch
    modules = (
        "peft.config",
        "peft.tuners.lora.config",
        "transformers.utils.quantization_config",
        "transformers.training_args",
        "accelerate.commands.launch",
        "accelerate.accelerator",
    )
    serve(("peft", "accelerate", "transformers", "deepspeed"), modules, base.validate)


if __name__ == "__main__":
    main()
