"""One replay that walks any order of work: what the closed forms of the schedules are proved against.

A step starts when its device is free and its input has arrived; nothing else is assumed. Times may carry trailing axes:
then thousands of strategies that share an order are replayed together, each as it would be alone, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from mofa_model.checks import not_negative
from mofa_model.errors import BadValue
from mofa_model.schedules.order import Operation, OperationKind, Order, Step
from mofa_model.units import Numeric, Ratio, Seconds

_INWARD: Final = (OperationKind.BACKWARD, OperationKind.INPUT_GRADIENT)
"""What the stage below waits for in the backward pass."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StageTimes:
    """Times of one micro-batch at each virtual stage; the first axis counts virtual stages, any others strategies."""

    forward: Seconds
    """Forward pass. [s]"""
    input_gradient: Seconds
    """Backward pass to the input. [s]"""
    weight_gradient: Seconds
    """Backward pass to the weights; a whole backward is the sum of both. [s]"""
    hop: Seconds = 0.0
    """From a virtual stage to the next one, either way; one number, or a first axis of boundaries (of length 1: all alike). [s]"""
    pair: Ratio = 1.0
    """A forward and a whole backward that overlap take this share of their sum. [1]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Replay:
    """What a replay found; the first axis counts devices, except for the makespan."""

    makespan: Seconds
    """From the first start to the last end. [s]"""
    busy: Seconds
    """Time each device computes. [s]"""
    idle: Seconds
    """Time each device waits, or sends while it cannot compute. [s]"""
    starts: tuple[tuple[Numeric, ...], ...]
    """Start of each step in the order's own shape, for timelines; empty unless asked for. [s]"""


def replay(order: Order, times: StageTimes, *, blocking: bool = False, timeline: bool = False) -> Replay:
    """Walk an order with given times.

    A hop delays the receiver. With `blocking` it holds the sender as well, which computes nothing until the hop is over:
    point-to-point transfers that do not overlap. Two virtual stages of one device have no hop between them.
    """
    clock = _Clock(order, times, blocking=blocking)
    devices = range(len(order.devices))
    free: list[Any] = [np.float64(0.0) for _ in devices]
    busy: list[Any] = [np.float64(0.0) for _ in devices]
    starts: list[list[Any]] = [[] for _ in devices]
    for device, step in _runnable(order):
        start = free[device]
        for operation in step:
            arrival = clock.arrival(operation, device)
            if arrival is not None:
                start = np.maximum(start, arrival)
        took = clock.took(step)
        busy[device] = busy[device] + took
        free[device] = clock.send(step, device, start + took)
        if timeline:
            starts[device].append(start)
    makespan = np.max(np.stack(np.broadcast_arrays(*free)), axis=0)
    worked = np.stack([np.broadcast_to(one, np.shape(makespan)) for one in busy])
    shown = tuple(tuple(row) for row in starts) if timeline else ()
    return Replay(makespan=makespan, busy=worked, idle=makespan - worked, starts=shown)


class _Clock:
    """Times of the operations, and when their results were ready to leave."""

    def __init__(self, order: Order, times: StageTimes, *, blocking: bool) -> None:
        depth, self._blocking = order.virtual_stages, blocking
        not_negative(forward=times.forward, input_gradient=times.input_gradient)
        not_negative(weight_gradient=times.weight_gradient, hop=times.hop, pair=times.pair)
        forward = _rows("forward", times.forward, depth)
        inward = _rows("input_gradient", times.input_gradient, depth)
        weight = _rows("weight_gradient", times.weight_gradient, depth)
        backward = [b + w for b, w in zip(inward, weight, strict=True)]
        self._took = {
            OperationKind.FORWARD: forward,
            OperationKind.BACKWARD: backward,
            OperationKind.INPUT_GRADIENT: inward,
            OperationKind.WEIGHT_GRADIENT: weight,
        }
        self._hop = _rows("hop", times.hop, depth - 1) if depth > 1 else []
        self._pair = np.asarray(times.pair, dtype=np.float64)
        self._home = _homes(order)
        self._left: dict[tuple[bool, int, int], Any] = {}

    def took(self, step: Step) -> Any:
        """Time of a step, sending not included. [s]"""
        first, *others = (self._took[operation.kind][operation.virtual_stage] for operation in step)
        return self._pair * sum(others, first) if others else first

    def arrival(self, operation: Operation, device: int) -> Any:
        """When the input from another device is here; None where the device made it itself."""
        kind, k, j = operation
        source = _source(operation, len(self._took[kind]))
        if kind is OperationKind.WEIGHT_GRADIENT or source is None or self._home[source[1], j] == device:
            return None
        left = self._left[source[0] is OperationKind.FORWARD, source[1], j]
        return left if self._blocking else left + self._hop[min(k, source[1])]

    def send(self, step: Step, device: int, end: Any) -> Any:
        """Note what leaves at the end of a step; gives when the device is free again."""
        free = end
        for kind, k, j in step:
            if kind is OperationKind.WEIGHT_GRADIENT:
                continue
            forward = kind is OperationKind.FORWARD
            to = k + 1 if forward else k - 1
            if self._blocking and 0 <= to < len(self._took[kind]) and self._home[to, j] != device:
                free = free + self._hop[min(k, to)]
            self._left[forward, k, j] = free
        return free


def _source(operation: Operation, depth: int) -> tuple[OperationKind, int] | None:
    """The operation of the same micro-batch that makes this one's input: its kind (FORWARD or BACKWARD) and place."""
    kind, k, _ = operation
    if kind is OperationKind.FORWARD:
        return (OperationKind.FORWARD, k - 1) if k > 0 else None
    if kind is OperationKind.WEIGHT_GRADIENT:
        return (OperationKind.BACKWARD, k)
    return (OperationKind.BACKWARD, k + 1) if k < depth - 1 else (OperationKind.FORWARD, k)


def _runnable(order: Order) -> Iterator[tuple[int, Step]]:
    """The steps of all devices, each after what it waits for; an order that cannot go on is refused."""
    done: set[tuple[bool, int, int]] = set()
    at = [0] * len(order.devices)
    left = sum(map(len, order.devices))
    while left:
        before = left
        for device, steps in enumerate(order.devices):
            while at[device] < len(steps) and _ready(steps[at[device]], done, order.virtual_stages):
                step = steps[at[device]]
                yield device, step
                done.update(
                    (o.kind is OperationKind.FORWARD, o.virtual_stage, o.microbatch)
                    for o in step
                    if o.kind is not OperationKind.WEIGHT_GRADIENT
                )
                at[device] += 1
                left -= 1
        if left == before:
            stuck = next(i for i, steps in enumerate(order.devices) if at[i] < len(steps))
            kind, k, j = order.devices[stuck][at[stuck]][0]
            what = f"{kind.value} of micro-batch {j} at virtual stage {k} on device {stuck}"
            raise BadValue("order", what, "its input never comes: the order deadlocks")


def _ready(step: Step, done: set[tuple[bool, int, int]], depth: int) -> bool:
    for operation in step:
        _, k, j = operation
        source = _source(operation, depth)
        if source is not None and (source[0] is OperationKind.FORWARD, source[1], j) not in done:
            return False
        if operation.kind in _INWARD and (True, k, j) not in done:
            return False
    return True


def _homes(order: Order) -> dict[tuple[int, int], int]:
    """Which device runs a micro-batch at a virtual stage."""
    return {
        (operation.virtual_stage, operation.microbatch): device
        for device, steps in enumerate(order.devices)
        for step in steps
        for operation in step
    }


def _rows(field: str, value: Numeric, length: int) -> list[Any]:
    """One entry for each virtual stage or boundary, each a scalar or an array over strategies."""
    given = np.asarray(value, dtype=np.float64)
    if given.ndim == 0 or given.shape[0] == 1:
        given = np.broadcast_to(given, (length, *given.shape[1:]))
    if given.shape[0] != length:
        raise BadValue(field, given.shape, f"give one number, or a first axis of {length}")
    return list(given)
