"""Odds: whether a layout fits a device, and whether it is faster than another one.

A band says where the error of one layout lies. Of two layouts of one question most of the error is the same: the same model, device
and software. So what they share cancels, and the further apart they are (`coordinates`), the less they share:

    correlation of two errors    2 ** (-PARTING * distance)
    P(value <= bound)            chance(log(bound / estimate) / scale)

The law is Student's with three degrees of freedom: one run in twenty is far off, which a normal law never expects. Its scale is the
band's, so that a band holds the share that it is made to hold. `mofa validate odds` says how true the odds are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.bands.band import halves_of
from mofa_model.bands.coordinates import Coordinates, apart
from mofa_model.bands.table import QUANTITIES, MeasuredRuns, coded

Array = NDArray[np.floating[Any]]

PARTING: Final = 3.0
"""Halvings of what two layouts share, for one halving of what a run says of another: pairs of left-out runs say so. [1]"""
END: Final = 1.6377
"""Scales from the middle to the end of a band: where Student's law with three degrees of freedom has 0.9. [1]"""


def chance(scales: Array | float) -> Array:
    """Share of errors below so many scales. Source: Student's t with three degrees of freedom. [1]

    >>> round(float(chance(END)), 4), float(chance(0.0))
    (0.9, 0.5)
    """
    x = np.asarray(scales, dtype=float) / math.sqrt(3.0)
    found: Array = 0.5 + (x / (1.0 + x * x) + np.arctan(x)) / math.pi
    return found


def scales_for(share: float) -> float:
    """Scales below which a share of errors is: the inverse of `chance`. [1]

    >>> round(scales_for(0.9), 3)
    1.638
    """
    low, high = -1e3, 1e3
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if float(chance(middle)) < share else (low, middle)
    return high


@dataclass(frozen=True, slots=True)
class LayoutOdds:
    """What measured runs say of some layouts of one question."""

    layouts: tuple[Coordinates, ...]
    """Where they stand."""
    scales: dict[str, Array]
    """Scale of the logarithm of measured over predicted, by quantity. [1]"""

    def below(self, quantity: str, ratio: Array | float) -> Array:
        """Chance that a measured value is at most so many times its estimate. [1]"""
        with np.errstate(divide="ignore"):
            return chance(np.log(ratio) / self.scales[quantity])

    def beats(self, one: int, pace: Array) -> Array:
        """Chance that a layout is faster than each of all, by their estimated paces; against itself a half. [1]"""
        mine, others = self.scales["step"][one], self.scales["step"]
        shared = np.exp2(-PARTING * self._apart(one))
        spread = np.sqrt(np.maximum(mine**2 + others**2 - 2.0 * shared * mine * others, 0.0))
        return chance(np.log(pace / pace[one]) / np.maximum(spread, 1e-9))

    def _apart(self, one: int) -> Array:
        """How far each layout is from one of them, in halvings. [1]"""
        names = {name for layout in self.layouts for name in layout.layout} | {"gpus", "format"}
        found = np.zeros(len(self.layouts))
        for name in sorted(names):
            words, which = coded(layout.word(name) for layout in self.layouts)
            found += np.array([apart(name, words[which[one]], word) for word in words])[which]
        return found


def odds_of(runs: MeasuredRuns, layouts: Sequence[Coordinates]) -> LayoutOdds:
    """What measured runs say of some layouts."""
    far = runs.distances(layouts)
    scales = {name: halves_of(runs, layouts, far, name) / END for name in QUANTITIES}
    return LayoutOdds(tuple(layouts), scales)
