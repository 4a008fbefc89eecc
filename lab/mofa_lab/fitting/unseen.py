"""What one run of a stack is worth: each stack is left out, then one of its runs refines it, and the others judge.

The same factors as for a user's own runs (runs.toml) are put over what a fit without the stack says of it. A run judges
another where it is on the same class of devices in the same GEMM format: that is what a preset of the user's is for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_lab.fitting.campaign import Calibrated
from mofa_lab.fitting.folds import KEYS
from mofa_model.calibrate.evidence import Evidence, FitRow, predicted_by
from mofa_model.calibrate.fit import fit
from mofa_model.calibrate.free import Free, own_factors

Array = NDArray[np.floating[Any]]

FEWEST: Final = 4
"""Runs that a stack needs, so that one can refine and others judge."""

MOST: Final = 12
"""Runs of a stack that are tried, evenly spread over its list; each refines once."""


@dataclass(frozen=True, slots=True)
class Refined:
    """A stack that nothing was known of, before and after one run."""

    stack: str
    runs: int  # of the stack
    tried: int  # that refined, one at a time
    before: float  # median error
    after: float  # median over all pairs of a refining and a judging run
    p90: float  # of the same


def fixed(entries: Iterable[Free], logs: Array) -> tuple[Free, ...]:
    """Entries at the values of a fit, not to be moved."""
    return tuple(
        replace(entry, prior=float(np.exp(value)), spread=0.0)
        for entry, value in zip(entries, logs, strict=True)
    )


def one_run(part: Calibrated, quantity: str = "step_time_s") -> Iterator[Refined]:
    """Every stack that was left out in the cross-validation by stack, refined by one of its runs at a time."""
    validated = part.validated["stack"]
    factors = tuple(entry for entry in own_factors() if not entry.path.startswith("memory."))
    for fold, logs in zip(validated.folds, validated.logs, strict=True):
        rows = [
            row
            for row, judged in zip(part.evidence.rows, fold.judged, strict=True)
            if judged and predicted_by(row) == quantity
        ]
        if len(rows) >= FEWEST:
            found = _refined(fold.name, rows, fixed(part.evidence.entries, logs) + factors)
            if found is not None:
                yield found


def _refined(stack: str, rows: list[FitRow], entries: tuple[Free, ...]) -> Refined | None:
    evidence = Evidence(rows, entries)
    kinds = np.array([_kind(row) for row in rows])
    bare = np.abs(np.expm1(evidence.values(evidence.start) - evidence.measured))
    tried = np.unique(np.linspace(0, len(rows) - 1, min(MOST, len(rows))).round().astype(int))
    errors: list[Array] = []
    for run in tried:
        others = (np.arange(len(rows)) != run) & (kinds == kinds[run])
        if others.any():
            alone = Evidence([rows[run]], entries)
            logs = fit(alone, alone.measured, tolerance=1e-3).logs
            errors.append(np.abs(np.expm1(evidence.values(logs) - evidence.measured))[others])
    if not errors:
        return None
    pairs = np.concatenate(errors)
    return Refined(
        stack,
        len(rows),
        len(errors),
        float(np.median(bare)),
        float(np.median(pairs)),
        float(np.percentile(pairs, 90)),
    )


def _kind(row: FitRow) -> str:
    """Runs that share a preset: the same class of devices and the same GEMM format."""
    return f"{KEYS['device'](row)} {row.case.workload.training.precision.gemm}"
