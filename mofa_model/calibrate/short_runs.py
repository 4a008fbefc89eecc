"""Short runs of a question's own layouts, taken into it: what they share moves every step, what is
their own moves near layouts.

A row of a JSON list or a CSV file is one layout that ran for 10 to 20 steps:

    strategy, step_seconds              must be there; a row without step_seconds has not run yet
    memory_gib, precision, id           may be
    model, gpu, gpus, global_batch, sequence        may be, and are those of the question

`step_seconds` is a number, text with a unit, the name of the trainer's log beside the file, or `out
of memory`. What the runs share is one factor, by the fit that running jobs of a cluster are taken
in with (`system`). The same file goes to `mofa calibrate --from-runs`.
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
"""Of the file, in order."""
FAILED: Final = "out of memory"
"""What stands in place of a step that had no room."""
FIELDS: Final = {"step": "step_seconds", "memory": "memory_gib"}
"""Where a quantity stands."""
MOST: Final = 30.0
"""Times its estimate, or of it, that a figure may be. [1]"""
LOGS: Final = (".log", ".txt", ".out")
"""Names of logs end so."""


def with_short_runs(request: Request, path: Path | str) -> Request:
    """The question with what short runs say of its layouts."""
    rows = [
        (place, row)
        for place, row in enumerate(read_runs(path), 1)
        if row.get("step_seconds") is not None
    ]
    if not rows:
        raise BadFile(path, "no row has step_seconds; give what at least one run measured")
    found = [_run(request, row, f"{path}: run {place}", Path(path).parent) for place, row in rows]
    steps = [error["step"] for _, error in found if "step" in error]
    learned = system_factor(steps).target if steps else 1.0
    tried = tuple(
        replace(
            one,
            errors={**error, **({"step": error["step"] - math.log(learned)} if one.fitted else {})},
        )
        for one, error in found
    )
    share = (
        f"{len(tried)} short runs of yours are taken in: "
        f"a step takes {learned:.3f} of its estimate, and near layouts follow"
    )
    return replace(
        request,
        tried=tried,
        learned=float(request.learned) * learned,
        notes=(*request.notes, share),
    )


def _run(
    request: Request, row: Mapping[str, Any], where: str, folder: Path
) -> tuple[ShortRun, dict[str, float]]:
    try:
        return _read(request, row, folder)
    except InputError as error:
        raise BadFile(where, str(error)) from None


def _read(
    request: Request, row: Mapping[str, Any], folder: Path
) -> tuple[ShortRun, dict[str, float]]:
    """A short run from its row, and by how much its prediction was off."""
    for name in row:
        if name not in (*COLUMNS, "stack"):
            raise UnknownName("column", name, COLUMNS)
    problem = _problem(request, row)
    gpus = int(request.nodes * problem.cluster.gpus_per_node)
    problem = replace(problem, cluster=replace(problem.cluster, gpus=gpus))
    if not isinstance(text := row.get("strategy"), str):
        raise BadValue("strategy", text, "every run must state it")
    strategy = parse_strategy(text, gpus=gpus)
    batch, copies = (
        int(problem.workload.training.global_batch),
        int(strategy.global_micro_batch),
    )
    if batch % copies:
        raise BadValue(
            "strategy", text, f"dp x mbs = {copies} must divide the global batch of {batch}"
        )
    full = priced(problem, strategy)
    fitted = str(row["step_seconds"]).strip().lower() != FAILED
    at = full.coordinates
    errors = _memory(request, full, row, fitted)
    if fitted:
        step = _step(row["step_seconds"], problem, folder)
        errors["step"] = math.log(step / (full.step_time * float(request.learned)))
    for quantity, error in errors.items():
        if abs(error) > math.log(MOST):
            right = (
                f"its estimate times {math.exp(error):.3g} is no run of this layout; "
                "look at the unit"
            )
            raise BadValue(FIELDS[quantity], row.get(FIELDS[quantity]), right)
    precision = problem.workload.training.precision.name
    return ShortRun(
        strategy=strategy, precision=precision, fitted=fitted, coordinates=at, errors=errors
    ), errors


def _problem(request: Request, row: Mapping[str, Any]) -> SearchCase:
    """The precision that a row names; what else it names must be the question's."""
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
    recipes = {one.workload.training.precision.name: one for one in request.problems}
    named = str(row.get("precision", training.precision.name))
    if named not in recipes:
        raise UnknownName("precision", named, recipes)
    return recipes[named]


def _step(given: Any, problem: SearchCase, folder: Path) -> Seconds:
    """A step as it was measured, or the median of a trainer's log. [s]"""
    if not str(given).lower().endswith(LOGS):
        return seconds_of(given)
    training, log = problem.workload.training, folder / str(given)
    return step_seconds(
        read_text(log, largest=2**28).splitlines(),
        global_batch=int(training.global_batch),
        sequence=int(training.sequence),
        gpus=int(problem.cluster.gpus),
        path=log,
    )


def _memory(
    request: Request, full: PricedLayout, row: Mapping[str, Any], fitted: bool
) -> dict[str, float]:
    """Logarithm of measured over predicted memory; without a figure, by whether it fitted."""
    peak = float(full.footprint.peak)
    if row.get("memory_gib") is not None:
        return {"memory": math.log(number_of(row, "memory_gib") * GIB / peak)}
    seen = odds_of(request.runs, (full.coordinates,))
    scale, space = float(seen.memory_scale[0]), math.log(space_of(full.problem) / peak)
    if not fitted:
        return {"memory": max(0.0, space) + scale}
    return {"memory": min(0.0, space - scale)} if space < scale else {}
