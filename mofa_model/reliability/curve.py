"""ETTR over checkpoint intervals, with the band that an uncertain failure rate leaves: what pictures and tables show."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mofa_model.reliability import model, objective
from mofa_model.reliability.model import Job
from mofa_model.units import Ratio, Seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class CurvePoint:
    """ETTR of one interval."""

    steps: int
    """Steps between saves. [1]"""
    seconds: Seconds
    """Work between saves. [s]"""
    ettr: Ratio
    """With the rate's mean. [1]"""
    lower: Ratio
    """With the high end of the rate. [1]"""
    upper: Ratio
    """With the low end of the rate. [1]"""


def ettr_curve(
    job: Job, steps: int, every: tuple[int, ...], count: int, level: float
) -> list[CurvePoint]:
    """ETTR over `count` intervals from a sixteenth to sixteen times `steps`, with the band of `level`. Ours. []"""
    at = np.unique(np.round(np.geomspace(max(1, steps / 16), max(2, steps * 16), count)))
    low, high = objective.rate_scales(job, level)

    def values(scale: float) -> list[float]:
        scaled = replace(job, rate_scale=scale)
        if len(job.blocking) == 1:
            return [float(x) for x in np.atleast_1d(model.ettr(scaled, at))]
        return [float(model.ettr(scaled, k, every)) for k in at]

    lines = zip(at, values(1.0), values(high), values(low), strict=True)
    return [
        CurvePoint(
            steps=int(k), seconds=float(k * job.step_time), ettr=middle, lower=lower, upper=upper
        )
        for k, middle, lower, upper in lines
    ]
