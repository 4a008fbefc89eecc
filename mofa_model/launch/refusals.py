"""What megatron-core refuses to start, and what its words cannot say: layouts that are no launch of Megatron or NeMo.

Read in megatron-core 0.19.2: `validate_args` of megatron/training/arguments.py, `TransformerConfig.__post_init__` of
megatron/core/transformer/transformer_config.py, `initialize_model_parallel` of megatron/core/parallel_state.py and
`FullyShardedDataParallel` of megatron/core/distributed/fsdp/mcore_fsdp_adapter.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mofa_model.axes.choices import EXPERT_INPUTS
from mofa_model.errors import BadValue
from mofa_model.launch.answer import LaunchSettings
from mofa_model.launch.features import CONTEXT_WORDS
from mofa_model.launch.table import table, unsupported
from mofa_model.schedules import INTERLEAVED, ONE_F_ONE_B
from mofa_model.strategy import Graphs, Recompute, Sharding, Strategy

FULLY_SHARDED = frozenset({Sharding.GRADIENTS, Sharding.WEIGHTS})
"""ZeRO levels that Megatron-FSDP does; the one below is the distributed optimizer's."""


def refuse(strategy: Strategy, run: LaunchSettings, trainer: str) -> None:
    """Refuse what no Megatron trainer can be told, by the name of a field and with what would be right."""
    run.micro_batches(strategy)  # refuses a batch that does not divide
    _unknown(strategy, trainer)
    for hit, field, value, right in (
        *_parallelism(strategy, run),
        *_expert_overlap(strategy, run),
        *_activations(strategy, run),
        *_graphs(strategy),
    ):
        if hit:
            raise BadValue(f"strategy.{field}", value, f"{trainer} {right}")


def instances(strategy: Strategy) -> int:
    """Copies of what the distributed optimizer shards: groups of `shard` among the data-parallel ranks. [1]

    >>> instances(Strategy(dp=32, cp=2, shard=8))
    8
    """
    ranks, shard = int(strategy.dp) * int(strategy.cp), int(strategy.shard)
    return ranks // shard if 0 < shard < ranks else 1


_Case = tuple[Any, str, object, str]
"""Whether a rule is broken, the field, its value, and what would be right."""


def _unknown(s: Strategy, trainer: str) -> None:
    """What there is no word for."""
    if s.schedule not in {ONE_F_ONE_B, INTERLEAVED}:
        raise unsupported(trainer, "schedule", s.schedule.value)
    if s.cp > 1 and s.context_mode not in CONTEXT_WORDS:  # the sizes of its groups follow from the machines
        raise unsupported(trainer, "cp-mode", s.context_mode.value)
    modules = s.recompute_modules if s.recompute is Recompute.SELECTIVE else frozenset[str]()
    unknown = modules - set(table("megatron").choices("recompute-modules"))
    if unknown:
        raise unsupported(trainer, "recompute", "+".join(sorted(unknown)))
    unknown = s.offload - set(table("megatron").choices("offload-modules"))
    if unknown:
        raise unsupported(trainer, "offload", "+".join(sorted(unknown)))


def _parallelism(s: Strategy, run: LaunchSettings) -> Iterator[_Case]:
    ranks, copies = int(s.dp) * int(s.cp), instances(s)
    holders = max(1, ranks * int(s.tp) // (int(s.ep) * int(s.etp))) if run.experts else ranks
    yield (
        s.tensor_overlap and s.tp > 1 and not s.sequence_parallel,
        "tp-overlap",
        "true",
        "overlaps tensor parallelism under sequence parallelism only; constrain sp=true or tp-overlap=false",
    )
    yield (
        run.experts and s.tp > 1 and not s.sequence_parallel,
        "sp",
        "false",
        "trains experts beside tensor parallelism with sequence parallelism only; constrain sp=true",
    )
    yield (
        s.cp > 1 and run.sequence % (2 * s.cp) != 0,
        "cp",
        int(s.cp),
        f"needs a sequence of whole multiples of 2 cp, and it is {run.sequence}; constrain cp",
    )
    yield (
        ranks % copies != 0 or holders % copies != 0 or (copies > 1 and ranks % int(s.shard) != 0),
        "shard",
        int(s.shard),
        f"keeps {copies} copies: they divide {ranks} data-parallel ranks and {holders} of experts; constrain sharding",
    )
    yield (
        s.vpp > 1 and s.pp == 2 and not s.pipeline_overlap,
        "pp-overlap",
        "false",
        "overlaps hops between two stages with virtual ones; constrain pp-overlap=true, pp or vpp",
    )


def _expert_overlap(s: Strategy, run: LaunchSettings) -> Iterator[_Case]:
    on = s.expert_overlap and run.experts and s.ep > 1
    again = s.recompute_modules if s.recompute is Recompute.SELECTIVE else frozenset[str]()
    right = "does not beside overlap of expert exchange; constrain ep-overlap=false or "
    yield (
        on and s.recompute is Recompute.FULL,
        "recompute",
        "full",
        f"recomputes whole layers {right}recompute",
    )
    yield on and "moe" in again, "recompute", "moe", f"recomputes all of the experts {right}recompute"
    yield (
        on and s.pp > 1 and s.vpp == 1,
        "vpp",
        1,
        "overlaps expert exchange under a pipeline with virtual stages only; constrain vpp or ep-overlap=false",
    )
    yield (
        on and run.prediction_modules > 1,
        "ep-overlap",
        "true",
        "overlaps expert exchange beside one prediction module at most; constrain ep-overlap=false",
    )


def _activations(s: Strategy, run: LaunchSettings) -> Iterator[_Case]:
    again = s.recompute_modules if s.recompute is Recompute.SELECTIVE else frozenset[str]()
    unscaled = again & {"layernorm", "moe_act"}
    yield (
        run.precision == "fp8-delayed" and bool(unscaled),
        "recompute",
        "+".join(sorted(unscaled)),
        "does not compute them again under delayed scaling; constrain recompute or choose another precision",
    )
    yield (
        s.recompute is Recompute.FULL and s.recompute_layers % s.vpp != 0,
        "recompute",
        f"full:{int(s.recompute_layers)}",
        f"recomputes a number of layers of every virtual stage; give a multiple of vpp = {int(s.vpp)}",
    )
    moved = "+".join(sorted(s.offload))
    yield (
        bool(s.offload) and s.recompute is Recompute.FULL,
        "offload",
        moved,
        "keeps inputs of whole layers on the device; constrain offload=none or recompute",
    )
    yield (
        bool(s.offload & EXPERT_INPUTS) and "moe" in again,
        "offload",
        moved,
        "moves no inputs inside experts that are computed again; constrain offload or recompute",
    )
    yield (
        "attn_proj" in s.offload and "core_attn" not in s.offload,
        "offload",
        moved,
        "moves attn_proj beside core_attn only; constrain offload",
    )


def _graphs(s: Strategy) -> Iterator[_Case]:
    partial, again = s.graphs is Graphs.PARTIAL, s.recompute is not Recompute.NONE
    whole = s.recompute is Recompute.FULL or (again and "moe" in s.recompute_modules)
    yield (
        partial and whole,
        "graphs",
        "partial",
        "captures nothing that is recomputed whole; constrain graphs",
    )
    yield (
        partial and s.sharding in FULLY_SHARDED,
        "graphs",
        "partial",
        "captures no part of fully sharded layers; constrain graphs or sharding",
    )
    yield (
        s.graphs is not Graphs.NONE and bool(s.offload),
        "graphs",
        s.graphs.value,
        "offloads under graphs by other arguments; constrain graphs=none or offload=none",
    )
