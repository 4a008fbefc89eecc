"""The MoFa paper's printed numbers, row by row, within the tolerances that its equations reach."""

from pathlib import Path

import pytest

from mofa_lab.validate.paper import CHECKS, validate_paper
from mofa_lab.validate.paper_fit import fit_dense, fit_mixture, shipped_dense, shipped_mixture
from mofa_lab.validate.record import Record, read

DATA = Path(__file__).parents[3] / "lab" / "data"
TABLES = [str(DATA / f"paper_table{number}.json") for number in (5, 6, 7, 8, 9)]


def lines():
    return [
        pytest.param(row, id=f"table{row['table']}-{row['id']}-{row['quantity']}")
        for row in validate_paper(TABLES)["rows"]
    ]


@pytest.mark.parametrize("row", lines())
def test_a_printed_number_is_met(row):
    assert row["ok"], row


def test_every_check_is_made_and_the_mean_of_steps_holds():
    document = validate_paper(TABLES)
    assert document["unsupported"] == []
    made = {(row["table"], row["quantity"]) for row in document["rows"]}
    assert made == {(check.table, check.quantity) for check in CHECKS}
    assert all(mean["ok"] for mean in document["means"])


@pytest.mark.parametrize(
    "table, ids", [(6, "1 5 6 7 9 12 16 18"), (8, "1 4 5 8 11 14 15 24")], ids=["table6", "table8"]
)
def test_constants_fitted_anew_from_the_calibration_rows_hold_as_well(table, ids):
    document = validate_paper([str(DATA / f"paper_table{table}.json")], calibrate_on=ids.split())
    assert all(row["ok"] for row in document["rows"])


def records(table):
    return [Record(row) for row in read(DATA / f"paper_table{table}.json")[0]]


@pytest.mark.parametrize(
    "part, name, tolerance",
    [
        ("effective", "layer", 0.001),
        ("effective", "head", 0.01),
        ("effective", "hop", 0.005),
        ("shared", "tensor", 0.005),
        ("shared", "host_update", 0.001),
        ("shared", "data", 0.001),
        ("shared", "data_growth", 0.005),
        ("shared", "data_exposed", 0.01),
        ("physical", "layer", 0.01),
        ("physical", "layer_half", 0.01),
        ("physical", "hop", 0.005),
    ],
)
def test_shipped_constants_of_table_6_are_those_of_its_calibration_rows(part, name, tolerance):
    shipped, fitted = shipped_dense(), fit_dense(shipped_dense(), records(6))
    assert getattr(getattr(fitted, part), name) == pytest.approx(
        getattr(getattr(shipped, part), name), rel=tolerance
    )


@pytest.mark.parametrize(
    "name", ["layer", "layer_per_expert", "head", "exchange", "update", "data_dense"]
)
def test_shipped_constants_of_table_8_are_those_of_its_calibration_rows(name):
    shipped, fitted = shipped_mixture(), fit_mixture(shipped_mixture(), records(8))
    assert getattr(fitted.constants, name) == pytest.approx(
        getattr(shipped.constants, name), rel=0.005
    )


def test_a_row_that_is_of_no_table_is_named_and_the_others_go_on(tmp_path):
    path = tmp_path / "rows.json"
    path.write_text(
        '{"rows": [{"id": "odd"}, 7, {"id": "zero", "n_steps": 4, "total_s": 3, "n_gpus": 0}]}'
    )
    document = validate_paper([str(path)])
    assert [item["id"] for item in document["unsupported"]] == ["odd", "#2", "zero"]
