"""Evidence of failures by day, by week and in sum; nothing is counted twice. Pure.

    a profile's days ─▶ merged(…) with what both witnesses say now ─▶ history_of(…): their sum
                           └─▶ ledger_status(…): the status of the FailureLedger

Two rules join the days:

1. A new entry replaces the stored one unless it covers less of its day, or lacks a class that the
   stored one has. So a day that Prometheus forgets stays, and data that arrives late counts.
2. For each day and class one witness counts, and nothing is added up across witnesses. A witness
   that saw jobs comes before one that saw only nodes; then the larger exposure counts, doubled for
   Prometheus, because it sees pods.

Days older than the window are added to their week, so that a year is some fifty rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from datetime import date as calendar
from functools import reduce
from itertools import groupby
from typing import Final

from mofa_model.kinds.shape import moment_of
from mofa_model.manifest.failure_history import account_rows, as_text, as_written, number, row_of
from mofa_model.spec.account import NodeTime, OpenIncident, node_days_lost, summed
from mofa_model.spec.evidence import ByClass, DatedEvidence, FailureEvidence, together
from mofa_model.spec.incident_causes import CAUSES
from mofa_model.spec.recovery_classes import RecoveryClass
from mofa_model.units import DAY
from mofa_operator.decide.status import moment, moved, same
from mofa_operator.evidence import PROMETHEUS, Day, SettledDays, date_of
from mofa_operator.objects import LiveProfile, WrittenPart
from mofa_operator.snapshot import History, NoHistory

MOST_DAYS: Final = 400
"""Days that are kept of each witness: more than the longest window has. [1]"""
MOST_WEEKS: Final = 53
"""Weeks that are kept. [1]"""
NAMED_DAYS: Final = 35
"""Days whose account names jobs: five weeks. [1]"""
MOST_JOBS: Final = 20
"""Jobs that the account of a day names: those that lost most. [1]"""
QUARTER: Final = 21600.0
"""Once so much more of a day is known, it is written even if nothing changed. [s]"""
_AS_READ: Final = ("countedBy", "lasting")
"""Fields that only a look at Prometheus changes."""
_COARSE: Final = 10.0
"""From this many node-days on, tenths are precise enough. [node d]"""
_WRONG: Final = 0.01
"""Rounding error of a week whose days are summed up. [d]"""


def remembered(profile: LiveProfile) -> History | None:
    """The evidence in a profile's status; None where nothing was counted yet."""
    classes = profile.status.evidence
    if not exposure(classes):
        return None
    first = {row.name: row for row in profile.status.rows}[next(iter(classes))]
    return _history(classes, number(first.window_seconds), number(first.coverage_percent) / 100)


def rounded(classes: ByClass, window: float, coverage: float) -> History:
    """Evidence rounded as the status writes it, so that it equals what is read back."""

    def rounded_evidence(evidence: FailureEvidence) -> FailureEvidence:
        mean = evidence.mean_recovery
        seconds = 0.0 if mean is None else float(evidence.recoveries * round(mean))
        days = node_days(evidence.node_days)
        return replace(evidence, node_days=days, recovery_seconds=seconds)

    ordered = _in_order(classes)
    by_class = {name: rounded_evidence(evidence) for name, evidence in ordered.items()}
    return _history(by_class, round(window), coverage)


def _in_order(classes: ByClass) -> dict[str, FailureEvidence]:
    """Evidence in the order of recovery classes."""
    return {name.value: classes[name] for name in RecoveryClass if name in classes}


def _history(classes: ByClass, window: float, coverage: float) -> History:
    return History(
        classes=classes,
        node_days=exposure(classes),
        window=float(int(window)),
        coverage=min(100, round(100 * coverage)) / 100,
    )


def exposure(classes: ByClass) -> float:
    """Node-days that were watched: the most of any class. [node d]"""
    return max((evidence.node_days for evidence in classes.values()), default=0.0)


def failures(classes: ByClass) -> int:
    """Failures of all classes. [1]"""
    return int(sum(evidence.failures for evidence in classes.values()))


def differs(old_history: History, new_history: History, least: float) -> bool:
    """Whether any figure of the evidence changed by a share of `least` or more."""

    def figures(evidence: FailureEvidence | None) -> tuple[float | None, ...]:
        if evidence is None:
            return None, None, None
        return evidence.node_days, evidence.interruptions, evidence.mean_recovery

    pairs: list[tuple[float | None, float | None]] = [(old_history.coverage, new_history.coverage)]
    for name in RecoveryClass:
        old, new = old_history.classes.get(name), new_history.classes.get(name)
        pairs += zip(figures(old), figures(new), strict=True)
    return any(moved(old, new, least) for old, new in pairs)


def node_days(value: float) -> float:
    """Node-days as a status writes them: tenths, and more digits where they are few. [node d]

    >>> node_days(3072.04), node_days(0.00416)
    (3072.0, 0.0042)
    """
    return round(value, 1 if value >= _COARSE else 4)


def merged(
    stored_days: Iterable[Day],
    prometheus: Iterable[Day],
    watched_days: Iterable[Day],
    window: float,
    now: float,
) -> tuple[Day, ...]:
    """The stored days of the window, with what both witnesses say now. Times in [s]."""
    by_key = {_key(day): day for day in stored_days}
    for day in (*prometheus, *watched_days):
        ordered = _in_order(day.classes)
        classes = {name: as_written(evidence) for name, evidence in ordered.items()}
        new_day = replace(day, covered=float(round(day.covered)), classes=classes)
        stored = by_key.get(_key(new_day))
        if stored is None or _replaces(stored, new_day):
            by_key[_key(new_day)] = new_day
    since, until = date_of(now - window), date_of(now + DAY)  # a clock may be a day wrong
    return tuple(
        day
        for key, day in sorted(by_key.items())
        if since <= key[0] <= until
        and (day.covered or any(evidence.interruptions for evidence in day.classes.values()))
    )


def history_of(days: Iterable[Day], window: float) -> History | None:
    """The sum of days; None where there are none. `window` in [s]."""
    all_dated = dated_evidence(days)
    if not all_dated:
        return None
    total = reduce(together, (dated.classes for dated in all_dated))
    return rounded(total, window, sum(dated.days for dated in all_dated) * DAY / window)


def counting_entry(days: Iterable[Day], name: str) -> Day | None:
    """The entry of a day that counts for a class; None where none has the class."""

    def weight(day: Day) -> tuple[bool, float, bool]:
        is_server = day.witness == PROMETHEUS
        saw_jobs = any(other != RecoveryClass.POD for other in day.classes)
        return saw_jobs, day.classes[name].node_days * (2 if is_server else 1), is_server

    return max((day for day in days if name in day.classes), key=weight, default=None)


def is_due(stored_days: Iterable[Day], days: Iterable[Day], now: float) -> bool:
    """Whether days are worth a write: one is over, or much more of one is known. `now` in [s]."""
    covered = {_key(day): day.covered for day in stored_days}
    today = date_of(now)
    added = ((day, day.covered - covered.get(_key(day), 0.0)) for day in days)
    return any(time >= QUARTER or (time > 0 and day.date < today) for day, time in added)


def trimmed(days: Iterable[Day], now: float) -> tuple[Day, ...]:
    """The days to store: of those that are over, only the entries that count. `now` in [s]."""
    today, counting = date_of(now), list[Day]()
    for date, entries in _by_date(days):
        if date >= today:
            counting += entries
            continue
        for day in entries:
            names = [name for name in day.classes if counting_entry(entries, name) is day]
            if names or day.account:
                classes = {name: day.classes[name] for name in names}
                counting.append(replace(day, classes=classes))
    since = date_of(now - NAMED_DAYS * DAY)
    named = (
        replace(day, account=_with_jobs(day.account, MOST_JOBS if day.date >= since else 0))
        for day in counting
    )
    return tuple(sorted(named, key=_key)[-2 * MOST_DAYS :])


def _with_jobs(account: Sequence[NodeTime], most: int) -> tuple[NodeTime, ...]:
    """The account of a day with the jobs that lost most; all others are summed under no name."""
    by_job: defaultdict[str, list[NodeTime]] = defaultdict(list)
    for row in account:
        by_job[row.job].append(row)

    def cost(job: str) -> tuple[float, str]:
        return -sum(node_days_lost(by_job[job]).values()), job

    named = sorted((job for job in by_job if job), key=cost)[:most]
    rows = (row if row.job in named else replace(row, job="") for row in account)
    return tuple(
        replace(row, incidents=()) for row in summed(rows, "cause", "date", "job") if row.node_days
    )


def written(days: Iterable[Day]) -> list[WrittenPart]:
    """Days as rows of a FailureLedger's status."""
    return [
        {
            "date": day.date,
            "witness": day.witness,
            "coveredSeconds": round(day.covered),
            "classes": _rows(day.classes),
            **({"account": account_rows(day.account)} if day.account else {}),
            **({"settled": True} if day.settled else {}),
        }
        for day in days
    ]


def dated_evidence(days: Iterable[Day]) -> list[DatedEvidence]:
    """Days as dated evidence; for each class the entry of the day that counts."""
    dated: list[DatedEvidence] = []
    for date, entries in _by_date(days):
        by_class = {
            name.value: day
            for name in RecoveryClass
            if (day := counting_entry(entries, name)) is not None
        }
        if by_class:
            classes = {name: day.classes[name] for name, day in by_class.items()}
            covered = max(day.covered for day in by_class.values()) / DAY
            dated.append(DatedEvidence(date=date, days=covered, classes=classes))
    return dated


def stored_evidence(profile: LiveProfile) -> tuple[DatedEvidence, ...]:
    """Everything that is remembered of a profile: weeks, then days."""
    return (*profile.weeks, *dated_evidence(profile.days))


def weeks_with(
    weeks: Iterable[DatedEvidence], stored_days: Iterable[Day], days: Iterable[Day]
) -> tuple[DatedEvidence, ...]:
    """The weeks, with the stored days that are older than all `days` now; without those weeks that
    `days` cover.
    """
    first = min((day.date for day in days), default="")
    by_monday = {
        week.date: week for week in weeks if not first or week.days <= _days_from(week.date, first)
    }
    for day in dated_evidence(day for day in stored_days if day.date < first):
        monday = _monday(day.date)
        week = by_monday.get(monday, DatedEvidence(date=monday, days=0.0, classes={}))
        total = together(week.classes, day.classes)
        classes = {name: as_written(evidence) for name, evidence in total.items()}
        by_monday[monday] = replace(week, days=week.days + day.days, classes=classes)
    return tuple(by_monday[monday] for monday in sorted(by_monday)[-MOST_WEEKS:])


def settled_days(profile: LiveProfile) -> SettledDays | None:
    """The days of Prometheus in a profile's ledger that are settled; None where none is."""
    days = {day.date: day for day in profile.days if day.witness == PROMETHEUS}
    counted_by = profile.counted.get("countedBy")
    if not days or not isinstance(counted_by, str):
        return None
    until, node_days = calendar.fromisoformat(min(days)), 0.0
    while (day := days.get(until.isoformat())) is not None and day.settled:
        node_days += exposure(day.classes)
        until += timedelta(days=1)
    if until.isoformat() == min(days):
        return None
    return SettledDays(
        counted_by=counted_by,
        until=datetime.combine(until, time(), UTC).timestamp(),
        by_jobs=any(set(day.classes) - {RecoveryClass.POD} for day in days.values()),
        node_days=node_days,
        lasting=_lasting_in(profile.counted.get("lasting")),
    )


def ledger_status(
    profile: LiveProfile,
    new_days: Iterable[Day],
    weeks: Sequence[DatedEvidence],
    now: float,
    history: History | NoHistory | None = None,
    forecast_rows: Sequence[WrittenPart] = (),
) -> WrittenPart | None:
    """The status of a profile's FailureLedger; None where it is that already. `now` in [s]."""
    days = trimmed(new_days, now)
    status = _status(days, weeks, now)
    if status and forecast_rows:
        status |= {"forecasts": list(forecast_rows)}
    if status and isinstance(history, History) and history.counted_by:
        status |= {"countedBy": history.counted_by}
        status |= {"lasting": _lasting_rows(history.lasting)} if history.lasting else {}
    elif status:
        status |= {name: profile.counted[name] for name in _AS_READ if name in profile.counted}
    is_same = same({**profile.counted, "time": ""}, {**status, "time": ""})
    return None if is_same and not profile.unmoved else status


def ledger_is_due(profile: LiveProfile, new_days: Iterable[Day], now: float) -> bool:
    """Whether the ledger is due: a day is complete, or the profile holds days of version 0.1.0."""
    return bool(profile.unmoved) or is_due(profile.days, trimmed(new_days, now), now)


def _lasting_in(rows: object) -> tuple[OpenIncident, ...]:
    """Incidents that last, from rows; rows that cannot be read are left out."""
    return tuple(
        OpenIncident(
            kind="job" if row["kind"] == "job" else "node",
            name=str(row.get("name")),
            since=since,
            cause=cause,
            nodes=tuple(map(str, nodes if isinstance(nodes := row.get("nodes"), list) else ())),
        )
        for row in (rows if isinstance(rows, list) else ())
        if isinstance(row, Mapping)
        and row.get("kind") in ("node", "job")
        and (since := moment_of(row.get("since"))) is not None
        and (cause := CAUSES.get(str(row.get("cause")))) is not None
    )


def _lasting_rows(incidents: Sequence[OpenIncident]) -> list[WrittenPart]:
    return [
        {
            "kind": incident.kind,
            "name": incident.name,
            "since": moment(incident.since),
            "cause": incident.cause.word,
            **({"nodes": list(incident.nodes)} if incident.nodes else {}),
        }
        for incident in incidents
    ]


def _status(days: Sequence[Day], weeks: Sequence[DatedEvidence], now: float) -> WrittenPart:
    all_dated = (*weeks, *dated_evidence(days))
    if not all_dated:
        return {}
    total = reduce(together, (dated.classes for dated in all_dated))
    status: WrittenPart = {
        "since": all_dated[0].date,
        "failures": failures(total),
        "nodeDays": as_text(node_days(exposure(total))),
        "days": written(days),
        "weeks": [
            {
                "date": week.date,
                "coveredSeconds": round(week.days * DAY),
                "classes": _rows(week.classes),
            }
            for week in weeks
        ],
        "time": moment(now),
    }
    return {name: value for name, value in status.items() if value != []}


def _rows(classes: ByClass) -> list[WrittenPart]:
    return [row_of(name, classes[name]) for name in RecoveryClass if name in classes]


def _replaces(stored: Day, new_day: Day) -> bool:
    """Whether a new entry replaces the stored one; one of the watch continues its own, and always
    has all classes.
    """
    sees_all = new_day.witness != PROMETHEUS or set(stored.classes) <= set(new_day.classes)
    return new_day.covered >= stored.covered and sees_all


def _by_date(days: Iterable[Day]) -> list[tuple[str, list[Day]]]:
    ordered = sorted(days, key=lambda day: day.date)
    return [(date, list(entries)) for date, entries in groupby(ordered, key=lambda day: day.date)]


def _key(day: Day) -> tuple[str, str]:
    return day.date, day.witness


def _days_from(date: str, until: str) -> float:
    """Days between two dates, and the rounding error. [d]"""
    return (calendar.fromisoformat(until) - calendar.fromisoformat(date)).days + _WRONG


def _monday(date: str) -> str:
    day = calendar.fromisoformat(date)
    return (day - timedelta(days=day.weekday())).isoformat()
