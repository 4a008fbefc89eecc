"""Tables of measured kernels in, surfaces and comparisons out; and the shipped surfaces against a
fixed sample of rows.
"""

import json
import lzma
import os
from pathlib import Path

import numpy as np
import pytest

from mofa_lab.kernels import fit, report, score, tables
from mofa_lab.kernels.device import calls_of
from mofa_model.cli import main
from mofa_model.errors import BadFile
from mofa_model.kernels import OPERATORS, Sheet, Timer

ROOT = Path(__file__).resolve().parents[3]
SAMPLE = sorted(str(path) for path in (ROOT / "tests/data/kernels").glob("*.csv.xz"))
WHOLE = "MOFA_KERNEL_ROWS"
"""Names the folder with all measured rows, where there is one."""
FLOORS = {
    ("gemm bf16", "a100-80gb-sxm"): (7, 21), ("gemm bf16", ""): (4.5, 13), ("gemm fp8-tensorwise", ""): (4, 12),
    ("gemm fp8-block", "h100-80gb-sxm"): (7, 20), ("gemm fp8-block", ""): (4, 14), ("gemm nvfp4", ""): (5, 16),
    ("gemm fp8-rowwise", ""): (8, 28), ("causal-attention bf16", ""): (4.5, 18), ("causal-attention fp8", ""): (4.5, 22),
    ("full-attention bf16", ""): (9, 25), ("collectives", ""): (4, 15),
}  # fmt: skip
"""Median and 90th percentile in percent of a device's sampled rows; "" for the other devices. Some
are a hundred rows.
"""


def answer(capsys, *words):
    assert main(["validate", "kernels", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.fixture(scope="module")
def compared():
    return score.compared(SAMPLE)


def test_the_shipped_surfaces_hold_for_measured_rows(compared):
    found = score.grouped(compared)
    missed = {}
    for (device, op), row in found.items():
        floor = FLOORS.get((op, device)) or FLOORS.get((op, ""))
        if (
            floor
            and row["n"] >= 40
            and (100 * row["median_ape"] > floor[0] or 100 * row["p90_ape"] > floor[1])
        ):
            missed[device, op] = row
    assert missed == {}
    assert sum(row["n"] for row in found.values()) > 5000


def test_a_comparison_names_each_row_with_both_times(capsys):
    told = answer(capsys, SAMPLE[0])
    case = told["cases"][0]
    assert set(case) == {"id", "device", "op", "predicted_s", "measured_s"}
    assert (
        len({case["id"] for case in told["cases"]})
        == len(told["cases"])
        == told["summary"]["n"]
        == 1500
    )
    assert main(["validate", "kernels", SAMPLE[0]]) == 0
    assert "causal-attention bf16" in capsys.readouterr().out


@pytest.mark.skipif(
    WHOLE not in os.environ, reason=f"{WHOLE} names no folder with all measured rows"
)
def test_no_row_of_the_whole_is_left_without_a_prediction():
    files = [
        str(path)
        for path in Path(os.environ[WHOLE]).glob("*.csv.xz")
        if "sustained" not in path.name
    ]
    missing = [one for one in score.compared(files) if np.any(np.isnan(one.predicted))]
    assert [(one.calls.device, one.calls.operator, one.calls.form) for one in missing] == []


def made(count=400, seed=0):
    """Calls of a device that keeps to a law of its own, with 2 % of noise."""
    random = np.random.default_rng(seed)
    sizes = {name: np.exp2(random.integers(7, 14, count).astype(float)) for name in ("m", "n", "k")}
    seconds = 5e-6 + 2.0 * sizes["m"] * sizes["n"] * sizes["k"] / 7e14
    return tables.Calls(
        device="h100-80gb-sxm", operator="gemm", form="bf16", format="bf16", given={"width": 2.0}, sizes=sizes,
        seconds=seconds * np.exp(random.normal(0.0, 0.02, count)), families=np.array(["a"] * count),
        ids=np.array([str(i) for i in range(count)]),
    )  # fmt: skip


def test_a_fit_finds_the_law_that_made_its_calls_and_grows_with_every_size():
    calls, sheet = made(), Sheet(peak=1e15, memory=3.35e12, link=4.5e11)
    surface = fit.surface(calls, sheet, "a toy")
    timer = Timer(work=OPERATORS["gemm"].work, surface=surface, sheet=sheet)
    fresh = made(seed=1)
    assert np.median(np.abs(timer.seconds(**fresh.sizes) / fresh.seconds - 1.0)) < 0.025
    assert fit.shrinking(calls, timer) < 1e-3
    again = fit.surface(calls, sheet, "a toy")
    assert again.corrections.tolist() == surface.corrections.tolist()
    assert again.law == surface.law


def test_knots_that_are_sought_stand_where_kernels_depart_from_the_law():
    """Calls with up to 64 heads keep to the law, those with 96 take an octave more: the knot
    between is at 64.
    """
    heads = np.repeat([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 96.0], 10)
    assert fit._sought(heads, np.where(heads > 64.0, 1.0, 0.0), 3) == (1.0, 64.0, 96.0)
    assert fit._sought(heads[:20], np.zeros(20), 3) == (1.0, 2.0)


def test_calibrating_writes_a_file_that_then_holds(tmp_path, monkeypatch, capsys):
    calls = made()
    rows = zip(*(calls.sizes[name] for name in "mnk"), calls.seconds, strict=True)
    text = "device,recipe,m,n,k,seconds_best\n" + "".join(
        f"h100-80gb-sxm,bf16,{m:g},{n:g},{k:g},{s:g}\n" for m, n, k, s in rows
    )
    (tmp_path / "mine.csv").write_text(text)
    assert (
        main(
            [
                "calibrate",
                "kernels",
                str(tmp_path / "mine.csv"),
                "--to",
                str(tmp_path / "out"),
                "--json",
            ]
        )
        == 0
    )
    assert "h100-80gb-sxm.json" in capsys.readouterr().out
    before = answer(capsys, str(tmp_path / "mine.csv"))["summary"]["median_ape"]
    monkeypatch.setenv("MOFA_KERNELS", str(tmp_path / "out"))
    after = answer(capsys, str(tmp_path / "mine.csv"))["summary"]["median_ape"]
    assert after < 0.025 < before


def test_a_record_of_both_ways_becomes_the_section_of_the_page(tmp_path, capsys):
    collectives = next(name for name in SAMPLE if "collectives" in name)
    for way in ("family", "device"):
        answer(capsys, collectives, "--left-out", way, "--record", str(tmp_path / "kernels.json"))
    page = report.section(tmp_path / "kernels.json")
    assert "| collectives | 4 | 14 |" in page  # devices, calls


@pytest.mark.parametrize(
    "text, told",
    [
        ("device,recipe,m,n,k,seconds_best\n", "has no rows"),
        ("device,recipe,m,n,k,seconds_best\nh100-80gb-sxm,bf16,1,2\n", "line 2 has 4 cells, not 6"),
        (
            "device,recipe,m,n,k,seconds_best\nh100-80gb-sxm,bf16,x,2,3,1e-5\n",
            "column m: could not convert",
        ),
        ("device,recipe,m,n,k,seconds_best\nh100-80gb-sxm,bf16,-1,2,3,1e-5\n", "column m has -1"),
        ("device,recipe,m,n,k,seconds_best\nh1000,bf16,1,2,3,1e-5\n", "h1000"),
        ("device,a\nx,1\n", "is no table of kernels"),
        ("device,a\nx," + "1" * 200_000, "line 2: field larger than field limit"),
        ("device,a\n" + "x" * 100_000 + ",1\n" + "y,1\n" * 2000, "takes 763 MiB as columns"),
    ],
)
def test_a_table_that_cannot_be_read_is_refused_in_one_line(tmp_path, capsys, text, told):
    (tmp_path / "t.csv").write_text(text)
    assert main(["validate", "kernels", str(tmp_path / "t.csv")]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1


def test_a_small_packed_file_that_unpacks_to_gigabytes_is_refused_before_it_does(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(tables, "LARGEST", 2**20)
    bomb = tmp_path / "bomb.csv.xz"
    bomb.write_bytes(lzma.compress(b"device,recipe\n" + bytes(2 * 2**20), preset=0))
    with pytest.raises(BadFile, match="holds more than 1 MiB"):
        calls_of([str(bomb)])
    bomb.write_bytes(lzma.compress(b"device,recipe\nx,y\n" * 9)[:-40])
    with pytest.raises(BadFile, match="is truncated"):
        calls_of([str(bomb)])


def test_tables_are_told_by_their_columns_packed_or_plain(tmp_path):
    (tmp_path / "gemm.csv").write_bytes(
        lzma.decompress(Path(next(n for n in SAMPLE if "gemm" in n)).read_bytes())
    )
    (calls, *_) = calls_of([str(tmp_path / "gemm.csv")])
    assert calls.operator == "gemm"
    assert set(calls.sizes) == {"m", "n", "k"}
