"""DeepSpeed: its JSON configuration, and arguments of the Hugging Face trainer that goes
with it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Final

from mofa_model.errors import BadValue, NotRead
from mofa_model.launch.answer import Launch, LaunchSettings, OpenFile, Reading
from mofa_model.launch.formats import document_for
from mofa_model.launch.hugging_face import (
    add_trainer,
    option,
    recomputes_every,
    save_interval,
    trainer_layout,
    trainer_options,
    trainer_precision,
)
from mofa_model.launch.table import (
    Settings,
    Words,
    nested,
    refuse_degrees,
    setting,
    table,
    unsupported,
)
from mofa_model.strategy import LAYER_INPUT, ContextMode, Placement, Sharding, Strategy

TRAINER: Final = "deepspeed"
FILE: Final = "ds_config.json"
"""Name under which the configuration is printed."""

_FACTORS: Final = (
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
    "data_parallel_size",
)
"""What a batch is the product of, where it is not given."""
_STAGES: Final = {
    Sharding.NONE: 0,
    Sharding.OPTIMIZER: 1,
    Sharding.GRADIENTS: 2,
    Sharding.WEIGHTS: 3,
}


def write(strategy: Strategy, settings: LaunchSettings) -> Launch:
    """The configuration and arguments that make DeepSpeed run a layout."""
    keys = Words(TRAINER, setting)
    if strategy.tp * strategy.cp == 1:
        keys.add("train_batch_size", settings.global_batch)
    else:  # transformers would count ranks that see the same samples
        keys.add("data_parallel_size", int(strategy.dp))
    add_engine(keys, strategy, settings)
    keys.add("tensor_parallel.autotp_size", int(strategy.tp), when=strategy.tp > 1)
    if settings.experts and strategy.ep > 1:
        keys.add("expert_parallel.enabled", True)
        keys.add("expert_parallel.autoep_size", int(strategy.ep))
    keys.add("sequence_parallel_size", int(strategy.cp), when=strategy.cp > 1)
    words = Words(TRAINER, option)
    words.add("--deepspeed", FILE)
    add_trainer(words, strategy, settings, recomputes=True)
    return words.launch(
        files={FILE: json.dumps(nested(keys.words), indent=2)},
        notes=(
            (
                "DeepSpeed has no checkpoint interval: "
                "the trainer that calls it saves every --save_steps"
            ),
        ),
    )


def add_engine(keys: Words, strategy: Strategy, settings: LaunchSettings) -> None:
    """Keys of the engine: batch of a rank, precision, sharding, place of optimizer states."""
    if settings.precision not in {"bf16", "fp16"}:
        raise unsupported(TRAINER, "precision", settings.precision)
    # A lone rank has nothing to share, but only a ZeRO optimizer lives on the host.
    stage = _STAGES[strategy.sharding] or int(strategy.optimizer is Placement.HOST)
    keys.add("train_micro_batch_size_per_gpu", int(strategy.mbs))
    keys.add("gradient_accumulation_steps", settings.micro_batches(strategy))
    keys.add(f"{settings.precision}.enabled", True)
    keys.add("zero_optimization.stage", stage)
    keys.add("zero_optimization.overlap_comm", strategy.data_overlap, when=stage)
    if strategy.optimizer is Placement.HOST:
        keys.add("zero_optimization.offload_optimizer.device", "cpu")
        keys.add("zero_optimization.offload_optimizer.pin_memory", True)
    if strategy.host_weights:
        keys.add("zero_optimization.offload_param.device", "cpu")
        keys.add("zero_optimization.offload_param.pin_memory", True)


def matches(words: Sequence[str]) -> bool:
    """Whether a command names a configuration of DeepSpeed."""
    return not {"--deepspeed", "--deepspeed_config"}.isdisjoint(
        word.partition("=")[0] for word in words
    )


def read(words: Sequence[str], open_file: OpenFile | None = None) -> Reading:
    """What the arguments and the configuration that they name say."""
    arguments = table(TRAINER)
    options = trainer_options(arguments, words)
    path = options.get("--deepspeed") or options.get("--deepspeed_config")
    if path is None or open_file is None:
        raise NotRead(
            "current",
            " ".join(words),
            "name a JSON file of DeepSpeed that can be read, because it holds the layout",
        )
    reading = read_document(document_for(TRAINER, open_file(path), path))
    return Reading(
        trainer=TRAINER,
        layout={**reading.layout, **trainer_layout(arguments, options)},
        copies=reading.copies,
        global_batch=reading.global_batch,
        precision=reading.precision or trainer_precision(options),
        interval_steps=save_interval(arguments, options),
        recompute_every=recomputes_every(options),
        unpriced=(*reading.unpriced, *arguments.not_priced(options)),
    )


def _batch(*factors: int | None) -> int | None:
    """Sequences in a step, where all that makes them is given. [1]"""
    present = [factor for factor in factors if factor is not None]
    return prod(present) if len(present) == len(factors) else None


def read_document(document: Mapping[str, Any], _: OpenFile | None = None) -> Reading:
    """What a configuration says; "auto" leaves a field to the trainer's arguments."""
    settings = Settings(document)
    refuse_degrees(table(TRAINER), settings)
    value, number = settings.value, settings.number
    stage = number("zero_optimization.stage", 0) or 0
    if stage > 3:
        raise BadValue("zero_optimization.stage", stage, "0, 1, 2 or 3")
    overlaps = value("zero_optimization.overlap_comm")
    layout: dict[str, Any] = {
        "tp": number("tensor_parallel.autotp_size", 0) or 1,
        "ep": (number("expert_parallel.autoep_size") or 1)
        if value("expert_parallel.enabled")
        else 1,
        "sharding": {level: sharding for sharding, level in _STAGES.items()}[stage],
        "data_overlap": stage > 0 and (stage == 3 if overlaps is None else overlaps is True),
        "offload": frozenset(
            {LAYER_INPUT} if value("activation_checkpointing.cpu_checkpointing") else ()
        ),
    }
    if (size := number("train_micro_batch_size_per_gpu")) is not None:
        layout["mbs"] = size
    if (ranks := number("sequence_parallel_size") or 1) > 1:
        layout |= {"cp": ranks, "context_mode": ContextMode.ALL_TO_ALL}
    if value("zero_optimization.offload_optimizer.device") == "cpu" or value(
        "zero_optimization.cpu_offload"
    ):
        layout["optimizer"] = Placement.HOST
    # At every other stage DeepSpeed leaves the weights where they are.
    weights_on_host = value("zero_optimization.offload_param.device") == "cpu" or value(
        "zero_optimization.cpu_offload_param"
    )
    layout["host_weights"] = stage == 3 and bool(weights_on_host)
    shard = document.get("zero_optimization", {})
    size = shard.get("mics_shard_size") if isinstance(shard, dict) else None
    if isinstance(size, int) and not isinstance(size, bool) and size > 0:
        layout["shard"] = size
    return Reading(
        trainer=TRAINER,
        layout=layout,
        global_batch=number("train_batch_size") or _batch(*map(number, _FACTORS)),
        precision=next(
            (word for word in ("bf16", "fp16") if value(f"{word}.enabled") is True), None
        ),
        unpriced=table(TRAINER).not_priced(settings.leaves()),
    )
