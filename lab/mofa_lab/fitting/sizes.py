"""Sizes picked by `mofa_model.advice.sizes` against what was measured to fit; constants of memory
are those of fits that did not see it.

    sweeps    layouts of one question that were measured on several numbers of devices: the size
              that is picked among them, whether it
              ran out of memory, and its devices over the least on which some layout was measured
              to fit
    devices   every run with a known memory: the device with the least memory that surely holds it,
              among those that there are, whether
              the run has room there, and that memory over the least that it has room in
    sure      every run that fitted or did not: how many were sure to fit, and how many of these did
              not

    tuning    the same of fine-tuning runs: the least GPUs for a model and a method, whatever the
              micro-batch; the device; and who is sure

Left out are the publisher of a published run, and the model of a sweep. Steps, which decide among
sizes, are those of fits without the run's group. What fine-tuning runs measured of memory was
fitted to nothing, so nothing is left out for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from mofa_lab.fitting.campaign import JUDGED, CampaignResult
from mofa_lab.fitting.folds import KEYS, OutOfFold, cross_validate
from mofa_lab.fitting.memory_spread import LEFT_OUT
from mofa_lab.fitting.priors import priors
from mofa_lab.fitting.sets import set_of
from mofa_lab.validate.rooms import is_sure, least_rooms
from mofa_lab.validate.steps import predict
from mofa_lab.validate.tuning import TuningRun, runs_of
from mofa_model.advice.sizes import SURE, first_of
from mofa_model.bands.table import measured_runs
from mofa_model.calibrate.cases import Case, shipped
from mofa_model.calibrate.fit import Evidence, FitRow, fit, memories
from mofa_model.estimate.terms import device_memory_limit
from mofa_model.records import dataclass
from mofa_model.tables import Column, Table, as_markdown
from mofa_model.units import GIB

OUT_OF_MEMORY: Final = 0.01
"""Most of the sizes that may run out of memory. [1]"""
TUNED: Final = Path("lab/data/finetune.json")
"""Fine-tuning runs, in a clone."""
OVER: Final = 0.1
"""Most devices over the measured minimum, in the mean. [1]"""
COLUMNS: Final = (
    Column("best at"), Column("runs"), Column("groups"), Column("sizes"), Column("none is sure"),
    Column("out of memory"),
    Column("share", unit="%"), Column("over the least", unit="%"), Column("met"),
)  # fmt: skip
TITLES: Final = {
    "sweeps": "Sizes among the measured layouts of a question, against the least number of GPUs "
    "that was measured to fit",
    "devices": "Devices for a run's layout, against the least memory of a device that holds it",
    "sure": "Runs that are sure to fit where they ran",
    "tuning": "Fine-tuning runs: GPUs for a model and a method, devices, and who is sure where "
    "it ran",
}
HEAD: Final = f"""\
## Sizes

What is picked where the size of a job is open ([apply.md](apply.md#sizes)): what fits with a probability of {SURE:.0%}. Constants of memory are
those of fits without the run's publisher, or without its model of a sweep; steps are those of fits without its group. At most
{OUT_OF_MEMORY:.0%} of the sizes may run out of memory, at no more than {OVER:.0%} more GPUs than were measured to fit. A published run is
known to fit where it ran; only sweeps have runs that did not.

Two lines are not met. The published runs that would run out of memory are one job of torchtitan at AWS, twice: its
micro-batch is that of a file, not of its log, and with one sequence it took what two take at others (64 and 69 GiB, against 62 to 67). And two full fine-tunes filled 97%
of the least GPUs that they were measured on: no size that is sure can.
"""  # noqa: E501


@dataclass(frozen=True, kw_only=True)
class LeftOutRun:
    """A run with what fits that did not see it say of its memory."""

    case: Case
    group: str
    """Runs that are alike: one publisher, one family of models, one device."""
    predicted: float
    """Memory of what was measured, else of the fullest device. [B]"""
    measured: float
    """NaN where it is not known. [B]"""
    limit: float
    """Device memory that a job can have. [B]"""
    estimated: float
    """Share of the memory that is estimated. [1]"""

    def is_sure(self, limit: float) -> bool:
        """Whether it surely fits some memory, by the odds of every answer."""
        return is_sure(limit, self.predicted, self.estimated)


def folds_of(
    cases: Sequence[Case], progress: Callable[[str], None] = lambda _: None
) -> tuple[Evidence, Mapping[str, OutOfFold]]:
    """The evidence on memory of some cases, with cross-validations by publisher and by
    sweep model.
    """
    evidence = memories(cases, priors(None))
    whole = fit(evidence, evidence.measured, weights=evidence.weights)
    return evidence, {
        by: cross_validate(evidence, whole, by, judged=JUDGED[by], progress=progress)
        for by in LEFT_OUT.values()
    }


def left_out_runs(evidence: Evidence, validated: Mapping[str, OutOfFold]) -> list[LeftOutRun]:
    """Runs with known memory and runs of sweeps, each predicted by a fit that did not see it."""
    judged: dict[str, tuple[FitRow, float]] = {}
    for swept, by in LEFT_OUT.items():
        for row, value in zip(evidence.rows, validated[by].values.tolist(), strict=True):
            counts = row.figure is None or row.figure.quantity == "memory_gib"
            better = row.case.id not in judged or row.figure is not None
            if bool(row.case.group) is swept and counts and better and np.isfinite(value):
                judged[row.case.id] = (row, value)
    shares = predict([row.case for row, _ in judged.values()]).columns["estimated"].tolist()
    return [
        _left_out(row, float(np.exp(value)), share)
        for (row, value), share in zip(judged.values(), shares, strict=True)
    ]


def _left_out(row: FitRow, predicted: float, share: float) -> LeftOutRun:
    case = row.case
    machines = replace(case.cluster, calibration=shipped(case.key))
    return LeftOutRun(
        case=case,
        group=KEYS["group"](row),
        predicted=predicted,
        measured=float(np.exp(row.measured)),
        limit=float(device_memory_limit(machines)),
        estimated=share,
    )


def sizes_document(runs: Sequence[LeftOutRun], tuned: Sequence[TuningRun] = ()) -> dict[str, Any]:
    """All figures of some runs."""
    rows = {"sweeps": _picks(runs), "devices": _devices(runs), "sure": _sure(runs)}
    if tuned:
        rows["tuning"] = tuned_rows(tuned)
    return {name: _by_set(outcomes) for name, outcomes in rows.items()}


def tables(document: Mapping[str, Any]) -> list[Table]:
    """The figures in tables, with what is aimed at."""
    return [
        Table(
            title=title,
            columns=COLUMNS,
            rows=tuple(
                (
                    row["objective"], row["set"], row["groups"], row["sizes"], row["unanswered"],
                    row["failed"], row["share"], row["over"],
                    row["share"] <= OUT_OF_MEMORY
                    and ("GPU" not in row["objective"] or row["over"] <= OVER),
                )
                for row in document[name]
            ),
        )
        for name, title in TITLES.items()
        if name in document
    ]  # fmt: skip


def section(result: CampaignResult) -> str:
    """The section of docs/validation.md; empty where nothing was left out."""
    if not {*LEFT_OUT.values()} <= result.memory.validated.keys():
        return ""
    runs = left_out_runs(result.memory.evidence, result.memory.validated)
    document = sizes_document(runs, tuning_runs())
    parts = (
        f"**{table.title}**\n\n{as_markdown(replace(table, title=''))}"
        for table in tables(document)
    )
    return "\n".join([HEAD, *parts])


Row = Mapping[str, Any]
"""What became of a size: its set and group, whether it ran out of memory, and how much over
the least.
"""


def _picks(runs: Sequence[LeftOutRun]) -> list[Row]:
    """The size that is picked for each question of a sweep with several numbers of devices."""
    step_errors = _left_out_steps()
    by_question: dict[tuple[object, ...], list[LeftOutRun]] = {}
    for run in runs:
        if run.case.group:
            training = run.case.workload.training
            question = (
                run.case.workload.model,
                training.sequence,
                training.global_batch,
                run.case.gpu,
            )
            by_question.setdefault((set_of(run.case), *question), []).append(run)
    rows: list[Row] = []
    for group in by_question.values():
        devices = [int(run.case.cluster.gpus) for run in group]
        if len(set(devices)) < 2 or all(run.case.out_of_memory for run in group):
            continue
        least = min(n for n, run in zip(devices, group, strict=True) if not run.case.out_of_memory)
        sure = [index for index, run in enumerate(group) if run.is_sure(run.limit)]
        about: dict[str, Any] = {
            "set": set_of(group[0].case),
            "group": group[0].group,
            "question": group[0].case.group,
        }
        if not sure:
            rows.append({**about, "picked": None})
            continue
        steps = _steps([group[index].case for index in sure], step_errors)
        for objective, figures in {
            "least GPU-hours": [
                step * devices[index] for step, index in zip(steps, sure, strict=True)
            ],
            "least GPUs": [float(devices[index]) for index in sure],
        }.items():
            pick = sure[first_of(figures, [devices[index] for index in sure])]
            rows.append(
                {
                    **about, "objective": objective, "picked": devices[pick], "least": least,
                    "over": devices[pick] / least - 1.0, "failed": group[pick].case.out_of_memory,
                }
            )  # fmt: skip
    return rows


def _left_out_steps() -> Mapping[str, float]:
    """Logarithm of measured over predicted step by run, of fits without its group. [1]"""
    runs = measured_runs()
    return dict(zip(runs.names, runs.errors["step"].tolist(), strict=True))


def _steps(cases: Sequence[Case], step_errors: Mapping[str, float]) -> list[float]:
    """Predicted steps: by a fit without the group where one judged the run, else by the shipped
    one. [s]
    """
    shipped_steps = predict(cases).columns["step"].tolist()
    measured = [
        next(
            (figure.value for figure in case.measured if figure.quantity == "step_time_s"),
            float("nan"),
        )
        for case in cases
    ]
    left_out_steps = [
        value * float(np.exp(-step_errors.get(case.id, float("nan"))))
        for case, value in zip(cases, measured, strict=True)
    ]
    return [
        step if np.isfinite(step) else other
        for step, other in zip(left_out_steps, shipped_steps, strict=True)
    ]


def _devices(runs: Sequence[LeftOutRun]) -> list[Row]:
    """The device with the least memory that surely holds each run."""
    rows: list[Row] = []
    for run in (run for run in runs if np.isfinite(run.measured)):
        share = run.limit / float(run.case.cluster.device.memory)
        picked, least = least_rooms(run.predicted, run.measured, run.estimated, share)
        about: dict[str, Any] = {
            "set": set_of(run.case),
            "group": run.group,
            "question": run.case.id,
        }
        if picked is None or least is None:
            rows.append({**about, "picked": None})
            continue
        failed = picked < run.measured
        over = picked / least - 1.0
        rows.append(
            {
                **about,
                "objective": "least memory",
                "picked": picked,
                "least": least,
                "over": over,
                "failed": failed,
            }
        )
    return rows


def _sure(runs: Sequence[LeftOutRun]) -> list[Row]:
    """For each run on its own devices: whether it was said to surely fit, and whether it did."""
    return [
        {
            "set": set_of(run.case), "group": run.group, "question": run.case.id,
            "objective": "sure where they ran",
            "picked": 1 if run.is_sure(run.limit) else None, "over": 0.0,
            "failed": run.case.out_of_memory,
        }
        for run in runs
    ]  # fmt: skip


def tuning_runs() -> list[TuningRun]:
    """The fine-tuning runs of a clone whose memory is known."""
    if not TUNED.exists():
        return []
    return [run for run in runs_of(TUNED)[0] if "memory" in run.row["use"]]


def tuned_rows(runs: Sequence[TuningRun]) -> list[Row]:
    """Sizes picked for fine-tuning runs: one question for each model, method and device, with a
    micro-batch of our own.
    """
    rows: list[Row] = []
    by_question: dict[tuple[object, ...], list[TuningRun]] = {}
    for run in runs:
        row, case = run.row, run.case
        measured, limit = row["memory_gib"] * GIB, float(device_memory_limit(case.cluster))
        about = {"set": row["method"], "group": run.publisher, "question": row["id"]}
        estimated = float(run.stored.estimated)
        usable = limit / float(case.cluster.device.memory)
        picked, least = least_rooms(run.counted, measured, estimated, usable)
        devices = {**about, "objective": "least memory", "picked": picked}
        if picked is not None and least is not None:
            devices |= {"least": least, "over": picked / least - 1.0, "failed": picked < measured}
        sure = is_sure(limit, float(run.stored.peak), estimated)
        where = {"objective": "sure where they ran", "picked": 1 if sure else None}
        rows += [devices, {**about, **where, "over": 0.0, "failed": False}]
        training = case.workload.training
        question = (
            run.publisher,
            case.workload.model,
            training.adapters,
            training.loss,
            row["device_preset"],
        )
        by_question.setdefault(question, []).append(run)
    for group in by_question.values():
        gpus = {run.row["gpus"] for run in group}
        if len(gpus) < 2:
            continue
        about = {"set": group[0].row["method"], "group": group[0].publisher}
        about |= {
            "question": f"{group[0].row['model']} {group[0].row['method']}",
            "objective": "least GPUs",
        }
        fits = [
            run.row["gpus"]
            for run in group
            if is_sure(
                float(device_memory_limit(run.case.cluster)),
                float(run.stored.peak),
                float(run.stored.estimated),
            )
        ]
        if not fits:
            rows.append({**about, "picked": None})
            continue
        over = min(fits) / min(gpus) - 1.0
        rows.append(
            {**about, "picked": min(fits), "least": min(gpus), "over": over, "failed": False}
        )
    return rows


def _by_set(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Figures of each set and objective, and of all sets together."""
    objectives = list(dict.fromkeys(row["objective"] for row in rows if row["picked"] is not None))
    figures: list[dict[str, Any]] = []
    for objective in objectives:
        for name in (*sorted({row["set"] for row in rows}), "all"):
            of_set = [row for row in rows if name in {"all", row["set"]}]
            of_objective = [row for row in of_set if row.get("objective", objective) == objective]
            picked = [row for row in of_objective if row["picked"] is not None]
            if not picked:
                continue
            failed = [row["question"] for row in picked if row["failed"]]
            over = np.array([row["over"] for row in picked])
            figures.append(
                {
                    "objective": objective, "set": name, "sizes": len(picked),
                    "groups": len({row["group"] for row in picked}),
                    "unanswered": len(of_objective) - len(picked), "failed": len(failed),
                    "share": len(failed) / len(picked),
                    "over": float(over.mean()), "above": int(np.sum(over > 0)), "failures": failed,
                }
            )  # fmt: skip
    return figures
