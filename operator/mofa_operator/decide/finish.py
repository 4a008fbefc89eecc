"""The date on which a running job will finish, with P10 and P90: from its step time, and from the
days of its pool's account. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mofa_model.kinds.shape import at
from mofa_model.reliability.prospects import LEAST_DAYS, finish_days
from mofa_model.units import DAY
from mofa_operator.decide.forecasts import days_on_end, trained_days
from mofa_operator.decide.status import moment
from mofa_operator.decision import Answer
from mofa_operator.evidence import date_of
from mofa_operator.objects import Written, figure
from mofa_operator.snapshot import JobSnapshot, Running


def finish(snapshot: JobSnapshot, answer: Answer, running: Running) -> Written:
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
