"""`mofa rates --what-would-help` reads what `mofa incidents --account` writes, and refuses
everything else by name.
"""

import json

import pytest

from mofa_model.answers.what_would_help import past_of
from mofa_model.cli import main

STOP = {
    "kind": "job",
    "job": "ml/x",
    "start": 100_000.0,
    "end": 107_600.0,
    "cause": "hang",
    "nodes": [],
    "infrastructure_share": 1.0,
    "stood": 4,
    "phases": {"detect": 7200.0, "drain": 60.0, "queue": 20.0, "start": 100.0, "load": 220.0},
}


def row(state, cause, node_days, job="ml/x"):
    return {
        "date": "2026-11-21",
        "job": job,
        "state": state,
        "cause": cause,
        "node_days": node_days,
        "machines_node_days": 0.0,
        "estimated_node_days": 0.0,
    }


def document(*incidents):
    rows = [
        row("kept", "", 30.0),
        row("redone", "hang", 4 * 1800 / 86400),
        row("idle", "no-job", 5.0, ""),
    ]
    return {
        "start": 0.0,
        "end": 864_000.0,
        "incidents": list(incidents),
        "exposure": {"by_node": {"n1": 10.0}},
        "account": {"rows": rows},
    }  # fmt: skip


def asked(tmp_path, capsys, text, *more):
    file = tmp_path / "past.json"
    file.write_text(text)
    code = main(["rates", "--what-would-help", str(file), *more])
    told = capsys.readouterr()
    return code, told.out, told.err


def test_a_hang_of_two_hours_is_what_a_watchdog_would_have_helped(tmp_path, capsys):
    code, out, _ = asked(
        tmp_path, capsys, json.dumps(document(STOP)), "--gpus-per-node", "8", "-o", "json"
    )
    found = {one["name"]: one for one in json.loads(out)["remedies"]}
    assert code == 0
    kept = 30 / (30 + 4 * 1800 / 86400)
    assert found["a watchdog of 20 min"]["gained_gpu_hours"] == pytest.approx(
        100 / 60 * 4 * 8 * kept
    )
    assert json.loads(out)["effective_share"] == pytest.approx(30 / (35 + 4 * 1800 / 86400))


def test_work_that_only_the_account_has_is_spread_over_the_standstills_of_its_cause():
    """Half an hour of four nodes in all; the run before the second stop was ten minutes long."""
    soon = {**STOP, "start": 108_200.0, "end": 108_600.0}
    first, second = past_of(document(STOP, soon), "-").standstills
    assert (first.lost_work, second.lost_work) == (1200.0, 600.0)


def test_a_resubmission_is_no_standstill_and_begins_a_run():
    again = {**STOP, "cause": "resubmission", "start": 50_000.0, "end": 51_000.0}
    (stop,) = past_of(document(again, STOP), "-").standstills
    assert stop.trained == 49_000.0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is no JSON"),
        ("[]", "is no account of a pool"),
        ("{}", "account"),
        (json.dumps(document({**STOP, "stood": "many"})), "is no account of a pool"),
        (json.dumps(document({**STOP, "start": "NaN"})), "finite"),
        (json.dumps({**document(), "end": 0.0}), "end is not after start"),
    ],
)
def test_what_is_no_account_is_refused_with_how_to_write_one(tmp_path, capsys, text, said):
    code, out, err = asked(tmp_path, capsys, text)
    assert (code, out) == (2, "")
    assert said in err
    assert "mofa incidents" in err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--gpus-per-node", "0"), "--gpus-per-node"),
        (("--replicas", "-1"), "--replicas"),
        (("--save", "soon"), "--save"),
        (("--failures", "4"), "--what-would-help"),
    ],
)
def test_bad_options_are_named(tmp_path, capsys, more, said):
    code, _, err = asked(tmp_path, capsys, json.dumps(document(STOP)), *more)
    assert code == 2
    assert said in err
