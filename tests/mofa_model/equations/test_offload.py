"""Offloading: what stays on a device, and what its host then holds."""

import numpy as np
import pytest

from mofa_model.equations import offload
from mofa_model.units import GIB

UNIT = 8192 * 16384 / 8
"""sbh/t of LLaMA3-405B: 16.8 MB."""


def test_a_host_optimizer_leaves_nothing_on_the_device():
    assert offload.device_optimizer_bytes(16.0, on_host=True) == 0
    assert offload.device_optimizer_bytes(16.0, on_host=False) == 16.0
    assert offload.device_optimizer_bytes(np.array([12.0, 16.0]), on_host=True).tolist() == [0.0, 0.0]


def test_offloaded_activations_are_one_layer_and_the_inputs_in_flight():
    """Eq. (33) for Table 6: 31.25 sbh/t and v L / p = 32 inputs of 2 sbh/t are 95.25 sbh/t = 1.49 GiB."""
    left = offload.offloaded_activation(31.25 * UNIT, 2 * UNIT, 32)
    assert left == 95.25 * UNIT
    assert left / GIB == pytest.approx(1.488, abs=1e-3)


def test_what_leaves_eight_devices_arrives_in_their_host():
    """Two micro-batches of 16 layers, 400 MB each without the input: 12.8 GB a device, 102.4 GB a node."""
    assert offload.host_activation(2, 16, 5e8, 1e8, 8) == 102.4e9


def test_the_optimizer_states_of_a_node_take_824_gb():
    """6.44e9 parameters x (12 + 4) B x 8 devices."""
    assert offload.host_optimizer(6.44e9, 12.0, 4.0, 8) == pytest.approx(824.3e9, rel=1e-3)


def test_the_first_row_of_table_6_is_34_46_gib():
    """Layers 128 x 3.28e9 / 64 of 4 B, vocabulary 128000 x 16384 / 8 of 4 B, 95.25 sbh/t, and 8 GiB."""
    peak = offload.paper_peak_memory(
        layers=128, hidden=16384, ffn=53248, heads=128, kv_heads=16, vocabulary=128000, sequence=8192,
        micro_batch=1, tensor=8, pipeline=8, data=1, virtual=2, host_optimizer=np.array([1.0, 0.0]),
    )  # fmt: skip
    layer = 2 * 16384**2 * (1 + 16 / 128) + 3 * 16384 * 53248
    parameters = 128 * layer / 64 + 128000 * 16384 / 8
    assert peak[0] == pytest.approx(4 * parameters + 95.25 * UNIT + 8 * GIB, rel=1e-12)
    assert peak[0] / GIB == pytest.approx(34.46, abs=0.005)
    assert peak[1] - peak[0] == pytest.approx(16 * parameters, rel=1e-12)
