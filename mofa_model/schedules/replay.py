"""One replay that walks any order of work: the closed forms of the schedules are proved against it.

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
from mofa_model.records import dataclass
from mofa_model.schedules.schedule import KINDS, POSITION, OperationKind, Operations, Order
from mofa_model.units import Numeric, Ratio, Seconds

_FORWARD, _WEIGHT = POSITION[OperationKind.FORWARD], POSITION[OperationKind.WEIGHT_GRADIENT]
_NEVER: Final = 2**40
"""Wave of a step that is not walked yet."""

Numbers = NDArray[np.intp]


@dataclass(frozen=True, kw_only=True)
class Replay:
    """The result of a replay. All but the makespan is for timelines, and left out unless asked for;
    its first axis counts devices.
    """

    makespan: Seconds
    """From the first start to the last end. [s]"""
    busy: NDArray[np.float64] | None = None
    """Time each device computes. [s]"""
    idle: NDArray[np.float64] | None = None
    """Time each device waits, or sends while it cannot compute. [s]"""
    starts: tuple[tuple[Numeric, ...], ...] = ()
    """Start of each step in the order's own shape. [s]"""


def replay(
    order: Order | Operations,
    *,
    forward: Seconds,
    input_gradient: Seconds,
    weight_gradient: Seconds,
    hop: Seconds = 0.0,
    pair: Ratio = 1.0,
    blocking: bool = False,
    timeline: bool = False,
) -> Replay:
    """Walk an order with the times of one micro-batch.

    The first axis of a pass counts virtual stages, any others strategies. A whole backward is the
    sum of both gradients; beside a forward that overlaps, `pair` is the share of their sum that
    both take. `hop` is the time between neighbours: one number, or a first axis of boundaries.

    A hop delays the receiver. With `blocking` it holds the sender as well, which computes nothing
    until the hop is over: point-to-point transfers that do not overlap. Two virtual stages of one
    device have no hop between them.
    """
    walk = _Waves(order if isinstance(order, Operations) else Operations.of(order))
    given = _StageArrays(walk.depth, forward, input_gradient, weight_gradient, hop, pair)
    width, passes, between = given.pair.size, given.passes, given.between
    steps, slots = len(walk.device), len(walk.took)
    took = passes.take(walk.took[0], axis=0)
    if slots > 1:
        both = sum((passes.take(of, axis=0) for of in walk.took[1:]), took)
        took = np.where(walk.pair[:, None], given.pair * both, took)
    # A hop delays the receiver, or holds the sender.
    late = [between.take(of, axis=0) for of in (walk.sent if blocking else walk.late)]
    # When results are there: a row for each step, for each of its operations; and two for what is
    # there from the start, and for what waits for nobody.
    there = np.empty((steps * slots + 2, width))
    there[-2:] = [[0.0], [-np.inf]]
    starts = np.empty((steps if timeline else 0, width))
    arrivals = list(zip(walk.source, late, strict=True))
    # One index into whole rows: `take` takes half the time of brackets on the few of a wave.
    for first, last in walk.waves:
        end = there.take(walk.before[first:last], axis=0)
        for source, after in arrivals:
            arrival = there.take(source[first:last], axis=0)
            if not blocking:
                arrival += after[first:last]
            np.maximum(end, arrival, out=end)
        if timeline:
            starts[first:last] = end
        end += took[first:last]
        for at, after in enumerate(late):
            if blocking:
                end += after[first:last]
            there[at * steps + first : at * steps + last] = end
    makespan = np.max(there.take(walk.last, axis=0), axis=0)
    if not timeline:
        return Replay(makespan=makespan.reshape(given.shape)[()])
    devices = walk.devices
    busy = np.zeros((devices, width))
    np.add.at(busy, walk.device, took)
    every = starts.reshape(steps, *given.shape)
    return Replay(
        makespan=makespan.reshape(given.shape)[()],
        busy=busy.reshape(len(busy), *given.shape),
        idle=(makespan - busy).reshape(len(busy), *given.shape),
        starts=tuple(tuple(every[walk.device == device]) for device in range(devices)),
    )


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
        ahead, inward, weight, self.between = (self._flat(part) for part in parts)
        """Hops: one row for each boundary, and one of zeros. [s]"""
        by_kind = {
            OperationKind.FORWARD: ahead,
            OperationKind.BACKWARD: inward + weight,
            OperationKind.INPUT_GRADIENT: inward,
            OperationKind.WEIGHT_GRADIENT: weight,
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
    given = np.asarray(value, dtype=np.float64)
    if given.ndim == 0 or given.shape[0] == 1:
        given = np.broadcast_to(given, (length, *given.shape[1:]))
    if given.shape[0] != length:
        raise BadValue(field, given.shape, f"give one number, or a first axis of {length}")
    return given


class _Waves:
    """Every step of an order, wave by wave.

    Arrays about operations are [operations of a step, steps].
    Results are numbered: forwards by virtual stage and micro-batch, then backwards in the same way,
    then one that no operation makes and one that no operation takes. Where a step has fewer
    operations, the others take and make these. A result's row is that of its operation among all,
    wave by wave; then come one for what is there from the start, and one for what is not
    waited for.
    """

    def __init__(self, order: Operations) -> None:
        self._order = order
        self.depth, self._m = order.depth, order.microbatches
        self.devices = len(order.steps)
        self._device: Numbers = np.repeat(np.arange(self.devices), order.steps)
        self._there = order.there
        self._every = self.depth * self._m
        self._nobody = 2 * self._every  # the result that no operation makes
        self._follow_operations()
        wave = self._waves() if order.wave is None else order.wave
        by_wave = np.argsort(wave, kind="stable")
        many = np.bincount(wave)
        self.waves = tuple(pairwise([0, *np.cumsum(many[many > 0]).tolist()]))
        """Each wave as two numbers: its first step, and the first step of the next wave."""
        self.pair: NDArray[np.bool_] = self._there[-1, by_wave] & (len(self._there) > 1)
        """Whether a step has more than one operation."""
        down = np.where(order.kind == _FORWARD, 1, -1)
        comes, late = self._crossing(-down)
        _, sent = self._crossing(down)
        took = np.where(
            self._there, order.kind * (self.depth + 1) + order.virtual_stage, self.depth
        )
        source = np.where(comes, self._made - down * self._m, self._nobody)
        slots, steps = took.shape
        # The row of every result, by operation of a step and step.
        rows = np.full(self._nobody + 2, slots * steps + 1, dtype=np.intp)
        rows[self._made[:, by_wave]] = np.arange(slots * steps).reshape(slots, steps)
        rows[self._nobody :] = slots * steps + 1
        self.took: Numbers = took[:, by_wave]
        """Of every operation: the row of `_StageArrays.passes` with its time."""
        self.source: Numbers = rows[source[:, by_wave]]
        """The row of the result that comes from another device."""
        self.late: Numbers = late[:, by_wave]
        """The boundary that this crosses, one more than there are where it crosses none."""
        self.sent: Numbers = sent[:, by_wave]
        """The boundary that its own result crosses, likewise."""
        self.device: Numbers = self._device[by_wave]
        """Device of each step."""
        place = np.empty(steps, dtype=np.intp)
        place[by_wave] = np.arange((slots - 1) * steps, slots * steps)
        ends = np.cumsum(order.steps)
        before = np.append(slots * steps, place[:-1])
        before[ends[:-1][ends[:-1] < steps]] = slots * steps
        self.before: Numbers = before[by_wave]
        """Row of the last result of the step before on the same device."""
        self.last: Numbers = place[ends[np.diff(ends, prepend=0) > 0] - 1]
        """The same of the last step of each device."""

    def _follow_operations(self) -> None:
        """The device of every virtual stage, and the result that every operation makes."""
        order = self._order
        self._here = order.virtual_stage * self._m + order.microbatch
        self._home = np.full(self._every, -1, dtype=np.intp)  # the device of a virtual stage
        for here, there in zip(self._here, self._there, strict=True):
            self._home[here[there]] = self._device[there]
        kept = self._there & (order.kind != _WEIGHT)
        offset = np.where(order.kind == _FORWARD, 0, self._every)
        self._made: Numbers = np.where(kept, offset + self._here, self._nobody + 1)

    def _waves(self) -> Numbers:
        """The wave of every step: one after those of its device's step before and of its inputs."""
        steps = len(self._device)
        # The step that makes each result; behind all steps stands one that never comes, and -1 is
        # there from the start.
        makes = np.full(self._nobody + 2, steps, dtype=np.intp)
        for made in self._made:
            makes[made] = np.arange(steps)
        makes[self._nobody] = -1
        needs = makes[np.stack(self._needs())]
        # What the same device made before is there when the step comes.
        own = self._device[np.minimum(needs, steps - 1)] == self._device
        needs[own & (needs < np.arange(steps))] = -1
        waits = np.sort(needs, axis=0)  # of most steps one waits at most
        sources = [part.tolist() for part in waits if part.max(initial=-1) >= 0]
        wave = [_NEVER] * (steps + 1) + [0]
        first = np.cumsum([0, *self._order.steps]).tolist()
        at, last = first[:-1], [0] * self.devices
        left = steps
        while left:
            before = left
            for device, end in enumerate(first[1:]):
                step, latest = at[device], last[device]
                while step < end:
                    for part in sources:
                        if (came := wave[part[step]]) > latest:
                            latest = came
                    if latest >= _NEVER:
                        break
                    last[device] = latest = wave[step] = latest + 1
                    step += 1
                left -= step - at[device]
                at[device] = step
            if left == before:
                stuck = next(i for i, end in enumerate(first[1:]) if at[i] < end)
                kind, k, j = self._order.operation(at[stuck])
                what = f"{kind.value} of micro-batch {j} at virtual stage {k} on device {stuck}"
                raise BadValue("order", what, "its input never comes: the order deadlocks")
        return np.array(wave[:steps], dtype=np.intp)

    def _needs(self) -> list[Numbers]:
        """Results without which a step cannot begin: a backward asks for its own forward too."""
        order = self._order
        here, back = self._here, self._every + self._here
        forward, weight = (order.kind == kind for kind in (_FORWARD, _WEIGHT))
        own = np.where(
            forward, np.where(order.virtual_stage > 0, here - self._m, self._nobody), here
        )
        own = np.where(weight, back, own)
        after = ~forward & ~weight & (order.virtual_stage < self.depth - 1)
        others = np.where(after, back + self._m, self._nobody)
        return [
            np.where(self._there, part, self._nobody)[slot]
            for part in (own, others)
            for slot in range(len(own))
        ]

    def _crossing(self, way: Numbers) -> list[Any]:
        """Whether the stage that lies so far is on another device, and the boundary between."""
        stage = self._order.virtual_stage + way
        there = (self._made < self._nobody) & (stage >= 0) & (stage < self.depth)
        other = self._home[np.where(there, self._here + way * self._m, 0)]
        crosses = there & (other != self._device)
        return [
            crosses,
            np.where(crosses, np.minimum(self._order.virtual_stage, stage), self.depth - 1),
        ]
