"""The rule of the choice: of all that the best candidate cannot be told apart from, the simplest.

    best       least expected objective, replayed, with what memory may cost
    apart      two candidates are told apart by a chance of DECIDED that one is faster, or by WORTH
    first      of those not told apart from the best, the least complex one (`bands.evidence`)
    keep       what runs today, unless the first is better with a chance of one half at least; one
               that is only planned, with what memory may cost it

So a feature stands in the answer only where it is worth something, and what two layouts share
decides nothing.

What is chosen gets a status: Recommended where there is no doubt, else LowConfidence, with its
doubts, what matters most first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.advice.answer import Odds, Status
from mofa_model.advice.candidates import SURELY, TrainerResult, WeighedCandidate, by_expected
from mofa_model.advice.predictions import priced_together
from mofa_model.advice.request import Request
from mofa_model.bands.evidence import Basis
from mofa_model.bands.odds import LayoutOdds, in_percent, odds_of
from mofa_model.spec.training import doubt_of
from mofa_model.units import Ratio

Array = NDArray[np.floating[Any]]

FINALISTS: Final = 8
"""Layouts that are replayed at least."""
DECIDED: Final = 0.75
"""Chance of being faster from which two layouts are told apart. [1]"""
WORTH: Final = 0.01
"""Gain from which a feature is worth its complexity, whatever its odds. Ours. [1]"""
SPAN: Final = 0.03
"""Gain up to which a simpler layout is replayed: WORTH, and what a replay may change. [1]"""
KEPT: Final = 0.5
"""Chance of being better than today's layout below which that one is kept. [1]"""
DOUBTED: Final = 0.4
"""Greatest confidence where an input is in doubt, such as nodes not ready. Ours. [1]"""


def replayed(
    candidate_groups: Sequence[Sequence[WeighedCandidate]],
) -> list[tuple[WeighedCandidate, ...]]:
    """Each group with exact step times, best first. All groups are replayed together."""
    candidates = [candidate for group in candidate_groups for candidate in group]
    exact = iter(priced_together([(c.problem, c.strategy) for c in candidates]))
    return [
        tuple(sorted((replace(c, priced=next(exact)) for c in group), key=by_expected))
        for group in candidate_groups
    ]


def chosen(results: Sequence[TrainerResult]) -> list[TrainerResult]:
    """The results of trainers with their finalists and the first choice of each."""
    groups = replayed([list(_few(result)) for result in results])
    return [
        replace(result, finalists=finalists, first=_first(result, finalists))
        for result, finalists in zip(results, groups, strict=True)
    ]


def _first(result: TrainerResult, finalists: Sequence[WeighedCandidate]) -> WeighedCandidate:
    request = result.request
    if not request.odds:
        return finalists[0]
    odds = odds_of(request.runs, [finalist.coordinates for finalist in finalists], request.tried)
    expected = np.array([finalist.expected for finalist in finalists])
    first = simplest(odds, expected, np.array([finalist.complexity for finalist in finalists]))
    if (layout_of_today := running(request, finalists)) is not None:
        compared = np.array([_compared(request, finalist) for finalist in finalists])
        if odds.beats(first, compared)[finalists.index(layout_of_today)] < KEPT:
            return layout_of_today
    return finalists[first]


def running(request: Request, candidates: Iterable[WeighedCandidate]) -> WeighedCandidate | None:
    """Today's layout among some candidates; None where it is not there."""
    return next(
        (candidate for candidate in candidates if candidate.strategy == request.current),
        None,
    )


def _compared(request: Request, candidate: WeighedCandidate) -> float:
    """The time of a layout in the comparison with today's: without the risk of memory, where
    today's runs.
    """
    return candidate.pace if request.current_runs else candidate.expected


def better_by_chance(request: Request, other: WeighedCandidate, today: WeighedCandidate) -> Ratio:
    """Chance that another layout is better than today's, by what the rule compares. [1]"""
    odds = odds_of(request.runs, (other.coordinates, today.coordinates), request.tried)
    compared = np.array([_compared(request, candidate) for candidate in (other, today)])
    return float(odds.beats(0, compared)[1])


def keep_words(request: Request, finalists: Sequence[WeighedCandidate]) -> str:
    """The sentence that today's layout is kept, with the chance that the best other one
    is better.
    """
    layout_of_today = running(request, finalists)
    others = [finalist for finalist in finalists if finalist is not layout_of_today]
    keep = kept_words(request)
    if layout_of_today is None or not others:
        return f"{keep}: nothing else fits"
    chance = better_by_chance(request, others[0], layout_of_today)
    better = f"the best other layout is better with a probability of {in_percent(chance)}"
    return f"{keep}: {better}"


def simplest(odds: LayoutOdds, expected: Array, complexity: Array) -> int:
    """Index of the simplest layout that is not told apart from the best one."""
    best = int(np.argmin(expected))
    alike = (odds.beats(best, expected) < DECIDED) & (expected < expected[best] * (1.0 + WORTH))
    alike[best] = True
    places = np.flatnonzero(alike)
    return int(places[np.lexsort((expected[places], np.round(complexity[places], 6)))[0]])


def _few(result: TrainerResult) -> Iterable[WeighedCandidate]:
    """Candidates to replay: the best, simpler ones nearly as good, the best of each kind."""
    candidates = result.candidates
    few: dict[tuple[int, int], WeighedCandidate] = {}
    layouts, kinds, least = set[object](), set[object](), np.inf
    wanted = {next((candidate.index for candidate in candidates if candidate.sure), None)}
    wanted.add(next((candidate.index for candidate in candidates if candidate.unmeasured), None))
    most = max(FINALISTS, int(result.request.top) + 1)
    for candidate in candidates:
        s = candidate.strategy
        layout = (s.tp, s.pp, s.cp, s.dp, s.ep, s.etp, s.schedule, s.context_mode)
        kind = frozenset(candidate.coordinates.layout) - {"mbs"}
        # A replay changes step times a little: a simpler layout up to SPAN slower may be as fast
        # after it.
        simpler = candidate.complexity < least and candidate.expected <= candidates[0].expected * (
            1.0 + SPAN
        )
        fresh = (layout not in layouts and len(layouts) < most) or (
            kind not in kinds and len(kinds) < most
        )
        is_known = candidate.ran or s == result.request.current
        if fresh or simpler or is_known or candidate.index in wanted:
            few[candidate.nodes, candidate.index] = candidate
            least = min(least, candidate.complexity)
        layouts.add(layout)
        kinds.add(kind)
    return few.values()


def confidence(request: Request, measured_basis: Basis) -> Ratio:
    """Probability that the bounds hold. [1]"""
    return min(measured_basis.confidence, DOUBTED) if request.caveats else measured_basis.confidence


def status_of(doubts: tuple[str, ...]) -> Status:
    """The status of an answer with these doubts."""
    return Status.LOW_CONFIDENCE if doubts else Status.RECOMMENDED


def doubts_of(
    request: Request,
    *,
    odds: Odds,
    unmeasured: tuple[str, ...],
    rests_on: Basis,
    own: bool,
    sure: Ratio,
    host: str = "",
) -> tuple[str, ...]:
    """Reasons against a layout as an answer, one sentence each.

    `host` says that it needs main memory of which nobody spoke.

    `unmeasured` are its features that no run has, `own` says whether runs of its stack or a
    relative count, `sure` is the chance that its bounds hold.
    """
    doubts = [*question_doubts(request)]
    if keeps(odds.beats):
        doubts.insert(
            0,
            f"{kept_words(request)}: the first choice is better with a probability of "
            f"{in_percent(odds.beats or 0.0)}",
        )
    doubts += filter(None, (host,))
    if odds.fits < SURELY:
        doubts.append(f"it fits with a probability of {in_percent(odds.fits)} only")
    if unmeasured:
        doubts.append(f"no measured run has {', '.join(unmeasured)}")
    elif not own:
        doubts.append(rests_on.evidence)
    doubts += request.caveats
    if sure <= DOUBTED and not doubts:
        doubts.append(f"bands near it hold with a probability of {in_percent(sure)} only")
    return tuple(doubts)


def kept_words(request: Request) -> str:
    """The beginning of the sentence that a layout is kept."""
    return f"keep what you {'run' if request.current_runs else 'wrote'}"


def keeps(beats: Ratio | None) -> bool:
    """Whether today's layout is kept, by the chance that the first choice is better."""
    return beats is not None and float(beats) < KEPT


def question_doubts(request: Request) -> tuple[str, ...]:
    """Doubts about the question itself."""
    return tuple(filter(None, (doubt_of(request.problems[0].workload.training),)))
