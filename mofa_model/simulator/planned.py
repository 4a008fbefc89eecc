"""A job under a recovery plan, event by event: its nodes, replicas, spares, repairs and copies.

Nodes fail one by one, a spare is there or is not, a replica comes back when it does. Nothing is
split by a chance that a formula gives: so this is the judge of the closed forms in
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
    """Time of one. [s]"""
    success: float = 0.0
    """Chance that one helps. [1]"""
    spares: int = 0
    """Spares that stand by. [1]"""
    takeover: float = 0.0
    """Time until one trains in the place of what failed. [s]"""
    refill: RecoveryTime = AT_ONCE
    """Time until another stands by. [s]"""
    sharers: int = 1
    """Jobs alike that share them; the others only take. [1]"""
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
    """Micro-batches of a replica, where the others do those of one that is away; else 0. [1]"""
    stages: int = 1
    """Stages of its pipeline. [1]"""
    hang_time: float = 0.0
    """Timeout that ends a hang. [s]"""
    hang_share: float = 0.0
    """Share of failures that hang. [1]"""
    pauses: float = 0.0
    """Pauses without a step. [1/s]"""
    pause: RecoveryTime = AT_ONCE
    """How long one is. [s]"""
    broken: int | None = None
    """Nodes that may be in repair before the job stands still; None = they are replaced. [1]"""
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
RECOVERING, STANDING, AWAY, WAITING, SAVING, REDONE = LOST


class PlannedRun:
    """One run, from a fresh start."""

    def __init__(self, scenario: PlannedScenario, seed: int, start: float = 0.0) -> None:
        self.scenario, self.dice = scenario, np.random.default_rng(seed)
        self.odds = np.cumsum([kind.share for kind in scenario.kinds])
        self.now, self.done, self.paused = start, 0.0, 0.0
        self.away: dict[int, float] = {}
        self.down: float | None = None
        self.durable = [0] * len(scenario.every)
        self.position = 0  # intervals of work that are done
        self.phase, self.until = "work", 0.0
        self.copying: dict[int, tuple[float, int]] = {}
        self.pool = [0.0] * scenario.spares
        self.stale: dict[int, set[int]] = {}
        self.total = scenario.nodes * scenario.rate
        self.failures = 0
        self.lost = dict.fromkeys(LOST, 0.0)
        self.repairs: list[float] = []
        self.interval = scenario.step_time * scenario.steps
        self.needs = 0  # nodes that nobody gave it yet
        self.left: int | None = None  # the replica that the last failure took
        self.begin()

    def begin(self) -> None:
        """Begin the run: draw when each cause of failure comes first."""
        self.next_failure = self.wait(self.total)
        self.next_pause = self.wait(self.scenario.pauses)
        self.others_take = self.wait((self.scenario.sharers - 1) * self.total * self.node_share())

    def node_share(self) -> float:
        """Share of failures after which a spare node takes the place of a lost one. [1]"""
        return sum(k.share for k in self.scenario.kinds if k.takes == NODE)

    def wait(self, rate: float) -> float:
        """Draw when the next event of a random process with this rate comes. [s]"""
        return self.now + self.dice.exponential(1 / rate) if rate > 0 else math.inf

    def drawn(self, *laws: RecoveryTime) -> float:
        """Draw one time of each law, and add them. [s]"""
        return sum(float(draw_times(law, 1, self.dice)[0]) for law in laws)

    def work_rate(self) -> float:
        """Work done in a second. [1]"""
        gone, count = len(self.away), self.scenario.replicas
        share = (count - gone) / count
        if self.scenario.micro_batches and gone < count:
            micro, more = self.scenario.micro_batches, self.scenario.stages - 1
            share = (micro + more) / (math.ceil(micro * count / (count - gone)) + more)
        return share / (1 + self.scenario.slowdown if self.copying else 1)

    def advance(self, end: float) -> None:
        """Go on to a moment, with the saves and copies that are due before it."""
        while self.now < end:
            stop = min([end, *(when for when, _ in self.copying.values())])
            if self.down is not None:
                stop = min(stop, self.down)
                self.lost[RECOVERING] += stop - self.now
                self.now = stop
                if stop == self.down:
                    self.down = None
            elif self.now < self.paused:
                stood = min(stop, self.paused) - self.now
                self.now += stood
                self.lost[STANDING] += stood
                if self.phase == "save":
                    self.until += stood
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
                before = self.now
                left = self.until - self.now
                if self.now + left <= stop:
                    self.now = self.until
                    self.saved()
                else:
                    self.now = stop
                self.lost[SAVING] += self.now - before
            self.end_copies()

    def due(self) -> list[int]:
        """Tiers whose save is due at this step."""
        return [j for j, every in enumerate(self.scenario.every) if self.position % every == 0]

    def try_save(self) -> None:
        """Begin a save, unless the last copy of its tier is still on its way."""
        if not any(j in self.copying for j in self.due()):
            self.phase = "save"
            self.until = self.now + sum(self.scenario.blocking[j] for j in self.due())

    def saved(self) -> None:
        """End the part of a save that blocks training."""
        self.phase = "work"
        for j in self.due():
            if self.scenario.background[j] > 0:
                self.copying[j] = (self.now + self.scenario.background[j], self.position)
            else:
                self.kept(j, self.position)

    def kept(self, tier: int, position: int) -> None:
        """Note that a copy is complete: its work survives failures of its tier."""
        self.durable[tier] = position
        if tier == 0:
            self.stale.clear()

    def end_copies(self) -> None:
        """End the copies that are complete by now."""
        for j, (when, position) in list(self.copying.items()):
            if when <= self.now:
                del self.copying[j]
                self.kept(j, position)
        if self.phase == "wait":
            self.try_save()

    def run(self, duration: float = math.inf, failures: float = math.inf) -> float:
        """Run for a time, or until enough failures; returns the share of time that became lasting
        work. [1]
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
        back = min(self.away.values(), default=math.inf)
        mended = self.repairs[0] if self.repairs else math.inf
        return min(self.next_failure, self.next_pause, back, mended, self.others_take)

    def happen(self, when: float) -> None:
        """Let the events of this moment happen."""
        if when == min(self.away.values(), default=math.inf):
            self.come_back()
        elif self.repairs and when == self.repairs[0]:
            heapq.heappop(self.repairs)
            self.missing()
        elif when == self.others_take:
            rate = (self.scenario.sharers - 1) * self.total * self.node_share()
            self.others_take = self.wait(rate)
            self.take_spare()
        elif when == self.next_pause:
            self.pass_pause()
        else:
            self.next_failure = self.wait(self.total)
            self.fail(int(self.dice.integers(self.scenario.nodes)))

    def pass_pause(self) -> None:
        """A pause that outlasts the timeout is taken for a hang."""
        self.next_pause = self.wait(self.scenario.pauses)
        if self.down is None and self.drawn(self.scenario.pause) > self.scenario.hang_time:
            known = [k for k in self.scenario.kinds if k.takes == PROCESS]
            process = (known or self.scenario.kinds)[0]
            self.stop(self.scenario.hang_time + self.drawn(*process.recovery_laws), 0)
            self.everyone()

    def take_spare(self) -> bool:
        """Whether a spare stands by; it is taken."""
        ready = [i for i, when in enumerate(self.pool) if when <= self.now]
        if ready:
            self.pool[ready[0]] = self.now + self.drawn(self.scenario.refill)
        return bool(ready)

    def come_back(self) -> None:
        """Let replicas that are ready join the others."""
        for one, when in list(self.away.items()):
            if when <= self.now:
                del self.away[one]
                self.paused = max(self.paused, self.now + self.scenario.rejoin)

    def everyone(self) -> None:
        """Give the job all its replicas: it starts again as a whole."""
        self.away.clear()
        self.paused = 0.0

    def missing(self) -> None:
        """Stop the job where the pool lacks a node that it needs."""
        broken = self.scenario.broken
        if broken is not None and len(self.repairs) > broken:
            self.down = max(self.down or 0.0, self.repairs[0])

    def stop(self, time: float, tier: int) -> None:
        """Stop the whole job, which starts again from the newest copy that is left."""
        found = max(self.durable[tier:])
        self.lost[REDONE] += self.done - found * self.interval
        self.durable[: tier + 1] = [found] * (tier + 1)
        self.position, self.done = found, found * self.interval
        self.copying.clear()
        self.phase = "work"
        self.down = self.now + time

    def fail(self, hit: int) -> None:  # noqa: C901 - one failure, from what is hit to what stops
        """Let a node fail, and the plan answer it."""
        scenario, dice = self.scenario, self.dice
        replica = hit * scenario.replicas // scenario.nodes
        if replica in self.away:
            return
        if scenario.broken is not None and len(self.repairs) > scenario.broken:
            return  # nothing runs, nothing fails
        self.failures += 1
        self.left = None
        kind = scenario.kinds[
            int(np.searchsorted(self.odds, dice.random() * self.odds[-1], side="right"))
        ]
        hung = scenario.hang_time if dice.random() < scenario.hang_share else 0.0
        if scenario.whole:
            last = next(k for k in scenario.kinds if k.takes == JOB)
            self.stop(hung + self.drawn(*last.recovery_laws), last.tier)
            return
        time, tier, lost = self.recovery(kind)
        if scenario.group and kind.takes == NODE:
            mine = self.stale.setdefault(hit // scenario.group, set())
            if mine - {hit} and lost:
                tier = 1
            if lost:
                mine.add(hit)
        if kind.takes == JOB or scenario.others == "stop" or scenario.replicas == 1:
            self.stop(hung + time, tier)
            self.everyone()
            if scenario.broken is not None:
                heapq.heappush(self.repairs, self.now + self.drawn(scenario.repair))
                self.missing()
            return
        if scenario.others == "go-on":
            if self.phase == "work" and self.down is None:
                self.lost[REDONE] += self.done % scenario.step_time
                self.done -= self.done % scenario.step_time
            self.paused = max(self.paused, self.now + hung + scenario.stall)
        else:
            self.stop(hung + scenario.stall, tier)
            if time <= scenario.stall:
                return  # it is there when the others are
        self.away[replica] = self.now + hung + max(time, scenario.stall)
        self.left = replica
        if len(self.away) == scenario.replicas:
            first = min(self.away.values())
            self.stop(first - self.now, tier)

    def recovery(self, kind: Cause) -> tuple[float, int, bool]:
        """Time until what failed trains again, the tier that it reads, and whether a node went."""
        scenario, dice, spent = self.scenario, self.dice, 0.0
        if kind.takes == NODE:
            for _ in range(scenario.attempts):
                spent += scenario.attempt
                if dice.random() < scenario.success:
                    return spent, 0, False
        if kind.takes == NODE and self.take_spare():
            return spent + scenario.takeover, kind.tier, True
        self.needs += kind.takes == NODE
        return spent + self.drawn(*kind.recovery_laws), kind.tier, kind.takes == NODE


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
        failures=np.array([one.failures for one in runs]),
        lost={name: float(np.mean([one.lost[name] for one in runs])) for name in LOST},
    )
