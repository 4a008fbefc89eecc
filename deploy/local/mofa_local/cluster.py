"""Any cluster, given its kubeconfig: what tests and `make up` do with it; kubectl, where people's
words are meant.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Sequence
from functools import cached_property
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from mofa_local import LocalStackError, binaries
from mofa_local.client import Client, Refused
from mofa_local.identities import Rule, account, write_kubeconfig
from mofa_local.processes import STEP

MANAGER: Final = "mofa-local"
"""Field manager of what is applied here."""

LIFE: Final = 86400
"""How long a ServiceAccount's token holds. [s]"""
SERVED: Final = 60.0
"""Longest wait for a new kind. [s]"""
PAGE: Final = 100
"""Objects that one request deletes. [1]"""
TRIES: Final = 10
"""Requests of one deletion that may fail because the API server is slow. [1]"""
OWN: Final = frozenset({"default", "kube-system", "kube-public", "kube-node-lease", "mofa-system"})
"""Namespaces of the cluster itself and of the operator."""
_GET: Final = re.compile(
    r"get (?P<kinds>[a-z][a-z0-9.,-]*)(?: (?P<name>[a-z0-9][a-z0-9.-]*))?"
    r"(?: -n (?P<namespace>[a-z0-9-]+)|(?P<all> -A))? -o json"
)


class KubectlFailed(LocalStackError):
    """kubectl ended with an error; the message is its own."""


class Cluster:
    """A cluster as its administrator sees it."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        self.kubeconfig = kubeconfig
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def server(self) -> str:
        """Address of the API server."""
        return self._client.server

    @property
    def signer(self) -> str:
        """Certificate of the authority that the API server's own is signed by, as PEM."""
        return self._client.authority

    @cached_property
    def admin(self) -> Any:
        """The administrator's dynamic client of the Python package `kubernetes`."""
        from kubernetes import config, dynamic

        client = config.new_client_from_config(  # type: ignore[no-untyped-call]
            config_file=str(self.kubeconfig)
        )
        cache = str(self.folder / "discovery.json")  # ours alone, as kubectl's below
        return dynamic.DynamicClient(client, cache_file=cache)  # type: ignore[no-untyped-call]

    def kubectl(
        self,
        *arguments: str | Path,
        input: str | None = None,  # noqa: A002
        as_: Path | None = None,
    ) -> str:
        """The output of kubectl, as the administrator or with another kubeconfig; an error is
        `KubectlFailed`.

        A plain `get … -o json` of the administrator is answered here, without a process: tests ask
        it all the time.
        """
        if (
            as_ is None
            and (answer := self._answer_to_get([str(argument) for argument in arguments]))
            is not None
        ):
            return answer
        # kubectl remembers what a server serves: by default for all clusters that ever had this
        # port.
        options = [
            f"--kubeconfig={as_ or self.kubeconfig}",
            f"--cache-dir={self.folder / 'kubectl'}",
        ]
        done = subprocess.run(
            [str(self._program), *options, *(str(argument) for argument in arguments)],
            input=input or "", capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise KubectlFailed(done.stderr.strip() or done.stdout.strip())
        return done.stdout

    def apply(self, *manifests: Path | dict[str, Any]) -> None:
        """Server-side apply of files and objects, in this order; an object that is refused
        is `Refused`.
        """
        for manifest in manifests:
            if isinstance(manifest, dict):
                self._apply(manifest)
            else:
                self.kubectl(
                    "apply",
                    "--server-side",
                    "--force-conflicts",
                    f"--field-manager={MANAGER}",
                    "-f",
                    manifest,
                )

    def delete(
        self,
        kind: str,
        name: str = "",
        *,
        namespace: str = "default",
        labels: str = "",
        fields: str = "",
    ) -> None:
        """Delete an object, or all of its kind with some labels and fields; a missing one is
        no error.
        """
        self._delete(self._path(kind, namespace, name), labels, fields)

    def empty(self, namespace: str) -> None:
        """Delete every object in a namespace, but its events."""
        for path, resource in self._held():
            self._delete(f"{path}/namespaces/{namespace}/{resource}")

    def empty_all(self) -> None:
        """Delete all objects in every namespace but those of the cluster itself and of
        the operator.
        """
        for path, resource in self._held():
            objects = self._client.items(f"{path}/{resource}") or ()
            for namespace in {item["metadata"]["namespace"] for item in objects} - OWN:
                self._delete(f"{path}/namespaces/{namespace}/{resource}")

    def _held(self) -> set[tuple[str, str]]:
        """API path and resource of every namespaced kind that can be deleted as a whole,
        without events.
        """
        return {
            (path, kind["resource"])
            for path, kind in self._kinds.values()
            if kind["scope"] == "Namespaced"
            and "deletecollection" in kind["verbs"]
            and kind["resource"] != "events"
        }

    def _delete(self, path: str, labels: str = "", fields: str = "") -> None:
        """Delete an object, or all of a collection in pages. An API server ends a request after a
        minute, in which a busy one cannot delete thousands of objects; where a page takes that long
        it is asked again.
        """
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        chosen = f"limit={PAGE}&labelSelector={quote(labels)}&fieldSelector={quote(fields)}"
        page: str | None = ""
        failed = 0
        while page is not None:
            try:
                answer = self._client.ask(
                    "DELETE", f"{path}?{chosen}&continue={quote(page)}", options
                )
            except LocalStackError as error:
                if isinstance(error, Refused) and error.code == 404:
                    return
                failed += 1
                if failed == TRIES or not _too_slow(error):
                    raise
                page = ""  # from the start: what is gone is in no page
            else:
                page = answer["metadata"].get("continue") or None

    def await_served(self, *definitions: dict[str, Any]) -> None:
        """Wait until what these CustomResourceDefinitions define is served."""
        names = {definition["metadata"]["name"] for definition in definitions}
        end = time.monotonic() + SERVED
        while not names <= self._established():
            if time.monotonic() > end:
                raise LocalStackError(
                    f"{', '.join(sorted(names))}: not served after {SERVED:.0f} s"
                )
            time.sleep(STEP)

    def install(self, crds: Path, manifests: Path) -> None:
        """Install what the operator needs: our CRDs, and its namespace, account, roles and fence
        where the folder exists.
        """
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

        `service_account="namespace/name"` is one that exists; otherwise one is made in `namespace`
        that may do what `rules` say, in all namespaces or in its own only.
        """
        if service_account is None:
            self.apply(*account(name, namespace, rules or (), everywhere=everywhere))
            service_account = f"{namespace}/{name}"
        home, _, who = service_account.partition("/")
        asked = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": LIFE},
        }
        path = f"{self._path('serviceaccounts', home, who)}/token"
        token = self._client.ask("POST", path, asked)["status"]["token"]
        return write_kubeconfig(
            self.folder / f"{name}.{home}.kubeconfig",
            server=self.server,
            authority=self.signer,
            user=f"system:serviceaccount:{home}:{who}",
            token=token,
        )

    @cached_property
    def _program(self) -> Path:
        return binaries.path("kubectl")

    @cached_property
    def _client(self) -> Client:
        return Client(self.kubeconfig)

    @cached_property
    def _kinds(self) -> dict[str, tuple[str, dict[str, Any]]]:
        return self._client.resources()

    def _path(self, kind: str, namespace: str, name: str = "") -> str:
        """The API path of a kind's objects, or of the object `name`. The namespace counts where the
        kind has namespaces, and "" means all of them.
        """
        if kind not in self._kinds:
            self._kinds.update(self._client.resources())
        path, entry = self._kinds[kind]
        within = f"/namespaces/{namespace}" if entry["scope"] == "Namespaced" and namespace else ""
        return f"{path}{within}/{entry['resource']}" + (f"/{name}" if name else "")

    def _apply(self, body: dict[str, Any]) -> None:
        metadata = body["metadata"]
        kind = f"{body['apiVersion']}/{body['kind']}"
        path = self._path(kind, metadata.get("namespace", "default"), metadata["name"])
        how = f"fieldManager={MANAGER}&force=true&fieldValidation=Strict"
        self._client.ask("PATCH", f"{path}?{how}", body, sent="application/apply-patch+yaml")

    def _established(self) -> set[str]:
        """Names of definitions that are served; none while a busy API server does not answer."""
        try:
            definitions = self._client.items(self._path("customresourcedefinitions", "")) or ()
        except Refused:
            raise
        except LocalStackError:
            return set()
        return {
            definition["metadata"]["name"]
            for definition in definitions
            for condition in definition.get("status", {}).get("conditions") or ()
            if (condition["type"], condition["status"]) == ("Established", "True")
        }

    def _answer_to_get(self, arguments: list[str]) -> str | None:
        """The answer to `get KIND [NAME] [-n NAMESPACE | -A] -o json`, without a process; None for
        other words, and for errors, which kubectl then tells.
        """
        plain = _GET.fullmatch(" ".join(arguments))
        if not plain:
            return None
        kinds, name = plain["kinds"].split(","), plain["name"] or ""
        space = "" if plain["all"] else plain["namespace"] or "default"
        objects: list[dict[str, Any]] = []
        for kind in kinds:
            try:
                body = self._client.get(self._path(kind, space, name))
            except (KeyError, LocalStackError):
                return None
            if body is None:
                return None
            for item in [body] if name else body["items"]:
                item.setdefault("apiVersion", body["apiVersion"])
                item.setdefault("kind", self._kinds[kind][1]["responseKind"]["kind"])
                item["metadata"].pop("managedFields", None)
                objects.append(item)
        is_one = name and len(kinds) == 1
        return json.dumps(
            objects[0] if is_one else {"apiVersion": "v1", "kind": "List", "items": objects}
        )


def _too_slow(error: LocalStackError) -> bool:
    """Whether a request failed because the API server is slow: it gave up (504), does not know the
    page any more (410), or has not answered to the end.
    """
    if isinstance(error, Refused):
        return error.code in {410, 504}
    return isinstance(error.__cause__, TimeoutError | HTTPException)
