"""The page of the running operator: it shows what was decided, to anybody who may reach it, and
nothing else.
"""

import secrets
import urllib.error
import urllib.parse
import urllib.request

import pytest
from advisor import Advisor, ours, until
from mofa_local import nodes
from operator_objects import QUICK
from ruamel.yaml import YAML
from ruamel.yaml.compat import StringIO


@pytest.fixture(scope="module")
def advisor(cluster, processes):
    made = Advisor(cluster, processes, name="with-page")
    made.start("--page", "--settle=1", "--resync=5")
    yield made
    made.stop()


def get(advisor, path, method="GET"):
    """Status, headers and text of an answer."""
    asked = urllib.request.Request(advisor.url + path, method=method)
    try:
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read().decode()


@pytest.fixture
def job(cluster, namespace):
    """A job on a pool of two nodes, advised."""
    pool = f"pool-{secrets.token_hex(3)}"
    labels = {"example.org/pool": pool}
    made = [nodes.node(f"{pool}-{number}", labels=labels) for number in range(2)]
    nodes.create(cluster, made, kwok=False)
    objects = [
        {
            "apiVersion": "mofa.dev/v1alpha1",
            "kind": "ClusterProfile",
            "metadata": {"name": pool},
            "spec": {"gpu": "h100", "nodeSelector": labels},
        },
        {
            "apiVersion": "mofa.dev/v1alpha1",
            "kind": "TrainingJob",
            "metadata": {"name": "small", "namespace": namespace},
            "spec": {
                "model": {"preset": "llama3.1-8b"},
                "training": {"tokens": "1T", "sequenceLength": 4096, "globalBatchSize": 64},
                "cluster": {"profile": pool, "nodes": 2},
                "constraints": QUICK,
            },
        },
    ]
    cluster.apply(*objects)
    yield namespace, pool
    cluster.kubectl("delete", "clusterprofile", pool)
    for node in made:
        cluster.kubectl("delete", "node", node["metadata"]["name"])


def read(cluster, namespace):
    return YAML(typ="safe").load(
        StringIO(cluster.kubectl("get", "tjob", "small", "-n", namespace, "-o", "yaml"))
    )


def test_a_job_is_on_the_page_with_its_strategy_its_breakdown_and_its_profile(
    cluster, advisor, job
):
    namespace, pool = job
    until(lambda: "strategy" in ours(read(cluster, namespace)), what="advice")
    strategy = ours(read(cluster, namespace))["strategy"]
    address = f"/jobs/trainingjobs.mofa.dev/{namespace}/small"
    until(
        lambda: f'href="{address}"' in get(advisor, f"/?namespace={namespace}")[2], what="the list"
    )
    page = until(
        lambda: (
            (found := get(advisor, address)[2]).find("Where the time of a step goes") > 0 and found
        ),
        what="the advice in full",
    )
    assert f"<code>{strategy}</code>" in page
    assert "No Prometheus is configured, so there is no history" in page
    asked = until(
        lambda: (
            (found := get(advisor, f"{address}?nodes=1")[2]).find("Advice with your changes") > 0
            and found
        ),
        what="the answer to what if",
    )
    assert "on 8 GPUs" in asked
    assert 'value="1" autocomplete="off" id="nodes"' in asked
    wrong = get(advisor, f"{address}?nodes=many")[2]
    assert 'id="nodes-error"' in wrong
    assert ours(read(cluster, namespace))["strategy"] == strategy, "a question writes nothing"
    assert 'href="' + address not in get(advisor, f"/?namespace={namespace}&search=elsewhere")[2]
    status, headers, profile = get(advisor, f"/profiles/{pool}")
    assert status == 200
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert pool in profile
    assert get(advisor, "/metrics")[0] == 200


def test_markup_in_an_address_is_never_said_back(advisor):
    markup = "<img src=x onerror=alert(1)>"
    for path in (
        f"/jobs/trainingjobs.mofa.dev/default/{markup}",
        f"/jobs/{markup}/a/b",
        f"/profiles/{markup}",
    ):
        status, headers, page = get(advisor, urllib.parse.quote(path))
        assert (status, "onerror" in page) == (404, False)
        assert headers["Content-Type"].startswith("text/html")
    status, _, page = get(advisor, "/?namespace=" + urllib.parse.quote(markup))
    assert (status, markup in page) == (200, False)


def test_the_page_takes_nothing_and_leads_to_nothing_else(advisor):
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert get(advisor, "/", method)[0] == 405
    for path in (
        "/jobs/secrets/default/a",
        "/jobs/nodes/default/a",
        "/../etc/passwd",
        "/jobs",
        "/api",
    ):
        assert get(advisor, path)[0] == 404
