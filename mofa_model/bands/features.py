"""The evidence map: for every feature of a layout how many measured runs have it, and how well those are predicted.

A feature is a key of the layout whose word is not the plainest one. Of a number it is that it is more than the plainest, of whole
layers that are computed again that any are. The complexity of a layout counts its features, each by how rare it is:

    complexity = sum over features of 1 + log2(runs of the stack's family / those of them that have it)    in bits
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.axes.words import Number
from mofa_model.bands.band import here
from mofa_model.bands.coordinates import (
    OTHER,
    PLACES,
    PLAIN,
    SIZES,
    WORDS,
    Coordinates,
    apart,
    family_of,
)
from mofa_model.bands.table import MeasuredRuns

Mask = NDArray[np.bool_]

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
"""Features that are told even where they are the plainest."""
EXPERTS: Final = "experts"
"""The block of a mixture."""
_NO_FEATURE: Final = {"mbs"}
"""Keys that are more than the plainest without anything being switched on."""
AROUND: Final = 2.0
"""Sizes up to so many times as large or as small are told together. [1]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """Runs that have a feature."""

    runs: int
    """Measured runs. [1]"""
    error: float | None
    """Median error of their steps by fits that did not see their groups; None where there are none. [1]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Feature:
    """A value of a coordinate or of an axis of the layout, and who has it."""

    name: str
    """Coordinate, or key of the layout."""
    value: str
    """What it is."""
    seen: Mapping[str, Seen]
    """Runs that have it: `here`, of the stack on these devices; of the `stack`; on these `devices`; in this `format`; `all`."""


def features_of(runs: MeasuredRuns, asked: Coordinates) -> tuple[Feature, ...]:
    """Every feature of a layout with the runs that have it."""
    measured = np.isfinite(runs.errors["step"])
    devices, which = runs.places["device"]
    family = family_of(asked.device)[1]
    on = np.array([family_of(device)[1] == family for device in devices])[which]
    among = {
        "here": here(runs, asked),
        "stack": runs.have("stack", asked.stack),
        "devices": on,
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


@dataclass(frozen=True, slots=True)
class Support:
    """What the measured runs that count for a stack have: those of its family; of a family that nobody measured, all.

    Of a mixture of experts only runs of mixtures count, and of a dense model only those of dense ones, where there are some.
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
        """How many features a layout has, each by how rare it is, in bits; what is switched off is none. [1]"""
        on = [pair for pair in layout.items() if pair[1] != "false" and pair[0] not in _NO_FEATURE]
        return sum(1.0 + math.log2((self.among + 1.0) / (self._have(*pair) + 1.0)) for pair in on)

    def _have(self, key: str, word: str) -> int:
        return self.counts.get(key, {}).get(_feature(key, word), 0)


def support(runs: MeasuredRuns, stack: str, *, experts: bool) -> Support:
    """The features that a stack is known with, on a model with or without experts."""
    stacks, which = runs.places["stack"]
    measured = np.isfinite(runs.errors["step"])
    alike = np.array([apart("stack", stack, had) < OTHER for had in stacks])[which] & measured
    among = alike if alike.any() else measured
    kinds, which = runs.places["blocks"]
    same = among & np.array([(EXPERTS in kind.split("+")) == experts for kind in kinds])[which]
    among = same if same.any() else among
    counts: dict[str, Counter[str]] = {}
    for key in sorted(set(runs.places) & set(WORDS)):
        words, which = runs.places[key]
        found = counts.setdefault(key, Counter())
        for word, number in zip(
            words, np.bincount(which[among], minlength=len(words)), strict=True
        ):
            found[_feature(key, word)] += int(number)
    return Support(bool(alike.any()), int(np.count_nonzero(among)), counts)


@cache
def _feature(key: str, word: str) -> str:
    """What a word is as a feature; empty where it is the plainest."""
    if word == PLAIN[key]:
        return ""
    if isinstance(WORDS[key], Number):
        return "more"
    first, _, detail = word.partition(":")
    return first if detail.isdigit() else word


def _has(runs: MeasuredRuns, asked: Coordinates, name: str) -> Mask:
    """Runs with the value that is asked about; of a size those about as large."""
    if name not in SIZES:
        return runs.have(name, asked.word(name))
    words, which = runs.places[name]
    ratios = np.array([float(word) for word in words]) / float(asked.word(name))
    near: Mask = ((ratios <= AROUND) & (ratios >= 1.0 / AROUND))[which]
    return near


def _seen(runs: MeasuredRuns, mask: Mask) -> Seen:
    errors: NDArray[Any] = np.abs(np.expm1(-runs.errors["step"][mask]))
    return Seen(runs=int(mask.sum()), error=float(np.median(errors)) if errors.size else None)
