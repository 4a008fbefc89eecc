"""Failures that a profile knows without Prometheus, or for longer than Prometheus does: on the real
API server.
"""

import json
import shutil
import time

import pytest
from advisor import Advisor, condition, until
from door import APPLY, Door, path
from foreign import install
from lived import BUSY, FOUR_PERCENT, past_of, rows, samples, whole, world_of
from mofa_local import nodes
from mofa_local.blocks import write_block
from mofa_local.synthetic import DAY
from pools import pool

from mofa_model.cli import main
from mofa_model.kinds import JOB_SET
from mofa_operator.keys import CLUSTER_PROFILE

FLAGS = ("--settle=1", "--resync=5", "--backoff=0.2", "--prometheus-interval=1", "--quiet=2")
KNOWN = 10
"""Days that the server knows at first."""


def job_set(namespace, name):
    """A JobSet of two pods that fill two nodes of a pool."""
    container = {
        "name": "train",
        "image": "train",
        "resources": {"limits": {"nvidia.com/gpu": "8"}},
    }
    pod = {"nodeSelector": {"example.org/pool": name}, "containers": [container]}
    return {
        "apiVersion": JOB_SET.api_version,
        "kind": "JobSet",
        "metadata": {"namespace": namespace, "name": "llama"},
        "spec": {
            "replicatedJobs": [
                {"name": "w", "replicas": 2, "template": {"spec": {"template": {"spec": pod}}}}
            ]
        },
    }


def tell(cluster, namespace, restarts, ready=2):
    """What JobSet's controller would write."""
    told = {
        "restarts": restarts,
        "replicatedJobsStatus": [
            {"name": "w", "ready": ready, "succeeded": 0, "active": 2, "failed": 0, "suspended": 0}
        ],
    }
    cluster.kubectl(
        "patch", JOB_SET.resource, "llama", "-n", namespace,
        "--type=merge", "--subresource=status", "-p", json.dumps({"status": told}),
    )  # fmt: skip


def as_version_0_1_0(cluster, name):
    """A profile as that version left it: days in its status, and no ledger."""
    known = json.loads(cluster.kubectl("get", "failureledger,clusterprofile", "-o", "json"))[
        "items"
    ]
    found = {one["kind"]: one["status"] for one in known if one["metadata"]["name"] == name}
    body = {
        "apiVersion": CLUSTER_PROFILE.api_version,
        "kind": "ClusterProfile",
        "metadata": {"name": name},
        "status": found["ClusterProfile"] | {"days": found["FailureLedger"]["days"]},
    }
    cluster.kubectl("delete", "failureledger", name)
    with Door(cluster) as door:
        where = path(CLUSTER_PROFILE, "", name, status=True)
        status, said = door.ask("PATCH", where, body, content=APPLY, user=None, force="true")
    assert status == 200, said
    assert said["status"]["days"]


@pytest.mark.parametrize("kills", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_without_prometheus_restarts_of_job_sets_and_lost_nodes_are_counted_and_survive_a_kill(
    cluster, processes, binaries, namespace, kills
):
    install(cluster, JOB_SET)
    advisor = Advisor(cluster, processes, "operator-ledger")

    def strict(_name):
        """A node that is away for half a minute is lost."""
        return {"incidents": {"shortestOutageSeconds": 30}}

    with pool(cluster, 4) as busy, pool(cluster, 4, spec=strict) as idle:

        def counted(name):
            status = json.loads(cluster.kubectl("get", "cprof", name, "-o", "json"))["status"]
            return {row["name"]: row["failures"] for row in status.get("failures") or ()}

        cluster.apply(job_set(namespace, busy))
        tell(cluster, namespace, 0)
        advisor.start(*FLAGS)
        try:
            time.sleep(5.0)  # a few looks at how things stand
            assert (counted(busy), counted(idle)) == ({}, {}), "nothing failed yet"
            tell(cluster, namespace, 2)
            nodes.fail(cluster, f"{idle}-1")
            until(lambda: counted(busy) == {"pod": 0, "job": 2}, what="restarts 0 to 2")
            until(lambda: counted(idle) == {"pod": 1}, what="a node went down")
            for _ in range(kills):
                advisor.kill()
                as_version_0_1_0(cluster, idle)
                advisor.start(*FLAGS)
                time.sleep(3.0)
                assert (counted(busy)["job"], counted(idle)) == (2, {"pod": 1}), (
                    "what stands is not counted again"
                )
            tell(cluster, namespace, 3)
            nodes.fail(cluster, f"{idle}-2")
            until(lambda: counted(busy) == {"pod": 0, "job": 3}, what="one restart more")
            until(lambda: counted(idle) == {"pod": 2}, what="another node went down")
            moved = json.loads(cluster.kubectl("get", "failureledger", idle, "-o", "json"))[
                "status"
            ]
            assert moved["failures"] == 2, "one from before the upgrade, one from after it"
            found = json.loads(cluster.kubectl("get", "cprof", busy, "-o", "json"))
            said = condition(found, "HistoryComplete")
            assert said["reason"] == "HistoryIncomplete"
            assert "seen by the watch alone since" in said["message"]
            book = json.loads(cluster.kubectl("get", "failureledger", busy, "-o", "json"))
            assert {day["witness"] for day in book["status"]["days"]} == {"Watch"}
            assert [one["uid"] for one in book["metadata"]["ownerReferences"]] == [
                found["metadata"]["uid"]
            ]
            assert not {"days", "weeks"} & found["status"].keys()
            shown = cluster.kubectl("get", "fled", busy, "--no-headers").split()
            assert shown[:3] == [busy, book["status"]["since"], "3"]
            assert all(float(row["exposureNodeDays"]) > 0 for row in found["status"]["failures"])
        finally:
            advisor.stop()
            cluster.kubectl("delete", JOB_SET.resource, "llama", "-n", namespace)


def account_at_every_door(world, name, capsys):
    """Node-days by state, which ledger, metrics and `kubectl mofa top` tell to the digit."""
    told = {}

    def agreed():
        rows = [row for day in world.days(name) for row in day.get("account", ())]
        by_state = {row["state"]: 0.0 for row in rows}
        for row in rows:
            by_state[row["state"]] = round(by_state[row["state"]] + float(row["nodeDays"]), 4)
        shown = {
            state: world.metric("mofa_pool_node_days", pool=name, state=state) for state in by_state
        }
        capsys.readouterr()
        assert main(["top", "--told", "-o", "json"]) == 0
        top = json.loads(capsys.readouterr().out)["accounts"].get(name, {}).get("node_days")
        told.update(by_state)
        return bool(by_state) and by_state == shown == top

    until(agreed, what="one account at every door")
    return told


@pytest.mark.parametrize(
    "known",
    [(3, KNOWN), pytest.param((3, 6, KNOWN), marks=pytest.mark.soak)],
    ids=lambda known: f"{len(known)} times",
)
def test_a_server_that_forgets_takes_nothing_away_and_what_comes_back_is_counted_once(
    cluster, processes, binaries, tmp_path, known, monkeypatch, capsys
):
    """It knows three days of ten, or then six, and all of them again."""
    pasts = {}

    def past(name):
        return pasts.setdefault(name, past_of(name, FOUR_PERCENT, days=KNOWN))

    flags = ("--prometheus-interval=1", "--quiet=2", "--prometheus-timeout=3")
    with world_of(cluster, processes, tmp_path, {"east": past}, *flags) as (world, names):
        name = names["east"]
        found, _ = world.learned(name, "HistoryIncomplete")
        before = rows(found)
        assert whole(found) == (46, pytest.approx(BUSY * KNOWN, rel=0.02))
        days = world.days(name)
        dates = {day["date"] for day in days if day["witness"] == "Prometheus"}
        assert len(dates) in {KNOWN, KNOWN + 1}
        kept = [row for day in days for row in day["classes"] if day["date"] in dates]
        assert sum(row["failures"] for row in kept) == 46
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
        account = account_at_every_door(world, name, capsys)
        now = time.time()
        for since in (0.0 if one == KNOWN else now - one * DAY for one in known):
            world.server.stop()
            world.learned(name, "HistoryUnavailable")
            shutil.rmtree(world.server.data)
            write_block(samples(past(name), name, since=since), world.server.data)
            world.server.start()
            again, _ = world.learned(name, "HistoryIncomplete")
            looks = world.metric("mofa_advisor_history_requests_total", outcome="Answered")

            def looked(looks=looks):
                return (
                    world.metric("mofa_advisor_history_requests_total", outcome="Answered")
                    > looks + 4
                )

            until(looked, what="a few looks more")
            again = world.profile(name)
            assert rows(again) == before
            assert whole(again)[0] == 46
            kept = {day["date"] for day in world.days(name) if day["witness"] == "Prometheus"}
            assert dates <= kept
            shown = world.metric("mofa_pool_exposure_node_days", pool=name)
            assert shown == pytest.approx(whole(found)[1], rel=0.01), (
                "metrics show the ledger, not the server"
            )
            again = account_at_every_door(world, name, capsys)
            assert sum(again.values()) == pytest.approx(sum(account.values()), rel=0.01)
