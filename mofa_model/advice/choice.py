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
    every = [one for group in candidate_groups for one in group]
    exact = iter(
        priced_together([(one.candidate.problem, one.candidate.strategy) for one in every])
    )
    found = [[replace(one, priced=next(exact)) for one in group] for group in candidate_groups]
    return [tuple(sorted(group, key=by_expected)) for group in found]


def chosen(results: Sequence[TrainerResult]) -> list[TrainerResult]:
    """The results of trainers with their finalists and the first choice of each."""
    groups = replayed([list(_few(one)) for one in results])
    return [
        replace(result, finalists=finalists, first=_first(result, finalists))
        for result, finalists in zip(results, groups, strict=True)
    ]


def _first(result: TrainerResult, finalists: Sequence[WeighedCandidate]) -> WeighedCandidate:
    request = result.request
    if not request.odds:
        return finalists[0]
    seen = odds_of(request.runs, [one.coordinates for one in finalists], request.tried)
    expected = np.array([one.expected for one in finalists])
    first = simplest(seen, expected, np.array([one.complexity for one in finalists]))
    if (runs := running(request, finalists)) is not None:
        compared = np.array([_compared(request, one) for one in finalists])
        now = finalists.index(runs)
        if seen.beats(first, compared)[now] < KEPT:
            return runs
    return finalists[first]


def running(request: Request, candidates: Iterable[WeighedCandidate]) -> WeighedCandidate | None:
    """Today's layout among some candidates; None where it is not there."""
    return next((one for one in candidates if one.candidate.strategy == request.current), None)


def _compared(request: Request, one: WeighedCandidate) -> float:
    """The time of a layout in the comparison with today's: without the risk of memory, where
    today's runs.
    """
    return one.pace if request.current_runs else one.expected


def better_by_chance(request: Request, other: WeighedCandidate, today: WeighedCandidate) -> Ratio:
    """Chance that another layout is better than today's, by what the rule compares. [1]"""
    seen = odds_of(request.runs, (other.coordinates, today.coordinates), request.tried)
    compared = np.array([_compared(request, one) for one in (other, today)])
    return float(seen.beats(0, compared)[1])


def keep_words(request: Request, finalists: Sequence[WeighedCandidate]) -> str:
    """The sentence that today's layout is kept, with the chance that the best other one
    is better.
    """
    now = running(request, finalists)
    others = [one for one in finalists if one is not now]
    keep = kept_words(request)
    if now is None or not others:
        return f"{keep}: nothing else fits"
    chance = better_by_chance(request, others[0], now)
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
    wanted = {next((one.candidate.index for one in candidates if one.sure), None)}
    wanted.add(next((one.candidate.index for one in candidates if one.unmeasured), None))
    most = max(FINALISTS, int(result.request.top) + 1)
    for one in candidates:
        s = one.candidate.strategy
        layout = (s.tp, s.pp, s.cp, s.dp, s.ep, s.etp, s.schedule, s.context_mode)
        kind = frozenset(one.coordinates.layout) - {"mbs"}
        # A replay changes step times a little: a simpler layout up to SPAN slower may be as fast
        # after it.
        simpler = one.complexity < least and one.expected <= candidates[0].expected * (1.0 + SPAN)
        fresh = (layout not in layouts and len(layouts) < most) or (
            kind not in kinds and len(kinds) < most
        )
        is_known = one.ran or s == result.request.current
        if fresh or simpler or is_known or one.candidate.index in wanted:
            few[one.nodes, one.candidate.index] = one
            least = min(least, one.complexity)
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
    found = [*question_doubts(request)]
    if keeps(odds.beats):
        found.insert(
            0,
            f"{kept_words(request)}: the first choice is better with a probability of "
            f"{in_percent(odds.beats or 0.0)}",
        )
    found += filter(None, (host,))
    if odds.fits < SURELY:
        found.append(f"it fits with a probability of {in_percent(odds.fits)} only")
    if unmeasured:
        found.append(f"no measured run has {', '.join(unmeasured)}")
    elif not own:
        found.append(rests_on.evidence)
    found += request.caveats
    if sure <= DOUBTED and not found:
        found.append(f"bands near it hold with a probability of {in_percent(sure)} only")
    return tuple(found)


def kept_words(request: Request) -> str:
    """The beginning of the sentence that a layout is kept."""
    return f"keep what you {'run' if request.current_runs else 'wrote'}"


def keeps(beats: Ratio | None) -> bool:
    """Whether today's layout is kept, by the chance that the first choice is better."""
    return beats is not None and float(beats) < KEPT


def question_doubts(request: Request) -> tuple[str, ...]:
    """Doubts about the question itself."""
    return tuple(filter(None, (doubt_of(request.problems[0].workload.training),)))
