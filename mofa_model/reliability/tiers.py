"""The exact model of nested tiers: the Markov chain of restarts, embedded at failures.

A failure of a class that reads tier j restarts the job at tier j's last durable save. Only that
position matters, and how far behind it the farther tiers' durable saves lie. Three roles are told
apart:

    near    the nearest tier that a class reads; restarts there are states (k, b): boundary b in
            the period, and k, how
            many of the middle tier's saves in a row never became durable
    middle  the next tier that a class reads, if any; states are its boundaries
    far     the last tier; all is durable there, one state, where the chain renews itself

How many of the far tier's saves were missed (m) would make the states many, but the reward is
linear in it: so beside the stationary law q of the states we solve for h, the mean of m on each
state, and

    ETTR = w_far sum over s of [ q(s) lattice_s(H) + h(s) alive_s(H) ] / E[X]
    H = first far save durable

Transitions are differences of `alive` at the times of the timeline; any law of `laws` serves.
"""

from __future__ import annotations

from collections.abc import Callable
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
"""States of the dense chain; beyond it a solve takes seconds."""
_NEGLIGIBLE = 1e-9
"""Chance of k misses in a row below which they count as k - 1."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """What fails: the share of failures that read a tier, and the run after such a failure."""

    tier: int
    """Tier that these failures read."""
    share: float
    run: Uptime
    """Law of the run that follows the recovery."""


def ettr(tiers: Tiers, read_shares: tuple[Failure, ...], cycle: Seconds) -> Ratio:
    """Exact ETTR of nested tiers with background copies, waits and classes. Ours. [1]

    `cycle` is the mean time from failure to failure [s].
    """
    chain = _Chain(tiers, read_shares)
    law, missed = chain.stationary()
    saves = law @ chain.lattice + missed @ chain.alive
    return max(0.0, float(tiers.work * tiers.every[-1] * saves / cycle))


class _Chain:
    """Transitions between restarts, for one set of tiers and failures."""

    def __init__(self, tiers: Tiers, failures: tuple[Failure, ...]) -> None:
        by_tier = {f.tier: f for f in failures if f.share > 0}
        far = len(tiers.every) - 1
        if any(tier > far for tier in by_tier):
            raise BadValue("tier", max(by_tier), f"there are {far + 1} tiers, counted from 0")
        read = sorted(tier for tier in by_tier if tier != far)
        if len(read) > 2:
            raise BadValue(
                "tiers",
                read,
                "let recovery classes restart from at most two tiers besides the last",
            )
        near = read[0] if read else far
        middle = read[1] if len(read) == 2 else far
        self.roles = (near, middle, far)
        share = {tier: failure.share for tier, failure in by_tier.items()}
        self.shares = (
            share.get(near, 0.0),
            share[middle] if len(read) == 2 else 0.0,
            share.get(far, 0.0) if near != far else 0.0,
        )
        someone = next(iter(by_tier.values()))
        self.runs = tuple(by_tier.get(tier, someone).run for tier in self.roles)
        self._lay_out(tiers, walk(tiers))

    def _lay_out(self, tiers: Tiers, timeline: SaveTimeline) -> None:
        """Take in when each tier's saves can be restarted from, and the states between them."""
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
        k, m, first = self.depth, n // g, slice(0, n)
        h, a = self.horizon, [run.alive for run in self.runs]
        longest = float(self.near[0, 2 * n] + self.horizon[0] + self.period)
        self.lattices = [run.lattice_of(self.period, longest) for run in self.runs]
        s = [
            f(h[rows])
            for f, rows in zip(self.lattices, (first, slice(0, n, g), slice(0, 1)), strict=True)
        ]
        self.alive = np.concatenate([np.tile(a[0](h), k), a[1](h[::g]), a[2](h[:1])])
        self.lattice = np.concatenate([np.tile(s[0], k), s[1], s[2]])
        self.size = k * n + m + 1

    def _depth(self) -> int:
        """How many failed saves of the middle tier in a row the model tells apart."""
        if not self.shares[1]:
            return 1
        wait = np.asarray(self.middle[0, self.g] - self.near[0, self.g])
        miss = float(
            1 - self.runs[0].alive(wait) / np.maximum(self.runs[0].alive(0.0 * wait), NEVER)
        )
        wanted = 1 if miss <= 0 else 1 + int(np.ceil(np.log(_NEGLIGIBLE) / np.log(min(miss, 0.99))))
        # The chain has `n` states for each: its matrix stays so small that it is solved at once.
        return max(1, min(wanted, 40, max(2, 1200 // self.n)))

    def stationary(self) -> tuple[Matrix, Matrix]:
        """Stationary law q of restarts, and mean missed far saves h of each state."""
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

    Columns are boundaries p: the last one that is durable near. Within a column the middle tier's
    last save (at or before p) is durable only in the later part, from `split` on. Columns from n on
    repeat every period; `first` masses are of the first time they are passed, `later` masses of all
    other times.
    """

    def __init__(
        self, chain: _Chain, alive: Curve, lattice: Curve, starts: NDArray[np.int_]
    ) -> None:
        self.chain, self.starts = chain, starts
        n, g, t = chain.n, chain.g, chain.period
        p = np.arange(2 * n)
        last = p - p % g
        self.crossed = last > starts[:, None]
        self.one_behind = self.crossed & (last - g > starts[:, None])
        self.missed = self.crossed & ~self.one_behind
        horizon = chain.horizon[starts][:, None]
        begun = p > starts[:, None]
        here = p == starts[:, None]
        some = begun | here

        def cut(of: Curve, at: slice, none: float) -> tuple[Matrix, Matrix, Matrix]:
            """A falling curve where columns begin, split and end; `none` before time passes."""
            near, middle = of(chain.near[starts, at]), of(chain.middle[starts, at][:, :-1])
            columns = slice(at.start, 2 * n)
            low = np.where(begun[:, columns], near[:, :-1], none)
            end = np.where(some[:, columns], near[:, 1:], none)
            split = np.where(self.crossed[:, columns], middle, none)
            return low, np.minimum(low, np.maximum(split, np.minimum(low, end))), end

        def first(least: Matrix | float) -> tuple[Matrix, Matrix]:
            a, b, c = (np.maximum(x, least) for x in cuts)
            a = np.where(here, 1.0, a)
            return np.where(some, a - b, 0.0), np.where(some, b - c, 0.0)

        def later(least: Matrix | float) -> tuple[Matrix, Matrix]:
            a, b, c = (np.maximum(x, least) for x in again)
            return a - b, b - c

        cuts = cut(alive, slice(0, 2 * n + 1), float(alive(0.0)))
        again = cut(lambda x: lattice(x + t), slice(n, 2 * n + 1), float(lattice(t)))
        self.first, self.later = first(0.0), later(0.0)
        self.first_unread, self.later_unread = first(alive(horizon)), later(lattice(horizon + t))

    def rows(self, k: int) -> tuple[Matrix, Matrix, Matrix]:
        """Rows of three matrices over states, for restarts whose middle save was missed k times.

        They hold the chances of each next restart, the chances without a far save between, and the
        mean of far saves missed in the latter.
        """
        n, g, shares = self.chain.n, self.chain.g, self.chain.shares
        p, origin = np.arange(2 * n), self.starts // g - k
        home = np.arange(len(self.starts)), self.chain.depth * n + origin % (n // g)
        steps = self._moved(self.first, self.later, k)
        steps[home] += shares[1] * self._stayed(self.first)
        steps[:, -1] = shares[2]
        unread = self._moved(self.first_unread, None, k)
        unread[home] += shares[1] * self._stayed(self.first_unread)
        # A restart in the next period misses one more far save; one that falls back one fewer.
        gained = self._moved(self.first_unread, self.later_unread, k, (p >= n, p >= n + g))
        gained[home] += shares[1] * self._stayed(self.first_unread) * (origin // (n // g))
        return steps, unread, gained

    def _stayed(self, first: tuple[Matrix, Matrix]) -> Matrix:
        """Probability that no save of the middle tier was complete since the restart. [1]"""
        early, late = first
        kept = np.where(self.one_behind, 0.0, early) + np.where(self.crossed, 0.0, late)
        total: Matrix = np.sum(kept, axis=1)
        return total

    def _moved(
        self,
        first: tuple[Matrix, Matrix],
        later: tuple[Matrix, Matrix] | None,
        k: int,
        counted: tuple[Matrix, Matrix] | None = None,
    ) -> Matrix:
        """Mass to each near state, and to each middle state but the one it began at.

        Of `counted`, only columns in the first count; for a restart at the middle save before the
        last, only those in the second. Without it all do.
        """
        chain = self.chain
        n, g = chain.n, chain.g
        early, late = first
        out = np.zeros((len(self.starts), chain.size))
        if not chain.shares[1]:  # nobody reads the middle tier: how far behind it is makes no state
            every = early + late
            if later is not None:
                every[:, n:] += later[0] + later[1]
            out[:, :n] = chain.shares[0] * _folded(
                every if counted is None else every * counted[0], n
            )
            return out
        fresh = np.where(self.crossed, late, 0.0)
        one = np.where(self.one_behind, early, 0.0)
        missed = np.where(self.missed, early, 0.0)
        same = np.where(self.crossed, 0.0, early + late)
        if later is not None:
            fresh[:, n:] += later[1]
            one[:, n:] += later[0]
        back = one
        if counted is not None:
            now, back = counted[0], one * counted[1]
            fresh, one, missed, same = (mass * now for mass in (fresh, one, missed, same))
        for misses, mass in ((0, fresh), (1, one), (k + 1, missed), (k, same)):
            at = min(misses, chain.depth - 1) * n
            out[:, at : at + n] += chain.shares[0] * _folded(mass, n)
        rows, middle = np.arange(len(self.starts))[:, None], np.arange(2 * n) // g
        base, count = chain.depth * n, n // g
        np.add.at(out, (rows, base + middle % count), chain.shares[1] * fresh)
        np.add.at(out, (rows, base + (middle - 1) % count), chain.shares[1] * back)
        return out


def _folded(mass: Matrix, n: int) -> Matrix:
    return mass[:, :n] + mass[:, n:]


def _stationary_law(steps: Matrix) -> Matrix:
    """The law q with q = q steps, sum q = 1."""
    size = len(steps)
    system = (np.eye(size) - steps).T
    system[-1] = 1.0
    right = np.zeros(size)
    right[-1] = 1.0
    q: Matrix = np.linalg.solve(system, right)
    return q
