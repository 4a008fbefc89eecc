"""ClusterProfile: a pool of nodes: hardware, network, storage, failures, and what was learned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias

from pydantic import Field, StringConstraints

from mofa_model.advice.request import UNTAUGHT, LearnedMemory
from mofa_model.manifest.failure_history import MOST, ClassName, DayPart, HistoryRow, WeekPart
from mofa_model.manifest.fields import (
    UNIQUE,
    AtLeastOne,
    Count,
    Decimal,
    Devices,
    Fabric,
    Label,
    LabelValue,
    Moment,
    Name,
    Part,
    Percent,
    Positive,
    Rate,
    Seconds,
    SeriesLabel,
    Signed,
    Size,
    SomeSeconds,
    Word,
    Zero,
    keyed,
)
from mofa_model.manifest.status import Condition
from mofa_model.manifest.training_job import default
from mofa_model.spec.evidence import FailureEvidence
from mofa_model.spec.incident_causes import CAUSES, SHORTEST_OUTAGE, XidMeaning
from mofa_model.spec.reliability import COPY_SLOWDOWN

EXPORTERS: Final = (
    "amazon-cloudwatch", "cattle-monitoring-system", "gke-managed-cim", "gke-managed-system",
    "gmp-public", "gmp-system", "gpu-operator", "kube-prometheus-stack", "kube-system",
    "monitoring",
    "node-problem-detector", "nvidia-gpu-operator", "nvsentinel", "observability",
    "openshift-monitoring", "openshift-nfd", "prometheus", "prometheus-operator",
)  # fmt: skip
"""Namespaces in which exporters of a cluster usually run, and its tenants do not."""


IncidentId: TypeAlias = Annotated[
    str,
    StringConstraints(
        min_length=1,
        max_length=360,
        pattern=r"^(node|domain|job)/[A-Za-z0-9._/:-]+"
        r"@[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$",
    ),
    Field(examples=["node/gpu-17@2026-01-31T09:30:00Z"]),
]
"""An incident, as `mofa incidents` prints it: of what, its name, and when it began."""
XidNumber: TypeAlias = Annotated[
    str,
    StringConstraints(min_length=1, max_length=4, pattern=r"^[1-9][0-9]*$"),
    Field(examples=["94"]),
]
"""Number of an XID."""

if TYPE_CHECKING:
    CauseWord: TypeAlias = str
    XidWord: TypeAlias = str
else:
    CauseWord = Literal[tuple(CAUSES)]
    XidWord = Literal[tuple(meaning.value for meaning in XidMeaning)]


class IncidentRules(Part):
    """What counts as a failure here, where that differs from what is usual."""

    xids: Annotated[dict[XidNumber, XidWord], Field(max_length=128, examples=[{"94": "note"}])] = (
        Field(default_factory=dict)
    )
    """What XIDs mean here, by number: hardware counts as a failure, program and note do not;
    clean-up is told of any program that ends. One that is not listed means what NVIDIA says of
    it."""
    shortest_outage_seconds: Annotated[int, Field(ge=30, le=3600, examples=[300])] = SHORTEST_OUTAGE
    """How long a node has to be not ready, on the same boot, for it to be a failure; less is a
    flap."""
    checkpoint_seconds: Annotated[int, Field(ge=10, le=604_800, examples=[1800])] | None = None
    """How often jobs save whose steps nobody publishes, and of which nothing else says it: the
    account puts down what they lost to it; missing = half an hour. It says what is estimated."""
    overruled: Annotated[
        dict[IncidentId, CauseWord],
        Field(max_length=256, examples=[{"node/gpu-17@2026-01-31T09:30:00Z": "planned-drain"}]),
    ] = Field(default_factory=dict)
    """Incidents whose cause somebody knows better, by the id that mofa incidents prints; none = it
    was no failure."""


class Lesson(Part):
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
    """Observed over predicted peak of device memory, as it is to be expected of the next job;
    missing = nobody saw it."""
    memory_spread: Decimal | None = None
    """Logarithm by which four of five jobs differ from that at most: the band of memory is no
    wider."""
    jobs: Zero
    """Jobs that it rests on."""
    time: Moment | None = None
    """When it was written: seldom, and only when it changes."""
    moved_time: Moment | None = None
    """When the ratio last moved, where several namespaces teach it: then it moves by two percent a
    day at most."""
    asked: Annotated[str, Field(max_length=64)] | None = None
    """The factors with which every job was asked whether they change its answer; where they are
    those above, nobody asks again."""
    evidence: Annotated[list[Lesson], Field(max_length=16)] = keyed("job")
    """What it rests on, job by job; a job that is gone stays until it counts for little."""

    @property
    def of_memory(self) -> LearnedMemory:
        """The learned factor on device memory, with its spread; the neutral one where none
        was learned.
        """
        ratio, spread = float(self.memory_ratio or 0), float(self.memory_spread or 0)
        return (
            LearnedMemory(ratio=round(ratio, 2), spread=round(spread, 2))
            if ratio and spread
            else UNTAUGHT
        )


Tier = Literal["Local", "Peer", "Remote"]


class Network(Part):
    """Links between devices; a missing one is what usually stands around the device."""

    scale_up: Fabric | None = Field(default=None, examples=["nvlink4"])
    """NVLink and its kin: a fabric preset, or one device's bandwidth in one direction."""
    scale_out: Fabric | None = Field(default=None, examples=["ndr", "400 Gbit/s"])
    """The fabric between nodes: a preset, or one device's share of the bandwidth in one
    direction."""
    scale_up_domain: Count | None = None
    """Devices that reach each other over the scale-up link: 8 for HGX, 72 for NVL72."""
    leaf_group_nodes: Zero = 0
    """Nodes below one leaf group; 0 = the fabric does not thin out above it."""
    oversubscription: AtLeastOne = "1"
    """How much thinner the fabric is above a leaf group, at least 1."""
    in_network_reduction: bool = False
    """True where switches add up all-reduces (SHARP)."""


class HostPart(Part):
    """The node around the devices, for offloading."""

    memory: Size | None = Field(default=None, examples=["2 TiB"])
    """Main memory of a node."""
    link: Fabric | None = Field(default=None, examples=["pcie5"])
    """The way between one device and the host: a preset or a bandwidth."""


class StorageTier(Part):
    """Where checkpoints go."""

    name: Tier
    """Local = the node's own memory or disk; Peer = another node's; Remote = shared storage."""
    node_bandwidth: Rate
    """What one node can write there."""
    total_bandwidth: Rate | None = None
    """What all nodes together can write there; missing = no common limit."""
    snapshot_bandwidth: Rate | None = None
    """Device to host memory of one node, which an asynchronous save blocks for; missing = all its
    host links."""
    latency_seconds: Seconds = 0
    """Time of a save with no payload."""
    stall_seconds: Seconds = 1
    """What any save costs the step that it falls into: barrier, planning, thread start."""
    every: Count | None = None
    """Saves of the nearest tier for one of this; missing = the best is chosen."""


class Storage(Part):
    """Where checkpoints go, nearest first."""

    tiers: Annotated[list[StorageTier], Field(max_length=3)] = keyed("name")
    """Tiers, nearest first."""
    slowdown_percent: Annotated[int, Field(ge=0, le=1000)] = round(100 * COPY_SLOWDOWN)
    """How much slower steps are while a copy is in flight: 88 was measured where a process beside
    the trainer copies, 122 where its own threads do."""


class FailureClass(Part):
    """What is assumed of one recovery class."""

    name: ClassName
    """Recovery class: they partition recoveries."""
    failures_per_thousand_node_days: Decimal
    """Assumed failures that need this class."""
    recovery_seconds: Seconds
    """Mean time from the failure to the first new step, without queueing."""
    recovery_law: Literal["Deterministic", "Exponential", "Lognormal"] = "Lognormal"
    """Law of the recovery time."""
    recovery_spread: Decimal = "1"
    """Standard deviation of the recovery time over its mean."""
    tier: Tier | None = None
    """Nearest checkpoint tier that survives; missing = the nearest for process, the farthest for
    the others."""
    queues: bool = False
    """Whether the recovery waits in the scheduler's queue first."""


class FailureDomain(Part):
    """Nodes that fail together."""

    name: Word
    """What it is: a rack, a power feed, a leaf switch."""
    nodes: Count
    """Nodes in one domain."""
    failures_per_thousand_days: Decimal
    """Failures of one domain."""
    recovery_seconds: Seconds
    """Mean time to recover from its loss."""


class HangPart(Part):
    """Failures that end no process, until a timeout does."""

    share_percent: Percent
    """Their share of all failures."""
    timeout_seconds: SomeSeconds
    """From the failure to the end of the processes: of the collectives, or of a watchdog."""


class Failures(Part):
    """What is assumed of failures and recoveries."""

    classes: Annotated[list[FailureClass], Field(max_length=MOST)] = keyed("name")
    """Recovery classes; those that are missing are assumed as in section 3.4 of the paper."""
    prior_weight: Positive = "2"
    """Failures that the assumptions are worth when they are blended with history."""
    domains: Annotated[list[FailureDomain], Field(max_length=8)] = keyed("name")
    """What fails together."""
    queue_seconds: Seconds = 0
    """Mean wait in the scheduler's queue."""
    spare_nodes: Zero | None = None
    """Spare nodes; missing = a broken node is always replaced at once."""
    repair_seconds: SomeSeconds = 86400
    """Mean repair time of a broken node."""
    start_seconds: Seconds = 0
    """Initialisation of a run, paid once."""
    hangs: HangPart | None = None
    """Failures that have to be noticed first, before their recovery begins; missing = recovery
    times say all."""


class PrometheusSpec(Part):
    """How this pool's history is asked for; the operator knows the address of the server."""

    matchers: Annotated[dict[SeriesLabel, LabelValue], Field(max_length=16)] = Field(
        default_factory=dict
    )
    """Labels that every query carries, for example the cluster."""
    window_seconds: Annotated[int, Field(ge=3600, le=31_536_000, examples=[2_592_000])] = 2_592_000
    """How far back history is counted."""
    node_label: SeriesLabel | None = Field(default=None, examples=["exported_node"])
    """Label of kube-state-metrics' series that names the node; missing = the one that does is
    found."""
    exporter_namespaces: Annotated[list[Name], Field(min_length=1, max_length=32)] = Field(
        default=list(EXPORTERS), examples=[["monitoring", "gpu-operator"]], json_schema_extra=UNIQUE
    )
    """Namespaces whose targets are believed when they speak of nodes, devices and pods of
    others."""
    tokens_query: Annotated[str, Field(min_length=1, max_length=2048)] | None = None
    """PromQL for tokens per second of a job, where no preset fits."""
    step_query: Annotated[str, Field(min_length=1, max_length=2048)] | None = None
    """PromQL for a job's last finished step, where no preset fits."""


class ClusterProfileSpec(Part):
    """What is known of a pool of nodes."""

    node_selector: Annotated[dict[Label, LabelValue], Field(max_length=16)] = Field(
        default_factory=dict
    )
    """Labels of the nodes that belong to the pool."""
    gpu: Word
    """GPU preset, or the value of the node label nvidia.com/gpu.product."""
    gpus_per_node: Devices | None = None
    """GPUs of a node; missing = as the GPU's preset says."""
    network: Network = default(Network)
    """Links between devices."""
    host: HostPart = default(HostPart)
    """The node around the devices."""
    checkpoint_storage: Storage = default(Storage)
    """Where checkpoints go."""
    failures: Failures = default(Failures)
    """What is assumed of failures and recoveries."""
    incidents: IncidentRules = default(IncidentRules)
    """What counts as a failure here, where that differs from what is usual."""
    prometheus: PrometheusSpec = default(PrometheusSpec)
    """How this pool's history is asked for."""


class EarlierSize(Part):
    """A size that a pool had."""

    nodes: Zero
    """Nodes that advice was for."""
    until: Moment
    """When another size followed."""


class Nodes(Part):
    """The pool's nodes."""

    total: Zero
    """Nodes that match the selector."""
    ready: Zero
    """Nodes that are ready and not cordoned."""
    cordoned: Zero | None = None
    """Nodes that are cordoned."""
    steady: Zero | None = None
    """Nodes that advice is for where a job does not say how many: ready ones, and those that have
    been away for a short time only."""
    since: Moment | None = None
    """Since when so many are ready, where that is another number."""
    earlier: Annotated[list[EarlierSize], Field(max_length=32)] = Field(default_factory=list)
    """Sizes that the pool had in the last hours, each with its end; the latest last."""
    lately: Zero | None = None
    """Nodes that the pool had nearly always in the last hours, where it has more now."""

    @property
    def reliable(self) -> int:
        """Nodes that a new job's size can count with. [1]"""
        return self.counted if self.lately is None else min(self.counted, self.lately)

    @property
    def counted(self) -> int:
        """Nodes that advice is for. [1]"""
        return self.ready if self.steady is None else self.steady


class AllClasses(Part):
    """Failures of all recovery classes together, per thousand node-days."""

    atomic = True

    assumed: Decimal
    """What is assumed, to three digits."""
    observed: Decimal | None = None
    """What was counted, to three digits; missing = nothing was watched yet."""
    coverage_percent: Percent | None = None
    """Share of the window for which there is data."""


class GainPart(Part):
    """GPU-hours that a change would have gained. The true number lies between lower and upper in
    four of five cases.
    """

    lower: Decimal
    """Less than this was gained once in ten times."""
    target: Decimal
    """What was gained."""
    upper: Decimal
    """More than this was gained once in ten times."""


class HelpfulChange(Part):
    """A change that would have helped."""

    change: Annotated[str, Field(max_length=20)]
    """What is changed, in one word: watchdog, in-place, peer, stand-in, replica, shrink, interval,
    scheduling, spares or lemons."""
    gained: GainPart
    """What it would have gained."""
    paid_gpu_hours: Decimal | None = None
    """GPU-hours that it would have cost; missing = none."""
    says: Annotated[str, Field(max_length=400)]
    """The same as a sentence."""


class WhatWouldHelpPart(Part):
    """The pool's own account of its window, replayed once a day with one change at a time, as
    `mofa rates --what-would-help` does.
    """

    atomic = True

    outcome: Literal["Recommended", "LowConfidence", "NoRecommendation"]
    """Recommended; LowConfidence where the past is short; NoRecommendation where no change has a
    sure gain."""
    doubt: Annotated[str, Field(max_length=400)] | None = None
    """Why it is not Recommended, as a sentence."""
    days: Decimal
    """How many days were replayed."""
    paid_gpu_hours: Decimal
    """GPU-hours of the pool in them."""
    effective_gpu_hours: Decimal
    """GPU-hours of these that trained and were kept."""
    effective_percent: Percent
    """The share of them: one number of a fleet."""
    changes: Annotated[list[HelpfulChange], Field(max_length=5)] = Field(default_factory=list)
    """The best few, each alone: gains of two do not add up."""
    time: Moment
    """When it was replayed."""


class ClusterProfileStatus(Part):
    """What the operator has learned of the pool; its durable memory."""

    observed_generation: Zero | None = None
    """Generation of the spec that this status is of."""
    nodes: Nodes | None = None
    """The pool's nodes."""
    failures: Annotated[list[HistoryRow], Field(max_length=MOST)] = keyed("name")
    """History by recovery class."""
    total: AllClasses | None = None
    """All recovery classes together."""
    days: Annotated[list[DayPart], Field(max_length=800)] = keyed("date", "witness")
    """Deprecated: what version 0.1.0 kept here. It is moved to the FailureLedger of the same name,
    and never written again."""
    weeks: Annotated[list[WeekPart], Field(max_length=53)] = keyed("date")
    """Deprecated, like the days."""
    history_time: Moment | None = None
    """When the history was written: seldom, and only when it changes much; the metrics have every
    moment."""
    calibration: CalibrationStatus | None = None
    """What running jobs taught about predictions."""
    residual: Signed | None = None
    """Observed over predicted throughput, minus one, median of running jobs."""
    what_would_help: WhatWouldHelpPart | None = None
    """What would have helped the pool, in GPU-hours."""
    conditions: Annotated[list[Condition], Field(max_length=16)] = keyed("type")
    """Ready, HistoryComplete, AssumptionsHold, NodesExclusive."""

    def evidence(self) -> dict[str, FailureEvidence]:
        """Counted failures of the status, by recovery class."""
        return {row.name: row.evidence for row in self.failures}
