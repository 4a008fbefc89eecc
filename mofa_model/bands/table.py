"""Measured runs as columns: those that are shipped, each with what a fit that did not see its group
says of it, and the user's own.

`runs.tsv.gz` is written by `mofa fit` of the lab from its case files. A user's runs stand under
`[[runs]]` of the files that MOFA_CONSTANTS names, as `mofa calibrate --from-runs` writes them.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from mofa_model.bands.coordinates import OTHER, PLACES, PLAIN, SIZES, Coordinates, apart
from mofa_model.errors import BadFile
from mofa_model.presets import constants
from mofa_model.records import dataclass

Array = NDArray[np.floating[Any]]
H = TypeVar("H", bound=Hashable)

FILE: Final = "runs.tsv.gz"
"""The shipped runs, beside this module."""
VARIANCE: Final = "variance.toml"
"""What the variance of steps is made of (`variance`), beside this module too."""
QUANTITIES: Final = ("step", "memory")
"""What was measured of a run: the time of a step, the memory of the fullest device."""
COLUMNS: Final = ("id", "group", *PLACES, "layout", *QUANTITIES)
"""Columns in order; errors are logarithms in ten thousandths, empty if not measured."""
OWN: Final = "your own runs"
"""Group of a user's runs."""
UNIT: Final = 1e4
_NUMBER: Final = re.compile(r"-?[1-9]\d{0,11}(\.\d+)?|0")


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
    digest: str
    """Hash of all runs and of what variances are made of, a part of the inputs hash."""

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
        """Which runs have a word that holds, under a coordinate or a key of the layout."""
        if name not in self.words:
            return np.full(len(self.names), holds(PLAIN.get(name, "")))
        mask = np.array([holds(word) for word in self.words[name]], dtype=bool)
        found: NDArray[np.bool_] = mask[self.which[name]]
        return found

    def have(self, name: str, word: str) -> NDArray[np.bool_]:
        """Which runs have a word under a coordinate or a key of the layout."""
        return self.where(name, lambda had: had == word)

    def publisher(self, index: int) -> str:
        """Who ran a run; empty for the user."""
        group = self.groups[index]
        return "" if group.startswith(OWN) else group.partition(",")[0]

    def at(self, index: int) -> Coordinates:
        """Where a run stands."""
        said = {name: self.word(name, index) for name in self.words}
        layout = {key: word for key, word in said.items() if word != PLAIN.get(key, word)}
        places: dict[str, Any] = {name: said[name] for name in PLACES}
        return Coordinates(**places, layout=layout, publisher=self.publisher(index))

    def related(self, stack: str) -> NDArray[np.bool_]:
        """Which runs are of a stack or of its relatives."""
        return self.where("stack", lambda had: apart("stack", stack, had) < OTHER)

    def word(self, name: str, index: int) -> str:
        """What a run has under a coordinate or a key of the layout."""
        if name not in self.words:
            return PLAIN[name]
        return self.words[name][int(self.which[name][index])]


def measured_runs(more: Iterable[Mapping[str, str]] = ()) -> MeasuredRuns:
    """The shipped runs, those of the constants files, and more of the user's."""
    further = [_own("runs", row) for row in more]
    return (
        in_columns([*_rows(constants.constant_files()), *further])
        if further
        else _held(constants.constant_files())
    )


@cache
def _held(files: tuple[str, ...]) -> MeasuredRuns:
    return in_columns(_rows(files))


def _rows(files: tuple[str, ...]) -> list[Mapping[str, str]]:
    own = [
        _own(name, given)
        for name in files
        for given in constants.read_constants(name).get("runs", ())
    ]
    return [*_shipped(), *own]


def _shipped() -> Iterable[Mapping[str, str]]:
    packed = Path(__file__).with_name(FILE).read_bytes()
    head, *lines = gzip.decompress(packed).decode("utf-8").splitlines()
    names = head.split("\t")
    return (dict(zip(names, line.split("\t"), strict=True)) for line in lines)


def _own(file: str, given: Any) -> Mapping[str, str]:
    """A user's run, as the shipped ones are written."""
    needed = [name for name in COLUMNS if name not in {"group", "memory"}]
    if not isinstance(given, Mapping) or any(
        not isinstance(given.get(name), str) for name in needed
    ):
        raise BadFile(file, f"[[runs]] must give, as text in quotes: {', '.join(needed)}")
    for name in (*SIZES, *QUANTITIES):
        if not _NUMBER.fullmatch(text := str(given.get(name, ""))) and (
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
    layouts = {
        text: dict(pair.split("=", 1) for pair in text.split())
        for text in {row["layout"] for row in rows}
    }
    keys = sorted({key for layout in layouts.values() for key in layout})
    said = {name: [row[name] for row in rows] for name in (*PLACES, "layout")}
    words = {name: distinct(texts) for name, texts in said.items()}
    which = {name: positions(texts, words[name]) for name, texts in said.items()}
    layout_words, layout_of_run = words.pop("layout"), which.pop("layout")
    for key in keys:  # a few hundred layouts, however many runs
        texts = [layouts[text].get(key, PLAIN.get(key, "")) for text in layout_words]
        words[key] = distinct(texts)
        which[key] = positions(texts, words[key])[layout_of_run]
    groups = tuple(row["group"] for row in rows)
    return MeasuredRuns(
        names=tuple(row["id"] for row in rows),
        groups=groups,
        words=words,
        which=which,
        errors={name: np.array([_number(row[name]) / UNIT for row in rows]) for name in QUANTITIES},
        digest=hashlib.sha256(
            Path(__file__).with_name(VARIANCE).read_bytes()
            + repr([tuple(row.values()) for row in rows]).encode()
        ).hexdigest(),
    )


def distinct(texts: Iterable[H]) -> tuple[H, ...]:
    """Each text once, in order."""
    return tuple(dict.fromkeys(texts))


def positions(texts: Iterable[H], words: Sequence[H]) -> NDArray[np.intp]:
    """Where each text stands among some words."""
    at = {word: place for place, word in enumerate(words)}
    return np.array([at[text] for text in texts], dtype=np.intp)


def _number(text: str) -> float:
    return float(text) if text else float("nan")
