"""Series that name nodes in another label are read; those that name other nodes than the API server
are refused, never counted.
"""

import asyncio
import dataclasses
import time

import pytest
from mofa_local.blocks import write_block
from mofa_local.prometheus import Prometheus as Server
from mofa_local.series import sampled
from mofa_local.synthetic import DAY, Gap, Job, draw, node_names

from mofa_operator.keys import NODE
from mofa_operator.observe.cluster.store import Store
from mofa_operator.observe.history import history
from mofa_operator.observe.history.node_names import LATELY, KnownNodes, RecentNodes
from mofa_operator.observe.prometheus.client import Prometheus
from mofa_operator.settings import PrometheusSettings
from mofa_operator.snapshot import History, NoHistory
from mofa_operator.words import Reason

END = int(time.time()) // 300 * 300
LABELS = {"example.org/pool": "east"}
NODES = node_names(6)
PAST = draw(
    end=END,
    nodes=6,
    days=4,
    jobs=(Job(name="a", nodes=5),),
    failures={"process": 2, "pod": 4, "job": 1},
    labels=LABELS,
)
HOST = "monitoring-0"
"""Where kube-state-metrics runs."""
EVERY = KnownNodes(every=frozenset({*NODES, HOST}), pool=frozenset(NODES))


def put_in_place(labels, host=HOST):
    """The scrape's own label `node`, without honor_labels."""
    return labels | ({"node": host, "exported_node": labels["node"]} if "node" in labels else {})


def put_in_place_on_a_node_of_the_pool(labels):
    return put_in_place(labels, NODES[0])


def moved(name):
    """The name stands in another label."""

    def change(labels):
        kept = {key: value for key, value in labels.items() if key != "node"}
        return kept | ({name: labels["node"]} if "node" in labels else {})

    return change


def with_domain(labels):
    return labels | ({"node": f"{labels['node']}.example.org"} if "node" in labels else {})


def one_with_domain(labels):
    return with_domain(labels) if labels.get("node") == NODES[2] else labels


def membership_alone(labels):
    """kube_node_labels comes from another scrape than the rest, which names a node that is not of
    the pool.
    """
    is_one = labels["__name__"] == "kube_node_labels" and labels["node"] == NODES[0]
    return labels | ({"node": HOST} if is_one else {})


WRONG = {
    "domain": (with_domain, ["says 'gpu-000.example.org'", "(one is 'gpu-000')"]),
    "part": (one_with_domain, ["says 'gpu-002.example.org'", "(one is 'gpu-000')", "matchers"]),
    "membership": (membership_alone, ["kube_node_labels says 'monitoring-0'", "no node of this pool"]),
}  # fmt: skip
ELSEWHERE = {
    "exported": put_in_place,
    "exported-in-pool": put_in_place_on_a_node_of_the_pool,
    "instance": moved("instance"),
    "kubernetes": moved("kubernetes_node"),
}
"""Forms in which another label names the nodes, and is found."""


def told(past, name, change=dict):
    """The series of a past, as a scrape that changes labels makes them."""
    for series, runs in sampled(past, lambda _: True):
        labels = {"__name__": series.metric, **series.labels}
        changed = {key: value for key, value in change(labels).items() if key != "__name__"}
        yield series._replace(labels=changed | {"cluster": name}), runs


@pytest.fixture(scope="module")
def url(processes, tmp_path_factory, binaries):
    """One server with every form of the same past, each as a cluster of its own."""
    binaries.path("prometheus")
    folder = tmp_path_factory.mktemp("names")
    server = Server(processes, folder, name=folder.name)
    silent = dataclasses.replace(PAST, gaps=(Gap(at=END - 7200, until=END + 1),))
    series = [*told(PAST, "right"), *told(silent, "silent")]
    for name, change in {
        **ELSEWHERE,
        **{name: change for name, (change, _) in WRONG.items()},
    }.items():
        series += told(PAST, name, change)
    write_block(series, server.data)
    server.start()
    yield server.url
    server.stop()


def look(url, cluster, names=None, **more):
    spec = {"gpu": "h100", "nodeSelector": LABELS}
    spec["prometheus"] = {"windowSeconds": 4 * DAY, "matchers": {"cluster": cluster}, **more}
    body = {
        "apiVersion": "mofa.dev/v1alpha1",
        "kind": "ClusterProfile",
        "metadata": {"name": "east"},
        "spec": spec,
    }

    async def ask():
        async with Prometheus(PrometheusSettings(url=url)) as prometheus:
            return await history.history(prometheus, body, END, None, names)

    return asyncio.run(ask())


@pytest.mark.parametrize("form", WRONG)
def test_names_that_are_not_the_api_servers_are_no_history_and_say_what_to_change(url, form):
    found = look(url, form, EVERY)
    assert isinstance(found, NoHistory), found
    assert found.reason == Reason.NODE_NAMES_DIFFER
    for words in [*WRONG[form][1], "honor_labels: true"]:
        assert words in found.message


def doubts(found):
    """Warnings, but for those of exporters that nobody has here."""
    return [text for text in found.warnings if "they have no series" not in text]


@pytest.mark.parametrize("form", ["right", *ELSEWHERE])
def test_the_same_past_is_counted_whatever_label_names_the_nodes_with_and_without_an_api_server(
    url, form
):
    for names in (EVERY, None):
        found = look(url, form, names)
        assert isinstance(found, History), found
        assert sum(one.failures for one in found.classes.values()) == 7
        assert doubts(found) == []


def test_a_label_that_a_profile_states_is_used_or_refused_with_what_it_holds(url):
    assert isinstance(look(url, "exported", EVERY, nodeLabel="exported_node"), History)
    found = look(url, "exported", EVERY, nodeLabel="node")
    assert (found.reason, "says 'monitoring-0'" in found.message) == (
        Reason.NODE_NAMES_DIFFER,
        True,
    )


def test_a_node_that_the_api_server_has_just_lost_is_known_for_a_while(url):
    store = Store()
    for name in NODES:
        store.put(NODE, {"metadata": {"name": name, "resourceVersion": "1", "labels": LABELS}})
    lately = RecentNodes(store)
    assert lately.known("east", END - 60).every == frozenset(NODES)
    store.drop(NODE, "", NODES[2])
    assert isinstance(look(url, "right", lately.known("east", END)), History)
    late = lately.known("east", END + LATELY)
    assert NODES[2] not in late.every
    found = look(url, "right", late)
    assert "'gpu-002'" in found.message


def test_an_exporter_that_is_silent_takes_no_node_away(url):
    found = look(url, "silent", EVERY)
    assert isinstance(found, History)
    assert doubts(found) == ["kube_node_status_condition is silent just now"]


def test_a_silent_exporter_whose_past_names_no_node_of_ours_is_refused(url):
    others = KnownNodes(every=frozenset({"a", "b"}), pool=frozenset({"a"}))
    found = look(url, "silent", others)
    assert found.reason == Reason.NODE_NAMES_DIFFER
    assert "says 'gpu-000'" in found.message
