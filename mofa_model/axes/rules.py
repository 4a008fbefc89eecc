"""The rules that make a shape legal: each names its reason, and is a mask over rows of degrees.

They run as soon as the axis that lists them is known, in the order of the list; the first that holds is the reason.
Rules of features (`feature_rules`) run afterwards, one axis of features after the other, each beside every shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.axes.choices import Context, ContextMode, Pipeline
from mofa_model.axes.frameworks import Framework, side_by_side
from mofa_model.axes.verdict import Rejection
from mofa_model.schedules import ONE_F_ONE_B, SCHEDULES
from mofa_model.schedules.interleaved import USUAL
from mofa_model.spec import Cluster, Workload
from mofa_model.units import Numeric, Ratio

Rows = dict[str, NDArray[Any]]
"""Columns of degrees, one entry a row; `pipeline` holds positions on its axis, `schedule` those in `SCHEDULES`, `mode` those in `ContextMode`."""
Mask = NDArray[np.bool_]

SHORTEST: Final = 1024
"""Tokens of a sequence that a context-parallel rank gets at least: below it attention kernels starve. Ours."""

_MODES: Final = tuple(ContextMode)
_SPLIT_HEADS: Final = _MODES.index(ContextMode.ALL_TO_ALL)
"""The mode that needs heads to divide; USP takes as many for its all-to-all as do."""

LOOPED: Final = 2
"""Virtual stages that a trainer which rounds the layers of a stage deals by itself, however many layers there are. [1]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Given:
    """What the rules look at beside the rows."""

    workload: Workload
    """Model and training."""
    cluster: Cluster
    """Devices; its number of them is not looked at."""
    framework: Framework
    """Trainer."""
    lifted: frozenset[Rejection] = frozenset()
    """Expert rules that are not applied."""
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Least and most of derived numbers: `dp`, `micro_batches`."""
    share: Ratio = 1.0
    """Of a device's memory what an estimate may take, so that what it is wrong by has room. [1]"""


Rule = Callable[[Rows, Given], Any]
"""Rows of degrees that are not legal."""
Found = list[tuple[Rejection, Mask]]
"""Reasons against a value on an axis of features, with the rows they hold for."""


def _widths(r: Rows, g: Given) -> Any:
    return _undivided((n for block in g.workload.model.blocks for n in block.split()), r["tp"])


def _undivided(numbers: Iterable[Numeric | None], ranks: Any) -> Any:
    """Rows whose ranks leave something of one of the numbers."""
    bad = np.zeros(len(ranks), dtype=bool)
    for number in numbers:
        if number is not None:
            bad |= np.mod(number, ranks) != 0
    return bad


def _gpus(*names: str) -> Rule:
    def bad(r: Rows, _: Given) -> Any:
        used = np.prod([r[name] for name in names], axis=0)
        return np.mod(r["gpus"], used) != 0

    return bad


def _sequence(r: Rows, g: Given) -> Any:
    halved = (r["mode"] != _SPLIT_HEADS) | g.framework.keeps(
        "context_halves"
    )  # two blocks a rank balance causal attention
    blocks = np.where(halved & (r["cp"] > 1), 2.0 * r["cp"], r["cp"])
    return np.mod(g.workload.training.sequence, blocks) != 0


def _context_heads(r: Rows, g: Given) -> Any:
    groups = (block.turned_heads() for block in g.workload.model.blocks)
    return (r["mode"] == _SPLIT_HEADS) & _undivided(groups, r["tp"] * r["cp"])


def in_mode(r: Rows, mode: str) -> Mask:
    """Rows whose context is parallel in a mode."""
    found: Mask = (r["cp"] > 1) & (r["mode"] == _MODES.index(ContextMode(mode)))
    return found


def _context_beside(r: Rows, g: Given) -> Any:
    bad = np.zeros(len(r["cp"]), dtype=bool)
    beside = g.framework.given.get("block_context", {})
    for block in g.workload.model.blocks:
        for mode in ContextMode:
            if mode.value not in beside.get(block.called, (mode.value,)):
                bad |= in_mode(r, mode.value)
    return bad


def _sequence_short(r: Rows, g: Given) -> Any:
    return (r["cp"] > 1) & (g.workload.training.sequence / r["cp"] < SHORTEST)


def _too_deep(r: Rows, g: Given) -> Any:
    spare = 0 if _even(g) else 2
    return r["pp"] > g.workload.model.layers + spare


def _even(g: Given) -> bool:
    """True where embedding and head never take the place of a layer."""
    return g.cluster.calibration.placement != "slots" or g.framework.uneven == "none"


def _batch(r: Rows, g: Given) -> Any:
    return np.mod(g.workload.training.global_batch, r["dp"] * r["mbs"]) != 0


def _virtual_deep(r: Rows, g: Given) -> Any:
    return (r["vpp"] > 1) & (r["pp"] * r["vpp"] > g.workload.model.layers + (0 if _even(g) else 2))


def _layers(r: Rows, g: Given) -> Any:
    chunks, layers, uneven = r["pp"] * r["vpp"], g.workload.model.layers, g.framework.uneven
    if uneven == "rounded":
        size = -(-(layers + 2) // chunks)
        return (
            (r["vpp"] > LOOPED)
            & (np.mod(layers, chunks) != 0)
            & (-(-(layers + 2) // size) != chunks)
        )
    bad = np.mod(layers, chunks) != 0
    if uneven != "none":
        bad &= np.mod(layers + 2, chunks) != 0
    # Layers that do not divide are dealt by hand, and then to few virtual stages.
    return bad & (r["vpp"] > 1) & ~np.isin(r["vpp"], USUAL) if uneven == "any" else bad


def _whole(r: Rows, g: Given) -> Any:
    """Stages of a model whose layers have to be told one by one, of a trainer that is not told them."""
    model, given = g.workload.model, g.framework.given
    beside = side_by_side(model) and given.get("side_by_side") == "whole"
    return (r["pp"] > 1) & (beside or (model.unlike and given.get("unlike_stages") == "whole"))


def _virtual_space(r: Rows, g: Given) -> Any:
    mixed = any(block.called == "state_space" for block in g.workload.model.blocks)
    return (r["vpp"] > 1) & (mixed and g.framework.keeps("state_space_plain"))


def _one_stage(r: Rows, _: Given) -> Any:
    return (r["pp"] == 1) & (r["pipeline"] != r["plain"])


def _schedule(r: Rows, _: Given) -> Any:
    possible = np.zeros(len(r["pp"]), dtype=bool)
    for at, schedule in enumerate(SCHEDULES):
        mine = r["schedule"] == at
        if mine.any():
            possible |= mine & schedule.possible(microbatches=r["micro_batches"], stages=r["pp"])
    return ~possible


def _expert_width(r: Rows, g: Given) -> Any:
    return _undivided(
        (n for block in g.workload.model.blocks for n in block.split_inside()), r["etp"]
    )


def _expert_groups(r: Rows, _: Given) -> Any:
    return np.mod(r["tp"] * r["cp"] * r["dp"], r["ep"] * r["etp"]) != 0


def _folded(r: Rows, g: Given) -> Any:
    return (r["ep"] > 1) & (r["tp"] > 1) & (r["cp"] > 1) & g.framework.keeps("folded_experts")


def _bounded(name: str) -> Rule:
    def bad(r: Rows, g: Given) -> Any:
        low, high = g.bounds.get(name, (0.0, np.inf))
        return (r[name] < low) | (r[name] > high)

    return bad


TENSOR: Final = (
    (Rejection.TENSOR_PARALLEL_CROSSES_NODE, lambda r, g: r["tp"] > g.cluster.domain),
    (Rejection.NOT_DIVISIBLE, _gpus("tp")),
    (Rejection.NOT_DIVISIBLE, _widths),
)
CONTEXT: Final = (
    (Rejection.NOT_DIVISIBLE, _gpus("tp", "cp")),
    (Rejection.NOT_DIVISIBLE, _sequence),
    (Rejection.NOT_DIVISIBLE, _context_heads),
    (Rejection.NOT_IN_FRAMEWORK, _context_beside),
    (Rejection.SEQUENCE_TOO_SHORT, _sequence_short),
)
STAGES: Final = (
    (Rejection.MORE_STAGES_THAN_LAYERS, _too_deep),
    (Rejection.NOT_IN_FRAMEWORK, _whole),
    (Rejection.NOT_DIVISIBLE, _gpus("tp", "cp", "pp")),
    (Rejection.CONSTRAINT, _bounded("dp")),
)
BATCH: Final = (
    (Rejection.NOT_DIVISIBLE, _batch),
    (Rejection.TOO_FEW_MICRO_BATCHES, lambda r, _: r["micro_batches"] < r["pp"]),
    (Rejection.CONSTRAINT, _bounded("micro_batches")),
)
PIPELINE: Final = (
    (Rejection.DUPLICATE, _one_stage),
    (Rejection.NOT_IN_FRAMEWORK, _virtual_space),
    (Rejection.MORE_STAGES_THAN_LAYERS, _virtual_deep),
    (Rejection.NOT_DIVISIBLE, _layers),
    (Rejection.SCHEDULE_NOT_POSSIBLE, _schedule),
)
CHUNKS: Final = ((Rejection.DUPLICATE, lambda r, _: (r["chunk_layers"] > 0) & (r["chunks"] == 1)),)
EXPERTS: Final = (
    (Rejection.EXPERT_TENSOR_PARALLEL, lambda r, _: (r["etp"] != 1) & (r["etp"] != r["tp"])),
    (Rejection.NOT_DIVISIBLE, _expert_width),
    (Rejection.NOT_DIVISIBLE, _expert_groups),
    (Rejection.NOT_IN_FRAMEWORK, _folded),
)


def context_columns(values: tuple[Context, ...], position: NDArray[Any]) -> Rows:
    """Columns of a position on the context axis."""
    sizes = np.array([float(v.size) for v in values])
    modes = np.array([float(_MODES.index(v.mode)) for v in values])
    return {"cp": sizes[position], "mode": modes[position]}


def pipeline_columns(values: tuple[Pipeline, ...], position: NDArray[Any]) -> Rows:
    """Columns of a position on the schedule axis."""
    schedules = np.array([SCHEDULES.index(v.schedule) for v in values])[position]
    virtual = np.array([float(v.virtual) for v in values])[position]
    plain = next(
        (i for i, v in enumerate(values) if v.schedule == ONE_F_ONE_B), -1
    )  # none: one stage is no pipeline
    return {
        "pipeline": position,
        "schedule": schedules,
        "vpp": virtual,
        "plain": np.full(len(position), plain),
    }
