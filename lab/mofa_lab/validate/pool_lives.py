"""Lives of a small pool, event by event, with every way to recover as a key: a generator that
shares no code with the replay.

Every fault carries the random numbers of its own recovery, so a run with one key changed meets the
same faults with the same luck, and the difference of both runs is what the change gained.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from mofa_model.units import DAY, HOUR, MINUTE

_KUBELET: Final = 15.0
"""From the end of a container to its next start in the same pod. [s]"""
_EVICTION: Final = 345.0
"""From the death of a host to the replacement of its pod alone. [s]"""
_PAUSE: Final = 22.0
"""Time that the other replicas stand still while one falls out. [s]"""


@dataclass(frozen=True, kw_only=True)
class LifeSettings:
    """What a pool is, how it fails, and how it recovers."""

    seed: int
    """Seed of its faults. [1]"""
    days: float = 280.0
    """How long it lives. [d]"""
    nodes: int = 28
    """Nodes of the pool. [1]"""
    sizes: tuple[int, ...] = (16, 8)
    """Nodes of each job. [1]"""
    node_rate: float = 0.008
    """Outages of a node a day. [1/d]"""
    lemon_nodes: int = 0
    """Nodes that fail more often. [1]"""
    lemon_factor: float = 15.0
    """How much more often. [1]"""
    repair_hours: float = 8.0
    """Median of a repair. [h]"""
    crash_rate: float = 0.02
    """Crashes of processes a node and day. [1/d]"""
    stall_rate: float = 0.01
    """Collectives that time out, a node and day. [1/d]"""
    hang_rate: float = 0.006
    """Hangs a node and day, which nobody ends for hours. [1/d]"""
    interval: float = 60 * MINUTE
    """Time between saves. [s]"""
    in_place: bool = False
    """Whether containers start again in their pods."""
    watchdog: float | None = None
    """Time without a step after which processes are ended. [s]"""
    peers: float | None = None
    """Time between copies in the memory of peers. [s]"""
    replicas: int = 1
    """Replicas of a job that go on without one of them. [1]"""


@dataclass
class _Job:
    name: str
    nodes: list[int]
    up: float = 0.0
    """When it trains, or trained since."""
    pending: list[Any] = field(default_factory=list)
    """The standstill that lasts: its fault, when it began, parts, faulty nodes."""
    missing: int = 0
    ready: float = 0.0
    """When it could go on, if no node were missing."""


@dataclass(frozen=True, kw_only=True)
class Life:
    """What happened, and what was kept."""

    document: dict[str, Any]
    """As `mofa incidents --account -o json` tells it."""
    kept: float
    """Node-hours that jobs trained and kept. [node h]"""


def live(settings: LifeSettings) -> Life:
    """One life of a pool."""
    return _Pool(settings).live()


class _Pool:
    def __init__(self, settings: LifeSettings) -> None:
        self._s, self._end = settings, settings.days * DAY
        self._events: list[tuple[float, int, str, Any]] = []
        self._serial = 0
        self._jobs, at = [], 0
        for number, size in enumerate(settings.sizes):
            self._jobs.append(_Job(f"ml/job-{number}", list(range(at, at + size))))
            at += size
        self._free = list(range(at, settings.nodes))
        self._broken: dict[int, float] = {}
        self._queue: list[_Job] = []
        self._incidents: list[dict[str, Any]] = []
        self._sums: defaultdict[tuple[str, str, str], float] = defaultdict(float)
        for time, what, body in self._faults():
            self._push(time, what, body)

    def _push(self, time: float, what: str, body: Any) -> None:
        self._serial += 1
        heapq.heappush(self._events, (time, self._serial, what, body))

    def _faults(self) -> Iterator[tuple[float, str, dict[str, Any]]]:
        """All faults with their luck; those of one node or job do not depend on the others."""
        s = self._s
        for node in range(s.nodes):
            luck = random.Random(f"{s.seed}/node/{node}")  # noqa: S311
            factor = s.lemon_factor if node < s.lemon_nodes else 1.0
            for time in _times(luck, s.node_rate * factor, self._end):
                yield time, "outage", {"node": node, **_luck(luck, s)}
        for job, size in zip(self._jobs, s.sizes, strict=True):
            for cause, rate in (
                ("process-crash", s.crash_rate),
                ("nccl-timeout", s.stall_rate),
                ("hang", s.hang_rate),
            ):
                luck = random.Random(f"{s.seed}/{job.name}/{cause}")  # noqa: S311
                for time in _times(luck, rate * size, self._end):
                    yield time, "fault", {"job": job, "cause": cause, **_luck(luck, s)}

    def live(self) -> Life:
        """All events in order."""
        while self._events and self._events[0][0] < self._end:
            time, _, what, body = heapq.heappop(self._events)
            if what == "fault":
                if not body["job"].pending and time > body["job"].up:
                    self._stop(time, body["job"], body["cause"], body, None)
            elif what == "outage":
                self._outage(time, body)
            elif what == "repaired":
                self._repaired(time, body)
            elif body[0].pending and body[0].pending[0] is body[1] and not body[0].missing:
                self._resume(time, body[0])
        for job in self._jobs:
            if not job.pending:
                self._keep(job, self._end - job.up)
        return Life(
            document=self._document(),
            kept=sum(time for (_, state, _), time in self._sums.items() if state == "kept") / HOUR,
        )

    def _keep(self, job: _Job, seconds: float) -> None:
        self._sums[job.name, "kept", ""] += max(0.0, seconds) * len(job.nodes)

    def _outage(self, time: float, body: dict[str, Any]) -> None:
        node = body["node"]
        if node in self._broken:
            return
        self._broken[node] = time + body["repair"]
        self._push(time + body["repair"], "repaired", node)
        self._incidents.append(
            {
                "kind": "node",
                "node": f"n{node}",
                "start": time,
                "end": time + body["repair"],
                "cause": "node-down",
            }
        )
        if node in self._free:
            self._free.remove(node)
            return
        job = next(job for job in self._jobs if node in job.nodes)
        self._stop(time, job, "node-down", body, node)

    def _stop(
        self, time: float, job: _Job, cause: str, luck: dict[str, Any], node: int | None
    ) -> None:
        """Let a job stop for a cause: lose work, replace a node, and plan its return."""
        s = self._s
        if job.pending:  # it stands still already, and loses one more node
            self._replace(job, node)
            job.pending[3].add(node)
            job.ready = max(job.ready, time + luck["dead"] + luck["start"] + luck["load"])
            self._push(job.ready, "ready", (job, job.pending[0]))
            return
        trained = time - job.up
        alone = s.replicas > 1
        interval = s.interval if s.peers is None else s.peers
        lost = 0.0 if alone else trained % interval
        self._keep(job, trained - lost)
        self._sums[job.name, "redone", cause] += lost * len(job.nodes)
        unnoticed = {
            "process-crash": luck["exit"],
            "node-down": luck["dead"],
            "nccl-timeout": 600.0,
            "hang": luck["hang"],
        }[cause]
        if s.watchdog is not None and cause in ("nccl-timeout", "hang"):
            unnoticed = min(unnoticed, s.watchdog)
        parts = {
            "detect": unnoticed,
            "drain": luck["end"],
            "queue": luck["queue"],
            "start": luck["start"],
        }
        if s.in_place and cause in ("process-crash", "nccl-timeout"):
            parts = {"detect": unnoticed, "start": luck["end"] + _KUBELET}
        elif s.in_place and node is not None:
            parts["queue"] = max(0.0, _EVICTION - unnoticed - luck["end"])
        job.pending = [luck, time, parts, {node} - {None}, cause]
        job.ready = time + sum(parts.values()) + luck["load"]
        if node is not None:
            self._replace(job, node)
        self._push(job.ready, "ready", (job, luck))

    def _replace(self, job: _Job, node: int | None) -> None:
        job.nodes.remove(node)  # type: ignore[arg-type]
        if self._free:
            job.nodes.append(self._free.pop(0))
        else:
            job.nodes.append(-1)
            job.missing += 1
            self._queue.append(job)

    def _repaired(self, time: float, node: int) -> None:
        """Give a repaired node to the first job that lacks one, else to the spares."""
        del self._broken[node]
        if not self._queue:
            self._free.append(node)
            return
        job = self._queue.pop(0)
        job.nodes[job.nodes.index(-1)] = node
        job.missing -= 1
        if not job.missing:
            luck = job.pending[0]
            job.ready = max(job.ready, time + luck["start"] + luck["load"])
            self._push(job.ready, "ready", (job, luck))

    def _resume(self, time: float, job: _Job) -> None:
        if time < job.ready:
            return
        luck, began, parts, faulty, cause = job.pending
        stood = time - began
        others = max(0.0, stood - parts["detect"] - _PAUSE) * (1 - 1 / self._s.replicas)
        self._keep(job, others)
        self._sums[job.name, "restarting", cause] += (stood - others) * len(job.nodes)
        counted = sum(parts.values()) + luck["load"]
        self._incidents.append(
            {
                "kind": "job",
                "job": job.name,
                "start": began,
                "end": time,
                "cause": cause,
                "nodes": sorted(f"n{node}" for node in faulty),
                "infrastructure_share": 1.0,
                "stood": len(job.nodes),
                "phases": {
                    **parts,
                    "start": parts["start"] + stood - counted,
                    "load": luck["load"],
                },
            }
        )
        job.pending, job.up = [], time

    def _document(self) -> dict[str, Any]:
        held = sum(self._sums.values())
        sums = {**self._sums, ("", "idle", "no-job"): max(0.0, self._s.nodes * self._end - held)}
        rows = [
            {"date": "", "job": job, "state": state, "cause": cause, "node_days": time / DAY,
             "machines_node_days": 0.0, "estimated_node_days": 0.0}
            for (job, state, cause), time in sums.items()
        ]  # fmt: skip
        return {
            "start": 0.0,
            "end": self._end,
            "incidents": sorted(self._incidents, key=lambda incident: float(incident["start"])),
            "exposure": {"by_node": {f"n{node}": self._s.days for node in range(self._s.nodes)}},
            "account": {"rows": rows},
        }


def _times(luck: random.Random, rate: float, end: float) -> Iterator[float]:
    time = 0.0
    while rate > 0 and (time := time + luck.expovariate(rate / DAY)) < end:
        yield time


def _luck(luck: random.Random, settings: LifeSettings) -> dict[str, float]:
    """The random parts of one recovery. [s]"""
    repair = math.exp(luck.gauss(math.log(settings.repair_hours * HOUR), 0.9))
    return {
        "repair": min(repair, 60 * HOUR),
        "exit": luck.uniform(0, 5),
        "dead": luck.uniform(20, 80),
        "hang": luck.uniform(1, 4) * HOUR,
        "end": luck.uniform(10, 60),
        "queue": luck.uniform(3, 20),
        "start": luck.uniform(40, 120),
        "load": math.exp(luck.gauss(math.log(240.0), 0.3)),
    }
