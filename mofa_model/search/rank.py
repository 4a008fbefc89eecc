"""Keeps the best of a stream of strategies: whatever the blocks and their order, the same ones in the same order.

The score is the objective: step time, or the time to finish with the best checkpoint interval. On one number of nodes a
strategy that steps slower never finishes sooner, unless it writes its checkpoints faster; so a step time beyond which
no checkpoint could help is a cut, and only what is below the cut is scored. Nothing above it can be among the best:

    finish = steps t / ETTR(t, save) >= steps t / ETTR*, with ETTR* for the fastest save and an interval of any length
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mofa_model.search.effort import Effort
from mofa_model.search.states import ZeroLevel

Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """An objective on one number of nodes."""

    of: Callable[[Array, Array, Array], Array]
    """Score of step times, checkpoint bytes, and ranks that hold the same shard; lower is better."""
    least: float = 1.0
    """Score over step time, never below this."""


def by_step_time() -> Score:
    """The step itself, Eq. (42)."""
    return Score(of=lambda step, *_: step)


@dataclass(frozen=True, slots=True)
class Missed:
    """A strategy that almost fits."""

    step: float
    """Step time. [s]"""
    index: int
    """Raw index; -1 = there is none."""
    memory: float
    """What it would take on the fullest device. [B]"""


@dataclass(slots=True)
class Leaders:
    """The best so far."""

    keep: int
    """How many."""
    score: Score
    """What is minimised."""
    apart: bool = False
    """Whether of the strategies of one shape only the best is kept."""
    effort: Effort = field(default_factory=Effort)
    """What is left to spend."""
    scores: Array = field(default_factory=lambda: np.empty(0))
    """Scores, best first."""
    steps: Array = field(default_factory=lambda: np.empty(0))
    """Step times of the same. [s]"""
    memory: Array = field(default_factory=lambda: np.empty(0))
    """What they take on their fullest devices. [B]"""
    index: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """Their raw indices."""
    shapes: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """Raw indices of their shapes."""
    leanest: tuple[float, int] = (np.inf, -1)
    """Least bytes on the fullest device of what did not fit, while nothing does, and its raw index."""
    searched: int = 0
    """Strategies that fit."""
    pruned: int = 0
    """Strategies of shapes that cannot be among the best."""
    missed: Missed = field(default_factory=lambda: Missed(np.inf, -1, 0.0))
    """The fastest that did not fit by a little."""
    cut: float = np.inf
    """Step time above which nothing can be among the best. [s]"""

    @property
    def horizon(self) -> float:
        """Step time above which nothing is worth looking at. [s]"""
        return max(self.cut, self.missed.step)

    def offer(
        self,
        step: Array,
        index: Array,
        shapes: Array,
        state: ZeroLevel,
        columns: Array,
        fits: Array,
        memory: Array,
    ) -> None:
        """Take what fits, [states, columns], and is better than what is here."""
        chosen = fits & (step <= self.cut)
        if chosen.any():
            group, column = np.nonzero(chosen)
            at = (group, columns[column])
            scores = self.score.of(step[chosen], state.saved[at], state.replicas[at])
            index = index[column] + state.offset[group, 0]
            self._take(scores, step[chosen], memory[chosen], index, shapes[column])

    def miss(self, step: Array, index: Array, state: ZeroLevel, near: Array) -> None:
        """Remember the fastest that almost fits; `near` is its bytes, zero elsewhere."""
        times = np.where(near > 0, step, np.inf)
        best = float(times.min())
        if not np.isfinite(best) or best > self.missed.step:
            return
        group, column = np.nonzero(times == best)
        found = min(
            (int(index[c] + state.offset[g, 0]), float(near[g, c]))
            for g, c in zip(group, column, strict=True)
        )
        if (best, found[0]) < (self.missed.step, self.missed.index):
            self.missed = Missed(best, *found)

    def _take(
        self, scores: Array, steps: Array, memory: Array, index: Array, shapes: Array
    ) -> None:
        scores, steps = np.concatenate([self.scores, scores]), np.concatenate([self.steps, steps])
        memory = np.concatenate([self.memory, memory])
        index, shapes = np.concatenate([self.index, index]), np.concatenate([self.shapes, shapes])
        order = np.lexsort((index, steps, scores))
        if self.apart:
            _, first = np.unique(shapes[order], return_index=True)
            order = order[np.sort(first)]
        order = order[: self.keep]
        self.scores, self.steps, self.memory = scores[order], steps[order], memory[order]
        self.index, self.shapes = index[order], shapes[order]
        if len(order) == self.keep:
            self.cut = min(self.cut, float(self.scores[-1] / self.score.least))
