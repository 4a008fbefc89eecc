"""torchtitan: `--section.name value`, and a positional word for activation checkpointing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mofa_model.launch.answer import Launch, LaunchSettings, OpenFile, Reading
from mofa_model.launch.table import Settings, Words, is_flag_of, refuse_degrees, table, unsupported
from mofa_model.schedules import DUALPIPE_V, INTERLEAVED, ONE_F_ONE_B, ZBV
from mofa_model.strategy import Placement, Recompute, Sharding, Strategy

TRAINER: Final = "torchtitan"

_SCHEDULES: Final = {
    ONE_F_ONE_B: "1F1B",
    INTERLEAVED: "Interleaved1F1B",
    ZBV: "ZBVZeroBubble",
    DUALPIPE_V: "DualPipeV",
}
_PER_OPERATOR: Final = frozenset({"per_op"})
"""Recomputed modules that stand for torchtitan's selective mode."""
_SECTIONS: Final = (
    "parallelism",
    "training",
    "checkpoint",
    "compile",
    "activation_checkpoint",
    "experimental",
)


def write(strategy: Strategy, settings: LaunchSettings) -> Launch:
    """The arguments that make torchtitan run a layout, after `--module` and `--config`."""
    words = Words(TRAINER, _option)
    _batch(words, strategy, settings)
    _degrees(words, strategy, settings)
    words.add("training.enable_cpu_offload", when=strategy.optimizer is Placement.HOST)
    # Graphs are on by default, and refused beside pipelines and experts.
    words.add("training.disable_cuda_graphs")
    if strategy.tensor_overlap and strategy.tp > 1:
        words.add("compile.enable")
        words.add("compile.components", "model,loss")  # recipes compile the loss alone
        words.add("compile.enable_async_tensor_parallel")
    if settings.interval_steps is not None:
        words.add("checkpoint.enable")
        words.add("checkpoint.interval", settings.interval_steps)
        words.add("checkpoint.async_mode", "async" if settings.asynchronous else "disabled")
    # A positional word, which must be the last.
    words.add("activation-checkpoint", strategy.recompute.value)
    notes = ["after: --module MODEL --config RECIPE; the recipe also chooses the precision"]
    if settings.precision == "fp32":
        words.add("training.mixed_precision_param", "float32")
    elif settings.precision not in {"bf16", "fp16"}:
        notes.append(f"choose a recipe whose linear layers are converted to {settings.precision}")
    return words.launch(notes=notes)


def _option(name: str, values: tuple[object, ...]) -> list[str]:
    if name == "activation-checkpoint":
        return [f"{name}:{values[0]}"]
    return [f"--{name}", *(str(value) for value in values)]


def _batch(words: Words, strategy: Strategy, settings: LaunchSettings) -> None:
    """With a pipeline the local batch holds all micro-batches; else gradients are accumulated."""
    rounds, size = settings.micro_batches(strategy), int(strategy.mbs)
    words.add("training.local_batch_size", rounds * size if strategy.pp > 1 else size)
    words.add("training.global_batch_size", settings.global_batch)
    words.add("training.seq_len", settings.sequence)
    words.add("parallelism.pipeline_parallel_microbatch_size", size, when=strategy.pp > 1)


def _degrees(words: Words, strategy: Strategy, settings: LaunchSettings) -> None:
    dp = int(strategy.dp)
    # Context-parallel ranks share as well, without being counted in the degree.
    shared = min(int(strategy.shard) or int(strategy.data_ranks), int(strategy.data_ranks))
    sharded = 1 if strategy.sharding is Sharding.NONE else shared // int(strategy.cp)
    words.add("parallelism.data_parallel_replicate_degree", dp // sharded)
    words.add("parallelism.data_parallel_shard_degree", sharded)
    if strategy.sharding in {Sharding.GRADIENTS, Sharding.WEIGHTS}:
        keep = "always" if strategy.sharding is Sharding.WEIGHTS else "never"
        words.add("parallelism.fsdp_reshard_after_forward", keep)
    words.add("parallelism.tensor_parallel_degree", int(strategy.tp))
    if strategy.tp > 1 and not strategy.sequence_parallel:
        words.add("parallelism.no_enable_sequence_parallel")
    words.add("parallelism.pipeline_parallel_degree", int(strategy.pp))
    if strategy.pp > 1:
        schedule = (
            INTERLEAVED
            if strategy.vpp > 1 and strategy.schedule == ONE_F_ONE_B
            else strategy.schedule
        )
        words.add("parallelism.pipeline_parallel_schedule", _SCHEDULES[schedule])
        slots = _slots(strategy, settings)
        words.add("parallelism.pipeline_parallel_first_stage_less_layers", slots)
        words.add("parallelism.pipeline_parallel_last_stage_less_layers", slots)
        if strategy.vpp > 2:  # two virtual stages are what the looped schedules make by themselves
            words.add(
                "parallelism.pipeline_parallel_layers_per_stage", _stage_layers(strategy, settings)
            )
    words.add("parallelism.context_parallel_degree", int(strategy.cp))
    words.add("parallelism.expert_parallel_degree", int(strategy.ep), when=settings.experts)


def _slots(strategy: Strategy, settings: LaunchSettings) -> int:
    """Layers that embedding and head count as, each; none where the layers divide. [1]"""
    return int(settings.layers % int(strategy.pp * strategy.vpp) != 0)


def _stage_layers(strategy: Strategy, settings: LaunchSettings) -> int:
    """Layers of a virtual stage, embedding and head counted as they are there. [1]"""
    stages, slots = (
        int(strategy.pp * strategy.vpp),
        settings.layers + 2 * _slots(strategy, settings),
    )
    size = -(-slots // stages)
    if -(-slots // size) != stages:
        raise unsupported(TRAINER, "vpp", int(strategy.vpp))
    return size


def matches(words: Sequence[str]) -> bool:
    """Whether a command has one of its arguments."""
    return any(is_flag_of(TRAINER, word) for word in words)


def read(words: Sequence[str], _: OpenFile | None = None) -> Reading:
    """What torchtitan's arguments say."""
    options: dict[str, str | None] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            name = name.replace("-", "_")
            options[name] = value if equals else None
        elif word.startswith(("activation-checkpoint:", "activation_checkpoint:")):
            options["activation_checkpoint.mode"] = word.partition(":")[2]
        elif name and options[name] is None:
            options[name] = word
    return _reading(options)


def read_document(document: Mapping[str, Any], _: OpenFile | None = None) -> Reading:
    """What a TOML configuration of a release before 0.3 says."""
    refuse_degrees(table(TRAINER), Settings(document))
    options: dict[str, str | None] = {}
    for section in _SECTIONS:
        for key, value in _section(document, section).items():
            if value is False:
                options[f"{section}.no_{key}"] = None
            elif not isinstance(value, dict):
                options[f"{section}.{key}"] = str(value)
    return _reading(options)


def _section(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    content = document.get(name, {})
    return content if isinstance(content, dict) else {}


def _reading(raw: Mapping[str, str | None]) -> Reading:
    """The layout and settings that torchtitan's options state."""
    arguments = table(TRAINER)
    options = dict(arguments.today(name, value) for name, value in raw.items())
    unpriced = arguments.not_priced(options)

    def number(name: str) -> int | None:
        # torchtitan writes -1 for "what is left"
        value = options.get(name)
        return None if value in {None, "-1"} else arguments.number(f"--{name}", value)

    def slots(name: str) -> int:
        return 0 if options.get(name) == "0" else number(name) or 1

    tp, pp, cp = (
        number(f"parallelism.{axis}_parallel_degree") or 1
        for axis in ("tensor", "pipeline", "context")
    )
    replicas = number("parallelism.data_parallel_replicate_degree") or 1
    sharded = number("parallelism.data_parallel_shard_degree")
    layout: dict[str, Any] = {"tp": tp, "pp": pp, "cp": cp}
    layout["ep"] = number("parallelism.expert_parallel_degree") or 1
    layout["mbs"] = (
        number(
            "parallelism.pipeline_parallel_microbatch_size"
            if pp > 1
            else "training.local_batch_size"
        )
        or 1
    )
    layout["sequence_parallel"] = (
        tp > 1 and "parallelism.no_enable_sequence_parallel" not in options
    )
    layout["tensor_overlap"] = "compile.enable_async_tensor_parallel" in options
    if sharded is not None:
        layout["dp"] = replicas * sharded
    layout["sharding"] = _sharding(options, replicas, sharded, pp, cp)
    if "training.enable_cpu_offload" in options:  # weights, gradients and states, all at once
        layout |= {
            "optimizer": Placement.HOST,
            "host_weights": layout["sharding"] is Sharding.WEIGHTS,
        }
    layout |= _recompute(options.get("activation-checkpoint"))
    schedule = options.get("parallelism.pipeline_parallel_schedule")
    if pp > 1 and schedule is not None:
        arguments.choice("parallelism.pipeline_parallel_schedule", schedule)
        words = {word: chosen for chosen, word in _SCHEDULES.items()}
        layout["schedule"] = words[schedule]
        if layout["schedule"] != ONE_F_ONE_B:
            # torchtitan's default where the layers of a stage are not stated, and what a V has.
            layout["vpp"] = 2
    return Reading(
        trainer=TRAINER,
        layout=layout,
        copies=replicas if layout["sharding"] is not Sharding.NONE else 1,
        sequence=number("training.seq_len"),
        global_batch=number("training.global_batch_size"),
        interval_steps=number("checkpoint.interval"),
        chunk_layers=number("parallelism.pipeline_parallel_layers_per_stage"),
        unpriced=unpriced,
        outer_slots=sum(
            slots(f"parallelism.pipeline_parallel_{end}_stage_less_layers")
            for end in ("first", "last")
        ),
    )


def _sharding(
    options: Mapping[str, str | None], replicas: int, sharded: int | None, pp: int, cp: int
) -> Sharding:
    """Level of sharding. By default weights are gathered again, except under a pipeline."""
    if sharded == 1 < replicas and cp == 1:  # ranks of context parallelism share in any case
        return Sharding.NONE
    keep = options.get("parallelism.fsdp_reshard_after_forward") or "default"
    keeps_weights = keep == "never" or (keep == "default" and pp > 1)
    return Sharding.GRADIENTS if keeps_weights else Sharding.WEIGHTS


def _recompute(mode: str | None) -> dict[str, Any]:
    if mode is None:
        return {}
    table(TRAINER).choice("activation-checkpoint", mode)
    if mode == "selective":
        return {"recompute": Recompute.SELECTIVE, "recompute_modules": _PER_OPERATOR}
    return {"recompute": Recompute.FULL if mode == "full" else Recompute.NONE}
