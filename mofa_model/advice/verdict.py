"""Status and doubts of an answer: one decision for the command, Python, manifests and pages.

    Recommended       there is no doubt
    LowConfidence     there are doubts, what matters most first

Today's layout is kept unless the first choice is better with a chance of at least one half.
"""

from __future__ import annotations

from typing import Final

from mofa_model.advice.answer import Odds, Status
from mofa_model.advice.request import Request
from mofa_model.bands.evidence import Basis
from mofa_model.bands.odds import in_percent
from mofa_model.spec.training import doubt_of
from mofa_model.units import Ratio

KEPT: Final = 0.5
"""Chance of being better than today's layout below which that one is kept. [1]"""
SURELY: Final = 0.9
"""Chance of fitting below which an answer is LowConfidence. [1]"""
DOUBTED: Final = 0.4
"""Greatest confidence where an input is in doubt, such as nodes not ready. Ours. [1]"""


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
    """What is kept, as a sentence begins."""
    return f"keep what you {'run' if request.current_runs else 'wrote'}"


def keeps(beats: Ratio | None) -> bool:
    """Whether today's layout is kept, by the chance that the first choice is better."""
    return beats is not None and float(beats) < KEPT


def question_doubts(request: Request) -> tuple[str, ...]:
    """Doubts about the question itself."""
    return tuple(filter(None, (doubt_of(request.problems[0].workload.training),)))
