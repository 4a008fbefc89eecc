r"""Queries built from parts, so that no text of a user can leave its quotes.

    selector("up", cluster='a"b')  ->  up{cluster="a\"b"}

Values of labels are quoted, names are checked, durations are whole milliseconds. Nothing else in the operator makes
PromQL out of what it was given; free PromQL comes only from a ClusterProfile, which is the administrator's.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from mofa_model.errors import BadValue
from mofa_model.kinds import LABELS, PodLabels
from mofa_model.manifest.cluster_profile import EXPORTERS
from mofa_operator.observe.prometheus.client import QueryResult

_LABEL: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*\Z")
_METRIC: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*\Z")
_SPECIAL: Final = re.compile(r"[\\.+*?()|\[\]{}^$]")
_BOUND: Final = re.compile(r"([a-z0-9])([A-Z])")
_PLAIN: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_OBJECT: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?\Z")


def quoted(text: str) -> str:
    r"""Text as a PromQL string.

    >>> print(quoted('a"} or up{b="'))
    "a\"} or up{b=\""
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise BadValue("label value", text, "give text that is valid Unicode") from None
    return (
        '"' + "".join(_PLAIN.get(c) or (c if c.isprintable() else _escaped(c)) for c in text) + '"'
    )


def _escaped(character: str) -> str:
    return f"\\u{ord(character):04x}" if ord(character) < 0x10000 else f"\\U{ord(character):08x}"


def matcher(label: str, value: str, operator: str = "=") -> str:
    """One condition on a label; the value is literal for `=` and `!=`, a regular expression for `=~` and `!~`.

    >>> matcher("cluster", "east")
    'cluster="east"'
    """
    if not _LABEL.match(label):
        raise BadValue(
            "Prometheus label",
            label,
            "write letters, digits and _, a letter first, for example cluster",
        )
    return f"{label}{operator}{quoted(value)}"


def any_of(values: Iterable[str]) -> str:
    r"""A regular expression that is exactly these values.

    >>> any_of(["a.b", "c"])
    'a\\.b|c'
    """
    return "|".join(_SPECIAL.sub(r"\\\g<0>", value) for value in values)


def selector(metric: str, matchers: Iterable[str] = (), /, **equal: str) -> str:
    """Series of a metric, by ready matchers and by labels that are equal to a value.

    >>> selector("up", [matcher("job", "", "!=")], cluster="east")
    'up{job!="",cluster="east"}'
    """
    if not _METRIC.match(metric):
        raise BadValue("metric", metric, "write letters, digits, _ and :, a letter first")
    inside = ",".join([*matchers, *(matcher(label, value) for label, value in equal.items())])
    return f"{metric}{{{inside}}}" if inside else metric


def duration(seconds: float) -> str:
    """A duration as PromQL writes it, to the millisecond.

    >>> duration(300), duration(0.5)
    ('300s', '500ms')
    """
    milliseconds = round(seconds * 1000)
    if milliseconds <= 0:
        raise BadValue("duration", seconds, "give a time above zero")
    return f"{milliseconds}ms" if milliseconds % 1000 else f"{milliseconds // 1000}s"


def node_label(label: str) -> str:
    """How kube-state-metrics names the label of a node or a pod.

    Source: kube-state-metrics, allowed labels of kube_node_labels: what is no letter, digit or _ becomes _, and words in
    camel case become snake case.

    >>> node_label("nvidia.com/gpu.product"), node_label("nodePool")
    ('label_nvidia_com_gpu_product', 'label_node_pool')
    """
    plain = re.sub(r"[^a-zA-Z0-9_]", "_", label)
    return "label_" + _BOUND.sub(r"\1_\2", plain).lower()


def filled(template: str, values: Mapping[str, str]) -> str:
    """An administrator's query with `$namespace` and `$job` replaced; a name of an object needs no escaping, others are refused.

    >>> filled('rate(tokens{job="$job"}[5m])', {"namespace": "ml", "job": "llama"})
    'rate(tokens{job="llama"}[5m])'
    """
    for name, value in values.items():
        if not _OBJECT.match(value):
            raise BadValue(name, value, "give the name of an object")
    return re.sub(r"\$(namespace|job)\b", lambda found: values[found.group(1)], template)


# The questions that history asks, one small function each, over raw series of kube-state-metrics and of the trainers.
#
# All are instant queries at the end of a stretch of time that is `span` seconds long. Every range starts just after the
# moment where the stretch before it ended, so that answers of neighbouring stretches add up. Series of one thing are first
# reduced to one (`max by`), because a second replica or a restarted exporter makes duplicates.

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


# Whose word counts about nodes, devices and pods of others: by where the scrape says that a target runs, never by what it says itself.
#
#     kube_node_*, node_*, problem_*   their label `namespace` is the target's
#     kube_pod_*, kube_job_*           it may be the pod's (honorLabels): so by job and instance, as they have them who run where exporters do
#     DCGM_*                           either; a series that names a pod counts where its instance runs there
#
# Where exporters run, the ClusterProfile says; a target that no scrape places is static, and an administrator's. That targets there
# are scraped, their series `up` says, which no payload can.

_NODE_WORDS: Final = (
    "kube_node_status_condition|node_boot_time_seconds|problem_gauge|problem_counter"
)
_TOLD: Final = 3
"""Namespaces that a message names at most. [1]"""


async def heard(
    ask: Callable[[str], Awaitable[QueryResult]], pool: Pool, span: float, apart: Pool | None = None
) -> Pool | None:
    """The pool with who is believed about pods; None where nobody is. `apart` has matchers that pick exporters, where those pick pods."""
    found = (await ask(speaking(apart or pool, span))).samples
    if not found:
        return None
    said = (
        (label, any_of(sorted({one.label(label) for one in found})))
        for label in ("job", "instance")
    )
    return replace(pool, speakers=tuple(matcher(label, values, "=~") for label, values in said))


def speaking(pool: Pool, span: float) -> str:
    """Job and instance of those that speak of pods and run where exporters do: by `up`, or by what they say of nodes."""
    within, by = f"[{duration(span)}]", "group by (job, instance)"
    pods = " or ".join(
        f"{by} (last_over_time({pool.series(metric)}{within}))"
        for metric in ("kube_pod_info", "kube_pod_labels")
    )
    there = f"{by} (last_over_time({pool.series('up', pool.placed())}{within}))"
    nodes = f"{by} (last_over_time({pool.ready}{within}))"
    return f"({pods}) and on (job, instance) ({there} or {nodes})"


def of_devices(pool: Pool, metric: str, key: str, span: float, made: Callable[[str], str]) -> str:
    """What is made of a metric of exporters on the nodes, by `key`, which has the instance, for those that are believed."""
    if not metric.startswith("DCGM_"):
        return made(pool.series(metric))
    there = f"group by (instance) (last_over_time({pool.series('up', pool.placed())}[{duration(span)}]))"
    own = made(pool.series(metric, pool.placed()))
    kept = f"({made(pool.series(metric, pool.placed('!~')))}) and on (instance) ({there})"
    either = (
        f'label_replace({one}, "way", "{way}", "", "")'
        for way, one in (("own", own), ("kept", kept))
    )
    return f"max by ({key}) ({' or '.join(either)})"


async def left_out(ask: Callable[[str], Awaitable[QueryResult]], pool: Pool) -> str:
    """What is said of those that speak of nodes and pods and are not believed; empty where there are none."""
    others = pool.placed("!~")
    words = ",".join([*pool.matchers, matcher("__name__", _NODE_WORDS, "=~"), others])
    pods = f"{pool.series('kube_pod_info', others)} and on (job, instance, namespace) {pool.series('up', others)}"
    look = f"last_over_time({{{words}}}[{duration(2 * GRID)}])"
    found = (await ask(f"group by (namespace) ({look}) or group by (namespace) ({pods})")).samples
    names = sorted({one.label("namespace") for one in found})
    if not names:
        return ""
    said = ", ".join(name[:63] for name in names[:_TOLD]) + (
        " and others" if len(names) > _TOLD else ""
    )
    return f"series of nodes and pods from {said} were left out; who is believed, spec.prometheus.exporterNamespaces says"
