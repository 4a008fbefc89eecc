"""The candidates of an answer: where they are looked for, and how each is weighed.

An estimate of memory is wrong by what its band says, and what nobody measured is priced by a guess.
So the search first looks only at values of the axes that some measured run of the stack or its
relatives has, and only takes so much of a device's memory as fits with the chance that is asked
for. Where nothing fits so, it takes more memory; then it looks at what nobody measured.

    expected = objective x (1 + SLOWED P(short of memory) + FAILED P(out of memory))

A layout that was tried in a short run is a candidate even where the search leaves it out, and says
what near ones take.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.advice.predictions import PricedLayout, least_score, priced, score_of
from mofa_model.advice.request import Request, measured_support, seen_of, trainer_of
from mofa_model.axes.axis import Axis
from mofa_model.bands.coordinates import Coordinates, coordinates, words_of
from mofa_model.bands.odds import LayoutOdds, ShortRun, scales_for
from mofa_model.bands.support import Support
from mofa_model.errors import InputError, TooLarge
from mofa_model.estimate import estimate
from mofa_model.estimate.model_states import checkpoint_replicas, checkpoint_size
from mofa_model.estimate.terms import device_memory_limit
from mofa_model.records import dataclass
from mofa_model.search import (
    ANY,
    ASIDE,
    Candidate,
    Effort,
    Ranking,
    Rejection,
    SearchCase,
    SearchQuestion,
    framework,
    parse_constraints,
    require,
    search,
    trainers,
)
from mofa_model.search.axes import node_counts
from mofa_model.strategy import AXES, Strategy
from mofa_model.units import Bytes, Ratio, Seconds

Array = NDArray[np.floating[Any]]

PRESSED: Final = 0.93
"""Share of the memory that a stack can reserve from which on allocators retry. [1]"""
SLOWED: Final = 0.05
"""By how much it slows a run: 20 runs at 93 to 100 % of what their stack can reserve took 1.05 times
their estimate in the median, others 1.0. Beyond that, 8 of 9 took 4 to 11 times. [1]"""
FAILED: Final = 0.1
"""Share of a run that a failed start and another choice cost. Ours. [1]"""
KEEP: Final = 32
"""Shapes that the search keeps for every number of nodes where the estimates alone decide."""
WEIGHED: Final = 256
"""Candidates whose odds are computed, on all numbers of nodes together."""
FEWEST: Final = 12
"""The same on one number of nodes, at least."""
TIGHTER: Final = 0.4
"""Share of the risk taken where candidates have wider bands than the plainest. Ours. [1]"""
SURE: Final = 0.05
"""Difference of chances to fit that is ignored where none is as high as asked. Ours. [1]"""


@dataclass(frozen=True, kw_only=True)
class WeighedCandidate:
    """A candidate of the search with its odds, and with its exact price once it is replayed."""

    candidate: Candidate
    """What the search says."""
    coordinates: Coordinates
    """Where it stands among measured runs."""
    fits: Ratio
    weight: float
    """Factor on its objective: what being short or out of memory costs, and short runs. [1]"""
    complexity: float
    """Its features, each by how rare it is in measured runs, in bits; 0 where it ran here. [1]"""
    unmeasured: tuple[str, ...]
    """Its features that no run has."""
    priced: PricedLayout | None = None
    """Its price by replay; None where only the search priced it."""

    @property
    def expected(self) -> float:
        """The objective that is expected of it; lower is better."""
        by_search = self.candidate.score * self.weight
        if self.priced is None:
            return by_search
        return by_search * self.priced.step_time / float(self.candidate.step_seconds)

    @property
    def nodes(self) -> int:
        """Nodes. [1]"""
        return self.candidate.nodes

    @property
    def exact(self) -> PricedLayout:
        """Its price by replay."""
        return self.priced or priced(self.candidate.problem, self.candidate.strategy)

    @property
    def kind(self) -> tuple[str, ...]:
        """Which features are switched on: candidates that differ in it are of different kinds."""
        on = {key for key, word in self.coordinates.layout.items() if word != "false"} - {"mbs"}
        return tuple(sorted(on))


def by_expected(candidate: WeighedCandidate) -> tuple[float, ...]:
    """Sort key: the better first; of equal ones the plainer."""
    return candidate.expected, candidate.nodes, candidate.candidate.index


@dataclass(frozen=True, kw_only=True)
class TrainerResult:
    """What was found for one trainer, and what is chosen of it."""

    request: Request
    """The question, as it is asked for that trainer."""
    ranking: Ranking
    candidates: tuple[WeighedCandidate, ...]
    """Candidates, best first; none where nothing fits."""
    limit: Bytes
    """Device memory that was searched. [B]"""
    finalists: tuple[WeighedCandidate, ...] = ()
    """Those that were replayed, best first."""
    first: WeighedCandidate | None = None
    """The one of them that the rule chooses."""


def weighed(request: Request, ranking: Ranking) -> list[WeighedCandidate]:
    """The best candidates of a search and the tried layouts, with their odds; best first."""
    best = (one for candidates in ranking.best.values() for one in candidates)
    found = sorted(best, key=lambda one: (one.score, one.nodes, one.index))
    tried = {_layout(run.coordinates) for run in request.tried}
    fresh = [(one, at) for one in found if _layout(at := _at(one)) not in tried]
    ran = [
        (_tried(request, run, place), run.coordinates)
        for place, run in enumerate(request.tried)
        if run.fitted
    ]
    if not (every := [*ran, *fresh]):
        return []
    seen = seen_of(request, [at for _, at in every])
    support = measured_support(request)
    problems = {id(one.problem): one.problem for one, _ in every}  # far fewer than candidates
    spaces = {at: space_of(problem) for at, problem in problems.items()}
    space = np.array([spaces[id(one.problem)] / float(one.memory_bytes) for one, _ in every])
    fits, weights = seen.below("memory", space), weights_of(seen, space)
    weights[: len(ran)] = 1.0  # a measured step has memory's share in it
    weights *= np.exp(seen.centres["step"])
    return sorted(
        (
            WeighedCandidate(
                candidate=one,
                coordinates=at,
                fits=float(fits[place]),
                weight=float(weights[place]),
                complexity=0.0 if place < len(ran) else support.complexity(at.layout),
                unmeasured=() if place < len(ran) else support.unmeasured(at.layout),
            )
            for place, (one, at) in enumerate(every)
        ),
        key=by_expected,
    )


def _tried(request: Request, run: ShortRun, place: int) -> Candidate:
    """A layout that was tried, as a candidate."""
    named = (
        one for one in request.problems if one.workload.training.precision.name == run.precision
    )
    problem = next(named, request.problems[0])
    problem = replace(problem, cluster=replace(problem.cluster, gpus=run.strategy.gpus))
    full = estimate(problem.workload, problem.cluster, run.strategy)
    step = float(full.step_time)
    saved = float(checkpoint_size(problem.workload, run.strategy))
    replicas = float(checkpoint_replicas(problem.workload, run.strategy))
    score = score_of(request, problem, request.nodes)(
        np.array([step]), np.array([saved]), np.array([replicas])
    )
    return Candidate(
        strategy=run.strategy,
        problem=problem,
        nodes=request.nodes,
        score=float(score[0]),
        step_seconds=step,
        memory_bytes=float(full.footprint.peak),
        counted=float(full.footprint.counted),
        index=-1 - place,
    )


def _at(one: Candidate) -> Coordinates:
    problem = one.problem
    return coordinates(problem.workload, problem.cluster, one.strategy, one.estimated)


def _layout(coordinates: Coordinates) -> tuple[object, ...]:
    return coordinates.format, frozenset(coordinates.layout.items())


def weights_of(odds: LayoutOdds, space: Array) -> Array:
    """Factors on the objective for being short or out of memory. [1]

    `space` is the memory that there is over the memory that is estimated.
    """
    fits, free = odds.below("memory", space), odds.below("memory", PRESSED * space)
    weights: Array = 1.0 + SLOWED * (fits - free) + FAILED * (1.0 - fits)
    return weights


def fits(
    request: Request, problem: SearchCase, coordinates: Coordinates, memory_bytes: Bytes
) -> Ratio:
    """Chance that a layout with an estimated memory fits. [1]"""
    return float(
        seen_of(request, (coordinates,)).below("memory", space_of(problem) / float(memory_bytes))[0]
    )


def space_of(problem: SearchCase) -> float:
    """All device memory that a job can have, the reserve that somebody asks for included. [B]"""
    return float(device_memory_limit(replace(problem.cluster, reserve=0.0)))


def question_of(request: Request, nodes: tuple[int, ...] = ()) -> SearchQuestion:
    """The search for a request by estimates alone. It refuses what the trainer cannot do."""
    asked = SearchQuestion(
        problems=request.problems,
        nodes=nodes or (node_counts(request.nodes) if request.fewer_nodes else (request.nodes,)),
        framework=framework(request.framework),
        constraints=parse_constraints(request.constraints),
        lifted=frozenset(reason for reason in Rejection if reason.value in request.lifted),
        keep=KEEP,
        share=1.0 / request.learned_memory.ratio,
        apart=True,
        score=partial(score_of, request),
        least_score=partial(least_score, request),
    )
    require(asked)
    return asked


def searched(request: Request, advance: Callable[[float], None]) -> list[TrainerResult]:
    """What is found for every trainer that has something in the first place where anything fits.

    Each trainer is searched as if it had been named, so the best of these results is the best of
    all. Where nothing fits anywhere, the only result is that of the trainer that is nearest to
    fitting.
    """
    asked = _searches(request)
    for measured, surely in _places(request):
        for preferred in (True, False):
            some = [one for one in asked if one.preferred is preferred]
            found = [
                one.fitting_result(measured, surely, lambda part: advance(part / len(asked)))
                for one in some
            ]
            if there := [one for one in found if one is not None]:
                return there
    return [min((one.nothing for one in asked), key=_least_memory)]


def _least_memory(one: TrainerResult) -> float:
    """Device memory of the leanest layout; infinite where none is legal. [B]"""
    return np.inf if one.ranking.leanest is None else float(one.ranking.leanest.memory_bytes)


def _searches(request: Request) -> list[_TrainerSearch]:
    """The search for the trainer that is named; else one for each that can do what is asked, and
    one for layouts that have to be built, where that is allowed or no trainer can. Trainers share
    one effort; layouts to be built have their own.
    """
    effort = Effort()
    if request.framework != ANY:
        return [_TrainerSearch(request, effort)]
    found = []
    for name in trainers():
        with contextlib.suppress(InputError):
            found.append(_TrainerSearch(request.for_trainer(name), effort))
    if not found or _lifted(request):
        found.append(_TrainerSearch(request, Effort()))
    return found


class _TrainerSearch:
    """The searches for one trainer, from place to place."""

    def __init__(self, request: Request, effort: Effort) -> None:
        self._request = request
        self._question = replace(question_of(request), effort=effort)
        self._support = measured_support(request)
        self._whole = float(device_memory_limit(request.problems[0].cluster))
        self._ranking: Ranking  # of the last search

    @property
    def preferred(self) -> bool:
        """Whether it comes before others: its stack is measured, or somebody builds it."""
        return self._support.own or not trainer_of(self._request)

    @property
    def nothing(self) -> TrainerResult:
        """The result where nothing fits."""
        return self._result((), self._whole)

    def _result(self, candidates: tuple[WeighedCandidate, ...], limit: Bytes) -> TrainerResult:
        return TrainerResult(
            request=self._request, ranking=self._ranking, candidates=candidates, limit=limit
        )

    def fitting_result(
        self, measured: bool, surely: bool, advance: Callable[[float], None]
    ) -> TrainerResult | None:
        """The result with what fits, or None if nothing does.

        `measured` limits the values to those that measured runs have; `surely` asks for a high
        chance.
        """
        request = self._request
        if not request.odds:
            return self._by_estimates(advance)
        for share in _shares(request, surely):
            keep = max(FEWEST, WEIGHED // len(self._question.nodes))
            here = replace(self._question, share=share, keep=keep, apart=False)
            here = replace(here, has=_has(self._support)) if measured else _unmeasured(here)
            self._ranking = search(here, advance)
            if not (every := weighed(request, self._ranking)):
                return None  # where nothing fits in more memory, nothing fits in less
            least = 1.0 - request.risk if surely else max(one.fits for one in every) - SURE
            if kept := tuple(one for one in every if one.fits >= least):
                result = self._result(kept, share * self._whole)
                return result if measured or _lifted(request) else _one_new(result, share, least)
        return None

    def _by_estimates(self, advance: Callable[[float], None]) -> TrainerResult | None:
        self._ranking = search(_unmeasured(self._question), advance)
        some = [replace(one, weight=1.0) for one in weighed(self._request, self._ranking)]
        return self._result(tuple(sorted(some, key=by_expected)), self._whole) if some else None


def _one_new(every: TrainerResult, share: Ratio, least: Ratio) -> TrainerResult:
    """Candidates with unmeasured features on one axis alone, if these fit as surely; else all."""
    request = every.request
    support, question = measured_support(request), question_of(request)
    keep = max(FEWEST, WEIGHED // len(question.nodes))
    asked = replace(question, share=share, keep=keep, apart=False, effort=Effort(ASIDE))
    found = []
    for new in AXES:
        try:
            ranking = search(replace(asked, has=_has(support, new)))
        except TooLarge:
            return every
        some = [one for one in weighed(request, ranking) if one.unmeasured and one.fits >= least]
        found += [(one, ranking) for one in some]
    if not found:
        return every
    found.sort(key=lambda pair: by_expected(pair[0]))
    return replace(every, ranking=found[0][1], candidates=tuple(one for one, _ in found))


def beyond(request: Request, candidate: WeighedCandidate, step: Seconds) -> list[WeighedCandidate]:
    """Candidates with features that no run has, and with a shorter estimated step; best first."""
    if not request.odds or candidate.unmeasured:
        return []
    question = question_of(request, (candidate.nodes,))
    share = _share(request, 1.0 - request.risk)
    asked = replace(question, share=share, step_limit=float(step) / float(request.learned))
    ranking = aside(_unmeasured(asked))
    some = [] if ranking is None else weighed(request, ranking)
    return sorted((one for one in some if one.unmeasured), key=by_expected)


def supported(request: Request, nodes: int, share: Ratio = 1.0) -> list[WeighedCandidate]:
    """Candidates whose features runs have, on some nodes in a share of memory; best first."""
    question = question_of(request, (nodes,))
    asked = replace(
        question, share=share, keep=WEIGHED, apart=False, has=_has(measured_support(request))
    )
    ranking = aside(asked)
    return [] if ranking is None else weighed(request, ranking)


def aside(question: SearchQuestion) -> Ranking | None:
    """A further search that an answer mentions; None where it would take too long."""
    try:
        return search(replace(question, effort=Effort(ASIDE)))
    except TooLarge:
        return None


def _places(request: Request) -> Iterator[tuple[bool, bool]]:
    """Where to look, in order: among measured values alone, and only at what surely fits."""
    for measured in (True, False) if request.odds and not _lifted(request) else (False,):
        yield measured, True
        if request.odds:
            yield measured, False


def _shares(request: Request, surely: bool) -> Iterator[Ratio]:
    """Shares of the memory to search; the second is for candidates with wider bands. [1]"""
    if not surely:
        yield 1.0 / request.learned_memory.ratio
        return
    yield _share(request, 1.0 - request.risk)
    yield _share(request, 1.0 - TIGHTER * request.risk)


def _share(request: Request, chance: Ratio) -> Ratio:
    """Share of the memory in which an estimate fits with a chance. [1]"""
    problem = request.problems[0]
    plain = Strategy(dp=problem.cluster.gpus)
    at = coordinates(problem.workload, problem.cluster, plain)
    scale = float(seen_of(replace(request, tried=()), (at,)).scales["memory"][0])
    sure = math.exp(-scale * scales_for(float(chance))) * space_of(problem)
    return (
        min(1.0, sure / float(device_memory_limit(problem.cluster))) / request.learned_memory.ratio
    )


def _lifted(request: Request) -> bool:
    """Whether features without any measured run may be chosen."""
    return Rejection.NOT_MEASURED.value in request.lifted


def _has(support: Support, new: Axis | None = None) -> Callable[[Axis, Any], bool]:
    """Which values of an axis are searched: those that some run has, and all of one axis."""
    return lambda axis, value: axis is new or not support.unmeasured(words_of(axis.chosen(value)))


def _unmeasured(question: SearchQuestion) -> SearchQuestion:
    return replace(question, lifted=question.lifted | {Rejection.NOT_MEASURED})
