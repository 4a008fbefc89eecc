"""Figures of merit of a calibration: errors of every set in-sample and cross-validated, regret,
out-of-memory calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_lab.fitting.campaign import Calibrated, CampaignResult
from mofa_lab.fitting.folds import KEYS
from mofa_lab.fitting.sets import set_of
from mofa_lab.validate.score import Scored, out_of_memory, pick_regret, spread
from mofa_model.calibrate.constants import Composition, composition
from mofa_model.calibrate.fit import Evidence, FitRow, predicted_by

Array = NDArray[np.floating[Any]]
Choice = Callable[[FitRow], bool]
Aim = tuple[float | None, float | None, float | None]

STEP: Final = "step_time_s"


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """Rows whose errors are summed up in one line, and what they are held to."""

    name: str
    """Name of the line in the table."""
    quantity: str
    """time or memory."""
    chosen: Choice
    """The rows that belong to it."""
    by: tuple[str, ...]
    """What is left out when it is cross-validated; the first is what is quoted."""
    aim: Aim = (None, None, None)
    """Median, mean and 90th percentile that are aimed at where the first entry of `by` is left out.
    """


def _of(name: str, predicted: Iterable[str], part: Choice = lambda _: True) -> Choice:
    """A choice of rows: of one set, with a measured figure that some predictions answer, and
    `part` true.
    """
    wanted = frozenset(predicted)

    def chosen(row: FitRow) -> bool:
        return (
            set_of(row.case) == name
            and row.figure is not None
            and predicted_by(row) in wanted
            and part(row)
        )

    return chosen


SUBJECTS: Final = (
    Subject(
        name="published, step time",
        quantity="time",
        chosen=_of("published", {STEP}),
        by=("publisher", "group", "stack", "device"),
        aim=(0.05, 0.075, 0.15),
    ),
    Subject(
        name="MLPerf, step time",
        quantity="time",
        chosen=_of("published", {STEP}, lambda row: row.case.publisher == "mlcommons"),
        by=("publisher",),
        aim=(0.06, None, None),
    ),
    Subject(
        name="Megatron-Bridge cards, step time",
        quantity="time",
        chosen=_of("published", {STEP}, lambda row: row.case.publisher == "nvidia-bridge"),
        by=("publisher",),
        aim=(0.15, None, None),
    ),
    Subject(
        name="MaxText, step time",
        quantity="time",
        chosen=_of("published", {STEP}, lambda row: row.case.key.stack == "maxtext"),
        by=("publisher",),
        aim=(0.15, None, None),
    ),
    Subject(
        name="GB200, step time",
        quantity="time",
        chosen=_of("published", {STEP}, lambda row: row.case.gpu == "GB200"),
        by=("publisher",),
        aim=(0.06, None, None),
    ),
    Subject(
        name="published, memory",
        quantity="memory",
        chosen=_of("published", {"peak", "first stage"}),
        by=("publisher", "group"),
    ),
    Subject(
        name="Megatron's own tests, allocated at the peak",
        quantity="memory",
        chosen=_of("published", {"allocated_gib"}),
        by=("publisher",),
        aim=(None, 0.07, None),
    ),
    Subject(
        name="Megatron's own tests, allocated between steps",
        quantity="memory",
        chosen=_of("published", {"allocated_static_gib"}),
        by=("publisher",),
    ),
    Subject(
        name="nanotron, step time",
        quantity="time",
        chosen=_of("nanotron", {STEP}),
        by=("group", "stack"),
        aim=(None, 0.125, None),
    ),
    Subject(
        name="nanotron, reserved memory",
        quantity="memory",
        chosen=_of("nanotron", {"peak", "first stage"}),
        by=("group",),
    ),
    Subject(
        name="nanotron, static memory",
        quantity="memory",
        chosen=_of("nanotron", {"memory_static_gib"}),
        by=("group",),
    ),
    Subject(
        name="vTrain one node, step time",
        quantity="time",
        chosen=_of("vtrain", {STEP}, lambda row: "single node" in row.case.source),
        by=("group", "stack"),
    ),
    Subject(
        name="vTrain several nodes, step time",
        quantity="time",
        chosen=_of("vtrain", {STEP}, lambda row: "multi node" in row.case.source),
        by=("group", "stack"),
    ),
)
"""What is summed up, in order."""


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """Errors of a subject, with something left out or in-sample."""

    subject: Subject
    left_out: str  # "" = in-sample
    errors: Mapping[str, Any]  # n, median_ape, mape, p90_ape
    groups: int  # that the rows are of: a publisher, a family of models, a GPU

    @property
    def quoted(self) -> bool:
        """Whether this line is quoted, and so has aims."""
        return self.left_out == self.subject.by[0] and any(self.subject.aim)

    @property
    def met(self) -> bool:
        """Whether every aim is met."""
        errors = (self.errors["median_ape"], self.errors["mape"], self.errors["p90_ape"])
        return all(
            wanted is None or value <= wanted
            for value, wanted in zip(errors, self.subject.aim, strict=True)
        )


def lines(result: CampaignResult) -> list[ErrorRow]:
    """Every subject by everything that it is cross-validated by, then in-sample."""
    rows = []
    for subject in SUBJECTS:
        part = part_of(result, subject)
        for by in (*(name for name in subject.by if name in part.validated), ""):
            values = part.validated[by].values if by else part.values
            errors_by_run = errors(part, values, subject.chosen)
            rows.append(
                ErrorRow(
                    subject,
                    by,
                    spread(
                        errors_by_run.values(), [part.evidence.weights[i] for i in errors_by_run]
                    ),
                    len({KEYS["group"](part.evidence.rows[i]) for i in errors_by_run}),
                )
            )
    return rows


def left_out_values(part: Calibrated, row_set: str) -> Array:
    """Predictions of a set by fits that saw neither a published run's publisher nor a
    sweep's group.
    """
    by = "publisher" if row_set == "published" else "group"
    return part.validated[by].values if by in part.validated else part.values


def part_of(result: CampaignResult, subject: Subject) -> Calibrated:
    """The problem that a subject belongs to."""
    return result.time if subject.quantity == "time" else result.memory


def errors(part: Calibrated, values: Array, chosen: Choice) -> dict[int, float]:
    """Signed relative error of every chosen row that has a prediction, by its place."""
    return {
        index: float(np.expm1(values[index] - part.evidence.measured[index]))
        for index, row in enumerate(part.evidence.rows)
        if chosen(row) and np.isfinite(values[index]) and np.isfinite(part.evidence.measured[index])
    }


def scored(part: Calibrated, values: Array, chosen: Choice) -> list[Scored]:
    """Chosen rows as validation scores them."""
    return [
        Scored(case=row.case, figure=row.figure, predicted=float(np.exp(value)))
        for row, value in zip(part.evidence.rows, values, strict=True)
        if row.figure is not None and chosen(row) and np.isfinite(value)
    ]


def regret(part: Calibrated, values: Array, name: str) -> dict[str, Any]:
    """How much slower the layouts picked by estimate are than the best ones of a sweep's groups."""
    return pick_regret(scored(part, values, _of(name, {STEP})))


def memory_calls(part: Calibrated, values: Array, logs: Array, name: str) -> dict[str, int]:
    """How often runs of a sweep were called too big; `logs` are the entries that gave `values`."""
    rows = [
        i
        for i, row in enumerate(part.evidence.rows)
        if set_of(row.case) == name and row.figure is None
    ]
    room = np.log([rooms(part.evidence, logs, part.evidence.rows[i]) for i in rows])
    return out_of_memory([part.evidence.rows[i].case for i in rows], values[rows] > room)


def rooms(evidence: Evidence, logs: Array, row: FitRow) -> float:
    """Device memory that a run can reserve under these entries. [B]"""
    case = row.case
    made = constants_of(composition(case.key, evidence.entries), np.exp(logs))
    usable = made.get("memory.usable", case.cluster.calibration.memory.usable)
    return float(case.cluster.device.memory * usable * (1.0 - case.cluster.reserve))


def memory_calls_out_of_fold(part: Calibrated, by: str, name: str) -> dict[str, int]:
    """How often runs of a sweep were called too big, each by the fit that did not see its model."""
    total: dict[str, int] = {}
    validated = part.validated[by]
    for fold, logs in zip(validated.folds, validated.logs, strict=True):
        rows = [
            i
            for i in np.flatnonzero(fold.judged)
            if set_of(part.evidence.rows[i].case) == name and part.evidence.rows[i].figure is None
        ]
        room = np.log([rooms(part.evidence, logs, part.evidence.rows[i]) for i in rows])
        calls = out_of_memory(
            [part.evidence.rows[i].case for i in rows], validated.values[rows] > room
        )
        total = {key: total.get(key, 0) + count for key, count in calls.items()}
    return total


def rates_of(calls: Mapping[str, int]) -> tuple[float, float]:
    """Recall of runs that did not fit, and share of the others that were called too big. [1]"""
    missed, false = calls["false_negative"], calls["false_positive"]
    recall = calls["true_positive"] / max(1, calls["true_positive"] + missed)
    return recall, false / max(1, false + calls["true_negative"])


def constants_of(made: dict[str, Composition], values: np.ndarray[Any, Any]) -> dict[str, float]:
    """Values of one key's constants under given values of the entries."""
    return {path: c.fixed * float(np.prod(values[list(c.entries)])) for path, c in made.items()}
