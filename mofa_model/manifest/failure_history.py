"""Counted failures as text: rows of a ClusterProfile's status, and FailureLedgers.

`evidence_in` reads rows of a status and `row_of` writes one; all other code has `FailureEvidence`.
A FailureLedger has the name of its profile and is deleted with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field

from mofa_model.manifest.fields import Big, Decimal, Moment, Part, Seconds, Zero, keyed
from mofa_model.spec.account import NodeState, NodeTime
from mofa_model.spec.evidence import FailureEvidence
from mofa_model.spec.recovery_classes import RecoveryClass

_DIGITS: Final = 4
"""Of node-days, in a day's row. [1]"""
MOST: Final = len(RecoveryClass)
"""Rows of a list by recovery class. [1]"""

if TYPE_CHECKING:
    ClassName: TypeAlias = str
    StateName: TypeAlias = str
else:
    ClassName = Literal[tuple(member.value for member in RecoveryClass)]
    StateName = Literal[tuple(member.value for member in NodeState)]
Verdict = Literal[
    "Consistent", "Drifts", "HigherThanAssumed", "LowerThanAssumed", "InsufficientData"
]


Date = Annotated[
    str, Field(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$", max_length=10, examples=["2026-01-31"])
]


class RateBounds(Part):
    """A rate with its credible interval, in failures per thousand node-days."""

    lower: Decimal
    """Lower bound."""
    mean: Decimal
    """Posterior mean."""
    upper: Decimal
    """Upper bound."""


class HistoryRow(Part):
    """What was counted for one recovery class."""

    name: ClassName
    """Recovery class."""
    failures: Zero
    """Failures counted."""
    others: Zero | None = None
    """Preemptions and drains, which interrupt and are no faults; missing = none was seen."""
    exposure_node_days: Decimal
    """Node-days watched."""
    window_seconds: Seconds = 0
    """How far back the count goes."""
    coverage_percent: Annotated[int, Field(ge=0, le=100)] = 100
    """Share of the window for which there is data."""
    recovery_seconds: Seconds | None = None
    """Mean recovery time seen; missing = none was seen."""
    rate: RateBounds | None = None
    """Posterior of the rate, in failures per thousand node-days."""
    assumed: Decimal | None = None
    """The assumption, in failures per thousand node-days."""
    prior_weight_percent: Annotated[int, Field(ge=0, le=100)] | None = None
    """Share of the posterior that is the assumption's."""
    verdict: Verdict | None = None
    """What the history says of the assumption."""
    changed_date: Date | None = None
    """Day in UTC from which the rate is another than the assumption, most likely; missing where the
    assumption stands."""

    present_failures: Decimal | None = None
    """Failures that the past is worth as evidence of the next 30 days: rates move, so old failures
    count less; missing = all do."""
    present_node_days: Decimal | None = None
    """Node-days in which they were."""

    @property
    def evidence(self) -> FailureEvidence:
        """The evidence for advice: as it counts for the next 30 days, else all that was counted."""
        counted = _evidence(
            self.exposure_node_days, self.failures, None, self.recovery_seconds, self.others
        )
        if self.present_failures is None or self.present_node_days is None:
            return counted
        return replace(
            counted,
            failures=number(self.present_failures),
            others=counted.others * number(self.present_node_days) / counted.node_days
            if counted.node_days
            else 0.0,
            node_days=number(self.present_node_days),
        )


def number(value: Any) -> float:
    """A number as a status writes it, zero or more; zero where it is none."""
    try:
        read = float(value)
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return read if math.isfinite(read) and 0 <= read < 1e12 else 0.0


def evidence_in(rows: Any) -> dict[str, FailureEvidence]:
    """The evidence in rows of a status, by recovery class; what cannot be read says nothing."""
    listed = rows if isinstance(rows, list) else []
    row_by_name = {str(row.get("name")): row for row in listed if isinstance(row, Mapping)}
    keys = ("exposureNodeDays", "failures", "recoveries", "recoverySeconds", "others")
    return {
        recovery_class.value: _evidence(*(row.get(key) for key in keys))
        for recovery_class in RecoveryClass
        if (row := row_by_name.get(recovery_class)) is not None
    }


def as_written(evidence: FailureEvidence) -> FailureEvidence:
    """Evidence to the digits of a day's row, so that what is read back is what was written."""
    return FailureEvidence(
        node_days=round(evidence.node_days, _DIGITS),
        failures=evidence.failures,
        others=evidence.others,
        recoveries=evidence.recoveries,
        recovery_seconds=float(round(evidence.recovery_seconds)) if evidence.recoveries else 0.0,
    )


def as_text(node_days: float) -> str:
    """Node-days as a row has them.

    >>> as_text(1234567.5), as_text(30.0)
    ('1234567.5', '30')
    """
    return f"{node_days:.{_DIGITS}f}".rstrip("0").rstrip(".")


def row_of(name: str, evidence: FailureEvidence) -> dict[str, Any]:
    """A failure class's row in a day of `status`: failures, exposure and recoveries."""
    row: dict[str, Any] = {
        "name": name,
        "failures": evidence.failures,
        "exposureNodeDays": as_text(evidence.node_days),
    }
    if evidence.others:
        row["others"] = evidence.others
    if evidence.recoveries:
        row |= {
            "recoveries": evidence.recoveries,
            "recoverySeconds": round(evidence.recovery_seconds),
        }
    return row


def account_in(rows: Any, date: str) -> tuple[NodeTime, ...]:
    """The account in rows of a day; what cannot be read says nothing."""
    states = {state.value: state for state in NodeState}
    return tuple(
        NodeTime(
            state=states[str(row.get("state"))],
            cause=str(row.get("cause") or ""),
            job=str(row.get("job") or ""),
            date=date,
            node_days=number(row.get("nodeDays")),
            machines=number(row.get("machines")),
            estimated=number(row.get("estimated")),
        )
        for row in (rows if isinstance(rows, list) else ())
        if isinstance(row, Mapping) and row.get("state") in states
    )


def account_rows(account: Iterable[NodeTime]) -> list[dict[str, Any]]:
    """The account of a day as rows."""
    rows = (
        {
            "state": span.state.value,
            "cause": span.cause,
            "job": span.job,
            "nodeDays": as_text(span.node_days),
            "machines": span.machines and as_text(span.machines),
            "estimated": span.estimated and as_text(span.estimated),
        }
        for span in account
    )
    return [{name: value for name, value in row.items() if value} for row in rows]


def _evidence(
    node_days: Any, failures: Any, recoveries: Any, seconds: Any, others: Any = None
) -> FailureEvidence:
    # A day's row has the number of timed recoveries and their time together. A row of the whole
    # history has their mean, which counts for as many as there were interruptions.
    count, more = int(number(failures)), int(number(others))
    timed, time = int(number(recoveries)), number(seconds)
    if recoveries is None and seconds is not None:
        timed = max(1, count + more)
        time = float(timed * int(time))
    return FailureEvidence(
        node_days=number(node_days),
        failures=count,
        others=more,
        recoveries=timed,
        recovery_seconds=time,
    )


class DayRow(Part):
    """What one witness says of one recovery class on one day."""

    name: ClassName
    """Recovery class; one that the witness cannot see is missing."""
    failures: Zero
    """Failures counted."""
    others: Zero | None = None
    """Preemptions and drains, which interrupt and are no faults; missing = none was seen."""
    exposure_node_days: Decimal
    """Node-days watched."""
    recoveries: Zero | None = None
    """Recoveries whose time was seen; missing = none was."""
    recovery_seconds: Big | None = None
    """Their time together."""


class AccountRow(Part):
    """Node-days of one state and one cause on one day."""

    state: StateName
    """What the nodes were good for."""
    cause: Annotated[str, Field(max_length=40)] | None = None
    """The cause of the incidents that it is put down to; missing = they trained."""
    job: Annotated[str, Field(max_length=600)] | None = None
    """The job, as namespace/name; missing = of none, or of several."""
    node_days: Decimal
    """Node-days."""
    machines: Decimal | None = None
    """Node-days of these that the machines cost, by the chance of the incidents."""
    estimated: Decimal | None = None
    """Node-days of these that no sample shows."""


class DayPart(Part):
    """What one witness says of one day."""

    atomic = True

    date: Date
    """The day in UTC."""
    witness: Literal["Prometheus", "Watch"]
    """Who saw it: Prometheus, or the operator's own watch of nodes and jobs."""
    covered_seconds: Annotated[int, Field(ge=0, le=86_401, examples=[86_400])]
    """Time of the day for which it looked."""
    classes: Annotated[list[DayRow], Field(max_length=MOST)] = keyed("name")
    """By recovery class."""
    account: Annotated[list[AccountRow], Field(max_length=400)] = Field(default_factory=list)
    """Where the node-time of the pool went; it adds up to the capacity."""
    settled: bool | None = None
    """Whether it was counted hours after its end, so that nothing that began on it was open;
    missing = it was not."""


class WeekPart(Part):
    """What was counted in a week that is older than the days."""

    atomic = True

    date: Date
    """Its Monday in UTC."""
    covered_seconds: Annotated[int, Field(ge=0, le=604_807, examples=[604_800])]
    """Time of the week for which somebody looked."""
    classes: Annotated[list[DayRow], Field(max_length=MOST)] = keyed("name")
    """By recovery class."""


class QuantilePart(Part):
    """A figure with the bounds that hold four times of five."""

    p10: Decimal
    """It is below this once in ten times."""
    p50: Decimal
    """It is as often below as above this."""
    p90: Decimal
    """It is above this once in ten times."""


class ForecastPart(Part):
    """What was said of seven days, on the morning of the first, and what came."""

    atomic = True

    date: Date
    """The first of the days in UTC."""
    job: Annotated[str, Field(max_length=600)] | None = None
    """The job, as namespace/name; missing = the pool."""
    ettr: QuantilePart
    """Share of the time that jobs hold nodes which is kept as training."""
    interruptions: QuantilePart
    """Interruptions; of a job, causes by day."""
    came_ettr: Decimal | None = None
    """The share that was kept; missing = the days are not over."""
    came_interruptions: Decimal | None = None
    """The interruptions that came."""


class OpenIncidentPart(Part):
    """A repair of a node, or an outage of a job."""

    atomic = True

    kind: Literal["node", "job"]
    """Of what."""
    name: Annotated[str, Field(max_length=600)]
    """The node, or the job as namespace/name."""
    since: Moment
    """When it began."""
    cause: Annotated[str, Field(max_length=40)]
    """Why, as far as was known then."""
    nodes: Annotated[list[Annotated[str, Field(max_length=253)]], Field(max_length=1000)] = Field(
        default_factory=list
    )
    """Of a job: the nodes that it had."""


class FailureLedgerStatus(Part):
    """What was counted of a pool, by days and by weeks."""

    since: Date | None = None
    """First day in UTC of which it says anything."""
    failures: Zero | None = None
    """Failures that it holds."""
    node_days: Decimal | None = None
    """Node-days in which they were counted: of the recovery class that was watched longest."""
    days: Annotated[list[DayPart], Field(max_length=800)] = Field(default_factory=list)
    """As far back as the profile's window: of each day, for each recovery class, the witness counts
    that saw most."""
    weeks: Annotated[list[WeekPart], Field(max_length=53)] = Field(default_factory=list)
    """What it held before the window moved on, by weeks: the assumptions are checked over all of
    it."""
    forecasts: Annotated[list[ForecastPart], Field(max_length=800)] = Field(default_factory=list)
    """A forecast of each day for the seven from it on, of the pool and of the jobs that hold most,
    and what came."""
    counted_by: Annotated[str, Field(max_length=64)] | None = None
    """Version and rules by which Prometheus' days were counted: with others they are read anew."""
    lasting: Annotated[list[OpenIncidentPart], Field(max_length=1000)] = Field(default_factory=list)
    """What had begun on settled days and was not over six hours before their end, where an operator
    that starts reads on: so it knows since when and why."""
    time: Moment | None = None
    """When it was written: a few times a day, and only when it changed."""
