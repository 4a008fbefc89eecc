"""What a running job does, in the status of its TrainingJob."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from mofa_model.manifest.failure_history import MOST, ClassName
from mofa_model.manifest.fields import (
    Big,
    Decimal,
    Moment,
    Part,
    Seconds,
    Signed,
    Word,
    Zero,
    keyed,
)


class Interruption(Part):
    """Interruptions of one kind."""

    name: ClassName
    """Recovery class."""
    cause: Literal["Failure", "Preemption", "Eviction", "Unknown"]
    """What brought it about; only failures count as failures."""
    count: Zero
    """How many so far."""


class Lost(Part):
    """Time that went into something else than new steps."""

    cause: Annotated[str, Field(min_length=1, max_length=64, pattern="^[A-Z][A-Za-z0-9]*$")]
    """What it went into."""
    seconds: Seconds
    """How much so far."""


class Observed(Part):
    """What the running job does."""

    atomic = True

    source: Word | None = None
    """Where it was seen: a preset of trainer series, TrainJobStatus, or query."""
    tokens_per_second: Big | None = None
    """Tokens per second, to three digits."""
    step_milliseconds: Big | None = None
    """One optimizer step, to three digits."""
    step: Big | None = None
    """Last finished step."""
    checkpoint_interval_seconds: Seconds | None = None
    """Interval between checkpoints that is really used."""
    ettr: Decimal | None = None
    """Effective training time ratio so far, of the time in which it neither waited in a queue nor was suspended."""
    residual: Signed | None = None
    """Observed over predicted throughput, minus one."""
    memory_bytes: Big | None = None
    """Most device memory in use on one of its devices, to three digits."""
    memory_source: Literal["Device", "Allocator"] | None = None
    """Who says so: the exporter of the device, or the trainer, whose allocator reserved so much, beside which there is more."""
    interruptions: Zero | None = None
    """Interruptions so far."""
    interruptions_by: Annotated[list[Interruption], Field(max_length=4 * MOST)] = Field(
        default_factory=list, json_schema_extra=keyed("name", "cause")
    )
    """The same by recovery class and cause."""
    lost: Annotated[list[Lost], Field(max_length=8)] = Field(
        default_factory=list, json_schema_extra=keyed("cause")
    )
    """Lost time by what it went into."""
    since: Moment | None = None
    """Since when this is counted."""
    time: Moment | None = None
    """When this was written: seldom, and only when it changes much; the metrics have every moment."""
    life: Annotated[str, Field(max_length=8192)] | None = None
    """Deprecated: what version 0.1.0 kept here for itself. It is read once and never written; the annotation run-record has it."""
