"""What running jobs taught of the model's predictions, in the status of their ClusterProfile."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from mofa_model.advice import LearnedMemory
from mofa_model.manifest.fields import Decimal, Moment, Part, Zero, keyed


class Taught(Part):
    """What one job taught."""

    job: Annotated[str, Field(min_length=1, max_length=600)]
    """Which one: namespace/name and uid."""
    step_time_ratio: Decimal
    """Observed over predicted step time, the prediction without what was learned before."""
    memory_ratio: Decimal | None = None
    """Observed over predicted peak of device memory, likewise; missing = nobody saw it."""
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
    memory_ratio: Decimal | None = None
    """Observed over predicted peak of device memory, as it is to be expected of the next job; missing = nobody saw it."""
    memory_spread: Decimal | None = None
    """Logarithm by which four of five jobs differ from that at most: the band of memory is no wider."""
    jobs: Zero
    """Jobs that it rests on."""
    time: Moment | None = None
    """When it was written: seldom, and only when it changes."""
    moved_time: Moment | None = None
    """When the ratio last moved, where several namespaces teach it: then it moves by two percent a day at most."""
    asked: Annotated[str, Field(max_length=64)] | None = None
    """The factors with which every job was asked whether they change its answer; where they are those above, nobody asks again."""
    evidence: Annotated[list[Taught], Field(max_length=16)] = Field(
        default_factory=list,
        json_schema_extra=keyed("job"),
    )
    """What it rests on, job by job; a job that is gone stays until it counts for little."""

    @property
    def of_memory(self) -> LearnedMemory:
        """What it says of device memory."""
        ratio, spread = float(self.memory_ratio or 0), float(self.memory_spread or 0)
        return (
            LearnedMemory(ratio=round(ratio, 2), spread=round(spread, 2))
            if ratio and spread
            else LearnedMemory()
        )
