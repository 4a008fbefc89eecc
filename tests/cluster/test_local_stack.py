"""The world around the control plane: history that a real Prometheus holds, and series that follow
the cluster.
"""

import time
from dataclasses import replace

import pytest
from advisor import until
from mofa_local import nodes
from mofa_local.blocks import write_block
from mofa_local.neighbourhood import missing, start
from mofa_local.prometheus import Prometheus, Scrape, backfill
from mofa_local.series import openmetrics, sampled
from mofa_local.synthetic import DAY, HOUR, Gap, Job, Planned, draw, truth

READY = 'kube_node_status_condition{condition="Ready",status="true"}'
QUERIES = (
    f"sum(sum_over_time({READY}[3d]))",
    f"sum by (node) (resets({READY}[3d]))",
    "count by (namespace, pod, uid) (last_over_time(kube_pod_labels[3d]))",
    "sum by (uid) (max_over_time(kube_pod_container_status_restarts_total[3d]))",
    "max by (uid) (last_over_time(kube_pod_container_state_started[3d]))",
    "sum by (training_job) (changes(mofa_train_step[3d])) + sum by (training_job) (resets(mofa_train_step[3d]))",
    "max_over_time(mofa_train_step[12h])",
    "count_over_time(up[3d])",
    "avg_over_time(mofa_train_tokens_per_second[3d])",
)
"""Every kind of series, and every sample of it."""


@pytest.fixture
def prometheus(binaries, processes, tmp_path):
    """Makes servers; each is stopped after the test."""
    binaries.path("prometheus")
    binaries.path("promtool")
    made = []

    def make(**options):
        server = Prometheus(
            processes,
            tmp_path / f"prometheus-{len(made)}",
            name=f"prometheus-{tmp_path.name}-{len(made)}",
            **options,
        )
        made.append(server)
        return server

    yield make
    for server in made:
        server.stop()


def past_of(**changes):
    """Six nodes for three days until an hour ago."""
    given = {
        "end": int(time.time()) - HOUR,
        "nodes": 6,
        "days": 3,
        "jobs": (Job(name="a", nodes=4),),
    }
    return draw(**(given | {"failures": {"process": 3, "pod": 5, "job": 2}} | changes))


def test_history_is_answered_at_a_moment_in_the_past(prometheus):
    past = past_of()
    server = prometheus()
    backfill("".join(openmetrics(past)), server.data)
    server.start()
    noon = past.start + DAY + 1
    assert server.ask("count(kube_node_info)", at=noon) == [({}, 6.0)]
    assert server.ask("count(kube_node_info)", at=past.start - 1) == []
    [(_, ready)] = server.ask(f"sum(sum_over_time({READY}[3d]))", at=past.end - 1)
    assert ready * 300 / DAY == pytest.approx(truth(past).node_days)


def test_a_block_written_here_answers_as_one_that_promtool_made(prometheus):
    past = past_of()
    gap = Gap(at=past.start + 30 * HOUR, until=past.start + 33 * HOUR, server=True)
    drained = Planned(
        at=past.start + 5 * HOUR, until=past.start + 9 * HOUR, node="gpu-005", down=True
    )
    past = replace(past, gaps=(gap,), planned=(drained,), replicas=2)
    ours, theirs = prometheus(), prometheus()
    write_block(sampled(past, lambda _: True), ours.data)
    backfill("".join(openmetrics(past)), theirs.data)
    ours.start()
    theirs.start()
    for query in QUERIES:
        answer = sorted(theirs.ask(query, at=past.end - 1), key=str)
        assert answer
        assert sorted(ours.ask(query, at=past.end - 1), key=str) == answer, query


def test_history_can_be_added_to_a_server_that_runs(prometheus):
    past = past_of()
    server = prometheus()
    server.start()
    assert server.ask("count(kube_node_info)", at=past.end - 1) == []
    server.add_history("".join(openmetrics(past, lambda series: series.metric == "kube_node_info")))
    assert server.ask("count(kube_node_info)", at=past.end - 1) == [({}, 6.0)]


def test_rules_are_read_at_the_start_and_at_a_reload(prometheus, tmp_path):
    rules = tmp_path / "rules.yaml"
    rules.write_text(
        '{"groups": [{"name": "g", "interval": "1s", "rules": [{"record": "two", "expr": "vector(2)"}]}]}'
    )
    server = prometheus()
    server.start()
    server.configure([], [rules])
    server.reload()
    until(lambda: server.ask("two") == [({"__name__": "two"}, 2.0)])


def test_the_series_of_kube_state_metrics_follow_a_node(cluster, processes, prometheus):
    names = [f"followed-{number}" for number in range(3)]
    nodes.create(cluster, [nodes.node(name) for name in names], kwok=False)
    if why := missing("kube-state-metrics"):
        pytest.skip(why)
    states = start(cluster, processes, "kube-state-metrics")["kube-state-metrics"]
    port = states.port
    server = prometheus(
        scrape=[Scrape(job="kube-state-metrics", target=f"127.0.0.1:{port}", interval="1s")]
    )
    server.start()

    def ready():
        found = server.ask(f'{READY} * on (node) kube_node_info{{node=~"followed-.*"}}')
        return {labels["node"]: value for labels, value in found}

    try:
        until(lambda: ready() == dict.fromkeys(names, 1.0))
        nodes.fail(cluster, names[0])
        until(lambda: ready() == dict.fromkeys(names, 1.0) | {names[0]: 0.0})
        nodes.recover(cluster, names[0])
        nodes.delete(cluster, names[1])
        until(lambda: ready() == {names[0]: 1.0, names[2]: 1.0})
        nodes.cordon(cluster, names[2])
        until(lambda: server.ask(f'kube_node_spec_unschedulable{{node="{names[2]}"}} == 1'))
    finally:
        states.stop()
        for name in (names[0], names[2]):
            nodes.delete(cluster, name)
