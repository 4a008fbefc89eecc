"""Forecasts are dated, hashed, scored against what comes, and never fitted before."""

from __future__ import annotations

import json
from datetime import date

import pytest

from mofa_lab.validate import forecast
from mofa_model.cli import main
from mofa_model.errors import BadFile, BadValue

QUESTION = {
    "id": "small",
    "model": "llama3-8b",
    "gpu": "h100",
    "gpus": 8,
    "strategy": "tp=1,pp=1,optimizer=zero3",
    "global_batch": 64,
    "sequence": 8192,
    "stack": "torchtitan",
}
DAY = date(2026, 11, 24)


@pytest.fixture
def questions(tmp_path):
    path = tmp_path / "few.questions.json"
    rows = [QUESTION, {**QUESTION, "id": "large", "global_batch": 128}]
    path.write_text(
        json.dumps({"name": "few", "publishers": ["mlcommons"], "questions": rows}), "utf-8"
    )
    return path


@pytest.fixture
def made(questions, tmp_path):
    path = tmp_path / "few.forecast.json"
    forecast.save(forecast.forecast_of(questions, DAY), path)
    return path


def test_a_forecast_has_a_band_a_chance_a_date_and_the_same_hash_every_time(questions):
    one, other = forecast.forecast_of(questions, DAY), forecast.forecast_of(questions, DAY)
    assert one == other
    assert one["sha256"] == forecast.digest(one["forecast"])
    for job in one["forecast"]["jobs"]:
        assert job["step_band_s"][0] < job["step_s"] < job["step_band_s"][1]
        assert job["memory_band_gib"][0] < job["memory_gib"] < job["memory_band_gib"][1]
        assert 0.0 <= job["fits"] <= 1.0
    assert one["forecast"]["written"] == "2026-11-24"


def test_a_band_is_narrower_where_the_publisher_s_other_runs_are_known(questions):
    """Megatron-Bridge on GB300 was measured by its own makers."""
    document = json.loads(questions.read_text("utf-8"))
    asked = {
        **QUESTION,
        "model": "qwen3-30b-a3b",
        "gpu": "gb300",
        "stack": "megatron-bridge",
        "strategy": "ep=8,mbs=8,optimizer=distributed",
        "precision": "mxfp8",
        "sequence": 4096,
    }
    document["questions"] = [
        {**asked, "id": "theirs", "publisher": "nvidia-bridge"},
        {**asked, "id": "anybody's"},
    ]
    questions.write_text(json.dumps(document), "utf-8")
    theirs, other = forecast.forecast_of(questions, DAY)["forecast"]["jobs"]
    assert theirs["step_s"] == other["step_s"]
    assert theirs["step_band_s"][1] < other["step_band_s"][1]


def test_a_figure_that_was_changed_is_told_in_one_line(made, capsys):
    text = made.read_text("utf-8")
    document = json.loads(text)
    step = document["forecast"]["jobs"][0]["step_s"]
    made.write_text(text.replace(f'"step_s": {step}', f'"step_s": {step * 0.9}'), "utf-8")
    assert main(["validate", "forecast", str(made)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "was changed after it was written" in said


def test_a_forecast_is_written_once(questions, made):
    with pytest.raises(BadValue, match="written once"):
        forecast.save(forecast.forecast_of(questions, DAY), made)


def test_results_are_scored_by_error_band_and_chance(made, tmp_path, capsys):
    """One of two steps lies in its band: as uneven as that by chance with 36 % (2 x 0.8 x 0.2 + 0.2
    x 0.2).
    """
    first, second = (job for job in forecast.load(made)["jobs"])
    results = tmp_path / "results.json"
    results.write_text(
        json.dumps(
            [
                {
                    "id": "small",
                    "step_seconds": first["step_s"] / 1.01,
                    "memory_gib": first["memory_gib"],
                },
                {"id": "large", "step_seconds": second["step_band_s"][1] * 1.5},
                {"id": "of somebody else", "step_seconds": 1.0},
            ]
        ),
        "utf-8",
    )
    words = ["validate", "forecast", str(made), "--results", str(results), "--record", "--json"]
    assert main(words) == 0
    scores = json.loads(capsys.readouterr().out)["scores"]
    assert (scores["jobs"], scores["scored"], scores["inside"]) == (2, 2, 1)
    assert scores["chance_of_share"] == pytest.approx(0.36)
    assert (scores["memory_scored"], scores["memory_inside"]) == (1, 1)
    assert scores["fits_was"] == 1.0
    assert sum(row["jobs"] for row in scores["fits_reliability"]) == 2
    assert all(row["was"] == 1.0 for row in scores["fits_reliability"])
    assert forecast.results_file(made).exists()
    assert list(forecast.unscored(tmp_path)) == []
    page = "\n".join(forecast.section(tmp_path))
    assert "| few | 2026-11-24 |" in page
    assert "50.0 %" in page


def test_results_of_another_forecast_are_refused(made, tmp_path):
    forecast.results_file(made).write_text('{"sha256": "0", "results": {}}', "utf-8")
    with pytest.raises(BadFile, match="another forecast"):
        forecast.kept_results(made)


def test_a_run_of_another_layout_is_no_result(made, tmp_path, plain):
    results = tmp_path / "results.json"
    results.write_text(json.dumps([{**plain, "id": "small"}]), "utf-8")
    with pytest.raises(BadFile, match="the forecast is of"):
        forecast.results_of(results, forecast.load(made))


@pytest.mark.parametrize(
    "told, refused",
    [
        ({"published": "2026-12-01"}, True),
        ({"published": "2026-11-01"}, False),
        ({"year": 2027}, True),
        ({"year": 2026}, False),
    ],
)
def test_what_is_later_than_an_unscored_forecast_is_not_fitted(made, tmp_path, told, refused):
    row = {"id": "new", "normalized": {"publisher": "mlcommons"}, **told}
    if refused:
        with pytest.raises(BadValue, match="has to be scored first"):
            forecast.refuse_unscored("new.json", [row], tmp_path)
        other = {**row, "normalized": {"publisher": "mosaicml"}}
        forecast.refuse_unscored("new.json", [other], tmp_path)
        forecast.record(made, {"small": {"trained": True, "step_s": 1.0}})
    forecast.refuse_unscored("new.json", [row], tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        '{"name": "x", "questions": []}',
        '{"name": "x", "questions": [{"gpus": 8}]}',
        '{"name": "x", "questions": [{"id": "a", "gpu": "abacus"}]}',
        '{"name": "x", "questions": [{"id": ["a"], "gpu": "h100"}]}',
        '{"name": "x", "publishers": "me", "questions": [{"id": "a"}]}',
        '{"forecast": 3, "sha256": "x"}',
        '{"forecast": {}, "sha256": "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}',
        "{",
    ],
)
def test_what_is_neither_questions_nor_a_forecast_is_one_line(tmp_path, text, capsys):
    path = tmp_path / "odd.json"
    path.write_text(text, "utf-8")
    assert main(["validate", "forecast", str(path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_questions_that_are_shipped_can_be_asked(request):
    folder = request.config.rootpath / "lab/data/forecasts"
    for path in folder.glob("*.questions.json"):
        document = forecast.forecast_of(path, DAY)
        assert len(document["forecast"]["jobs"]) >= 20
    for path in folder.glob(f"*{forecast.ENDING}"):
        assert forecast.load(path)["jobs"]
