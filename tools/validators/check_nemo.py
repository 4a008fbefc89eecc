"""Megatron Bridge's own checks, unmodified, on a machine without GPUs: its reading of overrides,
mixed precision, overlap of communication, the validation of its whole configuration, and what
Megatron Core asks of layers, groups and schedules.

Stubbed are questions to the GPU, and packages that Bridge imports and that are not here (`ABSENT`).
"""

from __future__ import annotations

import importlib.machinery
import os
import sys
import types
from typing import Any
from unittest import mock

import check_megatron
import torch
from common import serve
from packaging.version import Version

ABSENT = (
    "transformer_engine",
    "transformer_engine_torch",
    "megatron.energon",
    "diffusers",
    "modelopt",
)
NAMES = {"num_experts": "num_moe_experts"}
"""Flags of Megatron-LM that are fields of Bridge's model under other names."""
SWITCHES = {
    "multi_latent_attention": ("multi_latent_attention", True),
    "swiglu": ("gated_linear_unit", True),
    "disable_bias_linear": ("add_bias_linear", False),
    "untie_embeddings_and_output_weights": ("share_embeddings_and_output_weights", False),
}
PASSED_OVER = ("max_position_embeddings",)


class Stub(types.ModuleType):
    """A module that is not here: its classes hold nothing, all else holds anything."""

    def __getattr__(self, name: str) -> Any:
        """A class by its capital letter, so that Bridge can register it and build on it."""
        if name.startswith("__"):
            raise AttributeError(name)
        stub = (
            type(name, (), {"__init__": nothing})
            if name[:1].isupper()
            else mock.MagicMock(name=name)
        )
        setattr(self, name, stub)
        return stub


def nothing(*_: Any, **__: Any) -> None:
    """Makes a stub of whatever it is made of."""


class Absent:
    """Finds packages that are not here, as modules that hold anything."""

    def find_spec(self, name: str, *_: Any) -> Any:
        """For the packages that are stubbed."""
        is_stubbed = any(name == package or name.startswith(f"{package}.") for package in ABSENT)
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if is_stubbed else None

    def create_module(self, spec: Any) -> Any:
        """An empty one."""
        made = Stub(spec.name)
        made.__path__ = []
        made.__version__ = check_megatron.TRANSFORMER_ENGINE
        return made

    def exec_module(self, module: Any) -> None:
        """Nothing runs."""


def validate(launch: dict[str, Any]) -> None:
    """Raise what Bridge raises."""
    properties = types.SimpleNamespace(major=launch["generation"], minor=0, total_memory=80 * 2**30)
    for name in check_megatron.VARIABLES:
        os.environ.pop(name, None)
    os.environ |= {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": str(launch["gpus"]),
        **launch["environment"],
    }
    with (
        mock.patch.object(torch.cuda, "get_device_properties", return_value=properties),
        mock.patch.object(torch.cuda, "get_device_capability", return_value=(properties.major, 0)),
        mock.patch.object(torch.cuda, "device_count", return_value=8),
    ):
        started(launch)


def started(launch: dict[str, Any]) -> None:
    """What `pretrain` does before the first GPU is touched."""
    from megatron.bridge.training.config import runtime_config_update
    from megatron.bridge.training.utils.omegaconf_utils import process_config_with_overrides

    given = recipe(launch["model"])
    given = process_config_with_overrides(given, cli_overrides=launch["arguments"])
    runtime_config_update(given)
    args = given.model
    args.world_size, args.use_megatron_fsdp = launch["gpus"], given.ddp.use_megatron_fsdp
    micro = given.train.global_batch_size // (
        given.train.micro_batch_size * given.data_parallel_size
    )
    if getattr(args, "hybrid_layer_pattern", None) is None:
        check_megatron.stages(args, args, launch["stages"])
    groups(given, launch["gpus"], micro, launch["stages"])


def recipe(flags: list[str]) -> Any:
    """A recipe for a model that is told in flags of Megatron-LM."""
    from megatron.bridge.models.falcon_h1.falconh1_provider import FalconH1ModelProvider
    from megatron.bridge.models.gpt_provider import GPTModelProvider
    from megatron.bridge.models.hybrid.hybrid_provider import HybridModelProvider
    from megatron.bridge.models.mla_provider import MLAModelProvider
    from megatron.bridge.recipes.common import _pretrain_common
    from megatron.bridge.training.comm_overlap import CommOverlapConfig

    fields: dict[str, Any] = {"activation_func": torch.nn.functional.silu, "hidden_dropout": 0.0}
    name = ""
    for word in flags:
        if word.startswith("--"):
            name = word[2:].replace("-", "_")
            if name in SWITCHES:
                field, value = SWITCHES[name]
                fields[field] = value
        elif name not in PASSED_OVER:
            number = int(word) if word.isdigit() else word
            fields[NAMES.get(name, name)] = number
    if isinstance(layers := fields.get("moe_layer_freq"), str):
        fields["moe_layer_freq"] = eval(layers)
    kind: Any = MLAModelProvider if "kv_lora_rank" in fields else GPTModelProvider
    if "mamba_num_heads" in fields:
        kind = HybridModelProvider if "hybrid_layer_pattern" in fields else FalconH1ModelProvider
    made = _pretrain_common()
    made.model = kind(**fields)
    made.tokenizer.tokenizer_type, made.tokenizer.vocab_size = "NullTokenizer", fields["vocab_size"]
    made.comm_overlap = CommOverlapConfig(tp_comm_overlap=False)
    return made


def groups(given: Any, gpus: int, micro_batches: int, expected: list[int]) -> None:
    """Process groups as Bridge makes them, and the schedule's questions."""
    from megatron.bridge.training import initialize
    from megatron.core import mpu
    from torch.testing._internal.distributed.fake_pg import FakeStore

    given.dist.use_gloo_process_groups = False  # the fake groups have no other
    torch.distributed.init_process_group(backend="fake", store=FakeStore(), rank=0, world_size=gpus)
    try:
        initialize._initialize_distributed(  # noqa: SLF001
            given.model, given.dist, given.ddp.num_distributed_optimizer_instances, None, None
        )
        if getattr(given.model, "hybrid_layer_pattern", None) is not None:
            check_megatron.listed(given.model, expected)
        virtual = given.model.virtual_pipeline_model_parallel_size
        if virtual is not None:
            sizes = types.SimpleNamespace(
                virtual_pipeline_model_parallel_size=virtual,
                seq_length=given.model.seq_length,
                micro_batch_size=given.train.micro_batch_size,
            )
            check_megatron.interleaved(sizes, given.model, micro_batches)
        if given.ddp.use_megatron_fsdp:
            check_megatron.fully_sharded(given.model, given.ddp)
    finally:
        mpu.destroy_model_parallel()
        torch.distributed.destroy_process_group()


def main() -> None:
    """Answer launches."""
    sys.meta_path.insert(0, Absent())
    import megatron.core.utils as core

    core._te_version = Version(check_megatron.TRANSFORMER_ENGINE)  # noqa: SLF001
    modules = (
        "bridge.training.config",
        "bridge.training.comm_overlap",
        "bridge.training.mixed_precision",
        "bridge.training.initialize",
        "bridge.training.utils.omegaconf_utils",
        "bridge.models.gpt_provider",
        "core.model_parallel_config",
        "core.transformer.transformer_config",
        "core.parallel_state",
        "core.pipeline_parallel.schedules",
    )
    serve(
        ("megatron-bridge", "megatron-core", "torch"),
        (f"megatron.{name}" for name in modules),
        validate,
    )


if __name__ == "__main__":
    main()
