"""The shipped table of measured runs, each with what a fit without its group says of it; and how
many of them their bands hold.

Runs of a group err alike, so a share is judged by its groups: each counts the share of its own
runs.

A fit without a run has not seen it, but who chose the laws has. So where a release predicted a run
before anybody here knew it, a system that is left out is judged by that prediction, not by today's:
`first_predictions`.
"""

from __future__ import annotations

import gzip
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mofa_lab.fitting.campaign import SPREADS, Calibrated, CampaignResult
from mofa_lab.fitting.folds import KEYS
from mofa_lab.fitting.sets import set_of
from mofa_lab.validate.steps import predict
from mofa_model.bands.coordinates import Coordinates, coordinates
from mofa_model.bands.odds import SHARE, band_of
from mofa_model.bands.table import COLUMNS, QUANTITIES, UNIT, MeasuredRuns, in_columns, in_words
from mofa_model.calibrate.cases import Case
from mofa_model.calibrate.fit import FitRow, predicted_by
from mofa_model.files import from_json, read_text

Mask = NDArray[np.bool_]
Row = Mapping[str, str]

PREDICTED: Final = {"step": ("step_time_s",), "memory": ("peak", "first stage", "allocated_gib")}
"""What predicts the figures of a quantity of the table."""
FIRST: Final = Path("lab/data/first_predictions.json")
"""Step times as they were said of runs that nobody here knew, in a clone."""
WITHIN: Final = (0.75, 0.88)
"""Where the share of all runs that bands hold has to be. [1]"""
CHANCE: Final = 0.01
"""Chance below which so few or so many groups in their bands are no accident. [1]"""
WHOLE: Final = ("system", "publisher", "stack", "device", "scale")
"""What is left out whole."""
ALL: Final = "all"
"""All runs of one way of leaving out."""
TOLD: Final = 0.07
"""How far the printed confidence may be from the mean share of systems. [1]"""


@dataclass(frozen=True, slots=True)
class Held:
    """How many runs of a set their bands hold, each made without the run's group."""

    name: str
    groups: int
    runs: int
    held: int
    of_groups: float  # sum over groups of the share of their runs
    width: float  # median of high / low

    @property
    def share(self) -> float:
        """Share of runs inside their bands. [1]"""
        return self.held / self.runs

    @property
    def share_of_groups(self) -> float:
        """Mean over groups of the share of runs inside their bands: each group counts once. [1]"""
        return self.of_groups / self.groups

    @property
    def interval(self) -> tuple[float, float]:
        """Bounds of the share of groups with 95 % confidence. Source: Clopper and Pearson
        1934. [1]
        """
        from scipy.stats import binomtest

        bounds = binomtest(round(self.of_groups), self.groups).proportion_ci(0.95)
        return float(bounds.low), float(bounds.high)

    @property
    def stands(self) -> bool:
        """Whether so many groups inside their bands agree with the share that bands are made
        to hold.
        """
        from scipy.stats import binomtest

        return bool(binomtest(round(self.of_groups), self.groups, SHARE).pvalue >= CHANCE)


@cache
def first_predictions() -> Mapping[str, float]:
    """The step time that was predicted for a run before any release was fitted to it: its
    logarithm, by the run's name. Empty where no such predictions are stored. [1]
    """
    if not FIRST.exists():
        return {}
    steps = from_json(read_text(FIRST), FIRST)["step_s"]
    return {name: math.log(step) for name, step in steps.items()}


def judged(
    part: Calibrated, quantity: str, by: str = "group", *, in_view: bool = False
) -> Iterator[tuple[FitRow, float, str, Mask]]:
    """Every run of a quantity with log(measured / predicted) by the fold that judges it, that fold,
    and what it does not see.

    Where systems are left out a first prediction takes the place of the fold's, but not `in_view`.
    """
    validated = part.validated[by]
    first = first_predictions() if by == SPREADS and not in_view else {}
    for fold in validated.folds:
        for index in np.flatnonzero(fold.judged & np.isfinite(part.evidence.measured)):
            row = part.evidence.rows[index]
            if predicted_by(row) in PREDICTED[quantity]:
                predicted = first.get(row.case.id, validated.values[index])
                yield row, float(part.evidence.measured[index] - predicted), fold.name, fold.unseen


def bare_rows(result: CampaignResult) -> list[dict[str, str]]:
    """Rows of the table of measured runs, without errors, by the names of cases."""
    rows: dict[str, dict[str, str]] = {}
    for quantity, part in (("step", result.time), ("memory", result.memory)):
        for row, error, group, _ in judged(part, quantity):
            fields = rows.setdefault(row.case.id, _placed(row, group))
            fields[quantity] = f"{round(UNIT * error)}"
    return [rows[name] for name in sorted(rows)]


def _placed(row: FitRow, group: str) -> dict[str, str]:
    return {
        **in_words(row.case.id, coordinates_of(row)),
        **dict.fromkeys(QUANTITIES, ""),
        "group": group,
    }


def estimated_shares(cases: Sequence[Case]) -> dict[str, float]:
    """Share of each case's memory that is estimated, by its name. [1]"""
    shares = predict(cases).columns["estimated"]
    return {case.id: float(share) for case, share in zip(cases, shares, strict=True)}


def coordinates_of(row: FitRow, estimated: float = 1.0) -> Coordinates:
    """The coordinates of a case among measured runs; stack and publisher are those that the
    case says.
    """
    case = row.case
    place = coordinates(case.workload, case.cluster, case.strategy, estimated)
    return replace(place, stack=case.key.stack, publisher=case.publisher)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A run with the band that was made without its group."""

    row: FitRow
    fold: str
    error: float
    width: float
    inside: bool


def against_bands(
    result: CampaignResult, quantity: str, by: str = "group", *, in_view: bool = False
) -> list[LeftOut]:
    """Every run of a quantity beside the band that is made without the runs of its own group."""
    part = result.time if quantity == "step" else result.memory
    rows = bare_rows(result)
    left_out = []
    shares = estimated_shares(result.cases) if quantity == "memory" else {}
    seen: dict[str, MeasuredRuns] = {}
    for row, error, fold, unseen in judged(part, quantity, by, in_view=in_view):
        if fold not in seen:
            seen[fold] = without(rows, part, unseen)
        band = band_of(seen[fold], coordinates_of(row, shares.get(row.case.id, 1.0)), quantity)
        width, inside = band.upper / band.lower, band.lower <= np.exp(error) <= band.upper
        left_out.append(LeftOut(row, fold, error, float(width), bool(inside)))
    return left_out


def without(rows: Sequence[Row], part: Calibrated, unseen: Mask) -> MeasuredRuns:
    """The table without the runs that a fold does not see."""
    hidden_ids = {
        run.case.id for run, hidden in zip(part.evidence.rows, unseen, strict=True) if hidden
    }
    return in_columns(row for row in rows if row["id"] not in hidden_ids)


def as_bytes(rows: Sequence[Row]) -> bytes:
    """The table as it is shipped."""
    lines = ["\t".join(COLUMNS), *("\t".join(row[name] for name in COLUMNS) for row in rows)]
    return gzip.compress(("\n".join(lines) + "\n").encode(), 9, mtime=0)


def coverage(result: CampaignResult) -> list[tuple[str, str, Held]]:
    """How many runs bands hold that were made without the run's group, by quantity and kind
    of set.
    """
    ways: Mapping[str, Callable[[FitRow], str]] = {
        "runs": lambda row: set_of(row.case),
        "stack and class of devices": lambda row: f"{row.case.key.stack}, {KEYS['device'](row)}",
    }
    rows = []
    for quantity in QUANTITIES:
        runs = against_bands(result, quantity)
        for way, name_of in ways.items():
            rows += [(quantity, way, held) for held in _sets(runs, lambda run: name_of(run.row))]  # noqa: B023
    return rows


def coverage_without(result: CampaignResult) -> list[tuple[str, Held]]:
    """How many steps bands hold where a whole system, publisher, stack, device or scale was
    left out.
    """
    rows = []
    for by in (name for name in WHOLE if name in result.time.validated):
        runs = against_bands(result, "step", by)
        parts = _sets(
            runs, lambda run: set_of(run.row.case) if run.fold.startswith("more") else run.fold
        )
        rows += [(by, _held(ALL, runs)), *((by, held) for held in parts)]
    return rows


def confidence_error(result: CampaignResult) -> tuple[int, float]:
    """Number of systems that were left out, and how far the mean share that their bands hold is
    from what is printed. [1]
    """
    shares = [
        held.share for by, held in coverage_without(result) if by == "system" and held.name != ALL
    ]
    return len(shares), abs(float(np.mean(shares)) - SHARE)


@dataclass(frozen=True, slots=True)
class FirstSight:
    """What bands hold of runs that a release predicted before anybody here knew them, each system
    counted alike.
    """

    runs: int
    systems: int
    first: float  # by these predictions
    in_view: float  # by today's of a fit without the system
    every: float  # by today's, of all systems


def at_first_sight(result: CampaignResult) -> FirstSight:
    """How much of what bands hold of systems left out is due to laws that were chosen with their
    runs in view.
    """

    def mean(runs: Sequence[LeftOut]) -> float:
        sets = _sets(runs, lambda run: run.fold)
        return float(np.mean([held.share for held in sets])) if sets else math.nan

    first, today = (
        against_bands(result, "step", SPREADS, in_view=in_view) for in_view in (False, True)
    )
    first_sight, first_sight_today = (
        [run for run in runs if run.row.case.id in first_predictions()] for runs in (first, today)
    )
    systems = len({run.fold for run in first_sight})
    return FirstSight(
        len(first_sight), systems, mean(first_sight), mean(first_sight_today), mean(today)
    )


def _sets(runs: Sequence[LeftOut], name_of: Callable[[LeftOut], str]) -> list[Held]:
    sets: dict[str, list[LeftOut]] = {}
    for run in runs:
        sets.setdefault(name_of(run), []).append(run)
    return [_held(name, sets[name]) for name in sorted(sets)]


def _held(name: str, runs: Sequence[LeftOut]) -> Held:
    """How many of some left-out runs lie in their bands, counted by runs and by groups."""
    groups: dict[str, list[bool]] = {}
    for run in runs:
        groups.setdefault(KEYS["group"](run.row), []).append(run.inside)
    return Held(
        name,
        len(groups),
        len(runs),
        sum(run.inside for run in runs),
        float(sum(np.mean(inside) for inside in groups.values())),
        float(np.median([run.width for run in runs])),
    )
