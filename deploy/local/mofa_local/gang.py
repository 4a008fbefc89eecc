"""Pods of a fake job as JobSet would make them, and what each kind of interruption does to them.

They are bodies as the API server would hand them out, and `exporter.pod_series` makes of them what
kube-state-metrics would show; in the cluster itself they do not exist, so that a job of 256 nodes
costs nothing.

    process      every container ends and is started again in its pod
    pod          a pod fails, and its slot gets a new one on the same node
    node         the same, on another node; the node itself is broken by whoever asks
    preemption   a pod makes room for another one, and its slot gets a new one
    job          all pods go, and the next attempt has new ones
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, Literal

from mofa_model.errors import UnknownName

Kind = Literal["process", "pod", "node", "preemption", "job"]
KINDS: Final[tuple[Kind, ...]] = ("process", "pod", "node", "preemption", "job")
"""Kinds of interruptions."""
MOST: Final = 8
"""Pods of a job that are made up; a larger job has as many. [1]"""
BORN_AFTER: Final = 2.0
"""From the end of a pod to the creation of the one that takes its place. [s]"""
LINGERS: Final = 30.0
"""How long a pod that was disrupted is still to be seen. [s]"""
_DISRUPTED: Final = {"node": "DeletionByTaintManager", "preemption": "PreemptionByScheduler"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Pod:
    """One pod."""

    slot: int
    """Its place in the job. [1]"""
    attempt: int
    """Attempt of the whole job. [1]"""
    node: str
    """Its node."""
    born: float
    """Creation, in seconds of the epoch. [s]"""
    uid: str
    """Its uid."""
    gone: float | None = None
    """When it ended; None = it runs. [s]"""
    disrupted: str = ""
    """Reason of its condition DisruptionTarget; empty = it has none."""
    restarts: int = 0
    """Restarts of its container. [1]"""
    restarted: float | None = None
    """When its container last ended. [s]"""


class Gang:
    """All pods of a job, one on each of its nodes."""

    def __init__(self, namespace: str, name: str, nodes: Sequence[str], now: float) -> None:
        """Begin the first attempt of a job at `now`; nodes beyond `MOST` are spare. [s]"""
        self.namespace = namespace
        self.name = name
        self._nodes = list(nodes) or ["node-0"]
        self._pods = [self._pod(slot, 0, node, now) for slot, node in enumerate(self._nodes[:MOST])]

    def interrupt(self, kind: str, now: float) -> str:
        """Interrupt the job in a given way; returns the node that is hit."""
        if kind not in KINDS:
            raise UnknownName("kind", kind, KINDS)
        living = [pod for pod in self._pods if pod.gone is None]
        victim = living[-1]
        if kind == "process":
            again = [replace(pod, restarts=pod.restarts + 1, restarted=now) for pod in living]
            self._pods = [pod for pod in self._pods if pod.gone is not None] + again
        elif kind == "job":
            for pod in living:
                self._replace(pod, now, attempt=pod.attempt + 1)
        else:
            node = self._spare(victim.node) if kind == "node" else victim.node
            self._replace(victim, now, node=node, disrupted=_DISRUPTED.get(kind, ""))
        return victim.node

    def bodies(self, now: float) -> list[dict[str, Any]]:
        """Pods that are to be seen at a moment."""
        self._pods = [pod for pod in self._pods if pod.gone is None or now < pod.gone + LINGERS]
        return [
            self._body(pod)
            for pod in self._pods
            if pod.born <= now and (pod.gone is None or now < pod.gone or pod.disrupted)
        ]

    def _replace(
        self,
        pod: Pod,
        now: float,
        *,
        attempt: int | None = None,
        node: str = "",
        disrupted: str = "",
    ) -> None:
        self._pods.remove(pod)
        after = pod.attempt if attempt is None else attempt
        new = self._pod(pod.slot, after, node or pod.node, now + BORN_AFTER)
        self._pods += [replace(pod, gone=now, disrupted=disrupted), new]

    def _spare(self, node: str) -> str:
        used = {pod.node for pod in self._pods if pod.gone is None}
        return next((node for node in self._nodes if node not in used), node)

    def _pod(self, slot: int, attempt: int, node: str, born: float) -> Pod:
        named = f"{self.namespace}/{self.name}/{slot}/{attempt}/{born}"
        return Pod(
            slot=slot,
            attempt=attempt,
            node=node,
            born=born,
            uid=str(uuid.uuid5(uuid.NAMESPACE_DNS, named)),
        )

    def _body(self, pod: Pod) -> dict[str, Any]:
        labels = {
            "jobset.sigs.k8s.io/jobset-name": self.name,
            "jobset.sigs.k8s.io/replicatedjob-name": "trainer",
            "jobset.sigs.k8s.io/restart-attempt": str(pod.attempt),
            "jobset.sigs.k8s.io/job-index": "0",
            "jobset.sigs.k8s.io/job-global-index": "0",
            "batch.kubernetes.io/job-completion-index": str(pod.slot),
        }
        container: dict[str, Any] = {
            "name": "trainer",
            "restartCount": pod.restarts,
            "state": {"running": {"startedAt": _moment(pod.restarted or pod.born)}},
        }
        if pod.restarted is not None:
            container["lastState"] = {"terminated": {"finishedAt": _moment(pod.restarted)}}
        status: dict[str, Any] = {
            "phase": "Running" if pod.gone is None else "Failed",
            "containerStatuses": [container],
            "conditions": [],
        }
        if pod.disrupted:
            status["conditions"] = [
                {"type": "DisruptionTarget", "status": "True", "reason": pod.disrupted}
            ]
        return {
            "metadata": {
                "namespace": self.namespace,
                "name": f"{self.name}-trainer-0-{pod.slot}-{pod.uid[:5]}",
                "uid": pod.uid,
                "creationTimestamp": _moment(pod.born),
                "labels": labels,
            },
            "spec": {"nodeName": pod.node},
            "status": status,
        }


def _moment(at: float) -> str:
    return datetime.fromtimestamp(int(at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
