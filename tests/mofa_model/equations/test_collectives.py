"""Collectives: latency and volume by hand, groups of one, and which tier a group is on."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mofa_model.equations import collectives as c
from mofa_model.spec import Calibration, Cluster, Device, Link, LinkConstants

WHOLE = LinkConstants(
    scale_up_efficiency=1.0,
    scale_out_efficiency=1.0,
    scale_up_hop=0.0,
    scale_out_hop=0.0,
    collective=0.0,
    scale_decay=0.0,
)
HGX = Cluster(
    device=Device(name="any", peak_bf16=1e15, memory=80e9, memory_bandwidth=3e12),
    gpus=1024,
    scale_up=Link(bandwidth=450e9, latency=1e-6),
    scale_out=Link(bandwidth=50e9, latency=2e-6),
    calibration=Calibration(links=WHOLE),
)
RING = replace(
    HGX,
    scale_up=Link(bandwidth=100e9, latency=10e-6),
    calibration=Calibration(links=replace(WHOLE, collective=1e-3)),
)
sizes, groups = st.floats(0.0, 1e12), st.integers(1, 4096)


def test_bandwidth_falls_by_a_tenth_with_each_doubling_of_the_nodes():
    """A decay of log2(1 / 0.9) = 0.152 is the paper's 0.9 per doubling."""
    decay = float(np.log2(1 / 0.9))
    left = c.bandwidth_at_scale(100e9, np.array([0.5, 1.0, 2.0, 4.0]), decay)
    assert left.tolist() == pytest.approx([100e9, 100e9, 90e9, 81e9])


def test_a_ring_all_gather_is_seven_hops_and_seven_eighths_of_the_bytes():
    """8 GB over 8 ranks at 100 GB/s: 7 x 10 us + 7/8 x 80 ms = 70.07 ms, after a start of 1 ms."""
    assert float(c.all_gather_time(RING, 8e9, 8, 1)) == pytest.approx(71.07e-3)
    at_once = replace(RING, calibration=Calibration(links=WHOLE))
    assert float(c.all_gather_time(at_once, 8e9, 8, 1)) == pytest.approx(70.07e-3)


def test_a_group_of_one_sends_nothing():
    assert float(c.all_gather_time(RING, 8e9, 1, 1)) == 0
    assert c.all_gather_time(RING, 8e9, np.array([1.0, 2.0]), 1)[0] == 0


def test_a_hop_of_100_mb_takes_its_latency_and_2_ms():
    assert c.point_to_point_time(1e8, 50e9, 3e-4) == pytest.approx(2.3e-3)


def test_eight_experts_lie_on_five_of_eight_nodes():
    """8 (1 - (7/8)^8) = 5.25 nodes; a routing limit of 4 makes it 4; one node is always hit."""
    assert float(c.nodes_hit(8.0, 8, 0)) == pytest.approx(8 * (1 - (7 / 8) ** 8))
    assert float(c.nodes_hit(8.0, 8, 4)) == 4
    assert float(c.nodes_hit(1.0, 8, 4)) == 1
    assert c.nodes_hit(np.array([0.125, 1.0, 2.0]), 1, 0).tolist() == [1.0, 1.0, 1.0]


def test_an_all_to_all_inside_a_domain_sends_every_copy_over_the_scale_up_link():
    """8 copies of 100 MB, of which 7/8 leave: 700 MB at 200 GB/s."""
    inside = c.all_to_all_time(1e8, 8, 8, 0, domains=1.0, up=200e9, out=1.0)
    assert float(inside) == pytest.approx(3.5e-3)


def test_an_all_to_all_between_domains_sends_a_token_once_to_each_domain():
    """64 ranks on 8 domains with at most 4 per token: 4 x 100 MB x 7/8 at 40 GB/s = 8.75 ms,
    against 3.94 ms inside.
    """
    across = c.all_to_all_time(1e8, 64, 8, 4, domains=8.0, up=200e9, out=40e9)
    assert float(across) == pytest.approx(8.75e-3)


def test_an_all_to_all_of_one_rank_sends_nothing():
    assert float(c.all_to_all_time(1e8, 1, 8, 0, domains=0.125, up=200e9, out=40e9)) == 0


def test_a_stack_that_reaches_half_of_a_link_has_half_of_its_bandwidth():
    """Eq. (18): 0.5 x 450 GB/s inside the node; 0.5 x 8 x 50 GB/s beyond it, where NVLink is
    the wider.
    """
    half = replace(WHOLE, scale_up_efficiency=0.5)
    inside = replace(HGX, calibration=Calibration(links=half))
    assert float(c.ring_bandwidth(inside, 8, 1)) == 225e9
    beyond = replace(HGX, calibration=Calibration(links=replace(WHOLE, scale_out_efficiency=0.5)))
    assert float(c.ring_bandwidth(beyond, 16, 1)) == 200e9
    assert float(c.ring_bandwidth(beyond, 8, 1)) == 450e9


def test_a_group_inside_the_node_has_nvlink_and_one_beyond_it_the_nics_of_all_its_members():
    """Eight members of a node have 8 x 50 = 400 GB/s together, below the 450 of NVLink; strided by
    8 it is one NIC.
    """
    assert float(c.ring_bandwidth(HGX, 8, 1)) == 450e9
    assert float(c.ring_bandwidth(HGX, 16, 1)) == 400e9
    assert float(c.ring_bandwidth(HGX, 16, 4)) == 100e9
    assert float(c.ring_bandwidth(HGX, 16, 8)) == 50e9
    assert [float(c.hop_latency(HGX, ranks, 1)) for ranks in (8, 16)] == [1e-6, 2e-6]


def test_a_ring_out_of_the_node_is_never_faster_than_one_inside():
    wide = replace(HGX, scale_out=Link(bandwidth=100e9))
    assert float(c.ring_bandwidth(wide, 16, 1)) == 450e9


def test_a_rack_is_one_domain():
    rack = replace(HGX, gpus_per_node=4, domain=72)
    assert c.ring_bandwidth(rack, np.array([72.0, 144.0]), 1).tolist() == [450e9, 450e9]
    assert float(c.ring_bandwidth(rack, 2, 72)) == 50e9


def test_above_its_leaf_group_a_fabric_thins_out():
    """32 nodes below a leaf, 4:1 above: 64 nodes of one member each have 12.5 GB/s."""
    thin = replace(HGX, spine_nodes=32, oversubscription=4.0)
    found = c.ring_bandwidth(thin, np.array([32.0, 64.0]), 8)
    assert found.tolist() == [50e9, 12.5e9]


@given(st.integers(0, 10), st.integers(0, 10))
def test_a_wider_group_never_has_more_bandwidth(size, stride):
    near, far = (c.ring_bandwidth(HGX, 2.0**n, 2.0**stride) for n in (size, size + 1))
    assert far <= near


def test_arrays_and_scalars_give_the_same_bits():
    group, size = np.array([1.0, 2.0, 8.0, 64.0]), np.array([1e3, 1e6, 1e9, 7e9])
    alone = [
        float(c.all_gather_time(HGX, s, g, 1))
        for s, g in zip(size.tolist(), group.tolist(), strict=True)
    ]
    assert c.all_gather_time(HGX, size, group, 1).tolist() == alone
