"""Measured runs as columns: those that are shipped, each with what a fit that did not see its group
says of it, and the user's own. What the runs of a stack have of a layout is its support.

`runs.tsv.gz` is written by `mofa fit` of the lab from its case files. A user's runs stand under
`[[runs]]` of the files that MOFA_CONSTANTS names, as `mofa calibrate --from-runs` writes them.

For support, runs of a stack's family count; of a family that nobody measured, all runs, as borrowed
ones. Of a mixture of experts only runs of mixtures count, and of a dense model only those of dense
ones, where there are some. Where adapters are trained, a layout's features count whatever its runs
trained, but the family is known only by runs that trained the same: LoRA, or QLoRA. Where all
weights are trained, runs with adapters say nothing.

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
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cache, cached_property, lru_cache
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from mofa_model import parsed
from mofa_model.bands.coordinates import (
    NUMBERS,
    OTHER,
    PLACES,
    PLAIN,
    SIZES,
    WORDS,
    Coordinates,
    apart,
)
from mofa_model.errors import BadFile
from mofa_model.presets import constants
from mofa_model.records import dataclass
from mofa_model.spec.tuning import FULL

Array = NDArray[np.floating[Any]]
Mask = NDArray[np.bool_]
H = TypeVar("H", bound=Hashable)

FILE: Final = "runs.tsv.gz"
"""The shipped runs, beside this module."""
VARIANCE: Final = "variance.toml"
"""What the variance of steps is made of (`variance`), beside this module too."""
TAB: Final = "\t"
"""What stands between the columns of a row."""
QUANTITIES: Final = ("step", "memory")
"""What was measured of a run: the time of a step, the memory of the fullest device."""
COLUMNS: Final = ("id", "group", *PLACES, "layout", *QUANTITIES)
"""Columns in order; errors are logarithms in ten thousandths, empty if not measured."""
OWN: Final = "your own runs"
"""Group of a user's runs."""
UNIT: Final = 1e4
EXPERTS: Final = "experts"
"""The block of a mixture."""
BORROWED: Final = 1.0
"""Doublings that a value is away where only another family has it; twice, where none has. [1]"""
_NO_FEATURE: Final = {"mbs"}
"""Keys that are above the plainest without anything being switched on."""
_NUMBER: Final = r"-?[1-9]\d{0,11}(\.\d+)?|0"


@dataclass(frozen=True, kw_only=True, eq=False)
class MeasuredRuns:
    """Runs in columns, one entry a run. Two tables are the same only as one object."""

    names: tuple[str, ...]
    groups: tuple[str, ...]
    """Groups of runs: one publisher, one family of models, one GPU."""
    words: Mapping[str, tuple[str, ...]]
    """Words of each coordinate and key of the layout."""
    which: Mapping[str, NDArray[np.intp]]
    """By coordinate or key of the layout, the position of each run's word among these."""
    errors: Mapping[str, Array]
    """Logarithm of measured over predicted by quantity; NaN where it was not measured. [1]"""
    lines: tuple[str, ...]
    """The rows that they were read from, as lines of the table."""
    left_out: tuple[str, ...] = ()
    """Groups of these rows that are not among them."""

    @cached_property
    def digest(self) -> str:
        """Hash of all runs and of what variances are made of, a part of the inputs hash."""
        import hashlib

        text = repr([tuple(line.split(TAB)) for line in self.lines]).encode()
        variance = parsed.read(parsed.beside(__file__, VARIANCE))
        found = hashlib.sha256(variance + text).hexdigest()
        return found + "".join(f" without {group}" for group in self.left_out)

    def distances(self, coordinates: Coordinates) -> Array:
        """How far every run is from a layout: what it is called near by. [1]"""
        found = np.zeros(len(self.names))
        for name, words in self.words.items():
            costs = np.array([apart(name, coordinates.word(name), had) for had in words])
            if costs.any():
                found += costs[self.which[name]]
        for name in sorted(set(coordinates.layout) - set(self.words)):  # what no run has
            found += apart(name, coordinates.word(name), PLAIN[name])
        return found

    def where(self, name: str, holds: Callable[[str], bool]) -> NDArray[np.bool_]:
        """Which runs meet a condition on the value of one coordinate or key of the layout."""
        if name not in self.words:
            return np.full(len(self.names), holds(PLAIN.get(name, "")))
        mask = np.array([holds(word) for word in self.words[name]], dtype=bool)
        found: NDArray[np.bool_] = mask[self.which[name]]
        return found

    def have(self, name: str, word: str) -> NDArray[np.bool_]:
        """Which runs have one value of a coordinate or key of the layout."""
        return self.where(name, lambda had: had == word)

    def publisher(self, index: int) -> str:
        """Who published a run; empty for the user's own."""
        group = self.groups[index]
        return "" if group.startswith(OWN) else group.partition(",")[0]

    def at(self, index: int) -> Coordinates:
        """The coordinates of a measured run."""
        said = {name: self.word(name, index) for name in self.words}
        layout = {key: word for key, word in said.items() if word != PLAIN.get(key, word)}
        places: dict[str, Any] = {name: said[name] for name in PLACES}
        return Coordinates(**places, layout=layout, publisher=self.publisher(index))

    def related(self, stack: str) -> NDArray[np.bool_]:
        """Which runs are of a stack or of its relatives."""
        return self.where("stack", lambda had: apart("stack", stack, had) < OTHER)

    def tell_of(self, method: str) -> NDArray[np.bool_]:
        """Which runs say something of a training method (`tells`)."""
        return self.where("method", lambda had: tells(had, method))

    def word(self, name: str, index: int) -> str:
        """A run's value of a coordinate or key of the layout."""
        if name not in self.words:
            return PLAIN[name]
        return self.words[name][int(self.which[name][index])]


def measured_runs(more: Iterable[Mapping[str, str]] = ()) -> MeasuredRuns:
    """The shipped runs, those of the constants files, and more of the user's."""
    further = [_own("runs", row) for row in more]
    return (
        in_columns([*_shipped(), *_own_of(constants.constant_files()), *further])
        if further
        else _held(constants.constant_files())
    )


@cache
def _held(files: tuple[str, ...]) -> MeasuredRuns:
    own = _own_of(files)
    if own:
        return in_columns([*_shipped(), *own])
    return _of_plain(parsed.parsed(parsed.beside(__file__, FILE), _plain))


def _plain(packed: bytes) -> dict[str, Any]:
    """The shipped runs as plain values, columns of numbers as bytes."""
    names, *lines = _table(packed)
    columns = zip(*(line.split(TAB) for line in lines), strict=True)
    runs = _in_columns(dict(zip(names.split(TAB), columns, strict=True)), lines)
    return {
        "names": runs.names,
        "groups": runs.groups,
        "words": runs.words,
        "which": {name: at.astype(_PLACE).tobytes() for name, at in runs.which.items()},
        "errors": {name: found.astype(_ERROR).tobytes() for name, found in runs.errors.items()},
        "lines": runs.lines,
    }


def _of_plain(plain: Mapping[str, Any]) -> MeasuredRuns:
    which = {n: np.frombuffer(at, _PLACE).astype(np.intp) for n, at in plain["which"].items()}
    errors = {n: np.frombuffer(found, _ERROR).astype(float) for n, found in plain["errors"].items()}
    return MeasuredRuns(**{**plain, "which": which, "errors": errors})


_PLACE: Final = np.dtype("<i4")
_ERROR: Final = np.dtype("<f8")
"""Numbers as they are kept."""


def _own_of(files: tuple[str, ...]) -> list[Mapping[str, str]]:
    return [
        _own(name, given)
        for name in files
        for given in constants.read_constants(name).get("runs", ())
    ]


def _shipped() -> Iterable[Mapping[str, str]]:
    names, *lines = _table(parsed.read(parsed.beside(__file__, FILE)))
    return (dict(zip(names.split(TAB), line.split(TAB), strict=True)) for line in lines)


def _table(packed: bytes) -> list[str]:
    """The line with the names of the columns, and the lines under it."""
    import gzip

    return gzip.decompress(packed).decode("utf-8").splitlines()


def _own(file: str, given: Any) -> Mapping[str, str]:
    """A user's run from a file, in the form of the shipped runs."""
    needed = [name for name in COLUMNS if name not in {"group", "memory", "method"}]
    if not isinstance(given, Mapping) or any(
        not isinstance(given.get(name), str) for name in needed
    ):
        raise BadFile(file, f"[[runs]] must give, as text in quotes: {', '.join(needed)}")
    for name in (*SIZES, *QUANTITIES):
        if not re.fullmatch(_NUMBER, text := str(given.get(name, ""))) and (
            text or name not in QUANTITIES
        ):
            raise BadFile(
                file, f"[[runs]] {given['id']}: {name} = {text!r} must be a number in quotes"
            )
    if any("=" not in pair for pair in given["layout"].split()):
        raise BadFile(
            file, f"[[runs]] {given['id']}: layout = {given['layout']!r} must be key=word pairs"
        )
    return {
        "memory": "",
        "method": FULL,
        **given,
        "group": f"{OWN}, {given['stack']}, {given['device']}",
    }


def in_words(name: str, coordinates: Coordinates, **errors: float) -> dict[str, str]:
    """A user's run in the words of the table, with its errors by quantity."""
    layout = " ".join(f"{key}={word}" for key, word in sorted(coordinates.layout.items()))
    places = {place: coordinates.word(place) for place in PLACES}
    return {
        "id": name,
        **places,
        "layout": layout,
        **{key: f"{round(UNIT * value)}" for key, value in errors.items()},
    }


def in_columns(rows: Iterable[Mapping[str, str]]) -> MeasuredRuns:
    """Rows in the words of the table as columns."""
    rows = list(rows)
    columns = {name: [row[name] for row in rows] for name in COLUMNS}
    return _in_columns(columns, [TAB.join(row.values()) for row in rows])


def _in_columns(columns: Mapping[str, Sequence[str]], lines: Iterable[str]) -> MeasuredRuns:
    """Runs from their texts by column: each column keeps its different words once, and which of
    them a run has.
    """
    words, which = {}, {}
    for name in (*PLACES, "layout"):
        words[name] = distinct(columns[name])
        which[name] = positions(columns[name], words[name])
    layouts = {text: dict(pair.split("=", 1) for pair in text.split()) for text in words["layout"]}
    keys = sorted({key for layout in layouts.values() for key in layout})
    layout_words, layout_of_run = words.pop("layout"), which.pop("layout")
    for key in keys:  # a few hundred layouts, however many runs
        texts = [layouts[text].get(key, PLAIN.get(key, "")) for text in layout_words]
        words[key] = distinct(texts)
        which[key] = positions(texts, words[key])[layout_of_run]
    return MeasuredRuns(
        names=tuple(columns["id"]),
        groups=tuple(columns["group"]),
        words=words,
        which=which,
        errors={name: np.array([*map(_number, columns[name])]) / UNIT for name in QUANTITIES},
        lines=tuple(lines),
    )


def tells(had: str, asked: str) -> bool:
    """Whether runs of one training method (`had`) say something of another (`asked`). How all
    weights are trained is not learned from adapters: what prices these is beside it.

    >>> tells("full", "lora"), tells("qlora", "lora"), tells("lora", "full")
    (True, True, False)
    """
    return had == FULL or asked != FULL


def distinct(texts: Iterable[H]) -> tuple[H, ...]:
    """Each text once, in order."""
    return tuple(dict.fromkeys(texts))


def positions(texts: Iterable[H], words: Sequence[H]) -> NDArray[np.intp]:
    """For each text, its position in a list of distinct texts."""
    at = {word: place for place, word in enumerate(words)}
    return np.array([at[text] for text in texts], dtype=np.intp)


def _number(text: str) -> float:
    return float(text) if text else float("nan")


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
        """Features of a layout that no measured run has."""
        known = self._new
        return tuple(f"{key}={word}" for key, word in layout.items() if known(key, word))

    def complexity(self, layout: Mapping[str, str]) -> float:
        """Features that a layout switches on, each by how rare it is, in bits. [1]"""
        bits = self._bits
        return sum(bits(key, word) for key, word in layout.items())

    @cached_property
    def _new(self) -> Callable[[str, str], bool]:
        """Whether no measured run has a feature; found once for each, since candidates
        share few.
        """

        def is_new(key: str, word: str) -> bool:
            counts = key not in _NO_FEATURE and bool(_feature(key, word))
            return counts and not self._have(key, word)

        return cache(is_new)

    @cached_property
    def _bits(self) -> Callable[[str, str], float]:
        """How rare each feature is among measured runs, in bits; found once, since candidates share
        few. [1]
        """

        def bits(key: str, word: str) -> float:
            if word == "false" or key in _NO_FEATURE:
                return 0.0
            return 1.0 + math.log2((self.among + 1.0) / (self._have(key, word) + 1.0))

        return cache(bits)

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
def support(runs: MeasuredRuns, stack: str, *, experts: bool, method: str = FULL) -> Support:
    """The features that a stack is known with, on a model with or without experts."""
    measured = np.isfinite(runs.errors["step"]) & runs.tell_of(method)
    related = runs.related(stack) & measured
    own = bool((related & runs.have("method", method)).any())
    among = related if own else measured
    same = among & runs.where("blocks", lambda kind: (EXPERTS in kind.split("+")) == experts)
    among = same if same.any() else among
    counts: dict[str, Counter[str]] = {}
    for key in _keys(runs):
        words = runs.words[key]
        counts[key] = Counter()
        numbers = np.bincount(runs.which[key][among], minlength=len(words)).tolist()
        for word, number in zip(words, numbers, strict=True):
            counts[key][_feature(key, word)] += number
    largest = {
        key: (_largest(runs, key, among) if own else 1.0, of_any)
        for key, of_any in _largest_anywhere(runs, method).items()
    }
    return Support(own, int(np.count_nonzero(among)), counts, largest, _anywhere(runs, method))


@lru_cache(maxsize=8)
def _anywhere(runs: MeasuredRuns, method: str) -> Mapping[str, frozenset[str]]:
    """Features of all measured runs that say something of a method, by key."""
    measured = np.isfinite(runs.errors["step"]) & runs.tell_of(method)
    return {
        key: frozenset(_feature(key, runs.words[key][at]) for at in _present(runs, key, measured))
        for key in _keys(runs)
    }


@lru_cache(maxsize=8)
def _largest_anywhere(runs: MeasuredRuns, method: str) -> Mapping[str, float]:
    """The largest number of each key and size among runs that say something of a method."""
    measured = np.isfinite(runs.errors["step"]) & runs.tell_of(method)
    numbers = (*SIZES, *sorted(NUMBERS & set(runs.words)))
    return {key: _largest(runs, key, measured) for key in numbers}


def _keys(runs: MeasuredRuns) -> list[str]:
    """Keys of layouts that some run has."""
    return sorted(set(runs.words) & set(WORDS))


def _present(runs: MeasuredRuns, key: str, among: Mask) -> list[int]:
    """Positions of the values that some runs have for a key."""
    there: list[int] = np.flatnonzero(np.bincount(runs.which[key][among])).tolist()
    return there


def _largest(runs: MeasuredRuns, key: str, among: Mask) -> float:
    """The largest value of a key among some runs; at least 1."""
    words = runs.words[key]
    return max([1.0, *(float(words[at]) for at in _present(runs, key, among))])


@cache
def _feature(key: str, word: str) -> str:
    """A key with its value as a feature, `key=value`; empty for the plainest value."""
    if word == PLAIN[key]:
        return ""
    if key in NUMBERS:
        return "more"
    first, _, detail = word.partition(":")
    return first if detail.isdigit() else word
