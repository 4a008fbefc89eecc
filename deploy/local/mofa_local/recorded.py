"""What our recording rules would have made of a made-up past, had they run: dashboards have more to
show than the last minutes.

Rules see only what comes after `make up`, and what they record looks hours and days back. This is
their answer by the past's own events: nodes of the pool for a month, and the effective time of the
past's jobs for a week. `deploy/rules` says what each series means; tests hold the names against it.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Final

from mofa_local.series import Run, Series, Span, steps
from mofa_local.synthetic import DAY, HOUR, Job, Past, outages

EVERY: Final = 60
"""Time between evaluations. [s]"""
SMOOTH: Final = 300
"""A node that is back within this time never failed. [s]"""
NODES_FOR: Final = 30 * DAY
"""How far back nodes are recorded. [s]"""
JOBS_FOR: Final = 7 * DAY
"""How far back jobs are recorded. [s]"""
LOOK: Final = 600
"""Time between two looks at a job's steps. [s]"""
WINDOWS: Final[Mapping[str, int]] = {"30m": HOUR // 2, "6h": 6 * HOUR, "3d": 3 * DAY}
"""Windows of effective time. [s]"""
OBJECTIVE: Final = 0.9
"""What the past's jobs had promised. [1]"""


def recorded(past: Past, pool: str) -> Iterator[tuple[Series, list[Run]]]:
    """Every series, with its samples."""
    for series in (
        *_of_nodes(past, pool),
        *(made for job in past.jobs for made in _of_job(past, job)),
    ):
        runs = [
            Run(range(_grid(span.start), _grid(span.stop), EVERY), span) for span in series.spans
        ]
        yield series, [run for run in runs if run.times]


def _of_nodes(past: Past, pool: str) -> Iterator[Series]:
    """Recorded series of each node and of the whole pool."""
    begin, end = max(past.start, past.end - NODES_FOR), past.end
    down, _ = outages(past)
    changes: dict[float, int] = {}
    for node in past.nodes:
        seen = [
            (max(at + SMOOTH, begin), stop)
            for at, stop in sorted(down.get(node, ()))
            if stop > begin
        ]
        lost = [(at, stop) for at, stop in seen if at < stop]
        labels = {"pool": pool, "node": node}
        yield Series(
            "mofa:node_unplanned_up:bool", labels, EVERY, tuple(_outside(begin, end, lost))
        )
        for at, stop in lost:
            changes[at] = changes.get(at, 0) + 1
            changes[stop] = changes.get(stop, 0) - 1
    moments = sorted(changes)
    edges = [float(begin), *moments, float(end)]
    counts = [0, *accumulate(changes[at] for at in moments)]
    out = tuple(Span(a, b, n) for a, b, n in zip(edges, edges[1:], counts, strict=False))
    ready = tuple(span._replace(value=len(past.nodes) - span.value) for span in out)
    yield Series("mofa:pool_nodes_down:count", {"pool": pool}, EVERY, out)
    yield Series("mofa:pool_nodes_ready:sum", {"pool": pool}, EVERY, ready)
    yield Series(
        "mofa:pool_node_failures:new",
        {"pool": pool},
        EVERY,
        tuple(_new_failures(begin, end, changes)),
    )


def _new_failures(begin: float, end: float, changes: Mapping[float, int]) -> Iterator[Span]:
    """Failures since the evaluation before: one evaluation long, and zero between them."""
    failed: dict[int, int] = {}
    for at, change in changes.items():
        if change > 0:
            failed[_grid(at)] = failed.get(_grid(at), 0) + change
    now = begin
    for at in sorted(failed):
        yield Span(now, at, 0)
        yield Span(at, at + EVERY, failed[at])
        now = at + EVERY
    yield Span(now, end, 0)


def _of_job(past: Past, job: Job) -> Iterator[Series]:
    """Effective time over each window, and how fast the objective's allowance burnt."""
    labels = {
        "training_namespace": job.namespace,
        "training_job": job.name,
        "training_kind": "TrainingJob",
    }
    spans = tuple(
        steps(job, [incident for incident in past.incidents if incident.job == job.name], past)
    )
    starts = [span.start for span in spans]
    ends = list(
        accumulate((span.value + int((span.stop - span.start) * span.slope) for span in spans), max)
    )

    def highest(at: float) -> float:
        index = max(0, bisect_right(starts, at) - 1)
        span = spans[index]
        count = span.value + int((at - span.start) * span.slope)
        return max(count, ends[index - 1]) if index else count

    for name, window in WINDOWS.items():
        first = max(past.start + 2 * window, past.end - JOBS_FOR)
        shares = [
            (
                at,
                min(
                    1.0, max(0.0, (highest(at) - highest(at - window)) * job.step_seconds / window)
                ),
            )
            for at in range(_grid(first), past.end, LOOK)
        ]
        ettr = tuple(Span(at, min(at + LOOK, past.end), share) for at, share in shares)
        burn = tuple(span._replace(value=(1 - span.value) / (1 - OBJECTIVE)) for span in ettr)
        yield Series(f"mofa:job_ettr:ratio_{name}", labels, EVERY, ettr)
        yield Series(f"mofa:job_ettr_burn:ratio_{name}", labels, EVERY, burn)


def _outside(begin: float, end: float, lost: list[tuple[float, float]]) -> Iterator[Span]:
    """A series of 1 from begin to end, with 0 in the lost times."""
    now = begin
    for at, stop in lost:
        yield Span(now, at, 1)
        yield Span(max(at, now), stop, 0)
        now = max(now, stop)
    yield Span(now, end, 1)


def _grid(at: float) -> int:
    return EVERY * math.ceil(at / EVERY)
