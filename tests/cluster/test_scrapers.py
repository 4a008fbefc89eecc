"""With --authenticate metrics are shown to whom the API server knows by a token and a role lets,
and to nobody else.
"""

import urllib.error
import urllib.request

from advisor import Advisor, until

RULES = [
    {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
    {
        "apiGroups": ["authorization.k8s.io"],
        "resources": ["subjectaccessreviews"],
        "verbs": ["create"],
    },
]


def role(name, rules, subject, namespace):
    bound = {"kind": "ServiceAccount", "name": subject, "namespace": namespace}
    return (
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": name},
            "rules": rules,
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": name,
            },
            "subjects": [bound],
        },
    )


def test_metrics_are_shown_to_whom_a_role_lets(cluster, processes, namespace):
    scraper, other = (
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": name, "namespace": namespace},
        }
        for name in ("scraper", "other")
    )
    reviews = role("test-reviews", RULES, "mofa-advisor", "mofa-system")
    metrics = role(
        "test-metrics", [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}], "scraper", namespace
    )
    cluster.apply(scraper, other, *reviews, *metrics)
    tokens = {
        name: cluster.kubectl("create", "token", name, "-n", namespace).strip()
        for name in ("scraper", "other")
    }
    advisor = Advisor(cluster, processes, "operator-scrapers")
    advisor.start("--authenticate", "--fence", "--page")

    def status(path="/metrics", token=""):
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            with urllib.request.urlopen(
                urllib.request.Request(advisor.url + path, headers=headers), timeout=10
            ) as answer:
                return answer.status
        except urllib.error.HTTPError as refused:
            return refused.code

    try:
        assert status() == 401
        assert status(token="no.such.token") == 401
        until(lambda: status(token=tokens["scraper"]) == 200, 90.0)
        assert status(token=tokens["other"]) == 403
        assert status("/", tokens["scraper"]) == 403, "the page is another path"
    finally:
        advisor.stop()
        cluster.kubectl(
            "delete",
            "clusterrole,clusterrolebinding",
            "test-reviews",
            "test-metrics",
            "--ignore-not-found",
        )
