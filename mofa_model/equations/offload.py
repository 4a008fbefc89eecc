"""Memory of a device that keeps optimizer states or activations in its host, and what the host then holds."""

from __future__ import annotations

from mofa_model.units import Bytes, Count


def device_optimizer_bytes(optimizer: Bytes, *, on_host: bool) -> Bytes:
    """Optimizer bytes per parameter on the device, Eq. (27): none where they live in the host. [B]

    >>> device_optimizer_bytes(16.0, on_host=True)
    0.0
    """
    return 0.0 * optimizer if on_host else optimizer


def host_activation(
    in_flight: Count, layers: Count, layer: Bytes, layer_input: Bytes, devices: Count
) -> Bytes:
    """Activations that the devices of a node park in its host: n_inflight l (A - A_in) G, what Eq. (33) takes from them. [B]

    >>> host_activation(2, 16, 5.0e8, 1.0e8, 8)
    102400000000.0
    """
    return in_flight * layers * (layer - layer_input) * devices
