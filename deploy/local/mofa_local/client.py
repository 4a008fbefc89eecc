"""A small reader of a cluster's API: what the exporter, the fake trainer and tests need, in a tenth of the big client's memory."""

from __future__ import annotations

import base64
import ssl
import tempfile
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import orjson

from mofa_local import LocalStackError

PATIENCE: Final = 4.0
"""Longest wait for an answer. [s]"""
_DISCOVERY: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


class Reader:
    """GET as the user of a kubeconfig file: by certificate or by token."""

    def __init__(self, kubeconfig: Path) -> None:
        from ruamel.yaml import YAML

        config = YAML(typ="safe").load(kubeconfig)
        current = _named(config["contexts"], config["current-context"])["context"]
        cluster = _named(config["clusters"], current["cluster"])["cluster"]
        user = _named(config["users"], current["user"])["user"]
        self.server: str = cluster["server"]
        self._headers: dict[str, str] = {}
        if "token" in user:
            self._headers["Authorization"] = f"Bearer {user['token']}"
        context = ssl.create_default_context(cadata=_text(cluster["certificate-authority-data"]))
        if "client-certificate-data" in user:
            with tempfile.NamedTemporaryFile("w", encoding="utf-8") as pair:  # ssl reads keys from files only
                pair.write(_text(user["client-certificate-data"]) + "\n" + _text(user["client-key-data"]))
                pair.flush()
                context.load_cert_chain(pair.name)
        https = urllib.request.HTTPSHandler(context=context)
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), https)

    def items(self, path: str) -> list[dict[str, Any]] | None:
        """Objects of a list; None where the cluster does not have the kind."""
        found = self.get(path)
        return None if found is None else list(found["items"])

    def get(self, path: str, accept: str = "application/json") -> Any:
        """What stands at a path; None where nothing does."""
        request = urllib.request.Request(f"{self.server}{path}", headers={**self._headers, "Accept": accept})
        try:
            with self._opener.open(request, timeout=PATIENCE) as answer:
                return orjson.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 404:
                    return None
            raise LocalStackError(f"{path}: the API server says {error.code}") from error
        except OSError as error:
            raise LocalStackError(f"{self.server}: {error}") from error

    def resources(self) -> dict[str, tuple[str, dict[str, Any]]]:
        """What the server serves: by every name that people use for it, the path of its group and what it is."""
        found: dict[str, tuple[str, dict[str, Any]]] = {}
        for root in ("/api", "/apis"):
            for group in (self.get(root, _DISCOVERY) or {"items": []})["items"]:
                name = group["metadata"].get("name")
                for version in group["versions"]:
                    path = "/".join((root, *([name] if name else []), version["version"]))
                    for one in version["resources"]:
                        plural = one["resource"]
                        names = [plural, one.get("singularResource"), *one.get("shortNames", ())]
                        for word in (*names, *([f"{plural}.{name}"] if name else [])):
                            found.setdefault(word, (path, one))
        return found


def _named(entries: list[Mapping[str, Any]], name: str) -> Mapping[str, Any]:
    return next(entry for entry in entries if entry["name"] == name)


def _text(packed: str) -> str:
    return base64.b64decode(packed).decode()
