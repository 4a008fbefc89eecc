"""Sections of docs/validation.md on runs: published ones by their kinds, the picks of sweeps, and
what looks wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import numpy as np

from mofa_lab.fitting.campaign import CampaignResult
from mofa_lab.fitting.figures import STEP, errors, left_out_values, regret
from mofa_lab.fitting.folds import KEYS
from mofa_lab.fitting.sets import set_of
from mofa_lab.fitting.suspects import suspects
from mofa_lab.validate.score import spread
from mofa_model.calibrate.fit import FitRow
from mofa_model.tables import Cell, Column, Table, as_markdown

LARGE: Final = 2048
"""GPUs from which every run is told by itself: there are few, and they are what people plan
for. [1]
"""

LARGE_ERROR: Final = 0.25
"""A run beyond this error that no rule explains is listed as unexplained. [1]"""

SPREAD: Final = (
    Column("n"),
    Column("median", unit="%"),
    Column("mean", unit="%"),
    Column("p90", unit="%"),
)


def table(columns: tuple[Column, ...], rows: Iterable[tuple[Cell, ...]]) -> str:
    """A table as markdown, without a title."""
    return as_markdown(Table(columns=columns, rows=tuple(rows)))


def published(result: CampaignResult) -> Iterator[str]:
    """Published runs by publisher, stack and GPU, each without its publisher."""
    if "publisher" not in result.time.validated:
        return
    yield "## Published runs, their publisher left out"
    yield "![Predicted against measured by stack](validation/by-stack.svg)"
    yield "![Predicted against measured by GPU](validation/by-gpu.svg)"
    yield "![Histogram of errors](validation/residuals.svg)"
    keys: Mapping[str, Callable[[FitRow], str]] = {
        "publisher": lambda row: row.case.publisher,
        "stack": lambda row: row.case.key.stack,
        "GPU": lambda row: row.case.gpu,
    }
    for name, key in keys.items():
        yield table(
            (
                Column(f"by {name}"),
                Column("groups"),
                *SPREAD,
                Column("bias", unit="%"),
                Column("median, fitted", unit="%"),
            ),
            _by(result, key),
        )


def _by(result: CampaignResult, key: Callable[[FitRow], str]) -> Iterator[tuple[Cell, ...]]:
    """Rows of errors of published steps in groups by `key`: left out, and with all runs fitted."""
    part = result.time

    def chosen(row: FitRow) -> bool:
        return (
            set_of(row.case) == "published"
            and row.figure is not None
            and row.figure.quantity == STEP
        )

    fitted = errors(part, part.values, chosen)
    groups: dict[str, list[tuple[int, float]]] = {}
    for index, error in errors(part, left_out_values(part, "published"), chosen).items():
        groups.setdefault(key(part.evidence.rows[index]), []).append((index, error))
    for name, rows in sorted(groups.items()):
        figures = spread(error for _, error in rows)
        yield (
            name,
            len({KEYS["group"](part.evidence.rows[index]) for index, _ in rows}),
            figures["n"],
            figures["median_ape"],
            figures["mape"],
            figures["p90_ape"],
            float(np.median([error for _, error in rows])),
            float(np.median([abs(fitted[index]) for index, _ in rows])),
        )


def large(result: CampaignResult) -> Iterator[str]:
    """Every run of many GPUs by itself."""
    if "publisher" not in result.time.validated:
        return
    yield f"### Runs of {LARGE:,} GPUs and more"

    def many(row: FitRow) -> bool:
        return (
            row.figure is not None
            and row.figure.quantity == STEP
            and bool(row.case.cluster.gpus >= LARGE)
        )

    part = result.time
    without = errors(part, left_out_values(part, "published"), many)
    fitted = errors(part, part.values, many)
    yield table(
        (
            Column("run"),
            Column("GPUs"),
            Column("publisher left out", unit="%"),
            Column("fitted", unit="%"),
        ),
        (
            (
                part.evidence.rows[index].case.id,
                int(part.evidence.rows[index].case.cluster.gpus),
                error, fitted[index],
            )
            for index, error in without.items()
        ),
    )  # fmt: skip


def sweeps(result: CampaignResult) -> Iterator[str]:
    """What the picks of sweeps lose, by the least estimate alone."""
    yield "## Sweeps: does the fastest estimate hold?"
    yield (
        "In each question one model runs on one number of GPUs under many strategies. The pick is "
        "the run that is predicted fastest; its loss is what it has less in throughput than the "
        "best run that was measured. What the rule of the advice picks is under [Odds](#odds)."
    )
    yield "![Loss of the pick by question](validation/regret.svg)"
    yield table(
        (
            Column("sweep, its group left out"),
            Column("questions"),
            Column("mean loss", unit="%"),
            Column("p90", unit="%"),
            Column("the pick is the best"),
        ),
        _picks(result),
    )


def _picks(result: CampaignResult) -> Iterator[tuple[Cell, ...]]:
    for name in ("nanotron", "vtrain"):
        figures = regret(result.time, left_out_values(result.time, name), name)
        best = sum(not loss for loss in figures["by_group"].values())
        yield (name, figures["groups"], figures["mean"], figures["p90"], best)
        part = figures["below_512_gpus"]
        yield (f"{name}, below 512 GPUs", part["groups"], part["mean"], part["p90"], None)


def odd(result: CampaignResult) -> Iterator[str]:
    """Runs that look wrong, with the reason, and how many are far off without one."""
    yield "## Runs that look wrong"
    yield "They are counted in every figure above. Errors with all runs fitted."
    suspected = list(suspects(result.time))
    by_reason: dict[str, list[float]] = {}
    for suspect in suspected:
        by_reason.setdefault(suspect.reason, []).append(suspect.error)
    suspected_rows = {id(suspect.row) for suspect in suspected}
    part = result.time
    by_reason[f"more than {100 * LARGE_ERROR:.0f} % off without an explanation"] = [
        error
        for index, error in errors(part, part.values, lambda row: row.figure is not None).items()
        if abs(error) > LARGE_ERROR and id(part.evidence.rows[index]) not in suspected_rows
    ]
    yield table(
        (
            Column("why"),
            Column("runs"),
            Column("from", unit="%"),
            Column("to", unit="%"),
        ),
        (
            (reason, len(found_errors), min(found_errors), max(found_errors))
            for reason, found_errors in by_reason.items()
            if found_errors
        ),
    )
