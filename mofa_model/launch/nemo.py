"""NeMo: overrides of a recipe, `section.name=value`, as Megatron Bridge takes them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from mofa_model.errors import BadValue
from mofa_model.launch.answer import Launch, LaunchSettings, OpenFile, Reading
from mofa_model.launch.megatron import (
    CONTEXT_WORDS,
    DISPATCHER,
    FSDP,
    GRAPHED,
    GRAPHED_EXPERTS,
    STATE_SPACE,
    chunk_layers,
    environment,
    hybrid_pattern,
    instances,
    offloaded,
    overlaps_experts,
    read_context_mode,
    read_features,
    read_offload,
    split_of,
)
from mofa_model.launch.table import Settings, Words, refuse_degrees, table, unsupported
from mofa_model.placement import layout_stages
from mofa_model.strategy import Graphs, Placement, Recompute, Sharding, Strategy

TRAINER: Final = "nemo"

_PRECISIONS: Final = {
    "bf16": "bf16_mixed",
    "fp16": "fp16_mixed",
    "fp8-delayed": "bf16_with_fp8_delayed_scaling_mixed",
    "fp8-current": "bf16_with_fp8_current_scaling_mixed",
    "fp8-tensorwise": "bf16_with_fp8_current_scaling_mixed",
    "fp8-block": "bf16_with_fp8_subchannel_scaling_mixed",
    "mxfp8": "bf16_with_mxfp8_mixed",
    "nvfp4": "bf16_with_nvfp4_mixed",
}
_OVERRIDE: Final = re.compile(r"\+{0,2}([A-Za-z_][\w.]*)=(.*)", re.DOTALL)


def write(strategy: Strategy, settings: LaunchSettings) -> Launch:
    """The overrides that make a NeMo recipe run a layout."""
    words = Words(TRAINER, _override)
    _sizes(words, strategy, settings)
    _data_parallel(words, strategy, settings)
    _activations(words, strategy, settings)
    if settings.precision not in _PRECISIONS:
        raise unsupported(TRAINER, "precision", settings.precision)
    words.add("mixed_precision", _PRECISIONS[settings.precision])
    if settings.interval_steps is not None:
        words.add("checkpoint.save_interval", settings.interval_steps)
        words.add("checkpoint.async_save", settings.asynchronous)
    return words.launch(
        environment=environment(strategy, settings),
        notes=("after a script that hands its overrides to the recipe's configuration",),
    )


def _override(name: str, values: tuple[object, ...]) -> list[str]:
    kind = table(TRAINER).kinds[name]
    if kind.startswith("words:"):
        return [f"{name}=[{','.join(str(value) for value in values)}]"]
    (value,) = values
    if kind == "text" and "|" in str(value):
        return [f"{name}='{value}'"]  # without quotes *, | and ( are grammar of an override
    return [f"{name}={str(value).lower() if isinstance(value, bool) else value}"]


def _sizes(words: Words, strategy: Strategy, settings: LaunchSettings) -> None:
    words.add("model.tensor_model_parallel_size", int(strategy.tp))
    words.add("model.pipeline_model_parallel_size", int(strategy.pp))
    split = split_of(strategy, settings)
    if strategy.pp > 1 and any(
        STATE_SPACE in layer for stage in settings.stages for layer in stage
    ):
        words.add("model.hybrid_layer_pattern", hybrid_pattern(settings))
    elif split not in {"even", "slots"}:
        words.add("model.pipeline_model_parallel_layout", split)
    if strategy.vpp > 1:  # beside a layout too: overlap is decided before it is read
        words.add("model.virtual_pipeline_model_parallel_size", int(strategy.vpp))
    if split == "slots":
        words.add("model.account_for_embedding_in_pipeline_split", True)
        words.add("model.account_for_loss_in_pipeline_split", True)
    words.add("model.context_parallel_size", int(strategy.cp))
    if strategy.cp > 1:
        words.add(
            "model.cp_comm_type", CONTEXT_WORDS[strategy.context_mode].replace("allg", "all_g")
        )
    if settings.experts:
        words.add("model.expert_model_parallel_size", int(strategy.ep))
        words.add("model.expert_tensor_parallel_size", int(strategy.etp))
        words.add("model.moe_token_dispatcher_type", DISPATCHER)
        words.add("model.moe_grouped_gemm", True)
    words.add("model.sequence_parallel", strategy.sequence_parallel)
    words.add("model.seq_length", settings.sequence)
    words.add("dataset.seq_length", settings.sequence)
    words.add("train.micro_batch_size", int(strategy.mbs))
    words.add("train.global_batch_size", settings.global_batch)


def _data_parallel(words: Words, strategy: Strategy, settings: LaunchSettings) -> None:
    sharded = strategy.sharding is not Sharding.NONE
    # A lone rank needs the distributed optimizer too where its states are on the host.
    distributed = sharded or strategy.optimizer is Placement.HOST
    words.add("ddp.use_distributed_optimizer", distributed)
    words.add("optimizer.use_distributed_optimizer", distributed)
    if strategy.sharding in FSDP:
        words.add("ddp.use_megatron_fsdp", True)
        words.add("dist.use_megatron_fsdp", True)
        words.add("ddp.data_parallel_sharding_strategy", FSDP[strategy.sharding])
        words.add("checkpoint.ckpt_format", "fsdp_dtensor")
    if sharded and instances(strategy) > 1:
        words.add("ddp.num_distributed_optimizer_instances", instances(strategy))
    words.add("ddp.overlap_grad_reduce", strategy.data_overlap)
    words.add("ddp.overlap_param_gather", strategy.data_overlap and sharded)
    # The recipe's `comm_overlap` section has the last word, so it is set as well.
    words.add("comm_overlap.overlap_grad_reduce", strategy.data_overlap)
    words.add("comm_overlap.overlap_param_gather", strategy.data_overlap and sharded)
    words.add("comm_overlap.tp_comm_overlap", strategy.tensor_overlap and strategy.tp > 1)
    words.add("comm_overlap.overlap_p2p_comm", strategy.pipeline_overlap, when=strategy.vpp > 1)
    if overlaps_experts(strategy, settings):
        words.add("comm_overlap.overlap_moe_expert_parallel_comm", True)


def _activations(words: Words, strategy: Strategy, settings: LaunchSettings) -> None:
    if strategy.recompute is Recompute.NONE:
        words.add("model.recompute_granularity", "null")
    elif strategy.recompute is Recompute.SELECTIVE:
        words.add("model.recompute_granularity", "selective")
        words.add("model.recompute_modules", *sorted(strategy.recompute_modules))
    else:
        words.add("model.recompute_granularity", "full")
        words.add("model.recompute_method", "block" if strategy.recompute_layers else "uniform")
        words.add("model.recompute_num_layers", chunk_layers(strategy) or 1)
    if strategy.offload:
        words.add("model.fine_grained_activation_offloading", True)
        words.add("model.offload_modules", *offloaded(strategy))
    if strategy.optimizer is Placement.HOST:
        words.add("optimizer.optimizer_cpu_offload", True)
        words.add("optimizer.optimizer_offload_fraction", "1.0")
        words.add("optimizer.overlap_cpu_optimizer_d2h_h2d", True)
        words.add("optimizer.use_precision_aware_optimizer", True)
    if strategy.graphs is Graphs.FULL:
        words.add("model.cuda_graph_impl", "full_iteration")
        words.add("rerun_state_machine.check_for_nan_in_loss", False)  # it would leave the graph
        words.add("ddp.check_for_nan_in_grad", False)
    elif strategy.graphs is Graphs.PARTIAL:
        words.add("model.cuda_graph_impl", "transformer_engine")
        words.add("model.cuda_graph_modules", *(GRAPHED_EXPERTS if settings.experts else GRAPHED))


def _bare(text: str) -> str:
    return text.strip("'\"")


def is_override(word: str) -> bool:
    """Whether a word is an override that says something about a layout."""
    arguments = table(TRAINER)
    override = _OVERRIDE.fullmatch(word)
    return override is not None and (
        override.group(1) in arguments.kinds or override.group(1) in arguments.older
    )


def matches(words: Sequence[str]) -> bool:
    """Whether a command has an override that says something about a layout."""
    return any(map(is_override, words))


def read(words: Sequence[str], _: OpenFile | None = None) -> Reading:
    """What a recipe's overrides say; what the recipe itself says is not in them and stays open."""
    arguments = table(TRAINER)
    overrides: dict[str, str] = {}
    for word in words:
        if override := _OVERRIDE.fullmatch(word):
            name, value = arguments.today(override.group(1), override.group(2))
            if value not in {None, "null", "None"}:
                overrides[name] = str(value)
    options = {name: value for name, value in overrides.items() if name in arguments.kinds}

    def number(name: str) -> int | None:
        return arguments.number(name, options[name]) if name in options else None

    def choice(name: str) -> str | None:
        return arguments.choice(name, options[name]) if name in options else None

    def truth(*names: str) -> bool:
        return any(options.get(name, "").lower() == "true" for name in names)

    sizes = {
        "tp": number("model.tensor_model_parallel_size"),
        "pp": number("model.pipeline_model_parallel_size"),
        "cp": number("model.context_parallel_size"),
        "ep": number("model.expert_model_parallel_size"),
        "etp": number("model.expert_tensor_parallel_size"),
        "vpp": number("model.virtual_pipeline_model_parallel_size"),
        "mbs": number("train.micro_batch_size"),
    }
    if stages := options.get("model.pipeline_model_parallel_layout"):
        chunks = layout_stages(_bare(stages), "model.pipeline_model_parallel_layout")
        sizes["vpp"] = len(chunks) // (sizes["pp"] or 1) or 1
    layout: dict[str, Any] = {name: value for name, value in sizes.items() if value is not None}
    layout |= read_features(
        sharding=choice("ddp.data_parallel_sharding_strategy") or "optim_grads_params",
        fsdp=truth("ddp.use_megatron_fsdp", "dist.use_megatron_fsdp"),
        # Every recipe switches it on.
        distributed=options.get("ddp.use_distributed_optimizer", "true").lower() == "true",
        granularity=choice("model.recompute_granularity"),
        method=choice("model.recompute_method"),
        recompute_layers=number("model.recompute_num_layers"),
        modules=_words(options, "model.recompute_modules") or ("core_attn",),
        graphs=choice("model.cuda_graph_impl"),
        graphed=_words(options, "model.cuda_graph_modules"),
        hops=options.get("comm_overlap.overlap_p2p_comm", "true").lower() == "true",
        pp=layout.get("pp", 1),
        vpp=layout.get("vpp", 1),
    )
    layout["sequence_parallel"] = truth("model.sequence_parallel")
    layout["tensor_overlap"] = truth("comm_overlap.tp_comm_overlap")
    layout["expert_overlap"] = truth("comm_overlap.overlap_moe_expert_parallel_comm")
    offloaded_words = (
        _words(options, "model.offload_modules")
        if truth("model.fine_grained_activation_offloading")
        else ()
    )
    layout["offload"] = read_offload(offloaded_words)
    layout["optimizer"] = (
        Placement.HOST if truth("optimizer.optimizer_cpu_offload") else Placement.DEVICE
    )
    layout["data_overlap"] = "false" not in {
        options.get("ddp.overlap_grad_reduce", "").lower(),
        options.get("comm_overlap.overlap_grad_reduce", "").lower(),
    }
    if "model.cp_comm_type" in options:
        layout["context_mode"] = read_context_mode((options["model.cp_comm_type"],))
    recipes = {word: name for name, word in reversed(_PRECISIONS.items())}
    return Reading(
        trainer=TRAINER,
        layout=layout,
        copies=number("ddp.num_distributed_optimizer_instances") or 1,
        layers=number("model.num_layers"),
        sequence=number("model.seq_length") or number("dataset.seq_length"),
        global_batch=number("train.global_batch_size"),
        precision=recipes.get(options.get("mixed_precision", "").replace("-", "_")),
        interval_steps=number("checkpoint.save_interval"),
        unpriced=arguments.not_priced(overrides),
    )


def read_document(document: Mapping[str, Any], _: OpenFile | None = None) -> Reading:
    """The layout in a whole configuration file; one without tensor or pipeline sizes is refused."""
    settings = Settings(document)
    refuse_degrees(table(TRAINER), settings)
    for name in ("model.tensor_model_parallel_size", "model.pipeline_model_parallel_size"):
        if settings.value(name) is None:
            raise BadValue(
                name,
                None,
                "the file must give it: sizes that a NeMo recipe adds are not known here",
            )
    return read(
        [f"{name}={_text(value)}" for name, value in settings.leaves().items() if value is not None]
    )


def _text(value: Any) -> str:
    if isinstance(value, list):
        return f"[{','.join(map(str, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _words(options: Mapping[str, str], name: str) -> tuple[str, ...]:
    """A list in brackets."""
    return tuple(
        word for word in options.get(name, "").strip("[]").replace(" ", "").split(",") if word
    )
