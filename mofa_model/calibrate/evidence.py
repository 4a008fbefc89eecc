"""Measured figures as one problem: which rows count how much, and what predicts each of them.

Times and memory have no constant in common, so they are two problems. Both hold every row from the start; a fold of the
cross-validation only sets the weight of the rows that it leaves out to zero.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.calibrate.batches import Batch, batches
from mofa_model.calibrate.cases import Case, MeasuredFigure, shipped
from mofa_model.calibrate.free import Free
from mofa_model.calibrate.problem import FitProblem, Predict
from mofa_model.estimate import estimate
from mofa_model.estimate.footprint import footprint
from mofa_model.estimate.terms import Footprint
from mofa_model.placement import axes_of, stages_of

Array = NDArray[np.floating[Any]]
Change = Callable[[Batch], Batch]
"""What becomes of a batch before it is priced."""

COMPOSED: Final = 0.2
"""Weight of a composed step time: 720 of them hold 144 independent slopes."""


@dataclass(frozen=True, slots=True)
class FitRow:
    """One figure that the model predicts; `figure` is None where the run ran out of memory."""

    case: Case
    figure: MeasuredFigure | None
    weight: float

    @property
    def measured(self) -> float:
        """Logarithm of what was measured; NaN where nothing was. [1]"""
        return float(np.log(self.figure.value)) if self.figure else float("nan")


class Evidence:
    """Rows of several quantities with the interface of a `FitProblem`: predictions in the order of `rows`."""

    def __init__(
        self, rows: Sequence[FitRow], entries: tuple[Free, ...], change: Change | None = None
    ) -> None:
        self.entries = entries
        self.rows = tuple(rows)
        self.size = len(self.rows)
        self.measured = np.array([row.measured for row in self.rows])
        self.weights = np.array([row.weight for row in self.rows])
        self._parts = list(_parts(self.rows, entries, change))
        self._known: tuple[bytes, tuple[Array, Array]] | None = None

    @property
    def start(self) -> Array:
        """Logarithms of the priors; an entry of exactly zero stays at minus infinity. [1]"""
        return np.array(
            [np.log(entry.prior) if entry.prior > 0 else -np.inf for entry in self.entries]
        )

    def values(self, logs: Array) -> Array:
        """Logarithm of the prediction of every row. [1]"""
        out = np.full(self.size, np.nan)
        for where, problem in self._parts:
            out[where] = problem.values(logs)
        return out

    def derivatives(self, logs: Array) -> tuple[Array, Array]:
        """Predictions [rows] and their derivatives [rows, entries]; the last answer is kept, as all folds start there."""
        asked = logs.tobytes()
        if self._known is None or self._known[0] != asked:
            out, slope = np.full(self.size, np.nan), np.zeros((self.size, len(self.entries)))
            for where, problem in self._parts:
                out[where], slope[where] = problem.derivatives(logs)
            self._known = (asked, (out, slope))
        return self._known[1]


def times(
    cases: Iterable[Case], entries: tuple[Free, ...], change: Change | None = None
) -> Evidence:
    """Step and layer times, and the constants that decide them; `change` lets an effect be switched off."""
    rows = [
        FitRow(case, figure, COMPOSED if case.composed else 1.0)
        for case in cases
        for figure in case.measured
        if figure.quantity.endswith("_s")
    ]
    return Evidence(rows, tuple(e for e in entries if not e.path.startswith("memory.")), change)


def _counted(figure: MeasuredFigure) -> bool:
    """Whether it is what an allocator counted: one small model was run under dozens of flags, and weighs as one."""
    return figure.basis == "last stage"


def memories(cases: Iterable[Case], entries: tuple[Free, ...]) -> Evidence:
    """Memory figures, and the runs of sweeps that did or did not fit without saying what they took."""
    rows: list[FitRow] = []
    cases = tuple(cases)
    toys = Counter(
        case.workload.model.name for case in cases for figure in case.measured if _counted(figure)
    )
    for case in cases:
        found = [figure for figure in case.measured if figure.quantity.endswith("_gib")]
        once = 2.0 / max(2, toys[case.workload.model.name])
        rows += [FitRow(case, figure, once if _counted(figure) else 1.0) for figure in found]
        if case.group:
            rows.append(FitRow(case, None, 0.0))
    return Evidence(rows, tuple(e for e in entries if e.path.startswith("memory.")))


def _memory(batch: Batch) -> Footprint:
    axes = axes_of(batch.workload, batch.cluster, batch.strategy)
    stages = stages_of(
        batch.workload.model, batch.strategy, batch.cluster.calibration.placement, axes
    )
    return footprint(batch.workload, batch.cluster, batch.strategy, stages)


PREDICTIONS: Final[dict[str, Predict]] = {
    "step_time_s": lambda b: b.rows(estimate(b.workload, b.cluster, b.strategy).step_time),
    "layer_forward_s": lambda b: b.rows(estimate(b.workload, b.cluster, b.strategy).layer_forward),
    "layer_backward_s": lambda b: b.rows(
        estimate(b.workload, b.cluster, b.strategy).layer_backward
    ),
    "peak": lambda b: b.rows(_memory(b).peak),
    "first stage": lambda b: b.rows(_memory(b).first_stage),
    "memory_static_gib": lambda b: b.rows(_memory(b).static_first_stage),
    "allocated_gib": lambda b: b.rows(_memory(b).allocated),
    "allocated_static_gib": lambda b: b.rows(_memory(b).static_allocated),
}
"""What predicts a row, by `predicted_by`."""


def predicted_by(row: FitRow) -> str:
    """The name in `PREDICTIONS` of what a row is held against."""
    if row.figure is None:
        return "peak"
    return row.figure.basis if row.figure.quantity == "memory_gib" else row.figure.quantity


def _parts(
    rows: Sequence[FitRow], entries: tuple[Free, ...], change: Change | None
) -> Iterable[tuple[NDArray[np.intp], FitProblem]]:
    for name, predict in PREDICTIONS.items():
        where = np.array(
            [i for i, row in enumerate(rows) if predicted_by(row) == name], dtype=np.intp
        )
        if where.size:
            chosen = batches([rows[i].case for i in where], shipped)
            yield (
                where,
                FitProblem(
                    chosen, entries, predict if change is None else _changed(predict, change)
                ),
            )


def _changed(predict: Predict, change: Change) -> Predict:
    return lambda batch: predict(change(batch))
