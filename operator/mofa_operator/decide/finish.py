"""The date on which a running job finishes, with P10 and P90: from its step, and from the days of
its pool's account. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mofa_model.kinds.shape import part
from mofa_model.reliability.prospects import LEAST_DAYS, finish_days
from mofa_model.units import DAY
from mofa_operator.decide.forecasts import days_on_end, trained_days
from mofa_operator.decide.status import moment
from mofa_operator.decision import Answer
from mofa_operator.evidence import date_of
from mofa_operator.objects import Written, figure
from mofa_operator.snapshot import JobSnapshot, Running


def finish(snapshot: JobSnapshot, answer: Answer, running: Running) -> Written:
    """`finish` of `status.observed`; empty where the tokens, the step or a fortnight's account are
    not known.
    """
    left = training_left(answer, running)
    if left is None or snapshot.profile is None:
        return {}
    today = date_of(snapshot.now)
    by_job = trained_days(snapshot.profile.days, before=today)
    names = [job.key.full_name for job in (snapshot.target, snapshot.job) if job is not None]
    of_job = (days_on_end(by_job.get(name, {}), today) for name in names)
    past = next((days for days in of_job if len(days) >= LEAST_DAYS), None)
    past = days_on_end(by_job.get("", {}), today) if past is None else past
    days_left = finish_days(past, left)
    if days_left is None:
        return {}
    ends = {"p10": days_left.lower, "p50": days_left.target, "p90": days_left.upper}
    moments = {name: moment(snapshot.now + days * DAY) for name, days in ends.items()}
    return {
        "finish": {**moments, "days": one_line({name: at[:10] for name, at in moments.items()})}
    }


def one_line(finish: Mapping[str, Any]) -> str:
    """The likeliest moment of the end of training, with its band, as text; empty without one.

    >>> one_line({"p10": "2026-12-02", "p50": "2026-12-04", "p90": "2026-12-09"})
    '2026-12-04 (2026-12-02 to 2026-12-09)'
    """
    early, likely, late = (finish.get(name) for name in ("p10", "p50", "p90"))
    return f"{likely} ({early} to {late})" if early and likely and late else ""


def training_left(answer: Answer, running: Running) -> float | None:
    """Training that is left at the pace that is seen, if nothing stopped it; None = not
    known. [d]
    """
    predicted_duration = part(answer.status, "recommendation", "predicted", "durationSeconds")
    duration, seen = figure(predicted_duration.get("target")), figure(running.step_seconds)
    ettr, step = (answer.predicted.get(name) for name in ("ettr", "step_seconds"))
    if not duration or not seen or ettr is None or step is None or running.step is None:
        return None
    if duration < 0 or seen < 0 or step.target <= 0 or running.step < 0:
        return None
    steps = duration * ettr.target / step.target
    return max(0.0, steps - running.step) * seen / DAY
