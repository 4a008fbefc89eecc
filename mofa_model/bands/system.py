"""What runs of one system say together of the time of a step: one factor, for the desk and for the
operator alike.

A system is a stack on a chip. It lies as far from the shipped constants as systems do, and each of
its runs as far from its own factor as layouts of one system do:

    θ ~ Normal(0, SYSTEMS²)        x ~ Normal(θ, RUNS² / w)
    θ̂ = Σ w x / (Σ w + k)          k = (RUNS / SYSTEMS)²

Both spreads are of runs of systems that a fit did not see (docs/validation.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from mofa_model.units import Range

SYSTEMS: Final = 0.11
"""Standard deviation of systems' logarithms from the shipped constants. Ours. [1]"""
RUNS: Final = 0.07
"""How far runs of one system lie from its factor, likewise. Ours. [1]"""
MEMORY_SYSTEMS: Final = 0.15
"""SYSTEMS of peak memory: six unseen systems were 0 to 0.56 off, median 0.14. Ours. [1]"""
MEMORY_RUNS: Final = 0.08
"""RUNS of peak memory: 0.09 for the one system with hundreds of layouts. Ours. [1]"""
EIGHTY: Final = 1.2815515655446004
"""Standard deviations that hold 80 % on both sides of the mean. [1]"""


def system_factor(
    logs: Sequence[float],
    weights: Sequence[float] = (),
    *,
    scatter: float = RUNS,
    systems: float = SYSTEMS,
) -> Range:
    """Observed over predicted step time that is expected of a system's next run, with its 80 %
    bounds. [1]

    `logs` are the runs' logarithms of it; `weights` say how much each counts.

    One run that takes 1.25 times as long moves most of the way, three nearly all of it.

    >>> [round(system_factor([math.log(1.25)] * runs).target, 3) for runs in (1, 3)]
    [1.172, 1.217]
    """
    counted = list(weights) or [1.0] * len(logs)
    known = sum(counted)
    against = (scatter / systems) ** 2
    centre = sum(w * x for w, x in zip(counted, logs, strict=True)) / (known + against)
    spread = EIGHTY * scatter / math.sqrt(known + against)
    return Range(
        lower=math.exp(centre - spread), target=math.exp(centre), upper=math.exp(centre + spread)
    )
