"""One replay that walks any order of work: what the closed forms of the schedules are proved against.

A step starts when its device is free and its input has arrived; nothing else is assumed. Times may carry trailing axes:
then thousands of strategies that share an order are replayed together, each as it would be alone, bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mofa_model.checks import not_negative
from mofa_model.errors import BadValue
from mofa_model.schedules.order import OperationKind, Order
from mofa_model.schedules.waves import KINDS, waves_of
from mofa_model.units import Numeric, Ratio, Seconds


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


def replay(
    order: Order, times: StageTimes, *, blocking: bool = False, timeline: bool = False
) -> Replay:
    """Walk an order with given times.

    A hop delays the receiver. With `blocking` it holds the sender as well, which computes nothing until the hop is over:
    point-to-point transfers that do not overlap. Two virtual stages of one device have no hop between them.
    """
    tables, walk = _Tables.of(times, order.virtual_stages), waves_of(order)
    free = np.zeros((len(order.devices), tables.pair.size))
    busy = np.zeros_like(free)
    starts = np.empty((len(walk.device) if timeline else 0, tables.pair.size))
    left = np.full((walk.results, tables.pair.size), -np.inf)
    first, *others = range(len(walk.took))
    for wave in walk.waves:
        device, start = walk.device[wave], free[walk.device[wave]]
        took = tables.passes[walk.took[first, wave]]
        for operation in (first, *others):
            arrival = left[walk.source[operation, wave]]
            if not blocking:
                arrival += tables.between[walk.late[operation, wave]]
            np.maximum(start, arrival, out=start)
        if others:
            both = sum((tables.passes[walk.took[operation, wave]] for operation in others), took)
            took = np.where(walk.pair[wave, None], tables.pair * both, took)
        if timeline:
            starts[wave] = start
        end = start + took
        for operation in (first, *others):
            if blocking:
                end = end + tables.between[walk.sent[operation, wave]]
            left[walk.made[operation, wave]] = end
        busy[device] += took
        free[device] = end
    makespan = np.max(free, axis=0)
    every = starts.reshape(len(starts), *tables.shape)
    return Replay(
        makespan=makespan.reshape(tables.shape)[()],
        busy=busy.reshape(len(busy), *tables.shape),
        idle=(makespan - busy).reshape(len(busy), *tables.shape),
        starts=tuple(tuple(every[walk.device == one]) for one in range(len(free)))
        if timeline
        else (),
    )


@dataclass(frozen=True, slots=True)
class _Tables:
    """Times as `Waves` asks for them, strategies side by side."""

    passes: NDArray[np.float64]
    """Operations, [kinds times one more than virtual stages, strategies]. [s]"""
    between: NDArray[np.float64]
    """Hops, [boundaries and one that is none, strategies]. [s]"""
    pair: NDArray[np.float64]
    """Share of operations that overlap, [strategies]. [1]"""
    shape: tuple[int, ...]
    """Axes of the strategies as they were given."""

    @classmethod
    def of(cls, times: StageTimes, depth: int) -> _Tables:
        """The times of a pipeline of so many virtual stages."""
        not_negative(forward=times.forward, input_gradient=times.input_gradient)
        not_negative(weight_gradient=times.weight_gradient, hop=times.hop, pair=times.pair)
        pair = np.asarray(times.pair, dtype=np.float64)
        forward = _rows("forward", times.forward, depth)
        inward = _rows("input_gradient", times.input_gradient, depth)
        weight = _rows("weight_gradient", times.weight_gradient, depth)
        hop = _rows("hop", times.hop, depth - 1) if depth > 1 else np.zeros(0)
        shape = np.broadcast_shapes(
            *(part.shape[1:] for part in (forward, inward, weight, hop)), pair.shape
        )

        def flat(part: NDArray[np.float64]) -> NDArray[np.float64]:
            """Rows side by side, and behind them one of zeros."""
            aligned = part.reshape(len(part), *(1,) * (len(shape) + 1 - part.ndim), *part.shape[1:])
            whole = np.broadcast_to(aligned, (len(part), *shape))
            return np.concatenate([whole, np.zeros((1, *shape))]).reshape(len(part) + 1, -1)

        by_kind = {
            OperationKind.FORWARD: flat(forward),
            OperationKind.BACKWARD: flat(inward) + flat(weight),
            OperationKind.INPUT_GRADIENT: flat(inward),
            OperationKind.WEIGHT_GRADIENT: flat(weight),
        }
        passes = np.concatenate([by_kind[kind] for kind in KINDS])
        return cls(passes, flat(hop), np.broadcast_to(pair, shape).reshape(-1), shape)


def _rows(field: str, value: Numeric, length: int) -> NDArray[np.float64]:
    """One entry for each virtual stage or boundary, each a scalar or an array over strategies."""
    given = np.asarray(value, dtype=np.float64)
    if given.ndim == 0 or given.shape[0] == 1:
        given = np.broadcast_to(given, (length, *given.shape[1:]))
    if given.shape[0] != length:
        raise BadValue(field, given.shape, f"give one number, or a first axis of {length}")
    return given
