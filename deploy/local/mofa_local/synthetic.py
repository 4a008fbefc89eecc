"""A made-up past of a pool of nodes: jobs that ran on it, and everything that went wrong, as data.

`draw` makes one from counts and mean recovery times, seeded; or write the events by hand. `truth` says what anyone who
looks at it should count. `series.py` turns it into what exporters would have shown.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

DAY: Final = 86400
HOUR: Final = 3600
CLASSES: Final = ("process", "pod", "job")

RecoveryClass = Literal["process", "pod", "job"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Incident:
    """One recovery of one job, however many pods it touched."""

    at: float
    """When training stopped, in seconds of the epoch. [s]"""
    job: str
    """Which job."""
    level: RecoveryClass
    """process: containers restart in their pods; pod: one pod is replaced; job: every pod is new."""
    recovery: float
    """Until steps advanced again. [s]"""
    slot: int = 0
    """Pod that is replaced, at level pod. [1]"""
    repair: float | None = None
    """Time for which the pod's node was down, where the node was the cause. [s]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
    """A node taken out by hand: no failure."""

    at: float
    """When it was cordoned. [s]"""
    until: float
    """When it was given back. [s]"""
    node: str
    """Which node."""
    down: bool = False
    """Whether it was NotReady meanwhile (drained and rebooted), from a quarter of the time to three quarters."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Gap:
    """A time without samples."""

    at: float
    """Start. [s]"""
    until: float
    """End. [s]"""
    server: bool = False
    """True: Prometheus itself was down, nothing was sampled. False: kube-state-metrics was down, and `up` says so."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """A JobSet that trained from the first day to the last."""

    name: str
    """Its name."""
    nodes: int
    """Its pods, one a node. [1]"""
    namespace: str = "research"
    """Its namespace."""
    step_seconds: float = 20.0
    """Time of a step. [s]"""
    tokens: float = 16_777_216
    """Tokens of a step. [1]"""
    checkpoint_steps: int = 100
    """Steps between checkpoints; training falls back to the last one. [1]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Past:
    """What happened on a pool, and how it was sampled."""

    start: int
    """First moment, in seconds of the epoch. [s]"""
    end: int
    """Last moment. [s]"""
    nodes: tuple[str, ...]
    """Names of the pool's nodes; jobs take them from the front, the rest is spare."""
    labels: Mapping[str, str]
    """Labels of every node."""
    jobs: tuple[Job, ...]
    """Jobs that ran."""
    incidents: tuple[Incident, ...] = ()
    """What went wrong, in order of time; incidents of a job do not overlap."""
    planned: tuple[Planned, ...] = ()
    """What was done by hand."""
    gaps: tuple[Gap, ...] = ()
    """When nothing was sampled."""
    missing: frozenset[str] = frozenset()
    """Metrics that no exporter served."""
    replicas: int = 1
    """kube-state-metrics replicas that were scraped: each series comes as often."""
    step: int = 300
    """Time between samples of nodes. [s]"""
    pod_step: int = 300
    """Time between samples of pods. [s]"""
    trainer_step: int = 30
    """Time between samples of trainers. [s]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Truth:
    """What a look at the past should find."""

    failures: Mapping[str, int]
    """Incidents by class. [1]"""
    recovery: Mapping[str, float]
    """Mean time from stop to next step, by class; classes without incidents are left out. [s]"""
    node_failures: int
    """Incidents whose cause was a node. [1]"""
    node_days: float
    """Node-days in which a node was ready and sampled. [node d]"""
    possible_node_days: float
    """Nodes times days. [node d]"""
    coverage: float
    """Share of the time in which kube-state-metrics was sampled. [1]"""
    failures_by_node: Mapping[str, int] = field(default_factory=dict)
    """Node failures by node. [1]"""


def node_names(count: int, prefix: str = "gpu") -> tuple[str, ...]:
    """Names of fake nodes.

    >>> node_names(256)[17]
    'gpu-017'
    """
    return tuple(f"{prefix}-{number:03d}" for number in range(count))


def draw(
    *,
    end: int,
    seed: int = 1,
    nodes: int = 256,
    days: int = 120,
    jobs: tuple[Job, ...] = (Job(name="pretrain-a", nodes=124), Job(name="pretrain-b", nodes=124)),
    failures: Mapping[RecoveryClass, int] | None = None,
    recovery: Mapping[RecoveryClass, float] | None = None,
    node_caused: float = 0.6,
    labels: Mapping[str, str] | None = None,
    pod_step: int = 300,
) -> Past:
    """A past with exactly these counts, and recovery times that scatter around exactly these means. Ours.

    `node_caused` is the share of pod incidents that a node causes. Incidents of a job keep an hour between them, so that
    samples an hour apart miss no pod.

    >>> truth(draw(end=1_700_000_000, nodes=8, days=9, jobs=(Job(name="a", nodes=6),))).failures["pod"]
    85
    """
    counts = failures or {"process": 44, "pod": 85, "job": 15}
    means = recovery or {"process": 150.0, "pod": 280.0, "job": 420.0}
    source = random.Random(seed)  # noqa: S311 - a reproducible history, no secret
    end -= end % HOUR
    start = end - days * DAY
    cells = [(job.name, start + number * 2 * HOUR) for job in jobs for number in range(1, days * 12)]
    levels = [level for level, count in counts.items() for _ in range(count)]
    if len(levels) > len(cells):
        raise ValueError(f"{len(levels)} incidents in {days} days: at most {len(cells)} keep two hours apart")
    source.shuffle(levels)
    times = _recoveries(levels, means, source)
    size = {job.name: job.nodes for job in jobs}
    incidents = [
        Incident(
            at=cell + source.randrange(300, HOUR - 300),
            job=job,
            level=level,
            recovery=time,
            slot=source.randrange(size[job]) if level == "pod" else 0,
        )
        for (job, cell), level, time in zip(source.sample(cells, len(levels)), levels, times, strict=True)
    ]
    return Past(
        start=start,
        end=end,
        nodes=node_names(nodes),
        labels=labels or {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
        jobs=jobs,
        incidents=_blame_nodes(sorted(incidents, key=lambda one: one.at), node_caused, end, source),
        pod_step=pod_step,
    )


def _recoveries(
    levels: list[RecoveryClass], means: Mapping[RecoveryClass, float], source: random.Random
) -> list[float]:
    """Recovery times with coefficient of variation one half, scaled so that each class has exactly its mean. [s]"""
    raw = [source.gammavariate(4.0, 0.25) + 0.1 for _ in levels]
    total = {
        level: sum(time for one, time in zip(levels, raw, strict=True) if one == level) for level in levels
    }
    return [
        means[level] * time * levels.count(level) / total[level]
        for level, time in zip(levels, raw, strict=True)
    ]


def _blame_nodes(
    incidents: list[Incident], share: float, end: int, source: random.Random
) -> tuple[Incident, ...]:
    """The same incidents, with nodes as the cause of this share of the pod incidents; a repair takes one to three hours."""
    pods = [number for number, one in enumerate(incidents) if one.level == "pod"]
    blamed = set(source.sample(pods, round(share * len(pods))))
    repair = {
        number: min(source.uniform(1, 3) * HOUR, end - incidents[number].at) for number in sorted(blamed)
    }
    return tuple(
        Incident(
            at=one.at,
            job=one.job,
            level=one.level,
            recovery=one.recovery,
            slot=one.slot,
            repair=repair.get(number),
        )
        for number, one in enumerate(incidents)
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Life:
    """One pod, from its creation to its deletion."""

    job: Job
    """Its job."""
    attempt: int
    """Restart attempt of the whole job. [1]"""
    slot: int
    """Completion index. [1]"""
    generation: int
    """How many pods had this slot before, in this attempt. [1]"""
    node: str
    """Its node."""
    born: float
    """Creation. [s]"""
    ready: float
    """When it was ready. [s]"""
    died: float | None
    """Deletion; None = it still runs. [s]"""
    restarts: tuple[tuple[float, float], ...]
    """Restarts of its container: when it ended, when it started again. [s]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Played:
    """The past, played from event to event."""

    lives: tuple[Life, ...]
    """Every pod that was."""
    down: Mapping[str, tuple[tuple[float, float], ...]]
    """When each node was NotReady. [s]"""
    cordoned: Mapping[str, tuple[tuple[float, float], ...]]
    """When each node was cordoned. [s]"""
    failed: Mapping[str, int]
    """Failures of each node. [1]"""


CONTAINER_SHARE: Final = 0.25
"""Share of a process recovery in which the container is down; loading and lost steps are the rest."""
POD_SHARE: Final = 0.6
"""Share of a pod or job recovery after which the new pods are ready."""


def play(past: Past) -> Played:
    """What became of pods and nodes: a failed node's pod moves to a spare, and the node is spare once it is repaired."""
    free = list(past.nodes)
    seats: dict[tuple[str, int], dict[str, object]] = {}
    placed: dict[tuple[str, int], tuple[int, int, str, float, float]] = {}
    restarts: dict[tuple[str, int], list[tuple[float, float]]] = {}
    del seats
    down: dict[str, list[tuple[float, float]]] = {name: [] for name in past.nodes}
    cordoned: dict[str, list[tuple[float, float]]] = {name: [] for name in past.nodes}
    failed: dict[str, int] = {}
    lives: list[Life] = []
    del free, placed, restarts, lives
    raise NotImplementedError
