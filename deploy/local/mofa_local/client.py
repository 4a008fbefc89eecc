"""A small client of a cluster's API: what the exporter, the fake trainer and tests need, in a tenth
of the big client's memory.
"""

from __future__ import annotations

import base64
import http.client
import ssl
import tempfile
import threading
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import orjson

from mofa_local import LocalStackError
from mofa_local.processes import STEP

PATIENCE: Final = 4.0
"""Longest wait for a read. [s]"""
WRITTEN: Final = 60.0
"""Longest wait for a write. [s]"""
BUSY: Final = 15.0
"""How long a server that asks to come again is asked again. [s]"""
_DISCOVERY: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


class Refused(LocalStackError):
    """The API server refused a request; the message is its own."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Client:
    """One connection to the API server, as the user of a kubeconfig file: by certificate or
    by token.
    """

    def __init__(self, kubeconfig: Path) -> None:
        from ruamel.yaml import YAML

        config = YAML(typ="safe").load(kubeconfig)
        current = _named(config["contexts"], config["current-context"])["context"]
        cluster = _named(config["clusters"], current["cluster"])["cluster"]
        user = _named(config["users"], current["user"])["user"]
        self.server: str = cluster["server"]
        self.authority = _text(cluster["certificate-authority-data"])
        self._headers: dict[str, str] = {}
        if "token" in user:
            self._headers["Authorization"] = f"Bearer {user['token']}"
        context = ssl.create_default_context(cadata=self.authority)
        if "client-certificate-data" in user:
            with tempfile.NamedTemporaryFile(
                "w", encoding="utf-8"
            ) as pair:  # ssl reads keys from files only
                pair.write(
                    _text(user["client-certificate-data"]) + "\n" + _text(user["client-key-data"])
                )
                pair.flush()
                context.load_cert_chain(pair.name)
        where = urlsplit(self.server)
        self._connection = http.client.HTTPSConnection(
            where.hostname or "", where.port, timeout=PATIENCE, context=context
        )
        self._lock = threading.Lock()
        weakref.finalize(self, self._connection.close)

    def items(self, path: str) -> list[dict[str, Any]] | None:
        """Objects of a list; None where the cluster does not have the kind."""
        listing = self.get(path)
        return None if listing is None else list(listing["items"])

    def get(self, path: str, accept: str = "application/json") -> Any:
        """The JSON at a path; None where nothing is there."""
        try:
            return self.ask("GET", path, accept=accept)
        except Refused as error:
            if error.code == 404:
                return None
            raise LocalStackError(f"{path}: the API server says {error.code}") from error

    def ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        sent: str = "application/json",
        accept: str = "application/json",
    ) -> Any:
        """The answer to a request; an error is `Refused`, and no answer at all a
        `LocalStackError`.

        A server that asks to come again, as it does while it sets up a new kind, is asked again for
        a while.
        """
        headers = {**self._headers, "Accept": accept, "Content-Type": sent}
        data = None if body is None else orjson.dumps(body)
        end = time.monotonic() + BUSY
        while True:
            code, answer = self._answer(method, path, data, headers)
            if code < 400:
                return orjson.loads(answer)
            if code != 429 or time.monotonic() > end:
                raise Refused(code, _message(answer))
            time.sleep(STEP)

    def _answer(
        self, method: str, path: str, data: bytes | None, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        """Code and body of one answer; none at all is a `LocalStackError`."""
        with self._lock:
            self._connection.timeout = PATIENCE if method == "GET" else WRITTEN
            if self._connection.sock is not None:
                self._connection.sock.settimeout(self._connection.timeout)
            try:
                return self._exchange(method, path, data, headers)
            except (OSError, http.client.HTTPException) as error:
                self._connection.close()
                raise LocalStackError(f"{self.server}: {error}") from error

    def _exchange(
        self, method: str, path: str, data: bytes | None, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        """Code and body of an answer; a kept connection that the server has closed meanwhile is
        opened anew.
        """
        kept = self._connection.sock is not None
        try:
            self._connection.request(method, path, data, headers)
            answer = self._connection.getresponse()
        except (ConnectionError, ssl.SSLError):
            self._connection.close()
            if not kept:
                raise
            self._connection.request(method, path, data, headers)
            answer = self._connection.getresponse()
        return answer.status, answer.read()

    def resources(self) -> dict[str, tuple[str, dict[str, Any]]]:
        """Every kind of object that the server serves: the path of its API group, and its entry of
        the discovery document. Keys are the names that kubectl takes, and `apiVersion/kind`.
        """
        kinds: dict[str, tuple[str, dict[str, Any]]] = {}
        for root in ("/api", "/apis"):
            for group in (self.get(root, _DISCOVERY) or {"items": []})["items"]:
                name = group["metadata"].get("name")
                for version in group["versions"]:
                    served = "/".join((*([name] if name else []), version["version"]))
                    for kind in version["resources"]:
                        plural = kind["resource"]
                        names = [plural, kind.get("singularResource"), *kind.get("shortNames", ())]
                        names += [
                            f"{served}/{kind['responseKind']['kind']}",
                            *([f"{plural}.{name}"] if name else []),
                        ]
                        for word in names:
                            kinds.setdefault(word, (f"{root}/{served}", kind))
        return kinds


def _named(entries: list[Mapping[str, Any]], name: str) -> Mapping[str, Any]:
    return next(entry for entry in entries if entry["name"] == name)


def _message(answer: bytes) -> str:
    """The message of a Kubernetes Status; the whole text where it is none."""
    try:
        return str(orjson.loads(answer)["message"])
    except (ValueError, KeyError, TypeError):
        return answer.decode("utf-8", "replace").strip()


def _text(packed: str) -> str:
    return base64.b64decode(packed).decode()
