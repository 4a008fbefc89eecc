"""The status of a TrainingJob: the advice, and what the running job does."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from mofa_model.manifest.failure_history import MOST, ClassName, Verdict
from mofa_model.manifest.fields import (
    Argument,
    Big,
    Decimal,
    Degree,
    Layout,
    Moment,
    Part,
    Reason,
    Seconds,
    Signed,
    Text,
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


class LostTime(Part):
    """Time that went into something else than new steps."""

    cause: Reason
    """What it went into."""
    seconds: Seconds
    """How much so far."""


class Finish(Part):
    """A date with the bounds that hold four times of five."""

    p10: Moment
    """It finishes before this once in ten times."""
    p50: Moment
    """As often before as after this."""
    p90: Moment
    """After this once in ten times."""
    days: Text = ""
    """The three as dates, on one line."""


class RunningJob(Part):
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
    finish: Finish | None = None
    """When it has finished its tokens, at the pace that is seen and with the stops of the pool's
    past days; missing = its tokens or a fortnight of the pool's account are not known."""
    ettr: Decimal | None = None
    """Effective training time ratio so far, of the time in which it neither waited in a queue nor
    was suspended."""
    residual: Signed | None = None
    """Observed over predicted throughput, minus one."""
    memory_bytes: Big | None = None
    """Most device memory in use on one of its devices, to three digits."""
    memory_source: Literal["Device", "Allocator"] | None = None
    """Who says so: the exporter of the device, or the trainer, whose allocator reserved so much,
    beside which there is more."""
    interruptions: Zero | None = None
    """Interruptions so far."""
    interruptions_by: Annotated[list[Interruption], Field(max_length=4 * MOST)] = keyed(
        "name", "cause"
    )
    """The same by recovery class and cause."""
    lost: Annotated[list[LostTime], Field(max_length=8)] = keyed("cause")
    """Time in which the job itself stood still or trained again what it had lost, by what it went
    into, since it is watched; what its nodes lost is in the account of its pool."""
    since: Moment | None = None
    """Since when this is counted."""
    time: Moment | None = None
    """When this was written: seldom, and only when it changes much; the metrics have every
    moment."""
    life: Annotated[str, Field(max_length=8192)] | None = None
    """Deprecated: what version 0.1.0 kept here for itself. It is read once and never written; the
    annotation run-record has it."""


class Condition(Part):
    """One aspect of an object's state."""

    type: Annotated[str, Field(min_length=1, max_length=64, pattern="^[A-Z][A-Za-z]*$")]
    """Which aspect."""
    status: Literal["True", "False", "Unknown"]
    """Whether it holds."""
    reason: Reason
    """Why, in one word."""
    message: Annotated[str, Field(max_length=1024)] = ""
    """Why, in one sentence."""
    observed_generation: Zero | None = None
    """Generation of the spec that this is of."""
    last_transition_time: Moment
    """When the status last changed."""


class WholeUnits(Part):
    """A prediction in whole units, with its bounds."""

    lower: Big
    """Lower bound."""
    target: Big
    """What is predicted."""
    upper: Big
    """Upper bound."""


class Share(Part):
    """A predicted ratio, with its bounds."""

    lower: Decimal
    """Lower bound."""
    target: Decimal
    """What is predicted."""
    upper: Decimal
    """Upper bound."""


class PredictedPart(Part):
    """What a strategy is expected to do."""

    step_milliseconds: WholeUnits
    """One optimizer step."""
    tokens_per_second: WholeUnits
    """The whole job, while it runs."""
    mfu: Share
    """Model FLOPs utilisation."""
    ettr: Share
    """Effective training time ratio."""
    memory_bytes: WholeUnits
    """Peak device memory of the fullest stage."""
    duration_seconds: WholeUnits | None = None
    """Time to finish the tokens, failures included."""


class OddsPart(Part):
    """Chances of a layout, by how wrong predictions of measured runs were."""

    fits: Decimal
    """Of fitting the devices."""
    beats: Decimal | None = None
    """Of being better than today's layout; where spec.current says none, than the first choice."""


class StrategyPart(Part):
    """A layout, its degrees one by one."""

    tp: Degree
    """Tensor-parallel size."""
    pp: Degree
    """Pipeline stages."""
    cp: Degree
    """Context-parallel size."""
    ep: Degree
    """Expert-parallel size."""
    dp: Degree
    """Data-parallel size."""
    vpp: Degree
    """Virtual stages per device."""
    mbs: Degree
    """Sequences in a micro-batch."""
    text: Layout
    """The whole layout as text."""


class LaunchPart(Part):
    """The layout in the trainer's own words."""

    trainer: Word
    """The trainer, as `--launch` takes it."""
    args: Annotated[list[Argument], Field(max_length=128)]
    """Arguments."""


class Recommendation(Part):
    """What is advised."""

    atomic = True

    strategy: StrategyPart
    """The layout."""
    summary: Text
    """The layout in short: tp8 pp16 dp16."""
    checkpoint_interval_steps: Zero
    """Steps between checkpoints."""
    checkpoint_interval_seconds: Seconds
    """The same as time."""
    predicted: PredictedPart
    """What it is expected to do."""
    launch: LaunchPart | None = None
    """The layout in the trainer's own words."""
    odds: OddsPart | None = None
    """Its chances."""
    evidence: Text = ""
    """Measured runs that prediction and chances rest on."""


class AlternativePart(Part):
    """Another layout."""

    name: Text = ""
    """What it is: `most likely best`, `worth a try`, `in` a trainer, or `with` or `without` what
    makes it another kind."""
    strategy: Layout
    """The layout as text."""
    odds: OddsPart | None = None
    """Its chances."""
    relative_time: Decimal
    """Time to finish over that of the first choice."""
    reason: Text
    """Why it is not the first choice."""


class CurrentPart(Part):
    """The layout that the job is said to run today, beside the advice."""

    atomic = True

    strategy: Layout
    """The layout as text."""
    predicted: PredictedPart | None = None
    """What it is expected to do; missing where it cannot run."""
    odds: OddsPart | None = None
    """Its chances; missing where it cannot run."""
    gain: Signed
    """Time for the same work with it over that with the advice, minus one; 0 without advice, or
    where it cannot run."""
    reason: Text = ""
    """Why it cannot run, or does not fit the nodes or, by the model, the memory; empty where it
    does."""


class RejectedLayouts(Part):
    """Layouts that were left out."""

    atomic = True

    reason: Reason
    """Why."""
    count: Big
    """How many."""


class FailurePart(Part):
    """A failure rate that the advice used."""

    name: ClassName
    """Recovery class."""
    failures_per_thousand_node_days: Decimal
    """The rate."""
    recovery_seconds: Seconds
    """Mean time to recover."""
    verdict: Verdict | None = None
    """What the history says of the assumption."""


class Inputs(Part):
    """What the advice used."""

    atomic = True

    nodes: Zero
    """Nodes."""
    failure: Annotated[list[FailurePart], Field(max_length=MOST)] = keyed("name")
    """Failure rates by recovery class."""
    learned: Decimal | None = None
    """Factor on every step that running jobs of the profile taught, contained in the predictions;
    missing = none."""
    learned_memory: Decimal | None = None
    """The same on device memory."""
    learned_spread: Decimal | None = None
    """Logarithm by which four of five jobs differ from that at most; missing = nobody saw any."""
    current: Layout | None = None
    """Layout that the job is said to run today; missing = nothing was said."""


class TrainingJobStatus(Part):
    """The advice and what became of it."""

    observed_generation: Zero | None = None
    """Generation of the spec that this status is of."""
    inputs_hash: Text = ""
    """Hash of all that the advice depends on."""
    model_version: Text = ""
    """Version of the engine."""
    computed_time: Moment | None = None
    """When the advice was computed."""
    recommendation: Recommendation | None = None
    """What is advised."""
    current: CurrentPart | None = None
    """What runs today, beside it; missing where spec.current says nothing."""
    alternatives: Annotated[list[AlternativePart], Field(max_length=5)] = Field(
        default_factory=list
    )
    """What is most likely best, worth a try, and the best of other kinds."""
    rejected: Annotated[list[RejectedLayouts], Field(max_length=16)] = keyed("reason")
    """What was left out, by reason."""
    inputs: Inputs | None = None
    """What the advice used."""
    observed: RunningJob | None = None
    """What the running job does."""
    health: Text = ""
    """How the running job does: Healthy, Drifting, Stuck or NotSeen; empty where it does not run,
    or starts."""
    conditions: Annotated[list[Condition], Field(max_length=16)] = keyed("type")
    """Ready, ModelValid, HistoryComplete, ConfidenceSufficient, ObservationAvailable,
    PredictionAccurate, MemoryAccurate."""
