"""The shipped table of measured runs, each with what a fit without its group says of it; and how many of them their bands hold."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_lab.fitting.campaign import Calibrated, CampaignResult
from mofa_lab.fitting.folds import KEYS
from mofa_lab.fitting.sets import set_of
from mofa_lab.validate.steps import predict
from mofa_model.bands.coordinates import Coordinates, coordinates
from mofa_model.bands.odds import SHARE, band_of
from mofa_model.bands.table import COLUMNS, QUANTITIES, UNIT, in_columns, in_words
from mofa_model.calibrate.cases import Case
from mofa_model.calibrate.fit import FitRow, predicted_by

Mask = NDArray[np.bool_]
Row = Mapping[str, str]

PREDICTED: Final = {"step": ("step_time_s",), "memory": ("peak", "first stage", "allocated_gib")}
"""What predicts the figures of a quantity of the table."""
ENOUGH: Final = 40
"""Runs from which the share that bands hold is judged by itself; fewer are held against chance. [1]"""
WITHIN: Final = (0.75, 0.88)
"""Where that share has to be. [1]"""
CHANCE: Final = 0.01
"""Chance below which so few or so many runs in their bands are no accident. [1]"""


@dataclass(frozen=True, slots=True)
class Held:
    """How many runs of a set their bands hold, each made without the run's group."""

    name: str
    groups: int
    runs: int
    held: int
    width: float  # median of high / low

    @property
    def share(self) -> float:
        """Of the runs. [1]"""
        return self.held / self.runs

    @property
    def interval(self) -> tuple[float, float]:
        """Where the share is with 95 %, were all runs independent. Source: Clopper and Pearson 1934. [1]"""
        from scipy.stats import binomtest

        found = binomtest(self.held, self.runs).proportion_ci(0.95)
        return float(found.low), float(found.high)

    @property
    def stands(self) -> bool:
        """Whether the share is what it should be, as far as so many runs can say."""
        from scipy.stats import binomtest

        if self.runs >= ENOUGH:
            return WITHIN[0] <= self.share <= WITHIN[1]
        return bool(binomtest(self.held, self.runs, SHARE, alternative="less").pvalue >= CHANCE)


def judged(
    part: Calibrated, quantity: str, by: str = "group"
) -> Iterator[tuple[FitRow, float, str, Mask]]:
    """Every run of a quantity with log(measured / predicted) by the fold that judges it, that fold, and what it does not see."""
    found = part.validated[by]
    for fold in found.folds:
        for at in np.flatnonzero(fold.judged & np.isfinite(part.evidence.measured)):
            row = part.evidence.rows[at]
            if predicted_by(row) in PREDICTED[quantity]:
                yield (
                    row,
                    float(part.evidence.measured[at] - found.values[at]),
                    fold.name,
                    fold.unseen,
                )


def bare_rows(found: CampaignResult) -> list[dict[str, str]]:
    """The table without `held`, by the names of cases."""
    rows: dict[str, dict[str, str]] = {}
    for quantity, part in (("step", found.time), ("memory", found.memory)):
        for row, error, group, _ in judged(part, quantity):
            said = rows.setdefault(row.case.id, _placed(row, group))
            said[quantity] = f"{round(UNIT * error)}"
    return [rows[name] for name in sorted(rows)]


def _placed(row: FitRow, group: str) -> dict[str, str]:
    return {
        **in_words(row.case.id, _coordinates(row)),
        **dict.fromkeys((*QUANTITIES, "held"), ""),
        "group": group,
    }


def estimated_shares(cases: Sequence[Case]) -> dict[str, float]:
    """Share of each case's memory that is estimated, by its name. [1]"""
    shares = predict(cases).columns["estimated"]
    return {case.id: float(share) for case, share in zip(cases, shares, strict=True)}


def _coordinates(row: FitRow, estimated: float = 1.0) -> Coordinates:
    """Where a case stands; its machines have default constants, so its stack is its key's."""
    case = row.case
    at = coordinates(case.workload, case.cluster, case.strategy, estimated)
    return replace(at, stack=case.key.stack)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A run with the band that was made without its group."""

    row: FitRow
    group: str
    error: float
    width: float
    inside: bool


def against_bands(found: CampaignResult, quantity: str, by: str = "group") -> list[LeftOut]:
    """Every run of a quantity, held against the band that is made without what its fold does not see."""
    part = found.time if quantity == "step" else found.memory
    rows = bare_rows(found)
    told = []
    shares = estimated_shares(found.cases) if quantity == "memory" else {}
    without: dict[str, Any] = {}
    for row, error, group, unseen in judged(part, quantity, by):
        if group not in without:
            left = {
                one.case.id
                for one, hidden in zip(part.evidence.rows, unseen, strict=True)
                if hidden
            }
            without[group] = in_columns(one for one in rows if one["id"] not in left)
        share = shares.get(row.case.id, 1.0)
        band = band_of(without[group], _coordinates(row, share), quantity)
        width, inside = band.upper / band.lower, band.lower <= np.exp(error) <= band.upper
        told.append(LeftOut(row, group, error, float(width), bool(inside)))
    return told


def table_rows(found: CampaignResult) -> list[Row]:
    """The whole table."""
    inside = {one.row.case.id: str(int(one.inside)) for one in against_bands(found, "step")}
    return [{**row, "held": inside.get(row["id"], "")} for row in bare_rows(found)]


def as_bytes(rows: Sequence[Row]) -> bytes:
    """The table as it is shipped."""
    lines = ["\t".join(COLUMNS), *("\t".join(row[name] for name in COLUMNS) for row in rows)]
    return gzip.compress(("\n".join(lines) + "\n").encode(), 9, mtime=0)


def coverage(found: CampaignResult) -> list[tuple[str, str, Held]]:
    """By quantity and by what sets are told apart by: how many runs their bands hold."""
    ways: Mapping[str, Callable[[FitRow], str]] = {
        "runs": lambda row: set_of(row.case),
        "stack and class of devices": lambda row: f"{row.case.key.stack}, {KEYS['device'](row)}",
    }
    told = []
    for quantity in QUANTITIES:
        known = against_bands(found, quantity)
        for way, name_of in ways.items():
            sets: dict[str, list[LeftOut]] = {}
            for one in known:
                sets.setdefault(name_of(one.row), []).append(one)
            told += [(quantity, way, _held(name, sets[name])) for name in sorted(sets)]
    return told


def coverage_without(found: CampaignResult) -> list[tuple[str, Held]]:
    """By what is left out that a question may be the first to ask of: how many steps the bands hold."""
    told = []
    for by in (name for name in ("stack", "device", "scale") if name in found.time.validated):
        runs: dict[str, list[LeftOut]] = {}
        for one in against_bands(found, "step", by):
            runs.setdefault(f"{one.group}, {set_of(one.row.case)}", []).append(one)
        told += [(by, _held(name, runs[name])) for name in sorted(runs)]
    return told


def _held(name: str, runs: Sequence[LeftOut]) -> Held:
    return Held(
        name,
        len({one.group for one in runs}),
        len(runs),
        sum(one.inside for one in runs),
        float(np.median([one.width for one in runs])),
    )
