"""What `ettr` answers, as plain data, and its picture."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from mofa_model import plots, units
from mofa_model.errors import BadValue
from mofa_model.reliability import interval, laws, model, paper, renewal
from mofa_model.reliability.model import Job, ettr_curve

if TYPE_CHECKING:
    from mofa_model.answers.ettr import EttrQuestion

TRUSTED: Final = 0.05
"""Failure load below which the paper's form is right to half a point. [1]"""
BROKEN: Final = 0.2
"""Failure load beyond which it is not to be used. [1]"""


def answer(job: Job, asked: EttrQuestion, every: tuple[int, ...] | None) -> dict[str, Any]:
    """Everything that the tables and the JSON of `mofa ettr` say."""
    best = interval.recommend(job, every=every)
    steps = asked.interval or best.steps
    if asked.method == "paper" and asked.interval is None:
        steps = printed(job, 1)["steps"]
    band = model.ettr_band(job, steps, best.every, level=asked.level)
    paper_form = printed(job, steps)
    told: dict[str, Any] = {
        "model": asked.method,
        "ettr": {
            "lower": float(band.lower),
            "target": float(band.target),
            "upper": float(band.upper),
        },
        "level": asked.level,
        "interval": _interval(job, best, steps, asked),
        "paper": paper_form,
        "mtbf_s": _finite(1 / max(float(model.failure_rate(job)), 1e-300)),
        "failures_per_node_day": _rate(job, asked.level),
        "save_s": {
            "blocking": [float(x) for x in job.blocking],
            "background": [float(x) for x in job.background],
        },
        "scatter": _scatter(
            job, steps, best.every, units.parse(asked.window, "s", field="--window")
        ),
        "budget": model.budget(job, steps, best.every),
    }
    if (found := interval.watchdog(job, steps, best.every)) is not None:
        told["watchdog"] = {"timeout_s": found.timeout, "worth": found.worth}
    if asked.method == "paper":
        told["ettr"] = _paper_band(job, steps, asked.level)
    told["curve"] = curve(job, steps, best.every, asked.curve, asked.level)
    if asked.total_steps:
        told |= _ending(job, steps, best.every, asked)
    return told


def curve(
    job: Job, steps: int, every: tuple[int, ...], count: int, level: float
) -> list[dict[str, Any]]:
    """ETTR over intervals from a sixteenth to sixteen times `steps`, with the band and the paper's form."""
    if count == 0:
        return []
    return [
        {
            "steps": point.steps,
            "seconds": point.seconds,
            "ettr": point.ettr.target,
            "lower": point.ettr.lower,
            "upper": point.ettr.upper,
            "paper": printed(job, point.steps)["ettr"],
        }
        for point in ettr_curve(job, steps, every, count, level)
    ]


def points(job: Job, told: dict[str, Any]) -> list[dict[str, Any]]:
    """The curve that was asked for, or one that is fine enough to be drawn."""
    steps, every = told["interval"]["steps"], tuple(told["interval"]["every"])
    return told["curve"] or curve(
        job, steps, every, 25 if len(job.blocking) > 1 else 121, told["level"]
    )


def plot(points: list[dict[str, Any]], told: dict[str, Any], path: str) -> None:
    """Draw the curve, its band, the paper's form and the interval to an SVG or PNG file."""
    plots.ettr_curve(path, points, told["interval"]["steps"], told["interval"]["seconds"])


def printed(job: Job, steps: int) -> dict[str, Any]:
    """The paper's form for the last tier, its interval, and whether it may be trusted here."""
    rate, mean = float(model.failure_rate(job)), float(model.mean_recovery(job))
    save, step = float(job.blocking[-1]), float(job.step_time)
    load = rate * (mean + steps * step / 2)
    trust = (
        "small failure load"
        if load < TRUSTED
        else "failure load above 0.05"
        if load < BROKEN
        else "beyond its range"
    )
    async_saves = any(float(x) > 0 for x in job.background)
    if async_saves:
        trust += "; background copies are not in it"
    return {
        "ettr": float(paper.ettr(rate, steps, step, save, mean)),
        "steps": int(paper.best_interval(rate, step, save, mean, most=interval.MOST_STEPS)),
        "failure_load": load,
        "trust": trust,
    }


def _paper_band(job: Job, steps: int, level: float) -> dict[str, float]:
    low, high = model.rate_scales(job, level)
    lower, target, upper = (
        printed(replace(job, rate_scale=x), steps)["ettr"] for x in (high, 1.0, low)
    )
    return {"lower": lower, "target": target, "upper": upper}


def _interval(job: Job, best: interval.Interval, steps: int, asked: EttrQuestion) -> dict[str, Any]:
    low, high = model.rate_scales(job, asked.level)
    scale = float(interval.minimax_rate(low, high))
    away = interval.departure(job, best)
    robust = (
        best if scale == 1 else interval.recommend(replace(job, rate_scale=scale), every=best.every)
    )
    return {
        "steps": steps,
        "seconds": steps * float(job.step_time),
        "every": list(best.every),
        "tier_steps": [steps * n for n in best.every],
        "best_steps": best.steps,
        "best_ettr": best.ettr,
        "half": away.half,
        "double": away.double,
        "flat_from": away.flat[0],
        "flat_to": away.flat[1],
        "minimax_steps": robust.steps,
    }


def _rate(job: Job, level: float) -> dict[str, float]:
    mean = float(model.failure_rate(job)) / float(job.nodes) * units.DAY
    low, high = model.rate_scales(job, level)
    return {"lower": mean * low, "target": mean, "upper": mean * high}


def _scatter(job: Job, steps: int, every: tuple[int, ...], window: float) -> dict[str, float]:
    """Standard deviation of one run's ETTR; nested tiers as the one tier that most failures read."""
    rate = float(model.failure_rate(job))
    sources = laws.sources_of(job.reliability)
    busiest = max(
        range(len(job.blocking)), key=lambda tier: sum(s.share for s in sources if s.tier == tier)
    )
    slope = sum(
        s.share * float(laws.laplace_slope(r, rate)) for s in sources for r in s.recoveries[-1:]
    )
    if window <= 0:
        raise BadValue("--window", window, "give a time above zero")
    sd = renewal.deviation(
        rate,
        model.survived(job),
        slope,
        steps * every[busiest] * float(job.step_time),
        float(job.blocking[busiest]),
        float(job.background[busiest]),
        job.reliability.slowdown,
        window,
    )
    return {"sd": float(sd), "window_s": window}


def _ending(job: Job, steps: int, every: tuple[int, ...], asked: EttrQuestion) -> dict[str, Any]:
    band = model.ettr_band(job, steps, every, level=asked.level)
    start, total = job.reliability.start, float(asked.total_steps or 0)
    times = {
        name: _finite(float(interval.finish_time(total, float(job.step_time), ettr, start)))
        for name, ettr in (("lower", band.upper), ("target", band.target), ("upper", band.lower))
    }
    told: dict[str, Any] = {"finish_s": times}
    if asked.deadline:
        limit = units.parse(asked.deadline, "s", field="--deadline")
        told["deadline"] = {"nodes_needed": interval.nodes_for(job, total, limit, asked.scaling)}
        if job.reliability.spares is not None:
            told["deadline"]["spares_needed"] = interval.spares_for_deadline(job, total, limit)
    return told


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) and value < 1e290 else None
