"""Which features of a layout were measured for a stack, and how far beyond them a value is.

Runs of a stack's family count; of a family that nobody measured, all runs, as borrowed ones. Of a mixture of experts only runs of mixtures count, and of a dense model only those of
dense ones, where there are some.

A feature is a key of the layout whose word is not the plainest one. Any number above the plainest
is one feature, and so is any number of whole layers that are computed again. The complexity of a
layout counts its features, each by how rare it is:

    complexity = sum over features of 1 + log2(n / n of those with the feature)    in bits

where n counts the runs of the stack's family. How far a value is beyond what was measured is a
distance in doublings:

    size      doublings beyond the largest of all runs
    degree    doublings beyond the largest of its family, or BORROWED and those beyond the largest
              of all, whichever is less
    choice    none where its family has it, BORROWED where another one has it, else twice that
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.bands.coordinates import NUMBERS, PLAIN, SIZES, WORDS
from mofa_model.bands.table import MeasuredRuns
from mofa_model.records import dataclass

Mask = NDArray[np.bool_]

EXPERTS: Final = "experts"
"""The block of a mixture."""
BORROWED: Final = 1.0
"""Doublings that a value is away where only another family has it; twice, where none has. [1]"""
_NO_FEATURE: Final = {"mbs"}
"""Keys that are above the plainest without anything being switched on."""


@dataclass(frozen=True)
class Support:
    """Features of the measured runs that count for a stack."""

    own: bool
    """Whether they are of its family."""
    among: int
    """Runs that count. [1]"""
    counts: Mapping[str, Mapping[str, int]]
    """How many of them have each feature, by key. [1]"""
    largest: Mapping[str, tuple[float, float]]
    """Largest number of each key and size: of its family's runs, and of all. [1]"""
    anywhere: Mapping[str, frozenset[str]]
    """Features that any measured run has, by key."""

    def unmeasured(self, layout: Mapping[str, str]) -> tuple[str, ...]:
        """Features of a layout that none of them has."""
        features = {
            key: word
            for key, word in layout.items()
            if _feature(key, word) and key not in _NO_FEATURE
        }
        return tuple(f"{key}={word}" for key, word in features.items() if not self._have(key, word))

    def complexity(self, layout: Mapping[str, str]) -> float:
        """Features that a layout switches on, each by how rare it is, in bits. [1]"""
        on = [pair for pair in layout.items() if pair[1] != "false" and pair[0] not in _NO_FEATURE]
        return sum(1.0 + math.log2((self.among + 1.0) / (self._have(*pair) + 1.0)) for pair in on)

    def beyond(self, key: str, word: str) -> float:
        """How far a value of an axis or size is beyond what was measured, in doublings. [1]"""
        if key in _NO_FEATURE or word == PLAIN.get(key):
            return 0.0
        if key in NUMBERS or key in SIZES:
            own, of_any = (
                max(0.0, math.log2(float(word) / most))
                for most in self.largest.get(key, (1.0, 1.0))
            )
            return of_any if key in SIZES else min(own, BORROWED + of_any)
        if self.own and self._have(key, word):
            return 0.0
        seen = _feature(key, word) in self.anywhere.get(key, frozenset())
        return BORROWED if seen else 2.0 * BORROWED

    def _have(self, key: str, word: str) -> int:
        return self.counts.get(key, {}).get(_feature(key, word), 0)


@lru_cache(maxsize=64)
def support(runs: MeasuredRuns, stack: str, *, experts: bool) -> Support:
    """The features that a stack is known with, on a model with or without experts."""
    measured = np.isfinite(runs.errors["step"])
    related = runs.related(stack) & measured
    own = bool(related.any())
    among = related if own else measured
    same = among & runs.where("blocks", lambda kind: (EXPERTS in kind.split("+")) == experts)
    among = same if same.any() else among
    counts: dict[str, Counter[str]] = {}
    anywhere: dict[str, frozenset[str]] = {}
    for key in sorted(set(runs.words) & set(WORDS)):
        words, which = runs.words[key], runs.which[key]
        counts[key] = Counter()
        numbers = np.bincount(which[among], minlength=len(words))
        for word, number in zip(words, numbers, strict=True):
            counts[key][_feature(key, word)] += int(number)
        anywhere[key] = frozenset(_feature(key, words[at]) for at in {*which[measured].tolist()})
    largest = {
        key: (
            _largest(runs, key, among) if own else 1.0,
            _largest(runs, key, measured),
        )
        for key in (*SIZES, *sorted(NUMBERS & set(runs.words)))
    }
    return Support(own, int(np.count_nonzero(among)), counts, largest, anywhere)


def _largest(runs: MeasuredRuns, key: str, among: Mask) -> float:
    """The largest number that some runs have under a key; at least 1."""
    numbers: NDArray[Any] = np.array([float(word) for word in runs.words[key]])
    return max(1.0, float(numbers[runs.which[key][among]].max(initial=1.0)))


@cache
def _feature(key: str, word: str) -> str:
    """What a word is as a feature; empty where it is the plainest."""
    if word == PLAIN[key]:
        return ""
    if key in NUMBERS:
        return "more"
    first, _, detail = word.partition(":")
    return first if detail.isdigit() else word
