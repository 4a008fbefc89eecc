"""An order of work in waves: steps of which none waits for another, so that all of a wave are walked at once.

What waits for what is said by the order alone. A step is one wave after the last of: its device's step before, and the
operations that make its inputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.errors import BadValue
from mofa_model.schedules.order import OperationKind, Order, Step

KINDS: Final = tuple(OperationKind)
"""Kinds of operations in the order of `Waves.took`."""
_FORWARD, _WEIGHT = OperationKind.FORWARD, OperationKind.WEIGHT_GRADIENT
_PLACE: Final = {kind: at for at, kind in enumerate(KINDS)}

Places = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Waves:
    """Every step of an order, wave by wave; what is said of operations has them on the first axis, [most, steps].

    Results are numbered: forwards by virtual stage and micro-batch, then backwards in the same way, then one that nobody
    makes and one that nobody takes. Where a step has fewer operations the others take and make these.
    """

    waves: tuple[slice, ...]
    """Steps of each wave."""
    device: Places
    """Who does a step."""
    pair: NDArray[np.bool_]
    """Whether it has more than one operation."""
    took: Places
    """Kind of an operation times one more than there are virtual stages, and its virtual stage; the one more takes no time."""
    source: Places
    """The result that comes from another device."""
    made: Places
    """The result that it makes."""
    late: Places
    """The boundary that its input crosses; one more than there are where it crosses none."""
    sent: Places
    """The boundary that its result crosses, likewise."""
    results: int
    """Results, with the two that are none."""


def waves_of(order: Order) -> Waves:
    """The waves of an order; one that cannot go on is refused."""
    most = max((len(step) for steps in order.devices for step in steps), default=1)
    ways = _Ways(order)
    rows = [
        (wave, device, len(step), *ways.described(step, device, most)) for wave, device, step in ways.steps()
    ]
    table = np.array(rows, dtype=np.intp).reshape(len(rows), 3 + 5 * most)
    table = table[np.argsort(table[:, 0], kind="stable")]
    took, source, made, late, sent = np.ascontiguousarray(
        table[:, 3:].reshape(-1, most, 5).transpose(2, 1, 0)
    )
    ends = np.searchsorted(table[:, 0], np.arange(table[:, 0].max(initial=0) + 1), side="right").tolist()
    return Waves(
        waves=tuple(slice(first, last) for first, last in pairwise(ends)),
        device=table[:, 1],
        pair=table[:, 2] > 1,
        took=took,
        source=source,
        made=made,
        late=late,
        sent=sent,
        results=ways.nobody + 2,
    )


class _Ways:
    """How results go through an order."""

    def __init__(self, order: Order) -> None:
        self._order, self._depth, self._m = order, order.virtual_stages, order.microbatches
        self._every = self._depth * self._m
        self.nobody = 2 * self._every
        """The result that nobody makes."""
        self._home = {
            k * self._m + j: device
            for device, steps in enumerate(order.devices)
            for step in steps
            for _, k, j in step
        }
        self._wave = [0] * self.nobody  # waves count from 1: what is made in none is not there yet

    def steps(self) -> Iterator[tuple[int, int, Step]]:
        """Every step with its wave and device, each after what it waits for."""
        devices = self._order.devices
        at, last = [0] * len(devices), [0] * len(devices)
        left = sum(map(len, devices))
        while left:
            before = left
            for device, steps in enumerate(devices):
                while at[device] < len(steps) and (inputs := self._inputs(steps[at[device]])) >= 0:
                    step = steps[at[device]]
                    wave = last[device] = 1 + max(inputs, last[device])
                    for kind, k, j in step:
                        if kind is not _WEIGHT:
                            self._wave[(0 if kind is _FORWARD else self._every) + k * self._m + j] = wave
                    yield wave, device, step
                    at[device] += 1
                    left -= 1
            if left == before:
                stuck = next(i for i, steps in enumerate(devices) if at[i] < len(steps))
                kind, k, j = devices[stuck][at[stuck]][0]
                what = f"{kind.value} of micro-batch {j} at virtual stage {k} on device {stuck}"
                raise BadValue("order", what, "its input never comes: the order deadlocks")

    def _inputs(self, step: Step) -> int:
        """The wave of the last input of a step; -1 where one is not there."""
        last = 0
        for kind, k, j in step:
            here = k * self._m + j
            needs: tuple[int, ...] = (here,)  # a backward asks for its own forward
            if kind is _FORWARD:
                needs = (here - self._m,) if k else ()
            elif kind is _WEIGHT:
                needs = (self._every + here,)
            elif k < self._depth - 1:
                needs = (here, self._every + here + self._m)
            for one in needs:
                wave = self._wave[one]
                if not wave:
                    return -1
                last = max(last, wave)
        return last

    def described(self, step: Step, device: int, most: int) -> list[int]:
        """Of every operation what `Waves` says: took, source, made, late, sent."""
        depth, m, nowhere = self._depth, self._m, self._depth - 1
        found: list[int] = []
        for kind, k, j in step:
            took = _PLACE[kind] * (depth + 1) + k
            if kind is _WEIGHT:
                found += (took, self.nobody, self.nobody + 1, nowhere, nowhere)
                continue
            here, forward = k * m + j, kind is _FORWARD
            offset, way = (0, 1) if forward else (self._every, -1)
            source, late, sent = self.nobody, nowhere, nowhere
            if 0 <= k - way < depth and self._home[here - way * m] != device:
                source, late = offset + here - way * m, min(k, k - way)
            if 0 <= k + way < depth and self._home[here + way * m] != device:
                sent = min(k, k + way)
            found += (took, source, offset + here, late, sent)
        return found + [depth, self.nobody, self.nobody + 1, nowhere, nowhere] * (most - len(step))
