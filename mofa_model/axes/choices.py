"""What axes choose between, where that is no plain number."""

from __future__ import annotations

from typing import Final, NamedTuple

from mofa_model.records import Category
from mofa_model.schedules import Schedule


class Sharding(Category):
    """What data-parallel ranks share out among themselves; each level includes the one before."""

    NONE = "replicated"
    OPTIMIZER = "distributed"  # ZeRO-1
    GRADIENTS = "zero2"
    WEIGHTS = "zero3"  # FSDP


class Recompute(Category):
    """Which activations are computed again in the backward pass."""

    NONE = "none"
    SELECTIVE = "selective"  # the modules named in `recompute_modules`
    FULL = "full"  # whole layers; `recompute_layers` of each stage, 0 = all


class ContextMode(Category):
    """How context-parallel ranks see each other's keys and values."""

    RING = "ring"
    ALL_TO_ALL = "a2a"
    ALL_GATHER = "allgather"  # of keys and values, before attention begins
    HIERARCHICAL = "usp"  # all-to-all inside a scale-up domain, a ring between domains


class Placement(Category):
    """Where optimizer states live and are updated."""

    DEVICE = "device"
    HOST = "cpu"


class Graphs(Category):
    """How much of an iteration is captured in CUDA graphs."""

    NONE = "none"
    PARTIAL = "partial"
    FULL = "full"


MODULES = (
    "core_attn",
    "layernorm",
    "mlp",
    "mlp_act",
    "moe",
    "moe_act",
    "mla_up_proj",
    "per_op",
    "all_but_attention_output",
)
"""Modules that selective recomputation can name."""
NO_MODULES: Final = frozenset({"core_attn"})
"""The default of `Strategy.recompute_modules`, kept where recomputation is not selective."""

ACTIVATIONS = "activations"
"""Offloading of everything but the inputs of layers."""
LAYER_INPUT = "layer_input"
"""Offloading of the inputs of layers that are recomputed."""
OFFLOADED = (
    ACTIVATIONS,
    LAYER_INPUT,
    "attn_norm",
    "qkv_linear",
    "core_attn",
    "attn_proj",
    "mlp_norm",
    "expert_fc1",
    "moe_act",
)
"""What offloading can name: all activations, inputs of layers, or inputs of modules."""
EXPERT_INPUTS: Final = frozenset({"expert_fc1", "moe_act"})
"""Inputs inside experts that can be offloaded."""

IN_NODE: Final = -1
"""Stands for `as many ranks as a scale-up domain holds` as the group of a `Shard`."""


class Context(NamedTuple):
    """Context parallelism: mode and size."""

    mode: ContextMode
    size: int


class Pipeline(NamedTuple):
    """Schedule and virtual stages."""

    schedule: Schedule
    virtual: int


class Shard(NamedTuple):
    """ZeRO level and the ranks that share one copy: 0 = all, IN_NODE = a scale-up domain's."""

    level: Sharding
    group: int


class Recomputation(NamedTuple):
    """What is computed again; `layers` of a stage where whole layers are, 0 = all."""

    mode: Recompute
    modules: frozenset[str]
    layers: int
