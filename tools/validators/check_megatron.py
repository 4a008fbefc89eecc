"""Megatron-LM's own checks, unmodified, on a machine without GPUs: its parser and `validate_args`,
the configurations that it makes of its arguments, its process groups, the layers of every stage,
and what its interleaved schedule asks of micro-batches.

Stubbed are questions to the GPU alone: its generation, and the version of Transformer Engine, whose
kernels are not here. Process groups are PyTorch's fake ones, as under --fake-process-group.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import sys
import types
from typing import Any
from unittest import mock

import torch
from common import serve
from packaging.version import Version
from torch.testing._internal.distributed.fake_pg import FakeStore

TRANSFORMER_ENGINE = "2.14.0"
"""Version of Transformer Engine that is said to be there."""
ALWAYS = [
    "--lr",
    "1e-4",
    "--train-iters",
    "100",
    "--eval-interval",
    "100",
    "--mock-data",
    "--tokenizer-type",
    "NullTokenizer",
    "--save",
    "/nowhere",
    "--no-rope-fusion",
    "--hidden-dropout",
    "0",
]
"""What a script says beside layout and model; the fused rotary embedding is a kernel of
Transformer Engine.
"""
VARIABLES = ("CUDA_DEVICE_MAX_CONNECTIONS", "NVTE_CPU_OFFLOAD_V1")


class Enough(Exception):
    """All is asked that is asked before work begins."""


class OnCpu(torch.overrides.TorchFunctionMode):
    """Tensors of the GPU are made on the CPU."""

    def __torch_function__(self, function, types, args=(), kwargs=None):  # noqa: ANN001, ANN204
        kwargs = dict(kwargs or {})
        if str(kwargs.get("device", "")).startswith("cuda"):
            kwargs["device"] = "cpu"
        return function(*args, **kwargs)


def validate(launch: dict[str, Any]) -> None:
    """Raise what Megatron raises."""
    properties = types.SimpleNamespace(major=launch["generation"], minor=0)
    for name in VARIABLES:
        os.environ.pop(name, None)
    os.environ |= {"RANK": "0", "WORLD_SIZE": str(launch["gpus"]), **launch["environment"]}
    sys.argv = ["pretrain_gpt.py", *ALWAYS, *launch["model"], *launch["arguments"]]
    with (
        mock.patch.object(torch.cuda, "get_device_properties", return_value=properties),
        mock.patch.object(torch.cuda, "get_device_capability", return_value=(properties.major, 0)),
        mock.patch.object(torch.cuda, "device_count", return_value=8),
    ):
        started(launch)


def started(launch: dict[str, Any]) -> None:
    """What `pretrain` does before the first GPU is touched."""
    from megatron.training.argument_utils import core_transformer_config_from_args
    from megatron.training.arguments import parse_args, validate_args
    from megatron.training.training import get_megatron_ddp_config, get_megatron_optimizer_config

    args = parse_args()
    validate_args(args)
    samples_and_saves(args)
    config = core_transformer_config_from_args(args)
    get_megatron_optimizer_config(args)
    get_megatron_ddp_config(args)
    micro_batches = micro_batches_of(args)
    if args.hybrid_layer_pattern is None:
        stages(args, config, launch["stages"])
    groups(args, config, micro_batches, launch["stages"])


def samples_and_saves(args: Any) -> None:
    """The samples that it asks a data set for, and what saves in the background."""
    from megatron.core.dist_checkpointing.strategies.torch import get_async_strategy
    from megatron.training import training

    with mock.patch.object(training, "get_args", return_value=args):
        training.get_train_valid_test_num_samples()
    if args.async_save:
        get_async_strategy(args.async_strategy)


def micro_batches_of(args: Any) -> int:
    """By Megatron's calculator, which refuses a batch that does not divide."""
    from megatron.core.num_microbatches_calculator import ConstantNumMicroBatchesCalculator

    return ConstantNumMicroBatchesCalculator(
        args.global_batch_size, args.micro_batch_size, args.data_parallel_size, False, 0
    ).get()


def stages(args: Any, config: Any, expected: list[int]) -> None:
    """Layers of every stage as Megatron deals them: those that were priced."""
    from megatron.core.transformer.transformer_block import get_num_layers_to_build

    virtual, layout = (
        args.virtual_pipeline_model_parallel_size,
        config.pipeline_model_parallel_layout,
    )
    layers = []
    for rank in range(args.pipeline_model_parallel_size):
        if layout is not None:
            layers.append(
                sum(kind.name == "decoder" for chunk in layout.layout[rank] for kind in chunk)
            )
        else:
            chunks = [None] if virtual is None else range(virtual)
            layers.append(
                sum(get_num_layers_to_build(config, chunk, pp_rank=rank) for chunk in chunks)
            )
    if sum(layers) != args.num_layers or layers != expected:
        raise ValueError(f"layers of stages are {layers}, priced were {expected}")


def listed(args: Any, expected: list[int]) -> None:
    """Blocks of every stage of a pattern as Megatron cuts it: those that were priced."""
    from megatron.core.models.hybrid import hybrid_layer_allocation as patterns

    main = patterns.parse_hybrid_pattern(args.hybrid_layer_pattern).main_pattern
    size, virtual = args.pipeline_model_parallel_size, args.virtual_pipeline_model_parallel_size
    blocks_found = []
    for rank in range(size):
        with (
            mock.patch("torch.distributed.get_rank", return_value=rank),
            mock.patch("torch.distributed.get_world_size", return_value=size),
        ):
            chunks = [None] if virtual is None else range(virtual)
            cut = [
                patterns.select_pipeline_segment(main, mock.sentinel.group, chunk)
                for chunk in chunks
            ]
        blocks_found.append(sum(len(blocks) for blocks, _ in cut))
    if blocks_found != expected:
        raise ValueError(f"blocks of stages are {blocks_found}, priced were {expected}")


def groups(args: Any, config: Any, micro_batches: int, expected: list[int]) -> None:
    """Process groups as `initialize_megatron` makes them, and the schedule's questions."""
    from megatron.core import mpu
    from megatron.training.training import get_megatron_ddp_config

    torch.distributed.init_process_group(
        backend="fake", store=FakeStore(), rank=0, world_size=args.world_size
    )
    try:
        mpu.initialize_model_parallel(
            args.tensor_model_parallel_size,
            args.pipeline_model_parallel_size,
            args.virtual_pipeline_model_parallel_size,
            pipeline_model_parallel_comm_backend=args.pipeline_model_parallel_comm_backend,
            use_sharp=args.use_sharp,
            gtp_remat_size=args.gtp_weight_remat_size,
            expert_gtp_remat_size=args.expert_gtp_weight_remat_size,
            context_parallel_size=args.context_parallel_size,
            hierarchical_context_parallel_sizes=args.hierarchical_context_parallel_sizes,
            hybrid_context_parallel=args.hybrid_context_parallel,
            expert_model_parallel_size=args.expert_model_parallel_size,
            num_distributed_optimizer_instances=args.num_distributed_optimizer_instances,
            expert_tensor_parallel_size=args.expert_tensor_parallel_size,
            order="tp-cp-ep-dp-pp" if not args.use_tp_pp_dp_mapping else "tp-cp-ep-pp-dp",
            create_gloo_process_groups=False,
        )
        if args.hybrid_layer_pattern is not None:
            listed(args, expected)
        if args.virtual_pipeline_model_parallel_size is not None:
            interleaved(args, config, micro_batches)
        if args.use_megatron_fsdp:
            fully_sharded(config, get_megatron_ddp_config(args))
    finally:
        mpu.destroy_model_parallel()
        torch.distributed.destroy_process_group()


def interleaved(args: Any, config: Any, micro_batches: int) -> None:
    """Run the interleaved schedule as far as its checks go."""
    from megatron.core.pipeline_parallel import schedules

    chunks = []
    for _ in range(args.virtual_pipeline_model_parallel_size):
        chunk = torch.nn.Module()
        chunk.config = config
        chunks.append(chunk)

    with (
        mock.patch.object(schedules, "get_model_type", enough),
        OnCpu(),
        contextlib.suppress(Enough),
    ):
        schedules.forward_backward_pipelining_with_interleaving(
            forward_step_func=None,
            data_iterator=[None] * len(chunks),
            model=chunks,
            num_microbatches=micro_batches,
            seq_length=args.seq_length,
            micro_batch_size=args.micro_batch_size,
            forward_only=True,
        )


def fully_sharded(config: Any, wrapped: Any) -> None:
    """Wrap a model by Megatron-FSDP as far as its checks go."""
    from megatron.core.distributed.fsdp import mcore_fsdp_adapter as adapter

    with (
        mock.patch.object(adapter, "MegatronFSDP", enough),
        mock.patch.object(torch.cuda, "current_device", return_value=0),
        contextlib.suppress(Enough),
    ):
        adapter.FullyShardedDataParallel(config, wrapped, torch.nn.Module())


def enough(*_: Any, **__: Any) -> None:
    """Stands where work begins after the checks."""
    raise Enough


def main() -> None:
    """Answer launches."""
    import megatron.core.utils as core

    inspect.getsource = functools.cache(
        inspect.getsource
    )  # the parser is made of docstrings, anew each time
    core._te_version = Version(TRANSFORMER_ENGINE)  # noqa: SLF001
    modules = (
        "training.arguments",
        "training.argument_utils",
        "training.training",
        "core.model_parallel_config",
        "core.transformer.transformer_config",
        "core.transformer.pipeline_parallel_layer_layout",
        "core.transformer.transformer_block",
        "core.optimizer.optimizer_config",
        "core.distributed.distributed_data_parallel_config",
        "core.num_microbatches_calculator",
        "core.parallel_state",
        "core.pipeline_parallel.schedules",
        "core.distributed.fsdp.mcore_fsdp_adapter",
    )
    serve(("megatron-core", "torch"), (f"megatron.{name}" for name in modules), validate)


if __name__ == "__main__":
    main()
