"""What makes a strategy legal: rules of shapes, and rules of the features beside a shape.

A rule of shapes is a mask over rows of degrees, named by its reason. It runs as soon as the axis
that lists it is known, in the order of the list; the first that holds is the reason. Rules of a
feature run afterwards, for one value beside every shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.axes.choices import (
    IN_NODE,
    Context,
    ContextMode,
    Graphs,
    Pipeline,
    Placement,
    Recomputation,
    Recompute,
    Shard,
    Sharding,
)
from mofa_model.axes.frameworks import Framework, framework, side_by_side
from mofa_model.axes.rejection import Rejection
from mofa_model.equations import host, parameters
from mofa_model.records import dataclass
from mofa_model.schedules import INTERLEAVED, ONE_F_ONE_B, SCHEDULES
from mofa_model.schedules.one_f_one_b import USUAL
from mofa_model.spec import Calibration, Cluster, OverlapConstants, Workload
from mofa_model.units import Numeric, Ratio

Rows = dict[str, NDArray[Any]]
"""Columns of degrees, one entry a row. `pipeline` holds positions on its axis, `schedule` in
`SCHEDULES`, `mode` in `ContextMode`."""
Mask = NDArray[np.bool_]

SHORTEST: Final = 1024
"""Fewest tokens of a sequence on a context-parallel rank: with fewer, attention kernels starve.
Ours."""
LOOPED: Final = 2
"""Virtual stages that a trainer which rounds the layers of a stage deals by itself, however many
layers there are. [1]"""
GRADIENTS_SHARED: Final = frozenset({Sharding.GRADIENTS, Sharding.WEIGHTS})
"""ZeRO levels that share gradients as well."""
LAUNCH_BOUND: Final = 0.5
"""Launches over the least time of a layer's products from which graphs are tried: below it they
gain less than a percent. [1]"""

_MODES: Final = tuple(ContextMode)
_SPLIT_HEADS: Final = _MODES.index(ContextMode.ALL_TO_ALL)
"""The mode that needs heads to divide; USP takes as many for its all-to-all as do."""


@dataclass(frozen=True, kw_only=True)
class AxisContext:
    """What the values and rules of axes depend on, beside the strategy."""

    workload: Workload
    cluster: Cluster
    """Devices; rules do not read their number."""
    framework: Framework = field(default_factory=framework)
    nodes: tuple[int, ...] = (1,)
    """Numbers of nodes that may be used."""
    precisions: tuple[str, ...] = ("bf16",)
    """Recipes that may be used."""
    lifted: frozenset[Rejection] = frozenset()
    """Expert rules that are not applied."""
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Least and most of derived numbers: `dp`, `micro_batches`."""
    memory_share: Ratio = 1.0
    """Share of a device's memory that an estimate may take, so that its error has room. [1]"""


Rule = Callable[[Rows, AxisContext], Any]
"""Mask of the rows of degrees that are not legal."""
Violations = list[tuple[Rejection, Mask]]
"""Reasons against one value of a feature, each with the rows for which it holds."""


def _undivided(numbers: Iterable[Numeric | None], ranks: Any) -> Any:
    """Rows whose ranks do not divide one of the numbers."""
    bad = np.zeros(len(ranks), dtype=bool)
    for number in numbers:
        if number is not None:
            bad |= np.mod(number, ranks) != 0
    return bad


def _undivided_widths(rows: Rows, context: AxisContext) -> Any:
    blocks = context.workload.model.blocks
    return _undivided((width for block in blocks for width in block.split()), rows["tp"])


def _undivided_gpus(*names: str) -> Rule:
    def undivided(rows: Rows, _: AxisContext) -> Any:
        used = np.prod([rows[name] for name in names], axis=0)
        return np.mod(rows["gpus"], used) != 0

    return undivided


def _undivided_sequence(rows: Rows, context: AxisContext) -> Any:
    # Two blocks of the sequence a rank balance causal attention.
    halved = (rows["mode"] != _SPLIT_HEADS) | context.framework.keeps("context_halves")
    blocks = np.where(halved & (rows["cp"] > 1), 2.0 * rows["cp"], rows["cp"])
    return np.mod(context.workload.training.sequence, blocks) != 0


def _undivided_heads(rows: Rows, context: AxisContext) -> Any:
    heads = (block.all_to_all_heads() for block in context.workload.model.blocks)
    return (rows["mode"] == _SPLIT_HEADS) & _undivided(heads, rows["tp"] * rows["cp"])


def _in_mode(rows: Rows, mode: str) -> Mask:
    """Rows with context parallelism in a given mode of communication."""
    mask: Mask = (rows["cp"] > 1) & (rows["mode"] == _MODES.index(ContextMode(mode)))
    return mask


def _context_of_blocks(rows: Rows, context: AxisContext) -> Any:
    bad = np.zeros(len(rows["cp"]), dtype=bool)
    beside = context.framework.entry.get("block_context", {})
    for block in context.workload.model.blocks:
        for mode in ContextMode:
            if mode.value not in beside.get(block.variant, (mode.value,)):
                bad |= _in_mode(rows, mode.value)
    return bad


def _short_sequence(rows: Rows, context: AxisContext) -> Any:
    return (rows["cp"] > 1) & (context.workload.training.sequence / rows["cp"] < SHORTEST)


def _layers_and_ends(context: AxisContext) -> Numeric:
    """Most stages that can hold something: embedding and head may take the place of a layer."""
    slots = context.cluster.calibration.placement == "slots"
    spare = 2 if slots and context.framework.uneven != "none" else 0
    return context.workload.model.layers + spare


def _too_many_virtual_stages(rows: Rows, context: AxisContext) -> Any:
    return (rows["vpp"] > 1) & (rows["pp"] * rows["vpp"] > _layers_and_ends(context))


def _undivided_layers(rows: Rows, context: AxisContext) -> Any:
    chunks, uneven = rows["pp"] * rows["vpp"], context.framework.uneven
    layers = context.workload.model.layers
    bad = np.mod(layers, chunks) != 0
    if uneven == "rounded":
        size = -(-(layers + 2) // chunks)
        return (rows["vpp"] > LOOPED) & bad & (-(-(layers + 2) // size) != chunks)
    if uneven != "none":
        bad &= np.mod(layers + 2, chunks) != 0
    # Layers that do not divide are dealt by hand, and then to few virtual stages.
    return bad & (rows["vpp"] > 1) & ~np.isin(rows["vpp"], USUAL) if uneven == "any" else bad


def _layers_dealt_singly(rows: Rows, context: AxisContext) -> Any:
    """Pipelines of a model whose layers must be dealt one by one, in a trainer that cannot."""
    model, entry = context.workload.model, context.framework.entry
    beside = side_by_side(model) and entry.get("side_by_side") == "whole"
    return (rows["pp"] > 1) & (beside or (model.unlike and entry.get("unlike_stages") == "whole"))


def _virtual_state_space(rows: Rows, context: AxisContext) -> Any:
    mixed = any(block.variant == "state_space" for block in context.workload.model.blocks)
    return (rows["vpp"] > 1) & (mixed and context.framework.keeps("state_space_plain"))


def _impossible_schedule(rows: Rows, _: AxisContext) -> Any:
    possible = np.zeros(len(rows["pp"]), dtype=bool)
    for position, schedule in enumerate(SCHEDULES):
        chosen = rows["schedule"] == position
        if chosen.any():
            possible |= chosen & schedule.possible(
                microbatches=rows["micro_batches"], stages=rows["pp"]
            )
    return ~possible


def _undivided_experts(rows: Rows, context: AxisContext) -> Any:
    blocks = context.workload.model.blocks
    return _undivided((width for block in blocks for width in block.split_inside()), rows["etp"])


def _folded_experts(rows: Rows, context: AxisContext) -> Any:
    all_three = (rows["ep"] > 1) & (rows["tp"] > 1) & (rows["cp"] > 1)
    return all_three & context.framework.keeps("folded_experts")


def _outside_bounds(name: str) -> Rule:
    def outside(rows: Rows, context: AxisContext) -> Any:
        low, high = context.bounds.get(name, (0.0, np.inf))
        return (rows[name] < low) | (rows[name] > high)

    return outside


TENSOR: Final = (
    (
        Rejection.TENSOR_PARALLEL_CROSSES_NODE,
        lambda rows, context: rows["tp"] > context.cluster.domain,
    ),
    (Rejection.NOT_DIVISIBLE, _undivided_gpus("tp")),
    (Rejection.NOT_DIVISIBLE, _undivided_widths),
)
CONTEXT: Final = (
    (Rejection.NOT_DIVISIBLE, _undivided_gpus("tp", "cp")),
    (Rejection.NOT_DIVISIBLE, _undivided_sequence),
    (Rejection.NOT_DIVISIBLE, _undivided_heads),
    (Rejection.NOT_IN_FRAMEWORK, _context_of_blocks),
    (Rejection.SEQUENCE_TOO_SHORT, _short_sequence),
)
STAGES: Final = (
    (
        Rejection.MORE_STAGES_THAN_LAYERS,
        lambda rows, context: rows["pp"] > _layers_and_ends(context),
    ),
    (Rejection.NOT_IN_FRAMEWORK, _layers_dealt_singly),
    (Rejection.NOT_DIVISIBLE, _undivided_gpus("tp", "cp", "pp")),
    (Rejection.CONSTRAINT, _outside_bounds("dp")),
)
BATCH: Final = (
    (
        Rejection.NOT_DIVISIBLE,
        lambda rows, context: (
            np.mod(context.workload.training.global_batch, rows["dp"] * rows["mbs"]) != 0
        ),
    ),
    (Rejection.TOO_FEW_MICRO_BATCHES, lambda rows, _: rows["micro_batches"] < rows["pp"]),
    (Rejection.CONSTRAINT, _outside_bounds("micro_batches")),
)
PIPELINE: Final = (
    (Rejection.DUPLICATE, lambda rows, _: (rows["pp"] == 1) & (rows["pipeline"] != rows["plain"])),
    (Rejection.NOT_IN_FRAMEWORK, _virtual_state_space),
    (Rejection.MORE_STAGES_THAN_LAYERS, _too_many_virtual_stages),
    (Rejection.NOT_DIVISIBLE, _undivided_layers),
    (Rejection.SCHEDULE_NOT_POSSIBLE, _impossible_schedule),
)
CHUNKS: Final = (
    (Rejection.DUPLICATE, lambda rows, _: (rows["chunk_layers"] > 0) & (rows["chunks"] == 1)),
)
EXPERTS: Final = (
    (
        Rejection.EXPERT_TENSOR_PARALLEL,
        lambda rows, _: (rows["etp"] != 1) & (rows["etp"] != rows["tp"]),
    ),
    (Rejection.NOT_DIVISIBLE, _undivided_experts),
    (
        Rejection.NOT_DIVISIBLE,
        lambda rows, _: np.mod(rows["tp"] * rows["cp"] * rows["dp"], rows["ep"] * rows["etp"]) != 0,
    ),
    (Rejection.NOT_IN_FRAMEWORK, _folded_experts),
)


def context_columns(values: tuple[Context, ...], position: NDArray[Any]) -> Rows:
    """Columns of positions on the axis of context parallelism."""
    sizes = np.array([float(value.size) for value in values])
    modes = np.array([float(_MODES.index(value.mode)) for value in values])
    return {"cp": sizes[position], "mode": modes[position]}


def pipeline_columns(values: tuple[Pipeline, ...], position: NDArray[Any]) -> Rows:
    """Columns of positions on the axis of pipelines; `plain` is the position of 1F1B, or -1."""
    schedules = np.array([SCHEDULES.index(value.schedule) for value in values])[position]
    virtual = np.array([float(value.virtual) for value in values])[position]
    plain = next((n for n, value in enumerate(values) if value.schedule == ONE_F_ONE_B), -1)
    return {
        "pipeline": position,
        "schedule": schedules,
        "vpp": virtual,
        "plain": np.full(len(position), plain),
    }


def _all(rows: Rows) -> Mask:
    return np.ones(len(rows["tp"]), dtype=bool)


def sequence_parallel_rules(value: bool, rows: Rows, context: AxisContext) -> Violations:
    """Sequence parallelism divides the tokens of a rank by tp; experts beside tp need it."""
    if value:
        tokens = context.workload.training.sequence / rows["cp"]
        return [(Rejection.NOT_DIVISIBLE, np.mod(tokens, rows["tp"]) != 0)]
    experts = context.workload.model.experts is not None
    return [(Rejection.SEQUENCE_PARALLEL_NEEDED, (rows["tp"] > 1) & experts)]


def sharding_rules(value: Shard, rows: Rows, context: AxisContext) -> Violations:
    """A ZeRO level and its group: the trainer must have both, and a group changes something."""
    trainer, violations = context.framework, Violations()
    if not trainer.shards_in_pipeline(value.level.value):
        violations.append((Rejection.NOT_IN_FRAMEWORK, rows["pp"] > 1))
    if value.level in GRADIENTS_SHARED or value.group:
        violations += _other_update_rule("sharded_optimizers", rows, context)
    if unit := _unit_of_base(context):
        parts = (
            width * product.k / unit
            for block in context.workload.model.blocks
            for product in block.products(context.workload.model.hidden)
            for _, width in product.linears
        )
        violations.append((Rejection.NOT_DIVISIBLE, _undivided(parts, rows["data_ranks"])))
    if value.level is Sharding.WEIGHTS and trainer.keeps("folded_experts"):
        violations.append((Rejection.NOT_IN_FRAMEWORK, (rows["ep"] > 1) & (rows["cp"] > 1)))
    for mode, levels in trainer.entry.get("context_sharding", {}).items():
        if value.level.value not in levels:
            violations.append((Rejection.NOT_IN_FRAMEWORK, _in_mode(rows, mode)))
    if value.group:
        violations += _shard_group_rules(
            shard_group(value.group, rows["tp"], context.cluster), rows, context
        )
    return violations


def _unit_of_base(context: AxisContext) -> int:
    """Frozen weights of which a device has a whole number; 0 = it has any. [1]"""
    adapters = context.workload.training.adapters
    base = None if adapters is None else adapters.base
    units = context.framework.entry.get("base_unit", {})
    return 0 if base is None else int(units.get(base.name, 0))


def _shard_group_rules(group: NDArray[Any], rows: Rows, context: AxisContext) -> Violations:
    """Reasons against sharding over `group` ranks instead of all."""
    trainer, ranks, expert_ranks = context.framework, rows["data_ranks"], rows["expert_data_ranks"]
    violations = [
        (Rejection.NOT_IN_FRAMEWORK, _other_context("group_context", rows, context)),
        (Rejection.DUPLICATE, (group <= 1) | (group >= np.maximum(ranks, expert_ranks))),
        (Rejection.NOT_DIVISIBLE, np.mod(ranks, group) != 0),
    ]
    if least := trainer.entry.get("shard_contexts"):
        few = (group < least * rows["cp"]) & (rows["cp"] > 1)
        violations.append((Rejection.NOT_IN_FRAMEWORK, (np.mod(group, rows["cp"]) != 0) | few))
    if trainer.keeps("one_shard_group"):
        violations.append((Rejection.NOT_IN_FRAMEWORK, expert_ranks != ranks))
    if trainer.keeps("expert_groups"):
        groups = ranks / group
        violations.append((Rejection.DUPLICATE, groups <= 1))
        violations.append((Rejection.NOT_IN_FRAMEWORK, np.mod(expert_ranks, groups) != 0))
    return violations


def shard_group(group: int, tp: Numeric, cluster: Cluster) -> NDArray[Any]:
    """Data-parallel ranks that share one copy; 0 = all. [1]"""
    if group == IN_NODE:
        return np.floor(cluster.domain / np.asarray(tp))
    return np.full(np.shape(tp), float(group))


def placement_rules(value: Placement, rows: Rows, context: AxisContext) -> Violations:
    """Reasons against optimizer states on the host: the trainer, or the layout, cannot keep
    them there.
    """
    if value is not Placement.HOST:
        return []
    folded = (rows["ep"] > 1) & (rows["tp"] > 1) & context.framework.keeps("folded_experts")
    elsewhere = folded | _other_context("host_context", rows, context)
    return [
        (Rejection.NOT_IN_FRAMEWORK, elsewhere),
        *_other_update_rule("host_optimizers", rows, context),
    ]


def _other_context(key: str, rows: Rows, context: AxisContext) -> Mask:
    """Rows in a mode of context parallelism that the trainer's list under `key` lacks."""
    modes = context.framework.entry.get(key)
    bad = np.zeros(len(rows["tp"]), dtype=bool)
    for mode in ContextMode:
        if modes is not None and mode.value not in modes:
            bad |= _in_mode(rows, mode.value)
    return bad


def _other_update_rule(key: str, rows: Rows, context: AxisContext) -> Violations:
    """All rows, where the trainer's list under `key` lacks the workload's optimizer."""
    name = context.workload.training.optimizer.name
    has_it = name in context.framework.entry.get(key, (name,))
    return [] if has_it else [(Rejection.NOT_IN_FRAMEWORK, _all(rows))]


def recompute_rules(value: Recomputation, rows: Rows, context: AxisContext) -> Violations:
    """Some layers of a stage must be fewer than all; and what the trainer cannot say."""
    if value.mode is Recompute.FULL and value.layers:
        violations: Violations = [(Rejection.DUPLICATE, value.layers >= rows["deepest_stage"])]
        if context.framework.keeps("recompute_by_chunk"):
            violations.append((Rejection.NOT_IN_FRAMEWORK, np.mod(value.layers, rows["vpp"]) != 0))
        return violations
    precision = context.workload.training.precision.name
    never = context.framework.entry.get("recompute_never", {}).get(precision, ())
    if value.mode is Recompute.SELECTIVE and value.modules & set(never):
        return [(Rejection.NOT_IN_FRAMEWORK, _all(rows))]
    return []


def offload_rules(value: frozenset[str], rows: Rows, _: AxisContext) -> Violations:
    """Reasons against offloaded activations: above all, nobody measured what they cost."""
    return [(Rejection.OFFLOAD_UNPROVEN, _all(rows))] if value else []


def graphs_rules(value: Graphs, rows: Rows, context: AxisContext) -> Violations:
    """CUDA graphs: not where shapes change between steps or the device is busy without them."""
    if value is Graphs.NONE:
        return []
    model, training = context.workload.model, context.workload.training
    violations = Violations()
    if training.documents is not None:
        violations.append((Rejection.NOT_IN_FRAMEWORK, _all(rows)))
    # Which tokens go to which expert is known at the last moment only.
    if value is Graphs.FULL and model.experts is not None:
        violations.append((Rejection.GRAPHS_UNNEEDED, _all(rows)))
    launches = sum(
        run.repeats * host.launch_time(context.cluster, rows["tp"], routed=layer.routed)
        for run in model.runs
        for layer in run.layers
    )
    flops = parameters.training_flops_per_token(model, training.sequence, convention="causal")
    tokens = rows["mbs"] * training.sequence / (rows["cp"] * rows["tp"])
    products = tokens * flops / context.cluster.device.peak_rate(training.precision.gemm)
    return [*violations, (Rejection.GRAPHS_UNNEEDED, launches < LAUNCH_BOUND * products)]


def expert_overlap_rules(value: bool, rows: Rows, context: AxisContext) -> Violations:
    """Overlap of the experts' exchange: some trainers need other chunks to run meanwhile."""
    if not value:
        return []
    trainer = context.framework
    bad = np.zeros(len(rows["pp"]), dtype=bool)
    if trainer.keeps("expert_overlap_interleaved"):
        bad |= (rows["pp"] > 1) & ~_interleaved(rows)
    most = trainer.entry.get("expert_overlap_predictions", np.inf)
    if context.workload.model.prediction_modules > most:
        bad |= True
    return [(Rejection.NOT_IN_FRAMEWORK, bad)]


def _interleaved(rows: Rows) -> Mask:
    mask: Mask = rows["schedule"] == SCHEDULES.index(INTERLEAVED)
    return mask


def pipeline_overlap_rules(value: bool, rows: Rows, context: AxisContext) -> Violations:
    """Overlap of pipeline hops: what the trainer cannot switch on, or off."""
    trainer = context.framework
    if not value:
        two = _interleaved(rows) & (rows["pp"] == 2) & trainer.keeps("overlap_between_two")
        return [(Rejection.NOT_IN_FRAMEWORK, two)]
    blocked = [n for n, kind in enumerate(SCHEDULES) if not trainer.overlaps_hops(kind.value)]
    return [(Rejection.NOT_IN_FRAMEWORK, np.isin(rows["schedule"], blocked) & (rows["pp"] > 1))]


def ones(*columns: str) -> Callable[[Rows], Mask]:
    """A test for rows on which all of the named degrees are 1."""
    return lambda rows: np.logical_and.reduce([rows[name] == 1 for name in columns])


def alone(rows: Rows) -> Mask:
    """Rows with one data-parallel rank, of experts too: nothing is shared."""
    mask: Mask = np.maximum(rows["data_ranks"], rows["expert_data_ranks"]) == 1
    return mask


def tensor_overlap_wins(c: Calibration) -> bool:
    """Whether overlap of tensor parallelism is never slower than none.

    Overlap leaves at most the whole communication exposed, and slows compute by less than it hides.
    Memory is the same.
    """
    k = c.overlap
    return _slows_little(k) and bool(np.all(np.asarray(k.tensor_overlapped) <= k.tensor))


def expert_overlap_wins(c: Calibration) -> bool:
    """Whether overlap of the experts' exchange is never slower: it must cost no launches either."""
    free = bool(np.all(np.asarray(c.host.expert_overlap) <= 0.0))
    whole = bool(np.all(np.asarray(c.overlap.expert_overlapped) <= 1.0))
    return free and _slows_little(c.overlap) and whole


def data_overlap_wins(c: Calibration) -> bool:
    """Whether overlap of gradients and parameters is never slower: it slows no compute."""
    k = c.overlap
    return bool(np.all((np.asarray(k.data_tail) <= 1.0) & (np.asarray(k.gather_tail) <= 1.0)))


def _slows_little(k: OverlapConstants) -> bool:
    return bool(np.all(np.asarray(k.slow_down) <= 2.0))
