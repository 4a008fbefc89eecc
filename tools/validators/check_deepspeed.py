"""DeepSpeed's own checks, unmodified, on a machine without GPUs: transformers' arguments and its
trainer's reading of the configuration, DeepSpeed's configuration with its batch sizes, and what
AutoEP asks of group sizes.

Process groups are PyTorch's fake ones; sharding a model and its weights is left out.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from common import fake_processes, files_of, serve


def validate(launch: dict[str, Any]) -> None:
    """Raise what transformers or DeepSpeed raises."""
    os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(launch["gpus"])}
    with fake_processes(launch["gpus"]), files_of(launch):
        started(launch)


def started(launch: dict[str, Any]) -> None:
    """What the trainer does before it has a model."""
    from deepspeed import comm
    from deepspeed.module_inject.auto_ep_config import validate_autoep_config
    from deepspeed.runtime.config import DeepSpeedConfig
    from transformers import HfArgumentParser, TrainingArguments
    from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

    comm.comm.cdb = None
    comm.init_distributed(dist_backend="fake", dist_init_required=False)
    with (
        mock.patch("transformers.training_args.is_torch_bf16_gpu_available", return_value=True),
        mock.patch.object(TrainingArguments, "device", torch.device("cpu")),
        mock.patch.object(TrainingArguments, "world_size", launch["gpus"]),
    ):
        (args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(
            ["--output_dir", "out", *launch["arguments"]]
        )
        config = HfTrainerDeepSpeedConfig(
            json.loads(Path(args.deepspeed).read_text(encoding="utf-8"))
        )
        config.trainer_config_process(args)
        if config.mismatches:
            raise ValueError(
                "mismatches between DeepSpeed's configuration and the arguments: "
                f"{config.mismatches}"
            )
    given, mesh = config.config, None
    if (
        "sequence_parallel_size" in given and "data_parallel_size" in given
    ):  # as deepspeed.initialize does
        sizes = (given["data_parallel_size"], given["sequence_parallel_size"])
        mesh = comm.initialize_mesh_device(sizes, ("data_parallel", "sequence_parallel"))
    made = DeepSpeedConfig(given, mesh_device=mesh)
    validate_autoep_config(
        made.expert_parallel_config,
        launch["gpus"],
        1,
        made.tensor_parallel_config.autotp_size,
        given.get("sequence_parallel_size", 1),
        zero_stage=made.zero_optimization_stage,
        zero_offload_optimizer=made.zero_config.offload_optimizer is not None,
    )


def main() -> None:
    """Answer launches."""
    modules = (
        "transformers.training_args",
        "transformers.integrations.deepspeed",
        "deepspeed.runtime.config",
        "deepspeed.runtime.zero.config",
        "deepspeed.module_inject.auto_ep_config",
        "deepspeed.module_inject.auto_ep_folding",
    )
    serve(("deepspeed", "transformers", "torch"), modules, validate)


if __name__ == "__main__":
    main()
