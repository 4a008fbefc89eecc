"""Errors, regret and out-of-memory counts, each with a number that a reader can redo."""

import pytest

from mofa_lab.validate.cases import case_of
from mofa_lab.validate.record import Record
from mofa_lab.validate.score import Scored, out_of_memory, pick_regret, spread, summary
from mofa_model.calibrate.cases import MeasuredFigure


def scored(
    plain, measured, predicted, *, group="", gpus=64, quantity="step_time_s", gpu="H100-80GB-SXM"
):
    record = {
        **plain,
        "group": group,
        "system": {**plain["system"], "gpu": gpu, "gpus": gpus},
        "strategy": {**plain["strategy"], "dp": gpus // 8, "gbs": gpus},
    }
    figure = MeasuredFigure(quantity=quantity, value=measured)
    return Scored(case=case_of(Record(record)), figure=figure, predicted=predicted)


def test_the_error_is_signed_and_relative_to_what_was_measured(plain):
    assert scored(plain, 10.0, 9.0).error == pytest.approx(-0.1)
    assert scored(plain, 10.0, 12.0).error == pytest.approx(0.2)


def test_memory_is_printed_in_gib_and_times_in_seconds(plain):
    assert scored(plain, 2.0**31, 2.0**30, quantity="memory_gib").row()["measured"] == 2
    assert scored(plain, 3.0, 3.0).row()["measured"] == 3


def test_the_spread_is_of_sizes_of_errors():
    assert spread([-0.1, 0.1, 0.4]) == {
        "n": 3,
        "mape": pytest.approx(0.2),
        "median_ape": pytest.approx(0.1),
        "p90_ape": pytest.approx(0.34),
    }
    assert spread([])["mape"] is None


def test_the_summary_parts_by_source_and_gpu_add_up_to_the_whole(plain):
    rows = [scored(plain, 1.0, 1.1), scored(plain, 1.0, 1.2, gpu="A100-80GB-SXM")]
    found = summary(rows)
    assert found["n"] == 2
    assert {name: part["n"] for name, part in found["by_gpu"].items()} == {
        "A100-80GB-SXM": 1,
        "H100-80GB-SXM": 1,
    }


def test_regret_is_the_throughput_lost_by_the_pick(plain):
    # The model picks the run of 5 s; the best took 4 s: a fifth of the throughput is lost.
    times = [(5.0, 1.0), (4.0, 2.0), (6.0, 3.0), (7.0, 4.0), (8.0, 5.0)]
    rows = [scored(plain, measured, predicted, group="g") for measured, predicted in times]
    found = pick_regret(rows)
    assert found["mean"] == pytest.approx(0.2)
    assert found["below_512_gpus"]["groups"] == 1


def test_groups_of_fewer_than_five_runs_count_among_every_choice_alone(plain):
    """Of four runs of 1 to 4 s the slowest is picked: three quarters are lost. One run is
    no choice.
    """
    rows = [scored(plain, 1.0 + i, 9.0 - i, group="g") for i in range(4)]
    found = pick_regret([*rows, scored(plain, 1.0, 1.0, group="alone")])
    assert found["groups"] == 0
    assert found["every_choice"] == {
        "groups": 1, "mean": 0.75, "p90": 0.75,
        "below_512_gpus": {"groups": 1, "mean": 0.75, "p90": 0.75},
    }  # fmt: skip


def test_large_groups_are_left_out_of_the_second_figure(plain):
    rows = [scored(plain, 1.0 + i, 9.0 - i, group="g", gpus=512) for i in range(5)]
    found = pick_regret(rows)
    assert found["groups"] == 1
    assert found["below_512_gpus"] == {"groups": 0, "mean": None, "p90": None}


def test_out_of_memory_runs_are_counted_by_what_happened_and_what_was_said(changed):
    import numpy as np

    ran, died = case_of(Record(changed({}))), case_of(Record(changed({"measured": {"oom": True}})))
    said = np.array([True, False, True, True, False])
    assert out_of_memory([died, died, died, ran, ran], said) == {
        "true_positive": 2,
        "false_negative": 1,
        "false_positive": 1,
        "true_negative": 1,
    }
