"""What running jobs taught of the model's predictions, in the status of their ClusterProfile."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from mofa_model.manifest.fields import Decimal, Moment, Part, Zero, keyed


class Taught(Part):
    """What one job taught."""

    job: Annotated[str, Field(min_length=1, max_length=600)]
    """Which one: namespace/name and uid."""
    step_time_ratio: Decimal
    """Observed over predicted step time, the prediction without what was learned before."""
    time: Moment
    """When it was last seen to run; from then on it counts less and less."""


class CalibrationStatus(Part):
    """What running jobs taught about the model's predictions here."""

    step_time_ratio: Decimal
    """Observed over predicted step time, as it is to be expected of the next job."""
    lower: Decimal | None = None
    """Lower bound of the ratio."""
    upper: Decimal | None = None
    """Upper bound of the ratio."""
    jobs: Zero
    """Jobs that it rests on."""
    time: Moment | None = None
    """When it was written: seldom, and only when it changes."""
    moved_time: Moment | None = None
    """When the ratio last moved, where several namespaces teach it: then it moves by two percent a day at most."""
    evidence: Annotated[list[Taught], Field(max_length=16)] = Field(
        default_factory=list,
        json_schema_extra=keyed("job"),
    )
    """What it rests on, job by job; a job that is gone stays until it counts for little."""
