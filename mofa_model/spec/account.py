"""The account of a pool: where its node-time went, by state and cause.

Accounts add up: that of two times, or of two pools, has all rows of both. Every row is rounded to
`DIGITS` where it is made, so a sum of rows is the same number wherever it is computed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from enum import StrEnum
from typing import Any, Final, Literal

from mofa_model.records import dataclass
from mofa_model.spec.incident_causes import IncidentCause

DIGITS: Final = 4
"""Digits of the node-days of a row: a ten-thousandth is nine seconds of a node. [1]"""
START: Final = "start"
"""The cause of time before the first step of a job: nothing had stopped."""
SAVES: Final = "saves"
"""The cause of time in which a job saved: that is no incident, but it lets incidents cost less."""
NO_JOB: Final = "no-job"
"""The cause of time in which no job wanted a node."""
_NAMED: Final = 3
"""Most incidents that are named with a sum. [1]"""


class NodeState(StrEnum):
    """Use of a node's time."""

    KEPT = "kept"
    """It trained, and the work was kept."""
    REDONE = "redone"
    """It trained, and the work was lost and done again."""
    SAVING = "saving"
    """Its job trained, and a save held it up."""
    RESTARTING = "restarting"
    """Its job stood still, and its pods were not replaced yet."""
    QUEUE = "queue"
    """Its job waited for new pods to be made."""
    SPARE = "spare"
    """New pods waited longer than usual to start: for a node."""
    IMAGE = "image"
    """New pods waited for their containers: images, volumes."""
    RENDEZVOUS = "rendezvous"
    """Containers ran, and no step was finished: rendezvous, checkpoint, compiling."""
    REPAIR = "repair"
    """It was down, broken, or took no pods."""
    IDLE = "idle"
    """No job wanted it."""

    @property
    def is_lost(self) -> bool:
        """Whether it brought nothing, and not for want of jobs."""
        return self not in (NodeState.KEPT, NodeState.IDLE)


@dataclass(frozen=True, kw_only=True)
class NodeTime:
    """Node-time of one state and one cause."""

    state: NodeState
    cause: str
    """The cause of the incident that it is put down to, `START` or `NO_JOB`; empty = it trained."""
    node_days: float
    """[node d]"""
    date: str = ""
    """Its day in UTC, as 2026-11-21; empty = of several days."""
    job: str = ""
    """The job, as namespace/name; empty = of none, or of several."""
    machines: float = 0.0
    """Part of it that the machines caused, by the chances of its incidents. [node d]"""
    estimated: float = 0.0
    """Part of it that no sample shows: work since the last save, and the time until the first
    step, where no steps are published. [node d]"""
    incidents: tuple[str, ...] = ()
    """Ids of the incidents that cost most, the costliest first."""


@dataclass(frozen=True, kw_only=True)
class OpenIncident:
    """An incident that had begun before the time that is read, and was not over then."""

    kind: Literal["node", "job"]
    name: str
    """The node, or the job as namespace/name."""
    since: float
    """In seconds of the epoch. [s]"""
    cause: IncidentCause
    nodes: tuple[str, ...] = ()
    """The nodes of the job; empty for a node."""


def summed(account: Iterable[NodeTime], *keys: str) -> tuple[NodeTime, ...]:
    """The account summed by state and by some `keys`: cause, date, job. Rows come by date, then by
    state, then by size.

    >>> day = NodeTime(state=NodeState.KEPT, cause="", node_days=1.5, date="2026-11-21")
    >>> [row.node_days for row in summed([day, replace(day, date="2026-11-22")])]
    [3.0]
    """
    groups: defaultdict[tuple[str, ...], list[NodeTime]] = defaultdict(list)
    for row in account:
        groups[(row.state, *(getattr(row, key) for key in keys))].append(row)
    cleared: dict[str, Any] = {key: "" for key in ("cause", "date", "job") if key not in keys}
    sums = []
    for group in groups.values():
        by_cost = sorted(group, key=lambda row: -row.node_days)
        incidents = dict.fromkeys(name for row in by_cost for name in row.incidents)
        sums.append(
            replace(
                by_cost[0],
                **cleared,
                node_days=_sum(row.node_days for row in group),
                machines=_sum(row.machines for row in group),
                estimated=_sum(row.estimated for row in group),
                incidents=tuple(incidents)[:_NAMED],
            )
        )
    order = list(NodeState)
    return tuple(
        sorted(
            sums,
            key=lambda row: (row.date, order.index(row.state), -row.node_days, row.cause, row.job),
        )
    )


def capacity(account: Iterable[NodeTime]) -> float:
    """Node-time of all entries together. [node d]"""
    return _sum(row.node_days for row in account)


def node_days_lost(account: Iterable[NodeTime]) -> dict[str, float]:
    """Node-time that was neither kept nor idle, by cause, the largest first. [node d]

    >>> node_days_lost([NodeTime(state=NodeState.REPAIR, cause="reboot", node_days=0.25)])
    {'reboot': 0.25}
    """
    by_cause: defaultdict[str, list[float]] = defaultdict(list)
    for row in account:
        if row.state.is_lost:
            by_cause[row.cause].append(row.node_days)
    sums = {cause: _sum(times) for cause, times in by_cause.items()}
    return dict(sorted(sums.items(), key=lambda item: (-item[1], item[0])))


def _sum(values: Iterable[float]) -> float:
    return round(sum(values), DIGITS)
