"""What overlap leaves exposed: the closed forms against the sums they stand for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mofa_model.equations import overlap

times = st.just(0.0) | st.floats(1e-30, 100.0)
shares = st.just(0.0) | st.floats(1e-6, 1.0)


def test_compute_hides_communication_but_for_its_tail():
    """2 s beside 10 s leave the quarter that cannot hide; beside 0.5 s they leave 1.5 s."""
    assert float(overlap.exposed(2.0, 10.0, 0.25)) == 0.5
    assert float(overlap.exposed(2.0, 0.5, 0.25)) == 1.5
    assert overlap.exposed(np.array([2.0, 0.0]), 0.0, 0.25).tolist() == [2.0, 0.0]


@given(times, times, shares)
def test_exposed_time_lies_between_the_tail_and_the_whole(comm, cover, tail):
    left = overlap.exposed(comm, cover, tail)
    assert tail * comm <= left <= comm


def chunked(comm, gemm, n):
    """The sum of Eq. (20): T_c,1 + sum max(T_c,i, T_m,i-1) + T_m,n, less the GEMMs themselves."""
    c, g = comm / n, gemm / n
    return c + (n - 1) * max(c, g) + g - gemm


@given(times, times, st.integers(1, 16))
def test_the_closed_form_of_20_is_its_sum_over_n_equal_chunks(comm, gemm, n):
    """One chunk is exposed, and what n - 1 chunks of GEMM do not cover of the others."""
    c = comm / n
    assert float(overlap.tensor_exposed(comm, gemm, 1 / n)) == pytest.approx(
        chunked(comm, gemm, n), abs=1e-9
    )
    assert chunked(comm, gemm, n) >= c - 1e-9


def test_the_paper_s_tables_have_a_quarter_of_tp_exposed():
    """0.50 of 1.98 s and 1.83 of 7.34 s in Table 6: n = 4."""
    assert float(overlap.tensor_exposed(1.98, 17.0, 0.25)) == pytest.approx(0.50, abs=0.006)
    assert float(overlap.tensor_exposed(7.34, 60.0, 0.25)) == pytest.approx(1.83, abs=0.006)


def test_ring_attention_hides_messages_behind_three_of_four_blocks():
    """c = 4: 4 s of attention cover 3 s; on one rank nothing covers."""
    assert float(overlap.context_exposed(5.0, 4.0, 4, 0.0)) == 2.0
    assert float(overlap.context_exposed(5.0, 4.0, 1, 0.0)) == 5.0
    assert overlap.context_exposed(5.0, 4.0, np.array([1.0, 2.0, 4.0]), 0.0).tolist() == [
        5.0,
        3.0,
        2.0,
    ]


def test_an_all_to_all_of_3_s_beside_1_s_of_compute_leaves_2_s():
    assert float(overlap.expert_exposed(3.0, 1.0, 0.4)) == 2.0
    assert float(overlap.expert_exposed(3.0, 0.0, 1.0)) == 3.0


def test_offloading_shows_only_where_it_takes_longer_than_a_layer():
    """491 MB at 32 GB/s are 15.3 ms beside a forward of 19 ms: hidden. At 16 GB/s 11.7 ms
    are left.
    """
    assert float(overlap.offload_exposed(491e6 / 32e9, 19e-3)) == 0
    assert float(overlap.offload_exposed(491e6 / 16e9, 19e-3)) == pytest.approx(11.7e-3, abs=1e-4)


def test_gradients_are_exposed_in_full_without_reach():
    assert float(overlap.data_exposed(2.0, 3.0, 0.5, 0.1)) == 0.5
    assert float(overlap.data_exposed(2.0, 30.0, 0.5, 0.1)) == 0.2
    assert float(overlap.data_exposed(2.0, 30.0, 0.0, 0.1)) == 2.0


def test_compute_slows_down_only_while_something_runs_beside_it():
    """10 s with 2 s of communication beside it at a coefficient of 1.1: 0.2 s more; never more than
    all of it.
    """
    assert float(overlap.slowed(10.0, 2.0, 1.1)) == 10.2
    assert float(overlap.slowed(10.0, 20.0, 1.1)) == pytest.approx(11.0)
    assert float(overlap.slowed(10.0, 2.0, 1.0)) == 10.0


def test_host_and_device_that_take_as_long_add_a_fifth():
    """(1 + 1)^(1/4) = 1.1892; a host of half the time adds (1 + 1/16)^(1/4) = 1.5 %. Of kernels
    half as unlike, half of it.
    """
    assert float(overlap.smooth_max(1.0, 1.0)) == pytest.approx(2**0.25)
    assert float(overlap.smooth_max(1.0, 1.0, uneven=0.5)) == pytest.approx((1 + 2**0.25) / 2)
    assert float(overlap.smooth_max(1.0, 0.5)) == pytest.approx((17 / 16) ** 0.25)
    assert float(overlap.smooth_max(0.0, 0.0)) == 0
    assert overlap.smooth_max(np.array([3.0, 0.0]), np.array([0.0, 2.0])).tolist() == [3.0, 2.0]


@given(times, times)
def test_the_smooth_maximum_lies_between_the_maximum_and_the_sum(device, host):
    found = float(overlap.smooth_max(device, host))
    assert max(device, host) <= found <= (device + host) * (1 + 1e-12)
    assert found <= 2**0.25 * max(device, host) * (1 + 1e-12)
    assert found == overlap.smooth_max(host, device)


@given(times, times, st.floats(1.0, 3.0))
def test_the_smooth_maximum_grows_with_either_side(device, host, more):
    assert overlap.smooth_max(more * device, host) >= overlap.smooth_max(device, host) * (1 - 1e-12)


@given(times, times, shares, st.sampled_from([2.0**-10, 4.0, 2.0**30]))
def test_another_unit_of_time_rescales_every_form_exactly(a, b, share, unit):
    for form in (
        lambda x, y: overlap.exposed(x, y, share),
        lambda x, y: overlap.tensor_exposed(x, y, share),
        lambda x, y: overlap.context_exposed(x, y, 4, share),
        lambda x, y: overlap.data_exposed(x, y, 0.5, share),
        lambda x, y: overlap.slowed(x, y, 1.25),
        overlap.smooth_max,
    ):
        assert form(unit * a, unit * b) == unit * form(a, b)
