"""What is remembered of a running job: interruptions, recoveries, lost and effective time.

Records never change; `observe.jobs.interruptions` makes the next one from an observation. A record
is kept as text on the job, so that a restart of the operator forgets nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from mofa_model.spec.evidence import FailureEvidence
from mofa_model.spec.recovery_classes import RecoveryClass

CAUSES: Final = ("", "failure", "eviction", "preemption")
"""Causes, the least specific first; an interruption without a cause counts as a failure."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunInterruption:
    """One interruption; it began between `low` and `high`, which are equal where that is known."""

    low: float
    high: float
    level: RecoveryClass
    """The class that recovered it, as far as is known."""
    cause: str = ""
    """Empty = unknown."""
    claims: tuple[str, ...] = ()
    """Exact counters that count it."""
    alive: float | None = None
    """Last progress before it; None = no steps were seen. [s]"""
    recovered: float | None = None
    """When training went on. [s]"""
    recovery: float | None = None
    """Time until training went on. [s]"""
    redone: int = 0
    """Steps that were trained again. [1]"""
    lost: float = 0.0
    """Time lost to it: recovery, and the steps trained again. [s]"""

    @property
    def began(self) -> float:
        """When training stopped: after the last progress, where that is known. [s]"""
        return self.alive if self.alive is not None else self.high


@dataclass(frozen=True, kw_only=True, slots=True)
class Totals:
    """Sums over interruptions that are no longer kept one by one."""

    counts: Mapping[tuple[RecoveryClass, str], int] = field(default_factory=dict)
    """Interruptions by class and cause. [1]"""
    recoveries: Mapping[RecoveryClass, tuple[int, float]] = field(default_factory=dict)
    """Finished recoveries by class: how many, and their time together. [1, s]"""
    lost: Mapping[str, float] = field(default_factory=dict)
    """Lost time by cause. [s]"""

    def with_interruption(self, interruption: RunInterruption) -> Totals:
        """These sums with one interruption more."""
        return self.added(
            interruption.level,
            interruption.cause or "failure",
            recovery=interruption.recovery,
            lost=interruption.lost,
        )

    def added(
        self,
        recovery_class: RecoveryClass,
        cause: str,
        *,
        count: int = 1,
        recovery: float | None = None,
        lost: float = 0.0,
    ) -> Totals:
        """These sums with more interruptions of a class and cause, and their cost."""
        counts, times, losses = dict(self.counts), dict(self.recoveries), dict(self.lost)
        counts[recovery_class, cause] = counts.get((recovery_class, cause), 0) + count
        if recovery is not None:
            number, time = times.get(recovery_class, (0, 0.0))
            times[recovery_class] = (number + 1, time + recovery)
        if lost:
            losses[cause] = losses.get(cause, 0.0) + lost
        return Totals(counts=counts, recoveries=times, lost=losses)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRecord:
    """Everything that is remembered of a job."""

    since: float
    """When it was first looked at. [s]"""
    earlier: Mapping[RecoveryClass, int] = field(default_factory=dict)
    """Restarts by class before the first look, which no other figure includes. [1]"""
    marks: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    """Highest value of each counter, and when it was last looked at. [1, s]"""
    incidents: tuple[RunInterruption, ...] = ()
    """The last interruptions, in order."""
    older: Totals = field(default_factory=Totals)
    """Sums over the interruptions before those."""
    horizon: float | None = None
    """Until when interruptions are in `older`: earlier signs are counted already. [s]"""
    nodes_lost: tuple[float, ...] = ()
    """When nodes were lost lately that did not show in the job yet. [s]"""
    step: int | None = None
    """Last finished step. [1]"""
    step_at: float | None = None
    """When progress was last seen. [s]"""
    before_at: float | None = None
    """When progress was seen the time before. [s]"""
    top: int | None = None
    """Highest step that was ever finished. [1]"""
    step_seconds: float | None = None
    """Time of a step. [s]"""
    effective: float = 0.0
    """Time of the steps that were gained, each counted once. [s]"""
    has_run: bool = False
    unready: bool = False
    """Whether part of it did not run at the last look."""
    ended: float | None = None
    """When the job ended. [s]"""
    waited: float = 0.0
    """Time in a queue or suspended, without a wait that still lasts. [s]"""
    waits: float | None = None
    """Since when it waits; None = it does not. [s]"""

    @property
    def totals(self) -> Totals:
        """Sums over all interruptions."""
        totals = self.older
        for incident in self.incidents:
            totals = totals.with_interruption(incident)
        return totals


def interruptions(record: RunRecord) -> dict[tuple[RecoveryClass, str], int]:
    """Interruptions by class and cause. [1]"""
    return dict(record.totals.counts)


def recoveries(record: RunRecord) -> dict[RecoveryClass, tuple[float, ...]]:
    """Times of finished recoveries that are kept one by one, by class. [s]"""
    times: dict[RecoveryClass, tuple[float, ...]] = {}
    for incident in record.incidents:
        if incident.recovery is not None:
            times[incident.level] = (*times.get(incident.level, ()), incident.recovery)
    return times


def evidence(record: RunRecord) -> dict[RecoveryClass, FailureEvidence]:
    """Failures and finished recoveries by class, without evictions; exposure is unknown."""
    totals = record.totals
    return {
        level: FailureEvidence(
            failures=totals.counts.get((level, "failure"), 0),
            recoveries=totals.recoveries.get(level, (0, 0.0))[0],
            recovery_seconds=totals.recoveries.get(level, (0, 0.0))[1],
        )
        for level in RecoveryClass
    }


def lost(record: RunRecord, now: float) -> dict[str, float]:
    """Lost time by cause, with that of a recovery that still lasts. [s]"""
    sums = dict(record.totals.lost)
    if (since := open_since(record)) is not None:
        cause = (
            next(incident.cause for incident in record.incidents if incident.recovered is None)
            or "failure"
        )
        sums[cause] = sums.get(cause, 0.0) + max(0.0, (record.ended or now) - since)
    return sums


def open_since(record: RunRecord) -> float | None:
    """Since when training stands still; None = it does not, as far as is known. [s]"""
    began = [incident.began for incident in record.incidents if incident.recovered is None]
    if not began or (record.step_at is None and not record.unready):
        return None
    return min(began)


def ettr(record: RunRecord, now: float) -> float | None:
    """Effective training time ratio since the first look; too low for older jobs. Ours. [1]"""
    until = record.ended or now
    lasted = until - record.since - waiting(record, until, waits=False).waited
    if record.step_at is None or lasted <= 0 or record.effective == 0:
        return None
    return min(1.0, record.effective / lasted)


def waiting(record: RunRecord, now: float, *, waits: bool) -> RunRecord:
    """The record of a job that waits now, or does not."""
    if waits and record.waits is None and record.ended is None:
        return replace(record, waits=now)
    if waits or record.waits is None:
        return record
    return replace(record, waited=record.waited + max(0.0, now - record.waits), waits=None)


# ------------------------------------------------------------------------- as text, and back

VERSION: Final = 1
"""Version of the text; a text of another version is no record, and counting begins anew."""
LARGEST: Final = 8192
"""Most characters of a text; a quiet job has a few hundred."""
_PLAIN: Final = tuple(
    part.name
    for part in fields(RunRecord)
    if part.name not in ("earlier", "marks", "incidents", "older", "nodes_lost")
)
_INTERRUPTION: Final = tuple(part.name for part in fields(RunInterruption))


def to_text(record: RunRecord) -> str:
    """A record as text; values that are as in an empty record are left out.

    >>> to_text(RunRecord(since=5.0, step=3))
    '{"v":1,"since":5.0,"step":3}'
    """
    plain = _differing(record, RunRecord(since=record.since), _PLAIN)
    text: dict[str, Any] = {"v": VERSION, "since": record.since, **plain}
    if record.earlier:
        text["earlier"] = dict(record.earlier)
    if record.marks:
        text["marks"] = {name: list(mark) for name, mark in sorted(record.marks.items())}
    if record.nodes_lost:
        text["nodes"] = list(record.nodes_lost)
    if record.incidents:
        text["incidents"] = [
            {"low": incident.low}
            | _differing(
                incident,
                RunInterruption(low=incident.low, high=incident.low, level=RecoveryClass.PROCESS),
                _INTERRUPTION,
            )
            for incident in record.incidents
        ]
    older = record.older
    if older != Totals():
        counts = sorted(older.counts.items())
        text["counts"] = {f"{level} {cause}": number for (level, cause), number in counts}
        times = sorted(older.recoveries.items())
        text["recoveries"] = {level: list(sums) for level, sums in times}
        text["lost"] = dict(sorted(older.lost.items()))
    return json.dumps(text, separators=(",", ":"))


def from_text(text: object) -> RunRecord | None:
    """The record that a text holds; None where it holds none.

    >>> from_text('{"v":1,"since":5.0,"step":3}').step
    3
    >>> from_text("anything else") is None
    True
    """
    if not isinstance(text, str) or len(text) > LARGEST:
        return None
    try:
        parts = json.loads(text)
        is_ours = isinstance(parts, dict) and parts.get("v") == VERSION
        return _record(parts) if is_ours else None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _differing(
    record: RunRecord | RunInterruption, usual: RunRecord | RunInterruption, names: tuple[str, ...]
) -> dict[str, Any]:
    """Fields of a record that are not as usual."""
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name in names
        if (value := getattr(record, name)) != getattr(usual, name)
    }


def _record(parts: Mapping[str, Any]) -> RunRecord:
    """A record from its parts as text has them."""
    return RunRecord(
        **{name: _field(name, parts[name]) for name in _PLAIN if name in parts},
        earlier={RecoveryClass(level): int(n) for level, n in parts.get("earlier", {}).items()},
        marks={str(name): (int(n), float(at)) for name, (n, at) in parts.get("marks", {}).items()},
        nodes_lost=tuple(float(at) for at in parts.get("nodes", ())),
        incidents=tuple(_interruption(incident) for incident in parts.get("incidents", ())),
        older=Totals(
            counts={_level_and_cause(pair): int(n) for pair, n in parts.get("counts", {}).items()},
            recoveries={
                RecoveryClass(level): (int(n), float(time))
                for level, (n, time) in parts.get("recoveries", {}).items()
            },
            lost={_cause(cause): float(time) for cause, time in parts.get("lost", {}).items()},
        ),
    )


def _interruption(parts: Mapping[str, Any]) -> RunInterruption:
    numbers = {
        name: _field(name, parts[name])
        for name in _INTERRUPTION
        if name in parts and name not in ("level", "cause")
    }
    return RunInterruption(
        **{"high": numbers["low"], **numbers},
        level=RecoveryClass(parts.get("level", RecoveryClass.PROCESS)),
        cause=_cause(parts.get("cause", "")),
    )


def _field(name: str, value: Any) -> Any:
    if name == "claims":
        return tuple(str(claim) for claim in value)
    if name in ("has_run", "unready"):
        return bool(value)
    return int(value) if name in ("step", "top", "redone") else float(value)


def _level_and_cause(text: str) -> tuple[RecoveryClass, str]:
    level, _, cause = text.partition(" ")
    return RecoveryClass(level), _cause(cause)


def _cause(text: str) -> str:
    if text not in CAUSES:
        raise ValueError(text)
    return text
