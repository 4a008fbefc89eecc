"""An order of work in waves: steps of which none waits for another, so that all of a wave are walked at once.

What waits for what is said by the order alone. A step is one wave after the last of: its device's step before, and the
operations that make its inputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.errors import BadValue
from mofa_model.schedules.order import OperationKind, Order

KINDS: Final = tuple(OperationKind)
"""Kinds of operations in the order of `Waves.took`."""
_FORWARD, _WEIGHT = OperationKind.FORWARD, OperationKind.WEIGHT_GRADIENT
_PLACE: Final = {kind: at for at, kind in enumerate(KINDS)}
_NEVER: Final = 2**40
"""Wave of a result that is not made yet."""

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
    ways = _Ways(order)
    wave = ways.waves()
    by_wave = np.argsort(wave, kind="stable")
    ends = np.cumsum(np.bincount(wave, minlength=1)).tolist()  # waves count from 1
    took, source, made, late, sent = (part[:, by_wave] for part in ways.described())
    return Waves(
        waves=tuple(slice(first, last) for first, last in pairwise(ends)),
        device=ways.device[by_wave],
        pair=ways.there[-1, by_wave] & (len(ways.there) > 1),
        took=took,
        source=source,
        made=made,
        late=late,
        sent=sent,
        results=ways.nobody + 2,
    )


class _Ways:
    """How results go through an order: its steps side by side, device after device, with operations on the first axis."""

    def __init__(self, order: Order) -> None:
        self._order, self._depth, self._m = order, order.virtual_stages, order.microbatches
        self._every = self._depth * self._m
        self.nobody = 2 * self._every
        """The result that nobody makes; behind it the one that nobody takes."""
        steps = list(chain.from_iterable(order.devices))
        many = np.array([len(step) for step in steps], dtype=np.intp)
        most = int(many.max(initial=1))
        self.device: Places = np.repeat(
            np.arange(len(order.devices)), [len(some) for some in order.devices]
        )
        """Who does a step."""
        self.there: Any = np.arange(most)[:, None] < many
        """Whether a step has so many operations, [most, steps]."""
        said = np.array(
            [(_PLACE[kind], k, j) for step in steps for kind, k, j in step], dtype=np.intp
        ).reshape(-1, 3)
        table = np.zeros((len(steps), most, 3), dtype=np.intp)
        table[self.there.T] = said
        self._kind, self._stage, microbatch = table.transpose(2, 1, 0)
        self._here = self._stage * self._m + microbatch
        self._home = np.full(self._every, -1, dtype=np.intp)
        for operations, there in zip(self._here, self.there, strict=True):
            self._home[operations[there]] = self.device[there]
        kept = self.there & (self._kind != _PLACE[_WEIGHT])
        offset = np.where(self._kind == _PLACE[_FORWARD], 0, self._every)
        self._made: Places = np.where(kept, offset + self._here, self.nobody + 1)
        """The result that an operation makes; nobody takes a weight gradient."""

    def waves(self) -> Places:
        """The wave of every step: one after those of its device's step before and of its inputs."""
        wave = [_NEVER] * self.nobody + [0, 0]
        needs, made = [part.tolist() for part in self._needs()], self._made.tolist()
        first = np.cumsum([0, *map(len, self._order.devices)]).tolist()
        at, last, found = first[:-1], [0] * len(self._order.devices), [0] * first[-1]
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
                    found[step] = last[device] = latest
                    for part in made:
                        wave[part[step]] = latest
                    step += 1
                left -= step - at[device]
                at[device] = step
            if left == before:
                stuck = next(i for i, end in enumerate(first[1:]) if at[i] < end)
                kind, k, j = self._order.devices[stuck][at[stuck] - first[stuck]][0]
                what = f"{kind.value} of micro-batch {j} at virtual stage {k} on device {stuck}"
                raise BadValue("order", what, "its input never comes: the order deadlocks")
        return np.array(found, dtype=np.intp)

    def _needs(self) -> list[Places]:
        """Results without which a step cannot begin: a backward asks for its own forward too."""
        here, back = self._here, self._every + self._here
        forward, weight = (self._kind == _PLACE[kind] for kind in (_FORWARD, _WEIGHT))
        own = np.where(forward, np.where(self._stage > 0, here - self._m, self.nobody), here)
        own = np.where(weight, back, own)
        after = ~forward & ~weight & (self._stage < self._depth - 1)
        others = np.where(after, back + self._m, self.nobody)
        return [
            np.where(self.there, part, self.nobody)[slot]
            for part in (own, others)
            for slot in range(len(own))
        ]

    def described(self) -> tuple[Places, ...]:
        """Of every operation what `Waves` says: took, source, made, late, sent."""
        forward = self._kind == _PLACE[_FORWARD]
        nowhere, made = self._depth - 1, self._made
        kept, down = made < self.nobody, np.where(forward, 1, -1)
        took = np.where(self.there, self._kind * (self._depth + 1) + self._stage, self._depth)

        def crossing(way: Places) -> tuple[Any, Places]:
            """Whether the stage that lies so far is on another device, and the boundary between."""
            stage = self._stage + way
            there = kept & (stage >= 0) & (stage < self._depth)
            other = self._home[np.where(there, self._here + way * self._m, 0)]
            crosses = there & (other != self.device)
            return crosses, np.where(crosses, np.minimum(self._stage, stage), nowhere)

        comes, late = crossing(-down)
        _, sent = crossing(down)
        source = np.where(comes, made - down * self._m, self.nobody)
        return took, source, made, late, sent
