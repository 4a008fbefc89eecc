"""Offloading: what stays on a device, and what its host then holds."""

import numpy as np

from mofa_model.equations import memory


def test_a_host_optimizer_leaves_nothing_on_the_device():
    assert memory.device_optimizer_bytes(16.0, on_host=True) == 0
    assert memory.device_optimizer_bytes(16.0, on_host=False) == 16.0
    assert memory.device_optimizer_bytes(np.array([12.0, 16.0]), on_host=True).tolist() == [
        0.0,
        0.0,
    ]


def test_what_leaves_a_device_arrives_in_its_host():
    """Two micro-batches of 16 layers, 400 MB each without the input."""
    assert memory.host_activation(2, 16, 5e8, 1e8) == 12.8e9
