"""A stack whose constants are hidden: learned from its traces, they come back, and the model gets
better for it.
"""

import json
from dataclasses import replace
from statistics import fmean

import pytest
from trace_generator import Setup, Stack, World

from mofa_lab.traces.constants import constants_of
from mofa_lab.traces.pool import pooled
from mofa_model import presets
from mofa_model.cli import main
from mofa_model.estimate.step import estimate
from mofa_model.presets import constants

HIDDEN = Stack(
    floor=0.0, gemm=0.69, half=180.0, attention=0.61, attention_half=6.0, traffic=0.72, update=0.58, up=0.66, point=0.71,
    point_start=55e-6, start=15e-6, hop=5e-6, work=22e-6,
)  # fmt: skip
SMALL = dict(layers=4, micro_batches=4)
TRACED = (
    Setup(**SMALL),
    Setup(**SMALL, tp=2, pp=2, dp=2),
    Setup(**SMALL, tp=4, pp=2, sequence=2048),
)
CALLS, WAITS = 33, 24
"""Launches of a layer with tensor parallelism, forward and backward, and its event records and
waits: by counting.
"""


@pytest.fixture(scope="module")
def sources(traced):
    return [traced(setup, HIDDEN)[1] for setup in TRACED]


@pytest.mark.parametrize(
    "path, truth",
    [
        ("compute.gemm_efficiency", HIDDEN.gemm),
        ("compute.gemm_half_m", HIDDEN.half),
        ("compute.attention_efficiency", HIDDEN.attention),
        ("compute.attention_half", HIDDEN.attention_half),
        ("compute.attention_backward", 2.5),
        ("compute.memory_efficiency", HIDDEN.traffic),
        ("compute.optimizer_efficiency", HIDDEN.update),
        ("links.scale_up_efficiency", HIDDEN.up),
        ("links.point_efficiency", HIDDEN.point),
        ("links.point_latency", HIDDEN.point_start),
        ("host.layer", CALLS * (HIDDEN.work + HIDDEN.call) + WAITS * 2.5e-6),
        ("host.layer_unsharded", 25 * (HIDDEN.work + HIDDEN.call)),
    ],
)
def test_hidden_constants_come_back_within_five_percent(sources, path, truth):
    found = {one.path: one for one in pooled(sources)}
    assert found[path].value == pytest.approx(truth, rel=0.05)
    assert found[path].samples > 0


def test_what_was_learned_halves_the_error_of_the_model_elsewhere(
    sources, layout, tmp_path, monkeypatch
):
    monkeypatch.setenv(constants.VARIABLE, "")
    others = [
        Setup(layers=8, micro_batches=8),
        Setup(layers=8, micro_batches=8, dp=2),
        Setup(layers=8, micro_batches=16, tp=2),
        Setup(layers=8, micro_batches=16, pp=2, tp=2),
        Setup(layers=8, micro_batches=16, tp=4, hidden=8192, heads=64),
        Setup(layers=8, micro_batches=8, sequence=8192),
    ]
    truth = [World(setup, HIDDEN).run().step_seconds for setup in others]

    def error():
        return fmean(
            abs(float(estimate(one.workload, one.cluster, one.strategy).step_time) / seconds - 1.0)
            for one, seconds in zip(map(layout, others), truth, strict=True)
        )

    before = error()
    file = tmp_path / "mine.toml"
    file.write_text(constants_of(sources, "default")[1])
    monkeypatch.setenv(constants.VARIABLE, str(file))
    assert error() < 0.5 * before


def test_the_command_writes_a_layer_that_every_verb_reads(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv(constants.VARIABLE, "")
    setup = Setup(layers=32, micro_batches=2, vocabulary=128256)
    (path,) = World(setup, replace(HIDDEN, jitter=0.01)).run().write(tmp_path, [0], compress=True)
    run = f'[[run]]\nfiles = ["{path.name}"]\nmodel = "llama3.1-8b"\ngpu = "h100"\nstrategy = "dp=1"\nglobal_batch = 2\nseq = 4096\n'
    (tmp_path / "runs.toml").write_text(run)
    mine = tmp_path / "mine.toml"
    code = main(["trace", "calibrate", str(tmp_path / "runs.toml"), "--to", str(mine), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert code == 0
    value = next(
        one["value"] for one in told["constants"] if one["path"] == "compute.gemm_efficiency"
    )
    assert value == pytest.approx(HIDDEN.gemm, rel=0.05)
    monkeypatch.setenv(constants.VARIABLE, str(mine))
    here = presets.constants_of("h100", "bf16", "default")["compute.gemm_efficiency"]
    assert here.value == pytest.approx(value, rel=1e-3)
    assert "traces of 1 ranks" in here.source


@pytest.mark.parametrize(
    "text, why",
    [
        ("run = 3", r"\[\[run\]\]"),
        ("[[run]]\nfiles = []", "files"),
        ('[[run]]\nfiles = ["x.json"]\nmodle = "x"', "modle"),
        ('[[run]]\nfiles = ["x.json"]\nmodel = "llama3.1-8b"', "--gpu"),
        ("[[run", "TOML"),
    ],
)
def test_a_wrong_list_of_runs_ends_in_one_line(tmp_path, capsys, text, why):
    (tmp_path / "runs.toml").write_text(text)
    mine = tmp_path / "mine.toml"
    assert main(["trace", "calibrate", str(tmp_path / "runs.toml"), "--to", str(mine)]) == 2
    said = capsys.readouterr().err
    assert why.replace("\\", "") in said
    assert said.count("\n") == 1
    assert not mine.exists()
