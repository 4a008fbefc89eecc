"""The failure history of a pool: whether it can be believed, and the failure rates that follow.

A reading joins the ledger day by day (`decide.ledger`), so that nothing is lost when Prometheus
forgets. While Prometheus is away, lacks a series or gives impossible numbers, only the watch adds
to the ledger, and the condition says so.

`status.failures` that was written by hand, or by a version without days, stays until the ledger has
half its exposure or covers the window.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias

from mofa_model.manifest.cluster_profile import ClusterProfileSpec
from mofa_model.manifest.failures import assumed_rates, classes_of
from mofa_model.reliability.assumption import Verdict
from mofa_model.reliability.observed import TOTAL, ObservedFailures, RateReport, rate_reports
from mofa_model.spec.evidence import ByClass, DatedEvidence
from mofa_model.units import DAY, Range
from mofa_operator.decide import ledger
from mofa_operator.decide.status import NewCondition, State, joined, significant, standing
from mofa_operator.decision import Note
from mofa_operator.evidence import WATCH, Day
from mofa_operator.objects import LiveProfile, WrittenPart
from mofa_operator.snapshot import COVERED, History, NoHistory, ProfileSnapshot
from mofa_operator.words import Aspect, Happened, Reason

NOBODY: Final[ByClass] = {}
"""No evidence."""
Reports: TypeAlias = tuple[RateReport, ...]
"""A report for each class, and for their total."""
_WORST_FIRST: Final = (
    Verdict.HIGHER,
    Verdict.LOWER,
    Verdict.DRIFTS,
    Verdict.INSUFFICIENT,
    Verdict.CONSISTENT,
)
_NINETY: Final = 1.645
"""Standard deviations on either side that hold 90 % of a normal law. [1]"""
_HALF: Final = 0.5
"""A reading with a smaller share of the remembered exposure is thin. Ours. [1]"""
_LEAST: Final = 2 * DAY
"""A shorter window has no ledger of days: only what Prometheus answers counts. [s]"""
_TEN_YEARS: Final = 315_360_000.0


@dataclass(frozen=True, kw_only=True, slots=True)
class HistoryReading:
    """What one look says of the past."""

    history: History | None
    """Evidence to store; None where there is none to store."""
    condition: NewCondition
    """The condition HistoryComplete."""
    days: tuple[Day, ...]
    """The ledger, with what this look brought."""
    usable: bool = False
    """Whether Prometheus, or else the watch, gave evidence that can be used."""


def read(snapshot: ProfileSnapshot, old_history: History | None, window: float) -> HistoryReading:
    """The past of a pool, given the stored history; `window` is how far back it counts. [s]"""
    return _Look(snapshot, old_history, window).reading()


class _Look:
    """One look at the past of a pool."""

    def __init__(self, snapshot: ProfileSnapshot, old: History | None, window: float) -> None:
        self._snapshot = snapshot
        self._old = old
        self._window = window
        self._stored = snapshot.profile.days
        self._watched = snapshot.watched if window >= _LEAST else ()

    @cached_property
    def _stored_sum(self) -> History | None:
        """The sum of the stored ledger; few looks need it."""
        return ledger.history_of(self._stored, self._window)

    def reading(self) -> HistoryReading:
        """What this look says: evidence to remember, the condition, and the days of the ledger."""
        history, aspect = self._snapshot.history, Aspect.HISTORY_COMPLETE
        if history is None:
            reason, why = Reason.HISTORY_UNAVAILABLE, "it was not asked for yet"
            condition = standing(self._snapshot.profile, aspect)
            unread = condition or NewCondition(aspect, "Unknown", reason, why)
            return HistoryReading(history=None, condition=unread, days=self._stored)
        if isinstance(history, NoHistory):
            reasons = {reason.value: reason for reason in Reason}
            reason = reasons.get(history.reason, Reason.HISTORY_UNAVAILABLE)
            reading = self._without_evidence(reason, history.message)
            return self._watch_alone(reading) if reason == Reason.NOT_CONFIGURED else reading
        if wrong := _nonsense(history):
            why = f"what Prometheus answered cannot be: {wrong}"
            return self._without_evidence(Reason.HISTORY_UNAVAILABLE, why)
        alone = ledger.rounded(history.classes, history.window, history.coverage)
        if not (history.days or history.counted_by) or self._window < _LEAST:
            return self._judged(history, alone, self._stored)
        window = max(self._window, history.window)
        days = ledger.merged(self._stored, history.days, self._watched, window, self._snapshot.now)
        return self._judged(history, ledger.history_of(days, history.window) or alone, days)

    def _judged(
        self, history: History, new_history: History, days: tuple[Day, ...]
    ) -> HistoryReading:
        """The reading of a history whose numbers are possible: what of it is stored, and why."""
        old, incomplete = self._old, Reason.HISTORY_INCOMPLETE
        warnings = joined(str(warning) for warning in history.warnings[:2])
        has_lost_exposure = self._has_lost_exposure(new_history)
        lost = [name for name in old.classes if name not in new_history.classes] if old else []
        is_bare = not history.classes or history.node_days <= 0
        if history.missing:
            message = f"there is no series {', '.join(sorted(history.missing)[:8])}"
            if lost or has_lost_exposure or is_bare:
                return self._without_evidence(Reason.SERIES_MISSING, message)
            counted = f"only class {', '.join(history.classes)} can be counted"
            words = [message, counted, _covered(new_history)]
            return self._with_evidence(new_history, days, "False", Reason.SERIES_MISSING, words)
        if lost:
            message = f"class {', '.join(lost)} cannot be counted now: too few training pods run"
            return self._without_evidence(incomplete, message)
        if is_bare:
            what = "no node was watched" if history.node_days <= 0 else "no class could be counted"
            return self._without_evidence(incomplete, f"{what} in the window")
        if has_lost_exposure:
            return self._without_evidence(
                incomplete, joined([_covered(new_history), warnings]), days
            )
        state: State = "True"
        reason, message = Reason.COMPLETE, ""
        if percent(new_history) < COVERED:
            state, reason = "False", incomplete
            message = "only what was seen counts as exposure"
        elif not ledger.failures(new_history.classes):
            reason = Reason.NO_FAILURES_SEEN
            message = "no failure: rates come from the assumption, and from that exposure"
        return self._with_evidence(
            new_history, days, state, reason, [_covered(new_history), message, warnings]
        )

    def _with_evidence(
        self,
        new_history: History,
        days: tuple[Day, ...],
        state: State,
        reason: Reason,
        words: list[str],
    ) -> HistoryReading:
        """A reading whose evidence is stored."""
        condition = NewCondition(Aspect.HISTORY_COMPLETE, state, reason, joined(words))
        return HistoryReading(history=new_history, condition=condition, days=days, usable=True)

    def _without_evidence(
        self, reason: Reason, message: str, days: tuple[Day, ...] | None = None
    ) -> HistoryReading:
        """A reading without evidence: the stored one stays, with what the watch has seen since."""
        basis = "rates are the assumption's"
        if self._old is not None:
            basis = f"what was learned before is used, {_amount(self._old.node_days)}"
        if days is None:
            days = ledger.merged(self._stored, (), self._watched, self._window, self._snapshot.now)
        condition = NewCondition(Aspect.HISTORY_COMPLETE, "False", reason, joined([message, basis]))
        return HistoryReading(history=self._of_ledger(days), condition=condition, days=days)

    def _watch_alone(self, reading: HistoryReading) -> HistoryReading:
        """The reading where no Prometheus is configured: it rests on the watch."""
        history, dates = reading.history, [day.date for day in reading.days if day.witness == WATCH]
        if history is None or not dates:
            return reading
        words = [
            "no Prometheus is configured",
            f"seen by the watch alone since {min(dates)}: class {', '.join(history.classes)}",
            _covered(history),
        ]
        return self._with_evidence(history, reading.days, "False", Reason.HISTORY_INCOMPLETE, words)

    def _of_ledger(self, days: tuple[Day, ...]) -> History | None:
        """The sum of the ledger; None where the stored history says more.

        Of the first hours of a watch only failures are written at once; exposure alone is written
        once it is due.
        """
        ledger_sum = ledger.history_of(days, self._window)
        if ledger_sum is None or ledger_sum.node_days <= 0 or self._has_lost_exposure(ledger_sum):
            return None
        if self._old is not None:
            stored = set() if self._stored_sum is None else set(self._stored_sum.classes)
            lost = set(self._old.classes) - set(ledger_sum.classes) - stored
            return None if lost else ledger_sum
        is_due = ledger.is_due(self._stored, days, self._snapshot.now)
        return ledger_sum if ledger.failures(ledger_sum.classes) or is_due else None

    def _has_lost_exposure(self, new_history: History) -> bool:
        """Whether a poorly covered window has under half of the remembered node-days."""
        if self._old is None or percent(new_history) >= COVERED:
            return False
        half = _HALF * self._old.node_days
        ledger_has_lost = self._stored_sum is None or self._stored_sum.node_days < half
        return new_history.node_days < half and ledger_has_lost


def percent(history: History) -> int:
    """Covered share of the window. [%]"""
    return round(100 * history.coverage)


def _covered(history: History) -> str:
    days = f"{history.window / DAY:.3g}"
    return f"{percent(history)} % of {days} days are covered, {_amount(history.node_days)}"


def _amount(node_days: float) -> str:
    return f"{node_days:,.0f} node-days" if node_days >= 10 else f"{node_days:.2g} node-days"


_NODE_DAYS: Final = 1e9
"""More node-days than any pool has had. [node d]"""
_FAILURES: Final = 1e7
"""More failures than any pool has had. [1]"""
_RECOVERED: Final = 1e11
"""More than all recovery times of a day add up to. [s]"""


def _nonsense(history: History) -> str:
    """The impossible numbers of a history, three at most; empty where all are possible."""
    numbers = [
        ("node-days", history.node_days, _NODE_DAYS),
        ("window", history.window, _TEN_YEARS),
        ("coverage", history.coverage, 1.0 + 1e-9),
    ]
    for name, evidence in history.classes.items():
        mean = evidence.mean_recovery or 0.0
        numbers += [
            (f"{name} failures", evidence.failures, _FAILURES),
            (f"{name} recovery", mean, _TEN_YEARS),
        ]
    for day in history.days:
        numbers.append((f"seconds of {day.date}", day.covered, DAY + 1.0))
        for name, evidence in day.classes.items():
            numbers += [
                (f"{name} node-days of {day.date}", evidence.node_days, _NODE_DAYS),
                (f"{name} failures of {day.date}", evidence.failures, _FAILURES),
                (f"{name} recovery of {day.date}", evidence.recovery_seconds, _RECOVERED),
            ]
    wrong = [
        f"{name} {value!r}"
        for name, value, most in numbers
        if not (math.isfinite(value) and 0 <= value <= most)
    ]
    return ", ".join(wrong[:3])


def assessed(
    spec: ClusterProfileSpec,
    history: History | None,
    past: Sequence[DatedEvidence] = (),
    present: ByClass = NOBODY,
) -> Reports:
    """The assumed failure rates of a profile, compared with the evidence.

    The rates are blended as for advice: the assumptions are worth `priorWeight` failures in all,
    shared out by rate. A class that could not be counted keeps its assumption, and then there is
    no total.
    """
    observed = ObservedFailures(
        classes={} if history is None else history.classes, past=tuple(past), present=present
    )
    assumed = assumed_rates(spec.failures)
    return rate_reports(observed, assumed, prior_weight=float(spec.failures.prior_weight))


def rows(history: History | None, reports: Reports) -> list[WrittenPart]:
    """`status.failures`; empty where nothing was counted, which is not zero failures."""
    if history is None:
        return []
    return [_row(history, report) for report in reports if report.name in history.classes]


def total(history: History | None, reports: Reports) -> WrittenPart:
    """`status.total`: all classes together, even where only some were counted."""
    assumed = sum(report.assumed for report in reports if report.name != TOTAL)
    if history is None:
        return {"assumed": _three(assumed)}
    counted = sum(
        evidence.failures / evidence.node_days
        for evidence in history.classes.values()
        if evidence.node_days > 0
    )
    return {
        "assumed": _three(assumed),
        "observed": _three(counted),
        "coveragePercent": percent(history),
    }


def verdict(history: History | None, reports: Reports) -> NewCondition:
    """The condition AssumptionsHold: the worst verdict of all classes and their total."""
    worst = min((report.verdict for report in reports), key=_WORST_FIRST.index)
    states: dict[Verdict, State] = {
        Verdict.CONSISTENT: "True",
        Verdict.DRIFTS: "True",
        Verdict.INSUFFICIENT: "Unknown",
    }
    together = total(history, reports)
    message = f"{together['assumed']} failures in a thousand node-days are assumed"
    if history is not None:
        classes = [report.name for report in reports if report.name != TOTAL]
        is_part = len(history.classes) < len(classes)
        of_classes = f" of class {', '.join(history.classes)}" if is_part else ""
        message += f", {together['observed']}{of_classes} were seen; "
        message += f"{percent(history)} % of the window covered"
    changed = (report for report in reports if report.verdict is worst and report.since)
    message += "".join(f"; {_since(report)}" for report in changed)
    return NewCondition(Aspect.ASSUMPTIONS_HOLD, states.get(worst, "False"), worst.value, message)


def recoveries(spec: ClusterProfileSpec, history: History | None) -> dict[str, Range]:
    """Mean recovery times with 90 % bounds, from the number seen and the assumed spread.

    Ours. [s]
    """
    bounds: dict[str, Range] = {}
    for failure_class in classes_of(spec.failures):
        evidence = None if history is None else history.classes.get(failure_class.name)
        mean = None if evidence is None else evidence.mean_recovery
        if evidence is not None and mean is not None:
            spread = float(failure_class.recovery_spread) * mean
            half = _NINETY * (spread / max(1.0, float(evidence.failures)) ** 0.5)
            bounds[failure_class.name] = Range(
                lower=max(0.0, mean - half), target=float(mean), upper=mean + half
            )
    return bounds


def contradiction(profile: LiveProfile, history: History | None, reports: Reports) -> Note | None:
    """The Event of an assumption that the history contradicts and did not contradict before."""
    if history is None:
        return None
    condition = standing(profile, Aspect.ASSUMPTIONS_HOLD)
    verdicts = {row.name: row.verdict for row in profile.status.rows}
    worst = next((word.value for word in _WORST_FIRST if word.value in verdicts.values()), "")
    verdicts[TOTAL] = worst if condition is None else str(condition.reason)
    contradicting = [
        report
        for report in reports
        if report.verdict in {Verdict.HIGHER, Verdict.LOWER}
        and verdicts.get(report.name) != report.verdict.value
    ]
    if not contradicting:
        return None
    report = max(
        contradicting, key=lambda report: (report.verdict is Verdict.HIGHER, report.evidence)
    )
    return Note(
        reason=Happened.ASSUMPTION_CONTRADICTED,
        message=_contradicted(report, history),
        warning=report.verdict is Verdict.HIGHER,
        episode=f"{report.name}-{report.verdict.value}-{1000 * report.assumed:.3g}",
    )


def _contradicted(report: RateReport, history: History) -> str:
    which = "failures" if report.name == TOTAL else f"failures of class {report.name}"
    low, high = report.exact_lower or 0.0, report.exact_upper or 0.0
    days = report.expected / report.assumed if report.assumed > 0 else history.node_days
    way = "higher" if report.verdict is Verdict.HIGHER else "lower"
    return (
        f"{which} are {way} than assumed: {1000 * report.assumed:.3g} in a thousand node-days are "
        "assumed, "
        f"{1000 * report.failures / max(days, 1e-9):.3g} were seen, between {1000 * low:.3g} and "
        f"{1000 * high:.3g} with 90 % confidence; {report.failures} in {days:,.0f} node-days, "
        f"{percent(history)} % of the window covered{f'; {_since(report)}' if report.since else ''}"
    )


def _since(report: RateReport) -> str:
    """Since when a failure rate differs from the assumed one, and how many times as high it is."""
    which = "all classes" if report.name == TOTAL else f"class {report.name}"
    return f"{which} {report.ratio or 0.0:.2g} times the assumed since {report.since}"


def _row(history: History, report: RateReport) -> WrittenPart:
    """A row of `status.failures`: counts, exposure, rates and verdict of one class."""
    evidence = history.classes[report.name]
    row: WrittenPart = {
        "name": report.name,
        "failures": evidence.failures,
        "exposureNodeDays": str(evidence.node_days),
        "windowSeconds": int(history.window),
        "coveragePercent": percent(history),
        "assumed": _decimal(1000 * report.assumed),
        "priorWeightPercent": round(100 * min(1.0, max(0.0, report.prior_weight))),
        "verdict": report.verdict.value,
    }
    if evidence.others:
        row["others"] = int(evidence.others)
    if report.since is not None:
        row["changedDate"] = report.since
    if (report.present.failures, report.present.node_days) != (
        evidence.failures,
        evidence.node_days,
    ):
        row["presentFailures"] = _decimal(report.present.failures)
        row["presentNodeDays"] = _decimal(report.present.node_days)
    if evidence.mean_recovery is not None:
        row["recoverySeconds"] = round(evidence.mean_recovery)
    if report.lower is not None and report.mean is not None and report.upper is not None:
        row["rate"] = {
            "lower": _decimal(1000 * report.lower),
            "mean": _decimal(1000 * report.mean),
            "upper": _decimal(1000 * report.upper),
        }
    return row


def _three(per_node_day: float) -> str:
    """Failures in a thousand node-days, to three digits and without an exponent."""
    return significant(1000 * per_node_day, 3)[:24]


def _decimal(value: float) -> str:
    """A number as text, zero or more, without an exponent."""
    return f"{min(max(0.0, value), 1e11):.4f}"  # the field has twelve digits before the point
