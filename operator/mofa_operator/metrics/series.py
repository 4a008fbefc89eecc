"""From figures to samples: which series an object has, and their values. Missing figures have no series, never a zero."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeVar

from mofa_operator.decision import JobFigures, ProfileFigures
from mofa_operator.metrics.declared import AXES, RECOVERY_BUCKETS
from mofa_operator.snapshot import Running

Row = tuple[str, tuple[str, ...], float]
"""Name of a series, values of its labels in the declared order, value."""

Name = TypeVar("Name")

CLASSES: Final = ("process", "pod", "job")
"""Recovery classes."""
FAILURE: Final = "failure"
"""The cause that every job is counted for, whether or not it came to it."""

PREDICTED: Final = {
    "tokens_per_second": "mofa_job_predicted_tokens_per_second",
    "step_seconds": "mofa_job_predicted_step_seconds",
    "ettr": "mofa_job_predicted_ettr_ratio",
    "mfu": "mofa_job_predicted_mfu_ratio",
    "memory_bytes": "mofa_job_predicted_memory_bytes",
}
"""Metric of each prediction."""


class Distribution:
    """A histogram that only grows."""

    __slots__ = ("count", "edges", "held", "total")

    def __init__(self, edges: tuple[float, ...]) -> None:
        self.edges = edges
        """Upper edges of the buckets, the infinite one left out."""
        self.held = [0] * (len(edges) + 1)
        """Values by bucket, not cumulated."""
        self.total = 0.0
        """Sum of the values."""
        self.count = 0
        """Number of the values."""

    def add(self, value: float) -> None:
        """Count one value, a finite number."""
        self.held[bisect_left(self.edges, value)] += 1
        self.total += value
        self.count += 1


class Counted:
    """What only grows while a job lives: a source that forgets, or an outage, must not make a counter fall."""

    __slots__ = ("interruptions", "last_step", "lost", "moved", "recent", "recoveries")

    def __init__(self) -> None:
        self.interruptions: dict[tuple[str, str], float] = {}
        """By class and cause."""
        self.lost: dict[str, float] = {}
        """Seconds by cause."""
        self.recoveries: dict[str, Distribution] = {}
        """By class."""
        self.recent: dict[str, tuple[float, ...]] = {}
        """The last recovery times that were seen, by class."""
        self.last_step: int | None = None
        """Last finished step that was seen."""
        self.moved: float | None = None
        """When it was first seen."""

    def take(self, running: Running, now: float) -> None:
        """Count what was seen at `now`; from the first look on there are zeros, so that the first failure is an increase."""
        for name in CLASSES:
            self.interruptions.setdefault((name, FAILURE), 0.0)
            self.recoveries.setdefault(name, Distribution(RECOVERY_BUCKETS))
        self.lost.setdefault(FAILURE, 0.0)
        _raise_to(self.interruptions, running.interruptions)
        _raise_to(self.lost, running.lost)
        for name, times in running.recoveries.items():
            seen = tuple(time for time in times if math.isfinite(time))
            known = self.recoveries.setdefault(name, Distribution(RECOVERY_BUCKETS))
            if new := appended(self.recent.get(name, ()), seen):
                self.recent[name] = seen
                for time in new:
                    known.add(time)
        if running.step is not None and running.step != self.last_step:
            self.last_step, self.moved = running.step, now


def appended(before: tuple[float, ...], after: tuple[float, ...]) -> tuple[float, ...]:
    """What was appended to a list of which only the last items are kept; nothing where the list was cut short.

    >>> appended((60.0, 90.0, 60.0), (90.0, 60.0, 60.0, 30.0))
    (60.0, 30.0)
    """
    size = len(after)
    if any(before[at : at + size] == after for at in range(len(before) - size + 1)):
        return ()
    shared = range(min(len(before), size), 0, -1)
    return after[next((count for count in shared if before[-count:] == after[:count]), 0) :]


def _raise_to(held: dict[Name, float], seen: Mapping[Name, float]) -> None:
    """Let every count grow to what was seen."""
    for key, value in seen.items():
        if math.isfinite(value):
            held[key] = max(held.get(key, 0.0), value)


def job(figures: JobFigures, counted: Counted) -> Iterator[Row]:
    """Series of one job."""
    this = (figures.key.namespace, figures.key.name, figures.key.kind.kind)
    for name, band in figures.predicted.items():
        if name in PREDICTED:
            yield from _band(PREDICTED[name], this, band, ("lower", "target", "upper"))
    yield from _one(
        "mofa_job_checkpoint_interval_seconds", (*this, "recommended"), figures.checkpoint_interval
    )
    yield from _one("mofa_job_ettr_objective_ratio", this, figures.objective_ettr)
    yield from _one("mofa_job_throughput_residual_ratio", this, figures.residual)
    yield from _one("mofa_job_step_due_timestamp_seconds", this, figures.step_due)
    if figures.strategy:
        axes = tuple(figures.strategy.get(axis, "") for axis in AXES)
        yield "mofa_job_strategy_info", (*this, figures.profile, *axes), 1.0
    for (name, cause), value in list(counted.interruptions.items()):
        yield "mofa_job_interruptions_total", (*this, name, cause), value
    for cause, value in list(counted.lost.items()):
        yield "mofa_job_lost_seconds_total", (*this, cause), value
    for name, recoveries in list(counted.recoveries.items()):
        yield from distribution("mofa_job_recovery_seconds", (*this, name), recoveries)
    if isinstance(figures.running, Running):
        yield from _running(this, figures.running, counted)


def _running(this: tuple[str, ...], running: Running, counted: Counted) -> Iterator[Row]:
    """Series that a job has while it runs."""
    observed = (*this, running.source)
    yield from _one("mofa_job_observed_tokens_per_second", observed, running.tokens_per_second)
    yield from _one("mofa_job_observed_step_seconds", this, running.step_seconds)
    yield from _one("mofa_job_observed_step", this, counted.last_step)
    yield from _one("mofa_job_last_step_timestamp_seconds", this, counted.moved)
    yield from _one("mofa_job_observed_ettr_ratio", this, running.ettr)
    yield from _one("mofa_job_checkpoint_interval_seconds", (*this, "observed"), running.checkpoint_interval)


def profile(figures: ProfileFigures) -> Iterator[Row]:
    """Series of one ClusterProfile."""
    pool = figures.key.name
    yield "mofa_pool_nodes", (pool,), figures.total
    yield "mofa_pool_ready_nodes", (pool,), figures.ready
    for node in figures.members:
        yield "mofa_pool_member", (pool, node), 1.0
    for name, assumed in figures.assumed.items():
        yield from _one("mofa_pool_assumed_failures_per_node_day", (pool, name), assumed)
    for name, band in figures.rates.items():
        yield from _band("mofa_pool_failures_per_node_day", (pool, name), band, ("lower", "mean", "upper"))
    yield from _one("mofa_pool_exposure_node_days", (pool,), figures.exposure)
    for name, verdict in figures.verdicts.items():
        yield "mofa_pool_verdict", (pool, name, verdict), 1.0
    for name, band in figures.recovery.items():
        yield from _band("mofa_pool_recovery_seconds", (pool, name), band, ("lower", "mean", "upper"))
    yield from _one("mofa_pool_history_coverage_ratio", (pool,), figures.coverage)
    for name, weight in figures.prior_weight.items():
        yield from _one("mofa_pool_prior_weight_ratio", (pool, name), weight)
    yield from _one("mofa_pool_calibration_ratio", (pool,), figures.calibration)


def distribution(name: str, labels: tuple[str, ...], held: Distribution) -> Iterator[Row]:
    """Series of a histogram; the edge of a bucket is one more label, at the end."""
    sofar = 0
    for edge, count in zip((*held.edges, math.inf), list(held.held), strict=True):
        sofar += count
        yield f"{name}_bucket", (*labels, "+Inf" if edge == math.inf else str(edge)), sofar
    yield f"{name}_count", labels, sofar
    yield f"{name}_sum", labels, held.total


def _one(name: str, labels: tuple[str, ...], value: float | None) -> Iterator[Row]:
    """One sample, where there is a finite number."""
    if value is not None and math.isfinite(value):
        yield name, labels, value


def _band(
    name: str, labels: tuple[str, ...], band: Iterable[float], bounds: tuple[str, ...]
) -> Iterator[Row]:
    """A sample for each bound."""
    for bound, value in zip(bounds, band, strict=True):
        yield from _one(name, (*labels, bound), value)
