"""The event loop: every replica has its own clock and is moved to its own next event.

    RECOVER ──▶ WORK ──▶ (WAIT) ──▶ SAVE ──▶ WORK ...    a failure leads to RECOVER

An event is the end of a phase, the end of a background copy, or a failure. A due save waits for the
last copy of its own tier. A failure cancels copies in flight, and the job restarts at the newest
durable save of a tier that survives.

Long stretches without a failure are skipped exactly: after a save of the last tier all tiers have
just saved, so the next period repeats the one before. The period is measured by running one, not
computed.
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
"""Row of `spent` after those of the phases: working time lost because a copy slowed steps."""

Watcher = Callable[["Fleet", NDArray[Any], NDArray[Any]], None]
"""Called before each step with the fleet, the time until the next event, and which replicas fail
then."""


@dataclass(frozen=True)
class Period:
    """One failure-free period between saves of the last tier, as measured."""

    time: float
    """Length. [s]"""
    spent: NDArray[Any]
    """Time in each phase, and slowed. [s]"""


class Fleet:
    """Independent replicas of one scenario. The last axis of arrays is the replica."""

    def __init__(
        self, scenario: Scenario, count: int, generator: Generator, *, skip: Period | None = None
    ) -> None:
        self.scenario, self.generator, self.skip = scenario, generator, skip
        tiers = len(scenario.every)
        self.tier_of = np.array([cause.tier for cause in scenario.causes])
        self.odds = np.cumsum([cause.share for cause in scenario.causes])
        self.now = np.zeros(count)
        self.phase = np.full(count, WORK)
        self.phase_ends = np.zeros(count)
        self.work_left = np.full(count, float(scenario.work))  # until the next save
        self.position = np.zeros(count, dtype=np.int64)  # in intervals of work
        self.copy_ends = np.full((tiers, count), np.inf)
        self.copied_position = np.zeros((tiers, count), dtype=np.int64)
        self.durable = np.zeros((tiers, count), dtype=np.int64)  # position of the newest save
        self.cause = np.zeros(count, dtype=np.int64)  # of the last failure
        self.next_failure = draw_failures(scenario, count, generator)
        self.spent = np.zeros((5, count))
        self.recovered = np.zeros((len(scenario.causes), count))
        self.redone = np.zeros((len(scenario.causes), count))
        self.failures = np.zeros((len(scenario.causes), count), dtype=np.int64)

    def step(self, watch: Watcher | None = None, stop: float = np.inf) -> NDArray[Any]:
        """Move every replica to its next event, at most to `stop`; returns the failed ones."""
        eps = self.scenario.slowdown
        speed = np.where(np.isfinite(self.copy_ends).any(axis=0), 1 / (1 + eps), 1.0)
        working = self.phase == WORK
        phase_end = np.where(working, self.now + self.work_left / speed, self.phase_ends)
        copy_end = self.copy_ends.min(axis=0)
        next_time = np.minimum(np.minimum(phase_end, copy_end), np.minimum(self.next_failure, stop))
        step = next_time - self.now
        failing = (self.next_failure <= next_time) & (next_time < stop)
        if watch is not None:
            watch(self, step, failing)
        replicas = np.arange(len(step))
        self.spent[self.phase, replicas] += step
        self.spent[SLOWED] += np.where(working, step * (1 - speed), 0.0)
        self.recovered[self.cause, replicas] += np.where(self.phase == RECOVER, step, 0.0)
        self.work_left -= np.where(working, step * speed, 0.0)
        self.now = next_time
        copied = (copy_end <= next_time) & ~failing
        ended = (phase_end <= next_time) & ~failing & ~copied
        self._end_copies(np.flatnonzero(copied))
        self._end_phase(np.flatnonzero(ended & (next_time < stop)), stop)
        failed = np.flatnonzero(failing)
        self._fail(failed)
        return failed

    def _end_copies(self, replicas: NDArray[np.int_]) -> None:
        if not len(replicas):
            return
        for tier in range(len(self.copy_ends)):
            done = replicas[self.copy_ends[tier, replicas] <= self.now[replicas]]
            self.durable[tier, done] = self.copied_position[tier, done]
            self.copy_ends[tier, done] = np.inf
        self._save_if_ready(replicas[self.phase[replicas] == WAIT])

    def _end_phase(self, replicas: NDArray[np.int_], stop: float) -> None:
        """End the phase of some replicas: recovery becomes work, work a save, a save work again."""
        phase = self.phase[replicas]
        self.phase[replicas[phase == RECOVER]] = WORK
        worked, saved = replicas[phase == WORK], replicas[phase == SAVE]
        self.position[worked] += 1
        self.work_left[worked] = self.scenario.work
        self.phase[worked] = WAIT
        self.phase_ends[worked] = np.inf
        self._save_if_ready(worked)
        self.phase[saved] = WORK
        for tier, every in enumerate(self.scenario.every):
            due = saved[self.position[saved] % every == 0]
            if self.scenario.background[tier] > 0:
                self.copy_ends[tier, due] = self.now[due] + self.scenario.background[tier]
                self.copied_position[tier, due] = self.position[due]
            else:
                self.durable[tier, due] = self.position[due]
        if self.skip is not None:
            self._skip(saved[self.position[saved] % self.scenario.every[-1] == 0], self.skip, stop)

    def _save_if_ready(self, replicas: NDArray[np.int_]) -> None:
        """Begin the saves that are due, unless one of their tiers is still copying."""
        block, ready = np.zeros(len(replicas)), np.ones(len(replicas), dtype=bool)
        for tier, every in enumerate(self.scenario.every):
            due = self.position[replicas] % every == 0
            ready &= ~due | np.isinf(self.copy_ends[tier, replicas])
            block += np.where(due, self.scenario.blocking[tier], 0.0)
        replicas, block = replicas[ready], block[ready]
        self.phase[replicas] = SAVE
        self.phase_ends[replicas] = self.now[replicas] + block

    def _fail(self, replicas: NDArray[np.int_]) -> None:
        if not len(replicas):
            return
        drawn = self.generator.random(len(replicas)) * self.odds[-1]
        causes = np.minimum(np.searchsorted(self.odds, drawn, side="right"), len(self.odds) - 1)
        intervals_done = self.position[replicas] + 1 - self.work_left[replicas] / self.scenario.work
        for cause, tier in enumerate(self.tier_of):
            hit = replicas[causes == cause]
            durable = self.durable[tier:, hit].max(axis=0)
            redone = intervals_done[causes == cause] - durable
            self.redone[cause, hit] += redone * self.scenario.work
            self.durable[: tier + 1, hit] = durable
            self.position[hit] = durable
            self.failures[cause, hit] += 1
        self._recover(replicas, causes)

    def _recover(self, replicas: NDArray[np.int_], causes: NDArray[np.int_]) -> None:
        self.copy_ends[:, replicas] = np.inf
        self.work_left[replicas] = self.scenario.work
        self.phase[replicas] = RECOVER
        self.cause[replicas] = causes
        recovery = draw_recoveries(self.scenario, causes, self.generator)
        self.phase_ends[replicas] = self.now[replicas] + recovery
        clock = self.now[replicas] if self.scenario.during_recovery else self.phase_ends[replicas]
        time = draw_failures(self.scenario, len(replicas), self.generator)
        self.next_failure[replicas] = clock + time

    def _skip(self, replicas: NDArray[np.int_], period: Period, stop: float) -> None:
        quiet = np.minimum(self.next_failure[replicas], stop) - self.now[replicas]
        periods = np.floor(quiet / period.time)
        periods = np.where(np.isfinite(periods), np.maximum(periods - 1, 0), 0)
        intervals = periods.astype(np.int64) * self.scenario.every[-1]
        self.now[replicas] += periods * period.time
        self.copy_ends[:, replicas] += periods * period.time
        self.position[replicas] += intervals
        self.copied_position[:, replicas] += intervals
        self.durable[:, replicas] += intervals
        self.spent[:, replicas] += np.multiply.outer(period.spent, periods)


def measure_period(scenario: Scenario) -> Period:
    """The second of two failure-free periods, as it is run."""
    fleet = Fleet(scenario, 1, np.random.default_rng(0))
    fleet.next_failure[:] = np.inf
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
    (start, spent), (end, spent_later) = marks
    return Period(end - start, spent_later - spent)
