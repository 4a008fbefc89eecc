"""Reads the YAML configurations of nanotron and LLM Foundry, which we never write.

Fields and their defaults: nanotron, config/parallelism_config.py and config/config.py (ParallelismArgs, OptimizerArgs, TokensArgs);
Composer 0.32, utils/parallelism.py (FSDPConfig), and the trainer's device_train_microbatch_size and precision.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mofa_model.errors import BadValue
from mofa_model.launch.answer import Reading
from mofa_model.launch.settings import Settings
from mofa_model.strategy import Recompute, Sharding

_SHARDED: Final = {
    "FULL_SHARD": Sharding.WEIGHTS,
    "SHARD_GRAD_OP": Sharding.GRADIENTS,
    "NO_SHARD": Sharding.NONE,
}
_NOT_PRICED: Final = (
    "fsdp_config.cpu_offload", "fsdp_config.activation_cpu_offload", "fsdp_config.process_group", "fsdp_config.data_parallel_replicate_degree",
    "fsdp_config.activation_checkpointing_target", "fsdp_config.te_checkpoint_wrapper", "activation_checkpointing_target",
    "fsdp2_config", "parallelism_config", "tp_config", "deepspeed_config",
)  # fmt: skip
"""What of LLM Foundry stands for something else than is read, wherever it is on."""
_ASIDE: Final = (
    "fsdp_config.mixed_precision",
    "fsdp_config.keep_low_precision_grads",
    "compile_config",
    "fsdp_config.te_shard_fp8_weight",
)


def nanotron(document: Mapping[str, Any]) -> Reading:
    """What a recipe of nanotron says."""
    said = Settings(document)
    tp, pp, dp = (said.number(f"parallelism.{axis}") or 1 for axis in ("tp", "pp", "dp"))
    for name in ("expert_parallel_size", "context_parallel_size"):
        if (said.number(f"parallelism.{name}") or 1) > 1:
            raise BadValue(
                f"parallelism.{name}", said.value(f"parallelism.{name}"), "only 1 is priced"
            )
    engine = said.value("parallelism.pp_engine") or "afab"
    if pp > 1 and engine != "1f1b":
        raise BadValue("parallelism.pp_engine", engine, "only 1f1b is priced")
    mode = str(said.value("parallelism.tp_mode") or "ALL_REDUCE").upper()
    if mode not in {"ALL_REDUCE", "REDUCE_SCATTER"}:
        raise BadValue("parallelism.tp_mode", mode, "ALL_REDUCE or REDUCE_SCATTER")
    stage = said.number("optimizer.zero_stage", 0) or 0
    if stage > 1:
        raise BadValue("optimizer.zero_stage", stage, "0 or 1")
    mbs, rounds = (
        said.number("tokens.micro_batch_size"),
        said.number("tokens.batch_accumulation_per_replica"),
    )
    again = said.truth("parallelism.recompute_layer")
    return Reading(
        trainer="nanotron",
        layout={
            "tp": tp, "pp": pp, "dp": dp, "mbs": mbs or 1,
            "sequence_parallel": tp > 1 and mode == "REDUCE_SCATTER",
            "tensor_overlap": tp > 1 and said.truth("parallelism.tp_linear_async_communication"),
            "sharding": Sharding.OPTIMIZER if stage else Sharding.NONE,
            "recompute": Recompute.FULL if again else Recompute.NONE,
        },
        layers=said.number("model.model_config.num_hidden_layers"),
        sequence=said.number("tokens.sequence_length"),
        global_batch=dp * mbs * rounds if mbs and rounds else None,
        precision={"bfloat16": "bf16", "float16": "fp16"}.get(str(said.value("model.dtype"))),
        interval_steps=said.number("checkpoints.checkpoint_interval"),
        unpriced=tuple(
            name
            for name in ("parallelism.tp_recompute_allgather", "parallelism.moe_layer_recompute", "optimizer.accumulate_grad_in_fp32")
            if said.truth(name)
        ),
    )  # fmt: skip


def llm_foundry(document: Mapping[str, Any]) -> Reading:
    """What a recipe of LLM Foundry says: fully sharded data parallelism where it has an `fsdp_config`, none where not."""
    said = Settings(document)
    for name in _NOT_PRICED:
        if said.value(name) not in (None, False, {}, []):
            raise BadValue(
                name,
                said.value(name),
                "it is not priced; leave it out, or write the layout as optimizer=zero3,mbs=…",
            )
    if said.value("fsdp_config.data_parallel_shard_degree") not in (None, -1):
        raise BadValue(
            "fsdp_config.data_parallel_shard_degree",
            said.value("fsdp_config.data_parallel_shard_degree"),
            "only -1 is read",
        )
    sharding = Sharding.NONE
    if said.value("fsdp_config") is not None:
        word = str(said.value("fsdp_config.sharding_strategy") or "FULL_SHARD").upper()
        if word not in _SHARDED:
            raise BadValue("fsdp_config.sharding_strategy", word, f"one of {', '.join(_SHARDED)}")
        sharding = _SHARDED[word]
    precision = str(said.value("precision") or "")
    layout: dict[str, Any] = {
        "sharding": sharding,
        "recompute": Recompute.FULL
        if said.truth("fsdp_config.activation_checkpointing")
        else Recompute.NONE,
    }
    if (size := said.number("device_train_microbatch_size")) is not None:
        layout["mbs"] = size
    return Reading(
        trainer="llm-foundry",
        layout=layout,
        sequence=_sequence(said),
        global_batch=said.number("global_train_batch_size"),
        precision={"amp_bf16": "bf16", "amp_fp16": "fp16"}.get(precision),
        unpriced=tuple(name for name in _ASIDE if said.value(name) not in (None, False, "DEFAULT")),
    )


def _sequence(said: Settings) -> int | None:
    """Tokens of a sequence, which a recipe usually names as one of its own variables. [1]"""
    value = said.value("max_seq_len")
    if isinstance(value, str) and value.startswith("${") and value.endswith("}"):
        return said.number(value[2:-1])
    return said.number("max_seq_len")
