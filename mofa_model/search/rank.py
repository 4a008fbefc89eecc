"""Where a search stands: the best of a stream of strategies, and the effort that is left.

The best do not depend on the order of blocks.

The score is the objective: step time, or the time to finish with the best checkpoint interval. On
one number of nodes a strategy with a longer step never finishes sooner, unless it writes its
checkpoints faster. So a step time beyond which no checkpoint could help is a cut, and only what is
below the cut is scored. Nothing above it can be among the best:

    finish = steps t / ETTR(t, save) >= steps t / ETTR*

with ETTR* for the fastest save and an interval of any length. What a strategy may lose beside (its
memory, what nobody measured) is a factor of 1 or more on the score, so the cut holds with it.

What one question may cost in computing is spent before each table is made. Costs are microseconds
of a core of 2023, as they were fitted to 175 questions that were drawn to be dear; so the same
question is refused on every machine, and a busy one only takes longer.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.axes.rejection import Rejection
from mofa_model.search.blocks import OptimizerStates
from mofa_model.spec.transformer import Transformer

Array = NDArray[Any]

MOST: Final = 7_400_000.0
"""Of one question. Of realistic ones the dearest known, a preset on at most 2,048 nodes for any
trainer, takes 7,000,000. [us]"""
ASIDE: Final = 1_200_000.0
"""Most effort for a remark beside an answer; a dearer remark is left out. [us]"""
NUMBER: Final = 400.0
"""A number of nodes, whether it has legal shapes or not. [us]"""
PLACE: Final = 3_600.0
"""A number of nodes on which some shape is legal. [us]"""
ROW: Final = 0.12
"""A row of a table of shapes, legal or not. [us]"""
SHAPE: Final = 0.8
"""A legal shape, with what features it can have. [us]"""
STATE: Final = 1_100.0
"""A state that stands beside a block of shapes. [us]"""
BESIDE: Final = 0.95
"""A row of a block beside a state. [us]"""
WORK: Final = 1_050.0
"""A kind of work of a block, and again each choice of overlap that is timed. [us]"""
CELL: Final = 5.0
"""A strategy that is timed. [us]"""
RUNS: Final = 0.25
"""By how much more everything takes for twice as many runs of layers: stages are less alike. [1]"""
EXPERTS: Final = 0.25
"""By how much more everything takes where layers have experts. [1]"""


Score = Callable[[Array, Array, Array], Array]
"""An objective on one number of nodes, of step times, checkpoint bytes, and ranks that hold the
same shard; lower is better."""
Factor = Callable[[NDArray[np.int64], Array], Array]
"""What strategies are expected to lose beside the objective, as a factor of 1 or more, by their raw
indices and the bytes on their fullest devices. [1]"""


def step_alone(step: Array, _saved: Array, _replicas: Array) -> Array:
    """The step itself as the objective, Eq. (42)."""
    return step


def nothing_lost(_index: NDArray[np.int64], memory: Array) -> Array:
    """The factor of strategies that lose nothing beside the objective. [1]"""
    return np.ones(len(memory))


class Spent(Exception):
    """Nothing is left."""


class Effort:
    """What is left of one question's effort."""

    def __init__(self, most: float = MOST) -> None:
        """Begin with `most` to spend. [us]"""
        self.left = most
        """[us]"""
        self.weight = 1.0
        """What the model makes of a cost. [1]"""

    def of(self, model: Transformer) -> None:
        """Let costs count by how complex a model is, from now on."""
        self.weight = (
            1.0 + RUNS * math.log2(len(model.runs)) + EXPERTS * (model.experts is not None)
        )

    def spend(self, cost: float) -> None:
        """Take a cost off; raises `Spent` where it is more than is left. [us]"""
        self.left -= cost * self.weight
        if self.left < 0.0:
            raise Spent


@dataclass(slots=True)
class Leaders:
    """The best strategies so far on one number of nodes, and the counts of all others."""

    keep: int
    """How many are kept."""
    score: Score = step_alone
    least_score: float = 1.0
    """Score over step time, never below this."""
    factor: Factor = nothing_lost
    """The best have the least score times this."""
    apart: bool = False
    """Whether of the strategies of one shape only the best is kept."""
    effort: Effort = field(default_factory=Effort)
    """What is left to spend."""
    cut: float = np.inf
    """Step time above which nothing can be among the best. [s]"""
    scores: Array = field(default_factory=lambda: np.empty(0))
    """Scores of the best, best first."""
    expected: Array = field(default_factory=lambda: np.empty(0))
    """Their scores times what they may lose."""
    step_seconds: Array = field(default_factory=lambda: np.empty(0))
    """Step times of the same. [s]"""
    memory_bytes: Array = field(default_factory=lambda: np.empty(0))
    """What they take on their fullest devices. [B]"""
    counted_memory: Array = field(default_factory=lambda: np.empty(0))
    """What of it is counted, not estimated. [B]"""
    index: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """Their raw indices."""
    shape_indices: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """Raw indices of their shapes."""
    searched: int = 0
    """Strategies that fit."""
    pruned: int = 0
    """Strategies that are proved to be no better than others."""
    rejected: Counter[Rejection] = field(default_factory=Counter)
    """Strategies that are not legal or do not fit, by reason."""
    near_step: float = np.inf
    """Step time of the fastest that would fit with a little more memory. [s]"""
    near_index: int = -1
    """Its raw index; -1 = there is none."""
    near_memory: float = 0.0
    """What it would take on the fullest device. [B]"""
    leanest_memory: float = np.inf
    """While nothing fits: the least that a strategy takes on the fullest device. [B]"""
    leanest_index: int = -1
    """Its raw index."""

    @property
    def horizon(self) -> float:
        """Step time above which nothing is worth looking at. [s]"""
        return max(self.cut, self.near_step)

    def offer(
        self,
        step: Array,
        index: Array,
        shape_indices: Array,
        states: OptimizerStates,
        column_indices: Array,
        fits: Array,
        memory_bytes: Array,
    ) -> None:
        """Take what fits, [states, columns], and is better than what is here."""
        state, column = np.nonzero(fits & (step <= self.cut))
        if not len(state):
            return
        memory, index = memory_bytes[state, column], index[column] + states.offset[state, 0]
        factor, step = self.factor(index, memory), step[state, column]
        if len(self.expected) == self.keep:  # a score costs most: the bound on it first
            better = np.flatnonzero(step * self.least_score * factor <= self.expected[-1])
            state, column, memory = state[better], column[better], memory[better]
            index, factor, step = index[better], factor[better], step[better]
        if not len(step):
            return
        at = (state, column_indices[column])
        scores = self.score(step, states.checkpoint_bytes[at], states.replicas[at])
        held = states.device_bytes[state, :, column_indices[column]]
        counted_memory = np.max(held, axis=1) - states.reserve
        self._take(
            scores, scores * factor, step, memory, counted_memory, index, shape_indices[column]
        )

    def miss(self, step: Array, index: Array, states: OptimizerStates, near_bytes: Array) -> None:
        """Remember the fastest strategy that almost fits; `near_bytes` is zero where one
        does not.
        """
        times = np.where(near_bytes > 0, step, np.inf)
        best = float(times.min())
        if not np.isfinite(best) or best > self.near_step:
            return
        # Of equally fast ones the plainest: then the order of blocks decides nothing.
        nearest, memory = min(
            (int(index[column] + states.offset[state, 0]), float(near_bytes[state, column]))
            for state, column in zip(*np.nonzero(times == best), strict=True)
        )
        if (best, nearest) < (self.near_step, self.near_index):
            self.near_step, self.near_index, self.near_memory = best, nearest, memory

    def _take(
        self,
        scores: Array,
        expected: Array,
        steps: Array,
        memory: Array,
        counted_memory: Array,
        index: Array,
        shapes: Array,
    ) -> None:
        """Merge new strategies into the leaders and keep the best."""
        expected = np.concatenate([self.expected, expected])
        scores, steps = (
            np.concatenate([self.scores, scores]),
            np.concatenate([self.step_seconds, steps]),
        )
        memory = np.concatenate([self.memory_bytes, memory])
        counted_memory = np.concatenate([self.counted_memory, counted_memory])
        index, shapes = (
            np.concatenate([self.index, index]),
            np.concatenate([self.shape_indices, shapes]),
        )
        order = np.lexsort((index, steps, expected))
        if self.apart:
            _, first = np.unique(shapes[order], return_index=True)
            order = order[np.sort(first)]
        order = order[: self.keep]
        self.scores, self.step_seconds, self.memory_bytes = (
            scores[order],
            steps[order],
            memory[order],
        )
        self.index, self.shape_indices, self.counted_memory = (
            index[order],
            shapes[order],
            counted_memory[order],
        )
        self.expected = expected[order]
        if len(order) == self.keep:
            self.cut = min(self.cut, float(self.expected[-1] / self.least_score))
