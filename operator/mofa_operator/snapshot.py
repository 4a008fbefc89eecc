"""What was seen: everything that a decision needs, frozen, with the moment in it, so that deciding needs no clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Final

from mofa_model.kinds.shape import Body
from mofa_model.spec.evidence import ByClass
from mofa_model.spec.recovery_classes import RecoveryClass
from mofa_operator.evidence import Day, JobEvidence
from mofa_operator.objects import LiveObject, LiveProfile
from mofa_operator.workloads import LiveWorkload

COVERED: Final = 90
"""Percent of the window that must be covered for a history to be called complete. Ours. [%]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """All that an answer depends on, as plain values: it is sent to a worker process, and its bytes are the memo's key."""

    job: Body
    """apiVersion, kind, metadata (name, namespace, labels, our input annotations) and spec."""
    profiles: tuple[Body, ...]
    """ClusterProfiles that it could mean (the named one for a TrainingJob), name, spec and status."""
    policies: tuple[Body, ...] = ()
    """AdvisorPolicies of its namespace; none for a TrainingJob."""
    config_maps: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Data of the ConfigMaps that it names and that exist, by name."""
    beside: tuple[Body, ...] = ()
    """Other objects that it or its pods name and that exist, by name and spec: runtimes, claim templates, device classes."""
    changes: Mapping[str, str] = field(default_factory=dict)
    """What somebody who looks at the page asks to be different, by parameter; nothing for the job's own answer."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a question that somebody changed cannot be answered."""

    why: Mapping[str, str]
    """Sentences by parameter; what concerns none of them under an empty name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Named:
    """What a job names, as far as it exists: nobody watches it, it is read when it is needed."""

    config_maps: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Data of ConfigMaps, by name."""
    beside: tuple[Body, ...] = ()
    """Other objects, as they came."""
    is_whole: bool = True
    """Whether that is all that it names."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Running:
    """What a running job was seen to do; numbers are None where nothing was seen."""

    source: str
    """Where it was seen: a preset of trainer series, TrainJobStatus, or query."""
    tokens_per_second: float | None = None
    """Tokens of the whole job. [1/s]"""
    step_seconds: float | None = None
    """Time of an optimizer step. [s]"""
    step: int | None = None
    """Last finished step. [1]"""
    ettr: float | None = None
    """Effective training time ratio since `since`. [1]"""
    checkpoint_interval: float | None = None
    """Interval that is really used. [s]"""
    interruptions: Mapping[tuple[RecoveryClass, str], int] = field(default_factory=dict)
    """Interruptions by recovery class and cause (failure, preemption, eviction). [1]"""
    recoveries: Mapping[RecoveryClass, tuple[float, ...]] = field(default_factory=dict)
    """Finished recovery times by class. [s]"""
    lost: Mapping[str, float] = field(default_factory=dict)
    """Lost time by cause. [s]"""
    since: float | None = None
    """Since when this is counted, in seconds of the epoch. [s]"""
    memory_bytes: float | None = None
    """Most device memory in use on one of its devices. [B]"""
    whole_device: bool = False
    """Whether that is all that is in use; else it is what an allocator reserved, and there is more beside it."""
    on_pool: bool = False
    """Whether its pods are seen, and all of them on nodes of its profile."""
    record: str = ""
    """What is remembered of its interruptions, as text that the operator reads again after its own restart."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Alive:
    """A job that is there to train, whether or not its steps advance; what was not seen is None."""

    at: float
    """When this was looked at, in seconds of the epoch. [s]"""
    since: float
    """Since when it is there: its pods ready, its trainer up, or at the latest since we look. [s]"""
    watched: bool
    """Whether a step that is missing can be told from one that nobody sees."""
    step_at: float | None = None
    """When its last finished step was seen to change. [s]"""
    step_seconds: float | None = None
    """Time of an optimizer step. [s]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobSnapshot:
    """A job of any kind, and what surrounds it."""

    job: LiveObject
    """The job as it stands."""
    question: Question
    """What it asks."""
    target: LiveObject | None = None
    """The object behind targetRef, where it exists."""
    owned_by: str | None = None
    """Name of another TrainingJob, whose targetRef names this job, or what this TrainingJob's targetRef names, or of the job of
    another kind that made this one: that one is answered, and we leave it alone here."""
    profile: LiveProfile | None = None
    """The ClusterProfile that a TrainingJob names, as it stands: its verdicts and conditions are shown with the job."""
    running: Running | None = None
    """What it was seen to do; None = it does not run, or was not looked at."""
    alive: Alive | None = None
    """That it is there to train; None = it waits, was suspended, has ended, or nobody says."""
    looked: bool = False
    """Whether what it does is known: it was looked at since the operator started, and lately."""
    unseen: str = ""
    """Why it cannot be looked at, where that is its own spec's doing."""
    asks_anew: bool = False
    """Whether what running jobs teach has moved since every job of its profile was asked whether that changes its answer."""
    now: float
    """The moment, in seconds of the epoch. [s]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Curves:
    """Tokens per second of one job over time, predicted and observed: moments of the epoch, and values. [(s, 1/s)]"""

    predicted: tuple[tuple[float, float], ...] = ()
    observed: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckSnapshot:
    """A Workload of Kueue that waits for our AdmissionChecks, and whom it was made for."""

    workload: LiveWorkload
    checks: tuple[str, ...]
    """The AdmissionChecks of ours that it waits for, by name."""
    job: JobSnapshot | None
    """Who speaks for it: its job, the TrainingJob about that, or itself; None = not seen yet."""
    question: Question | None = None
    """What is asked for the size that there is room for; None = nobody speaks for it, or the size cannot be asked for."""
    policy: Body | None = None
    """The AdvisorPolicy that counts for its job."""
    selectors: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The node selectors of ClusterProfiles, by name."""
    now: float
    """The moment, in seconds of the epoch. [s]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicySnapshot:
    """An AdvisorPolicy, and what it reaches."""

    policy: LiveObject
    jobs: int
    """Jobs that it opts in, or whose own words it completes. [1]"""
    profile_missing: bool
    """Whether it names a ClusterProfile that does not exist."""
    now: float
    """The moment, in seconds of the epoch. [s]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeCount:
    """Nodes of a pool."""

    total: int
    """Nodes that match the selector. [1]"""
    ready: int
    """Nodes that are ready and not cordoned. [1]"""
    cordoned: int = 0
    """Nodes that are cordoned. [1]"""
    gpus: Mapping[int, int] = field(default_factory=dict)
    """Nodes by the number of GPUs that they offer."""
    products: tuple[str, ...] = ()
    """Values of the label nvidia.com/gpu.product."""
    names: tuple[str, ...] = ()
    """Names of the nodes, sorted."""
    away: tuple[float, ...] = ()
    """Since when nodes that belong to the pool are not ready, or gone, where that came lately; in seconds of the epoch. [s]"""
    joined: tuple[float, ...] = ()
    """Since when ready nodes are there that did not belong to it before. [s]"""
    unsure_there: tuple[float, ...] = ()
    """Since when ready nodes are ready of which nobody knows whether they belonged to it before: the operator was not there. [s]"""
    unsure_away: tuple[float, ...] = ()
    """The same of nodes that are not ready. [s]"""
    known: float = inf
    """Since when none can have come or gone unseen; infinite = not yet. [s]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class History:
    """What Prometheus said of a pool."""

    classes: ByClass
    node_days: float
    """Node-days in which a failure would have been seen. [node d]"""
    window: float
    """Length of the window. [s]"""
    coverage: float
    """Share of the window in which the sources were there. [1]"""
    by_node: Mapping[str, int] = field(default_factory=dict)
    """Failures of the worst nodes. [1]"""
    node_days_by_node: Mapping[str, float] = field(default_factory=dict)
    """Exposure by node. [d]"""
    missing: tuple[str, ...] = ()
    """Series that the history needs and that do not exist."""
    warnings: tuple[str, ...] = ()
    """What the server warned of."""
    at: float = 0.0
    """The moment it is of, in seconds of the epoch. [s]"""
    days: tuple[Day, ...] = ()
    """The same, split by day: the evidence of the days adds up to it."""
    recoveries: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """The recovery times behind it, one by one, by class. [s]"""
    lost: Mapping[str, float] = field(default_factory=dict)
    """Node-time in which jobs stood still, by cause. [node s]"""
    phases: Mapping[str, float] = field(default_factory=dict)
    """Median time of each phase of recovery that was seen. [s]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class NoHistory:
    """Why there is no history; never the same as no failures."""

    reason: str
    """A `Reason`: HistoryUnavailable, SeriesMissing, NodeNamesDiffer or NotConfigured."""
    message: str
    """Why, in one sentence, without secrets."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfileSnapshot:
    """A ClusterProfile, its nodes and its history."""

    profile: LiveProfile
    """The profile as it stands, status included: its status is the memory of what was learned."""
    nodes: NodeCount
    shared: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Those of them that other profiles select too, by profile, sorted."""
    history: History | NoHistory | None = None
    """Its history; None = not asked yet."""
    watched: tuple[Day, ...] = ()
    """What the watch has seen of it lately."""
    taught: tuple[JobEvidence, ...] = ()
    """What its running jobs say of it."""
    influence: Mapping[str, float] = field(default_factory=dict)
    """By how much a day jobs of a namespace move what it has learned, where a policy says less than usual. [1]"""
    jobs: int = 0
    """Jobs whose answer may depend on it. [1]"""
    all_asked: bool = False
    """Whether every one of them was asked with the factors that stand."""
    now: float
    """The moment, in seconds of the epoch. [s]"""
