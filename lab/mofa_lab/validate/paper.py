"""The MoFa paper's tables against its own equations: one line per row and quantity, with a
tolerance each.

Which table a row is of is told by its columns. A new check is one more entry of `CHECKS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from mofa_lab.validate import paper_dense as dense_table
from mofa_lab.validate import paper_mixture as mixture_table
from mofa_lab.validate.forms import total_time
from mofa_lab.validate.paper_dense import Dense
from mofa_lab.validate.paper_fit import (
    fit_dense,
    fit_mixture,
    published,
    shipped_dense,
    shipped_mixture,
)
from mofa_lab.validate.paper_mixture import Mixture
from mofa_lab.validate.record import Record, read
from mofa_model import units
from mofa_model.errors import BadValue, InputError
from mofa_model.reliability import paper as faults
from mofa_model.units import DAY, GIB

_TERAFLOPS: Final = units.parse("1 TFLOP/s", "FLOP/s")


@dataclass(frozen=True, slots=True)
class Paper:
    """Both models of the paper with their constants."""

    dense: Dense
    mixture: Mixture


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One printed quantity of one table and how far from it a prediction may be."""

    table: int
    """Number of the table."""
    quantity: str
    """What is compared, as the command names it."""
    column: str
    """Where the printed figure stands."""
    predict: Callable[[Paper, Record], Any]
    """The prediction for a row, in the printed unit."""
    tolerance: float
    """Largest error."""
    relative: bool
    """True where the tolerance is a share of the printed figure, else it has its unit."""
    applies: Callable[[Record], bool] = lambda _: True
    """Rows that are checked."""
    loose: Callable[[Paper, Record], bool] = lambda _, __: False
    """Rows that are held to `loose_tolerance` instead."""
    loose_tolerance: float = 0.0
    """The wider one."""
    mean: float = 0.0
    """Largest mean error over all rows; 0 = not asked."""


def _fault(row: Record) -> dict[str, float]:
    """The fault model's inputs in a row of Table 5."""
    nodes = row.size("n_gpus") / row.size("gpus_per_node")
    return {
        "rate": nodes * row.number("failures_per_node_day") / DAY,
        "interval": row.size("ckpt_interval_steps"),
        "step_time": row.positive("model_step_s"),
        "save": row.number("ckpt_save_s"),
        "recovery": row.number("recovery_s"),
    }


def _total(_: Paper, row: Record) -> Any:
    return total_time(**_fault(row), steps=row.positive("n_steps"), start=0.0)


def _ettr(_: Paper, row: Record) -> Any:
    return 100 * faults.ettr(**_fault(row))


def _layout(row: Record) -> dense_table.DenseColumns:
    """The layout of a dense row; where v is not printed it is what the memory fits."""
    virtual = published()["table7"]["virtual"]
    return dense_table.layout_of(row, virtual=virtual.get(str(row.get("id")), 1))


def _tflops(paper: Paper, row: Record) -> Any:
    return dense_table.achieved(paper.dense, _layout(row), row.positive("step_s")) / _TERAFLOPS


def _memory(paper: Paper, row: Record) -> Any:
    return dense_table.peak(paper.dense, _layout(row)) / GIB


def _overflows(paper: Paper, row: Record) -> bool:
    return bool(mixture_table.overflow(paper.mixture, mixture_table.layout_of(row)) > 0)


def _of_dense(
    form: Callable[[Dense, dense_table.DenseColumns], Any],
) -> Callable[[Paper, Record], Any]:
    return lambda paper, row: form(paper.dense, _layout(row))


def _of_mixture(
    form: Callable[[Mixture, mixture_table.MixtureColumns], Any],
) -> Callable[[Paper, Record], Any]:
    return lambda paper, row: form(paper.mixture, mixture_table.layout_of(row))


CHECKS: Final = (
    Check(
        table=5, quantity="total_s", column="total_s", predict=_total, tolerance=1e-6, relative=True
    ),
    Check(
        table=5,
        quantity="ettr_pct",
        column="ettr_pct",
        predict=_ettr,
        tolerance=0.01,
        relative=False,
    ),
    Check(
        table=6,
        quantity="tflops",
        column="tflops_per_gpu",
        predict=_tflops,
        tolerance=3e-4,
        relative=True,
    ),
    Check(
        table=6,
        quantity="memory_gib",
        column="memory_gib",
        predict=_memory,
        tolerance=0.006,
        relative=False,
    ),
    Check(
        table=6,
        quantity="opt_s",
        column="opt_s",
        predict=_of_dense(dense_table.update),
        tolerance=0.02,
        relative=False,
    ),
    Check(
        table=6,
        quantity="step_s",
        column="step_s",
        predict=_of_dense(dense_table.effective_step),
        tolerance=0.015,
        relative=True,
        mean=0.005,
    ),
    Check(
        table=6,
        quantity="step_physical_s",
        column="step_s",
        predict=_of_dense(dense_table.physical_step),
        tolerance=0.04,
        relative=True,
        applies=lambda row: row.count("v", 1) > 1,
    ),
    Check(
        table=7,
        quantity="memory_gib",
        column="memory_gib",
        predict=_memory,
        tolerance=0.006,
        relative=False,
    ),
    Check(
        table=8,
        quantity="ep_s",
        column="ep_s",
        predict=_of_mixture(mixture_table.exchange),
        tolerance=0.01,
        relative=False,
    ),
    Check(
        table=8,
        quantity="opt_s",
        column="opt_s",
        predict=_of_mixture(mixture_table.update),
        tolerance=0.02,
        relative=False,
    ),
    Check(
        table=8,
        quantity="step_s",
        column="step_s",
        predict=_of_mixture(mixture_table.step),
        tolerance=0.003,
        relative=True,
        loose=_overflows,
        loose_tolerance=0.05,
    ),
    Check(
        table=9,
        quantity="tflops",
        column="tflops_per_gpu",
        predict=_tflops,
        tolerance=3e-4,
        relative=True,
    ),
)
"""Every test that can be held against the tables."""

_TOLD_BY: Final = (
    ("n_steps", 5),
    ("edp", 8),
    ("outlier_operator_fixed", 9),
    ("step_s", 6),
    ("memory_gib", 7),
)
"""Columns that tell the table, in the order in which they are looked for."""


def table_of(row: Record) -> int:
    """The table that a row is of, by its columns."""
    for column, table in _TOLD_BY:
        if row.get(column) is not None:
            return table
    needed = ", ".join(f"{column} (Table {table})" for column, table in _TOLD_BY)
    raise BadValue("row", sorted(row.values), f"one of these columns tells its table: {needed}")


def compared(check: Check, paper: Paper, row: Record) -> dict[str, Any]:
    """One printed figure beside its prediction."""
    printed = row.positive(check.column) if check.relative else row.number(check.column)
    predicted = float(check.predict(paper, row))
    if not np.isfinite(predicted):
        raise BadValue(check.column, printed, f"the row gives no finite {check.quantity}")
    off = abs(predicted - printed) / (printed if check.relative else 1.0)
    tolerance = check.loose_tolerance if check.loose(paper, row) else check.tolerance
    return {
        "table": check.table,
        "id": row.get("id"),
        "quantity": check.quantity,
        "printed": printed,
        "predicted": predicted,
        "error": off,
        "tolerance": tolerance,
        "measure": "relative" if check.relative else "absolute",
        # Printed figures are decimal: an error of exactly the tolerance must not fail for its
        # binary rounding.
        "ok": bool(off <= tolerance * (1 + 1e-9)),
    }


def means(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Mean errors over rows, of checks that have a mean."""
    mean_rows = []
    for check in CHECKS:
        errors = [
            r["error"] for r in rows if (r["table"], r["quantity"]) == (check.table, check.quantity)
        ]
        if check.mean and errors:
            mean = float(np.mean(errors))
            mean_rows.append(
                {
                    "table": check.table,
                    "quantity": check.quantity,
                    "mean": mean,
                    "tolerance": check.mean,
                    "ok": mean <= check.mean,
                }
            )
    return mean_rows


def validate_paper(files: Sequence[str], *, calibrate_on: Sequence[str] = ()) -> dict[str, Any]:
    """What `mofa validate paper` answers: every check of every row, mean errors, rows that could
    not be read.
    """
    records = [
        Record(row if isinstance(row, dict) else {}) for name in files for row in read(name)[0]
    ]
    paper = _calibrated(records, calibrate_on)
    rows: list[dict[str, Any]] = []
    unsupported: list[dict[str, str]] = []
    for position, record in enumerate(records, start=1):
        try:
            table = table_of(record)
            checks = [check for check in CHECKS if check.table == table and check.applies(record)]
            rows += [compared(check, paper, record) for check in checks]
        except InputError as error:
            unsupported.append(
                {"id": str(record.get("id") or f"#{position}"), "reason": str(error)}
            )
    mean_rows = means(rows)
    good = sum(row["ok"] for row in rows) + sum(mean["ok"] for mean in mean_rows)
    summary = {"n": len(rows) + len(mean_rows), "ok": good}
    return {"rows": rows, "means": mean_rows, "unsupported": unsupported, "summary": summary}


def _calibrated(records: Sequence[Record], ids: Sequence[str]) -> Paper:
    """Shipped constants, or those that the named rows of Tables 6 and 8 give."""
    paper = Paper(shipped_dense(), shipped_mixture())
    if not ids:
        return paper
    chosen = [row for row in records if str(row.get("id")) in ids]
    missing = set(ids) - {str(row.get("id")) for row in chosen}
    if missing:
        raise BadValue(
            "--calibrate-on", ", ".join(sorted(missing)), "give ids of rows in the files"
        )
    of_dense = [row for row in chosen if table_of(row) == 6]
    of_mixture = [row for row in chosen if table_of(row) == 8]
    dense = fit_dense(paper.dense, of_dense) if of_dense else paper.dense
    mixture = fit_mixture(paper.mixture, of_mixture) if of_mixture else paper.mixture
    return Paper(dense, mixture)
