"""The lab's verbs are found by the command, and told of where the lab is absent."""

import csv
import io
import tomllib
from pathlib import Path

import pytest

from mofa_model import VERSION, cli, verbs

LAB = Path(__file__).resolve().parents[2] / "lab"
ROOT = LAB.parent


def project(folder):
    return tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_product_tells_of_the_verbs_that_the_lab_brings_and_of_no_other():
    lab = project(LAB)
    assert set(lab["entry-points"][verbs.GROUP]) == set(verbs.LAB)
    assert lab["name"] == verbs.LAB_NAME
    assert lab["entry-points"][verbs.GROUP].items() <= verbs.foreign().items()


def test_both_distributions_have_one_version_and_the_lab_asks_for_it():
    lab, product = project(LAB), project(ROOT)
    assert lab["version"] == product["version"] == VERSION
    assert f"{product['name']}[plot]=={product['version']}" in lab["dependencies"]


def test_the_help_of_a_clone_lists_every_verb_once(capsys):
    assert cli.main([]) == 0
    said = capsys.readouterr().out
    for name, summary in (verbs.SUMMARIES | verbs.LAB).items():
        assert said.count(f"  {name:<10} {summary}\n") == 1
    assert "verbs of the lab" not in said


@pytest.mark.parametrize("name", verbs.LAB)
def test_every_verb_explains_itself(capsys, name):
    with pytest.raises(SystemExit) as stop:
        cli.main([*name.split(), "--help"])
    assert stop.value.code == 0
    assert f"usage: mofa {name}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words, header",
    [
        (f"validate steps {LAB}/data/cases/throughput.json", "quantity n mean median p90"),
        (
            f"validate steps {LAB}/data/cases/throughput.json --cases",
            "id quantity measured predicted error fits",
        ),
        (f"validate ettr {LAB}/data/ettr_cases.json", "id kind expected predicted tolerance ok"),
        (
            f"validate paper {LAB}/data/paper_table5.json",
            "table id quantity printed predicted tolerance measure ok",
        ),
    ],
)
def test_csv_is_one_rectangular_table_whose_first_line_names_the_columns(words, header, capsys):
    assert cli.main([*words.split(), "-o", "csv"]) == 0
    first, *rows = csv.reader(io.StringIO(capsys.readouterr().out))
    assert first == header.split()
    assert rows
    assert {len(row) for row in rows} == {len(first)}
