"""Whole case files, priced by a stand-in that a reader can redo and by the estimate itself."""

import json
from pathlib import Path

import numpy as np
import pytest

from mofa_lab.validate.cases import case_of, load
from mofa_lab.validate.record import Record
from mofa_lab.validate.steps import predict, scored, shipped, validate_steps
from mofa_model.errors import BadValue

DATA = Path(__file__).parents[3] / "lab" / "data" / "cases"


def test_a_prediction_stands_beside_each_measured_figure(changed, tokens):
    measured = {
        "step_time_s": 0.02,
        "memory_gib": 1,
        "layer_forward_ms": 16,
        "layer_backward_ms": 128,
    }
    cases = [case_of(Record(changed({"measured": measured})))]
    rows = scored(cases, predict(cases, price=tokens), price=tokens)
    # 128 x 8192 tokens at a microsecond each on 64 GPUs; 1 ms and 2 ms for each of 32 layers.
    assert {row.figure.quantity: row.predicted for row in rows} == {
        "step_time_s": pytest.approx(0.016384),
        "memory_gib": 32.0,
        "layer_forward_s": pytest.approx(0.032),
        "layer_backward_s": pytest.approx(0.064),
    }


def test_a_case_that_cannot_be_priced_does_not_spoil_its_neighbours(plain, tokens):
    cases = [case_of(Record({**plain, "id": name})) for name in ("a", "b")]
    small = case_of(Record({**plain, "id": "c", "model": {**plain["model"], "layers": 7}}))

    def fussy(workload, cluster, strategy):
        if np.any(np.asarray(workload.model.layers) == 7):
            raise BadValue("layers", 7, "not seven")
        return tokens(workload, cluster, strategy)

    found = predict([cases[0], small, cases[1]], price=fussy)
    assert [item.id for item in found.unsupported] == ["c"]
    assert np.isfinite(found.columns["step"]).tolist() == [True, False, True]


def test_a_measured_run_keeps_its_step_time_when_we_call_it_too_big(changed):
    huge = {"model": {"layers": 512, "hidden": 16384, "heads": 128, "ffn": 65536}}
    cases = [case_of(Record(changed(huge)))]
    found = predict(cases)
    assert found.oversized().tolist() == [True]
    assert np.isfinite(found.columns["step"][0])


def test_all_published_runs_are_supported_and_in_the_right_region():
    document = validate_steps([DATA / "throughput.json"])
    assert document["unsupported"] == []
    assert document["summary"]["by_quantity"]["step_time_s"]["n"] == 232
    assert document["summary"]["by_quantity"]["memory_gib"]["n"] == 71
    assert document["summary"]["by_quantity"]["step_time_s"]["median_ape"] < 0.15
    json.dumps(document, allow_nan=False)


def test_the_sweep_has_regret_and_out_of_memory_counts():
    document = validate_steps([DATA / "sweep.json"])
    summary = document["summary"]
    assert summary["by_quantity"]["step_time_s"]["n"] == 1680
    assert summary["oom"]["true_positive"] + summary["oom"]["false_negative"] == 258
    assert sum(summary["oom"].values()) == 1938
    assert summary["pick_regret"]["groups"] == 64
    assert summary["pick_regret"]["every_choice"]["groups"] == 90
    assert not any("oom" in row["id"] for row in document["cases"])


def test_activation_ratios_of_korthikanti_hold():
    cases, _ = load(DATA / "throughput.json")
    papers = [case for case in cases if case.kind == "activation-memory-ratio"]
    rows = scored(papers, predict(papers))
    assert len(rows) == 12
    assert max(abs(row.error) for row in rows) < 0.06


def test_thousands_of_cases_are_priced_in_a_few_passes():
    cases, _ = load(DATA / "sweep.json")
    passes = []

    def counting(workload, cluster, strategy):
        from mofa_model.estimate import estimate

        passes.append(len(strategy))
        return estimate(workload, cluster, strategy)

    predict(cases, shipped, counting)
    assert sum(passes) >= 1900
    assert len(passes) <= 12
