"""A sweep answers at every point of a grid: any field of the job, the strategy, or a
measured constant.
"""

import json

import pytest

from mofa_model.cli import main

JOB = ["--model", "llama3-8b", "--gpu", "h100", "--seq", "8192"]
ONE = ["--gpus", "64", "--global-batch", "512", "--strategy", "tp=2,sp=true,mbs=1"]


def rows(capsys, *words):
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)["rows"]


def test_a_batch_can_grow_with_the_gpus(capsys):
    told = rows(capsys, "sweep", *JOB, "--vary", "gpus=16,32", "global_batch=2/gpu,64")
    assert [row["status"] for row in told] == ["Recommended"] * 4
    twice, fixed = told[2]["tokens_per_second"], told[3]["tokens_per_second"]
    assert twice == fixed  # 2 x 32 = 64


def test_without_overlap_nothing_is_faster(capsys):
    told = rows(capsys, "sweep", *JOB, *ONE, "--vary", "dp_overlap=true,false")
    assert told[0]["step_seconds"] <= told[1]["step_seconds"]
    assert "dp-overlap=false" in told[1]["strategy"]


def test_a_measured_constant_can_vary(capsys):
    told = rows(capsys, "sweep", *JOB, *ONE, "--vary", "compute.attention_efficiency=0.2,0.4,0.8")
    times = [row["step_seconds"] for row in told]
    assert times == sorted(times, reverse=True)
    assert times[0] > times[-1]


def test_uneven_routing_and_chunks_vary_for_a_preset(capsys):
    job = [
        "--model",
        "mixtral-8x7b",
        "--gpu",
        "h100",
        "--seq",
        "8192",
        "--gpus",
        "64",
        "--global-batch",
        "512",
    ]
    varied = ["chunks=1,4", "imbalance=1,1.4,1.4:0.1,0.9"]
    told = rows(capsys, "sweep", *job, "--strategy", "pp=4,ep=8,recompute=full", "--vary", *varied)
    times = [row.get("step_seconds") for row in told]
    memory = [row.get("activation_bytes") for row in told]
    assert times[0] < times[1] == times[2]
    assert memory[0] < memory[1] < memory[2]
    assert all(b < a for a, b in zip(memory[:3], memory[4:7], strict=True))
    assert times[4] > times[0]
    assert times[5] > times[6]  # most loads ask for fewer of the four chunks than the tail does
    assert [row["status"] for row in (told[3], told[7])] == ["Failed"] * 2


def test_tokens_give_the_time_to_finish_and_gpu_hours(capsys):
    told = rows(capsys, "sweep", *JOB, *ONE, "--tokens", "1T", "--vary", "interval=10,1000")
    for row in told:
        assert row["gpu_hours"] == pytest.approx(row["duration_seconds"] / 3600 * 64)
    assert "duration_seconds" not in rows(capsys, "sweep", *JOB, *ONE, "--vary", "mbs=1")[0]


@pytest.mark.parametrize(
    "vary, said",
    [
        ("global_batch=many/gpu", "sequences for each device"),
        ("compute.attention=1", "did you mean"),
        ("compute.gemm_shape=round", "give a number"),
        ("interval=8..4:x1", "a range must grow"),
    ],
)
def test_a_value_that_cannot_be_is_said_in_one_line(capsys, vary, said):
    assert main(["sweep", *JOB, *ONE, "--vary", vary]) == 2
    assert said in capsys.readouterr().err


def test_ettr_varies_as_the_paper_does_in_section_5_4(capsys):
    job = ["--nodes", "32", "--step", "27.99s", "--rate", "0.01", "--mttr", "60s", "--save", "2s"]
    told = rows(capsys, "ettr", *job, "--vary", "rate=0.0025,0.01,0.015")
    assert [row["interval_steps"] for row in told] == [74, 37, 30]
    assert [round(row["ettr"], 4) for row in told] == [0.998, 0.9959, 0.995]


def test_three_rooflines_from_the_data_sheet_to_every_shape(capsys):
    """Theoretical is never slower than modified, nor that than shaped; memory and launches do
    not change.
    """
    told = rows(capsys, "sweep", *JOB, *ONE, "--vary", "roofline=theoretical,modified,shaped")
    times = [row["step_seconds"] for row in told]
    assert times == sorted(set(times))
    assert len({row["memory_bytes"] for row in told}) == 1
    default = rows(capsys, "sweep", *JOB, *ONE, "--vary", "gpu=h100")[0]
    assert default["step_seconds"] == times[2]


def test_linearity_is_work_per_device_and_second_over_that_of_the_fewest(capsys):
    """Eq. (45): where the batch grows with the GPUs, the ratio of step times."""
    told = rows(
        capsys,
        "sweep",
        *JOB,
        *ONE,
        "--vary",
        "gpus=64,16,1k",
        "global_batch=2/gpu,4/gpu",
        "--jobs",
        "1",
    )
    first = {row["global_batch"]: row["step_seconds"] for row in told if row["gpus"] == "16"}
    for row in told:
        assert row["linearity"] == pytest.approx(
            first[row["global_batch"]] / row["step_seconds"], rel=1e-12
        )
    assert "linearity" not in rows(capsys, "sweep", *JOB, *ONE, "--vary", "mbs=1,2")[0]
