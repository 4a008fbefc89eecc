"""Assumed and counted failure rates of a profile: posterior, verdict, and how the status and its columns say it.

What this look says of a pool's past: Prometheus' reading, what the watch has seen, and what was remembered before.

A reading joins the ledger day by day (`decide.ledger`), so that a server which forgets takes nothing away. An outage, a series
that went missing and nonsense leave the ledger to what the watch has seen meanwhile, and the condition says so.

Where `status.failures` is of a time before there were days, or was written by hand, it stands until the ledger holds half its
exposure or covers the window.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Final, TypeAlias

from mofa_model.manifest.cluster_profile import ClusterProfileSpec
from mofa_model.manifest.failures import classes_of
from mofa_model.reliability.assumption import Verdict
from mofa_model.reliability.observed import TOTAL, ObservedFailures, RateReport, assess
from mofa_model.spec.evidence import ByClass, DatedEvidence, FailureEvidence
from mofa_model.units import Range
from mofa_operator.decide import ledger
from mofa_operator.decide.ledger import PoolEvidence, rounded
from mofa_operator.decide.status import Found, State, joined, standing
from mofa_operator.decision import Note
from mofa_operator.evidence import WATCH, Day
from mofa_operator.objects import LiveProfile, Written
from mofa_operator.snapshot import COVERED, History, NoHistory, ProfileSnapshot
from mofa_operator.words import Aspect, Happened, Reason

_WORST_FIRST: Final = (Verdict.HIGHER, Verdict.LOWER, Verdict.INSUFFICIENT, Verdict.CONSISTENT)
NOBODY: Final[ByClass] = {}
"""What is remembered where nothing is."""
Reports: TypeAlias = tuple[RateReport, ...]
"""One for each class, and the total."""
_NINETY: Final = 1.645
"""Standard deviations on either side that hold 90 % of a normal law. [1]"""


def assessed(
    spec: ClusterProfileSpec,
    memory: PoolEvidence | None,
    past: Sequence[DatedEvidence] = (),
    present: ByClass = NOBODY,
) -> Reports:
    """The check of a profile's assumptions against what is remembered, for one who looks all the time. []

    The posterior blends as advice does: the assumptions are worth `priorWeight` failures in all, shared out by rate. A class
    that could not be counted is its assumption, and then there is no total.
    """
    assumed: dict[str, float] = {
        one.name: float(one.failures_per_thousand_node_days) / 1000
        for one in classes_of(spec.failures)
    }
    together = ObservedFailures(
        classes={} if memory is None else memory.classes, past=tuple(past), present=present
    )
    return assess(together, assumed, prior_weight=float(spec.failures.prior_weight)).rates


def rows(memory: PoolEvidence | None, found: Reports) -> list[Written]:
    """`status.failures`; empty where nothing was counted, for nothing counted is not a count of nothing."""
    if memory is None:
        return []
    return [_row(report.name, memory, report) for report in found if report.name in memory.classes]


def total(memory: PoolEvidence | None, found: Reports) -> Written:
    """`status.total`: all classes together, of which only some may have been counted."""
    told: Written = {"assumed": _three(sum(one.assumed for one in found if one.name != TOTAL))}
    if memory is not None:
        told |= {"observed": _three(_observed(memory)), "coveragePercent": memory.coverage}
    return told


def verdict(memory: PoolEvidence | None, found: Reports) -> Found:
    """Whether the assumptions hold: the least favourable verdict of all classes and of their total."""
    worst = next(one for one in _WORST_FIRST if any(report.verdict is one for report in found))
    state: State = "False"
    if worst in {Verdict.CONSISTENT, Verdict.INSUFFICIENT}:
        state = "True" if worst is Verdict.CONSISTENT else "Unknown"
    together = total(memory, found)
    message = f"{together['assumed']} failures in a thousand node-days are assumed"
    if memory is not None:
        classes = [report.name for report in found if report.name != TOTAL]
        some = (
            f" of class {', '.join(memory.classes)}" if len(memory.classes) < len(classes) else ""
        )
        message += (
            f", {together['observed']}{some} were seen; {memory.coverage} % of the window covered"
        )
    message += "".join(
        f"; {_since(report)}" for report in found if report.verdict is worst and report.since
    )
    return Found(Aspect.ASSUMPTIONS_HOLD, state, worst.value, message)


def _since(report: RateReport) -> str:
    """From when a rate is another one, and by how much."""
    which = "all classes" if report.name == TOTAL else f"class {report.name}"
    return f"{which} {report.ratio or 0.0:.2g} times the assumed since {report.since}"


def _observed(memory: PoolEvidence) -> float:
    """Counted failures of all classes. [1/d]"""
    return sum(one.failures / one.node_days for one in memory.classes.values() if one.node_days > 0)


def _three(per_node_day: float) -> str:
    """Failures in a thousand node-days, to three digits and without an exponent."""
    return f"{Decimal(f'{1000 * per_node_day:.3g}'):f}"[:24]


def recoveries(spec: ClusterProfileSpec, memory: PoolEvidence | None) -> dict[str, Range]:
    """Mean recovery times that were seen, with the 90 % bounds that the assumed spread gives the mean of so many. Ours. [s]"""
    if memory is None:
        return {}
    told: dict[str, Range] = {}
    for one in classes_of(spec.failures):
        seen = memory.classes.get(one.name)
        mean = None if seen is None else seen.mean_recovery
        if seen is not None and mean is not None:
            half = (
                _NINETY * float(one.recovery_spread) * mean / max(1.0, float(seen.failures)) ** 0.5
            )
            told[one.name] = Range(
                lower=max(0.0, mean - half), target=float(mean), upper=mean + half
            )
    return told


def contradiction(
    profile: LiveProfile, memory: PoolEvidence | None, found: Reports
) -> tuple[str, Note] | None:
    """An assumption that history contradicts and did not before: what it is, once, and the Event that says so."""
    if memory is None:
        return None
    told = standing(profile, Aspect.ASSUMPTIONS_HOLD)
    before = {row.name: row.verdict for row in profile.status.rows}
    worst = next((one.value for one in _WORST_FIRST if one.value in before.values()), "")
    before[TOTAL] = worst if told is None else str(told.reason)
    fresh = [
        report
        for report in found
        if report.verdict in {Verdict.HIGHER, Verdict.LOWER}
        and before.get(report.name) != report.verdict.value
    ]
    if not fresh:
        return None
    report = max(fresh, key=lambda r: (r.verdict is Verdict.HIGHER, r.evidence))
    note = Note(
        reason=Happened.ASSUMPTION_CONTRADICTED,
        message=_contradicted(report, memory),
        warning=report.verdict is Verdict.HIGHER,
    )
    return f"{report.name}-{report.verdict.value}-{1000 * report.assumed:.3g}", note


def _contradicted(report: RateReport, memory: PoolEvidence) -> str:
    """What is assumed, what is seen, and how much was watched."""
    which = "failures" if report.name == TOTAL else f"failures of class {report.name}"
    low, high = report.exact_lower or 0.0, report.exact_upper or 0.0
    days = report.expected / report.assumed if report.assumed > 0 else memory.node_days
    way = "higher" if report.verdict is Verdict.HIGHER else "lower"
    return (
        f"{which} are {way} than assumed: {1000 * report.assumed:.3g} in a thousand node-days are assumed, "
        f"{1000 * report.failures / max(days, 1e-9):.3g} were seen, between {1000 * low:.3g} and "
        f"{1000 * high:.3g} with 90 % confidence; {report.failures} in {days:,.0f} node-days, "
        f"{memory.coverage} % of the window covered{f'; {_since(report)}' if report.since else ''}"
    )


def _row(name: str, memory: PoolEvidence, report: RateReport) -> Written:
    seen = memory.classes[name]
    row: Written = {
        "name": name,
        "failures": seen.failures,
        "exposureNodeDays": str(seen.node_days),
        "windowSeconds": memory.window,
        "coveragePercent": memory.coverage,
        "assumed": _decimal(1000 * report.assumed),
        "priorWeightPercent": round(100 * min(1.0, max(0.0, report.prior_weight))),
        "verdict": report.verdict.value,
    }
    if report.since is not None:
        row["changedDate"] = report.since
    if (report.present.failures, report.present.node_days) != (seen.failures, seen.node_days):
        row["presentFailures"] = _decimal(report.present.failures)
        row["presentNodeDays"] = _decimal(report.present.node_days)
    if seen.mean_recovery is not None:
        row["recoverySeconds"] = round(seen.mean_recovery)
    if report.lower is not None and report.mean is not None and report.upper is not None:
        ends = zip(
            ("lower", "mean", "upper"), (report.lower, report.mean, report.upper), strict=True
        )
        row["rate"] = {end: _decimal(1000 * rate) for end, rate in ends}
    return row


def _decimal(value: float) -> str:
    """A number as text, zero or more, without an exponent."""
    return f"{min(max(0.0, value), 1e11):.4f}"


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
