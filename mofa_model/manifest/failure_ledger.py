"""FailureLedger: the days and weeks that the history of a ClusterProfile rests on, in an object of their own.

They are the most that is remembered of a pool, and change a few times a day; what changes with every node stands in the profile.
The ledger has its profile's name, and goes with it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from mofa_model.manifest.failure_history import MOST, ClassName, Date
from mofa_model.manifest.fields import Big, Decimal, Moment, Part, Zero, keyed


class DayRow(Part):
    """What one witness says of one recovery class on one day."""

    name: ClassName
    """Recovery class; one that the witness cannot see is missing."""
    failures: Zero
    """Failures counted."""
    exposure_node_days: Decimal
    """Node-days watched."""
    recoveries: Zero | None = None
    """Recoveries whose time was seen; missing = none was."""
    recovery_seconds: Big | None = None
    """Their time together."""


class DayPart(Part):
    """What one witness says of one day."""

    atomic = True

    date: Date
    """The day in UTC."""
    witness: Literal["Prometheus", "Watch"]
    """Who saw it: Prometheus, or the operator's own watch of nodes and jobs."""
    covered_seconds: Annotated[int, Field(ge=0, le=86_401, examples=[86_400])]
    """Time of the day for which it looked."""
    classes: Annotated[list[DayRow], Field(max_length=MOST)] = Field(
        default_factory=list,
        json_schema_extra=keyed("name"),
    )
    """By recovery class."""


class WeekPart(Part):
    """What was counted in a week that is older than the days."""

    atomic = True

    date: Date
    """Its Monday in UTC."""
    covered_seconds: Annotated[int, Field(ge=0, le=604_807, examples=[604_800])]
    """Time of the week for which somebody looked."""
    classes: Annotated[list[DayRow], Field(max_length=MOST)] = Field(
        default_factory=list,
        json_schema_extra=keyed("name"),
    )
    """By recovery class."""


class FailureLedgerStatus(Part):
    """What was counted of a pool, by days and by weeks."""

    since: Date | None = None
    """First day in UTC of which it says anything."""
    failures: Zero | None = None
    """Failures that it holds."""
    node_days: Decimal | None = None
    """Node-days in which they were counted: of the recovery class that was watched longest."""
    days: Annotated[list[DayPart], Field(max_length=800)] = Field(default_factory=list)
    """As far back as the profile's window: of each day, for each recovery class, the witness counts that saw most."""
    weeks: Annotated[list[WeekPart], Field(max_length=53)] = Field(default_factory=list)
    """What it held before the window moved on, by weeks: the assumptions are checked over all of it."""
    time: Moment | None = None
    """When it was written: a few times a day, and only when it changed."""
