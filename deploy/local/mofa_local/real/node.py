"""A node of a cluster whose pods really run: containerd, kubelet, kube-proxy and a name server in a
machine of its own.

Nothing else is made up but its GPUs: an extended resource that is written into the node's status,
as Kubernetes documents it, with no device behind it.
"""

from __future__ import annotations

import contextlib
import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from mofa_local import LocalStackError, binaries
from mofa_local.control_plane import ControlPlane
from mofa_local.ports import HOST, free_port
from mofa_local.processes import STEP, Processes, answers
from mofa_local.real.containers import SOCKET, Containers
from mofa_local.real.machine import ADDRESS, Machine, missing

NAME: Final = "real-001"
"""Name of the node."""
TOOLS: Final = ("kubelet", "kube-proxy", "coredns")
"""Programs that are built for the node."""
LABELS: Final = {"local.mofa.dev/node": "real"}
"""By which pods find it."""
GPU: Final = "nvidia.com/gpu"
API: Final = 6443
"""Where pods, by way of the Service `kubernetes`, find the API server."""
NAMES: Final = [
    {
        "apiGroups": [""],
        "resources": ["endpoints", "services", "pods", "namespaces"],
        "verbs": ["list", "watch"],
    },
    {
        "apiGroups": ["discovery.k8s.io"],
        "resources": ["endpointslices"],
        "verbs": ["list", "watch"],
    },
]
"""Rights of the name server."""
_READY: Final = 120.0


class RealNode:
    """A real node; its kubelet can be killed and started again while its pods run on."""

    def __init__(
        self,
        cluster: ControlPlane,
        folder: Path,
        processes: Processes,
        *,
        name: str = NAME,
        gpus: int = 8,
        labels: Mapping[str, str] = LABELS,
        inward: Mapping[int, str] | None = None,
    ) -> None:
        """`inward`: further ports of the machine's address, and what on this one's loopback they
        lead to.
        """
        self.name = name
        self.machine = Machine(folder.resolve(), processes)
        self.containers = Containers(self.machine, processes)
        self._cluster = cluster
        self._folder = folder.resolve()
        self._processes = processes
        self._gpus = gpus
        self._labels = dict(labels)
        self._inward = dict(inward or {})
        self._proxy = 0

    @property
    def proxy(self) -> str:
        """The HTTP proxy by which Prometheus and people here reach pods at their own addresses,
        once the node is started.
        """
        return f"http://{HOST}:{self._proxy}"

    def start(self) -> None:
        """Start the node, and wait until it is ready and has its GPUs."""
        if why := missing():
            raise LocalStackError(why)
        for name in TOOLS:
            binaries.path(name)
        self.machine.start()
        self._start_wires()
        self.containers.start()
        self._write_files()
        self.start_kubelet()
        self._start_proxy()
        self._start_names()

    def stop(self) -> None:
        """Stop the node: pods, mounts and addresses go with the machine."""
        for name in ("coredns", "kube-proxy", "kubelet", "containerd", "wires"):
            self._processes.stop(name, grace=5)
        self.machine.stop()

    def start_kubelet(self) -> None:
        """Start the kubelet, and wait until its node is ready."""
        begun = time.time()
        self._processes.start(
            "kubelet",
            self.machine.inside(
                binaries.path("kubelet"),
                f"--config={self._folder / 'kubelet.json'}",
                f"--kubeconfig={self._cluster.user(f'system:node:{self.name}', ['system:nodes'])}",
                f"--hostname-override={self.name}",
                f"--node-ip={ADDRESS}",
                f"--node-labels={','.join(f'{key}={text}' for key, text in self._labels.items())}",
                "--cert-dir=/var/lib/kubelet/pki",
            ),
            ready=lambda: self._is_ready(begun),
            deadline=_READY,
        )
        self._give_gpus()

    def kill_kubelet(self) -> None:
        """Kill the kubelet: its pods run on, and nobody tells of them."""
        self._processes.kill("kubelet")

    def get(self, url: str) -> str:
        """The answer of a pod at its own address; an error is a `LocalStackError`."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({"http": self.proxy}))
        try:
            with opener.open(url, timeout=10) as answer:
                return str(answer.read().decode("utf-8", "replace"))
        except (urllib.error.URLError, OSError) as error:
            raise LocalStackError(f"{url}: {error}") from error

    def _start_wires(self) -> None:
        import sys

        self._proxy = free_port()  # now, and not before others have taken theirs
        ready = self._folder / "wired"
        ready.unlink(missing_ok=True)
        port = self._cluster.server.rpartition(":")[2]
        inward = {f"{ADDRESS}:{API}": f"{HOST}:{port}", f"{HOST}:{port}": f"{HOST}:{port}"}
        inward |= {f"{ADDRESS}:{port}": target for port, target in self._inward.items()}
        self._processes.start(
            "wires",
            [
                sys.executable, "-m", "mofa_local.real.wires",
                f"/proc/{self._processes['machine'].pid}/ns/net",
                *(f"--in={there}={inner}" for there, inner in inward.items()),
                f"--socket={self._cluster.egress}", f"--names={ADDRESS}",
                f"--proxy={HOST}:{self._proxy}", f"--ready={ready}",
            ],
            environment={"PYTHONPATH": str(Path(__file__).parents[2])},
            ready=ready.exists,
        )  # fmt: skip

    def _start_proxy(self) -> None:
        self._processes.start(
            "kube-proxy",
            self.machine.inside(
                binaries.path("kube-proxy"), f"--config={self._folder / 'kube-proxy.json'}"
            ),
            ready=lambda: self._answers("10256/healthz"),
        )

    def _start_names(self) -> None:
        self._processes.start(
            "coredns",
            self.machine.inside(binaries.path("coredns"), f"-conf={self._folder / 'Corefile'}"),
            ready=lambda: self._answers("8181/ready"),
        )

    def _answers(self, what: str) -> bool:
        try:
            self.get(f"http://{ADDRESS}:{what}")
        except LocalStackError:
            return False
        return True

    def _is_ready(self, since: float) -> bool:
        """Whether the node has been ready since a moment: its Lease is renewed, and its condition
        says so. `since` [s]
        """
        from datetime import datetime

        try:
            lease = json.loads(
                self._cluster.kubectl(
                    "get", "leases", self.name, "-n", "kube-node-lease", "-o", "json"
                )
            )
            renewed = datetime.fromisoformat(lease["spec"]["renewTime"]).timestamp()
            conditions = self._node()["status"].get("conditions") or ()
        except (LocalStackError, KeyError):
            return False
        return renewed > since and any(
            condition["type"] == "Ready" and condition["status"] == "True"
            for condition in conditions
        )

    def _node(self) -> dict[str, Any]:
        node: dict[str, Any] = json.loads(
            self._cluster.kubectl("get", "nodes", self.name, "-o", "json")
        )
        return node

    def _give_gpus(self) -> None:
        """GPUs that do not exist, for the scheduler: a kubelet leaves resources alone that it does
        not know.
        """
        body = json.dumps(
            {"status": {"capacity": {GPU: str(self._gpus)}, "allocatable": {GPU: str(self._gpus)}}}
        )
        end = time.monotonic() + _READY
        while self._node()["status"]["allocatable"].get(GPU) != str(self._gpus):
            self._cluster.kubectl(
                "patch", "node", self.name, "--subresource=status", "--type=merge", "-p", body
            )
            if time.monotonic() > end:
                raise LocalStackError(f"{self.name}: its {GPU} do not stay")
            time.sleep(STEP)

    def _write_files(self) -> None:
        """Write the configuration files of the node's kubelet, proxy, containerd and
        name server.
        """
        keys = self._cluster.folder / "keys"
        (self._folder / "resolv.conf").write_text(f"nameserver {ADDRESS}\n", encoding="ascii")
        kubelet = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": False},
                "x509": {"clientCAFile": str(keys / "ca.crt")}},
            "authorization": {"mode": "AlwaysAllow"},
            "containerRuntimeEndpoint": f"unix://{SOCKET}",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self.machine.cgroup}",
            "failCgroupV1": False,
            "failSwapOn": False,
            "enforceNodeAllocatable": [],
            "evictionHard": {"memory.available": "0%", "nodefs.available": "0%",
                "nodefs.inodesFree": "0%", "imagefs.available": "0%"},
            "imageGCHighThresholdPercent": 100,
            "readOnlyPort": 0,
            "clusterDNS": [ADDRESS],
            "clusterDomain": "cluster.local",
            "resolvConf": str(self._folder / "resolv.conf"),
            "nodeStatusUpdateFrequency": "4s",
            "nodeLeaseDurationSeconds": 12,
            "maxPods": 40,
            "volumePluginDir": "/run/kubelet-plugins",
        }  # fmt: skip
        proxy = {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "clientConnection": {"kubeconfig": str(self._cluster.user("system:kube-proxy"))},
            "hostnameOverride": self.name,
            "mode": "iptables",
            "clusterCIDR": "10.65.0.0/24",
            "healthzBindAddress": f"{ADDRESS}:10256",
            "metricsBindAddress": f"{HOST}:10249",
            "nodePortAddresses": ["primary"],
            "conntrack": {
                "maxPerCore": 0,
                "min": 0,
                "tcpEstablishedTimeout": "0s",
                "tcpCloseWaitTimeout": "0s",
            },
        }
        for name, body in (("kubelet.json", kubelet), ("kube-proxy.json", proxy)):
            (self._folder / name).write_text(json.dumps(body, indent=2) + "\n", encoding="utf-8")
        identity = self._cluster.identity("coredns", NAMES, namespace="kube-system")
        (self._folder / "Corefile").write_text(
            f".:53 {{\n  bind {ADDRESS}\n  errors\n  ready {ADDRESS}:8181\n"
            f"  kubernetes cluster.local {{\n    kubeconfig {identity}\n    ttl 5\n  }}\n}}\n",
            encoding="utf-8",
        )
        self._cluster.apply(
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {
                    "name": "kubernetes",
                    "namespace": "default",
                    "labels": {"kubernetes.io/service-name": "kubernetes"},
                },
                "addressType": "IPv4",
                "ports": [{"name": "https", "port": API}],
                "endpoints": [{"addresses": [ADDRESS], "conditions": {"ready": True}}],
            }
        )


def gone(cluster: ControlPlane, name: str = NAME) -> bool:
    """Whether the cluster has no object of this node any more."""
    with contextlib.suppress(LocalStackError):
        cluster.kubectl("get", "nodes", name, "-o", "json")
        return False
    return True


__all__ = ["RealNode", "answers", "gone", "missing"]
