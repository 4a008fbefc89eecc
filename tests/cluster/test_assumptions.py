"""What a profile assumes against what its pool lived through: a real Prometheus, made-up pasts, the operator under its own role.

Every pool here has 40 nodes, trains on 38 of them and assumes five failures in a thousand node-days (0.5 % a day), over a
window of 60 days. What happened to it is what its test is about.
"""

import dataclasses
import itertools
import json
import re
import secrets
import time
from bisect import bisect_left
from contextlib import ExitStack, contextmanager

import pytest
from advisor import Advisor, condition, ours, until
from foreign import install
from mofa_local import nodes
from mofa_local.blocks import write_block
from mofa_local.ports import free_port
from mofa_local.prometheus import Prometheus
from mofa_local.series import sampled
from mofa_local.synthetic import DAY, Gap, Incident, Job, draw, node_names
from operator_objects import QUICK as QUICK_SEARCH
from pools import EXAMPLES, pool, settled
from ruamel.yaml import YAML

from mofa_model.annotations import OUTPUTS, PREFIX
from mofa_model.cli import main
from mofa_operator.keys import JOB_SET

DAYS, NODES, BUSY = 60, 40, 38
WATCHED = BUSY * DAYS
"""Node-days in which a job ran on a node."""
ASSUMED = 0.005
"""Failures per node-day, of all classes."""
TWO_PERCENT = {"process": 14, "pod": 27, "job": 5}
"""46 failures in 2280 node-days: 2.02 % per node-day, four times as many as assumed."""
AS_ASSUMED = {"process": 3, "pod": 7, "job": 1}
"""11 failures, where 11.4 are assumed."""
QUICK = ("--settle=1", "--resync=5", "--backoff=0.2")
PATIENCE = 150.0
"""Longest wait for a first look at sixty days on a busy machine. [s]"""
_numbers = itertools.count()


class World:
    """Pools, their pasts in one Prometheus, one operator, and a job for each pool."""

    def __init__(self, cluster, processes, folder):
        self.cluster = cluster
        self.namespace = f"assumed-{secrets.token_hex(3)}"
        cluster.kubectl("create", "namespace", self.namespace)
        name = f"assumed-{next(_numbers)}"
        self.server = Prometheus(
            processes, folder / "prometheus", port=free_port(), name=f"{name}-prometheus"
        )
        self.advisor = Advisor(cluster, processes, name)
        self.folder = folder

    def ask_for_advice(self, name):
        self.cluster.apply(job(self.namespace, name))

    def profile(self, name):
        return json.loads(self.cluster.kubectl("get", "clusterprofile", name, "-o", "json"))

    def job(self, name):
        return json.loads(
            self.cluster.kubectl("get", "trainingjob", name, "-n", self.namespace, "-o", "json")
        )

    def learned(self, name, reason):
        """A pool's profile and job once both say this of its history, and the job is advised."""

        def look():
            found, asked = self.profile(name), self.job(name)
            is_said = {condition(one, "HistoryComplete").get("reason") for one in (found, asked)} == {reason}
            return (found, asked) if is_said and "strategy" in ours(asked) else None

        return until(look, PATIENCE, what=f"{name}: {reason}")

    def events(self, name, kind="ClusterProfile"):
        """Reasons and messages of the Events on an object."""
        found = json.loads(self.cluster.kubectl("get", "events", "-A", "-o", "json"))["items"]
        mine = [
            one
            for one in found
            if (one["involvedObject"]["kind"], one["involvedObject"]["name"]) == (kind, name)
        ]
        return [(one["reason"], one["message"]) for one in mine]

    def metric(self, name, **labels):
        """A series of the operator's own /metrics."""
        wanted = {f'{key}="{value}"' for key, value in labels.items()}
        for line in self.advisor.metrics().splitlines():
            found = re.fullmatch(rf"{name}\{{(.*)\}} (\S+)", line)
            if found and wanted <= set(found[1].split(",")):
                return float(found[2])
        return None

    def rates(self, name, capsys, *more):
        """What `mofa rates --prometheus` says of the live profile: exit code, document, standard error."""
        file = self.folder / f"{name}.yaml"
        file.write_text(self.cluster.kubectl("get", "clusterprofile", name, "-o", "yaml"))
        capsys.readouterr()
        code = main(["rates", "--prometheus", self.server.url, "--profile", str(file), "--json", *more])
        said = capsys.readouterr()
        return code, json.loads(said.out) if said.out else None, said.err


def job(namespace, profile):
    """A TrainingJob for a pool, named as the pool; next to nothing is left to search."""
    training = {"tokens": "1T", "sequenceLength": 4096, "globalBatchSize": 64, "framework": "megatron"}
    return {
        "apiVersion": "mofa.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": profile, "namespace": namespace},
        "spec": {
            "model": {"preset": "llama3.1-8b"},
            "training": training,
            "cluster": {"profile": profile, "nodes": 2},
            "constraints": QUICK_SEARCH,
        },
    }


def past_of(name, failures=AS_ASSUMED, *, days=DAYS, jobs=2, **changes):
    """What a pool lived through until now, seen by Prometheus as the pool's own cluster."""
    past = draw(
        end=int(time.time()),
        nodes=NODES,
        days=days,
        jobs=tuple(Job(name=f"{name}-{number}", nodes=BUSY // jobs) for number in range(jobs)),
        failures=failures,
        labels={"example.org/pool": name},
    )
    return dataclasses.replace(past, nodes=node_names(NODES, name), **changes)


def samples(past, name, since=0.0, before=float("inf")):
    """The samples of a past between two moments, with the label `cluster`."""
    for series, runs in sampled(past, lambda _: True):
        cut = [
            run._replace(times=run.times[bisect_left(run.times, since) : bisect_left(run.times, before)])
            for run in runs
        ]
        kept = [run for run in cut if run.times]
        if kept:
            yield series._replace(labels={**series.labels, "cluster": name}), kept


def own(name):
    """The part of a profile's spec that finds its own past."""
    return {"prometheus": {"windowSeconds": DAYS * DAY, "matchers": {"cluster": name}}}


@contextmanager
def world_of(cluster, processes, folder, pasts, *flags, serving=True, before=float("inf")):
    """A world of pools: for each, a function from its name to its past, of which Prometheus holds what lies before a moment."""
    made = World(cluster, processes, folder)
    with ExitStack() as stack:
        names = {key: stack.enter_context(pool(cluster, spec=own)) for key in pasts}
        series = [
            one for key, name in names.items() for one in samples(pasts[key](name), name, before=before)
        ]
        if series:
            write_block(series, made.server.data)
        if serving:
            made.server.start()
        for name in names.values():
            made.ask_for_advice(name)
        made.advisor.start(*QUICK, f"--prometheus-url={made.server.url}", *flags)
        try:
            yield made, names
        finally:
            made.advisor.stop()
            made.server.stop()
            cluster.kubectl("delete", "trainingjob", "--all", "-n", made.namespace)


PASTS = {
    "higher": lambda name: past_of(name, TWO_PERCENT),
    "as assumed": past_of,
    "calm": lambda name: past_of(name, dict.fromkeys(AS_ASSUMED, 0)),
    "gap": lambda name: past_of(name, gaps=(_half(),)),
    "short": lambda name: past_of(name, {"process": 2, "pod": 3, "job": 1}, days=DAYS // 2),
    "no restarts": lambda name: past_of(name, missing=frozenset({"kube_pod_container_status_restarts_total"})),
    "no job pods": lambda name: past_of(name, missing=frozenset({"kube_pod_labels"})),
    "no nodes": lambda name: past_of(name, missing=frozenset({"kube_node_status_condition"})),
}  # fmt: skip


def _half():
    """Thirty days of the sixty in which Prometheus itself was down."""
    now = int(time.time())
    return Gap(at=now - 45 * DAY, until=now - 15 * DAY, server=True)


@pytest.fixture(scope="module")
def lived(cluster, processes, binaries, tmp_path_factory):
    """All of these pools at once; nothing happens to them any more."""
    binaries.path("prometheus")
    folder = tmp_path_factory.mktemp("assumptions")
    with world_of(cluster, processes, folder, PASTS, "--prometheus-interval=60", "--quiet=5") as made:
        yield made


def rows(profile):
    return {row["name"]: row for row in profile["status"]["failures"]}


def whole(profile):
    """All failures of a status, and its exposure."""
    counted = rows(profile).values()
    return sum(row["failures"] for row in counted), float(next(iter(counted))["exposureNodeDays"])


def rates_used(asked):
    """Failures in a thousand node-days that a job's advice rests on, by class."""
    used = asked["status"]["inputs"]["failure"]
    return {one["name"]: float(one["failuresPerThousandNodeDays"]) for one in used}


# ---------------------------------------------------------------------------- assumed against live


def test_two_percent_where_half_a_percent_is_assumed_is_said_everywhere(lived, capsys):
    world, names = lived
    name = names["higher"]
    found, _ = world.learned(name, "Complete")
    failures, exposure = whole(found)
    assert failures == 46
    assert exposure == pytest.approx(WATCHED, rel=0.01)
    pod = rows(found)["pod"]
    assert (pod["failures"], pod["verdict"]) == (27, "HigherThanAssumed")
    assert pod["coveragePercent"] >= 99, (
        "the window begins at a multiple of its hundredth, before the history"
    )
    assert found["status"]["display"] == {
        "nodes": "2/2", "assumed": "5", "observed": f"{1000 * 46 / exposure:.3g}",
        "coverage": f"{pod['coveragePercent']} %", "verdict": "HigherThanAssumed",
    }  # fmt: skip
    lower, mean, upper = (float(pod["rate"][end]) for end in ("lower", "mean", "upper"))
    assert lower < mean < upper
    assert mean == pytest.approx((27 + 1.2) / (exposure + 400) * 1000, rel=1e-3), (
        "two failures of prior in 400 node-days"
    )
    assert lower > 3.0, "what is assumed of class pod lies below the interval"


def test_the_metrics_say_what_the_status_says(lived):
    world, names = lived
    name = names["higher"]
    found, _ = world.learned(name, "Complete")
    pod = rows(found)["pod"]
    for end in ("lower", "mean", "upper"):
        shown = world.metric("mofa_pool_failures_per_node_day", pool=name, **{"class": "pod", "bound": end})
        assert shown == pytest.approx(float(pod["rate"][end]) / 1000, rel=1e-3)
    assert world.metric("mofa_pool_assumed_failures_per_node_day", pool=name, **{"class": "pod"}) == 0.003
    assert world.metric("mofa_pool_exposure_node_days", pool=name) == pytest.approx(whole(found)[1], rel=1e-3)
    assert 100 * world.metric("mofa_pool_history_coverage_ratio", pool=name) == pod["coveragePercent"]
    verdict = {"pool": name, "class": "pod", "verdict": "HigherThanAssumed"}
    assert world.metric("mofa_pool_verdict", **verdict) == 1
    assert world.metric("mofa_pool_prior_weight_ratio", pool=name, **{"class": "pod"}) == pytest.approx(
        pod["priorWeightPercent"] / 100, abs=0.006
    )


def test_one_event_says_it_with_exposure_interval_and_coverage(lived):
    world, names = lived
    name = names["higher"]
    found, _ = world.learned(name, "Complete")
    (reason, message), *more = until(lambda: world.events(name), what="an Event")
    assert (reason, more) == ("AssumptionContradicted", [])
    assert "46 in 2,2" in message
    assert f"{1000 * 46 / whole(found)[1]:.3g} were seen" in message
    assert f"{rows(found)['pod']['coveragePercent']} % of the window covered" in message
    assert "with 90 % confidence" in message


def test_the_command_line_says_the_same_verdicts_and_figures(lived, capsys):
    world, names = lived
    for key, code in (("higher", 5), ("as assumed", 0)):
        found, _ = world.learned(names[key], "Complete")
        assert world.rates(names[key], capsys, "--check")[0] == code
        _, told, _ = world.rates(names[key], capsys)
        said = {one["name"]: one for one in told["rates"]}
        assert set(rows(found)) == set(said) - {"total"} == {"process", "pod", "job"}
        for name, row in rows(found).items():
            assert (said[name]["failures"], said[name]["verdict"]) == (row["failures"], row["verdict"]), name
            for end in ("lower", "mean", "upper"):
                assert 1000 * said[name][end] == pytest.approx(float(row["rate"][end]), rel=1e-3, abs=1e-4)
        verdicts = {one["verdict"] for one in said.values()}
        assert found["status"]["display"]["verdict"] in verdicts
        assert told["node_days"] == pytest.approx(whole(found)[1], rel=1e-3)
        assert round(100 * told["coverage"]) == rows(found)["pod"]["coveragePercent"]


def test_advice_names_the_rates_that_it_rests_on_and_their_verdict(lived):
    world, names = lived
    found, asked = world.learned(names["higher"], "Complete")
    used = {one["name"]: one for one in asked["status"]["inputs"]["failure"]}
    assert used["pod"]["verdict"] == "HigherThanAssumed"
    assert rates_used(asked)["pod"] == pytest.approx(float(rows(found)["pod"]["rate"]["mean"]), rel=1e-3)


# ---------------------------------------------------------------------- what is missing is never zero


def test_no_failure_in_sixty_days_is_said_and_the_rate_is_not_zero(lived, capsys):
    world, names = lived
    found, asked = world.learned(names["calm"], "NoFailuresSeen")
    failures, exposure = whole(found)
    assert failures == 0
    assert exposure == pytest.approx(WATCHED, rel=0.01)
    assert "no failure: rates come from the assumption" in condition(asked, "HistoryComplete")["message"]
    for name, prior in (("process", 0.6), ("pod", 1.2), ("job", 0.2)):
        mean = float(rows(found)[name]["rate"]["mean"])
        assert mean == pytest.approx(1000 * prior / (exposure + 400), rel=2e-3)
    _, told, _ = world.rates(names["calm"], capsys)
    assert told["notes"] == [
        "No failure was seen: the rate comes from the assumption, and from that exposure."
    ]
    assert all(one["failures"] == 0 < one["mean"] for one in told["rates"])
    assert {one["verdict"] for one in told["rates"] if one["name"] != "total"} == {
        row["verdict"] for row in rows(found).values()
    }


@pytest.mark.parametrize("key", ["gap", "short"])
def test_half_a_history_is_half_the_exposure_and_says_so(lived, capsys, key):
    world, names = lived
    found, asked = world.learned(names[key], "HistoryIncomplete")
    failures, exposure = whole(found)
    assert exposure == pytest.approx(WATCHED / 2, rel=0.02), "only what was seen"
    assert rows(found)["pod"]["coveragePercent"] == pytest.approx(50, abs=1)
    assert 0 < failures <= 11
    assert condition(asked, "HistoryComplete")["status"] == "False"
    assert "only what was seen counts as exposure" in condition(asked, "HistoryComplete")["message"]
    assert [reason for reason, _ in world.events(names[key])] == ["HistoryIncomplete"]
    assert world.metric("mofa_pool_history_coverage_ratio", pool=names[key]) == pytest.approx(0.5, abs=0.01)
    _, told, _ = world.rates(names[key], capsys)
    assert told["coverage"] == pytest.approx(0.5, abs=0.01)
    assert told["node_days"] == pytest.approx(exposure, rel=0.01)
    assert "Part of the window has no data; only what was seen counts as exposure." in told["notes"]


def test_without_restart_counters_one_class_is_the_assumption_and_the_series_is_named(lived, capsys):
    world, names = lived
    series = "kube_pod_container_status_restarts_total"
    found, asked = world.learned(names["no restarts"], "SeriesMissing")
    assert set(rows(found)) == {"pod", "job"}, "nothing counted is not a count of nothing"
    for one in (found, asked):
        assert f"there is no series {series}" in condition(one, "HistoryComplete")["message"].lower()
        assert condition(one, "HistoryComplete")["status"] == "False"
    assert rates_used(asked)["process"] == pytest.approx(1.5)
    assert world.metric("mofa_pool_verdict", pool=names["no restarts"], **{"class": "process", "verdict": "InsufficientData"}) == 1  # fmt: skip
    _, told, _ = world.rates(names["no restarts"], capsys)
    said = {one["name"]: one for one in told["rates"]}
    assert set(said) - {"total"} == {"pod", "job"}
    assert said["pod"]["mean"] * 1000 == pytest.approx(float(rows(found)["pod"]["rate"]["mean"]), rel=1e-3)
    assert told["notes"][0] == f"There is no series {series}: only class pod, job can be counted."


def test_without_labels_of_pods_failures_of_nodes_are_counted_and_that_is_said(lived, capsys):
    world, names = lived
    found, asked = world.learned(names["no job pods"], "SeriesMissing")
    assert set(rows(found)) == {"pod"}
    assert "kube_pod_labels of training pods" in condition(asked, "HistoryComplete")["message"]
    _, told, _ = world.rates(names["no job pods"], capsys)
    assert told["notes"][0].startswith("There is no series kube_pod_labels of training pods")


def test_without_nodes_nothing_is_known_the_advice_is_the_assumption_s_and_marked(lived, capsys):
    world, names = lived
    found, asked = world.learned(names["no nodes"], "SeriesMissing")
    assert not found["status"].get("failures")
    assert "kube_node_status_condition" in condition(asked, "HistoryComplete")["message"]
    assert condition(asked, "ConfidenceSufficient")["reason"] == "PriorDominated"
    assert asked["status"]["readyReason"] == "PriorDominated"
    assert rates_used(asked) == {"process": 1.5, "pod": 3.0, "job": 0.5}
    assert [reason for reason, _ in world.events(names["no nodes"])] == ["HistoryUnavailable"]
    code, told, said = world.rates(names["no nodes"], capsys)
    assert (code, told) == (4, None)
    assert "kube_node_status_condition has no data" in said


# ------------------------------------------------------------------------------------------- outages


def test_a_server_that_never_answered_leaves_the_assumption_and_says_so_once(
    cluster, processes, binaries, tmp_path, capsys
):
    pasts = {"east": lambda name: past_of(name, TWO_PERCENT)}
    flags = ("--prometheus-interval=1", "--quiet=5", "--prometheus-timeout=3")
    with world_of(cluster, processes, tmp_path, pasts, *flags, serving=False) as (world, names):
        name = names["east"]
        found, asked = world.learned(name, "HistoryUnavailable")
        assert not found["status"].get("failures")
        assert asked["status"]["readyReason"] == "PriorDominated"
        assert rates_used(asked) == {"process": 1.5, "pod": 3.0, "job": 0.5}
        for one in (found, asked):
            assert "cannot be connected to" in condition(one, "HistoryComplete")["message"]
        assert world.metric("mofa_pool_exposure_node_days", pool=name) is None, "missing is not zero"
        assert world.metric("mofa_advisor_history_requests_total", outcome="HistoryUnavailable") > 0
        before = settled(world.advisor)
        time.sleep(5.0)
        assert world.advisor.writes(before) == [], "an outage that goes on is no news"
        assert [reason for reason, _ in world.events(name)] == ["HistoryUnavailable"]
        code, told, said = world.rates(name, capsys)
        assert (code, told, said.count("\n")) == (4, None, 1)
        assert "cannot be connected to" in said
        world.server.start()
        found, again = world.learned(name, "Complete")
        assert whole(found)[0] == 46
        assert again["status"]["inputsHash"] != asked["status"]["inputsHash"]


def test_an_outage_keeps_what_was_learned_and_the_advice_and_ends_by_itself(
    cluster, processes, binaries, tmp_path, capsys
):
    pasts = {"east": lambda name: past_of(name, TWO_PERCENT)}
    flags = ("--prometheus-interval=1", "--quiet=2", "--prometheus-timeout=3")
    with world_of(cluster, processes, tmp_path, pasts, *flags) as (world, names):
        name = names["east"]
        found, asked = world.learned(name, "Complete")
        settled(world.advisor)
        for _ in range(2):  # the second time is another episode
            world.server.stop()
            during, job_during = world.learned(name, "HistoryUnavailable")
            assert rows(during) == rows(found)
            assert during["status"]["display"] == found["status"]["display"]
            assert ours(job_during) == ours(asked)
            for part in ("inputsHash", "computedTime", "recommendation", "inputs", "readyReason"):
                assert job_during["status"].get(part) == asked["status"].get(part), part
            assert "what was learned before is used" in condition(job_during, "HistoryComplete")["message"]
            assert world.metric("mofa_pool_exposure_node_days", pool=name) == pytest.approx(whole(found)[1])
            assert world.rates(name, capsys)[0] == 4
            world.server.start()
            after, job_after = world.learned(name, "Complete")
            assert rows(after) == rows(found)
            assert ours(job_after) == ours(asked)
            assert job_after["status"]["inputsHash"] == asked["status"]["inputsHash"]
        told = [reason for reason, _ in world.events(name)]
        assert sorted(told) == ["AssumptionContradicted", "HistoryUnavailable"]
        assert [reason for reason, _ in world.events(name, "TrainingJob")].count("RecommendationChanged") <= 1


# ------------------------------------------------------------------------------- more failures, and none


def burst(name, now):
    """The past of a pool whose eight jobs of four nodes all lost a pod in its last forty minutes, beside the 46 of before."""
    past = draw(
        end=now,
        nodes=NODES,
        days=DAYS,
        jobs=tuple(Job(name=f"{name}-{number}", nodes=BUSY // 8) for number in range(8)),
        failures=TWO_PERCENT,
        labels={"example.org/pool": name},
    )
    early = [one for one in past.incidents if one.at < now - 7200]
    late = [
        Incident(at=now - 2400 + 60 * number, job=job.name, level="pod", recovery=280.0)
        for number, job in enumerate(past.jobs)
    ]
    return dataclasses.replace(past, nodes=node_names(NODES, name), incidents=(*early, *late))


def test_failures_that_are_back_filled_are_advised_on_after_the_quiet_time(
    cluster, processes, binaries, tmp_path
):
    now, quiet = int(time.time()) // 300 * 300, 20.0
    pasts = {"east": lambda name: burst(name, now)}
    flags = ("--prometheus-interval=1", f"--quiet={quiet:g}")
    with world_of(cluster, processes, tmp_path, pasts, *flags, before=now - 2700) as (world, names):
        name = names["east"]
        found, asked = world.learned(name, "Complete")
        counted = whole(found)[0]
        world.server.stop()
        write_block(samples(burst(name, now), name, since=now - 2700), world.server.data)
        world.server.start()

        def more():
            again = world.profile(name)
            return again if whole(again)[0] > counted else None

        again = until(more, what="the new failures are in the status")
        assert whole(again)[0] == counted + 8
        assert seconds(again) - seconds(found) >= quiet - 1, "written no sooner than the quiet time"

        def advised():
            fresh = world.job(name)
            return fresh if fresh["status"]["inputsHash"] != asked["status"]["inputsHash"] else None

        fresh = until(advised, what="advice on the new rate")
        assert ours(fresh)["inputs-hash"] == fresh["status"]["inputsHash"]
        assert rates_used(fresh)["pod"] > rates_used(asked)["pod"]
        interval = "checkpoint-interval-seconds"
        assert int(ours(fresh)[interval]) < int(ours(asked)[interval]), "more failures, more checkpoints"


def seconds(profile):
    """When the history of a status was written. [s]"""
    return time.mktime(time.strptime(profile["status"]["historyTime"], "%Y-%m-%dT%H:%M:%SZ"))


@pytest.mark.parametrize(
    "watched",
    [
        pytest.param(60.0, marks=pytest.mark.slow, id="one minute"),
        pytest.param(600.0, marks=pytest.mark.soak, id="ten minutes"),
    ],
)
def test_while_nothing_changes_nothing_is_written(cluster, processes, binaries, tmp_path, watched):
    """Looks at history every second, at every object every five, scrapes and probes: the audit log stays as it is."""
    pasts = {
        "high": lambda name: past_of(name, TWO_PERCENT),
        "half": lambda name: past_of(name, days=DAYS // 2),
    }
    flags = ("--prometheus-interval=1", "--quiet=2")
    with world_of(cluster, processes, tmp_path, pasts, *flags) as (world, names):
        world.learned(names["high"], "Complete")
        world.learned(names["half"], "HistoryIncomplete")
        before, end = settled(world.advisor), time.monotonic() + watched
        looks = world.metric("mofa_advisor_history_requests_total", outcome="Answered")
        while time.monotonic() < end:
            assert world.advisor.probe("healthz")["ok"]
            nodes.recover(cluster, f"{names['high']}-0")  # a kubelet says that its node is alive
            time.sleep(2.0)
        assert world.metric("mofa_advisor_history_requests_total", outcome="Answered") > looks + watched / 20
        assert world.advisor.writes(before) == []


# ------------------------------------------------------------------------------- the same annotations


def test_the_command_line_gives_the_annotations_that_the_operator_wrote(
    cluster, processes, binaries, namespace, tmp_path, capsys
):
    """The example, a job on all ready nodes, and the example of a JobSet: by the profile as it stands in the cluster."""
    yaml = YAML(typ="safe")
    install(cluster, JOB_SET)
    profile = yaml.load((EXAMPLES / "h100-east.yaml").read_text("utf-8"))
    del profile["status"]
    every = job(namespace, "h100-east") | {"metadata": {"name": "on-all-nodes"}}
    del every["spec"]["cluster"]["nodes"]
    (tmp_path / "every.yaml").write_text(json.dumps(every))
    files = (EXAMPLES / "llama3-405b.yaml", tmp_path / "every.yaml", EXAMPLES / "jobset.yaml")
    pasts = {"east": lambda name: past_of(name, labels={"nvidia.com/gpu.product": nodes.PRODUCT})}
    try:
        with world_of(cluster, processes, tmp_path, pasts, "--prometheus-interval=5"):
            cluster.apply(profile)

            def learned():
                found = yaml.load(cluster.kubectl("get", "cprof", "h100-east", "-o", "yaml"))
                return found if found.get("status", {}).get("failures") else None

            until(learned, PATIENCE)
            live = tmp_path / "live.yaml"
            for file in files:
                cluster.kubectl("apply", "-n", namespace, "-f", file)
            for file in files:
                for body in (
                    one for one in yaml.load_all(file.read_text("utf-8")) if one["kind"] != "AdvisorPolicy"
                ):
                    asked = (body["kind"], body["metadata"]["name"], "-n", namespace, "-o", "json")
                    written = until(
                        lambda asked=asked: without_moment(
                            json.loads(cluster.kubectl("get", *asked)), whole=True
                        ),
                        PATIENCE,
                        what=" ".join(asked[:2]),
                    )
                    live.write_text(cluster.kubectl("get", "cprof", "h100-east", "-o", "yaml"))
                    capsys.readouterr()
                    assert main(["annotate", str(file), "--profile", str(live)]) == 0
                    told = [
                        one for one in yaml.load_all(capsys.readouterr().out) if one["kind"] == body["kind"]
                    ]
                    assert [without_moment(one) for one in told] == [written]
    finally:
        cluster.kubectl("delete", "clusterprofile", "h100-east", "--ignore-not-found")


def without_moment(body, *, whole=False):
    """Our annotations on an object but computed-at; where it must be whole, None until every one of them is there."""
    found = ours(body)
    found.pop("computed-at", None)
    is_whole = {key.removeprefix(PREFIX) for key in OUTPUTS} - {"computed-at"} <= set(found)
    return found if is_whole or not whole else None
