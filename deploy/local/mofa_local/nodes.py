"""Fake GPU nodes, and what happens to them: fail, be cordoned, vanish, come back.

With kwok they are alive: they become ready, renew their leases, and run the pods that are scheduled
onto them (`deploy/local/stages.yaml` says how). Without kwok they are Node objects whose status is
written here; the same functions fail and recover both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from mofa_local import binaries
from mofa_local.cluster import Cluster
from mofa_local.ports import HOST, free_port
from mofa_local.processes import Processes, answers

PRODUCT: Final = "NVIDIA-H100-80GB-HBM3"
"""Value of the label nvidia.com/gpu.product."""
OTHER: Final = "NVIDIA-A100-SXM4-80GB"
"""Value of that label on nodes that are in no pool."""
_MIB: Final = {PRODUCT: 81559, OTHER: 81920}
"""Memory of a device. [MiB]"""
DEVICE: Final = _MIB[PRODUCT] * 2**20
"""Memory of a device of a pool's nodes; no fake telemetry shows more. [B]"""
FAKE: Final = {"kwok.x-k8s.io/node": "fake"}
"""The annotation by which kwok knows its nodes."""
BROKEN: Final = "local.mofa.dev/broken"
"""The annotation that keeps kwok from making a node ready."""
STAGES: Final = Path(__file__).resolve().parent.parent / "stages.yaml"
"""File of the stages that kwok plays."""
AT_ONCE: Final = 8
"""Requests to the API server at the same time. [1]"""


def start_kwok(processes: Processes, kubeconfig: Path, *, name: str = "kwok") -> None:
    """Start kwok for the nodes that carry its annotation."""
    port = free_port()
    processes.start(
        name,
        [
            binaries.path("kwok"),
            f"--kubeconfig={kubeconfig}",
            f"--config={STAGES}",
            "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
            "--node-lease-duration-seconds=40",
            f"--node-ip={HOST}",
            "--cidr=10.64.0.0/16",
            f"--server-address={HOST}:{port}",
            "--v=WARN",
        ],
        ready=answers(f"http://{HOST}:{port}/healthz"),
    )


def node(
    name: str, *, gpus: int = 8, product: str = PRODUCT, labels: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """A Node with GPUs, as its kubelet would register it: not ready yet."""
    size = {
        "cpu": "192",
        "memory": "2048Gi",
        "ephemeral-storage": "4Ti",
        "pods": "110",
        "nvidia.com/gpu": str(gpus),
    }
    standard = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": "hgx-h100",
        "nvidia.com/gpu.product": product,
        "nvidia.com/gpu.count": str(gpus),
    }
    if product in _MIB:
        standard["nvidia.com/gpu.memory"] = str(_MIB[product])
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": standard | dict(labels or {})},
        "status": {
            "capacity": size,
            "allocatable": size,
            "nodeInfo": dict.fromkeys(
                (
                    "machineID",
                    "systemUUID",
                    "bootID",
                    "kernelVersion",
                    "osImage",
                    "kubeProxyVersion",
                ),
                "",
            )
            | {
                "architecture": "amd64",
                "operatingSystem": "linux",
                "containerRuntimeVersion": "fake://1",
                "kubeletVersion": "v1.36.0",
            },
        },
    }


def create(cluster: Cluster, manifests: Sequence[dict[str, Any]], *, kwok: bool = True) -> None:
    """Create nodes; without kwok they are ready at once."""
    api = cluster.admin.resources.get(api_version="v1", kind="Node")

    def create_node(manifest: dict[str, Any]) -> None:
        metadata = manifest["metadata"] | ({"annotations": FAKE} if kwok else {})
        status = manifest["status"] | ({} if kwok else {"conditions": [_condition("True")]})
        api.create(body=manifest | {"metadata": metadata, "status": status})

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(create_node, manifests))


def ready_nodes(cluster: Cluster) -> set[str]:
    """Names of nodes whose condition Ready is True."""
    api = cluster.admin.resources.get(api_version="v1", kind="Node")
    return {
        body["metadata"]["name"]
        for body in api.get().to_dict()["items"]
        if any(
            condition["type"] == "Ready" and condition["status"] == "True"
            for condition in body["status"].get("conditions") or ()
        )
    }


def fail(
    cluster: Cluster, name: str, *, status: str = "False", reason: str = "KubeletNotReady"
) -> None:
    """Make a node not ready until `recover`; `status` is False, or Unknown as for a silent node."""
    _patch(cluster, name, {"metadata": {"annotations": {BROKEN: reason}}})
    _patch(cluster, name, {"status": {"conditions": [_condition(status, reason)]}}, status=True)


def recover(cluster: Cluster, name: str) -> None:
    """Make a node ready again, after `fail`."""
    _patch(cluster, name, {"metadata": {"annotations": {BROKEN: None}}})
    _patch(cluster, name, {"status": {"conditions": [_condition("True")]}}, status=True)


def cordon(cluster: Cluster, name: str, *, on: bool = True) -> None:
    """Cordon a node; `on=False` uncordons it."""
    _patch(cluster, name, {"spec": {"unschedulable": on or None}})


def delete(cluster: Cluster, name: str) -> None:
    """Delete the Node object."""
    cluster.admin.resources.get(api_version="v1", kind="Node").delete(name=name)


def _condition(status: str, reason: str = "KubeletReady") -> dict[str, str]:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "type": "Ready",
        "status": status,
        "reason": reason,
        "message": "written by the local stack",
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }


def _patch(cluster: Cluster, name: str, body: dict[str, Any], *, status: bool = False) -> None:
    api = cluster.admin.resources.get(api_version="v1", kind="Node")
    target = api.status if status else api
    target.patch(name=name, body=body, content_type="application/strategic-merge-patch+json")
