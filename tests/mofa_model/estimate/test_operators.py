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


MEASURED_WINDOWS = {"h100": 195.9e-6, "b200": 121.5e-6, "gb200": 113.3e-6, "gb300": 101.6e-6}
"""64 heads of 64 over 8 of keys, 8192 tokens, a window of 128: ai-dynamo/aiconfigurator,
Apache-2.0. [s]
"""


@pytest.mark.parametrize("device", MEASURED_WINDOWS)
def test_attention_in_a_window_takes_a_fifth_of_the_whole_though_it_meets_a_thirtieth(device):
    """A window of 128 of 8192 tokens meets 127 of 4096 keys; its kernel takes 0.15 to 0.2 of the
    whole, and so do we within 0.3.
    """
    attention = presets.calibration(device).kernels.attention
    attended = 128 * (1 - 128 / (2 * 8192))
    found = float(attention.seconds(1, 8192, 64, 128, attended, 128))
    assert found == pytest.approx(MEASURED_WINDOWS[device], rel=0.3)
    whole = float(attention.seconds(1, 8192, 64, 128, 4096))
    assert attended / 4096 < 0.032
    assert 0.12 < found / whole < 0.25


def test_a_window_as_wide_as_the_sequence_is_the_whole_and_none_takes_longer():
    attention = presets.calibration("h100").kernels.attention
    whole = float(attention.seconds(1, 4096, 32, 128, 2048))
    assert float(attention.seconds(1, 4096, 32, 128, 2048, 4096)) == whole
    windows = np.array([64.0, 1024.0, 4000.0, 8192.0])
    met = np.minimum(windows, 4096) * (1 - np.minimum(windows, 4096) / 8192)
    found = attention.seconds(1, 4096, 32, 128, met, windows)
    assert (np.diff(found) >= 0).all()
    assert found[-1] == whole == found.max()


def test_layers_of_gpt_oss_that_look_back_128_tokens_wait_for_memory():
    """Of its 8192 tokens' attention such a layer takes a sixth of a whole one, where its FLOPs are
    a thirtieth.
    """
    where = presets.cluster("b200", 8)
    kinds = layer_times(work("gpt-oss-20b"), where, Strategy(dp=8))
    narrow, whole = sorted(float(kind.attention) for kind in kinds)
    assert 0.1 < narrow / whole < 0.3


def test_a_narrow_product_leaves_its_cast_to_the_elementwise_work():
    """On a B200 an fp8 product of 8,192 x 28,672 x 4,096 takes half of the bf16 one, within
    a fifth.
    """
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
    inside = float(collectives.all_gather_time(cluster, 64e6, 8.0, 1.0))
    assert inside == float(timer.seconds(size=64e6, ranks=8.0))
    slow = replace(
        cluster, calibration=cluster.calibration.stated("links.scale_out_efficiency", 0.1)
    )
    fast_time, slow_time = (
        collectives.all_gather_time(machines, 64e6, 16.0, 1.0) for machines in (cluster, slow)
    )
    assert slow_time > fast_time


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
