"""The series that kube-state-metrics has of a Pod, for pods that are no objects: those of jobs that
the fake trainer trains.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from prometheus_client.core import Metric

from mofa_local.series import kube_label

PHASES: Final = ("Pending", "Running", "Succeeded", "Failed", "Unknown")

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


def pod_series(families: Families, pod: Object) -> None:
    """Series of one Pod."""
    metadata, status = pod["metadata"], pod.get("status", {})
    name = {"namespace": metadata["namespace"], "pod": metadata["name"], "uid": metadata["uid"]}
    owner: Object = next(
        (
            reference
            for reference in metadata.get("ownerReferences") or ()
            if reference.get("controller")
        ),
        {},
    )
    made_by = {"created_by_kind": owner.get("kind", ""), "created_by_name": owner.get("name", "")}
    families.add(
        "kube_pod_info", name | {"node": pod.get("spec", {}).get("nodeName", "")} | made_by
    )
    families.add("kube_pod_labels", name | _labels(pod))
    for phase in PHASES:
        families.add(
            "kube_pod_status_phase", name | {"phase": phase}, float(status.get("phase") == phase)
        )
    if "reason" in status:
        families.add("kube_pod_status_reason", name | {"reason": status["reason"]})
    conditions = {
        (condition["type"], condition["status"]): condition
        for condition in status.get("conditions") or ()
    }
    disrupted = conditions.get(("DisruptionTarget", "True"))
    if disrupted is not None:
        families.add("kube_pod_status_disruption_reason", name | {"reason": disrupted["reason"]})
    moments = {
        "kube_pod_created": metadata.get("creationTimestamp"),
        "kube_pod_deletion_timestamp": metadata.get("deletionTimestamp"),
        "kube_pod_status_ready_time": conditions.get(("Ready", "True"), {}).get(
            "lastTransitionTime"
        ),
    }
    _add_moments(families, moments, name)
    for container in status.get("containerStatuses") or ():
        labels = name | {"container": container["name"]}
        families.add(
            "kube_pod_container_status_restarts_total", labels, container.get("restartCount", 0)
        )
        state, last = container.get("state", {}), container.get("lastState", {})
        moments = {
            "kube_pod_container_state_started": state.get("running", {}).get("startedAt"),
            "kube_pod_container_status_last_terminated_timestamp": last.get("terminated", {}).get(
                "finishedAt"
            ),
        }
        _add_moments(families, moments, labels)


def _add_moments(
    families: Families, moments: Mapping[str, str | None], labels: Mapping[str, str]
) -> None:
    for metric, text in moments.items():
        seconds = _seconds(text)
        if seconds is not None:
            families.add(metric, labels, seconds)


def _labels(body: Object) -> dict[str, str]:
    return {
        f"label_{kube_label(name)}": text
        for name, text in (body["metadata"].get("labels") or {}).items()
    }


def _seconds(text: str | None) -> float | None:
    """A moment in seconds of the epoch. [s]"""
    return None if text is None else datetime.fromisoformat(text).timestamp()
