"""What exporters would have shown of a made-up past (`synthetic.py`): series as spans of values, and their OpenMetrics text.

kube-state-metrics' names and labels, JobSet's labels on pods, and the trainer series that `mofa observe` exports.
A pod or job recovery ends when the trainer's step series advances; its pods are ready a little earlier.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from mofa_local.lives import Life, lives
from mofa_local.synthetic import Gap, Incident, Job, Past, outages

EXPORTER: Final = {"job": "kube-state-metrics", "instance": "kube-state-metrics:8080"}
"""Scrape labels of node and pod series; the live exporter gets the same."""
TRAINER: Final = {"job": "trainer", "instance": "trainer:9400"}
"""Scrape labels of trainer series."""


class Span(NamedTuple):
    """A value that holds from `start` until before `stop`, or climbs by whole numbers at `slope`. [s] [s] [1] [1/s]"""

    start: float
    stop: float
    value: float
    slope: float = 0.0


class Series(NamedTuple):
    """One series, absent outside its spans, sampled every `step` seconds."""

    metric: str
    labels: Mapping[str, str]
    step: int
    spans: tuple[Span, ...]


def openmetrics(
    past: Past, keep: Callable[[Series], bool] = lambda _: True, window: tuple[int, int] | None = None
) -> Iterator[str]:
    """The OpenMetrics text of the series to keep, a series at a time, and the end mark.

    `window` cuts out the samples from its first moment until before its last one; it changes no sample.

    >>> from mofa_local.synthetic import Job, draw
    >>> past = draw(end=1_700_000_000, nodes=4, days=20, jobs=(Job(name="a", nodes=1),))
    >>> next(openmetrics(past, lambda series: series.metric == "kube_node_spec_unschedulable")).partition(" 0 ")[0]
    'kube_node_spec_unschedulable{node="gpu-000",job="kube-state-metrics",instance="kube-state-metrics:8080"}'
    """
    first, last = window or (past.start, past.end)
    for series in every_series(past):
        if series.metric not in past.missing and keep(series):
            for replica in range(1 if series.labels["job"] == TRAINER["job"] else past.replicas):
                yield "".join(
                    _lines(_of_replica(series, replica), past, max(first, past.start), min(last, past.end))
                )
    yield "# EOF\n"


def every_series(past: Past) -> Iterator[Series]:
    """All series of all exporters."""
    yield from _up(past)
    yield from _nodes(past)
    for life in lives(past):
        yield from _pod(life, past)
    for job in past.jobs:
        yield from _trainer(job, past)


def _up(past: Past) -> Iterator[Series]:
    yield Series(
        "up", EXPORTER, past.step, tuple(_switched(past, [(gap.at, gap.until) for gap in past.gaps], 1, 0))
    )


def _nodes(past: Past) -> Iterator[Series]:
    down, _ = outages(past)
    whole = (Span(past.start, past.end, 1),)
    labels = {f"label_{_label(name)}": value for name, value in past.labels.items()}
    for node in past.nodes:
        named = {"node": node} | EXPORTER
        yield Series("kube_node_info", named | {"kubelet_version": "v1.36.3"}, past.pod_step, whole)
        yield Series("kube_node_labels", named | labels, past.pod_step, whole)
        away = [(one.at, one.until) for one in past.planned if one.node == node]
        yield Series("kube_node_spec_unschedulable", named, past.step, tuple(_switched(past, away, 0, 1)))
        out = down.get(node, [])
        for status, outside, inside in (("true", 1, 0), ("false", 0, 1), ("unknown", 0, 0)):
            of = named | {"condition": "Ready", "status": status}
            yield Series(
                "kube_node_status_condition", of, past.step, tuple(_switched(past, out, outside, inside))
            )


def _switched(
    past: Past, inside: Iterable[tuple[float, float]], usual: float, other: float
) -> Iterator[Span]:
    """`usual` all the time, but `other` in these times."""
    at = float(past.start)
    for begin, stop in sorted(inside):
        yield Span(at, begin, usual)
        yield Span(max(at, begin), stop, other)
        at = max(at, stop)
    yield Span(at, past.end, usual)


def _pod(life: Life, past: Past) -> Iterator[Series]:
    job = life.job
    until = past.end if life.died is None else life.died
    name = f"{job.name}-trainer-0-{life.slot}-{life.uid[:5]}"
    pod = {"namespace": job.namespace, "pod": name, "uid": life.uid} | EXPORTER
    container = pod | {"container": "trainer"}
    attempt = str(life.attempt)
    labels = {
        "label_jobset_sigs_k8s_io_jobset_name": job.name,
        "label_jobset_sigs_k8s_io_replicatedjob_name": "trainer",
        "label_jobset_sigs_k8s_io_restart_attempt": attempt,
        "label_jobset_sigs_k8s_io_job_index": "0",
        "label_jobset_sigs_k8s_io_job_global_index": "0",
        "label_batch_kubernetes_io_job_completion_index": str(life.slot),
    }
    owner = {"node": life.node, "created_by_kind": "Job", "created_by_name": f"{job.name}-trainer-0"}
    lived = (Span(life.born, until, 1),)
    ended = [at for at, _ in life.restarts]
    started = [life.ready, *(again for _, again in life.restarts)]
    counted = [
        Span(a, b, n) for n, (a, b) in enumerate(zip([life.born, *ended], [*ended, until], strict=True))
    ]
    runs = [Span(a, b, a) for a, b in zip(started, [*ended, until], strict=True) if a < b]
    last = [Span(a, b, a) for a, b in pairwise([*ended, until])]
    step = past.pod_step
    yield Series("kube_pod_info", pod | owner, step, lived)
    yield Series("kube_pod_labels", pod | labels, step, lived)
    yield Series("kube_pod_created", pod, step, (Span(life.born, until, life.born),))
    yield Series("kube_pod_status_ready_time", pod, step, (Span(life.ready, until, life.ready),))
    if life.died is not None:
        yield Series("kube_pod_deletion_timestamp", pod, step, (Span(until - step, until, until),))
    yield Series("kube_pod_container_status_restarts_total", container, step, tuple(counted))
    yield Series("kube_pod_container_state_started", container, step, tuple(runs))
    yield Series("kube_pod_container_status_last_terminated_timestamp", container, step, tuple(last))


def _trainer(job: Job, past: Past) -> Iterator[Series]:
    labels = {"training_namespace": job.namespace, "training_job": job.name} | TRAINER
    incidents = [one for one in past.incidents if one.job == job.name]
    spans = tuple(_steps(job, incidents, past))
    rate = job.tokens / job.step_seconds
    speed = tuple(Span(span.start, span.stop, rate if span.slope else 0.0) for span in spans)
    step = past.trainer_step
    yield Series("mofa_train_step", labels, step, spans)
    yield Series("mofa_train_step_seconds", labels, step, (Span(past.start, past.end, job.step_seconds),))
    yield Series("mofa_train_tokens_per_second", labels, step, speed)


def _steps(job: Job, incidents: list[Incident], past: Past) -> Iterator[Span]:
    """Steps climb, stand still while a recovery lasts, and go on from the last checkpoint."""
    at, base = float(past.start), 0
    for one in incidents:
        yield Span(at, one.at, base, 1 / job.step_seconds)
        reached = base + int((one.at - at) / job.step_seconds)
        yield Span(one.at, one.at + one.recovery, reached)
        at, base = one.at + one.recovery, reached - reached % job.checkpoint_steps
    yield Span(at, past.end, base, 1 / job.step_seconds)


def _lines(series: Series, past: Past, first: int, last: int) -> Iterator[str]:
    """The lines of one series, span by span, on the grid of its step, from `first` until before `last`."""
    labels = ",".join(f'{name}="{value}"' for name, value in series.labels.items())
    head = f"{series.metric}{{{labels}}} "
    gaps = [gap for gap in past.gaps if _hits(gap, series)]
    for span in series.spans:
        begin, stop = max(span.start, first), min(span.stop, last)
        grid = _sampled(range(_on_grid(begin, series.step, past), math.ceil(stop), series.step), gaps)
        if not grid:
            continue
        if span.slope:
            yield from (f"{head}{span.value + int((at - span.start) * span.slope)} {at}\n" for at in grid)
        else:
            same = f"{head}{span.value:.15g} "
            yield same + f"\n{same}".join(map(str, grid)) + "\n"


def _hits(gap: Gap, series: Series) -> bool:
    """Whether a gap takes this series' samples: kube-state-metrics' own, and everything where the server was down."""
    return gap.server or (series.labels["job"] == EXPORTER["job"] and series.metric != "up")


def _on_grid(moment: float, step: int, past: Past) -> int:
    """The first sample at or after a moment; samples are taken from the start of the past. [s]"""
    return past.start + step * math.ceil((moment - past.start) / step)


def _sampled(grid: range, gaps: list[Gap]) -> Sequence[int]:
    """What the gaps leave of a grid. [s]"""
    if not grid or not any(gap.at <= grid[-1] and gap.until > grid[0] for gap in gaps):
        return grid
    return [at for at in grid if not any(gap.at <= at < gap.until for gap in gaps)]


def _of_replica(series: Series, replica: int) -> Series:
    if replica == 0:
        return series
    return series._replace(labels=dict(series.labels) | {"instance": f"kube-state-metrics-{replica}:8080"})


def _label(name: str) -> str:
    """A label's name as kube-state-metrics writes it.

    >>> _label("nvidia.com/gpu.product")
    'nvidia_com_gpu_product'
    """
    return "".join(letter if letter.isalnum() else "_" for letter in name)
