"""What runs of one system say together of the time of a step: one factor, for the desk and for the operator alike.

A system is a stack on a chip. It lies as far from the shipped constants as systems do, and each of its runs as far from its own
factor as layouts of one system do:

    θ ~ Normal(0, SYSTEMS²)        x ~ Normal(θ, RUNS² / w)        θ̂ = Σ w x / (Σ w + k),   k = (RUNS / SYSTEMS)²

Both spreads are of runs of systems that a fit did not see (docs/validation.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

SYSTEMS: Final = 0.11
"""How far a system is expected from the shipped constants, as a standard deviation of the logarithm. Ours. [1]"""
RUNS: Final = 0.07
"""How far runs of one system lie from its factor, likewise. Ours. [1]"""
MEMORY_SYSTEMS: Final = 0.15
"""The same as SYSTEMS of peak device memory: six systems that a fit did not see were 0 to 0.56 off, their median 0.14. Ours. [1]"""
MEMORY_RUNS: Final = 0.08
"""The same as RUNS of peak device memory: 0.09 of the one system with hundreds of layouts, less of the others. Ours. [1]"""
EIGHTY: Final = 1.2815515655446004
"""Standard deviations that hold 80 % on both sides of the mean. [1]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class SystemFactor:
    """Observed over predicted step time of a system, as it should be expected of its next run."""

    ratio: float
    """The factor. [1]"""
    lower: float
    """Its lower bound, 80 % together with the upper one. [1]"""
    upper: float
    """Its upper bound. [1]"""


def system_factor(
    logs: Sequence[float],
    weights: Sequence[float] = (),
    *,
    scatter: float = RUNS,
    systems: float = SYSTEMS,
) -> SystemFactor:
    """The factor of runs, each a logarithm of observed over predicted step time; `weights` say how much each counts. [1]

    One run that takes 1.25 times as long moves most of the way, three nearly all of it.

    >>> round(system_factor([math.log(1.25)]).ratio, 3), round(system_factor([math.log(1.25)] * 3).ratio, 3)
    (1.172, 1.217)
    """
    counted = list(weights) or [1.0] * len(logs)
    known = sum(counted)
    against = (scatter / systems) ** 2
    centre = sum(w * x for w, x in zip(counted, logs, strict=True)) / (known + against)
    spread = EIGHTY * scatter / math.sqrt(known + against)
    return SystemFactor(
        ratio=math.exp(centre), lower=math.exp(centre - spread), upper=math.exp(centre + spread)
    )
