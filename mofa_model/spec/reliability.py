"""How the machines of a pool fail and come back: failure rates, recoveries, checkpoint storage,
spares.

Rates are per node and second. A rate is no single number but a Gamma posterior, with its exposure.
A `FailureMode` holds the failures of one recovery class (`recovery_classes`). A `Domain` is a rack
or a switch whose loss stops the job; its failures have a recovery of their own.
"""

from __future__ import annotations

import math
from dataclasses import field, replace

from mofa_model.checks import LATER, not_negative, positive, share, whole
from mofa_model.errors import BadValue
from mofa_model.records import dataclass
from mofa_model.spec.recovery_classes import RecoveryClass
from mofa_model.units import DAY, BytesPerSecond, Ratio, Seconds

RECOVERY_LAWS = ("deterministic", "exponential", "lognormal")
FAILURE_LAWS = ("exponential", "weibull", "mixture")
PRIOR_WEIGHT = 2.0
"""Failures that an assumed rate is worth: published fleets differ tenfold, which is the 90 %
interval of Gamma(2)."""

PAPER_RATE = 0.005
"""Default failures per node-day: section 5 of the paper. [1/d]"""

COPY_SLOWDOWN = 0.88
"""Default slowdown of steps while a copy is in flight, at its worst: 372 of 700 tokens/s
and GPU while a process beside the trainer writes. Source: PyTorch on 1,856 H200s, Llama 3 70B
(pytorch.org, 30 April 2025). [1]"""

_NEVER = 1e-305
"""An assumed rate up to this counts as zero, because its exposure would not be finite. [1/d]"""


@dataclass(frozen=True, kw_only=True)
class FailureRate:
    """A Gamma posterior of failures per node-second."""

    failures: float
    """Failures seen, with the prior's. [1]"""
    exposure: float
    """Node-time watched, with the prior's. [node s]"""
    exactly: float | None = None
    """A rate that is exactly known; then the two fields above are not used. [1/s per node]"""

    def __post_init__(self) -> None:
        if self.exactly is not None:
            not_negative(rate=self.exactly)
            return
        not_negative(failures=self.failures)
        positive(exposure=self.exposure)

    @classmethod
    def assumed(cls, per_node_day: float, weight: float = PRIOR_WEIGHT) -> FailureRate:
        """An assumed rate in failures per node-day, worth `weight` observed failures; with an
        infinite weight it is exactly known.
        """
        not_negative(failures_per_node_day=per_node_day)
        exposure = weight * DAY / max(per_node_day, _NEVER)
        if math.isinf(exposure):
            return cls(failures=0.0, exposure=1.0, exactly=per_node_day / DAY)
        positive(prior_weight=weight)
        return cls(failures=weight, exposure=exposure)

    @property
    def mean(self) -> float:
        """Posterior mean. [1/s per node]"""
        return self.failures / self.exposure if self.exactly is None else self.exactly

    def scaled(self, share: float) -> FailureRate:
        """A part of the rate; the posteriors of all parts add to the whole's. Source: Poisson
        thinning.
        """
        if self.exactly is not None or share == 0:
            return FailureRate(failures=0.0, exposure=1.0, exactly=self.mean * share)
        return FailureRate(failures=self.failures * share, exposure=self.exposure)


@dataclass(frozen=True, kw_only=True)
class RecoveryTime:
    """Time from a failure to the first new step, by law, mean and spread."""

    mean: Seconds
    """Mean: detect, diagnose, schedule, load, warm up. [s]"""
    law: str = "lognormal"
    """deterministic, exponential or lognormal."""
    cv: float = 1.0
    """Standard deviation over mean; used by lognormal. [1]"""

    def __post_init__(self) -> None:
        if self.law not in RECOVERY_LAWS:
            raise BadValue("recovery.law", self.law, f"one of {', '.join(RECOVERY_LAWS)}")
        not_negative(recovery_mean=self.mean, recovery_cv=self.cv)


@dataclass(frozen=True, kw_only=True)
class FailureMode:
    """Failures with the same recovery: how often they come, how long recovery takes, which
    checkpoint it can read.
    """

    name: str
    """A recovery class, or what a caller calls it."""
    rate: FailureRate
    """How often, per node."""
    recovery: RecoveryTime
    """Time to recover, without queueing."""
    tier: int = 0
    """Index of the nearest checkpoint tier that survives the failure."""
    queues: bool = False
    """Whether the recovery waits in the scheduler's queue first."""
    wait: RecoveryTime | None = field(default=None, metadata=LATER)
    """Time that passes before the recovery begins, such as that of restarts which do not help."""

    def __post_init__(self) -> None:
        not_negative(tier=self.tier)
        whole(tier_number=self.tier + 1)


@dataclass(frozen=True, kw_only=True)
class Domain:
    """Nodes that fail together: a rack, a power feed, a leaf switch."""

    name: str
    """What it is."""
    nodes: int
    """Nodes in one domain. [1]"""
    rate: float
    """Failures of one domain. [1/s]"""
    recovery: RecoveryTime
    """Time to recover from its loss."""
    tier: int = 0
    """Index of the nearest tier that survives; copies on peers inside the domain do not."""

    def __post_init__(self) -> None:
        whole(domain_nodes=self.nodes, tier_number=self.tier + 1)
        not_negative(domain_rate=self.rate)


@dataclass(frozen=True, kw_only=True)
class CheckpointTier:
    """Where checkpoints go: how fast, and whether training waits."""

    name: str
    """local, peer or remote."""
    node_bandwidth: BytesPerSecond
    """What one node can write there. [B/s]"""
    total_bandwidth: BytesPerSecond = math.inf
    """What all nodes together can write there. [B/s]"""
    asynchronous: bool = True
    """Training goes on while the copy is written; a failure loses a copy in flight."""
    snapshot_bandwidth: BytesPerSecond = math.inf
    """Device to host memory of one node, which an asynchronous save blocks for. [B/s]"""
    latency: Seconds = 0.0
    """Time of a save with no payload. [s]"""
    stall: Seconds = 0.0
    """Time that training waits at a save of any size: barrier, planning, thread start. [s]"""
    every: int | None = None
    """Saves of the nearest tier for one of this; None = choose the best. [1]"""

    def __post_init__(self) -> None:
        for name, value in (
            ("node_bandwidth", self.node_bandwidth),
            ("total_bandwidth", self.total_bandwidth),
            ("snapshot_bandwidth", self.snapshot_bandwidth),
        ):
            if not value > 0:
                raise BadValue(name, value, "give a bandwidth above zero")
        not_negative(latency=self.latency, stall=self.stall)
        if self.every is not None:
            whole(every=self.every)


@dataclass(frozen=True, kw_only=True)
class FailureLaw:
    """The law of the time between failures of the job; its mean comes from the rates."""

    kind: str = "exponential"
    """exponential (Poisson failures), weibull, or a mixture of two exponentials (lemon nodes)."""
    shape: float = 1.0
    """Weibull shape; below one failures cluster. [1]"""
    short_share: float = 0.0
    """Mixture: share of times from the short component. [1]"""
    short_mean: float = 1.0
    """Mixture: mean of the short component over the mean of all. [1]"""

    def __post_init__(self) -> None:
        if self.kind not in FAILURE_LAWS:
            raise BadValue("law", self.kind, f"one of {', '.join(FAILURE_LAWS)}")
        positive(shape=self.shape, short_mean=self.short_mean)
        share(short_share=self.short_share)
        if not 0.05 <= self.shape <= 50:
            raise BadValue("shape", self.shape, "give a Weibull shape between 0.05 and 50")
        if self.short_share * self.short_mean >= 1 and self.short_share > 0:
            raise BadValue(
                "short_mean", self.short_mean, "short_share x short_mean must stay below one"
            )


@dataclass(frozen=True, kw_only=True)
class Hangs:
    """Failures that end no process: all processes wait for each other until a timeout ends them."""

    timeout: Seconds
    """Time from the failure to the end of the processes: of the collectives, or of a watchdog.
    [s]"""
    share: float = 1.0
    """Their share of all failures. [1]"""
    pauses: float = field(default=0.0, metadata=LATER)
    """Rate of pauses without a step, such as evaluations; one that outlasts the timeout is ended,
    too. [1/s]"""
    pause: RecoveryTime = field(default=RecoveryTime(mean=0.0), metadata=LATER)
    """Length of such a pause."""

    def __post_init__(self) -> None:
        not_negative(hang_timeout=self.timeout, pauses=self.pauses)
        share(hang_share=self.share)


@dataclass(frozen=True, kw_only=True)
class Reliability:
    """How a pool fails and recovers."""

    classes: tuple[FailureMode, ...]
    """Failures by recovery class; each recovery is of one class."""
    tiers: tuple[CheckpointTier, ...] = ()
    """Checkpoint tiers, nearest first; empty = save times are given by the caller, one tier."""
    slowdown: float = 0.0
    """Relative slowdown of steps while a copy is in flight (epsilon). [1]"""
    law: FailureLaw = FailureLaw()
    """Law of the time between failures."""
    failures_during_recovery: bool = True
    """Whether the failure clock also runs while the job recovers."""
    queue: RecoveryTime | None = None
    """Scheduler queue that `queues` classes wait in first."""
    spares: int | None = None
    """Spare nodes; None = a broken node is always replaced at once. [1]"""
    repair: Seconds = DAY
    """Mean repair time of a broken node, used with `spares`. [s]"""
    domains: tuple[Domain, ...] = ()
    """Nodes that fail together."""
    start: Seconds = 0.0
    """Initialisation of the run, paid once (T_init). [s]"""
    hangs: Hangs | None = field(default=None, metadata=LATER)
    """Failures that have to be noticed first; None = recovery times include that."""

    def __post_init__(self) -> None:
        if not self.classes:
            raise BadValue("classes", self.classes, "give at least one recovery class")
        not_negative(slowdown=self.slowdown, start=self.start)
        positive(repair=self.repair)
        if self.spares is not None:
            whole(spares_and_one=self.spares + 1)
        count = len(self.tiers)
        sources: tuple[FailureMode | Domain, ...] = (*self.classes, *self.domains)
        for source in sources:
            if count and source.tier >= count:
                raise BadValue(
                    f"{source.name}.tier", source.tier, f"there are {count} tiers, counted from 0"
                )


def paper_classes(
    per_node_day: float = PAPER_RATE, weight: float = PRIOR_WEIGHT
) -> tuple[FailureMode, ...]:
    """The classes of section 3.4 of the paper (shares 3:6:1; 141, 262 and 307 s), at an assumed
    total rate.

    >>> [round(mode.rate.mean * 86400, 4) for mode in paper_classes()]
    [0.0015, 0.003, 0.0005]
    """
    return tuple(
        FailureMode(
            name=recovery_class.value,
            rate=FailureRate.assumed(
                recovery_class.share * per_node_day,
                recovery_class.share * weight if math.isfinite(weight) else weight,
            ),
            recovery=RecoveryTime(mean=recovery_class.seconds, law="deterministic"),
        )
        for recovery_class in RecoveryClass
        if recovery_class.share
    )


def part_of_storage(reliability: Reliability, share: Ratio) -> Reliability:
    """The reliability of a job that has a share of each node's devices, and so the same share of
    the node's bandwidth for checkpoints. Ours. []
    """
    if float(share) == 1.0:
        return reliability
    tiers = (
        replace(
            tier,
            node_bandwidth=tier.node_bandwidth * share,
            snapshot_bandwidth=tier.snapshot_bandwidth * share,
        )
        for tier in reliability.tiers
    )
    return replace(reliability, tiers=tuple(tiers))
