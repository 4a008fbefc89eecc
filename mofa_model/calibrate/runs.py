"""A user's own measured steps, from rows of a JSON or CSV file or from a trainer's log; and the
factors that explain them.

A row states what ran where, and how long a step took:

    model, gpu, gpus, strategy, global_batch, sequence, step_seconds            always
    precision, stack, gpus_per_node, scale_out, memory_gib, id                  optional

Runs tell about their system: a stack on a chip in a GEMM format. The factors of runs.toml multiply
the shipped constants of that system and of no other. The prior of a factor is as wide as systems
were seen to differ in it; runs scatter as layouts of one system were seen to. A run counts in full
however far off it is. So one run moves a factor most of the way, several move it all the way, and a
factor of which the runs say nothing stays.

A log has one of these lines for every step, among any others:

    Megatron-LM      iteration 100/ 500 | … | elapsed time per iteration (ms): 8343.1 | …
    Megatron-Bridge  Step Time : 8.34s …
    NeMo             … | train_step_timing in s: 8.34 | …
    nanotron         iteration: 10 / 15 | … | elapsed_time_per_iteration_ms: 8.34K | …
    torchtitan       step: 10  loss: …  tps: 6,512  …         tokens per second and device
    DeepSpeed        … CurrSamplesPerSec=35.5, …              samples per second
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from mofa_model import presets, units
from mofa_model.bands.coordinates import coordinates
from mofa_model.bands.odds import band_of
from mofa_model.bands.system import RUNS, system_factor
from mofa_model.bands.table import in_words, measured_runs
from mofa_model.calibrate.cases import CalibrationKey, Case, MeasuredFigure
from mofa_model.calibrate.constants import (
    YOURS,
    FreeConstant,
    WrittenConstant,
    entries_of,
    own_factors,
    significant,
)
from mofa_model.calibrate.constants import as_toml as constants_as_toml
from mofa_model.calibrate.fit import Evidence, FitResult, fit, memories, times
from mofa_model.errors import BadFile, BadValue, InputError, UnknownName
from mofa_model.files import from_headed_csv, from_json, read_text
from mofa_model.presets import constants
from mofa_model.records import dataclass
from mofa_model.spec import Training, Workload
from mofa_model.strategy import parse_strategy
from mofa_model.units import GIB, Range, Seconds

NEEDED: Final = ("model", "gpu", "gpus", "strategy", "global_batch", "sequence", "step_seconds")
"""Fields that every row has."""

POSSIBLE: Final = ("precision", "stack", "gpus_per_node", "scale_out", "memory_gib", "id")
"""Fields that a row may have."""

_SQUARED: Final = 1e3
"""Residuals are squared up to so many `RUNS`: none of the user's runs counts as an outlier. [1]"""


HEADER: Final = """\
# Made by `mofa calibrate --from-runs` from your own runs: factors over the shipped constants, \
and the runs, which bands rest on.
# Let it hold with MOFA_CONSTANTS=THIS_FILE; the layers are those of presets/constants.toml.
"""


@dataclass(frozen=True)
class Refinement:
    """The factors of one system, from a user's runs."""

    section: str  # of the constants file
    stack: str
    cases: tuple[Case, ...]
    written: tuple[WrittenConstant, ...]
    before: tuple[float, ...]  # signed errors of step times with the shipped constants
    after: tuple[float, ...]  # the same with the factors
    factor: Range  # one factor on all step times of the system
    rows: tuple[Mapping[str, str], ...]  # the runs, as bands read them
    band: Range  # of the step of the first run


def read_runs(path: Path | str) -> list[Mapping[str, Any]]:
    """Rows of a JSON list or a CSV file with a heading."""
    text = read_text(path)
    rows: Any
    if str(path).lower().endswith(".csv"):
        rows = [
            {name: cell for name, cell in row.items() if cell}
            for _, row in from_headed_csv(text, path)
        ]
    else:
        rows = from_json(text, path)
    if not isinstance(rows, list) or not rows or not all(isinstance(row, Mapping) for row in rows):
        raise BadFile(
            path, "must hold a list of runs; the fields of a run are in docs/calibration.md"
        )
    return rows


def case_of(row: Mapping[str, Any], position: int = 1, *, measured: bool = True) -> Case:
    """The case that a row describes; if it need not be `measured`, a job that nobody ran yet."""
    needed, make = (NEEDED, _case) if measured else (NEEDED[:-1], _job)
    where = f"run {position}"
    for name in row:
        if name not in (*needed, *POSSIBLE):
            raise UnknownName(where, name, (*needed, *POSSIBLE))
    for name in needed:
        if name not in row:
            raise BadValue(f"{where}: {name}", None, "every run must state it")
    try:
        return make(row, position)
    except InputError as error:
        raise BadFile(where, str(error)) from None


def _case(row: Mapping[str, Any], position: int) -> Case:
    measured = [
        MeasuredFigure(
            quantity="step_time_s", value=seconds_of(row["step_seconds"]), basis="step_time_s"
        )
    ]
    if row.get("memory_gib") is not None:
        measured.append(
            MeasuredFigure(
                quantity="memory_gib", value=number_of(row, "memory_gib") * GIB, basis="peak"
            )
        )
    return replace(_job(row, position), measured=tuple(measured))


def _job(row: Mapping[str, Any], position: int) -> Case:
    """The job of one row of a user's file of runs, with its cluster and layout."""
    gpus, stack = _count(row, "gpus"), presets.resolve("stacks", row.get("stack", "default"))
    precision = presets.precision(str(row.get("precision", "bf16")), stack=stack)
    strategy = parse_strategy(row["strategy"], gpus=gpus)
    batch, copies = _count(row, "global_batch"), int(strategy.global_micro_batch)
    if batch % copies:
        raise BadValue("global_batch", batch, f"give a multiple of dp x mbs = {copies}")
    node = _count(row, "gpus_per_node") if "gpus_per_node" in row else None
    cluster = presets.cluster(
        str(row["gpu"]),
        gpus,
        gpus_per_node=node,
        scale_out=row.get("scale_out"),
        stack=stack,
        precision=precision,
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
            training=Training(
                sequence=_count(row, "sequence"), global_batch=batch, precision=precision
            ),
        ),
        cluster=cluster,
        strategy=strategy,
        key=CalibrationKey(device=cluster.device.name, precision=precision.name, stack=stack),
        measured=(),
    )


def number_of(row: Mapping[str, Any], name: str) -> float:
    """A number above zero. [1]"""
    try:
        value = float("nan" if isinstance(row[name], bool) else row[name])
    except (TypeError, ValueError):
        raise BadValue(name, row[name], "give a number") from None
    if not 0 < value < float("inf"):
        raise BadValue(name, row[name], "give a number above zero")
    return value


def _count(row: Mapping[str, Any], name: str) -> int:
    value = number_of(row, name)
    if value != round(value):
        raise BadValue(name, row[name], "give a whole number")
    if value > _MOST:
        raise BadValue(name, row[name], "give a number up to a billion")
    return round(value)


_MOST: Final = 1e9
"""Most GPUs, sequences in a step or tokens in a sequence. [1]"""


def seconds_of(value: Any) -> float:
    """Seconds, from a number or from text with a unit such as `412 ms`. [s]"""
    if isinstance(value, str) and not value.replace(".", "", 1).isdigit():
        return float(units.parse(value, "s", field="step_seconds"))
    return number_of({"step_seconds": value}, "step_seconds")


def refine(cases: Sequence[Case]) -> list[Refinement]:
    """One refinement for each system among the cases."""
    groups: dict[tuple[str, str, str], list[Case]] = {}
    for case in cases:
        format_ = case.workload.training.precision.gemm
        groups.setdefault((case.key.stack, case.key.device, format_), []).append(case)
    chips = [(stack, device) for stack, device, _ in groups]
    for pair in chips:
        if chips.count(pair) > 1:
            stack, device = pair
            raise BadValue(
                "precision",
                f"{stack} on {device}",
                "give runs of one GEMM format (bf16, fp8, fp4) at a time",
            )
    return [_refine(stack, device, runs) for (stack, device, _), runs in groups.items()]


def _refine(stack: str, device: str, cases: list[Case]) -> Refinement:
    below = shipped_entries()
    factors = own_factors()
    constants: list[WrittenConstant] = []
    changes: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {}
    section = f"stack.{stack}.chip.{device}"
    for name, make in (("time", times), ("memory", memories)):
        own = [entry for entry in factors if entry.path.startswith("memory.") == (name == "memory")]
        evidence = make(cases, (*below, *own))
        if evidence.size:
            changes[name], moved = _moved(evidence, own, section)
            constants += moved
    before, after = changes["time"]
    rows = _as_rows(cases, after, changes.get("memory", ((), ()))[1])
    return Refinement(
        section=section,
        stack=stack,
        cases=tuple(cases),
        written=tuple(constants),
        before=before,
        after=after,
        factor=system_factor([-float(np.log1p(error)) for error in before]),
        rows=rows,
        band=band_of(
            measured_runs(rows),
            coordinates(cases[0].workload, cases[0].cluster, cases[0].strategy),
            "step",
        ),
    )


def _as_rows(
    cases: Sequence[Case], times: Sequence[float], memory: Sequence[float]
) -> tuple[Mapping[str, str], ...]:
    """The user's runs as rows of the table of measured runs, with their errors after the fit."""
    memory_errors = iter(memory)
    rows = []
    for case, step_error in zip(cases, times, strict=True):
        errors = {"step": -float(np.log1p(step_error))}
        if any(figure.quantity == "memory_gib" for figure in case.measured):
            errors["memory"] = -float(np.log1p(next(memory_errors)))
        rows.append(
            in_words(case.id, coordinates(case.workload, case.cluster, case.strategy), **errors)
        )
    return tuple(rows)


def shipped_entries() -> tuple[FreeConstant, ...]:
    """The constants under the user's factors: the shipped ones, or a file that replaces them."""
    tables = [
        table
        for table in constants.constant_tables(constants.constant_files())
        if table.get("whole")
    ]
    return entries_of(tables[-1] if tables else constants.constant_tables(())[0])


def own_fit(evidence: Evidence) -> FitResult:
    """A fit of a system's factors to its measured runs."""
    weights = np.full(evidence.size, _SQUARED**2)
    return fit(evidence, evidence.measured, scale=_SQUARED * RUNS, weights=weights, tolerance=1e-4)


def _moved(
    evidence: Evidence, own: Iterable[FreeConstant], section: str
) -> tuple[tuple[tuple[float, ...], tuple[float, ...]], list[WrittenConstant]]:
    """Errors before and after, and the factors that moved by more than a tenth of a per cent."""
    fitted = own_fit(evidence)
    position = {entry.name: i for i, entry in enumerate(evidence.entries)}
    before = np.expm1(evidence.values(evidence.prior_logarithms) - evidence.measured)
    after = np.expm1(fitted.residuals)
    moved = []
    for entry in own:
        factor = significant(float(np.exp(fitted.logs[position[f"{YOURS}:{entry.path}"]])))
        if abs(factor - 1.0) > 1e-3:
            source = f"{len(evidence.rows)} of your own runs: {entry.source}"
            moved.append(
                WrittenConstant(entry=replace(entry, section=section, source=source), value=factor)
            )
    return (tuple(before.tolist()), tuple(after.tolist())), moved


def as_toml(refinements: Sequence[Refinement]) -> str:
    """The text of a user's file: factors, then the runs."""
    lines = [
        constants_as_toml(
            [item for refinement in refinements for item in refinement.written], HEADER
        )
    ]
    for row in (row for refinement in refinements for row in refinement.rows):
        lines += ["[[runs]]", *(f"{name} = {json.dumps(text)}" for name, text in row.items()), ""]
    return "\n".join(lines)


_NUMBER: Final = r"([0-9][0-9,_]*(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)"

_COLOUR: Final = re.compile(r"\x1b\[[0-9;]{0,16}[A-Za-z]")
"""Codes for the colours of a terminal."""

_MILLISECOND: Final = units.parse("1 ms", "s")
_THOUSAND: Final = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9}


FORMS: Final = {
    re.compile(rf"elapsed time per iteration \(ms\):\s*{_NUMBER}()"): "milliseconds",
    re.compile(rf"elapsed_time_per_iteration_ms:\s*{_NUMBER}([KMB]?)"): "milliseconds",
    re.compile(rf"train_step_timing in s['\"]?\s*[:=]\s*{_NUMBER}()"): "seconds",
    re.compile(rf"Step Time\s*:\s*{_NUMBER}()\s*s\b"): "seconds",
    re.compile(rf"\bstep:\s*[0-9,]+\b.*\btps:\s*{_NUMBER}()"): "tokens",
    re.compile(rf"CurrSamplesPerSec=\s*{_NUMBER}()"): "samples",
}
"""Unit of the number in a line, by the format of the line; formats are tried in this order."""

FEWEST: Final = 3
"""Fewest steps of a log after its warm-up. [1]"""

WARM_UP: Final = 0.2
"""Share of a log's steps at its start that is left out: they compile and allocate. [1]"""


def step_seconds(
    lines: Iterable[str], *, global_batch: int, sequence: int, gpus: int, path: object = "log"
) -> Seconds:
    """Median step time of a log after its warm-up. [s]

    >>> times = (9000, 500, 500, 502)
    >>> head = "elapsed time per iteration (ms)"
    >>> lines = [f"iteration {i}/9 | {head}: {ms} |" for i, ms in enumerate(times)]
    >>> step_seconds(lines, global_batch=8, sequence=4096, gpus=8)
    0.5
    """
    times = [
        value
        for line in lines
        if (value := _step_time_in(line, global_batch, sequence, gpus)) is not None
    ]
    steady = times[max(1, round(WARM_UP * len(times))) :]
    if len(steady) < FEWEST:
        raise BadFile(
            path,
            f"holds {len(times)} lines with a step time; {FEWEST + 1} or more are needed, "
            "in the format of Megatron, NeMo,"
            " torchtitan, nanotron or DeepSpeed",
        )
    return float(np.median(np.array(steady, dtype=float)))


def _step_time_in(line: str, global_batch: int, sequence: int, gpus: int) -> Seconds | None:
    """The step time that a line of a training log states; None where it states none."""
    plain = _COLOUR.sub("", line)
    for pattern, meaning in FORMS.items():
        match = pattern.search(plain)
        if match is None:
            continue
        number = float(match.group(1).replace(",", "").replace("_", "")) * _THOUSAND[match.group(2)]
        if number <= 0:
            return None
        if meaning == "tokens":
            return global_batch * sequence / (gpus * number)
        if meaning == "samples":
            return global_batch / number
        return number * (_MILLISECOND if meaning == "milliseconds" else 1.0)
    return None
