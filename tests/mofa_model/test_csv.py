"""`-o csv` of every verb is one table for programs: a header of plain names, rows of its length,
numbers in SI as numbers.
"""

import csv
import io
import json
import re
from pathlib import Path

import pytest
from desk import GIVEN

from mofa_model import verbs
from mofa_model.cli import main

JOB = "--model llama3-8b --gpu h100 --global-batch 512 --seq 8192"
RUNS = "model,gpu,gpus,strategy,global_batch,sequence,step_seconds\nllama3-8b,h100,64,tp2 sp zero2,512,8192,11.0\n"
PROSE = {
    *("reason", "note", "source", "names", "why", "meaning", "equation", "heads", "value", "how"),
    *("where", "what"),
}
"""Columns of text, in which a number may have a unit."""

ANSWERS = {
    "advise": f"advise {JOB} --gpus 64 --current tp4 --tokens 1T",
    "advise cost": f"advise {JOB} --max-nodes 8 --tokens 1T --objective cost",
    "explain": f"explain {JOB} --gpus 64 --strategy tp4,pp2,sp",
    "ettr": "ettr --nodes 64 --step 10s",
    "ettr curve": "ettr --nodes 64 --step 10s --curve 5",
    "ettr vary": "ettr --nodes 64 --step 10s --vary rate=0.001..0.004",
    "rates": "rates --count pod=3,job=1 --node-days 300",
    "simulate": "simulate --nodes 64 --step 10s --runs 20",
    "simulate timeline": "simulate --nodes 2048 --step 10s --runs 2 --timeline 5",
    "sweep": f"sweep {JOB} --vary gpus=64,128 --constraint pp=1",
    "calibrate": "calibrate --from-runs runs.csv",
    "which": "which --model llama3-8b --tokens 5M --gpu l4",
    "paste": "paste llama3-8b --gpu h100 --gpus 8 --seq 4096 --global-batch 64",
    "check": "check train.sbatch",
    "presets": "presets",
    "presets models": "presets models",
    "presets devices": "presets devices",
    "presets constants": "presets constants h100",
}


def read(capsys, words):
    assert main([*words.split(), "-o", "csv"]) == 0
    header, *rows = csv.reader(io.StringIO(capsys.readouterr().out))
    return header, rows


@pytest.mark.parametrize("words", ANSWERS.values(), ids=ANSWERS)
@pytest.mark.usefixtures("asked_once")
def test_csv_is_one_rectangular_table_whose_first_line_names_the_columns(
    words, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    Path("runs.csv").write_text(RUNS)
    Path("train.sbatch").write_text(GIVEN["train.sbatch"])
    header, rows = read(capsys, words)
    assert rows
    assert {len(row) for row in rows} == {len(header)}
    assert len(set(header)) == len(header)
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", name) for name in header), header
    for name, column in zip(header, zip(*rows, strict=True), strict=True):
        said = [cell for cell in column if cell]
        if name not in PROSE and not name.endswith("trust"):
            mixed = [
                cell
                for cell in said
                if re.match(r"[\d.]+ ?(?:[num]?s|min|h|d|%|[KMGT]i?B(?:/s)?)$", cell)
            ]
            assert mixed == [], name


def test_every_verb_that_prints_forms_is_read_here():
    printing = {name for name in verbs.ours() if "output" in vars(verbs.load(name))}
    assert printing == {name.split()[0] for name in ANSWERS}


@pytest.mark.usefixtures("asked_once")
def test_the_rows_of_advise_are_what_its_json_says_in_si(capsys):
    words = ANSWERS["advise"]
    header, rows = read(capsys, words)
    assert main([*words.split(), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    table = [dict(zip(header, row, strict=True)) for row in rows]
    assert [row["kind"] for row in table] == ["advice"] + ["alternative"] * 5 + ["today"]
    for row, one in zip(table, [told, *told["alternatives"], told["current"]], strict=True):
        assert row["strategy"] == one["strategy"]
        for name, band in one["predicted"].items():
            assert [float(row[f"{name}{end}"]) for end in ("_lower", "", "_upper")] == [
                band["lower"], band["target"], band["upper"]
            ]  # fmt: skip
    assert table[1]["reason"] == told["alternatives"][0]["reason"]


def test_the_one_row_of_ettr_is_its_json(capsys):
    header, (row,) = read(capsys, ANSWERS["ettr"])
    assert main([*ANSWERS["ettr"].split(), "--json"]) == 0
    told, found = json.loads(capsys.readouterr().out), dict(zip(header, row, strict=True))
    assert float(found["ettr_target"]) == told["ettr"]["target"]
    assert float(found["budget_work_redone_pod"]) == told["budget"]["work redone, pod"]


def test_counts_that_people_read_in_billions_are_whole_numbers(capsys):
    header, rows = read(capsys, "presets models")
    total = {row[0]: row[header.index("total")] for row in rows}
    assert total["llama2-7b"] == "6738415616"
