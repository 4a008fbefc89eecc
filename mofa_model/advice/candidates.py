"""The candidates of an answer: where they are looked for, and how each is weighed.

What runs today, what was tried in a short run and what the search finds are candidates of one list.
Each is weighed by the time that is expected of it until the work is done:

    expected = objective x (1 + SLOWED P(short of memory)
                              + (FAILED + RELAUNCH / run) P(out of memory) RISK / risk
                              + UNSURE where P(out of memory) > risk
                              + LOOK where that is so, or no run has one of its features)
                         x exp(UNPROVEN sqrt(features that no run has))

The search looks at all that the trainer can run, by the same expression with the band of the
plainest layout. What a user says runs does fit, and no part of it is unproven.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.advice.predictions import PricedLayout, least_score, priced, score_of
from mofa_model.advice.request import ROOMY, Request, layout_odds, measured_support, trainer_of
from mofa_model.axes.axis import Axis
from mofa_model.bands.coordinates import WORDS, Coordinates, coordinates, layouts_of, words_of
from mofa_model.bands.odds import LayoutOdds, ShortRun
from mofa_model.bands.table import Support
from mofa_model.errors import InputError, TooLarge
from mofa_model.estimate import estimate
from mofa_model.estimate.model_states import checkpoint_replicas, checkpoint_size
from mofa_model.estimate.step import least_step
from mofa_model.estimate.terms import device_memory_limit
from mofa_model.records import dataclass, varied
from mofa_model.search import (
    ANY,
    ASIDE,
    Candidate,
    Effort,
    Factor,
    Ranking,
    Rejection,
    SearchCase,
    SearchQuestion,
    allows,
    framework,
    parse_constraints,
    require,
    search,
    trainers,
)
from mofa_model.search.axes import Axes, node_counts
from mofa_model.strategy import AXES, Strategy
from mofa_model.units import Bytes, Ratio

Array = NDArray[np.floating[Any]]

PRESSED: Final = 0.93
"""Share of the memory that a stack can reserve from which on allocators retry. [1]"""
SLOWED: Final = 0.05
"""By how much it slows a run: 20 runs at 93 to 100 % of what their stack can reserve took 1.05
times their estimate in the median, others 1.0. Beyond that, 8 of 9 took 4 to 11 times. [1]"""
FAILED: Final = 0.1
"""Share of a run that a failed start and another choice cost, at the usual risk. Ours. [1]"""
RELAUNCH: Final = 7200.0
"""From a start that runs out of memory to the next one: it loads, a person sees it, changes the
layout and waits in the queue again. Beside a run of weeks it is nothing, beside a fine-tune much.
Ours. [s]
"""
TUNED: Final = 1e8
"""Tokens of a fine-tune where nobody says how many: Alpaca's three times are 2e7, Tulu 3's twice
1e9. Ours. [1]"""
USUAL: Final = 0.4
"""Share of its devices' peak at which a run is taken to run, to know about how long it is. [1]"""
RISK: Final = 0.1
"""The usual risk: chance of being out of memory that is taken. A smaller one makes it
dearer. [1]
"""
UNSURE: Final = 0.03
"""Loss where the chance of being out of memory is above the risk that is taken. Ours. [1]"""
LOOK: Final = 0.03
"""Loss where the answer does not stand alone, for memory or for what no run has: somebody has to
look before it starts. So of layouts about as fast one that is measured and surely fits is chosen.
Ours. [1]
"""
UNPROVEN: Final = 0.03
"""Loss by features that no run of the stack's family has, times the root of their number, as
distances add: left-out runs of 19 groups with one or more of them took 1.02 times as long as
predicted, no longer with more of them; and what nobody ran may not start. [1]"""
LIKELY: Final = 0.5
"""Chance of fitting from which a layout that nobody saw run is an answer at all. [1]"""
SURELY: Final = 0.9
"""Chance of fitting below which an answer is LowConfidence. [1]"""
KEEP: Final = 32
"""Shapes that the search keeps for every number of nodes where the estimates alone decide."""
WEIGHED: Final = 256
"""Candidates whose odds are computed, on all numbers of nodes together."""
FEWEST: Final = 12
"""The same on one number of nodes, at least."""
MANY: Final = 4
"""Numbers of nodes, times precisions, up to which all that a trainer can run is searched at once;
with more it is on the number that is best by what runs have. [1]"""
_HARMLESS: Final = frozenset(
    word.key for axis in AXES if axis.never_slower is not None for word in axis.words
)
"""Keys of switches that are proved never slower."""


@dataclass(frozen=True, kw_only=True)
class WeighedCandidate(Candidate):
    """A candidate of the search with its odds, and with its exact price once it is replayed."""

    coordinates: Coordinates
    """Where it stands among measured runs."""
    fits: Ratio
    weight: float
    """Factor on its objective: what being short or out of memory costs, and short runs. [1]"""
    complexity: float
    """Its features, each by how rare it is in measured runs, in bits; 0 where it ran here. [1]"""
    unmeasured: tuple[str, ...]
    """Its features that no run has."""
    ran: bool = False
    """Whether a user ran it."""
    priced: PricedLayout | None = None
    """Its price by replay; None where only the search priced it."""

    @property
    def expected(self) -> float:
        """The objective that is expected of it; lower is better."""
        by_search = self.score * self.weight
        if self.priced is None:
            return by_search
        return by_search * self.priced.step_time / float(self.step_seconds)

    @property
    def sure(self) -> bool:
        """Whether it surely fits, and some measured run has each of its features."""
        return bool(self.fits >= SURELY) and not self.unmeasured

    @property
    def pace(self) -> float:
        """The objective that is expected of it where memory costs nothing."""
        return self.expected / self.weight

    @property
    def exact(self) -> PricedLayout:
        """Its price by replay."""
        return self.priced or priced(self.problem, self.strategy)

    @property
    def kind(self) -> tuple[str, ...]:
        """Which features are switched on: candidates that differ in it are of different kinds."""
        on = {key for key, word in self.coordinates.layout.items() if word != "false"} - {"mbs"}
        return tuple(sorted(on))


def by_expected(candidate: WeighedCandidate) -> tuple[float, ...]:
    """Sort key: the better first; of equal ones the plainer."""
    return candidate.expected, candidate.nodes, candidate.index


@dataclass(frozen=True, kw_only=True)
class TrainerResult:
    """What was found for one trainer, and what is chosen of it."""

    request: Request
    """The question, as it is asked for that trainer."""
    ranking: Ranking
    candidates: tuple[WeighedCandidate, ...]
    """Candidates, best first; none where nothing fits."""
    finalists: tuple[WeighedCandidate, ...] = ()
    """Those that were replayed, best first."""
    first: WeighedCandidate | None = None
    """The one of them that the rule chooses."""


def weighed(request: Request, ranking: Ranking) -> list[WeighedCandidate]:
    """The best candidates of a search and the layouts that ran, with their odds; best first."""
    best = (candidate for candidates in ranking.best.values() for candidate in candidates)
    by_search = sorted(best, key=lambda c: (c.weighted_score, c.nodes, c.index))
    layout_of_today = today(request)
    runs = [*request.tried, *layout_of_today]
    layouts = {_layout(run.coordinates) for run in runs}
    fresh = [
        (candidate, position)
        for candidate, position in zip(by_search, _coordinates(by_search), strict=True)
        if not layouts or _layout(position) not in layouts
    ]
    tried = [
        (_tried(request, run, place), run.coordinates)
        for place, run in enumerate(runs)
        if run.fitted
    ]
    # What is written is as sure to fit as what the search finds.
    ran = [
        (candidate, varied(position, estimated=candidate.estimated))
        for candidate, position in tried
    ]
    placed = [*ran, *fresh]
    if not placed:
        return []
    candidates, positions = zip(*placed, strict=True)
    proven = len(ran) - (0 if request.current_runs else len(layout_of_today))
    odds = layout_odds(request, positions)
    support = measured_support(request)
    # There are far fewer problems than candidates.
    problems = {id(candidate.problem): candidate.problem for candidate in candidates}
    spaces = {key: space_of(problem) for key, problem in problems.items()}
    space = np.array([spaces[id(c.problem)] / float(c.memory_bytes) for c in candidates])
    losses = {key: lost_by_failing(request, problem) for key, problem in problems.items()}
    lost = np.array([losses[id(candidate.problem)] for candidate in candidates])
    unproven = [
        () if place < proven else _unproven(support, position.layout)
        for place, position in enumerate(positions)
    ]
    asked = _keys_asked(request)
    new = np.array([_unasked(features, asked) for features in unproven])
    fits = odds.below("memory", space)
    weights = weights_of(odds, space, new, lost, request.risk)
    fits[:proven] = weights[:proven] = 1.0  # it trained; a measured step has memory's share
    weights *= np.exp(odds.centres["step"])
    return sorted(
        (
            WeighedCandidate(
                **vars(candidate),
                coordinates=position,
                fits=float(fits[place]),
                weight=float(weights[place]),
                complexity=0.0 if place < proven else support.complexity(position.layout),
                unmeasured=unproven[place],
                ran=place < proven,
            )
            for place, (candidate, position) in enumerate(placed)
            if fits[place] >= max(request.least_fits, LIKELY * (proven <= place < len(ran)))
        ),
        key=by_expected,
    )


def today(request: Request) -> tuple[ShortRun, ...]:
    """Today's layout as a run whose time nobody told; nothing where it is no answer."""
    strategy = request.current
    if not isinstance(strategy, Strategy):
        return ()
    problem = problem_of(request, strategy)
    on_nodes = nodes_of(problem) == request.nodes and not float(strategy.gpus) % float(
        problem.cluster.gpus_per_node
    )
    if not on_nodes or cannot_run(problem, strategy) or not allows(question_of(request), strategy):
        return ()
    at = coordinates(problem.workload, problem.cluster, strategy)
    if any(_layout(run.coordinates) == _layout(at) for run in request.tried):
        return ()
    name = problem.workload.training.precision.name
    return (ShortRun(strategy=strategy, precision=name, fitted=True, coordinates=at, errors={}),)


def problem_of(request: Request, strategy: Strategy) -> SearchCase:
    """The preferred precision on as many devices as a layout occupies."""
    first = request.problems[0]
    return replace(first, cluster=replace(first.cluster, gpus=int(strategy.gpus)))


def nodes_of(problem: SearchCase) -> int:
    """Nodes that a problem's devices fill. [1]"""
    return max(1, round(float(problem.cluster.gpus) / float(problem.cluster.gpus_per_node)))


def cannot_run(problem: SearchCase, s: Strategy) -> str:
    """Why a layout that the user gives is impossible; empty where it is possible."""
    training = problem.workload.training
    if training.global_batch % s.global_micro_batch:
        return (
            f"a global batch of {int(training.global_batch)} does not divide by "
            f"dp x mbs = {int(s.global_micro_batch)}"
        )
    if s.pp * s.vpp > problem.workload.model.layers + 2:
        return f"{int(s.pp * s.vpp)} stages for {int(problem.workload.model.layers)} layers"
    return ""


def _tried(request: Request, run: ShortRun, place: int) -> Candidate:
    """A layout that was tried, as a candidate."""
    problem = request.problem_in(run.precision)
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
        weighted_score=float(score[0]),
        step_seconds=step,
        memory_bytes=float(full.footprint.peak),
        counted_memory=float(full.footprint.counted_memory),
        index=-1 - place,
    )


def _coordinates(candidates: Sequence[Candidate]) -> list[Coordinates]:
    """Coordinates of candidates among measured runs. Those of one problem differ in layout and
    memory alone, so all else is found once a problem.
    """
    of_each_problem = {id(candidate.problem): candidate for candidate in candidates}
    places = {
        key: coordinates(candidate.problem.workload, candidate.problem.cluster, candidate.strategy)
        for key, candidate in of_each_problem.items()
    }
    layouts = layouts_of([candidate.strategy for candidate in candidates])
    return [
        varied(places[id(candidate.problem)], layout=layout, estimated=candidate.estimated)
        for candidate, layout in zip(candidates, layouts, strict=True)
    ]


def _layout(coordinates: Coordinates) -> tuple[object, ...]:
    return coordinates.format, frozenset(coordinates.layout.items())


def weights_of(
    odds: LayoutOdds, space: Array, unproven: Any = 0, lost: Any = FAILED, risk: Ratio = RISK
) -> Array:
    """Factors on the objective for being short or out of memory, and for what nobody ran. [1]

    `space` is the memory that there is over the memory that is estimated, `unproven` the number of
    features that no run has, `lost` the share of a run that a failed start costs, `risk` the chance
    of being out of memory that is taken.
    """
    fits, free = odds.below("memory", space), odds.below("memory", PRESSED * space)
    unproven = np.asarray(unproven)
    risky = fits < 1.0 - risk
    unsure = UNSURE * risky + LOOK * (risky | (unproven > 0))
    short = 1.0 + SLOWED * (fits - free) + lost * RISK / risk * (1.0 - fits) + unsure
    weights: Array = short * np.exp(UNPROVEN * np.sqrt(unproven))
    return weights


def lost_by_failing(request: Request, problem: SearchCase) -> Ratio:
    """The share of a run that a start without enough memory costs. [1]"""
    training = problem.workload.training
    tunes = training.adapters is not None or framework(request.framework).keeps("tunes")
    tokens = training.tokens or (TUNED if tunes or request.tunes else 0.0)
    if not tokens:  # a pre-training, which is long
        return FAILED
    steps = float(tokens) / float(training.step_tokens)
    return FAILED + RELAUNCH / (
        steps * float(least_step(problem.workload, problem.cluster)) / USUAL
    )


def fits(
    request: Request, problem: SearchCase, coordinates: Coordinates, memory_bytes: Bytes
) -> Ratio:
    """Chance that a layout with an estimated memory fits. [1]"""
    return float(
        layout_odds(request, (coordinates,)).below(
            "memory", space_of(problem) / float(memory_bytes)
        )[0]
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
    """What is found for every trainer that has something.

    Each trainer is searched as if it had been named, so the best of these results is the best of
    all. Stacks that nobody measured are searched where no other has anything. Where only main
    memory of which nobody spoke is missing, it is taken for as large as needed. Where nothing fits
    anywhere, the only result is that of the trainer that is nearest to fitting.
    """
    results = _searched(request, advance)
    if not results[0].candidates and results[0].ranking.rejected.get(Rejection.OUT_OF_HOST_MEMORY):
        roomy = _with_room_in_hosts(request)
        if roomy is not request and (other := _searched(roomy, advance))[0].candidates:
            return other
    return results


def _with_room_in_hosts(request: Request) -> Request:
    """The request on nodes with main memory without end, unless somebody said how much there is."""

    def roomy(problem: SearchCase) -> SearchCase:
        host = replace(problem.cluster.host, memory=ROOMY)
        return replace(problem, cluster=replace(problem.cluster, host=host))

    if any(problem.cluster.host.stated for problem in request.problems):
        return request
    trainers = tuple((name, tuple(map(roomy, problems))) for name, problems in request.trainers)
    return replace(request, problems=tuple(map(roomy, request.problems)), trainers=trainers)


def _searched(request: Request, advance: Callable[[float], None]) -> list[TrainerResult]:
    searches = _searches(request)
    without: list[TrainerResult] = []
    # Trainers whose stack nobody measured are looked at only where the others have nothing.
    for preferred in (True, False):
        results = [
            trainer_search.result(lambda part: advance(part / len(searches)))
            for trainer_search in searches
            if trainer_search.preferred is preferred
        ]
        if fitting := [result for result in results if result.candidates]:
            return fitting
        without += results
    return [min(without, key=_least_memory)]


def _least_memory(result: TrainerResult) -> float:
    """Device memory of the leanest layout; infinite where none is legal. [B]"""
    leanest = result.ranking.leanest
    return np.inf if leanest is None else float(leanest.memory_bytes)


def _searches(request: Request) -> list[_TrainerSearch]:
    """One search for the named trainer; without a name, one for each that can do what is asked, and
    one for layouts that have to be built, where that is allowed or no trainer can. Trainers share
    one effort; layouts to be built have their own.
    """
    effort = Effort()
    if request.framework != ANY:
        return [_TrainerSearch(request, effort)]
    searches = []
    for name in trainers():
        # One trainer cannot do what is asked: that is no error as long as another trainer can.
        with contextlib.suppress(InputError):
            searches.append(_TrainerSearch(request.for_trainer(name), effort))
    if not searches or _lifted(request):
        searches.append(_TrainerSearch(request, Effort()))
    return searches


class _TrainerSearch:
    """The search for one trainer."""

    def __init__(self, request: Request, effort: Effort) -> None:
        self._request = request
        self._effort = effort
        self._question = question_of(request)
        self._support = measured_support(request)

    @property
    def preferred(self) -> bool:
        """Whether it comes before others: its stack is measured, or somebody builds it."""
        return self._support.own or not trainer_of(self._request)

    def result(self, advance: Callable[[float], None]) -> TrainerResult:
        """Candidates that fit, with their odds; none where nothing fits."""
        request = self._request
        if request.odds:
            return self._by_odds(advance)
        ranking = search(_everything(replace(self._question, effort=self._effort)), advance)
        candidates = [replace(candidate, weight=1.0) for candidate in weighed(request, ranking)]
        return self._of(ranking, sorted(candidates, key=by_expected))

    def _of(self, ranking: Ranking, candidates: Sequence[WeighedCandidate]) -> TrainerResult:
        return TrainerResult(request=self._request, ranking=ranking, candidates=tuple(candidates))

    def _by_odds(self, advance: Callable[[float], None]) -> TrainerResult:
        """Candidates by their expected time: of a search over everything where that is quick, else
        over what measured runs have, and over everything on the best number of nodes.
        """
        request, asked = self._request, self._question
        keep = max(FEWEST, WEIGHED // len(asked.nodes))
        asked = replace(
            asked,
            keep=keep,
            apart=False,
            has=_has(self._support),
            factor=_factor(request, self._support),
        )
        few = len(asked.nodes) * len(asked.problems) <= MANY
        ranking = aside(_everything(asked), advance) if few else None
        if ranking is not None:
            return self._of(ranking, weighed(request, ranking))
        # What runs have is a far smaller space; all else follows on the best number of nodes alone.
        ranking = search(replace(asked, effort=self._effort), advance)
        measured = weighed(request, ranking)
        if not measured:
            ranking = search(_everything(replace(asked, effort=self._effort)), advance)
            return self._of(ranking, weighed(request, ranking))
        best = measured[0].nodes
        everything = aside(_everything(replace(asked, nodes=(best,), keep=WEIGHED)))
        if everything is None:
            return self._of(ranking, measured)
        elsewhere = [candidate for candidate in measured if candidate.nodes != best]
        on_best = weighed(request, everything)
        return self._of(ranking, sorted((*elsewhere, *on_best), key=by_expected))


def aside(
    question: SearchQuestion, advance: Callable[[float], None] = lambda _: None
) -> Ranking | None:
    """A search with an effort of its own; None where it would take too long."""
    try:
        return search(replace(question, effort=Effort(ASIDE)), advance)
    except TooLarge:
        return None


def _lifted(request: Request) -> bool:
    """Whether features without any measured run may be chosen."""
    return Rejection.NOT_MEASURED.value in request.lifted


def _keys_asked(request: Request) -> set[str]:
    """Keys of the constraints, or all: what somebody asks for is no risk of ours."""
    if _lifted(request):
        return {word.key for word in WORDS.values()}
    return {constraint.key for constraint in parse_constraints(request.constraints)}


def _has(support: Support) -> Callable[[Axis, Any], bool]:
    """A test whether some measured run has a value of an axis."""
    return lambda axis, value: not _unproven(support, words_of(axis.name, value))


def _unproven(support: Support, layout: Mapping[str, str]) -> tuple[str, ...]:
    """Features of a layout that no run has, without switches that never make a step slower."""
    names = support.unmeasured(layout)
    return tuple(name for name in names if name.partition("=")[0] not in _HARMLESS) if names else ()


def _unasked(features: Sequence[str], asked: set[str]) -> int:
    """How many of these features nobody asks for. [1]"""
    return sum(feature.partition("=")[0] not in asked for feature in features)


def _factor(request: Request, support: Support) -> Callable[[SearchCase, Axes], Factor]:
    """A function for the search: the factor on a strategy's time for memory that may lack and for
    features that no run has.
    """
    asked = _keys_asked(request)

    def unproven(axis: Axis, value: Any) -> int:
        return _unasked(_unproven(support, words_of(axis.name, value)), asked)

    def factor_of(case: SearchCase, axes: Axes) -> Factor:
        plain = Strategy(dp=case.cluster.gpus)
        at = coordinates(case.workload, case.cluster, plain)
        odds, space = layout_odds(replace(request, tried=()), (at,)), space_of(case)
        lost = lost_by_failing(request, case)
        counts = {
            axis.name: np.array([unproven(axis, value) for value in axes[axis.name]])
            for axis in AXES
        }
        strides = [(axes.strides[name], count) for name, count in counts.items() if count.any()]

        def factor(index: NDArray[np.int64], memory: Array) -> Array:
            new = np.zeros(len(index))
            for stride, count in strides:
                new += count[index // stride % len(count)]
            return weights_of(odds, space / memory, new, lost, request.risk)

        return factor

    return factor_of


def _everything(question: SearchQuestion) -> SearchQuestion:
    """The question over all that the trainer can run, whether some run has it or not."""
    return replace(question, lifted=question.lifted | {Rejection.NOT_MEASURED})
