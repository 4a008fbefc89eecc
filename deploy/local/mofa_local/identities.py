"""Who asks the API server, as kubeconfig files: a user by certificate, a ServiceAccount by token.

A kubeconfig written here is JSON, which is YAML as well, and readable by its owner only.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from mofa_local.certificates import Pair

Rule = Mapping[str, Sequence[str]]
"""One rule of a Role: `{"apiGroups": [...], "resources": [...], "verbs": [...]}`."""

RBAC: Final = "rbac.authorization.k8s.io"
"""API group of roles and bindings."""


def write_kubeconfig(
    path: Path,
    *,
    server: str,
    authority: str,
    user: str,
    pair: Pair | None = None,
    token: str | None = None,
) -> Path:
    """A kubeconfig with one cluster and one user, who shows a certificate or a token."""
    shown = {
        "client-certificate-data": _packed(pair.certificate) if pair else None,
        "client-key-data": _packed(pair.key) if pair else None,
        "token": token,
    }
    name = "mofa-local"
    written = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": name,
                "cluster": {"server": server, "certificate-authority-data": _packed(authority)},
            }
        ],
        "users": [
            {"name": user, "user": {key: text for key, text in shown.items() if text is not None}}
        ],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
        "current-context": name,
    }
    return write_private(path, json.dumps(written, indent=2) + "\n")


def write_private(path: Path, text: str) -> Path:
    """A file that only its owner can read, from its first byte on; whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.unlink(missing_ok=True)
    with os.fdopen(
        os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8"
    ) as file:
        file.write(text)
    return unfinished.replace(path)


def account(
    name: str, namespace: str, rules: Sequence[Rule], *, everywhere: bool
) -> list[dict[str, object]]:
    """A ServiceAccount that may do what `rules` say: in every namespace and on cluster-scoped
    kinds, or in its own only.
    """
    metadata = {"name": name, "namespace": namespace}
    made: dict[str, object] = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
    full = f"{namespace}-{name}" if everywhere else name
    return [made, *bound(full, namespace, name, rules, everywhere=everywhere)]


def bound(
    full: str, namespace: str, name: str, rules: Sequence[Rule], *, everywhere: bool = True
) -> list[dict[str, object]]:
    """A role called `full` with these rules, and its binding to a ServiceAccount."""
    role, binding = ("ClusterRole", "ClusterRoleBinding") if everywhere else ("Role", "RoleBinding")
    metadata = {"name": full} if everywhere else {"name": full, "namespace": namespace}
    return [
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": role,
            "metadata": metadata,
            "rules": [dict(rule) for rule in rules],
        },
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": binding,
            "metadata": metadata,
            "roleRef": {"apiGroup": RBAC, "kind": role, "name": full},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        },
    ]


def _packed(text: str) -> str:
    return base64.b64encode(text.encode()).decode("ascii")
