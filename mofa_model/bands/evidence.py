"""What measured runs say of one layout: the runs near it, and which of its features they have.

A feature is a key of the layout whose word is not the plainest one. Any number above the plainest
is one feature, and so is any number of whole layers that are computed again. The complexity of a
layout counts its features, each by how rare it is:

    complexity = sum over features of 1 + log2(n / n of those with the feature)    in bits

where n counts the runs of the stack's family.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.bands.coordinates import (
    NUMBERS,
    PLACES,
    PLAIN,
    SIZES,
    WORDS,
    Coordinates,
    class_of,
    family_of,
)
from mofa_model.bands.odds import SHARE, band_of
from mofa_model.bands.table import MeasuredRuns
from mofa_model.records import dataclass

Array = NDArray[np.floating[Any]]
Mask = NDArray[np.bool_]

DOUBTED: Final = 0.6
"""Chance that a band holds where no run is near. Ours. [1]"""
DOUBT: Final = 0.5
"""Runs beside it that count as much as this chance. Ours. [1]"""
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
EXPERTS: Final = "experts"
"""The block of a mixture."""
UNNAMED: Final = "default"
"""The stack of a layout for which nobody named a trainer."""
_NO_FEATURE: Final = {"mbs"}
"""Keys that are above the plainest without anything being switched on."""


@dataclass(frozen=True, kw_only=True)
class NearRun:
    """A measured run near the layout that is asked about."""

    name: str
    place: str
    """Its degrees, devices and width, in a few words."""
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
    """Share by which a step may be longer than predicted where its band holds. [1]"""

    @property
    def evidence(self) -> str:
        """The grade of evidence, as answers begin a sentence with it."""
        return f"evidence: {self.grade}"

    @property
    def grade(self) -> str:
        """One sentence: how many runs of the stack were measured, and how far off a step may be."""
        if self.runs:
            runs = "run" if self.runs == 1 else "runs"
            known = f"{self.runs} {runs} of {self.stack} on {self.devices}"
        elif self.related:
            known = (
                f"none of {self.stack} on {self.devices}, "
                f"{self.related} runs of its relatives or on other devices"
            )
        elif self.stack == UNNAMED:
            known = "none, because no trainer is named"
        else:
            known = f"none of {self.stack} or its relatives"
        return f"{known}; a step within ±{100 * self.within:.0f} %"

    @property
    def of(self) -> str:
        """Name of the software stack that prices the layout, as messages print it."""
        return "no trainer named" if self.stack == UNNAMED else self.stack

    @property
    def nearest_run(self) -> str:
        """The nearest measured run, and how far off its prediction was."""
        first = self.nearest[0]
        off = f"{100 * abs(first.error):.0f} % too {'slow' if first.error > 0 else 'fast'}"
        return f"{first.place}, predicted {off}"


def basis_of(runs: MeasuredRuns, asked: Coordinates) -> Basis:
    """The measured runs that a prediction rests on."""
    far = np.where(np.isfinite(runs.errors["step"]), runs.distances((asked,))[0], np.inf)
    weights = np.where(np.isfinite(runs.held), runs.say * np.exp2(-far), 0.0)
    sure = (float(weights @ np.nan_to_num(runs.held)) + DOUBTED * DOUBT) / (
        float(weights.sum()) + DOUBT
    )
    known = np.flatnonzero(_here(runs, asked) & np.isfinite(far))
    return Basis(
        stack=asked.stack,
        devices=family_of(asked.device),
        runs=known.size,
        related=int(np.count_nonzero(runs.related(asked.stack) & np.isfinite(far))),
        largest=max((int(runs.word("gpus", int(at))) for at in known), default=0),
        nearest=_nearest(runs, asked, far),
        confidence=min(SHARE, sure),
        within=band_of(runs, asked, "step").upper - 1.0,
    )


def in_a_line(basis: Basis) -> str:
    """The grade of evidence and the nearest run, in one line."""
    return f"{basis.evidence}; nearest run: {basis.nearest_run}"


def _on_devices(runs: MeasuredRuns, asked: Coordinates) -> Mask:
    """Runs on devices of the same family."""
    family = family_of(asked.device)
    return runs.where("device", lambda device: family_of(device) == family)


def _here(runs: MeasuredRuns, asked: Coordinates) -> Mask:
    """Runs of this stack on devices of the same family."""
    return runs.have("stack", asked.stack) & _on_devices(runs, asked)


def _nearest(runs: MeasuredRuns, asked: Coordinates, far: Array) -> tuple[NearRun, ...]:
    """The nearest runs; of those that differ alike the first."""
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
    layout = " ".join(degrees) or "data parallel"
    return f"{layout} on {runs.word('gpus', at)} {device} (width {runs.word('hidden', at)})"


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
    seen: Mapping[str, Seen]
    """Runs that have it: `here` (stack and devices), `stack`, `devices`, `format`, `all`."""


def features_of(runs: MeasuredRuns, asked: Coordinates) -> tuple[Feature, ...]:
    """Every feature of a layout with the runs that have it."""
    measured = np.isfinite(runs.errors["step"])
    among = {
        "here": _here(runs, asked),
        "stack": runs.have("stack", asked.stack),
        "devices": _on_devices(runs, asked),
        "format": runs.have("format", asked.format),
        "all": np.ones(len(runs.names), dtype=bool),
    }
    names = dict.fromkeys((*PLACES, *ALWAYS, *sorted(asked.layout)))
    return tuple(
        Feature(
            name=name,
            value=asked.word(name),
            seen={
                where: _seen(runs, mask & _has(runs, asked, name) & measured)
                for where, mask in among.items()
            },
        )
        for name in names
    )


def _has(runs: MeasuredRuns, asked: Coordinates, name: str) -> Mask:
    """Runs with the value that is asked about; of a size those about as large."""
    if name not in SIZES:
        return runs.have(name, asked.word(name))
    size = float(asked.word(name))
    return runs.where(name, lambda word: 1.0 / _AROUND <= float(word) / size <= _AROUND)


def _seen(runs: MeasuredRuns, mask: Mask) -> Seen:
    errors: NDArray[Any] = np.abs(np.expm1(-runs.errors["step"][mask]))
    return Seen(runs=int(mask.sum()), error=float(np.median(errors)) if errors.size else None)


@dataclass(frozen=True)
class Support:
    """Features of the measured runs that count for a stack: those of its family; of a family that
    nobody measured, all.

    Of a mixture of experts only runs of mixtures count, and of a dense model only those of dense
    ones, where there are some.
    """

    own: bool
    """Whether they are of its family."""
    among: int
    """Runs that count. [1]"""
    counts: Mapping[str, Mapping[str, int]]
    """How many of them have each feature, by key. [1]"""

    def unmeasured(self, layout: Mapping[str, str]) -> tuple[str, ...]:
        """Features of a layout that none of them has."""
        features = {key: word for key, word in layout.items() if _feature(key, word)}
        return tuple(f"{key}={word}" for key, word in features.items() if not self._have(key, word))

    def complexity(self, layout: Mapping[str, str]) -> float:
        """Features that a layout switches on, each by how rare it is, in bits. [1]"""
        on = [pair for pair in layout.items() if pair[1] != "false" and pair[0] not in _NO_FEATURE]
        return sum(1.0 + math.log2((self.among + 1.0) / (self._have(*pair) + 1.0)) for pair in on)

    def _have(self, key: str, word: str) -> int:
        return self.counts.get(key, {}).get(_feature(key, word), 0)


def support(runs: MeasuredRuns, stack: str, *, experts: bool) -> Support:
    """The features that a stack is known with, on a model with or without experts."""
    measured = np.isfinite(runs.errors["step"])
    related = runs.related(stack) & measured
    among = related if related.any() else measured
    same = among & runs.where("blocks", lambda kind: (EXPERTS in kind.split("+")) == experts)
    among = same if same.any() else among
    counts: dict[str, Counter[str]] = {}
    for key in sorted(set(runs.words) & set(WORDS)):
        words, which = runs.words[key], runs.which[key]
        found = counts.setdefault(key, Counter())
        numbers = np.bincount(which[among], minlength=len(words))
        for word, number in zip(words, numbers, strict=True):
            found[_feature(key, word)] += int(number)
    return Support(bool(related.any()), int(np.count_nonzero(among)), counts)


@cache
def _feature(key: str, word: str) -> str:
    """What a word is as a feature; empty where it is the plainest."""
    if word == PLAIN[key]:
        return ""
    if key in NUMBERS:
        return "more"
    first, _, detail = word.partition(":")
    return first if detail.isdigit() else word
