"""Megatron-LM: command-line flags of its pretrain scripts.

NeMo runs Megatron Core too: what sharding, recomputation, graphs and layers of stages are called
stands here for both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from mofa_model.axes.choices import EXPERT_INPUTS
from mofa_model.errors import BadValue
from mofa_model.launch.answer import Launch, LaunchSettings, OpenFile, Reading
from mofa_model.launch.table import Arguments, Words, is_flag_of, table, unsupported
from mofa_model.placement import layout_stages
from mofa_model.schedules import INTERLEAVED
from mofa_model.strategy import (
    MODULES,
    OFFLOADED,
    ContextMode,
    Graphs,
    Placement,
    Recompute,
    Sharding,
    Strategy,
)

CONTEXT_WORDS: Final = {
    ContextMode.RING: "p2p",
    ContextMode.ALL_TO_ALL: "a2a",
    ContextMode.ALL_GATHER: "allgather",
}
"""Modes of context parallelism. The hierarchy of both is left out: it needs sizes of groups."""
FSDP: Final = {Sharding.GRADIENTS: "optim_grads", Sharding.WEIGHTS: "optim_grads_params"}
"""Sharding levels that Megatron-FSDP does; the one below is the distributed optimizer's."""
DISPATCHER: Final = "alltoall"
"""What sends tokens to experts. The default gathers all tokens everywhere, without overlap."""
GRAPHED: Final = ("attn",)
"""What partial graphs capture."""
GRAPHED_EXPERTS: Final = ("attn", "moe_router", "moe_preprocess")
"""The same in models with experts: dispatch has no fixed shape."""

STATE_SPACE: Final = "state_space"
"""The block that only Megatron's hybrid models have, whose layers are told one by one."""
SYMBOLS: Final = {
    STATE_SPACE: "M",
    "gated_delta_net": "G",
    "attention": "*",
    "latent_attention": "+",
    "sparse_attention": "D",
    "dense": "-",
    "experts": "E",
}
"""Blocks in a pattern of layers. Source: Megatron Core, guide from GPTModel to HybridModel."""


def environment(strategy: Strategy, settings: LaunchSettings) -> dict[str, str]:
    """Variables that a layout needs.

    Before Blackwell tensor and context parallelism ask for one connection, so that kernels start in
    the order of their launch. Overlap of expert exchange asks for many, and FSDP refuses one. Where
    both are wanted, experts go first.

    >>> settings = LaunchSettings(sequence=8192, global_batch=16, layers=32)
    >>> sharded = Strategy(tp=8, sharding=Sharding.WEIGHTS)
    >>> environment(Strategy(tp=8), settings), environment(sharded, settings)
    ({'CUDA_DEVICE_MAX_CONNECTIONS': '1'}, {})
    """
    variables = {}
    if overlaps_experts(strategy, settings):
        variables["CUDA_DEVICE_MAX_CONNECTIONS"] = "32"
    elif (strategy.tp > 1 or strategy.cp > 1) and strategy.sharding not in FSDP:
        variables["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
    if strategy.offload:
        # Without it Transformer Engine 2.10 and later move weights as well.
        variables["NVTE_CPU_OFFLOAD_V1"] = "1"
    return variables


def overlaps_experts(strategy: Strategy, settings: LaunchSettings) -> bool:
    """Whether expert exchange is there to be overlapped, and is."""
    return bool(strategy.expert_overlap and settings.experts and strategy.ep > 1)


def instances(strategy: Strategy) -> int:
    """Copies of what the distributed optimizer shards among the data-parallel ranks. [1]

    >>> instances(Strategy(dp=32, cp=2, shard=8))
    8
    """
    ranks, shard = int(strategy.data_ranks), int(strategy.shard)
    return ranks // shard if 0 < shard < ranks else 1


def offloaded(strategy: Strategy) -> list[str]:
    """Modules whose inputs are offloaded, in the trainer's order."""
    return [
        name for name in table("megatron").choices("offload-modules") if name in strategy.offload
    ]


def read_offload(words: Sequence[str]) -> frozenset[str]:
    """Offloaded modules from a trainer's words; a fused grouped MLP has two inputs of experts."""
    named = set(words)
    if "fused_group_mlp" in named:
        named = (named - {"fused_group_mlp"}) | EXPERT_INPUTS
    return _priced("offloaded modules", named, OFFLOADED)


def chunk_layers(strategy: Strategy) -> int:
    """Layers of a virtual stage that are recomputed, rounded up. [1]"""
    return -(-int(strategy.recompute_layers) // int(strategy.vpp))


def read_features(
    *,
    sharding: str,
    fsdp: bool,
    distributed: bool,
    granularity: str | None,
    method: str | None,
    recompute_layers: int | None,
    modules: Sequence[str],
    graphs: str | None,
    graphed: Sequence[str],
    hops: bool,
    pp: int,
    vpp: int,
) -> dict[str, Any]:
    """Sharding, recomputation, graphs and schedule from Megatron's words.

    Hops overlap under virtual stages alone, whatever is said.
    """
    levels = {word: level for level, word in FSDP.items()} | {
        "optim": Sharding.OPTIMIZER,
        "no_shard": Sharding.NONE,
    }
    layout: dict[str, Any] = {
        "sharding": levels[sharding]
        if fsdp
        else Sharding.OPTIMIZER
        if distributed
        else Sharding.NONE
    }
    layout["pipeline_overlap"] = hops and (pp == 1 or vpp > 1)
    if vpp > 1:
        layout["schedule"] = INTERLEAVED
    if granularity == "full":
        layout["recompute"] = Recompute.FULL
        if method == "block" and recompute_layers:
            layout["recompute_layers"] = recompute_layers * vpp
        elif (recompute_layers or 1) > 1:
            right = (
                "groups of layers are not priced: say 1, each layer by itself, or the method block"
            )
            raise BadValue("recompute num layers", recompute_layers, right)
    elif granularity == "selective":
        recomputed = _priced("recomputed modules", {*modules}, MODULES)
        layout |= {"recompute": Recompute.SELECTIVE, "recompute_modules": recomputed}
    if graphs not in {None, "none"}:
        is_whole = graphs == "full_iteration" or "full_iteration" in graphed
        layout["graphs"] = Graphs.FULL if is_whole else Graphs.PARTIAL
        if not is_whole and {*graphed} not in ({*GRAPHED}, {*GRAPHED_EXPERTS}):
            right = (
                f"capture {' '.join(GRAPHED)}, or with experts {' '.join(GRAPHED_EXPERTS)}; "
                "other graphs are not modelled"
            )
            raise BadValue("cuda graph modules", " ".join(graphed) or "the whole layer", right)
    return layout


def read_context_mode(words: Sequence[str]) -> ContextMode:
    """The communication of context parallelism that `words` name; a ring for all unknown words."""
    mode_of_word = {word: mode for mode, word in CONTEXT_WORDS.items()} | {
        "a2a+p2p": ContextMode.HIERARCHICAL
    }
    return mode_of_word.get(" ".join(words).replace("all_gather", "allgather"), ContextMode.RING)


def _priced(what: str, words: set[str], priced: Sequence[str]) -> frozenset[str]:
    """Words that a field of the strategy has; any other would be priced as none."""
    unpriced = sorted(words - {*priced})
    if unpriced:
        raise BadValue(
            what,
            " ".join(unpriced),
            f"its cost is not modelled on its own; give some of {', '.join(priced)}",
        )
    return frozenset(words)


def split_of(strategy: Strategy, settings: LaunchSettings) -> str:
    """How layers go to virtual stages: "even", "slots" (embedding and head count), or a layout.

    A layout is Megatron's notation: E embedding, t a layer, m a prediction module, L the loss, and
    | between stages.

    >>> split_of(Strategy(pp=4), LaunchSettings(sequence=1, global_batch=1, layers=9))
    'Et*2|t*3|t*3|t*1L'
    """
    chunks = int(strategy.pp) * int(strategy.vpp)
    if strategy.pp == 1 or (not settings.stages and settings.layers % chunks == 0):
        return "even"
    if (
        not settings.stages
        and (settings.layers + 2) % chunks == 0
        and not settings.prediction_modules
    ):
        return "slots"
    counts = [len(stage) for stage in settings.stages] or counted_layers(strategy, settings.layers)
    # The first and the last stage can hold no layer at all.
    words = [f"t*{layers}" if layers else "" for layers in counts]
    return "E" + "|".join(words) + "m" * settings.prediction_modules + "L"


def counted_layers(strategy: Strategy, layers: int) -> list[int]:
    """Layers of every virtual stage. Where they do not divide, embedding and head count as one
    each. [1]

    >>> counted_layers(Strategy(pp=4), 9)
    [2, 3, 3, 1]
    """
    chunks = int(strategy.pp) * int(strategy.vpp)
    if layers % chunks == 0:
        return [layers // chunks] * chunks
    base, more = divmod(layers + 2, chunks)
    if not base:
        why = f"too many for {layers} layers; constrain pp or vpp"
        raise BadValue("strategy.pp", f"{chunks} virtual stages", why)
    counts = [base + (chunk < more) for chunk in range(chunks)]
    counts[0] -= 1
    counts[-1] -= 1
    return counts


def hybrid_pattern(settings: LaunchSettings) -> str:
    """Blocks of a model with unlike layers in Megatron's notation.

    Each block is a symbol; | stands between virtual stages, and / before prediction modules.

    >>> layers = (("state_space",), ("dense",)), (("attention",), ("dense",))
    >>> hybrid_pattern(LaunchSettings(sequence=1, global_batch=1, layers=4, stages=layers))
    'M-|*-'
    """
    stages = [
        "".join(SYMBOLS[block] for layer in stage for block in layer) for stage in settings.stages
    ]
    last = "".join(
        SYMBOLS[block] for block in next(stage for stage in reversed(settings.stages) if stage)[-1]
    )
    return "|".join(stages) + f"/{last}" * settings.prediction_modules


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


def write(strategy: Strategy, settings: LaunchSettings) -> Launch:
    """The flags that make Megatron-LM run a layout."""
    flags = Words(TRAINER, _flag)
    _sizes(flags, strategy, settings)
    _sharding(flags, strategy)
    _overlap(flags, strategy, settings)
    _activations(flags, strategy, settings)
    if settings.precision not in _PRECISIONS:
        raise unsupported(TRAINER, "precision", settings.precision)
    flags.words += _PRECISIONS[settings.precision]
    if settings.interval_steps is not None:
        flags.add("save-interval", settings.interval_steps)
        if settings.asynchronous:
            flags.add("async-save")
            flags.add("use-persistent-ckpt-worker")  # without it the save is not asynchronous
            # The default, nvrx, needs one more package: without it 0.19 stops before step one.
            flags.add("async-strategy", "mcore")
    return flags.launch(
        environment=environment(strategy, settings), notes=_notes(strategy, settings)
    )


def _notes(strategy: Strategy, settings: LaunchSettings) -> tuple[str, ...]:
    notes = []
    if strategy.offload:
        notes.append("offloading moves the inputs of these modules; the others stay on the device")
    if overlaps_experts(strategy, settings) and (strategy.tp > 1 or strategy.cp > 1):
        notes.append(
            "before Blackwell overlap of expert exchange asks for 32 connections, "
            "and tp and cp for one: measure both"
        )
    return tuple(notes)


def _flag(name: str, values: tuple[object, ...]) -> list[str]:
    return [f"--{name}", *(str(value) for value in values)]


def _sizes(flags: Words, strategy: Strategy, settings: LaunchSettings) -> None:
    flags.add("tensor-model-parallel-size", int(strategy.tp))
    flags.add("pipeline-model-parallel-size", int(strategy.pp))
    split = "pattern" if settings.stages else split_of(strategy, settings)
    if split == "pattern":
        flags.add("hybrid-layer-pattern", hybrid_pattern(settings))
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
    if settings.experts:
        flags.add("expert-model-parallel-size", int(strategy.ep))
        flags.add("expert-tensor-parallel-size", int(strategy.etp))
        flags.add("moe-token-dispatcher-type", DISPATCHER)
        flags.add("moe-grouped-gemm")
    flags.add("sequence-parallel", when=strategy.sequence_parallel)
    flags.add("micro-batch-size", int(strategy.mbs))
    flags.add("global-batch-size", settings.global_batch)
    flags.add("seq-length", settings.sequence)


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


def _overlap(flags: Words, strategy: Strategy, settings: LaunchSettings) -> None:
    if strategy.data_overlap:
        flags.add("overlap-grad-reduce")
        flags.add("overlap-param-gather", when=strategy.sharding is not Sharding.NONE)
    flags.add("tp-comm-overlap", when=strategy.tensor_overlap and strategy.tp > 1)
    flags.add("overlap-moe-expert-parallel-comm", when=overlaps_experts(strategy, settings))
    flags.add("no-overlap-p2p-communication", when=not strategy.pipeline_overlap)


def _activations(flags: Words, strategy: Strategy, settings: LaunchSettings) -> None:
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
        flags.add("cuda-graph-modules", *(GRAPHED_EXPERTS if settings.experts else GRAPHED))


def matches(words: Sequence[str]) -> bool:
    """Whether a command has one of its flags."""
    return any(is_flag_of(TRAINER, word) for word in words)


def read(words: Sequence[str], _: OpenFile | None = None) -> Reading:
    """What Megatron-LM's flags say; flags that say nothing about a layout are passed over."""
    arguments = table(TRAINER)
    options: dict[str, tuple[str, ...]] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            name, fixed = arguments.today(name.replace("_", "-"), value if equals else None)
            options[name] = () if fixed is None else (fixed,)
        elif name:
            options[name] = (*options[name], word)
    unpriced = arguments.not_priced({name: " ".join(values) for name, values in options.items()})
    reading = _reading(
        arguments, {name: values for name, values in options.items() if name in arguments.kinds}
    )
    return replace(reading, unpriced=unpriced)


def _reading(arguments: Arguments, options: Mapping[str, tuple[str, ...]]) -> Reading:
    """The layout and settings that Megatron-LM's options state."""

    def number(name: str) -> int | None:
        return (
            arguments.number(f"--{name}", next(iter(options[name]), None))
            if name in options
            else None
        )

    def choice(name: str) -> str | None:
        return arguments.choice(name, next(iter(options[name]), None)) if name in options else None

    sizes = {
        "tp": number("tensor-model-parallel-size"),
        "pp": number("pipeline-model-parallel-size"),
        "cp": number("context-parallel-size"),
        "ep": number("expert-model-parallel-size"),
        "etp": number("expert-tensor-parallel-size"),
        "vpp": number("num-virtual-stages-per-pipeline-rank"),
        "mbs": number("micro-batch-size"),
    }
    stages = options.get("pipeline-model-parallel-layout")
    if stages:
        chunks = layout_stages(stages[0], "--pipeline-model-parallel-layout")
        sizes["vpp"] = len(chunks) // (sizes["pp"] or 1) or 1
    pattern = options.get("hybrid-layer-pattern")
    if pattern and "|" in pattern[0]:
        sizes["vpp"] = (pattern[0].count("|") + 1) // (sizes["pp"] or 1) or 1
    layout: dict[str, Any] = {name: value for name, value in sizes.items() if value is not None}
    layout |= read_features(
        sharding=choice("data-parallel-sharding-strategy") or "optim_grads_params",
        fsdp="use-megatron-fsdp" in options or "use-torch-fsdp2" in options,
        distributed="use-distributed-optimizer" in options,
        granularity="selective"
        if "recompute-activations" in options
        else choice("recompute-granularity"),
        method=choice("recompute-method"),
        recompute_layers=number("recompute-num-layers"),
        modules=options.get("recompute-modules", ("core_attn",)),
        graphs=choice("cuda-graph-impl"),
        graphed=options.get("cuda-graph-modules", ()),
        hops="no-overlap-p2p-communication" not in options,
        pp=layout.get("pp", 1),
        vpp=layout.get("vpp", 1),
    )
    layout["sequence_parallel"] = "sequence-parallel" in options
    layout["data_overlap"] = "overlap-grad-reduce" in options
    layout["tensor_overlap"] = "tp-comm-overlap" in options
    layout["expert_overlap"] = "overlap-moe-expert-parallel-comm" in options
    offloaded_words = (
        options.get("offload-modules", ())
        if "fine-grained-activation-offloading" in options
        else ()
    )
    layout["offload"] = read_offload(offloaded_words)
    layout["optimizer"] = Placement.HOST if "optimizer-cpu-offload" in options else Placement.DEVICE
    if "cp-comm-type" in options:
        layout["context_mode"] = read_context_mode(options["cp-comm-type"])
    return Reading(
        trainer=TRAINER,
        layout=layout,
        chunk_layers=number("num-layers-per-virtual-pipeline-stage"),
        copies=number("num-distributed-optimizer-instances") or 1,
        outer_slots=2 if "account-for-loss-in-pipeline-split" in options else 0,
        layers=number("num-layers"),
        sequence=number("seq-length"),
        global_batch=number("global-batch-size"),
        precision=_precision(options),
        interval_steps=number("save-interval"),
    )


def _precision(options: Mapping[str, tuple[str, ...]]) -> str | None:
    if "fp4-format" in options:
        return "nvfp4"
    if "fp8-format" in options:
        recipe = next(iter(options.get("fp8-recipe", ())), "delayed")
        return _FP8_RECIPES.get(recipe)
    return "fp16" if "fp16" in options else "bf16" if "bf16" in options else None
