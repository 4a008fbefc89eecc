"""The event loop: every replica has its own clock and is moved to its own next event.

    RECOVER ──▶ WORK ──▶ (WAIT) ──▶ SAVE ──▶ WORK ...    a failure leads to RECOVER

An event is the end of a phase, the end of a background copy, or a failure. A due save waits for the
last copy of its own tier. A failure cancels copies in flight, and the job restarts at the freshest
durable save of a tier that survives.

Long quiet stretches are skipped exactly: right after a save of the last tier all tiers have just
saved, so without a failure the next period repeats the one before. The period is measured by
running one, never computed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from mofa_model.records import dataclass
from mofa_model.simulator.scenario import Scenario, draw_failures, draw_recoveries

RECOVER, WORK, WAIT, SAVE = range(4)
PHASES: Final = ("recovering", "working", "waiting for a copy", "saving")
SLOWED: Final = 4
"""Row of `spent` beside the phases: the part of working time that a copy took."""

Watcher = Callable[["Fleet", NDArray[Any], NDArray[Any]], None]
"""Called before anything changes, with fleet, time to go on, and failing replicas."""


@dataclass(frozen=True)
class Period:
    """One failure-free period between saves of the last tier, as measured."""

    time: float
    """Length. [s]"""
    spent: NDArray[Any]
    """Time in each phase, and slowed. [s]"""


class Fleet:
    """Replicas of one scenario. Arrays end in the replica axis."""

    def __init__(
        self, scenario: Scenario, count: int, generator: Generator, *, skip: Period | None = None
    ) -> None:
        self.scenario, self.generator, self.skip = scenario, generator, skip
        tiers = len(scenario.every)
        self.tier_of = np.array([cause.tier for cause in scenario.causes])
        self.odds = np.cumsum([cause.share for cause in scenario.causes])
        self.now = np.zeros(count)
        self.phase = np.full(count, WORK)
        self.until = np.zeros(count)
        self.left = np.full(count, float(scenario.work))
        self.position = np.zeros(count, dtype=np.int64)
        self.copy_end = np.full((tiers, count), np.inf)
        self.copy_of = np.zeros((tiers, count), dtype=np.int64)
        self.held = np.zeros((tiers, count), dtype=np.int64)
        self.cause = np.zeros(count, dtype=np.int64)
        self.fails = draw_failures(scenario, count, generator)
        self.spent = np.zeros((5, count))
        self.recovered = np.zeros((len(scenario.causes), count))
        self.redone = np.zeros((len(scenario.causes), count))
        self.failures = np.zeros((len(scenario.causes), count), dtype=np.int64)

    def step(self, watch: Watcher | None = None, stop: float = np.inf) -> NDArray[Any]:
        """Move every replica to its next event, at most to `stop`; indices of failed ones."""
        eps = self.scenario.slowdown
        speed = np.where(np.isfinite(self.copy_end).any(axis=0), 1 / (1 + eps), 1.0)
        working = self.phase == WORK
        end = np.where(working, self.now + self.left / speed, self.until)
        copy = self.copy_end.min(axis=0)
        then = np.minimum(np.minimum(end, copy), np.minimum(self.fails, stop))
        step = then - self.now
        fails = (self.fails <= then) & (then < stop)
        if watch is not None:
            watch(self, step, fails)
        every = np.arange(len(step))
        self.spent[self.phase, every] += step
        self.spent[SLOWED] += np.where(working, step * (1 - speed), 0.0)
        self.recovered[self.cause, every] += np.where(self.phase == RECOVER, step, 0.0)
        self.left -= np.where(working, step * speed, 0.0)
        self.now = then
        copied = (copy <= then) & ~fails
        ended = (end <= then) & ~fails & ~copied
        self._end_copies(np.flatnonzero(copied))
        self._end_phase(np.flatnonzero(ended & (then < stop)), stop)
        failed = np.flatnonzero(fails)
        self._fail(failed)
        return failed

    def _end_copies(self, who: NDArray[np.int_]) -> None:
        if not len(who):
            return
        for tier in range(len(self.copy_end)):
            done = who[self.copy_end[tier, who] <= self.now[who]]
            self.held[tier, done] = self.copy_of[tier, done]
            self.copy_end[tier, done] = np.inf
        self._save_if_ready(who[self.phase[who] == WAIT])

    def _end_phase(self, who: NDArray[np.int_], stop: float) -> None:
        """Let some runs end their phase: recovery becomes work, work a save, a save work again."""
        phase = self.phase[who]
        self.phase[who[phase == RECOVER]] = WORK
        worked, saved = who[phase == WORK], who[phase == SAVE]
        self.position[worked] += 1
        self.left[worked] = self.scenario.work
        self.phase[worked] = WAIT
        self.until[worked] = np.inf
        self._save_if_ready(worked)
        self.phase[saved] = WORK
        for tier, every in enumerate(self.scenario.every):
            due = saved[self.position[saved] % every == 0]
            if self.scenario.background[tier] > 0:
                self.copy_end[tier, due] = self.now[due] + self.scenario.background[tier]
                self.copy_of[tier, due] = self.position[due]
            else:
                self.held[tier, due] = self.position[due]
        if self.skip is not None:
            self._skip(saved[self.position[saved] % self.scenario.every[-1] == 0], self.skip, stop)

    def _save_if_ready(self, who: NDArray[np.int_]) -> None:
        """Begin the saves that are due, unless one waits for its tier's last copy."""
        block, ready = np.zeros(len(who)), np.ones(len(who), dtype=bool)
        for tier, every in enumerate(self.scenario.every):
            due = self.position[who] % every == 0
            ready &= ~due | np.isinf(self.copy_end[tier, who])
            block += np.where(due, self.scenario.blocking[tier], 0.0)
        who, block = who[ready], block[ready]
        self.phase[who] = SAVE
        self.until[who] = self.now[who] + block

    def _fail(self, who: NDArray[np.int_]) -> None:
        if not len(who):
            return
        drawn = self.generator.random(len(who)) * self.odds[-1]
        causes = np.minimum(np.searchsorted(self.odds, drawn, side="right"), len(self.odds) - 1)
        done = self.position[who] + 1 - self.left[who] / self.scenario.work
        for cause, tier in enumerate(self.tier_of):
            mine = who[causes == cause]
            found = self.held[tier:, mine].max(axis=0)
            self.redone[cause, mine] += (done[causes == cause] - found) * self.scenario.work
            self.held[: tier + 1, mine] = found
            self.position[mine] = found
            self.failures[cause, mine] += 1
        self._recover(who, causes)

    def _recover(self, who: NDArray[np.int_], causes: NDArray[np.int_]) -> None:
        self.copy_end[:, who] = np.inf
        self.left[who] = self.scenario.work
        self.phase[who] = RECOVER
        self.cause[who] = causes
        self.until[who] = self.now[who] + draw_recoveries(self.scenario, causes, self.generator)
        clock = self.now[who] if self.scenario.during_recovery else self.until[who]
        self.fails[who] = clock + draw_failures(self.scenario, len(who), self.generator)

    def _skip(self, who: NDArray[np.int_], period: Period, stop: float) -> None:
        times = np.floor((np.minimum(self.fails[who], stop) - self.now[who]) / period.time)
        times = np.where(np.isfinite(times), np.maximum(times - 1, 0), 0)
        moved = times.astype(np.int64) * self.scenario.every[-1]
        self.now[who] += times * period.time
        self.copy_end[:, who] += times * period.time
        self.position[who] += moved
        self.copy_of[:, who] += moved
        self.held[:, who] += moved
        self.spent[:, who] += np.multiply.outer(period.spent, times)


def measure_period(scenario: Scenario) -> Period:
    """Run two failure-free periods and time the second."""
    fleet = Fleet(scenario, 1, np.random.default_rng(0))
    fleet.fails[:] = np.inf
    marks: list[tuple[float, NDArray[Any]]] = []
    while len(marks) < 2:
        before = fleet.phase[0]
        fleet.step()
        if (
            before == SAVE
            and fleet.phase[0] == WORK
            and fleet.position[0] % scenario.every[-1] == 0
        ):
            marks.append((float(fleet.now[0]), fleet.spent[:, 0].copy()))
    (start, spent), (end, more) = marks
    return Period(end - start, more - spent)
