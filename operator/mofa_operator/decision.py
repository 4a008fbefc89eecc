"""What to do about a snapshot: frozen, and nothing is done yet. `act` does it, `metrics` shows its figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from mofa_model.kinds.patches import Operation
from mofa_model.kinds.shape import glance
from mofa_model.units import Range
from mofa_operator.evidence import JobEvidence
from mofa_operator.keys import Key
from mofa_operator.objects import AdvisedStatus, StatedOdds, Written
from mofa_operator.snapshot import Running


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The model's answer to a question: the same for equal questions, so it is made once and kept."""

    digest: str
    """The inputs hash."""
    outcome: str
    """Value of the status annotation: Recommended, LowConfidence, NoRecommendation, InvalidInput."""
    explanation: str
    """One sentence."""
    annotations: Mapping[str, str]
    """All our annotations, computed-at left out."""
    status: Written
    """What the answer decides of a TrainingJob's status, computedTime left out."""
    reason: str = ""
    """Reason of the condition Ready."""
    figures: Mapping[str, Range] = field(default_factory=dict)
    """Predictions by name, with the digits that a status keeps: tokens_per_second, step_seconds, ettr, mfu,
    memory_bytes.
    """
    device_bytes: float = 0.0
    """Memory of a device. [B]"""
    room_bytes: float = 0.0
    """Of it what trainers have room in, whatever somebody wants to be left free. [B]"""
    strategy: Mapping[str, str] = field(default_factory=dict)
    """Axes of the strategy, as text."""
    trainer: str = ""
    """The trainer that is launched; empty where none is named that could be told."""
    framework_version: str = ""
    """Version of it that the spec names."""
    arguments: tuple[str, ...] = ()
    """Launch arguments of the trainer."""
    checkpoint_interval: float | None = None
    """Recommended interval. [s]"""
    caveats: tuple[str, ...] = ()
    """What lowers confidence, one sentence each."""
    prior_weight: float = 0.0
    """Share of the failures behind the rates, over all classes, that is assumption. [1]"""
    profile: str = ""
    """The ClusterProfile that was used; empty where none was found."""

    @cached_property
    def says(self) -> AdvisedStatus:
        """What its status says, as it will be read back."""
        return glance(AdvisedStatus, self.status)


@dataclass(frozen=True, kw_only=True, slots=True)
class Unsearched:
    """What is known of a question's answer without a search."""

    digest: str
    """The inputs hash."""
    mostly_assumed: bool
    """Whether failure rates are mostly assumption, though history counts."""
    prior_weight: float
    """As `Answer.prior_weight`."""
    profile: str
    """As `Answer.profile`."""
    trainer: str
    """As `Answer.trainer`."""
    framework_version: str
    """As `Answer.framework_version`."""
    device_bytes: float
    """As `Answer.device_bytes`."""
    room_bytes: float
    """As `Answer.room_bytes`."""
    rates: tuple[Written, ...] = ()
    """Failure rates, as a status has them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Note:
    """An Event to post."""

    reason: str
    """A `Happened`."""
    message: str
    """One sentence."""
    warning: bool = False
    """Warning, or Normal."""
    episode: str = ""
    """What makes it another Event than an equal one before; empty = the decision's digest."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Annotate:
    """Our annotations on one object: what should stand, and what should go."""

    key: Key
    """Which object."""
    uid: str
    """Its uid, so that an object of the same name that came later is left alone."""
    hold: Mapping[str, str]
    """All annotations that we should own."""
    drop: tuple[str, ...] = ()
    """Keys of our prefix that stand there and should go."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Release:
    """How a job that waits gets its launch arguments, and is let go (mode Apply)."""

    key: Key
    """Which object."""
    uid: str
    """Its uid."""
    launch: tuple[Operation, ...] = ()
    """JSON patch that writes the arguments; empty = they stand, or there are none to write."""
    free: tuple[Operation, ...] = ()
    """JSON patch that takes our gates away; empty = it has none."""
    note: Note
    """The Event to post when all went well."""
    outcome: str = ""
    """What became of the wait: released, unadvised or expired; empty = it did not wait for us."""
    waited: float | None = None
    """Time since it was made. [s]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class PodUpdate:
    """What pods of one set get beside what they have."""

    name: str
    """The set of pods."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Annotations."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    """Labels that their nodes must have."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckAnswer:
    """What our AdmissionChecks say of a Workload."""

    key: Key
    """The Workload."""
    checks: tuple[str, ...]
    """AdmissionChecks that say it."""
    state: str
    """Ready, Retry or Rejected; empty = nothing yet."""
    message: str = ""
    """Why, in one sentence."""
    at: str = ""
    """When, as objects write it."""
    updates: tuple[PodUpdate, ...] = ()
    """What its pods get."""
    retry: int | None = None
    """After how long it is tried again. [s]"""
    again: float | None = None
    """Look again after this time. [s]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobFigures:
    """What is exported of one job."""

    key: Key
    """Which job."""
    profile: str
    """Its ClusterProfile."""
    predicted: Mapping[str, Range] = field(default_factory=dict)
    """As `Answer.figures`."""
    odds: StatedOdds = field(default_factory=StatedOdds)
    """Chances of the strategy."""
    strategy: Mapping[str, str] = field(default_factory=dict)
    """As `Answer.strategy`."""
    checkpoint_interval: float | None = None
    """Recommended. [s]"""
    objective_ettr: float | None = None
    """The objective of spec.slo. [1]"""
    running: Running | None = None
    """What it was seen to do; None = it does not run, or was not looked at."""
    residual: float | None = None
    """Observed over predicted throughput, minus one. [1]"""
    memory_limits: Mapping[str, float] = field(default_factory=dict)
    """Device memory above which what runs is worth a look, by what it is the limit of: prediction, device. [B]"""
    step_due: float | None = None
    """Until when its next step is due, in seconds of the epoch. [s]"""
    should_train: bool | None = None
    """Whether it should make steps that would be seen; None = nobody looked yet."""
    health: str = ""
    """A `Health`; empty where it does not run."""
    target: Key | None = None
    """The object that it speaks for, where there is one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfileFigures:
    """What is exported of one profile."""

    key: Key
    """Which profile."""
    total: int
    """Nodes. [1]"""
    ready: int
    """Ready nodes. [1]"""
    members: tuple[str, ...]
    """Names of nodes."""
    rates: Mapping[str, Range] = field(default_factory=dict)
    """Posterior by class: lower, mean, upper. [1/d]"""
    assumed: Mapping[str, float] = field(default_factory=dict)
    """Assumption by class. [1/d]"""
    recovery: Mapping[str, Range] = field(default_factory=dict)
    """Recovery time by class: lower, mean, upper. [s]"""
    exposure: float | None = None
    """Node-days. [node d]"""
    coverage: float | None = None
    """Share of the window. [1]"""
    prior_weight: Mapping[str, float] = field(default_factory=dict)
    """Share of the posterior that is assumption, by class. [1]"""
    verdicts: Mapping[str, str] = field(default_factory=dict)
    """Verdict by class, and of the total."""
    contradiction: Mapping[str, float] = field(default_factory=dict)
    """Evidence against the assumption over what a verdict needs, by class, and of the total. [1]"""
    calibration: float | None = None
    """Learned ratio of observed to predicted step time. [1]"""
    memory: float | None = None
    """The same of device memory. [1]"""
    lost: Mapping[str, float] = field(default_factory=dict)
    """Node-days of the window in which jobs stood still, by cause. [node d]"""
    phases: Mapping[str, float] = field(default_factory=dict)
    """Median time of each phase of recovery. [s]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """What to do about one object; what is None or empty is left as it is."""

    key: Key
    """Which object."""
    uid: str = ""
    """Its uid."""
    status: Written | None = None
    """The whole status to apply; None = it is right already."""
    ledger: Written | None = None
    """Of a profile: the whole status of its FailureLedger; None = it is right already."""
    annotate: tuple[Annotate, ...] = ()
    """Annotations to write, on the job and on what its targetRef names; only where they differ from what stands."""
    release: Release | None = None
    """What mode Apply writes, after everything else."""
    notes: tuple[Note, ...] = ()
    """Events to post."""
    figures: JobFigures | ProfileFigures | None = None
    """What to export; None = nothing."""
    outcome: str = ""
    """Ready reason, for logs and counters."""
    digest: str = ""
    """Inputs hash that the notes are of; equal notes of an equal hash are one Event."""
    again: float | None = None
    """Look again after this time, without an event. [s]"""
    taught: JobEvidence | None = None
    """What a running job says of its profile."""

    @property
    def is_silent(self) -> bool:
        """Whether nothing is written to the cluster."""
        is_kept = self.status is None and self.ledger is None
        return is_kept and not self.annotate and not self.notes and self.release is None
