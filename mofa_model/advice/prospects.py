"""Where the answer is looked for.

An estimate of memory is wrong by what its band says, and what nobody measured is priced by guess. So first only those values of the
axes are searched that some measured run of the stack or its relatives has, and only so much of a device's memory as fits with the
chance that is asked for. Where nothing fits so, more memory is taken; then what nobody measured.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.advice.request import Request
from mofa_model.advice.saves import score_of
from mofa_model.advice.weighed import (
    Prospect,
    by_expected,
    known,
    seen_of,
    space_of,
    trainer_of,
    weighed,
)
from mofa_model.axes.axis import Axis
from mofa_model.bands import (
    Support,
    coordinates,
    scales_for,
    words_of,
)
from mofa_model.errors import InputError, TooLarge
from mofa_model.estimate.footprint import room
from mofa_model.search import (
    ANY,
    ASIDE,
    Effort,
    Ranking,
    Rejection,
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

KEEP: Final = 32
"""Shapes that the search keeps for every number of nodes where the estimates alone decide."""
WEIGHED: Final = 256
"""Candidates whose odds are computed, on all numbers of nodes together."""
FEWEST: Final = 12
"""The same on one of them, at least."""
TIGHTER: Final = 0.4
"""Of the risk that is asked for, where the bands of what was found are wider than that of the plainest layout. Ours. [1]"""
SURE: Final = 0.05
"""Chances to fit that are alike where none is as high as was asked for. Ours. [1]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Prospects:
    """Where something was found for a trainer."""

    request: Request
    """The question, as it is asked for that trainer."""
    ranking: Ranking
    """What the search says."""
    prospects: tuple[Prospect, ...]
    """By what is expected, best first; none where nothing fits."""
    limit: Bytes
    """Device memory that was searched. [B]"""


def question_of(request: Request, nodes: tuple[int, ...] = ()) -> SearchQuestion:
    """The search for a request by estimates alone. It refuses what the trainer cannot do."""
    asked = SearchQuestion(
        problems=request.problems,
        nodes=nodes or (node_counts(request.nodes) if request.fewer_nodes else (request.nodes,)),
        framework=framework(request.framework),
        constraints=parse_constraints(request.constraints),
        lifted=frozenset(reason for reason in Rejection if reason.value in request.lifted),
        keep=KEEP,
        share=1.0 / request.memory.ratio,
        apart=True,
        score=lambda problem, nodes, saved: score_of(request, problem, nodes, saved),
    )
    require(asked)
    return asked


def prospects(request: Request, advance: Callable[[float], None]) -> list[Prospects]:
    """The candidates of the first place where something fits, for every trainer for which something does there; where nothing
    fits anywhere, what the search says of the trainer that is nearest to it.

    Each trainer is looked for as if it had been named, so the best of these answers is the best of all trainers'.
    """
    asked = _asked(request)
    for measured, surely in _places(request):
        for own in (True, False):
            some = [one for one in asked if one.preferred is own]
            found = [
                one.found(measured, surely, lambda part: advance(part / len(asked))) for one in some
            ]
            if there := [one for one in found if one is not None]:
                return there
    return [min((one.nothing for one in asked), key=_missing)]


def _missing(one: Prospects) -> float:
    """Device memory that the leanest layout takes; infinite where none is legal. [B]"""
    return np.inf if one.ranking.leanest is None else float(one.ranking.leanest.memory)


def _asked(request: Request) -> list[_TrainerSearch]:
    """The search for the trainer that is named, else for each that can do what is asked; and for what has to be built, where that
    is allowed, or none can. The trainers share one effort; what has to be built is no smaller a question, and has its own.
    """
    effort = Effort()
    if request.framework != ANY:
        return [_TrainerSearch(request, effort)]
    found = []
    for name in trainers():
        with contextlib.suppress(InputError):
            found.append(_TrainerSearch(request.of(name), effort))
    if not found or _lifted(request):
        found.append(_TrainerSearch(request, Effort()))
    return found


class _TrainerSearch:
    """Where is looked for one trainer, place by place."""

    def __init__(self, request: Request, effort: Effort) -> None:
        self._request = request
        self._question = replace(question_of(request), effort=effort)
        self._have = known(request)
        self._whole = float(room(request.problems[0].cluster))
        self._ranking: Ranking  # of the last place that was looked at

    @property
    def preferred(self) -> bool:
        """Whether it is asked before the others: what is measured, and what somebody wants to build."""
        return self._have.own or not trainer_of(self._request)

    @property
    def nothing(self) -> Prospects:
        """What to say where nothing fits."""
        return Prospects(
            request=self._request, ranking=self._ranking, prospects=(), limit=self._whole
        )

    def found(
        self, measured: bool, surely: bool, advance: Callable[[float], None]
    ) -> Prospects | None:
        """What fits among what was measured, or among all, surely or not; None where nothing does."""
        request = self._request
        if not request.odds:
            return self._estimated(advance)
        for share in _shares(request, surely):
            keep = max(FEWEST, WEIGHED // len(self._question.nodes))
            here = replace(self._question, share=share, keep=keep, apart=False)
            here = replace(here, has=_has(self._have)) if measured else _unmeasured(here)
            self._ranking = search(here, advance)
            if not (every := weighed(request, self._ranking)):
                return None  # where nothing fits in more memory, nothing fits in less
            least = 1.0 - request.risk if surely else max(one.fits for one in every) - SURE
            if kept := tuple(one for one in every if one.fits >= least):
                given = Prospects(
                    request=request,
                    ranking=self._ranking,
                    prospects=kept,
                    limit=share * self._whole,
                )
                return given if measured or _lifted(request) else _one_new(given, share, least)
        return None

    def _estimated(self, advance: Callable[[float], None]) -> Prospects | None:
        self._ranking = search(_unmeasured(self._question), advance)
        some = [replace(one, weight=1.0) for one in weighed(self._request, self._ranking)]
        kept = tuple(sorted(some, key=by_expected))
        found = Prospects(
            request=self._request, ranking=self._ranking, prospects=kept, limit=self._whole
        )
        return found if kept else None


def _one_new(every: Prospects, share: Ratio, least: Ratio) -> Prospects:
    """Of what nobody measured no more than is needed: what has something new on one axis alone, where that fits as surely."""
    request = every.request
    have, question = known(request), question_of(request)
    keep = max(FEWEST, WEIGHED // len(question.nodes))
    asked = replace(question, share=share, keep=keep, apart=False, effort=Effort(ASIDE))
    found = []
    for new in AXES:
        try:
            ranking = search(replace(asked, has=_has(have, new)))
        except TooLarge:
            return every
        some = [one for one in weighed(request, ranking) if one.unmeasured and one.fits >= least]
        found += [(one, ranking) for one in some]
    if not found:
        return every
    found.sort(key=lambda pair: by_expected(pair[0]))
    return replace(every, ranking=found[0][1], prospects=tuple(one for one, _ in found))


def beyond(request: Request, best: Prospect, step: Seconds) -> list[Prospect]:
    """What has features that no run has, and is faster than a step by the estimates; best first."""
    if not request.odds or best.unmeasured:
        return []
    question = question_of(request, (best.candidate.nodes,))
    share = _share(request, 1.0 - request.risk)
    asked = replace(question, share=share, below=float(step) / float(request.learned))
    ranking = aside(_unmeasured(asked))
    some = [] if ranking is None else weighed(request, ranking)
    return sorted((one for one in some if one.unmeasured), key=by_expected)


def supported(request: Request, nodes: int, share: Ratio = 1.0) -> list[Prospect]:
    """What runs have, in a share of a device's memory, on some nodes; best first."""
    question = question_of(request, (nodes,))
    asked = replace(question, share=share, keep=WEIGHED, apart=False, has=_has(known(request)))
    ranking = aside(asked)
    return [] if ranking is None else weighed(request, ranking)


def aside(asked: SearchQuestion) -> Ranking | None:
    """What a search beside the answer finds; None where it would take more than what is said beside an answer may."""
    try:
        return search(replace(asked, effort=Effort(ASIDE)))
    except TooLarge:
        return None


def _places(request: Request) -> Iterator[tuple[bool, bool]]:
    """Where to look: whether among what was measured alone, and whether it has to fit surely."""
    for measured in (True, False) if request.odds and not _lifted(request) else (False,):
        yield measured, True
        if request.odds:
            yield measured, False


def _shares(request: Request, surely: bool) -> Iterator[Ratio]:
    """In how much of the memory: less where the bands of what is found are wider than that of the plainest layout. [1]"""
    if not surely:
        yield 1.0 / request.memory.ratio
        return
    yield _share(request, 1.0 - request.risk)
    yield _share(request, 1.0 - TIGHTER * request.risk)


def _share(request: Request, chance: Ratio) -> Ratio:
    """Of the memory that a layout may take, how much fits with a chance: by the plainest layout's band. [1]"""
    problem = request.problems[0]
    plain = Strategy(dp=problem.cluster.gpus)
    at = coordinates(problem.workload, problem.cluster, plain)
    scale = float(seen_of(replace(request, tried=()), (at,)).scales["memory"][0])
    sure = math.exp(-scale * scales_for(float(chance))) * space_of(problem)
    return min(1.0, sure / float(room(problem.cluster))) / request.memory.ratio


def _lifted(request: Request) -> bool:
    """Whether what nobody measured may be chosen."""
    return Rejection.NOT_MEASURED.value in request.lifted


def _has(have: Support, new: Axis | None = None) -> Callable[[Axis, Any], bool]:
    """Values that some run has, and all of one axis."""
    return lambda axis, value: axis is new or not have.unmeasured(words_of(axis.chosen(value)))


def _unmeasured(question: SearchQuestion) -> SearchQuestion:
    return replace(question, lifted=question.lifted | {Rejection.NOT_MEASURED})
