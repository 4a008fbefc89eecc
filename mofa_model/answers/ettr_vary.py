"""The best interval and its ETTR at each value of a field."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from mofa_model import plots
from mofa_model.answers.ettr_figures import printed
from mofa_model.answers.job import job_of
from mofa_model.answers.sweep_fields import number, parse_vary
from mofa_model.reliability import interval, model
from mofa_model.tables import Column, Table

if TYPE_CHECKING:
    from mofa_model.answers.ettr import EttrQuestion

NUMBERS: Final = ("nodes", "rate", "slowdown", "prior_weight")
TEXTS: Final = (
    "step",
    "mttr",
    "save",
    "copy",
    "law",
    "queue",
    "hang",
    "repair",
    "checkpoint_size",
    "model",
)
COLUMNS: Final = (
    Column("interval steps"),
    Column("ettr", unit="%"),
    Column("lower", unit="%"),
    Column("upper", unit="%"),
    Column("paper steps"),
    Column("paper ettr", unit="%"),
)


def varied(asked: EttrQuestion) -> tuple[str, list[dict[str, Any]]]:
    """The field and one row for each of its values, everything else as given."""
    field, values = parse_vary(str(asked.vary), (*NUMBERS, *TEXTS))
    return field, [_row(asked, field, value) for value in values]


def table(field: str, rows: list[dict[str, Any]]) -> Table:
    """The rows for people."""
    columns = (Column(field.replace("_", " ")), *COLUMNS)
    return Table(
        title="ETTR at the best interval",
        columns=columns,
        rows=tuple(tuple(row.values()) for row in rows),
    )


def plot(path: str, field: str, rows: list[dict[str, Any]]) -> None:
    """The exact form and the paper's, each at its own best interval."""
    drawn = {
        label: [(_place(row[field]), row[name]) for row in rows]
        for label, name in (("exact", "ettr"), ("paper's form", "paper_ettr"))
    }
    plots.lines(path, drawn, x=field.replace("_", " "), y="ETTR", percent=True)


def _row(asked: EttrQuestion, field: str, value: str) -> dict[str, Any]:
    given = number(field, value) if field in NUMBERS else value
    changed: dict[str, Any] = {field: given}
    job = job_of(replace(asked, **changed))
    best = interval.recommend(job)
    band = model.ettr_band(job, best.steps, best.every, level=asked.level)
    steps = printed(job, 1)["steps"]
    return {
        field: given,
        "interval_steps": best.steps,
        "ettr": float(band.target),
        "lower": float(band.lower),
        "upper": float(band.upper),
        "paper_steps": steps,
        "paper_ettr": printed(job, steps)["ettr"],
    }


def _place(value: Any) -> Any:
    """A time as its seconds, where it is one."""
    from mofa_model import units
    from mofa_model.errors import BadUnit

    if isinstance(value, float):
        return value
    try:
        return units.parse(value, "s", field="--vary")
    except BadUnit:
        return value
