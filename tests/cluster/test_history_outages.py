"""History that goes away, comes back, grows, or stays as it is; and the command line's advice
beside the operator's.
"""

import dataclasses
import json
import shutil
import time

import pytest
from advisor import condition, ours, until
from foreign import install
from lived import (
    BUSY,
    DAYS,
    FOUR_PERCENT,
    NODES,
    PATIENCE,
    job,
    past_of,
    rates_used,
    rows,
    samples,
    whole,
    world_of,
)
from mofa_local import nodes
from mofa_local.blocks import write_block
from mofa_local.synthetic import Incident, Job, draw, node_names
from pools import EXAMPLES, settled
from ruamel.yaml import YAML

from mofa_model.annotations import OUTPUTS, PREFIX
from mofa_model.cli import main
from mofa_model.kinds import JOB_SET

# ------------------------------------------------------------------------------------------- outages


@pytest.mark.soak
def test_a_server_that_never_answered_leaves_the_assumption_and_says_so_once(
    cluster, processes, binaries, tmp_path, capsys
):
    pasts = {"east": lambda name: past_of(name, FOUR_PERCENT)}
    flags = ("--prometheus-interval=2", "--quiet=5", "--prometheus-timeout=3")
    with world_of(cluster, processes, tmp_path, pasts, *flags, serving=False) as (world, names):
        name = names["east"]
        found, asked = world.learned(name, "HistoryUnavailable", "cannot be connected to")
        assert not found["status"].get("failures")
        assert condition(asked, "Ready")["reason"] == "PriorDominated"
        assert rates_used(asked) == {"process": 1.5, "pod": 3.0, "job": 0.5}
        assert world.metric("mofa_pool_exposure_node_days", pool=name) is None, (
            "missing is not zero"
        )
        assert world.metric("mofa_advisor_history_requests_total", outcome="HistoryUnavailable") > 0
        before = settled(world.advisor)
        time.sleep(5.0)
        assert world.advisor.writes(before) == [], "an outage that goes on is no news"
        until(
            lambda: [reason for reason, _ in world.events(name)] == ["HistoryUnavailable"],
            what="one Event",
        )
        code, told, said = world.rates(name, capsys)
        assert (code, told, said.count("\n")) == (4, None, 1)
        assert "cannot be connected to" in said
        world.server.start()
        found, again = world.learned(name, "Complete")
        assert whole(found)[0] == 46
        assert again["status"]["inputsHash"] != asked["status"]["inputsHash"]


@pytest.mark.soak
@pytest.mark.parametrize("episodes", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_outages_and_renamed_nodes_keep_what_was_learned_and_the_advice(
    cluster, processes, binaries, tmp_path, capsys, episodes
):
    pasts = {"east": lambda name: past_of(name, FOUR_PERCENT)}
    flags = ("--prometheus-interval=2", "--quiet=2", "--prometheus-timeout=3")
    with world_of(cluster, processes, tmp_path, pasts, *flags) as (world, names):
        name = names["east"]
        found, asked = world.learned(name, "Complete")
        settled(world.advisor)
        for _ in range(episodes):
            world.server.stop()
            during, job_during = world.learned(name, "HistoryUnavailable")
            assert rows(during) == rows(found)
            assert during["status"]["total"] == found["status"]["total"]
            assert ours(job_during) == ours(asked)
            for part in ("inputsHash", "computedTime", "recommendation", "inputs"):
                assert job_during["status"].get(part) == asked["status"].get(part), part
            assert (
                "what was learned before is used"
                in condition(job_during, "HistoryComplete")["message"]
            )
            assert world.metric("mofa_pool_exposure_node_days", pool=name) == pytest.approx(
                whole(found)[1]
            )
            assert world.rates(name, capsys)[0] == 4
            world.server.start()
            after, job_after = world.learned(name, "Complete")
            assert rows(after) == rows(found)
            assert ours(job_after) == ours(asked)
            assert job_after["status"]["inputsHash"] == asked["status"]["inputsHash"]
        told = [reason for reason, _ in world.events(name)]
        assert sorted(told) == ["AssumptionContradicted", "HistoryUnavailable"]
        assert [reason for reason, _ in world.events(name, "TrainingJob")].count(
            "RecommendationChanged"
        ) <= 1
        world.server.stop()
        shutil.rmtree(world.server.data)
        write_block(renamed(past_of(name, FOUR_PERCENT, days=5), name), world.server.data)
        world.server.start()
        during, job_during = world.learned(name, "NodeNamesDiffer", "honor_labels: true")
        assert rows(during) == rows(found)
        assert during["status"]["total"] == found["status"]["total"]
        assert ours(job_during) == ours(asked)
        said = condition(during, "HistoryComplete")
        assert said["status"] == "False"
        assert f"node says '{name}-000.example.org'" in said["message"]
        assert "what was learned before is used" in said["message"]
        until(
            lambda: sum("honor_labels" in text for _, text in world.events(name)) == 1,
            what="one Event",
        )


def renamed(past, name):
    """A past as a scrape shows it that writes the names of nodes in another form."""
    for series, runs in samples(past, name):
        labels = series.labels
        if "node" in labels:
            labels = labels | {"node": f"{labels['node']}.example.org"}
        yield series._replace(labels=labels), runs


# ------------------------------------------------------------------------------- more failures, and none


def burst(name, now):
    """The past of a pool whose eight jobs of four nodes all lost a pod in its last forty minutes,
    beside the 46 of before.
    """
    past = draw(
        end=now,
        nodes=NODES,
        days=DAYS,
        jobs=tuple(Job(name=f"{name}-{number}", nodes=BUSY // 8) for number in range(8)),
        failures=FOUR_PERCENT,
        labels={"example.org/pool": name},
    )
    early = [one for one in past.incidents if one.at < now - 7200]
    late = [
        Incident(at=now - 2400 + 60 * number, job=job.name, level="pod", recovery=280.0)
        for number, job in enumerate(past.jobs)
    ]
    return dataclasses.replace(past, nodes=node_names(NODES, name), incidents=(*early, *late))


@pytest.mark.soak  # a look at the same five minutes reads nothing: the next ones have to come
def test_failures_that_are_back_filled_are_advised_on_after_the_quiet_time(
    cluster, processes, binaries, tmp_path
):
    now, quiet = int(time.time()) // 300 * 300, 20.0
    pasts = {"east": lambda name: burst(name, now)}
    flags = ("--prometheus-interval=2", f"--quiet={quiet:g}")
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

        again = until(more, 330.0, what="the new failures are in the status")
        assert whole(again)[0] == counted + 8
        assert seconds(again) - seconds(found) >= quiet - 1, "written no sooner than the quiet time"

        def advised():
            fresh = world.job(name)
            return fresh if fresh["status"]["inputsHash"] != asked["status"]["inputsHash"] else None

        fresh = until(advised, what="advice on the new rate")
        assert ours(fresh)["inputs-hash"] == fresh["status"]["inputsHash"]
        assert rates_used(fresh)["pod"] > rates_used(asked)["pod"]
        interval = "checkpoint-interval-seconds"
        assert int(ours(fresh)[interval]) < int(ours(asked)[interval]), (
            "more failures, more checkpoints"
        )


def seconds(profile):
    """When the history of a status was written. [s]"""
    return time.mktime(time.strptime(profile["status"]["historyTime"], "%Y-%m-%dT%H:%M:%SZ"))


WATCHED = 600.0
"""How long nothing changes. [s]"""


@pytest.mark.soak
def test_while_nothing_changes_nothing_is_written(cluster, processes, binaries, tmp_path):
    """Looks at history every second, at every object every five, scrapes and probes: the audit log
    stays as it is.
    """
    pasts = {
        "high": lambda name: past_of(name, FOUR_PERCENT),
        "half": lambda name: past_of(name, days=DAYS // 2),
    }
    flags = ("--prometheus-interval=2", "--quiet=2")
    with world_of(cluster, processes, tmp_path, pasts, *flags) as (world, names):
        world.learned(names["high"], "Complete")
        world.learned(names["half"], "HistoryIncomplete")
        before, end = settled(world.advisor), time.monotonic() + WATCHED
        looks = world.metric("mofa_advisor_history_requests_total", outcome="Answered")
        while time.monotonic() < end:
            assert world.advisor.probe("healthz")["ok"]
            nodes.recover(cluster, f"{names['high']}-000")  # a kubelet says that its node is alive
            time.sleep(2.0)
        assert (
            world.metric("mofa_advisor_history_requests_total", outcome="Answered")
            > looks + WATCHED / 20
        )
        assert world.advisor.writes(before) == []


# ------------------------------------------------------------------------------- the same annotations


@pytest.mark.soak
def test_the_command_line_gives_the_annotations_that_the_operator_wrote(
    cluster, processes, binaries, namespace, tmp_path, capsys
):
    """The example, a job on all ready nodes, and the example of a JobSet: by the profile as it
    stands in the cluster.
    """
    yaml = YAML(typ="safe")
    install(cluster, JOB_SET)
    profile = yaml.load((EXAMPLES / "h100-east.yaml").read_text("utf-8"))
    del profile["status"]
    every = job(namespace, "h100-east") | {"metadata": {"name": "on-all-nodes"}}
    del every["spec"]["cluster"]["nodes"]
    files = (EXAMPLES / "llama3-405b.yaml", tmp_path / "every.yaml", EXAMPLES / "jobset.yaml")
    pasts = {"east": lambda name: past_of(name, labels={"nvidia.com/gpu.product": nodes.PRODUCT})}
    try:
        with world_of(cluster, processes, tmp_path, pasts, "--prometheus-interval=5"):
            cluster.apply(profile)

            def learned():
                found = yaml.load(cluster.kubectl("get", "cprof", "h100-east", "-o", "yaml"))
                return found if found.get("status", {}).get("failures") else None

            ready = until(learned, PATIENCE)["status"]["nodes"]["ready"]
            every["spec"]["training"]["globalBatchSize"] = (
                2 * ready
            )  # data parallelism is as wide as the pool
            (tmp_path / "every.yaml").write_text(json.dumps(every))
            live = tmp_path / "live.yaml"
            for file in files:
                cluster.kubectl("apply", "-n", namespace, "-f", file)
            for file in files:
                (body,) = jobs_of(file.read_text("utf-8"))
                named = (body["kind"], body["metadata"]["name"], "-n", namespace, "-o", "json")

                def written(named=named):
                    return without_moment(json.loads(cluster.kubectl("get", *named)), whole=True)

                found = until(written, PATIENCE, what=" ".join(named[:2]))
                live.write_text(cluster.kubectl("get", "cprof", "h100-east", "-o", "yaml"))
                capsys.readouterr()
                assert main(["annotate", str(file), "--profile", str(live)]) == 0
                (told,) = jobs_of(capsys.readouterr().out)
                assert without_moment(told) == found
    finally:
        cluster.kubectl("delete", "clusterprofile", "h100-east", "--ignore-not-found")


def jobs_of(text):
    """The objects of a stream, policies left out."""
    return [one for one in YAML(typ="safe").load_all(text) if one["kind"] != "AdvisorPolicy"]


def without_moment(body, *, whole=False):
    """Our annotations on an object but computed-at; where it must be whole, None until every one of
    them is there.
    """
    found = ours(body)
    found.pop("computed-at", None)
    is_whole = {key.removeprefix(PREFIX) for key in OUTPUTS} - {"computed-at"} <= set(found)
    return found if is_whole or not whole else None
