"""How sure an answer is: bands on its predictions, and what lowers confidence."""

from __future__ import annotations

from mofa_model.advice.answer import FailureInput, Predicted, PredictedFigure, Status
from mofa_model.advice.finalists import Priced
from mofa_model.advice.request import Request
from mofa_model.advice.saves import best_interval, job_of, steps_to_finish
from mofa_model.bands import SHARE, memory_band, step_band
from mofa_model.errors import InputError
from mofa_model.estimate.step import tokens_per_second, utilisation
from mofa_model.reliability import Interval, ettr_band
from mofa_model.units import DAY, Ratio

UNMEASURED = 0.6
"""Confidence where the stack or the class of device was never calibrated. Ours. [1]"""
DOUBTED = 0.4
"""Confidence where something that was given is itself in doubt, as nodes that are not ready. Ours. [1]"""
LEAST = 0.5
"""Confidence below which an answer is LowConfidence. [1]"""
PLAIN = (0.85, 1.15)
"""Step band of machines that no preset describes. Ours. [1]"""


def predicted(request: Request, one: Priced, nodes: int) -> tuple[Predicted, Interval]:
    """What a strategy is expected to do, with bands, at its best checkpoint interval; what running jobs taught is in it."""
    w, c = one.problem.workload, one.problem.cluster
    step = one.step_time * float(request.learned)
    job = job_of(request, one.problem, nodes, one.strategy, step)
    interval = best_interval(request, job)
    kept = ettr_band(job, interval.steps, interval.every)
    low, high, _ = step_factors(one)
    thin, thick = memory_factors(one)
    peak = float(one.estimate.memory.peak)
    speed = float(tokens_per_second(w, step))
    used = float(utilisation(w, c, step))
    ettr = _band(float(kept.lower), float(kept.target), float(kept.upper))
    steps = steps_to_finish(one.problem) if w.training.tokens else 0.0
    start = float(request.reliability.start) if steps else 0.0

    def finish(factor: float, share: float) -> float:
        return steps * step * factor / max(share, 1e-12) + start

    told = Predicted(
        step_seconds=_band(step * low, step, step * high),
        tokens_per_second=_band(speed / high, speed, speed / low),
        mfu=_band(used / high, used, used / low),
        memory_bytes=_band(peak * thin, peak, peak * thick),
        ettr=ettr,
        duration_seconds=_band(finish(low, ettr.upper), finish(1.0, ettr.target), finish(high, ettr.lower)),
    )
    return told, interval


def step_factors(one: Priced) -> tuple[float, float, str]:
    """Bounds of the step as factors, and what they rest on."""
    c = one.problem.cluster
    try:
        band = step_band(stack=c.calibration.stack, device=c.device.name, gpus=float(c.gpus))
    except InputError:  # a device or stack that somebody described by hand
        return (*PLAIN, "new device")
    return float(band.low), float(band.high), band.basis


def memory_factors(one: Priced) -> tuple[float, float]:
    """Bounds of the memory as factors."""
    c = one.problem.cluster
    try:
        band = memory_band(stack=c.calibration.stack, device=c.device.name)
    except InputError:
        return PLAIN
    return float(band.low), float(band.high)


def confidence(request: Request, one: Priced) -> tuple[Ratio, tuple[str, ...], Status]:
    """Probability that the bands hold, what lowers it, and what the answer is worth."""
    _, _, basis = step_factors(one)
    sure, caveats = SHARE, [*request.notes, *request.caveats]
    if not basis.startswith("known"):
        sure = min(sure, UNMEASURED)
        what = "this software stack" if "stack" in basis else "this class of device"
        caveats.append(
            f"nobody has calibrated {what}: one measured run narrows the bands (mofa calibrate --from-runs)"
        )
    if basis.endswith("at scale"):
        caveats.append("no calibrated run used as many GPUs")
    if not one.replayed and one.strategy.pp > 1:
        caveats.append("the pipeline is too long to replay; its closed form was used")
    if request.caveats:
        sure = min(sure, DOUBTED)
    return sure, tuple(caveats), Status.RECOMMENDED if sure >= LEAST else Status.LOW_CONFIDENCE


def failure_inputs(request: Request) -> tuple[FailureInput, ...]:
    """The failure rates that an answer uses."""
    return tuple(
        FailureInput(name=c.name, per_node_day=c.rate.mean * DAY, recovery_seconds=float(c.recovery.mean))
        for c in request.reliability.classes
    )


def _band(lower: float, target: float, upper: float) -> PredictedFigure:
    """A band that holds its target whatever rounding does."""
    return PredictedFigure(lower=min(lower, target), target=target, upper=max(upper, target))
