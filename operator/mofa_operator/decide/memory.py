"""What a profile remembers of its failures, and how a new reading joins it.

    remembered(status) ─▶ Memory        what stands in status.failures
    read(history) ─▶ Reading            what Prometheus says now, and whether it may be believed

The rule, in one sentence: a new reading takes the place of what is remembered, unless less than half the remembered exposure
is left in it and the window is not covered, for then the server has forgotten what the profile still knows (short retention,
a new disk, a source that began late), or unless a class that was counted before cannot be counted now. An outage, a series
that went missing and nonsense never touch the memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from mofa_operator.decide.conditions import Found, standing
from mofa_operator.decide.reading import items, joined, moved, part
from mofa_operator.snapshot import COVERED, History, NoHistory, ProfileSnapshot
from mofa_operator.words import Aspect, Reason

CLASSES: Final = ("process", "pod", "job")
_HALF: Final = 0.5
_DAY: Final = 86400.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """Counts and exposure, rounded as the status writes them, so that what is read back is what was written."""

    failures: Mapping[str, int]
    """Failures by recovery class. [1]"""
    recovery: Mapping[str, int]
    """Mean recovery time by class, where one was seen. [s]"""
    node_days: float
    """Exposure. [node d]"""
    window: int
    """How far back. [s]"""
    coverage: int
    """Share of the window for which there is data. [%]"""

    @property
    def total(self) -> int:
        """Failures of all classes. [1]"""
        return sum(self.failures.values())

    def differs(self, other: Memory, least: float) -> bool:
        """Whether another memory differs in any figure by a share of `least` or more."""
        pairs: list[tuple[float | None, float | None]] = [
            (self.node_days, other.node_days),
            (self.coverage, other.coverage),
            *((self.failures.get(name), other.failures.get(name)) for name in CLASSES),
            *((self.recovery.get(name), other.recovery.get(name)) for name in CLASSES),
        ]
        return any(moved(before, after, least) for before, after in pairs)


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """What Prometheus says, judged."""

    memory: Memory | None
    """What may be remembered of it; None where nothing may."""
    found: Found
    """The condition HistoryComplete."""


def remembered(status: Any) -> Memory | None:
    """What stands in a status; None where nothing was counted yet."""
    rows = {str(row.get("name")): row for row in items(part(status).get("failures"))}
    known = {name: rows[name] for name in CLASSES if name in rows}
    exposures = [_number(row.get("exposureNodeDays")) for row in known.values()]
    if not exposures or max(exposures) <= 0:
        return None
    first = next(iter(known.values()))
    return Memory(
        failures={name: int(_number(row.get("failures"))) for name, row in known.items()},
        recovery={
            name: int(_number(row["recoverySeconds"]))
            for name, row in known.items()
            if row.get("recoverySeconds") is not None
        },
        node_days=max(exposures),
        window=int(_number(first.get("windowSeconds"))),
        coverage=int(min(100, _number(first.get("coveragePercent", 100)))),
    )


def read(snapshot: ProfileSnapshot, before: Memory | None) -> Reading:
    """What Prometheus says of a pool, beside what was remembered before. A class that is not among `History.classes` could not
    be counted: that is not the same as no failure, and what was counted of it before is kept.
    """
    history = snapshot.history
    if history is None:
        unread = Found(
            Aspect.HISTORY_COMPLETE, "Unknown", Reason.HISTORY_UNAVAILABLE, "it was not asked for yet"
        )
        return Reading(memory=None, found=standing(snapshot.body, Aspect.HISTORY_COMPLETE) or unread)
    if isinstance(history, NoHistory):
        known = {reason.value: reason for reason in Reason}
        return _unusable(known.get(history.reason, Reason.HISTORY_UNAVAILABLE), history.message, before)
    if wrong := _nonsense(history):
        return _unusable(Reason.HISTORY_UNAVAILABLE, f"what Prometheus answered cannot be: {wrong}", before)
    return _judged(history, _rounded(history), before)


def _judged(history: History, fresh: Memory, before: Memory | None) -> Reading:
    """A reading that makes sense."""
    covered = (
        f"{fresh.coverage} % of {fresh.window / _DAY:.3g} days are covered, {fresh.node_days:,.0f} node-days"
    )
    more = joined(str(warning) for warning in history.warnings[:2])
    thin = before is not None and fresh.node_days < _HALF * before.node_days
    forgotten = thin and fresh.coverage < COVERED
    lost = [] if before is None else [name for name in before.failures if name not in fresh.failures]
    if history.missing:
        message = f"there is no series {', '.join(sorted(history.missing)[:8])}"
        if lost or forgotten or not fresh.failures or fresh.node_days <= 0:
            return _unusable(Reason.SERIES_MISSING, message, before)
        known = f"only class {', '.join(fresh.failures)} can be counted"
        return Reading(
            memory=fresh, found=_found("False", Reason.SERIES_MISSING, joined([message, known, covered]))
        )
    if lost:
        message = f"class {', '.join(lost)} cannot be counted now: too few training pods run"
        return _unusable(Reason.HISTORY_INCOMPLETE, message, before)
    if fresh.node_days <= 0 or not fresh.failures:
        what = "no node was watched" if fresh.node_days <= 0 else "no class could be counted"
        return _unusable(Reason.HISTORY_INCOMPLETE, f"{what} in the window", before)
    if forgotten:
        return _unusable(Reason.HISTORY_INCOMPLETE, joined([covered, more]), before)
    if fresh.coverage < COVERED:
        message = joined([covered, "only what was seen counts as exposure", more])
        return Reading(memory=fresh, found=_found("False", Reason.HISTORY_INCOMPLETE, message))
    if not fresh.total:
        message = joined(
            [covered, "no failure: rates come from the assumption, and from that exposure", more]
        )
        return Reading(memory=fresh, found=_found("True", Reason.NO_FAILURES_SEEN, message))
    return Reading(memory=fresh, found=_found("True", Reason.COMPLETE, joined([covered, more])))


def _unusable(reason: Reason, message: str, before: Memory | None) -> Reading:
    """A reading that leaves the memory as it is, and says so."""
    kept = (
        "rates are the assumption's"
        if before is None
        else f"what was learned before is used, {before.node_days:,.0f} node-days"
    )
    return Reading(memory=None, found=_found("False", reason, joined([message, kept])))


def _found(state: Any, reason: Reason, message: str) -> Found:
    return Found(Aspect.HISTORY_COMPLETE, state, reason, message)


def _rounded(history: History) -> Memory:
    """A reading as the status would write it."""
    return Memory(
        failures={name: history.classes[name].failures for name in CLASSES if name in history.classes},
        recovery={
            name: round(seen)
            for name in CLASSES
            if name in history.classes and (seen := history.classes[name].recovery) is not None
        },
        node_days=float(f"{history.node_days:.1f}"),
        window=round(history.window),
        coverage=round(100 * history.coverage),
    )


def _nonsense(history: History) -> str:
    """What about a reading cannot be; empty where nothing is wrong."""
    numbers = {
        "node-days": (history.node_days, 1e9),
        "window": (history.window, 315_360_000.0),
        "coverage": (history.coverage, 1.0 + 1e-9),
    }
    numbers |= {f"{name} failures": (one.failures, 1e7) for name, one in history.classes.items()}
    numbers |= {
        f"{name} recovery": (one.recovery, 315_360_000.0)
        for name, one in history.classes.items()
        if one.recovery is not None
    }
    wrong = [
        f"{name} {v!r}" for name, (v, most) in numbers.items() if not (math.isfinite(v) and 0 <= v <= most)
    ]
    return ", ".join(wrong[:3])


def _number(value: Any) -> float:
    """A number as a status writes it, zero or more; zero where it is none."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return number if math.isfinite(number) and 0 <= number < 1e12 else 0.0
