"""Measured runs as columns: the shipped ones, each with its error by a fit that did not see its
group, and the user's own. The support of a layout is what the runs of its stack have in common with
it.

`mofa fit` of the lab writes `runs.tsv.gz` from its case files. A user's runs stand under `[[runs]]`
of the files that MOFA_CONSTANTS names, as `mofa calibrate --from-runs` writes them.

Runs of the stack's family count as support; where nobody measured the family, all runs do, as
borrowed ones. For a mixture of experts only runs of mixtures count, for a dense model only runs of
dense models, if there are any. Where adapters are trained, features count from runs of every
method, but the family counts as measured only by runs of the same method (LoRA or QLoRA). Where all
weights are trained, runs with adapters say nothing.

A feature is a key of the layout whose word is not the plainest one. All numbers above the plainest
are one feature, and so are all numbers of whole layers that are recomputed. The complexity of a
layout counts its features, each by how rare it is:

    complexity = sum over features of 1 + log2(n / n of those with the feature)    in bits

where n counts the runs of the stack's family. The distance of a value beyond the measured runs is
in doublings:

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
"""The numbers of `variance`, beside this module too."""
TAB: Final = "\t"
"""Separator of the columns of a row."""
QUANTITIES: Final = ("step", "memory")
"""Measured quantities of a run: the time of a step, the memory of the fullest device."""
COLUMNS: Final = ("id", "group", *PLACES, "layout", *QUANTITIES)
"""Columns in order; errors are logarithms over `UNIT`, empty where nothing was measured."""
OWN: Final = "your own runs"
"""Group of a user's runs."""
UNIT: Final = 1e4
EXPERTS: Final = "experts"
"""The block of a mixture of experts."""
BORROWED: Final = 1.0
"""Doublings to a value that only another family has; twice as many where no run has it. [1]"""
_NO_FEATURE: Final = {"mbs"}
"""Keys whose words above the plainest switch nothing on."""
_NUMBER: Final = r"-?[1-9]\d{0,11}(\.\d+)?|0"


@dataclass(frozen=True, kw_only=True, eq=False)
class MeasuredRuns:
    """Runs in columns, one entry a run. Two of these are equal only if they are the same object."""

    names: tuple[str, ...]
    groups: tuple[str, ...]
    """Groups of runs: one publisher, one family of models, one GPU."""
    words: Mapping[str, tuple[str, ...]]
    """Distinct words of each coordinate and key of the layout."""
    which: Mapping[str, NDArray[np.intp]]
    """By coordinate or key of the layout, the position of each run's word in `words`."""
    errors: Mapping[str, Array]
    """Logarithm of measured over predicted by quantity; NaN where it was not measured. [1]"""
    lines: tuple[str, ...]
    """The rows that the runs were read from, as lines of the table."""
    left_out: tuple[str, ...] = ()
    """Groups in `lines` whose runs are left out."""

    @cached_property
    def digest(self) -> str:
        """Hash of all runs and of the numbers of `variance`; a part of the inputs hash."""
        import hashlib

        text = repr([tuple(line.split(TAB)) for line in self.lines]).encode()
        variance = parsed.read(parsed.beside(__file__, VARIANCE))
        digest = hashlib.sha256(variance + text).hexdigest()
        return digest + "".join(f" without {group}" for group in self.left_out)

    def distances(self, coordinates: Coordinates) -> Array:
        """Distance of every run from a layout, in halvings (`coordinates`). [1]"""
        distances = np.zeros(len(self.names))
        for name, words in self.words.items():
            costs = np.array([apart(name, coordinates.word(name), word) for word in words])
            if costs.any():
                distances += costs[self.which[name]]
        for name in sorted(set(coordinates.layout) - set(self.words)):  # keys that no run has
            distances += apart(name, coordinates.word(name), PLAIN[name])
        return distances

    def where(self, name: str, holds: Callable[[str], bool]) -> NDArray[np.bool_]:
        """Which runs meet a condition on the value of one coordinate or key of the layout."""
        if name not in self.words:
            return np.full(len(self.names), holds(PLAIN.get(name, "")))
        mask = np.array([holds(word) for word in self.words[name]], dtype=bool)
        has_value: NDArray[np.bool_] = mask[self.which[name]]
        return has_value

    def have(self, name: str, word: str) -> NDArray[np.bool_]:
        """Which runs have one value of a coordinate or key of the layout."""
        return self.where(name, lambda value: value == word)

    def publisher(self, index: int) -> str:
        """Who published a run; empty for the user's own."""
        group = self.groups[index]
        return "" if group.startswith(OWN) else group.partition(",")[0]

    def at(self, index: int) -> Coordinates:
        """The coordinates of a measured run."""
        words = {name: self.word(name, index) for name in self.words}
        layout = {key: word for key, word in words.items() if word != PLAIN.get(key, word)}
        places: dict[str, Any] = {name: words[name] for name in PLACES}
        return Coordinates(**places, layout=layout, publisher=self.publisher(index))

    def related(self, stack: str) -> NDArray[np.bool_]:
        """Which runs are of a stack or of its relatives."""
        return self.where("stack", lambda value: apart("stack", stack, value) < OTHER)

    def evidence_of(self, method: str) -> NDArray[np.bool_]:
        """Which runs with a measured step are evidence of a training method (`tells`)."""
        of_method = self.where("method", lambda value: tells(value, method))
        return of_method & np.isfinite(self.errors["step"])

    def word(self, name: str, index: int) -> str:
        """A run's value of a coordinate or key of the layout."""
        if name not in self.words:
            return PLAIN[name]
        return self.words[name][int(self.which[name][index])]


def measured_runs(own_rows: Iterable[Mapping[str, str]] = ()) -> MeasuredRuns:
    """The shipped runs, those of the constants files, and further rows of the user's."""
    files, own = constants.constant_files(), [_own_run("runs", row) for row in own_rows]
    return in_columns([*_shipped(), *_own_runs_in(files), *own]) if own else _runs_with(files)


@cache
def _runs_with(files: tuple[str, ...]) -> MeasuredRuns:
    """The shipped runs, and those of some constants files."""
    if own := _own_runs_in(files):
        return in_columns([*_shipped(), *own])
    plain = parsed.parsed(parsed.beside(__file__, FILE), _plain)
    which, errors = plain["which"].items(), plain["errors"].items()
    columns = {
        "which": {name: np.frombuffer(packed, _POSITION).astype(np.intp) for name, packed in which},
        "errors": {name: np.frombuffer(packed, _ERROR).astype(float) for name, packed in errors},
    }
    return MeasuredRuns(**plain | columns)


def _plain(packed: bytes) -> dict[str, Any]:
    """The shipped runs as plain values, with columns of numbers as bytes."""
    names, *lines = _table(packed)
    columns = zip(*(line.split(TAB) for line in lines), strict=True)
    runs = _in_columns(dict(zip(names.split(TAB), columns, strict=True)), lines)
    return {
        "names": runs.names,
        "groups": runs.groups,
        "words": runs.words,
        "which": {name: column.astype(_POSITION).tobytes() for name, column in runs.which.items()},
        "errors": {name: column.astype(_ERROR).tobytes() for name, column in runs.errors.items()},
        "lines": runs.lines,
    }


_POSITION: Final = np.dtype("<i4")
_ERROR: Final = np.dtype("<f8")
"""Types of the numbers of `_plain`."""


def _own_runs_in(files: tuple[str, ...]) -> list[Mapping[str, str]]:
    """The user's runs that constants files list."""
    return [
        _own_run(name, row)
        for name in files
        for row in constants.read_constants(name).get("runs", ())
    ]


def _shipped() -> Iterable[Mapping[str, str]]:
    names, *lines = _table(parsed.read(parsed.beside(__file__, FILE)))
    return (dict(zip(names.split(TAB), line.split(TAB), strict=True)) for line in lines)


def _table(packed: bytes) -> list[str]:
    """The line with the names of the columns, and the lines under it."""
    import gzip

    return gzip.decompress(packed).decode("utf-8").splitlines()


def _own_run(file: str, row: Any) -> Mapping[str, str]:
    """A user's run from a file, in the form of the shipped runs."""
    needed = [name for name in COLUMNS if name not in {"group", "memory", "method"}]
    if not isinstance(row, Mapping) or any(not isinstance(row.get(name), str) for name in needed):
        raise BadFile(file, f"[[runs]] must give, as text in quotes: {', '.join(needed)}")
    for name in (*SIZES, *QUANTITIES):
        if not re.fullmatch(_NUMBER, text := str(row.get(name, ""))) and (
            text or name not in QUANTITIES
        ):
            raise BadFile(
                file, f"[[runs]] {row['id']}: {name} = {text!r} must be a number in quotes"
            )
    if any("=" not in pair for pair in row["layout"].split()):
        raise BadFile(
            file, f"[[runs]] {row['id']}: layout = {row['layout']!r} must be key=word pairs"
        )
    return {"memory": "", "method": FULL, **row, "group": f"{OWN}, {row['stack']}, {row['device']}"}


def in_words(name: str, coordinates: Coordinates, **errors: float) -> dict[str, str]:
    """A user's run as a row of the table, with its errors by quantity."""
    layout = " ".join(f"{key}={word}" for key, word in sorted(coordinates.layout.items()))
    places = {place: coordinates.word(place) for place in PLACES}
    return {
        "id": name,
        **places,
        "layout": layout,
        **{key: f"{round(UNIT * value)}" for key, value in errors.items()},
    }


def in_columns(rows: Iterable[Mapping[str, str]]) -> MeasuredRuns:
    """Rows of the table as columns."""
    rows = list(rows)
    columns = {name: [row[name] for row in rows] for name in COLUMNS}
    return _in_columns(columns, [TAB.join(row.values()) for row in rows])


def _in_columns(columns: Mapping[str, Sequence[str]], lines: Iterable[str]) -> MeasuredRuns:
    """Runs from their texts by column: each column keeps its distinct words, and for each run the
    position of its word.
    """
    words, which = {}, {}
    for name in (*PLACES, "layout"):
        words[name] = distinct(columns[name])
        which[name] = positions(columns[name], words[name])
    layouts = {text: dict(pair.split("=", 1) for pair in text.split()) for text in words["layout"]}
    keys = sorted({key for layout in layouts.values() for key in layout})
    layout_words, layout_of_run = words.pop("layout"), which.pop("layout")
    for key in keys:  # by layout, of which there are a few hundred, however many the runs
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


def tells(run_method: str, method: str) -> bool:
    """Whether runs of one training method are evidence of another (`method`). Runs with adapters
    are none of training all weights, because other terms price them.

    >>> tells("full", "lora"), tells("qlora", "lora"), tells("lora", "full")
    (True, True, False)
    """
    return run_method == FULL or method != FULL


def distinct(texts: Iterable[H]) -> tuple[H, ...]:
    """Each text once, in order."""
    return tuple(dict.fromkeys(texts))


def positions(texts: Iterable[H], words: Sequence[H]) -> NDArray[np.intp]:
    """For each text, its position in a list of distinct texts."""
    position = {word: number for number, word in enumerate(words)}
    return np.array([position[text] for text in texts], dtype=np.intp)


def _number(text: str) -> float:
    return float(text) if text else float("nan")


@dataclass(frozen=True)
class Support:
    """Features of the measured runs that count for a stack."""

    own: bool
    """Whether these runs are of its family."""
    among: int
    """Number of these runs. [1]"""
    counts: Mapping[str, Mapping[str, int]]
    """How many of these runs have each feature, by key. [1]"""
    largest: Mapping[str, tuple[float, float]]
    """Largest number of each key and size: in runs of the family, and in all runs. [1]"""
    anywhere: Mapping[str, frozenset[str]]
    """Features that any measured run has, by key."""

    def unmeasured(self, layout: Mapping[str, str]) -> tuple[str, ...]:
        """Features of a layout that no measured run has."""
        is_new = self._new
        return tuple(f"{key}={word}" for key, word in layout.items() if is_new(key, word))

    def complexity(self, layout: Mapping[str, str]) -> float:
        """Features that a layout switches on, each by how rare it is, in bits. [1]"""
        bits = self._bits
        return sum(bits(key, word) for key, word in layout.items())

    @cached_property
    def _new(self) -> Callable[[str, str], bool]:
        """Whether no measured run has a feature; cached, because candidates share few."""

        def is_new(key: str, word: str) -> bool:
            counts = key not in _NO_FEATURE and bool(_feature(key, word))
            return counts and not self._have(key, word)

        return cache(is_new)

    @cached_property
    def _bits(self) -> Callable[[str, str], float]:
        """How rare a feature is among measured runs, in bits; cached likewise. [1]"""

        def bits(key: str, word: str) -> float:
            if word == "false" or key in _NO_FEATURE:
                return 0.0
            return 1.0 + math.log2((self.among + 1.0) / (self._have(key, word) + 1.0))

        return cache(bits)

    def beyond(self, key: str, word: str) -> float:
        """Distance of a value of an axis or size beyond the measured runs, in doublings. [1]"""
        if key in _NO_FEATURE or word == PLAIN.get(key):
            return 0.0
        if key in NUMBERS or key in SIZES:
            beyond_own, beyond_any = (
                max(0.0, math.log2(float(word) / largest))
                for largest in self.largest.get(key, (1.0, 1.0))
            )
            return beyond_any if key in SIZES else min(beyond_own, BORROWED + beyond_any)
        if self.own and self._have(key, word):
            return 0.0
        is_elsewhere = _feature(key, word) in self.anywhere.get(key, frozenset())
        return BORROWED if is_elsewhere else 2.0 * BORROWED

    def _have(self, key: str, word: str) -> int:
        return self.counts.get(key, {}).get(_feature(key, word), 0)


@lru_cache(maxsize=64)
def support(runs: MeasuredRuns, stack: str, *, experts: bool, method: str = FULL) -> Support:
    """What measured runs tell of a stack: those of its family, or all where its family has none;
    of these, the runs on models with experts, or without, where there are any.
    """
    measured = runs.evidence_of(method)
    related = runs.related(stack) & measured
    own = bool((related & runs.have("method", method)).any())
    among = related if own else measured
    alike = among & runs.where("blocks", lambda kind: (EXPERTS in kind.split("+")) == experts)
    among = alike if alike.any() else among
    counts: dict[str, Counter[str]] = {}
    for key in _keys(runs):
        words = runs.words[key]
        counts[key] = Counter()
        numbers = np.bincount(runs.which[key][among], minlength=len(words)).tolist()
        for word, number in zip(words, numbers, strict=True):
            counts[key][_feature(key, word)] += number
    largest = {
        key: (_largest(runs, key, among) if own else 1.0, largest_anywhere)
        for key, largest_anywhere in _largest_anywhere(runs, method).items()
    }
    return Support(own, int(np.count_nonzero(among)), counts, largest, _anywhere(runs, method))


@lru_cache(maxsize=8)
def _anywhere(runs: MeasuredRuns, method: str) -> Mapping[str, frozenset[str]]:
    """Features of all measured runs that are evidence of a method, by key."""
    measured = runs.evidence_of(method)
    return {
        key: frozenset(_feature(key, word) for word in _words_among(runs, key, measured))
        for key in _keys(runs)
    }


@lru_cache(maxsize=8)
def _largest_anywhere(runs: MeasuredRuns, method: str) -> Mapping[str, float]:
    """The largest number of each key and size among runs that are evidence of a method."""
    measured = runs.evidence_of(method)
    numbers = (*SIZES, *sorted(NUMBERS & set(runs.words)))
    return {key: _largest(runs, key, measured) for key in numbers}


def _keys(runs: MeasuredRuns) -> list[str]:
    """Keys of layouts that some run has."""
    return sorted(set(runs.words) & set(WORDS))


def _words_among(runs: MeasuredRuns, key: str, among: Mask) -> list[str]:
    """The words that some runs have for a key."""
    positions = np.flatnonzero(np.bincount(runs.which[key][among])).tolist()
    return [runs.words[key][position] for position in positions]


def _largest(runs: MeasuredRuns, key: str, among: Mask) -> float:
    """The largest value of a key among some runs; at least 1."""
    return max([1.0, *map(float, _words_among(runs, key, among))])


@cache
def _feature(key: str, word: str) -> str:
    """The feature of a key with a word; empty for the plainest word."""
    if word == PLAIN[key]:
        return ""
    if key in NUMBERS:
        return "more"
    first, _, detail = word.partition(":")
    return first if detail.isdigit() else word
