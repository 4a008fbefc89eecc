"""Any cluster, given its kubeconfig: what tests and `make up` do with it, through kubectl and the Python client."""

from __future__ import annotations

import base64
import json
import re
import subprocess
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from mofa_local import LocalStackError, binaries
from mofa_local.identities import Rule, account, write_kubeconfig
from mofa_local.reader import Reader

MANAGER: Final = "mofa-local"
"""Field manager of what is applied here."""

LIFE: Final = "24h"
"""How long a ServiceAccount's token holds."""
_GET: Final = re.compile(
    r"get (?P<kind>[a-z][a-z0-9.]*)(?: (?P<name>[a-z0-9][a-z0-9.-]*))?"
    r"(?: -n (?P<namespace>[a-z0-9-]+)|(?P<all> -A))? -o json"
)


class KubectlFailed(LocalStackError):
    """kubectl ended with an error; the message is what it said."""


class Cluster:
    """A cluster as its administrator sees it."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        self.kubeconfig = kubeconfig
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    @cached_property
    def server(self) -> str:
        """Address of the API server."""
        return self._view("{.clusters[0].cluster.server}")

    @cached_property
    def admin(self) -> Any:
        """The administrator's dynamic client of the Python package `kubernetes`."""
        from kubernetes import config, dynamic

        client = config.new_client_from_config(config_file=str(self.kubeconfig))  # type: ignore[no-untyped-call]
        cache = str(self.folder / "discovery.json")  # ours alone, as kubectl's below
        return dynamic.DynamicClient(client, cache_file=cache)  # type: ignore[no-untyped-call]

    def kubectl(self, *arguments: str | Path, input: str | None = None, as_: Path | None = None) -> str:  # noqa: A002
        """What kubectl prints, as the administrator or with another kubeconfig; an error is `KubectlFailed`.

        A plain `get … -o json` of the administrator is answered here, without a process: tests ask it all the time.
        """
        if as_ is None and (found := self._got([str(one) for one in arguments])) is not None:
            return found
        # kubectl remembers what a server serves: by default for all clusters that ever had this port.
        options = [f"--kubeconfig={as_ or self.kubeconfig}", f"--cache-dir={self.folder / 'kubectl'}"]
        done = subprocess.run(
            [str(self._program), *options, *(str(one) for one in arguments)],
            input=input or "", capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise KubectlFailed(done.stderr.strip() or done.stdout.strip())
        return done.stdout

    def apply(self, *manifests: Path | dict[str, Any]) -> None:
        """Server-side apply of files and objects, in this order; CRDs among them are served afterwards."""
        for path in (one for one in manifests if isinstance(one, Path)):
            self._apply("-f", str(path))
        objects = [one for one in manifests if isinstance(one, dict)]
        if objects:
            self._apply("-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

    def install(self, crds: Path, manifests: Path) -> None:
        """What the operator needs: our CRDs, and its namespace, account, roles and fence where the folder exists."""
        self.apply(crds)
        self.kubectl("wait", "--for=condition=Established", "--timeout=60s", "-f", crds)
        if manifests.is_dir():
            files = sorted(
                manifests.glob("*.yaml"), key=lambda path: ("namespace" not in path.stem, path.name)
            )
            self.apply(*files)

    def identity(
        self,
        name: str,
        rules: Sequence[Rule] | None = None,
        *,
        service_account: str | None = None,
        namespace: str = "default",
        everywhere: bool = True,
    ) -> Path:
        """The kubeconfig of a ServiceAccount, with a real token of the TokenRequest API.

        `service_account="namespace/name"` is one that exists; otherwise one is made in `namespace` that may do what
        `rules` say, in all namespaces or in its own only.
        """
        if service_account is None:
            self.apply(*account(name, namespace, rules or (), everywhere=everywhere))
            service_account = f"{namespace}/{name}"
        home, _, who = service_account.partition("/")
        token = self.kubectl("create", "token", who, "-n", home, f"--duration={LIFE}").strip()
        return write_kubeconfig(
            self.folder / f"{name}.{home}.kubeconfig",
            server=self.server,
            authority=self._authority,
            user=f"system:serviceaccount:{home}:{who}",
            token=token,
        )

    @cached_property
    def _program(self) -> Path:
        return binaries.path("kubectl")

    @cached_property
    def _authority(self) -> str:
        return base64.b64decode(self._view("{.clusters[0].cluster.certificate-authority-data}")).decode()

    @cached_property
    def _reader(self) -> Reader:
        return Reader(self.kubeconfig)

    @cached_property
    def _paths(self) -> dict[str, tuple[str, dict[str, Any]]]:
        return {}

    def _got(self, arguments: list[str]) -> str | None:
        """What `get KIND [NAME] [-n NAMESPACE | -A] -o json` prints; None for anything else, and where kubectl is to tell why not."""
        plain = _GET.fullmatch(" ".join(arguments))
        if not plain:
            return None
        kind, name, space = plain["kind"], plain["name"], plain["namespace"] or "default"
        try:
            if kind not in self._paths:
                self._paths.update(self._reader.resources())
            path, told = self._paths[kind]
            within = f"/namespaces/{space}" if told["scope"] == "Namespaced" and not plain["all"] else ""
            where = f"{path}{within}/{told['resource']}" + (f"/{name}" if name else "")
            body = self._reader.get(where)
        except (KeyError, LocalStackError):
            return None
        if body is None:
            return None
        items = [body] if name else body["items"]
        for one in items:
            one.setdefault("apiVersion", body["apiVersion"])
            one.setdefault("kind", told["responseKind"]["kind"])
            one["metadata"].pop("managedFields", None)
        return json.dumps(body if name else {"apiVersion": "v1", "kind": "List", "items": items})

    def _view(self, path: str) -> str:
        return self.kubectl("config", "view", "--minify", "--raw", "-o", f"jsonpath={path}")

    def _apply(self, *arguments: str, input: str | None = None) -> None:  # noqa: A002
        self.kubectl(
            "apply",
            "--server-side",
            "--force-conflicts",
            f"--field-manager={MANAGER}",
            *arguments,
            input=input,
        )
