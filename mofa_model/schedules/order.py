"""An order of work of the pipeline, as data.

    Order                       for each stage (a device), its steps, first to last
      Step                      what the device does at one time: one operation, or a pair
        Operation               kind, virtual stage, micro-batch

A virtual stage is a place along the depth of the model: 0 holds the embedding, the last one holds the head. Which device
runs it is said by the order alone, so one replay runs them all. `p`, `m` and `v` are the numbers of stages, micro-batches and
virtual stages per device.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from mofa_model.errors import BadValue


class OperationKind(Enum):
    """What an operation computes. A whole backward is an input gradient and a weight gradient in one."""

    FORWARD = "F"
    BACKWARD = "B"
    INPUT_GRADIENT = "I"
    WEIGHT_GRADIENT = "W"


class Operation(NamedTuple):
    """One kind of work on one micro-batch at one virtual stage."""

    kind: OperationKind
    virtual_stage: int
    microbatch: int


Step = tuple[Operation, ...]
"""What a device does at one time: one operation, or a forward and a backward that overlap."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """A pipeline schedule: who does what, in which order; times are not part of it."""

    devices: tuple[tuple[Step, ...], ...]
    """For each device its steps, first to last."""

    virtual_stages: int
    """Length of the model in virtual stages."""

    microbatches: int
    """Micro-batches that pass through all of them."""


def order(devices: Iterable[Iterable[Step]], depth: int, m: int) -> Order:
    """The steps of all devices as an order of `depth` virtual stages and `m` micro-batches."""
    return Order(
        devices=tuple(tuple(steps) for steps in devices), virtual_stages=depth, microbatches=m
    )


def at_least_one(**numbers: int) -> None:
    """Refuse an order that has none of something."""
    for name, number in numbers.items():
        if number < 1:
            raise BadValue(name, number, "write a whole number of at least 1")
