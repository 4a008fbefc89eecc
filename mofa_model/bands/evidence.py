"""The measured runs behind a prediction, in words: how many there are, which are the nearest, and
which features of the layout they have.
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
"""Features that are always shown, even where they are the plainest."""
_AROUND: Final = 2.0
"""Factor up to which two sizes are the same feature. [1]"""
UNNAMED: Final = "default"
"""The stack of a layout for which nobody named a trainer."""
METHODS: Final = {"lora": "LoRA", "qlora": "QLoRA"}
"""Names of the methods that train adapters."""
NAMED: Final = 3
"""Most stacks of a family that a sentence names."""


@dataclass(frozen=True, kw_only=True)
class NearRun:
    """A measured run near a layout."""

    name: str
    place: str
    """Its degrees and devices, in a few words."""
    distance: float
    """Its distance from the layout, in halvings (`coordinates`). [1]"""
    error: float
    """Predicted over measured step time, minus one, by a fit that did not see its group. [1]"""
    differs: tuple[str, ...]
    """Coordinates and keys of its layout that differ, with its own values."""


@dataclass(frozen=True, kw_only=True)
class Basis:
    """Measured runs that the prediction of a layout rests on."""

    stack: str
    """Software stack of the layout."""
    method: str = FULL
    """Its training method: full, lora or qlora. Only runs of the same method count."""
    devices: str
    """Family of the class of the layout's devices."""
    runs: int
    """Measured runs of this stack and its relatives on these devices. [1]"""
    family: Mapping[str, int]
    """The same runs by stack, most first."""
    related: int
    """Measured runs of this stack and its relatives on any devices. [1]"""
    largest: int
    """Most devices of a run of these stacks on these devices. [1]"""
    nearest: tuple[NearRun, ...]
    """The nearest measured runs, the nearest first."""
    confidence: float
    """Chance that the band of the step holds; it is the same everywhere, and bands are wider where
    less is known. [1]
    """
    within: float
    """Share by which a step may take longer than predicted, if its band holds. [1]"""

    @property
    def evidence(self) -> str:
        """The grade of evidence, as answers begin a sentence with it."""
        return f"evidence: {self.grade}"

    @property
    def summary(self) -> str:
        """The grade in a few words, for a message that holds the whole answer."""
        count = f"{self._number} on {self.devices}" if self.runs else self._known
        return f"evidence: {count}; a step within ±{self._percent} %"

    @property
    def grade(self) -> str:
        """The grade in one sentence: runs that count, the largest and the nearest one, and how far
        off a step may be.
        """
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
        """The stack in words; where relatives count too, with the runs of each stack."""
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
        """Name of the layout's stack, as messages print it."""
        return "no trainer named" if self.stack == UNNAMED else self.stack


def basis_of(runs: MeasuredRuns, coordinates: Coordinates) -> Basis:
    """The measured runs that the prediction of a layout rests on."""
    measured = np.isfinite(runs.errors["step"])
    related = runs.related(coordinates.stack) & measured & runs.have("method", coordinates.method)
    on_devices = np.flatnonzero(related & _on_devices(runs, coordinates)).tolist()
    is_evidence = runs.evidence_of(coordinates.method)
    distances = np.where(is_evidence, runs.distances(coordinates), np.inf)
    return Basis(
        stack=coordinates.stack,
        method=coordinates.method,
        devices=family_of(coordinates.device),
        runs=len(on_devices),
        family=dict(Counter(runs.word("stack", run) for run in on_devices).most_common()),
        related=int(np.count_nonzero(related)),
        largest=max((int(runs.word("gpus", run)) for run in on_devices), default=0),
        nearest=_nearest(runs, coordinates, distances),
        confidence=SHARE,
        within=band_of(runs, coordinates, "step").upper - 1.0,
    )


def _on_devices(runs: MeasuredRuns, coordinates: Coordinates) -> Mask:
    """Runs on devices of the same family."""
    family = family_of(coordinates.device)
    return runs.where("device", lambda device: family_of(device) == family)


def _nearest(runs: MeasuredRuns, coordinates: Coordinates, distances: Array) -> tuple[NearRun, ...]:
    """The nearest measured runs; of runs that differ in the same way, only the first."""
    names = [*PLACES, *sorted(set(runs.words) - set(PLACES) | set(coordinates.layout))]
    by_difference: dict[tuple[str, ...], NearRun] = {}
    for run in map(int, np.argsort(distances, kind="stable")):
        differs = tuple(
            f"{name}={word}"
            for name in names
            if (word := runs.word(name, run)) != coordinates.word(name)
        )
        if differs not in by_difference:
            by_difference[differs] = NearRun(
                name=runs.names[run],
                place=_place(runs, run),
                distance=float(distances[run]),
                error=float(np.expm1(-runs.errors["step"][run])),
                differs=differs,
            )
        if len(by_difference) == NEAREST:
            break
    return tuple(by_difference.values())


def _place(runs: MeasuredRuns, run: int) -> str:
    degrees = [
        f"{key}{word}" for key in ("tp", "pp", "cp", "ep") if (word := runs.word(key, run)) != "1"
    ]
    device = class_of(runs.word("device", run))
    return f"{' '.join(degrees) or 'data parallel'} on {runs.word('gpus', run)} {device}"


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
    """How far it is beyond the runs of the stack's family, in doublings. [1]"""
    seen: Mapping[str, Seen]
    """Runs that have it, by group: `here` (the stack's family on these devices), `stack` (the
    family on any devices), `devices`, `format`, `all`.
    """


def features_of(runs: MeasuredRuns, coordinates: Coordinates) -> tuple[Feature, ...]:
    """Every feature of a layout with the runs that have it."""
    stack, method = coordinates.stack, coordinates.method
    experts = EXPERTS in coordinates.blocks.split("+")
    known_features = support(runs, stack, experts=experts, method=method)
    measured = runs.evidence_of(method)
    related, devices = runs.related(stack), _on_devices(runs, coordinates)
    groups = {
        "here": related & devices,
        "stack": related,
        "devices": devices,
        "format": runs.have("format", coordinates.format),
        "all": np.ones(len(runs.names), dtype=bool),
    }
    names = dict.fromkeys((*PLACES, *ALWAYS, *sorted(coordinates.layout)))
    return tuple(
        Feature(
            name=name,
            value=coordinates.word(name),
            beyond=known_features.beyond(name, coordinates.word(name))
            if name in WORDS or name in SIZES
            else 0.0,
            seen={
                group: _seen(runs, mask & _has(runs, coordinates, name) & measured)
                for group, mask in groups.items()
            },
        )
        for name in names
    )


def _has(runs: MeasuredRuns, coordinates: Coordinates, name: str) -> Mask:
    """Which runs have the same value of a coordinate; for a size, about the same value."""
    if name not in SIZES:
        return runs.have(name, coordinates.word(name))
    size = float(coordinates.word(name))
    return runs.where(name, lambda word: 1.0 / _AROUND <= float(word) / size <= _AROUND)


def _seen(runs: MeasuredRuns, mask: Mask) -> Seen:
    errors: NDArray[Any] = np.abs(np.expm1(-runs.errors["step"][mask]))
    return Seen(runs=int(mask.sum()), error=float(np.median(errors)) if errors.size else None)
