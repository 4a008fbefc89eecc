"""Decisions about objects: what `act` is to write, and the figures that `metrics` exports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from mofa_model.kinds import Kind
from mofa_model.kinds.patches import Operation
from mofa_model.kinds.shape import glance
from mofa_model.spec.account import NodeTime
from mofa_model.units import Range
from mofa_operator.evidence import Forecast, JobEvidence
from mofa_operator.keys import Key
from mofa_operator.objects import Chances, JobStatus, WrittenPart
from mofa_operator.snapshot import History, ProfileSnapshot, Running

if TYPE_CHECKING:
    from mofa_model.reliability.observed import (
        RateReport,  # imports numpy, which a worker must not do yet
    )


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The model's answer to a question.

    Equal questions have equal answers, so each is made once and kept.
    """

    digest: str
    """The inputs hash."""
    outcome: str = ""
    """Value of the status annotation: Recommended, LowConfidence, NoRecommendation, or one of
    `UNANSWERED`. Empty before the search."""
    explanation: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """All our annotations but computed-at."""
    status: WrittenPart
    """A TrainingJob's status as far as the answer decides it, without computedTime."""
    reason: str = ""
    """Reason of the condition Ready; before the search the reason that advice would have."""
    predicted: Mapping[str, Range] = field(default_factory=dict)
    """Predictions by name, rounded as in a status: tokens_per_second, step_seconds, ettr, mfu,
    memory_bytes."""
    gpu: str = ""
    """The device that it counts with, by its preset."""
    device_bytes: float = 0.0
    """Memory of a device. [B]"""
    room_bytes: float = 0.0
    """The part of it that a trainer can use, before any reserve that somebody asks for. [B]"""
    strategy: Mapping[str, str] = field(default_factory=dict)
    """Axes of the strategy, as text."""
    trainer: str = ""
    """The trainer that is launched; empty where the job names none that we know."""
    framework_version: str = ""
    """The trainer's version, as the spec names it."""
    arguments: tuple[str, ...] = ()
    """Launch arguments of the trainer."""
    nodes: int = 0
    """Nodes of what is advised. [1]"""
    gpus: int = 0
    """Devices of what is advised, on all of them. [1]"""
    checkpoint_interval: float | None = None
    """Recommended interval. [s]"""
    caveats: tuple[str, ...] = ()
    """What lowers confidence, one sentence each."""
    profile: str = ""
    """The ClusterProfile that was used; empty where none was found."""

    @cached_property
    def says(self) -> JobStatus:
        """The status, as it will be read back."""
        return glance(JobStatus, self.status)


@dataclass(frozen=True, kw_only=True, slots=True)
class Note:
    """An Event to post."""

    reason: str
    """A `Happened`."""
    message: str
    warning: bool = False
    """Warning, or Normal."""
    episode: str = ""
    """Equal notes with another episode are another Event; empty = the decision's digest."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Release:
    """How a waiting job gets its launch arguments and is let go (mode Apply)."""

    key: Key
    uid: str
    launch: tuple[Operation, ...] = ()
    """JSON patch that writes the arguments; empty = they stand, or there are none to write."""
    free: tuple[Operation, ...] = ()
    """JSON patch that removes our gates; empty = it has none."""
    child: Kind | None = None
    """What its controller made of it, and makes anew: deleted where it has another size and never
    ran."""
    note: Note | None
    """The Event to post when all went well."""
    outcome: str = ""
    """How the wait ended: released, unadvised or expired; empty = it did not wait for us."""
    waited: float | None = None
    """Time since it was made. [s]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class PodUpdate:
    """What the pods of one set get in addition to what they have."""

    name: str
    """The set of pods."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    """Labels that their nodes must have."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckAnswer:
    """What our AdmissionChecks say of a Workload."""

    key: Key
    checks: tuple[str, ...]
    """The AdmissionChecks that say it."""
    state: str
    """Ready, Retry or Rejected; empty = nothing yet."""
    message: str = ""
    at: str = ""
    """When, as objects write it."""
    updates: tuple[PodUpdate, ...] = ()
    """What its pods get."""
    retry: int | None = None
    """Kueue tries again after this time. [s]"""
    requeue_after: float | None = None
    """We look again after this time. [s]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobFigures:
    """What is exported of one job; only a few numbers, because thousands of jobs are kept."""

    key: Key
    profile: str
    """Its ClusterProfile."""
    predicted: Mapping[str, Range] = field(default_factory=dict)
    """As `Answer.figures`."""
    chances: Chances = field(default_factory=Chances)
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
    """Limits of device memory, exceeded where a job needs attention: prediction, device. [B]"""
    step_due: float | None = None
    """When its next step is due, in seconds of the epoch. [s]"""
    should_train: bool | None = None
    """Whether it should make steps that would be seen; None = nobody looked yet."""
    health: str = ""
    """A `Health`; empty where it does not run."""
    target: Key | None = None
    """The object that its targetRef names, where that exists."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolFigures:
    """What `metrics.declared` reads of one ClusterProfile: the records of its decision."""

    snapshot: ProfileSnapshot
    """The profile with its nodes, and what Prometheus said of it."""
    history: History | None = None
    """Failures and exposure of the newest reading, whether or not they are written yet."""
    rates: tuple[RateReport, ...] = ()
    """Assumed and counted rates of every class, and of their total."""
    recovery: Mapping[str, Range] = field(default_factory=dict)
    """Recovery time by class. [s]"""
    calibration: WrittenPart = field(default_factory=dict)
    """What running jobs taught, as `status.calibration` has it."""
    account: tuple[NodeTime, ...] = ()
    """Where the pool's node-time went, as its ledger has it."""
    forecasts: tuple[Forecast, ...] = ()
    """What was said of its weeks, and what came."""

    @property
    def key(self) -> Key:
        """Which profile."""
        return self.snapshot.profile.key

    @property
    def reading(self) -> History | None:
        """What Prometheus said in this look; None where it said nothing."""
        history = self.snapshot.history
        return history if isinstance(history, History) else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """What to do about one object; a part that is None or empty changes nothing."""

    key: Key
    uid: str = ""
    """Its uid: a later object of the same name is left alone."""
    hold: Mapping[str, str] | None = None
    """All annotations that we should own on it; None = they are right already."""
    drop: tuple[str, ...] = ()
    """Keys of our prefix to remove, together with `hold`."""
    target_decision: Decision | None = None
    """The annotations of the object that its targetRef names."""
    status: WrittenPart | None = None
    """The whole status to apply; None = it is right already."""
    ledger: WrittenPart | None = None
    """Of a profile: the whole status of its FailureLedger; None = it is right already."""
    release: Release | None = None
    """What mode Apply writes, after everything else."""
    notes: tuple[Note, ...] = ()
    figures: JobFigures | PoolFigures | None = None
    """What to export; None = nothing."""
    outcome: str = ""
    """Ready reason, for logs and counters."""
    digest: str = ""
    """Inputs hash of the notes: equal notes with an equal hash are one Event."""
    requeue_after: float | None = None
    """Look again after this time, without an event. [s]"""
    taught: JobEvidence | None = None
    """What a running job says of its profile."""

    @property
    def annotate(self) -> tuple[Decision, ...]:
        """This decision and that about the target, if they have annotations to write."""
        return tuple(
            decision
            for decision in (self, self.target_decision)
            if decision and decision.hold is not None
        )

    @property
    def is_silent(self) -> bool:
        """Whether nothing is written to the cluster."""
        is_kept = self.status is None and self.ledger is None
        return is_kept and not self.annotate and not self.notes and self.release is None
