"""The advice, or one strategy's figures, over a grid of any fields."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from mofa_model import output
from mofa_model.answers.advised_training import AdvisedTraining
from mofa_model.answers.door import Reply, asked_by
from mofa_model.answers.question import Fields, Text, parameter_of
from mofa_model.answers.sweep_fields import parse_vary, points_of
from mofa_model.answers.sweep_points import Row, answers, with_linearity
from mofa_model.answers.training import require
from mofa_model.errors import BadValue, InputError, NoFeasibleStrategy
from mofa_model.page.figures import LineDrawing
from mofa_model.tables import Column, Table
from mofa_model.units import DAY, GIB

if TYPE_CHECKING:
    from mofa_model.answers.documents import SweepDocument

FIGURES: Final = {
    "status": Column("status"),
    "step_seconds": Column("step seconds", unit="s"),
    "tokens_per_second": Column("tokens per second"),
    "mfu": Column("MFU", unit="%"),
    "linearity": Column("linearity", unit="%"),
    "memory_bytes": Column("memory bytes", unit="B"),
    "activation_bytes": Column("activation bytes", unit="B", wide=True),
    "interval_steps": Column("interval steps"),
    "ettr": Column("ETTR", unit="%"),
    "fits": Column("fits", unit="%"),
    "duration_seconds": Column("duration seconds", unit="s"),
    "gpu_hours": Column("GPU hours"),
    "nodes_used": Column("nodes used", wide=True),
    "searched": Column("searched", wide=True),
    "stages_seconds": Column("stages seconds", unit="s", wide=True),
    "bubble_seconds": Column("bubble seconds", unit="s", wide=True),
    "hops_seconds": Column("hops seconds", unit="s", wide=True),
    "data_seconds": Column("data seconds", unit="s", wide=True),
    "optimizer_seconds": Column("optimizer seconds", unit="s", wide=True),
    "strategy": Column("strategy", align="left", wide=True),
    "doubts": Column("doubts", align="left", wide=True),
    "evidence": Column("evidence", align="left", wide=True),
    "why": Column("why", align="left", wide=True),
}
"""Figures of a row, in the order of the columns."""
_DRAWN: Final = {
    "duration_seconds": ("d", DAY),
    "memory_bytes": ("GiB", GIB),
    "activation_bytes": ("GiB", GIB),
}
"""Units of an axis where those of the figure make long numbers."""


@dataclass(frozen=True, kw_only=True)
class SweepQuestion(AdvisedTraining):
    """What if any field were different."""

    vary: Fields = ()
    """Fields and their values: {"gpus": [64, 128]}, or "gpus=64..512 mbs=1,2" as the command takes them."""
    strategy: Text | None = None
    """Price this layout everywhere; without it the best is searched at each point."""


@dataclass(frozen=True, kw_only=True, repr=False)
class SweepAnswer(Reply):
    """One row for each point: its figures, or why it has none."""

    question: SweepQuestion
    """What was asked."""
    varied: tuple[str, ...]
    """Fields that vary."""
    rows: tuple[Row, ...]
    """What was found, in the order of the points."""

    @property
    def document(self) -> dict[str, Any]:
        """The answer for machines."""
        return {"varied": list(self.varied), "rows": list(self.rows)}

    def to_dict(self) -> SweepDocument:
        """The answer as plain data, the same as `-o json`."""
        return cast("SweepDocument", output.as_data(self.document))

    @property
    def tables(self) -> Sequence[Table]:
        """What people read."""
        return [_table(self.varied, self.rows)]

    @property
    def records(self) -> Table:
        """The same rows."""
        return self.tables[0]

    def lines(self, figure: str = "tokens_per_second") -> LineDrawing:
        """One line for each combination of the fields after the first."""
        return drawing(self.varied, self.rows, figure)

    def shown(self) -> Sequence[Any]:
        """Tokens a second over the first field, and the table."""
        from mofa_model.page.figures import lines

        return [lines("The sweep", self.lines()), *super().shown()]

    def raise_for_status(self) -> None:
        """Raise what stands in the way at every point."""
        failed = [row["why"] for row in self.rows if "why" in row]
        if len(failed) == len(self.rows):
            raise NoFeasibleStrategy(failed[0])


@asked_by(SweepQuestion)
def sweep(
    question: SweepQuestion,
    carry: Callable[..., Iterable[Row]] = map,
    advance: Callable[[float], None] = lambda _: None,
) -> SweepAnswer:
    """The advice, or one strategy's figures, at every combination of the values of some fields."""
    varied = [parse_vary(text) for text in question.vary]
    require(
        question,
        said=[parameter_of(name) for name, _ in varied] if varied else ["gpus"],
        first={} if varied else {"--vary": "gpus=64,128"},
    )
    rows: list[Row] = []
    for row in answers(question, points_of(varied), carry):
        rows.append(row)
        advance(1)
    names = tuple(name for name, _ in varied)
    rows = with_linearity(rows, names)
    if rows and all(row["status"] == "Failed" for row in rows):
        raise InputError(rows[0]["why"])
    return SweepAnswer(question=question, varied=names, rows=tuple(rows))


def _table(names: Sequence[str], rows: Sequence[Row]) -> Table:
    figures = [name for name in FIGURES if any(name in row for row in rows)]
    columns = (
        *(Column(re.sub("[_.]", " ", name)) for name in names),
        *(FIGURES[name] for name in figures),
    )
    cells = tuple(tuple(row.get(name) for name in (*names, *figures)) for row in rows)
    reasons = sorted({row[name] for row in rows for name in ("why", "doubts") if row.get(name)})
    return Table(title="Sweep", columns=columns, rows=cells, notes=tuple(reasons[:5]))


def drawing(names: Sequence[str], rows: Sequence[Row], figure: str) -> LineDrawing:
    """A figure over the first field, one line for each combination of the others."""
    if figure not in FIGURES:
        raise BadValue("--y", figure, f"one of {', '.join(FIGURES)}")
    column = FIGURES[figure]
    unit, size = _DRAWN.get(figure, (column.unit if column.unit in {"s", "B"} else "", 1.0))
    drawn: dict[str, list[tuple[Any, float]]] = {}
    for row in rows:
        if isinstance(row.get(figure), int | float):
            label = ", ".join(f"{name.replace('_', ' ')} {row[name]}" for name in names[1:])
            drawn.setdefault(label, []).append((_number(row[names[0]]), row[figure] / size))
    up = f"{column.heading} [{unit}]" if unit else column.heading
    return LineDrawing(
        lines=drawn, across=names[0].replace("_", " "), up=up, percent=column.unit == "%"
    )


def _number(text: Any) -> Any:
    try:
        return float(text)
    except ValueError:
        return text
