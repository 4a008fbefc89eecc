"""`mofa incidents` on a real Prometheus, over two pasts that were written down by hand: one of
nodes, one of jobs.
"""

import asyncio
import json
import math
import time
from itertools import pairwise

import pytest
from mofa_local.blocks import write_block
from mofa_local.ports import HOST
from mofa_local.prometheus import Prometheus as Server
from mofa_local.series import Run, Series, Span

from mofa_model.cli import main
from mofa_operator.observe.jobs.pods import gangs
from mofa_operator.observe.prometheus.client import Prometheus
from mofa_operator.observe.prometheus.trainers import JobName
from mofa_operator.settings import PrometheusSettings

DAY, HOUR = 86400, 3600
NOW = int(time.time())
END = min(NOW // HOUR * HOUR, NOW // DAY * DAY + 22 * HOUR)
"""22:00 at the latest. The rack fails 22 hours before, and a week is told without the day that is
not over.
"""
START = END - 3 * DAY
NODES = [f"n{number}" for number in range(8)]


class Story:
    """Series as spans of values, sampled every `step` seconds."""

    def __init__(self, step, **labels):
        self.step, self.labels, self.told = step, labels, []

    def says(self, metric, spans, **labels):
        """A metric, by (from, to, value) in hours of the story."""
        made = [Span(START + a * HOUR, START + b * HOUR, value) for a, b, value in spans if b > a]
        runs = [run for span in made if (run := self.run(span)).times]
        self.told.append((Series(metric, {**self.labels, **labels}, self.step, tuple(made)), runs))

    def run(self, span):
        first = START + self.step * math.ceil((span.start - START) / self.step)
        return Run(range(first, math.ceil(min(span.stop, END)), self.step), span)

    def turns(self, metric, edges, *, first=0.0, until=72.0, **labels):
        """A metric that changes its value at some hours."""
        every = [(0.0, first), *edges, (until, 0.0)]
        self.says(metric, [(a, b, value) for (a, value), (b, _) in pairwise(every)], **labels)


def on(*spans):
    return [edge for a, b in spans for edge in ((a, 1.0), (b, 0.0))]


def off(*spans):
    return [edge for a, b in spans for edge in ((a, 0.0), (b, 1.0))]


def node(story, name, label="node", *, down=(), cordon=(), boots=(), xid=(), rack="r0", until=72.0):
    """A node with two GPUs; `boots` are (hour at which the host died, hour of the boot)."""
    of = {label: name}
    ready = {"condition": "Ready", "status": "true"}
    story.turns("kube_node_status_condition", off(*down), first=1.0, until=until, **of, **ready)
    story.turns("kube_node_spec_unschedulable", on(*cordon), until=until, **of)
    story.turns(
        "kube_node_info", [], first=1.0, until=until, **of, internal_ip=f"10.0.0.{name[1:]}"
    )
    story.turns("kube_node_labels", [], first=1.0, until=until, **of, label_rack=rack)
    story.turns(
        "kube_node_status_allocatable", [], first=2.0, until=until, **of, resource="nvidia_com_gpu"
    )
    host, at, value, alive = {"instance": f"{name}:9100"}, 0.0, START - DAY, []
    for died, booted in boots:
        alive.append((at, died, value))
        at, value = booted + 0.02, START + booted * HOUR
    story.says("node_boot_time_seconds", [*alive, (at, until, value)], **host)
    for gpu in "01":
        edges = xid if gpu == "0" else ()
        story.turns(
            "DCGM_FI_DEV_XID_ERRORS",
            edges,
            until=until,
            **host,
            gpu=gpu,
            UUID=f"{name}-{gpu}",
            Hostname=name,
        )


def of_nodes():
    story = Story(60, cluster="nodes")
    node(story, "n0", down=[(10.0, 12.0)], boots=[(9.98, 11.95)], cordon=[(10.05, 12.4)])
    node(story, "n1", down=[(20.5, 20.7)], boots=[(20.48, 20.65)], cordon=[(20.0, 22.0)])
    node(story, "n2", down=[(30.0, 30.05), (30.2, 30.24)])
    node(
        story,
        "n3",
        xid=[(40.0, 48.0), (43.0, 0.0)],
        cordon=[(40.2, 44.0)],
        down=[(43.2, 43.4)],
        boots=[(43.19, 43.35)],
    )
    node(story, "n4", xid=[(15.0, 31.0)], boots=[(33.0, 33.08)], down=[(33.02, 33.1)])
    for number in (5, 6, 7):
        node(story, f"n{number}", rack="r1", down=[(50.0, 53.0)], boots=[(49.99, 52.95)])
    return story.told


def pod(story, name, where, lived, *, job, starts=(), codes=(), ended=None, owner=None):
    """A pod of a PyTorchJob, scraped without honorLabels; `starts` are the hours at which its
    container started.
    """
    uid = f"{name}-{lived[0]}"
    of = {"namespace": "monitoring", "exported_namespace": "ml", "exported_pod": name, "uid": uid}
    a, b = lived
    stop = ended[0] if ended else b
    story.says("kube_pod_info", [(a, b, 1.0)], **of, node="ops", exported_node=where)
    story.says("kube_pod_labels", [(a, b, 1.0)], **of, label_training_kubeflow_org_job_name=job)
    story.says("kube_pod_created", [(a, b, START + a * HOUR)], **of)
    phases = {
        "Running": [(a, stop, 1.0), (stop, b, 0.0)],
        "Succeeded": [(a, stop, 0.0), (stop, b, 1.0)],
    }
    for phase, spans in phases.items() if ended else [("Running", [(a, b, 1.0)])]:
        story.says("kube_pod_status_phase", spans, **of, phase=phase)
    box, every = {**of, "exported_container": "pytorch"}, [a, *starts, stop]
    spans = list(pairwise(every))
    story.says(
        "kube_pod_container_state_started", [(x, y, START + x * HOUR) for x, y in spans], **box
    )
    story.says(
        "kube_pod_container_status_restarts_total",
        [(x, y, n) for n, (x, y) in enumerate(spans)],
        **box,
    )
    last = "kube_pod_container_status_last_terminated"
    told = list(zip(spans[1:], codes, strict=True))
    story.says(f"{last}_exitcode", [(x, y, code) for (x, y), (_, code) in told], **box)
    story.says(f"{last}_timestamp", [(x, y, START + at * HOUR) for (x, y), (at, _) in told], **box)


def of_jobs():
    story = Story(120, cluster="jobs")
    for name in NODES[:6]:
        node(story, name, "exported_node")
    for slot in (0, 1):
        codes = [(10.0 + slot / 100, (137, 134)[slot]), (30.0 + slot / 100, (1, 134)[slot])]
        pod(
            story,
            f"sft-worker-{slot}",
            NODES[slot],
            (1.0, 72.0),
            job="sft",
            starts=[10.03, 30.03],
            codes=codes,
        )
        loop = [20.0 + turn / 12 for turn in range(5)]
        pod(story, f"new-worker-{slot}", NODES[slot + 2], (1.0, 72.0), job="new",
            starts=[at + 0.03 for at in loop], codes=[(at, 1) for at in loop])  # fmt: skip
        for night in range(3):
            at = 24.0 * night + 2
            pod(
                story,
                f"nightly-worker-{slot}",
                NODES[slot + 4],
                (at, at + 5.5),
                job="nightly",
                ended=(at + 5,),
            )
            again = 24.0 * night + 10
            pod(story, f"try-worker-{slot}", NODES[slot + 4], (again, again + 2), job="try")
    return story.told


def ray_pod(story, name, where, lived, *, cluster, group, labels=True, gone=""):
    """A pod of KubeRay as kube-state-metrics 2.18 tells of it, all labels allowed,
    with honorLabels.
    """
    a, b = lived
    of = {
        "job": "kube-state-metrics", "instance": "10.0.0.1:8080", "container": "ray-worker",
        "namespace": "ml", "pod": name, "uid": f"{name}-{a}",
    }  # fmt: skip
    head = group == "headgroup"
    story.says("kube_pod_info", [(a, b, 1.0)], **of, node=where, created_by_kind="RayCluster",
               created_by_name=cluster)  # fmt: skip
    story.says("kube_pod_owner", [(a, b, 1.0)], **of, owner_kind="RayCluster", owner_name=cluster,
               owner_is_controller="true")  # fmt: skip
    if labels:
        story.says(
            "kube_pod_labels", [(a, b, 1.0)], **of,
            label_app_kubernetes_io_created_by="kuberay-operator",
            label_app_kubernetes_io_name="kuberay",
            label_ray_io_cluster=cluster,
            label_ray_io_group=group,
            label_ray_io_identifier=f"{cluster}-{'head' if head else 'worker'}",
            label_ray_io_is_ray_node="yes",
            label_ray_io_node_type="head" if head else "worker",
        )  # fmt: skip
    story.says("kube_pod_created", [(a, b, START + a * HOUR)], **of)
    story.says("kube_pod_status_phase", [(a, b, 1.0)], **of, phase="Running")
    if gone:
        story.says("kube_pod_status_reason", [(b - 0.05, b, 1.0)], **of, reason=gone)
    box = {**of, "container": "ray-worker"}
    story.says("kube_pod_container_state_started", [(a, b, START + a * HOUR)], **box)
    story.says("kube_pod_container_status_restarts_total", [(a, b, 0.0)], **box)


def of_rays(cluster, *, labels):
    """A RayJob `tune` of two workers: one is evicted at hour 71.4, and hour 40 needs a
    new cluster.
    """
    story = Story(60, cluster=cluster)
    scraped = {"job": "kube-state-metrics", "instance": "10.0.0.1:8080", "namespace": "monitoring"}
    story.says("up", [(1.0, 72.0, 1.0)], **scraped)
    for name in NODES[:4]:
        node(story, name)
    first, second = "tune-h7cz7", "tune-k2b9x"
    for made, group, end, where, lived, gone in (
        (first, "headgroup", "head-8d2cw", NODES[3], (1.0, 40.0), ""),
        (first, "gpu", "gpu-worker-x2x9z", NODES[0], (1.0, 40.0), ""),
        (first, "gpu", "gpu-worker-b4l6t", NODES[1], (1.01, 40.0), ""),
        (second, "headgroup", "head-t5d8n", NODES[3], (40.1, 72.0), ""),
        (second, "gpu", "gpu-worker-f9p2w", NODES[0], (40.1, 72.0), ""),
        (second, "gpu", "gpu-worker-m5v7q", NODES[1], (40.1, 71.4), "Evicted"),
        (second, "gpu", "gpu-worker-z9z4s", NODES[2], (71.45, 72.0), ""),
    ):
        name = f"{made}-{end}"
        ray_pod(story, name, where, lived, cluster=made, group=group, labels=labels, gone=gone)
    return story.told


@pytest.fixture(scope="module")
def url(processes, tmp_path_factory, binaries):
    binaries.path("prometheus")
    folder = tmp_path_factory.mktemp("incidents")
    server = Server(processes, folder, name=folder.name)
    rays = [*of_rays("rays", labels=True), *of_rays("owned", labels=False)]
    write_block([*of_nodes(), *of_jobs(), *rays], server.data)
    server.start()
    yield server.url
    server.stop()


def asked(url, capsys, cluster, *more):
    window = ["--start", str(START), "--end", str(END)]
    code = main(
        ["incidents", "--prometheus", url, "--match", f'cluster="{cluster}"', *window, *more]
    )
    told = capsys.readouterr()
    return code, told.out, told.err


def told(url, capsys, cluster):
    code, out, _ = asked(url, capsys, cluster, "-o", "json")
    assert code == 0
    return json.loads(out)


def failed(document, kind):
    return sorted(
        (one[kind], one["cause"])
        for one in document["incidents"]
        if one["kind"] == kind and one["counts"]
    )


def test_failures_of_nodes_are_those_that_nobody_planned_each_once_and_with_its_cause(url, capsys):
    document = told(url, capsys, "nodes")
    assert failed(document, "node") == [("n0", "node-down"), ("n3", "gpu-fatal"), ("n4", "reboot")]
    assert failed(document, "domain") == [("r1", "rack-outage")]
    others = {
        (one["node"], one["cause"])
        for one in document["incidents"]
        if one["kind"] == "node" and not one["counts"]
    }
    assert others >= {("n1", "planned-drain"), ("n2", "flap"), ("n4", "user-xid")}
    first = next(one for one in document["incidents"] if one.get("node") == "n0")
    assert first["start"] == pytest.approx(START + 9.98 * HOUR, abs=60)
    assert first["recovery_seconds"] == pytest.approx(2.42 * HOUR, rel=0.02)
    away = 2.4 + 2.0 + 4.0 + 3 * 3.0 + 0.1
    assert document["exposure"]["node_days"] == pytest.approx((8 * 72 - away) / 24, rel=0.002)


def test_failures_of_jobs_are_none_of_their_users_whatever_the_scrape_calls_their_labels(
    url, capsys
):
    document = told(url, capsys, "jobs")
    assert failed(document, "job") == [("ml/sft", "process-crash")]
    causes = [one["cause"] for one in document["incidents"]]
    assert {cause: causes.count(cause) for cause in set(causes)} == {
        "process-crash": 1, "user-crash": 1, "user-crash-loop": 1, "completed": 3, "resubmission": 2,
    }  # fmt: skip
    assert document["exposure"]["job_node_days"]["ml/sft"] == pytest.approx(2 * 71 / 24, rel=0.005)


@pytest.mark.parametrize("cluster", ["rays", "owned"])
def test_pods_of_a_ray_job_are_its_own_though_they_name_its_cluster_alone(url, capsys, cluster):
    document = told(url, capsys, cluster)
    jobs = [one for one in document["incidents"] if one["kind"] == "job"]
    assert {one["job"] for one in jobs} == {"ml/tune"}
    assert [(one["start"] - START) / HOUR for one in jobs] == pytest.approx([40.0, 71.4], abs=0.05)
    days = {"ml/tune": (3 * 39 + 3 * 32) / 24}
    assert document["exposure"]["job_node_days"] == pytest.approx(days, rel=0.01)


def test_the_living_pods_of_a_ray_job_are_found_and_side_by_side_they_replace_none(url):
    """Three were made together at hour 40; the one made at 71.45 follows the evicted one."""
    name = JobName("ml", "tune")

    async def seen(at, span):
        async with Prometheus(PrometheusSettings(url=url)) as prometheus:
            return await gangs(
                prometheus, {"cluster": "rays"}, {name: 0.0}, START + at * HOUR, span=span
            )

    quiet = asyncio.run(seen(60.0, HOUR))[name]
    assert quiet.placed
    assert quiet.nodes == {NODES[3], NODES[0], NODES[1]}
    assert quiet.observation.signs == ()
    sign = asyncio.run(seen(71.9, HOUR))[name].observation.signs
    assert [(one.recovery_class.value, one.cause) for one in sign] == [("pod", "eviction")]
    assert sign[0].at == pytest.approx(START + 71.45 * HOUR)


def test_somebody_who_knows_better_sees_what_follows_and_gets_the_line_for_the_operator(
    url, capsys, tmp_path
):
    pool = tmp_path / "pool.yaml"
    pool.write_text(
        "apiVersion: mofa.dev/v1alpha1\nkind: ClusterProfile\nmetadata: {name: east}\nspec:\n  gpu: h100-80gb-sxm\n"
        '  prometheus: {matchers: {cluster: nodes}}\n  incidents: {xids: {"48": program}, shortestOutageSeconds: 60}\n'
    )
    (first,) = [one for one in told(url, capsys, "nodes")["incidents"] if one.get("node") == "n0"]
    given = ["--profile", str(pool), "--overrule", f"{first['id']}=planned-drain"]
    window = ["--start", str(START), "--end", str(END)]
    assert main(["incidents", "--prometheus", url, *given, *window, "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert failed(document, "node") == [("n2", "kubelet-down")] * 2 + [("n4", "reboot")]
    (again,) = [one for one in document["incidents"] if one.get("node") == "n0"]
    assert (again["id"], again["cause"], again["overruled"]) == (
        first["id"],
        "planned-drain",
        "node-down",
    )
    patch = f'{{"spec": {{"incidents": {{"overruled": {{"{first["id"]}": "planned-drain"}}}}}}}}'
    assert document["overruling"] == f"kubectl patch clusterprofile east --type=merge -p '{patch}'"
    for wrong, words in (
        (f"{first['id']}=luck", "unknown name"),
        ("node/n0", "give ID=CAUSE"),
        (
            "node/n9@2020-01-31T09:30:00Z=none",
            "give the id of an incident of this pool between --start and --end",
        ),
        ("node/n0@2026-13-31T09:30:00Z=none", "give the id that mofa incidents prints"),
    ):
        code, out, err = asked(url, capsys, "nodes", "--overrule", wrong)
        assert (code, out, err.count("\n"), words in err) == (2, "", 1, True), err


def test_the_account_adds_up_to_the_nodes_and_a_week_stands_beside_the_week_before(url, capsys):
    account = told(url, capsys, "nodes")["account"]
    assert account["capacity_node_days"] == pytest.approx(8 * 3, rel=0.01)
    assert sum(account["node_days"].values()) == pytest.approx(account["capacity_node_days"])
    lost = account["lost_node_days"]
    assert lost["node-down"] == pytest.approx(2.42 / 24, rel=0.05)
    assert lost["rack-outage"] == pytest.approx(3 * 3.0 / 24, rel=0.05)
    assert "observer-failed" not in lost
    _, out, _ = asked(url, capsys, "nodes", "--account")
    assert f"{account['capacity_node_days']:.6g} node-days in all" in out
    for form in ("markdown", "html"):
        code, out, _ = asked(url, capsys, "nodes", "--account", "week", "-o", form)
        assert (code, "What changed since the week before" in out, "rack-outage" in out) == (
            0,
            True,
            True,
        )


def test_people_get_a_table_and_what_cannot_be_read_is_one_line(url, capsys):
    code, out, _ = asked(url, capsys, "nodes")
    assert (code, "4 failures in" in out, "rack-outage" in out, "flap" in out) == (
        0,
        True,
        True,
        False,
    )
    assert "flap" in asked(url, capsys, "nodes", "--all")[1]
    for wrong, words in (
        (
            ["--node-label", "cluster"],
            "no label of kube_node_status_condition has a value for each node",
        ),
        (["--nodes", "pool=none"], "kube_node_labels lacks pool"),
    ):
        code, out, err = asked(url, capsys, "nodes", *wrong)
        assert (code, out, err.count("\n"), words in err) == (4, "", 1, True), err
    assert "matchers leave none of it" in asked(url, capsys, "nowhere")[2]
    assert main(["incidents", "--prometheus", f"http://{HOST}:9"]) == 4
    assert main(["incidents", "--prometheus", url, "--match", "cluster"]) == 2
    assert main(["incidents", "--prometheus", url, "--start", "yesterday"]) == 2
    assert capsys.readouterr().err.count("\n") == 3
