"""What exporters would have shown of a made-up past (`synthetic.py`): series as spans of values,
and their OpenMetrics text.

kube-state-metrics' names and labels, JobSet's labels on pods, and the trainer series that `mofa
observe` exports. A pod or job recovery ends when the trainer's step series advances; its pods are
ready a little earlier.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Final, NamedTuple

from mofa_local.lives import Life, lives
from mofa_local.synthetic import Gap, Incident, Job, Past, outages

EXPORTER: Final = {"job": "kube-state-metrics", "instance": "kube-state-metrics:8080"}
"""Scrape labels of node and pod series; the live exporter gets the same."""
TRAINER: Final = {"job": "trainer", "instance": "trainer:9400"}
"""Scrape labels of trainer series."""


class Span(NamedTuple):
    """A value that holds from `start` until before `stop`, or climbs by whole numbers at `slope`.
    [s] [s] [1] [1/s]
    """

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


class Run(NamedTuple):
    """Samples of a span at even distances, without a gap between them."""

    times: range
    span: Span

    def values(self) -> Iterator[float]:
        """The value at each time."""
        span = self.span
        return (span.value + int((at - span.start) * span.slope) for at in self.times)


def openmetrics(past: Past, keep: Callable[[Series], bool] = lambda _: True) -> Iterator[str]:
    """The OpenMetrics text of the series to keep, a series at a time, and the end mark.

    >>> from mofa_local.synthetic import Job, draw
    >>> past = draw(end=1_700_000_000, nodes=4, days=20, jobs=(Job(name="a", nodes=1),))
    >>> lines = openmetrics(past, lambda series: series.metric == "kube_node_spec_unschedulable")
    >>> next(lines).partition(",job=")[0]
    'kube_node_spec_unschedulable{node="gpu-000"'
    """
    for series, runs in sampled(past, keep):
        labels = ",".join(f'{name}="{value}"' for name, value in series.labels.items())
        head = f"{series.metric}{{{labels}}} "
        for run in runs:
            if run.span.slope:
                both = zip(run.values(), run.times, strict=True)
                yield "".join(f"{head}{value:.15g} {at}\n" for value, at in both)
            else:
                same = f"{head}{run.span.value:.15g} "
                yield same + f"\n{same}".join(map(str, run.times)) + "\n"
    yield "# EOF\n"


def sampled(past: Past, keep: Callable[[Series], bool]) -> Iterator[tuple[Series, list[Run]]]:
    """The series that were scraped, and their samples."""
    for series in every_series(past):
        if series.metric in past.missing or not keep(series):
            continue
        gaps = [gap for gap in past.gaps if _hits(gap, series)]
        runs = [run for span in series.spans for run in _runs(span, series.step, past, gaps)]
        for replica in range(past.replicas if series.labels["job"] == EXPORTER["job"] else 1):
            if runs:
                yield _of_replica(series, replica), runs


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
        "up",
        EXPORTER,
        past.step,
        tuple(_switched(past, [(gap.at, gap.until) for gap in past.gaps], 1, 0)),
    )


def _nodes(past: Past) -> Iterator[Series]:
    down, _ = outages(past)
    whole = (Span(past.start, past.end, 1),)
    labels = {f"label_{kube_label(name)}": value for name, value in past.labels.items()}
    for node in past.nodes:
        named = {"node": node} | EXPORTER
        yield Series("kube_node_info", named | {"kubelet_version": "v1.36.3"}, past.pod_step, whole)
        yield Series("kube_node_labels", named | labels, past.pod_step, whole)
        away = [(outage.at, outage.until) for outage in past.planned if outage.node == node]
        yield Series(
            "kube_node_spec_unschedulable", named, past.step, tuple(_switched(past, away, 0, 1))
        )
        out = down.get(node, [])
        for status, outside, inside in (("true", 1, 0), ("false", 0, 1), ("unknown", 0, 0)):
            of = named | {"condition": "Ready", "status": status}
            yield Series(
                "kube_node_status_condition",
                of,
                past.step,
                tuple(_switched(past, out, outside, inside)),
            )


def _switched(
    past: Past, inside: Iterable[tuple[float, float]], usual: float, other: float
) -> Iterator[Span]:
    """A series of the value `usual`, with `other` inside some times."""
    at = float(past.start)
    for begin, stop in sorted(inside):
        yield Span(at, begin, usual)
        yield Span(max(at, begin), stop, other)
        at = max(at, stop)
    yield Span(at, past.end, usual)


def _pod(life: Life, past: Past) -> Iterator[Series]:
    """The series that kube-state-metrics exports of a pod during its life."""
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
    owner = {
        "node": life.node,
        "created_by_kind": "Job",
        "created_by_name": f"{job.name}-trainer-0",
    }
    lived = (Span(life.born, until, 1),)
    ended = [at for at, _ in life.restarts]
    started = [life.ready, *(again for _, again in life.restarts)]
    counted = [
        Span(a, b, n)
        for n, (a, b) in enumerate(zip([life.born, *ended], [*ended, until], strict=True))
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
    yield Series(
        "kube_pod_container_status_last_terminated_timestamp", container, step, tuple(last)
    )


def _trainer(job: Job, past: Past) -> Iterator[Series]:
    whose = {
        "namespace": job.namespace,
        "training_namespace": job.namespace,
        "training_job": job.name,
    }
    labels = whose | TRAINER
    incidents = [incident for incident in past.incidents if incident.job == job.name]
    spans = tuple(steps(job, incidents, past))
    rate = job.tokens / job.step_seconds
    speed = tuple(Span(span.start, span.stop, rate if span.slope else 0.0) for span in spans)
    step = past.trainer_step
    yield Series("mofa_train_step", labels, step, spans)
    yield Series(
        "mofa_train_step_seconds", labels, step, (Span(past.start, past.end, job.step_seconds),)
    )
    yield Series("mofa_train_tokens_per_second", labels, step, speed)


def steps(job: Job, incidents: list[Incident], past: Past) -> Iterator[Span]:
    """Steps climb, stand still while a recovery lasts, and go on from the last checkpoint."""
    at, base = float(past.start), 0
    for incident in incidents:
        yield Span(at, incident.at, base, 1 / job.step_seconds)
        reached = base + int((incident.at - at) / job.step_seconds)
        yield Span(incident.at, incident.at + incident.recovery, reached)
        at, base = incident.at + incident.recovery, reached - reached % job.checkpoint_steps
    yield Span(at, past.end, base, 1 / job.step_seconds)


def _hits(gap: Gap, series: Series) -> bool:
    """Whether a gap takes this series' samples: kube-state-metrics' own, and everything where the
    server was down.
    """
    return gap.server or (series.labels["job"] == EXPORTER["job"] and series.metric != "up")


def _runs(span: Span, step: int, past: Past, gaps: Iterable[Gap]) -> Iterator[Run]:
    """Samples of a span outside the gaps; they are taken at multiples of the step from the start of
    the past.
    """
    at = max(span.start, past.start)
    end = min(span.stop, past.end)
    for begin, stop in [*sorted((gap.at, gap.until) for gap in gaps), (end, end)]:
        first = past.start + step * math.ceil((at - past.start) / step)
        times = range(first, math.ceil(min(begin, end)), step)
        if times:
            yield Run(times, span)
        at = max(at, stop)


def _of_replica(series: Series, replica: int) -> Series:
    if replica == 0:
        return series
    return series._replace(
        labels=dict(series.labels) | {"instance": f"kube-state-metrics-{replica}:8080"}
    )


def kube_label(name: str) -> str:
    """A label's name as kube-state-metrics writes it.

    >>> kube_label("nvidia.com/gpu.product")
    'nvidia_com_gpu_product'
    """
    return "".join(letter if letter.isalnum() else "_" for letter in name)
