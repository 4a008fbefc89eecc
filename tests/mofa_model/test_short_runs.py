"""Short runs: which are worth making, and what they say of layouts that did not run."""

from __future__ import annotations

import csv
import json
from dataclasses import replace

import numpy as np
import pytest

from mofa_model.advice import Request, advise, assumed_reliability
from mofa_model.advice.probes import plan
from mofa_model.annotations import inputs_hash
from mofa_model.bands.coordinates import Coordinates
from mofa_model.bands.odds import odds_of
from mofa_model.bands.table import measured_runs
from mofa_model.calibrate.short_runs import with_short_runs
from mofa_model.cli import main
from mofa_model.errors import InputError
from mofa_model.presets import cluster, model, precision
from mofa_model.search import SearchCase
from mofa_model.spec import Training, Workload
from mofa_model.strategy import format_strategy

AT = Coordinates(
    stack="nanotron", device="h100-80gb-sxm", format="bf16", blocks="attention+dense",
    gpus="64", hidden="2048", sequence="4096", layout={"tp": "2", "sp": "true"},
)  # fmt: skip
SOME = [replace(AT, layout={"tp": str(2**n)}) for n in range(4)]
FAR = replace(
    AT, layout={"tp": "2", "offload": "activations", "schedule": "dualpipe", "recompute": "full"}
)
WORDS = ("--model", "llama3-8b", "--gpu", "h100", "--gpus", "64", "--global-batch", "512", "--seq", "8192",
         "--framework", "megatron")  # fmt: skip


def question(**changes):
    training = Training(sequence=8192, global_batch=512, precision=precision("bf16"), tokens=1e12)
    machines = cluster("h100", 64, stack="megatron-core")
    given = {
        "problems": (
            SearchCase(
                workload=Workload(model=model("llama3-8b"), training=training), cluster=machines
            ),
        ),
        "reliability": assumed_reliability(machines.gpus_per_node * machines.host.link.bandwidth),
        "nodes": 8,
        "framework": "megatron",
        "top": 0,
    }
    return Request(**given | changes)


def ran(tmp_path, *rows, name="runs.csv"):
    file = tmp_path / name
    with file.open("w", newline="") as text:
        writer = csv.DictWriter(text, ("strategy", "step_seconds", "memory_gib", "model", "gpus"))
        writer.writeheader()
        writer.writerows(rows)
    return file


def test_a_run_says_most_of_itself_less_of_what_is_near_and_nothing_of_what_is_far():
    seen = odds_of(measured_runs(), [*SOME, FAR])
    after = seen.after({"step": {1: 0.1}})
    own, near, far = after.centres["step"][[1, 2, 4]]
    assert own == pytest.approx(0.1, rel=0.05)
    assert 0.1 * own < near < 0.9 * own
    assert far < 0.05 * own
    left = after.left("step")
    assert left[1] < 0.25 < left[2] < left[4] <= 1.0
    assert np.all(after.left("memory") == 1.0)


def test_two_runs_together_are_what_they_are_one_after_the_other_in_any_order():
    seen = odds_of(measured_runs(), SOME)
    one = seen.after({"step": {0: 0.1, 2: -0.05}})
    other = seen.after({"step": {2: -0.05, 0: 0.1}})
    assert one.centres["step"] == pytest.approx(other.centres["step"])
    assert one.covariance("step") == pytest.approx(other.covariance("step"))
    assert np.linalg.eigvalsh(one.covariance("step")).min() > 0.0
    assert one.subset([1, 3]).centres["step"] == pytest.approx(one.centres["step"][[1, 3]])


def test_what_ran_is_told_apart_by_what_it_took():
    seen = odds_of(measured_runs(), SOME)
    after = seen.after({"step": {0: 0.0, 1: 0.0}})
    pace = np.array([1.0, 1.05, 1.05, 1.05])
    assert seen.beats(0, pace)[1] < 0.85
    assert after.beats(0, pace)[1] > 0.97


def test_runs_are_planned_where_the_choice_loses_most_and_twice_alike():
    seen = odds_of(measured_runs(), SOME)
    none, roomy = np.zeros(4, dtype=bool), np.full(4, 3.0)
    pace = np.array([1.0, 1.01, 1.02, 1.8])
    found = plan(seen, pace, roomy, 3, 0.1, none)
    assert found == plan(seen, pace, roomy, 3, 0.1, none)
    assert set(found.indices[:2]) < {0, 1, 2}
    assert 3 not in found.indices
    assert list(found.regret) == sorted(found.regret, reverse=True)
    assert len(plan(seen, pace, roomy, 9, 0.1, none).indices) == 4
    assert 1 not in plan(seen, pace, roomy, 3, 0.1, np.arange(4) == 1).indices


def test_what_more_likely_fails_than_not_is_not_run_and_what_may_fit_is():
    seen = odds_of(measured_runs(), SOME)
    none, pace = np.zeros(4, dtype=bool), np.array([1.0, 0.8, 0.7, 1.9])
    tight = plan(seen, pace, np.array([3.0, 1.05, 0.8, 3.0]), 2, 0.1, none)
    assert 1 in tight.indices
    assert 2 not in tight.indices


def test_a_measured_layout_is_told_as_it_was_measured_and_moves_the_choice(tmp_path):
    plain = advise(question())
    fast = {
        "strategy": "tp4 mbs2 sp distributed tp-overlap",
        "step_seconds": "5 s",
        "memory_gib": 50,
    }
    taken = with_short_runs(
        question(), ran(tmp_path, fast, {"strategy": "tp2 mbs1 sp", "step_seconds": ""})
    )
    found = advise(taken)
    assert found.strategy.tp == 4
    assert found.predicted.step_seconds.target == pytest.approx(5.0, rel=0.01)
    assert found.predicted.memory_bytes.target == pytest.approx(50 * 2**30, rel=0.01)
    assert found.predicted.step_seconds.upper / found.predicted.step_seconds.target < 1.05
    assert found.odds.fits > 0.99
    assert plain.predicted.step_seconds.target > 6.0
    assert inputs_hash(taken, "1") != inputs_hash(question(), "1")
    assert inputs_hash(question(probe=0, tried=()), "1") == inputs_hash(question(), "1")


def test_what_all_runs_share_moves_every_step_and_no_choice(tmp_path):
    plain = advise(question(top=5))
    steps = [(plain.strategy, plain.predicted)] + [
        (one.strategy, one.predicted) for one in plain.alternatives
    ]
    slow = [
        {"strategy": format_strategy(s), "step_seconds": 1.3 * p.step_seconds.target}
        for s, p in steps[:3]
    ]
    found = advise(with_short_runs(question(), ran(tmp_path, *slow)))
    assert found.predicted.step_seconds.target == pytest.approx(
        1.3 * plain.predicted.step_seconds.target, rel=0.03
    )


def test_a_run_without_room_is_no_choice_and_a_log_is_read(tmp_path):
    plain = advise(question())
    log = "\n".join(f"elapsed time per iteration (ms): {ms} |" for ms in [9000, *[5500] * 8])
    (tmp_path / "probe.log").write_text(log)
    failed = {"strategy": format_strategy(plain.strategy), "step_seconds": "out of memory"}
    good = {"strategy": "tp4 mbs2 sp distributed tp-overlap", "step_seconds": "probe.log"}
    found = advise(with_short_runs(question(), ran(tmp_path, failed, good)))
    assert found.strategy != plain.strategy
    assert found.predicted.step_seconds.target == pytest.approx(5.5, rel=0.01)


def test_what_is_no_run_of_the_question_is_refused_by_name(tmp_path):
    good = {"strategy": "tp4 mbs2 sp", "step_seconds": "6"}
    for change, said in (
        ({"model": "llama3-70b"}, "model"),
        ({"gpus": "32"}, "gpus"),
        ({"strategy": "tp4 mbs3 sp"}, "strategy"),
        ({"strategy": ""}, "strategy"),
        ({"step_seconds": "-1"}, "step_seconds"),
        ({"step_seconds": "6000"}, "look at the unit"),
        ({"step_seconds": "gone.log"}, "gone.log"),
        ({"step_seconds": ""}, "step_seconds"),
    ):
        with pytest.raises(InputError, match=said):
            with_short_runs(question(), ran(tmp_path, good | change))


def test_the_desk_writes_the_launches_and_takes_the_sheet_back(tmp_path, capsys):
    folder = tmp_path / "out"
    assert main(["advise", *WORDS, "--probe", "2", "--save-dir", str(folder)]) == 0
    assert "Short runs to make" in capsys.readouterr().out
    assert (folder / "probe-1/launch.sh").stat().st_mode & 0o100
    sheet = folder / "runs.csv"
    rows = list(csv.DictReader(sheet.read_text(encoding="utf-8").splitlines()))
    assert [row["id"] for row in rows] == ["probe 1", "probe 2"]
    assert main(["advise", *WORDS, "--runs", str(sheet)]) == 2
    assert "step_seconds" in capsys.readouterr().err
    with sheet.open("w", newline="") as text:
        writer = csv.DictWriter(text, rows[0])
        writer.writeheader()
        steps = ("4.0", "5.2")
        writer.writerows([row | {"step_seconds": s} for row, s in zip(rows, steps, strict=True)])
    assert main(["advise", *WORDS, "--runs", str(sheet), "--probe", "1", "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["strategy"] == rows[0]["strategy"]
    assert len(told["probes"]) == 1
    assert told["probes"][0]["strategy"] not in {row["strategy"] for row in rows}


def test_a_trainer_has_to_be_named_and_a_number_be_one(capsys):
    assert main(["advise", *WORDS[:-2], "--runs", "runs.csv"]) == 2
    assert "--framework" in capsys.readouterr().err
    assert main(["advise", *WORDS, "--probe", "11"]) == 2
    assert "--probe" in capsys.readouterr().err
    assert main(["advise", *WORDS, "--probe", "1", "--flags-only"]) == 2
