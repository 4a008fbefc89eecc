"""What a profile has learned of failures: counts by recovery class, and the days that they rest on."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from mofa_model.manifest.fields import Big, Decimal, Part, Seconds, Zero, keyed

ClassName = Literal["process", "pod", "job"]
Verdict = Literal["Consistent", "HigherThanAssumed", "LowerThanAssumed", "InsufficientData"]


class Interval(Part):
    """A rate with its credible interval, in failures per thousand node-days."""

    lower: Decimal
    """Lower bound."""
    mean: Decimal
    """Posterior mean."""
    upper: Decimal
    """Upper bound."""


class History(Part):
    """What was counted for one recovery class."""

    name: ClassName
    """process, pod or job."""
    failures: Zero
    """Failures counted."""
    exposure_node_days: Decimal
    """Node-days watched."""
    window_seconds: Seconds = 0
    """How far back the count goes."""
    coverage_percent: Annotated[int, Field(ge=0, le=100)] = 100
    """Share of the window for which there is data."""
    recovery_seconds: Seconds | None = None
    """Mean recovery time seen; missing = none was seen."""
    rate: Interval | None = None
    """Posterior of the rate, in failures per thousand node-days."""
    assumed: Decimal | None = None
    """The assumption, in failures per thousand node-days."""
    prior_weight_percent: Annotated[int, Field(ge=0, le=100)] | None = None
    """Share of the posterior that is the assumption's."""
    verdict: Verdict | None = None
    """What the history says of the assumption."""


class DayClass(Part):
    """What one witness says of one recovery class on one day."""

    name: ClassName
    """process, pod or job; a class that the witness cannot see is missing."""
    failures: Zero
    """Failures counted."""
    exposure_node_days: Decimal
    """Node-days watched."""
    recoveries: Zero | None = None
    """Recoveries whose time was seen; missing = none was."""
    recovery_seconds: Big | None = None
    """Their time together."""


class Day(Part):
    """What one witness says of one day."""

    atomic = True

    date: Annotated[
        str, Field(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$", max_length=10, examples=["2026-01-31"])
    ]
    """The day in UTC."""
    witness: Literal["Prometheus", "Watch"]
    """Who saw it: Prometheus, or the operator's own watch of nodes and jobs."""
    covered_seconds: Annotated[int, Field(ge=0, le=86_401, examples=[86_400])]
    """Time of the day for which it looked."""
    classes: Annotated[list[DayClass], Field(max_length=3)] = Field(
        default_factory=list,
        json_schema_extra=keyed("name"),
    )
    """By recovery class."""
