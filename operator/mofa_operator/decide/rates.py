"""Assumed and counted failure rates of a profile: posterior, verdict, and how the status and its columns say it."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Final, TypeAlias

from mofa_model.manifest.cluster_profile import ClusterProfileSpec
from mofa_model.manifest.failures import classes_of
from mofa_model.reliability.assumption import Verdict
from mofa_model.reliability.observed import TOTAL, ObservedFailures, RateReport, assess
from mofa_model.spec.evidence import ByClass, DatedEvidence
from mofa_model.units import Range
from mofa_operator.decide.conditions import Found, State, standing
from mofa_operator.decide.pool_evidence import PoolEvidence
from mofa_operator.decision import Note
from mofa_operator.objects import LiveProfile, Written
from mofa_operator.words import Aspect, Happened

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
