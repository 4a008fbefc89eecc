"""What the check of assumptions promises, simulated: false verdicts in a year, and how long a changed rate takes to be found.

Pools fail by recovery class as the paper assumes, five times in a thousand node-days, or in batches at one instant. Somebody
looks every hour and sees whole days and the part of today that is over, as the operator does; every class and the total are
judged, in both directions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.reliability.assumption import (
    ALARM,
    BATCHES,
    MEMORY,
    RATIOS,
    YEAR,
    counted,
    log_ratio,
    needed_evidence,
    replay,
)
from mofa_model.spec.recovery_classes import RecoveryClass
from mofa_model.spec.reliability import PAPER_RATE

BEFORE: Final = 60
"""Days as assumed before the rate changes. [d]"""
_AFTER: Final = {0.5: 5.0, 2.0: 3.0}
"""Days after the change for which is waited, over those of a mean delay at the best. [1]"""
_AT_ONCE: Final = 100
"""Pools that are simulated together. [1]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Promise:
    """What looking every hour at many pools of one size comes to."""

    nodes: int
    """Nodes of each pool. [1]"""
    batch: int
    """Failures of one event. [1]"""
    false_verdicts: float
    """Share of pools with any false verdict in a year. [1]"""
    false_alerts: float
    """Share with one that says the rate is higher, which is an alert. [1]"""
    doubled_median: float
    """Time until a doubled rate is found, the median. [d]"""
    doubled_p90: float
    """What nine of ten pools need for it. [d]"""
    halved_median: float
    """The median for a halved rate. [d]"""
    halved_p90: float
    """What nine of ten pools need for that. [d]"""


def promise(
    nodes: int, batch: int = 1, *, pools: int = 200, looks: int = 24, seed: int = 1
) -> Promise:
    """Simulate pools of one size, `looks` times a day. Ours. []"""
    generator = np.random.default_rng(seed)
    days = int(YEAR)
    quiet = _first(nodes, batch, np.ones(days), pools, looks, generator)
    delays = {}
    for ratio, times in _AFTER.items():
        # A known change is found after log(20 years in days) / information per day, in the mean.
        wait = (
            batch
            * np.log(YEAR / ALARM)
            / (PAPER_RATE * nodes * (ratio * np.log(ratio) - ratio + 1))
        )
        rate = np.append(np.ones(BEFORE), np.full(int(np.ceil(times * wait)), ratio))
        found = _first(nodes, batch, rate, pools, looks, generator).min(axis=1)
        after = found[found >= BEFORE] - BEFORE
        delays[ratio] = [float(np.quantile(after, share, method="higher")) for share in (0.5, 0.9)]
    return Promise(
        nodes=nodes,
        batch=batch,
        false_verdicts=float(np.mean(np.isfinite(quiet).any(axis=1))),
        false_alerts=float(np.mean(np.isfinite(quiet[:, 0]))),
        doubled_median=delays[2.0][0],
        doubled_p90=delays[2.0][1],
        halved_median=delays[0.5][0],
        halved_p90=delays[0.5][1],
    )


def _first(
    nodes: int,
    batch: int,
    rate: NDArray[Any],
    pools: int,
    looks: int,
    generator: np.random.Generator,
) -> NDArray[Any]:
    """When each pool has its first verdict, by direction; infinite for never. [d]"""
    parts = [
        _some(nodes, batch, rate, min(_AT_ONCE, pools - done), looks, generator)
        for done in range(0, pools, _AT_ONCE)
    ]
    return np.concatenate(parts)


def _some(
    nodes: int,
    batch: int,
    rate: NDArray[Any],
    pools: int,
    looks: int,
    generator: np.random.Generator,
) -> NDArray[Any]:
    by_class = np.array([one.share for one in RecoveryClass if one.share]) * PAPER_RATE * nodes
    events = generator.poisson(
        rate[:, None, None, None] * by_class / (batch * looks),
        (len(rate), looks, pools, len(by_class)),
    )
    seen = np.cumsum(batch * events, axis=1)
    seen = np.concatenate(
        [seen, seen.sum(axis=-1, keepdims=True)], axis=-1
    )  # hours of today, and the total
    expected = np.append(by_class, by_class.sum())
    shares = np.append(np.full(len(by_class), 0.5 / len(by_class)), 0.5)
    needed = np.array([needed_evidence(ALARM * share) for share in shares])[:, None]
    whole = np.broadcast_to(expected, seen[:, -1].shape)
    evidence, size = replay(
        np.ones(len(rate)), whole, seen[:, -1], most=float(needed.max()) + MEMORY
    )
    first = np.full((pools, len(needed), 2), np.inf)
    before = np.concatenate([np.full_like(evidence[:1], -np.inf), evidence[:-1]])
    yesterday = np.concatenate([np.zeros_like(size[:1]), size[:-1]])
    for hour in range(looks):
        part = (hour + 1) / looks
        gained = log_ratio(
            (expected * part)[:, None, None, None], seen[:, hour, ..., None, None, None], RATIOS
        )
        now = np.logaddexp(before, np.log(part)) + gained / BATCHES[:, None, None]
        is_over = counted(now, size if hour == looks - 1 else yesterday) >= needed
        at = np.where(is_over.any(axis=0), is_over.argmax(axis=0) + part, np.inf)
        first = np.minimum(first, at)
    return np.asarray(first.min(axis=1))
