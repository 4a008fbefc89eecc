"""The axes of the search and the values on each: every combination is one raw strategy.

An axis value is plain data: a number, a `Choice` that bundles a category with its number (a schedule with its virtual
stages, a ZeRO level with its shard group), or a truth. The order of values is the order of simplicity: of two strategies
that take the same time, the one with the simpler values wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Final, NamedTuple

from mofa_model.schedules import SCHEDULES, Schedule
from mofa_model.spec import LatentAttention, Transformer
from mofa_model.strategy import ACTIVATIONS, ContextMode, Graphs, Placement, Recompute, Sharding

TENSOR: Final = (1, 2, 4, 8, 16, 32, 64)
CONTEXT: Final = (2, 4, 8, 16, 32, 64)
BATCH: Final = (1, 2, 4, 8, 16, 32)
EXPERT_TENSOR: Final = (1, 2, 4, 8)
CHUNKS: Final = (1, 2, 4, 8)
RECOMPUTED: Final = (1, 2, 3, 4, 6, 8, 12, 16)

IN_NODE: Final = -1
"""Stands for `as many ranks as a scale-up domain holds` on the axis of shard groups."""


class Context(NamedTuple):
    """Context parallelism: mode and size."""

    mode: ContextMode
    size: int


class Pipeline(NamedTuple):
    """Schedule and virtual stages."""

    schedule: Schedule
    virtual: int


class Shard(NamedTuple):
    """ZeRO level and the ranks that share one copy: 0 = all, IN_NODE = those of a scale-up domain."""

    level: Sharding
    group: int


class Recomputation(NamedTuple):
    """What is computed again; `layers` of a stage where whole layers are, 0 = all."""

    mode: Recompute
    modules: frozenset[str]
    layers: int


NO_MODULES: Final = frozenset({"core_attn"})
"""The default of `Strategy.recompute_modules`, kept where recomputation is not selective."""


@dataclass(frozen=True, slots=True)
class Axes:
    """Names and values, most significant first: late features before degrees, so that ties go to the plainer strategy."""

    values: Mapping[str, tuple[Any, ...]]
    """Values of each axis."""

    @property
    def raw(self) -> int:
        """Combinations of all values."""
        return prod(len(v) for v in self.values.values())

    def __getitem__(self, name: str) -> tuple[Any, ...]:
        return self.values[name]

    def strides(self) -> dict[str, int]:
        """Weight of each axis in the raw index of a combination; the last axis has 1."""
        strides, left = {}, self.raw
        for name, values in self.values.items():
            left //= len(values)
            strides[name] = left
        return strides

    def decode(self, index: int) -> dict[str, Any]:
        """The combination with a raw index."""
        chosen = {}
        for name, stride in self.strides().items():
            at, index = divmod(index, stride)
            chosen[name] = self.values[name][at]
        return chosen


OUTER: Final = ("precision", "nodes")
"""Axes that are walked one value at a time."""
SHAPE: Final = ("tp", "context", "pp", "mbs", "pipeline", "ep", "etp", "chunks")
"""Axes that fix degrees; enumerated first, in this order."""
FEATURES: Final = (
    "sp",
    "sharding",
    "recompute",
    "offload",
    "optimizer",
    "tensor_overlap",
    "data_overlap",
    "pipeline_overlap",
    "expert_overlap",
    "graphs",
)
"""Axes of features, each beside every shape."""
SIMPLICITY: Final = (
    "precision",
    "graphs",
    "offload",
    "optimizer",
    "recompute",
    "chunks",
    "expert_overlap",
    "tensor_overlap",
    "data_overlap",
    "pipeline_overlap",
    "sharding",
    "sp",
    "pipeline",
    "etp",
    "context",
    "ep",
    "mbs",
    "pp",
    "tp",
    "nodes",
)
"""Order of significance of ties: the first axis decides first."""


def default_axes(
    model: Transformer,
    nodes: Iterable[int],
    gpus_per_node: int,
    precisions: Iterable[str] = ("bf16",),
    module_sets: tuple[frozenset[str], ...] = (),
    offloads: tuple[frozenset[str], ...] = (frozenset({ACTIVATIONS}),),
    *,
    scores: bool = False,
) -> Axes:
    """Every value that the search tries by default."""
    counts = tuple(nodes)
    experts = model.experts
    deepest = int(model.layers) + 2
    stages = [p for p in range(1, deepest + 1) if any((n * gpus_per_node) % p == 0 for n in counts)]
    values: dict[str, tuple[Any, ...]] = {
        "precision": tuple(precisions),
        "nodes": counts,
        "tp": TENSOR,
        "context": (
            Context(ContextMode.RING, 1),
            *(Context(mode, size) for mode in ContextMode for size in CONTEXT),
        ),
        "pp": tuple(stages),
        "mbs": BATCH,
        "pipeline": tuple(Pipeline(s, v) for s in SCHEDULES for v in s.virtual_stages(int(model.layers))),
        "ep": (1,) if experts is None else divisors(int(experts.count)),
        "etp": (1,) if experts is None else EXPERT_TENSOR,
        "chunks": (1,) if experts is None else CHUNKS,
        "sp": (False, True),
        "sharding": (
            Shard(Sharding.NONE, 0),
            *(
                Shard(level, group)
                for level in (Sharding.OPTIMIZER, Sharding.GRADIENTS, Sharding.WEIGHTS)
                for group in (0, IN_NODE)
            ),
        ),
        "recompute": recomputations(model, module_sets, scores=scores),
        "offload": (frozenset(), *offloads),
        "optimizer": (Placement.DEVICE, Placement.HOST),
        "tensor_overlap": (False, True),
        "data_overlap": (True, False),
        "pipeline_overlap": (True, False),
        "expert_overlap": (False,) if experts is None else (False, True),
        "graphs": (Graphs.NONE,),
    }
    return Axes({name: values[name] for name in SIMPLICITY})


def recomputations(
    model: Transformer, module_sets: tuple[frozenset[str], ...] = (), *, scores: bool = False
) -> tuple[Recomputation, ...]:
    """None, sets of modules (a trainer's own, or those that make sense for the model), and whole layers.

    Where attention is not fused (`scores`), the core of attention is one more module that can be computed again; fused
    attention does that by itself.
    """
    sets = module_sets or tuple(frozenset(some) for some in _module_sets(model, scores=scores))
    return (
        Recomputation(Recompute.NONE, NO_MODULES, 0),
        *(Recomputation(Recompute.SELECTIVE, modules, 0) for modules in sets),
        *(Recomputation(Recompute.FULL, NO_MODULES, n) for n in RECOMPUTED),
        Recomputation(Recompute.FULL, NO_MODULES, 0),
    )


def _module_sets(model: Transformer, *, scores: bool) -> list[list[str]]:
    activation, whole = ("mlp_act", "mlp") if model.experts is None else ("moe_act", "moe")
    sets = [["layernorm"], [activation], ["layernorm", activation], [whole], ["layernorm", whole]]
    if isinstance(model.attention, LatentAttention):
        sets += [["mla_up_proj"], ["layernorm", "mla_up_proj", activation]]
    return [["core_attn"], *sets, ["core_attn", "layernorm", activation]] if scores else sets


def divisors(number: int) -> tuple[int, ...]:
    """All divisors, smallest first.

    >>> divisors(12)
    (1, 2, 3, 4, 6, 12)
    """
    return tuple(d for d in range(1, number + 1) if number % d == 0)


def node_counts(most: int) -> tuple[int, ...]:
    """Node counts that are tried below a maximum: powers of two, three times those, and the maximum itself.

    >>> node_counts(10)
    (1, 2, 3, 4, 6, 8, 10)
    """
    powers = [2**e for e in range(most.bit_length())]
    return tuple(sorted({n for p in powers for n in (p, 3 * p) if n <= most} | {most}))
