"""A real control plane on loopback ports: etcd and kube-apiserver, and the controllers where they
are asked for.

Without controllers nothing collects garbage, deletes namespaces, schedules pods or makes default
ServiceAccounts; the API server itself is whole: RBAC, CRDs with their CEL rules, server-side apply,
admission policies, pod security, watches, tokens.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from mofa_local import audit, binaries, ports
from mofa_local.certificates import Authority, Key
from mofa_local.cluster import Cluster
from mofa_local.identities import write_kubeconfig, write_private
from mofa_local.processes import GRACE, Processes, answers

ISSUER: Final = "https://kubernetes.default.svc"
"""Issuer of the tokens of ServiceAccounts."""

SERVICE: Final = "10.0.0.1"
"""Address of the Service `kubernetes`, by which pods that run reach the API server."""

SILENT: Final = 20
"""Silence after which a real node is not ready. [s]"""

ADMINS: Final = "system:masters"
"""Group of users who may do everything."""


class ControlPlane(Cluster):
    """A cluster that is etcd and kube-apiserver, with all files in one folder; either can be
    stopped, killed and started.

    As a context manager it starts and stops. `make up` passes processes that outlive it, and never
    stops it itself.
    """

    def __init__(
        self,
        folder: Path,
        processes: Processes,
        *,
        controllers: bool = False,
        real_nodes: bool = False,
        seats: int = 0,
    ) -> None:
        """`real_nodes`: kubelets may join, under the rights that they have in a cluster, and are
        reached by a socket.

        `seats`: how many requests the API server works on at once, shared fairly between users; 0
        for its own default, which is meant for some thirty cores. [1]
        """
        self.processes = processes
        self.controllers = controllers or real_nodes
        self.real_nodes = real_nodes
        self.seats = seats
        self.authority = Authority("mofa-local")
        self._api, self._etcd, *self._health = ports.free_ports(4)
        self._audited = audit.Log(folder / "audit.jsonl")
        super().__init__(self._identify(folder, "admin", [ADMINS]), folder)
        self._write_files()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start everything, each part when the one below it is ready."""
        self.start_etcd()
        self.start_api_server()
        if self.controllers:
            self._start_controllers()

    def stop(self) -> None:
        """Stop everything that runs, in reverse."""
        for name in ("kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd"):
            self.processes.stop(name)

    def user(self, name: str, groups: Sequence[str] = ()) -> Path:
        """The kubeconfig of a user who shows a certificate."""
        return self._identify(self.folder, name, groups)

    @property
    def egress(self) -> Path:
        """The socket by which the API server reaches kubelets, pods and webhooks, where nodes
        are real.
        """
        return self.folder / "egress.sock"

    def start_etcd(self) -> None:
        """Start etcd on its port; what it held is there again."""
        self.processes.start(
            "etcd",
            [
                binaries.path("etcd"),
                f"--data-dir={self.folder / 'etcd'}",
                f"--listen-client-urls={self.store}",
                f"--advertise-client-urls={self.store}",
                f"--listen-peer-urls=http://{ports.HOST}:0",
                # Losing a test's data is no harm, and waiting for the disk takes most of its time.
                "--unsafe-no-fsync",
                "--log-level=warn",
            ],
            ready=answers(f"{self.store}/readyz"),
        )

    @property
    def store(self) -> str:
        """Address of etcd."""
        return f"http://{ports.HOST}:{self._etcd}"

    def stop_etcd(self) -> None:
        """Stop etcd in order: an outage of the store under a running API server."""
        self.processes.stop("etcd")

    def start_api_server(self) -> None:
        """Start the API server on the port that it had before."""
        keys = self.folder / "keys"
        self.processes.start(
            "kube-apiserver",
            [
                binaries.path("kube-apiserver"),
                f"--etcd-servers={self.store}",
                f"--bind-address={ports.HOST}",
                f"--secure-port={self._api}",
                f"--cert-dir={keys}",
                f"--tls-cert-file={keys / 'server.crt'}",
                f"--tls-private-key-file={keys / 'server.key'}",
                f"--client-ca-file={keys / 'ca.crt'}",
                "--service-cluster-ip-range=10.0.0.0/24",
                "--endpoint-reconciler-type=none",
                f"--authorization-mode={'Node,RBAC' if self.real_nodes else 'RBAC'}",
                "--allow-privileged=true",
                f"--service-account-issuer={ISSUER}",
                f"--service-account-key-file={keys / 'tokens.key'}",
                f"--service-account-signing-key-file={keys / 'tokens.key'}",
                f"--audit-policy-file={self.folder / 'audit-policy.json'}",
                f"--audit-log-path={self._audited.path}",
                "--audit-log-maxsize=4096",  # megabytes in one file: rotation would lose some
                # Without it the server waits up to a minute for clients to end their watches by
                # themselves.
                "--shutdown-watch-termination-grace-period=2s",
                # Admission waits for a default ServiceAccount in each namespace, which a controller
                # makes.
                *([] if self.controllers else ["--disable-admission-plugins=ServiceAccount"]),
                *(self._to_kubelets() if self.real_nodes else []),
                *(
                    [f"--max-requests-inflight={self.seats}", "--max-mutating-requests-inflight=0"]
                    if self.seats
                    else []
                ),
            ],
            ready=answers(f"{self.server}/readyz"),
        )

    def stop_api_server(self) -> None:
        """Stop the API server in order; it takes seconds while watches are open, and the port is
        free afterwards.
        """
        self.processes.stop("kube-apiserver", grace=2 * GRACE)

    def kill_api_server(self) -> None:
        """Kill the API server: clients see their connections break."""
        self.processes.kill("kube-apiserver")

    def restart_api_server(self) -> None:
        """Stop the API server and start it again on the same port."""
        self.stop_api_server()
        self.start_api_server()

    def audit(self) -> list[audit.Event]:
        """The requests that the API server has answered so far."""
        return self._audited.events()

    def _identify(self, folder: Path, name: str, groups: Sequence[str]) -> Path:
        return write_kubeconfig(
            folder / f"{name.replace(':', '-')}.kubeconfig",
            server=f"https://{ports.HOST}:{self._api}",
            authority=self.authority.pem,
            user=name,
            pair=self.authority.client(name, groups),
        )

    def _to_kubelets(self) -> list[str]:
        """How the API server reaches what is on real nodes, and as whom kubelets know it."""
        keys = self.folder / "keys"
        return [
            "--enable-admission-plugins=NodeRestriction",
            f"--egress-selector-config-file={self.folder / 'egress.json'}",
            f"--kubelet-client-certificate={keys / 'kubelets.crt'}",
            f"--kubelet-client-key={keys / 'kubelets.key'}",
            "--kubelet-preferred-address-types=InternalIP",
        ]

    def _start_controllers(self) -> None:
        keys = self.folder / "keys"
        special = {
            "kube-controller-manager": (
                "--use-service-account-credentials",
                # each controller under its own role, as in a real cluster
                f"--service-account-private-key-file={keys / 'tokens.key'}",
                f"--root-ca-file={keys / 'ca.crt'}",
                *([f"--node-monitor-grace-period={SILENT}s"] if self.real_nodes else []),
            ),
            "kube-scheduler": (),
        }
        for (name, more), port in zip(special.items(), self._health, strict=True):
            kubeconfig = self.user(f"system:{name}")
            self.processes.start(
                name,
                [
                    binaries.path(name),
                    f"--kubeconfig={kubeconfig}",
                    f"--authentication-kubeconfig={kubeconfig}",
                    f"--authorization-kubeconfig={kubeconfig}",
                    "--leader-elect=false",
                    f"--bind-address={ports.HOST}",
                    f"--secure-port={port}",
                    *more,
                ],
                ready=answers(f"https://{ports.HOST}:{port}/healthz"),
            )

    def _write_files(self) -> None:
        keys = self.folder / "keys"
        serving = self.authority.server(
            ["localhost", "kubernetes.default.svc"], [ports.HOST, SERVICE]
        )
        write_private(keys / "ca.crt", self.authority.pem)
        write_private(keys / "server.crt", serving.certificate)
        write_private(keys / "server.key", serving.key)
        write_private(keys / "tokens.key", Key.new().pem)
        write_private(self.folder / "audit-policy.json", json.dumps(audit.POLICY, indent=2) + "\n")
        if self.real_nodes:
            pair = self.authority.client("kube-apiserver", [ADMINS])
            write_private(keys / "kubelets.crt", pair.certificate)
            write_private(keys / "kubelets.key", pair.key)
            uds = {
                "proxyProtocol": "HTTPConnect",
                "transport": {"uds": {"udsName": str(self.egress)}},
            }
            selector = {
                "apiVersion": "apiserver.k8s.io/v1beta1",
                "kind": "EgressSelectorConfiguration",
                "egressSelections": [{"name": "cluster", "connection": uds}],
            }
            write_private(self.folder / "egress.json", json.dumps(selector, indent=2) + "\n")
