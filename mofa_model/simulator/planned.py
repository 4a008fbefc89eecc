"""A job under a recovery plan, event by event: its nodes, replicas, spares, repairs and copies.

Nodes fail one by one, a spare is there or is not, a replica comes back when it does. No event is
split by a chance that a formula gives, so this simulation can judge the closed forms in
`reliability.recovery`.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from typing import Final

import numpy as np

from mofa_model.records import dataclass
from mofa_model.simulator.runs import Runs
from mofa_model.simulator.scenario import AT_ONCE, JOB, NODE, PROCESS, Cause, draw_times
from mofa_model.spec.reliability import RecoveryTime


@dataclass(frozen=True, kw_only=True)
class PlannedScenario:
    """A job, its recovery plan, its checkpoints and its failures."""

    nodes: int
    rate: float
    """Failures of one node. [1/s]"""
    kinds: tuple[Cause, ...]
    """Causes of failure; their shares add to one."""
    step_time: float
    """Time of a step. [s]"""
    steps: int
    """Steps between saves of the nearest tier. [1]"""
    every: tuple[int, ...] = (1,)
    """Saves of the nearest tier for one of each tier. [1]"""
    blocking: tuple[float, ...] = (20.0,)
    """Blocking part of each tier's save. [s]"""
    background: tuple[float, ...] = (0.0,)
    """Background copy of each tier. [s]"""
    slowdown: float = 0.0
    """Relative slowdown of steps while a copy is in flight. [1]"""
    whole: bool = False
    """Whether every failure starts the whole job again."""
    attempts: int = 0
    """Restarts in place before a node is replaced. [1]"""
    attempt: float = 0.0
    """Time of a restart in place. [s]"""
    success: float = 0.0
    """Chance that a restart in place helps. [1]"""
    spares: int = 0
    """Spares that stand by. [1]"""
    takeover: float = 0.0
    """Time until a spare trains in the place of a failed node. [s]"""
    refill: RecoveryTime = AT_ONCE
    """Time until another spare stands by in its place. [s]"""
    sharers: int = 1
    """Equal jobs that share the spares, this one included; the others only take spares. [1]"""
    group: int = 0
    """Nodes that hold each other's state; 0 = none. [1]"""
    replicas: int = 1
    """Replicas of the job. [1]"""
    others: str = "stop"
    """What healthy replicas do: stop, go-on or shrink."""
    stall: float = 0.0
    """Time that they stand still for a loss, or that a smaller job needs to restart. [s]"""
    rejoin: float = 0.0
    """Time that all stand still for a return. [s]"""
    micro_batches: int = 0
    """Micro-batches of a replica, if the others take over those of one that is away; else 0. [1]"""
    stages: int = 1
    """Pipeline stages of a replica. [1]"""
    hang_time: float = 0.0
    """Timeout that ends a hang. [s]"""
    hang_share: float = 0.0
    """Share of failures that hang. [1]"""
    pauses: float = 0.0
    """Rate of pauses without a step. [1/s]"""
    pause: RecoveryTime = AT_ONCE
    """Length of a pause. [s]"""
    broken: int | None = None
    """Most nodes in repair with which the job still runs; None = broken nodes are replaced. [1]"""
    repair: RecoveryTime = AT_ONCE
    """Time of a repair. [s]"""


LOST: Final = (
    "recovering",
    "standing still for a replica",
    "replicas away, or slowed by copies",
    "waiting for a copy",
    "saving",
    "work redone",
)
"""Names of the losses of time."""
RECOVERING, STANDING, AWAY, WAITING, SAVING, REDONE = LOST


class PlannedRun:
    """One run, from a fresh start."""

    def __init__(self, scenario: PlannedScenario, seed: int, start: float = 0.0) -> None:
        self.scenario, self.generator = scenario, np.random.default_rng(seed)
        self.odds = np.cumsum([kind.share for kind in scenario.kinds])
        self.failure_rate = scenario.nodes * scenario.rate
        # The other jobs that share the spares take one at each of their failures that need a node.
        node_share = sum(kind.share for kind in scenario.kinds if kind.takes == NODE)
        self.taking_rate = (scenario.sharers - 1) * self.failure_rate * node_share
        self.interval = scenario.step_time * scenario.steps
        self.now = start
        self.phase = "work"  # then "wait" for the last copy, then "save"
        self.position = 0  # intervals of work that are done
        self.done = 0.0  # work that is done [s]
        self.save_ends = 0.0
        self.durable = [0] * len(scenario.every)  # position of each tier's newest copy
        self.copying: dict[int, tuple[float, int]] = {}  # end and position of copies, by tier
        self.paused_until = 0.0  # all replicas stand still for one
        self.down_until: float | None = None  # the whole job recovers
        self.away: dict[int, float] = {}  # when each replica that is away returns
        self.lost_replica: int | None = None  # the replica that the last failure took
        self.spares_ready = [0.0] * scenario.spares  # moment from which each stands by
        self.repairs: list[float] = []  # end of each repair
        self.nodes_needed = 0  # nodes that a pool has not given yet
        self.hit_nodes: dict[int, set[int]] = {}  # by group, since the last copies
        self.failures = 0
        self.lost = dict.fromkeys(LOST, 0.0)
        self.begin()

    def begin(self) -> None:
        """Begin to run: draw when the first failure, pause and taking of a spare come."""
        self.next_failure = self.next_after(self.failure_rate)
        self.next_pause = self.next_after(self.scenario.pauses)
        self.next_taking = self.next_after(self.taking_rate)

    def next_after(self, rate: float) -> float:
        """Draw when the next event of a Poisson process with this rate comes. [s]"""
        return self.now + self.generator.exponential(1 / rate) if rate > 0 else math.inf

    def draw_time(self, *laws: RecoveryTime) -> float:
        """Draw one time of each law, and add them. [s]"""
        return sum(float(draw_times(law, 1, self.generator)[0]) for law in laws)

    def work_rate(self) -> float:
        """Work done in a second. [1]"""
        away, count = len(self.away), self.scenario.replicas
        share = (count - away) / count
        if self.scenario.micro_batches and away < count:
            micro, fill = self.scenario.micro_batches, self.scenario.stages - 1
            share = (micro + fill) / (math.ceil(micro * count / (count - away)) + fill)
        return share / (1 + self.scenario.slowdown if self.copying else 1)

    def advance(self, end: float) -> None:
        """Go on to a moment, with the saves and copies that are due before it."""
        while self.now < end:
            stop = min([end, *(copy_end for copy_end, _ in self.copying.values())])
            if self.down_until is not None:
                stop = min(stop, self.down_until)
                self.lost[RECOVERING] += stop - self.now
                self.now = stop
                if stop == self.down_until:
                    self.down_until = None
            elif self.now < self.paused_until:
                pause = min(stop, self.paused_until) - self.now
                self.now += pause
                self.lost[STANDING] += pause
                if self.phase == "save":
                    self.save_ends += pause
            elif self.phase == "work":
                pace = self.work_rate()
                before = self.now
                finish = self.now + ((self.position + 1) * self.interval - self.done) / pace
                if finish <= stop:
                    self.now, self.position = finish, self.position + 1
                    self.done = self.position * self.interval
                    self.phase = "wait"
                    self.try_save()
                else:
                    self.done += (stop - self.now) * pace
                    self.now = stop
                self.lost[AWAY] += (self.now - before) * (1 - pace)
            elif self.phase == "wait":
                self.lost[WAITING] += stop - self.now
                self.now = stop
            else:
                before, self.now = self.now, min(stop, self.save_ends)
                self.lost[SAVING] += self.now - before
                if self.now == self.save_ends:
                    self.end_save()
            self.end_copies()

    def due(self) -> list[int]:
        """Tiers whose save is due at this position."""
        return [
            tier for tier, every in enumerate(self.scenario.every) if self.position % every == 0
        ]

    def try_save(self) -> None:
        """Begin the saves that are due, unless one of their tiers is still copying."""
        if not any(tier in self.copying for tier in self.due()):
            self.phase = "save"
            self.save_ends = self.now + sum(self.scenario.blocking[tier] for tier in self.due())

    def end_save(self) -> None:
        """End the part of a save that blocks training."""
        self.phase = "work"
        for tier in self.due():
            if self.scenario.background[tier] > 0:
                self.copying[tier] = (self.now + self.scenario.background[tier], self.position)
            else:
                self.end_copy(tier, self.position)

    def end_copy(self, tier: int, position: int) -> None:
        """Take a tier's copy of a position as durable."""
        self.durable[tier] = position
        if tier == 0:
            self.hit_nodes.clear()

    def end_copies(self) -> None:
        """End the copies that are complete by now."""
        for tier, (end, position) in list(self.copying.items()):
            if end <= self.now:
                del self.copying[tier]
                self.end_copy(tier, position)
        if self.phase == "wait":
            self.try_save()

    def run(self, duration: float = math.inf, failures: float = math.inf) -> float:
        """Run for a time, or until enough failures; returns the share of time that became work that
        is kept. [1]
        """
        while self.failures < failures and self.now < duration:
            when = min(self.next_event(), duration)
            self.advance(when)
            if when == duration:
                break
            self.happen(when)
        return self.done / self.now

    def next_event(self) -> float:
        """When the next failure, pause, repair or return comes. [s]"""
        return_time = min(self.away.values(), default=math.inf)
        repair_time = self.repairs[0] if self.repairs else math.inf
        return min(self.next_failure, self.next_pause, return_time, repair_time, self.next_taking)

    def happen(self, when: float) -> None:
        """Let the events of this moment happen."""
        if when == min(self.away.values(), default=math.inf):
            self.let_return()
        elif self.repairs and when == self.repairs[0]:
            heapq.heappop(self.repairs)
            self.stop_if_short()
        elif when == self.next_taking:
            self.next_taking = self.next_after(self.taking_rate)
            self.take_spare()
        elif when == self.next_pause:
            self.pass_pause()
        else:
            self.next_failure = self.next_after(self.failure_rate)
            self.fail(int(self.generator.integers(self.scenario.nodes)))

    def pass_pause(self) -> None:
        """Let a pause pass; one that outlasts the timeout is taken for a hang."""
        self.next_pause = self.next_after(self.scenario.pauses)
        kinds, hang_time = self.scenario.kinds, self.scenario.hang_time
        if self.down_until is None and self.draw_time(self.scenario.pause) > hang_time:
            process = next((kind for kind in kinds if kind.takes == PROCESS), kinds[0])
            self.stop(hang_time + self.draw_time(*process.recovery_laws), 0)
            self.restore_replicas()

    def take_spare(self) -> bool:
        """Take a spare, if one stands by; returns whether one did."""
        ready = [spare for spare, ready_at in enumerate(self.spares_ready) if ready_at <= self.now]
        if ready:
            self.spares_ready[ready[0]] = self.now + self.draw_time(self.scenario.refill)
        return bool(ready)

    def let_return(self) -> None:
        """Let replicas that are ready join the others."""
        for replica, return_time in list(self.away.items()):
            if return_time <= self.now:
                del self.away[replica]
                self.paused_until = max(self.paused_until, self.now + self.scenario.rejoin)

    def restore_replicas(self) -> None:
        """Give the job all its replicas: it starts again as a whole."""
        self.away.clear()
        self.paused_until = 0.0

    def stop_if_short(self) -> None:
        """Stop the job while more nodes are in repair than it can miss."""
        broken = self.scenario.broken
        if broken is not None and len(self.repairs) > broken:
            self.down_until = max(self.down_until or 0.0, self.repairs[0])

    def stop(self, time: float, tier: int) -> None:
        """Stop the whole job for a time; it starts again from the newest copy that survives."""
        position = max(self.durable[tier:])
        self.lost[REDONE] += self.done - position * self.interval
        self.durable[: tier + 1] = [position] * (tier + 1)
        self.position, self.done = position, position * self.interval
        self.copying.clear()
        self.phase = "work"
        self.down_until = self.now + time

    def fail(self, hit: int) -> None:  # noqa: C901 - one failure, from what is hit to what stops
        """Let a node fail, and the recovery plan act."""
        scenario, generator = self.scenario, self.generator
        replica = hit * scenario.replicas // scenario.nodes
        if replica in self.away:
            return
        if scenario.broken is not None and len(self.repairs) > scenario.broken:
            return  # nothing runs, nothing fails
        self.failures += 1
        self.lost_replica = None
        kind = scenario.kinds[
            int(np.searchsorted(self.odds, generator.random() * self.odds[-1], side="right"))
        ]
        hung = scenario.hang_time if generator.random() < scenario.hang_share else 0.0
        if scenario.whole:
            job_kind = next(kind for kind in scenario.kinds if kind.takes == JOB)
            self.stop(hung + self.draw_time(*job_kind.recovery_laws), job_kind.tier)
            return
        time, tier, lost = self.recovery(kind)
        if scenario.group and kind.takes == NODE:
            hit_nodes = self.hit_nodes.setdefault(hit // scenario.group, set())
            if hit_nodes - {hit} and lost:
                tier = 1
            if lost:
                hit_nodes.add(hit)
        if kind.takes == JOB or scenario.others == "stop" or scenario.replicas == 1:
            self.stop(hung + time, tier)
            self.restore_replicas()
            if scenario.broken is not None:
                heapq.heappush(self.repairs, self.now + self.draw_time(scenario.repair))
                self.stop_if_short()
            return
        if scenario.others == "go-on":
            if self.phase == "work" and self.down_until is None:
                self.lost[REDONE] += self.done % scenario.step_time
                self.done -= self.done % scenario.step_time
            self.paused_until = max(self.paused_until, self.now + hung + scenario.stall)
        else:
            self.stop(hung + scenario.stall, tier)
            if time <= scenario.stall:
                return  # the replica is back when the others are
        self.away[replica] = self.now + hung + max(time, scenario.stall)
        self.lost_replica = replica
        if len(self.away) == scenario.replicas:
            first = min(self.away.values())
            self.stop(first - self.now, tier)

    def recovery(self, kind: Cause) -> tuple[float, int, bool]:
        """Time until the failed part trains again, the tier that it reads, and whether a node is
        lost.
        """
        scenario, generator, spent = self.scenario, self.generator, 0.0
        if kind.takes == NODE:
            for _ in range(scenario.attempts):
                spent += scenario.attempt
                if generator.random() < scenario.success:
                    return spent, 0, False
        if kind.takes == NODE and self.take_spare():
            return spent + scenario.takeover, kind.tier, True
        self.nodes_needed += kind.takes == NODE
        return spent + self.draw_time(*kind.recovery_laws), kind.tier, kind.takes == NODE


def simulate_planned(
    scenario: PlannedScenario,
    *,
    duration: float,
    count: int,
    seed: int,
    progress: Callable[[float], None] | None = None,
) -> Runs:
    """Simulate `count` runs of `duration` from a fresh start. Ours. []"""
    runs: list[PlannedRun] = []
    ettr: list[float] = []
    for number in range(count):
        runs.append(PlannedRun(scenario, seed * count + number))
        ettr.append(runs[-1].run(duration))
        if progress is not None:
            progress((number + 1) / count)
    return Runs(
        duration=duration,
        ettr=np.array(ettr),
        failures=np.array([run.failures for run in runs]),
        lost={name: float(np.mean([run.lost[name] for run in runs])) for name in LOST},
    )
