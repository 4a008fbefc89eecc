"""Once a day a pool's own past is replayed: status, metric, page and command say the same of it."""

import json
from dataclasses import replace

import pytest
from operator_objects import NOW, SETTINGS, profile
from operator_objects import applied as by_the_server

from mofa_model.answers.what_would_help import past_of
from mofa_model.cli import main
from mofa_model.manifest.cluster_profile import ClusterProfileStatus
from mofa_model.reliability.remedies import RemedySettings, what_would_help
from mofa_model.spec.evidence import FailureEvidence
from mofa_operator.decide.pool import profile as decide
from mofa_operator.decide.remedies import replay_is_due
from mofa_operator.keys import CLUSTER_PROFILE
from mofa_operator.metrics.declared import POOLS
from mofa_operator.objects import live
from mofa_operator.page.profiles import profile_page
from mofa_operator.snapshot import History, NodeCount, ProfileSnapshot

DAY = 86400.0
NODES = NodeCount(total=4, ready=4, gpus={8: 4}, names=("a", "b", "c", "d"))
HISTORY = History(
    classes={"process": FailureEvidence(node_days=100.0, failures=1)},
    node_days=100.0,
    window=30 * DAY,
    coverage=1.0,
    at=NOW,
)


def document(hangs=8, days=30):
    """The past of a pool of five nodes. A job on four of them hangs for two hours every third day,
    and nobody notices.
    """
    stop = {
        "kind": "job",
        "job": "ml/x",
        "cause": "hang",
        "nodes": [],
        "infrastructure_share": 1.0,
        "stood": 4,
        "phases": {"detect": 7200.0, "drain": 60.0, "queue": 20.0, "start": 100.0, "load": 220.0},
    }
    every = days * DAY / (hangs + 1)
    at = [every * number for number in range(1, hangs + 1)]
    told = {"date": "2026-11-21", "machines_node_days": 0.0, "estimated_node_days": 0.0}
    kept, stood = 4 * days * 0.9, 4 * days * 0.1
    return {
        "start": 0.0,
        "end": days * DAY,
        "incidents": [{**stop, "start": start, "end": start + 7600.0} for start in at],
        "exposure": {"by_node": {f"n{number}": float(days) for number in range(5)}},
        "account": {
            "rows": [
                {**told, "job": "ml/x", "state": "kept", "cause": "", "node_days": kept},
                {**told, "job": "ml/x", "state": "restarting", "cause": "hang", "node_days": stood},
                {**told, "job": "", "state": "idle", "cause": "no-job", "node_days": days},
            ]
        },
    }


def helps(**more):
    settings = RemedySettings(gpus_per_node=8, intervals=())
    return what_would_help(past_of(document(**more), "a past"), settings)


def snapshot(body, history=HISTORY, now=NOW):
    return ProfileSnapshot(
        profile=live(CLUSTER_PROFILE, body), node_count=NODES, history=history, now=now
    )


def written(**more):
    """A profile after its past was replayed."""
    body = profile()
    decision = decide(snapshot(body, replace(HISTORY, helps=helps(**more))), SETTINGS)
    return by_the_server(body, decision)


def test_eight_hangs_of_two_hours_are_453_gpu_hours_that_a_watchdog_of_two_minutes_gains():
    """118 min of 4 nodes of 8 GPUs, eight times, of which nine tenths train: 453 GPU-hours."""
    status = written()["status"]["whatWouldHelp"]
    first = status["changes"][0]
    assert first["change"] == "watchdog"
    assert float(first["gained"]["target"]) == pytest.approx(8 * 118 / 60 * 32 * 0.9, rel=1e-3)
    assert 0 < float(first["gained"]["lower"]) < float(first["gained"]["target"])
    assert first["says"].startswith("A watchdog of 2 min: 453 GPU-hours gained (")
    assert (status["outcome"], status["days"]) == ("Recommended", "30")
    assert float(status["paidGpuHours"]) == 5 * 30 * 24 * 8
    assert status["effectivePercent"] == 72  # 108 of 150 node-days
    assert len({one["change"] for one in status["changes"]}) == len(status["changes"]) <= 5
    ClusterProfileStatus.model_validate({"whatWouldHelp": status})


@pytest.mark.parametrize(
    "more, outcome", [({"days": 9}, "LowConfidence"), ({"hangs": 0}, "NoRecommendation")]
)
def test_a_short_past_and_one_without_standstills_say_so(more, outcome):
    status = written(**more)["status"]["whatWouldHelp"]
    assert status["outcome"] == outcome
    assert status["doubt"].endswith(".")
    assert bool(status.get("changes")) is (outcome == "LowConfidence")


def test_an_answer_stands_for_a_day_and_a_restart_keeps_it():
    body = written()
    pool = live(CLUSTER_PROFILE, body)
    assert replay_is_due(live(CLUSTER_PROFILE, profile()), NOW)
    assert not replay_is_due(pool, NOW + DAY - 1)
    assert replay_is_due(pool, NOW + DAY)
    for history in (HISTORY, None):  # looks that did not replay, and an operator that starts
        again = decide(snapshot(body, history, NOW + 3600.0), SETTINGS)
        assert again.is_silent, again
    unread = {**body, "spec": {**body["spec"], "gpusPerNode": -1}}
    kept = decide(snapshot(unread), SETTINGS).status["whatWouldHelp"]
    assert kept == body["status"]["whatWouldHelp"]


def test_command_status_metric_and_page_say_the_same(tmp_path, capsys):
    body = written()
    file = tmp_path / "past.json"
    file.write_text(json.dumps(document()))
    assert main(["rates", "--what-would-help", str(file), "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    status = body["status"]["whatWouldHelp"]
    of_plans = [one for one in told["best"] if not one.startswith("A save every")]
    assert [one["says"] for one in status["changes"]][: len(of_plans)] == of_plans
    assert told["status"] == status["outcome"]

    figures = decide(snapshot(body), SETTINGS).figures
    (metric,) = [one for one in POOLS if one.name == "mofa_pool_would_help_gpu_hours"]
    exported = metric.read(figures)
    assert exported == {
        (one["change"], bound): float(one["gained"][bound])
        for one in status["changes"]
        for bound in ("lower", "target", "upper")
    }
    page = profile_page(live(CLUSTER_PROFILE, body))
    assert all(one["says"] in page for one in status["changes"])
    assert "Of 28,800 GPU-hours paid in 30 days 20,736 trained and were kept: 72.0%." in page
