"""A whole calibration: fit, cross-validate, round, and weigh the outcome against what
is shipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_lab.fitting.folds import OutOfFold, cross_validate
from mofa_lab.fitting.sets import set_of
from mofa_lab.fitting.writer import joined, rounded, written
from mofa_model.calibrate.cases import Case
from mofa_model.calibrate.constants import FreeConstant, WrittenConstant, entries_of
from mofa_model.calibrate.fit import Evidence, FitResult, FitRow, fit, memories, robust, times
from mofa_model.presets import entries as tables

Array = NDArray[np.floating[Any]]
Progress = Callable[[str], None]

JUDGED: Final[Mapping[str, Callable[[FitRow], bool]]] = {
    "group": lambda _: True,
    "system": lambda _: True,
    "publisher": lambda row: not row.case.group,
    "stack": lambda _: True,
    "device": lambda row: not row.case.group,
    "scale": lambda _: True,
}
"""What is left out in turn, and which rows each of these judges."""

SPREADS: Final = "system"
"""What is left out for the spreads of steps alone; the scatter of constants does not count it."""

WORSE: Final = 1e-4
"""Share by which a loss may be above the shipped one and still count as equal: rounding, and
another machine's sums. [1]
"""

SCALE: Final = 0.05
"""Residual beyond which the robust loss grows linearly, as in `fit`. [1]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Calibrated:
    """One problem after a calibration; predictions are with the constants as they are written."""

    evidence: Evidence
    """Rows and entries."""
    fitted: FitResult
    """Fit to all rows."""
    logs: Array
    """Entries as they are written."""
    values: Array
    """Predictions of all rows, in-sample."""
    validated: Mapping[str, OutOfFold] = field(default_factory=dict)
    """Cross-validations by what they leave out."""

    @property
    def loss(self) -> float:
        """Robust loss with priors, of the constants as they are written."""
        return objective(self.evidence, self.logs, self.values)


@dataclass(frozen=True, kw_only=True, slots=True)
class CampaignResult:
    """Everything that a calibration finds."""

    cases: tuple[Case, ...]
    """Measured runs that took part."""
    time: Calibrated
    """Step and layer times."""
    memory: Calibrated
    """Memory."""
    constants: tuple[WrittenConstant, ...]
    """Every entry of priors.toml as it is written."""

    @property
    def loss(self) -> float:
        """Robust loss with priors of the fits of time and of memory together. [1]"""
        return self.time.loss + self.memory.loss


def calibrate(
    cases: Sequence[Case],
    entries: tuple[FreeConstant, ...],
    *,
    leave_out: Iterable[str] = tuple(JUDGED),
    progress: Progress = lambda _: None,
) -> CampaignResult:
    """Fit all entries to all cases; `leave_out` names the cross-validations that follow."""
    names = tuple(leave_out)
    parts: list[Calibrated] = []
    constants: list[list[WrittenConstant]] = []
    for evidence in (times(cases, entries), memories(cases, entries)):
        whole = fit(evidence, evidence.measured, weights=evidence.weights)
        progress("all runs")
        validated = {
            by: cross_validate(evidence, whole, by, judged=JUDGED[by], progress=progress)
            for by in names
            if by != SPREADS or not parts  # the first problem is of time
        }
        counted = [folds for by, folds in validated.items() if by != SPREADS]
        fitted_entries = written(entries, evidence, whole.logs, counted)
        logs = rounded(fitted_entries, evidence.entries)
        constants.append(fitted_entries)
        parts.append(
            Calibrated(
                evidence=evidence,
                fitted=whole,
                logs=logs,
                values=evidence.values(logs),
                validated=validated,
            )
        )
    return CampaignResult(
        cases=tuple(cases),
        time=parts[0],
        memory=parts[1],
        constants=tuple(joined(constants, entries)),
    )


def objective(evidence: Evidence, logs: Array, values: Array | None = None) -> float:
    """What a fit makes small: robust loss of the rows and squared distance from the priors. [1]"""
    predicted = evidence.values(logs) if values is None else values
    measured = np.isfinite(evidence.measured)
    rho, _ = robust((predicted - evidence.measured)[measured], SCALE)
    spread = np.array([entry.spread for entry in evidence.entries])
    free = spread > 0
    distance = (logs[free] - evidence.prior_logarithms[free]) / spread[free]
    return float(np.sum(evidence.weights[measured] * rho) + np.sum(np.square(distance)))


def shipped_loss(result: CampaignResult) -> float:
    """Robust loss with priors of the shipped constants; an entry that they lack has its
    prior. [1]
    """
    shipped = {entry.name: entry for entry in entries_of(tables.table("constants"))}
    loss = 0.0
    for part in (result.time, result.memory):
        entries = [shipped.get(entry.name, entry) for entry in part.evidence.entries]
        with np.errstate(divide="ignore"):
            logs = np.log(np.array([entry.prior for entry in entries]))
        loss += objective(part.evidence, logs)
    return loss


def independent(cases: Iterable[Case]) -> dict[str, int]:
    """Independent runs of each set; composed step times are lines in the number of micro-batches,
    each counted once.
    """
    counts: dict[str, int] = {}
    slopes: dict[str, set[tuple[object, ...]]] = {}
    for case in cases:
        if not any(figure.quantity.endswith("_s") for figure in case.measured):
            continue
        name, s = set_of(case), case.strategy
        if case.composed:
            slopes.setdefault(name, set()).add((case.workload.model.name, s.tp, s.pp, s.mbs))
        else:
            counts[name] = counts.get(name, 0) + 1
    for name, lines in slopes.items():
        counts[name] = counts.get(name, 0) + len(lines)
    return counts
