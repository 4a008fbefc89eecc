"""`mofa validate ettr`: every published fact on reliability."""

import json
from pathlib import Path

import pytest

from mofa_model.cli import main

CASES = Path(__file__).resolve().parents[3] / "lab" / "data" / "ettr_cases.json"


def run(capsys, *words):
    code = main([str(word) for word in words])
    return code, capsys.readouterr()


def answer(capsys, *words):
    code, printed = run(capsys, *words, "--json")
    assert code == 0, printed.err
    return json.loads(printed.out)


@pytest.mark.parametrize("form", ["table", "wide", "json", "yaml", "csv", "markdown", "html"])
def test_every_form_of_output(capsys, form):
    code, printed = run(capsys, "validate", "ettr", CASES, "-o", form)
    assert code == 0, printed.err
    assert printed.out.strip()


def test_every_case_holds_and_only_the_known_inconsistency_is_unsupported(capsys):
    told = answer(capsys, "validate", "ettr", CASES)
    assert [case["id"] for case in told["cases"] if not case["ok"]] == []
    assert [case["id"] for case in told["unsupported"]] == ["mofa-542-save-sweep-inconsistent"]
    assert told["summary"] == {"n": 70, "ok": 70}


def test_a_case_that_fails_is_told_and_one_that_cannot_be_is_unsupported(capsys, tmp_path):
    rows = [
        {"id": "off", "kind": "mixture_mttr", "inputs": {"p": [1], "recovery_s": [5]}, "expected": 6, "tolerance": {"abs": 0.5}},
        {"id": "odd", "kind": "phase_of_the_moon", "inputs": {}, "expected": 1, "tolerance": {}},
        {"id": "bad", "kind": "ettr", "inputs": {"nodes": 4}, "expected": 1, "tolerance": {"abs": 1}},
        {"id": "worse", "kind": "exposure", "inputs": {"samples": 3}, "expected": 1, "tolerance": {"abs": 1}},
    ]  # fmt: skip
    (tmp_path / "cases.json").write_text(json.dumps(rows))
    told = answer(capsys, "validate", "ettr", tmp_path / "cases.json")
    assert [(case["id"], case["ok"]) for case in told["cases"]] == [("off", False)]
    assert [case["id"] for case in told["unsupported"]] == ["odd", "bad", "worse"]
