"""What each number that is given, and each term of an estimate, is measured in.

rescaled(cluster, time=1024.0, size=0.5)     the same cluster, described in units of 1/1024 s and of
                                             2 B
terms(estimate)                              ("step.bubble", "s", value), ("memory.weights", "B",
                                             value), …
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import get_args, get_type_hints

from mofa_model.blocks import BLOCKS, Embedding, Layer
from mofa_model.spec import (
    Adapters,
    Calibration,
    Cluster,
    ComputeConstants,
    Device,
    FrozenFormat,
    Host,
    HostConstants,
    Lengths,
    Link,
    LinkConstants,
    MemoryConstants,
    OverlapConstants,
    Precision,
    Run,
    Training,
    Transformer,
    UpdateRule,
    Workload,
)
from mofa_model.strategy import Strategy

DIMENSIONED: Mapping[type, Mapping[str, str]] = {
    Device: {
        "peak_bf16": "FLOP/s",
        "peak_fp8": "FLOP/s",
        "peak_fp4": "FLOP/s",
        "memory": "B",
        "memory_bandwidth": "B/s",
    },
    Link: {"bandwidth": "B/s", "latency": "s"},
    Host: {"memory": "B", "optimizer_rate": "1/s"},
    Precision: dict.fromkeys(
        (
            "weight",
            "gradient",
            "optimizer",
            "activation",
            "dispatch",
            "reduce",
            "gather",
            "logit",
            "gathered",
            "frozen",
        ),
        "B",
    ),
    ComputeConstants: dict.fromkeys(
        ("score_traffic", "cast_traffic", "logit_traffic", "optimizer_traffic"), "B"
    ),
    HostConstants: dict.fromkeys(
        (
            "layer",
            "layer_unsharded",
            "layer_experts",
            "head",
            "extra_node",
            "extra_rank",
            "micro_batch",
            "step",
            "adapter",
            "expert_visit",
        ),
        "s",
    ),
    FrozenFormat: {"width": "B"},
    UpdateRule: dict.fromkeys(("states", "outside", "replaced", "gather"), "B"),
    LinkConstants: dict.fromkeys(
        (
            "scale_up_hop",
            "scale_out_hop",
            "collective",
            "point_latency",
            "tensor_latency",
            "tensor_latency_replicated",
        ),
        "s",
    ),
    MemoryConstants: dict.fromkeys(
        (
            "score",
            "mask",
            "bucket",
            "partition",
            "update",
            "sharded_weight",
            "buffer",
            "workspace",
            "grouped_workspace",
            "spare_gradient",
        ),
        "B",
    ),
}
"""Fields with a unit. What is not here is a count, a ratio or a name."""

PLAIN = (
    *BLOCKS.values(),
    Adapters,
    Calibration,
    Cluster,
    OverlapConstants,
    Lengths,
    Training,
    Embedding,
    Layer,
    Run,
    Transformer,
    Workload,
)
"""Descriptions whose own numbers are counts and ratios, whatever they hold."""

POWERS = {"s": (1, 0), "B": (0, 1), "B/s": (-1, 1), "FLOP/s": (-1, 0), "1/s": (-1, 0)}
"""Exponents of time and of bytes in a unit."""


def rescaled(given, *, time=1.0, size=1.0):
    """A description in other units: `time` of ours are one second, `size` of ours are one byte."""
    if isinstance(given, tuple):
        return tuple(rescaled(member, time=time, size=size) for member in given)
    units = DIMENSIONED.get(type(given), {})
    changed = {}
    for field in fields(given):
        value = getattr(given, field.name)
        if is_dataclass(value) or (isinstance(value, tuple) and all(map(is_dataclass, value))):
            changed[field.name] = rescaled(value, time=time, size=size)
        elif field.name in units:
            of_time, of_size = POWERS[units[field.name]]
            changed[field.name] = value * time**of_time * size**of_size
    return replace(given, **changed)


def terms(record, path=""):
    """Every number of a nested result: where it is, its unit by its annotation, its value."""
    hints = get_type_hints(type(record), include_extras=True)
    for field in fields(record):
        value, name = getattr(record, field.name), path + field.name
        if isinstance(value, Workload | Cluster | Strategy):
            continue  # given and chosen, beside what follows from them
        if is_dataclass(value):
            yield from terms(value, f"{name}.")
        elif isinstance(value, tuple):
            for at, member in enumerate(value):
                yield from terms(member, f"{name}.{at}.")
        elif isinstance(value, Mapping):
            unit = getattr(get_args(hints[field.name])[1], "__metadata__", ("1",))[0]
            yield from ((f"{name}.{key}", unit, member) for key, member in value.items())
        elif value is not None:
            yield name, getattr(hints[field.name], "__metadata__", ("1",))[0], value
