"""Evidence as it is remembered: a day's failures, and what a running job says of its profile."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from mofa_model.kinds.shape import part
from mofa_model.manifest.failure_history import account_in, evidence_in, number
from mofa_model.reliability.prospects import WEEK, BandCount, ScoredBand, calibration, misses
from mofa_model.spec.account import NodeTime, OpenIncident
from mofa_model.spec.evidence import ByClass, DatedEvidence
from mofa_model.units import DAY, Range

PROMETHEUS: Final = "Prometheus"
"""The witness that sees pods and samples, as far back as its server keeps them."""
WATCH: Final = "Watch"
"""The witness that sees objects of the API server, while the operator runs."""
FORECAST_DIGITS: Final = 4
"""Digits after the point of the numbers of a written forecast. [1]"""
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)


def date_of(at: float) -> str:
    """The day in UTC of a moment in seconds of the epoch.

    >>> date_of(86400.0)
    '1970-01-02'
    """
    return datetime.fromtimestamp(at, UTC).date().isoformat()


@dataclass(frozen=True, kw_only=True, slots=True)
class Day:
    """What one witness saw of a pool on one day in UTC."""

    date: str
    """As 2026-11-21."""
    witness: str
    """`PROMETHEUS` or `WATCH`."""
    covered: float
    """Time that it watched. [s]"""
    classes: ByClass
    account: tuple[NodeTime, ...] = ()
    """Where the node-time of the pool went; empty = the witness does not see that."""
    settled: bool = False
    """Whether it was counted hours after its end, so that nothing that began on it was open."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Forecast:
    """A forecast of seven days, and what came."""

    date: str
    """The first of the days, as 2026-11-21."""
    job: str = ""
    """The job, as namespace/name; empty = the pool."""
    ettr: Range
    """P10, P50 and P90 of the share of the time held that is kept. [1]"""
    stops: Range
    """The same of interruptions. [1]"""
    came: float | None = None
    """The share that was kept; None = the days are not over, or it is unknown. [1]"""
    came_stops: float | None = None
    """Interruptions that came. [1]"""


def forecasts_in(rows: object) -> tuple[Forecast, ...]:
    """The forecasts in rows of a status; a row that is none is left out."""
    return tuple(
        Forecast(
            date=date,
            job=str(row.get("job") or ""),
            ettr=_band_in(row.get("ettr")),
            stops=_band_in(row.get("interruptions")),
            came=None if row.get("cameEttr") is None else number(row.get("cameEttr")),
            came_stops=None
            if row.get("cameInterruptions") is None
            else number(row.get("cameInterruptions")),
        )
        for date, row in _dated(rows)
    )


def _band_in(band: object) -> Range:
    low, middle, high = (number(part(band).get(name)) for name in ("p10", "p50", "p90"))
    return Range(lower=low, target=middle, upper=high)


def bands_held(weekly: Iterable[Forecast]) -> dict[str, BandCount]:
    """How often the bands of the pool and its jobs held what came, by the quantity forecast."""
    over = [week for week in weekly if week.came is not None and week.came_stops is not None]
    return {
        "ettr": calibration([_score(week.ettr, week.came or 0.0) for week in over]),
        "interruptions": calibration([_score(week.stops, week.came_stops or 0.0) for week in over]),
    }


def _score(band: Range, came: float) -> ScoredBand:
    half = 0.5 * 10**-FORECAST_DIGITS  # both bounds and what came were rounded when written
    return ScoredBand(lower=band.lower - half, upper=band.upper + half, came=came)


def miscalibrated(weekly: Iterable[Forecast]) -> str | None:
    """A sentence where bands of ETTR hold too seldom or too often. A forecast of seven days is made
    every day, so only one in seven counts.
    """
    return misses(bands_held(weekly)["ettr"], apart=WEEK)


def days_in(rows: object) -> tuple[Day, ...]:
    """The days in rows of a status, in order; a row that is no day is left out."""
    days = [
        Day(
            date=date,
            witness=witness,
            covered=number(row.get("coveredSeconds")),
            classes=evidence_in(row.get("classes")),
            account=account_in(row.get("account"), date),
            settled=row.get("settled") is True,
        )
        for date, row in _dated(rows)
        if isinstance(witness := row.get("witness"), str) and witness in (PROMETHEUS, WATCH)
    ]
    return tuple(sorted(days, key=lambda day: (day.date, day.witness)))


def account_of(days: Iterable[Day]) -> tuple[NodeTime, ...]:
    """The account of days, by day, job, state and cause."""
    return tuple(entry for day in days if day.witness == PROMETHEUS for entry in day.account)


def weeks_in(rows: object) -> tuple[DatedEvidence, ...]:
    """The weeks in rows of a status, in order; a row that is no week is left out."""
    weeks = [
        DatedEvidence(
            date=date,
            days=number(row.get("coveredSeconds")) / DAY,
            classes=evidence_in(row.get("classes")),
        )
        for date, row in _dated(rows)
    ]
    return tuple(sorted(weeks, key=lambda week: week.date))


def _dated(rows: object) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Rows with a date."""
    for row in rows if isinstance(rows, list) else ():
        date = row.get("date") if isinstance(row, Mapping) else None
        if isinstance(date, str) and _DATE.fullmatch(date):
            yield date, row


@dataclass(frozen=True, kw_only=True, slots=True)
class SettledDays:
    """What a ledger holds of a pool's settled days, so that a restart need not read them again."""

    counted_by: str
    """Version and rules by which it was counted."""
    until: float
    """Every day before this moment is settled. [s]"""
    by_jobs: bool
    """Whether interruptions of jobs are its evidence, and not nodes that failed."""
    node_days: float
    """Exposure of these days. [node d]"""
    lasting: tuple[OpenIncident, ...] = ()
    """What had begun on these days and was not over where reading begins again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobEvidence:
    """What a running job teaches its profile."""

    job: str
    """namespace/name and uid."""
    log_ratio: float
    """Logarithm of the latest median step time over the prediction without a factor. [1]"""
    log_memory: float | None = None
    """The same for its peak of device memory; None = unknown. [1]"""
    at: float
    """In seconds of the epoch. [s]"""

    @property
    def namespace(self) -> str:
        """The namespace of the job."""
        return self.job.partition("/")[0]
