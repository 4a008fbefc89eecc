"""Which of the series that we read Prometheus has, and what cannot be seen without the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from mofa_model.errors import SourceUnreachable
from mofa_operator.fleet.findings import Diagnosis, broken, ok, weaker
from mofa_operator.incidents.timelines import BOOT, CORDON, COUNTED, DETECTED, READY, XID
from mofa_operator.observe.nodes import PRODUCT
from mofa_operator.observe.prometheus.client import Prometheus
from mofa_operator.observe.prometheus.promql import POD_LABELS, matcher, node_label, selector

_WINDOW: Final = "15m"
"""A series counts as there if it has a sample this far back: three scrapes at the slowest rate that
we know of."""
_ALLOW: Final = "--metric-labels-allowlist=nodes=[*],pods=[*]"
_OWN: Final = "mofa_advisor_build_info"
_RULES: Final = "mofa:node_ready:bool"


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """Series that we read."""

    about: str
    """Who exposes them."""
    series: tuple[str, ...]
    """What is looked for, as PromQL selects it; any of them will do."""
    without: str
    """What is missing without these series, as the end of a sentence."""
    mend: str
    """How to get them."""
    needed: bool = False
    """Whether nothing can be counted without them."""
    hides: tuple[float, float] = (0.0, 0.0)
    """Shares of the failures of nodes and of jobs that are not seen without them, of 330 and 288 in
    fifteen made histories whose truth is known (tests/cluster/test_labelled_histories.py). [1, 1]
    """

    @property
    def hidden(self) -> str:
        """The shares as the end of a sentence; empty where nothing hides behind it."""
        whose = ("of nodes", "of jobs")
        parts = [f"{share:.0%} {of}" for share, of in zip(self.hides, whose, strict=True) if share]
        return f"; of failures {' and '.join(parts)} are not seen without it" if parts else ""


_STACK: Final = "install it, for example with the chart kube-prometheus-stack"
WANTED: Final = (
    Wanted(
        about="kube-state-metrics",
        series=(READY.metric,),
        without="failures of nodes cannot be counted",
        mend=_STACK,
        needed=True,
    ),
    Wanted(
        about="labels of nodes",
        series=(selector("kube_node_labels", [matcher(node_label(PRODUCT), "", "!=")]),),
        without="a pool's nodes are not told apart by their GPU",
        mend=f"give kube-state-metrics {_ALLOW}",
    ),
    Wanted(
        about="labels of pods",
        series=tuple(
            selector("kube_pod_labels", [matcher(labels.job, "", "!=")]) for labels in POD_LABELS
        ),
        without="jobs are not told from each other, and their restarts are not seen",
        mend=f"give kube-state-metrics {_ALLOW}",
        hides=(0.0, 1.0),
    ),
    Wanted(
        about="restarts of containers",
        series=("kube_pod_container_status_restarts_total",),
        without="processes that start again in their pods are not seen",
        mend="let kube-state-metrics publish it (--metric-denylist, --resources=pods)",
        hides=(0.0, 0.29),
    ),
    Wanted(
        about="cordons of nodes",
        series=(CORDON.metric,),
        without="planned work counts as failures",
        mend="let kube-state-metrics publish it (--metric-denylist)",
        hides=(0.0, 0.08),
    ),
    Wanted(
        about="node exporter",
        series=(BOOT.metric,),
        without=f"nobody tells of {BOOT.alone}",
        mend=_STACK,
        hides=(0.15, 0.02),
    ),
    Wanted(
        about="DCGM exporter",
        series=(XID.metric,),
        without=f"nobody tells of {XID.alone}",
        mend="set dcgmExporter.enabled in the values of NVIDIA's GPU operator",
        hides=(0.05, 0.05),
    ),
    Wanted(
        about="node-problem-detector",
        series=(COUNTED.metric, DETECTED.metric),
        without="links that are down, and XIDs that a later one hides, are not told",
        mend="install it, with rules for Xids and links in its kernel monitor",
        hides=(0.07, 0.03),
    ),
    Wanted(
        about="steps or activity of jobs",
        series=("mofa_train_step", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"),
        without="hangs look like resubmissions, and work done again is an estimate",
        mend="publish steps (mofa observe, docs/metrics.md), or DCGM's profiling metrics",
        hides=(0.0, 0.03),
    ),
    Wanted(
        about="our metrics",
        series=(_OWN,),
        without="dashboards and alerts show nothing",
        mend="set serviceMonitor.enabled in the chart's values, or let Prometheus scrape the "
        "port metrics of the operator",
    ),
    Wanted(
        about="recording rules",
        series=(_RULES,),
        without="dashboards and alerts of pools show nothing",
        mend="set prometheusRule.enabled in the chart's values, or give Prometheus "
        "deploy/rules/mofa-recording.yaml",
    ),
)
"""What is looked for, in the order in which it should be mended."""


async def read_series(prometheus: Prometheus) -> Mapping[str, int] | SourceUnreachable:
    """How many series Prometheus has of each that is wanted, or why it did not answer."""
    counts: dict[str, int] = {}
    for wanted in WANTED:
        count = (f"count(last_over_time({series}[{_WINDOW}]))" for series in wanted.series)
        try:
            answer = await prometheus.query(" or ".join(count))
        except SourceUnreachable as error:
            return error
        counts[wanted.about] = int(sum(sample.value for sample in answer.samples))
    return counts


def judged(
    sample_counts: Mapping[str, int] | SourceUnreachable, address: str
) -> Iterator[Diagnosis]:
    """What these numbers of series say of Prometheus and its exporters."""
    if isinstance(sample_counts, SourceUnreachable):
        yield broken("Prometheus", str(sample_counts), "start it, or give another --prometheus")
        return
    yield ok("Prometheus", f"{address} answers")
    for wanted in WANTED:
        if count := sample_counts[wanted.about]:
            yield ok(wanted.about, f"{count} series like {wanted.series[0]}")
        else:
            make = broken if wanted.needed else weaker
            yield make(
                wanted.about,
                f"no series {wanted.series[0]} within {_WINDOW}: {wanted.without}{wanted.hidden}",
                wanted.mend,
            )
