"""What an answer is worth, and what its first line says beside that: one decision for the command, Python, manifests and pages.

    Recommended       nothing speaks against it
    LowConfidence     something does: the doubts name it, what matters most first

Today's layout is kept unless the first choice is better with a chance of one half or more.
"""

from __future__ import annotations

from typing import Final

from mofa_model.advice.answer import Odds, Status
from mofa_model.advice.request import Request
from mofa_model.bands import Basis, in_percent
from mofa_model.spec.training import doubt_of
from mofa_model.units import Ratio

KEPT: Final = 0.5
"""Chance of being better than today's layout below which that one is kept. [1]"""
SURELY: Final = 0.9
"""Chance of fitting below which an answer is LowConfidence. [1]"""
DOUBTED: Final = 0.4
"""Confidence where something that was given is itself in doubt, as nodes that are not ready. Ours. [1]"""


def status_of(doubts: tuple[str, ...]) -> Status:
    """What an answer is worth, of which this is doubted."""
    return Status.LOW_CONFIDENCE if doubts else Status.RECOMMENDED


def is_sure(fits: Ratio, unmeasured: tuple[str, ...], *, own: bool) -> bool:
    """Whether a layout surely fits, and measured runs of its stack have all of its features: else it has a doubt."""
    return float(fits) >= SURELY and not unmeasured and own


def doubts_of(
    request: Request,
    *,
    odds: Odds,
    unmeasured: tuple[str, ...],
    rests: Basis,
    own: bool,
    sure: Ratio,
) -> tuple[str, ...]:
    """What speaks against a layout as an answer, one sentence each; none where nothing does.

    `unmeasured` are its features that no run has, `own` says whether runs of its stack or a relative count, `sure` is the chance
    that its bands hold.
    """
    found = [*asked_amiss(request)]
    if keeps(odds.beats):
        found.insert(
            0,
            f"keep what you run: the first choice is better with a probability of {in_percent(odds.beats or 0.0)}",
        )
    if odds.fits < SURELY:
        found.append(f"it fits with a probability of {in_percent(odds.fits)} only")
    if unmeasured:
        found.append(f"no measured run has {', '.join(unmeasured)}")
    elif not own:
        found.append(rests.evidence)
    found += request.caveats
    if sure <= DOUBTED and not found:
        found.append(f"bands near it hold with a probability of {in_percent(sure)} only")
    return tuple(found)


def keeps(beats: Ratio | None) -> bool:
    """Whether today's layout is kept, which the first choice is better than with this chance; None = there is none."""
    return beats is not None and float(beats) < KEPT


def asked_amiss(request: Request) -> tuple[str, ...]:
    """What of the question itself is doubted, whatever is answered."""
    return tuple(filter(None, (doubt_of(request.problems[0].workload.training),)))
