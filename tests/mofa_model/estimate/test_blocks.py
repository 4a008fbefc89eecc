"""What a device reaches: the peaks of its data sheet, scaled by the constants of the stack."""

from dataclasses import replace

import pytest

from mofa_model import presets
from mofa_model.blocks import Rows
from mofa_model.estimate.block_time import attention_rate, memory_rate, product_rate
from mofa_model.spec import Training, Workload


def workload(precision):
    training = Training(sequence=4096, global_batch=8, precision=presets.precision(precision))
    return Workload(model=presets.model("llama2-7b"), training=training)


def rates(workload, cluster):
    return {
        "linear": product_rate(workload, cluster, Rows.TOKENS),
        "head": product_rate(workload, cluster, Rows.SENT),
        "attention": attention_rate(workload, cluster),
        "memory": memory_rate(cluster),
    }


def with_constants(cluster, **changes):
    compute = replace(cluster.calibration.compute, **changes)
    return replace(cluster, calibration=replace(cluster.calibration, compute=compute))


@pytest.fixture
def ideal():
    """One H100 that reaches its data sheet: 989 TFLOP/s in bf16, 1,979 in fp8, 3.35 TB/s."""
    return with_constants(
        presets.cluster("h100-80gb-sxm", 8),
        gemm_efficiency=1.0,
        attention_efficiency=1.0,
        memory_efficiency=1.0,
        low_precision_rate=1.0,
    )


def test_a_stack_that_reaches_all_of_it_has_the_rates_of_the_data_sheet(ideal):
    reached = rates(workload("bf16"), ideal)
    assert reached.pop("memory") == ideal.device.memory_bandwidth
    assert set(reached.values()) == {ideal.device.peak_rate("bf16")}


@pytest.mark.parametrize(
    ("constant", "scaled"),
    [
        ("gemm_efficiency", {"linear", "head"}),
        ("attention_efficiency", {"attention"}),
        ("memory_efficiency", {"memory"}),
    ],
)
def test_a_constant_scales_the_rates_that_it_names_and_no_other(ideal, constant, scaled):
    whole = rates(workload("bf16"), ideal)
    half = rates(workload("bf16"), with_constants(ideal, **{constant: 0.5}))
    for name, rate in whole.items():
        assert half[name] == rate * (0.5 if name in scaled else 1.0)


def test_only_the_layers_products_run_in_the_low_precision(ideal):
    slower = with_constants(ideal, low_precision_rate=0.9)
    reached = rates(workload("fp8-delayed"), slower)
    assert reached["linear"] == 0.9 * ideal.device.peak_rate("fp8")
    assert reached["head"] == reached["attention"] == ideal.device.peak_rate("bf16")
