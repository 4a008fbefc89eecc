"""Compatibility forms: each against the printed figures that fixed it."""

import numpy as np
import pytest

from mofa_lab.validate import paper_equations as paper
from mofa_model.schedules import ONE_F_ONE_B, Flow


def test_a_step_of_10_s_with_1e17_forward_flop_on_100_devices_is_300_tflops_each():
    assert paper.achieved_rate(1e17, 100, 10.0) == 300e12


def test_the_ep_column_of_table_8_grows_by_a_ninth_per_doubling():
    """2.30 s at ep = 8 becomes 2.55, 2.84, 3.15, 3.50 and 3.89 s at 16 to 256."""
    found = paper.decayed_time(2.30, np.array([8.0, 16.0, 32.0, 64.0, 128.0, 256.0]), 8, 0.9)
    assert found.tolist() == pytest.approx([2.30, 2.55, 2.84, 3.15, 3.50, 3.89], abs=0.01)


def test_four_pieces_expose_a_quarter():
    """7.34 s of TP without overlap, 1.83 s with it."""
    assert paper.tensor_exposed(7.34, 4) == pytest.approx(1.83, abs=0.006)


def test_the_dp_column_of_table_6_is_a_time_per_parameter():
    """6.44e9 parameters at 0.2716 ns: 1.75 s at d = 32; each doubling adds 9 %."""
    assert paper.data_time(6.44e9, 0.2716e-9, 1.09, 0) == pytest.approx(1.75, abs=0.002)
    assert paper.data_time(6.44e9, 0.2716e-9, 1.09, np.array([0.0, 2.0]))[1] == pytest.approx(
        1.75 * 1.1881, rel=2e-3
    )


def test_expert_gradients_jump_out_of_their_cover():
    """Above 1.34 s they show, less 0.34 s; at the limit they do not."""
    found = paper.gradient_overflow(np.array([1.0, 1.34, 2.0]), 1.34, 0.34)
    assert found.tolist() == pytest.approx([0.0, 0.0, 1.66])


def test_a_layer_with_experts_is_a_line_in_the_experts_of_a_device():
    """77.9 ms and 0.206 ms for each of 32: 84.5 ms."""
    assert paper.expert_layer_time(77.9e-3, 0.206e-3, 32) == pytest.approx(84.5e-3, abs=1e-4)


def test_the_first_rank_holds_one_layer_less_for_the_embedding():
    """64 slots on 8 stages: 7 layers, of which 3 have a plain FFN and 4 have 10 experts each."""
    outside, inside = paper.first_rank_parameters(
        slots=64,
        stages=np.array([8.0, 4.0]),
        dense_layers=3,
        attention=2,
        dense=5,
        expert=1,
        local_experts=10,
    )
    assert outside.tolist() == [7 * 2 + 3 * 5, 15 * 2 + 3 * 5]
    assert inside.tolist() == [4 * 10, 12 * 10]


def test_reading_p_counts_stages_in_nodes():
    """LLaMA3-405B's shape: t = 4, p = 16 is P_n = 8, so 2 x 8 x 2 = 32 hops of 2 x 0.1 s."""
    time = paper.pipeline_time(
        layer=0.1,
        layers=4.0,
        head=0.0,
        hop=0.1,
        microbatches=64.0,
        stages=16.0,
        virtual=2.0,
        tensor=4.0,
    )
    assert float(time) == pytest.approx((128 + 3.5) * 0.4 + 32 * 0.2)


def test_reading_p_with_one_virtual_stage_beats_1f1b_without_communication():
    time = paper.pipeline_time(
        layer=1.0,
        layers=1.0,
        head=0.0,
        hop=0.0,
        microbatches=8.0,
        stages=8.0,
        virtual=1.0,
        tensor=8.0,
    )
    assert time == 11.5
    assert ONE_F_ONE_B.time(Flow(slowest=1.0, total=8.0, microbatches=8.0, stages=8.0)) == 15.0
