"""What Megatron's words mean, whichever trainer says them: Megatron-LM as flags, NeMo as overrides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from mofa_model.axes.choices import EXPERT_INPUTS
from mofa_model.errors import BadValue
from mofa_model.launch.answer import LaunchSettings
from mofa_model.launch.table import table
from mofa_model.schedules import INTERLEAVED
from mofa_model.strategy import (
    MODULES,
    OFFLOADED,
    ContextMode,
    Graphs,
    Recompute,
    Sharding,
    Strategy,
)

CONTEXT_WORDS: Final = {
    ContextMode.RING: "p2p",
    ContextMode.ALL_TO_ALL: "a2a",
    ContextMode.ALL_GATHER: "allgather",
}
"""Modes of context parallelism; a hierarchy of both needs the sizes of its groups, which follow from the machines."""
FSDP: Final = {Sharding.GRADIENTS: "optim_grads", Sharding.WEIGHTS: "optim_grads_params"}
"""Sharding levels that Megatron-FSDP does; the one below is the distributed optimizer's."""
DISPATCHER: Final = "alltoall"
"""What sends tokens to their experts: the default gathers all tokens everywhere, and overlaps nothing."""
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


def environment(strategy: Strategy, run: LaunchSettings) -> dict[str, str]:
    """Variables that a layout needs.

    Before Blackwell tensor and context parallelism ask for one connection, so that kernels start in the order in which they
    were launched; overlap of expert exchange asks for many, and FSDP refuses one. Where both are wanted, experts go first.

    >>> run = LaunchSettings(sequence=8192, global_batch=16, layers=32)
    >>> environment(Strategy(tp=8), run), environment(Strategy(tp=8, sharding=Sharding.WEIGHTS), run)
    ({'CUDA_DEVICE_MAX_CONNECTIONS': '1'}, {})
    """
    found = {}
    if overlaps_experts(strategy, run):
        found["CUDA_DEVICE_MAX_CONNECTIONS"] = "32"
    elif (strategy.tp > 1 or strategy.cp > 1) and strategy.sharding not in FSDP:
        found["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
    if strategy.offload:
        found["NVTE_CPU_OFFLOAD_V1"] = (
            "1"  # Transformer Engine 2.10 and later move weights as well without it
        )
    return found


def overlaps_experts(strategy: Strategy, run: LaunchSettings) -> bool:
    """Whether expert exchange is there to be overlapped, and is."""
    return bool(strategy.expert_overlap and run.experts and strategy.ep > 1)


def instances(strategy: Strategy) -> int:
    """Copies of what the distributed optimizer shards: groups of `shard` among the data-parallel ranks. [1]

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
    """The same from a trainer's words; a fused grouped MLP keeps what experts otherwise keep apart."""
    named = set(words)
    if "fused_group_mlp" in named:
        named = (named - {"fused_group_mlp"}) | EXPERT_INPUTS
    return _priced("offloaded modules", named, OFFLOADED)


def chunk_layers(strategy: Strategy) -> int:
    """Layers of a virtual stage that are recomputed, rounded up: Megatron counts by virtual stage. [1]"""
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
    """Sharding, recomputation, graphs and schedule from Megatron's words, whichever trainer says them.

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
        again = _priced("recomputed modules", {*modules}, MODULES)
        layout |= {"recompute": Recompute.SELECTIVE, "recompute_modules": again}
    if graphs not in {None, "none"}:
        whole = graphs == "full_iteration" or "full_iteration" in graphed
        layout["graphs"] = Graphs.FULL if whole else Graphs.PARTIAL
        if not whole and frozenset(graphed) not in {frozenset(GRAPHED), frozenset(GRAPHED_EXPERTS)}:
            right = f"priced are graphs of {' '.join(GRAPHED)}, and with experts of {' '.join(GRAPHED_EXPERTS)}"
            raise BadValue("cuda graph modules", " ".join(graphed) or "the whole layer", right)
    return layout


def read_context(words: Sequence[str]) -> ContextMode:
    """How context parallelism communicates; one word for all layers, and a ring where layers differ."""
    said = {word: mode for mode, word in CONTEXT_WORDS.items()} | {
        "a2a+p2p": ContextMode.HIERARCHICAL
    }
    return said.get(" ".join(words).replace("all_gather", "allgather"), ContextMode.RING)


def _priced(what: str, words: set[str], known: Sequence[str]) -> frozenset[str]:
    """Words that a field of the strategy has; another one is refused, because it would be priced as none."""
    odd = sorted(words - {*known})
    if odd:
        raise BadValue(what, " ".join(odd), f"not priced by itself; of {', '.join(known)}")
    return frozenset(words)


def split_of(strategy: Strategy, run: LaunchSettings) -> str:
    """How the layers get onto the virtual stages: "even", "slots" (embedding and head count as one each), or a layout.

    A layout is Megatron's own notation: E embedding, t a layer, m a prediction module, L the loss, | between stages.

    >>> split_of(Strategy(pp=4), LaunchSettings(sequence=1, global_batch=1, layers=9))
    'Et*2|t*3|t*3|t*1L'
    """
    chunks = int(strategy.pp) * int(strategy.vpp)
    if strategy.pp == 1 or (not run.stages and run.layers % chunks == 0):
        return "even"
    if not run.stages and (run.layers + 2) % chunks == 0 and not run.prediction_modules:
        return "slots"
    dealt = [len(stage) for stage in run.stages] or counted_layers(strategy, run.layers)
    words = [
        f"t*{layers}" if layers else "" for layers in dealt
    ]  # the ends can hold no layer at all
    return "E" + "|".join(words) + "m" * run.prediction_modules + "L"


def counted_layers(strategy: Strategy, layers: int) -> list[int]:
    """Layers of every virtual stage, where they are counted: embedding and head count as one each where the layers do not
    divide. [1]

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
    dealt = [base + (i < more) for i in range(chunks)]
    dealt[0] -= 1
    dealt[-1] -= 1
    return dealt


def hybrid_pattern(run: LaunchSettings) -> str:
    """Blocks of a model with unlike layers in Megatron's notation: a symbol each, | between virtual stages, / before
    prediction modules.

    >>> layers = (("state_space",), ("dense",)), (("attention",), ("dense",))
    >>> hybrid_pattern(LaunchSettings(sequence=1, global_batch=1, layers=4, stages=layers))
    'M-|*-'
    """
    stages = ["".join(SYMBOLS[block] for layer in stage for block in layer) for stage in run.stages]
    last = "".join(
        SYMBOLS[block] for block in next(stage for stage in reversed(run.stages) if stage)[-1]
    )
    return "|".join(stages) + f"/{last}" * run.prediction_modules
