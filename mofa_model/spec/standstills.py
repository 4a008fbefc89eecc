"""The past of a pool as standstills of jobs and outages of nodes, for replays of alternatives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from mofa_model.records import dataclass
from mofa_model.spec.account import NodeTime


@dataclass(frozen=True, kw_only=True)
class Standstill:
    """A time in which a job did not train, in its phases."""

    job: str
    """The job, as namespace/name."""
    at: float
    """When training stopped, in seconds of the epoch. [s]"""
    cause: str
    """The word of its cause."""
    holds: int
    """Nodes of the job, which stood still. [1]"""
    faulty: tuple[str, ...] = ()
    """Nodes that made the job stop."""
    machines: float = 1.0
    """Chance that the machines were at fault. [1]"""
    in_place: bool = False
    """Whether containers started again in the same pods."""
    trained: float = 0.0
    """Time that the job had trained since its last start. [s]"""
    unnoticed: float = 0.0
    """Time until the first container or pod ended. [s]"""
    ending: float = 0.0
    """Time from then until the last container or pod that was replaced had ended. [s]"""
    queued: float = 0.0
    """Time from then until the last new pod was made. [s]"""
    starting: float = 0.0
    """Time from then until the last container ran. [s]"""
    loading: float = 0.0
    """Time from then until the first step. [s]"""
    lost_work: float = 0.0
    """Work that was done again afterwards. [s]"""

    @property
    def seconds(self) -> float:
        """Length of the standstill until the first step, without work done again. [s]"""
        return self.unnoticed + self.ending + self.queued + self.starting + self.loading


@dataclass(frozen=True, kw_only=True)
class NodeOutage:
    """A time in which a node was broken."""

    node: str
    """Its name."""
    at: float
    """When it broke, in seconds of the epoch. [s]"""
    seconds: float
    """How long it was broken. [s]"""
    cause: str
    """The word of its cause."""
    in_use: float = 0.0
    """Time for which it still took pods while it was broken, until somebody cordoned it. [s]"""


@dataclass(frozen=True, kw_only=True)
class PoolPast:
    """The past of a pool in a window."""

    begin: float
    """Begin of the window, in seconds of the epoch. [s]"""
    end: float
    """End of the window, in seconds of the epoch. [s]"""
    account: tuple[NodeTime, ...]
    """Where its node-time went."""
    standstills: tuple[Standstill, ...]
    """Standstills of its jobs, in order of time."""
    outages: tuple[NodeOutage, ...]
    """Outages of its nodes, in order of time."""
    watched: Mapping[str, float] = field(default_factory=dict)
    """Node-days by node in which a failure would have been seen."""
    lost_work_is_guessed: bool = False
    """Whether nobody published steps, so that work that was done again is an estimate."""
