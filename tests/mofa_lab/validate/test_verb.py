"""`mofa validate` keeps its contract: JSON as promised, exit 0 whatever the figures, 2 for a file
that cannot be read.
"""

import json
from pathlib import Path

import pytest

from mofa_model.cli import main

DATA = Path(__file__).parents[3] / "lab" / "data"


def answer(capsys, *words):
    assert main(["validate", *map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_steps_answer_cases_unsupported_and_summary(capsys, plain, tmp_path):
    path = tmp_path / "cases.json"
    path.write_text(json.dumps([plain, {"id": "odd"}]))
    document = answer(capsys, "steps", path)
    (row,) = document["cases"]
    assert row["id"] == "plain"
    assert row["quantity"] == "step_time_s"
    assert row["error"] == pytest.approx(row["predicted"] / row["measured"] - 1)
    assert [item["id"] for item in document["unsupported"]] == ["odd"]
    assert set(document["summary"]) >= {"n", "mape", "median_ape", "p90_ape", "by_source", "by_gpu"}


def test_runs_that_died_appear_in_the_summary_alone(capsys, plain, tmp_path):
    path = tmp_path / "cases.json"
    path.write_text(
        json.dumps([{**plain, "kind": "sweep", "group": "g", "measured": {"oom": True}}])
    )
    document = answer(capsys, "steps", path)
    assert document["cases"] == []
    assert sum(document["summary"]["oom"].values()) == 1


def test_an_empty_file_is_an_answer(capsys, tmp_path):
    path = tmp_path / "cases.json"
    path.write_text("[]")
    assert answer(capsys, "steps", path)["summary"]["n"] == 0


def test_paper_lists_each_row_and_quantity(capsys):
    document = answer(capsys, "paper", DATA / "paper_table6.json", DATA / "paper_table8.json")
    assert set(document["rows"][0]) >= {"id", "quantity", "predicted", "printed", "tolerance", "ok"}
    assert document["summary"]["ok"] == document["summary"]["n"]


@pytest.mark.parametrize(
    "words",
    [
        ["steps", "nowhere.json"],
        ["steps", "{bad}"],
        ["paper", "nowhere.json"],
        ["paper", str(DATA / "paper_table6.json"), "--calibrate-on", "77"],
        [],
        ["figures"],
    ],
)
def test_what_cannot_be_read_is_one_line_and_exit_2(capsys, tmp_path, words):
    bad = tmp_path / "bad.json"
    bad.write_text('{"cases": ')
    try:
        code = main(["validate", *(word.replace("{bad}", str(bad)) for word in words)])
    except SystemExit as stop:
        code = stop.code
    said = capsys.readouterr()
    assert code == 2
    assert said.out == ""
    assert said.err.count("\n") == 1


@pytest.mark.parametrize("form", ["table", "wide", "csv", "markdown", "html", "yaml"])
def test_every_form_of_output_can_be_had(capsys, form):
    assert (
        main(["validate", "steps", str(DATA / "cases" / "throughput.json"), "--cases", "-o", form])
        == 0
    )
    assert "step_time_s" in capsys.readouterr().out
