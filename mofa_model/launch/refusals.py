"""What a trainer is not told, because it would refuse it: the rows of `axes/frameworks.toml`, asked of one strategy.

The search asks the same rows of all its strategies at once, so what it finds is refused here only where someone asks for a launch
that was not searched. Files and functions in which a trainer's rules were read stand in frameworks.toml.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from mofa_model.axes.axis import Axis
from mofa_model.axes.feature_rules import FULL
from mofa_model.axes.frameworks import Framework, framework
from mofa_model.equations.memory import expert_data_ranks
from mofa_model.errors import BadValue
from mofa_model.launch.answer import LaunchSettings
from mofa_model.schedules import INTERLEAVED
from mofa_model.strategy import AXES, ContextMode, Placement, Recompute, Sharding, Strategy

_Case = tuple[Any, str, object, str]
"""Whether a rule is broken, the field, its value, and what would be right."""


def refuse(strategy: Strategy, run: LaunchSettings, trainer: str) -> None:
    """Refuse what a trainer cannot be told or does not start, by the name of a field and with what would be right."""
    known = framework(trainer)
    run.micro_batches(strategy)  # refuses a batch that does not divide
    acting = [axis for axis in AXES if not _idle(axis, strategy, run)]
    for axis in acting:
        if not axis.had_by(known, axis.value_of(strategy)):
            told = [word for word in axis.keys if word.write(strategy) != word.write(Strategy())]
            word = told[-1] if told else axis.keys[0]
            right = f"{trainer} has no argument for it; constrain {' or '.join(one.key for one in axis.keys)}"
            raise BadValue(f"strategy.{word.key}", word.write(strategy), right)
    means = {word: (axis, meant) for axis in acting for word, meant in axis.apart.items()}
    for first, second in known.apart:
        if all(
            word in means and means[word][1](means[word][0].value_of(strategy)) for word in (first, second)
        ):
            other, key = (means[word][0].keys[0].key for word in (first, second))
            right = f"{trainer} does not start it beside {first}; constrain {key} or {other}"
            raise BadValue(f"strategy.{key}", second, right)
    for hit, field, value, right in (*_sizes(strategy, run, known), *_features(strategy, run, known)):
        if hit:
            raise BadValue(f"strategy.{field}", value, f"{trainer} {right}")


def instances(strategy: Strategy) -> int:
    """Copies of what the distributed optimizer shards: groups of `shard` among the data-parallel ranks. [1]

    >>> instances(Strategy(dp=32, cp=2, shard=8))
    8
    """
    ranks, shard = int(strategy.dp) * int(strategy.cp), int(strategy.shard)
    return ranks // shard if 0 < shard < ranks else 1


def _idle(axis: Axis, s: Strategy, run: LaunchSettings) -> bool:
    """Whether an axis has nothing to act on, so that what it says is not heard."""
    if axis.idle is None:
        return False
    degrees = {name: np.array([float(getattr(s, name))]) for name in ("tp", "pp", "ep")}
    return bool(
        axis.idle(degrees | {"ranks": np.array([float(s.dp * s.cp)]), "copies": np.array([_holders(s, run)])})
    )


def _holders(s: Strategy, run: LaunchSettings) -> float:
    """Data-parallel ranks of experts; of the whole model where it has none. [1]"""
    ranks = s.dp * s.cp
    return float(expert_data_ranks(ranks, s.tp, s.ep, s.etp) if run.experts else ranks)


def _sizes(s: Strategy, run: LaunchSettings, known: Framework) -> Iterator[_Case]:
    ranks, copies, holders = int(s.dp) * int(s.cp), instances(s), int(_holders(s, run))
    yield (
        run.experts and s.tp > 1 and not s.sequence_parallel and known.keeps("experts_need_sequence"),
        "sp",
        "false",
        "trains experts beside tensor parallelism with sequence parallelism only; constrain sp=true",
    )
    halves = s.cp > 1 and (known.keeps("context_halves") or s.context_mode is not ContextMode.ALL_TO_ALL)
    yield (
        halves and run.sequence % (2 * s.cp) != 0,
        "cp",
        int(s.cp),
        f"needs a sequence of whole multiples of 2 cp, and it is {run.sequence}; constrain cp",
    )
    yield (
        copies > 1 and (ranks % int(s.shard) != 0 or holders % copies != 0),
        "shard",
        int(s.shard),
        f"keeps {copies} copies: they divide {ranks} data-parallel ranks and {holders} of experts; constrain sharding",
    )
    yield (
        s.pp > 1 and not known.shards_in_pipeline(s.sharding.value),
        "sharding",
        s.sharding.value,
        "shards so without pipeline stages only; constrain sharding or pp",
    )
    folded = run.experts and s.ep > 1 and known.keeps("folded_experts")
    yield (
        folded and s.tp > 1 and (s.cp > 1 or s.optimizer is Placement.HOST),
        "ep",
        int(s.ep),
        "exchanges experts beside tensor parallelism without cp and without states on the host; constrain ep or tp",
    )
    yield (
        folded and s.cp > 1 and s.sharding is Sharding.WEIGHTS,
        "ep",
        int(s.ep),
        "exchanges experts beside cp up to ZeRO-2; constrain ep, cp or sharding",
    )
    name, shared = run.optimizer, s.sharding in FULL or copies > 1
    yield (
        shared and name not in known.given.get("sharded_optimizers", (name,)),
        "sharding",
        s.sharding.value,
        f"shares the states of {name} among all ranks alone; constrain sharding=replicated,distributed",
    )
    yield (
        s.optimizer is Placement.HOST and name not in known.given.get("host_optimizers", (name,)),
        "optimizer",
        s.optimizer.value,
        f"keeps the states of {name} on devices alone; constrain optimizer=device",
    )
    yield (
        copies > 1 and known.keeps("shard_holds_context") and s.shard % s.cp != 0,
        "shard",
        int(s.shard),
        f"shares among whole groups of context parallelism; give a multiple of cp = {int(s.cp)}",
    )
    yield (
        s.vpp > 1 and s.pp == 2 and not s.pipeline_overlap and known.keeps("overlap_between_two"),
        "pp-overlap",
        "false",
        "overlaps hops between two stages with virtual ones; constrain pp-overlap=true, pp or vpp",
    )


def _features(s: Strategy, run: LaunchSettings, known: Framework) -> Iterator[_Case]:
    exchange = s.expert_overlap and run.experts and s.ep > 1
    yield (
        exchange and s.pp > 1 and s.schedule != INTERLEAVED and known.keeps("expert_overlap_interleaved"),
        "vpp",
        1,
        "overlaps expert exchange under a pipeline with virtual stages only; constrain vpp or ep-overlap=false",
    )
    yield (
        exchange and run.prediction_modules > known.given.get("expert_overlap_predictions", np.inf),
        "ep-overlap",
        "true",
        "overlaps expert exchange beside one prediction module at most; constrain ep-overlap=false",
    )
    again = s.recompute_modules if s.recompute is Recompute.SELECTIVE else frozenset[str]()
    never = again & set(known.given.get("recompute_never", {}).get(run.precision, ()))
    yield (
        bool(never),
        "recompute",
        "+".join(sorted(never)),
        f"does not compute them again under {run.precision}; constrain recompute or choose another precision",
    )
    whole = s.recompute is Recompute.FULL and known.keeps("recompute_by_chunk")
    yield (
        whole and s.recompute_layers % s.vpp != 0,
        "recompute",
        f"full:{int(s.recompute_layers)}",
        f"recomputes a number of layers of every virtual stage; give a multiple of vpp = {int(s.vpp)}",
    )
    yield (
        "attn_proj" in s.offload and "core_attn" not in s.offload,
        "offload",
        "+".join(sorted(s.offload)),
        "moves attn_proj beside core_attn only; constrain offload",
    )
