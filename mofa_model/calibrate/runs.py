"""A user's own measured steps: rows of a JSON or CSV file, or a trainer's log, and the factors that explain them.

A row names what ran where and how long a step took:

    model, gpu, gpus, strategy, global_batch, sequence, step_seconds            must be there
    precision, stack, gpus_per_node, scale_out, memory_gib, id                  may be

Factors of runs.toml go over the shipped constants, one set for each stack, class of devices and GEMM format, so a handful
of runs, or one, is enough: what they say nothing about stays where the presets have it.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from mofa_model import presets, units
from mofa_model.bands import memory_band, step_band
from mofa_model.calibrate.cases import CalibrationKey, Case, MeasuredFigure
from mofa_model.calibrate.evidence import Evidence, memories, times
from mofa_model.calibrate.fit import fit
from mofa_model.calibrate.free import YOURS, Free, entries_of, own_factors
from mofa_model.calibrate.written import Written, significant
from mofa_model.calibrate.written import as_toml as constants_as_toml
from mofa_model.errors import BadFile, BadValue, InputError, UnknownName
from mofa_model.files import read_text
from mofa_model.presets import chosen
from mofa_model.spec import Training, Workload
from mofa_model.strategy_text import parse_strategy
from mofa_model.units import GIB

NEEDED: Final = ("model", "gpu", "gpus", "strategy", "global_batch", "sequence", "step_seconds")
"""Fields that every row has."""

POSSIBLE: Final = ("precision", "stack", "gpus_per_node", "scale_out", "memory_gib", "id")
"""Fields that a row may have."""

OWN: Final = 3.0
"""Runs that the band of the stack, or of an unseen one, is worth beside the user's own residuals. [1]"""


HEADER: Final = """\
# Made by `mofa calibrate --from-runs` from your own runs: factors over the shipped constants, and bands of the estimate.
# Let it hold with MOFA_CONSTANTS=THIS_FILE; the layers are those of presets/constants.toml.
"""


@dataclass(frozen=True, slots=True)
class Refinement:
    """What a user's runs on one stack, class of devices and format say."""

    section: str  # of the constants file
    stack: str
    cases: tuple[Case, ...]
    constants: tuple[Written, ...]
    before: tuple[float, ...]  # signed errors of the step times with the shipped constants
    after: tuple[float, ...]
    step: tuple[float, float]  # band, as factors
    memory: tuple[float, float]


def read_runs(path: Path | str) -> list[Mapping[str, Any]]:
    """Rows of a JSON list or a CSV file with a heading."""
    text = read_text(path)
    if str(path).lower().endswith(".csv"):
        reader = csv.DictReader(io.StringIO(text))
        rows: Any = [{k: v for k, v in row.items() if v not in ("", None)} for row in reader]
    else:
        try:
            rows = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise BadFile(path, f"is not JSON: {error}") from None
    if not isinstance(rows, list) or not rows or not all(isinstance(row, Mapping) for row in rows):
        raise BadFile(path, "must hold a list of runs; the fields of a run are in docs/calibration.md")
    return rows


def case_of(row: Mapping[str, Any], position: int = 1) -> Case:
    """The case that a row describes."""
    where = f"run {position}"
    for name in row:
        if name not in (*NEEDED, *POSSIBLE):
            raise UnknownName(where, name, (*NEEDED, *POSSIBLE))
    for name in NEEDED:
        if name not in row:
            raise BadValue(f"{where}: {name}", None, "every run must state it")
    try:
        return _case(row, position)
    except InputError as error:
        raise BadFile(where, str(error)) from None


def _case(row: Mapping[str, Any], position: int) -> Case:
    gpus, stack = _count(row, "gpus"), presets.resolve("stacks", row.get("stack", "default"))
    precision = presets.precision(str(row.get("precision", "bf16")), stack=stack)
    strategy = parse_strategy(row["strategy"], gpus=gpus)
    batch, copies = _count(row, "global_batch"), int(strategy.dp) * int(strategy.mbs)
    if batch % copies:
        raise BadValue("global_batch", batch, f"a multiple of dp x mbs = {copies}")
    node = _count(row, "gpus_per_node") if "gpus_per_node" in row else None
    cluster = presets.cluster(
        str(row["gpu"]),
        gpus,
        gpus_per_node=node,
        scale_out=row.get("scale_out"),
        stack=stack,
        precision=precision,
    )
    measured = [
        MeasuredFigure(quantity="step_time_s", value=_seconds(row["step_seconds"]), basis="step_time_s")
    ]
    if row.get("memory_gib") is not None:
        measured.append(
            MeasuredFigure(quantity="memory_gib", value=_number(row, "memory_gib") * GIB, basis="peak")
        )
    return Case(
        id=str(row.get("id", f"run {position}")),
        kind="pretrain",
        source="your runs",
        publisher="you",
        gpu=cluster.device.name,
        group="",
        workload=Workload(
            model=presets.model_named(str(row["model"])),
            training=Training(sequence=_count(row, "sequence"), global_batch=batch, precision=precision),
        ),
        cluster=cluster,
        strategy=strategy,
        key=CalibrationKey(device=cluster.device.name, precision=precision.name, stack=stack),
        measured=tuple(measured),
    )


def _number(row: Mapping[str, Any], name: str) -> float:
    try:
        value = float(row[name])
    except (TypeError, ValueError):
        raise BadValue(name, row[name], "give a number") from None
    if not 0 < value < float("inf"):
        raise BadValue(name, row[name], "give a number above zero")
    return value


def _count(row: Mapping[str, Any], name: str) -> int:
    value = _number(row, name)
    if value != round(value):
        raise BadValue(name, row[name], "give a whole number")
    return round(value)


def _seconds(given: Any) -> float:
    """A number of seconds, or text with a unit such as `412 ms`."""
    if isinstance(given, str) and not given.replace(".", "", 1).isdigit():
        return float(units.parse(given, "s", field="step_seconds"))
    return _number({"step_seconds": given}, "step_seconds")


def refine(cases: Sequence[Case]) -> list[Refinement]:
    """One refinement for each stack, class of devices and GEMM format among the cases."""
    groups: dict[tuple[str, str, str], list[Case]] = {}
    for case in cases:
        device = presets.device_class(case.key.device)
        format_ = case.workload.training.precision.gemm
        groups.setdefault((case.key.stack, device, format_), []).append(case)
    classes = [(stack, device) for stack, device, _ in groups]
    for pair in classes:
        if classes.count(pair) > 1:
            stack, device = pair
            raise BadValue(
                "precision", f"{stack} on {device}", "give runs of one GEMM format (bf16, fp8, fp4) at a time"
            )
    return [_refine(stack, device, runs) for (stack, device, _), runs in groups.items()]


def _refine(stack: str, device: str, cases: list[Case]) -> Refinement:
    below = entries_of(_shipped())
    factors = own_factors()
    constants: list[Written] = []
    changes: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {}
    for name, make in (("time", times), ("memory", memories)):
        own = [entry for entry in factors if entry.path.startswith("memory.") == (name == "memory")]
        evidence = make(cases, (*below, *own))
        if evidence.size:
            changes[name], moved = _moved(evidence, own, f"stack.{stack}.device.{device}")
            constants += moved
    before, after = changes["time"]
    step = step_band(stack=stack, device=cases[0].key.device)
    memory = memory_band(stack=stack, device=cases[0].key.device)
    held = changes.get("memory", ((), ()))[1]
    return Refinement(
        section=f"stack.{stack}.device.{device}",
        stack=stack,
        cases=tuple(cases),
        constants=tuple(constants),
        before=before,
        after=after,
        step=_narrowed((float(step.low), float(step.high)), after),
        memory=_narrowed((float(memory.low), float(memory.high)), held),
    )


def _shipped() -> Mapping[str, Any]:
    """The constants below the user's: the shipped ones, or a whole file in their place."""
    tables = [table for table in chosen.tables(chosen.files()) if table.get("whole")]
    return tables[-1] if tables else chosen.tables(())[0]


def _moved(
    evidence: Evidence, own: Iterable[Free], section: str
) -> tuple[tuple[tuple[float, ...], tuple[float, ...]], list[Written]]:
    """Errors before and after, and the factors that moved by more than a tenth of a per cent."""
    found = fit(evidence, evidence.measured)
    place = {entry.name: i for i, entry in enumerate(evidence.entries)}
    before = np.expm1(evidence.values(evidence.start) - evidence.measured)
    after = np.expm1(found.residuals)
    written = []
    for entry in own:
        factor = significant(float(np.exp(found.logs[place[f"{YOURS}:{entry.path}"]])))
        if abs(factor - 1.0) > 1e-3:
            source = f"{len(evidence.rows)} of your own runs: {entry.source}"
            written.append(Written(entry=replace(entry, section=section, source=source), value=factor))
    return (tuple(before.tolist()), tuple(after.tolist())), written


def _narrowed(band: tuple[float, float], errors: Sequence[float]) -> tuple[float, float]:
    """A band that is as wide as the prior one for no run, and as wide as a stack's own scatter for many.

    The prior band counts as `OWN` runs; each own residual counts twice, because factors were fitted to it.
    """
    if not errors:
        return band
    prior = np.log(band)
    spread = np.sqrt(np.mean(np.square(np.log1p(errors)))) * 2.0 * 1.28
    share = OWN / (OWN + len(errors))
    low = -np.sqrt(share * prior[0] ** 2 + (1.0 - share) * spread**2)
    high = np.sqrt(share * prior[1] ** 2 + (1.0 - share) * spread**2)
    return significant(float(np.exp(low)), 3), significant(float(np.exp(high)), 3)


def as_toml(found: Sequence[Refinement]) -> str:
    """The text of a user's file: factors, then bands."""
    constants = [item for refinement in found for item in refinement.constants]
    return constants_as_toml(constants, HEADER) + as_bands(found)


def as_bands(found: Iterable[Refinement]) -> str:
    """The sections of a user's file that hold its bands."""
    by_stack: dict[str, list[Refinement]] = {}
    for item in found:
        by_stack.setdefault(item.stack, []).append(item)
    lines: list[str] = []
    for quantity in ("step", "memory"):
        lines += ["", f"[{quantity}.stack]"]
        for stack, items in by_stack.items():
            bands = [item.step if quantity == "step" else item.memory for item in items]
            low, high = min(band[0] for band in bands), max(band[1] for band in bands)
            cases = [case for item in items for case in item.cases]
            largest = max(float(case.cluster.gpus) for case in cases)
            lines.append(
                f"{stack} = {{ low = {low!r}, high = {high!r}, runs = {len(cases)}, largest = {largest:.0f} }}"
            )
    return "\n".join(lines) + "\n"
