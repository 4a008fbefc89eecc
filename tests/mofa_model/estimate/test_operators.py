"""What a layer takes is what its kernels were measured to take, until somebody states a law."""

from dataclasses import replace

import numpy as np
import pytest

from mofa_model import presets
from mofa_model.equations import collectives
from mofa_model.estimate.layer_time import layer_times
from mofa_model.presets.kernels import kernels
from mofa_model.spec import Training, Workload
from mofa_model.strategy import Strategy


def work(model="llama3-8b", precision="bf16", sequence=8192):
    training = Training(sequence=sequence, global_batch=64, precision=presets.precision(precision))
    return Workload(model=presets.model(model), training=training)


def layer(device="h100", precision="bf16", cluster=None, strategy=None, **changes):
    where = presets.cluster(device, 8, precision=precision) if cluster is None else cluster
    return layer_times(work(precision=precision, **changes), where, strategy or Strategy(dp=8))[0]


def test_products_of_a_layer_take_what_was_measured_longer_by_the_clock():
    timer = kernels("h100").timer("gemm", "bf16")
    sizes = [(6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)]
    seconds = sum(float(timer.seconds(m=8192, n=n, k=k)) for n, k in sizes)
    sustained = presets.calibration("h100").compute.sustained
    assert float(layer().linear) == pytest.approx(seconds * sustained, rel=1e-12)


def test_attention_of_a_layer_takes_what_was_measured():
    timer = kernels("h100").timer("causal-attention", "bf16 128")
    seconds = float(timer.seconds(batch=1.0, sequence=8192, heads=32, kv_heads=4))
    assert float(layer().attention) == pytest.approx(seconds, rel=1e-12)


def test_a_narrow_product_leaves_its_cast_to_the_elementwise_work():
    """On a B200 an fp8 product of 8,192 x 28,672 x 4,096 takes half of the bf16 one, within a fifth."""
    wide, narrow = layer("b200"), layer("b200", "fp8-current")
    assert float(narrow.linear) / float(wide.linear) == pytest.approx(0.45, rel=0.2)
    assert float(narrow.elementwise) > float(wide.elementwise)


def test_four_recipes_of_eight_bits_differ_on_a_b200():
    times = [
        float(layer("b200", name).linear)
        for name in ("fp8-current", "fp8-rowwise", "fp8-block", "nvfp4")
    ]
    assert len({round(time, 6) for time in times}) == 4


@pytest.mark.parametrize(
    "path, value, term",
    [
        ("compute.gemm_efficiency", 0.5, "linear"),
        ("compute.attention_efficiency", 0.25, "attention"),
    ],
)
def test_a_law_that_is_stated_stands_over_what_was_measured(path, value, term):
    """Half the rate, twice the time, whatever kernels reach."""
    cluster = presets.cluster("h100", 8)
    stated = [
        replace(cluster, calibration=cluster.calibration.stated(path, v))
        for v in (value, value / 2)
    ]
    one, two = (float(getattr(layer(cluster=c), term)) for c in stated)
    assert two == pytest.approx(2.0 * one, rel=1e-9)


def test_a_gather_inside_a_domain_takes_what_was_measured_and_outside_what_the_law_says():
    cluster = presets.cluster("h100", 64)
    timer = kernels("h100").timer("all-gather", "nccl 2.29.2")
    inside, outside = (collectives.path_between(cluster, size, 1.0) for size in (8.0, 16.0))
    assert float(collectives.all_gather_time(64e6, 8.0, inside)) == float(
        timer.seconds(size=64e6, ranks=8.0)
    )
    slow = replace(
        cluster, calibration=cluster.calibration.stated("links.scale_out_efficiency", 0.1)
    )
    path = collectives.path_between(slow, 16.0, 1.0)
    assert collectives.all_gather_time(64e6, 16.0, path) > collectives.all_gather_time(
        64e6, 16.0, outside
    )


def test_a_row_alone_has_the_bits_that_it_has_in_a_block():
    tp, mbs = np.array([1.0, 2.0, 4.0, 8.0] * 3), np.array([1.0, 2.0, 4.0] * 4)
    block = Strategy(tp=tp, dp=8.0 / tp, mbs=mbs, sequence_parallel=True)
    many = layer("gb200", "fp8-block", strategy=block)
    for row in range(12):
        alone = layer("gb200", "fp8-block", strategy=block.row(row))
        for term in ("linear", "attention", "tensor", "backward"):
            assert np.broadcast_to(getattr(many, term), 12)[row] == getattr(alone, term)


def test_a_device_that_nobody_measured_is_priced_by_laws():
    assert presets.calibration("mi300x").kernels is None
    assert presets.calibration("h100", "fp32").kernels is None


def test_a_stack_whose_attention_is_not_fused_keeps_its_law():
    found = presets.calibration("a100", "bf16", "megatron-lm").kernels
    assert found.attention is None
    assert found.product is not None
