"""Forms of published facts, by numbers that they were published with."""

import json
from pathlib import Path

import numpy as np
import pytest

from mofa_lab.validate import aging, forms
from mofa_model.reliability import paper
from mofa_model.spec.reliability import RecoveryTime

DATA = Path(__file__).resolve().parents[3] / "lab" / "data"
ROWS = json.loads((DATA / "paper_table5.json").read_text())["rows"]
POINT = {"rate": 32 * 0.01 / 86400, "step_time": 27.99, "save": 2.0, "recovery": 60.0}


@pytest.mark.parametrize(
    "nodes, group, killed, share", [(2048, 2, 16, 0.943), (2048, 4, 16, 1.0), (64, 2, 4, 0.905543)]
)
def test_peer_groups_survive(nodes, group, killed, share):
    assert forms.groups_survive(nodes, group, killed) == pytest.approx(share, abs=5e-4)
    assert forms.groups_survive(nodes, group, nodes) == 0


def test_fresh_nodes_fail_more_than_the_long_run_rate_says():
    back = RecoveryTime(mean=300.0, law="deterministic")
    fresh = aging.fresh_ettr(256, 0.7, 150 * 86400.0, 60 * 86400.0, back, 900.0, 30.0)
    assert fresh == pytest.approx(0.9430, abs=2e-4)
    steady = aging.fresh_ettr(256, 1.0, 150 * 86400.0, 60 * 86400.0, back, 900.0, 30.0)
    assert steady - fresh == pytest.approx(0.010, abs=1e-3)


@pytest.mark.parametrize("ratio, loss", [(1.5, 0.021), (2.0, 0.061), (5.0, 0.342)])
def test_a_wrong_rate_costs_the_interval_little(ratio, loss):
    assert forms.excess_of_wrong_rate(ratio) == pytest.approx(loss, abs=6e-4)
    assert forms.excess_of_wrong_rate(1 / ratio) == pytest.approx(forms.excess_of_wrong_rate(ratio))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"row-{row['id']}")
def test_totals_of_table_5_reproduce_to_a_millionth(row):
    total = forms.total_time(
        row["n_gpus"] / row["gpus_per_node"] * row["failures_per_node_day"] / 86400,
        row["n_steps"],
        row["ckpt_interval_steps"],
        row["model_step_s"],
        row["ckpt_save_s"],
        row["recovery_s"],
        0.0,
    )
    assert total == pytest.approx(row["total_s"], rel=1e-6)


def test_the_total_is_the_steps_over_ettr():
    steps, start = 10_000, 500.0
    total = forms.total_time(steps=steps, interval=37, start=start, **POINT)
    share = start / (steps * POINT["step_time"])
    ettr = paper.ettr(interval=37, start_share=share, **POINT)
    assert total == pytest.approx(steps * POINT["step_time"] / ettr)
    lost = total - steps * POINT["step_time"]
    assert forms.ettr_of_times(steps * POINT["step_time"], lost) == pytest.approx(ettr)


def test_a_run_that_cannot_end_takes_forever():
    assert forms.total_time(1.0, 100, 10, 1.0, 1.0, 300.0, 0.0) == np.inf
