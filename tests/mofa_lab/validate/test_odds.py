"""Odds are as true as docs/validation.md says, and a published job is asked without what its own
group says.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mofa_lab.validate import odds, odds_report
from mofa_lab.validate.cases import load
from mofa_lab.validate.picks import overstated, picks, summed, unseen
from mofa_lab.validate.questions import odd_layers, questions
from mofa_model.bands.table import measured_runs
from mofa_model.cli import main

ROOT = Path(__file__).parents[3]
CASES = ROOT / "lab/data/cases"
RECORD = ROOT / "lab/data/odds.json"


@pytest.fixture(scope="module")
def swept():
    return odds.odds_document(load(CASES / "sweep.json")[0])


def test_the_record_is_what_is_scored_today(swept):
    kept = json.loads(RECORD.read_text(encoding="utf-8"))
    for part in ("pairs", "fits", "regret", "kept"):
        for stack, found in swept[part].items():
            for name, value in found.items():
                if isinstance(value, float):
                    assert kept[part][stack][name] == pytest.approx(value, rel=2e-3)


def test_the_page_says_what_the_record_says():
    page = (ROOT / "docs/validation.md").read_text(encoding="utf-8")
    assert odds_report.section(RECORD).strip() in page
    short = page.partition("\n## The paper's own runs")[0]
    for figure, value, *_ in odds_report.aims(RECORD):
        assert f"| {figure} | {value} |" in short


def test_the_odds_are_true_and_the_rule_loses_little(swept):
    for found in swept["pairs"].values():
        assert found["calibration_error"] <= 0.05
    for found in swept["regret"].values():
        assert found["rule"]["mean"] <= 1.1 * found["estimate"]["mean"]
        assert found["rule"]["failed"] == 0
    assert swept["fits"]["nanotron"]["brier"] < swept["fits"]["nanotron"]["edge"]


def test_a_question_of_a_sweep_is_asked_without_its_publisher_though_runs_of_it_had_no_room():
    """A run that ends out of memory names no group in its table. Such runs of nanotron were once
    judged with nanotron's own runs.
    """
    runs = measured_runs()
    known = dict(zip(runs.names, runs.groups, strict=True))
    cases = load(CASES / "sweep.json")[0]
    some = [case for case in cases if case.group == "nanotron-28x3072-v128k-g512-b256"]
    some += [case for case in cases if case.group and case.out_of_memory][-1:]
    found = list(questions(some, runs, {case.id: known.get(case.id, "") for case in some}))
    assert found[0].model.startswith("huggingface, 28 x 3072")


def test_no_single_bin_of_chances_is_five_points_off_beyond_its_standard_error(swept):
    for found in swept["pairs"].values():
        for row in found["bins"]:
            assert abs(row["was"] - row["said"]) <= 0.05 + row["standard_error"]
            assert row["standard_error"] < 0.06


def test_layers_that_took_less_time_than_those_of_half_as_many_sequences_are_found():
    """Of 2,048 width on tp=4 two sequences were profiled in 2.79 ms, and one in 3.01 ms."""
    cases = load(CASES / "sweep.json")[0]
    found = odd_layers(cases)
    assert {(2048, 4, 2), (1024, 2, 4)} <= found
    assert not {(2048, 4, 4), (1024, 2, 2), (2048, 1, 2)} & found
    assert odd_layers([case for case in cases if not case.composed]) == frozenset()


def test_a_slower_layout_is_given_up_where_the_gain_was_above_ten_percent(swept):
    """Who always keeps what runs loses it all: 1,373 of 1,389 such gains are still advised."""
    for found in swept["kept"].values():
        assert found["gains"] > 500
        assert found["advised"] >= 0.9 * found["gains"]


def test_gains_above_twenty_percent_are_true_of_every_kind_that_was_measured(swept):
    for kind, found in swept["kinds"].items():
        assert found["was"] >= 0.5 * found["said"], kind


def test_most_runs_that_trained_beyond_their_memory_took_four_times_as_long(swept):
    """The allocator asks for the same memory again and again: 12 of 15, the quickest 3.9 times."""
    fits = swept["fits"]["nanotron"]
    assert (len(fits["slowed"]), fits["beyond"]) == (
        pytest.approx(12, abs=2),
        pytest.approx(15, abs=3),
    )
    assert fits["slowed"][0] > 3.5
    assert fits["at_speed"]["edge"] < 0.5 * fits["edge"]


def test_what_trained_is_said_to_fit_and_what_did_not_is_refused(swept):
    """Of published runs that trained at most a fifth is given less than 90 %, of those of a sweep
    that did not 97 %.
    """
    published = [
        case
        for name in ("throughput", "bridge", "mlperf", "cloud")
        for case in load(CASES / f"{name}.json")[0]
    ]
    found = odds.trained(published)
    assert found["runs"] > 200
    assert found["unsure"] <= 0.2
    assert found["calibration_error"] <= 0.05
    fits = swept["fits"]["nanotron"]
    assert fits["unsure"] <= 0.05
    assert fits["refused"] >= 0.97
    assert fits["calibration_error"] <= 0.05
    assert fits["bound"] < fits["brier"] < fits["edge"]


def test_a_published_job_is_asked_without_its_publisher():
    runs = measured_runs()
    group_of = dict(zip(runs.names, runs.groups, strict=True))
    cases = [case for case in load(CASES / "bridge.json")[0] if case.id in group_of]
    case = next(one for one in cases if one.cluster.gpus <= 64 and one.measured)
    (told,) = picks([case], runs, group_of)
    assert told["out_of_memory"] <= 0.5
    without = unseen(runs, group_of[case.id])
    others = [name for name in runs.groups if not name.startswith("nvidia-bridge,")]
    assert list(without.groups) == others


@pytest.mark.filterwarnings("error")
def test_runs_that_the_table_does_not_know_are_asked_too_and_no_table_is_empty(tmp_path, capsys):
    (case, *_) = json.loads((CASES / "bridge.json").read_text(encoding="utf-8"))
    file = tmp_path / "foreign.json"
    file.write_text(json.dumps([{**case, "id": "foreign"}]), "utf-8")
    assert main(["validate", "odds", str(file)]) == 0
    told = capsys.readouterr().out
    assert "First choices for published jobs" in told
    assert "foreign" in told
    assert "sweep" not in told
    assert main(["validate", "odds", str(file), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["picks"]["jobs"] == 1
    assert document["published"]["pairs_above_20"] is None


@pytest.mark.parametrize(
    "name", ["torchtitan-8b-64-bf16-asynctp", "foundry-mpt-3b-s2048-a10040-16-mb5-gb80"]
)
def test_no_answer_is_slower_than_the_published_layout_as_today_s_by_its_own_estimate(name):
    """The second was 27 % slower: what ran was said to fit with 71 % only."""
    runs = measured_runs()
    cases = [case for case in load(CASES / "throughput.json")[0] if case.id == name]
    (told,) = picks(cases, runs, dict(zip(runs.names, runs.groups, strict=True)))
    assert told["given_gain"] >= 0.0
    assert told["given_status"] != "Recommended" or told["beats"] >= 0.5


@pytest.mark.parametrize(
    "name", ["foundry-mpt-30b-s1024-a100-8-mb6-gb1008", "foundry-mpt-3b-s2048-a10040-128-mb6-gb768"]
)
def test_a_hidden_layout_whose_micro_batch_is_no_power_of_two_is_found_or_nearly_so(name):
    """Both answers were 11 to 14 % slower: micro-batches of three and six sequences were
    never tried.
    """
    runs = measured_runs()
    cases = [case for case in load(CASES / "throughput.json")[0] if case.id == name]
    (told,) = picks(cases, runs, dict(zip(runs.names, runs.groups, strict=True)))
    assert told["gain"] >= -0.05


@pytest.mark.soak
def test_of_all_published_layouts_few_answers_are_slower_by_their_own_estimate():
    """Hidden, 4 of 183 by more than 10 % (they have micro-batches of 5 and 10 sequences); as
    today's, none.
    """
    runs = measured_runs()
    published = [
        case for file in sorted(CASES.glob("*.json")) for case in load(file)[0] if not case.group
    ]
    known = dict(zip(runs.names, runs.groups, strict=True))
    found = summed(picks(published, runs, {c.id: known.get(c.id, "") for c in published}), {})
    assert found["answered"] > 150
    assert found["slower_10"] <= 0.05
    assert (found["given_slower_2"], found["given_unlikely"], found["half"]) == (0, 0, 0)


def test_what_is_overstated_by_more_than_half_is_counted_by_kind():
    said = np.log(1.4)
    pairs = [(frozenset({"experts"}), said, np.log(1.1))] * 10
    pairs += [(frozenset({"degrees"}), said, np.log(1.4))] * 10
    kinds = overstated(pairs)
    job = {"status": "Recommended", "gain": 0.3, "out_of_memory": 0.0}
    jobs = [job | {"kinds": ["experts"]}, job | {"kinds": ["degrees"]}, job | {"kinds": []}]
    assert kinds["experts"] == {"said": pytest.approx(0.4), "was": pytest.approx(0.1), "pairs": 10}
    assert summed(jobs, kinds)["overstated"] == pytest.approx(1 / 3)


def test_short_runs_as_advised_are_worth_more_than_the_fastest_and_these_more_than_any(swept):
    for found in swept["probes"].values():
        in_turn, advised, fastest, random = (
            found[way][-1] for way in ("steps", "plan", "top", "random")
        )
        assert min(in_turn, advised) < max(fastest, 0.001) < random
        # The aim is 0.007. It is met where no best run is composed from a layer time that is
        # shorter than that of half as many sequences.
        assert min(in_turn, advised) <= 0.009
        assert found["without_odd"] <= 0.007
        # All at once, one question of 512 GPUs loses 60 %: its equal neighbours differ by factors.
        assert min(advised, found["plan_without_worst"]) <= 0.011
        assert found["failed"] <= 1
