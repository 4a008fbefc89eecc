"""The rule: of what the best one is not told apart from, the simplest.

    best       least expected objective, replayed, memory's share in it
    apart      the best is faster with a chance of DECIDED, or by WORTH
    first      of what is not told apart, the one with the least complexity (`bands.features`)

So a feature stands in the answer only where it is worth something, and what two layouts share decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.advice.finalists import Priced, priced_together
from mofa_model.advice.request import Request
from mofa_model.advice.weighed import Prospect
from mofa_model.bands import Coordinates, LayoutOdds, odds_of
from mofa_model.units import Ratio

Array = NDArray[np.floating[Any]]

FINALISTS: Final = 8
"""Layouts that are replayed at least."""
DECIDED: Final = 0.75
"""Chance of being faster from which two layouts are told apart. [1]"""
WORTH: Final = 0.02
"""Gain from which a feature is worth its complexity, whatever its odds. Ours. [1]"""
SPAN: Final = 0.03
"""Gain up to which a simpler layout is replayed as well: what is worth it, and what the replay may change. [1]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finalist:
    """A replayed prospect."""

    prospect: Prospect
    """What the search said."""
    priced: Priced
    """Every term."""

    @property
    def expected(self) -> float:
        """The objective with the replayed step, and with what memory makes of it; lower is better."""
        return self.prospect.expected * self.priced.step_time / float(self.prospect.candidate.step)

    @property
    def nodes(self) -> int:
        """Nodes. [1]"""
        return self.prospect.candidate.nodes

    @property
    def kind(self) -> tuple[str, ...]:
        """What makes it another kind of layout: what is switched on."""
        on = {key for key, word in self.prospect.at.layout.items() if word != "false"} - {"mbs"}
        return tuple(sorted(on))


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """A layout beside another."""

    at: Coordinates
    """Where it stands among measured runs."""
    pace: float
    """The objective; lower is better."""

    def beats(self, other: Standing, request: Request) -> Ratio:
        """Chance of being better. [1]"""
        seen = odds_of(request.runs, (self.at, other.at), request.tried)
        return float(seen.beats(0, np.array([self.pace, other.pace]))[1])


@dataclass(frozen=True, kw_only=True, slots=True)
class Chosen:
    """What the rule says of some finalists."""

    first: Finalist
    """The first choice."""
    best: Finalist
    """What is most likely best."""
    others: tuple[Finalist, ...]
    """All finalists, best first."""


def replayed(some: Sequence[Prospect]) -> list[Finalist]:
    """Prospects replayed, by what is expected."""
    return _replayed([some])[0]


def _replayed(groups: Sequence[Sequence[Prospect]]) -> list[list[Finalist]]:
    """Candidates of each group with their exact step times, sorted by expected time. Equal schedules are replayed once."""
    full = iter(
        priced_together(
            [(one.candidate.problem, one.candidate.strategy) for some in groups for one in some]
        )
    )
    found = [[Finalist(prospect=one, priced=next(full)) for one in some] for some in groups]
    return [sorted(some, key=_order) for some in found]


def chosen(found: Sequence[tuple[Request, Sequence[Prospect]]]) -> list[Chosen]:
    """The first choice for each trainer, among its prospects, which are sorted by what is expected."""
    groups = _replayed([list(_few(request, some)) for request, some in found])
    return [_chosen(request, some) for (request, _), some in zip(found, groups, strict=True)]


def _chosen(request: Request, found: Sequence[Finalist]) -> Chosen:
    best = found[0]
    if not request.odds:
        return Chosen(first=best, best=best, others=tuple(found))
    seen = odds_of(request.runs, [one.prospect.at for one in found], request.tried)
    expected = np.array([one.expected for one in found])
    first = simplest(seen, expected, np.array([one.prospect.complexity for one in found]))
    return Chosen(first=found[first], best=best, others=tuple(found))


def simplest(seen: LayoutOdds, expected: Array, complexity: Array) -> int:
    """The place of the simplest of what the best one is not told apart from; of equals the better."""
    best = int(np.argmin(expected))
    alike = (seen.beats(best, expected) < DECIDED) & (expected < expected[best] * (1.0 + WORTH))
    alike[best] = True
    places = np.flatnonzero(alike)
    return int(places[np.lexsort((expected[places], np.round(complexity[places], 6)))[0]])


def _few(request: Request, prospects: Sequence[Prospect]) -> Iterable[Prospect]:
    """The candidates worth an exact price: the best, simpler ones that are nearly as good, and the best of each other kind."""
    chosen: dict[tuple[int, int], Prospect] = {}
    layouts, kinds, least = set[object](), set[object](), np.inf
    most = max(FINALISTS, int(request.top) + 1)
    for one in prospects:
        s = one.candidate.strategy
        layout = (s.tp, s.pp, s.cp, s.dp, s.ep, s.etp, s.schedule, s.context_mode)
        kind = tuple(sorted(set(one.at.layout) - {"mbs"}))
        simpler = one.complexity < least and one.expected <= prospects[0].expected * (1.0 + SPAN)
        fresh = (layout not in layouts and len(layouts) < most) or (
            kind not in kinds and len(kinds) < most
        )
        if fresh or simpler:
            chosen[one.candidate.nodes, one.candidate.index] = one
            least = min(least, one.complexity)
        layouts.add(layout)
        kinds.add(kind)
    return chosen.values()


def _order(one: Finalist) -> tuple[float, int, int]:
    return one.expected, one.nodes, one.prospect.candidate.index
