"""How far estimates of memory are off: the likeliest width of `mofa_model.bands.variance`.

    measured    log(measured / predicted) by a fit without the run's publisher, or model of a sweep
    trained     a published run had room, so it was below the limit
    failed      a run of a sweep that had none was above

Runs of one group are alike, and count together as the root of their number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_lab.fitting.campaign import CampaignResult
from mofa_lab.fitting.coverage import judged
from mofa_lab.fitting.folds import KEYS
from mofa_lab.fitting.sets import CROWD
from mofa_lab.fitting.spreads import log_density
from mofa_lab.validate.steps import predict
from mofa_model.bands.odds import END, chance
from mofa_model.bands.variance import memory_half_width
from mofa_model.calibrate.cases import Case
from mofa_model.calibrate.fit import FitRow

Array = NDArray[np.floating[Any]]

LEFT_OUT: Final = {False: "publisher", True: "group"}
"""What is left out for a run, by whether it is of a sweep."""


@dataclass(frozen=True, slots=True)
class Errors:
    """What some runs say of the error of their memory, in columns."""

    groups: Sequence[str]
    estimated: Array
    """Share of a memory that is estimated. [1]"""
    value: Array
    """Logarithm of measured over predicted, or of the limit over what is predicted. [1]"""
    sign: int
    """0 = measured, 1 = the error is below the value, -1 = it is above."""

    def likelihood(self, width: float) -> float:
        """Logarithm of the likelihood of these errors under a half width of the band."""
        sizes = Counter(self.groups)
        weights = np.array([sizes[name] ** -CROWD for name in self.groups])
        scale = memory_half_width(self.estimated, width) / END
        scaled = self.value / scale
        if self.sign:
            logs = np.log(chance(self.sign * scaled))
        else:
            logs = log_density(self.value, np.square(scale))
        return float(weights @ logs)


def errors_of(result: CampaignResult) -> list[Errors]:
    """Memory errors of all runs of a calibration, measured and left out."""
    columns = predict(result.cases).columns
    names = [case.id for case in result.cases]
    share = dict(zip(names, columns["estimated"].tolist(), strict=True))
    room = dict(zip(names, columns["room"].tolist(), strict=True))
    measured = [
        (row.case, error)
        for swept, by in LEFT_OUT.items()
        for row, error, _, _ in judged(result.memory, "memory", by)
        if bool(row.case.group) is swept
    ]
    measured_ids = {case.id for case, _ in measured}
    trained = [
        case
        for case in result.cases
        if case.kind == "pretrain" and not case.group and case.id not in measured_ids
    ]
    failed = [case for case in result.cases if case.out_of_memory]

    def errors(cases: Sequence[Case], values: Sequence[float], sign: int) -> Errors:
        names = [KEYS["group"](FitRow(case, None, 1.0)) for case in cases]
        shares = np.array([share[case.id] for case in cases])
        return Errors(names, shares, np.array(values), sign)

    return [
        errors([case for case, _ in measured], [error for _, error in measured], 0),
        errors(trained, [room[case.id] for case in trained], 1),
        errors(failed, [room[case.id] for case in failed], -1),
    ]


def likeliest(kinds: Sequence[Errors]) -> float:
    """The likeliest half width of a memory that is all estimated. [1]"""
    from scipy.optimize import minimize_scalar

    best = minimize_scalar(
        lambda width: -sum(kind.likelihood(width) for kind in kinds),
        bounds=(0.01, 1.0),
        method="bounded",
    )
    return float(best.x)
