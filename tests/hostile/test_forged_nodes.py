"""What a tenant publishes of nodes, devices, pods and jobs that are not his changes neither the
history of a pool nor any rule or alert of another; asked of a real Prometheus, over days in which
he did nothing else.
"""

import asyncio
import importlib.util
import time
from collections import Counter
from pathlib import Path

import pytest
from mofa_local import binaries
from mofa_local.blocks import write_block
from mofa_local.processes import Processes
from mofa_local.prometheus import Prometheus as Server
from mofa_local.series import Run, Series, Span, sampled
from mofa_local.synthetic import DAY, HOUR, Job, draw
from promql_names import series

from mofa_model.spec.recovery_classes import RecoveryClass
from mofa_operator.observe.history import history
from mofa_operator.observe.prometheus.client import Prometheus
from mofa_operator.settings import PrometheusSettings
from mofa_operator.snapshot import NoHistory

END = int(time.time()) // HOUR * HOUR
LABELS = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
EVIL = {"namespace": "evil", "job": "evil-trainer", "instance": "10.6.6.6:80"}
FEW = {RecoveryClass.PROCESS: 3, RecoveryClass.POD: 4, RecoveryClass.JOB: 1}
MANY = {RecoveryClass.PROCESS: 7, RecoveryClass.POD: 6, RecoveryClass.JOB: 5}
HONEST = draw(end=END, nodes=4, days=2, jobs=(Job(name="llama", nodes=3),), failures=FEW)
LIES = draw(
    end=END,
    nodes=6,
    days=2,
    jobs=(Job(name="llama", nodes=3), Job(name="other", nodes=2)),
    seed=7,
    failures=MANY,
)


def rules():
    place = Path(__file__).parents[2] / "tools" / "rules.py"
    spec = importlib.util.spec_from_file_location("tool_rules_of_hostile", place)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


TOOL = rules()
ALL = {
    rule.get("record") or rule["alert"]: rule["expr"]
    for group in TOOL.groups()
    for rule in group["rules"]
}


def constant(metric, labels, value, *, since=END - DAY, step=60, slope=0.0):
    span = Span(since, END, value, slope)
    return Series(metric, labels, step, (span,)), [Run(range(since, END, step), span)]


def forged():
    """The lies as a scrape leaves them: where the target runs, it says itself nowhere; and what
    hosts and devices are said to do.
    """
    for one, runs in sampled(LIES, lambda _: True):
        said = {f"exported_{name}": one.labels[name] for name in EVIL if name in one.labels}
        yield one._replace(labels=dict(one.labels) | said | EVIL), runs
        if one.metric.startswith(
            "kube_pod_"
        ):  # once more, as if it were his own pod on those nodes
            yield one._replace(labels=dict(one.labels) | EVIL), runs
    for node in HONEST.nodes:
        host = EVIL | {"node": node, "Hostname": node, "nodename": node}
        yield constant("node_boot_time_seconds", host, END - 3 * HOUR)
        yield constant(
            "DCGM_FI_DEV_XID_ERRORS", host | {"gpu": "0", "UUID": "x"}, 79, since=END - 5 * HOUR
        )
        yield constant("DCGM_FI_DEV_XID_ERRORS", host | {"gpu": "1", "UUID": "y"}, 0, slope=0.01)
        yield constant("problem_gauge", host | {"type": "XidError", "reason": "GpuLost"}, 1)
    yield constant(
        "mofa_train_step_seconds",
        EVIL | {"training_namespace": "evil", "training_job": "slow"},
        1e6,
    )


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    if binaries.find("prometheus") is None:
        pytest.skip("there is no Prometheus here; `make cluster-tools` builds one")
    with Processes(tmp_path_factory.mktemp("forged")) as processes:

        def start(many):
            folder = tmp_path_factory.mktemp("server")
            server = Server(processes, folder, name=folder.name)
            write_block(many, server.data)
            server.start()
            return server

        yield start


def told(server, known=None, **prometheus):
    spec = {
        "gpu": "h100-80gb-sxm", "nodeSelector": LABELS,
        "prometheus": {"windowSeconds": 2 * DAY, **prometheus},
    }  # fmt: skip
    body = {
        "apiVersion": "mofa.dev/v1alpha1",
        "kind": "ClusterProfile",
        "metadata": {"name": "e"},
        "spec": spec,
    }

    async def ask():
        async with Prometheus(PrometheusSettings(url=server.url)) as client:
            return await history.history(client, body, END, known)

    return asyncio.run(ask())


def facts(found):
    return {name: getattr(found, name) for name in found.__slots__ if name != "warnings"}


def test_the_history_of_a_pool_is_what_exporters_say_and_says_whom_it_left_out(started):
    honest = told(started(list(sampled(HONEST, lambda _: True))))
    attacked = started([*sampled(HONEST, lambda _: True), *forged()])
    found = told(attacked)
    assert sum(one.failures for one in honest.classes.values()) > 0
    assert facts(found) == facts(honest)
    assert not [text for text in honest.warnings if "left out" in text]
    assert "series of nodes and pods from evil were left out" in found.warnings[0]
    assert "spec.prometheus.exporterNamespaces" in found.warnings[0]
    believed = told(attacked, exporterNamespaces=["evil"])
    assert isinstance(believed, NoHistory) or facts(believed) != facts(honest), (
        "else this would prove nothing"
    )


def test_a_second_profile_over_the_same_nodes_asks_for_what_is_not_settled_alone(
    started, monkeypatch
):
    server, asked, known = (
        started(list(sampled(HONEST, lambda _: True))),
        [],
        history.KnownPools(),
    )
    ask = Prometheus.query

    async def counted(self, query, at=None):
        asked.append(query)
        return await ask(self, query, at)

    monkeypatch.setattr(Prometheus, "query", counted)
    found, costs = [], []
    for _ in range(4):
        before = len(asked)
        found.append(told(server, known))
        costs.append(len(asked) - before)
    assert found[1:] == found[:1] * 3, "and is told the same"
    assert max(costs[1:]) < 0.67 * costs[0]


def test_where_nobody_who_is_believed_speaks_of_nodes_it_is_said_who_does(started):
    found = told(started(list(forged())))
    assert isinstance(found, NoHistory)
    assert "from evil were left out" in found.message


# ------------------------------------------------------------------------------------------------------------- rules and alerts

WHOSE = {
    "pool": "east", "node": "n1", "training_namespace": "research", "training_job": "llama", "training_kind": "TrainingJob",
    "class": "pod", "verdict": "HigherThanAssumed", "bound": "upper", "limit": "device", "le": "60",
    "condition": "Ready", "status": "true", "is_fatal": "true", "recommended_action": "reboot", "pod": "llama-0", "uid": "u1",
    "container": "c", "attempt": "0", "slot": "0", "label_jobset_sigs_k8s_io_jobset_name": "llama",
    "label_jobset_sigs_k8s_io_restart_attempt": "0", "job": "kube-state-metrics", "instance": "10.0.0.1:80",
}  # fmt: skip
LOOPS = [
    {"loop": "history"}, {"loop": "sightings"}, {"loop": "resync"}, {"bound": "lower"}, {"le": "+Inf"},
]  # fmt: skip
READ = sorted({name for expression in ALL.values() for name in series(expression)})


def place(metric):
    """The namespace of the target that honestly publishes a metric."""
    if metric.startswith("mofa:"):
        return {}
    if metric.startswith(("kube_pod_", "mofa_train_")):
        return {"namespace": "research"}
    return {
        "namespace": "mofa-system" if metric.startswith(("mofa_", "process_")) else "monitoring"
    }


def published(cluster, of, value, slope):
    for metric in READ:
        for more in ({}, *LOOPS) if of(metric) else ({},):  # what was recorded is one series
            labels = WHOSE | more | {"cluster": cluster} | of(metric)
            yield constant(
                metric, {name: text for name, text in labels.items() if text}, value, slope=slope
            )


def lies(cluster):
    """All that the victim's exporters publish, with other figures; and twice, with labels that a
    rule may put others in the place of.
    """
    evil = {"namespace": "evil", "instance": "10.6.6.6:80"}
    yield from published(cluster, lambda _: evil, 1e9, 0.5)
    for more in (
        {"training_namespace": "evil", "attempt": "9", "slot": "9"},
        {"node": "n2", "training_kind": "x"},
    ):
        yield from published(cluster, lambda _, more=more: evil | more, 3.0, 0.0)


def test_no_rule_and_no_alert_is_swayed_or_fails_by_what_a_tenant_publishes(started):
    def honest(cluster):
        return published(cluster, place, 1.0, 0.01)

    def naive(cluster):
        found = published(
            cluster, lambda metric: place(metric) | {"instance": "10.6.6.6:80"}, 1e9, 0.5
        )
        return [one for one in found if not one[0].metric.startswith("mofa:")]

    server = started(
        [
            *honest("alone"),
            *honest("attacked"),
            *lies("attacked"),
            *honest("naive"),
            *naive("naive"),
        ]
    )
    spoke, swayed, unlike = 0, Counter(), []
    for name, expression in ALL.items():
        told = {"alone": set(), "attacked": set(), "naive": set()}
        for labels, value in server.ask(expression, END - 60):
            where = labels.pop("cluster", None)
            if where and "evil" not in (labels.get("training_namespace"), labels.get("namespace")):
                told[where].add((tuple(sorted(labels.items())), round(value, 6)))
        spoke += bool(told["alone"])
        swayed[told["naive"] != told["alone"]] += 1
        if told["attacked"] != told["alone"]:
            unlike.append(name)
    assert unlike == []
    assert spoke > 0.6 * len(ALL), "most of them say something here"
    direct = [
        one for one in ALL.values() if any(not name.startswith("mofa:") for name in series(one))
    ]
    assert swayed[True] > 0.5 * len(direct), (
        "and would say something else, were the scrape not looked at"
    )
