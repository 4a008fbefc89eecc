"""The orders of work of the pipeline schedules, as data.

    Order                       for each stage (a device), its steps, first to last
      Step                      what the device does at one time: one operation, or a pair
        Operation               kind, virtual stage, micro-batch

A virtual stage is a place along the depth of the model: 0 holds the embedding, the last one holds the head. Which device
runs it is said by the order alone, so one replay runs them all:

    gpipe, one_f_one_b, zero_bubble     device i runs virtual stage i
    interleaved                         device i runs virtual stages i, p + i, 2p + i, ...
    dualpipe                            device i runs i for the first half of the micro-batches and p - 1 - i for the
                                        second half, which enters at the other end; it holds the weights of both

`p`, `m` and `v` are the numbers of stages, micro-batches and virtual stages per device. A new schedule is one more
function here, one line in `order_of`, and its closed form in `equations.pipeline`; the tests hold the two together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from mofa_model.errors import BadValue
from mofa_model.strategy import Schedule


class Kind(Enum):
    """What an operation computes. A whole backward is an input gradient and a weight gradient in one."""

    FORWARD = "F"
    BACKWARD = "B"
    INPUT_GRADIENT = "I"
    WEIGHT_GRADIENT = "W"


class Operation(NamedTuple):
    """One kind of work on one micro-batch at one virtual stage."""

    kind: Kind
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


def gpipe(p: int, m: int) -> Order:
    """All forwards, then all backwards: the simplest order, and the one that holds the most activations."""
    _at_least_one(stages=p, microbatches=m)
    forward, backward = _kinds(m, Kind.FORWARD), _kinds(m, Kind.BACKWARD)
    return _order((_at(i, forward + backward) for i in range(p)), p, m)


def one_f_one_b(p: int, m: int) -> Order:
    """As few forwards as fill the stages below, then one forward and one backward in turn, then the backwards left."""
    return interleaved(p, m, 1)


def interleaved(p: int, m: int, v: int) -> Order:
    """Megatron's interleaved order: micro-batches go in groups of p through one chunk after the other.

    With v = 1 it is 1F1B. With v > 1 a device starts with (v - 1) p + 2 (p - i - 1) forwards, p - i - 1 more than are needed
    to fill the pipeline, which is what hides the hops later. m must be a multiple of p when v > 1, as Megatron asks.
    """
    _at_least_one(stages=p, microbatches=m, virtual_stages=v)
    if v > 1 and m % p:
        raise BadValue("microbatches", m, f"with virtual stages write a multiple of the {p} stages")
    return _order((_alternating(i, p, m, v) for i in range(p)), p * v, m)


def _alternating(i: int, p: int, m: int, v: int) -> Iterator[Step]:
    groups = [range(first, min(first + p, m)) for first in range(0, m, p)]
    forward = deque((c, j) for group in groups for c in range(v) for j in group)
    backward = deque((c, j) for group in groups for c in reversed(range(v)) for j in group)
    ahead = p - i - 1 if v == 1 else (v - 1) * p + 2 * (p - i - 1)
    for turn in range(m * v + ahead):
        if forward:
            c, j = forward.popleft()
            yield (Operation(Kind.FORWARD, c * p + i, j),)
        if turn >= ahead and backward:
            c, j = backward.popleft()
            yield (Operation(Kind.BACKWARD, c * p + i, j),)


def zero_bubble(p: int, m: int) -> Order:
    """ZB-H1 (Qi et al., 2024): 1F1B with weight gradients put off by i micro-batches on device i.

    Only input gradients wait for each other; the weight gradients fill what was the bubble. The activations that wait for
    them take the room that 1F1B leaves free on device i, so every device holds as much as the first one.
    """
    _at_least_one(stages=p, microbatches=m)
    return _order((_put_off(i, p, m) for i in range(p)), p, m)


def _put_off(i: int, p: int, m: int) -> Iterator[Step]:
    ahead = p - i - 1
    for turn in range(m + p - 1):
        if turn < m:
            yield (Operation(Kind.FORWARD, i, turn),)
        if 0 <= turn - ahead < m:
            yield (Operation(Kind.INPUT_GRADIENT, i, turn - ahead),)
        if turn - ahead - i >= 0:
            yield (Operation(Kind.WEIGHT_GRADIENT, i, turn - ahead - i),)


def dualpipe(p: int, m: int) -> Order:
    """DualPipe (DeepSeek-V3, 2024, with its published code): micro-batches from both ends, forwards paired with backwards.

    p and m are even and m >= 2 p. The first m / 2 micro-batches enter at device 0, the others at device p - 1.
    """
    _at_least_one(stages=p, microbatches=m)
    if p % 2:
        raise BadValue("stages", p, "DualPipe needs an even number of stages")
    if m % 2 or m < 2 * p:
        raise BadValue("microbatches", m, f"DualPipe needs an even number, at least {2 * p} for {p} stages")
    return _order((_from_both_ends(i, p, m) for i in range(p)), p, m)


def _from_both_ends(i: int, p: int, m: int) -> list[Step]:
    """The eight phases of the published schedule; direction 0 is the one that enters at this device's end."""
    inside = min(i, p - 1 - i)
    outside = p // 2 - 1 - inside
    here = _BothEnds(i, p, m)
    for _ in range(2 * outside):
        here.forward(0)
    for _ in range(inside + 1):
        here.forward(0)
        here.forward(1)
    for _ in range(outside):
        here.input_gradient(1)
        here.weight_gradient()
        here.forward(1)
    for turn in range(m // 2 - p + inside + 1):
        if turn == 0 and outside == 0:
            here.forward(0)
            here.backward(1)
        else:
            here.pair(0, 1)
        here.pair(1, 0)
    for _ in range(outside):
        here.backward(1)
        here.pair(1, 0)
    for turn in range(2 * (inside + 1)):
        split = turn > inside
        (here.input_gradient if split else here.backward)(1 - turn % 2)
    for _ in range(outside):
        here.weight_gradient()
        here.input_gradient(0)
    for _ in range(inside + 1):
        here.weight_gradient()
    return here.steps


class _BothEnds:
    """Writes the steps of one device of DualPipe: counts the micro-batches of each direction and the split backwards."""

    def __init__(self, i: int, p: int, m: int) -> None:
        entering, leaving = (i, range(m // 2)), (p - 1 - i, range(m // 2, m))
        directions = (entering, leaving) if i < p // 2 else (leaving, entering)
        self.steps: list[Step] = []
        self._virtual_stage = [k for k, _ in directions]
        self._forward = [iter(microbatches) for _, microbatches in directions]
        self._backward = [iter(microbatches) for _, microbatches in directions]
        self._weights_due: deque[tuple[int, int]] = deque()

    def _next_forward(self, d: int) -> Operation:
        return Operation(Kind.FORWARD, self._virtual_stage[d], next(self._forward[d]))

    def _next_backward(self, d: int, kind: Kind = Kind.BACKWARD) -> Operation:
        return Operation(kind, self._virtual_stage[d], next(self._backward[d]))

    def forward(self, d: int) -> None:
        self.steps.append((self._next_forward(d),))

    def backward(self, d: int) -> None:
        self.steps.append((self._next_backward(d),))

    def pair(self, forward: int, backward: int) -> None:
        self.steps.append((self._next_forward(forward), self._next_backward(backward)))

    def input_gradient(self, d: int) -> None:
        operation = self._next_backward(d, Kind.INPUT_GRADIENT)
        self._weights_due.append((operation.virtual_stage, operation.microbatch))
        self.steps.append((operation,))

    def weight_gradient(self) -> None:
        self.steps.append((Operation(Kind.WEIGHT_GRADIENT, *self._weights_due.popleft()),))


def order_of(schedule: Schedule, *, stages: int, microbatches: int, virtual: int = 1) -> Order:
    """The order of a schedule by its name, for `stages` devices; 1F1B is interleaved where `virtual` > 1."""
    if schedule in {Schedule.ONE_F_ONE_B, Schedule.INTERLEAVED}:
        return interleaved(stages, microbatches, virtual)
    if virtual != 1:
        raise BadValue("virtual_stages", virtual, f"schedule {schedule.value} takes 1")
    if schedule is Schedule.ZERO_BUBBLE:
        return zero_bubble(stages, microbatches)
    return dualpipe(stages, microbatches)


def _kinds(m: int, kind: Kind) -> list[tuple[Kind, int]]:
    return [(kind, j) for j in range(m)]


def _at(k: int, work: list[tuple[Kind, int]]) -> Iterator[Step]:
    return ((Operation(kind, k, j),) for kind, j in work)


def _order(devices: Iterator[Iterator[Step]] | Iterator[list[Step]], depth: int, m: int) -> Order:
    return Order(devices=tuple(tuple(steps) for steps in devices), virtual_stages=depth, microbatches=m)


def _at_least_one(**numbers: int) -> None:
    for name, number in numbers.items():
        if number < 1:
            raise BadValue(name, number, "write a whole number of at least 1")
