"""DeepSpeed: its JSON configuration, and the Hugging Face trainer's arguments that go with it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Final

from mofa_model.errors import BadFile, BadValue
from mofa_model.launch.answer import Launch, LaunchSettings, Reading
from mofa_model.launch.table import Words, table, unsupported
from mofa_model.strategy import (
    LAYER_INPUT,
    ContextMode,
    Placement,
    Recompute,
    Sharding,
    Strategy,
)

TRAINER: Final = "deepspeed"
FILE: Final = "ds_config.json"
"""Name under which the configuration is printed."""

_FACTORS: Final = ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "data_parallel_size")
"""What a batch is the product of, where it is not given."""
_STAGES: Final = {Sharding.NONE: 0, Sharding.OPTIMIZER: 1, Sharding.GRADIENTS: 2, Sharding.WEIGHTS: 3}


def write(strategy: Strategy, run: LaunchSettings) -> Launch:
    """The configuration and arguments that make DeepSpeed run a layout."""
    if run.precision not in {"bf16", "fp16"}:
        raise unsupported(TRAINER, "precision", run.precision)
    rounds, stage = run.micro_batches(strategy), _STAGES[strategy.sharding]
    keys = Words(table(TRAINER), _setting)
    if strategy.tp * strategy.cp == 1:
        keys.add("train_batch_size", run.global_batch)
    else:  # transformers would count ranks that see the same samples
        keys.add("data_parallel_size", int(strategy.dp))
    keys.add("train_micro_batch_size_per_gpu", int(strategy.mbs))
    keys.add("gradient_accumulation_steps", rounds)
    keys.add(f"{run.precision}.enabled", True)
    keys.add("zero_optimization.stage", stage)
    if stage:
        keys.add("zero_optimization.overlap_comm", strategy.data_overlap)
    if strategy.optimizer is Placement.HOST:
        keys.add("zero_optimization.offload_optimizer.device", "cpu")
        keys.add("zero_optimization.offload_optimizer.pin_memory", True)
    if strategy.tp > 1:
        keys.add("tensor_parallel.autotp_size", int(strategy.tp))
    if run.experts and strategy.ep > 1:
        keys.add("expert_parallel.enabled", True)
        keys.add("expert_parallel.autoep_size", int(strategy.ep))
    if strategy.cp > 1:
        keys.add("sequence_parallel_size", int(strategy.cp))
    return Launch(
        trainer=TRAINER,
        release=table(TRAINER).release,
        arguments=tuple(_arguments(strategy, run, rounds)),
        files={FILE: json.dumps(_nested(keys.words), indent=2)},
        notes=("DeepSpeed has no checkpoint interval: the trainer that calls it saves every --save_steps",),
    )


def _arguments(strategy: Strategy, run: LaunchSettings, rounds: int) -> list[str]:
    words = Words(table(TRAINER), lambda name, values: [name, *(str(value) for value in values)])
    words.add("--deepspeed", FILE)
    words.add("--per_device_train_batch_size", int(strategy.mbs))
    words.add("--gradient_accumulation_steps", rounds)
    words.add(f"--{run.precision}")
    if strategy.recompute is Recompute.FULL:
        words.add("--activation_checkpointing")
        if strategy.offload:  # DeepSpeed's own `cpu_checkpointing` acts inside its own checkpointing only
            words.add("--activation_checkpointing_kwargs", json.dumps({"offload": True}))
    if run.interval_steps is not None:
        words.add("--save_strategy", "steps")
        words.add("--save_steps", run.interval_steps)
    return words.words


def _setting(name: str, values: tuple[object, ...]) -> list[str]:
    (value,) = values
    return [f"{name}={json.dumps(value)}"]


def _nested(settings: Sequence[str]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for setting in settings:
        path, _, value = setting.partition("=")
        *above, last = path.split(".")
        place = tree
        for key in above:
            place = place.setdefault(key, {})
        place[last] = json.loads(value)
    return tree


def read(words: Sequence[str], open_file: Callable[[str], str] | None = None) -> Reading:
    """What the arguments say and, where `open_file` may read it, the configuration that they name."""
    known = table(TRAINER)
    given: dict[str, str | None] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            name, fixed = known.today(name, value if equals else None)
            given[name] = fixed
        elif name and given[name] is None:
            given[name] = word
    path = given.get("--deepspeed")
    if path is None or open_file is None:
        raise BadValue(
            "current", " ".join(words), "the layout is in DeepSpeed's JSON file: name one that can be read"
        )
    reading = read_file(open_file(path), path)
    layout = dict(reading.layout)
    if "--activation_checkpointing" in given:
        layout["recompute"] = Recompute.FULL
    if _offloads(given.get("--activation_checkpointing_kwargs")):
        layout["offload"] = frozenset({LAYER_INPUT})
    if "--per_device_train_batch_size" in given:
        size = given["--per_device_train_batch_size"]
        layout["mbs"] = known.number("--per_device_train_batch_size", size)
    saves = given.get("--save_steps")
    return Reading(
        trainer=TRAINER,
        layout=layout,
        copies=reading.copies,
        global_batch=reading.global_batch,
        precision=reading.precision
        or next((word for word in ("bf16", "fp16") if f"--{word}" in given), None),
        interval_steps=known.number("--save_steps", saves) if saves is not None else None,
    )


def _offloads(text: str | None) -> bool:
    """Whether the trainer's checkpointing is told to keep its inputs on the host."""
    try:
        given = json.loads(text or "{}")
    except ValueError:
        raise BadValue("--activation_checkpointing_kwargs", text, "give a JSON object") from None
    return isinstance(given, dict) and given.get("offload") is True


def _batch(*factors: int | None) -> int | None:
    """Sequences in a step, where all that makes them is given. [1]"""
    known = [factor for factor in factors if factor is not None]
    return prod(known) if len(known) == len(factors) else None


def read_file(text: str, name: str) -> Reading:
    """What a JSON configuration says; "auto" leaves a field to the trainer's arguments."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadFile(name, f"is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise BadFile(name, "is not a JSON object")

    def found(path: str) -> Any:
        place: Any = document
        for key in path.split("."):
            place = place.get(key) if isinstance(place, dict) else None
        return None if place == "auto" else place

    def number(path: str, least: int = 1) -> int | None:
        value = found(path)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            raise BadValue(path, value, f"give a whole number of {least} or more")
        return None if value is None else int(value)

    stage = number("zero_optimization.stage", 0) or 0
    if stage > 3:
        raise BadValue("zero_optimization.stage", stage, "0, 1, 2 or 3")
    overlaps = found("zero_optimization.overlap_comm")
    layout: dict[str, Any] = {
        "tp": number("tensor_parallel.autotp_size", 0) or 1,
        "ep": (number("expert_parallel.autoep_size") or 1) if found("expert_parallel.enabled") else 1,
        "mbs": number("train_micro_batch_size_per_gpu") or 1,
        "sharding": {level: sharding for sharding, level in _STAGES.items()}[stage],
        "data_overlap": stage > 0 and (stage == 3 if overlaps is None else overlaps is True),
        "offload": frozenset({LAYER_INPUT} if found("activation_checkpointing.cpu_checkpointing") else ()),
    }
    if (ranks := number("sequence_parallel_size") or 1) > 1:
        layout |= {"cp": ranks, "context_mode": ContextMode.ALL_TO_ALL}
    if found("zero_optimization.offload_optimizer.device") == "cpu" or found("zero_optimization.cpu_offload"):
        layout["optimizer"] = Placement.HOST
    shard = document.get("zero_optimization", {})
    size = shard.get("mics_shard_size") if isinstance(shard, dict) else None
    if isinstance(size, int) and not isinstance(size, bool) and size > 0:
        layout["shard"] = size
    return Reading(
        trainer=TRAINER,
        layout=layout,
        global_batch=number("train_batch_size") or _batch(*map(number, _FACTORS)),
        precision=next((word for word in ("bf16", "fp16") if found(f"{word}.enabled") is True), None),
    )
