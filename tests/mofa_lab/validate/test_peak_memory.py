"""Peak memory as the paper's tables print it, to the letter."""

import json
from pathlib import Path

import numpy as np
import pytest

from mofa_lab.validate import paper_equations
from mofa_model.units import GIB

DATA = Path(__file__).parents[3] / "lab" / "data"
LLAMA3_405B = dict(layers=128, hidden=16384, ffn=53248, heads=128, kv_heads=16, vocabulary=128000)
UNIT = 8192 * 16384 / 8
"""sbh/t of LLaMA3-405B: 16.8 MB."""


def test_the_first_row_of_table_6_is_34_46_gib():
    """Layers 128 x 3.28e9 / 64 of 4 B, vocabulary 128000 x 16384 / 8 of 4 B, 95.25 sbh/t, and
    8 GiB.
    """
    peak = paper_equations.peak_memory(
        layers=128, hidden=16384, ffn=53248, heads=128, kv_heads=16, vocabulary=128000, sequence=8192,
        micro_batch=1, tensor=8, pipeline=8, data=1, virtual=2, host_optimizer=np.array([1.0, 0.0]),
    )  # fmt: skip
    layer = 2 * 16384**2 * (1 + 16 / 128) + 3 * 16384 * 53248
    parameters = 128 * layer / 64 + 128000 * 16384 / 8
    assert peak[0] == pytest.approx(4 * parameters + 95.25 * UNIT + 8 * GIB, rel=1e-12)
    assert peak[0] / GIB == pytest.approx(34.46, abs=0.005)
    assert peak[1] - peak[0] == pytest.approx(16 * parameters, rel=1e-12)


def paper_rows():
    for table in ("paper_table6", "paper_table7"):
        for row in json.loads((DATA / f"{table}.json").read_text())["rows"]:
            yield pytest.param(row, id=f"{table}-{row['id']}")


@pytest.mark.parametrize("row", list(paper_rows()))
def test_the_papers_memory_column_is_reproduced_within_0_006_gib(row):
    # Table 7 does not print v; its first row is row 1 of Table 6, where v = 2.
    peak = paper_equations.peak_memory(
        **LLAMA3_405B,
        sequence=8192,
        micro_batch=row.get("micro_batch", 1),
        tensor=row["t"],
        pipeline=row["p"],
        data=row["d"],
        virtual=row.get("v", 2),
        host_optimizer=row.get("optimizer_implied_by_numbers", row.get("optimizer")) == "cpu",
    )
    assert float(peak) / GIB == pytest.approx(row["memory_gib"], abs=0.006)
