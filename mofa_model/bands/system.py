"""One factor on the step times of a system, from its measured runs; the advisor and the operator
both use it.

A system is a stack on a chip. Its factor differs from the shipped constants as those of systems
do, and each of its runs differs from that factor as layouts of one system do:

    θ ~ Normal(0, SYSTEMS²)        x ~ Normal(θ, RUNS² / w)
    θ̂ = Σ w x / (Σ w + k)          k = (RUNS / SYSTEMS)²

Both spreads are those of systems that a fit did not see (docs/validation.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from mofa_model.units import Range

SYSTEMS: Final = 0.11
"""Standard deviation of the logarithm of systems' factors. Ours. [1]"""
RUNS: Final = 0.07
"""Standard deviation of the logarithm of a run over its system's factor. Ours. [1]"""
MEMORY_SYSTEMS: Final = 0.15
"""SYSTEMS for peak memory: six unseen systems were 0 to 0.56 off, in the median 0.14. Ours. [1]"""
MEMORY_RUNS: Final = 0.08
"""RUNS for peak memory: 0.09 for the one system with hundreds of layouts. Ours. [1]"""
EIGHTY: Final = 1.2815515655446004
"""Standard deviations that hold 80 % on both sides of the mean. [1]"""


def system_factor(
    logs: Sequence[float],
    weights: Sequence[float] = (),
    *,
    scatter: float = RUNS,
    systems: float = SYSTEMS,
) -> Range:
    """Expected ratio of observed to predicted step time of a system's next run, with its 80 %
    bounds. [1]

    `logs` are the logarithms of this ratio in past runs, `weights` their weights. One run that
    takes 1.25 times as long moves the factor most of the way, three runs nearly all of it.

    >>> [round(system_factor([math.log(1.25)] * runs).target, 3) for runs in (1, 3)]
    [1.172, 1.217]
    """
    run_weights = list(weights) or [1.0] * len(logs)
    total = sum(run_weights)
    prior_weight = (scatter / systems) ** 2
    centre = sum(weight * log for weight, log in zip(run_weights, logs, strict=True)) / (
        total + prior_weight
    )
    spread = EIGHTY * scatter / math.sqrt(total + prior_weight)
    return Range(
        lower=math.exp(centre - spread), target=math.exp(centre), upper=math.exp(centre + spread)
    )
