"""The time of any order of work: the closed forms of the schedules are proved against it.

A step starts when its device is free and its input has arrived; nothing else is assumed. Times may
carry trailing axes: then thousands of strategies that share an order are replayed together, each as
it would be alone, bit for bit.

An order is walked in waves: steps of which none waits for another, so that all of a wave are walked
at once. A step comes in a later wave than its device's step before and the operations that make its
inputs; unless the schedule says in which, in the first such wave.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.checks import not_negative
from mofa_model.errors import BadValue
from mofa_model.schedules.schedule import KINDS, POSITION, OperationKind, Operations, Order
from mofa_model.units import Numeric, Ratio, Seconds

_FORWARD, _WEIGHT = POSITION[OperationKind.FORWARD], POSITION[OperationKind.WEIGHT_GRADIENT]
_NEVER: Final = 2**40
"""Wave of a step that is not walked yet."""

Numbers = NDArray[np.intp]


def makespan(
    order: Order | Operations,
    *,
    forward: Seconds,
    input_gradient: Seconds,
    weight_gradient: Seconds,
    hop: Seconds = 0.0,
    pair: Ratio = 1.0,
    blocking: bool = False,
) -> Seconds:
    """Time from the first start of an order to its last end, by the times of one micro-batch. [s]

    The first axis of a pass counts virtual stages, any others strategies. A whole backward is the
    sum of both gradients; beside a forward that overlaps, `pair` is the share of their sum that
    both take. `hop` is the time between neighbours: one number, or a first axis of boundaries.

    A hop delays the receiver. With `blocking` it holds the sender as well, which computes nothing
    until the hop is over: point-to-point transfers that do not overlap. Two virtual stages of one
    device have no hop between them.
    """
    walk = _Waves(order if isinstance(order, Operations) else Operations.of(order))
    arrays = _StageArrays(walk.depth, forward, input_gradient, weight_gradient, hop, pair)
    width, passes, between = arrays.pair.size, arrays.passes, arrays.between
    slots, steps = walk.pass_rows.shape
    durations = passes.take(walk.pass_rows[0], axis=0)
    if slots > 1:
        both = sum((passes.take(rows, axis=0) for rows in walk.pass_rows[1:]), durations)
        durations = np.where(walk.is_pair[:, None], arrays.pair * both, durations)
    # A hop delays the receiver, or holds the sender.
    boundaries = walk.boundaries_out if blocking else walk.boundaries_in
    delays = [between.take(rows, axis=0) for rows in boundaries]
    # When results are there: a row for each step, for each of its operations; and two for what is
    # there from the start, and for what waits for nobody.
    arrivals = np.empty((steps * slots + 2, width))
    arrivals[-2:] = [[0.0], [-np.inf]]
    incoming = list(zip(walk.source_rows, delays, strict=True))
    # One index into whole rows: `take` takes half the time of brackets on the few of a wave.
    for first, last in walk.waves:
        end = arrivals.take(walk.previous_rows[first:last], axis=0)
        for source, delay in incoming:
            arrival = arrivals.take(source[first:last], axis=0)
            if not blocking:
                arrival += delay[first:last]
            np.maximum(end, arrival, out=end)
        end += durations[first:last]
        for slot, delay in enumerate(delays):
            if blocking:
                end += delay[first:last]
            arrivals[slot * steps + first : slot * steps + last] = end
    longest: Seconds = np.max(arrivals.take(walk.last_rows, axis=0), axis=0).reshape(arrays.shape)[
        ()
    ]
    return longest


class _StageArrays:
    """Times in arrays with the strategies side by side on the last axis."""

    def __init__(
        self,
        depth: int,
        forward: Seconds,
        input_gradient: Seconds,
        weight_gradient: Seconds,
        hop: Seconds,
        pair: Ratio,
    ) -> None:
        passes = {
            "forward": forward,
            "input_gradient": input_gradient,
            "weight_gradient": weight_gradient,
        }
        not_negative(**passes, hop=hop, pair=pair)
        parts = [_rows(name, seconds, depth) for name, seconds in passes.items()]
        parts.append(_rows("hop", hop, depth - 1) if depth > 1 else np.zeros(0))
        self.shape = np.broadcast_shapes(*(part.shape[1:] for part in parts), np.shape(pair))
        """Axes of the strategies as they were given."""
        forwards, input_gradients, weight_gradients, self.between = (
            self._flat(part) for part in parts
        )
        """Hops: one row for each boundary, and one of zeros. [s]"""
        by_kind = {
            OperationKind.FORWARD: forwards,
            OperationKind.BACKWARD: input_gradients + weight_gradients,
            OperationKind.INPUT_GRADIENT: input_gradients,
            OperationKind.WEIGHT_GRADIENT: weight_gradients,
        }
        self.passes = np.concatenate([by_kind[kind] for kind in KINDS])
        """Operations: for each kind a row for each virtual stage, and one of zeros. [s]"""
        self.pair = np.broadcast_to(np.asarray(pair, dtype=np.float64), self.shape).reshape(-1)
        """Share of the sum that operations take which overlap. [1]"""

    def _flat(self, part: NDArray[np.float64]) -> NDArray[np.float64]:
        """Rows side by side, and behind them one of zeros."""
        more = len(self.shape) + 1 - part.ndim
        aligned = part.reshape(len(part), *(1,) * more, *part.shape[1:])
        whole = np.broadcast_to(aligned, (len(part), *self.shape))
        zeros = np.zeros((1, *self.shape))
        return np.concatenate([whole, zeros]).reshape(len(part) + 1, -1)


def _rows(field: str, value: Numeric, length: int) -> NDArray[np.float64]:
    """One entry for each virtual stage or boundary, each a scalar or an array over strategies."""
    rows = np.asarray(value, dtype=np.float64)
    if rows.ndim == 0 or rows.shape[0] == 1:
        rows = np.broadcast_to(rows, (length, *rows.shape[1:]))
    if rows.shape[0] != length:
        raise BadValue(field, rows.shape, f"give one number, or a first axis of {length}")
    return rows


class _Waves:
    """Every step of an order, wave by wave; arrays are [operations of a step, steps].

    Results are numbered: forwards by virtual stage and micro-batch, then backwards in the same way,
    then one that no operation makes and one that no operation takes. Where a step has fewer
    operations, the others take and make these. A result's row is that of its operation among all,
    wave by wave; then come one for what is there from the start, and one for what is not
    waited for.
    """

    def __init__(self, order: Operations) -> None:
        self._order = order
        self.depth, self._m = order.depth, order.microbatches
        self._device: Numbers = np.repeat(np.arange(len(order.steps)), order.steps)
        self._occupied = order.occupied
        self._results = self.depth * self._m
        self._no_result = 2 * self._results  # the result that no operation makes
        self._follow_operations()
        wave = self._waves() if order.wave is None else order.wave
        by_wave = np.argsort(wave, kind="stable")
        sizes = np.bincount(wave)
        self.waves = tuple(pairwise([0, *np.cumsum(sizes[sizes > 0]).tolist()]))
        """Each wave as two numbers: its first step, and the first step of the next wave."""
        self.is_pair: NDArray[np.bool_] = self._occupied[-1, by_wave] & (len(self._occupied) > 1)
        """Whether a step has more than one operation."""
        down = np.where(order.kind == _FORWARD, 1, -1)
        arrives, boundary_in = self._crossing(-down)
        _, boundary_out = self._crossing(down)
        passes = np.where(
            self._occupied, order.kind * (self.depth + 1) + order.virtual_stage, self.depth
        )
        source = np.where(arrives, self._result - down * self._m, self._no_result)
        slots, steps = passes.shape
        # The row of every result, by operation of a step and step.
        rows = np.full(self._no_result + 2, slots * steps + 1, dtype=np.intp)
        rows[self._result[:, by_wave]] = np.arange(slots * steps).reshape(slots, steps)
        rows[self._no_result :] = slots * steps + 1
        self.pass_rows: Numbers = passes[:, by_wave]
        """Of every operation: the row of `_StageArrays.passes` with its time."""
        self.source_rows: Numbers = rows[source[:, by_wave]]
        """The row of the result that comes from another device."""
        self.boundaries_in: Numbers = boundary_in[:, by_wave]
        """The boundary that this crosses, one more than there are where it crosses none."""
        self.boundaries_out: Numbers = boundary_out[:, by_wave]
        """The boundary that its own result crosses, likewise."""
        place = np.empty(steps, dtype=np.intp)
        place[by_wave] = np.arange((slots - 1) * steps, slots * steps)
        ends = np.cumsum(order.steps)
        before = np.append(slots * steps, place[:-1])
        before[ends[:-1][ends[:-1] < steps]] = slots * steps
        self.previous_rows: Numbers = before[by_wave]
        """Row of the last result of the step before on the same device."""
        self.last_rows: Numbers = place[ends[np.diff(ends, prepend=0) > 0] - 1]
        """The same of the last step of each device."""

    def _follow_operations(self) -> None:
        """The device of every virtual stage, and the result that every operation makes."""
        order = self._order
        self._number = order.virtual_stage * self._m + order.microbatch
        self._device_of = np.full(self._results, -1, dtype=np.intp)  # the device of a virtual stage
        for numbers, present in zip(self._number, self._occupied, strict=True):
            self._device_of[numbers[present]] = self._device[present]
        used = self._occupied & (order.kind != _WEIGHT)
        offset = np.where(order.kind == _FORWARD, 0, self._results)
        self._result: Numbers = np.where(used, offset + self._number, self._no_result + 1)

    def _waves(self) -> Numbers:
        """The wave of every step: one after those of its device's step before and of its inputs."""
        steps = len(self._device)
        # The step that makes each result; behind all steps stands one that never comes, and -1 is
        # there from the start.
        makes = np.full(self._no_result + 2, steps, dtype=np.intp)
        for made in self._result:
            makes[made] = np.arange(steps)
        makes[self._no_result] = -1
        needs = makes[np.stack(self._needs())]
        # What the same device made before is there when the step comes.
        same_device = self._device[np.minimum(needs, steps - 1)] == self._device
        needs[same_device & (needs < np.arange(steps))] = -1
        waits = np.sort(needs, axis=0)  # of most steps one waits at most
        sources = [part.tolist() for part in waits if part.max(initial=-1) >= 0]
        wave = [_NEVER] * (steps + 1) + [0]
        first = np.cumsum([0, *self._order.steps]).tolist()
        next_step, latest_wave = first[:-1], [0] * len(self._order.steps)
        remaining = steps
        while remaining:
            remaining_before = remaining
            for device, end in enumerate(first[1:]):
                step, latest = next_step[device], latest_wave[device]
                while step < end:
                    for part in sources:
                        if (ready := wave[part[step]]) > latest:
                            latest = ready
                    if latest >= _NEVER:
                        break
                    latest_wave[device] = latest = wave[step] = latest + 1
                    step += 1
                remaining -= step - next_step[device]
                next_step[device] = step
            if remaining == remaining_before:
                stuck = next(i for i, end in enumerate(first[1:]) if next_step[i] < end)
                kind, k, j = self._order.operation(next_step[stuck])
                what = f"{kind.value} of micro-batch {j} at virtual stage {k} on device {stuck}"
                raise BadValue("order", what, "its input never comes: the order deadlocks")
        return np.array(wave[:steps], dtype=np.intp)

    def _needs(self) -> list[Numbers]:
        """Results without which a step cannot begin: a backward asks for its own forward too."""
        order = self._order
        forwards, backwards = self._number, self._results + self._number
        forward, weight = (order.kind == kind for kind in (_FORWARD, _WEIGHT))
        first = np.where(
            forward,
            np.where(order.virtual_stage > 0, forwards - self._m, self._no_result),
            forwards,
        )
        first = np.where(weight, backwards, first)
        not_last = ~forward & ~weight & (order.virtual_stage < self.depth - 1)
        second = np.where(not_last, backwards + self._m, self._no_result)
        return [
            np.where(self._occupied, part, self._no_result)[slot]
            for part in (first, second)
            for slot in range(len(first))
        ]

    def _crossing(self, way: Numbers) -> list[Any]:
        """Whether the stage that lies so far is on another device, and the boundary between."""
        stage = self._order.virtual_stage + way
        there = (self._result < self._no_result) & (stage >= 0) & (stage < self.depth)
        other = self._device_of[np.where(there, self._number + way * self._m, 0)]
        crosses = there & (other != self._device)
        return [
            crosses,
            np.where(crosses, np.minimum(self._order.virtual_stage, stage), self.depth - 1),
        ]
