"""Megatron-LM: command-line flags of its pretrain scripts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from mofa_model.launch.answer import Launch, LaunchSettings, Reading
from mofa_model.launch.features import (
    CONTEXT_WORDS,
    DISPATCHER,
    FSDP,
    GRAPHED,
    GRAPHED_EXPERTS,
    chunk_layers,
    environment,
    hybrid_pattern,
    instances,
    offloaded,
    overlaps_experts,
    read_context,
    read_features,
    read_offload,
    split_of,
)
from mofa_model.launch.table import Arguments, Words, table, unsupported
from mofa_model.placement import told_stages
from mofa_model.strategy import Graphs, Placement, Recompute, Sharding, Strategy

TRAINER: Final = "megatron"

_PRECISIONS: Final = {
    "bf16": ("--bf16",),
    "fp16": ("--fp16",),
    "fp8-delayed": ("--bf16", "--fp8-format", "hybrid", "--fp8-recipe", "delayed"),
    "fp8-current": ("--bf16", "--fp8-format", "hybrid", "--fp8-recipe", "tensorwise"),
    "fp8-tensorwise": ("--bf16", "--fp8-format", "hybrid", "--fp8-recipe", "tensorwise"),
    "fp8-block": ("--bf16", "--fp8-format", "e4m3", "--fp8-recipe", "blockwise"),
    "mxfp8": ("--bf16", "--fp8-format", "e4m3", "--fp8-recipe", "mxfp8"),
    "nvfp4": ("--bf16", "--fp4-format", "e2m1", "--fp4-recipe", "nvfp4"),
}
_FP8_RECIPES: Final = {
    "delayed": "fp8-delayed",
    "tensorwise": "fp8-current",
    "blockwise": "fp8-block",
    "mxfp8": "mxfp8",
}


def write(strategy: Strategy, run: LaunchSettings) -> Launch:
    """The flags that make Megatron-LM run a layout."""
    flags = Words(table(TRAINER), _flag)
    _sizes(flags, strategy, run)
    _sharding(flags, strategy)
    _overlap(flags, strategy, run)
    _activations(flags, strategy, run)
    if run.precision not in _PRECISIONS:
        raise unsupported(TRAINER, "precision", run.precision)
    flags.words += _PRECISIONS[run.precision]
    if run.interval_steps is not None:
        flags.add("save-interval", run.interval_steps)
        if run.asynchronous:
            flags.add("async-save")
            flags.add("use-persistent-ckpt-worker")  # without it the save is not asynchronous
    return Launch(
        trainer=TRAINER,
        release=table(TRAINER).release,
        arguments=tuple(flags.words),
        environment=environment(strategy, run),
        notes=_notes(strategy, run),
    )


def _notes(strategy: Strategy, run: LaunchSettings) -> tuple[str, ...]:
    notes = []
    if strategy.offload:
        notes.append("offloading moves the inputs of these modules; the others stay on the device")
    if overlaps_experts(strategy, run) and (strategy.tp > 1 or strategy.cp > 1):
        notes.append(
            "before Blackwell overlap of expert exchange asks for 32 connections, and tp and cp for one: measure both"
        )
    return tuple(notes)


def _flag(name: str, values: tuple[object, ...]) -> list[str]:
    return [f"--{name}", *(str(value) for value in values)]


def _sizes(flags: Words, strategy: Strategy, run: LaunchSettings) -> None:
    flags.add("tensor-model-parallel-size", int(strategy.tp))
    flags.add("pipeline-model-parallel-size", int(strategy.pp))
    split = "pattern" if run.stages else split_of(strategy, run)
    if split == "pattern":
        flags.add("hybrid-layer-pattern", hybrid_pattern(run))
    elif split not in {"even", "slots"}:  # the layout says how many virtual stages there are
        flags.add("pipeline-model-parallel-layout", split)
    elif strategy.vpp > 1:
        flags.add("num-virtual-stages-per-pipeline-rank", int(strategy.vpp))
    if split == "slots":
        flags.add("account-for-embedding-in-pipeline-split")
        flags.add("account-for-loss-in-pipeline-split")
    flags.add("context-parallel-size", int(strategy.cp))
    if strategy.cp > 1:
        flags.add("cp-comm-type", CONTEXT_WORDS[strategy.context_mode])
    if run.experts:
        flags.add("expert-model-parallel-size", int(strategy.ep))
        flags.add("expert-tensor-parallel-size", int(strategy.etp))
        flags.add("moe-token-dispatcher-type", DISPATCHER)
        flags.add("moe-grouped-gemm")
    if strategy.sequence_parallel:
        flags.add("sequence-parallel")
    flags.add("micro-batch-size", int(strategy.mbs))
    flags.add("global-batch-size", run.global_batch)
    flags.add("seq-length", run.sequence)


def _sharding(flags: Words, strategy: Strategy) -> None:
    if strategy.sharding is Sharding.NONE and strategy.optimizer is Placement.DEVICE:
        return
    flags.add("use-distributed-optimizer")  # a lone rank with its states on the host needs it too
    if strategy.sharding in FSDP:
        flags.add("use-megatron-fsdp")
        flags.add("data-parallel-sharding-strategy", FSDP[strategy.sharding])
        flags.add("ckpt-format", "fsdp_dtensor")
    if instances(strategy) > 1:
        flags.add("num-distributed-optimizer-instances", instances(strategy))


def _overlap(flags: Words, strategy: Strategy, run: LaunchSettings) -> None:
    if strategy.data_overlap:
        flags.add("overlap-grad-reduce")
        if strategy.sharding is not Sharding.NONE:
            flags.add("overlap-param-gather")
    if strategy.tensor_overlap and strategy.tp > 1:
        flags.add("tp-comm-overlap")
    if overlaps_experts(strategy, run):
        flags.add("overlap-moe-expert-parallel-comm")
    if not strategy.pipeline_overlap:
        flags.add("no-overlap-p2p-communication")


def _activations(flags: Words, strategy: Strategy, run: LaunchSettings) -> None:
    if strategy.recompute is Recompute.SELECTIVE:
        flags.add("recompute-granularity", "selective")
        flags.add("recompute-modules", *sorted(strategy.recompute_modules))
    elif strategy.recompute is Recompute.FULL:
        flags.add("recompute-granularity", "full")
        flags.add("recompute-method", "block" if strategy.recompute_layers else "uniform")
        flags.add("recompute-num-layers", chunk_layers(strategy) or 1)
    if strategy.offload:
        flags.add("fine-grained-activation-offloading")
        flags.add("offload-modules", *offloaded(strategy))
    if strategy.optimizer is Placement.HOST:
        flags.add("optimizer-cpu-offload")
        flags.add("overlap-cpu-optimizer-d2h-h2d")
        flags.add("use-precision-aware-optimizer")
    if strategy.graphs is Graphs.FULL:
        flags.add("cuda-graph-impl", "full_iteration")
        flags.add("no-check-for-nan-in-loss-and-grad")  # it would leave the graph
    elif strategy.graphs is Graphs.PARTIAL:
        flags.add("cuda-graph-impl", "transformer_engine")
        flags.add("cuda-graph-modules", *(GRAPHED_EXPERTS if run.experts else GRAPHED))


def read(words: Sequence[str]) -> Reading:
    """What Megatron-LM's flags say; flags that say nothing about a layout are passed over."""
    known = table(TRAINER)
    given: dict[str, tuple[str, ...]] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            name, fixed = known.today(name.replace("_", "-"), value if equals else None)
            given[name] = () if fixed is None else (fixed,)
        elif name:
            given[name] = (*given[name], word)
    unpriced = known.not_priced({name: " ".join(values) for name, values in given.items()})
    found = _reading(known, {name: values for name, values in given.items() if name in known.kinds})
    return replace(found, unpriced=unpriced)


def _reading(known: Arguments, given: Mapping[str, tuple[str, ...]]) -> Reading:
    def number(name: str) -> int | None:
        return known.number(f"--{name}", next(iter(given[name]), None)) if name in given else None

    def choice(name: str) -> str | None:
        return known.choice(name, next(iter(given[name]), None)) if name in given else None

    sizes = {
        "tp": number("tensor-model-parallel-size"),
        "pp": number("pipeline-model-parallel-size"),
        "cp": number("context-parallel-size"),
        "ep": number("expert-model-parallel-size"),
        "etp": number("expert-tensor-parallel-size"),
        "vpp": number("num-virtual-stages-per-pipeline-rank"),
        "mbs": number("micro-batch-size"),
    }
    stages = given.get("pipeline-model-parallel-layout")
    if stages:
        told = told_stages(stages[0], "--pipeline-model-parallel-layout")
        sizes["vpp"] = len(told) // (sizes["pp"] or 1) or 1
    pattern = given.get("hybrid-layer-pattern")
    if pattern and "|" in pattern[0]:
        sizes["vpp"] = (pattern[0].count("|") + 1) // (sizes["pp"] or 1) or 1
    layout: dict[str, Any] = {name: value for name, value in sizes.items() if value is not None}
    layout |= read_features(
        sharding=choice("data-parallel-sharding-strategy") or "optim_grads_params",
        fsdp="use-megatron-fsdp" in given or "use-torch-fsdp2" in given,
        distributed="use-distributed-optimizer" in given,
        granularity="selective"
        if "recompute-activations" in given
        else choice("recompute-granularity"),
        method=choice("recompute-method"),
        recompute_layers=number("recompute-num-layers"),
        modules=given.get("recompute-modules", ("core_attn",)),
        graphs=choice("cuda-graph-impl"),
        graphed=given.get("cuda-graph-modules", ()),
        hops="no-overlap-p2p-communication" not in given,
        pp=layout.get("pp", 1),
        vpp=layout.get("vpp", 1),
    )
    layout["sequence_parallel"] = "sequence-parallel" in given
    layout["data_overlap"] = "overlap-grad-reduce" in given
    layout["tensor_overlap"] = "tp-comm-overlap" in given
    layout["expert_overlap"] = "overlap-moe-expert-parallel-comm" in given
    moved = (
        given.get("offload-modules", ()) if "fine-grained-activation-offloading" in given else ()
    )
    layout["offload"] = read_offload(moved)
    layout["optimizer"] = Placement.HOST if "optimizer-cpu-offload" in given else Placement.DEVICE
    if "cp-comm-type" in given:
        layout["context_mode"] = read_context(given["cp-comm-type"])
    return Reading(
        trainer=TRAINER,
        layout=layout,
        chunk_layers=number("num-layers-per-virtual-pipeline-stage"),
        copies=number("num-distributed-optimizer-instances") or 1,
        outer_slots=2 if "account-for-loss-in-pipeline-split" in given else 0,
        layers=number("num-layers"),
        sequence=number("seq-length"),
        global_batch=number("global-batch-size"),
        precision=_precision(given),
        interval_steps=number("save-interval"),
    )


def _precision(given: Mapping[str, tuple[str, ...]]) -> str | None:
    if "fp4-format" in given:
        return "nvfp4"
    if "fp8-format" in given:
        recipe = next(iter(given.get("fp8-recipe", ())), "delayed")
        return _FP8_RECIPES.get(recipe)
    return "fp16" if "fp16" in given else "bf16" if "bf16" in given else None
