"""Figures of merit: errors by source and device, regret of the pick, out-of-memory counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.calibrate.cases import Case, MeasuredFigure
from mofa_model.units import GIB

SMALLEST_GROUP: Final = 5
"""Measured runs that a group needs for a regret to mean something."""

LARGE: Final = 512
"""GPUs from which the sweep's runs were erratic; regret is also given without them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scored:
    """One measured figure and its prediction, both in SI units."""

    case: Case
    """The run."""
    figure: MeasuredFigure
    """What was measured."""
    predicted: float
    """What the model says."""

    @property
    def error(self) -> float:
        """Signed relative error: predicted / measured - 1. [1]"""
        return self.predicted / self.figure.value - 1

    def row(self) -> dict[str, Any]:
        """The figure as the command prints it: memory in GiB, times in seconds."""
        unit = GIB if self.figure.quantity.endswith("_gib") else 1.0
        row = {
            "id": self.case.id,
            "quantity": self.figure.quantity,
            "measured": self.figure.value / unit,
            "predicted": self.predicted / unit,
            "error": self.error,
        }
        return row | ({"basis": self.figure.basis} if self.figure.basis else {})


def summary(rows: Sequence[Scored]) -> dict[str, Any]:
    """Errors over all figures, and by quantity, source and GPU."""
    return {
        **spread(row.error for row in rows),
        "by_quantity": _by(rows, lambda row: row.figure.quantity),
        "by_source": _by(rows, lambda row: row.case.source),
        "by_gpu": _by(rows, lambda row: row.case.gpu),
    }


def spread(errors: Iterable[float], weights: Sequence[float] = ()) -> dict[str, Any]:
    """Number, mean, median and 90th percentile of absolute errors; null where there are none.

    Where `weights` say that some count for less, a quantile is the least error that so much of the
    weight does not exceed.
    """
    sizes = np.abs(np.fromiter(errors, dtype=float))
    if not sizes.size:
        return {"n": 0, "mape": None, "median_ape": None, "p90_ape": None}
    plain = len(set(weights)) <= 1
    median, p90 = (
        np.quantile(sizes, (0.5, 0.9))
        if plain
        else np.quantile(sizes, (0.5, 0.9), weights=weights, method="inverted_cdf")
    )
    return {
        "n": int(sizes.size),
        "mape": float(np.average(sizes, weights=None if plain else weights)),
        "median_ape": float(median),
        "p90_ape": float(p90),
    }


def _by(rows: Sequence[Scored], key: Callable[[Scored], str]) -> dict[str, Any]:
    groups: dict[str, list[float]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row.error)
    return {name: spread(errors) for name, errors in sorted(groups.items())}


def pick_regret(rows: Sequence[Scored]) -> dict[str, Any]:
    """What is lost by taking the run that is predicted fastest instead of the one that was, per
    group.

    Regret = 1 - throughput of the pick / best throughput, over groups with at least five measured
    runs; `every_choice` is over all with two.
    """
    groups: dict[str, list[Scored]] = {}
    for row in rows:
        if row.case.group and row.figure.quantity == "step_time_s":
            groups.setdefault(row.case.group, []).append(row)
    large = {name: runs for name, runs in groups.items() if len(runs) >= SMALLEST_GROUP}
    return {
        **_lost([*large.values()]),
        "every_choice": _lost([runs for runs in groups.values() if len(runs) > 1]),
        "by_group": {name: regret_of(runs) for name, runs in sorted(large.items())},
    }


def _lost(groups: Sequence[Sequence[Scored]]) -> dict[str, Any]:
    small = [runs for runs in groups if runs[0].case.cluster.gpus < LARGE]
    return {
        **_mean_and_p90([regret_of(runs) for runs in groups]),
        f"below_{LARGE}_gpus": _mean_and_p90([regret_of(runs) for runs in small]),
    }


def regret_of(runs: Sequence[Scored]) -> float:
    """Share of the best throughput that the pick of one group loses. [1]"""
    pick = min(runs, key=lambda row: row.predicted)
    best = min(row.figure.value for row in runs)
    return 1 - best / pick.figure.value


def _mean_and_p90(regrets: Sequence[float]) -> dict[str, Any]:
    if not regrets:
        return {"groups": 0, "mean": None, "p90": None}
    return {
        "groups": len(regrets),
        "mean": float(np.mean(regrets)),
        "p90": float(np.percentile(regrets, 90)),
    }


def out_of_memory(cases: Sequence[Case], oversized: NDArray[np.bool_]) -> dict[str, int]:
    """How runs that did and did not fit were called; positive = predicted not to fit."""
    happened = np.array([case.out_of_memory for case in cases], dtype=bool)
    return {
        "true_positive": int(np.sum(happened & oversized)),
        "false_negative": int(np.sum(happened & ~oversized)),
        "false_positive": int(np.sum(~happened & oversized)),
        "true_negative": int(np.sum(~happened & ~oversized)),
    }
