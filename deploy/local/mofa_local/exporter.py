"""The series of kube-state-metrics that history needs, from the live API server; kube-state-metrics itself is no Go module.

    python -m mofa_local.exporter --kubeconfig FILE --port 9300

Every scrape lists nodes, pods and JobSets anew. While the API server does not answer, the last lists stand, as an
informer's would.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import threading
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from mofa_local import LocalStackError
from mofa_local.client import Client
from mofa_local.ports import HOST
from mofa_local.series import kube_label

PHASES: Final = ("Pending", "Running", "Succeeded", "Failed", "Unknown")
STATUSES: Final = ("true", "false", "unknown")

Object = Mapping[str, Any]


class Families:
    """Metric families that are filled label by label: each is made when its first sample comes."""

    def __init__(self) -> None:
        self._made: dict[str, Metric] = {}

    def add(self, metric: str, labels: Mapping[str, str], value: float = 1.0) -> None:
        """One sample; a metric whose name ends in _total is a counter."""
        if metric not in self._made:
            kind = "counter" if metric.endswith("_total") else "gauge"
            self._made[metric] = Metric(
                metric.removesuffix("_total"), f"{metric}, as kube-state-metrics has it.", kind
            )
        self._made[metric].add_sample(metric, dict(labels), value)

    def __iter__(self) -> Iterator[Metric]:
        return iter(self._made.values())


def node_series(families: Families, node: Object) -> None:
    """Series of one Node."""
    name = {"node": node["metadata"]["name"]}
    status = node.get("status", {})
    families.add(
        "kube_node_info", name | {"kubelet_version": status.get("nodeInfo", {}).get("kubeletVersion", "")}
    )
    families.add("kube_node_labels", name | _labels(node))
    families.add("kube_node_created", name, _seconds(node["metadata"].get("creationTimestamp")) or 0.0)
    families.add(
        "kube_node_spec_unschedulable", name, float(node.get("spec", {}).get("unschedulable", False))
    )
    for condition in status.get("conditions") or ():
        for said in STATUSES:
            labels = name | {"condition": condition["type"], "status": said}
            families.add("kube_node_status_condition", labels, float(condition["status"].lower() == said))
    gpus = status.get("allocatable", {}).get("nvidia.com/gpu")
    if gpus is not None:
        families.add(
            "kube_node_status_allocatable",
            name | {"resource": "nvidia_com_gpu", "unit": "integer"},
            float(gpus),
        )


def pod_series(families: Families, pod: Object) -> None:
    """Series of one Pod."""
    metadata, status = pod["metadata"], pod.get("status", {})
    name = {"namespace": metadata["namespace"], "pod": metadata["name"], "uid": metadata["uid"]}
    owner: Object = next((one for one in metadata.get("ownerReferences") or () if one.get("controller")), {})
    made_by = {"created_by_kind": owner.get("kind", ""), "created_by_name": owner.get("name", "")}
    families.add("kube_pod_info", name | {"node": pod.get("spec", {}).get("nodeName", "")} | made_by)
    families.add("kube_pod_labels", name | _labels(pod))
    for phase in PHASES:
        families.add("kube_pod_status_phase", name | {"phase": phase}, float(status.get("phase") == phase))
    if "reason" in status:
        families.add("kube_pod_status_reason", name | {"reason": status["reason"]})
    conditions = {(one["type"], one["status"]): one for one in status.get("conditions") or ()}
    disrupted = conditions.get(("DisruptionTarget", "True"))
    if disrupted is not None:
        families.add("kube_pod_status_disruption_reason", name | {"reason": disrupted["reason"]})
    moments = {
        "kube_pod_created": metadata.get("creationTimestamp"),
        "kube_pod_deletion_timestamp": metadata.get("deletionTimestamp"),
        "kube_pod_status_ready_time": conditions.get(("Ready", "True"), {}).get("lastTransitionTime"),
    }
    _add_moments(families, moments, name)
    for container in status.get("containerStatuses") or ():
        labels = name | {"container": container["name"]}
        families.add("kube_pod_container_status_restarts_total", labels, container.get("restartCount", 0))
        state, last = container.get("state", {}), container.get("lastState", {})
        moments = {
            "kube_pod_container_state_started": state.get("running", {}).get("startedAt"),
            "kube_pod_container_status_last_terminated_timestamp": last.get("terminated", {}).get(
                "finishedAt"
            ),
        }
        _add_moments(families, moments, labels)


def job_set_series(families: Families, job_set: Object) -> None:
    """Series of one JobSet, as a custom-resource configuration of kube-state-metrics would have them."""
    metadata, status = job_set["metadata"], job_set.get("status", {})
    name = {"customresource_kind": "JobSet", "namespace": metadata["namespace"], "name": metadata["name"]}
    families.add("kube_customresource_jobset_restarts", name, status.get("restarts", 0))


def _add_moments(families: Families, moments: Mapping[str, str | None], labels: Mapping[str, str]) -> None:
    for metric, text in moments.items():
        seconds = _seconds(text)
        if seconds is not None:
            families.add(metric, labels, seconds)


def _labels(body: Object) -> dict[str, str]:
    return {
        f"label_{kube_label(name)}": text for name, text in (body["metadata"].get("labels") or {}).items()
    }


def _seconds(text: str | None) -> float | None:
    """A moment in seconds of the epoch. [s]"""
    return None if text is None else datetime.fromisoformat(text).timestamp()


LISTS: Final = (
    ("/api/v1/nodes", node_series),
    ("/api/v1/pods", pod_series),
    ("/apis/jobset.x-k8s.io/v1alpha2/jobsets", job_set_series),
)
"""What is listed, and what becomes of each object; a kind that the cluster does not have is left out."""


class Exporter(Collector):
    """Lists the cluster at every scrape."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._last: dict[str, list[dict[str, Any]]] = {}

    def collect(self) -> Iterable[Metric]:
        """All series of this moment."""
        families = Families()
        for path, series in LISTS:
            with contextlib.suppress(LocalStackError):  # the API server is away: the last list stands
                self._last[path] = self._client.items(path) or []
            for body in self._last.get(path, ()):
                series(families, body)
        return families


def main() -> None:
    """Serve until TERM."""
    parser = argparse.ArgumentParser(prog="python -m mofa_local.exporter", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    arguments = parser.parse_args()
    registry = CollectorRegistry()
    registry.register(Exporter(Client(arguments.kubeconfig)))
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    server, thread = start_http_server(arguments.port, addr=HOST, registry=registry)
    stop.wait()
    server.shutdown()
    thread.join()


if __name__ == "__main__":
    main()
