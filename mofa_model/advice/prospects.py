"""Where the answer is looked for.

An estimate of memory is wrong by what its band says, and what nobody measured is priced by guess. So first only those values of the
axes are searched that some measured run of the stack or its relatives has, and only so much of a device's memory as fits with the
chance that is asked for. Where nothing fits so, more memory is taken; then what nobody measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.advice.request import Request
from mofa_model.advice.saves import score_of
from mofa_model.advice.weighed import Prospect, by_expected, known, seen_of, space_of, weighed
from mofa_model.axes.axis import Axis
from mofa_model.axes.frameworks import ANY
from mofa_model.bands import (
    Support,
    coordinates,
    scales_for,
    words_of,
)
from mofa_model.errors import InputError, TooLarge
from mofa_model.estimate.footprint import room
from mofa_model.search import (
    ASIDE,
    Effort,
    Framework,
    Ranking,
    Rejection,
    SearchQuestion,
    framework,
    frameworks,
    parse_constraints,
    search,
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
    """Where something was found."""

    ranking: Ranking
    """What the search says, of the first prospect's trainer."""
    prospects: tuple[Prospect, ...]
    """By what is expected, best first; none where nothing fits."""
    limit: Bytes
    """Device memory that was searched. [B]"""


def question_of(request: Request, trainer: Framework, nodes: tuple[int, ...] = ()) -> SearchQuestion:
    """What the search is asked where the estimates alone decide."""
    trainer.require(request.problems[0].workload.model)
    return SearchQuestion(
        problems=request.problems,
        nodes=nodes or (node_counts(request.nodes) if request.fewer_nodes else (request.nodes,)),
        framework=trainer,
        constraints=parse_constraints(request.constraints),
        lifted=frozenset(reason for reason in Rejection if reason.value in request.lifted),
        keep=KEEP,
        share=1.0 / request.memory.ratio,
        apart=True,
        score=lambda problem, nodes, saved: score_of(request, problem, nodes, saved),
    )


def prospects(request: Request, advance: Callable[[float], None]) -> Prospects:
    """The candidates of the first place where something fits."""
    whole = float(room(request.problems[0].cluster))
    questions, effort = list(_questions(request)) if request.odds else [], Effort()
    barren: bool | None = None
    for measured, share, surely in _places(request) if questions else ():
        if surely and barren is measured:
            continue  # where nothing fits in more memory, nothing fits in less
        limit = share * whole
        found = _found(request, questions, measured, share, effort, advance)
        barren = None if found else measured
        every = sorted((one for some, _ in found for one in some), key=by_expected)
        least = 1.0 - request.risk if surely else max((one.fits for one in every), default=0.0) - SURE
        if kept := tuple(one for one in every if one.fits >= least):
            ranking = next(ranking for some, ranking in found if some[0].trainer == kept[0].trainer)
            given = Prospects(ranking=ranking, prospects=kept, limit=limit)
            return given if measured or _lifted(request) else _one_new(request, given, share, least)
    trainer = framework(request.framework)
    ranking = search(_unmeasured(replace(question_of(request, trainer), effort=effort)), advance)
    some = weighed(request, _named(trainer), ranking)
    if not request.odds:
        some = sorted((replace(one, weight=1.0) for one in some), key=by_expected)
    return Prospects(ranking=ranking, prospects=tuple(some), limit=whole)


def _found(
    request: Request,
    questions: Sequence[tuple[Framework, SearchQuestion]],
    measured: bool,
    share: Ratio,
    effort: Effort,
    advance: Callable[[float], None],
) -> list[tuple[list[Prospect], Ranking]]:
    """What each trainer has in one place; one whose own runs nobody measured counts where no other fits."""
    asked = [(name := _named(trainer), known(request, name), question) for trainer, question in questions]
    found = list[tuple[list[Prospect], Ranking]]()
    for name, have, question in sorted(asked, key=lambda one: measured and not one[1].own):
        if found and measured and not have.own:
            break
        keep = max(FEWEST, WEIGHED // len(question.nodes))
        here = replace(question, share=share, keep=keep, apart=False, effort=effort)
        here = replace(here, has=_has(have)) if measured else _unmeasured(here)
        ranking = search(here, lambda part: advance(part / len(questions)))
        if some := weighed(request, name, ranking):
            found.append((some, ranking))
    return found


def _one_new(request: Request, every: Prospects, share: Ratio, least: Ratio) -> Prospects:
    """Of what nobody measured no more than is needed: what has something new on one axis alone, where that fits as surely."""
    trainer = every.prospects[0].trainer
    have, question = known(request, trainer), question_of(request, framework(trainer or ANY))
    keep = max(FEWEST, WEIGHED // len(question.nodes))
    asked = replace(question, share=share, keep=keep, apart=False, effort=Effort(ASIDE))
    found = []
    for new in AXES:
        try:
            ranking = search(replace(asked, has=_has(have, new)))
        except TooLarge:
            return every
        some = [one for one in weighed(request, trainer, ranking) if one.unmeasured and one.fits >= least]
        found += [(one, ranking) for one in some]
    if not found:
        return every
    found.sort(key=lambda pair: by_expected(pair[0]))
    return replace(every, ranking=found[0][1], prospects=tuple(one for one, _ in found))


def beyond(request: Request, best: Prospect, step: Seconds) -> list[Prospect]:
    """What has features that no run has, and is faster than a step by the estimates; best first."""
    if not request.odds or best.unmeasured:
        return []
    question = question_of(request, framework(best.trainer or ANY), (best.candidate.nodes,))
    share = _share(request, 1.0 - request.risk)
    asked = replace(question, share=share, below=float(step) / float(request.learned))
    ranking = aside(_unmeasured(asked))
    some = [] if ranking is None else weighed(request, best.trainer, ranking)
    return sorted((one for one in some if one.unmeasured), key=by_expected)


def supported(request: Request, trainer: str, nodes: int, share: Ratio = 1.0) -> list[Prospect]:
    """What runs have, in a share of a device's memory, for a trainer on some nodes; best first."""
    question = question_of(request, framework(trainer or ANY), (nodes,))
    asked = replace(question, share=share, keep=WEIGHED, apart=False, has=_has(known(request, trainer)))
    ranking = aside(asked)
    return [] if ranking is None else weighed(request, trainer, ranking)


def aside(asked: SearchQuestion) -> Ranking | None:
    """What a search beside the answer finds; None where it would take more than what is said beside an answer may."""
    try:
        return search(replace(asked, effort=Effort(ASIDE)))
    except TooLarge:
        return None


def _places(request: Request) -> Iterator[tuple[bool, Ratio, bool]]:
    """Where to look: whether among what was measured alone, in how much of the memory, and whether it has to fit surely."""
    for measured in (False,) if _lifted(request) else (True, False):
        yield measured, _share(request, 1.0 - request.risk), True
        yield measured, _share(request, 1.0 - TIGHTER * request.risk), True
        yield measured, 1.0 / request.memory.ratio, False


def _share(request: Request, chance: Ratio) -> Ratio:
    """Of the memory that a layout may take, how much fits with a chance: by the plainest layout's band. [1]"""
    problem = request.problems[0]
    plain = Strategy(dp=problem.cluster.gpus)
    at = coordinates(problem.workload, problem.cluster, plain)
    scale = float(seen_of(replace(request, tried=()), (at,)).scales["memory"][0])
    sure = math.exp(-scale * scales_for(float(chance))) * space_of(problem)
    return min(1.0, sure / float(room(problem.cluster))) / request.memory.ratio


def _questions(request: Request) -> Iterator[tuple[Framework, SearchQuestion]]:
    """The search for the trainer that is named, else for each that has the model's blocks, and for what has to be built if allowed."""
    if request.framework != ANY:
        trainer = framework(request.framework)
        yield trainer, question_of(request, trainer)
        return
    for name in frameworks():
        try:
            trainer = framework(name)
            question = question_of(request, trainer)
        except InputError:
            continue
        if name != ANY or Rejection.NOT_MEASURED in question.lifted:
            yield trainer, question


def _named(trainer: Framework) -> str:
    """The trainer's name; empty where it is whatever somebody builds."""
    return "" if trainer.name == ANY else trainer.name


def _lifted(request: Request) -> bool:
    """Whether what nobody measured may be chosen."""
    return Rejection.NOT_MEASURED.value in request.lifted


def _has(have: Support, new: Axis | None = None) -> Callable[[Axis, Any], bool]:
    """Values that some run has, and all of one axis."""
    return lambda axis, value: axis is new or not have.unmeasured(words_of(axis.chosen(value)))


def _unmeasured(question: SearchQuestion) -> SearchQuestion:
    return replace(question, lifted=question.lifted | {Rejection.NOT_MEASURED})
