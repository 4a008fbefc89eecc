"""Sections of docs/validation.md on runs: published ones by their kinds, the picks of sweeps, and what looks wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np

from mofa_lab.fitting.campaign import CampaignResult
from mofa_lab.fitting.figures import STEP, errors, regret
from mofa_lab.fitting.sets import set_of
from mofa_lab.fitting.suspects import suspects
from mofa_lab.validate.score import spread
from mofa_model.calibrate.fit import FitRow
from mofa_model.tables import Cell, Column, Table, as_markdown

LARGE: Final = 2048
"""GPUs from which every run is told by itself: there are few, and they are what people plan for. [1]"""

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


def ways(found: CampaignResult, by: str) -> Iterator[tuple[str, Any]]:
    """Predicted times with all runs fitted, then with something left out."""
    yield "all runs fitted", found.time.values
    if by in found.time.validated:
        yield f"{by} left out", found.time.validated[by].values


def published(found: CampaignResult) -> Iterator[str]:
    """Published runs by stack, GPU, publisher and source."""
    yield "## Published runs"
    yield "![Predicted against measured by stack](validation/by-stack.svg)"
    yield "![Predicted against measured by GPU](validation/by-gpu.svg)"
    yield "![Errors by source](validation/by-source.svg)"
    yield "![Histogram of errors](validation/residuals.svg)"
    keys: Mapping[str, Callable[[FitRow], str]] = {
        "stack": lambda row: row.case.key.stack,
        "GPU": lambda row: row.case.gpu,
        "publisher": lambda row: row.case.publisher,
        "source": lambda row: row.case.source,
    }
    for name, key in keys.items():
        by = "publisher" if name == "publisher" else "group"
        yield f"### By {name}"
        yield table(
            (
                Column(name),
                *SPREAD,
                Column(f"median, {by} left out", unit="%"),
                Column("bias", unit="%"),
            ),
            _by(found, key, by),
        )


def _by(found: CampaignResult, key: Callable[[FitRow], str], by: str) -> Iterator[tuple[Cell, ...]]:
    part = found.time

    def chosen(row: FitRow) -> bool:
        return (
            set_of(row.case) == "published"
            and row.figure is not None
            and row.figure.quantity == STEP
        )

    outside = errors(part, part.validated[by].values, chosen) if by in part.validated else {}
    groups: dict[str, list[tuple[int, float]]] = {}
    for index, error in errors(part, part.values, chosen).items():
        groups.setdefault(key(part.evidence.rows[index]), []).append((index, error))
    for name, rows in sorted(groups.items()):
        told = spread(error for _, error in rows)
        left = [outside[index] for index, _ in rows if index in outside]
        yield (
            name,
            told["n"],
            told["median_ape"],
            told["mape"],
            told["p90_ape"],
            float(np.median(np.abs(left))) if left else None,
            float(np.median(left)) if left else None,
        )


def large(found: CampaignResult) -> Iterator[str]:
    """Every run of many GPUs by itself."""
    yield f"## Runs of {LARGE:,} GPUs and more"

    def many(row: FitRow) -> bool:
        return row.figure is not None and bool(row.case.cluster.gpus >= LARGE)

    told = [errors(found.time, values, many) for _, values in ways(found, "group")]
    rows = [(found.time.evidence.rows[index].case, index) for index in told[0]]
    yield table(
        (
            Column("run"),
            Column("GPUs"),
            *(Column(how, unit="%") for how, _ in ways(found, "group")),
        ),
        (
            (case.id, int(case.cluster.gpus), *(way.get(index) for way in told))
            for case, index in rows
        ),
    )


def sweeps(found: CampaignResult) -> Iterator[str]:
    """What the picks of sweeps lose."""
    yield "## Sweeps: does the pick hold?"
    yield (
        "In each group one model runs on one number of GPUs under many strategies. The pick is the run that is predicted "
        "fastest; its loss is what it has less in throughput than the best run that was measured."
    )
    yield "![Loss of the pick by group](validation/regret.svg)"
    rows = []
    for name in ("nanotron", "vtrain"):
        losses = {
            how: regret(found.time, values, name)["by_group"]
            for how, values in ways(found, "group")
        }
        first = losses["all runs fitted"]
        rows += [
            (group, loss, losses.get("group left out", {}).get(group))
            for group, loss in first.items()
        ]
    yield table(
        (Column("group"), Column("loss", unit="%"), Column("loss, group left out", unit="%")),
        (row for row in rows if row[1] or row[2]),
    )
    yield f"In the other {sum(1 for row in rows if not (row[1] or row[2]))} groups the pick is the best run."


def odd(found: CampaignResult) -> Iterator[str]:
    """Runs that look wrong, with the reason, and those far off without one."""
    yield "## Runs that look wrong"
    yield "They are counted in every figure above. `error` with all runs fitted."
    told = list(suspects(found.time))
    by_reason: dict[str, list[tuple[str, float]]] = {}
    for one in told:
        by_reason.setdefault(one.reason, []).append((one.row.case.id, one.error))
    for reason, runs in by_reason.items():
        yield f"**{reason}** ({len(runs)})"
        yield "\n".join(f"- {name}: {100 * error:+.0f} %" for name, error in sorted(runs))
    known = {id(one.row) for one in told}
    part = found.time
    others = [
        (part.evidence.rows[index].case.id, error)
        for index, error in errors(part, part.values, lambda row: row.figure is not None).items()
        if abs(error) > LARGE_ERROR and id(part.evidence.rows[index]) not in known
    ]
    yield f"**more than {100 * LARGE_ERROR:.0f} % off without an explanation** ({len(others)})"
    yield "\n".join(f"- {name}: {100 * error:+.0f} %" for name, error in sorted(others)) or "none"
