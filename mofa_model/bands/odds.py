"""How sure an estimate is: where a measured value is expected, whether a layout fits, and whether
it is faster than another one.

The variance of a step's error is a sum of parts, by which runs were measured (`variance`). The band
of a step is of that scale:

    band                         estimate * exp(+- END * scale)
    P(value <= bound)            chance(log(bound / estimate) / scale)
    correlation of noise         2 ** (-PARTING * distance)

The law is Student's with three degrees of freedom: one run in twenty is far off, which a normal law
never expects. Its scale is such that a band holds the share that it is made to hold. Two layouts of
one question share their system and what takes both beyond the measured runs: it cancels, and so
does more of their noise, the nearer they are. `mofa validate odds` says how true the odds are.

The band of a memory goes by the share of it that is estimated (`variance`).

A short run of one layout says what its own error is, and by the same covariance what to expect of
the others' (kriging):

    expected error    K_r (K_rr + REPEATED^2)^-1 e

where r are the layouts that were run. What a system shares is in one factor of all steps by then
(`bands.system`), so K is there of layouts alone; what is left of the variance is of the whole.
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
"""Runs that a band is made to hold. [1]"""
PARTING: Final = 3.0
"""Halvings of a correlation for each halving of distance, by pairs of left-out runs. [1]"""
REPEATED: Final = 0.01
"""Scale of a step's logarithm between short runs of one layout: 0.0085 at seven sites. [1]"""
END: Final = 1.6377
"""Scales from middle to end of a band: Student's law of three degrees has 0.9 there. [1]"""


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
    found: Array = 0.5 + (x / (1.0 + x * x) + np.arctan(x)) / math.pi
    return found


@dataclass(frozen=True, kw_only=True)
class ShortRun:
    """A layout of the question that somebody ran for a few steps."""

    strategy: Strategy
    precision: str
    fitted: bool
    coordinates: Coordinates
    """Where it stands."""
    errors: Mapping[str, float]
    """Logarithm of measured over predicted by quantity; nothing of what was not measured. [1]"""


@dataclass(frozen=True)
class LayoutOdds:
    """What measured runs and short runs say of the layouts of one question."""

    layouts: tuple[Coordinates, ...]
    steps: Callable[[], Mapping[str, Array]]
    """Scales of what errors of steps are made of (`_step_scales`), found at the first call: no
    chance to fit needs them. [1]"""
    memory_scale: Array
    """Scale of the logarithm of measured over predicted memory, without short runs. [1]"""
    centres: Mapping[str, Array]
    """Logarithm of measured over predicted that short runs let expect, by quantity. [1]"""
    explained: Mapping[str, Array]
    """Factors of the covariance that short runs take away, by quantity, [runs, layouts]. [1]"""

    def scales(self, quantity: str) -> Array:
        """Scale of the logarithm of measured over predicted without short runs. [1]"""
        return self.steps()["step"] if quantity == "step" else self.memory_scale

    def below(self, quantity: str, ratio: Array | float) -> Array:
        """Chance that a measured value is at most so many times its estimate. [1]"""
        with np.errstate(divide="ignore"):
            return chance(
                (np.log(ratio) - self.centres[quantity])
                / self.scales(quantity)
                / self.left(quantity)
            )

    def beats(self, one: int, pace: Array) -> Array:
        """Chance that one layout is faster than each of all, given expected times (`pace`). [1]"""
        scale, explained = self.scales("step"), self.explained["step"]
        gone = np.square(explained - explained[:, [one]]).sum(axis=0)
        apart_by = scale[one] ** 2 + scale**2 - 2.0 * self._together("step", [one])[0] - gone
        spread = np.sqrt(np.maximum(apart_by, 0.0))
        return chance(np.log(pace / pace[one]) / np.maximum(spread, 1e-9))

    def left(self, quantity: str) -> Array:
        """What short runs leave of each layout's scale of error, as a share of it. [1]"""
        gone = np.square(self.explained[quantity]).sum(axis=0) / np.square(self.scales(quantity))
        found: Array = np.sqrt(np.maximum(1.0 - gone, 1e-9))
        return found

    def band(self, quantity: str) -> Range:
        """The band of the first layout, as factors on what is expected of it."""
        return band_around(END * float(self.scales(quantity)[0] * self.left(quantity)[0]))

    def covariance(self, quantity: str) -> Array:
        """Covariance of the errors of all layouts, [layouts, layouts], in squared scales. [1]"""
        explained = self.explained[quantity]
        found: Array = self._together(quantity, range(len(self.layouts))) - explained.T @ explained
        return found

    def memory_taught(self, centre: float, half: float) -> LayoutOdds:
        """The odds with what running jobs taught of memory: its centre and half width. [1]"""
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
        for name, found in errors.items():
            repeated = REPEATED if name == "step" else MEMORY_REPEATED
            ran, again = list(found), repeated**2 * np.eye(len(found))
            alone, whole = self._alone(name, ran), self._together(name, ran)
            centres[name] = alone.T @ np.linalg.solve(
                alone[:, ran] + again, np.array(list(found.values()))
            )
            explained[name] = np.linalg.solve(np.linalg.cholesky(whole[:, ran] + again), whole)
        return varied(self, centres=centres, explained=explained)

    def _together(self, quantity: str, some: Sequence[int]) -> Array:
        """Covariance of errors between some layouts and all, their shared system included,
        [some, layouts]. [1]
        """
        alone = self._alone(quantity, some)
        if quantity != "step":
            return alone
        return alone + systems_together(self.layouts, some, self.steps()["systems"])

    def _alone(self, quantity: str, some: Sequence[int]) -> Array:
        """Covariance of the errors of some layouts with those of all, without their system's
        part. [1]
        """
        shared, at = self._shared(some), list(some)
        if quantity == "step":
            beyond, noise = self.steps()["beyond"], self.steps()["noise"]
            covariance: Array = beyond[at] @ beyond.T + shared * noise[at][:, None] * noise
            return covariance
        return shared * self.memory_scale[at][:, None] * self.memory_scale

    def _shared(self, some: Sequence[int]) -> Array:
        """Correlation of the noise of some layouts with that of all, [some, layouts]. [1]"""
        names = {name for layout in self.layouts for name in layout.layout} | {
            "stack",
            "gpus",
            "format",
        }
        far = np.zeros((len(some), len(self.layouts)))
        for name in sorted(names):
            texts = words_at(self.layouts, name)
            words = distinct(texts)
            if len(words) == 1:
                continue
            which = positions(texts, words)
            used, mine = np.unique(which[list(some)], return_inverse=True)
            costs = np.array([[apart(name, words[one], word) for word in words] for one in used])
            far += costs[mine][:, which]
        return np.exp2(-PARTING * far)


def _step_scales(runs: MeasuredRuns, layouts: Sequence[Coordinates]) -> Mapping[str, Array]:
    """Scales of the parts of each layout's step error, and of the whole (`step`). [1]

    The parts are its system, each way in which it is beyond the measured runs, [layouts, ways], and
    its own noise.
    """
    systems, beyond = system_scales(runs, layouts), beyond_scales(runs, layouts)
    noise = noise_scales(layouts)
    step = np.sqrt(np.square(systems) + np.square(beyond).sum(axis=1) + np.square(noise))
    return {"systems": systems, "beyond": beyond, "noise": noise, "step": step}


def odds_of(
    runs: MeasuredRuns, layouts: Sequence[Coordinates], tried: Sequence[ShortRun] = ()
) -> LayoutOdds:
    """The odds of some layouts, by measured runs and by short runs (`tried`) of the
    same question.
    """
    every = (*layouts, *(one.coordinates for one in tried))
    seen = LayoutOdds(
        layouts=every,
        steps=cache(partial(_step_scales, runs, every)),
        memory_scale=memory_half_width(np.array([one.estimated for one in every])) / END,
        centres={name: np.zeros(len(every)) for name in QUANTITIES},
        explained={name: np.zeros((0, len(every))) for name in QUANTITIES},
    )
    if not tried:
        return seen
    places = list(enumerate(tried, start=len(layouts)))
    errors = {
        name: {at: one.errors[name] for at, one in places if name in one.errors}
        for name in QUANTITIES
    }
    return seen.after({name: found for name, found in errors.items() if found}).subset(
        range(len(layouts))
    )


def in_percent(chance: Ratio) -> str:
    """A chance in whole percent; none is called certain.

    >>> in_percent(0.9997), in_percent(0.52)
    ('>99 %', '52 %')
    """
    percent = round(100 * float(chance))
    return ">99 %" if percent > 99 else "<1 %" if percent < 1 else f"{percent} %"
