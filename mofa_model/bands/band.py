"""How sure an estimate is: where a measured value is expected, and which measured runs say so.

Every run that was measured comes with what a fit that did not see its group says of it, so with an error as for a run that
nobody has seen. The band of a new run is the quantile of these errors, each counted by how near its run is (`coordinates`), with
all of them as a background; it widens with the distance of the nearest run. So a feature that no run has widens it, and a stack
is known only where it ran on that class of devices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.bands.coordinates import OTHER, PLACES, Coordinates, apart, family_of
from mofa_model.bands.table import QUANTITIES, MeasuredRuns
from mofa_model.units import Range

Array = NDArray[np.floating[Any]]

SHARE: Final = 0.8
"""Runs that a band is made to hold. [1]"""
BACKGROUND: Final = 1 / 60
"""What all runs together say of any other one, beside a run next to it, which says 1. Ours. [1]"""
WIDER: Final = 0.05
"""Share by which a band widens for every halving between a run and the nearest that was measured. Ours. [1]"""
SCALE: Final = 0.25
"""The same for every doubling of devices beyond the largest run of the stack and its relatives. Ours. [1]"""
_SCALED: Final = {"step"}
"""Quantities for which that is so: what a device holds is as sure beside a thousand others as beside ten."""
DOUBTED: Final = 0.6
"""Chance that a band holds where no run is near. Ours. [1]"""
DOUBT: Final = 0.5
"""Runs next to it that this is worth. Ours. [1]"""
NEAREST: Final = 3
"""Runs that an answer names."""

UNNAMED: Final = "default"
"""The stack of a layout for which nobody named a trainer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NearRun:
    """A measured run near the one that is asked about."""

    name: str
    """Name of the case."""
    place: str
    """Its degrees, devices and width, in a few words."""
    distance: float
    """Halvings of what it says. [1]"""
    error: float
    """Predicted over measured step time, minus one, by a fit that did not see its group. [1]"""
    differs: tuple[str, ...]
    """What is another there: coordinate or key of the layout, and its value."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Basis:
    """What a prediction rests on."""

    stack: str
    """Software stack that is asked about."""
    devices: str
    """Family of the class of devices that is asked about."""
    runs: int
    """Measured runs of this stack on these devices. [1]"""
    related: int
    """Measured runs of this stack or its relatives, wherever they ran. [1]"""
    largest: int
    """Most devices of a run of this stack on these devices. [1]"""
    nearest: tuple[NearRun, ...]
    """The nearest measured runs, the nearest first."""
    confidence: float
    """Chance that the band of the step holds. [1]"""
    within: float
    """Part of itself by which a step may be longer than predicted where its band holds. [1]"""

    @property
    def evidence(self) -> str:
        """The grade of evidence as every door says it."""
        return f"evidence: {self.grade}"

    @property
    def grade(self) -> str:
        """How well it is known: measured here, measured elsewhere, or not at all; and how far off a step may be."""
        if self.runs:
            known = f"{self.runs} {'run' if self.runs == 1 else 'runs'} of {self.stack} on {self.devices}"
        elif self.related:
            known = f"none of {self.stack} on {self.devices}, {self.related} runs of its relatives or on other devices"
        elif self.stack == UNNAMED:
            known = "none, because no trainer is named"
        else:
            known = f"none of {self.stack} or its relatives"
        return f"{known}; a step within ±{100 * self.within:.0f} %"

    @property
    def of(self) -> str:
        """Name of the software stack whose constants price the layout, as messages print it."""
        return "no trainer named" if self.stack == UNNAMED else self.stack

    @property
    def nearest_run(self) -> str:
        """The nearest measured run, and how far off its prediction was."""
        first = self.nearest[0]
        off = f"{100 * abs(first.error):.0f} % too {'slow' if first.error > 0 else 'fast'}"
        return f"{first.place}, predicted {off}"


def band_of(runs: MeasuredRuns, asked: Coordinates, quantity: str) -> Range:
    """The band of a quantity, as factors on its estimate: a quantile of the errors of measured runs, by how near they are."""
    half = float(halves_of(runs, (asked,), runs.distances((asked,)), quantity)[0])
    return band_around(half)


def band_around(half: float) -> Range:
    """Factors on an estimate, from half the width of its band as a logarithm; one run in ten is below it, one above."""
    return Range(lower=math.exp(-half), target=1.0, upper=math.exp(half))


def bands_of(runs: MeasuredRuns, asked: Coordinates) -> dict[str, Range]:
    """The bands of all quantities."""
    return {quantity: band_of(runs, asked, quantity) for quantity in QUANTITIES}


def halves_of(
    runs: MeasuredRuns, layouts: Sequence[Coordinates], far: Array, quantity: str
) -> Array:
    """Half the width of the bands of some layouts, as a logarithm; `far` is how far every run is from each. [1]"""
    errors = np.abs(runs.errors[quantity])
    known = np.flatnonzero(np.isfinite(errors))
    known = known[np.argsort(errors[known], kind="stable")]
    alike: Array = np.square(runs.say[known])  # every group alike
    near = np.take(far, known, axis=1)
    weights = np.exp2(-near)
    weights *= runs.say[known]
    weights += BACKGROUND * alike / alike.sum()
    wanted = SHARE * weights.sum(axis=1)
    above = np.cumsum(weights, axis=1)
    above -= np.multiply(0.5, weights, out=weights)  # the middles of the weights
    half: Array = np.array(
        [np.interp(w, a, errors[known]) for w, a in zip(wanted, above, strict=True)]
    )
    half *= 1.0 + WIDER * near.min(axis=1)
    if quantity in _SCALED:
        sizes = {(one.stack, one.gpus): one for one in layouts}
        beyond = {size: _beyond(runs, one, known) for size, one in sizes.items()}
        half *= 1.0 + SCALE * np.array([beyond[one.stack, one.gpus] for one in layouts])
    return half


def _beyond(runs: MeasuredRuns, asked: Coordinates, known: NDArray[np.intp]) -> float:
    """Doublings beyond the largest run of the stack and its relatives, which share what grows with scale; of any where there is none. [1]"""
    alike = _alike(runs, asked)[known]
    words, size = runs.places["gpus"]
    sizes = np.array([float(word) for word in words])[size[known[alike] if alike.any() else known]]
    return max(0.0, float(np.log2(float(asked.gpus) / sizes.max())))


def basis_of(runs: MeasuredRuns, asked: Coordinates) -> Basis:
    """What a prediction rests on: how many runs, the nearest of them, and how often bands near it held."""
    far = np.where(np.isfinite(runs.errors["step"]), runs.distances((asked,))[0], np.inf)
    weights = np.where(np.isfinite(runs.held), runs.say * np.exp2(-far), 0.0)
    sure = (float(weights @ np.nan_to_num(runs.held)) + DOUBTED * DOUBT) / (
        float(weights.sum()) + DOUBT
    )
    known = np.flatnonzero(here(runs, asked) & np.isfinite(far))
    return Basis(
        stack=asked.stack,
        devices=family_of(asked.device)[1],
        runs=known.size,
        related=int(np.count_nonzero(_alike(runs, asked) & np.isfinite(far))),
        largest=max((int(runs.word("gpus", int(at))) for at in known), default=0),
        nearest=_nearest(runs, asked, far),
        confidence=min(SHARE, sure),
        within=band_of(runs, asked, "step").upper - 1.0,
    )


def in_a_line(basis: Basis) -> str:
    """What a prediction rests on: the grade of evidence, and the nearest run."""
    return f"{basis.evidence}; nearest run: {basis.nearest_run}"


def here(runs: MeasuredRuns, asked: Coordinates) -> NDArray[np.bool_]:
    """Runs of this stack on this class of devices; classes of one family count as one."""
    devices, which = runs.places["device"]
    same = np.array([family_of(device)[1] == family_of(asked.device)[1] for device in devices])
    found: NDArray[np.bool_] = runs.have("stack", asked.stack) & same[which]
    return found


def _alike(runs: MeasuredRuns, asked: Coordinates) -> NDArray[np.bool_]:
    """Runs of this stack or of its relatives."""
    stacks, which = runs.places["stack"]
    found: NDArray[np.bool_] = np.array(
        [apart("stack", asked.stack, had) < OTHER for had in stacks]
    )[which]
    return found


def _nearest(runs: MeasuredRuns, asked: Coordinates, far: Array) -> tuple[NearRun, ...]:
    """The nearest runs, of those that stand at one place the first."""
    found: dict[tuple[str, ...], NearRun] = {}
    for at in np.argsort(far, kind="stable"):
        one = _near(runs, asked, int(at), float(far[at]))
        found.setdefault(one.differs, one)
        if len(found) == NEAREST:
            break
    return tuple(found.values())


def _near(runs: MeasuredRuns, asked: Coordinates, at: int, distance: float) -> NearRun:
    names = [*PLACES, *sorted(set(runs.places) - set(PLACES) | set(asked.layout))]
    return NearRun(
        name=runs.names[at],
        place=_place(runs, at),
        distance=distance,
        error=float(np.expm1(-runs.errors["step"][at])),
        differs=tuple(
            f"{name}={word}" for name in names if (word := runs.word(name, at)) != asked.word(name)
        ),
    )


def _place(runs: MeasuredRuns, at: int) -> str:
    degrees = [
        f"{key}{word}" for key in ("tp", "pp", "cp", "ep") if (word := runs.word(key, at)) != "1"
    ]
    device = family_of(runs.word("device", at))[0]
    layout = " ".join(degrees) or "data parallel"
    return f"{layout} on {runs.word('gpus', at)} {device} (width {runs.word('hidden', at)})"
