"""The footprint of layouts against measured runs."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from mofa_lab.validate.cases import case_of
from mofa_lab.validate.record import Record
from mofa_model.calibrate.cases import shipped
from mofa_model.estimate.step import footprint
from mofa_model.placement import stages_of
from mofa_model.units import GIB

DATA = Path(__file__).parents[3] / "lab" / "data"


@cache
def rows(name):
    return {row["id"]: row for row in json.loads((DATA / "cases" / name).read_text())}


def of_case(name, identity):
    row = rows(name)[identity]
    case = case_of(Record(row))
    cluster = replace(case.cluster, calibration=shipped(case.key))
    stages = stages_of(case.workload.model, case.strategy, cluster.calibration.placement)
    return footprint(case.workload, cluster, case.strategy, stages), row["measured"], cluster


@pytest.mark.parametrize(
    "identity",
    [
        "simumax-b200-llama3-70b-l12-tp1-pp2-dp4-mbc4",
        "simumax-b200-llama3-70b-tp2-pp1-dp4-l12-mbc4",
        "simumax-b200-llama3-70b-l12-tp8-pp1-dp1-mbc4",
        "simumax-b200-deepseekv2-tp1-ep8-pp1-dp8-l4-mbc4",
        "simumax-b200-deepseekv2-tp1-ep4-pp2-dp4-l4-mbc4",
        "simumax-b200-llama3-405b-l4-tp4-pp1-dp2-mbc4",
        "simumax-b200-llama3-70b-l12-tp1-cp8-pp1-dp1-seq131072-mbc4",
        "simumax-b200-llama3-405b-l4-tp2-cp4-pp1-dp1-seq131072-mbc4",
    ],
)
def test_peaks_measured_under_megatron_are_met_within_three_percent(identity):
    found, measured, _ = of_case("throughput.json", identity)
    assert float(found.peak) / GIB == pytest.approx(measured["memory_gib"], rel=0.03)


def test_the_nanotron_sweep_is_met_where_its_first_rank_reports():
    static, peak = [], []
    runs = [row for row in rows("sweep.json").values() if "nanotron" in row["id"]][::24]
    for row in runs:
        if row["measured"].get("oom"):
            continue
        found, measured, _ = of_case("sweep.json", row["id"])
        static.append(
            abs(float(found.static_first_stage) / GIB / measured["memory_static_gib"] - 1)
        )
        peak.append(abs(float(found.first_stage) / GIB / measured["memory_gib"] - 1))
    assert len(static) > 30
    assert np.median(static) < 0.01
    assert np.median(peak) < 0.07


def test_runs_of_the_sweep_that_ran_out_of_memory_do_not_fit():
    runs = [row for row in rows("sweep.json").values() if row["measured"].get("oom")][::8]
    fits = [of_case("sweep.json", row["id"]) for row in runs]
    missed = sum(bool(found.fits(cluster)) for found, _, cluster in fits)
    assert len(runs) > 30
    assert missed <= 2
