"""Hugging Face Accelerate: the file of `accelerate launch`, and arguments of the trainer.

A layout says which engine shards. FSDP2 shards weights or gradients; DeepSpeed shards optimizer
states alone, on the host, or beside all-to-all context parallelism; DDP shards nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from mofa_model.errors import BadValue, NotRead
from mofa_model.launch import deepspeed, hugging_face, peft
from mofa_model.launch.answer import Launch, LaunchSettings, OpenFile, Reading
from mofa_model.launch.formats import FSDP1_STRATEGIES, document_for
from mofa_model.launch.table import (
    Arguments,
    Settings,
    Words,
    nested,
    refuse_degrees,
    setting,
    table,
    unsupported,
)
from mofa_model.launch.tuning import PURE, FineTuning
from mofa_model.launch.tuning_request import tuning_of
from mofa_model.spec.tuning import Loss, Task
from mofa_model.strategy import LAYER_INPUT, ContextMode, Placement, Recompute, Sharding, Strategy
from mofa_model.yaml_text import as_yaml

TRAINER: Final = "accelerate"
FILE: Final = "accelerate.yaml"
"""Name under which the configuration is printed."""
STARTER: Final = ("accelerate", "launch")

_SENT: Final = {ContextMode.RING: "alltoall", ContextMode.ALL_GATHER: "allgather"}
"""How FSDP2 moves keys and values: an all-to-all by one rank at a time, or all at once."""
_DEGREE: Final = "parallelism_config.parallelism_config_{}_size"


def write(strategy: Strategy, settings: LaunchSettings) -> Launch:
    """The configuration and arguments that make Accelerate run a layout."""
    config, engine = configuration(strategy, settings)
    files, starter = {FILE: as_yaml(config)}, [*STARTER, "--config_file", FILE]
    if engine:
        files[deepspeed.FILE] = json.dumps(engine, indent=2)
        starter += ["--deepspeed_config_file", deepspeed.FILE]
    words = Words(TRAINER, hugging_face.option)
    recomputes = config["distributed_type"] != "FSDP"
    hugging_face.add_trainer(words, strategy, settings, recomputes=recomputes)
    tuning = _adapters(settings)
    if tuning is not None:
        files |= peft.files_of(tuning)
        named = hugging_face.OPTIMIZERS.get(settings.optimizer)
        words.add("--optim", named, when=named)
    notes = [f"start the script by: {' '.join(starter)}"]
    if strategy.cp > 1:
        notes.append("context parallelism asks for a model whose attention is sdpa")
    notes += [note for name, note in peft.NOTES.items() if name in files]
    return words.launch(files=files, notes=notes, starter=starter)


def _adapters(settings: LaunchSettings) -> FineTuning | None:
    """The adapters that PEFT's file can say; what else a script does is its own."""
    if settings.training is None or settings.training.adapters is None:
        return None
    supported = {"task": [kind.value for kind in Task], "loss": [kind.value for kind in Loss]}
    try:
        return tuning_of(TRAINER, settings, **supported, released=(False, True))
    except BadValue:
        return None


def configuration(
    strategy: Strategy, settings: LaunchSettings
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The file of `accelerate launch` for a layout, and that of DeepSpeed where it shards."""
    pure = settings.precision == PURE
    if settings.precision not in {"bf16", "fp16"} and not pure:
        raise unsupported(TRAINER, "precision", settings.precision)
    engine, keys = _engine(strategy), Words(TRAINER, setting)
    engine_keys = Words(deepspeed.TRAINER, setting)
    keys.add("compute_environment", "LOCAL_MACHINE")
    keys.add("distributed_type", engine)
    keys.add("num_processes", int(strategy.gpus))
    if engine == "DEEPSPEED":
        keys.add("deepspeed_config.deepspeed_multinode_launcher", "standard")
        deepspeed.add_engine(engine_keys, strategy, settings)
        if strategy.cp > 1:
            keys.add(_DEGREE.format("sp"), int(strategy.cp))
            keys.add(_DEGREE.format("dp_shard"), int(strategy.dp))
    else:
        keys.add("mixed_precision", "no" if pure else settings.precision)
    if engine == "FSDP":
        _add_fsdp(keys, strategy)
        # A router's bias is no parameter, and loading on rank 0 alone raises on it.
        keys.add("fsdp_config.fsdp_cpu_ram_efficient_loading", False, when=settings.experts)
    return nested(keys.words), nested(engine_keys.words)


def _engine(strategy: Strategy) -> str:
    """Accelerate's word for what shards a layout: FSDP, DeepSpeed, or neither."""
    splits_heads = strategy.context_mode is ContextMode.ALL_TO_ALL and strategy.cp > 1
    if strategy.optimizer is Placement.HOST or strategy.host_weights or splits_heads:
        return "DEEPSPEED"
    if strategy.gpus == 1:
        return "NO"
    by = {Sharding.NONE: "MULTI_GPU", Sharding.OPTIMIZER: "DEEPSPEED"}
    return by.get(strategy.sharding, "FSDP")


def _add_fsdp(keys: Words, strategy: Strategy) -> None:
    keys.add("fsdp_config.fsdp_version", 2)
    keys.add("fsdp_config.fsdp_reshard_after_forward", strategy.sharding is Sharding.WEIGHTS)
    keys.add("fsdp_config.fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP")
    keys.add("fsdp_config.fsdp_state_dict_type", "SHARDED_STATE_DICT")
    if strategy.recompute is Recompute.FULL:
        keys.add("fsdp_config.fsdp_activation_checkpointing", True)
        keys.add("fsdp_config.fsdp_activation_checkpointing_offload", True, when=strategy.offload)
    # Context-parallel ranks share as well, without being counted in the degree.
    shared = int(strategy.shard) // int(strategy.cp) or int(strategy.dp)
    keys.add(_DEGREE.format("dp_replicate"), int(strategy.dp) // shared)
    keys.add(_DEGREE.format("dp_shard"), shared)
    if strategy.cp > 1:
        keys.add(_DEGREE.format("cp"), int(strategy.cp))
        keys.add(
            "parallelism_config.parallelism_config_cp_comm_strategy", _SENT[strategy.context_mode]
        )


def matches(words: Sequence[str]) -> bool:
    """Whether a command starts a script by Accelerate, or names a file of its."""
    programs = [word.rpartition("/")[2] for word in words]
    return "accelerate" in programs or "--config_file" in {word.partition("=")[0] for word in words}


def read(words: Sequence[str], open_file: OpenFile | None = None) -> Reading:
    """What options of `accelerate launch`, the trainer's arguments and their files say."""
    arguments = table(TRAINER)
    options = hugging_face.trainer_options(arguments, words)
    path = options.get("--config_file")
    if (path is None and not {"--use_fsdp", "--use_deepspeed", "--multi_gpu"} & {*options}) or (
        path and open_file is None
    ):
        right = "the layout is in Accelerate's configuration file: name one that can be read"
        raise NotRead("current", " ".join(words), right)
    document = document_for(TRAINER, open_file(path), path) if path and open_file else {}
    layout_reading = reading(document, options, open_file)
    optimizer = hugging_face.optimizer_of(options.get("--optim") or "adamw_torch", pure=False)
    tuning = peft.read(path, open_file, optimizer) if path and open_file else None
    if tuning is None:
        return layout_reading
    unpriced = [
        name
        for name in layout_reading.unpriced
        if name != "optim" or optimizer not in hugging_face.OPTIMIZERS
    ]
    return replace(layout_reading, tuning=tuning, unpriced=tuple(unpriced))


def read_document(document: Mapping[str, Any], open_file: OpenFile | None = None) -> Reading:
    """The layout in a configuration file of Accelerate."""
    return reading(document, {}, open_file)


def reading(
    document: Mapping[str, Any], options: Mapping[str, str | None], open_file: OpenFile | None
) -> Reading:
    """The layout in a configuration file and in options, which go before the file."""
    arguments = table(TRAINER)
    return _reading(arguments, options, _merged(arguments, document, options), open_file)


def _merged(
    arguments: Arguments, document: Mapping[str, Any], options: Mapping[str, str | None]
) -> Settings:
    """Settings of a file, replaced by options. FSDP's keys may lack their prefix in a file."""
    sections = {name: part for name, part in document.items() if isinstance(part, Mapping)}
    merged: dict[str, Any] = {
        name: value for name, value in document.items() if name not in sections
    }
    for name, part in sections.items():
        prefix = "fsdp_" if name == "fsdp_config" else ""
        merged[name] = {
            key if str(key).startswith(prefix) else f"{prefix}{key}": value
            for key, value in part.items()
        }
    for path in arguments.kinds:
        section, dot, name = path.rpartition(".")
        option = f"--{name}"
        if not path.startswith("--") and option in options:
            place = merged.setdefault(section, {}) if dot else merged
            place[name] = _plain(options[option])
    for option, engine in (
        ("--use_fsdp", "FSDP"),
        ("--use_deepspeed", "DEEPSPEED"),
        ("--multi_gpu", "MULTI_GPU"),
    ):
        if option in options:
            merged["distributed_type"] = engine
    return Settings(merged)


def _plain(text: str | None) -> Any:
    """The value of an option: a switch that stands alone is on."""
    if text is None:
        return True
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else text


def _reading(
    arguments: Arguments,
    options: Mapping[str, str | None],
    settings: Settings,
    open_file: OpenFile | None,
) -> Reading:
    """The layout and settings that accelerate's options and file state."""
    refuse_degrees(arguments, settings)
    engine = settings.value("distributed_type")
    if engine is None and options and "--config_file" not in options:
        engine = "NO"
    engine = arguments.choice("distributed_type", engine if engine is None else str(engine))
    if engine == "MEGATRON_LM":
        raise BadValue("distributed_type", engine, "give the flags of Megatron-LM instead")
    sizes = {
        name: settings.number(_DEGREE.format(name))
        for name in ("dp_replicate", "dp_shard", "tp", "cp", "sp")
    }
    replicas = sizes["dp_replicate"] or 1
    layout: dict[str, Any] = {"sharding": Sharding.NONE, "tp": sizes["tp"] or 1}
    if sizes["dp_shard"] is not None or replicas > 1:
        layout["dp"] = replicas * (sizes["dp_shard"] or 1)
    if (ulysses := sizes["sp"] or 1) > 1:
        layout |= {"cp": ulysses, "context_mode": ContextMode.ALL_TO_ALL}
    elif (ring := sizes["cp"] or 1) > 1:
        name = "parallelism_config.parallelism_config_cp_comm_strategy"
        exchange = arguments.choice(name, str(settings.value(name) or "allgather"))
        modes = {word: mode for mode, word in _SENT.items()}
        layout |= {"cp": ring, "context_mode": modes[exchange]}
    precision, inner = settings.value("mixed_precision"), tuple[str, ...]()
    if engine == "DEEPSPEED":
        zero = _deepspeed(settings, open_file)
        inner = zero.unpriced
        layout, precision = {**layout, **zero.layout}, precision or zero.precision
    elif engine == "FSDP":
        layout |= _fsdp(arguments, settings)
    layout |= hugging_face.trainer_layout(arguments, options)
    leaf_values = {name.rpartition(".")[2]: value for name, value in settings.leaves().items()}
    unpriced = arguments.not_priced(
        leaf_values | {name.removeprefix("--"): value for name, value in options.items()}
    )
    ranks, rounds = (
        settings.number("num_processes") or 0,
        options.get("--gradient_accumulation_steps", "1"),
    )
    samples = ranks // (layout["tp"] * layout.get("cp", 1)) * layout.get("mbs", 0)
    return Reading(
        trainer=TRAINER,
        layout=layout,
        copies=replicas if engine == "FSDP" else 1,
        rounds=arguments.number("--gradient_accumulation_steps", rounds),
        global_batch=samples * arguments.number("--gradient_accumulation_steps", rounds) or None,
        precision=precision
        if precision in {"bf16", "fp16"}
        else hugging_face.trainer_precision(options),
        interval_steps=hugging_face.save_interval(arguments, options),
        recompute_every=hugging_face.recomputes_every(options),
        unpriced=tuple(dict.fromkeys((*unpriced, *inner))),
    )


def _fsdp(arguments: Arguments, settings: Settings) -> dict[str, Any]:
    """What FSDP shares and computes again."""
    level = "fsdp_config.fsdp_reshard_after_forward"
    if settings.number("fsdp_config.fsdp_version") == 2:
        sharding = Sharding.WEIGHTS if settings.truth(level, default=True) else Sharding.GRADIENTS
    else:
        name = "fsdp_config.fsdp_sharding_strategy"
        words = arguments.choices(name)
        value = settings.value(name) or settings.value(level) or words[0]
        word = (
            words[value - 1] if isinstance(value, int) and 0 < value <= len(words) else str(value)
        )
        if arguments.choice(name, word) not in FSDP1_STRATEGIES:
            raise BadValue(
                name,
                word,
                "write its groups as parallelism_config_dp_replicate_size under fsdp_version 2",
            )
        sharding = FSDP1_STRATEGIES[word]
    layout: dict[str, Any] = {"sharding": sharding}
    # The key moves weights, gradients and optimizer states at once.
    if settings.truth("fsdp_config.fsdp_offload_params"):
        layout |= {"optimizer": Placement.HOST, "host_weights": sharding is Sharding.WEIGHTS}
    if settings.truth("fsdp_config.fsdp_activation_checkpointing"):
        layout["recompute"] = Recompute.FULL
        if settings.truth("fsdp_config.fsdp_activation_checkpointing_offload"):
            layout["offload"] = frozenset({LAYER_INPUT})
    return layout


def _deepspeed(settings: Settings, open_file: OpenFile | None) -> Reading:
    """The layout of DeepSpeed's own file, or of the few keys that replace one."""
    path = settings.value("deepspeed_config.deepspeed_config_file")
    if isinstance(path, Mapping):
        return deepspeed.read_document(path)
    if path is None:
        stage = settings.number("deepspeed_config.zero_stage", 0)
        optimizer_device = settings.value("deepspeed_config.offload_optimizer_device")
        weights_device = settings.value("deepspeed_config.offload_param_device")
        zero: dict[str, Any] = {"stage": 2 if stage is None else stage}
        if optimizer_device:
            zero["offload_optimizer"] = {"device": optimizer_device}
        if weights_device:
            zero["offload_param"] = {"device": weights_device}
        return deepspeed.read_document({"zero_optimization": zero})
    if open_file is None:
        raise NotRead("deepspeed_config_file", path, "name a file that can be read")
    return deepspeed.read_document(document_for(deepspeed.TRAINER, open_file(str(path)), str(path)))


def with_machines(text: str, nodes: int) -> str:
    r"""Its file with the machines [1] that it is for; each says its own rank when it starts.

    >>> with_machines("num_processes: 16\n", 2)
    'num_processes: 16\nnum_machines: 2\n'
    """
    return re.sub(r"(?m)^num_processes: \d+\n", rf"\g<0>num_machines: {nodes}\n", text)
