"""A layout goes from `advise` to `ettr` and `simulate`, a FailureLedger says what fails, and jobs
share a pool.
"""

from __future__ import annotations

import json

import pytest

import mofa_model
from mofa_model.cli import main

ASKED = {
    "model": "llama3-8b",
    "gpu": "h100",
    "gpus": 64,
    "global_batch_size": 256,
    "sequence_length": 8192,
}
LEDGER = """\
apiVersion: mofa.dev/v1alpha1
kind: FailureLedger
metadata: {name: east}
status:
  days:
"""
DAY = """\
  - date: "2026-0{month}-{day:02d}"
    witness: Prometheus
    coveredSeconds: 86400
    classes:
    - {{name: process, failures: 0, exposureNodeDays: "100"}}
    - {{name: pod, failures: {pods}, exposureNodeDays: "100", recoveries: {pods}, recoverySeconds: {seconds}}}
"""


@pytest.fixture
def ledger(tmp_path):
    """Sixty days of 100 nodes, one pod failure on each, of 500 s."""
    days = [
        DAY.format(month=1 + day // 30, day=1 + day % 30, pods=1, seconds=500) for day in range(60)
    ]
    file = tmp_path / "ledger.yaml"
    file.write_text(LEDGER + "".join(days))
    return str(file)


@pytest.fixture(scope="module")
def layout(tmp_path_factory):
    """What `mofa advise -o json` says of an 8B under a plan."""
    found = mofa_model.advise(
        **ASKED, failure_rate=0.5, recovery=("in-place", "stand-in"), by_estimate=True
    )
    file = tmp_path_factory.mktemp("layout") / "advice.json"
    file.write_text(json.dumps(found.to_dict()))
    return found, str(file)


def told(capsys, *words):
    code = main([*words, "-o", "json"])
    said = capsys.readouterr()
    return code, json.loads(said.out) if said.out else {}, said.err


def test_the_layout_of_an_advice_has_the_ettr_that_the_advice_predicts(layout):
    found, file = layout
    again = mofa_model.ettr(layout=file)
    assert again.ettr == pytest.approx(found.predicted.ettr.target, abs=1e-4)
    assert again.interval_steps == found.checkpoint_interval_steps


def test_events_on_the_layout_of_an_advice_keep_what_the_advice_predicts(layout):
    found, file = layout
    runs = mofa_model.simulate(layout=file, duration="20d", runs=30, seed=3)
    error = runs.document["ettr"]["error"]
    assert runs.document["recovery"] == found.advice.recovery
    assert abs(runs.ettr - found.predicted.ettr.target) < 0.003 + 3 * error


def test_what_is_said_beside_a_layout_stands_before_it(layout):
    _, file = layout
    quiet = mofa_model.ettr(layout=file, rate=0.0001)
    assert quiet.ettr > mofa_model.ettr(layout=file).ettr
    assert mofa_model.ettr(layout=file, save="60 s").ettr < mofa_model.ettr(layout=file).ettr


def test_a_ledger_of_one_pod_failure_in_100_node_days_is_that_rate_and_its_recovery(ledger):
    seen = mofa_model.ettr(nodes=256, step="10 s", ledger=ledger)
    stated = mofa_model.ettr(
        nodes=256, step="10 s", rate=0.01, prior_weight=50, classes="pod:1:500s:lognormal:1"
    )
    assert seen.ettr == pytest.approx(stated.ettr, abs=0.003)


def test_a_pool_of_jobs_by_a_ledger_says_when_each_is_done(ledger, capsys):
    words = ["simulate", "--nodes", "20", "--step", "10s", "--spares", "2", "--ledger", ledger]
    jobs = ["--job", "big:16:3d", "--job", "small:8:1d:1", "--duration", "30d", "--runs", "20"]
    code, found, _ = told(capsys, *words, *jobs)
    big, small = found["jobs"]
    assert code == 0
    assert 86_400 < small["finish_s"]["p50"] < 1.1 * 86_400
    assert 4 * 86_400 < big["finish_s"]["p10"] <= big["finish_s"]["p50"] <= big["finish_s"]["p90"]
    assert big["queued_s"] == pytest.approx(small["finish_s"]["p50"], rel=0.05)
    shares = [found[name] for name in ("held_share", "broken_share", "idle_share")]
    assert sum(shares) == pytest.approx(1.0)
    assert 0 < found["ettr"]["p10"] <= found["ettr"]["mean"] < found["held_share"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "--nodes"),
        (("--nodes", "8"), "--step"),
        (("--layout", "/nowhere.json"), "/nowhere.json"),
        (("--nodes", "8", "--step", "1s", "--job", "a:16:1d"), "--job"),
        (("--nodes", "8", "--step", "1s", "--job", "a:4"), "NAME:NODES:TRAINING"),
        (("--nodes", "8", "--step", "1s", "--job", "a:4:1d:soon"), "priority"),
        (("--nodes", "8", "--step", "1s", "--job", "a:4:1d", "--job", "a:2:1d"), "name"),
        (("--nodes", "8", "--step", "1s", "--job", "a:4:1d", "--timeline", "3"), "--timeline"),
    ],
)
def test_a_question_that_cannot_be_answered_says_what_is_wrong(words, said, capsys):
    code, _, error = told(capsys, "simulate", *words)
    assert code == 2
    assert said in error


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"job": 3}', '{"job": {"nodes": "many"}}'])
def test_a_file_without_a_layout_is_refused(text, tmp_path, capsys):
    file = tmp_path / "advice.json"
    file.write_text(text)
    code, _, error = told(capsys, "simulate", "--layout", str(file))
    assert code == 2
    assert "advise" in error or "--nodes" in error


@pytest.mark.parametrize(
    ("text", "said"),
    [("kind: Pod\n", "FailureLedger"), (LEDGER + "  - {date: x}\n", "status"), ("{", "YAML")],
)
def test_a_file_without_a_ledger_is_refused(text, said, tmp_path, capsys):
    file = tmp_path / "ledger.yaml"
    file.write_text(text)
    words = ("ettr", "--nodes", "8", "--step", "1s", "--ledger", str(file))
    code, _, error = told(capsys, *words)
    assert code == 2
    assert said in error


def test_a_ledger_and_a_rate_are_refused_together(ledger, capsys):
    words = ("ettr", "--nodes", "8", "--step", "1s", "--ledger", ledger, "--rate", "0.1")
    code, _, error = told(capsys, *words)
    assert code == 2
    assert "--ledger" in error
    assert "--rate" in error
