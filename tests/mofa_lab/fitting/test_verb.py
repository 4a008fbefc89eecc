"""`mofa fit`: what it writes, and what it refuses."""

import json
import tomllib

import pytest

from mofa_lab.validate import forecast
from mofa_lab.verbs import fit as verb
from mofa_model.calibrate.constants import entries_of
from mofa_model.cli import main
from mofa_model.presets import constants, entries


@pytest.fixture
def files(tmp_path, monkeypatch, request):
    """A case file with every eighth published run."""
    monkeypatch.delenv(constants.VARIABLE, raising=False)
    lines = (request.config.rootpath / "lab/data/cases/throughput.json").read_text(encoding="utf-8")
    file = tmp_path / "cases.json"
    file.write_text(json.dumps(json.loads(lines)[::8]), encoding="utf-8")
    return file


def test_a_quick_fit_prints_errors_and_writes_constants_that_validation_can_use(
    files, tmp_path, monkeypatch, capsys
):
    out = tmp_path / "out"
    assert main(["fit", str(files), "--quick", "--to", str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["written"] == [str(out / "constants.toml")]
    text = (out / "constants.toml").read_text(encoding="utf-8")
    assert [e.name for e in entries_of(tomllib.loads(text))] == [
        e.name for e in entries_of(entries.table("constants"))
    ]
    monkeypatch.setenv(constants.VARIABLE, str(out / "constants.toml"))
    assert main(["validate", "steps", str(files), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)["summary"]["by_quantity"]["step_time_s"]
    row = told["tables"][0]["rows"][0]
    assert row["median"] == pytest.approx(summary["median_ape"], rel=1e-6)


def test_a_worse_loss_is_not_written_unless_it_is_forced(files, tmp_path, monkeypatch, capsys):
    from mofa_lab.fitting import campaign

    place = tmp_path / "presets"
    monkeypatch.setattr(verb, "_presets", lambda: place)
    monkeypatch.setattr(campaign, "shipped_loss", lambda found: 0.5 * found.loss)
    assert main(["fit", str(files), "--quick", "--write"]) == 2
    assert "--force" in capsys.readouterr().err
    assert not place.exists()
    assert main(["fit", str(files), "--quick", "--write", "--force"]) == 0
    assert (place / "constants.toml").exists()


def test_a_name_that_no_run_has_cannot_be_left_out(files, capsys):
    assert main(["fit", str(files), "--quick", "--without", "publisher=nobody"]) == 2
    assert "internevo" in capsys.readouterr().err
    assert main(["fit", str(files), "--quick", "--without", "colour=red"]) == 2
    assert "KEY=NAME" in capsys.readouterr().err


def test_a_case_that_cannot_be_read_stops_the_fit(files, capsys):
    cases = json.loads(files.read_text(encoding="utf-8"))
    cases[0]["system"]["gpu"] = "abacus"
    files.write_text(json.dumps(cases), encoding="utf-8")
    assert main(["fit", str(files), "--quick"]) == 2
    assert "abacus" in capsys.readouterr().err


def test_runs_that_were_forecast_are_not_fitted_before_they_are_scored(
    files, tmp_path, monkeypatch, capsys
):
    cases = json.loads(files.read_text(encoding="utf-8"))
    publisher = cases[0]["normalized"]["publisher"]
    folder = tmp_path / forecast.FOLDER
    folder.mkdir(parents=True)
    content = {
        "name": "next",
        "written": "2026-11-24",
        "publishers": [publisher],
        "share": 0.8,
        "jobs": [],
    }
    forecast.save(
        {"forecast": content, "sha256": forecast.digest(content)},
        folder / f"next{forecast.ENDING}",
    )
    monkeypatch.chdir(tmp_path)
    assert main(["fit", str(files), "--quick"]) == 0
    capsys.readouterr()
    cases[0]["published"] = "2026-12-01"
    files.write_text(json.dumps(cases), encoding="utf-8")
    assert main(["fit", str(files), "--quick"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "has to be scored first: mofa validate forecast" in said
