"""One replay that walks any order of work: the closed forms of the schedules are proved against it.

A step starts when its device is free and its input has arrived; nothing else is assumed. Times may
carry trailing axes: then thousands of strategies that share an order are replayed together, each as
it would be alone, bit for bit.

An order is walked in waves: steps of which none waits for another, so that all of a wave are walked
at once. A step is one wave after the last of: its device's step before, and the operations that
make its inputs.
"""

from __future__ import annotations

from itertools import chain, pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.checks import not_negative
from mofa_model.errors import BadValue
from mofa_model.records import dataclass
from mofa_model.schedules.schedule import OperationKind, Order
from mofa_model.units import Numeric, Ratio, Seconds

_KINDS: Final = tuple(OperationKind)
_FORWARD, _WEIGHT = OperationKind.FORWARD, OperationKind.WEIGHT_GRADIENT
_POSITION: Final = {kind: at for at, kind in enumerate(_KINDS)}
_NEVER: Final = 2**40
"""Wave of a result that is not made yet."""

Numbers = NDArray[np.intp]


@dataclass(frozen=True, kw_only=True)
class Replay:
    """The result of a replay. All but the makespan is for timelines, and left out unless asked for; its
    first axis counts devices.
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
    order: Order,
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
    walk = _Waves(order)
    given = _StageArrays(walk.depth, forward, input_gradient, weight_gradient, hop, pair)
    width = given.pair.size
    steps, operations = len(walk.device), list(zip(*walk.of_operations, strict=True))
    # When results are there: a row for each step, for each of its operations; and two for what is
    # there from the start, and for what waits for nobody.
    there = np.empty((steps * len(operations) + 2, width))
    there[-2:] = [[0.0], [-np.inf]]
    starts = np.empty((2, steps if timeline else 0, width))
    passes, between = given.passes, given.between
    # One index into whole rows: `take` takes half the time of brackets on the few of a wave.
    for first, last in walk.waves:
        wave = slice(first, last)
        start = there.take(walk.before[wave], axis=0)
        took = passes.take(operations[0][0][wave], axis=0)
        for _, source, late, _ in operations:
            arrival = there.take(source[wave], axis=0)
            if not blocking:
                arrival += between.take(late[wave], axis=0)
            np.maximum(start, arrival, out=start)
        if len(operations) > 1:
            both = sum((passes[of[wave]] for of, *_ in operations[1:]), took)
            took = np.where(walk.pair[wave, None], given.pair * both, took)
        if timeline:
            starts[:, wave] = start, took
        end = start + took
        for at, (_, _, _, sent) in enumerate(operations):
            if blocking:
                end = end + between.take(sent[wave], axis=0)
            there[at * steps + first : at * steps + last] = end
    makespan = np.max(there.take(walk.last, axis=0), axis=0)
    if not timeline:
        return Replay(makespan=makespan.reshape(given.shape)[()])
    busy = np.zeros((len(order), width))
    np.add.at(busy, walk.device, starts[1])
    every = starts[0].reshape(steps, *given.shape)
    return Replay(
        makespan=makespan.reshape(given.shape)[()],
        busy=busy.reshape(len(busy), *given.shape),
        idle=(makespan - busy).reshape(len(busy), *given.shape),
        starts=tuple(tuple(every[walk.device == device]) for device in range(len(order))),
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
        self.passes = np.concatenate([by_kind[kind] for kind in _KINDS])
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
    wave by wave; then come one for what is there from the start, and one for what is not waited for.
    """

    def __init__(self, order: Order) -> None:
        self._order = order
        self._read_operations()
        self._every = self.depth * self._m
        self._nobody = 2 * self._every  # the result that no operation makes
        self._follow_operations()
        wave = self._waves()
        by_wave = np.argsort(wave, kind="stable")
        ends = np.cumsum(np.bincount(wave, minlength=1)).tolist()  # waves count from 1
        self.waves = tuple(pairwise(ends))
        """Each wave as two numbers: its first step, and the first step of the next wave."""
        self.pair: NDArray[np.bool_] = self._there[-1, by_wave] & (len(self._there) > 1)
        """Whether a step has more than one operation."""
        down = np.where(self._kind == _POSITION[_FORWARD], 1, -1)
        comes, late = self._crossing(-down)
        _, sent = self._crossing(down)
        took = np.where(self._there, self._kind * (self.depth + 1) + self._stage, self.depth)
        source = np.where(comes, self._made - down * self._m, self._nobody)
        slots, steps = took.shape
        # The row of every result, by operation of a step and step.
        rows = np.full(self._nobody + 2, slots * steps + 1, dtype=np.intp)
        rows[self._made[:, by_wave]] = np.arange(slots * steps).reshape(slots, steps)
        rows[self._nobody :] = slots * steps + 1
        self.of_operations = [part[:, by_wave] for part in (took, rows[source], late, sent)]
        """Of every operation: the row of `_StageArrays.passes` with its time; the row of the result
        that comes from another device; the boundary that this crosses, one more than there are where
        it crosses none; the boundary that its own result crosses, likewise."""
        self.device: Numbers = self._device[by_wave]
        """Device of each step."""
        place = np.empty(steps, dtype=np.intp)
        place[by_wave] = np.arange((slots - 1) * steps, slots * steps)
        ends = np.cumsum(np.bincount(self._device, minlength=len(order)))
        before = np.append(slots * steps, place[:-1])
        before[ends[:-1][ends[:-1] < steps]] = slots * steps
        self.before: Numbers = before[by_wave]
        """Row of the last result of the step before on the same device."""
        self.last: Numbers = place[ends[np.diff(ends, prepend=0) > 0] - 1]
        """The same of the last step of each device."""

    def _read_operations(self) -> None:
        """Operations of all steps in arrays, device after device."""
        devices = self._order
        steps = list(chain.from_iterable(devices))
        many = np.array([len(step) for step in steps], dtype=np.intp)
        most = int(many.max(initial=1))
        self._device: Numbers = np.repeat(np.arange(len(devices)), [len(some) for some in devices])
        self._there: Any = np.arange(most)[:, None] < many  # whether a step has so many operations
        table = np.zeros((len(steps), most, 3), dtype=np.intp)
        operations = ((_POSITION[kind], k, j) for step in steps for kind, k, j in step)
        numbers = np.fromiter(chain.from_iterable(operations), dtype=np.intp)
        table[self._there.T] = numbers.reshape(-1, 3)
        self._kind, self._stage, self._microbatch = table.transpose(2, 1, 0)
        self.depth, self._m = (int(np.max(part)) + 1 for part in (self._stage, self._microbatch))

    def _follow_operations(self) -> None:
        """The device of every virtual stage, and the result that every operation makes."""
        self._here = self._stage * self._m + self._microbatch
        self._home = np.full(self._every, -1, dtype=np.intp)  # the device of a virtual stage
        for here, there in zip(self._here, self._there, strict=True):
            self._home[here[there]] = self._device[there]
        kept = self._there & (self._kind != _POSITION[_WEIGHT])
        offset = np.where(self._kind == _POSITION[_FORWARD], 0, self._every)
        self._made: Numbers = np.where(kept, offset + self._here, self._nobody + 1)

    def _waves(self) -> Numbers:
        """The wave of every step: one after those of its device's step before and of its inputs."""
        wave = [_NEVER] * self._nobody + [0, 0]
        needs, made = [part.tolist() for part in self._needs()], self._made.tolist()
        devices = self._order
        first = np.cumsum([0, *map(len, devices)]).tolist()
        at, last, waves = first[:-1], [0] * len(devices), [0] * first[-1]
        left = first[-1]
        while left:
            before = left
            for device, end in enumerate(first[1:]):
                step, latest = at[device], last[device]
                while step < end:
                    for part in needs:
                        if (came := wave[part[step]]) > latest:
                            latest = came
                    if latest >= _NEVER:
                        break
                    latest += 1
                    waves[step] = last[device] = latest
                    for part in made:
                        wave[part[step]] = latest
                    step += 1
                left -= step - at[device]
                at[device] = step
            if left == before:
                stuck = next(i for i, end in enumerate(first[1:]) if at[i] < end)
                kind, k, j = devices[stuck][at[stuck] - first[stuck]][0]
                what = f"{kind.value} of micro-batch {j} at virtual stage {k} on device {stuck}"
                raise BadValue("order", what, "its input never comes: the order deadlocks")
        return np.array(waves, dtype=np.intp)

    def _needs(self) -> list[Numbers]:
        """Results without which a step cannot begin: a backward asks for its own forward too."""
        here, back = self._here, self._every + self._here
        forward, weight = (self._kind == _POSITION[kind] for kind in (_FORWARD, _WEIGHT))
        own = np.where(forward, np.where(self._stage > 0, here - self._m, self._nobody), here)
        own = np.where(weight, back, own)
        after = ~forward & ~weight & (self._stage < self.depth - 1)
        others = np.where(after, back + self._m, self._nobody)
        return [
            np.where(self._there, part, self._nobody)[slot]
            for part in (own, others)
            for slot in range(len(own))
        ]

    def _crossing(self, way: Numbers) -> list[Any]:
        """Whether the stage that lies so far is on another device, and the boundary between."""
        stage = self._stage + way
        there = (self._made < self._nobody) & (stage >= 0) & (stage < self.depth)
        other = self._home[np.where(there, self._here + way * self._m, 0)]
        crosses = there & (other != self._device)
        return [crosses, np.where(crosses, np.minimum(self._stage, stage), self.depth - 1)]
