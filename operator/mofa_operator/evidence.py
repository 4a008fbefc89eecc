"""What was seen of failures and of steps, as it is remembered: a day of one witness, and what a running job says of its profile."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from mofa_model.manifest.failure_history import evidence_in, number
from mofa_model.spec.evidence import ByClass, DatedEvidence
from mofa_model.units import DAY

PROMETHEUS: Final = "Prometheus"
"""The witness that sees pods and samples, as far back as its server keeps them."""
WATCH: Final = "Watch"
"""The witness that sees objects come and change while the operator runs."""
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)


def date_of(at: float) -> str:
    """The day in UTC of a moment in seconds of the epoch.

    >>> date_of(86400.0)
    '1970-01-02'
    """
    return datetime.fromtimestamp(at, UTC).date().isoformat()


@dataclass(frozen=True, kw_only=True, slots=True)
class Day:
    """What one witness says of a pool on one day in UTC."""

    date: str
    """Which, as 2026-11-21."""
    witness: str
    """Prometheus or Watch."""
    covered: float
    """Time for which it looked. [s]"""
    classes: ByClass
    """What it saw."""


def days_in(rows: object) -> tuple[Day, ...]:
    """The days in rows of a status, in order; what is none is left out."""
    found = (
        [_day(row) for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []
    )
    return tuple(
        sorted((day for day in found if day is not None), key=lambda day: (day.date, day.witness))
    )


def weeks_in(rows: object) -> tuple[DatedEvidence, ...]:
    """The weeks in rows of a status, in order; what is none is left out."""
    found = [
        DatedEvidence(
            date=date,
            days=number(row.get("coveredSeconds")) / DAY,
            classes=evidence_in(row.get("classes")),
        )
        for row in (rows if isinstance(rows, list) else [])
        if isinstance(row, Mapping)
        and isinstance(date := row.get("date"), str)
        and _DATE.fullmatch(date)
    ]
    return tuple(sorted(found, key=lambda week: week.date))


def _day(row: Mapping[str, object]) -> Day | None:
    date, witness = row.get("date"), row.get("witness")
    if witness not in (PROMETHEUS, WATCH) or not isinstance(date, str) or not _DATE.fullmatch(date):
        return None
    return Day(
        date=date,
        witness=str(witness),
        covered=number(row.get("coveredSeconds")),
        classes=evidence_in(row.get("classes")),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class JobEvidence:
    """What a running job says of its profile, as it is remembered."""

    job: str
    """Which one: namespace/name and uid."""
    log_ratio: float
    """Logarithm of observed over predicted step time, the prediction without the factor; the latest median. [1]"""
    log_memory: float | None = None
    """The same of its peak of device memory; None = nobody saw it. [1]"""
    at: float
    """When, in seconds of the epoch. [s]"""

    @property
    def namespace(self) -> str:
        """Whose job it is."""
        return self.job.partition("/")[0]
