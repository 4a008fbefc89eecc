"""How a pool failed over the last year, in order: its ledger day by day, and by weeks what is older than the ledger's window.

The check of assumptions and the forecast ask for more time than the window of the history. Days that leave the ledger are added
to their week in `status.weeks`; so a year is some fifty rows, and both can be done again from the status alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import date as calendar
from datetime import timedelta
from itertools import groupby
from typing import Final

from mofa_model.manifest.failure_history import as_written, row_of
from mofa_model.spec.evidence import DatedEvidence, together
from mofa_model.spec.recovery_classes import RecoveryClass
from mofa_model.units import DAY
from mofa_operator.decide.ledger import counts
from mofa_operator.evidence import Day
from mofa_operator.objects import LiveProfile, Written

MOST: Final = 53
"""Weeks that are kept. [1]"""
_WRONG: Final = 0.01
"""By how much the seconds of a week's days may be off. [d]"""


def of_days(days: Iterable[Day]) -> list[DatedEvidence]:
    """A ledger as one row a day: of each class the witness that counts."""
    found: list[DatedEvidence] = []
    for date, every in groupby(sorted(days, key=lambda day: day.date), key=lambda day: day.date):
        entries = list(every)
        seen = {name.value: day for name in RecoveryClass if (day := counts(entries, name)) is not None}
        if seen:
            found.append(
                DatedEvidence(
                    date=date,
                    days=max(day.covered for day in seen.values()) / DAY,
                    classes={name: day.classes[name] for name, day in seen.items()},
                )
            )
    return found


def of_profile(profile: LiveProfile) -> tuple[DatedEvidence, ...]:
    """What a status holds of it."""
    return (*profile.weeks, *of_days(profile.days))


def weeks_with(
    weeks: Iterable[DatedEvidence], stood: Iterable[Day], days: Iterable[Day]
) -> tuple[DatedEvidence, ...]:
    """Weeks, with the days that stood in the ledger and are older than all that it holds now; a week that it holds again goes."""
    first = min((day.date for day in days), default="")
    found = {week.date: week for week in weeks if not first or week.days <= _days_from(week.date, first)}
    for day in of_days(one for one in stood if one.date < first):
        monday = _monday(day.date)
        week = found.get(monday, DatedEvidence(date=monday, days=0.0, classes={}))
        classes = {name: as_written(one) for name, one in together(week.classes, day.classes).items()}
        found[monday] = replace(week, days=week.days + day.days, classes=classes)
    return tuple(found[monday] for monday in sorted(found)[-MOST:])


def written(weeks: Iterable[DatedEvidence]) -> list[Written]:
    """`status.weeks`."""
    return [
        {
            "date": week.date,
            "coveredSeconds": round(week.days * DAY),
            "classes": [row_of(name, week.classes[name]) for name in RecoveryClass if name in week.classes],
        }
        for week in weeks
    ]


def _days_from(date: str, until: str) -> float:
    """Days between two dates, and what clocks may be wrong by. [d]"""
    return (calendar.fromisoformat(until) - calendar.fromisoformat(date)).days + _WRONG


def _monday(date: str) -> str:
    day = calendar.fromisoformat(date)
    return (day - timedelta(days=day.weekday())).isoformat()
