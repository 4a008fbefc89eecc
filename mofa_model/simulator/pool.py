"""Jobs that share a pool, event by event: a queue with priorities, nodes that break, and spares.

A job holds its nodes from its start to its end. One that loses a node takes a free one, or waits
until another is mended, free, or taken from a job of lower priority. Whoever waits in the queue
starts once so many nodes are free beside the spares: the highest priority first, then who came
first; a smaller one may pass who does not fit. Training, saving and recovery of each job are those
of `planned`.
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
"""Work that is left below which a job is over. [s]"""


@dataclass(frozen=True, kw_only=True)
class PoolJob:
    """A job that wants nodes of a pool."""

    name: str
    scenario: PlannedScenario
    """Its nodes, failures, saves and recovery plan."""
    work: float
    """Training that it needs, as time without any loss. [s]"""
    priority: float = 0.0
    """Who has more is served first. [1]"""
    arrives: float = 0.0
    """When it comes. [s]"""
    start: float = 0.0
    """From its nodes to its first step. [s]"""


@dataclass(frozen=True, kw_only=True)
class PoolScenario:
    """A pool and its jobs."""

    nodes: int
    jobs: tuple[PoolJob, ...]
    spares: int = 0
    """Nodes on which no job starts: they replace broken ones. [1]"""
    repair: RecoveryTime = field(default_factory=lambda: RecoveryTime(mean=86400.0))
    """Time until a broken node is back. [s]"""
    preempts: bool = False
    """Whether who has a higher priority takes nodes from who has a lower one."""

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
    """What became of a job."""

    finished: float
    """When it was done; infinite = not within the run. [s]"""
    queued: float
    """Time in the queue. [s]"""
    held_time: float
    """Time in which it held nodes. [s]"""
    lacked: float
    """Of it, time in which it waited for a node. [s]"""
    kept_time: float
    """Training that stays. [s]"""
    failures: int
    """Failures that hit it. [1]"""
    preempted: int
    """How often others took its nodes. [1]"""


@dataclass(frozen=True, kw_only=True)
class PoolOutcome:
    """What became of a pool in a run."""

    of_jobs: tuple[JobOutcome, ...]
    duration: float
    """Until the end, or until the last job was done. [s]"""
    kept_node_time: float
    """Node-time that trained and stays. [node s]"""
    held_node_time: float
    """Node-time that jobs held. [node s]"""
    broken_node_time: float
    """Node-time in repair. [node s]"""
    idle_node_time: float
    """The rest. [node s]"""


class _Job:
    """A job on its way through the pool."""

    def __init__(self, job: PoolJob, number: int, seed: int) -> None:
        self.job, self.number = job, number
        self.run = PlannedRun(job.scenario, seed, job.arrives)
        self.holds = 0
        self.queued = self.held = self.lacked = 0.0
        self.finished, self.preempted = math.inf, 0
        self.lacking: list[tuple[int | None, float]] = []
        """Replicas (None: the whole job) that wait for a node, and their recovery once they have
        it. [s]
        """

    @property
    def order(self) -> tuple[float, float, int]:
        """Sort key of waiting jobs: the least is served first."""
        return (-self.job.priority, self.job.arrives, self.number)

    @property
    def stands(self) -> bool:
        """Whether nothing of it runs before it has another node."""
        replicas = {replica for replica, _ in self.lacking}
        return None in replicas or len(replicas) == self.job.scenario.replicas

    def next_event(self) -> float:
        """When the job's next event comes, or it may be done. [s]"""
        if self.stands:
            return math.inf
        over = self.run.now + max(self.job.work - self.run.done, _DONE)
        return min(self.run.next_event(), over)


class PoolRun:
    """One run, from an empty pool."""

    def __init__(self, scenario: PoolScenario, seed: int) -> None:
        self.scenario, self.dice = scenario, np.random.default_rng(seed)
        self.now, self.free = 0.0, scenario.nodes
        self.repairs: list[float] = []
        self.jobs = [
            _Job(job, number, seed * len(scenario.jobs) + number)
            for number, job in enumerate(scenario.jobs)
        ]
        self.coming = sorted(self.jobs, key=lambda one: (one.job.arrives, one.number))
        self.queue: list[_Job] = []
        self.running: list[_Job] = []
        self.broken_time = self.idle_time = self.held_time = 0.0
        every = [job.scenario for job in scenario.jobs]
        hardware = [
            one.rate * sum(kind.share for kind in one.kinds if kind.takes == NODE) for one in every
        ]
        self.idle_rate = float(np.mean(hardware)) if hardware else 0.0
        self.next_idle = math.inf

    def run(self, duration: float) -> PoolOutcome:
        """Run the pool for a time, or until all jobs are done; returns the outcome."""
        while self.now < duration and (self.coming or self.queue or self.running):
            when = min(
                duration,
                self.coming[0].job.arrives if self.coming else math.inf,
                self.repairs[0] if self.repairs else math.inf,
                self.next_idle,
                *(one.next_event() for one in self.running),
            )
            self.advance(when)
            if when < duration:
                self.happen(when)
        return self.outcome()

    def advance(self, when: float) -> None:
        """Let all running jobs go on to a moment. [s]"""
        passed = when - self.now
        self.now = when
        self.idle_time += self.free * passed
        self.broken_time += len(self.repairs) * passed
        for one in self.queue:
            one.queued += passed
        for one in self.running:
            one.held += passed
            self.held_time += one.holds * passed
            if one.stands:
                one.lacked += passed
            one.run.advance(when)

    def happen(self, when: float) -> None:
        """Let all events of this moment happen: arrivals, repairs, failures, ends."""
        while self.coming and self.coming[0].job.arrives <= when:
            self.queue.append(self.coming.pop(0))
        while self.repairs and self.repairs[0] <= when:
            heapq.heappop(self.repairs)
            self.free += 1
        if self.next_idle <= when and self.free:
            self.free -= 1
            self.breaks()
        for one in list(self.running):
            if one.job.work - one.run.done < _DONE:
                self.end(one)
            elif not one.stands and one.run.next_event() <= when:
                one.run.happen(when)
                self.replace(one)
        self.serve()
        rate = self.free * self.idle_rate
        self.next_idle = when + self.dice.exponential(1 / rate) if rate > 0 else math.inf

    def breaks(self) -> None:
        """Send a node to repair."""
        repair = float(draw_times(self.scenario.repair, 1, self.dice)[0])
        heapq.heappush(self.repairs, self.now + repair)

    def replace(self, one: _Job) -> None:
        """Let a job that lost a node wait for another one."""
        if not one.run.needs:
            return
        run, one.run.needs = one.run, 0
        one.holds -= 1
        self.breaks()
        if run.left is not None:
            one.lacking.append((run.left, run.away[run.left] - self.now))
            run.away[run.left] = math.inf
        else:
            one.lacking = [(None, max(0.0, (run.down or self.now) - self.now))]
        if one.stands:
            run.down = math.inf

    def serve(self) -> None:
        """Give free nodes to jobs that lost one, then to jobs in the queue."""
        lacking = (one for one in self.running if one.holds < one.job.scenario.nodes)
        for one in sorted(lacking, key=lambda one: one.order):
            while (missing := one.job.scenario.nodes - one.holds) and self.room_for(one, 1, 0):
                self.free -= 1
                one.holds += 1
                if missing == 1 or one.lacking[0][0] is not None:
                    self.goes_on(one)
        for one in sorted(self.queue, key=lambda one: one.order):
            nodes = one.job.scenario.nodes
            if self.room_for(one, nodes, self.scenario.spares):
                self.free -= nodes
                one.holds = nodes
                self.queue.remove(one)
                self.running.append(one)
                one.run.now, one.run.down = self.now, self.now + one.job.start
                one.run.begin()

    def goes_on(self, one: _Job) -> None:
        """Let a job go on with the node that it, or its first replica, waited for."""
        stood, (replica, left) = one.stands, one.lacking.pop(0)
        if replica is None:
            one.run.down = self.now + left
        else:
            one.run.away[replica] = self.now + left
            if stood:
                one.run.down = self.now + left
        if stood:
            one.run.begin()

    def room_for(self, one: _Job, nodes: int, reserve: int) -> bool:
        """Whether so many nodes are free for a job, perhaps because others give theirs."""
        if self.free - reserve >= nodes:
            return True
        if not self.scenario.preempts:
            return False
        lower = [each for each in self.running if each.job.priority < one.job.priority]
        if self.free - reserve + sum(each.holds for each in lower) < nodes:
            return False
        for each in sorted(lower, key=lambda each: each.order, reverse=True):
            if self.free - reserve >= nodes:
                break
            each.preempted += 1
            each.run.stop(0.0, len(each.run.durable) - 1)
            each.run.everyone()
            self.leave(each)
            self.queue.append(each)
        return True

    def leave(self, one: _Job) -> None:
        """Take a job's nodes back into the pool."""
        self.free += one.holds
        one.holds, one.lacking = 0, []
        self.running.remove(one)

    def end(self, one: _Job) -> None:
        """End a job that is done."""
        one.finished = self.now
        self.leave(one)

    def outcome(self) -> PoolOutcome:
        """The outcome of the run: of each job, and of the pool's node-time."""
        return PoolOutcome(
            of_jobs=tuple(
                JobOutcome(
                    finished=one.finished,
                    queued=one.queued,
                    held_time=one.held,
                    lacked=one.lacked,
                    kept_time=min(one.run.done, one.job.work),
                    failures=one.run.failures,
                    preempted=one.preempted,
                )
                for one in self.jobs
            ),
            duration=self.now,
            kept_node_time=sum(
                min(one.run.done, one.job.work) * one.job.scenario.nodes for one in self.jobs
            ),
            held_node_time=self.held_time,
            broken_node_time=self.broken_time,
            idle_node_time=self.idle_time,
        )


def at_rate(scenario: PoolScenario, factor: float) -> PoolScenario:
    """The pool with all failure rates times a factor. []"""
    jobs = (
        replace(one, scenario=replace(one.scenario, rate=one.scenario.rate * factor))
        for one in scenario.jobs
    )
    return replace(scenario, jobs=tuple(jobs))
