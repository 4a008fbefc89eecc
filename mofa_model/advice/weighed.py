"""How a candidate is weighed: its odds, its complexity, and what memory makes of its objective.

    expected = objective x (1 + SLOWED P(short of memory) + FAILED P(out of memory))

What was tried in a short run is a candidate whatever the search leaves out, and says what near ones take.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.advice.request import LearnedMemory, Request
from mofa_model.advice.saves import score_of
from mofa_model.axes.frameworks import ANY
from mofa_model.bands import (
    Coordinates,
    LayoutOdds,
    ShortRun,
    Support,
    coordinates,
    odds_of,
    support,
)
from mofa_model.estimate import estimate
from mofa_model.estimate.footprint import room
from mofa_model.estimate.saved import checkpoint_replicas, checkpoint_size
from mofa_model.search import Candidate, Ranking, SearchCase
from mofa_model.units import Bytes, Ratio

Array = NDArray[np.floating[Any]]

PRESSED: Final = 0.93
"""Of what a device has room for, from where on its allocator slows a run: nine runs of nine at 70 of 80 GB and more. [1]"""
SLOWED: Final = 0.8
"""By how much it does at least. [1]"""
FAILED: Final = 0.1
"""Of a run that a failed start and another choice cost. Ours. [1]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Prospect:
    """A candidate with its odds."""

    candidate: Candidate
    """What the search says."""
    trainer: str
    """Trainer that runs it."""
    at: Coordinates
    """Where it stands among measured runs."""
    fits: Ratio
    """Chance that it fits. [1]"""
    weight: float
    """What memory, and short runs, make of its objective: 1 and what is lost by being short or out of it. [1]"""
    complexity: float
    """Its features, each by how rare it is in measured runs; in bits, and none where it ran here. [1]"""
    unmeasured: tuple[str, ...]
    """Features that no run has."""

    @property
    def expected(self) -> float:
        """The objective with what memory makes of it; lower is better."""
        return self.candidate.score * self.weight


def weighed(request: Request, ranking: Ranking) -> list[Prospect]:
    """The best candidates of a search, and what was tried, with their odds; by what is expected."""
    found = sorted((one for some in ranking.best.values() for one in some), key=_rank)
    barred = {_layout(one.at) for one in request.tried}
    fresh = [(one, at) for one in found if _layout(at := _at(one)) not in barred]
    ran = [
        (_tried(request, one, place), one.at)
        for place, one in enumerate(request.tried)
        if one.fitted
    ]
    if not (every := [*ran, *fresh]):
        return []
    seen = seen_of(request, [at for _, at in every])
    have, trainer = known(request), trainer_of(request)
    problems = {id(one.problem): one.problem for one, _ in every}  # far fewer than candidates
    whole = {at: space_of(problem) for at, problem in problems.items()}
    space = np.array([whole[id(one.problem)] / float(one.memory) for one, _ in every])
    fits, weights = weights_of(seen, space)
    weights[: len(ran)] = 1.0  # what it took has memory's share in it
    weights *= np.exp(seen.centres["step"])
    prospects = [
        Prospect(
            candidate=one,
            trainer=trainer,
            at=at,
            fits=float(fit),
            weight=float(weight),
            complexity=0.0 if place < len(ran) else have.complexity(at.layout),
            unmeasured=() if place < len(ran) else have.unmeasured(at.layout),
        )
        for place, ((one, at), fit, weight) in enumerate(zip(every, fits, weights, strict=True))
    ]
    return sorted(prospects, key=by_expected)


def _tried(request: Request, ran: ShortRun, place: int) -> Candidate:
    """A layout that was tried, as a candidate: whatever the search leaves out, it runs."""
    named = (
        one for one in request.problems if one.workload.training.precision.name == ran.precision
    )
    problem = next(named, request.problems[0])
    nodes = request.nodes
    problem = replace(problem, cluster=replace(problem.cluster, gpus=ran.strategy.gpus))
    full = estimate(problem.workload, problem.cluster, ran.strategy)
    step = float(full.step_time)
    saved = float(checkpoint_size(problem.workload, ran.strategy))
    replicas = float(checkpoint_replicas(problem.workload, ran.strategy))
    score = score_of(request, problem, nodes, saved).of(
        *map(np.array, ([step], [saved], [replicas]))
    )
    return Candidate(
        strategy=ran.strategy,
        problem=problem,
        nodes=nodes,
        score=float(score[0]),
        step=step,
        memory=float(full.memory.peak),
        index=-1 - place,
    )


def _at(one: Candidate) -> Coordinates:
    return coordinates(one.problem.workload, one.problem.cluster, one.strategy)


def _layout(at: Coordinates) -> tuple[object, ...]:
    return at.format, frozenset(at.layout.items())


def weights_of(seen: LayoutOdds, space: Array) -> tuple[Array, Array]:
    """Chances to fit, and what memory makes of the objective; `space` is what there is over what is estimated. [1]"""
    fits, free = seen.below("memory", space), seen.below("memory", PRESSED * space)
    return fits, 1.0 + SLOWED * (fits - free) + FAILED * (1.0 - fits)


def fits(request: Request, problem: SearchCase, at: Coordinates, memory: Bytes) -> Ratio:
    """Chance that a layout fits, whoever chose it. [1]"""
    return float(seen_of(request, (at,)).below("memory", space_of(problem) / float(memory))[0])


def seen_of(request: Request, places: Sequence[Coordinates]) -> LayoutOdds:
    """What measured runs and running jobs say of layouts; short runs of the question itself know better than other jobs."""
    seen = odds_of(request.runs, places, request.tried)
    if request.tried or request.memory == LearnedMemory():
        return seen
    return seen.taught("memory", math.log(request.memory.ratio), request.memory.spread)


def trainer_of(request: Request) -> str:
    """Name of the trainer that was asked for; empty where no trainer was named."""
    return "" if request.framework == ANY else request.framework


def known(request: Request) -> Support:
    """What runs have of the stack that is asked about."""
    stack = request.problems[0].cluster.calibration.stack
    experts = request.problems[0].workload.model.experts is not None
    return support(request.runs, stack, experts=experts)


def space_of(problem: SearchCase) -> float:
    """Device memory that there is, whatever somebody wants to be left free. [B]"""
    return float(room(replace(problem.cluster, reserve=0.0)))


def _rank(one: Candidate) -> tuple[float, int, int]:
    return one.score, one.nodes, one.index


def by_expected(one: Prospect) -> tuple[float, int, int]:
    """Better first; of equals the plainer."""
    return one.expected, one.candidate.nodes, one.candidate.index
