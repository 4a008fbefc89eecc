"""How a pool failed over the last year, in order: its ledger day by day, and by weeks what is older than the ledger's window.

The check of assumptions and the forecast ask for more time than the window of the history. Days that leave the window are added
to their week; so a year is some fifty rows, and both can be done again from the FailureLedger alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import date as calendar
from datetime import timedelta
from functools import reduce
from itertools import groupby
from typing import Final

from mofa_model.manifest.failure_history import as_text, as_written, row_of
from mofa_model.spec.evidence import DatedEvidence, together
from mofa_model.spec.recovery_classes import RecoveryClass
from mofa_model.units import DAY
from mofa_operator.decide import ledger
from mofa_operator.decide.ledger import counts
from mofa_operator.decide.pool_evidence import node_days
from mofa_operator.decide.reading import moment, same
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
        seen = {
            name.value: day for name in RecoveryClass if (day := counts(entries, name)) is not None
        }
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
    """What is remembered of it."""
    return (*profile.weeks, *of_days(profile.days))


def weeks_with(
    weeks: Iterable[DatedEvidence], stood: Iterable[Day], days: Iterable[Day]
) -> tuple[DatedEvidence, ...]:
    """Weeks, with the days that stood in the ledger and are older than all that it holds now; a week that it holds again goes."""
    first = min((day.date for day in days), default="")
    found = {
        week.date: week for week in weeks if not first or week.days <= _days_from(week.date, first)
    }
    for day in of_days(one for one in stood if one.date < first):
        monday = _monday(day.date)
        week = found.get(monday, DatedEvidence(date=monday, days=0.0, classes={}))
        classes = {
            name: as_written(one) for name, one in together(week.classes, day.classes).items()
        }
        found[monday] = replace(week, days=week.days + day.days, classes=classes)
    return tuple(found[monday] for monday in sorted(found)[-MOST:])


def ledger_status(
    pool: LiveProfile, fresh: Iterable[Day], weeks: Sequence[DatedEvidence], now: float
) -> tuple[Written | None, bool]:
    """The status of a profile's FailureLedger, None where it says that already; and whether it is due by itself. `now` in [s].

    It is due when a day is complete, so that nothing is lost when a server forgets, and while days of version 0.1.0 stand in
    the profile.
    """
    days = ledger.trimmed(fresh, now)
    made = _written(days, weeks, now)
    says_it = same({**pool.counted, "time": ""}, {**made, "time": ""}) and not pool.unmoved
    return None if says_it else made, bool(pool.unmoved) or ledger.due(pool.days, days, now)


def _written(days: Sequence[Day], weeks: Sequence[DatedEvidence], now: float) -> Written:
    every = (*weeks, *of_days(days))
    if not every:
        return {}
    whole = reduce(together, (one.classes for one in every))
    status: Written = {
        "since": every[0].date,
        "failures": int(sum(one.failures for one in whole.values())),
        "nodeDays": as_text(node_days(max((one.node_days for one in whole.values()), default=0.0))),
        "days": ledger.written(days),
        "weeks": _rows(weeks),
        "time": moment(now),
    }
    return {name: said for name, said in status.items() if said != []}


def _rows(weeks: Iterable[DatedEvidence]) -> list[Written]:
    return [
        {
            "date": week.date,
            "coveredSeconds": round(week.days * DAY),
            "classes": [
                row_of(name, week.classes[name]) for name in RecoveryClass if name in week.classes
            ],
        }
        for week in weeks
    ]


def _days_from(date: str, until: str) -> float:
    """Days between two dates, and what clocks may be wrong by. [d]"""
    return (calendar.fromisoformat(until) - calendar.fromisoformat(date)).days + _WRONG


def _monday(date: str) -> str:
    day = calendar.fromisoformat(date)
    return (day - timedelta(days=day.weekday())).isoformat()
