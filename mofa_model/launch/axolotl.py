"""Axolotl: one file, in which the engine that shards is a part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from mofa_model.errors import BadValue, NotRead
from mofa_model.launch import accelerate, hugging_face
from mofa_model.launch.answer import Launch, LaunchSettings, OpenFile, Reading
from mofa_model.launch.formats import document_for
from mofa_model.launch.table import Words, nested, setting, table
from mofa_model.launch.tuning import (
    ALL_LINEAR,
    PACKED,
    PADDED,
    FineTuning,
    base_of,
    notes_of,
    on,
    whole,
)
from mofa_model.launch.tuning_request import in_samples, tuning_of
from mofa_model.strategy import Recompute, Strategy
from mofa_model.yaml_text import as_yaml

TRAINER: Final = "axolotl"
FILE: Final = "axolotl.yaml"
"""Name under which its configuration is printed."""
_LIGER: Final = "axolotl.integrations.liger.LigerPlugin"
SETS: Final = {
    "sft": [{"path": "tatsu-lab/alpaca", "type": "alpaca"}],
    "dpo": [{"path": "Intel/orca_dpo_pairs", "type": "chatml.intel", "split": "train"}],
    "reward": [
        {"path": "argilla/distilabel-intel-orca-dpo-pairs", "type": "bradley_terry.chat_template"}
    ],
}
"""Data sets of its examples."""


def write(strategy: Strategy, settings: LaunchSettings) -> Launch:
    """The file that makes Axolotl run a layout."""
    tuning = tuning_of(
        TRAINER,
        settings,
        task=tuple(SETS),
        loss=("whole", "fused"),
        base=("", "int8", "nf4-double"),
    )
    strategy, settings = in_samples(tuning, strategy, settings)
    config, engine = accelerate.configuration(strategy, settings)
    keys = Words(TRAINER, setting)
    keys.add("datasets", SETS[tuning.task])
    keys.add("base_model", tuning.model)
    keys.add("output_dir", "out")
    keys.add("learning_rate", tuning.learning_rate)
    keys.add("lr_scheduler", "cosine")
    keys.add("num_epochs", 1)
    keys.add("rl", "dpo", when=tuning.task == "dpo")
    keys.add("reward_model", True, when=tuning.task == "reward")
    keys.add("sequence_len", settings.sequence)
    is_packed = tuning.documents == PACKED
    keys.add("sample_packing", is_packed)
    keys.add("pad_to_sequence_len", tuning.documents != PADDED)
    keys.add("attn_implementation", "flash_attention_2" if is_packed else "sdpa")
    if tuning.loss == "fused":
        keys.add("plugins", [_LIGER])
        keys.add("liger_fused_linear_cross_entropy", True)
    _add_adapters(keys, tuning)
    keys.add("micro_batch_size", int(strategy.mbs))
    keys.add("gradient_accumulation_steps", settings.micro_batches(strategy))
    keys.add("bfloat16", True, when=tuning.pure)  # nothing is mixed
    keys.add("bf16", settings.precision == "bf16")
    keys.add("fp16", True, when=settings.precision == "fp16")
    sharded = config["distributed_type"] == "FSDP"
    if sharded and tuning.base and tuning.task == "dpo":
        right = (
            f"Axolotl runs no DPO beside {tuning.base} under FSDP2; give replicated or distributed"
        )
        raise BadValue("strategy.sharding", strategy.sharding.value, right)
    recomputes = strategy.recompute is Recompute.FULL
    keys.add("gradient_checkpointing", recomputes and not sharded)
    keys.add("optimizer", hugging_face.OPTIMIZERS[settings.optimizer])
    if settings.interval_steps is not None:
        keys.add("save_strategy", "steps")
        keys.add("save_steps", settings.interval_steps)
    if sharded:
        _add_fsdp(keys, config, tuning)
    keys.add("deepspeed", engine, when=engine)
    words = Words(TRAINER, lambda name, _: [name])
    words.add(FILE)
    return words.launch(files={FILE: as_yaml(nested(keys.words))}, notes=notes_of(tuning))


def _add_adapters(keys: Words, tuning: FineTuning) -> None:
    if not tuning.rank:
        return
    in_4_bits = tuning.base.startswith("nf4")
    keys.add("adapter", "qlora" if in_4_bits else "lora")
    keys.add("lora_r", tuning.rank)
    keys.add("lora_alpha", tuning.alpha)
    keys.add("lora_dropout", tuning.dropout)
    if tuning.targets == ALL_LINEAR:
        keys.add("lora_target_linear", True)
    else:
        keys.add("lora_target_modules", tuning.modules)
    keys.add("peft_use_dora", True, when=tuning.magnitudes)
    keys.add("load_in_8bit", True, when=tuning.base == "int8")
    keys.add("load_in_4bit", True, when=in_4_bits)


def _add_fsdp(keys: Words, config: Mapping[str, Any], tuning: FineTuning) -> None:
    """Add Accelerate's settings of FSDP under Axolotl's names, which leave their prefix out."""
    keys.add("fsdp_version", 2)
    for name, value in config["fsdp_config"].items():
        if name != "fsdp_version":
            keys.add(f"fsdp_config.{name.removeprefix('fsdp_')}", value)
    if tuning.base.startswith("nf4"):  # it raises: rank 0 alone would have the four bits
        keys.add("fsdp_config.cpu_ram_efficient_loading", False)
    sizes = config["parallelism_config"]
    for name in ("dp_replicate", "dp_shard"):
        size = sizes[f"parallelism_config_{name}_size"]
        keys.add(f"{name}_size", size, when=size > 1)


def matches(words: Sequence[str]) -> bool:
    """Whether a command starts Axolotl with a file."""
    return "axolotl.cli.train" in words or any(
        program.rpartition("/")[2] == TRAINER and verb == "train"
        for program, verb in pairwise(words)
    )


def read(words: Sequence[str], open_file: OpenFile | None = None) -> Reading:
    """What the file says that a command names, and options over it."""
    path = next((word for word in words if word.endswith((".yaml", ".yml"))), None)
    if path is None or open_file is None:
        raise NotRead("current", " ".join(words), "name a file of Axolotl that can be read")
    options = hugging_face.trainer_options(table(TRAINER), words[words.index(path) :])
    overrides = {
        key.replace("-", "_"): value for key, value in hugging_face.keys_of(options).items()
    }
    return read_document({**document_for(TRAINER, open_file(path), path), **overrides}, open_file)


def read_document(document: Mapping[str, Any], open_file: OpenFile | None = None) -> Reading:
    """The layout in a file of Axolotl."""
    settings = dict(document)
    _refuse(settings)
    options: dict[str, str | None] = {
        "--per_device_train_batch_size": str(settings.get("micro_batch_size") or 1),
        "--gradient_accumulation_steps": str(settings.get("gradient_accumulation_steps") or 1),
    }
    if on(settings.get("gradient_checkpointing")):
        options["--activation_checkpointing"] = "true"
    for name in ("bf16", "fp16"):
        if on(settings.get(name)):
            options[f"--{name}"] = None
    if settings.get("save_steps") and float(settings["save_steps"]) >= 1:
        options["--save_steps"] = str(settings["save_steps"])
    layout_reading = accelerate.reading(_engine(settings, open_file), options, None)
    rank = (whole(settings, "lora_r") or 0) if settings.get("adapter") in {"lora", "qlora"} else 0
    pure = not rank and (on(settings.get("bfloat16")) or settings.get("bf16") == "full")
    task = str(settings.get("rl") or ("reward" if on(settings.get("reward_model")) else "sft"))
    if on(settings.get("lora_target_linear")):
        settings["lora_target_modules"] = "all-linear"
    tuning = hugging_face.tuning_in(
        settings,
        rank=rank,
        pure=pure,
        base=base_of(settings, "load_in_4bit", "load_in_8bit", double=True),
        documents=_documents(settings),
        task=task,
        loss="fused" if on(settings.get("liger_fused_linear_cross_entropy")) else "whole",
        alpha=0,
        model_key="base_model",
        magnitudes_key="peft_use_dora",
        optimizer_key="optimizer",
    )
    return hugging_face.tuner_reading(
        TRAINER, layout_reading, tuning, settings, sequence=whole(settings, "sequence_len", 512)
    )


def _documents(settings: Mapping[str, Any]) -> str:
    if on(settings.get("sample_packing")):
        return PACKED
    return "" if on(settings.get("pad_to_sequence_len")) else PADDED


def _refuse(settings: Mapping[str, Any]) -> None:
    """Refuse what shards or trains in a way that is not priced."""
    for name in ("tensor_parallel_size", "context_parallel_size", "sequence_parallel_degree"):
        if (whole(settings, name) or 1) > 1:
            raise BadValue(name, settings[name], "only 1 has a modelled cost under Axolotl")
    if settings.get("rl") not in (None, "dpo"):
        raise BadValue("rl", settings["rl"], "it trains by reinforcement; only dpo is priced here")


def _engine(settings: Mapping[str, Any], open_file: OpenFile | None) -> Mapping[str, Any]:
    """How Axolotl's file shares the model, in the words of Accelerate's file."""
    if settings.get("deepspeed"):
        return hugging_face.engine_of(settings["deepspeed"], open_file, "deepspeed")
    sizes = {
        f"parallelism_config_{name}_size": size
        for name in ("dp_replicate", "dp_shard")
        if (size := whole(settings, f"{name}_size")) is not None
    }
    if not settings.get("fsdp_config") and not settings.get("fsdp"):
        return {"distributed_type": "MULTI_GPU"}
    fsdp_config = dict(settings.get("fsdp_config") or {})
    fsdp_config.setdefault(
        "fsdp_version", settings.get("fsdp_version") or fsdp_config.pop("version", 1)
    )
    words = settings.get("fsdp") or []
    if "full_shard" in words:
        fsdp_config.setdefault("fsdp_sharding_strategy", "FULL_SHARD")
    return {
        "distributed_type": "FSDP",
        "fsdp_config": fsdp_config,
        **({"parallelism_config": sizes} if sizes else {}),
    }
