"""Short runs of a question's own layouts: the error that they have in common moves every step, and
the rest moves the layouts near them.

A row of a JSON list or a CSV file is one layout that ran for 10 to 20 steps:

    strategy, step_seconds              always; a row without step_seconds has not run yet
    memory_gib, precision, id           optional
    model, gpu, gpus, global_batch, sequence        optional; must be those of the question

`step_seconds` is a number, text with a unit, the name of the trainer's log beside the file, or `out
of memory`. The common error is one factor (`bands.system`), as it is for running jobs of a cluster.
`mofa calibrate --from-runs` takes the same file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from mofa_model.advice import Request
from mofa_model.advice.candidates import space_of
from mofa_model.advice.predictions import PricedLayout, priced
from mofa_model.bands.odds import ShortRun, odds_of
from mofa_model.bands.system import system_factor
from mofa_model.calibrate.runs import number_of, read_runs, seconds_of, step_seconds
from mofa_model.errors import BadFile, BadValue, InputError, UnknownName
from mofa_model.files import read_text
from mofa_model.search import SearchCase
from mofa_model.strategy import parse_strategy
from mofa_model.units import GIB, Seconds

COLUMNS: Final = (
    "id", "model", "gpu", "gpus", "global_batch", "sequence", "precision", "strategy",
    "step_seconds", "memory_gib",
)  # fmt: skip
"""Columns of the file, in order."""
FAILED: Final = "out of memory"
"""Text in the place of the step time of a layout that had no room."""
FIELDS: Final = {"step": "step_seconds", "memory": "memory_gib"}
"""Column of each quantity."""
MOST: Final = 30.0
"""Largest factor between a figure and its estimate, either way. [1]"""
LOGS: Final = (".log", ".txt", ".out")
"""Endings of the names of logs."""


def with_short_runs(request: Request, path: Path | str) -> Request:
    """The question with the short runs of its layouts taken in."""
    rows = [
        (number, row)
        for number, row in enumerate(read_runs(path), 1)
        if row.get("step_seconds") is not None
    ]
    if not rows:
        raise BadFile(path, "no row has step_seconds; give what at least one run measured")
    runs = [_run(request, row, f"{path}: run {number}", Path(path).parent) for number, row in rows]
    steps = [run.errors["step"] for run in runs if run.fitted]
    learned = system_factor(steps).target if steps else 1.0
    tried = tuple(
        replace(run, errors={**run.errors, "step": run.errors["step"] - math.log(learned)})
        if run.fitted
        else run
        for run in runs
    )
    note = (
        f"{len(tried)} short runs of yours are taken in: "
        f"a step takes {learned:.3f} of its estimate, and near layouts follow"
    )
    return replace(
        request, tried=tried, learned=float(request.learned) * learned, notes=(*request.notes, note)
    )


def _run(request: Request, row: Mapping[str, Any], where: str, folder: Path) -> ShortRun:
    try:
        return _read(request, row, folder)
    except InputError as error:
        raise BadFile(where, str(error)) from None


def _read(request: Request, row: Mapping[str, Any], folder: Path) -> ShortRun:
    """A short run from its row, with the errors of its prediction."""
    for name in row:
        if name not in (*COLUMNS, "stack"):
            raise UnknownName("column", name, COLUMNS)
    problem = _problem(request, row)
    gpus = int(request.nodes * problem.cluster.gpus_per_node)
    problem = replace(problem, cluster=replace(problem.cluster, gpus=gpus))
    if not isinstance(text := row.get("strategy"), str):
        raise BadValue("strategy", text, "every run must state it")
    strategy = parse_strategy(text, gpus=gpus)
    batch = int(problem.workload.training.global_batch)
    copies = int(strategy.global_micro_batch)
    if batch % copies:
        raise BadValue(
            "strategy", text, f"dp x mbs = {copies} must divide the global batch of {batch}"
        )
    layout = priced(problem, strategy)
    fitted = str(row["step_seconds"]).strip().lower() != FAILED
    errors = _memory(request, layout, row, fitted)
    if fitted:
        step = _step(row["step_seconds"], problem, folder)
        errors["step"] = math.log(step / (layout.step_time * float(request.learned)))
    for quantity, error in errors.items():
        if abs(error) > math.log(MOST):
            advice = (
                f"its estimate times {math.exp(error):.3g} is no run of this layout; "
                "look at the unit"
            )
            raise BadValue(FIELDS[quantity], row.get(FIELDS[quantity]), advice)
    return ShortRun(
        strategy=strategy,
        precision=problem.workload.training.precision.name,
        fitted=fitted,
        coordinates=layout.coordinates,
        errors=errors,
    )


def _problem(request: Request, row: Mapping[str, Any]) -> SearchCase:
    """The problem of the question in the precision of a row; all else that the row states must
    agree with the question.
    """
    first = request.problems[0]
    training, cluster = first.workload.training, first.cluster
    names = {"model": first.workload.model.name, "gpu": cluster.device.name}
    for name, value in names.items():
        if str(row.get(name, value)) != value:
            raise BadValue(name, row[name], f"the question's is {value}")
    sizes = {
        "gpus": request.nodes * cluster.gpus_per_node,
        "global_batch": training.global_batch,
        "sequence": training.sequence,
    }
    for name, size in sizes.items():
        if name in row and number_of(row, name) != float(size):
            raise BadValue(name, row[name], f"the question's is {int(size)}")
    recipes = {problem.workload.training.precision.name: problem for problem in request.problems}
    named = str(row.get("precision", training.precision.name))
    if named not in recipes:
        raise UnknownName("precision", named, recipes)
    return recipes[named]


def _step(value: Any, problem: SearchCase, folder: Path) -> Seconds:
    """A measured step time, or the median of a trainer's log. [s]"""
    if not str(value).lower().endswith(LOGS):
        return seconds_of(value)
    training, log = problem.workload.training, folder / str(value)
    return step_seconds(
        read_text(log, largest=2**28).splitlines(),
        global_batch=int(training.global_batch),
        sequence=int(training.sequence),
        gpus=int(problem.cluster.gpus),
        path=log,
    )


def _memory(
    request: Request, layout: PricedLayout, row: Mapping[str, Any], fitted: bool
) -> dict[str, float]:
    """Logarithm of measured over predicted memory; without a figure, that of the limit which the
    layout kept or passed.
    """
    peak = float(layout.footprint.peak)
    if row.get("memory_gib") is not None:
        return {"memory": math.log(number_of(row, "memory_gib") * GIB / peak)}
    odds = odds_of(request.runs, (layout.coordinates,))
    scale, space = float(odds.memory_scale[0]), math.log(space_of(layout.problem) / peak)
    if not fitted:
        return {"memory": max(0.0, space) + scale}
    return {"memory": min(0.0, space - scale)} if space < scale else {}
