"""What this look says of a pool's past: Prometheus' reading, what the watch has seen, and what was remembered before.

A reading joins the ledger day by day (`decide.ledger`), so that a server which forgets takes nothing away. An outage, a series
that went missing and nonsense leave the ledger to what the watch has seen meanwhile, and the condition says so.

Where `status.failures` is of a time before there were days, or was written by hand, it stands until the ledger holds half its
exposure or covers the window.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from mofa_model.spec.evidence import FailureEvidence
from mofa_operator.decide import ledger
from mofa_operator.decide.conditions import Found, State, standing
from mofa_operator.decide.pool_evidence import PoolEvidence, rounded
from mofa_operator.decide.reading import joined
from mofa_operator.evidence import WATCH, Day
from mofa_operator.snapshot import COVERED, History, NoHistory, ProfileSnapshot
from mofa_operator.words import Aspect, Reason

_HALF: Final = 0.5
_LEAST: Final = 2 * 86400.0
"""Shortest window that is kept by days; a shorter one is what Prometheus says of it. [s]"""
_DAY: Final = 86400.0


@dataclass(frozen=True, kw_only=True, slots=True)
class HistoryReading:
    """What this look says, judged."""

    memory: PoolEvidence | None
    """What may be remembered of it; None where nothing may."""
    found: Found
    """The condition HistoryComplete."""
    days: tuple[Day, ...]
    """The ledger, with what this look brought."""
    usable: bool = False
    """Whether Prometheus said something that could be used."""


def read(snapshot: ProfileSnapshot, before: PoolEvidence | None, window: float) -> HistoryReading:
    """What is known of a pool's past, beside what was remembered before; `window` is how far back it counts. [s]"""
    return _Look(snapshot, before, window).reading()


class _Look:
    """One look, and all that it rests on."""

    def __init__(
        self, snapshot: ProfileSnapshot, before: PoolEvidence | None, window: float
    ) -> None:
        self._snapshot = snapshot
        self._before = before
        self._window = window
        self._stored = snapshot.profile.days
        self._watched = snapshot.watched if window >= _LEAST else ()

    @cached_property
    def _known(self) -> PoolEvidence | None:
        """What the ledger of before came to; few looks need it."""
        return ledger.memory(self._stored, self._window)

    def reading(self) -> HistoryReading:
        """The reading."""
        history = self._snapshot.history
        if history is None:
            unread = Found(
                Aspect.HISTORY_COMPLETE,
                "Unknown",
                Reason.HISTORY_UNAVAILABLE,
                "it was not asked for yet",
            )
            stands = standing(self._snapshot.profile, Aspect.HISTORY_COMPLETE)
            return HistoryReading(memory=None, found=stands or unread, days=self._stored)
        if isinstance(history, NoHistory):
            known = {reason.value: reason for reason in Reason}
            reason = known.get(history.reason, Reason.HISTORY_UNAVAILABLE)
            found = self._without(reason, history.message)
            return self._alone(found) if reason == Reason.NOT_CONFIGURED else found
        if wrong := _nonsense(history):
            return self._without(
                Reason.HISTORY_UNAVAILABLE, f"what Prometheus answered cannot be: {wrong}"
            )
        if not history.days or self._window < _LEAST:
            return self._judged(history, _whole(history), self._stored)
        days = ledger.merged(
            self._stored,
            history.days,
            self._watched,
            max(self._window, history.window),
            self._snapshot.now,
        )
        whole = ledger.memory(days, history.window)
        return self._judged(history, whole or _whole(history), days)

    def _judged(
        self, history: History, fresh: PoolEvidence, days: tuple[Day, ...]
    ) -> HistoryReading:
        """A reading that makes sense."""
        before = self._before
        covered = f"{fresh.coverage} % of {fresh.window / _DAY:.3g} days are covered, {_amount(fresh.node_days)}"
        more = joined(str(warning) for warning in history.warnings[:2])
        forgotten = self._is_thin(fresh)
        lost = (
            [] if before is None else [name for name in before.classes if name not in fresh.classes]
        )
        is_bare = not history.classes or history.node_days <= 0
        if history.missing:
            message = f"there is no series {', '.join(sorted(history.missing)[:8])}"
            if lost or forgotten or is_bare:
                return self._without(Reason.SERIES_MISSING, message)
            known = f"only class {', '.join(history.classes)} can be counted"
            return self._with(
                fresh, days, "False", Reason.SERIES_MISSING, [message, known, covered]
            )
        if lost:
            message = f"class {', '.join(lost)} cannot be counted now: too few training pods run"
            return self._without(Reason.HISTORY_INCOMPLETE, message)
        if is_bare:
            what = "no node was watched" if history.node_days <= 0 else "no class could be counted"
            return self._without(Reason.HISTORY_INCOMPLETE, f"{what} in the window")
        if forgotten:
            return self._without(Reason.HISTORY_INCOMPLETE, joined([covered, more]), days)
        if fresh.coverage < COVERED:
            message = "only what was seen counts as exposure"
            return self._with(
                fresh, days, "False", Reason.HISTORY_INCOMPLETE, [covered, message, more]
            )
        if not fresh.total:
            message = "no failure: rates come from the assumption, and from that exposure"
            return self._with(
                fresh, days, "True", Reason.NO_FAILURES_SEEN, [covered, message, more]
            )
        return self._with(fresh, days, "True", Reason.COMPLETE, [covered, more])

    def _with(
        self,
        fresh: PoolEvidence,
        days: tuple[Day, ...],
        state: State,
        reason: Reason,
        words: list[str],
    ) -> HistoryReading:
        """A reading that may be remembered."""
        found = Found(Aspect.HISTORY_COMPLETE, state, reason, joined(words))
        return HistoryReading(memory=fresh, found=found, days=days, usable=True)

    def _without(
        self, reason: Reason, message: str, days: tuple[Day, ...] | None = None
    ) -> HistoryReading:
        """A reading that says nothing itself: what is remembered is what was before, and what the watch has seen since."""
        before = self._before
        kept = (
            "rates are the assumption's"
            if before is None
            else f"what was learned before is used, {_amount(before.node_days)}"
        )
        if days is None:
            days = ledger.merged(self._stored, (), self._watched, self._window, self._snapshot.now)
        found = Found(Aspect.HISTORY_COMPLETE, "False", reason, joined([message, kept]))
        return HistoryReading(memory=self._of_ledger(days), found=found, days=days)

    def _alone(self, reading: HistoryReading) -> HistoryReading:
        """As it stands where nobody can be asked: what the watch has seen is all there is, and is said to be."""
        told, dates = reading.memory, [day.date for day in reading.days if day.witness == WATCH]
        if told is None or not dates:
            return reading
        words = [
            "no Prometheus is configured",
            f"seen by the watch alone since {min(dates)}: class {', '.join(told.classes)}",
            f"{told.coverage} % of {told.window / _DAY:.3g} days are covered, {_amount(told.node_days)}",
        ]
        return self._with(told, reading.days, "False", Reason.HISTORY_INCOMPLETE, words)

    def _of_ledger(self, days: tuple[Day, ...]) -> PoolEvidence | None:
        """What the ledger says without a reading; None where what was remembered before says more.

        The watch's first hours say nothing until something fails: exposure alone is news once it is worth keeping.
        """
        told = ledger.memory(days, self._window)
        if told is None or told.node_days <= 0 or self._is_thin(told):
            return None
        if self._before is not None:
            of_ledger = set() if self._known is None else set(self._known.classes)
            lost = set(self._before.classes) - set(told.classes) - of_ledger
            return None if lost else told
        is_due = ledger.due(self._stored, days, self._snapshot.now)
        return told if told.total or is_due else None

    def _is_thin(self, fresh: PoolEvidence) -> bool:
        """Whether much more is remembered than a memory and the ledger of before hold, and the window is not covered."""
        before = self._before
        if (
            before is None
            or fresh.coverage >= COVERED
            or fresh.node_days >= _HALF * before.node_days
        ):
            return False
        return self._known is None or self._known.node_days < _HALF * before.node_days


def _whole(history: History) -> PoolEvidence:
    """A reading without its days."""
    return rounded(history.classes, history.window, 100 * history.coverage)


def _amount(node_days: float) -> str:
    """Exposure in words."""
    return f"{node_days:,.0f} node-days" if node_days >= 10 else f"{node_days:.2g} node-days"


def _nonsense(history: History) -> str:
    """What about a reading cannot be; empty where nothing is wrong."""
    numbers: dict[str, tuple[float, float]] = {
        "node-days": (history.node_days, 1e9),
        "window": (history.window, 315_360_000.0),
        "coverage": (history.coverage, 1.0 + 1e-9),
    }
    numbers |= {f"{name} failures": (one.failures, 1e7) for name, one in history.classes.items()}
    numbers |= {
        f"{name} recovery": (one.mean_recovery, 315_360_000.0)
        for name, one in history.classes.items()
        if one.mean_recovery is not None
    }
    for day in history.days:
        numbers[f"seconds of {day.date}"] = (day.covered, _DAY + 1.0)
        for name, one in day.classes.items():
            numbers |= {
                f"{name} {what} of {day.date}": figures for what, figures in _figures(one).items()
            }
    wrong = [
        f"{name} {v!r}"
        for name, (v, most) in numbers.items()
        if not (math.isfinite(v) and 0 <= v <= most)
    ]
    return ", ".join(wrong[:3])


def _figures(one: FailureEvidence) -> Mapping[str, tuple[float, float]]:
    """What is said of a class on a day, and the most that it can be."""
    return {
        "node-days": (one.node_days, 1e9),
        "failures": (one.failures, 1e7),
        "recovery": (one.recovery_seconds, 1e11),
    }
