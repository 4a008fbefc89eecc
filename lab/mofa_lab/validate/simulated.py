"""ETTR to a wanted standard error, from independent renewal cycles.

A failure that only the last tier survives is a renewal: the job restarts at a save of the last tier
with nothing in flight, and what follows does not depend on the past. Cycles from one such failure
to the next are independent, so ETTR is the ratio of their mean progress to their mean length, and
the standard error is that of a ratio.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mofa_model.errors import BadValue
from mofa_model.simulator.engine import Fleet, Period, measure_period
from mofa_model.simulator.scenario import Scenario
from mofa_model.units import Ratio


@dataclass(frozen=True, kw_only=True, slots=True)
class SimulatedEttr:
    """A simulated ETTR."""

    ettr: Ratio
    """Progress over time. [1]"""
    error: Ratio
    """Standard error. [1]"""
    cycles: int
    """Renewal cycles simulated. [1]"""


class _Cycles(Fleet):
    """A fleet that begins with a failure, and loses replicas whose cycle is over."""

    def begin_with_failure(self, cause_indices: NDArray[np.int_]) -> None:
        """Start every replica with the recovery from a failure of the given cause."""
        self._recover(np.arange(len(self.now)), cause_indices)

    def keep(self, chosen: NDArray[Any]) -> None:
        """Keep the chosen replicas of the simulation, and drop the others."""
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray) and name not in {"tier_of", "odds"}:
                setattr(self, name, value[..., chosen])


def simulate_ettr(
    scenario: Scenario,
    *,
    seed: int,
    error: float = 5e-4,
    batch: int = 4096,
    most: int = 4_000_000,
    skip: bool = True,
) -> SimulatedEttr:
    """Simulate renewal cycles until the standard error is at most `error`, or `most` cycles are
    done. [1]
    """
    if scenario.rate == 0:
        raise BadValue(
            "rate", scenario.rate, "renewal cycles end at failures; give a rate above zero"
        )
    if not any(
        cause.share > 0 and cause.tier == len(scenario.every) - 1 for cause in scenario.causes
    ):
        raise BadValue(
            "tiers",
            scenario.every,
            "renewal cycles end at failures that read the last tier; give it some",
        )
    generator = np.random.default_rng(seed)
    period = measure_period(scenario) if skip else None
    progress, length = np.empty(0), np.empty(0)
    while True:
        more = _cycles(scenario, min(batch, most - len(length)), generator, period)
        progress, length = np.append(progress, more[0]), np.append(length, more[1])
        ratio = progress.sum() / length.sum()
        residual = progress - ratio * length
        spread = float(np.sqrt(np.sum(residual * residual)) / length.sum())
        if spread <= error or len(length) >= most:
            return SimulatedEttr(ettr=float(ratio), error=spread, cycles=len(length))
        wanted = len(length) * ((spread / error) ** 2 - 1) * 1.05
        batch = int(np.clip(wanted, 1024, 65536))


def _cycles(
    scenario: Scenario, count: int, generator: np.random.Generator, period: Period | None
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Progress and length of `count` cycles. [s]"""
    deepest = len(scenario.every) - 1
    last = np.array(
        [i for i, cause in enumerate(scenario.causes) if cause.tier == deepest and cause.share > 0]
    )
    odds = np.cumsum([scenario.causes[i].share for i in last])
    fleet = _Cycles(scenario, count, generator, skip=period)
    first = np.searchsorted(odds, generator.random(count) * odds[-1], side="right")
    fleet.begin_with_failure(last[np.minimum(first, len(last) - 1)])
    progress, length = [], []
    while len(fleet.now):
        failed = fleet.step()
        ended = failed[fleet.tier_of[fleet.cause[failed]] == deepest]
        if len(ended):
            progress.append(fleet.position[ended] * scenario.work)
            length.append(fleet.now[ended])
            fleet.keep(np.setdiff1d(np.arange(len(fleet.now)), ended, assume_unique=True))
    return np.concatenate(progress), np.concatenate(length)
