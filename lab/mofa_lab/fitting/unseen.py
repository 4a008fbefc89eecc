"""What one run of a system is worth: its stack is left out, then one of its runs refines it, and
its others judge.

A system is what one publisher ran of a stack on one chip in one GEMM format. The same fit as for a
user's own runs is put over what a fit without the stack says of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_lab.fitting.campaign import Calibrated
from mofa_model.calibrate.constants import FreeConstant, own_factors
from mofa_model.calibrate.fit import Evidence, FitRow, predicted_by
from mofa_model.calibrate.runs import own_fit

Array = NDArray[np.floating[Any]]

FEWEST: Final = 3
"""Runs that a system needs, so that one can refine and others judge."""

MOST: Final = 12
"""Runs of a system that are tried, evenly spread over its list; each refines once."""

SMALL: Final = 0.08
"""Median error below which one run has made a system known. [1]"""


@dataclass(frozen=True, slots=True)
class Refined:
    """A system that nothing was known of, before and after one run."""

    system: str
    runs: int  # of the system
    tried: int  # that refined, one at a time
    before: float  # median error
    after: float  # median over all pairs of a refining and a judging run
    p90: float  # of the same


def fixed(entries: Iterable[FreeConstant], logs: Array) -> tuple[FreeConstant, ...]:
    """Entries fixed at the values of a fit."""
    return tuple(
        replace(entry, prior=float(np.exp(value)), spread=0.0)
        for entry, value in zip(entries, logs, strict=True)
    )


def one_run(part: Calibrated, quantity: str = "step_time_s") -> Iterator[Refined]:
    """Every system of a stack that was left out in the cross-validation by stack, refined by one of
    its runs at a time.
    """
    validated = part.validated["stack"]
    factors = tuple(entry for entry in own_factors() if not entry.path.startswith("memory."))
    for fold, logs in zip(validated.folds, validated.logs, strict=True):
        systems: dict[str, list[FitRow]] = {}
        for row, judged in zip(part.evidence.rows, fold.judged, strict=True):
            if judged and predicted_by(row) == quantity:
                systems.setdefault(_system(row), []).append(row)
        for name, rows in systems.items():
            if len(rows) >= FEWEST:
                yield _refined(name, rows, fixed(part.evidence.entries, logs) + factors)


def _refined(system: str, rows: list[FitRow], entries: tuple[FreeConstant, ...]) -> Refined:
    evidence = Evidence(rows, entries)
    bare = np.abs(np.expm1(evidence.values(evidence.prior_logarithms) - evidence.measured))
    tried = np.unique(np.linspace(0, len(rows) - 1, min(MOST, len(rows))).round().astype(int))
    errors: list[Array] = []
    for run in tried:
        logs = own_fit(Evidence([rows[run]], entries)).logs
        errors.append(np.delete(np.abs(np.expm1(evidence.values(logs) - evidence.measured)), run))
    pairs = np.concatenate(errors)
    return Refined(
        system,
        len(rows),
        len(errors),
        float(np.median(bare)),
        float(np.median(pairs)),
        float(np.percentile(pairs, 90)),
    )


def _system(row: FitRow) -> str:
    key = row.case.key
    gemm = row.case.workload.training.precision.gemm
    return f"{row.case.publisher}, {key.stack}, {key.device}, {gemm}"
