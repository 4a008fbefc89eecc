"""How sure an estimate is: the band in which a measured value is expected, the chance that a layout
fits, and the chance that it is faster than another one.

The variance of a step's error is a sum of parts that depend on the measured runs (`variance`). Its
root is the scale of the step's band:

    band                         estimate * exp(+- END * scale)
    P(value <= bound)            chance(log(bound / estimate) / scale)
    correlation of noise         2 ** (-PARTING * distance)

The law is Student's with three degrees of freedom, because one run in twenty is far off, which a
normal law never expects. Its scale is set so that bands hold the share that they should. Two
layouts of one question have the same system and often go beyond the measured runs in the same way:
these parts of their errors cancel, and so does more of their noise, the nearer they are. `mofa
validate odds` says how true the odds are.

The width of a memory's band depends on the share of the memory that is estimated (`variance`).

A short run of one layout tells its own error, and by the same covariance it tells what to expect of
the errors of the others (kriging):

    expected error    K_r (K_rr + REPEATED^2)^-1 e

where r are the layouts that were run. By then one factor on all steps holds what their system
shares (`bands.system`), so K in this sum is without the system's part; the variance that is left
includes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.bands.coordinates import Coordinates, apart, words_at
from mofa_model.bands.table import QUANTITIES, MeasuredRuns, distinct, positions
from mofa_model.bands.variance import REPEATED as MEMORY_REPEATED
from mofa_model.bands.variance import (
    beyond_scales,
    memory_half_width,
    noise_scales,
    system_scales,
    systems_together,
)
from mofa_model.records import dataclass, varied
from mofa_model.strategy import Strategy
from mofa_model.units import Range, Ratio

Array = NDArray[np.floating[Any]]

SHARE: Final = 0.8
"""Share of runs that a band should hold. [1]"""
PARTING: Final = 3.0
"""Halvings of the correlation of noise for each unit of distance, from pairs of left-out runs. [1]
"""
REPEATED: Final = 0.01
"""Scale of a step's logarithm between short runs of one layout: 0.0085 at seven sites. [1]"""
END: Final = 1.6377
"""Scales from the middle of a band to its end, where Student's law of three degrees is 0.9. [1]"""


def band_of(runs: MeasuredRuns, coordinates: Coordinates, quantity: str) -> Range:
    """The band of a quantity, as factors on its estimate."""
    if quantity == "memory":
        return band_around(float(memory_half_width(coordinates.estimated)))
    return odds_of(runs, (coordinates,)).band(quantity)


def band_around(half: float) -> Range:
    """Factors on an estimate, from half the width of its band as a logarithm."""
    return Range(lower=math.exp(-half), target=1.0, upper=math.exp(half))


def chance(scales: Array | float) -> Array:
    """Chance that an error is below `scales` times its scale. Source: Student's t with three
    degrees of freedom. [1]

    >>> round(float(chance(END)), 4), float(chance(0.0))
    (0.9, 0.5)
    """
    x = np.asarray(scales, dtype=float) / math.sqrt(3.0)
    below: Array = 0.5 + (x / (1.0 + x * x) + np.arctan(x)) / math.pi
    return below


@dataclass(frozen=True, kw_only=True)
class ShortRun:
    """A layout of a question that somebody ran for a few steps."""

    strategy: Strategy
    precision: str
    fitted: bool
    coordinates: Coordinates
    """Its coordinates among measured runs."""
    errors: Mapping[str, float]
    """Logarithm of measured over predicted, for each quantity that was measured. [1]"""


@dataclass(frozen=True)
class LayoutOdds:
    """Expected errors of the layouts of one question, from measured runs and short runs."""

    layouts: tuple[Coordinates, ...]
    steps: Callable[[], Mapping[str, Array]]
    """Scales of the parts of step errors (`_step_scales`), computed at the first call, because
    chances to fit do not need them. [1]"""
    memory_scale: Array
    """Scale of the logarithm of measured over predicted memory, without short runs. [1]"""
    centres: Mapping[str, Array]
    """Logarithm of measured over predicted that is expected after short runs, by quantity. [1]"""
    explained: Mapping[str, Array]
    """Factor of the covariance that short runs explain, by quantity, [runs, layouts]. [1]"""

    def scales(self, quantity: str) -> Array:
        """Scale of the logarithm of measured over predicted before short runs. [1]"""
        return self.steps()["step"] if quantity == "step" else self.memory_scale

    def below(self, quantity: str, ratio: Array | float) -> Array:
        """Chance that a measured value is at most so many times its estimate. [1]"""
        with np.errstate(divide="ignore"):
            return chance(
                (np.log(ratio) - self.centres[quantity])
                / self.scales(quantity)
                / self.left(quantity)
            )

    def beats(self, index: int, pace: Array) -> Array:
        """Chance that one layout is faster than each of all, from expected times (`pace`). [1]"""
        scale, explained = self.scales("step"), self.explained["step"]
        together = self._together("step", [index])[0]
        known_apart = np.square(explained - explained[:, [index]]).sum(axis=0)
        variance = scale[index] ** 2 + scale**2 - 2.0 * together - known_apart
        spread = np.sqrt(np.maximum(variance, 0.0))
        return chance(np.log(pace / pace[index]) / np.maximum(spread, 1e-9))

    def left(self, quantity: str) -> Array:
        """Share of each layout's scale of error that is left after short runs. [1]"""
        explained, scales = self.explained[quantity], self.scales(quantity)
        share = np.square(explained).sum(axis=0) / np.square(scales)
        left: Array = np.sqrt(np.maximum(1.0 - share, 1e-9))
        return left

    def band(self, quantity: str) -> Range:
        """The band of the first layout, as factors on its expected value."""
        return band_around(END * float(self.scales(quantity)[0] * self.left(quantity)[0]))

    def covariance(self, quantity: str) -> Array:
        """Covariance of the errors of all layouts after short runs, [layouts, layouts]. [1]"""
        explained, rows = self.explained[quantity], range(len(self.layouts))
        covariance: Array = self._together(quantity, rows) - explained.T @ explained
        return covariance

    def memory_taught(self, centre: float, half: float) -> LayoutOdds:
        """The odds with the band of memory that running jobs taught: its centre, its half width.
        [1]
        """
        centres = {**self.centres, "memory": self.centres["memory"] + centre}
        scale = np.minimum(self.memory_scale, half / END)
        return varied(self, memory_scale=scale, centres=centres)

    def subset(self, indices: Sequence[int] | NDArray[np.intp]) -> LayoutOdds:
        """The odds of the layouts at some positions."""
        positions = np.asarray(indices, dtype=int)
        centres, explained = (
            {name: values[..., positions] for name, values in column.items()}
            for column in (self.centres, self.explained)
        )
        return LayoutOdds(
            layouts=tuple(self.layouts[position] for position in positions),
            steps=cache(lambda: {name: part[positions] for name, part in self.steps().items()}),
            memory_scale=self.memory_scale[positions],
            centres=centres,
            explained=explained,
        )

    def after(self, errors: Mapping[str, Mapping[int, float]]) -> LayoutOdds:
        """The odds after short runs; `errors` are logarithms by quantity and layout."""
        centres, explained = dict(self.centres), dict(self.explained)
        for name, measured in errors.items():
            repeated = REPEATED if name == "step" else MEMORY_REPEATED
            picked, repeats = list(measured), repeated**2 * np.eye(len(measured))
            without_system, covariance = self._alone(name, picked), self._together(name, picked)
            centres[name] = without_system.T @ np.linalg.solve(
                without_system[:, picked] + repeats, np.array(list(measured.values()))
            )
            explained[name] = np.linalg.solve(
                np.linalg.cholesky(covariance[:, picked] + repeats), covariance
            )
        return varied(self, centres=centres, explained=explained)

    def _together(self, quantity: str, rows: Sequence[int]) -> Array:
        """Covariance of the errors of some layouts with those of all, [rows, layouts]. [1]"""
        alone = self._alone(quantity, rows)
        if quantity != "step":
            return alone
        return alone + systems_together(self.layouts, rows, self.steps()["systems"])

    def _alone(self, quantity: str, rows: Sequence[int]) -> Array:
        """The same covariance without the part of their system, [rows, layouts]. [1]"""
        shared, picked = self._shared(rows), list(rows)
        if quantity == "step":
            beyond, noise = self.steps()["beyond"], self.steps()["noise"]
            covariance: Array = beyond[picked] @ beyond.T + shared * noise[picked][:, None] * noise
            return covariance
        return shared * self.memory_scale[picked][:, None] * self.memory_scale

    def _shared(self, rows: Sequence[int]) -> Array:
        """Correlation of the noise of some layouts with that of all, [rows, layouts]. [1]"""
        names = {"stack", "gpus", "format"}.union(*(layout.layout for layout in self.layouts))
        distances = np.zeros((len(rows), len(self.layouts)))
        for name in sorted(names):
            texts = words_at(self.layouts, name)
            words = distinct(texts)
            if len(words) == 1:
                continue
            word_of_layout = positions(texts, words)
            words_used, word_of_row = np.unique(word_of_layout[list(rows)], return_inverse=True)
            costs = np.array(
                [[apart(name, words[used], word) for word in words] for used in words_used]
            )
            distances += costs[word_of_row][:, word_of_layout]
        return np.exp2(-PARTING * distances)


def _step_scales(runs: MeasuredRuns, layouts: Sequence[Coordinates]) -> Mapping[str, Array]:
    """Scales of the parts of each layout's step error, and of the whole error (`step`). [1]

    The parts are those of its system; of each way in which it goes beyond the measured runs,
    [layouts, ways]; and of its own noise.
    """
    systems, beyond = system_scales(runs, layouts), beyond_scales(runs, layouts)
    noise = noise_scales(layouts)
    step = np.sqrt(np.square(systems) + np.square(beyond).sum(axis=1) + np.square(noise))
    return {"systems": systems, "beyond": beyond, "noise": noise, "step": step}


def odds_of(
    runs: MeasuredRuns, layouts: Sequence[Coordinates], tried: Sequence[ShortRun] = ()
) -> LayoutOdds:
    """The odds of some layouts, from measured runs, and from short runs (`tried`) of the same
    question.
    """
    coordinates = (*layouts, *(run.coordinates for run in tried))
    odds = LayoutOdds(
        layouts=coordinates,
        steps=cache(partial(_step_scales, runs, coordinates)),
        memory_scale=memory_half_width(np.array([layout.estimated for layout in coordinates]))
        / END,
        centres={name: np.zeros(len(coordinates)) for name in QUANTITIES},
        explained={name: np.zeros((0, len(coordinates))) for name in QUANTITIES},
    )
    if not tried:
        return odds
    numbered = list(enumerate(tried, start=len(layouts)))
    errors = {
        name: {index: run.errors[name] for index, run in numbered if name in run.errors}
        for name in QUANTITIES
    }
    return odds.after({name: measured for name, measured in errors.items() if measured}).subset(
        range(len(layouts))
    )


def in_percent(chance: Ratio) -> str:
    """A chance in whole percent; never 0 % or 100 %.

    >>> in_percent(0.9997), in_percent(0.52)
    ('>99 %', '52 %')
    """
    percent = round(100 * float(chance))
    return ">99 %" if percent > 99 else "<1 %" if percent < 1 else f"{percent} %"
