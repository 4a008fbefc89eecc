"""Prices cases with the estimate and sets each measured figure beside its prediction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mofa_lab.validate.cases import Unsupported, load
from mofa_lab.validate.score import Scored, out_of_memory, pick_regret, summary
from mofa_model.calibrate.cases import Batch, Case, Resolve, batch_of, batches, shipped, stacked
from mofa_model.errors import InputError
from mofa_model.estimate import Estimate, estimate
from mofa_model.estimate.terms import device_memory_limit
from mofa_model.spec import Cluster, Workload
from mofa_model.strategy import Recompute, Strategy

Estimator: TypeAlias = Callable[[Workload, Cluster, Strategy], Estimate]
"""What prices a batch: the estimate, or a stand-in in tests."""

FIGURES: Final = (
    "step", "peak", "first_stage", "static", "allocated", "static_allocated", "estimated", "room",
    "fits", "layer_forward", "layer_backward",
)  # fmt: skip
"""Columns of `Predictions`: seconds and bytes; `estimated` is a share, `room` the logarithm of the
memory that there is over the peak, `fits` 1 or 0."""

RATIOS: Final[dict[str, dict[str, Any]]] = {
    "sequence_parallel": {"sequence_parallel": True},
    "selective": {"recompute": Recompute.SELECTIVE},
    "sp_plus_selective": {"sequence_parallel": True, "recompute": Recompute.SELECTIVE},
    "full": {"recompute": Recompute.FULL},
}
"""Variants of an activation-memory case, as changes to tensor parallelism alone."""


@dataclass(frozen=True, slots=True)
class Predictions:
    """Figures of all cases as columns; NaN where a case is unsupported."""

    columns: dict[str, NDArray[np.floating[Any]]]
    """One array per name of `FIGURES`, in the order of the cases."""
    unsupported: tuple[Unsupported, ...]
    """Cases that could not be priced."""

    def oversized(self) -> NDArray[np.bool_]:
        """Cases that are predicted not to fit."""
        return np.asarray(self.columns["fits"] == 0)


def predict(
    cases: Sequence[Case], resolve: Resolve = shipped, price: Estimator = estimate
) -> Predictions:
    """Figures of every case; one that cannot be priced does not spoil its neighbours."""
    columns = {name: np.full(len(cases), np.nan) for name in FIGURES}
    refused: list[Unsupported] = []
    for batch in batches(cases, resolve):
        try:
            _fill(columns, batch, resolve, price)
        except InputError:
            for single in singles(batch, cases):
                try:
                    _fill(columns, single, resolve, price)
                except InputError as error:
                    refused.append(
                        Unsupported(id=cases[int(single.indices[0])].id, reason=str(error))
                    )
    refused_ids = {item.id for item in refused}
    refused += [
        Unsupported(id=case.id, reason="the model gives no finite step time")
        for case, step in zip(cases, columns["step"], strict=True)
        if not np.isfinite(step) and case.id not in refused_ids
    ]
    return Predictions(columns, tuple(refused))


def singles(batch: Batch, cases: Sequence[Case]) -> Iterator[Batch]:
    """A batch for each case alone, used where one of them makes the whole batch fail."""
    for index in batch.indices:
        yield batch_of(cases, [int(index)])


def calibrated(batch: Batch, resolve: Resolve) -> Batch:
    """The batch with each case's own constants, which `resolve` finds by its key."""
    by_key = {key: resolve(key) for key in dict.fromkeys(batch.keys)}
    constants = (
        by_key[batch.keys[0]] if len(by_key) == 1 else stacked([by_key[key] for key in batch.keys])
    )
    return replace(batch, cluster=replace(batch.cluster, calibration=constants))


def _fill(
    columns: dict[str, NDArray[Any]], batch: Batch, resolve: Resolve, price: Estimator
) -> None:
    """Price a batch and write the figures of its cases into the columns."""
    ready = calibrated(batch, resolve)
    result = price(ready.workload, ready.cluster, ready.strategy)
    figures = (
        result.step_time,
        result.footprint.peak,
        result.footprint.first_stage,
        result.footprint.static_first_stage,
        result.footprint.allocated,
        result.footprint.static_allocated,
        result.footprint.estimated,
        np.log(device_memory_limit(ready.cluster) / result.footprint.peak),
        result.footprint.fits(ready.cluster),
        result.layer_forward,
        result.layer_backward,
    )
    for name, values in zip(FIGURES, figures, strict=True):
        columns[name][batch.indices] = batch.rows(values)


def scored(
    cases: Sequence[Case],
    predictions: Predictions,
    resolve: Resolve = shipped,
    price: Estimator = estimate,
) -> list[Scored]:
    """Every measured figure of every supported case beside its prediction."""
    refused = {item.id for item in predictions.unsupported}
    rows: list[Scored] = []
    for index, case in enumerate(cases):
        if case.id in refused:
            continue
        ratios = (
            activation_ratios(case, resolve, price)
            if case.kind == "activation-memory-ratio"
            else {}
        )
        for figure in case.measured:
            column = {
                "step_time_s": "step",
                "memory_gib": "first_stage" if figure.basis == "first stage" else "peak",
                "memory_static_gib": "static",
                "allocated_gib": "allocated",
                "allocated_static_gib": "static_allocated",
                "layer_forward_s": "layer_forward",
                "layer_backward_s": "layer_backward",
            }.get(figure.quantity)
            if column is not None:
                predicted = float(predictions.columns[column][index])
            elif figure.basis in ratios:
                predicted = ratios[figure.basis]
            else:
                continue
            rows.append(Scored(case=case, figure=figure, predicted=predicted))
    return rows


def activation_ratios(
    case: Case, resolve: Resolve = shipped, price: Estimator = estimate
) -> dict[str, float]:
    """Stored activations of each variant over those of tensor parallelism alone. [1]"""
    cluster = replace(case.cluster, calibration=resolve(case.key))

    def stored(**changes: Any) -> float:
        strategy = replace(case.strategy, **changes)
        return float(np.max(price(case.workload, cluster, strategy).footprint.activations))

    whole = stored(sequence_parallel=False, recompute=Recompute.NONE)
    return {variant: stored(**changes) / whole for variant, changes in RATIOS.items()}


def validate_steps(paths: Sequence[Path | str]) -> dict[str, Any]:
    """What `mofa validate steps` answers for files: cases, unsupported ones with
    reasons, summary.
    """
    read = [load(path) for path in paths]
    cases = [case for readable, _ in read for case in readable]
    unread = [item for _, refused in read for item in refused]
    predictions = predict(cases)
    rows = scored(cases, predictions)
    figures = summary(rows)
    if any(case.group for case in cases):
        figures["pick_regret"] = pick_regret(rows)
        figures["oom"] = out_of_memory(cases, predictions.oversized())
    fits = dict(zip((case.id for case in cases), (~predictions.oversized()).tolist(), strict=True))
    return {
        "cases": [{**row.row(), "fits": fits[row.case.id]} for row in rows],
        "unsupported": [
            {"id": item.id, "reason": item.reason} for item in (*unread, *predictions.unsupported)
        ],
        "summary": figures,
    }
