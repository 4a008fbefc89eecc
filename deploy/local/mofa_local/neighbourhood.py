"""Neighbours at work: what their projects install is installed, and their controllers run as
processes under their own accounts.

Nothing runs in pods here, so three things stand for what a cluster would do: the Service of a
webhook is a name for the loopback interface, a certificate of our own is in the place where its
Secret would be mounted (or that Secret is written there, for those who make it themselves), and the
Deployment is a process with its configuration, its role and a token of its account.
"""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from mofa_local import LocalStackError, binaries
from mofa_local.certificates import Authority
from mofa_local.client import Client
from mofa_local.cluster import Cluster
from mofa_local.identities import write_private
from mofa_local.neighbours import Neighbour, chosen
from mofa_local.ports import HOST, free_ports
from mofa_local.processes import Processes, answers
from mofa_local.published import MANIFESTS

_LEFT_OUT: Final = ("monitoring.coreos.com", "cert-manager.io", "apiregistration.k8s.io")
"""API groups that this cluster does not have, or needs pods for."""
_PODS: Final = ("Deployment", "StatefulSet")
_HOOKS: Final = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
_FIRST: Final = ("Namespace", "CustomResourceDefinition")
_LOOPBACK: Final = "localhost"
_START: Final = 120.0
"""Longest wait for a controller; one that makes its own certificate takes half a minute. [s]"""

Object = dict[str, Any]


class Running:
    """One neighbour that is installed: it can be stopped, killed and started again, on its
    own ports.
    """

    def __init__(self, neighbour: Neighbour, cluster: Cluster, processes: Processes) -> None:
        """Apply the objects that the project's own installation has, and prepare to start it."""
        self.name = neighbour.tool.name
        self._neighbour = neighbour
        self._cluster = cluster
        self._processes = processes
        self._folder = cluster.folder / "neighbours" / self.name
        self._program = binaries.path(self.name)
        self._authority = Authority(f"mofa-local-{self.name}")
        ports = dict(zip(("health", "webhook", "metrics"), free_ports(3), strict=True))
        installed = json.loads((self._program.parent / MANIFESTS).read_text("utf-8"))
        self._workload = next(body for body in installed if body["kind"] in _PODS)
        self._namespace = str(self._workload["metadata"]["namespace"])
        self._secret = ""
        self._install([body for body in installed if self._is_wanted(body)], ports["webhook"])
        account = self._workload["spec"]["template"]["spec"]["serviceAccountName"]
        kubeconfig = cluster.identity(self.name, service_account=f"{self._namespace}/{account}")
        self._words = {name: str(port) for name, port in ports.items()} | {
            "certs": str(self._folder / "tmp" / "k8s-webhook-server" / "serving-certs"),
            "config": str(self._folder / "config.json"),
            "kubeconfig": str(kubeconfig),
        }
        self._write_config(installed)

    @property
    def port(self) -> int:
        """Port of the controller's own metrics; some controllers serve none here."""
        return int(self._words["metrics"])

    def start(self) -> None:
        """Start the controller, and wait until it reports that it is ready."""
        words, is_ready = self._words, answers(self._neighbour.ready.format(**self._words))
        if not self._neighbour.rotates:
            self._write_certificate()
        temporary = self._folder / "tmp"
        temporary.mkdir(parents=True, exist_ok=True)
        self._processes.start(
            self.name,
            [self._program, *(flag.format(**words) for flag in self._neighbour.flags)],
            # controller-runtime looks for the certificate of webhooks in the folder for temporary
            # files
            environment={"KUBECONFIG": words["kubeconfig"], "TMPDIR": str(temporary),
                "POD_NAMESPACE": self._namespace},
            ready=lambda: (
                (not self._neighbour.rotates or self._mount()) and self._listens() and is_ready()
            ),
            deadline=_START,
        )  # fmt: skip

    def stop(self) -> None:
        """Stop the controller in order."""
        self._processes.stop(self.name)

    def kill(self) -> None:
        """Kill the controller at once."""
        self._processes.kill(self.name)

    def _is_wanted(self, body: Object) -> bool:
        is_here = (
            body["apiVersion"].partition("/")[0] not in _LEFT_OUT and body["kind"] not in _PODS
        )
        return is_here and body["metadata"]["name"] not in self._neighbour.without

    def _install(self, wanted: list[Object], port: int) -> None:
        reached = {
            (service["namespace"], service["name"])
            for body in wanted
            for service in _services(body)
        }
        self._reached = sorted(f"{name}.{place}.svc" for place, name in reached)
        bundle = base64.b64encode(self._authority.pem.encode()).decode()
        local = [
            _local(body, reached, port, "" if self._neighbour.rotates else bundle)
            for body in wanted
        ]
        place = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self._namespace}}
        first = [place, *(body for kind in _FIRST for body in local if body["kind"] == kind)]
        self._cluster.apply(*first)
        self._cluster.await_served(*(body for body in first if body["kind"] == _FIRST[1]))
        self._cluster.apply(*(body for body in local if body not in first))
        volumes = self._workload["spec"]["template"]["spec"].get("volumes", ())
        self._secret = next((v["secret"]["secretName"] for v in volumes if "secret" in v), "")

    def _write_config(self, installed: list[Object]) -> None:
        """Write the controller's configuration file, with the ports on which it listens here."""
        from ruamel.yaml import YAML

        if not self._neighbour.config:
            return
        texts = (
            text for body in installed if body["kind"] == "ConfigMap"
            for name, text in body["data"].items() if name.endswith("config.yaml")
        )  # fmt: skip
        published = YAML(typ="safe").load(next(texts))
        merged = _merged(published, _worded(self._neighbour.config, self._words))
        write_private(Path(self._words["config"]), json.dumps(merged, indent=2) + "\n")

    def _write_certificate(self) -> None:
        if self._reached:
            pair, folder = self._authority.server(self._reached, [HOST]), Path(self._words["certs"])
            write_private(folder / "tls.crt", pair.certificate)
            write_private(folder / "tls.key", pair.key)

    def _listens(self) -> bool:
        """Whether its webhooks are reached; one that makes its certificate says before that it
        is ready.
        """
        if not self._reached:
            return True
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            return probe.connect_ex((HOST, int(self._words["webhook"]))) == 0

    def _mount(self) -> bool:
        """Write the Secret with its certificate into files, as a kubelet mounts it."""
        path = f"/api/v1/namespaces/{self._namespace}/secrets/{self._secret}"
        data = (Client(self._cluster.kubeconfig).get(path) or {}).get("data") or {}
        places = {self._words["certs"], self._neighbour.mounts.format(**self._words)}
        for name, packed in data.items():
            for place in places:
                write_private(Path(place) / name, base64.b64decode(packed).decode())
        return "tls.crt" in data


def start(cluster: Cluster, processes: Processes, *names: str) -> dict[str, Running]:
    """Neighbours by name, with what they need where it does not run, each once the one before it
    is ready.
    """
    started: dict[str, Running] = {}
    for neighbour in chosen(names):
        if neighbour.tool.name in processes and neighbour.tool.name not in names:
            continue
        running = started[neighbour.tool.name] = Running(neighbour, cluster, processes)
        running.start()
    return started


def _clients(body: Object) -> Iterator[Object]:
    """Fields of an object that say how a webhook is reached."""
    if body["kind"] in _HOOKS:
        yield from (hook["clientConfig"] for hook in body.get("webhooks") or ())
    elif body["kind"] == _FIRST[1]:
        webhook = body["spec"].get("conversion", {}).get("webhook", {})
        yield from [webhook["clientConfig"]] if "clientConfig" in webhook else []


def _services(body: Object) -> Iterator[Mapping[str, str]]:
    for client in _clients(body):
        if "service" in client:
            yield client["service"]


def _local(body: Object, reached: set[tuple[str, str]], port: int, bundle: str) -> Object:
    """An object as it stands on this machine: webhooks by a port, their Services as names of the
    loopback interface.
    """
    local: Object = json.loads(json.dumps(body))
    local.get("metadata", {}).pop("creationTimestamp", None)
    local.pop("status", None)
    for client in _clients(local):
        client["service"]["port"] = port
        if bundle:
            client["caBundle"] = bundle
    place = local["metadata"].get("namespace", ""), local["metadata"]["name"]
    if local["kind"] == "Service" and place in reached:
        local["spec"] = {"type": "ExternalName", "externalName": _LOOPBACK}
    return local


def _worded(value: Any, words: Mapping[str, str]) -> Any:
    """A configuration with its words filled in; a port that stands alone is a number."""
    if isinstance(value, Mapping):
        return {key: _worded(inner, words) for key, inner in value.items()}
    if not isinstance(value, str):
        return value
    text = value.format(**words)
    return int(text) if value != text and text.isdecimal() else text


def _merged(below: Any, above: Any) -> Any:
    """Merge two nested configurations; values of `above` win."""
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    return below | {key: _merged(below.get(key), inner) for key, inner in above.items()}


def missing(*names: str) -> str:
    """Why neighbours cannot be had here; empty where they are there, after a build at
    the latest.
    """
    from mofa_local.published import NotFetched

    try:
        for neighbour in chosen(names):
            binaries.path(neighbour.tool.name)
    except NotFetched as error:
        return str(error)
    return ""


def check(names: str) -> tuple[str, ...]:
    """The neighbours that a person names, as `jobset,kueue`; an unknown name is an error."""
    wanted = tuple(name.strip() for name in names.split(",") if name.strip())
    if not wanted:
        raise LocalStackError(
            "--with: is empty; names of neighbours would be right, as jobset,kueue"
        )
    chosen(wanted)
    return wanted
