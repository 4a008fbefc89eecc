"""What a pipeline schedule is: its order of work as data, its closed forms, and what it can run.

    Order                       for each stage (a device), its steps, first to last
      Step                      what the device does at one time: one operation, or a pair
        Operation               kind, virtual stage, micro-batch

A virtual stage is a place along the depth of the model: 0 holds the embedding, the last one holds
the head. The order alone says which device runs it, so one replay runs all orders. `p`, `m` and `v`
are the numbers of stages, micro-batches and virtual stages per device.

A device needs C = F + I + W for one micro-batch: forward, input gradient, weight gradient, over all
its chunks. The closed forms take sums only, the slowest device (max C_i) and the sum over devices,
so a search never builds an array of stages.

    equal stages     every form equals the replay of its order, within the range of hops that its
                     docstring names
    unequal stages   with one ratio F : I : W everywhere, 1F1B is never below the replay, and equal
                     to it (hops apart) when the last stage is a slowest one; other schedules are
                     estimates, and the replay settles them. At p = 8, m = 32 and stages within 20 %
                     of each other the forms are high by 1.4 % (1F1B), 2.6 % (v = 2), 0.5 % (ZB-H1)
                     and 2 % (DualPipe) on average, by 7 % at most

The hop is the time from one stage to the next. It delays the receiver only (`blocking=False`,
overlapped), or holds the sender as well (`blocking=True`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import reduce
from itertools import chain
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mofa_model.equations.compute import THIRD
from mofa_model.errors import BadValue
from mofa_model.records import Category, dataclass
from mofa_model.units import Count, Numeric, Ratio, Seconds


class OperationKind(Category):
    """What an operation computes; BACKWARD is an input gradient and a weight gradient in one."""

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


Order = tuple[tuple[Step, ...], ...]
"""For each device its steps, first to last; times are not part of it."""


KINDS: Final = tuple(OperationKind)
POSITION: Final = {kind: number for number, kind in enumerate(KINDS)}
"""The number of each kind in arrays."""
Numbers = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Operations:
    """An order in arrays, device after device: [operations of a step, steps]."""

    steps: Sequence[int]
    """Steps of each device."""
    kind: Numbers
    virtual_stage: Numbers
    microbatch: Numbers
    occupied: NDArray[np.bool_]
    """Whether a step has so many operations; where not, the others are 0."""
    wave: Numbers | None = None
    """A number for each step, higher than that of any step that it waits for, [steps]; None where
    the schedule knows none."""

    @classmethod
    def of(cls, order: Order) -> Operations:
        """The arrays of an order."""
        steps = list(chain.from_iterable(order))
        sizes = np.array([len(step) for step in steps], dtype=np.intp)
        most = int(sizes.max(initial=1))
        present = np.arange(most)[:, None] < sizes
        table = np.zeros((len(steps), most, 3), dtype=np.intp)
        operations = ((POSITION[kind], k, j) for step in steps for kind, k, j in step)
        numbers = np.fromiter(chain.from_iterable(operations), dtype=np.intp)
        table[present.T] = numbers.reshape(-1, 3)
        kind, stage, microbatch = table.transpose(2, 1, 0)
        return cls([len(device_steps) for device_steps in order], kind, stage, microbatch, present)

    @property
    def depth(self) -> int:
        """Virtual stages. [1]"""
        return int(np.max(self.virtual_stage)) + 1

    @property
    def microbatches(self) -> int:
        """Micro-batches. [1]"""
        return int(np.max(self.microbatch)) + 1

    def operation(self, step: int) -> Operation:
        """The first operation of a step."""
        kind, k, j = (int(x[0, step]) for x in (self.kind, self.virtual_stage, self.microbatch))
        return Operation(KINDS[kind], k, j)


def at_least_one(**numbers: int) -> None:
    """Refuse an order that has none of something."""
    for name, number in numbers.items():
        if number < 1:
            raise BadValue(name, number, "write a whole number of at least 1")


@dataclass(frozen=True, kw_only=True)
class Flow:
    """What goes through a pipeline, and what stands in its way."""

    slowest: Seconds
    """Time of a micro-batch on the slowest device, max C_i. [s]"""
    total: Seconds
    """The sum over devices. [s]"""
    microbatches: Count
    """Micro-batches. [1]"""
    stages: Count
    """Devices in a row. [1]"""
    virtual: Count = 1.0
    """Virtual stages per device. [1]"""
    hop: Seconds = 0.0
    """Time between neighbours. [s]"""
    blocking: bool = False
    """Whether a hop holds the sender as well."""
    forward: Ratio = THIRD
    """Share F / C. [1]"""
    weight: Ratio = THIRD
    """Share W / C. [1]"""
    pair: Ratio = 1.0
    """Share of their sum that an overlapped forward and backward takes. [1]"""


@dataclass(frozen=True)
class Schedule(ABC):
    """One pipeline schedule. Two of one class are equal, in another process too."""

    value: ClassVar[str]
    """Its word in strategies, manifests and constraints."""
    looped: ClassVar[bool] = False
    """Whether a device may hold several virtual stages."""
    both_ends: ClassVar[bool] = False
    """Whether the model enters at both ends: a device then holds the weights of two stages."""

    folded: ClassVar[bool] = False
    """Whether the model goes down the devices and comes back in a second virtual stage: the first
    device holds both ends."""

    @abstractmethod
    def order(self, p: int, m: int, v: int = 1) -> Order:
        """Steps of every device, for p stages, m micro-batches and v virtual stages per device."""

    def operations(self, p: int, m: int, v: int = 1) -> Operations:
        """The order in arrays, which a schedule with a long one may make at once."""
        return Operations.of(self.order(p, m, v))

    @abstractmethod
    def in_flight(
        self, *, position: Count, microbatches: Count, stages: Count, virtual: Count = 1.0
    ) -> Count:
        """Most chunks whose activations the stage at a position holds at one time, Eq. (5). [1]"""

    @abstractmethod
    def time(self, flow: Flow) -> Seconds:
        """Time of all micro-batches through the pipeline, Eq. (9). [s]"""

    def exposed_hops(self, pipeline: Seconds, flow: Flow) -> Seconds:
        """What hops add to the pipeline's time without them, Eq. (23). [s]"""
        return self.time(flow) - pipeline

    def overlap_window(self, *, microbatches: Count, stages: Count, virtual: Count) -> Count:
        """Micro-batches whose compute may hide gradients and parameters; 1 with one chunk a device.

        Gradients are whole in the last micro-batch, and parameters are wanted in the first.
        """
        del microbatches, stages, virtual
        return 1.0

    def fill(self, flow: Flow) -> Seconds:
        """Lower bound of the time beyond m max C; 0 where none is proved. Ours. [s]"""
        del flow
        return 0.0

    def possible(self, *, microbatches: Count, stages: Count) -> Any:
        """Whether the schedule can run so many micro-batches on so many stages; any by default."""
        return np.ones(np.broadcast(microbatches, stages).shape, dtype=bool)

    def virtual_stages(self, layers: int) -> tuple[int, ...]:
        """Virtual stages per device that are tried for a model of so many layers."""
        del layers
        return (1,)

    def own_virtual_stages(self, v: Count) -> None:
        """Refuse another number of virtual stages than the one that the schedule is made of."""
        own = 2 if self.folded else 1
        if np.any(np.asarray(v) != own):
            raise BadValue("virtual_stages", v, f"schedule {self.value} takes {own}")


def bubble_time(pipeline: Seconds, *, slowest: Seconds, microbatches: Count) -> Seconds:
    """Time that the slowest stage does not compute, hops included, Ours. [s]

    T_pipe - m max C; below zero where DualPipe's overlapped pairs gain more than the bubble costs.

    >>> bubble_time(33.0, slowest=3.0, microbatches=8.0)
    9.0
    """
    return pipeline - microbatches * slowest


@dataclass(frozen=True)
class Folded(Schedule):
    """A schedule in the shape of a V: the model goes down the devices and comes back.

    Device i runs virtual stages i and 2 p - 1 - i, so the first one holds embedding and head, and
    at the bottom nothing is sent.
    """

    folded: ClassVar[bool] = True

    def virtual_stages(self, layers: int) -> tuple[int, ...]:
        """A device has two virtual stages, for any number of layers."""
        del layers
        return (2,)


def folded_times(flow: Flow) -> tuple[Seconds, ...]:
    """Micro-batch on the slowest device; F, I, W and hop of a virtual stage of the others. [s]

    A hop that blocks is part of the work.
    """
    mean = (flow.total - flow.slowest) / np.maximum(flow.stages - 1, 1) / 2.0
    F, W = flow.forward * mean, flow.weight * mean
    I = mean - F - W
    if not flow.blocking:
        return flow.slowest, F, I, W, flow.hop
    tau = np.where(flow.stages > 1, flow.hop, 0.0)
    return flow.slowest + 4.0 * tau, F + tau, I + tau, W, 0.0 * tau


def longest(times: Sequence[Seconds], *ways: tuple[Numeric, ...]) -> Seconds:
    """The longest way through an order. [s]

    Each has so many forwards, input gradients, weight gradients and hops, and what it takes beside
    them.
    """
    F, I, W, tau = times
    spans = (sum(more, f * F + i * I + w * W + hops * tau) for f, i, w, hops, *more in ways)
    return reduce(np.maximum, spans)
