"""Measured fine-tuning runs against the estimate, and the constants of adapters with each submitter
left out.

Only what prices adapters is fitted: its constants follow a trainer's family and a class of devices,
and the ridge of `PRIORS` draws each to its prior.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_lab.validate import picks
from mofa_lab.validate.rooms import least_rooms
from mofa_model import presets
from mofa_model.answers.questions import ExplainQuestion
from mofa_model.answers.training import layout_of, problems_of
from mofa_model.bands.coordinates import coordinates
from mofa_model.bands.odds import LayoutOdds, odds_of
from mofa_model.bands.table import MeasuredRuns, measured_runs
from mofa_model.errors import BadFile, InputError
from mofa_model.estimate import Estimate, estimate
from mofa_model.estimate.terms import Footprint, device_memory_limit
from mofa_model.search import SearchCase
from mofa_model.strategy import LAYER_INPUT, Strategy, format_strategy
from mofa_model.units import GIB

Array = NDArray[np.floating[Any]]

_TRAINERS: Final = {
    "nemo": "nemo",
    "megatron-bridge": "megatron-bridge",
    "nemo-automodel": "nemo-automodel",
    "accelerate": "accelerate",
    "fsdp": "accelerate",
    "torchtune": "torchtune",
}
NEEDED: Final = (
    "id", "model", "method", "trainer", "device_preset", "gpus", "global_batch", "seq", "use",
    "submitter", "leak_group", "round"
)  # fmt: skip
"""Fields that every run has; one that is null is one that is not there."""
_OWN_KERNELS: Final = frozenset({"nemo", "megatron-bridge", "nemo-automodel"})
"""Trainers whose layers do not run kernel by kernel, as those of transformers do; none tells of
the others.
"""
_BASES: Final = {
    "nf4": "nf4-double",
    "gptq-int4": "gptq-int4",
    "fp8": "fp8",
    "bf16": "bf16",
    "bfloat16": "bf16",
}
"""What rows call formats of frozen matrices; another one is that of the precision."""
PRIORS: Final = {
    "compute.frozen_scale": (1.05, 0.16),
    "compute.adapter_passes": (2.0, 0.7),
    "host.adapter": (0.5e-3, 0.5),
}
"""Constants that are fitted, with the value that is expected and the standard deviation of
its logarithm.
"""
PUBLISHERS: Final = {
    "NVIDIA": "nvidia-bridge", "QCT": "Quanta_Cloud_Technology",
    **dict.fromkeys(("smc", "smc-ac-power", "smc-dc-power"), "Supermicro"),
}  # fmt: skip
"""Submitters that the table of measured runs has by another name."""
_NOISE: Final = 0.06
"""Scale of the logarithm of a run that the laws explain; what is further off counts for less.
Ours. [1]
"""
_SURE: Final = 0.9
"""Chance of fitting that a run which trained should have. [1]"""
_MOVE: Final = 0.2
"""Standard deviations by which a constant is moved to see what follows it."""


@dataclass(frozen=True)
class TuningRun:
    """A measured run, and how it is priced."""

    row: Mapping[str, Any]
    case: SearchCase
    layout: Strategy
    family: str
    device: str

    def priced(self, constants: Mapping[str, float] | None = None) -> Estimate:
        """The estimate, with other constants in the place of the shipped ones."""
        calibration = self.case.cluster.calibration
        for path, value in (constants or {}).items():
            calibration = calibration.stated(path, value)
        cluster = replace(self.case.cluster, calibration=calibration)
        return estimate(self.case.workload, cluster, self.layout)

    @property
    def stored(self) -> Footprint:
        """Its memory. Activations that torchtune moves to the host take no time: by its README a
        step is as long with as without, so that the layout of the step leaves them where they are.
        """
        layout = self.layout
        if self.row.get("offload") == "activations":
            layout = replace(layout, offload=frozenset({LAYER_INPUT}))
        return estimate(self.case.workload, self.case.cluster, layout).footprint

    @property
    def counted(self) -> float:
        """The predicted memory in the run's own terms: what tensors hold, or all that is
        reserved. [B]
        """
        inside = bool({"allocated", "active"} & set(self.row.get("memory_kind", "").split()))
        return float(self.stored.allocated if inside else self.stored.peak)

    @property
    def publisher(self) -> str:
        """Publisher of the run, in the words of the table of measured runs."""
        submitter = str(self.row["submitter"])
        return PUBLISHERS.get(submitter, submitter)

    def fitted_with(self, path: str) -> tuple[str, ...]:
        """Key of a constant's fitted value: runs whose keys are equal share one value."""
        return (path, self.family, *((self.device,) if path == "compute.frozen_scale" else ()))


def runs_of(path: Path | str) -> tuple[list[TuningRun], list[dict[str, str]]]:
    """The runs of a file, and those that cannot be priced with the reason."""
    try:
        rows = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadFile(str(path), str(error)) from None
    runs, refused = list[TuningRun](), list[dict[str, str]]()
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise BadFile(str(path), "it must be a list of runs, each with its fields by name")
    for number, fields in enumerate(rows, start=1):
        row = {field: value for field, value in fields.items() if value is not None}
        name = str(row.get("id", f"run {number}"))
        if absent := [field for field in NEEDED if field not in row]:
            refused.append({"id": name, "reason": f"it must give {', '.join(absent)}"})
            continue
        try:
            runs.append(_run(row))
        except InputError as error:
            refused.append({"id": name, "reason": str(error)})
    return runs, refused


def _run(row: Mapping[str, Any]) -> TuningRun:
    """A fine-tuning run of the table of measured runs, with the job and layout that it had."""
    adapted = row["method"] in {"lora", "qlora"}
    asked: dict[str, Any] = {
        "model": row["model"],
        "gpu": row["device_preset"],
        "gpus": row["gpus"],
        "global_batch_size": row["global_batch"],
        "sequence_length": row["seq"],
        "precision": row.get("compute_precision") or "bf16",
    }
    if adapted:
        asked["adapter_rank"] = int(row.get("lora_rank") or 16)
        if targets := row.get("lora_targets"):
            asked["adapter_targets"] = ",".join(targets)
        if base := _BASES.get(row.get("base_precision", "")):
            asked["base"] = base
    sharded = "fsdp" in row.get("sharding", "")  # accelerate casts what FSDP shards to fp32
    wide = row.get("base_precision") == "fp32"
    if row["trainer"] == "torchtune" or (
        row["trainer"] == "accelerate" and not adapted and not sharded and not wide
    ):  # weights were loaded in 16 bits
        eight = "8bit" in row.get("optimizer", "")
        asked |= {
            "precision": "bf16-pure",
            "optimizer": "adamw-8bit" if eight else "adamw-bf16",
        }
    asked |= {name: row[name] for name in ("loss", "gradient_release") if name in row}
    trainer = _TRAINERS.get(row["trainer"])
    asked |= {"stack": trainer} if trainer else {}
    problem = problems_of(ExplainQuestion(**asked))[0]
    layout = layout_of(_layout(row), problem, "layout")
    if defects := row.get("defects"):
        recipe = problem.workload.training.precision.name
        constants = presets.calibration(
            row["device_preset"], recipe, trainer or "default", defects=defects
        )
        problem = replace(problem, cluster=replace(problem.cluster, calibration=constants))
    device = row["device_preset"]
    return TuningRun(
        row=row,
        case=problem,
        layout=layout,
        family=row["trainer"] if row["trainer"] in _OWN_KERNELS else "transformers",
        device=device if device.startswith("mi") else presets.device_class(device),
    )


def _layout(row: Mapping[str, Any]) -> str:
    words = [f"{name}={row.get(name) or 1}" for name in ("tp", "pp", "cp", "mbs")]
    if (row.get("vpp") or 1) > 1:
        words += [f"vpp={row['vpp']}", "schedule=interleaved"]
    words += ["sp=true"] if row.get("sp") and (row.get("tp") or 1) > 1 else []
    if row.get("cp_mode") and (row.get("cp") or 1) > 1:
        words.append(f"cp-mode={row['cp_mode']}")
    graphs = row.get("graphs", "none")
    words.append(f"graphs={graphs if graphs in {'full', 'none'} else 'partial'}")
    mode = row.get("recompute", "none")
    if mode.startswith("full:"):
        words.append(f"recompute=full:{mode[5:].split('-')[0]}")
    elif mode.startswith("full"):
        words.append("recompute=full")
    sharding = row.get("sharding", "")
    if (row.get("dp") or 1) > 1:
        words += ["optimizer=zero3"] if "fsdp" in sharding else []
        words += ["optimizer=replicated"] if "ddp" in sharding else []
    return ",".join(words)


def left_out(runs: Sequence[TuningRun]) -> dict[str, float]:
    """Error of the step of each run with adapters by constants that saw neither its submitter nor
    one of its systems. [1]
    """
    runs = [run for run in runs if "step" in run.row["use"] and run.row["method"] != "full"]
    names = sorted({run.fitted_with(path) for run in runs for path in PRIORS})

    def constants(run: TuningRun, moves: Mapping[tuple[str, ...], float]) -> dict[str, float]:
        return {
            path: value * float(np.exp(spread * moves[run.fitted_with(path)]))
            for path, (value, spread) in PRIORS.items()
        }

    def error(run: TuningRun, moves: Mapping[tuple[str, ...], float]) -> float:
        step = float(run.priced(constants(run, moves)).step_time)
        return float(np.log(step / run.row["step_seconds"]))

    # Where nobody says whether graphs were captured, the layout is not known.
    is_known = np.array([run.family != "nemo" or "graphs" in run.row for run in runs], dtype=float)
    # How far each constant is moved from its prior, in spreads of the prior.
    move: Array = np.zeros(len(names))
    errors, slopes = np.zeros(len(runs)), np.zeros((len(runs), len(names)))
    for _ in range(2):
        moves = dict(zip(names, move.tolist(), strict=True))
        errors = np.array([error(run, moves) for run in runs])
        slopes = np.zeros((len(runs), len(names)))
        for row, run in enumerate(runs):
            for path in PRIORS:
                name = run.fitted_with(path)
                moved = {**moves, name: moves[name] + _MOVE}
                slopes[row, names.index(name)] = (error(run, moved) - errors[row]) / _MOVE
        move = move + _step(slopes, errors, is_known, move)
    moves = dict(zip(names, move.tolist(), strict=True))
    errors = np.array([error(run, moves) for run in runs])
    errors_left_out: dict[str, float] = {}
    for submitter in sorted({run.row["submitter"] for run in runs}):
        systems = {run.row["leak_group"] for run in runs if run.row["submitter"] == submitter}
        seen = np.array([run.row["leak_group"] not in systems for run in runs], dtype=float)
        change = _step(slopes, errors, is_known * seen, move)
        for run, fitted_error, slope in zip(runs, errors, slopes, strict=True):
            if run.row["submitter"] == submitter:
                errors_left_out[run.row["id"]] = float(np.exp(fitted_error + slope @ change) - 1.0)
    return errors_left_out


def _step(slopes: Array, errors: Array, weights: Array, at: Array) -> Array:
    """The move that brings errors and distances from the priors lowest, by weighted squares."""
    move: Array = np.zeros(len(at))
    for _ in range(8):
        far = np.abs(errors + slopes @ move) / (1.5 * _NOISE)
        each = weights / np.sqrt(np.maximum(1.0, far)) / _NOISE * 0.6
        rows = np.vstack([slopes * each[:, None], np.eye(len(at))])
        move = np.linalg.lstsq(rows, np.concatenate([-errors * each, -at]), rcond=None)[0]
    return move


def regrets(runs: Sequence[TuningRun], unseen: Mapping[str, float]) -> list[dict[str, Any]]:
    """Questions that were measured in several layouts: what the choice of the estimates took beyond
    the fastest, by steps that saw neither its submitter nor its system where there are such. [1]
    """
    questions: dict[str, list[TuningRun]] = {}
    for run in runs:
        if "step" in run.row["use"] and not run.row.get("duplicate_of"):
            settings = [run.row.get(name) for name in ("device_preset", "gpus", "compile")]
            key = f"{settings} {run.case.workload.model.name} {run.case.workload.training}"
            questions.setdefault(key, []).append(run)
    rows = []
    for group in questions.values():
        layouts: dict[str, list[tuple[float, float]]] = {}
        for run in group:
            measured = run.row["step_seconds"]
            error = unseen.get(run.row["id"])
            predicted = float(run.priced().step_time) if error is None else measured * (1.0 + error)
            layouts.setdefault(format_strategy(run.layout), []).append((predicted, measured))
        if len(layouts) < 2:
            continue
        steps = [tuple(np.median(times, axis=0).tolist()) for times in layouts.values()]
        row = group[0].row
        rows.append(
            {
                "question": (
                    f"{row['model']} {row['method']} on {row['gpus']} {row['device_preset']}"
                ),
                "layouts": len(layouts),
                "runs": len(group),
                "regret": min(steps)[1] / min(measured for _, measured in steps) - 1.0,
            }
        )
    return rows


def tuning_scores(path: Path | str) -> dict[str, Any]:
    """Errors of step and memory by round, shipped and left out, and who is said not to fit."""
    runs, refused = runs_of(path)
    unseen = left_out(runs)
    rows = []
    for run in runs:
        row, priced = run.row, run.priced()
        step, measured = float(priced.step_time), row.get("memory_gib")
        footprint, memory = run.stored, run.counted / GIB
        off = step / row["step_seconds"] - 1.0 if "step" in row["use"] else None
        rows.append(
            {
                "id": row["id"],
                "round": row["round"].partition(" refs")[0],
                "method": row["method"],
                "step": off,
                "left_out": unseen.get(row["id"]),
                "memory": memory / measured - 1.0 if measured and "memory" in row["use"] else None,
                "in_band": _in_band(run, priced, unseen.get(row["id"], off)),
                "chance_to_fit": _chance_to_fit(run, footprint),
                "fits": bool(footprint.fits(run.case.cluster)),
                "out_of_memory": _out_of_memory(run, memory) if "memory" in row["use"] else None,
            }
        )
    groups = {"adapters": [figures for figures in rows if figures["method"] != "full"]}
    for figures in rows:
        groups.setdefault(f"{figures['round']}, {figures['method']}", []).append(figures)
    return {
        "groups": [{"runs": name, **_figures(group)} for name, group in groups.items()],
        "regret": regrets(runs, unseen),
        "cases": rows,
        "unsupported": refused,
    }


def _odds(run: TuningRun, footprint: Footprint, runs: MeasuredRuns) -> LayoutOdds:
    at = coordinates(run.case.workload, run.case.cluster, run.layout, float(footprint.estimated))
    return odds_of(runs, [at])


def _in_band(run: TuningRun, priced: Estimate, error: float | None) -> bool | None:
    """Whether a step lies in the band around what was said without its submitter, by runs
    of others.
    """
    if error is None:
        return None
    others = picks.unseen(measured_runs(), run.publisher)
    band = _odds(run, priced.footprint, others).band("step")
    return bool(band.lower <= 1.0 / (1.0 + error) <= band.upper)


def _out_of_memory(run: TuningRun, memory: float) -> bool | None:
    """Whether the device with the least memory that surely holds a run has no room for what was
    measured; None where none surely holds it.
    """
    cluster, measured = run.case.cluster, float(run.row["memory_gib"])
    usable = float(device_memory_limit(cluster)) / float(cluster.device.memory)
    estimated = float(run.stored.estimated)
    picked, _ = least_rooms(memory * GIB, measured * GIB, estimated, usable)
    return None if picked is None else picked < measured * GIB


def _chance_to_fit(run: TuningRun, footprint: Footprint) -> float:
    limit = float(device_memory_limit(run.case.cluster)) / float(footprint.peak)
    return float(_odds(run, footprint, measured_runs()).below("memory", limit)[0])


def _figures(rows: Sequence[Mapping[str, Any]]) -> dict[str, float | int | None]:
    figures: dict[str, float | int | None] = {"n": len(rows)}
    for name in ("step", "left_out", "memory"):
        errors = np.abs([row[name] for row in rows if row[name] is not None])
        figures[f"{name}_median"] = float(np.median(errors)) if errors.size else None
        figures[f"{name}_p90"] = float(np.quantile(errors, 0.9)) if errors.size else None
    held = [row["in_band"] for row in rows if row["in_band"] is not None]
    figures["in_band"] = sum(held) / len(held) if held else None
    figures["below_nine_tenths"] = sum(row["chance_to_fit"] < _SURE for row in rows)
    figures["said_not_to_fit"] = sum(not row["fits"] for row in rows)
    devices = [row["out_of_memory"] for row in rows if row["out_of_memory"] is not None]
    figures |= {"devices": len(devices), "out_of_memory": sum(devices)}
    return figures
