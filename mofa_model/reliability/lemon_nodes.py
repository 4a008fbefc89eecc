"""Lemons: nodes that almost surely fail more often than the others of their pool."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.reliability.special import gamma_above

SURE: Final = 0.9
"""Chance from which on a node is called a lemon. [1]"""


def prior(failures: NDArray[Any], exposure: NDArray[Any]) -> tuple[float, float]:
    """Gamma law of the failure rates of a pool's nodes, from the moments of their failures. Source:
    empirical Bayes. [1, d]

    Where nodes differ no more than by chance, all have the same rate.

    >>> shape, scale = prior(np.array([0.0, 0.0, 1.0, 9.0]), np.full(4, 100.0))
    >>> round(float(shape), 2), round(float(scale), 1)
    (0.53, 21.3)
    """
    mean = max(failures.sum(), 0.5) / exposure.sum()
    expected = mean * exposure
    excess = ((failures - expected) ** 2 - expected).sum() / (exposure**2).sum()
    if excess <= 0:
        return 1e6, 1e6 / mean
    shape = min(mean**2 / excess, 1e6)
    return shape, shape / mean


def clustering(failures: NDArray[Any]) -> float:
    """Variance over mean of the failures of a node in a span, from an array of nodes by spans.
    Ours. [1]

    A repair that does not hold makes several failures out of one. Then a node's past failures say
    less about its next ones.

    >>> round(clustering(np.array([[3.0, 0.0, 0.0], [1.0, 0.0, 1.0]])), 2)
    2.0
    """
    repeated = failures[failures.sum(axis=1) >= 2]
    spans = failures.shape[1]
    if not len(repeated) or spans < 2:
        return 1.0
    mean = repeated.mean(axis=1, keepdims=True)
    return max(1.0, float(((repeated - mean) ** 2).sum() / (mean.sum() * (spans - 1))))


def lemons(failures: NDArray[Any], exposure: NDArray[Any]) -> list[int]:
    """Nodes that fail at twice the rate of the others, each with a chance of at least `SURE`. Ours.
    []

    The prior of a node's rate is the pool's. So in a pool whose nodes differ little none is found,
    however often the worst of many nodes failed by chance.

    >>> lemons(np.array([1.0, 0.0, 2.0, 1.0, 1.0, 14.0, 0.0, 1.0]), np.full(8, 100.0))
    [5]
    >>> lemons(np.array([1.0, 0.0, 2.0, 1.0, 4.0, 0.0, 1.0, 3.0]), np.full(8, 100.0))
    []
    """
    if not len(failures) or failures.sum() < 1:
        return []
    shape, scale = prior(failures, exposure)
    usual = (failures.sum() + 0.5) / exposure.sum()
    chosen: list[int] = []
    for _ in range(3):  # each time, the others' rate leaves out the nodes chosen last time
        chance = gamma_above(failures + shape, 2 * usual * (exposure + scale))
        chosen = np.flatnonzero(chance >= SURE).tolist()
        rest = np.delete(np.arange(len(failures)), chosen)
        if not len(rest):
            return []
        usual = (failures[rest].sum() + 0.5) / exposure[rest].sum()
    return chosen
