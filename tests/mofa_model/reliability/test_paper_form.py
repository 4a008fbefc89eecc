"""The paper's closed form gives the paper's numbers, and never a negative or missing one."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mofa_model.reliability import paper

DATA = Path(__file__).resolve().parents[3] / "lab" / "data"
ROWS = json.loads((DATA / "paper_table5.json").read_text())["rows"]
POINT = {"rate": 32 * 0.01 / 86400, "step_time": 27.99, "save": 2.0, "recovery": 60.0}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"row-{row['id']}")
def test_ettr_of_table_5_reproduces_truncated_to_two_digits(row):
    rate = row["n_gpus"] / row["gpus_per_node"] * row["failures_per_node_day"] / 86400
    ettr = paper.ettr(
        rate, row["ckpt_interval_steps"], row["model_step_s"], row["ckpt_save_s"], row["recovery_s"]
    )
    assert np.floor(1e4 * ettr) / 100 == pytest.approx(row["ettr_pct"])


def test_the_optimum_of_section_5_4_is_37_with_99_59_percent():
    assert paper.best_interval(**POINT, most=1e9) == 37
    assert paper.ettr(interval=37, **POINT) == pytest.approx(0.9959, abs=5e-5)


@given(
    rate=st.floats(0, 1e6),
    interval=st.integers(1, 10**6),
    step=st.floats(1e-3, 1e3),
    save=st.floats(0, 1e5),
    recovery=st.floats(0, 1e6),
)
def test_no_input_gives_less_than_zero_or_nothing(rate, interval, step, save, recovery):
    assert 0 <= paper.ettr(rate, interval, step, save, recovery) <= 1
    assert 1 <= paper.best_interval(rate, step, save, recovery, most=1e9) <= 1e9
