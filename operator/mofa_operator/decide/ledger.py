"""What a profile remembers of its failures: the sum of its ledger by recovery class, as `status.failures` has it.

The ledger of failures: what each witness says of each day in UTC, joined without counting anything twice. Pure.

    a profile's days ─▶ merged(…, prometheus, watch) ─▶ memory(…) what it comes to
                              └─▶ trimmed(…) ─▶ written(…)         what its FailureLedger keeps of it

Two rules. A new entry takes the place of the one that stands unless it covers less of its day, or cannot see a class that the
other saw: a server that forgets a day, or half of it, takes nothing away, and what is filled in late comes in. And of each day,
for each class, ONE witness counts, so nothing is added up across witnesses: who saw jobs before who saw nodes alone, then who
saw more exposure, where that of Prometheus, which sees pods, counts double.


How a pool failed over the last year, in order: its ledger day by day, and by weeks what is older than the ledger's window.

The check of assumptions and the forecast ask for more time than the window of the history. Days that leave the window are added
to their week; so a year is some fifty rows, and both can be done again from the FailureLedger alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date as calendar
from datetime import timedelta
from functools import reduce
from itertools import groupby
from typing import Final

from mofa_model.manifest.failure_history import as_text, as_written, number, row_of
from mofa_model.spec.evidence import ByClass, DatedEvidence, FailureEvidence, together
from mofa_model.spec.recovery_classes import RecoveryClass
from mofa_model.units import DAY
from mofa_operator.decide.status import moment, moved, same
from mofa_operator.evidence import PROMETHEUS, Day, date_of
from mofa_operator.objects import LiveProfile, Written

_COARSE: Final = 10.0
"""Node-days from which on tenths are enough. [node d]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolEvidence:
    """What was seen of a pool in a window, rounded as the status writes it, so that what is read back is what was written."""

    classes: ByClass
    """What was seen."""
    window: int
    """How far back. [s]"""
    coverage: int
    """Share of the window for which there is data. [%]"""

    @property
    def total(self) -> int:
        """Failures of all classes. [1]"""
        return int(sum(one.failures for one in self.classes.values()))

    @property
    def node_days(self) -> float:
        """The largest exposure of any class. [node d]"""
        return max((one.node_days for one in self.classes.values()), default=0.0)

    def differs(self, other: PoolEvidence, least: float) -> bool:
        """Whether other evidence differs in any figure by a share of `least` or more."""
        pairs: list[tuple[float | None, float | None]] = [(self.coverage, other.coverage)]
        for name in RecoveryClass:
            pairs += zip(
                _figures(self.classes.get(name)), _figures(other.classes.get(name)), strict=True
            )
        return any(moved(before, after, least) for before, after in pairs)


def _figures(one: FailureEvidence | None) -> tuple[float | None, ...]:
    return (None,) * 3 if one is None else (one.node_days, one.failures, one.mean_recovery)


def remembered(profile: LiveProfile) -> PoolEvidence | None:
    """What stands in a profile's status; None where nothing was counted yet."""
    known = profile.status.evidence
    if not any(one.node_days for one in known.values()):
        return None
    first = {row.name: row for row in profile.status.rows}[next(iter(known))]
    return PoolEvidence(
        classes=known,
        window=int(number(first.window_seconds)),
        coverage=int(min(100, number(first.coverage_percent))),
    )


def rounded(classes: ByClass, window: float, percent: float) -> PoolEvidence:
    """Evidence as the status would write it; `window` in [s], `percent` of it is covered. [%]"""
    return PoolEvidence(
        classes={
            name.value: _rounded_evidence(classes[name])
            for name in RecoveryClass
            if name in classes
        },
        window=round(window),
        coverage=min(100, round(percent)),
    )


def _rounded_evidence(one: FailureEvidence) -> FailureEvidence:
    mean = one.mean_recovery
    time = 0.0 if mean is None else float(one.recoveries * round(mean))
    return replace(one, node_days=node_days(one.node_days), recovery_seconds=time)


def node_days(value: float) -> float:
    """Node-days as a status writes them: tenths, and more digits where they are few. [node d]

    >>> node_days(3072.04), node_days(0.00416)
    (3072.0, 0.0042)
    """
    return round(value, 1 if value >= _COARSE else 4)


MOST_DAYS: Final = 400
"""Days that are kept of each witness: the longest window, and some. [1]"""
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
    for fresh in map(_rounded_day, (*prometheus, *watch)):
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
    return tuple(kept[-2 * MOST_DAYS :])


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


def _rounded_day(day: Day) -> Day:
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


MOST_WEEKS: Final = 53
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
    return tuple(found[monday] for monday in sorted(found)[-MOST_WEEKS:])


def ledger_status(
    pool: LiveProfile, fresh: Iterable[Day], weeks: Sequence[DatedEvidence], now: float
) -> tuple[Written | None, bool]:
    """The status of a profile's FailureLedger, None where it says that already; and whether it is due by itself. `now` in [s].

    It is due when a day is complete, so that nothing is lost when a server forgets, and while days of version 0.1.0 stand in
    the profile.
    """
    days = trimmed(fresh, now)
    made = _written(days, weeks, now)
    says_it = same({**pool.counted, "time": ""}, {**made, "time": ""}) and not pool.unmoved
    return None if says_it else made, bool(pool.unmoved) or due(pool.days, days, now)


def _written(days: Sequence[Day], weeks: Sequence[DatedEvidence], now: float) -> Written:
    every = (*weeks, *of_days(days))
    if not every:
        return {}
    whole = reduce(together, (one.classes for one in every))
    status: Written = {
        "since": every[0].date,
        "failures": int(sum(one.failures for one in whole.values())),
        "nodeDays": as_text(node_days(max((one.node_days for one in whole.values()), default=0.0))),
        "days": written(days),
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
