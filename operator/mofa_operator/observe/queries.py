"""The questions that history asks, one small function each, over raw series of kube-state-metrics and of the trainers.

All are instant queries at the end of a stretch of time that is `span` seconds long. Every range starts just after the
moment where the stretch before it ended, so that answers of neighbouring stretches add up. Series of one thing are first
reduced to one (`max by`), because a second replica or a restarted exporter makes duplicates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from mofa_model.kinds import LABELS, PodLabels
from mofa_model.manifest.exporters import EXPORTERS
from mofa_operator.observe.promql import any_of, duration, matcher, node_label, selector

GRID: Final = 300
"""Grid on which time is counted: samples at most this far apart are no gap, as in Prometheus' own lookback. [s]"""

POD_LABELS: Final = tuple(
    PodLabels(
        job=node_label(one.job),
        attempt=node_label(one.attempt) if one.attempt else "",
        slot=tuple(node_label(label) for label in one.slot),
    )
    for one in LABELS
)
"""Labels of pods as kube-state-metrics has them, a kind of jobs each."""
FACTS: Final = ("node", "created", "evicted", "preempted", "last", "first")
"""What is asked of pods."""
AGO: Final = ("", " offset 1d", " offset 1w")
"""When nodes are looked for, should the exporter be down just now."""
_OF_NODES: Final = ("kube_node_", "node_", "problem_")
_OF_PODS: Final = ("kube_pod_", "kube_job_")
UID: Final = ("namespace", "pod", "uid")
"""What names a pod once and for all."""
_UID: Final = ", ".join(UID)
_FINISHED: Final = matcher("phase", "Succeeded|Failed", "=~")
_MADE_ROOM: Final = matcher("reason", "Evicted|Preempted|Preempting|Shutdown|Terminated", "=~")
_DISRUPTED: Final = matcher(
    "reason", "PreemptionByScheduler|EvictionByEvictionAPI|PreemptionByKueue", "=~"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Pool:
    """Nodes of a profile, as Prometheus knows them."""

    matchers: tuple[str, ...]
    """Conditions that every series meets."""
    members: tuple[str, ...]
    """Conditions on kube_node_labels that the pool's nodes meet."""
    labels: tuple[tuple[str, str], ...]
    """The same as Kubernetes writes them: labels and values."""
    label: str = ""
    """Label that names the node, where somebody states it."""
    exporters: tuple[str, ...] = EXPORTERS
    """Namespaces whose targets are believed when they speak of nodes; what no scrape places is the administrator's, and is too."""
    speakers: tuple[str, ...] = ()
    """Conditions that series of pods meet: that a target there says them."""

    @classmethod
    def of(
        cls,
        matchers: Mapping[str, str],
        node_selector: Mapping[str, str],
        label: str = "",
        exporters: Iterable[str] = EXPORTERS,
    ) -> Pool:
        """A pool by its profile's matchers and node selector; a namespace among the matchers is the administrator's word."""
        stated = [matchers["namespace"]] if "namespace" in matchers else []
        return cls(
            exporters=(*exporters, *stated),
            matchers=tuple(matcher(label, value) for label, value in sorted(matchers.items())),
            members=tuple(
                matcher(node_label(name), value) for name, value in sorted(node_selector.items())
            ),
            labels=tuple(sorted(node_selector.items())),
            label=label,
        )

    def series(self, metric: str, *conditions: str) -> str:
        """A metric's series within the profile's matchers."""
        return selector(metric, [*self.matchers, *self._attested(metric), *conditions])

    def placed(self, operator: str = "=~") -> str:
        """That the scrape says of a target that it runs where exporters do; with `!~` that it does not."""
        return matcher("namespace", "|" + any_of(self.exporters), operator)

    def _attested(self, metric: str) -> tuple[str, ...]:
        if metric.startswith(_OF_PODS):
            return self.speakers
        return (self.placed(),) if metric.startswith(_OF_NODES) else ()

    @property
    def ready(self) -> str:
        """Whether each node is ready."""
        return self.series("kube_node_status_condition", *_READY)

    # ------------------------------------------------------------------------------------------ nodes

    def labelled_nodes(self, span: float) -> str:
        """How many nodes have the selector's labels at all, whatever the value."""
        wanted = (matcher(node_label(label), "", "!=") for label, _ in self.labels)
        return (
            f"count(last_over_time({self.series('kube_node_labels', *wanted)}[{duration(span)}]))"
        )

    def clusters(self) -> str:
        """Nodes by cluster that the matchers let in: now, a day ago or a week ago, should the exporter be down just now."""
        recent = f"last_over_time({self.ready}[{duration(2 * GRID)}]"
        either = " or ".join(f"{recent}{ago})" for ago in AGO)
        return f"count by (cluster) ({either})"

    def nodes_at(self, ago: str = "") -> str:
        """Series of one node each, with all their labels, just now or some time ago."""
        info = self.series("kube_node_info")
        return " or ".join(
            f"last_over_time({one}[{duration(2 * GRID)}]{ago})" for one in (info, self.ready)
        )

    def members_named(self, label: str) -> str:
        """Nodes that belong to the pool just now, by the label that names them."""
        series = self.series("kube_node_labels", *self.members)
        return f"max by ({label}) (last_over_time({series}[{duration(2 * GRID)}]))"

    def covered(self, span: float) -> str:
        """Moments of the grid at which the condition of any node was known."""
        return f"count_over_time((count({self.ready}))[{_grid(span)}])"

    # ------------------------------------------------------------------------------------------- pods

    def pods(self, span: float) -> str:
        """Pods of training jobs that lived at some time, by the labels that say which job, attempt and slot; their samples."""
        attempts = [one.attempt for one in POD_LABELS if one.attempt]
        slots = [label for one in POD_LABELS for label in one.slot]
        kept = ", ".join([*UID, *(one.job for one in POD_LABELS), *attempts, *slots])
        return f"sum by ({kept}) ({self._over_job_pods('count_over_time', span)})"

    def pod_facts(self, span: float, wanted: Iterable[str]) -> str:
        """More of these pods, one series for each of the wanted `FACTS`, whose name stands in the label `fact`.

        node (in the label of that name); created [s]; evicted or preempted; restarts
        of the container that has most, at the last sample before and at the last within.
        """
        within = f"[{duration(span)}]"
        counter = self.series("kube_pod_container_status_restarts_total")
        gone = self.series("kube_pod_status_reason", _MADE_ROOM) + within
        disrupted = self.series("kube_pod_status_disruption_reason", _DISRUPTED) + within
        facts = {
            "node": f"last_over_time({self.series('kube_pod_info', matcher('node', '', '!='))}{within})",
            "created": f"last_over_time({self.series('kube_pod_created')}{within})",
            "evicted": f"max_over_time({gone}) == 1",
            "preempted": f"max_over_time({disrupted}) == 1",
            "last": f"max_over_time({counter}{within})",
            "first": f"min_over_time({counter}[{duration(span + GRID)}])",
        }
        named = (
            f'label_replace(max by ({_UID}, node) ({facts[fact]}), "fact", "{fact}", "", "")'
            for fact in wanted
        )
        pods = self._over_job_pods("last_over_time", span)
        return f"({' or '.join(named)}) and on ({_UID}) ({pods})"

    def container_ends(self, span: float) -> str:
        """When a container of each pod of a training job last ended, to be started again. [s]"""
        ended = self.series("kube_pod_container_status_last_terminated_timestamp")
        pods = self._over_job_pods("last_over_time", span)
        return (
            f"max by ({_UID}) (last_over_time({ended}[{duration(span)}])) and on ({_UID}) ({pods})"
        )

    def started(self) -> str:
        """When the containers of each living pod of a training job last started; 0 where none of them runs. [s]"""
        pods = " or ".join(self._job_pods())
        started = f"max by ({_UID}) ({self.series('kube_pod_container_state_started')})"
        over = f"max by ({_UID}) ({self.series('kube_pod_status_phase', _FINISHED)}) == 1"
        living = f"max by ({_UID}) ({pods}) unless on ({_UID}) ({over})"
        return f"({started} and on ({_UID}) ({living})) or on ({_UID}) 0 * ({living})"

    def _over_job_pods(self, function: str, span: float) -> str:
        return " or ".join(f"{function}({series}[{duration(span)}])" for series in self._job_pods())

    def _job_pods(self) -> list[str]:
        """Labels of the pods of training jobs, a kind of jobs each."""
        return [self.series("kube_pod_labels", matcher(one.job, "", "!=")) for one in POD_LABELS]


def _grid(span: float) -> str:
    """Range and step of a subquery that looks at each moment of the grid once: whether ranges include their first moment differs."""
    return f"{duration(span - 1)}:{duration(GRID)}"


_READY: Final = (matcher("condition", "Ready"), matcher("status", "true"))
