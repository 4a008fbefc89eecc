"""A job under a recovery plan as an outsider would simulate it: processes in SimPy, and not a line
of ours.

It is told what users are told: nodes, failures of a node and day, the plan's words, what a save
stops, what a copy takes. Nodes fail, the trainer trains and is interrupted, copies are on their
way, replicas are away and come back, spares are taken and refilled. Of the product it reads the
record of the plan alone; it has no formula but those that draw times.
"""

from __future__ import annotations

import math
import random
from statistics import fmean, stdev
from typing import Any

import simpy

CLASSES = (("process", 0.3, 141.0), ("pod", 0.6, 262.0), ("job", 0.1, 307.0))
"""Section 3.4 of the paper: what starts again, its share of failures, and how long that
takes. [s]
"""

_INSTANT = 1e-5
"""Time below which something is over: a clock of many years cannot tell less. [s]"""


class Outsider:
    """One run. `told` has nodes, rate, plan, replicas, step, block, state, snapshot, micro, stages
    and hangs.
    """

    def __init__(
        self, facts: Any, plan: Any, steps: int, every: tuple[int, ...], seed: int
    ) -> None:
        self.told, self.plan, self.every = facts, plan, every
        self.dice, self.env = random.Random(seed), simpy.Environment()
        self.interval = steps * facts.step
        self.block, self.copy_time = [facts.block], [0.0]
        if plan.peers:
            self.block.insert(0, facts.state / facts.snapshot)
            self.copy_time.insert(0, facts.state / plan.peer_bandwidth)
        self.saved = [0] * len(self.block)  # newest durable save of each tier, in intervals
        self.position, self.part, self.failures = 0, 0.0, 0
        self.copies: dict[int, simpy.Process] = {}
        self.gone: dict[int, simpy.Process] = {}
        self.back_at: dict[int, float] = {}
        self.lost_of: dict[int, set[int]] = {}
        self.still_until, self.is_down, self.step_is_lost = 0.0, False, False
        self.spares = plan.spares
        self.changed = self.env.event()
        self.trainer = self.env.process(self.training())
        self.env.process(self.failing())
        if facts.hangs is not None and facts.hangs.pauses:
            self.env.process(self.pausing())
        if plan.spares and plan.jobs > 1:
            self.env.process(self.others_taking())

    # -- the trainer

    def training(self):
        """Trains, and recovers when it is interrupted."""
        while True:
            try:
                yield from self.intervals()
            except simpy.Interrupt as stop:
                yield from self.recovering(stop.cause)

    def recovering(self, stop):
        """From the newest save that is left; another failure begins it anew."""
        while stop is not None:
            seconds, tier = stop
            for copy in list(self.copies.values()):
                copy.interrupt()
            self.copies.clear()
            position = max(self.saved[tier:])
            self.saved[: tier + 1] = [position] * (tier + 1)
            self.position, self.part, self.is_down = position, 0.0, True
            try:
                yield self.env.timeout(seconds)
                stop = None
            except simpy.Interrupt as another:
                stop = another.cause
        self.is_down = False

    def intervals(self):
        """Work between saves, and saves."""
        while True:
            while self.part < self.interval - _INSTANT:
                yield from self.standing_still()
                pace, begun = self.pace(), self.env.now
                yield from self.wait((self.interval - self.part) / pace)
                self.part += (self.env.now - begun) * pace
                if self.step_is_lost:
                    self.part = math.floor(self.part / self.told.step + 1e-9) * self.told.step
                    self.step_is_lost = False
            self.position, self.part = self.position + 1, 0.0
            due = [tier for tier, of in enumerate(self.every) if self.position % of == 0]
            for tier in due:
                if tier in self.copies:
                    yield self.copies[tier]
            left = sum(self.block[tier] for tier in due)
            while left > _INSTANT:
                yield from self.standing_still()
                begun = self.env.now
                yield from self.wait(left)
                left -= self.env.now - begun
                self.step_is_lost = False  # none was on its way
            for tier in due:
                if self.copy_time[tier]:
                    self.copies[tier] = self.env.process(self.copying(tier, self.position))
                else:
                    self.is_safe(tier, self.position)

    def wait(self, seconds):
        """Until then, or until replicas leave or join."""
        done = self.env.timeout(seconds)
        yield done if str(self.plan.others) == "stop" else done | self.changed

    def standing_still(self):
        """While replicas leave or join."""
        while self.env.now < self.still_until:
            yield self.env.timeout(self.still_until - self.env.now)

    def pace(self) -> float:
        """Work in a second, with the replicas that are there."""
        all_of, there = self.told.replicas, self.told.replicas - len(self.gone)
        if self.plan.keeps_batch:
            more = self.told.stages - 1
            return (self.told.micro + more) / (math.ceil(self.told.micro * all_of / there) + more)
        return there / all_of

    def copying(self, tier, position):
        """A copy on its way."""
        try:
            yield self.env.timeout(self.copy_time[tier])
        except simpy.Interrupt:
            return
        self.copies.pop(tier, None)
        self.is_safe(tier, position)

    def is_safe(self, tier, position):
        """A save is durable; peers hold each other's state again."""
        self.saved[tier] = position
        if tier == 0:
            self.lost_of.clear()

    # -- what happens to it

    def failing(self):
        """Nodes fail, one by one."""
        while True:
            yield self.env.timeout(self.dice.expovariate(self.told.nodes * self.told.rate / 86400))
            node = self.dice.randrange(self.told.nodes)
            if node * self.told.replicas // self.told.nodes not in self.gone:
                self.failures += 1
                self.fails(node)

    def pausing(self):
        """Pauses; one that outlasts the timeout is taken for a hang, and processes start again."""
        hangs = self.told.hangs
        while True:
            yield self.env.timeout(self.dice.expovariate(hangs.pauses))
            spread = math.sqrt(math.log1p(hangs.pause.cv**2))
            middle = math.log(hangs.pause.mean) - spread**2 / 2
            if not self.is_down and self.dice.lognormvariate(middle, spread) > self.timeout():
                self.stop(self.timeout() + CLASSES[0][2], 0)
                self.all_are_there()

    def timeout(self) -> float:
        return min(self.plan.watchdog, self.told.hangs.timeout)

    def others_taking(self):
        """Other jobs take spares as often as this one."""
        rate = (self.plan.jobs - 1) * self.told.nodes * self.told.rate * CLASSES[1][1] / 86400
        while True:
            yield self.env.timeout(self.dice.expovariate(rate))
            self.takes_spare()

    def takes_spare(self) -> bool:
        if not self.spares:
            return False
        self.spares -= 1
        self.env.process(self.refilling())
        return True

    def refilling(self):
        """Another one stands by."""
        yield self.env.timeout(self.dice.expovariate(1 / self.plan.refill))
        self.spares += 1

    def stop(self, seconds: float, tier: int) -> None:
        """The whole job."""
        self.trainer.interrupt((seconds, tier))

    def all_are_there(self) -> None:
        for back in self.gone.values():
            back.interrupt()
        self.gone.clear()
        self.still_until = self.env.now

    def fails(self, node: int) -> None:
        """A node, at any time."""
        plan, facts = self.plan, self.told
        what = self.dice.choices(CLASSES, [share for _, share, _ in CLASSES])[0]
        hung = 0.0
        if facts.hangs is not None and self.dice.random() < facts.hangs.share:
            hung = self.timeout()
        if plan.whole:
            self.stop(hung + CLASSES[2][2], len(self.block) - 1)
            return
        seconds, node_is_lost = self.repair_of(what)
        tier = int(what[0] == "job" and plan.peers > 0)
        if plan.peers and what[0] == "pod" and node_is_lost:
            lost = self.lost_of.setdefault(node // plan.peers, set())
            tier = int(bool(lost - {node}))
            lost.add(node)
        others = str(plan.others)
        if what[0] == "job" or others == "stop" or facts.replicas == 1:
            self.stop(hung + seconds, tier)
            self.all_are_there()
            return
        if others == "go-on":
            self.step_is_lost = not self.is_down
            self.still_until = max(self.still_until, self.env.now + hung + plan.stall)
        else:
            self.stop(hung + plan.stall, tier)
            if seconds <= plan.stall:
                return
        replica = node * facts.replicas // facts.nodes
        back = self.env.now + hung + max(seconds, plan.stall)
        self.gone[replica] = self.env.process(self.away(replica, back))
        self.back_at[replica] = back
        if len(self.gone) == facts.replicas:
            first = min(self.back_at[replica] for replica in self.gone)
            self.stop(first - self.env.now, tier)
        self.notice()

    def repair_of(self, what) -> tuple[float, bool]:
        """How long what failed is away, and whether its node was replaced."""
        name, _, seconds = what
        if name != "pod":
            return seconds, False
        plan, spent = self.plan, 0.0
        for _ in range(plan.attempts):
            spent += CLASSES[0][2] if plan.attempt is None else plan.attempt
            if self.dice.random() < plan.success:
                return spent, False
        return spent + (plan.takeover if self.takes_spare() else seconds), True

    def away(self, replica: int, back: float):
        """A replica, until it joins the others."""
        try:
            yield self.env.timeout(back - self.env.now)
        except simpy.Interrupt:
            return
        del self.gone[replica]
        self.still_until = max(self.still_until, self.env.now + self.plan.rejoin)
        self.notice()

    def notice(self) -> None:
        """The trainer looks who is there."""
        self.changed.succeed()
        self.changed = self.env.event()

    def ettr(self, failures: int) -> float:
        """Work that is done over time, from the first failure to another one. [1]"""
        first, began = 0.0, 0.0
        for until in (1, failures + 1):
            while self.failures < until:
                self.env.step()
            if until == 1:
                first, began = self.position * self.interval + self.part, self.env.now
        return (self.position * self.interval + self.part - first) / (self.env.now - began)


def judged(
    facts: Any, plan: Any, steps: int, every: tuple[int, ...], sure: float, batch: int = 400
) -> tuple[float, float]:
    """ETTR of as many runs as make its standard error so small. [1, 1]"""
    ettrs: list[float] = []
    while len(ettrs) < 8 or stdev(ettrs) / math.sqrt(len(ettrs)) > sure:
        ettrs.append(Outsider(facts, plan, steps, every, len(ettrs)).ettr(batch))
    return fmean(ettrs), stdev(ettrs) / math.sqrt(len(ettrs))
