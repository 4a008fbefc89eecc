"""Jobs that share a pool, event by event: a queue with priorities, nodes that break, and spares.

A job holds its nodes from its start to its end. If it loses a node it takes a free one, or waits
until one is repaired, given back, or taken from a job of lower priority. A job in the queue starts
once enough nodes are free beside the spares. The highest priority comes first, then the earliest
arrival; a smaller job may pass one that does not fit. Training, saves and recovery of each job are
those of `planned`.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import field, replace

import numpy as np

from mofa_model.checks import not_negative, positive, whole
from mofa_model.errors import BadValue
from mofa_model.records import dataclass
from mofa_model.simulator.planned import PlannedRun, PlannedScenario
from mofa_model.simulator.scenario import NODE, draw_times
from mofa_model.spec.reliability import RecoveryTime

_DONE: float = 1.0
"""Work left below which a job is done. [s]"""


@dataclass(frozen=True, kw_only=True)
class PoolJob:
    """A job that wants nodes of a pool."""

    name: str
    scenario: PlannedScenario
    """Its nodes, failures, saves and recovery plan."""
    work: float
    """Training that it needs, as time without any loss. [s]"""
    priority: float = 0.0
    """Priority in the queue; a higher one is served first. [1]"""
    arrives: float = 0.0
    """When it joins the queue. [s]"""
    start: float = 0.0
    """Time from its nodes to its first step. [s]"""


@dataclass(frozen=True, kw_only=True)
class PoolScenario:
    """A pool and its jobs."""

    nodes: int
    jobs: tuple[PoolJob, ...]
    spares: int = 0
    """Nodes that no job starts on, because they replace broken ones. [1]"""
    repair: RecoveryTime = field(default_factory=lambda: RecoveryTime(mean=86400.0))
    """Time until a broken node is back. [s]"""
    preempts: bool = False
    """Whether jobs of higher priority take nodes from jobs of lower priority."""

    def __post_init__(self) -> None:
        whole(nodes=self.nodes, spares_and_one=self.spares + 1)
        for job in self.jobs:
            positive(work=job.work)
            not_negative(arrives=job.arrives)
            if job.scenario.nodes > self.nodes - self.spares:
                room = self.nodes - self.spares
                raise BadValue(
                    "--job", f"{job.name}:{job.scenario.nodes}", f"at most {room} nodes can start"
                )


@dataclass(frozen=True, kw_only=True)
class JobOutcome:
    """One job's part in a run of its pool."""

    finished: float
    """When it was done; infinite = not within the run. [s]"""
    queued: float
    """Time in the queue. [s]"""
    held_time: float
    """Time in which it held nodes. [s]"""
    lacked: float
    """Part of that time in which it waited for a node. [s]"""
    kept_time: float
    """Training that is kept. [s]"""
    failures: int
    """Failures that hit it. [1]"""
    preempted: int
    """How often other jobs took its nodes. [1]"""


@dataclass(frozen=True, kw_only=True)
class PoolOutcome:
    """Jobs and node-time of a pool in one run."""

    of_jobs: tuple[JobOutcome, ...]
    duration: float
    """Length of the run, which ends early when the last job is done. [s]"""
    kept_node_time: float
    """Node-time whose training is kept. [node s]"""
    held_node_time: float
    """Node-time that jobs held. [node s]"""
    broken_node_time: float
    """Node-time in repair. [node s]"""
    idle_node_time: float
    """Node-time of free nodes. [node s]"""


class _Job:
    """A job on its way through the pool."""

    def __init__(self, request: PoolJob, number: int, seed: int) -> None:
        self.request, self.number = request, number
        self.run = PlannedRun(request.scenario, seed, request.arrives)
        self.holds = 0
        self.queued = self.held = self.lacked = 0.0
        self.finished, self.preempted = math.inf, 0
        # Replicas that wait for a node (None: the whole job), and their recovery once they have it.
        self.lacking: list[tuple[int | None, float]] = []

    @property
    def order(self) -> tuple[float, float, int]:
        """Sort key of waiting jobs: the least is served first."""
        return (-self.request.priority, self.request.arrives, self.number)

    @property
    def is_halted(self) -> bool:
        """Whether nothing of the job runs until it has another node."""
        replicas = {replica for replica, _ in self.lacking}
        return None in replicas or len(replicas) == self.request.scenario.replicas

    def next_event(self) -> float:
        """When the job's next event comes, or the job may be done. [s]"""
        if self.is_halted:
            return math.inf
        earliest_end = self.run.now + max(self.request.work - self.run.done, _DONE)
        return min(self.run.next_event(), earliest_end)


class PoolRun:
    """One run, from an empty pool."""

    def __init__(self, scenario: PoolScenario, seed: int) -> None:
        self.scenario, self.generator = scenario, np.random.default_rng(seed)
        self.now, self.free = 0.0, scenario.nodes
        self.repairs: list[float] = []
        self.jobs = [
            _Job(job, number, seed * len(scenario.jobs) + number)
            for number, job in enumerate(scenario.jobs)
        ]
        self.coming = sorted(self.jobs, key=lambda job: (job.request.arrives, job.number))
        self.queue: list[_Job] = []
        self.running: list[_Job] = []
        self.broken_time = self.idle_time = self.held_time = 0.0
        # A free node breaks as often as a node of a job does.
        node_rates = [
            planned.rate * sum(kind.share for kind in planned.kinds if kind.takes == NODE)
            for planned in (job.scenario for job in scenario.jobs)
        ]
        self.idle_rate = float(np.mean(node_rates)) if node_rates else 0.0
        self.next_idle = math.inf

    def run(self, duration: float) -> PoolOutcome:
        """Run the pool for a time, or until all jobs are done."""
        while self.now < duration and (self.coming or self.queue or self.running):
            moment = min(
                duration,
                self.coming[0].request.arrives if self.coming else math.inf,
                self.repairs[0] if self.repairs else math.inf,
                self.next_idle,
                *(job.next_event() for job in self.running),
            )
            self.advance(moment)
            if moment < duration:
                self.happen(moment)
        return self.outcome()

    def advance(self, moment: float) -> None:
        """Let all running jobs go on to a moment. [s]"""
        elapsed = moment - self.now
        self.now = moment
        self.idle_time += self.free * elapsed
        self.broken_time += len(self.repairs) * elapsed
        for job in self.queue:
            job.queued += elapsed
        for job in self.running:
            job.held += elapsed
            self.held_time += job.holds * elapsed
            if job.is_halted:
                job.lacked += elapsed
            job.run.advance(moment)

    def happen(self, moment: float) -> None:
        """Let all events of this moment happen: arrivals, repairs, failures, ends."""
        while self.coming and self.coming[0].request.arrives <= moment:
            self.queue.append(self.coming.pop(0))
        while self.repairs and self.repairs[0] <= moment:
            heapq.heappop(self.repairs)
            self.free += 1
        if self.next_idle <= moment and self.free:
            self.free -= 1
            self.send_to_repair()
        for job in list(self.running):
            if job.request.work - job.run.done < _DONE:
                job.finished = self.now
                self.leave(job)
            elif not job.is_halted and job.run.next_event() <= moment:
                job.run.happen(moment)
                self.lose_node(job)
        self.serve()
        rate = self.free * self.idle_rate
        self.next_idle = moment + self.generator.exponential(1 / rate) if rate > 0 else math.inf

    def send_to_repair(self) -> None:
        """Send a node to repair."""
        repair = float(draw_times(self.scenario.repair, 1, self.generator)[0])
        heapq.heappush(self.repairs, self.now + repair)

    def lose_node(self, job: _Job) -> None:
        """Send the node that a job lost to repair; the job waits for another one."""
        if not job.run.nodes_needed:
            return
        run, job.run.nodes_needed = job.run, 0
        job.holds -= 1
        self.send_to_repair()
        if run.lost_replica is not None:
            job.lacking.append((run.lost_replica, run.away[run.lost_replica] - self.now))
            run.away[run.lost_replica] = math.inf
        else:
            job.lacking = [(None, max(0.0, (run.down_until or self.now) - self.now))]
        if job.is_halted:
            run.down_until = math.inf

    def serve(self) -> None:
        """Give free nodes to jobs that lost one, then to jobs in the queue."""
        lacking = (job for job in self.running if job.holds < job.request.scenario.nodes)
        for job in sorted(lacking, key=lambda job: job.order):
            while (missing := job.request.scenario.nodes - job.holds) and self.room_for(job, 1, 0):
                self.free -= 1
                job.holds += 1
                if missing == 1 or job.lacking[0][0] is not None:
                    self.resume(job)
        for job in sorted(self.queue, key=lambda job: job.order):
            nodes = job.request.scenario.nodes
            if self.room_for(job, nodes, self.scenario.spares):
                self.free -= nodes
                job.holds = nodes
                self.queue.remove(job)
                self.running.append(job)
                job.run.now, job.run.down_until = self.now, self.now + job.request.start
                job.run.begin()

    def resume(self, job: _Job) -> None:
        """Let a job recover with the node that it, or its first replica, waited for."""
        was_halted, (replica, recovery) = job.is_halted, job.lacking.pop(0)
        if replica is not None:
            job.run.away[replica] = self.now + recovery
        if was_halted:
            job.run.down_until = self.now + recovery
            job.run.begin()

    def room_for(self, job: _Job, nodes: int, reserve: int) -> bool:
        """Whether so many nodes are free for a job beside a reserve. If need be, and if that is
        enough, jobs of lower priority give theirs.
        """
        if self.free - reserve >= nodes:
            return True
        if not self.scenario.preempts:
            return False
        lower = [
            victim for victim in self.running if victim.request.priority < job.request.priority
        ]
        if self.free - reserve + sum(victim.holds for victim in lower) < nodes:
            return False
        for victim in sorted(lower, key=lambda victim: victim.order, reverse=True):
            if self.free - reserve >= nodes:
                break
            victim.preempted += 1
            victim.run.stop(0.0, len(victim.run.durable) - 1)
            victim.run.restore_replicas()
            self.leave(victim)
            self.queue.append(victim)
        return True

    def leave(self, job: _Job) -> None:
        """Take a job's nodes back into the pool."""
        self.free += job.holds
        job.holds, job.lacking = 0, []
        self.running.remove(job)

    def outcome(self) -> PoolOutcome:
        """The outcome of the run so far."""
        return PoolOutcome(
            of_jobs=tuple(
                JobOutcome(
                    finished=job.finished,
                    queued=job.queued,
                    held_time=job.held,
                    lacked=job.lacked,
                    kept_time=min(job.run.done, job.request.work),
                    failures=job.run.failures,
                    preempted=job.preempted,
                )
                for job in self.jobs
            ),
            duration=self.now,
            kept_node_time=sum(
                min(job.run.done, job.request.work) * job.request.scenario.nodes
                for job in self.jobs
            ),
            held_node_time=self.held_time,
            broken_node_time=self.broken_time,
            idle_node_time=self.idle_time,
        )


def at_rate(scenario: PoolScenario, factor: float) -> PoolScenario:
    """The pool with all failure rates times a factor. []"""
    jobs = (
        replace(job, scenario=replace(job.scenario, rate=job.scenario.rate * factor))
        for job in scenario.jobs
    )
    return replace(scenario, jobs=tuple(jobs))
