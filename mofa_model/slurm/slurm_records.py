"""Records of Slurm as types: a node, a run of a job, an event of a node."""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter
from typing import Final

from mofa_model.records import dataclass

AWAY: Final = frozenset({"DOWN", "FAIL", "FAILING", "NOT_RESPONDING", "POWERED_DOWN", "FUTURE"})
"""States in which a node runs nothing."""
CLOSED: Final = frozenset({"DRAIN", "DRAINED", "DRAINING", "MAINT", "RESERVED", "PLANNED", "INVAL"})
"""States in which it takes no jobs, or not everybody's."""
RUNNING: Final = frozenset(
    {"RUNNING", "SUSPENDED", "COMPLETING", "STOPPED", "CONFIGURING", "RESIZING"}
)


@dataclass(frozen=True, kw_only=True)
class SlurmNode:
    """A node as sinfo or scontrol shows it."""

    name: str
    states: tuple[str, ...] = ()
    """Its state and its flags, in capitals: MIXED, DRAIN, NOT_RESPONDING."""
    devices: int = 0
    """GPUs by its generic resources. [1]"""
    product: str = ""
    """Their type, as the site calls it."""
    partitions: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    cpus: int = 0
    """[1]"""
    memory_bytes: float = 0.0
    """[B]"""
    reason: str = ""
    """Why it is down or drained."""
    reason_since: float = 0.0
    """When that was written; 0 = unknown. [s]"""
    booted: float = 0.0
    """When it booted; 0 = unknown. [s]"""

    @property
    def usable(self) -> bool:
        """Whether it takes jobs."""
        return not {*self.states} & (AWAY | CLOSED - {"RESERVED", "PLANNED"})


@dataclass(frozen=True, kw_only=True)
class SlurmRun:
    """One run of a job: a job that is requeued has several."""

    job_id: str
    """12, or 12_3 in an array."""
    name: str = ""
    user: str = ""
    partition: str = ""
    state: str = ""
    """In capitals: COMPLETED, NODE_FAIL."""
    cancelled_by: str = ""
    """Who cancelled it; empty = nobody."""
    exit_code: int = 0
    """[1]"""
    exit_signal: int = 0
    """The signal that ended it; 0 = none. [1]"""
    submitted: float = 0.0
    """[s]"""
    begun: float = 0.0
    """When it was started; 0 = it was not. [s]"""
    ended: float = 0.0
    """When it ended; 0 = it has not. [s]"""
    hosts: tuple[str, ...] = ()
    devices: int = 0
    """GPUs of all its nodes. [1]"""
    limit_seconds: float = 0.0
    """Its time limit; 0 = none, or unknown. [s]"""
    reason: str = ""
    comment: str = ""


@dataclass(frozen=True, kw_only=True)
class NodeEvent:
    """A time in which a node was away or closed, as slurmdbd keeps it."""

    node: str
    begun: float
    """[s]"""
    ended: float = 0.0
    """0 = it has not. [s]"""
    states: tuple[str, ...] = ()
    reason: str = ""
    user: str = ""
    """Who wrote the reason."""


@dataclass(frozen=True, kw_only=True)
class SlurmRecords:
    """Everything that is known of a site."""

    node_records: tuple[SlurmNode, ...] = ()
    runs: tuple[SlurmRun, ...] = ()
    node_events: tuple[NodeEvent, ...] = ()
    silent_seconds: float = 0.0
    """How long a node is silent before Slurm says that it is down; 0 = unknown. [s]"""
    sources: tuple[str, ...] = ()
    """What it was read from."""

    def joined_with(self, other: SlurmRecords) -> SlurmRecords:
        """The records of both. Of a node or an event in both, the one that says more is kept."""
        nodes = {record.name: record for record in self.node_records}
        for record in other.node_records:
            before = nodes.get(record.name)
            nodes[record.name] = record if before is None else _fuller(before, record)
        all_runs, all_events = (*self.runs, *other.runs), (*self.node_events, *other.node_events)
        runs = {(run.job_id, run.submitted, run.begun): run for run in all_runs}
        events = {(event.node, event.begun): event for event in all_events}
        in_order = sorted(runs.values(), key=lambda run: (run.begun or run.submitted, run.job_id))
        return SlurmRecords(
            node_records=tuple(nodes.values()),
            runs=tuple(in_order),
            node_events=tuple(sorted(events.values(), key=attrgetter("begun", "node"))),
            silent_seconds=self.silent_seconds or other.silent_seconds,
            sources=(*self.sources, *other.sources),
        )


def _fuller(node: SlurmNode, other: SlurmNode) -> SlurmNode:
    names = (
        "states", "devices", "product", "features", "cpus", "memory_bytes", "reason",
        "reason_since", "booted",
    )  # fmt: skip
    filled = {name: getattr(other, name) or getattr(node, name) for name in names}
    parts = tuple(dict.fromkeys((*node.partitions, *other.partitions)))
    return replace(node, **filled, partitions=parts)
