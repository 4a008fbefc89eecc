"""The exporter keeps the latest figures, and makes samples of them when somebody scrapes."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import TypeAlias

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from mofa_model.kinds import Kind
from mofa_operator.decision import JobFigures, PoolFigures
from mofa_operator.keys import Key
from mofa_operator.metrics.counts import Distribution, JobCounters
from mofa_operator.metrics.declared import (
    DECISION_BUCKETS,
    GATE_BUCKETS,
    JOBS,
    POOLS,
    TABLE,
    Gate,
    Loop,
    MetricSpec,
    Value,
)

Row: TypeAlias = tuple[str, tuple[str, ...], float]
"""Name of a series, values of its labels in the declared order, value."""
LABELS = {
    name: (*declared.labels, "le") if name.endswith("_bucket") else declared.labels
    for declared in TABLE
    for name in declared.series
}
"""Labels of every series, in the order of a row."""
FAMILY = {name: declared.name for declared in TABLE for name in declared.series}
"""Metric that a series belongs to."""


class Exporter(Collector):
    """The metrics of the operator, as a collector of the Prometheus client.

    Showing figures is cheap and may be done often; the text is made by a scrape.
    """

    def __init__(
        self,
        registry: CollectorRegistry | None = None,
        most_jobs: int = 2000,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._most_jobs = most_jobs
        self._clock = clock
        self._jobs: dict[Key, tuple[JobFigures, JobCounters]] = {}
        self._without: dict[Key, None] = {}
        self._profiles: dict[Key, PoolFigures] = {}
        self._counts: Counter[tuple[str, tuple[str, ...]]] = Counter(
            dict.fromkeys(
                (
                    ("mofa_advisor_searches_total", ()),
                    ("mofa_advisor_events_dropped_total", ()),
                    ("mofa_advisor_series_dropped_total", ()),
                    ("mofa_advisor_watch_resync_differences_total", ()),
                ),
                0,
            )
        )
        self._gauges: dict[tuple[str, tuple[str, ...]], float] = {}
        self._decisions = Distribution(DECISION_BUCKETS)
        self._gates = {outcome: Distribution(GATE_BUCKETS) for outcome in Gate}
        self._queue: tuple[int, float] | None = None
        self.registry = registry if registry is not None else CollectorRegistry()
        """The registry of this exporter; a new one has the metrics of the process as well."""
        if registry is None:
            ProcessCollector(registry=self.registry)
        self.registry.register(self)

    def show(self, figures: JobFigures | PoolFigures) -> None:
        """Export the figures of an object from now on; jobs beyond the cap are only counted."""
        if isinstance(figures, PoolFigures):
            self._profiles[figures.key] = figures
            return
        stored = self._jobs.get(figures.key)
        if stored is None and len(self._jobs) >= self._most_jobs:
            self._refuse(figures.key)
            return
        counters = JobCounters() if stored is None else stored[1]
        self._without.pop(figures.key, None)
        if figures.running is not None:
            counters.add(figures.running, self._clock())
        self._jobs[figures.key] = figures, counters

    def rest(self, key: Key) -> None:
        """Drop the present figures of a job that is paused or not judged; its counters stay."""
        if key in self._jobs:
            figures, counters = self._jobs[key]
            figures = replace(figures, running=None, residual=None, step_due=None)
            self._jobs[key] = figures, counters

    def forget(self, key: Key) -> None:
        """Drop the series of an object that is gone, where it has any."""
        self._jobs.pop(key, None)
        self._without.pop(key, None)
        self._profiles.pop(key, None)

    def count_recommendation(self, kind: str, outcome: str, reason: str) -> None:
        """Count an answer."""
        self._counts["mofa_advisor_recommendations_total", (kind, outcome, reason)] += 1

    def count_write(self, verb: str, outcome: str) -> None:
        """Count a write to the API server."""
        self._counts["mofa_advisor_api_writes_total", (verb, outcome)] += 1

    def count_history(self, flavour: str, outcome: str) -> None:
        """Count a request to Prometheus."""
        self._counts["mofa_advisor_history_requests_total", (flavour, outcome)] += 1

    def count_search(self) -> None:
        """Count an answer that was searched for."""
        self._counts["mofa_advisor_searches_total", ()] += 1

    def count_dropped_events(self, events: int) -> None:
        """Count Events that are lost."""
        self._counts["mofa_advisor_events_dropped_total", ()] += events

    def count_differences(self, differences: int) -> None:
        """Count changes that a full list showed and the watch had missed."""
        self._counts["mofa_advisor_watch_resync_differences_total", ()] += differences

    def observe_decision(self, seconds: float) -> None:
        """Record how long a decision took."""
        self._decisions.add(seconds)

    def observe_gate(self, seconds: float, outcome: Gate | str) -> None:
        """Record how long a job waited at our gate."""
        self._gates[Gate(outcome)].add(seconds)

    def count_check(self, state: str) -> None:
        """Count an answer of our AdmissionCheck to a Workload."""
        self._counts["mofa_advisor_admission_checks_total", (state,)] += 1

    def success(self, loop: Loop | str) -> None:
        """Note that a loop succeeded just now."""
        self._gauges["mofa_advisor_last_success_timestamp_seconds", (Loop(loop).value,)] = (
            self._clock()
        )

    def lead(self, leads: bool) -> None:
        """Say whether this operator may write."""
        self._gauges["mofa_advisor_leader", ()] = float(leads)

    def fence(self, holds: bool) -> None:
        """Say whether the fence was proved to hold."""
        self._gauges["mofa_advisor_fence_holds", ()] = float(holds)

    def watch(self, kind: Kind, *, up: bool | None) -> None:
        """Say whether a kind is watched; None where there is nothing to watch."""
        series = "mofa_advisor_watch_up", (kind.resource,)
        if up is None:
            self._gauges.pop(series, None)
        else:
            self._gauges[series] = float(up)

    def build(self, version: str, model_version: str) -> None:
        """Say which versions run."""
        self._gauges["mofa_advisor_build_info", (version, model_version)] = 1.0

    def queue(self, depth: int, oldest: float) -> None:
        """Say how many objects wait, and for how long the oldest one. [s]"""
        self._queue = depth, oldest

    def page(self) -> tuple[bytes, str]:
        """The text that answers a scrape, and its content type; safe in another thread."""
        return generate_latest(self.registry), CONTENT_TYPE_LATEST

    def describe(self) -> Iterable[Metric]:
        """Families without samples, so that registering needs no scrape."""
        return [_family(declared) for declared in TABLE]

    def collect(self) -> Iterator[Metric]:
        """Families with their present samples; families without samples are left out."""
        families = {declared.name: _family(declared) for declared in TABLE}
        for name, labels, value in self._rows():
            samples = families[FAMILY[name]].samples
            samples.append(Sample(name, dict(zip(LABELS[name], labels, strict=True)), value))
        return (family for family in families.values() if family.samples)

    def _refuse(self, key: Key) -> None:
        """Count a job that gets no series, once."""
        if key not in self._without:
            self._without[key] = None
            self._counts["mofa_advisor_series_dropped_total", ()] += 1

    def _rows(self) -> Iterator[Row]:
        """All samples; containers are copied first, because the loop goes on in its own thread."""
        jobs, without = list(self._jobs.values()), list(self._without)
        return chain(
            chain.from_iterable(_job(figures, counters) for figures, counters in jobs),
            chain.from_iterable(_pool(figures) for figures in list(self._profiles.values())),
            self._of_the_operator([figures.key for figures, _ in jobs], without),
        )

    def _of_the_operator(self, with_series: list[Key], without: list[Key]) -> Iterator[Row]:
        """Samples of the operator itself."""
        for (name, labels), value in chain(list(self._counts.items()), list(self._gauges.items())):
            yield name, labels, value
        yield from _distribution(
            "mofa_advisor_recommendation_duration_seconds", (), self._decisions
        )
        for outcome, waits in self._gates.items():
            yield from _distribution("mofa_advisor_gate_wait_seconds", (outcome.value,), waits)
        for name, keys in (
            ("mofa_advisor_jobs", with_series + without),
            ("mofa_advisor_jobs_without_series", without),
        ):
            for kind, number in Counter(key.kind.kind for key in keys).items():
                yield name, (kind,), number
        leads = self._gauges.get(("mofa_advisor_leader", ()), 1.0)
        if self._queue is not None and leads:  # a standby has no queue
            depth, oldest = self._queue
            yield "mofa_advisor_queue_depth", (), depth
            yield "mofa_advisor_queue_oldest_age_seconds", (), oldest


def _family(declared: MetricSpec) -> Metric:
    """An empty family, as the client library wants it."""
    return Metric(declared.family, declared.help, declared.type.value)


def _job(figures: JobFigures, counters: JobCounters) -> Iterator[Row]:
    """Series of one job."""
    labels = (figures.key.namespace, figures.key.name, figures.key.kind.kind)
    for declared in JOBS:
        if declared.read is not None:
            yield from _rows(declared.name, labels, declared.read(figures, counters))


def _pool(figures: PoolFigures) -> Iterator[Row]:
    """Series of one ClusterProfile."""
    for declared in POOLS:
        if declared.read is not None:
            yield from _rows(declared.name, (figures.key.name,), declared.read(figures))


def _rows(name: str, labels: tuple[str, ...], value: Value) -> Iterator[Row]:
    """A metric's value as samples; numbers that are not finite have none."""
    if isinstance(value, Mapping):
        for key, inner in list(value.items()):
            yield from _rows(name, (*labels, *(key if isinstance(key, tuple) else (key,))), inner)
    elif isinstance(value, Distribution):
        yield from _distribution(name, labels, value)
    elif value is not None and math.isfinite(value):
        yield name, labels, value


def _distribution(name: str, labels: tuple[str, ...], values: Distribution) -> Iterator[Row]:
    """Series of a histogram; the edge of a bucket is one more label, at the end."""
    total = 0
    for edge, count in zip((*values.edges, math.inf), list(values.counts), strict=True):
        total += count
        yield f"{name}_bucket", (*labels, "+Inf" if edge == math.inf else str(edge)), total
    yield f"{name}_count", labels, total
    yield f"{name}_sum", labels, values.total
