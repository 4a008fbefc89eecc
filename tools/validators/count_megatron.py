"""What Megatron-LM holds on a GPU: its model on the meta device, cut as it cuts it, with its own
gradient buffers and optimizer.

A launch a line, as for the checks; the answer says for the first, the middle and the last stage how
many parameters a rank of it has without and with experts, and where neither Megatron-FSDP nor the
host is asked for, bytes of weights and gradients and the number of parameters whose states it
keeps. Layers are Megatron's local ones, but the latent projections of MLA, which under Transformer
Engine are whole on every rank. What holds no parameters is left as it is or left out.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import io
import json
import os
import sys
import types
from importlib import metadata
from typing import Any
from unittest import mock

import check_megatron
import torch
from common import hashes
from packaging.version import Version
from torch.testing._internal.distributed.fake_pg import FakeStore

OFF: dict[str, Any] = {
    "perform_initialization": False, "use_cpu_initialization": True, "moe_grouped_gemm": False,
    "persist_layer_norm": False,
    "sequence_parallel": False, "memory_efficient_layer_norm": False,
    "fine_grained_activation_offloading": False,
    "recompute_granularity": None, "cuda_graph_impl": "none", "gradient_accumulation_fusion": False,
    "tp_comm_overlap": False,
}  # fmt: skip
"""Fields of the configuration that change no parameter, and ask for kernels that are not here."""
SOURCES = (
    "models.gpt.gpt_model",
    "models.gpt.gpt_layer_specs",
    "transformer.transformer_block",
    "distributed.param_and_grad_buffer",
    "optimizer.distrib_optimizer",
)


class OnMeta(torch.overrides.TorchFunctionMode):
    """Tensors are of the meta device, and say that they are of the GPU."""

    def __torch_function__(self, function, types, args=(), kwargs=None):  # noqa: ANN001, ANN204
        kwargs = dict(kwargs or {})
        if function is torch.Tensor.cuda:
            return args[0]
        if function is torch.Tensor.type and len(args) == 1:
            return function(*args).replace("meta", "cuda")
        if "device" in kwargs:
            kwargs["device"] = "meta"
        return function(*args, **kwargs)


class Whole(torch.nn.Linear):
    """A projection that every tensor-parallel rank holds whole, as Transformer Engine's is."""

    def __init__(self, inside: int, out: int, **_: Any) -> None:
        super().__init__(inside, out, bias=False)


def counted(launch: dict[str, Any]) -> dict[str, list[int]]:
    """What a rank of each stage holds."""
    from megatron.training.argument_utils import core_transformer_config_from_args
    from megatron.training.arguments import parse_args, validate_args

    for name in check_megatron.VARIABLES:
        os.environ.pop(name, None)
    os.environ |= {"RANK": "0", "WORLD_SIZE": str(launch["gpus"]), **launch["environment"]}
    sys.argv = ["pretrain_gpt.py", *check_megatron.ALWAYS, *launch["model"], *launch["arguments"]]
    args = parse_args()
    validate_args(args)
    config = core_transformer_config_from_args(args)
    for name, value in OFF.items():
        setattr(config, name, value)
    stages = args.pipeline_model_parallel_size
    return {str(stage): held(args, config, stage) for stage in sorted({0, stages // 2, stages - 1})}


def held(args: Any, config: Any, stage: int) -> list[int]:
    """What a rank of one stage holds."""
    from megatron.core import mpu

    stages, virtual = args.pipeline_model_parallel_size, args.virtual_pipeline_model_parallel_size
    torch.distributed.init_process_group(
        backend="fake",
        store=FakeStore(),
        rank=stage * (args.world_size // stages),
        world_size=args.world_size,
    )
    try:
        mpu.initialize_model_parallel(
            args.tensor_model_parallel_size, stages, virtual,
            context_parallel_size=args.context_parallel_size,
            expert_model_parallel_size=args.expert_model_parallel_size,
            expert_tensor_parallel_size=args.expert_tensor_parallel_size,
            num_distributed_optimizer_instances=args.num_distributed_optimizer_instances,
            create_gloo_process_groups=False,
        )  # fmt: skip
        with OnMeta(), torch.device("meta"):
            chunks = [
                model(args, config, chunk)
                for chunk in ([None] if virtual is None else range(virtual))
            ]
            named = [
                (name, parameter.numel())
                for chunk in chunks
                for name, parameter in chunk.named_parameters()
            ]
            inside = sum(size for name, size in named if ".experts." in name)
            bytes_held = [sum(size for _, size in named) - inside, inside]
            whole = args.use_megatron_fsdp or args.optimizer_cpu_offload
            return bytes_held if whole else bytes_held + states(args, config, chunks)
    finally:
        mpu.destroy_model_parallel()
        torch.distributed.destroy_process_group()


def model(args: Any, config: Any, chunk: int | None) -> Any:
    """A virtual stage."""
    from megatron.core import mpu
    from megatron.core.models.gpt import gpt_layer_specs as specs
    from megatron.core.models.gpt.gpt_model import GPTModel

    spec = specs.get_gpt_decoder_block_spec(
        config, False, normalization=args.normalization, vp_stage=chunk
    )
    for layer in spec.layer_specs:
        own = layer.submodules.self_attention.submodules
        for name in ("linear_q_down_proj", "linear_kv_down_proj"):
            if getattr(own, name, None) is not None:
                setattr(own, name, Whole)
    ahead = (
        specs.get_gpt_mtp_block_spec(config, spec, False, vp_stage=chunk)
        if args.mtp_num_layers
        else None
    )
    return GPTModel(
        config, spec, args.vocab_size, args.max_position_embeddings,
        pre_process=mpu.is_pipeline_first_stage(ignore_virtual=False, vp_stage=chunk),
        post_process=mpu.is_pipeline_last_stage(ignore_virtual=False, vp_stage=chunk),
        share_embeddings_and_output_weights=not args.untie_embeddings_and_output_weights,
        position_embedding_type=args.position_embedding_type, mtp_block_spec=ahead, vp_stage=chunk,
    ).bfloat16()  # fmt: skip


def states(args: Any, config: Any, chunks: list[Any]) -> list[int]:
    """Bytes of weights and of gradients, and parameters whose states the optimizer keeps."""
    from megatron.core.distributed import DistributedDataParallel
    from megatron.core.optimizer import get_megatron_optimizer
    from megatron.training.training import get_megatron_ddp_config, get_megatron_optimizer_config

    wrapped = [
        DistributedDataParallel(config, get_megatron_ddp_config(args), chunk) for chunk in chunks
    ]
    buffers = [
        buffer for chunk in wrapped for buffer in (*chunk.buffers, *chunk.expert_parallel_buffers)
    ]
    made = get_megatron_optimizer_config(args)
    rule = get_megatron_optimizer(
        made[0] if isinstance(made, tuple) else made, wrapped, use_gloo_process_groups=False
    )
    return [
        sum(
            parameter.numel() * parameter.element_size()
            for chunk in chunks
            for parameter in chunk.parameters()
        ),
        sum(buffer.grad_data.nbytes for buffer in buffers),
        sum(parameter.numel() for group in rule.param_groups for parameter in group["params"]),
    ]


def same(gathered: list[Any], item: Any, *_: Any, **__: Any) -> None:
    """What every rank would say."""
    gathered[:] = [item] * len(gathered)


def main() -> None:
    """Answer launches."""
    import megatron.core.utils as core
    from megatron.core.transformer import dot_product_attention, multi_latent_attention

    inspect.getsource = functools.cache(inspect.getsource)  # as in the checks
    core._te_version = Version(check_megatron.TRANSFORMER_ENGINE)  # noqa: SLF001
    multi_latent_attention.TELinear = Whole
    dot_product_attention.DotProductAttention.__init__ = lambda self, *_, **__: (
        torch.nn.Module.__init__(self)
    )
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    head = {
        "versions": {name: metadata.version(name) for name in ("megatron-core", "torch")},
        "sources": hashes(f"megatron.core.{name}" for name in SOURCES),
    }
    print(json.dumps(head), file=out, flush=True)
    for line in sys.stdin:
        launch = json.loads(line)
        properties = types.SimpleNamespace(major=launch["generation"], minor=0)
        with (
            contextlib.redirect_stdout(io.StringIO()),
            mock.patch.object(torch.cuda, "get_device_properties", return_value=properties),
            mock.patch.object(
                torch.cuda, "get_device_capability", return_value=(properties.major, 0)
            ),
            mock.patch.object(torch.cuda, "device_count", return_value=8),
            mock.patch.object(torch.cuda, "current_device", return_value=0),
            mock.patch.object(torch.cuda, "Stream"),
            mock.patch.object(torch.distributed, "all_gather_object", same),
        ):
            answer = counted(launch)
        print(json.dumps(answer), file=out, flush=True)


if __name__ == "__main__":
    main()
