"""torchtitan's own checks, unmodified, on a machine without GPUs: its command line, its
configuration, and its trainer as far as the model is built on the meta device and cut into stages.

Process groups are PyTorch's fake ones. What follows the checks, sharding the model and its weights,
is left out.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import re
from typing import Any, Final
from unittest import mock

import recipes
import torch
from common import fake_processes, serve

MADE: dict[str, Any] = {}
"""Models that were made, by their configurations."""
MOST: Final = 16
"""So many at a time: torchtitan collects its garbage for every layout, and walks over all
of them.
"""


class Enough(Exception):
    """All is asked that is asked before work begins."""


def validate(launch: dict[str, Any]) -> None:
    """Raise what torchtitan raises."""
    from torchtitan.components import metrics
    from torchtitan.config.manager import ConfigManager
    from torchtitan.trainer import Trainer

    os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(launch["gpus"])}
    recipes.SIZES = launch["model"]["sizes"]
    config = ConfigManager().parse_args([*launch["model"]["words"], *launch["arguments"]])
    expected = launch["stages"]
    kind = type(config.model_spec.model)
    config.model_spec = dataclasses.replace(
        config.model_spec,
        pipelining_fn=lambda *_, **given: stages(expected, **given),
        parallelize_fn=enough,
    )
    with (
        fake_processes(launch["gpus"]),
        contextlib.suppress(Enough),
        mock.patch.object(metrics, "build_device_memory_monitor"),
        mock.patch.object(kind, "build", functools.partialmethod(once, kind.build)),
    ):
        Trainer(config)


def once(config: Any, build: Any) -> Any:
    """A model of the meta device, made once for the layouts that ask for the same."""
    key = re.sub(" at 0x[0-9a-f]+", "", f"{torch.get_default_dtype()} {config}")
    if key not in MADE:
        if len(MADE) == MOST:
            del MADE[next(iter(MADE))]
        MADE[key] = build(config)
    return MADE[key]


def stages(
    expected: list[int],
    *,
    parallel_dims: Any,
    parallelism: Any,
    model_config: Any,
    training: Any,
    **_: Any,
) -> None:
    """Layers of every stage as torchtitan deals them, and the schedule that it builds."""
    from torch.distributed.pipelining import schedules
    from torchtitan.distributed import pipeline_parallel as pipelines

    metadata = pipelines._get_pipeline_metadata  # noqa: SLF001
    number, *layers = metadata(parallel_dims, parallelism, model_config)
    named = pipelines._generate_llm_fqn_per_model_part(number, *layers)  # noqa: SLF001
    held = [sum(name.startswith("layers.") for name in names) for names in named]
    ranks, kind = (
        parallel_dims.pp,
        schedules.get_schedule_class(parallelism.pipeline_parallel_schedule),
    )
    folded = issubclass(kind, schedules.ScheduleZBVZeroBubble | schedules.ScheduleDualPipeV)
    indices = [[at, number - 1 - at] if folded else range(at, number, ranks) for at in range(ranks)]
    layers_found = [sum(held[index] for index in ones) for ones in indices]
    if layers_found != expected:
        raise ValueError(f"layers of stages are {layers_found}, priced were {expected}")
    parts = [stage(index, number, ranks) for index in indices[0]]
    pipelines._build_pipeline_schedule(  # noqa: SLF001
        parallelism=parallelism,
        local_batch_size=training.local_batch_size,
        stages=parts,
        loss_fn=None,
    )
    raise Enough


def stage(index: int, number: int, ranks: int) -> Any:
    """A stage that holds nothing."""
    return mock.Mock(
        stage_index=index, num_stages=number, group_size=ranks, group_rank=0, is_first=index == 0,
        is_last=index == number - 1,
        device=torch.device("cpu"), stage_index_to_group_rank={}, submod=torch.nn.Identity(),
    )  # fmt: skip


def enough(*_: Any, **__: Any) -> None:
    """Stands where work begins after the checks."""
    raise Enough


def main() -> None:
    """Answer launches."""
    torch._utils._get_available_device_type = lambda: "cpu"  # noqa: SLF001
    modules = (
        "torchtitan.config.configs",
        "torchtitan.config.manager",
        "torchtitan.trainer",
        "torchtitan.distributed.parallel_dims",
        "torchtitan.distributed.pipeline_parallel",
        "torchtitan.models.common.decoder",
        "torch.distributed.pipelining.schedules",
    )
    serve(("torchtitan", "torch", "torchvision", "flash-linear-attention"), modules, validate)


if __name__ == "__main__":
    main()
