"""Forecasts of a pool and its jobs, which are stored and scored; and when a job will finish. Pure.

    the ledger's days ─▶ once a day a forecast of the next seven ─▶ `forecasts` of the FailureLedger
                                     └─▶ seven days later what came stands beside it

A stored forecast is never changed; what came is added to it. So it shows where bands do not hold.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date as calendar
from datetime import timedelta
from typing import Any, Final

from mofa_model.kinds.shape import at
from mofa_model.reliability.prospects import (
    LEAST_DAYS,
    WEEK,
    TrainedDay,
    finish_days,
    prospect,
)
from mofa_model.spec.account import NodeState
from mofa_model.units import DAY, Range
from mofa_operator.decide.status import moment
from mofa_operator.decision import Answer
from mofa_operator.evidence import FORECAST_DIGITS, PROMETHEUS, Day, Forecast, date_of
from mofa_operator.objects import WrittenPart, figure
from mofa_operator.snapshot import JobSnapshot, Running

MOST_JOBS: Final = 10
"""Jobs that are forecast: those that hold most. [1]"""
KEPT_DAYS: Final = 60
"""Days for which a forecast is kept. [d]"""


def forecasts(
    forecasts_before: Sequence[Forecast], days: Iterable[Day], now: float
) -> tuple[Forecast, ...]:
    """The stored forecasts, scored where their week is over, with today's. `now` in [s]."""
    today = date_of(now)
    by_name = trained_days(days, before=today)
    since = (calendar.fromisoformat(today) - timedelta(days=KEPT_DAYS)).isoformat()
    recent = (forecast for forecast in forecasts_before if since <= forecast.date <= today)
    kept = [_scored(forecast, by_name) for forecast in recent]
    jobs_today = {forecast.job for forecast in kept if forecast.date == today}
    yesterday = (calendar.fromisoformat(today) - timedelta(days=1)).isoformat()

    def node_days(name: str) -> float:
        return sum(day.held for day in by_name[name].values())

    jobs = sorted((name for name in by_name if name), key=lambda name: (-node_days(name), name))
    for name in ["", *jobs[:MOST_JOBS]]:
        past = by_name.get(name, {})
        if name in jobs_today or yesterday not in past:
            continue
        coming = prospect(days_on_end(past, today), WEEK)
        if coming is not None and past[yesterday].held > 0:
            forecast = Forecast(date=today, job=name, ettr=coming.ettr, stops=coming.stops)
            kept.append(forecast)
    return tuple(sorted(kept, key=lambda forecast: (forecast.date, forecast.job)))


def trained_days(days: Iterable[Day], before: str) -> dict[str, dict[str, TrainedDay]]:
    """Days that are over, by job and date; the pool is the empty name."""
    by_job: defaultdict[str, dict[str, TrainedDay]] = defaultdict(dict)
    for day in days:
        if day.witness != PROMETHEUS or not day.account or day.date >= before:
            continue
        held: defaultdict[str, float] = defaultdict(float)
        kept: defaultdict[str, float] = defaultdict(float)
        lost: defaultdict[str, set[str]] = defaultdict(set)
        for row in day.account:
            if row.state is NodeState.IDLE:
                continue
            for name in {row.job, ""}:
                held[name] += row.node_days
                kept[name] += row.node_days if row.state is NodeState.KEPT else 0.0
                if row.state.is_lost:
                    lost[name].add(row.cause)
        stops = sum(evidence.interruptions for evidence in day.classes.values())
        for name, node_days in held.items():
            by_job[name][day.date] = TrainedDay(
                held=node_days,
                kept=kept[name],
                stops=stops if not name else float(len(lost[name])),
            )
        by_job[""].setdefault(day.date, TrainedDay(held=0.0, kept=0.0, stops=stops))
    return dict(by_job)


def days_on_end(by_date: Mapping[str, TrainedDay], until: str) -> list[TrainedDay]:
    """The days before a date that follow each other."""
    date, consecutive = calendar.fromisoformat(until) - timedelta(days=1), []
    while (day := by_date.get(date.isoformat())) is not None:
        consecutive.append(day)
        date -= timedelta(days=1)
    return consecutive[::-1]


def _scored(forecast: Forecast, by_name: Mapping[str, Mapping[str, TrainedDay]]) -> Forecast:
    """A forecast with what came, once all days of its week are known."""
    if forecast.came is not None:
        return forecast
    first = calendar.fromisoformat(forecast.date)
    dates = [(first + timedelta(days=number)).isoformat() for number in range(int(WEEK))]
    days = by_name.get(forecast.job, {})
    week = [days[date] for date in dates if date in days]
    if len(week) < len(dates):
        return forecast
    node_days = sum(day.held for day in week)
    if node_days <= 0:
        return forecast
    ettr = round(sum(day.kept for day in week) / node_days, FORECAST_DIGITS)
    stops = round(sum(day.stops for day in week), FORECAST_DIGITS)
    return replace(forecast, came=ettr, came_stops=stops)


def rows_of(weekly: Iterable[Forecast]) -> list[WrittenPart]:
    """Forecasts as rows of a ledger."""
    return [
        {
            "date": forecast.date,
            **({"job": forecast.job} if forecast.job else {}),
            "ettr": _quantiles(forecast.ettr),
            "interruptions": _quantiles(forecast.stops),
            **_came("cameEttr", forecast.came),
            **_came("cameInterruptions", forecast.came_stops),
        }
        for forecast in weekly
    ]


def _came(name: str, value: float | None) -> WrittenPart:
    """A field of what came; none while it is not known."""
    return {} if value is None else {name: _text(value)}


def _quantiles(band: Range) -> WrittenPart:
    return {"p10": _text(band.lower), "p50": _text(band.target), "p90": _text(band.upper)}


def _text(value: float) -> str:
    return f"{value:.{FORECAST_DIGITS}f}".rstrip("0").rstrip(".")


def finish(snapshot: JobSnapshot, answer: Answer, running: Running) -> WrittenPart:
    """`finish` of `status.observed`; empty where the tokens, the step or two weeks of the account
    are unknown.
    """
    training_days = training_left(answer, running)
    if training_days is None or snapshot.profile is None:
        return {}
    today = date_of(snapshot.now)
    by_job = trained_days(snapshot.profile.days, before=today)
    names = [job.key.full_name for job in (snapshot.target, snapshot.job) if job is not None]
    pasts = [days_on_end(by_job.get(name, {}), today) for name in (*names, "")]
    # its own days where they are enough, else those of the pool, which come last
    past = next((days for days in pasts if len(days) >= LEAST_DAYS), pasts[-1])
    days_left = finish_days(past, training_days)
    if days_left is None:
        return {}
    quantiles = {"p10": days_left.lower, "p50": days_left.target, "p90": days_left.upper}
    moments = {name: moment(snapshot.now + days * DAY) for name, days in quantiles.items()}
    dates = {name: text[:10] for name, text in moments.items()}
    return {"finish": {**moments, "days": one_line(dates)}}


def one_line(finish: Mapping[str, Any]) -> str:
    """The likeliest moment of the end of training, with its band, as text; empty without one.

    >>> one_line({"p10": "2026-12-02", "p50": "2026-12-04", "p90": "2026-12-09"})
    '2026-12-04 (2026-12-02 to 2026-12-09)'
    """
    early, likely, late = (finish.get(name) for name in ("p10", "p50", "p90"))
    return f"{likely} ({early} to {late})" if early and likely and late else ""


def training_left(answer: Answer, running: Running) -> float | None:
    """Days of training that are left at the observed pace, without stops; None = unknown. [d]"""
    duration = figure(at(answer.status, "recommendation", "predicted", "durationSeconds", "target"))
    step_seconds = figure(running.step_seconds)
    ettr, step = (answer.predicted.get(name) for name in ("ettr", "step_seconds"))
    if not duration or not step_seconds or ettr is None or step is None or running.step is None:
        return None
    if duration < 0 or step_seconds < 0 or step.target <= 0 or running.step < 0:
        return None
    steps = duration * ettr.target / step.target
    return max(0.0, steps - running.step) * step_seconds / DAY
