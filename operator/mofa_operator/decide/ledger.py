"""The ledger of failures: what each witness says of each day in UTC, joined without counting anything twice. Pure.

    a profile's days ─▶ merged(…, prometheus, watch) ─▶ memory(…) what it comes to
                              └─▶ trimmed(…) ─▶ written(…)         what its FailureLedger keeps of it

Two rules. A new entry takes the place of the one that stands unless it covers less of its day, or cannot see a class that the
other saw: a server that forgets a day, or half of it, takes nothing away, and what is filled in late comes in. And of each day,
for each class, ONE witness counts, so nothing is added up across witnesses: who saw jobs before who saw nodes alone, then who
saw more exposure, where that of Prometheus, which sees pods, counts double.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from mofa_model.manifest.failure_history import as_written, row_of
from mofa_model.spec.evidence import FailureEvidence, together
from mofa_model.spec.recovery_classes import RecoveryClass
from mofa_operator.decide.pool_evidence import PoolEvidence, rounded
from mofa_operator.evidence import PROMETHEUS, Day, date_of
from mofa_operator.objects import Written

MOST: Final = 400
"""Days that are kept of each witness: the longest window, and some. [1]"""
DAY: Final = 86400.0
"""A day, which a clock may be wrong by. [s]"""
QUARTER: Final = 21600.0
"""Time after which more of a day is worth writing, whatever it says. [s]"""


def merged(
    stands: Iterable[Day],
    prometheus: Iterable[Day],
    watch: Iterable[Day],
    window: float,
    now: float,
) -> tuple[Day, ...]:
    """The ledger with what both witnesses say now, as far back as the window reaches. `window` and `now` in [s]."""
    kept = {_order(day): day for day in stands}
    for fresh in map(_rounded, (*prometheus, *watch)):
        known = kept.get(_order(fresh))
        if known is None or _takes_place(known, fresh):
            kept[_order(fresh)] = fresh
    since, until = date_of(now - window), date_of(now + DAY)
    found = [kept[key] for key in sorted(kept) if since <= key[0] <= until]
    return tuple(
        day for day in found if day.covered or any(one.failures for one in day.classes.values())
    )


def memory(days: Iterable[Day], window: float) -> PoolEvidence | None:
    """What a ledger comes to; None where it holds nothing. `window` in [s]."""
    whole: dict[str, FailureEvidence] = {}
    covered = 0.0
    for entries in _by_date(days).values():
        seen = {
            name.value: day for name in RecoveryClass if (day := counts(entries, name)) is not None
        }
        covered += max((day.covered for day in seen.values()), default=0.0)
        whole = together(whole, {name: day.classes[name] for name, day in seen.items()})
    return rounded(whole, window, 100 * covered / window) if whole else None


def counts(entries: Iterable[Day], name: str) -> Day | None:
    """The entry that counts for a class, of those of one day; None where none knows the class."""

    def weight(day: Day) -> tuple[bool, float, bool]:
        is_server = day.witness == PROMETHEUS
        saw_jobs = any(other != RecoveryClass.POD for other in day.classes)
        return saw_jobs, day.classes[name].node_days * (2 if is_server else 1), is_server

    return max((day for day in entries if name in day.classes), key=weight, default=None)


def due(stands: Iterable[Day], days: Iterable[Day], now: float) -> bool:
    """Whether a ledger should be written for the sake of its days alone: one is complete, or much more is known of it. `now` in [s]."""
    known = {_order(day): day.covered for day in stands}
    today = date_of(now)
    return any(
        (more := day.covered - known.get(_order(day), 0.0)) >= QUARTER
        or (more > 0 and day.date < today)
        for day in days
    )


def trimmed(days: Iterable[Day], now: float) -> tuple[Day, ...]:
    """What is kept of a ledger: of days that are over, of each class the entry that counts. `now` in [s]."""
    today, kept = date_of(now), []
    for date, entries in _by_date(days).items():
        for day in entries:
            classes = {
                name: one
                for name, one in day.classes.items()
                if date >= today or counts(entries, name) is day
            }
            if classes or date >= today:
                kept.append(
                    Day(date=date, witness=day.witness, covered=day.covered, classes=classes)
                )
    kept.sort(key=_order)
    return tuple(kept[-2 * MOST :])


def written(days: Iterable[Day]) -> list[Written]:
    """Days as rows."""
    return [
        {
            "date": day.date,
            "witness": day.witness,
            "coveredSeconds": round(day.covered),
            "classes": [
                row_of(name, day.classes[name]) for name in RecoveryClass if name in day.classes
            ],
        }
        for day in days
    ]


def _takes_place(known: Day, fresh: Day) -> bool:
    """Whether an entry takes the place of the one that stands; the watch goes on with its own, and knows best."""
    sees_all = fresh.witness != PROMETHEUS or set(known.classes) <= set(fresh.classes)
    return fresh.covered >= known.covered and sees_all


def _rounded(day: Day) -> Day:
    """A day as it would be written."""
    known = {
        name.value: as_written(day.classes[name]) for name in RecoveryClass if name in day.classes
    }
    return replace(day, covered=float(round(day.covered)), classes=known)


def _by_date(days: Iterable[Day]) -> dict[str, list[Day]]:
    found: dict[str, list[Day]] = {}
    for day in days:
        found.setdefault(day.date, []).append(day)
    return found


def _order(day: Day) -> tuple[str, str]:
    return day.date, day.witness
