"""A user's own runs: rows and logs in, a layer of constants and a band out."""

import re
import tomllib
from pathlib import Path

import pytest

from mofa_model import presets
from mofa_model.bands.coordinates import coordinates
from mofa_model.bands.evidence import basis_of
from mofa_model.bands.odds import band_of
from mofa_model.bands.table import measured_runs
from mofa_model.calibrate import runs
from mofa_model.cli import main
from mofa_model.errors import BadFile, BadValue, UnknownName
from mofa_model.estimate import estimate
from mofa_model.presets import constants

ROW = {
    "model": "llama3.1-8b",
    "gpu": "h100",
    "gpus": 64,
    "strategy": "tp=1,dp=64,mbs=1,optimizer=zero3",
    "global_batch": 128,
    "sequence": 8192,
    "step_seconds": 1.0,
}
PAGE = Path(__file__).resolve().parents[3] / "docs" / "calibration.md"


@pytest.fixture(autouse=True)
def shipped(monkeypatch):
    """No file of constants from the caller's environment, and none left behind."""
    monkeypatch.delenv(constants.VARIABLE, raising=False)


def predicted(row):
    """Step time of a row with the constants that hold."""
    case = runs.case_of(row)
    return float(estimate(case.workload, case.cluster, case.strategy).step_time)


def slower(factor, **changes):
    """A row whose step takes so many times what is predicted."""
    row = ROW | changes
    return row | {"step_seconds": factor * predicted(row)}


@pytest.mark.parametrize("factor", [0.8, 1.25])
def test_one_run_brings_its_own_error_below_a_third(factor):
    found = runs.refine([runs.case_of(slower(factor))])[0]
    assert found.before[0] == pytest.approx(1 / factor - 1)
    assert abs(found.after[0]) < abs(found.before[0]) / 3


def test_one_run_brings_a_neighbour_that_is_off_by_as_much_much_closer(tmp_path):
    strategy = "tp=1,dp=128,mbs=2,optimizer=zero3"
    other = slower(1.25, gpus=128, strategy=strategy, global_batch=256, sequence=4096)
    text = runs.as_toml(runs.refine([runs.case_of(slower(1.25))]))
    before = predicted(other) / other["step_seconds"] - 1
    after = _with(
        text, lambda: predicted(other) / other["step_seconds"] - 1, tmp_path / "mine.toml"
    )
    assert before == pytest.approx(-0.2)
    assert abs(after) < 0.1


def _with(text, ask, name):
    """An answer while a file of constants holds."""
    name.write_text(text, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(constants.VARIABLE, str(name))
        return ask()


def test_the_file_says_what_the_fit_said(tmp_path):
    found = runs.refine([runs.case_of(slower(1.25))])[0]
    row = slower(1.25)
    error = _with(
        runs.as_toml([found]), lambda: predicted(row) / row["step_seconds"] - 1, tmp_path / "a.toml"
    )
    assert error == pytest.approx(found.after[0], abs=2e-3)


def band(row, quantity="step"):
    """The band of a row with the runs that hold."""
    case = runs.case_of(row)
    return band_of(
        measured_runs(), coordinates(case.workload, case.cluster, case.strategy), quantity
    )


def basis(row):
    case = runs.case_of(row)
    return basis_of(measured_runs(), coordinates(case.workload, case.cluster, case.strategy))


def test_runs_narrow_the_band_of_an_unseen_stack_and_are_what_it_rests_on(tmp_path):
    cases = [runs.case_of(slower(factor, id=f"mine {factor}")) for factor in (1.02, 0.98, 1.0)]
    text = runs.as_toml(runs.refine(cases))
    wide, bare = band(ROW), basis(ROW)
    narrow, known = _with(text, lambda: (band(ROW), basis(ROW)), tmp_path / "b.toml")
    assert wide.lower < narrow.lower < 1 < narrow.upper < wide.upper
    assert (bare.runs, known.runs) == (0, 3)
    assert known.within < bare.within
    assert known.nearest[0].name.startswith("mine")
    assert known.nearest[0].distance == 0


@pytest.mark.parametrize("factor", [0.4, 2.6])
def test_a_run_far_off_is_no_outlier(factor):
    found = runs.refine([runs.case_of(slower(factor))])[0]
    assert abs(found.after[0]) < abs(found.before[0]) / 2


def test_runs_of_one_chip_move_no_other(tmp_path):
    text = runs.as_toml(runs.refine([runs.case_of(slower(1.5))]))
    others = [ROW | {"gpu": name} for name in ("h200", "h800", "a100", "gb200", "mi300x")]
    others += [ROW | {"stack": "torchtitan"}]
    before = [predicted(row) for row in others]
    after = _with(text, lambda: [predicted(row) for row in others], tmp_path / "c.toml")
    assert after == pytest.approx(before, rel=0.01)
    assert presets.device_class("h200") == presets.device_class("h100")


def test_memory_that_was_measured_moves_the_memory_that_is_predicted():
    case = runs.case_of(ROW | {"memory_gib": 70})
    paths = {item.entry.path for item in runs.refine([case])[0].written}
    assert any(path.startswith("memory.") for path in paths)


@pytest.mark.parametrize("missing", runs.NEEDED)
def test_a_row_without_a_field_is_refused_by_the_fields_name(missing):
    row = {name: value for name, value in ROW.items() if name != missing}
    with pytest.raises(BadValue, match=f"run 4: {missing}"):
        runs.case_of(row, 4)


WRONG = (
    ("gpus", 2.5), ("gpus", "many"), ("step_seconds", -1), ("step_seconds", "4 apples"), ("global_batch", 63),
    ("sequence", float("nan")), ("model", "no-such"), ("gpu", "no-such"), ("strategy", "tp=3"),
)  # fmt: skip


@pytest.mark.parametrize("name, value", WRONG)
def test_a_value_that_cannot_be_is_refused_in_one_line(name, value):
    with pytest.raises(BadFile, match="run 2") as refused:
        runs.case_of(ROW | {name: value}, 2)
    assert "\n" not in str(refused.value)


def test_a_field_that_does_not_exist_is_refused():
    with pytest.raises(UnknownName, match="steps_seconds"):
        runs.case_of(ROW | {"steps_seconds": 3})


def test_a_time_may_have_a_unit():
    assert runs.case_of(ROW | {"step_seconds": "412 ms"}).measured[0].value == pytest.approx(0.412)


def test_the_rows_of_the_page_are_read(tmp_path):
    text = PAGE.read_text(encoding="utf-8")
    rows = re.search(r"(?m)^    (id,model.*\n(?:    .+\n)+)", text).group(1).replace("\n    ", "\n")
    file = tmp_path / "runs.csv"
    file.write_text(rows, encoding="utf-8")
    found = [runs.case_of(row, i) for i, row in enumerate(runs.read_runs(file), start=1)]
    assert [case.id for case in found] == ["a", "b"]
    assert set(runs.NEEDED) | set(runs.POSSIBLE) >= set(rows.splitlines()[0].split(","))
    for name in (*runs.NEEDED, *runs.POSSIBLE):
        assert name in text


LOGS = {
    "megatron": " [2025-01-01] iteration  {i}/ 99 | consumed samples: 8 | elapsed time per iteration (ms): {ms:.1f} | lm loss: 7.0",
    "bridge": "Step Time : {s:.3f}s GPU utilization: 700.2MODEL_TFLOP/s/GPU",
    "nemo": "Training epoch 0, iteration {i}/99 | global_batch_size: 128 | train_step_timing in s: {s:.4f} | consumed_samples: 9",
    "nanotron": "[INFO]: iteration: {i} / 99 | consumed_tokens: 1.05M | elapsed_time_per_iteration_ms: {k:.4f}K | tokens_per_sec: 26.7K",
    "torchtitan in colour": "\x1b[31mstep: {i}  \x1b[32mloss: 7.1  \x1b[34mtps: {tps:,.0f}  \x1b[39m",
    "torchtitan": "[titan] step: {i}  loss: 7.1  memory: 47.9GiB(60%)  tps: {tps:,.0f}  tflops: 300.1  mfu: 30.3%",
    "deepspeed": "[INFO] epoch=0/micro_step={i}, RunningAvgSamplesPerSec=1.0, CurrSamplesPerSec={rate:.5f}, MemAllocated=1GB",
}


def lines_of(form, seconds):
    tps = 128 * 8192 / (64 * seconds)
    return [
        LOGS[form].format(i=i, s=t, ms=1000 * t, k=t, tps=tps * seconds / t, rate=128 / t)
        for i, t in enumerate([30.0, 9.0, *[seconds] * 9], start=1)
    ]


@pytest.mark.parametrize("form", LOGS)
def test_every_trainers_lines_give_the_steady_step_time(form):
    lines = ["some other line", *lines_of(form, 2.5), "step done"]
    assert runs.step_seconds(lines, global_batch=128, sequence=8192, gpus=64) == pytest.approx(
        2.5, rel=1e-3
    )


def test_a_log_without_steps_is_refused():
    with pytest.raises(BadFile, match="holds 0 lines"):
        runs.step_seconds(["nothing here"], global_batch=8, sequence=8, gpus=8)


def test_the_command_reads_a_log_and_writes_a_layer(tmp_path, capsys):
    log, file = tmp_path / "train.log", tmp_path / "mine.toml"
    log.write_text("\n".join(lines_of("torchtitan", 1.5)), encoding="utf-8")
    asked = (
        "--model llama3.1-8b --gpu h100 --gpus 64 --stack torchtitan --global-batch 128 --seq 8192"
    )
    code = main(
        [
            "calibrate",
            "--from-runs",
            str(log),
            *asked.split(),
            "--strategy",
            "tp=1,dp=64,mbs=1",
            "--to",
            str(file),
        ]
    )
    assert code == 0
    assert "80 % band" in capsys.readouterr().out
    assert (
        "h100-80gb-sxm"
        in tomllib.loads(file.read_text(encoding="utf-8"))["stack"]["torchtitan"]["chip"]
    )


def test_a_log_without_its_options_is_refused(tmp_path, capsys):
    log = tmp_path / "train.log"
    log.write_text("\n".join(lines_of("nemo", 1.5)), encoding="utf-8")
    assert main(["calibrate", "--from-runs", str(log)]) == 2
    assert "--gpus" in capsys.readouterr().err
