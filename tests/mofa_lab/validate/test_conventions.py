"""Throughput, TFLOPS and utilisation become the same step time, each by its own convention."""

import copy
import json
from pathlib import Path

import pytest

from mofa_lab.validate.cases import case_of
from mofa_lab.validate.conventions import flops_per_token, step_time
from mofa_lab.validate.record import Record

PUBLISHED = Path(__file__).parents[3] / "lab" / "data" / "cases" / "throughput.json"
RECORDS = {record["id"]: record for record in json.loads(PUBLISHED.read_text())}
FIGURES = ("step_time_s", "tokens_per_s_per_gpu", "tflops_per_gpu", "mfu", "hfu")


def step(values):
    record = Record(values)
    case = case_of(record)
    return step_time(record, case.workload, case.cluster, case.strategy)


def test_a_throughput_needs_the_batch_alone(changed):
    # 128 x 8192 tokens on 64 GPUs at 1638.4 tokens/s each: 10 s.
    assert (
        step(changed({"measured": {"step_time_s": None, "tokens_per_s_per_gpu": 1638.4}})).value
        == 10.0
    )


def test_the_most_direct_figure_wins(changed):
    both = changed({"measured": {"step_time_s": 3.0, "tokens_per_s_per_gpu": 1.0, "mfu": 0.9}})
    assert (step(both).value, step(both).basis) == (3.0, "step_time_s")


def test_nothing_measured_is_no_step_time(changed):
    assert step(changed({"measured": {"step_time_s": None}})) is None


def counted(values, formula, basis="model"):
    case = case_of(Record(values))
    return float(flops_per_token(case.workload.model, 8192, formula, basis, case.strategy))


def test_causal_counting_leaves_out_half_of_the_attention_products(plain):
    # 32 layers x 4 x 8192 x 4096 products of scores, three passes, half of it.
    assert counted(plain, "full") - counted(plain, "causal") == 3 * 32 * 2 * 8192 * 4096


def test_a_head_counted_twice_adds_one_more_head(plain):
    assert counted(plain, "head_counted_twice") - counted(plain, "full") == 3 * 2 * 4096 * 128256


def test_recomputation_counts_four_passes_of_the_layers_and_three_of_the_head(plain):
    layers = counted(plain, "full") - 3 * 2 * 4096 * 128256
    assert counted(plain, "full", "hardware_full_recompute") == pytest.approx(
        counted(plain, "full") + layers / 3, rel=1e-12
    )


def test_the_hardware_count_is_the_published_closed_form_for_a_plain_block():
    # 96 B s L h^2 (1 + s/6h + V/16Lh) of Megatron-LM SC21, 1.7 B parameters.
    record = RECORDS["megatron-sc21-t1-1.7b"]
    B, s, L, h, V = 512, 2048, 24, 2304, 51200
    flops = 96 * B * s * L * h**2 * (1 + s / (6 * h) + V / (16 * L * h))
    assert step(record).value == pytest.approx(flops / (32 * 137e12), rel=1e-12)


ODD = {
    "internevo-7b-flops-ac-32-mb8x1": 0.04,
    "internevo-7b-flops-ac-128-mb8x1": 0.025,
    "internevo-7b-flops-ac-1024-mb4x1": 0.025,
    "internevo-7b-flops-noac-128-mb2x4": 0.015,
    "internevo-7b-flops-noac-1024-mb2x2": 0.015,
    "nv-mbridge-26.04.01-llama3-70b-h100-64-fp8": 0.025,
    "korthikanti-22b-sp-selective": 0.035,
    "korthikanti-175b-sp-selective": 0.02,
}
"""Rows whose own figures disagree by more than rounding, and by how much."""


def test_every_figure_of_a_published_run_means_the_same_step_time():
    compared = 0
    for name, record in RECORDS.items():
        seconds = []
        for figure in FIGURES:
            if record["measured"].get(figure) is not None:
                one = copy.deepcopy(record)
                one["measured"] = {
                    figure: record["measured"][figure],
                    "n_params": record["measured"].get("n_params"),
                }
                seconds.append(step(one).value)
        if len(seconds) > 1:
            compared += 1
            assert max(seconds) / min(seconds) - 1 < ODD.get(name, 0.012), name
    assert compared > 130
