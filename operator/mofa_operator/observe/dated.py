"""Incidents as evidence, and the history that they make day by day."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from mofa_model.spec.evidence import FailureEvidence
from mofa_model.units import DAY
from mofa_operator.evidence import PROMETHEUS, Day, date_of
from mofa_operator.incidents.incident import Incident
from mofa_operator.incidents.past import Past
from mofa_operator.incidents.runs import Span, length, overlap
from mofa_operator.observe.looks import Look


def evidence_of(exposure: float, many: Sequence[Incident]) -> FailureEvidence:
    """Incidents of one class over an exposure in node-days."""
    times = [one.seconds for one in many if one.timed and one.level]
    return FailureEvidence(
        node_days=exposure, failures=len(many), recoveries=len(times), recovery_seconds=sum(times)
    )


def days_of(
    looks: Sequence[Look],
    told: Past,
    spans: Mapping[str, Sequence[Span]],
    by_class: Mapping[str, Sequence[Incident]],
) -> tuple[Day, ...]:
    """The history day by day in UTC: exposure as it was, an incident on the day on which it began."""
    stretches_of: defaultdict[str, list[Span]] = defaultdict(list)
    for one in looks:
        stretches_of[date_of(one.stretch.start)].append((one.stretch.start, one.stretch.end))
    covered = {date: length(overlap(told.known, parts)) for date, parts in stretches_of.items()}
    dates = [date for date in sorted(covered) if covered[date]]
    last = dates[-1]
    made = []
    for date in dates:
        exposure = sum(length(overlap(many, stretches_of[date])) for many in spans.values()) / DAY
        classes = {
            name: evidence_of(exposure, [one for one in many if _on(one, covered, last) == date])
            for name, many in by_class.items()
        }
        made.append(Day(date=date, witness=PROMETHEUS, covered=covered[date], classes=classes))
    return tuple(made)


def _on(one: Incident, covered: Mapping[str, float], last: str) -> str:
    """The day of an incident; one that began while nobody looked lies on the last."""
    date = date_of(one.start)
    return date if covered.get(date) else last
