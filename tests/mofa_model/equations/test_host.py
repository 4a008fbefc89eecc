"""Launches: what a host needs for a layer, whatever the shapes."""

import numpy as np
import pytest

from mofa_model.equations import host

SOUND = dict(gpus_per_node=8, extra_node=3.1e-3, extra_rank=0.0)


def test_a_layer_takes_as_long_to_launch_on_two_ranks_as_on_eight():
    """3.9 ms with sharded tensors, 3.0 ms without."""
    found = host.layer_launch_time(3.9e-3, 3.0e-3, np.array([1.0, 2.0, 4.0, 8.0]), **SOUND)
    assert found.tolist() == [3.0e-3, 3.9e-3, 3.9e-3, 3.9e-3]


def test_each_further_node_of_the_group_adds_to_it():
    """tp = 16 and 32 are on 2 and 4 nodes: 3.1 and 9.3 ms more."""
    found = host.layer_launch_time(3.9e-3, 3.0e-3, np.array([16.0, 32.0]), **SOUND)
    assert found.tolist() == pytest.approx([7.0e-3, 13.2e-3])


def test_a_defect_of_a_release_pays_for_each_rank_of_the_ring():
    """2.13 ms a rank: 8.2, 12.4 and 20.9 ms at tp = 2, 4 and 8."""
    slow = SOUND | dict(extra_rank=2.13e-3)
    found = host.layer_launch_time(3.9e-3, 3.0e-3, np.array([2.0, 4.0, 8.0]), **slow)
    assert found.tolist() == pytest.approx([8.16e-3, 12.42e-3, 20.94e-3])


def test_graphs_leave_a_share_of_the_launches_and_recomputation_adds_to_it():
    assert host.graph_share(1.0, 0.0, 0.33) == 1.0
    assert host.graph_share(1.0, 1.0, 0.33) == 1.33
    assert host.graph_share(0.15, 1.0, 0.33) == pytest.approx(0.1995)


def test_an_exchange_beside_another_micro_batch_costs_launches_and_graphs_spare_them():
    """A share of 0.4: 1.4 times as many, 1.24 under partial graphs, 1.06 where a step is
    one graph.
    """
    found = [host.overlap_launches(0.4, captured) for captured in (1.0, 0.6, 0.15)]
    assert found == pytest.approx([1.4, 1.24, 1.06])
    assert host.overlap_launches(0.0, 1.0) == 1.0


def test_turns_add_the_smaller_time():
    """Device 3 s, host 2 s: 3 s overlapped, 5 s in turns, 4 s half and half."""
    assert [float(host.serialised(3.0, 2.0, 3.0, share)) for share in (0.0, 0.5, 1.0)] == [
        3.0,
        4.0,
        5.0,
    ]
    assert host.serialised(np.array([3.0, 1.0]), 2.0, np.array([3.0, 2.0]), 1.0).tolist() == [
        5.0,
        3.0,
    ]


def with_waits(passes, total):
    shortest = host.shortest_pass(passes, total)
    return [np.maximum(one, shortest) for one in passes]


def test_the_shortest_passes_wait_until_they_are_as_long_as_each_other():
    """0.35 s of waiting: 0.05 s make two passes alike, and each gets half of the rest; 2 s make all
    three alike.
    """
    assert with_waits((0.25, 0.55, 0.2), 1.35) == pytest.approx([0.4, 0.55, 0.4])
    assert with_waits((0.25, 0.55, 0.2), 1.04) == pytest.approx([0.25, 0.55, 0.24])
    assert with_waits((0.25, 0.55, 0.2), 3.0) == pytest.approx([1.0, 1.0, 1.0])


def test_more_waiting_makes_no_pass_shorter():
    totals = 1.0 + np.linspace(0.0, 3.0, 50)
    passes = with_waits((0.3, 0.6, 0.1), totals)
    assert sum(passes) == pytest.approx(totals)
    for one in passes:
        assert np.all(np.diff(one) >= 0)
