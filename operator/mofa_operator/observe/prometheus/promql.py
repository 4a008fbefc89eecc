r"""Queries built from parts, so that no text of a user can leave its quotes.

    selector("up", cluster='a"b')  ->  up{cluster="a\"b"}

Values of labels are quoted, names are checked, durations are whole milliseconds. Free PromQL comes
only from a ClusterProfile, which an administrator writes.

Series about nodes, devices and pods of others count only from trusted exporters. These run in
namespaces that the ClusterProfile names, or in none that the scrape shows, as a static target of an
administrator does. Where a target runs is said by the scrape, which the target cannot change.

    kube_node_*, node_*, problem_*   their label `namespace` is the target's
    kube_pod_*, kube_job_*           it may be the pod's (honorLabels), so the exporter's job and
                                     instance are compared
    DCGM_*                           either: a series that names a pod counts if an exporter sent it
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from mofa_model.errors import BadValue
from mofa_model.kinds import LABELS, PodLabels
from mofa_model.manifest.cluster_profile import EXPORTERS

if TYPE_CHECKING:
    from mofa_operator.observe.prometheus.client import QueryResult, Sample

_LABEL: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*\Z")
_METRIC: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*\Z")
_SPECIAL: Final = re.compile(r"[\\.+*?()|\[\]{}^$]")
_WORD_END: Final = re.compile(r"([a-z0-9])([A-Z])")
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

    def escaped(c: str) -> str:
        if c in _PLAIN or c.isprintable():
            return _PLAIN.get(c, c)
        return f"\\u{ord(c):04x}" if ord(c) < 0x10000 else f"\\U{ord(c):08x}"

    return '"' + "".join(map(escaped, text)) + '"'


def matcher(label: str, value: str, operator: str = "=") -> str:
    """A condition on a label; the value is literal for `=` and `!=`, else a regular expression.

    >>> matcher("cluster", "east")
    'cluster="east"'
    """
    if not _LABEL.match(label):
        right = "write letters, digits and _, a letter first, for example cluster"
        raise BadValue("Prometheus label", label, right)
    return f"{label}{operator}{quoted(value)}"


WHOLE_GPUS: Final = matcher("resource", "(nvidia|amd|intel)_com_gpu|habana_ai_gaudi", "=~")
"""Matches resources that are whole GPUs, and none that is a share of a GPU."""


def any_of(values: Iterable[str]) -> str:
    r"""A regular expression that is exactly these values.

    >>> any_of(["a.b", "c"])
    'a\\.b|c'
    """
    return "|".join(_SPECIAL.sub(r"\\\g<0>", value) for value in values)


def selector(metric: str, matchers: Iterable[str] = (), /, **equal: str) -> str:
    """Series of a metric, by ready matchers and by labels that equal a value.

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
    """The name that kube-state-metrics gives to a label of a node or a pod.

    Source: kube-state-metrics, allowed labels of kube_node_labels: what is no letter, digit or _
    becomes _, and camel case becomes snake case.

    >>> node_label("nvidia.com/gpu.product"), node_label("nodePool")
    ('label_nvidia_com_gpu_product', 'label_node_pool')
    """
    plain = re.sub(r"[^a-zA-Z0-9_]", "_", label)
    return "label_" + _WORD_END.sub(r"\1_\2", plain).lower()


def filled(template: str, values: Mapping[str, str]) -> str:
    """An administrator's query with `$namespace` and `$job` filled in by names of objects only.

    >>> filled('rate(tokens{job="$job"}[5m])', {"namespace": "ml", "job": "llama"})
    'rate(tokens{job="llama"}[5m])'
    """
    for name, value in values.items():
        if not _OBJECT.match(value):
            raise BadValue(
                name,
                value,
                "give the name of a Kubernetes object: lowercase letters, digits, - and .",
            )
    return re.sub(r"\$(namespace|job)\b", lambda match: values[match.group(1)], template)


# ------------------------------------------------------------------------------- series of a pool

GRID: Final = 300
"""Grid on which time is counted: samples this near are no gap, as in Prometheus' lookback. [s]"""
AGO: Final = ("", " offset 1d", " offset 1w")
"""When nodes are looked for: now, or earlier where the exporter is down just now."""
POD_LABELS: Final = tuple(
    replace(
        labels,
        job=node_label(labels.job),
        attempt=node_label(labels.attempt) if labels.attempt else "",
        slot=tuple(node_label(label) for label in labels.slot),
    )
    for labels in LABELS
)
"""Labels of pods as kube-state-metrics names them, for each kind of jobs."""
JOB_LABELS: Final = (
    *(labels.job for labels in POD_LABELS),
    *(labels.attempt for labels in POD_LABELS if labels.attempt),
    *(label for labels in POD_LABELS for label in labels.slot),
)
"""Labels that name job, attempt and slot of a pod, of all kinds of jobs."""
POD_ID: Final = ("namespace", "pod", "uid")
"""Labels that identify a pod; a uid alone is a label that anybody may publish."""
POD_FACTS: Final = ("node", "created", "evicted", "preempted", "restarts")
"""What `pod_facts` can ask of pods."""
_OF_NODES: Final = ("kube_node_", "node_", "problem_")
_OF_PODS: Final = ("kube_pod_", "kube_job_")
_POD: Final = ", ".join(POD_ID)
_READY: Final = (matcher("condition", "Ready"), matcher("status", "true"))
_FINISHED: Final = matcher("phase", "Succeeded|Failed", "=~")
_MADE_ROOM: Final = matcher("reason", "Evicted|Preempted|Preempting|Shutdown|Terminated", "=~")
_DISRUPTED: Final = matcher(
    "reason", "PreemptionByScheduler|EvictionByEvictionAPI|PreemptionByKueue", "=~"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Pool:
    """The nodes of a profile in Prometheus, and the queries about them.

    All are instant queries at the end of a piece of time of `span` seconds. Duplicates of a second
    replica or a restarted exporter are reduced to one first (`max by`).
    """

    matchers: tuple[str, ...]
    """Conditions that every series meets."""
    members: tuple[str, ...] = ()
    """Conditions on kube_node_labels that the pool's nodes meet."""
    labels: tuple[tuple[str, str], ...] = ()
    """The same as Kubernetes writes them: labels and values."""
    label: str = ""
    """The label that names the node, where the profile states it."""
    exporters: tuple[str, ...] = EXPORTERS
    """Namespaces of trusted exporters."""
    pod_exporters: tuple[str, ...] = ()
    """Conditions that series of pods meet so that they come from trusted exporters."""
    scraped: str = ""
    """Namespace of which only targets speak that Prometheus scrapes there; empty = any series."""

    @classmethod
    def of(
        cls,
        matchers: Mapping[str, str],
        node_selector: Mapping[str, str],
        label: str = "",
        exporters: Iterable[str] = EXPORTERS,
    ) -> Pool:
        """A pool by its profile; a namespace among the matchers is a trusted one."""
        stated = [matchers["namespace"]] if "namespace" in matchers else []
        return cls(
            exporters=(*exporters, *stated),
            matchers=tuple(matcher(name, value) for name, value in sorted(matchers.items())),
            members=tuple(
                matcher(node_label(name), value) for name, value in sorted(node_selector.items())
            ),
            labels=tuple(sorted(node_selector.items())),
            label=label,
        )

    def series(self, metric: str, *conditions: str) -> str:
        """Series of a metric within the profile's matchers, from trusted exporters."""
        trusted: tuple[str, ...] = ()
        if metric.startswith(_OF_PODS):
            trusted = self.pod_exporters
        elif metric.startswith(_OF_NODES):
            trusted = (self.placed(),)
        return selector(metric, [*self.matchers, *trusted, *conditions])

    def attested(self, query: str, span: float) -> str:
        """A query limited to series whose target was up in its namespace within `span`. [s]

        `up` has the labels of the target, whatever the target says of itself (honorLabels).
        """
        if not self.scraped:
            return query
        up = selector("up", [matcher("namespace", self.scraped)])
        targets = f"last_over_time({up}[{duration(span)}])"
        return f"({query}) and on (namespace, job, instance) {targets}"

    def placed(self, operator: str = "=~") -> str:
        """The condition that a target is scraped in a trusted namespace, or with `!~` elsewhere."""
        return matcher("namespace", "|" + any_of(self.exporters), operator)

    @property
    def ready(self) -> str:
        """Whether each node is ready."""
        return self.ready_of()

    def ready_of(self, *conditions: str) -> str:
        """Whether nodes that meet conditions are ready."""
        return self.series("kube_node_status_condition", *_READY, *conditions)

    def labelled_nodes(self, span: float) -> str:
        """How many nodes have the selector's labels, with any value."""
        wanted = (matcher(node_label(label), "", "!=") for label, _ in self.labels)
        series = self.series("kube_node_labels", *wanted)
        return f"count(last_over_time({series}[{duration(span)}]))"

    def clusters(self) -> str:
        """Nodes by cluster: now, a day ago or a week ago."""
        recent = f"last_over_time({self.ready}[{duration(2 * GRID)}]"
        return f"count by (cluster) ({' or '.join(f'{recent}{ago})' for ago in AGO)})"

    def nodes_at(self, labels: Iterable[str], ago: str = "") -> str:
        """One series for each node, with some of its labels, now or some time ago. A second series
        of a node would halve the number of nodes within the limit of an answer.
        """
        info, ready = (
            f"last_over_time({series}[{duration(2 * GRID)}]{ago})"
            for series in (self.series("kube_node_info"), self.ready)
        )
        either = f"{info} or ({ready} unless on (node, exported_node) {info})"
        return f"max by ({', '.join(labels)}) ({either})"

    def members_by(self, label: str) -> str:
        """Nodes that belong to the pool now, by the label that names them."""
        series = self.series("kube_node_labels", *self.members)
        return f"max by ({label}) (last_over_time({series}[{duration(2 * GRID)}]))"

    def covered(self, span: float) -> str:
        """Moments of the grid at which the readiness of any node was sampled."""
        # servers differ on whether a range includes its first moment: a second less excludes it
        return f"count_over_time((count({self.ready}))[{duration(span - 1)}:{duration(GRID)}])"

    def pods(self, span: float) -> str:
        """Samples of pods of training jobs by the labels that name their job, attempt and slot."""
        labels = ", ".join([*POD_ID, *JOB_LABELS])
        return f"sum by ({labels}) ({self._job_pods('count_over_time', span)})"

    def pod_facts(self, span: float, wanted: Iterable[str]) -> str:
        """Facts of these pods: a series for each wanted `POD_FACTS`, named by the label `fact`.

        The node stands in the label of that name; the restarts are those of the container that
        has most.
        """
        within = f"[{duration(span)}]"
        gone = self.series("kube_pod_status_reason", _MADE_ROOM)
        disrupted = self.series("kube_pod_status_disruption_reason", _DISRUPTED)
        placed = self.series("kube_pod_info", matcher("node", "", "!="))
        restarts = self.series("kube_pod_container_status_restarts_total")
        facts = {
            "node": f"last_over_time({placed}{within})",
            "created": f"last_over_time({self.series('kube_pod_created')}{within})",
            "evicted": f"max_over_time({gone}{within}) == 1",
            "preempted": f"max_over_time({disrupted}{within}) == 1",
            "restarts": f"max_over_time({restarts}{within})",
        }
        fact_queries = (
            f'label_replace(max by ({_POD}, node) ({facts[fact]}), "fact", "{fact}", "", "")'
            for fact in wanted
        )
        pods = self._job_pods("last_over_time", span)
        return f"({' or '.join(fact_queries)}) and on ({_POD}) ({pods})"

    def container_ends(self, span: float) -> str:
        """When a container of each pod of a training job last ended, to be started again. [s]"""
        ended = self.series("kube_pod_container_status_last_terminated_timestamp")
        pods = self._job_pods("last_over_time", span)
        last = f"max by ({_POD}) (last_over_time({ended}[{duration(span)}]))"
        return f"{last} and on ({_POD}) ({pods})"

    def started(self) -> str:
        """When containers of each living training pod last started; 0 where none runs. [s]"""
        started = f"max by ({_POD}) ({self.series('kube_pod_container_state_started')})"
        over = f"max by ({_POD}) ({self.series('kube_pod_status_phase', _FINISHED)}) == 1"
        pods = " or ".join(self.job_pods)
        living = f"max by ({_POD}) ({pods}) unless on ({_POD}) ({over})"
        return f"({started} and on ({_POD}) ({living})) or on ({_POD}) 0 * ({living})"

    def _job_pods(self, function: str, span: float) -> str:
        return " or ".join(f"{function}({series}[{duration(span)}])" for series in self.job_pods)

    @property
    def job_pods(self) -> list[str]:
        """Labels of the pods of training jobs, for each kind of jobs."""
        return [
            self.series("kube_pod_labels", matcher(labels.job, "", "!=")) for labels in POD_LABELS
        ]


_DRAWN: Final = 5
"""Length of the random end that the API server gives a pod's name. [1]"""
_NEVER_DRAWN: Final = frozenset("013")
"""Digits that no such end has; of some 1,000 random ends, one is a number without them."""


def labels_of(sample: Sample) -> PodLabels:
    """The labels by which pods of a kind of jobs name their job. The kind is the first of which the
    pod has the label, or of which an object owns the pod.
    """
    return next(
        (
            labels
            for labels in POD_LABELS
            if sample.label(labels.job)
            or (labels.owner and sample.label("owner_kind") == labels.owner)
        ),
        POD_LABELS[0],
    )


def job_of(sample: Sample) -> str:
    """The name of the job that a pod is of, by its labels or its owner."""
    labels = labels_of(sample)
    return labels.job_name(sample.label(labels.job) or sample.label("owner_name"))


def pod_slot(sample: Sample) -> str:
    """What a pod and its replacement share: a JobSet's indices, else the name without its end.

    In a name that begins with that of a job's cluster, the job's name takes its place, because a
    job that is started anew gets another cluster.
    """
    labels = labels_of(sample)
    indices = [sample.label(label) for label in labels.slot]
    if indices and all(indices):
        return "/".join(indices)
    name = sample.label("exported_pod") or sample.label("pod")
    above = sample.label(labels.job) or sample.label("owner_name")
    if labels.owner and name.startswith(above):
        name = labels.job_name(above) + name.removeprefix(above)
    stem, _, last = name.rpartition("-")
    is_drawn = len(last) == _DRAWN and (not last.isdigit() or not set(last) & _NEVER_DRAWN)
    return stem if is_drawn else name


# ------------------------------------------------------------------------------- trusted exporters

_NODE_METRICS: Final = (
    "kube_node_status_condition|node_boot_time_seconds|problem_gauge|problem_counter"
)
_SHOWN: Final = 3
"""Namespaces that a message names at most. [1]"""


async def with_trusted_exporters(
    ask: Callable[[str], Awaitable[QueryResult]],
    pool: Pool,
    span: float,
    exporters: Pool | None = None,
) -> Pool | None:
    """The pool, limited to exporters of pods that are trusted; None where no exporter is trusted.

    `exporters` has the matchers that pick exporters, if they differ from those that pick pods.
    """
    samples = (await ask(_pod_exporters(exporters or pool, span))).samples
    if not samples:
        return None
    values = {
        label: any_of(sorted({s.label(label) for s in samples})) for label in ("job", "instance")
    }
    conditions = (matcher(label, value, "=~") for label, value in values.items())
    return replace(pool, pod_exporters=tuple(conditions))


def _pod_exporters(pool: Pool, span: float) -> str:
    """Job and instance of targets that publish pods and run in a trusted namespace."""
    within, by = f"[{duration(span)}]", "group by (job, instance)"
    pods = " or ".join(
        f"{by} (last_over_time({pool.series(metric)}{within}))"
        for metric in ("kube_pod_info", "kube_pod_labels")
    )
    targets = f"{by} (last_over_time({pool.series('up', pool.placed())}{within}))"
    nodes = f"{by} (last_over_time({pool.ready}{within}))"
    return f"({pods}) and on (job, instance) ({targets} or {nodes})"


def by_trusted_exporters(
    pool: Pool, metric: str, key: str, span: float, query: Callable[[str], str]
) -> str:
    """A query over a metric of trusted exporters on nodes, by the labels `key` and instance."""
    if not metric.startswith("DCGM_"):
        return query(pool.series(metric))
    up = pool.series("up", pool.placed())
    targets = f"group by (instance) (last_over_time({up}[{duration(span)}]))"
    own = query(pool.series(metric, pool.placed()))
    kept = f"({query(pool.series(metric, pool.placed('!~')))}) and on (instance) ({targets})"
    # without this label, both could have the same series
    either = (
        f'label_replace({series}, "way", "{way}", "", "")'
        for way, series in (("own", own), ("kept", kept))
    )
    return f"max by ({key}) ({' or '.join(either)})"


async def untrusted(ask: Callable[[str], Awaitable[QueryResult]], pool: Pool) -> str:
    """A sentence about untrusted exporters of nodes and pods; empty where there is none."""
    others = pool.placed("!~")
    metrics = ",".join([*pool.matchers, matcher("__name__", _NODE_METRICS, "=~"), others])
    up = pool.series("up", others)
    pods = f"{pool.series('kube_pod_info', others)} and on (job, instance, namespace) {up}"
    nodes = f"last_over_time({{{metrics}}}[{duration(2 * GRID)}])"
    namespaces = (
        await ask(f"group by (namespace) ({nodes}) or group by (namespace) ({pods})")
    ).samples
    names = sorted({s.label("namespace") for s in namespaces})
    if not names:
        return ""
    shown = ", ".join(name[:63] for name in names[:_SHOWN])
    return (
        f"series of nodes and pods from {shown}"
        f"{' and others' if len(names) > _SHOWN else ''} were left out; "
        "spec.prometheus.exporterNamespaces says which namespaces are believed"
    )
