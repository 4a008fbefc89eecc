"""The job that is simulated, and the draws of its random times."""

from __future__ import annotations

from dataclasses import field
from math import gamma
from typing import Any, Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from mofa_model.checks import not_negative, positive, share
from mofa_model.errors import BadValue
from mofa_model.records import dataclass
from mofa_model.spec.reliability import FailureLaw, RecoveryTime

Floats = NDArray[Any]
NODE, PROCESS, JOB, DOMAIN = "node", "process", "job", "domain"
"""Parts that a failure takes away; a domain is a failure domain inside a replica."""
AT_ONCE: Final = RecoveryTime(mean=0.0, law="deterministic")
"""A time that is always zero."""


@dataclass(frozen=True, kw_only=True)
class Cause:
    """One cause of failure."""

    name: str
    share: float
    recovery_laws: tuple[RecoveryTime, ...]
    """Parts of the recovery time, one after the other."""
    tier: int = 0
    """Nearest tier whose saves survive it."""
    takes: str = NODE
    """The part that it takes away, where nodes fail one by one (`planned`)."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A job, its checkpoints and its failures."""

    rate: float
    causes: tuple[Cause, ...]
    """Causes of failure; their shares add to one."""
    work: float
    """Work between saves of the nearest tier. [s]"""
    every: tuple[int, ...] = (1,)
    """Saves of the nearest tier for one of each tier. [1]"""
    blocking: tuple[float, ...] = (0.0,)
    """Blocking part of each tier's save. [s]"""
    background: tuple[float, ...] = (0.0,)
    """Background copy of each tier. [s]"""
    slowdown: float = 0.0
    """Relative slowdown of steps while a copy is in flight. [1]"""
    law: FailureLaw = field(default_factory=FailureLaw)
    """Law of the time between failures."""
    during_recovery: bool = True
    """Whether the failure clock runs while the job recovers."""

    def __post_init__(self) -> None:
        not_negative(rate=self.rate, slowdown=self.slowdown)
        positive(work=self.work)
        if not 0 < len(self.every) == len(self.blocking) == len(self.background):
            raise BadValue(
                "tiers",
                self.every,
                "every, blocking and background must have one value for each tier",
            )
        for cause in self.causes:
            share(share=cause.share)
            if cause.tier >= len(self.every):
                raise BadValue(
                    "tier", cause.tier, f"there are {len(self.every)} tiers, counted from 0"
                )
        if abs(sum(cause.share for cause in self.causes) - 1) > 1e-9:
            raise BadValue(
                "shares",
                [cause.share for cause in self.causes],
                "shares of failures must add to one",
            )


def draw_failures(scenario: Scenario, count: int, generator: Generator) -> Floats:
    """Draw times from one failure to the next; infinite where nothing fails. [s]"""
    law = scenario.law
    if scenario.rate == 0:
        return np.full(count, np.inf)
    mean = 1 / scenario.rate
    if law.kind == "weibull":
        return generator.weibull(law.shape, count) * (mean / gamma(1 + 1 / law.shape))
    times = generator.exponential(1.0, count)
    if law.kind == "exponential" or law.short_share == 0:
        return times * mean
    p = law.short_share
    long = (1 - p * law.short_mean) / (1 - p)
    return times * mean * np.where(generator.random(count) < p, law.short_mean, long)


def draw_recoveries(
    scenario: Scenario, cause_indices: NDArray[np.int_], generator: Generator
) -> Floats:
    """Draw the recovery times of failures with these causes. [s]"""
    times = np.zeros(len(cause_indices))
    for index, cause in enumerate(scenario.causes):
        failures = np.flatnonzero(cause_indices == index)
        for recovery in cause.recovery_laws:
            times[failures] += draw_times(recovery, len(failures), generator)
    return times


def draw_times(recovery_law: RecoveryTime, count: int, generator: Generator) -> Floats:
    """Draw times of one law. [s]"""
    if recovery_law.law == "exponential":
        return generator.exponential(recovery_law.mean, count)
    if recovery_law.law == "lognormal" and recovery_law.mean > 0 and recovery_law.cv > 0:
        spread = np.sqrt(np.log(1 + recovery_law.cv * recovery_law.cv))
        return generator.lognormal(np.log(recovery_law.mean) - spread * spread / 2, spread, count)
    return np.full(count, recovery_law.mean)
