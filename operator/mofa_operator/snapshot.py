"""What was seen: everything that a decision needs, frozen.

The moment is part of it, so deciding needs no clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Final

from mofa_model.kinds.shape import Body
from mofa_model.spec.account import OpenIncident
from mofa_model.spec.evidence import ByClass
from mofa_model.spec.recovery_classes import RecoveryClass
from mofa_operator.evidence import Day, JobEvidence
from mofa_operator.objects import LiveObject, LiveProfile
from mofa_operator.workloads import LiveWorkload

if TYPE_CHECKING:
    from mofa_model.reliability.remedies import (
        WhatWouldHelp,  # imports numpy, which a worker must not do yet
    )

COVERED: Final = 90
"""A history is complete from this covered share of its window on. Ours. [%]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """All that an answer depends on, as plain values; its bytes identify the answer."""

    job: Body
    """apiVersion, kind, metadata (name, namespace, labels, our input annotations) and spec."""
    profiles: tuple[Body, ...]
    """ClusterProfiles that it may mean, with name, spec and status; of a TrainingJob the named one.
    """
    policies: tuple[Body, ...] = ()
    """AdvisorPolicies of its namespace; none for a TrainingJob."""
    opted_in: bool = False
    """Whether a label of its namespace opts it in."""
    config_maps: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Data of the ConfigMaps that it names and that exist, by name."""
    beside: tuple[Body, ...] = ()
    """Other existing objects that it or its pods name: runtimes, claim templates, device classes.
    """
    changes: Mapping[str, str] = field(default_factory=dict)
    """Values that somebody changed on the page, by parameter; none for the job's own answer."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a changed question cannot be answered."""

    why: Mapping[str, str]
    """Sentences by parameter; under an empty name what concerns none of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Named:
    """Existing objects that a job names. They are not watched, but read when needed."""

    config_maps: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Data of ConfigMaps, by name."""
    beside: tuple[Body, ...] = ()
    """Other objects, as they came."""
    is_whole: bool = True
    """Whether that is all that it names."""


SHAPE: Final[Mapping[str, str]] = {
    "layers": "--num-layers",
    "hidden": "--hidden-size",
    "heads": "--num-attention-heads",
    "kv_heads": "--num-query-groups",
    "ffn": "--ffn-hidden-size",
    "vocabulary": "--vocab-size",
}
"""Sizes of a model, by the labels of the series that tells them, as words of a command."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Running:
    """What a running job was seen to do; a number is None where it was not seen."""

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
    save_seconds: float | None = None
    """For how long a save holds up training, as its trainer's log shows. [s]"""
    sequence_length: int | None = None
    """Tokens in a sequence, as its trainer says. [1]"""
    global_batch: int | None = None
    """Sequences in a step, as its trainer says. [1]"""
    shape: Mapping[str, int] = field(default_factory=dict)
    """Sizes of its model by SHAPE, as its trainer says. [1]"""
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
    """Whether that is all memory in use; otherwise only what the trainer's allocator reserved."""
    on_pool: bool = False
    """Whether its pods are seen, all of them on nodes of its profile."""
    record: str = ""
    """Its interruptions as text that the operator reads again after a restart."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Alive:
    """A job that is there to train, whether or not its steps advance."""

    at: float
    """When this was looked at, in seconds of the epoch. [s]"""
    since: float
    """Since when its pods are ready or its trainer is up, at the latest since we look. [s]"""
    watched: bool
    """Whether its steps would be seen, so that a missing one is noticed."""
    step_at: float | None = None
    """When its last finished step was seen to change. [s]"""
    step_seconds: float | None = None
    """Time of an optimizer step. [s]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class SeenLaunch:
    """What the running pods of a job are told, after variables and the downward API."""

    where: str
    """The pod and its container."""
    words: tuple[str, ...] = ()
    """Options that say layout, batch and sequence, and no others; empty = they say none."""
    stated: bool = False
    """Whether the job's own manifest says the same."""
    trouble: str = ""
    """Why it is no one layout: pods differ, or a program gets all arguments as one word."""


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
    """Name of the object answered instead: a TrainingJob whose targetRef names this job or the
    same target, or the job of another kind that made this one."""
    beside: tuple[Body, ...] = ()
    """Objects that it or its target names, as far as they exist: runtimes, claims of pods."""
    profile: LiveProfile | None = None
    """The ClusterProfile that a TrainingJob names; its verdicts and conditions are shown with the
    job."""
    running: Running | None = None
    """What it was seen to do; None = it does not run, or nobody looked."""
    alive: Alive | None = None
    """That it is there to train; None = it waits, is suspended, has ended, or that is unknown."""
    looked: bool = False
    """Whether somebody looked at it lately, since the operator started."""
    launch: SeenLaunch | None = None
    """What its running pods are told; None = none runs, or pods may not be read."""
    launch_told: bool = True
    """Whether the Event about that was posted."""
    unseen: str = ""
    """Why it cannot be seen, where its own spec is the reason."""
    asks_anew: bool = False
    """Whether what running jobs teach changed since the jobs of the profile were last asked with
    it."""
    now: float
    """The moment, in seconds of the epoch. [s]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Curves:
    """Tokens per second of one job over time, as moments of the epoch and values. [(s, 1/s)]"""

    predicted: tuple[tuple[float, float], ...] = ()
    observed: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckSnapshot:
    """A Workload of Kueue that waits for our AdmissionChecks, and whom it was made for."""

    workload: LiveWorkload
    checks: tuple[str, ...]
    """The AdmissionChecks of ours that it waits for, by name."""
    job: JobSnapshot | None
    """Its job, the TrainingJob about that, or itself; None = not seen yet."""
    question: Question | None = None
    """The question for the size that there is room for; None = it has no job, or that size cannot
    be asked for."""
    policy: Body | None = None
    """The AdvisorPolicy of its job."""
    selectors: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The node selectors of ClusterProfiles, by name."""
    now: float
    """The moment, in seconds of the epoch. [s]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicySnapshot:
    """An AdvisorPolicy, and what it reaches."""

    policy: LiveObject
    job_count: int
    """Jobs that it opts in, or whose annotations it completes. [1]"""
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
    """Since when nodes of the pool are not ready or gone, if lately; in seconds of the epoch. [s]
    """
    joined: tuple[float, ...] = ()
    """Since when new nodes of the pool are ready. [s]"""
    unsure_there: tuple[float, ...] = ()
    """The same of nodes that may have been there before, because the operator was not. [s]"""
    unsure_away: tuple[float, ...] = ()
    """Since when such nodes are not ready. [s]"""
    known_since: float = inf
    """From when on no node came or went unseen; infinite = not yet. [s]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class History:
    """Failures and exposure of a pool: as Prometheus says, or as they are remembered."""

    classes: ByClass
    node_days: float
    """Node-days in which a failure would have been seen. [node d]"""
    window: float
    """Length of the window. [s]"""
    coverage: float
    """Covered share of the window. [1]"""
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
    """The same by day; the days add up to it."""
    recoveries: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Recovery times by class, one by one. [s]"""
    phases: Mapping[str, float] = field(default_factory=dict)
    """Median time of each phase of recovery that was seen. [s]"""
    counted_by: str = ""
    """Version and rules by which it was counted; empty = not by Prometheus."""
    lasting: tuple[OpenIncident, ...] = ()
    """What had begun on its settled days and was not over where reading begins again."""
    helps: WhatWouldHelp | None = None
    """What would have helped, where it was asked to replay; None = it was not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NoHistory:
    """Why there is no history, which is not the same as no failures."""

    reason: str
    """A `Reason`: HistoryUnavailable, SeriesMissing, NodeNamesDiffer or NotConfigured."""
    message: str
    """Why, in one sentence, without secrets."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfileSnapshot:
    """A ClusterProfile, its nodes and its history."""

    profile: LiveProfile
    """The profile as it stands; its status is the memory of what was learned."""
    node_count: NodeCount
    shared: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Nodes that other profiles select too, by profile, sorted."""
    history: History | NoHistory | None = None
    """Its history; None = not asked yet."""
    watched: tuple[Day, ...] = ()
    """Days that the watch has seen lately."""
    taught: tuple[JobEvidence, ...] = ()
    """What its running jobs say of it."""
    influence: Mapping[str, float] = field(default_factory=dict)
    """How much jobs of a namespace may move a factor in a day, where a policy limits it. [1]"""
    job_count: int = 0
    """Jobs whose answer may depend on the profile. [1]"""
    all_asked: bool = False
    """Whether all of them were asked with the present factors."""
    now: float
    """The moment, in seconds of the epoch. [s]"""
