"""What measured runs say of one layout, in words: how many there are, the nearest ones, and which
of its features they have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.bands.coordinates import PLACES, SIZES, WORDS, Coordinates, class_of, family_of
from mofa_model.bands.odds import SHARE, band_of
from mofa_model.bands.table import EXPERTS, MeasuredRuns, support
from mofa_model.records import dataclass
from mofa_model.spec.tuning import FULL

Array = NDArray[np.floating[Any]]
Mask = NDArray[np.bool_]

NEAREST: Final = 3
"""Runs that an answer names."""
ALWAYS: Final = (
    "stack",
    "device",
    "format",
    "blocks",
    "gpus",
    "tp",
    "pp",
    "cp",
    "ep",
    "optimizer",
    "recompute",
)
"""Features that are shown even where they are the plainest."""
_AROUND: Final = 2.0
"""Sizes up to so many times as large or as small count as one feature. [1]"""
UNNAMED: Final = "default"
"""The stack of a layout for which nobody named a trainer."""
METHODS: Final = {"lora": "LoRA", "qlora": "QLoRA"}
"""What runs are called that trained adapters."""
NAMED: Final = 3
"""Stacks of a family that a sentence counts by name."""


@dataclass(frozen=True, kw_only=True)
class NearRun:
    """A measured run near the layout that is asked about."""

    name: str
    place: str
    """Its degrees and devices, in a few words."""
    distance: float
    """Its distance, in halvings of what it says. [1]"""
    error: float
    """Predicted over measured step time, minus one, by a fit that did not see its group. [1]"""
    differs: tuple[str, ...]
    """Coordinates and keys of the layout that differ, with their values there."""


@dataclass(frozen=True, kw_only=True)
class Basis:
    """Measured runs that a prediction rests on."""

    stack: str
    """Software stack that is asked about."""
    method: str = FULL
    """What is trained: full, lora or qlora. Only runs that trained the same count."""
    devices: str
    """Family of the class of devices that is asked about."""
    runs: int
    """Measured runs of this stack and its relatives on these devices. [1]"""
    family: Mapping[str, int]
    """The same by stack, most first."""
    related: int
    """Measured runs of this stack and its relatives, wherever they ran. [1]"""
    largest: int
    """Most devices of a run of these stacks on these devices. [1]"""
    nearest: tuple[NearRun, ...]
    """The nearest measured runs, the nearest first."""
    confidence: float
    """Chance that the band of the step holds: where less is known it is wider. [1]"""
    within: float
    """Share by which a step may be longer than predicted where its band holds. [1]"""

    @property
    def evidence(self) -> str:
        """The grade of evidence, as answers begin a sentence with it."""
        return f"evidence: {self.grade}"

    @property
    def summary(self) -> str:
        """The grade in a few words, for a message that holds the whole answer."""
        known = f"{self._number} on {self.devices}" if self.runs else self._known
        return f"evidence: {known}; a step within ±{self._percent} %"

    @property
    def grade(self) -> str:
        """One sentence: runs that count, the nearest, the largest, how far off a step may be."""
        return f"{self._known}, nearest {self.nearest[0].place}; a step within ±{self._percent} %"

    @property
    def _known(self) -> str:
        if self.runs:
            stacks, most = self._stacks, f"{self.largest:,}"
            return f"{self._number} of {stacks} on {self.devices}, largest {most} GPUs"
        if self.related:
            elsewhere = f"{self.related} of its family elsewhere"
            return f"none of {self.stack} on {self.devices}{self._with}, {elsewhere}"
        if self.stack == UNNAMED:
            return "none, because no trainer is named"
        return f"none of {self.stack} or its relatives{self._with}"

    @property
    def _number(self) -> str:
        return f"{self.runs} {'run' if self.runs == 1 else 'runs'}{self._with}"

    @property
    def _with(self) -> str:
        return "" if self.method == FULL else f" with {METHODS[self.method]}"

    @property
    def _stacks(self) -> str:
        """The software stack in words; with the runs of each stack where related ones count too."""
        if list(self.family) == [self.stack]:
            return self.stack
        named = [f"{name} {count}" for name, count in self.family.items()]
        shown = [*named[:NAMED], *(["…"] if len(named) > NAMED else [])]
        return f"the family of {self.stack} ({', '.join(shown)})"

    @property
    def _percent(self) -> str:
        return f"{100 * self.within:.0f}"

    @property
    def of(self) -> str:
        """Name of the software stack that prices the layout, as messages print it."""
        return "no trainer named" if self.stack == UNNAMED else self.stack


def basis_of(runs: MeasuredRuns, coordinates: Coordinates) -> Basis:
    """The measured runs that a prediction rests on."""
    measured = np.isfinite(runs.errors["step"])
    related = runs.related(coordinates.stack) & measured & runs.have("method", coordinates.method)
    here = np.flatnonzero(related & _on_devices(runs, coordinates)).tolist()
    return Basis(
        stack=coordinates.stack,
        method=coordinates.method,
        devices=family_of(coordinates.device),
        runs=len(here),
        family=dict(Counter(runs.word("stack", at) for at in here).most_common()),
        related=int(np.count_nonzero(related)),
        largest=max((int(runs.word("gpus", at)) for at in here), default=0),
        nearest=_nearest(
            runs,
            coordinates,
            np.where(
                measured & runs.tell_of(coordinates.method), runs.distances(coordinates), np.inf
            ),
        ),
        confidence=SHARE,
        within=band_of(runs, coordinates, "step").upper - 1.0,
    )


def _on_devices(runs: MeasuredRuns, asked: Coordinates) -> Mask:
    """Runs on devices of the same family."""
    family = family_of(asked.device)
    return runs.where("device", lambda device: family_of(device) == family)


def _nearest(runs: MeasuredRuns, asked: Coordinates, far: Array) -> tuple[NearRun, ...]:
    """The nearest measured runs; of several that differ in the same way, only the first."""
    names = [*PLACES, *sorted(set(runs.words) - set(PLACES) | set(asked.layout))]
    found: dict[tuple[str, ...], NearRun] = {}
    for at in map(int, np.argsort(far, kind="stable")):
        differs = tuple(
            f"{name}={word}" for name in names if (word := runs.word(name, at)) != asked.word(name)
        )
        if differs not in found:
            found[differs] = NearRun(
                name=runs.names[at],
                place=_place(runs, at),
                distance=float(far[at]),
                error=float(np.expm1(-runs.errors["step"][at])),
                differs=differs,
            )
        if len(found) == NEAREST:
            break
    return tuple(found.values())


def _place(runs: MeasuredRuns, at: int) -> str:
    degrees = [
        f"{key}{word}" for key in ("tp", "pp", "cp", "ep") if (word := runs.word(key, at)) != "1"
    ]
    device = class_of(runs.word("device", at))
    return f"{' '.join(degrees) or 'data parallel'} on {runs.word('gpus', at)} {device}"


@dataclass(frozen=True, kw_only=True)
class Seen:
    """Runs that have a feature."""

    runs: int
    error: float | None
    """Median error of their steps by fits without their groups; None without runs. [1]"""


@dataclass(frozen=True, kw_only=True)
class Feature:
    """A value of a coordinate or of an axis of the layout, and the runs that have it."""

    name: str
    """Coordinate, or key of the layout."""
    value: str
    beyond: float
    """How far it is beyond what runs of the stack's family had, in doublings. [1]"""
    seen: Mapping[str, Seen]
    """Runs that have it: `here` (the stack's family on these devices), `stack` (the family
    anywhere), `devices`, `format`, `all`.
    """


def features_of(runs: MeasuredRuns, coordinates: Coordinates) -> tuple[Feature, ...]:
    """Every feature of a layout with the runs that have it."""
    measured = np.isfinite(runs.errors["step"])
    related, devices = runs.related(coordinates.stack), _on_devices(runs, coordinates)
    known = support(
        runs,
        coordinates.stack,
        experts=EXPERTS in coordinates.blocks.split("+"),
        method=coordinates.method,
    )
    among = {
        "here": related & devices,
        "stack": related,
        "devices": devices,
        "format": runs.have("format", coordinates.format),
        "all": np.ones(len(runs.names), dtype=bool),
    }
    measured = measured & runs.tell_of(coordinates.method)
    names = dict.fromkeys((*PLACES, *ALWAYS, *sorted(coordinates.layout)))
    return tuple(
        Feature(
            name=name,
            value=coordinates.word(name),
            beyond=known.beyond(name, coordinates.word(name))
            if name in WORDS or name in SIZES
            else 0.0,
            seen={
                where: _seen(runs, mask & _has(runs, coordinates, name) & measured)
                for where, mask in among.items()
            },
        )
        for name in names
    )


def _has(runs: MeasuredRuns, asked: Coordinates, name: str) -> Mask:
    """Which runs have the same value of a coordinate; of a size, about the same."""
    if name not in SIZES:
        return runs.have(name, asked.word(name))
    size = float(asked.word(name))
    return runs.where(name, lambda word: 1.0 / _AROUND <= float(word) / size <= _AROUND)


def _seen(runs: MeasuredRuns, mask: Mask) -> Seen:
    errors: NDArray[Any] = np.abs(np.expm1(-runs.errors["step"][mask]))
    return Seen(runs=int(mask.sum()), error=float(np.median(errors)) if errors.size else None)
