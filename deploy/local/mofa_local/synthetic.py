"""A made-up past of a pool of nodes: jobs that ran on it, and everything that went wrong, as data.

`draw` makes one from counts and mean recovery times, seeded; or write the events by hand. `truth`
says what anyone who looks at it should count. `series.py` turns it into what exporters would
have shown.
"""

from __future__ import annotations

import heapq
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
    """process: containers restart in their pods; pod: one pod is replaced; job: every pod
    is new.
    """
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
    """Whether it was NotReady meanwhile (drained and rebooted), from a quarter of the time to
    three quarters.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class Gap:
    """A time without samples."""

    at: float
    """Start. [s]"""
    until: float
    """End. [s]"""
    server: bool = False
    """True: Prometheus itself was down, nothing was sampled. False: kube-state-metrics was down,
    and `up` says so.
    """


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
    """A past with exactly these counts, and recovery times that scatter around exactly these means.
    Ours.

    `node_caused` is the share of pod incidents that a node causes. Incidents of a job keep an hour
    between them, so that samples an hour apart miss no pod.

    >>> past = draw(end=1_700_000_000, nodes=8, days=20, jobs=(Job(name="a", nodes=6),))
    >>> truth(past).failures["pod"]
    85
    """
    counts = failures or {"process": 44, "pod": 85, "job": 15}
    means = recovery or {"process": 150.0, "pod": 280.0, "job": 420.0}
    source = random.Random(seed)  # noqa: S311 - a reproducible history, no secret
    end -= end % 300
    start = end - days * DAY
    cells = [
        (job.name, start + number * 2 * HOUR) for job in jobs for number in range(1, days * 12)
    ]
    levels = [level for level, count in counts.items() for _ in range(count)]
    if len(levels) > len(cells):
        raise ValueError(
            f"{len(levels)} incidents in {days} days: at most {len(cells)} keep two hours apart"
        )
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
        for (job, cell), level, time in zip(
            source.sample(cells, len(levels)), levels, times, strict=True
        )
    ]
    return Past(
        start=start,
        end=end,
        nodes=node_names(nodes),
        labels=labels or {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
        jobs=jobs,
        incidents=_blame_nodes(
            sorted(incidents, key=lambda incident: incident.at), node_caused, end, source
        ),
        pod_step=pod_step,
    )


def _recoveries(
    levels: list[RecoveryClass], means: Mapping[RecoveryClass, float], source: random.Random
) -> list[float]:
    """Recovery times with coefficient of variation one half, scaled so that each class has exactly
    its mean. [s]
    """
    raw = [source.gammavariate(4.0, 0.25) + 0.1 for _ in levels]
    total = {
        level: sum(time for other, time in zip(levels, raw, strict=True) if other == level)
        for level in levels
    }
    return [
        means[level] * time * levels.count(level) / total[level]
        for level, time in zip(levels, raw, strict=True)
    ]


def _blame_nodes(
    incidents: list[Incident], share: float, end: int, source: random.Random
) -> tuple[Incident, ...]:
    """The incidents, of which a share of those of pods is now caused by nodes, whose repair takes
    one to three hours.
    """
    pods = [number for number, incident in enumerate(incidents) if incident.level == "pod"]
    blamed = set(source.sample(pods, round(share * len(pods))))
    repair = {
        number: min(source.uniform(1, 3) * HOUR, end - incidents[number].at)
        for number in sorted(blamed)
    }
    return tuple(
        Incident(
            at=incident.at,
            job=incident.job,
            level=incident.level,
            recovery=incident.recovery,
            slot=incident.slot,
            repair=repair.get(number),
        )
        for number, incident in enumerate(incidents)
    )


def truth(past: Past) -> Truth:
    """What should be found in this past, from its events alone."""
    failures = {
        level: sum(incident.level == level for incident in past.incidents) for level in CLASSES
    }
    times = {
        level: [incident.recovery for incident in past.incidents if incident.level == level]
        for level in CLASSES
    }
    down, by_node = outages(past)
    grid = range(past.start, past.end, past.step)
    seen = [at for at in grid if not any(gap.at <= at < gap.until for gap in past.gaps)]
    lost = sum(
        sum(begin <= at < stop for at in seen) for spans in down.values() for begin, stop in spans
    )
    return Truth(
        failures=failures,
        recovery={
            level: sum(times[level]) / len(times[level]) for level in CLASSES if times[level]
        },
        node_failures=sum(by_node.values()),
        node_days=(len(seen) * len(past.nodes) - lost) * past.step / DAY,
        possible_node_days=len(past.nodes) * (past.end - past.start) / DAY,
        coverage=len(seen) / len(grid),
        failures_by_node=by_node,
    )


def outages(past: Past) -> tuple[dict[str, list[tuple[float, float]]], dict[str, int]]:
    """When each node was NotReady, and how often it failed."""
    down: dict[str, list[tuple[float, float]]] = {}
    failed: dict[str, int] = {}
    for incident, (node, _) in zip(past.incidents, moves(past), strict=True):
        if incident.repair is not None:
            down.setdefault(node, []).append((incident.at, incident.at + incident.repair))
            failed[node] = failed.get(node, 0) + 1
    for planned in past.planned:
        if planned.down:
            quarter = (planned.until - planned.at) / 4
            down.setdefault(planned.node, []).append(
                (planned.at + quarter, planned.until - quarter)
            )
    return down, failed


def moves(past: Past) -> list[tuple[str, str]]:
    """For each incident, the node of its slot before and after: a failed node's pod moves to
    a spare.
    """
    seats = seating(past)
    spare = [(float(past.start), name) for name in past.nodes[len(seats) :]]
    pairs = []
    for incident in past.incidents:
        seat = (incident.job, incident.slot)
        before = seats[seat]
        if incident.repair is not None:  # it is spare again once it is repaired
            heapq.heappush(spare, (incident.at + incident.repair, before))
            seats[seat] = heapq.heappop(spare)[1]
        pairs.append((before, seats[seat]))
    return pairs


def seating(past: Past) -> dict[tuple[str, int], str]:
    """The node of each job's slots on the first day."""
    slots = [(job.name, slot) for job in past.jobs for slot in range(job.nodes)]
    if len(slots) > len(past.nodes):
        raise ValueError(
            f"the jobs have {len(slots)} pods, the pool has {len(past.nodes)} nodes: at most one "
            "pod a node"
        )
    return dict(zip(slots, past.nodes, strict=False))
