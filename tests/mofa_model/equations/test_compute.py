"""Time of operators: numbers that a pocket calculator gives, arrays, and what happens at
the edges.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mofa_model.equations import compute

IDEAL = dict(half_m=0.0, half_n=0.0, half_k=0.0, width=2.0, bandwidth=2e12)
positive = st.floats(1.0, 1e6)


def test_an_ideal_product_of_4096_cubed_is_137_gflop():
    """2 x 4096^3 = 137.4 GFLOP: 0.1374 ms at 1000 TFLOPS."""
    assert float(compute.gemm_time(4096, 4096, 4096, rate=1000e12, **IDEAL)) == pytest.approx(
        1.374e-4, rel=1e-3
    )


def test_a_product_takes_twice_its_time_where_a_side_is_its_half_size():
    twice = IDEAL | dict(half_m=128.0)
    assert compute.gemm_time(128, 8192, 8192, rate=1e12, **twice) == 2 * compute.gemm_time(
        128, 8192, 8192, rate=1e12, **IDEAL
    )


def test_a_product_with_one_row_moves_its_weights():
    """8192 x 8192 weights of 2 B are 134 MB, with 32 kB of vectors: 67.1 us at 2 TB/s, against 0.13
    us of FLOPs.
    """
    time = compute.gemm_time(1, 8192, 8192, rate=1000e12, **IDEAL)
    assert float(time) == pytest.approx((2 * 8192**2 + 2 * 2 * 8192) / 2e12, rel=1e-12)


@given(positive, positive, positive, st.floats(1.0, 4.0))
def test_a_larger_product_never_takes_less(m, n, k, more):
    given_halves = IDEAL | dict(half_m=150.0, half_n=150.0, half_k=150.0)
    time = lambda *sides: compute.gemm_time(*sides, rate=700e12, **given_halves)  # noqa: E731
    for larger in ((more * m, n, k), (m, more * n, k), (m, n, more * k)):
        assert time(*larger) >= time(m, n, k) * (1 - 1e-12)


def test_a_causal_token_meets_half_the_sequence_and_a_window_what_it_is_wide():
    """A window of 128 in 4096: 128 - 128^2 / 8192 = 126."""
    assert float(compute.attended_tokens(4096, 0.5, None)) == 2048
    assert float(compute.attended_tokens(4096, 0.5, 128)) == 126
    assert float(compute.attended_tokens(4096, 1.0, None)) == 4096


def test_a_window_wider_than_the_sequence_is_no_window():
    assert float(compute.attended_tokens(4096, 0.5, 9999)) == 2048
    assert compute.attended_tokens(4096, 0.5, np.array([128.0, 4096.0])).tolist() == [126, 2048]


FUSED = dict(rate=500e12, half=8.0, score_traffic=0.0, bandwidth=2e12)


def test_attention_fills_the_device_with_heads_and_tokens():
    """2 x 8192 x 4096 x 16 x 256 = 275 GFLOP at 500 TFLOPS are 0.55 ms; 16 heads x 2 units of 4096
    add 8/32 to it.
    """
    full = 2.0 * 8192 * 4096 * 16 * 256 / 500e12
    assert float(compute.attention_time(8192, 4096, 16, 256, **FUSED)) == pytest.approx(1.25 * full)
    assert float(
        compute.attention_time(8192, 4096, 16, 256, **FUSED | dict(half=0.0))
    ) == pytest.approx(full)


def test_unfused_attention_moves_every_score():
    """2048 x 2048 x 8 scores of 10 B are 336 MB: 0.168 ms at 2 TB/s more."""
    fused = compute.attention_time(2048, 2048, 8, 256, **FUSED)
    unfused = compute.attention_time(2048, 2048, 8, 256, **FUSED | dict(score_traffic=10.0))
    assert float(unfused - fused) == pytest.approx(10 * 2048 * 2048 * 8 / 2e12)


def test_moving_2_4_gb_at_2_4_tb_per_second_takes_a_millisecond():
    assert compute.elementwise_time(2.4e9, 2.4e12) == 1e-3
    assert compute.elementwise_time(0.0, 2.4e12) == 0.0


def test_ten_ranks_update_a_tenth_each():
    """1e9 parameters x 30 B / 2 TB/s = 15 ms alone."""
    assert compute.update_time(1e9, np.array([1.0, 10.0]), 30.0, 2e12).tolist() == [0.015, 0.0015]


def test_the_host_updates_llama_405b_in_2_25_s():
    """Table 6: 6.44e9 parameters, 4 B each way at 32 GB/s are 1.61 s; the rest is 0.099 ns
    a parameter.
    """
    transfer = compute.host_update_time(6.44e9, 4.0, 4.0, 32e9, np.inf)
    assert transfer == pytest.approx(1.61)
    assert compute.host_update_time(6.44e9, 4.0, 4.0, 32e9, 1.01e10) == pytest.approx(
        2.25, abs=0.005
    )


def test_4e17_flop_in_10_s_on_100_devices_of_1e15_are_40_percent():
    assert compute.model_flops_utilisation(4e17, 10.0, 100, 1e15) == 0.4
