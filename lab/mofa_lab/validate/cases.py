"""Case files: one JSON object -> one `Case`, in the words of `spec` and `strategy`.

Each case stands alone: one that cannot be read becomes an `Unsupported` with its reason, and the
others go on. Facts of a case (nodes, NICs, shapes) overrule presets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mofa_lab.validate.conventions import measurements
from mofa_lab.validate.facts import (
    cluster_of,
    model_of,
    placement_of,
    precision_of,
    stack_of,
    strategy_of,
)
from mofa_lab.validate.record import Record, read
from mofa_lab.validate.wording import features_of, release_of
from mofa_model import presets
from mofa_model.calibrate.cases import CalibrationKey, Case
from mofa_model.errors import BadValue, InputError
from mofa_model.spec import Training, Workload

KINDS: Final = ("pretrain", "sweep", "layer", "activation-memory-ratio")
"""Kinds of cases that can be validated."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Unsupported:
    """A case that cannot be priced, and why."""

    id: str
    """Name of the case, or its position in the file."""
    reason: str
    """One line."""


def load(path: Path | str) -> tuple[list[Case], list[Unsupported]]:
    """All cases of a file; those that cannot be read come second, with reasons."""
    records, _ = read(path)
    cases: list[Case] = []
    unsupported: list[Unsupported] = []
    for position, values in enumerate(records, start=1):
        is_mapping = isinstance(values, Mapping)
        name = str(values.get("id") or f"#{position}") if is_mapping else f"#{position}"
        try:
            if not is_mapping:
                raise BadValue("case", values, "give an object")
            cases.append(case_of(Record(values)))
        except InputError as error:
            unsupported.append(Unsupported(id=name, reason=str(error)))
    return cases, unsupported


def case_of(record: Record) -> Case:
    """The case that a record describes."""
    kind = record.text("kind", "pretrain")
    if kind not in KINDS:
        raise BadValue("kind", kind, f"one of {', '.join(KINDS)}")
    model, precision, stack = model_of(record), precision_of(record), stack_of(record)
    features = {"tensor_overlap": presets.stack(stack).tensor_overlap, **features_of(record)}
    strategy = strategy_of(record, features)
    cluster = cluster_of(record, strategy)
    batch = record.inner("strategy").count("gbs", int(strategy.global_micro_batch))
    micro_batch = int(strategy.global_micro_batch)
    if batch % micro_batch or not batch:
        raise BadValue("strategy.gbs", batch, f"a multiple of dp x mbs = {micro_batch}")
    training = Training(
        sequence=record.inner("model").count("seq"), global_batch=batch, precision=precision
    )
    workload = Workload(model=model, training=training)
    normalized = record.inner("normalized")
    return Case(
        id=record.text("id"),
        kind=kind,
        source=record.text("source", "not stated"),
        publisher=normalized.text("publisher", "not stated"),
        gpu=record.inner("system").text("gpu"),
        group=record.text("group", "none") if record.get("group") else "",
        workload=workload,
        cluster=cluster,
        strategy=strategy,
        key=CalibrationKey(
            device=cluster.device.name,
            precision=precision.name,
            stack=stack,
            release=release_of(record),
            defects=features["defects"] & set(presets.stack(stack).defects),
            placement=placement_of(record),
        ),
        measured=measurements(record, workload, cluster, strategy),
        out_of_memory=record.inner("measured").flag("oom"),
        composed=record.flag("composed"),
    )
