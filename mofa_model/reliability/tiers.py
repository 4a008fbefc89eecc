"""The exact model of nested tiers: the Markov chain of restarts, embedded at failures.

A failure of a class that reads tier j restarts the job at tier j's last durable save. The state is
that position, and how far behind it the durable saves of farther tiers lie. Tiers have three roles:

    near    the nearest tier that a class reads. Restarts there are states (k, b): b is the boundary
            within the period, k the number of the middle tier's saves in a row that never became
            durable
    middle  the next tier that a class reads, if any. Each of its boundaries is a state
    far     the last tier, where all is durable: one state, in which the chain renews itself

The number of missed saves of the far tier (m) would multiply the states. But the reward is linear
in m, so it is enough to solve for h, the mean of m on each state, beside the stationary law q:

    ETTR = w_far sum over s of [ q(s) lattice_s(H) + h(s) alive_s(H) ] / E[X]
    H = time at which the first far save is durable

Transitions are differences of `alive` at the times of the timeline, for any law of `laws`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mofa_model.errors import BadValue
from mofa_model.records import dataclass
from mofa_model.reliability.checkpoint import SaveTimeline, Tiers, lag, walk
from mofa_model.reliability.laws import NEVER, Uptime
from mofa_model.units import Ratio, Seconds

Matrix: TypeAlias = NDArray[Any]
Curve: TypeAlias = Callable[[Any], Any]

_MOST_STATES = 2400
"""Most states of the dense chain: with more, a solve takes seconds. [1]"""
_NEGLIGIBLE = 1e-9
"""Chance of k misses in a row below which they count as k - 1. [1]"""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Failures that read one tier: their share, and the run that follows them."""

    tier: int
    """Tier that these failures read."""
    share: float
    run: Uptime
    """Law of the run that follows the recovery."""


def ettr(tiers: Tiers, read_shares: tuple[Failure, ...], cycle: Seconds) -> Ratio:
    """Exact ETTR of nested tiers, with background copies, waits and classes of failures. Ours. [1]

    `cycle` is the mean time from failure to failure [s].
    """
    chain = _Chain(tiers, read_shares)
    law, missed = chain.stationary()
    saves = law @ chain.lattice + missed @ chain.alive
    return max(0.0, float(tiers.work * tiers.every[-1] * saves / cycle))


class _Chain:
    """Transitions between restarts, for one set of tiers and failures."""

    def __init__(self, tiers: Tiers, failures: tuple[Failure, ...]) -> None:
        by_tier = {failure.tier: failure for failure in failures if failure.share > 0}
        far = len(tiers.every) - 1
        if any(tier > far for tier in by_tier):
            raise BadValue("tier", max(by_tier), f"there are {far + 1} tiers, counted from 0")
        nearer = sorted(tier for tier in by_tier if tier != far)
        if len(nearer) > 2:
            raise BadValue(
                "tiers",
                nearer,
                "let recovery classes restart from at most two tiers besides the last",
            )
        near = nearer[0] if nearer else far
        middle = nearer[1] if len(nearer) == 2 else far
        self.roles = (near, middle, far)
        share = {tier: failure.share for tier, failure in by_tier.items()}
        self.shares = (
            share.get(near, 0.0),
            share[middle] if len(nearer) == 2 else 0.0,
            share.get(far, 0.0) if near != far else 0.0,
        )
        any_failure = next(iter(by_tier.values()))
        self.runs = tuple(by_tier.get(tier, any_failure).run for tier in self.roles)
        self._lay_out(tiers, walk(tiers))

    def _lay_out(self, tiers: Tiers, timeline: SaveTimeline) -> None:
        """Set the times from which each tier's saves are durable, and the states of the chain."""
        near, middle, far = self.roles
        unit = tiers.every[near]
        self.n = n = tiers.every[far] // unit
        self.g = g = tiers.every[middle] // unit
        self.period = timeline.period
        ends = timeline.ends[::unit, ::unit]
        boundary = np.arange(2 * n + 1)
        self.near = ends + np.array([lag(tiers, near, unit * int(p)) for p in boundary])
        middles = ends + np.array([lag(tiers, middle, unit * int(p - p % g)) for p in boundary])
        self.middle = middles[:, boundary - boundary % g]
        self.horizon = ends[:, n] + tiers.background[far]
        self.depth = self._depth()
        if n * self.depth > _MOST_STATES:
            raise BadValue(
                "every",
                tiers.every,
                f"give smaller numbers: this makes more than {_MOST_STATES} states between saves "
                "of the last tier",
            )
        longest = float(self.near[0, 2 * n] + self.horizon[0] + self.period)
        self.lattices = [run.lattice_of(self.period, longest) for run in self.runs]
        self.alive = self._at_horizon([run.alive for run in self.runs])
        self.lattice = self._at_horizon(self.lattices)
        self.size = self.depth * n + n // g + 1

    def _at_horizon(self, curves: Sequence[Curve]) -> Matrix:
        """Values of each role's curve where the first far save is durable, by state."""
        near, middle, far = curves
        at_near = np.tile(near(self.horizon), self.depth)
        return np.concatenate([at_near, middle(self.horizon[:: self.g]), far(self.horizon[:1])])

    def _depth(self) -> int:
        """Missed saves of the middle tier in a row that make states of their own. [1]"""
        if not self.shares[1]:
            return 1
        wait = np.asarray(self.middle[0, self.g] - self.near[0, self.g])
        alive = self.runs[0].alive
        missed = float(1 - alive(wait) / np.maximum(alive(0.0 * wait), NEVER))
        if missed <= 0:
            return 1
        depth = 1 + int(np.ceil(np.log(_NEGLIGIBLE) / np.log(min(missed, 0.99))))
        # Each adds `n` states, and the matrix must stay small enough to be solved in a moment.
        return max(1, min(depth, 40, max(2, 1200 // self.n)))

    def stationary(self) -> tuple[Matrix, Matrix]:
        """The stationary law q of restarts, and h, the mean of missed far saves in each state."""
        near, middle = self.n * self.depth, self.n // self.g
        steps, unread, gained = (np.zeros((self.size, self.size)) for _ in range(3))
        groups = (
            (np.arange(self.n), range(self.depth), 0),
            (np.arange(0, self.n, self.g), range(1), near),
            (np.zeros(1, dtype=int), range(1), near + middle),
        )
        for role, (starts, depths, offset) in enumerate(groups):
            masses = _Masses(self, self.runs[role].alive, self.lattices[role], starts)
            for k in depths:
                rows = slice(offset + k * self.n, offset + k * self.n + len(starts))
                steps[rows], unread[rows], gained[rows] = masses.rows(k)
        q = _stationary_law(steps)
        h = np.linalg.solve((np.eye(self.size) - unread).T, q @ gained)
        return q, h


class _Masses:
    """Chances that a failure finds given saves durable, for restarts at `starts`.

    Columns are boundaries p, the last one that is durable in the near tier. Within a column the
    middle tier's last save (at or before p) becomes durable at `split`. Columns from n on repeat
    every period: `first` holds the chances of the first time, `later` those of all other times.
    """

    def __init__(
        self, chain: _Chain, alive: Curve, lattice: Curve, starts: NDArray[np.int_]
    ) -> None:
        self.chain, self.starts = chain, starts
        n, g, t = chain.n, chain.g, chain.period
        p = np.arange(2 * n)
        last_middle = p - p % g
        self.crossed = last_middle > starts[:, None]
        self.one_behind = self.crossed & (last_middle - g > starts[:, None])
        self.missed = self.crossed & ~self.one_behind
        horizon = chain.horizon[starts][:, None]
        begun = p > starts[:, None]
        at_start = p == starts[:, None]
        reached = begun | at_start

        def cut(curve: Curve, boundaries: slice, before: float) -> tuple[Matrix, Matrix, Matrix]:
            """A falling curve where columns begin, split and end; `before` before the restart."""
            near, middle = (
                curve(chain.near[starts, boundaries]),
                curve(chain.middle[starts, boundaries][:, :-1]),
            )
            columns = slice(boundaries.start, 2 * n)
            low = np.where(begun[:, columns], near[:, :-1], before)
            end = np.where(reached[:, columns], near[:, 1:], before)
            split = np.where(self.crossed[:, columns], middle, before)
            return low, np.minimum(low, np.maximum(split, np.minimum(low, end))), end

        def first(least: Matrix | float) -> tuple[Matrix, Matrix]:
            a, b, c = (np.maximum(x, least) for x in cuts)
            a = np.where(at_start, 1.0, a)
            return np.where(reached, a - b, 0.0), np.where(reached, b - c, 0.0)

        def later(least: Matrix | float) -> tuple[Matrix, Matrix]:
            a, b, c = (np.maximum(x, least) for x in again)
            return a - b, b - c

        cuts = cut(alive, slice(0, 2 * n + 1), float(alive(0.0)))
        again = cut(lambda x: lattice(x + t), slice(n, 2 * n + 1), float(lattice(t)))
        self.first, self.later = first(0.0), later(0.0)
        self.first_unread, self.later_unread = first(alive(horizon)), later(lattice(horizon + t))

    def rows(self, k: int) -> tuple[Matrix, Matrix, Matrix]:
        """Rows of three matrices over states, for restarts whose middle save was missed k times.

        They hold the chances of each next restart; the same chances without a far save in between;
        and the mean of far saves that are missed in the latter.
        """
        n, g, shares = self.chain.n, self.chain.g, self.chain.shares
        p, origin = np.arange(2 * n), self.starts // g - k
        home = np.arange(len(self.starts)), self.chain.depth * n + origin % (n // g)
        steps = self._moved(self.first, self.later, k)
        steps[home] += shares[1] * self._stayed(self.first)
        steps[:, -1] = shares[2]
        unread = self._moved(self.first_unread, None, k)
        unread[home] += shares[1] * self._stayed(self.first_unread)
        # A restart in the next period misses one more far save, one that falls back one fewer.
        gained = self._moved(self.first_unread, self.later_unread, k, (p >= n, p >= n + g))
        gained[home] += shares[1] * self._stayed(self.first_unread) * (origin // (n // g))
        return steps, unread, gained

    def _stayed(self, first: tuple[Matrix, Matrix]) -> Matrix:
        """Chance that no save of the middle tier became durable since the restart. [1]"""
        early, late = first
        kept = np.where(self.one_behind, 0.0, early) + np.where(self.crossed, 0.0, late)
        total: Matrix = np.sum(kept, axis=1)
        return total

    def _moved(
        self,
        first: tuple[Matrix, Matrix],
        later: tuple[Matrix, Matrix] | None,
        k: int,
        counted: tuple[Matrix | float, Matrix | float] = (1.0, 1.0),
    ) -> Matrix:
        """Chances to go to each near state, and to each middle state but the one of the start.

        `counted` masks columns: with its first mask in general, with its second for a restart at
        the middle save before the last.
        """
        chain = self.chain
        n, g = chain.n, chain.g
        early, late = first
        chances = np.zeros((len(self.starts), chain.size))
        if not chain.shares[1]:  # no class reads the middle tier, so its saves make no states
            mass = early + late
            if later is not None:
                mass[:, n:] += later[0] + later[1]
            chances[:, :n] = chain.shares[0] * _folded(mass * counted[0], n)
            return chances
        fresh = np.where(self.crossed, late, 0.0)
        one_behind = np.where(self.one_behind, early, 0.0)
        missed = np.where(self.missed, early, 0.0)
        same = np.where(self.crossed, 0.0, early + late)
        if later is not None:
            fresh[:, n:] += later[1]
            one_behind[:, n:] += later[0]
        fresh, falling_back = fresh * counted[0], one_behind * counted[1]
        one_behind, missed, same = (mass * counted[0] for mass in (one_behind, missed, same))
        for misses, mass in ((0, fresh), (1, one_behind), (k + 1, missed), (k, same)):
            column = min(misses, chain.depth - 1) * n
            chances[:, column : column + n] += chain.shares[0] * _folded(mass, n)
        rows, middle = np.arange(len(self.starts))[:, None], np.arange(2 * n) // g
        base, count = chain.depth * n, n // g
        np.add.at(chances, (rows, base + middle % count), chain.shares[1] * fresh)
        np.add.at(chances, (rows, base + (middle - 1) % count), chain.shares[1] * falling_back)
        return chances


def _folded(mass: Matrix, n: int) -> Matrix:
    """The columns of two periods, added to those of one."""
    return mass[:, :n] + mass[:, n:]


def _stationary_law(steps: Matrix) -> Matrix:
    """The law q with q = q steps and sum of q = 1."""
    size = len(steps)
    system = (np.eye(size) - steps).T
    system[-1] = 1.0
    right = np.zeros(size)
    right[-1] = 1.0
    q: Matrix = np.linalg.solve(system, right)
    return q
