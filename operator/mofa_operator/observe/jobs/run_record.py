"""What is remembered of a running job, and the figures in it: interruptions, recoveries, lost time, effective time.

Everything here is a value; `observe.interruptions` makes the next one from what is observed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from mofa_model.spec.evidence import FailureEvidence
from mofa_model.spec.recovery_classes import RecoveryClass
from mofa_operator.snapshot import Running

CAUSES: Final = ("", "failure", "eviction", "preemption")
"""Causes, what says least first; what nobody gave a cause is counted as a failure."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunInterruption:
    """One interruption."""

    low: float
    """When it began, or the earliest that it can have. [s]"""
    high: float
    """The same, or the latest. [s]"""
    level: RecoveryClass
    """The class that recovered it, as far as is known."""
    cause: str = ""
    """Its cause; empty = not said."""
    claims: tuple[str, ...] = ()
    """Exact counters that count it."""
    alive: float | None = None
    """Last progress before it; None = no steps were seen. [s]"""
    recovered: float | None = None
    """When training went on. [s]"""
    recovery: float | None = None
    """Time that it took until training went on. [s]"""
    redone: int = 0
    """Steps that were trained again. [1]"""
    lost: float = 0.0
    """Time lost to it: recovery, and the steps trained again. [s]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Totals:
    """Sums over incidents that are no longer kept one by one."""

    counts: Mapping[tuple[RecoveryClass, str], int] = field(default_factory=dict)
    """Interruptions by class and cause. [1]"""
    recoveries: Mapping[RecoveryClass, tuple[int, float]] = field(default_factory=dict)
    """Finished recoveries by class: how many, and their time together. [1, s]"""
    lost: Mapping[str, float] = field(default_factory=dict)
    """Lost time by cause. [s]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRecord:
    """All that is remembered of a job."""

    since: float
    """When it was first looked at. [s]"""
    earlier: Mapping[RecoveryClass, int] = field(default_factory=dict)
    """Restarts by class that its own counts had then: before our time, and so in no other figure. [1]"""
    marks: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    """Highest value of each counter, and when it was last looked at. [1, s]"""
    incidents: tuple[RunInterruption, ...] = ()
    """The last ones, in order."""
    older: Totals = field(default_factory=Totals)
    """The ones before."""
    horizon: float | None = None
    """Until when incidents are in `older`; signs from before are counted already. [s]"""
    nodes_lost: tuple[float, ...] = ()
    """Nodes that were lost lately, and have not shown in the job yet. [s]"""
    step: int | None = None
    """Last finished step. [1]"""
    step_at: float | None = None
    """When progress was last seen. [s]"""
    before_at: float | None = None
    """When it was seen before that. [s]"""
    top: int | None = None
    """Highest step that was ever finished. [1]"""
    step_seconds: float | None = None
    """Time of a step. [s]"""
    effective: float = 0.0
    """Time that went into steps that count. [s]"""
    has_run: bool = False
    """Whether it was ever seen to run."""
    unready: bool = False
    """Whether part of it did not run when last looked at."""
    ended: float | None = None
    """When it was done. [s]"""
    waited: float = 0.0
    """Time that it waited in a queue or was suspended, that of a wait that still lasts left out. [s]"""
    waits: float | None = None
    """Since when it waits; None = it does not. [s]"""


def interruptions(record: RunRecord) -> dict[tuple[RecoveryClass, str], int]:
    """Interruptions by class and cause. [1]"""
    return dict(_totals(record).counts)


def evidence(record: RunRecord) -> dict[RecoveryClass, FailureEvidence]:
    """Failures and finished recoveries by class; what made room was none. Exposure is not a job's to know."""
    totals = _totals(record)
    return {
        name: FailureEvidence(
            failures=totals.counts.get((name, "failure"), 0),
            recoveries=totals.recoveries.get(name, (0, 0.0))[0],
            recovery_seconds=totals.recoveries.get(name, (0, 0.0))[1],
        )
        for name in RecoveryClass
    }


def lost(record: RunRecord, now: float) -> dict[str, float]:
    """Lost time by cause, that of a recovery that still lasts included. [s]"""
    sums = dict(_totals(record).lost)
    if (since := open_since(record)) is not None:
        cause = next(one.cause for one in record.incidents if one.recovered is None) or "failure"
        sums[cause] = sums.get(cause, 0.0) + max(0.0, (record.ended or now) - since)
    return sums


def open_since(record: RunRecord) -> float | None:
    """Since when training stands still; None = it does not, as far as is known. [s]"""
    open_ones = [one for one in record.incidents if one.recovered is None]
    if not open_ones or (record.step_at is None and not record.unready):
        return None
    return min(began(one) for one in open_ones)


def ettr(record: RunRecord, now: float) -> float | None:
    """Effective training time ratio since it was first looked at, of the time in which it did not wait, Ours. A lower bound where
    we joined late. [1]
    """
    until = record.ended or now
    lasted = until - record.since - waiting(record, until, waits=False).waited
    if record.step_at is None or lasted <= 0 or record.effective == 0:
        return None
    return min(1.0, record.effective / lasted)


def waiting(record: RunRecord, now: float, *, waits: bool) -> RunRecord:
    """A record of a job that waits now, or does not."""
    if waits:
        return (
            replace(record, waits=now) if record.waits is None and record.ended is None else record
        )
    if record.waits is None:
        return record
    return replace(record, waited=record.waited + max(0.0, now - record.waits), waits=None)


def running(record: RunRecord, now: float, **told: Any) -> Running:
    """The snapshot's part of it; `told` are its other fields: source, tokens_per_second, checkpoint_interval."""
    finished: dict[RecoveryClass, tuple[float, ...]] = {}
    for one in record.incidents:
        if one.recovery is not None:
            finished[one.level] = (*finished.get(one.level, ()), one.recovery)
    return Running(
        step_seconds=record.step_seconds,
        step=record.step,
        ettr=ettr(record, now),
        interruptions=interruptions(record),
        recoveries=finished,
        lost=lost(record, now),
        since=record.since,
        **told,
    )


def began(one: RunInterruption) -> float:
    """When training stopped: after the last progress, where that is known. [s]"""
    return one.alive if one.alive is not None else one.high


def summed(totals: Totals, one: RunInterruption) -> Totals:
    """Sums with one incident more."""
    return added(totals, one.level, one.cause or "failure", recovery=one.recovery, lost=one.lost)


def added(
    totals: Totals,
    level: RecoveryClass,
    cause: str,
    *,
    count: int = 1,
    recovery: float | None = None,
    lost: float = 0.0,
) -> Totals:
    """Sums with more interruptions of a class and cause, and what they cost."""
    counts, times, losses = dict(totals.counts), dict(totals.recoveries), dict(totals.lost)
    counts[level, cause] = counts.get((level, cause), 0) + count
    if recovery is not None:
        number, time = times.get(level, (0, 0.0))
        times[level] = (number + 1, time + recovery)
    if lost:
        losses[cause] = losses.get(cause, 0.0) + lost
    return Totals(counts=counts, recoveries=times, lost=losses)


def _totals(record: RunRecord) -> Totals:
    totals = record.older
    for one in record.incidents:
        totals = summed(totals, one)
    return totals


# A record as a short text and back, without loss: it is kept in a status, so that a restart of the operator forgets nothing.
#
# The text is JSON, a few hundred bytes for a quiet job and at most `LARGEST` for any. A text that is not ours, or of another
# version, is no record: counting begins anew.

VERSION: Final = 1
"""Of the text's form."""
LARGEST: Final = 8192
"""Characters of a text."""

_PLAIN: Final = tuple(
    one.name
    for one in fields(RunRecord)
    if one.name not in ("earlier", "marks", "incidents", "older", "nodes_lost")
)
_INCIDENT: Final = tuple(one.name for one in fields(RunInterruption))


def to_text(record: RunRecord) -> str:
    """A record as text.

    >>> to_text(RunRecord(since=5.0, step=3))
    '{"v":1,"since":5.0,"step":3}'
    """
    empty = RunRecord(since=record.since)
    plain = {
        name: getattr(record, name)
        for name in _PLAIN
        if getattr(record, name) != getattr(empty, name)
    }
    told: dict[str, Any] = {"v": VERSION, "since": record.since, **plain}
    if record.earlier:
        told["earlier"] = dict(record.earlier)
    if record.marks:
        told["marks"] = {name: list(mark) for name, mark in sorted(record.marks.items())}
    if record.nodes_lost:
        told["nodes"] = list(record.nodes_lost)
    if record.incidents:
        told["incidents"] = [_written(one) for one in record.incidents]
    if record.older != Totals():
        told["counts"] = {
            f"{level} {cause}": n for (level, cause), n in sorted(record.older.counts.items())
        }
        told["recoveries"] = {
            level: list(sums) for level, sums in sorted(record.older.recoveries.items())
        }
        told["lost"] = dict(sorted(record.older.lost.items()))
    return json.dumps(told, separators=(",", ":"))


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
        told = json.loads(text)
        return _read(told) if isinstance(told, dict) and told.get("v") == VERSION else None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _written(one: RunInterruption) -> dict[str, Any]:
    """An incident; what is as usual is left out."""
    usual = RunInterruption(low=one.low, high=one.low, level=RecoveryClass.PROCESS)
    return {"low": one.low} | {
        name: list(value) if isinstance(value, tuple) else value
        for name in _INCIDENT
        if (value := getattr(one, name)) != getattr(usual, name)
    }


def _read(told: Mapping[str, Any]) -> RunRecord:
    return RunRecord(
        **{name: _checked(name, told[name]) for name in _PLAIN if name in told},
        earlier={RecoveryClass(level): int(n) for level, n in told.get("earlier", {}).items()},
        marks={str(name): (int(n), float(at)) for name, (n, at) in told.get("marks", {}).items()},
        nodes_lost=tuple(float(at) for at in told.get("nodes", ())),
        incidents=tuple(_incident(one) for one in told.get("incidents", ())),
        older=Totals(
            counts={_pair(pair): int(n) for pair, n in told.get("counts", {}).items()},
            recoveries={
                RecoveryClass(level): (int(n), float(time))
                for level, (n, time) in told.get("recoveries", {}).items()
            },
            lost={_cause(cause): float(time) for cause, time in told.get("lost", {}).items()},
        ),
    )


def _incident(told: Mapping[str, Any]) -> RunInterruption:
    known = {
        name: _checked(name, told[name])
        for name in _INCIDENT
        if name in told and name not in ("level", "cause")
    }
    return RunInterruption(
        **{"high": known["low"], **known},
        level=RecoveryClass(told.get("level", RecoveryClass.PROCESS)),
        cause=_cause(told.get("cause", "")),
    )


def _checked(name: str, value: Any) -> Any:
    if name == "claims":
        return tuple(str(one) for one in value)
    if name in ("has_run", "unready"):
        return bool(value)
    return int(value) if name in ("step", "top", "redone") else float(value)


def _pair(text: str) -> tuple[RecoveryClass, str]:
    level, _, cause = text.partition(" ")
    return RecoveryClass(level), _cause(cause)


def _cause(text: str) -> str:
    if text not in CAUSES:
        raise ValueError(text)
    return text
