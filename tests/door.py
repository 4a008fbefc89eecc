"""The API server by plain HTTP, as anybody: the administrator's connection that speaks for
another user.
"""

import http.client
import json
from contextlib import contextmanager
from urllib.parse import urlencode, urlsplit

from advisor import until
from kubernetes import client, config

from mofa_operator.credentials import Credentials

ADVISOR = "system:serviceaccount:mofa-system:mofa-advisor"
"""Who the operator is."""
APPLY, MERGE, JSON = (
    "application/apply-patch+yaml",
    "application/merge-patch+json",
    "application/json",
)
PATCH = "application/json-patch+json"


class Door:
    """Requests to a cluster; `ask` gives the status code and what was answered, `warnings` what was
    said beside it.
    """

    def __init__(self, cluster):
        configuration = client.Configuration()
        config.load_kube_config(str(cluster.kubeconfig), client_configuration=configuration)
        access = Credentials(configuration).access
        address = urlsplit(access.server)
        self._connection = http.client.HTTPSConnection(
            address.hostname, address.port, context=access.context(), timeout=30
        )
        self.warnings = []

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._connection.close()

    def ask(self, method, path, body=None, *, content=MERGE, user=ADVISOR, **query):
        if method == "PATCH":
            query = {"fieldManager": "mofa-advisor", **query}
        headers = {"Content-Type": content, "Accept": JSON} | (
            {"Impersonate-User": user} if user else {}
        )
        where = f"{path}?{urlencode(query)}"
        raw, answer = self._exchange(
            method, where, None if body is None else json.dumps(body).encode(), headers
        )
        self.warnings = answer.headers.get_all("Warning") or []
        is_json = raw.startswith(b"{") and "watch" not in query
        return answer.status, json.loads(raw) if is_json else {"message": raw.decode()}

    def _exchange(self, method, where, data, headers):
        """One request over the connection that is open, or over a new one where the server has
        closed it.
        """
        for attempt in (1, 2):
            try:
                self._connection.request(method, where, data, headers)
                answer = self._connection.getresponse()
                return answer.read(), answer
            except (http.client.HTTPException, OSError):
                self._connection.close()
                if attempt == 2:
                    raise
        raise AssertionError


def path(kind, namespace="", name="", status=False):
    """Where a kind or an object is."""
    root = f"/apis/{kind.group}" if kind.group else "/api"
    inside = f"/namespaces/{namespace}" if namespace else ""
    return f"{root}/{kind.version}{inside}/{kind.plural}{'/' + name if name else ''}{'/status' if status else ''}"


@contextmanager
def administrator(cluster):
    """A door for the operator's account as cluster administrator, so that only the fence can refuse
    it anything.
    """
    api = "rbac.authorization.k8s.io"
    cluster.apply(
        {
            "apiVersion": f"{api}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "fence-test"},
            "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [
                {"kind": "ServiceAccount", "name": "mofa-advisor", "namespace": "mofa-system"}
            ],
        }
    )
    probe = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "probe", "namespace": "default"},
    }
    secrets, maps = "/api/v1/secrets", "/api/v1/namespaces/default/configmaps"
    with Door(cluster) as opened:
        until(lambda: opened.ask("GET", secrets)[0] == 200)  # the role is in force
        until(lambda: opened.ask("POST", maps, probe, content=JSON, dryRun="All")[0] == 403)
        yield opened
        cluster.kubectl("delete", "clusterrolebinding", "fence-test")
        until(lambda: opened.ask("GET", secrets)[0] == 403)
