"""Short runs to propose: layouts to run for a few steps, so that the choice after them is best.

A run says what its own layout takes, what similar layouts take (`bands.odds`), and whether it fits.
Its worth follows from common draws of all errors, of times and of memory:

    regret = mean over draws of (time of the choice then - time of the best then) / time

Runs are added one by one. The choice after them is of the least expected time.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.advice.candidates import (
    PRESSED,
    SLOWED,
    TrainerResult,
    WeighedCandidate,
    space_of,
    weights_of,
)
from mofa_model.bands.odds import REPEATED, LayoutOdds, odds_of
from mofa_model.records import dataclass
from mofa_model.units import Ratio

Array = NDArray[np.floating[Any]]
Mask = NDArray[np.bool_]

DRAWS: Final = 512
"""Common draws of all errors. [1]"""
SPREAD: Final = math.sqrt(3.0)
"""Standard deviations in a scale of Student's law with three degrees of freedom. [1]"""
MOST: Final = 64
"""Layouts that may be proposed: the best, and of those with the same degrees one. [1]"""
EVEN: Final = 0.5
"""Least chance to fit of a run that is proposed: a failed run wastes machines. Ours. [1]"""


@dataclass(frozen=True)
class Plan:
    """Layouts to run, and the loss that is expected of the choice after them."""

    indices: tuple[int, ...]
    """Indices of the layouts, the most valuable first."""
    regret: tuple[Ratio, ...]
    """Expected loss before any run, after the first, and so on. [1]"""


def probes(result: TrainerResult, first: WeighedCandidate) -> list[tuple[WeighedCandidate, Ratio]]:
    """The most valuable short runs, each with the share of the expected loss left after it. [1]"""
    request = result.request
    near = [candidate for candidate in result.candidates if candidate.nodes == first.nodes]
    distinct: dict[object, WeighedCandidate] = {}
    for candidate in near:
        s = candidate.strategy
        distinct.setdefault((s.tp, s.pp, s.cp, s.ep, s.etp, s.mbs, s.vpp, s.schedule), candidate)
    candidates = list(distinct.values())[:MOST]
    layouts_run = [run.coordinates.layout for run in request.tried]
    ran = np.array([c.coordinates.layout in layouts_run for c in candidates])
    odds = odds_of(request.runs, [c.coordinates for c in candidates], request.tried)
    pace = np.array([c.score for c in candidates]) * np.exp(odds.centres["step"])
    space = np.array([space_of(c.problem) / float(c.memory_bytes) for c in candidates])
    best = plan(odds, pace, space, int(request.probe), request.risk, ran)
    whole = max(best.regret[0], 1e-9)
    return [
        (candidates[index], regret / whole)
        for index, regret in zip(best.indices, best.regret[1:], strict=True)
    ]


def plan(odds: LayoutOdds, pace: Array, space: Array, count: int, risk: Ratio, ran: Mask) -> Plan:
    """The short runs after which the choice costs least against the true best layout.

    `pace` is the expected time without memory's share, `space` the memory that there is over the
    estimated memory, `risk` the chance of being out of memory that is taken, and `ran` says which
    layouts ran before.
    """
    fits, weight = odds.below("memory", space), weights_of(odds, space, risk=risk)
    fits, weight = np.where(ran, 1.0, fits), np.where(ran, 1.0, weight)
    covariance = odds.covariance("step") * SPREAD**2
    rng = np.random.Generator(np.random.PCG64(0))
    error = _drawn(rng, covariance)
    of_memory = odds.covariance("memory")
    held = _drawn(rng, of_memory) / np.sqrt(np.diag(of_memory))
    fitting = held <= _ends(fits)
    pressed = fitting & (held > _ends(odds.below("memory", PRESSED * space))) & ~ran
    draws = _Draws(
        error=error,
        fitting=fitting,
        times=np.log(pace) + error + np.log1p(SLOWED) * pressed,
        expected=np.log(pace * weight),
    )
    after_runs = _AfterRuns(ran, np.zeros_like(error), covariance)
    best = np.where(fitting, draws.times, draws.expected + error).min(axis=1)
    places, lost = list[int](), [draws.lost(after_runs, best)]
    for _ in range(count):
        options = np.flatnonzero((fits >= min(EVEN, float(fits.max()))) & ~after_runs.ran)
        if not options.size:
            break
        trials = [after_runs.after(int(at), draws) for at in options]
        losses = [draws.lost(trial, best) for trial in trials]
        least = int(np.argmin(losses))
        after_runs = trials[least]
        places.append(int(options[least]))
        lost.append(losses[least])
    return Plan(tuple(places), tuple(max(0.0, -math.expm1(-value)) for value in lost))


@dataclass(frozen=True, kw_only=True)
class _Draws:
    """Draws of what may be true of all layouts, [draws, layouts], and what is expected of them."""

    error: Array
    fitting: Mask
    times: Array  # logarithms, as a run would take them
    expected: Array  # logarithms, memory's share in them

    def lost(self, after_runs: _AfterRuns, best: Array) -> float:
        """Mean loss of the choice over all draws: logarithm of its time over the best
        layout's time.
        """
        may = np.where(after_runs.ran, self.fitting, True)
        chosen = np.argmin(
            np.where(
                may, np.where(after_runs.ran, self.times, self.expected + after_runs.mean), np.inf
            ),
            axis=1,
        )
        draws = np.arange(len(chosen))
        taken = np.where(
            after_runs.ran[chosen],
            self.times[draws, chosen],
            (self.expected + self.error)[draws, chosen],
        )
        return float(np.mean(taken - best))


@dataclass(frozen=True)
class _AfterRuns:
    """What is known in every draw after some layouts ran."""

    ran: Mask
    mean: Array  # expected errors, [draws, layouts]
    covariance: Array  # of what is left of them

    def after(self, at: int, draws: _Draws) -> _AfterRuns:
        """What is known after one more run; a run that does not fit tells nothing of times."""
        column = self.covariance[at]
        share = column / (column[at] + (REPEATED * SPREAD) ** 2)
        surprise = np.where(draws.fitting[:, at], draws.error[:, at] - self.mean[:, at], 0.0)
        ran = self.ran.copy()
        ran[at] = True
        return _AfterRuns(
            ran, self.mean + surprise[:, None] * share, self.covariance - np.outer(column, share)
        )


def _drawn(rng: np.random.Generator, covariance: Array) -> Array:
    """Random errors of all layouts that have a given covariance. [1]"""
    # Two layouts may err exactly alike; a little on the diagonal lets the root be found.
    root = np.linalg.cholesky(
        covariance + 1e-6 * np.mean(np.diag(covariance)) * np.eye(len(covariance))
    )
    errors: Array = rng.standard_normal((DRAWS, len(covariance))) @ root.T
    return errors


def _ends(chances: Array) -> Array:
    """Quantiles of the normal law, in standard deviations. [1]"""
    from statistics import NormalDist

    quantile = NormalDist().inv_cdf
    return np.array([quantile(min(max(float(chance), 1e-12), 1.0 - 1e-12)) for chance in chances])
