"""The API server by plain HTTP, as anybody: the administrator's connection that speaks for another user."""

import json
import time
import urllib.error
import urllib.request
from urllib.parse import urlencode

from kubernetes import client, config

from mofa_operator.credentials import Credentials

ADVISOR = "system:serviceaccount:mofa-system:mofa-advisor"
"""Who the operator is."""
APPLY, MERGE, JSON = "application/apply-patch+yaml", "application/merge-patch+json", "application/json"


class Door:
    """Requests to a cluster; `ask` gives the status code and what was answered, `warnings` what was said beside it."""

    def __init__(self, cluster):
        configuration = client.Configuration()
        config.load_kube_config(str(cluster.kubeconfig), client_configuration=configuration)
        self._access = Credentials(configuration).access
        self._context = self._access.context()
        self.warnings = []

    def ask(self, method, path, body=None, *, content=MERGE, user=ADVISOR, **query):
        if method == "PATCH":
            query = {"fieldManager": "mofa-advisor", **query}
        headers = {"Content-Type": content, "Accept": JSON} | ({"Impersonate-User": user} if user else {})
        request = urllib.request.Request(
            f"{self._access.server}{path}?{urlencode(query)}",
            data=None if body is None else json.dumps(body).encode(),
            headers=headers,
            method=method,
        )
        try:
            with urllib.request.urlopen(request, context=self._context, timeout=30) as answer:
                raw = answer.read()
                self.warnings = answer.headers.get_all("Warning") or []
                return answer.status, json.loads(raw) if raw and "watch" not in query else {}
        except urllib.error.HTTPError as error:
            with error:
                raw = error.read()
            return error.code, json.loads(raw) if raw.startswith(b"{") else {"message": raw.decode()}


def path(kind, namespace="", name="", status=False):
    """Where a kind or an object is."""
    root = f"/apis/{kind.group}" if kind.group else "/api"
    inside = f"/namespaces/{namespace}" if namespace else ""
    return f"{root}/{kind.version}{inside}/{kind.plural}{'/' + name if name else ''}{'/status' if status else ''}"


def until(happens, timeout=20.0):
    """Wait until something happens: roles and policies take a moment before they bite."""
    deadline = time.monotonic() + timeout
    while not (seen := happens()):
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.05)
    return seen
